"""Constants and functions that the kernels of several modules share."""

from __future__ import annotations

from types import FunctionType

import triton
import triton.language as tl

from sqhn import level
from sqhn.banks import rule

SKIPPED, AVERAGED = tl.constexpr(rule.SKIPPED), tl.constexpr(rule.AVERAGED)
GREW, REPLACED = tl.constexpr(rule.GREW), tl.constexpr(rule.REPLACED)
OVERWRITE, OLDEST = tl.constexpr(rule.OVERWRITE), tl.constexpr(rule.OLDEST)
TIE = tl.constexpr(level.TIE)
NO_INDEX = tl.constexpr(2**31 - 1)  # larger than any index: where a minimum of indices finds none
_NEVER = tl.constexpr(2**63 - 1)  # larger than any count and any step
NONE = tl.constexpr(-1)  # in arrays of indices (of neurons, samples, visits or values): none


def compiled(function):
    """Let Triton compile a function of the package: with Triton's types, and its global numbers as constants."""
    known = {**function.__globals__, "tl": tl, "bool": tl.int1}
    known |= {name: tl.constexpr(value) for name, value in known.items() if isinstance(value, int | float)}
    return triton.jit(FunctionType(function.__code__, known, function.__name__))


outcome = compiled(rule.outcome)


@triton.jit
def written_to(
    below, j, G, F, c_n, written_n, capacity, when_full: tl.constexpr, any_free: tl.constexpr, J: tl.constexpr
):  # fmt: skip
    """The neuron that a sample is written to, and the outcome (`rule.outcome`).

    j is its best match; below: whether that is below the growth threshold. F of the G slots are free: their count is 0.
    Without any_free there are none, and no code searches for them. J neurons are handled at once.
    """
    to = j
    kind = outcome(below, (capacity == G) & (F == 0), when_full)
    if kind == GREW:
        to = G
        if any_free:
            if F > 0:
                first = tl.full([J], NO_INDEX, tl.int32)
                for b in range(0, G, J):
                    i = b + tl.arange(0, J)
                    used = tl.load(c_n + i, mask=i < G, other=1)
                    first = tl.minimum(first, tl.where(used == 0, i, NO_INDEX))
                to = tl.min(first).to(tl.int32)
    if when_full >= OVERWRITE:
        if kind == REPLACED:
            fewest = tl.full([J], _NEVER, tl.int64)
            oldest = tl.full([J], _NEVER, tl.int64)
            which = tl.zeros([J], tl.int32)
            for b in range(0, G, J):
                i = b + tl.arange(0, J)
                used = tl.load(c_n + i, mask=i < G, other=_NEVER)
                if when_full == OLDEST:
                    used = tl.where(i < G, 0, used)
                when = tl.load(written_n + i, mask=i < G, other=_NEVER)
                rather = (used < fewest) | ((used == fewest) & (when < oldest))
                which = tl.where(rather, i, which)
                oldest = tl.where(rather, when, oldest)
                fewest = tl.minimum(fewest, used)
            least = fewest == tl.min(fewest)
            oldest = tl.where(least, oldest, _NEVER)
            to = tl.min(tl.where(least & (oldest == tl.min(oldest)), which, NO_INDEX)).to(tl.int32)
    return to, kind


@triton.jit
def first_of(u, width, J: tl.constexpr):
    """The first of the values u that are the maximum, up to rounding (TIE), and its value; J are read at once.

    Of no values, 0 and minus infinity.
    """
    high = tl.full([J], -float("inf"), tl.float64)
    for b in range(0, width, J):
        j = b + tl.arange(0, J)
        high = tl.maximum(high, tl.load(u + j, mask=j < width, other=-float("inf")))
    best = tl.max(high)
    first = tl.full([J], NO_INDEX, tl.int32)
    for b in range(0, width, J):
        j = b + tl.arange(0, J)
        enough = tl.load(u + j, mask=j < width, other=-float("inf")) >= best - TIE
        first = tl.minimum(first, tl.where(enough & (j < width), j, NO_INDEX))
    found = tl.minimum(tl.min(first), tl.maximum(width - 1, 0)).to(tl.int32)
    return found, tl.load(u + found, mask=width > 0, other=-float("inf"))


@triton.jit
def first_best(u, k, value, width, J: tl.constexpr):
    """The `first_of` a row of u and its value; one program for a row."""
    row = tl.program_id(0).to(tl.int64)
    found, best = first_of(u + row * width, width, J)
    tl.store(k + row, found)
    tl.store(value + row, best)
