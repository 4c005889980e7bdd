"""Reading of safetensors files: their headers, and their arrays or some rows of them.

The one place that parses a header by hand: the library maps files, and a mapped file that another process truncates
ends this process.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

INCONSISTENT = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of content that contradicts itself, although its digest is right."""
DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2", "U32": "<u4", "I32": "<i4"}
DTYPES |= {"F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8"}


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


def read_all(file: BinaryIO) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metadata of a file, and all its arrays; ValueError as above."""
    metadata, arrays = read_header(file)
    return metadata, {name: read_rows(file, array) for name, array in arrays.items()}
