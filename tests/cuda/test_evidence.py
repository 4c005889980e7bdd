"""Recall by evidence on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sqhn import SQHN, Level
from tests.by_evidence import ODD, assert_as_the_reference, assert_possible, odd

TREES: dict[str, tuple[tuple[int, ...], list[Level]]] = {
    "one level": ((8, 8), [Level(capacity=12)]),
    "one level, past capacity": ((8, 8, 3), [Level(capacity=5)]),
    "two levels": ((8, 8, 3), [Level(4, 12), Level(capacity=12)]),
    "three levels, past capacity": ((8, 8), [Level(2, 5), Level(2, 5), Level(capacity=5)]),
    "only below": ((8, 8), [Level(2, 3), Level(2, 12), Level(capacity=12)]),
    "signal": ((24, 3), [Level((4,), 9), Level(capacity=9)]),
    "vector": ((10,), [Level(capacity=9)]),
    "volume": ((4, 4, 4), [Level((2, 2, 2), 9), Level(capacity=9)]),
}


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("similarity", ["shifted_cosine", "euclidean"])
def test_the_same_as_the_reference(name: str, similarity: Any, device: str) -> None:
    shape, levels = TREES[name]
    rng = np.random.default_rng(1)
    x = rng.random((14, *shape), np.float32)
    memory = SQHN(shape, levels, similarity=similarity, device=device)
    memory.learn(x[:10])
    asked = (x[:3] + rng.normal(0, 0.2, x[:3].shape)).astype(np.float32)
    observed = rng.random(asked.shape) < 0.5
    observed[1, : shape[0] // 2] = False
    for mask in (None, observed):
        assert_as_the_reference(memory, asked, mask)
    memory.forget(2)
    half = np.ones((2, *shape), bool)
    half[:, : shape[0] // 2] = False
    memory.learn(x[10:12], observed=half)
    for mask in (None, observed):
        assert_as_the_reference(memory, asked, mask)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("levels", [[Level(capacity=4)], [Level(2, 4), Level(capacity=4)]])
def test_odd_samples(kind: str, levels: list[Level], device: str) -> None:
    x = odd(0, kind)
    memory = SQHN((8, 8), levels, device=device)
    memory.learn(x)
    assert_possible(memory, x)


def test_neurons_and_questions_in_parts(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqhn.banks.cuda import evidence

    x = np.random.default_rng(2).random((40, 4, 4), np.float32)
    for levels in ([Level(capacity=40)], [Level(2, 40), Level(capacity=40)]):
        memory = SQHN((4, 4), levels, device=device)
        memory.learn(x)
        whole = memory.recall(x[:7], inference="evidence")
        with monkeypatch.context() as patch:
            for name, size in (("PRODUCTS_AT_ONCE", 320), ("NEURONS_PER_LOOK", 16), ("NEURONS_PER_GATHER", 16)):
                patch.setattr(evidence, name, size)
            in_parts = memory.recall(x[:7], inference="evidence")
        np.testing.assert_array_equal(in_parts.index, whole.index)
        np.testing.assert_allclose(in_parts.score, whole.score, rtol=1e-6)
