"""What the kernels of several modules share: constants, and functions of the package that Triton compiles too."""

from __future__ import annotations

from types import FunctionType

import triton
import triton.language as tl

from sqhn import level
from sqhn.banks import bounds, rule

__all__ = [
    "AVERAGED", "GREW", "NONE", "NO_INDEX", "OLDEST", "OVERWRITE", "REPLACED", "SKIPPED", "TIE",
    "lost", "outcome", "rough_of",
]  # fmt: skip

SKIPPED, AVERAGED = tl.constexpr(rule.SKIPPED), tl.constexpr(rule.AVERAGED)
GREW, REPLACED = tl.constexpr(rule.GREW), tl.constexpr(rule.REPLACED)
OVERWRITE, OLDEST = tl.constexpr(rule.OVERWRITE), tl.constexpr(rule.OLDEST)
TIE = tl.constexpr(level.TIE)
NO_INDEX = tl.constexpr(2**31 - 1)  # larger than any index: where a minimum of indices finds none
NONE = tl.constexpr(-1)  # in arrays of samples, visits and values: there is none


def in_triton(function):
    """A function of the package as Triton takes it: with Triton's types, and its numbers as constants."""
    known = {**function.__globals__, "tl": tl, "bool": tl.int1}
    known |= {name: tl.constexpr(value) for name, value in known.items() if isinstance(value, int | float)}
    return triton.jit(FunctionType(function.__code__, known, function.__name__))


lost, rough_of = in_triton(bounds.lost), in_triton(bounds.rough)
outcome = in_triton(rule.outcome)
