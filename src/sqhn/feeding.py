"""Whatever gives samples, fed to a memory: `SQHN.learn_stream`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqhn.checks import check_number
from sqhn.door import as_numpy, is_tensor, parts
from sqhn.files import check_writable

if TYPE_CHECKING:
    from sqhn.network import SQHN

__all__ = ["Fed", "feed"]

BATCH = 256  # samples that are taken at once of what is there already


class Fed(NamedTuple):
    """What a stream came to: so many samples were learned, so many of them as new neurons, in so many seconds."""

    learned: int
    grew: int
    seconds: float


def feed(
    memory: SQHN, samples: Iterable[Any], progress: bool, checkpoint: tuple[str | os.PathLike[str], float] | None
) -> Fed:
    """Teach a memory what an iterable gives (see `SQHN.learn_stream`)."""
    from rich.console import Console
    from rich.progress import track

    path, seconds = checkpoint or (None, 0.0)
    check_number("the seconds of a checkpoint", seconds, zero=True)
    if path is not None:
        check_writable(Path(path))
    items, total = _items(samples, memory.input_shape)
    begin = saved = time.monotonic()
    learned = grew = 0
    shown = progress and (console := Console(stderr=True)).is_terminal
    try:
        for place, item in enumerate(track(items, "learning", total, console=console) if shown else items):
            try:
                written = memory.learn(item)
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"item {place} of the stream, after {learned} samples: {error}") from error
            learned += as_numpy(written.grew).size
            grew += int(as_numpy(written.grew).sum())
            if path is not None and time.monotonic() - saved >= seconds:
                memory.save(path)
                saved = time.monotonic()
    finally:
        if path is not None and learned:
            memory.save(path)
    return Fed(learned, grew, time.monotonic() - begin)


def _items(samples: Any, shape: tuple[int, ...]) -> tuple[Iterator[Any], int | None]:
    """What to learn one after another, and how many there are, if that is known."""
    if hasattr(samples, "to_numpy") and hasattr(samples, "iloc"):  # a DataFrame
        rows = parts(len(samples), BATCH)
        return (samples.iloc[part].to_numpy(np.float32) for part in rows), -(-len(samples) // BATCH)
    if isinstance(samples, np.ndarray) or is_tensor(samples):
        if samples.shape == shape:
            raise ValueError(f"a stream is of samples of shape {shape}; got one of them")
        return (samples[part] for part in parts(len(samples), BATCH)), -(-len(samples) // BATCH)
    total = len(samples) if hasattr(samples, "__len__") else None
    return (_first(item) for item in samples), total


def _first(item: Any) -> Any:
    """The samples of what a loader gives: arrays, of which the first has them."""
    several = isinstance(item, (tuple, list)) and len(item) > 0 and hasattr(item[0], "shape")
    return item[0] if several else item
