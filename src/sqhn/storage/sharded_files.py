"""Memories in several files: a file for each shard of a memory, and one file that names them.

The shard files of `memory.sqhn` are in the folder `memory.sqhn.pieces`. They are written before the file that names
them replaces the old one, and shard files that it does not name are removed after that: at any moment there is one
whole memory.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as serialize

from sqhn.banks.interface import State
from sqhn.protocol import MemoryFileError
from sqhn.storage.atomic import write_whole
from sqhn.storage.headers import read_header, read_rows

PIECE_NAME = r"[0-9a-f]{8}-\d+\.piece"
OURS = re.compile(rf"{PIECE_NAME}|\.{PIECE_NAME}\.[0-9a-f]+\.tmp")  # with drafts that a crash left behind
Entry = dict[str, Any]
"""A shard file as the header of its memory lists it: its name, and the digest of its content."""


def folder_of(path: str | os.PathLike[str]) -> Path:
    """The folder of the shard files of a memory."""
    return Path(f"{os.path.realpath(path)}.pieces")


def write_shard_files(folder: Path, states: Iterator[State]) -> list[Entry]:
    """Write a file for each state of a shard; the entries for the header."""
    folder.mkdir(exist_ok=True)
    entries, token = [], secrets.token_hex(4)  # new names each time: readers notice that another memory was saved
    for number, state in enumerate(states):
        content = serialize({name: np.ascontiguousarray(array) for name, array in state.items()})
        name = f"{token}-{number}.piece"
        write_whole(folder / name, content)
        entries.append({"name": name, "sha256": hashlib.sha256(content).hexdigest()})
    return entries


def keep_only(folder: Path, entries: Sequence[Entry]) -> None:
    """Remove all other shard files; and the folder, if it is empty then."""
    named = {entry["name"] for entry in entries}
    with suppress(OSError):  # files that stay do no harm
        for path in folder.iterdir():
            if OURS.fullmatch(path.name) and path.name not in named:
                path.unlink()
        folder.rmdir()


class ShardFile:
    """A file with some neurons of a bank: their numbers, in order, and arrays that have a row for each.

    It stays open, because it may be removed meanwhile.
    """

    def __init__(self, folder: Path, entry: Entry) -> None:
        name = entry["name"]
        if not isinstance(name, str) or not re.fullmatch(PIECE_NAME, name):
            raise ValueError(f"a shard file with the name {name!r}")
        self.path = folder / name
        self.file = self.path.open("rb")
        if hashlib.file_digest(self.file, "sha256").hexdigest() != entry["sha256"]:
            raise MemoryFileError(f"{self.path} is damaged: its content does not match its digest")
        _, self.arrays = read_header(self.file)
        self.number = read_rows(self.file, self.arrays["number"])
        if len(self.number) and (self.number[0] < 0 or (np.diff(self.number) <= 0).any()):
            raise ValueError(f"{self.path} has neurons that are not in order")

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.file.close()


class Rows:
    """An array whose rows are in shard files: read when they are asked for, with a slice."""

    def __init__(self, files: Sequence[ShardFile], name: str) -> None:
        self.files, self.name = files, name
        _, self.dtype, shape = files[0].arrays[name]
        self.shape = (sum(len(file.number) for file in files), *shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: slice) -> NDArray[Any]:
        first, last, _ = which.indices(len(self))
        found = np.empty((max(0, last - first), *self.shape[1:]), self.dtype)
        for file in self.files:
            a, b = np.searchsorted(file.number, [first, last])
            found[file.number[a:b] - first] = read_rows(file.file, file.arrays[self.name], a, b)
        return found


def open_shard_files(path: str | os.PathLike[str], entries: Sequence[Entry]) -> dict[str, Rows]:
    """The arrays of level 1 in the shard files of a memory; checked, but not read yet."""
    files = [ShardFile(folder_of(path), entry) for entry in entries]
    numbers = np.sort(np.concatenate([file.number for file in files]))
    if (numbers != np.arange(len(numbers))).any():
        raise ValueError(f"shard files with {len(numbers)} neurons, but not each of them once")
    for file in files:
        found, first = ({name: (a.dtype, a.shape[1:]) for name, a in one.arrays.items()} for one in (file, files[0]))
        if found != first or any(array.shape[0] != len(file.number) for array in file.arrays.values()):
            raise ValueError(f"shard files that do not fit together: {found} and {first}")
    return {f"level1.{name}": Rows(files, name) for name in files[0].arrays if name != "number"}
