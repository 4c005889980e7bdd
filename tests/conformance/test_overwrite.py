"""A full node overwrites the least used neuron, and among those the one written longest ago."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, Level
from tests.helpers import ON_HOSTS, set_small


def images(many: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).random((many, 6, 6)).astype(np.float32)


@pytest.mark.parametrize(("device", "small"), [("cpu", 0), ("cpu", 64), ("plain", 64)])
def test_neurons_are_overwritten_in_turn(device: str, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    set_small(monkeypatch, small)
    memory = SQHN((6, 6), [Level(capacity=4, when_full="overwrite")], device=device)
    x = images(14)
    assert list(memory.learn(x).index) == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    np.testing.assert_array_equal(memory.recall(x[-4:]).x, x[-4:])  # the last four are there


@ON_HOSTS
def test_repeated_samples_stay_and_others_are_replaced(device: str) -> None:
    memory = SQHN((6, 6), [Level(capacity=3, when_full="overwrite")], device=device)
    x = images(9)
    memory.learn(x[:3])
    memory.learn(x[0])  # neuron 0 has averaged: two samples
    assert list(memory.learn(x[3:7]).index) == [1, 2, 1, 2]
    memory.learn(x[5:7])  # now all have two; neuron 0 was written longest ago
    assert memory.learn(x[7]).index == 0
    assert memory.learn(x[8]).index == 0  # the only one with a single sample


@ON_HOSTS
def test_the_memory_node_of_a_tree_too(device: str) -> None:
    memory = SQHN((6, 6), [Level(3, 50), Level(capacity=3, when_full="overwrite")], device=device)
    assert list(memory.learn(images(8)).index) == [0, 1, 2, 0, 1, 2, 0, 1]


@ON_HOSTS
@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_neurons_of_trees_count_where_those_that_they_replace_did(device: str, gamma: float) -> None:
    memory = SQHN((6, 6), [Level(3, 10), Level(capacity=3, when_full="overwrite", gamma=gamma)], device=device)
    for _ in range(3):
        memory.learn(images(40))
    before = memory.nbytes
    for _ in range(20):
        memory.learn(images(40))
    assert memory.nbytes == before


def test_it_is_known_after_loading(tmp_path: Path) -> None:
    memory = SQHN((6, 6), [Level(capacity=3, when_full="overwrite")])
    x = images(8)
    memory.learn(x[:4])
    memory.save(tmp_path / "m.sqhn")
    assert list(SQHN.load(tmp_path / "m.sqhn").learn(x[4:]).index) == list(memory.learn(x[4:]).index) == [1, 2, 0, 1]
