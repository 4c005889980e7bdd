"""Learning from any iterable of samples: `SQHN.learn_stream`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqhn.checks import check_number
from sqhn.inputs import as_batch, as_numpy, batches, is_tensor
from sqhn.storage.files import check_place

if TYPE_CHECKING:
    from sqhn.memory import SQHN
    from sqhn.protocol import Written

BATCH = 256  # samples of an array that are learned at once
Checkpoint = tuple[str | os.PathLike[str], float]


class Streamed(NamedTuple):
    """The outcome of a stream: how many samples were learned, how many grew a neuron, and how long it took."""

    learned: int
    grew: int
    seconds: float


def learn_stream(memory: SQHN, samples: Iterable[Any], progress: bool, checkpoint: Checkpoint | None) -> Streamed:
    """Learn the samples of an iterable (see `SQHN.learn_stream`)."""
    from rich.console import Console
    from rich.progress import track

    path, seconds = _checked(checkpoint)
    items, total = _items(samples, memory.input_shape)
    start = saved = time.monotonic()
    first, learned, grew = memory.step, 0, 0
    if progress and (console := Console(stderr=True)).is_terminal:
        items = iter(track(items, "learning", total, console=console))
    try:
        for written in _learn_each(memory, items):
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
                error.add_note(f"and the memory could not be saved: {other}")
        raise
    if path is not None:
        memory.save(path)
    return Streamed(learned, grew, time.monotonic() - start)


def _checked(checkpoint: Checkpoint | None) -> tuple[Path | None, float]:
    """The file of a checkpoint, and its interval in seconds."""
    if checkpoint is None:
        return None, 0.0
    if not isinstance(checkpoint, tuple) or len(checkpoint) != 2 or not isinstance(checkpoint[0], (str, os.PathLike)):
        raise TypeError(f"checkpoint must be a file and a number of seconds, ('m.sqhn', 60); got {checkpoint!r}")
    path, seconds = Path(checkpoint[0]), check_number("the seconds of a checkpoint", checkpoint[1], zero=True)
    check_place(path)
    return path, seconds


Items = Iterator[tuple[int | None, Any]]
"""Samples or batches to learn; those of an array come with the number of their first sample."""


def _learn_each(memory: SQHN, items: Items) -> Iterator[Written]:
    """Learn item by item; an error names the position of the item, or of the sample of an array."""
    learned = 0
    for position, (start, item) in enumerate(items):
        try:
            written = memory.learn(item)
        except (TypeError, ValueError) as error:
            if start is not None and tuple(item.shape) != memory.input_shape:  # learn its samples up to the bad one
                yield from _learn_each(memory, enumerate(item, start))
                continue
            item_name = f"item {position} of the stream, after {learned} samples"
            name = item_name if start is None else f"sample {start} of the stream"
            raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{name}: {error}") from error
        learned += as_numpy(written.grew).size
        yield written


def _items(samples: Any, shape: tuple[int, ...]) -> tuple[Items, int | None]:
    """The items of an iterable, and their number if it is known."""
    array = samples.to_numpy() if hasattr(samples, "to_numpy") else samples  # a DataFrame of any kind
    if isinstance(array, np.ndarray) or is_tensor(array):
        if tuple(array.shape[1:]) != shape:
            raise ValueError(f"a stream needs a batch of samples of shape {shape}; got shape {tuple(array.shape)}")
        return ((batch.start, array[batch]) for batch in batches(len(array), BATCH)), -(-len(array) // BATCH)
    total = len(array) if hasattr(array, "__len__") else None
    if total is None and not hasattr(array, "__iter__"):
        raise TypeError(f"a stream must be an iterable of samples; got {array!r}")
    return ((None, _samples_of(item, shape)) for item in array), total


def _samples_of(item: Any, shape: tuple[int, ...]) -> Any:
    """The samples of an item: the first element of a tuple or list of a loader; a list of samples is a batch."""
    if not isinstance(item, (tuple, list)) or not len(item):
        return item
    shapes = [tuple(getattr(one, "shape", ())) for one in item]
    if isinstance(item, list) and set(shapes) == {shape}:
        return as_batch(item)
    return item[0] if shapes[0] == shape or shapes[0][1:] == shape else item
