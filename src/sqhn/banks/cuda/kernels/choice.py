"""Choices among the values of neurons, on a GPU."""

from __future__ import annotations

import triton
import triton.language as tl

from sqhn.banks.cuda.kernels.common import TIE

__all__ = ["first_best"]


@triton.jit
def first_best(u, k, value, width, J: tl.constexpr):
    """The first of the values that are the maximum of a row of u, up to rounding (TIE); one program for a row."""
    row = tl.program_id(0).to(tl.int64)
    u += row * width
    best = tl.full((J,), float("-inf"), tl.float64)
    for lowest in range(0, width, J):
        j = lowest + tl.arange(0, J)
        best = tl.maximum(best, tl.load(u + j, mask=j < width, other=float("-inf")))
    least = tl.max(best) - TIE
    first = tl.full((J,), width, tl.int32)
    for lowest in range(0, width, J):
        j = lowest + tl.arange(0, J)
        enough = tl.load(u + j, mask=j < width, other=float("-inf")) >= least
        first = tl.minimum(first, tl.where(enough & (j < width), j, width))
    found = tl.minimum(tl.min(first), width - 1)
    tl.store(k + row, found)
    tl.store(value + row, tl.load(u + found))
