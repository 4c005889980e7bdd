"""Constants of the evidence rule, and the blocks that a sample is cut into.

The rule itself is `sqhn.reference.evidence`, in plain NumPy.
"""

from __future__ import annotations

import math

FLOOR = 1e-5
"""The share of a block's energy that no stored block explains, however well it fits."""
LENGTH = 1e-5
"""Added to the product of two lengths, so that flat blocks count as flat patches rather than as flat stored blocks."""
STRUCTURE = 1e-5
"""If no more than this share of a block's energy is left after the means are subtracted, the rest is rounding error."""
ODDS = 10.0
"""The prior odds against a block showing any stored sample."""
WHOLE = 4.0
"""The weight of the block that is the whole sample; all others weigh 1."""
MOST_CHANNELS = 8
"""The last of several axes holds channels if it has at most this many values."""
MOST_BLOCKS = {1: 64, 2: 16}
"""The largest number of blocks along an axis, by the number of axes that are cut (2: two or more)."""
SCALE_FACTOR = 4
"""A block is at least this many times as long as one of the next finer scale, unless it is as long as the axis."""


def leading(shape: tuple[int, ...]) -> int:
    """How many axes a pyramid cuts: all, or all but the last of several if that one holds channels."""
    return len(shape) - (len(shape) > 1 and shape[-1] <= MOST_CHANNELS and shape[-1] < max(shape[:-1]))


def pyramid(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The sides of the blocks of every scale, from the finest up to the whole of the leading axes.

    A vector is one block, since the order of its values means nothing.

    >>> pyramid((32, 32, 3))
    ((2, 2), (8, 8), (32, 32))
    >>> pyramid((200, 6))
    ((4,), (20,), (100,), (200,))
    >>> pyramid((384,))
    ((384,),)
    """
    if len(shape) == 1:
        return (shape,)
    axes = leading(shape)
    chains = [_sides(n, MOST_BLOCKS[min(axes, 2)]) for n in shape[:axes]]
    deepest = max(map(len, chains))
    padded = [[chain[0]] * (deepest - len(chain)) + chain for chain in chains]
    return tuple(zip(*padded))


def _sides(n: int, most: int) -> list[int]:
    """Sides of blocks along an axis of n values: each divides the next, and the last is n."""
    side = next(s for s in range(2 if n > 1 else 1, n + 1) if n % s == 0 and n // s <= most)
    sides, factor = [side], 1
    for prime in sorted(_primes(n // side), reverse=True):
        factor *= prime
        if factor >= SCALE_FACTOR or sides[-1] * factor == n:
            sides.append(sides[-1] * factor)
            factor = 1
    return sides


def _primes(n: int) -> list[int]:
    """The prime factors of n."""
    found, p = [], 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found


def chance(looks: float) -> float:
    """The bonus of an average that matches the whole sample best; looks: its number of comparisons.

    By chance, single samples fit some of many small blocks better than averages do. The bonus is the evidence from as
    many comparisons with blocks that show nothing, if all neurons together have a probability of one half there.
    """
    return looks * math.log1p(0.5 / ODDS)
