"""Orders in which pictures arrive, and the domains they are turned into: seeded, float32 in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_word

__all__ = [
    "TRANSFORMS",
    "Domains",
    "class_incremental",
    "domain_incremental",
    "iid",
    "mixed_domains",
    "noisy_samples",
    "unit",
]

Pictures = NDArray[np.float32]

TRANSFORMS: dict[str, Callable[[Pictures], Pictures]] = {
    "plain": lambda x: x,
    "flipped": lambda x: 1 - x,
    "dark": lambda x: x / np.float32(2),
    "bright_flipped": lambda x: 1 - x / np.float32(2),
}
"""What turns one data set into another domain; "flipped" turns black into white."""


def unit(x: NDArray[np.uint8]) -> Pictures:
    """uint8 as float32 in [0, 1]."""
    return x.astype(np.float32) / np.float32(255)


def iid(x: NDArray[np.uint8], length: int, rng: np.random.Generator) -> Pictures:
    """`length` pictures in random order, none twice."""
    return unit(x[rng.choice(len(x), min(length, len(x)), replace=False)])


def class_incremental(x: NDArray[np.uint8], y: NDArray[np.int64], length: int, rng: np.random.Generator) -> Pictures:
    """The same number of pictures of every class, class after class in the order of their labels.

    The number is `length` over the number of classes, rounded down, or what the smallest class has.
    """
    classes, sizes = np.unique(y, return_counts=True)
    each = min(length // len(classes), int(sizes.min()))
    order = [rng.choice(np.flatnonzero(y == label), each, replace=False) for label in classes]
    return unit(x[np.concatenate(order)])


class Domains(NamedTuple):
    """Pictures as they were, and which of some transforms each of them is turned by."""

    x: Pictures
    which: NDArray[np.int64]
    transforms: tuple[str, ...]

    def turned(self, x: Pictures) -> Pictures:
        """The pictures, or what was made of the first of them, in their domains."""
        found = x.copy()
        for number, name in enumerate(self.transforms):
            own = self.which[: len(x)] == number
            found[own] = TRANSFORMS[name](x[own])
        return found


def domain_incremental(
    sources: Sequence[NDArray[np.uint8]], transforms: Sequence[str], length: int, rng: np.random.Generator
) -> Domains:
    """One source after another, each in equal blocks, one for each transform, of different pictures."""
    block = length // (len(sources) * len(transforms))
    pictures, which = [], []
    for x in sources:
        order = rng.permutation(min(len(x), block * len(transforms)))
        pictures.append(unit(x[order]))
        which += [np.full(len(part), number) for number, part in enumerate(np.array_split(order, len(transforms)))]
    return Domains(np.concatenate(pictures), np.concatenate(which), tuple(transforms))


def mixed_domains(
    sources: Sequence[NDArray[np.uint8]], transforms: Sequence[str], length: int, rng: np.random.Generator
) -> Domains:
    """The pictures of `domain_incremental` in random order, each with a transform drawn at random."""
    pool = np.concatenate([x[: length // len(sources)] for x in sources])
    x = unit(pool[rng.permutation(len(pool))])
    return Domains(x, rng.integers(len(transforms), size=len(x)), tuple(transforms))


def noisy_samples(x: Pictures, count: int, noise: str, sigma: float, rng: np.random.Generator, ema: bool) -> Pictures:
    """`(n, count, ...)`: independent samples of each picture.

    noise: "white" (Gaussian of standard deviation sigma, clipped to [0, 1]) or "binary" (each value is 1 with itself
        as probability).
    ema: each sample is averaged with the one presented before it.
    """
    check_word("noise", noise, ("white", "binary"))
    samples = np.repeat(x[:, None], count, axis=1)
    if noise == "white":
        samples = np.clip(samples + np.float32(sigma) * rng.standard_normal(samples.shape, np.float32), 0, 1)
    else:
        samples = (rng.random(samples.shape, np.float32) < samples).astype(np.float32)
    if ema:
        for i in range(1, count):
            samples[:, i] = (samples[:, i - 1] + samples[:, i]) / 2
    return samples
