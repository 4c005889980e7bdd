"""Ways to spoil pictures: each takes a batch `(n, height, width, ...)` in [0, 1], how much, and a random generator, and
returns the spoiled batch and what is still observed (None: everything, spoiled or not).
"""

from __future__ import annotations

from functools import partial
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_word

__all__ = [
    "CORRUPTIONS",
    "DAMAGES",
    "Corruption",
    "Spoiled",
    "blurred",
    "brighter",
    "coarser",
    "covered_and_noisy",
    "darker",
    "occlusion",
    "pixel_dropout",
    "rectangles",
    "right_mask",
    "salt_and_pepper",
    "shifted",
    "white_noise",
]

Pictures = NDArray[np.float32]
Spoiled = tuple[Pictures, NDArray[np.bool_] | None]


class Corruption(Protocol):
    """shared: draw what is random about the shape once for the whole batch, not for each picture."""

    def __call__(self, x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled: ...


def white_noise(x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled:  # noqa: ARG001
    """Gaussian noise of standard deviation `level`, clipped to [0, 1]."""
    return np.clip(x + np.float32(level) * rng.standard_normal(x.shape, np.float32), 0, 1), None


def salt_and_pepper(x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled:
    """A share `level` of the pixels becomes black or white, all channels together."""
    shape = (1 if shared else len(x), *x.shape[1:3])
    hit = _over_channels(rng.random(shape) < level, x)
    return np.where(hit, _over_channels(rng.random(shape) < 0.5, x).astype(np.float32), x), None


def pixel_dropout(x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled:
    """A share `level` of the pixels is missing (all channels of a pixel together)."""
    kept = rng.random((1 if shared else len(x), *x.shape[1:3])) >= level
    return _missing(x, _over_channels(kept, x))


def right_mask(x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled:  # noqa: ARG001
    """The right part of every picture is missing, a share `level` of its columns."""
    observed = np.ones(x.shape, bool)
    observed[:, :, x.shape[2] - int(x.shape[2] * level) :] = False
    return _missing(x, observed)


def occlusion(
    x: Pictures,
    level: float,
    rng: np.random.Generator,
    shared: bool = False,
    fill: Literal["black", "color", "noise", "clipped_normal"] = "black",
) -> Spoiled:
    """A rectangle of random shape and place covers a share `level` of each picture; nobody says where.

    fill: "black"; "color", one random color for each rectangle; "noise", uniform; "clipped_normal", N(0, 1) cut to
        [0, 1].
    """
    check_word("fill", fill, ("black", "color", "noise", "clipped_normal"))
    spoiled = x.copy()
    for group in [spoiled] if shared else spoiled[:, None]:
        top, left, a, b = _rectangle(x.shape[1], x.shape[2], level, rng)
        group[:, top : top + a, left : left + b] = _paint(fill, (len(group), a, b, *x.shape[3:]), rng)
    return spoiled, None


def covered_and_noisy(x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled:
    """A rectangle of one color over a share `level` of each picture, and noise of a standard deviation of .2 on all."""
    covered, _ = occlusion(x, level, rng, shared, "color")
    return white_noise(covered, 0.2, rng)


def rectangles(x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled:
    """Eight rectangles, each of a color of its own, that would cover a share `level` if they did not overlap."""
    for _ in range(8):
        x, _ = occlusion(x, level / 8, rng, shared, "color")
    return x, None


def blurred(x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled:  # noqa: ARG001
    """Each pixel becomes a mean of its neighbors, weighted 1, 2, 1 along both axes, `level` times over."""
    for axis in (1, 2) * int(level):
        edges = np.pad(x, [(int(a == axis),) * 2 for a in range(x.ndim)], mode="edge")
        before, after = (np.take(edges, np.arange(x.shape[axis]) + by, axis=axis) for by in (0, 2))
        x = (before + 2 * x + after) / np.float32(4)
    return x, None


def darker(x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled:  # noqa: ARG001
    """All values are less by a share `level`."""
    return x * np.float32(1 - level), None


def brighter(x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled:  # noqa: ARG001
    """All values are more by `level`, at most 1."""
    return np.minimum(x + np.float32(level), np.float32(1)), None


def coarser(x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled:  # noqa: ARG001
    """Values are rounded to one of `level` that are evenly spaced."""
    steps = np.float32(level - 1)
    return np.rint(x * steps) / steps, None


def shifted(x: Pictures, level: float, rng: np.random.Generator, shared: bool = False) -> Spoiled:  # noqa: ARG001
    """Moved down and to the right by `level` pixels; what comes in is a copy of the edge."""
    for axis in (1, 2):
        x = np.take(x, np.maximum(np.arange(x.shape[axis]) - int(level), 0), axis=axis)
    return x, None


def _rectangle(height: int, width: int, share: float, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Top, left, height and width: the height at random, the width so that the share comes out, rounded down.

    Of what is one pixel wide, a piece.
    """
    if width == 1:
        a = int(height * share)
        return int(rng.integers(height - a + 1)), 0, a, 1
    a = int(rng.integers(min(int(height * share + 1), height - 1), height))
    b = min(int(height * width * share) // a, width)
    return int(rng.integers(height - a)), int(rng.integers(max(1, width - b))), a, b


def _paint(fill: str, shape: tuple[int, ...], rng: np.random.Generator) -> Pictures:
    if fill == "black":
        return np.zeros(shape, np.float32)
    if fill == "color":
        return np.broadcast_to(rng.random(shape[3:], np.float32), shape)
    if fill == "noise":
        return rng.random(shape, np.float32)
    return np.clip(rng.standard_normal(shape, np.float32), 0, 1)


def _over_channels(pixels: NDArray[np.bool_], x: Pictures) -> NDArray[np.bool_]:
    """`(n, height, width)` for all values of the batch x."""
    return np.broadcast_to(pixels.reshape(pixels.shape + (1,) * (x.ndim - 3)), x.shape)


def _missing(x: Pictures, observed: NDArray[np.bool_]) -> Spoiled:
    return np.where(observed, x, np.float32(0)), observed


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
"""Kinds and levels of damage that nobody announces: nothing is said to be missing."""
