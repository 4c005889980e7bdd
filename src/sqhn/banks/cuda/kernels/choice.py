"""Choices among the values of neurons, on a GPU."""

from __future__ import annotations

import triton
import triton.language as tl

from sqhn.banks.cuda.kernels.common import first_of

__all__ = ["first_best"]


@triton.jit
def first_best(u, k, value, width, J: tl.constexpr):
    """The `first_of` a row of u and its value; one program for a row."""
    row = tl.program_id(0).to(tl.int64)
    u += row * width
    found, _ = first_of(u, width, J)
    tl.store(k + row, found)
    tl.store(value + row, tl.load(u + found))
