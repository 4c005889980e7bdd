"""Corruptions of images: each takes a batch `(n, height, width, ...)` in [0, 1], a level, and a random generator.

It returns the corrupted batch and the mask of observed values, which is None if no value is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_word

Images = NDArray[np.float32]
Corrupted = tuple[Images, NDArray[np.bool_] | None]


class Corruption(Protocol):
    """shared: draw random places once for the whole batch, not for each image."""

    def __call__(self, x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted: ...


def white_noise(x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted:
    """Gaussian noise of standard deviation `level`, clipped to [0, 1]."""
    return np.clip(x + np.float32(level) * rng.standard_normal(x.shape, np.float32), 0, 1), None


def salt_and_pepper(x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted:
    """A share `level` of the pixels becomes black or white, in all channels."""
    hit, color = _for_pixels(x, rng, shared) < level, _for_pixels(x, rng, shared) < 0.5
    return np.where(hit, color.astype(np.float32), x), None


def pixel_dropout(x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted:
    """A share `level` of the pixels is missing, in all channels."""
    return _missing(x, _for_pixels(x, rng, shared) >= level)


def right_mask(x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted:
    """The right part of every image is missing, a share `level` of its columns."""
    width = x.shape[2]
    columns = np.arange(width) < width - int(width * level)
    return _missing(x, columns.reshape(-1, *(1,) * (x.ndim - 3)))


def occlusion(
    x: Images,
    level: float,
    rng: np.random.Generator,
    shared: bool = False,
    fill: Literal["black", "color", "noise", "clipped_normal"] = "black",
) -> Corrupted:
    """A rectangle of random shape and place covers a share `level` of each image, without a mask.

    fill: "black"; "color", one random color for each rectangle; "noise", uniform; "clipped_normal", N(0, 1) clipped
        to [0, 1].
    """
    check_word("fill", fill, tuple(FILL_VALUES))
    corrupted = x.copy()
    for group in [corrupted] if shared else corrupted[:, None]:
        top, left, height, width = _rectangle(x.shape[1], x.shape[2], level, rng)
        covered = group[:, top : top + height, left : left + width]
        covered[:] = FILL_VALUES[fill](covered.shape, rng)
    return corrupted, None


def covered_and_noisy(x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted:
    """A rectangle of one color over a share `level` of each image, and noise of standard deviation 0.2 on all of it."""
    covered, _ = occlusion(x, level, rng, shared, "color")
    return white_noise(covered, 0.2, rng)


def rectangles(x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted:
    """Eight rectangles of different colors, which would cover a share `level` if they did not overlap."""
    for _ in range(8):
        x, _ = occlusion(x, level / 8, rng, shared, "color")
    return x, None


def blurred(x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted:
    """Each pixel becomes the mean of its neighbors with weights 1, 2, 1 along both axes, `level` times."""
    for axis in (1, 2) * int(level):
        edges = np.pad(x, [(int(a == axis),) * 2 for a in range(x.ndim)], mode="edge")
        before, after = (np.take(edges, np.arange(x.shape[axis]) + by, axis=axis) for by in (0, 2))
        x = (before + 2 * x + after) / np.float32(4)
    return x, None


def darker(x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted:
    """All values are reduced by a share `level`."""
    return x * np.float32(1 - level), None


def brighter(x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted:
    """All values are increased by `level`, to at most 1."""
    return np.minimum(x + np.float32(level), np.float32(1)), None


def coarser(x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted:
    """Values are rounded to one of `level` evenly spaced values."""
    steps = np.float32(level - 1)
    return np.rint(x * steps) / steps, None


def shifted(x: Images, level: float, rng: np.random.Generator, shared: bool = False) -> Corrupted:
    """Moved down and to the right by `level` pixels; the edge is repeated."""
    for axis in (1, 2):
        x = np.take(x, np.maximum(np.arange(x.shape[axis]) - int(level), 0), axis=axis)
    return x, None


def _rectangle(height: int, width: int, share: float, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Top, left, height and width: the height is random, the width follows from the share, rounded down.

    In an image that is one pixel wide, a segment.
    """
    if width == 1:
        a = int(height * share)
        return int(rng.integers(height - a + 1)), 0, a, 1
    a = int(rng.integers(min(int(height * share + 1), height - 1), height))
    b = min(int(height * width * share) // a, width)
    return int(rng.integers(height - a)), int(rng.integers(max(1, width - b))), a, b


FILL_VALUES: dict[str, Callable[[tuple[int, ...], np.random.Generator], Any]] = {
    "black": lambda shape, rng: 0,
    "color": lambda shape, rng: rng.random(shape[3:], np.float32),
    "noise": lambda shape, rng: rng.random(shape, np.float32),
    "clipped_normal": lambda shape, rng: np.clip(rng.standard_normal(shape, np.float32), 0, 1),
}


def _for_pixels(x: Images, rng: np.random.Generator, shared: bool) -> NDArray[np.float64]:
    """A random number in [0, 1) for every pixel, of one image if they are shared; it broadcasts to x."""
    return rng.random((1 if shared else len(x), *x.shape[1:3], *(1,) * (x.ndim - 3)))


def _missing(x: Images, observed: NDArray[np.bool_]) -> Corrupted:
    return np.where(observed, x, np.float32(0)), np.broadcast_to(observed, x.shape)


CORRUPTIONS: dict[str, Corruption] = {
    "noise": white_noise,
    "salt_and_pepper": salt_and_pepper,
    "dropout": pixel_dropout,
    "mask": right_mask,
    "black": partial(occlusion, fill="black"),
    "color": partial(occlusion, fill="color"),
    "noise_fill": partial(occlusion, fill="noise"),
    "normal_fill": partial(occlusion, fill="clipped_normal"),
    "covered_and_noisy": covered_and_noisy,
    "rectangles": rectangles,
    "blurred": blurred,
    "darker": darker,
    "brighter": brighter,
    "coarser": coarser,
    "shifted": shifted,
}
COVERED = (0.5, 0.75, 0.875, 0.9375)
DAMAGES: tuple[tuple[str, float], ...] = (
    *(("noise", sigma) for sigma in (0.2, 0.4, 0.8, 1.2, 1.5)),
    *((fill, share) for fill in ("black", "color", "noise_fill", "normal_fill") for share in COVERED),
    *(("covered_and_noisy", share) for share in (0.5, 0.75)),
    *(("salt_and_pepper", share) for share in (0.3, 0.6, 0.9)),
    *(("rectangles", share) for share in (0.75, 1.5)),
    ("blurred", 2.0),
    ("darker", 0.5),
    ("brighter", 0.3),
    ("coarser", 4.0),
    ("shifted", 1.0),
)
"""Kinds and levels of damage without a mask: all values are given as observed."""
