"""Evidence: which stored thing a block of values shows, if it shows any of them at all.

A block is what a node sees, or a part of a sample. It is compared with what each of N neurons has stored there, twice:
as it is, and less its own means (one for each channel), so that neither strength nor brightness matters.

1. The likelihood of a neuron, with any gain and any noise: that of a regression, L_j = (1 - r_j^2 + e)^(-d/2), where
   r_j is the cosine if that is positive, and d how many values are free.
2. Two rivals, each as likely beforehand as all neurons together: a flat patch of any color, with what the block's means
   leave over as its error and a price for each mean; and anything else, L = 1.
3. p_j = L_j / (sum of all L_j + N L_flat + N L_else).
4. The evidence is log(1 + N p_j / 10) nats: that the block shows a stored thing at all has odds of one to ten.

So a block that is covered, or noise, says nothing; and none can say more than log(1 + N / 10).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["WHOLE", "chance", "evidence", "leading", "pyramid"]

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]

FLOOR = 1e-5
"""The share of a block's energy that is never explained."""
LENGTH = 1e-5
"""Added to the product of two lengths: flat blocks are rather flat patches than flat things that were stored."""
STRUCTURE = 1e-5
"""Of what the means leave over, this share of the energy is rounding."""
ODDS = 10.0
"""Against a block showing anything that is stored."""
WHOLE = 4.0
"""The whole sample counts so many times."""
FEW = 8
"""An axis of no more than this many values, the last of several, is one of channels."""
FINEST = {1: 64, 2: 16}
"""The most blocks along an axis, where there is one, and where there are more."""
STEP = 4
"""Each block of a scale has about so many along an axis below it."""


def evidence(x: Vector, m: Vector, seen: Flags) -> Vector:
    """What a block says for each neuron, in nats: (neurons,).

    x (pixels, channels), m (neurons, pixels, channels): less the centre of the similarity. seen: which values of x were
    observed; sums run over these.
    """
    if not seen.any() or not len(m):
        return np.zeros(len(m))
    n = seen.sum(axis=0)[seen.any(axis=0)]  # pixels of each channel
    x, m = np.where(seen, x, 0.0)[:, seen.any(axis=0)], np.where(seen, m, 0.0)[:, :, seen.any(axis=0)]
    energy, energies = float((x**2).sum()), (m**2).sum(axis=(1, 2))
    left, lefts = energy - float((x.sum(axis=0) ** 2 / n).sum()), energies - (m.sum(axis=1) ** 2 / n).sum(axis=1)
    along = (x * m).sum(axis=(1, 2))
    across = along - (x.sum(axis=0) * m.sum(axis=1) / n).sum(axis=1)
    d = int(n.sum())
    share = max(left, 0.0) / energy if energy > 0 else 1.0
    flat = -d / 2 * math.log(share + FLOOR) - float(np.log(n).sum()) / 2
    found = _posterior(_likelihood(along, energies * energy, d), flat)
    if d > len(n):
        some = (left > STRUCTURE * energy) & (lefts > STRUCTURE * energies)
        both = np.where(some, np.maximum(lefts, 0.0) * max(left, 0.0), 0.0)
        found += _posterior(_likelihood(np.where(some, across, 0.0), both, d - len(n)), -math.inf)
    return found


def _likelihood(products: Vector, energies: Vector, d: int) -> Vector:
    """log L of neurons, from their products with x and the products of both energies."""
    r = np.clip(products / (np.sqrt(energies) + LENGTH), 0.0, 1.0)
    return np.asarray(-d / 2 * np.log(1 - r**2 + FLOOR))


def _posterior(likelihood: Vector, flat: float) -> Vector:
    """The evidence from log L of all neurons and of a flat patch."""
    many = len(likelihood)
    top = max(float(likelihood.max()), flat, 0.0)
    shares = np.exp(likelihood - top)
    rivals = many * (math.exp(flat - top) + math.exp(-top))
    return np.asarray(np.log1p(many * shares / (shares.sum() + rivals) / ODDS))


# -- blocks of a sample ------------------------------------------------------------------------------------------------


def leading(shape: tuple[int, ...]) -> int:
    """How many axes a pyramid cuts: all but channels, if the last of several is one of these."""
    return len(shape) - (len(shape) > 1 and shape[-1] <= FEW and shape[-1] < max(shape[:-1]))


def pyramid(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The sides of the blocks of every scale, from the finest up to the whole of the leading axes.

    A vector is one block: its values have no order that would mean anything.

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
    chains = [_sides(n, FINEST[min(axes, 2)]) for n in shape[:axes]]
    deepest = max(map(len, chains))
    padded = [[chain[0]] * (deepest - len(chain)) + chain for chain in chains]
    return tuple(zip(*padded))


def _sides(n: int, most: int) -> list[int]:
    """Sides of blocks along an axis of n values: each divides the next, the last is n."""
    side = next(s for s in range(2 if n > 1 else 1, n + 1) if n % s == 0 and n // s <= most)
    sides, factor = [side], 1
    for prime in sorted(_primes(n // side), reverse=True):
        factor *= prime
        if factor >= STEP or sides[-1] * factor == n:
            sides.append(sides[-1] * factor)
            factor = 1
    return sides


def _primes(n: int) -> list[int]:
    found, p = [], 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found


def chance(looks: float) -> float:
    """The evidence of so many looks at what shows nothing: all neurons together are then half of what is likely.

    Single samples fit better than averages by chance in some of many small blocks, so an average that matches the whole
    sample best has a start of this much.
    """
    return looks * math.log1p(0.5 / ODDS)
