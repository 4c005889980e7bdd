"""The projection is orthonormal, so its bound holds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn.banks.cpu.projection import Projection
from sqhn.data import photos

SHAPES = [(32, 32, 3), (28, 28), (784,), (64, 2), (100,), (30, 50), (16, 16, 16), (67, 3), (8, 4, 6, 2), (9,)]


def matrix(view: Projection, d: int) -> NDArray[np.float64]:
    """The projection as a matrix (features, d), from the features of unit vectors."""
    return np.asarray(view(np.eye(d, dtype=np.float32), 0.0), np.float64).T


@pytest.mark.parametrize("shape", SHAPES)
def test_features_are_orthonormal(shape: tuple[int, ...]) -> None:
    view, d = Projection(shape), int(np.prod(shape))
    T = matrix(view, d)
    assert T.shape == (view.size, d)
    np.testing.assert_allclose(T @ T.T, np.eye(view.size), atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_centre_is_taken_off_and_the_error_bound_holds(shape: tuple[int, ...]) -> None:
    view, d = Projection(shape), int(np.prod(shape))
    T = matrix(view, d)
    x = np.random.default_rng(0).random((5, d)).astype(np.float32)
    y = x.astype(np.float64) - 0.5
    wrong = np.linalg.norm(view(x, 0.5) - y @ T.T, axis=1)
    assert np.all(wrong <= (view.error + 1e-5) * np.linalg.norm(y, axis=1))


def test_photographs_are_mostly_inside() -> None:
    x = photos(32)[:200].astype(np.float32).reshape(200, -1) / np.float32(255)
    view = Projection((32, 32, 3))
    inside = np.square(view(x, 0.5)).sum(axis=1) / np.square(x - 0.5).sum(axis=1)
    assert view.size < 3072 / 6
    assert inside.mean() > 0.95
