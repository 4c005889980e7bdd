"""Errors of recall, shares recalled and recognized, and their theoretical values."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "encoding_floor",
    "forgetting_bound",
    "recall_accuracy",
    "recall_error",
    "recognition_accuracy",
    "singletons",
]


def recall_error(
    recalled: NDArray[Any], original: NDArray[Any], where: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """The mean squared error of each sample of a batch, over all its values or those selected by `where`.

    >>> recall_error(np.array([[0.0, 1.0]]), np.array([[0.0, 0.5]]))
    array([0.125])
    """
    squares = np.square(recalled.astype(np.float64) - original).reshape(len(original), -1)
    if where is None:
        return np.asarray(squares.mean(axis=1))
    selected = np.broadcast_to(where, original.shape).reshape(len(original), -1)
    return np.asarray((squares * selected).sum(axis=1) / np.maximum(1, selected.sum(axis=1)))


def recall_accuracy(error: NDArray[np.float64], threshold: float) -> float:
    """The share of samples recalled: those with an error of at most the threshold."""
    return float(np.mean(error <= threshold))


def recognition_accuracy(old: float, new: float, other: float) -> float:
    """The mean of three shares: old called old, new of the same kind called new, new of another kind called new."""
    return (old + new + other) / 3


def singletons(capacity: int, steps: NDArray[Any]) -> NDArray[np.float64]:
    """The expected number of `capacity` neurons that no step has changed, if every step changes one at random."""
    return np.asarray(capacity * (1 - 1 / capacity) ** np.asarray(steps, np.float64))


def forgetting_bound(capacity: int, learned: NDArray[Any]) -> NDArray[np.float64]:
    """The share still recalled after `learned` samples, in the limit of many neurons (Theorem 2).

    >>> forgetting_bound(100, np.array([50, 100]))
    array([1., 1.])
    """
    learned = np.asarray(learned, np.float64)
    over = np.maximum(0, learned - capacity) / capacity
    return np.asarray(np.minimum(1, capacity * np.exp(-over) / learned))


def encoding_floor(x: NDArray[Any], count: int, noise: str, sigma: float) -> float:
    """The mean squared error of the mean of `count` independent noisy samples: squared bias plus variance / count."""
    if noise == "binary":
        x = np.asarray(x, np.float64)
        return float(np.mean(x * (1 - x)) / count)
    values, where = np.unique(x, return_inverse=True)
    moments = np.array([_clipped_normal(float(value), sigma) for value in values])
    mean, variance = moments[where.ravel()].T
    return float(np.mean((mean - np.ravel(x)) ** 2 + variance / count))


def _clipped_normal(center: float, sigma: float) -> tuple[float, float]:
    """Mean and variance of a normal variable clipped to [0, 1]."""
    normal = NormalDist()
    low, high = -center / sigma, (1 - center) / sigma
    inside, above = normal.cdf(high) - normal.cdf(low), 1 - normal.cdf(high)
    at_low, at_high = normal.pdf(low), normal.pdf(high)
    mean = center * inside + sigma * (at_low - at_high) + above
    square = (
        (center**2 + sigma**2) * inside
        + 2 * center * sigma * (at_low - at_high)
        + sigma**2 * (low * at_low - high * at_high)
        + above
    )
    return mean, max(0.0, square - mean**2)
