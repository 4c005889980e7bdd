"""What becomes of a sample at a node, on a GPU; and arithmetic without the branches of the exact kind."""

# Triton reads these functions as its own language.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from sqhn.banks.neurons import FREEZE, OVERWRITE

__all__ = ["AVERAGED", "BECAME", "KEPT", "fate", "inverse_root", "over", "root"]

KEPT, AVERAGED, BECAME = 0, 1, 2
"""A sample wrote nothing, was averaged into the neuron that it resembles most, or became a neuron."""

_KEPT, _AVERAGED, _BECAME = tl.constexpr(KEPT), tl.constexpr(AVERAGED), tl.constexpr(BECAME)
_FREEZE, _OVERWRITE = tl.constexpr(FREEZE), tl.constexpr(OVERWRITE)
_NEVER = tl.constexpr(2**63 - 1)


@triton.jit
def fate(below, j, G, c_n, capacity, when_full: tl.constexpr, J: tl.constexpr):
    """Where a sample goes that resembles neuron j most, `below` the threshold or not, and what becomes of it."""
    to = j
    kind = tl.where((capacity == G) & (when_full == _FREEZE), _KEPT, _AVERAGED)
    if below and capacity > G:
        to = G
        kind = kind * 0 + _BECAME
    elif below and when_full == _OVERWRITE:
        fewest = tl.full([J], _NEVER, tl.int64)
        which = tl.zeros([J], tl.int32)
        for b in range(0, G, J):
            i = b + tl.arange(0, J)
            used = tl.load(c_n + i, mask=i < G, other=_NEVER)
            which = tl.where(used < fewest, i, which)
            fewest = tl.minimum(fewest, used)
        to = tl.min(tl.where(fewest == tl.min(fewest), which, 2147483647)).to(tl.int32)
        kind = kind * 0 + _BECAME
    return to, kind


@triton.jit
def over(a, b):
    """a / b in float64, b > 0 within the range of float32; the last bit may differ."""
    y = (1.0 / b.to(tl.float32)).to(tl.float64)
    y = y + y * (1 - b * y)
    q = a * y
    return q + y * (a - q * b)


@triton.jit
def inverse_root(x):
    """1 / sqrt(x) in float64, nearly; 0 for 0."""
    x = tl.maximum(x, 0.0)
    some = tl.maximum(x, 1e-30)
    y = tl.rsqrt(some.to(tl.float32)).to(tl.float64)
    y = y + 0.5 * y * (1 - some * y * y)
    y = y + 0.5 * y * (1 - some * y * y)
    return tl.where(x > 0, y, 0.0)


@triton.jit
def root(x):
    """sqrt(x) in float64, nearly."""
    y = inverse_root(x)
    s = x * y
    return s + 0.5 * y * (x - s * s)
