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
    "Corruption",
    "Spoiled",
    "occlusion",
    "pixel_dropout",
    "right_mask",
    "salt_and_pepper",
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


def _rectangle(height: int, width: int, share: float, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Top, left, height and width: the height at random, the width so that the share comes out, rounded down."""
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
}
