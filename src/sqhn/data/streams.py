"""Streams of images in different orders and domains: seeded, float32 in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_word

Images = NDArray[np.float32]

TRANSFORMS: dict[str, Callable[[Images], Images]] = {
    "plain": lambda x: x,
    "flipped": lambda x: 1 - x,
    "dark": lambda x: x / np.float32(2),
    "bright_flipped": lambda x: 1 - x / np.float32(2),
}
"""Transforms that turn one data set into another domain; "flipped" exchanges black and white."""


def unit(x: NDArray[np.uint8]) -> Images:
    """uint8 as float32 in [0, 1]."""
    return x.astype(np.float32) / np.float32(255)


def iid(x: NDArray[np.uint8], length: int, rng: np.random.Generator) -> Images:
    """`length` images in random order, none twice."""
    return unit(x[rng.choice(len(x), min(length, len(x)), replace=False)])


def class_incremental(x: NDArray[np.uint8], y: NDArray[np.int64], length: int, rng: np.random.Generator) -> Images:
    """An equal number of images of every class, class after class in the order of their labels.

    The number is `length` over the number of classes, rounded down, but at most the size of the smallest class.
    """
    classes, sizes = np.unique(y, return_counts=True)
    each = min(length // len(classes), int(sizes.min()))
    order = [rng.choice(np.flatnonzero(y == label), each, replace=False) for label in classes]
    return unit(x[np.concatenate(order)])


class Domains(NamedTuple):
    """Images before their transforms, and the number of the transform of each image."""

    x: Images
    which: NDArray[np.int64]
    transforms: tuple[str, ...]

    def transformed(self, x: Images) -> Images:
        """Apply the transforms to the images, or to a variant of the first of them, such as noisy ones."""
        result = x.copy()
        for number, name in enumerate(self.transforms):
            chosen = self.which[: len(x)] == number
            result[chosen] = TRANSFORMS[name](x[chosen])
        return result


def domain_incremental(
    sources: Sequence[NDArray[np.uint8]], transforms: Sequence[str], length: int, rng: np.random.Generator
) -> Domains:
    """One source after another, each in equal blocks of different images, one block per transform."""
    block = length // (len(sources) * len(transforms))
    images, which = [], []
    for x in sources:
        order = rng.permutation(min(len(x), block * len(transforms)))
        images.append(unit(x[order]))
        which += [np.full(len(part), number) for number, part in enumerate(np.array_split(order, len(transforms)))]
    return Domains(np.concatenate(images), np.concatenate(which), tuple(transforms))


def mixed_domains(
    sources: Sequence[NDArray[np.uint8]], transforms: Sequence[str], length: int, rng: np.random.Generator
) -> Domains:
    """The images of `domain_incremental` in random order, each with a random transform."""
    pool = np.concatenate([x[: length // len(sources)] for x in sources])
    x = unit(pool[rng.permutation(len(pool))])
    return Domains(x, rng.integers(len(transforms), size=len(x)), tuple(transforms))


def noisy_samples(x: Images, count: int, noise: str, sigma: float, rng: np.random.Generator, ema: bool) -> Images:
    """`(n, count, ...)`: independent samples of each image.

    noise: "white" (Gaussian of standard deviation sigma, clipped to [0, 1]) or "binary" (each value is the probability
        of a 1).
    ema: each sample is averaged with the previous one.
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
