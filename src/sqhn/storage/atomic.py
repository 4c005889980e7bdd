"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write piece by piece, beside its place; moved there when the block ends well.

    An old file of that name is replaced or stays as it was. A link stays a link, and its target is replaced.
    """
    place = regular(path)
    draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")  # new each time: a crash may have left one
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
        sync_folder(place.parent)
    except BaseException as error:
        with suppress(OSError):  # for instance, the folder is a file; the first error is the one to report
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(draft)):  # a draft, which nobody asked for
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def regular(path: str | os.PathLike[str]) -> Path:
    """The file that a name stands for, without links; OSError if it is something other than a regular file."""
    place = Path(os.path.realpath(path))
    if place.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file")
    if os.path.lexists(place) and not place.is_file():
        raise OSError(f"{path} is not a file, but a pipe, a device or a link to itself")
    return place


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, which then outlast a power cut."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder outlast a power cut, where there is a way."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file with this content."""
    with written_whole(path) as file:
        file.write(content)
