"""Ways to spoil pictures: each takes a batch `(n, height, width, ...)` in [0, 1] and returns the spoiled batch and what
is still observed (None: everything, spoiled or not).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["black_occlusion", "pixel_dropout", "right_mask", "white_noise"]

Pictures = NDArray[np.float32]
Spoiled = tuple[Pictures, NDArray[np.bool_] | None]


def white_noise(x: Pictures, sigma: float, rng: np.random.Generator) -> Spoiled:
    """Gaussian noise of standard deviation sigma, clipped to [0, 1]."""
    return np.clip(x + sigma * rng.standard_normal(x.shape, np.float32), 0, 1), None


def black_occlusion(x: Pictures, fraction: float, rng: np.random.Generator) -> Spoiled:
    """A black square over a fraction of each picture, at a random place."""
    height, width = x.shape[1:3]
    a, b = round(height * fraction**0.5), round(width * fraction**0.5)
    spoiled = x.copy()
    for picture in spoiled:
        top, left = rng.integers(height - a + 1), rng.integers(width - b + 1)
        picture[top : top + a, left : left + b] = 0
    return spoiled, None


def pixel_dropout(x: Pictures, fraction: float, rng: np.random.Generator) -> Spoiled:
    """A fraction of the pixels, chosen at random for each picture, is missing (all channels of a pixel together)."""
    kept = rng.random(x.shape[:3]) >= fraction
    observed = np.broadcast_to(kept.reshape(kept.shape + (1,) * (x.ndim - 3)), x.shape)
    return np.where(observed, x, np.float32(0)), observed


def right_mask(x: Pictures, fraction: float, rng: np.random.Generator) -> Spoiled:  # noqa: ARG001
    """The right part of every picture is missing."""
    observed = np.ones(x.shape, bool)
    observed[:, :, x.shape[2] - round(x.shape[2] * fraction) :] = False
    return np.where(observed, x, np.float32(0)), observed
