"""Headers of safetensors files, and single arrays of them.

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
        arrays = {}
        for name, entry in entries.items():
            dtype, shape, (first, last) = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"]), entry["data_offsets"]
            if first < 0 or 8 + length + last > size or math.prod(shape) * dtype.itemsize != last - first:
                raise ValueError(f"bytes {first} to {last} of {size} for {name}, {dtype} of shape {shape}")
            arrays[name] = Stored(8 + length + first, dtype, shape)
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError(f"a damaged header: {error!r}") from error
    return metadata, arrays


def read_rows(file: BinaryIO, array: Stored, first: int = 0, last: int | None = None) -> NDArray[Any]:
    """Some rows of an array, or all; ValueError if the file is shorter than its header says."""
    width = math.prod(array.shape[1:])
    rows = range(array.shape[0])[first:last]
    file.seek(array.start + rows.start * width * array.dtype.itemsize)
    return np.fromfile(file, array.dtype, len(rows) * width).reshape(len(rows), *array.shape[1:])
