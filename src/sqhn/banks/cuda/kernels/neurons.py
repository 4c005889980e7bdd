"""What becomes of a sample at a node (`rule`), on a GPU."""

# Triton reads these functions as its own language.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from sqhn.banks.rule import AVERAGED, FREEZE, GREW, OLDEST, OVERWRITE, REPLACED, SKIPPED

__all__ = ["written_to"]

_KEPT, _AVERAGED, _BECAME = tl.constexpr(SKIPPED), tl.constexpr(AVERAGED), tl.constexpr(GREW)
_FREEZE, _OVERWRITE, _OLDEST = tl.constexpr(FREEZE), tl.constexpr(OVERWRITE), tl.constexpr(OLDEST)
_REPLACED = tl.constexpr(REPLACED)
_NEVER = tl.constexpr(2**63 - 1)


@triton.jit
def written_to(
    below, j, G, F, c_n, written_n, capacity, when_full: tl.constexpr, gaps: tl.constexpr, J: tl.constexpr
):  # fmt: skip
    """Where a sample goes that resembles neuron j most, `below` the threshold or not, and what becomes of it.

    F of the G places are free: the count is 0 there. If there are no gaps, it is none.
    """
    to = j
    full = (capacity == G) & (F == 0)
    kind = tl.where(full & (when_full == _FREEZE), _KEPT, _AVERAGED)
    if below and full == 0:
        to = G
        if gaps:
            if F > 0:
                first = tl.full([J], 2147483647, tl.int32)
                for b in range(0, G, J):
                    i = b + tl.arange(0, J)
                    used = tl.load(c_n + i, mask=i < G, other=1)
                    first = tl.minimum(first, tl.where(used == 0, i, 2147483647))
                to = tl.min(first).to(tl.int32)
        kind = kind * 0 + _BECAME
    elif below and when_full >= _OVERWRITE:
        fewest = tl.full([J], _NEVER, tl.int64)
        oldest = tl.full([J], _NEVER, tl.int64)
        which = tl.zeros([J], tl.int32)
        for b in range(0, G, J):
            i = b + tl.arange(0, J)
            used = tl.load(c_n + i, mask=i < G, other=_NEVER)
            if when_full == _OLDEST:
                used = tl.where(i < G, 0, used)
            when = tl.load(written_n + i, mask=i < G, other=_NEVER)
            rather = (used < fewest) | ((used == fewest) & (when < oldest))
            which = tl.where(rather, i, which)
            oldest = tl.where(rather, when, oldest)
            fewest = tl.minimum(fewest, used)
        least = fewest == tl.min(fewest)
        oldest = tl.where(least, oldest, _NEVER)
        to = tl.min(tl.where(least & (oldest == tl.min(oldest)), which, 2147483647)).to(tl.int32)
        kind = kind * 0 + _REPLACED
    return to, kind
