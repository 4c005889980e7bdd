"""Memories in several files: a piece for each place that a memory is in, and one file that names them.

The pieces of `memory.sqhn` are in the folder `memory.sqhn.pieces`. They are there before the file that names them is
moved to its place, and those that no file names any more go after that: at any moment there is one whole memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as serialize

from sqhn.banks.interface import State
from sqhn.protocol import MemoryFileError
from sqhn.storage.atomic import write_whole
from sqhn.storage.lockfile import held

__all__ = ["Entry", "Rows", "folder_of", "keep_only", "one_at_a_time", "open_pieces", "write_pieces"]

SUFFIX = ".piece"
NAME = r"[0-9a-f]{8}-\d+\.piece"
OWN = re.compile(rf"{NAME}|\.{NAME}\.[0-9a-f]+\.tmp")  # and drafts of one that died
KINDS = {"F32": np.float32, "I32": np.int32, "I64": np.int64}
BLOCK = 1 << 22  # bytes read at once
Entry = dict[str, Any]
"""What is said of a piece: its name, and the digest of its content."""


def folder_of(path: str | os.PathLike[str]) -> Path:
    """Where the pieces of a memory are."""
    return Path(f"{os.path.realpath(path)}.pieces")


@contextmanager
def one_at_a_time(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Nobody else writes pieces of the same memory meanwhile: one would remove those of the other."""
    folder = folder_of(path)
    with held(folder, lambda _: None):
        yield folder


def write_pieces(folder: Path, states: Iterator[State]) -> list[Entry]:
    """A file for each piece of a bank; what to say of them."""
    folder.mkdir(exist_ok=True)
    entries, token = [], secrets.token_hex(4)  # no name comes twice: who reads sees when another memory was saved
    for n, state in enumerate(states):
        content = serialize({name: np.ascontiguousarray(array) for name, array in state.items()})
        write_whole(folder / f"{token}-{n}{SUFFIX}", content)
        entries.append({"name": f"{token}-{n}{SUFFIX}", "sha256": hashlib.sha256(content).hexdigest()})
    return entries


def keep_only(folder: Path, entries: Sequence[Entry]) -> None:
    """Remove all other pieces; and the folder, if nothing is left in it."""
    named = {entry["name"] for entry in entries}
    with suppress(OSError):  # they are in nobody's way
        for path in folder.iterdir():
            if OWN.fullmatch(path.name) and path.name not in named:
                path.unlink()
        folder.rmdir()


class Place(NamedTuple):
    """Where in a file an array begins, and what it is."""

    start: int
    kind: Any
    shape: tuple[int, ...]


class PieceFile:
    """A file with some of the neurons of a bank: their numbers, in order, and arrays that have a row for each.

    It is read, not mapped: one that is cut short meanwhile would end the process. It stays open: it may be removed.
    """

    def __init__(self, folder: Path, entry: Entry) -> None:
        name = entry["name"]
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            raise ValueError(f"a piece with the name {name!r}")
        self.path = folder / name
        self.file = self.path.open("rb")
        digest = hashlib.sha256()
        while block := self.file.read(BLOCK):
            digest.update(block)
        if digest.hexdigest() != entry["sha256"]:
            raise MemoryFileError(f"{self.path} is damaged: its content does not match its digest")
        try:
            self.places = self._layout(self.file.tell())
        except (AttributeError, LookupError, OverflowError, TypeError) as error:
            raise ValueError(f"{self.path} has a damaged header: {error}") from error
        self.number = self.rows("number", 0, self.places["number"].shape[0])
        if len(self.number) and (self.number[0] < 0 or (np.diff(self.number) <= 0).any()):
            raise ValueError(f"{self.path} has neurons that are not in order")

    def _layout(self, size: int) -> dict[str, Place]:
        """Where arrays are in a file of so many bytes."""
        self.file.seek(0)
        length = int.from_bytes(self.file.read(8), "little")
        if length > size:
            raise ValueError(f"{self.path} has a header of {length} bytes")
        found = {}
        for name, one in json.loads(self.file.read(length)).items():
            if name != "__metadata__":
                (first, last), kind, shape = one["data_offsets"], KINDS[one["dtype"]], tuple(one["shape"])
                if first < 0 or last + 8 + length > size or math.prod(shape) * np.dtype(kind).itemsize != last - first:
                    raise ValueError(f"{self.path} has no room for {name} of shape {shape}")
                found[name] = Place(8 + length + first, kind, shape)
        return found

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.file.close()

    def rows(self, name: str, first: int, last: int) -> NDArray[Any]:
        """Some rows of an array."""
        start, kind, (_, *shape) = self.places[name]
        width = int(np.prod(shape, dtype=int))
        self.file.seek(start + first * width * np.dtype(kind).itemsize)
        found = np.fromfile(self.file, kind, (last - first) * width)
        return found.reshape(last - first, *shape)


class Rows:
    """An array whose rows are in pieces: read when they are asked for, with a slice, or all of them."""

    def __init__(self, pieces: Sequence[PieceFile], name: str) -> None:
        self.pieces, self.name = pieces, name
        self.shape = (sum(len(piece.number) for piece in pieces), *pieces[0].places[name].shape[1:])
        self.dtype = np.dtype(pieces[0].places[name].kind)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: slice) -> NDArray[Any]:
        first, last, _ = which.indices(len(self))
        found = np.empty((max(0, last - first), *self.shape[1:]), self.dtype)
        for piece in self.pieces:
            a, b = np.searchsorted(piece.number, [first, last])
            if a < b:
                found[piece.number[a:b] - first] = piece.rows(self.name, a, b)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)


def open_pieces(path: str | os.PathLike[str], entries: Sequence[Entry]) -> dict[str, Rows]:
    """The arrays of pieces, checked but not read yet."""
    found = [PieceFile(folder_of(path), entry) for entry in entries]
    numbers = np.sort(np.concatenate([piece.number for piece in found]))
    if (numbers != np.arange(len(numbers))).any():
        raise ValueError(f"pieces that have {len(numbers)} neurons, but not each of them once")
    names = set(found[0].places)
    for piece in found:
        shapes = {name: (one.kind, one.shape[1:]) for name, one in piece.places.items()}
        first = {name: (one.kind, one.shape[1:]) for name, one in found[0].places.items()}
        if shapes != first or any(one.shape[0] != len(piece.number) for one in piece.places.values()):
            raise ValueError(f"pieces that do not fit together: {shapes} and {first}")
    return {name: Rows(found, name) for name in names - {"number"}}
