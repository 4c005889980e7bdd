"""Recall by evidence against the reference, on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN
from sqhn.reference import ReferenceSQHN
from sqhn.reference.evidence import preferred

NEAR = 1e-6
"""Nats, and share of a score: how close fast paths are to the reference. Closer scores may be ranked either way."""
ODD = ("faint", "flat", "black", "huge", "opposite", "copies")


def assert_as_the_reference(memory: SQHN, x: NDArray[np.float32], observed: Any = None, k: int = 3) -> None:
    reference = ReferenceSQHN.of(memory)
    found = memory.recall(x, observed, inference="evidence")
    best = memory.recall(x, observed, inference="evidence", k=min(k, len(memory)))
    for i, sample in enumerate(x):
        mask = None if observed is None else observed[i]
        ranked = reference.recall_best(sample, best.index.shape[1], mask, "evidence")
        assert found.score[i] == pytest.approx(ranked[0].score, rel=NEAR, abs=NEAR)
        np.testing.assert_allclose(best.score[i], [one.score for one in ranked], rtol=NEAR, atol=NEAR)
        apart = np.abs(np.diff([one.score for one in ranked])) > 10 * NEAR * max(1, abs(ranked[0].score))
        if apart[:1].all():
            assert found.index[i] == ranked[0].index
            np.testing.assert_array_equal(found.x[i], ranked[0].x)
        if apart.all() and best.index[i, -1] == ranked[-1].index:  # the next may be as good as the last
            assert best.index[i].tolist() == [one.index for one in ranked]
            np.testing.assert_array_equal(best.x[i], [one.x for one in ranked])


def odd(seed: int, kind: str) -> NDArray[np.float32]:
    """Samples of which some are odd."""
    x = np.random.default_rng(seed).random((6, 8, 8), np.float32)
    those: dict[str, Any] = {
        "faint": 0.5 + 1e-6 * x[1:3], "flat": 0.7, "black": 0.0, "huge": 1e12 * x[1:3], "opposite": 1 - x[3:5],
        "copies": x[3:5],
    }  # fmt: skip
    x[1:3] = those[kind]
    return x


def assert_possible(memory: SQHN, x: NDArray[np.float32]) -> None:
    """Scores are close to the reference's, and the recalled neuron has the best."""
    found = memory.recall(x, inference="evidence")
    assert np.isfinite(found.score).all()
    reference = ReferenceSQHN.of(memory)
    for i, one in enumerate(x):
        A = reference.messages(one, None, "evidence")[-1][0]
        assert found.score[i] == pytest.approx(A[found.index[i]], rel=1e-4, abs=1e-4)
        scores = preferred(reference, one, None, A)
        assert scores[found.index[i]] == pytest.approx(scores.max(), rel=1e-4, abs=1e-4)
