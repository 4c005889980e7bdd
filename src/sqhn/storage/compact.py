"""The arrays of banks as files hold them: integers in the smallest type that holds them, codes in as few bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import State
from sqhn.banks.saved import narrow
from sqhn.checks import is_whole
from sqhn.inputs import batches

INTEGERS = {"grown": np.int64, "c": np.int64, "written": np.int64, "known": np.int32, "counts": np.int32}
"""The arrays of integers, and their types in banks."""
PACKED_AT_ONCE = 1 << 16
"""Neurons whose codes are packed at once."""


def compressed(state: State) -> tuple[State, int | None]:
    """The arrays of a bank for a file, and how many bits a code has (None: there are no codes)."""
    small, bits = {name: narrow(array) if name in INTEGERS else array for name, array in state.items()}, None
    if "codes" in state:
        bits = max(1, int(state["codes"].max(initial=0)).bit_length())
        small["codes"] = pack(state["codes"], bits)
    return small, bits


def expanded(state: dict[str, Any], bits: Any, children: int) -> dict[str, Any]:
    """The inverse of `compressed`, for a bank whose nodes have so many children; arrays in shard files stay there."""
    whole = {
        name: array.astype(INTEGERS[name]) if name in INTEGERS and isinstance(array, np.ndarray) else array
        for name, array in state.items()
    }
    if "codes" in state:
        whole["codes"] = unpack(state["codes"], bits, children)
    return whole


def pack(codes: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Codes (neurons, children) with so many bits each, in whole bytes for each neuron.

    >>> pack(np.array([[1, 2, 3]], np.uint8), bits=3).tolist(), unpack(pack(np.array([[5, 6]]), 3), 3, 2).tolist()
    ([[209, 0]], [[5, 6]])
    """
    found = [np.zeros((0, -(-codes.shape[1] * bits // 8)), np.uint8)]
    for part in batches(len(codes), PACKED_AT_ONCE):
        each = codes[part, :, None] >> np.arange(bits, dtype=codes.dtype) & 1
        found.append(np.packbits(each.reshape(len(each), -1), axis=1, bitorder="little"))
    return np.concatenate(found)


def unpack(packed: NDArray[np.uint8], bits: int, children: int) -> NDArray[Any]:
    """The inverse of `pack`, or an error."""
    if not is_whole(bits) or not 1 <= bits <= 31:
        raise ValueError(f"codes of {bits!r} bits")
    if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != -(-children * bits // 8):
        raise ValueError(f"codes of shape {packed.shape} and dtype {packed.dtype} for {children} children, {bits} bits")
    found = np.zeros((len(packed), children), np.min_scalar_type(2**bits - 1))
    for part in batches(len(packed), PACKED_AT_ONCE):
        each = np.unpackbits(packed[part], axis=1, count=children * bits, bitorder="little")
        for bit in range(bits):
            found[part] |= each[:, bit::bits].astype(found.dtype) << bit
    return found
