"""Reading of safetensors files: their headers, and their arrays or some rows of them.

The one place that parses a header by hand: the library maps files, and a mapped file that another process truncates
ends this process.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.inputs import batches
from sqhn.protocol import MemoryFileError

INCONSISTENT = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of content that contradicts itself, although its digest is right."""
DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4"}
DTYPES |= {"F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8"}


BLOCK = 1 << 24
"""Bytes of an array to read at once, if it stays in its file."""


class Stored(NamedTuple):
    """An array in a file: the position of its first byte, its dtype and its shape."""

    start: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def read_header(file: BinaryIO) -> tuple[dict[str, Any], dict[str, Stored]]:
    """The metadata and the arrays of a file; ValueError if it is not safetensors, or is truncated."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise ValueError(f"a header of {length} bytes in a file of {size}")
    try:
        entries = json.loads(file.read(length))
        metadata: dict[str, Any] = dict(entries.pop("__metadata__", {}))
        arrays, end = {}, 8 + length
        for name, entry in entries.items():
            dtype, shape, (first, last) = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"]), entry["data_offsets"]
            if first < 0 or 8 + length + last > size or math.prod(shape) * dtype.itemsize != last - first:
                raise ValueError(f"bytes {first} to {last} of {size} for {name}, {dtype} of shape {shape}")
            arrays[name] = Stored(8 + length + first, dtype, shape)
            end = max(end, 8 + length + last)
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError(f"a damaged header: {error!r}") from error
    if end != size:
        raise ValueError(f"a file of {size} bytes whose arrays end at byte {end}")
    return metadata, arrays


def read_rows(file: BinaryIO, array: Stored, first: int = 0, last: int | None = None) -> NDArray[Any]:
    """Some rows of an array, or all; ValueError if the file is shorter than its header says."""
    rows = range(array.shape[0])[first:last]
    found = np.empty((len(rows), *array.shape[1:]), array.dtype)
    file.seek(array.start + rows.start * math.prod(array.shape[1:]) * array.dtype.itemsize)
    if file.readinto(found.data) != found.nbytes:  # type: ignore[attr-defined]
        raise ValueError(f"the file ends within an array of shape {array.shape}")
    return found


class ArrayInFile:
    """An array that stays in a file: rows are read when they are asked for, with a slice.

    The file is read, and not mapped. Any number of threads and forked processes may read it. It stays open, because
    another file may take its place.
    """

    def __init__(self, file: BinaryIO, array: Stored) -> None:
        self.file, self.array = file, array
        self.dtype, self.shape = array.dtype, array.shape
        self.stamp = stamp_of(file)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: slice) -> NDArray[Any]:
        first, last, _ = which.indices(len(self))
        found = np.empty((max(0, last - first), *self.shape[1:]), self.dtype)
        left = found.data.cast("B") if found.size else memoryview(b"")
        at = self.array.start + first * math.prod(self.shape[1:]) * self.dtype.itemsize
        while left and (count := os.preadv(self.file.fileno(), [left], at)):
            left, at = left[count:], at + count
        if left or stamp_of(self.file) != self.stamp:
            raise MemoryFileError(f"{self.file.name} was changed or truncated after it was loaded: load it again")
        return found

    def blocks(self) -> Iterator[NDArray[Any]]:
        """All rows, some at a time."""
        rows = max(1, BLOCK * len(self) // max(1, math.prod(self.shape) * self.dtype.itemsize))
        return (self[part] for part in batches(len(self), rows))


def stamp_of(file: BinaryIO) -> tuple[int, int]:
    """The size of an open file, and the time of its last change."""
    about = os.fstat(file.fileno())
    return about.st_size, about.st_mtime_ns


def read_all(file: BinaryIO) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metadata of a file, and all its arrays; ValueError as above."""
    metadata, arrays = read_header(file)
    return metadata, {name: read_rows(file, array) for name, array in arrays.items()}
