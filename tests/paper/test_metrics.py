"""Measures against closed forms and simulation."""

from __future__ import annotations

import numpy as np
import pytest

from sqhn.data.streams import noisy_samples
from sqhn.paper.metrics import (
    encoding_floor,
    forgetting_bound,
    recall_accuracy,
    recall_error,
    recognition_accuracy,
    singletons,
)


def test_recall_error_over_some_values() -> None:
    original = np.array([[[0.0, 0.5], [1.0, 0.0]]])
    recalled = np.array([[[0.0, 0.0], [0.0, 0.0]]])
    where = np.array([[True, True], [False, False]])
    assert recall_error(recalled, original).tolist() == [1.25 / 4]
    assert recall_error(recalled, original, where).tolist() == [0.125]
    assert recall_error(recalled, original, ~where).tolist() == [0.5]
    assert recall_error(recalled, original, np.zeros((2, 2), bool)).tolist() == [0.0]


def test_accuracies() -> None:
    assert recall_accuracy(np.array([0.0, 0.01, 0.0101, 1.0]), 0.01) == 0.5  # at most
    assert recognition_accuracy(0.0, 1.0, 1.0) == pytest.approx(2 / 3)  # all answers are "new"


def test_singletons_match_the_urn() -> None:
    """By brute force over all sequences of hits."""
    J, t = 3, 4
    left = [J - len(set(np.unravel_index(i, (J,) * t))) for i in range(J**t)]
    assert singletons(J, np.array(t)) == pytest.approx(np.mean(left))


def test_the_forgetting_bound() -> None:
    assert forgetting_bound(100, np.array(300)) == pytest.approx(100 * np.exp(-2) / 300)


@pytest.mark.parametrize("noise", ["white", "binary"])
@pytest.mark.parametrize("count", [1, 5])
def test_the_encoding_floor_by_simulation(noise: str, count: int) -> None:
    x = np.random.default_rng(0).choice([0.02, 0.4, 0.9, 0.98], (60, 40, 40)).astype(np.float32)
    samples = noisy_samples(x, count, noise, 0.2, np.random.default_rng(1), ema=False)
    simulated = np.mean((samples.mean(axis=1) - x) ** 2)
    assert encoding_floor(x, count, noise, 0.2) == pytest.approx(simulated, rel=0.01)
