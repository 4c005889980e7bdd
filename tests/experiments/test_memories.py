"""Memories made from settings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN
from sqhn.experiments.memories import Ablated, ByError, build, tree
from sqhn.level import Level
from sqhn.reference import ReferenceSQHN


def test_a_tree_from_settings() -> None:
    memory = tree(
        (8, 8),
        {"kind": "sqhn", "kernels": [2], "capacity": [5, 7], "alpha": "inf", "gamma": 0.9, "similarity": "cosine"},
    )
    assert memory.levels == (Level(2, 5, math.inf, 0.9), Level(None, 7, math.inf, 0.9))
    assert memory.options.similarity == "cosine"


def test_judging_by_error_is_what_the_reference_does(pictures: NDArray[np.float32]) -> None:
    x = pictures[:20, :8, :8]
    settings = {"kind": "sqhn_by_error", "capacity": 6, "rho_error": 0.5}
    memory = build((8, 8, 3), settings, 0)
    assert isinstance(memory, ByError)
    memory.learn(x[:7])
    memory.learn(x[7:15])  # in two calls, as between test points
    reference = ReferenceSQHN((8, 8, 3), [Level(capacity=6)], keep_error=True)
    for one in x[:15]:
        reference.learn(one)
    assert memory.error == pytest.approx(reference.error, rel=1e-6)
    judged = memory.recognize(x)
    for i, one in enumerate(x):
        expected = reference.recognize_by_error(one)
        assert judged.old[i] == expected.old
        assert judged.score[i] == pytest.approx(expected.score, abs=1e-7)


@pytest.mark.parametrize("ablation", ["constant_step", "constant_step_and_growth", "no_growth", "no_averaging"])
def test_an_ablated_memory_answers_as_its_reference(ablation: str, pictures: NDArray[np.float32]) -> None:
    x = pictures[:30, :8, :8]
    memory = Ablated((8, 8, 3), {"kind": "sqhn_ablated", "capacity": 6, "ablation": ablation}, seed=3)
    memory.learn(x[:10])
    memory.learn(x[10:])
    recalled = memory.recall(x)
    for one, answer in zip(x, recalled.x):
        np.testing.assert_array_equal(answer, memory.reference.recall(one).x)


def test_ablations_change_one_thing(pictures: NDArray[np.float32]) -> None:
    """What each does to two samples of one neuron: by hand."""
    a, b = np.array([[0.0, 1.0]], np.float32), np.array([[0.2, 0.9]], np.float32)
    gamma = {"gamma": 0.5}  # b is close enough to a to be averaged

    def second(ablation: str) -> list[float]:
        memory = Ablated((1, 2), {"kind": "sqhn_ablated", "capacity": 1, "ablation": ablation, **gamma}, 0)
        memory.learn(np.stack([a, b, b]))
        root = memory.reference.root
        return [round(float(value), 5) for value in root.m[0]]

    assert second("none") == [round(0.4 / 3, 5), round(2.8 / 3, 5)]
    assert second("constant_step") == [0.15, 0.925]
    assert second("no_averaging") == [0.0, 1.0]
    assert second("constant_step_and_growth") == [0.15, 0.8]  # 1/8 of half a, then 1/2 and 1/4 of b


def test_a_constant_threshold_is_an_infinite_alpha(pictures: NDArray[np.float32]) -> None:
    x = pictures[:40, :8, :8]
    fast = tree((8, 8, 3), {"kind": "sqhn", "capacity": 20, "alpha": "inf", "gamma": 0.9})
    slow = ReferenceSQHN((8, 8, 3), [Level(capacity=20)], ablation="constant_threshold")
    written = fast.learn(x)
    assert [slow.learn(one).index for one in x] == written.index.tolist()
    assert isinstance(fast, SQHN)
