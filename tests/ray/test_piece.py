"""The best neurons of a shard, and its bound for all others."""

from __future__ import annotations

import numpy as np
import pytest

from sqhn import SQHN
from sqhn.banks.interface import Patches
from sqhn.banks.ray.piece import Piece, Vectors
from sqhn.level import TIE
from tests.helpers import model_of

pytest.importorskip("numba")
SHAPE, NEURONS, SAMPLES = (8, 12), 40, 30


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("similarity", ["shifted_cosine", "cosine", "euclidean"])
@pytest.mark.parametrize("contrast", [1.0, 1e-3, 1e-7])
def test_the_bound_on_all_other_neurons(count: int, similarity: str, contrast: float) -> None:
    """Neurons that are alike, nearly alike or flat; samples that are one of them, nearly one, or none."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        memory = SQHN(SHAPE, capacity=NEURONS, similarity=similarity)  # type: ignore[arg-type]
        piece = Piece(model_of(memory).tree.tilings[0], memory.levels[0], memory.options)
        things = 0.5 + contrast * (rng.random((6, 96)) - 0.5) + rng.choice([0, 0.3 * contrast], (6, 1))
        m = things[rng.integers(6, size=NEURONS)] + contrast * rng.choice([0, 1e-7, 1e-3, 0.3], (NEURONS, 1)) * (
            rng.random((NEURONS, 96)) - 0.5
        )
        m[rng.integers(NEURONS)] = 0.5
        numbers = np.sort(rng.choice(1000, NEURONS, replace=False))
        piece.put(Vectors(numbers, np.ones(NEURONS, np.int64), m.astype(np.float32), None))
        piece.forget(numbers[rng.choice(NEURONS, 3, replace=False)])
        x = m[rng.integers(NEURONS, size=SAMPLES)] + contrast * rng.choice([0, 1e-6, 0.1, 1], (SAMPLES, 1)) * (
            rng.random((SAMPLES, 96)) - 0.5
        )
        evidence = Patches(x.astype(np.float32)[None])
        near, (order, activity) = piece.near(evidence, count), piece.activity(evidence)
        assert (order == numbers).all()
        for t in range(SAMPLES):
            there = near.k[t] >= 0
            named = np.searchsorted(numbers, near.k[t, there])
            assert len(set(named)) == len(named)
            np.testing.assert_allclose(near.v[t, there], activity[t, named], rtol=0, atol=1e-15)
            assert (near.v[t, ~there] == -np.inf).all()
            assert np.delete(activity[t], named).max() <= near.rest[t]
            if count:  # the winner, and the winner of the rest
                assert named[0] == (activity[t] >= activity[t].max() - TIE).argmax()
