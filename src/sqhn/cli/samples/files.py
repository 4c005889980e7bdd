"""Files of samples: finding them, and checks of files and places, for images and arrays alike."""

from __future__ import annotations

import glob
import math
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from sqhn.cli.common import counted, say

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif")
UNREAD_SUFFIXES = (
    *(".heic", ".heif", ".jxl", ".jp2", ".psd", ".svg"),
    *(".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2"),  # of cameras
)
STDIN = "-"
CHUNK_SAMPLES = 256  # samples that are read at a time
CHUNK_BYTES = 1 << 24
NAMED_FILES = 20  # the largest number of files that an error names

Unusable = dict[str, str]  # file: reason


class Required(NamedTuple):
    """The shape that samples must have, and the reason for errors; memory: whether a memory there has this shape."""

    shape: tuple[int, ...]
    reason: str = "the memory holds"
    memory: bool = True


class Found(NamedTuple):
    """Files in the order of their sources, their common folder, and the images among them that cannot be read."""

    files: list[str]
    folder: str
    unread: list[str]


def find(sources: Sequence[str]) -> Found:
    """The files of folders, files, patterns and standard input; the formats that are not read are named on stderr."""
    files: list[str] = []
    unread: list[str] = []
    folders: set[str] = set()
    for source in sources:
        path = Path(source)
        if source == STDIN:
            found = [source]
        elif path.is_dir():
            found = _below(path, unread)
            folders.add(os.path.normpath(path.absolute()))
        else:
            found = [str(path)] if path.exists() else _matching(source, unread)
            folders |= {os.path.normpath(Path(file).parent.absolute()) for file in found}
        files += found
    if files.count(STDIN) > 1:
        raise ValueError(f"{STDIN} is standard input, which can be read only once: give it once")
    if unread:
        say(f"{counted(unread, 'file is', 'files are')} in a format that is not read: {_listed(unread)}")
    return Found(files, os.path.commonpath(folders) if folders else "", unread)


def _below(folder: Path, unread: list[str]) -> list[str]:
    """The images below a folder, sorted, without hidden files and folders; those in other formats go to `unread`."""

    def fail(error: OSError) -> None:
        raise error

    images: list[str] = []
    for at, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        images += [str(Path(at, name)) for name in files if not name.startswith(".") and is_image(name)]
    found = sorted(images, key=lambda image: image.replace(os.sep, "/"))
    return _readable(found, unread, f"{folder} holds no images")


def _readable(found: list[str], unread: list[str], problem: str) -> list[str]:
    """The files whose format is read; the others go to `unread`. It is an error if there is none."""
    other = [file for file in found if not is_read(file)]
    if len(other) == len(found):
        raise ValueError(f"{problem}{f' of a format that is read, only {_listed(other)}' if other else ''}")
    unread += other
    return [file for file in found if is_read(file)]


def is_image(name: str) -> bool:
    """Whether the name is that of an image, in any format."""
    return name.lower().endswith((*IMAGE_SUFFIXES, *UNREAD_SUFFIXES))


def is_read(name: str) -> bool:
    """Whether files of this name are read; .avif if Pillow can."""
    from PIL import features

    suffix = Path(name).suffix.lower()
    return suffix not in UNREAD_SUFFIXES and (suffix != ".avif" or bool(features.check("avif")))


def _matching(pattern: str, unread: list[str]) -> list[str]:
    """The images and .npy files that match a pattern, sorted; as in a shell, but ** is any number of folders.

    Each file counts once, under its shortest name: links may lead to it by several, or round in circles.
    """
    if not any(sign in pattern for sign in "*?["):
        raise ValueError(f"there is no {pattern}")
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207  # unlike Path.glob, it skips hidden files, as shells do
    named = [file for file in found if (is_image(file) or file.lower().endswith(".npy")) and Path(file).is_file()]
    files = sorted({os.path.realpath(file): file for file in sorted(named, key=len, reverse=True)}.values())
    return _readable(files, unread, f"no image and no .npy file matches {pattern}")


def summary(unusable: Unusable, others: bool = True) -> str:
    """Why files cannot be used, on one line; files may share a reason. others: whether some can be used."""
    reasons = dict.fromkeys(unusable.values())
    count = f"{len(unusable):,} files cannot be used: " if len(reasons) > 1 else ""
    return f"{count}{_listed(reasons, '; ')}{' (--skip-bad leaves such files out)' if others else ''}"


def _listed(words: Iterable[str], separator: str = ", ") -> str:
    """The first of some words, and how many more there are."""
    each = list(words)
    more = [f"and {len(each) - NAMED_FILES:,} more"] if len(each) > NAMED_FILES else []
    return separator.join([*each[:NAMED_FILES], *more])


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
