"""The common part of images and arrays: checks of files and places, and the size of chunks."""

from __future__ import annotations

import math
import os
import stat
from itertools import islice
from pathlib import Path
from typing import NamedTuple

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
STDIN = "-"
CHUNK_SAMPLES = 256  # samples that are read at a time
CHUNK_BYTES = 1 << 24
NAMED_FILES = 20  # the largest number of files that an error names

Unusable = dict[str, str]  # file: reason


class SampleError(ValueError):
    """Samples that cannot be used; the message names the file."""


class Required(NamedTuple):
    """The shape that samples must have, and the reason for errors."""

    shape: tuple[int, ...]
    reason: str = "the memory holds"


def summary(unusable: Unusable) -> str:
    """Why files cannot be used, on one line."""
    reasons = "; ".join(islice(unusable.values(), NAMED_FILES))
    more = f"; and {len(unusable) - NAMED_FILES:,} more" if len(unusable) > NAMED_FILES else ""
    return reasons if len(unusable) == 1 else f"{len(unusable):,} files cannot be used: {reasons}{more}"


def check_file(path: Path) -> None:
    """Raise unless it is a regular file: reading a pipe would wait for a writer."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise SampleError(f"{path} is not a file")


def chunk_length(shape: tuple[int, ...], itemsize: int) -> int:
    """How many samples to read at a time."""
    return max(1, min(CHUNK_SAMPLES, CHUNK_BYTES // (math.prod(shape) * itemsize)))


def name_below(folder: str, file: str) -> str:
    """The name of a file relative to a folder."""
    return "stdin" if file == STDIN else Path(os.path.relpath(file, folder)).as_posix()


def named_after(out: Path, suffix: str) -> Path:
    """`out`, if it has the suffix of the files that are written."""
    if out.suffix.lower() != suffix:
        raise SampleError(f"{out} must be a folder or end in {suffix}, the format that is written")
    return out


def check_places(sources: list[Path], places: list[Path]) -> None:
    """Raise if a place would be written twice, or is a source."""
    given = {path.resolve() for path in sources}
    taken: dict[Path, Path] = {}
    for source, place in zip(sources, places):
        if place.resolve() in given:
            raise SampleError(f"the output for {source} would overwrite the source {place}: give another --out")
        if place in taken:
            raise SampleError(
                f"{taken[place]} and {source} would both be written to {place}: rename one, or leave one out"
            )
        taken[place] = source
