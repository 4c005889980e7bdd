"""Whatever gives samples, fed to a memory: `SQHN.learn_stream`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqhn.checks import check_number
from sqhn.inputs import as_numpy, is_tensor, parts, stacked
from sqhn.storage.atomic import check_writable

if TYPE_CHECKING:
    from sqhn.memory import SQHN
    from sqhn.protocol import Written

__all__ = ["Streamed", "learn_stream"]

BATCH = 256  # samples that are taken at once of what is there already
Checkpoint = tuple[str | os.PathLike[str], float]


class Streamed(NamedTuple):
    """What a stream came to: so many samples were learned, so many of them as new neurons, in so many seconds."""

    learned: int
    grew: int
    seconds: float


def learn_stream(memory: SQHN, samples: Iterable[Any], progress: bool, checkpoint: Checkpoint | None) -> Streamed:
    """Teach a memory what an iterable gives (see `SQHN.learn_stream`)."""
    from rich.console import Console
    from rich.progress import track

    path, seconds = _checked(checkpoint)
    items, total = _items(samples, memory.input_shape)
    begin = saved = time.monotonic()
    first, learned, grew = memory.step, 0, 0
    shown = progress and (console := Console(stderr=True)).is_terminal
    try:
        for written in _written(memory, track(items, "learning", total, console=console) if shown else items):
            learned += as_numpy(written.grew).size
            grew += int(as_numpy(written.grew).sum())
            if path is not None and time.monotonic() - saved >= seconds:
                memory.save(path)
                saved = time.monotonic()
    except BaseException as error:
        if path is not None and memory.step > first:
            try:
                memory.save(path)
            except OSError as other:
                error.add_note(f"and what was learned could not be saved: {other}")
        raise
    if path is not None:
        memory.save(path)
    return Streamed(learned, grew, time.monotonic() - begin)


def _checked(checkpoint: Checkpoint | None) -> tuple[Path | None, float]:
    """Where to save, and how often."""
    if checkpoint is None:
        return None, 0.0
    if not isinstance(checkpoint, tuple) or len(checkpoint) != 2 or not isinstance(checkpoint[0], (str, os.PathLike)):
        raise TypeError(f"checkpoint must be a file and a number of seconds, ('m.sqhn', 60); got {checkpoint!r}")
    path, seconds = Path(checkpoint[0]), check_number("the seconds of a checkpoint", checkpoint[1], zero=True)
    check_writable(path)
    return path, seconds


Items = Iterator[tuple[int | None, Any]]
"""What to learn one after another; of a part of an array also the number of its first sample."""


def _written(memory: SQHN, items: Iterable[tuple[int | None, Any]]) -> Iterator[Written]:
    """What became of each item; what cannot be learned is named by its place."""
    learned = 0
    for place, (start, item) in enumerate(items):
        try:
            written = memory.learn(item)
        except (TypeError, ValueError) as error:
            if start is None:
                raise _named(error, f"item {place} of the stream, after {learned} samples") from error
            yield from _one_by_one(memory, start, item)
            continue
        learned += as_numpy(written.grew).size
        yield written


def _one_by_one(memory: SQHN, start: int, samples: Any) -> Iterator[Written]:
    """The samples of a part that cannot be learned at once, up to the one that is why."""
    for number, sample in enumerate(samples, start):
        try:
            written = memory.learn(sample)
        except (TypeError, ValueError) as error:
            raise _named(error, f"sample {number} of the stream") from error
        yield written


def _named(error: Exception, place: str) -> Exception:
    return (TypeError if isinstance(error, TypeError) else ValueError)(f"{place}: {error}")


def _items(samples: Any, shape: tuple[int, ...]) -> tuple[Items, int | None]:
    """What to learn, and how many items that is, if it is known."""
    array = samples.to_numpy() if hasattr(samples, "to_numpy") else samples  # a DataFrame of any kind
    if isinstance(array, np.ndarray) or is_tensor(array):
        if tuple(array.shape[1:]) != shape or array.ndim != len(shape) + 1:
            raise ValueError(f"a stream is of many samples of shape {shape}; got shape {tuple(array.shape)}")
        return ((part.start, array[part]) for part in parts(len(array), BATCH)), -(-len(array) // BATCH)
    total = len(array) if hasattr(array, "__len__") else None
    if total is None and not hasattr(array, "__iter__"):
        raise TypeError(f"a stream is something that gives samples one after another; got {array!r}")
    return ((None, _samples_of(item, shape)) for item in array), total


def _samples_of(item: Any, shape: tuple[int, ...]) -> Any:
    """The samples of an item: of what a loader gives, the first; a list of samples is a batch of them."""
    if not isinstance(item, (tuple, list)) or not len(item):
        return item
    shapes = [tuple(getattr(one, "shape", ())) for one in item]
    if isinstance(item, list) and set(shapes) == {shape}:
        return stacked(item)
    return item[0] if shapes[0] == shape or shapes[0][1:] == shape else item
