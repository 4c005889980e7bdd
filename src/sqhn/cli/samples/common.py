"""What pictures and arrays have in common: files to read, places to write to, and how much at once."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "PICTURES",
    "STDIN",
    "Bad",
    "Fit",
    "SampleError",
    "Write",
    "check_file",
    "check_places",
    "chunk_of",
    "listed",
    "name_below",
    "named_after",
]

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
STDIN = "-"
CHUNK = 256
CHUNK_BYTES = 1 << 24
MOST = 20  # files that an error names

Write = Callable[[NDArray[np.float32]], None]
Bad = dict[str, str]  # files that cannot be used, and why


class SampleError(ValueError):
    """Samples that cannot be used; the message names the file."""


class Fit(NamedTuple):
    """The shape that samples must have, and who says so."""

    shape: tuple[int, ...]
    owner: str = "the memory holds"


def listed(bad: Bad) -> str:
    """Why files cannot be used, on one line."""
    reasons = "; ".join(islice(bad.values(), MOST))
    more = f"; and {len(bad) - MOST:,} more" if len(bad) > MOST else ""
    return reasons if len(bad) == 1 else f"{len(bad):,} files cannot be used: {reasons}{more}"


def check_file(path: Path) -> None:
    """Raise unless it is a plain file: a pipe would be waited for, as long as nobody writes to it."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise SampleError(f"{path} is not a file")


def chunk_of(shape: tuple[int, ...], itemsize: int) -> int:
    """How many samples to read at once."""
    return max(1, min(CHUNK, CHUNK_BYTES // (math.prod(shape) * itemsize)))


def name_below(folder: str, file: str) -> str:
    """What a file is called within a folder."""
    return "stdin" if file == STDIN else Path(os.path.relpath(file, folder)).as_posix()


def named_after(out: Path, suffix: str) -> Path:
    """`out` itself, if it is named after what will be in it."""
    if out.suffix.lower() != suffix:
        raise SampleError(f"{out} must be a folder or end in {suffix}, for that is what is written")
    return out


def check_places(sources: list[Path], places: list[Path]) -> None:
    """Nothing may be written twice, or over what is still to be read."""
    given = {path.resolve() for path in sources}
    taken: dict[Path, Path] = {}
    for source, place in zip(sources, places):
        if place.resolve() in given:
            raise SampleError(f"what is recalled for {source} would be written over {place}: give another --out")
        if place in taken:
            raise SampleError(
                f"{taken[place]} and {source} would both be written to {place}: rename one, or leave one out"
            )
        taken[place] = source
