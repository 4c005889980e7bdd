"""Files of samples: finding them, and checks of files and places, for images and arrays alike."""

from __future__ import annotations

import glob
import math
import os
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
STDIN = "-"
CHUNK_SAMPLES = 256  # samples that are read at a time
CHUNK_BYTES = 1 << 24
NAMED_FILES = 20  # the largest number of files that an error names

Unusable = dict[str, str]  # file: reason


class Required(NamedTuple):
    """The shape that samples must have, and the reason for errors."""

    shape: tuple[int, ...]
    reason: str = "the memory holds"


def find(sources: Sequence[str]) -> tuple[list[str], str]:
    """The files of folders, files, patterns and standard input in order, and the common folder of all of them."""
    files: list[str] = []
    folders: set[str] = set()
    for source in sources:
        path = Path(source)
        if source == STDIN:
            found = [source]
        elif path.is_dir():
            found = _below(path)
            folders.add(os.path.normpath(path.absolute()))
        else:
            found = [str(path)] if path.exists() else _matching(source)
            folders |= {os.path.normpath(Path(file).parent.absolute()) for file in found}
        files += found
    if files.count(STDIN) > 1:
        raise ValueError(f"{STDIN} is standard input, which can be read only once: give it once")
    return files, os.path.commonpath(folders) if folders else ""


def _below(folder: Path) -> list[str]:
    """The images below a folder, sorted, without hidden files and folders."""

    def fail(error: OSError) -> None:
        raise error

    images: list[str] = []
    for at, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found = (name for name in files if not name.startswith(".") and name.lower().endswith(IMAGE_SUFFIXES))
        images += [str(Path(at, name)) for name in found]
    if not images:
        raise ValueError(f"{folder} holds no images ({', '.join(IMAGE_SUFFIXES)})")
    return sorted(images, key=lambda image: image.replace(os.sep, "/"))


def _matching(pattern: str) -> list[str]:
    """The images and .npy files that match a pattern, sorted; as in a shell, but ** is any number of folders.

    Each file counts once, under its shortest name: links may lead to it by several, or round in circles.
    """
    if not any(sign in pattern for sign in "*?["):
        raise ValueError(f"there is no {pattern}")
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207  # unlike Path.glob, it skips hidden files, as shells do
    named = [file for file in found if file.lower().endswith((*IMAGE_SUFFIXES, ".npy")) and Path(file).is_file()]
    files = sorted({os.path.realpath(file): file for file in sorted(named, key=len, reverse=True)}.values())
    if not files:
        raise ValueError(f"no image ({', '.join(IMAGE_SUFFIXES)}) and no .npy file matches {pattern}")
    return files


def summary(unusable: Unusable) -> str:
    """Why files cannot be used, on one line."""
    reasons = "; ".join(islice(unusable.values(), NAMED_FILES))
    more = f"; and {len(unusable) - NAMED_FILES:,} more" if len(unusable) > NAMED_FILES else ""
    return reasons if len(unusable) == 1 else f"{len(unusable):,} files cannot be used: {reasons}{more}"


def check_file(path: Path) -> None:
    """Raise unless it is a regular file: reading a pipe would wait for a writer."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is not a file")


def chunk_length(shape: tuple[int, ...], itemsize: int) -> int:
    """How many samples to read at a time."""
    return max(1, min(CHUNK_SAMPLES, CHUNK_BYTES // (math.prod(shape) * itemsize)))


def name_below(folder: str, file: str) -> str:
    """The name of a file relative to a folder."""
    return "stdin" if file == STDIN else Path(os.path.relpath(file, folder)).as_posix()
