"""Several of the best. (Against the reference also wherever answers are compared, `helpers.assert_same_answers`.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqhn import SQHN, EmptyMemoryError, Level
from sqhn.banks.cpu import large, prototypes
from sqhn.reference import ReferenceSQHN
from tests.helpers import ON_HOSTS, assert_same_ranking, noisy, scaled_copies

TREE = [Level(4, 12), Level(capacity=12)]
RULES = ("paper", "feedforward", "exact")


def stored(levels: list[Level], shape: tuple[int, ...] = (8, 8), count: int = 12, **options: Any) -> SQHN:
    memory = SQHN(shape, levels, **options)
    memory.learn(np.random.default_rng(0).random((count, *shape), dtype=np.float32))
    return memory


@ON_HOSTS
@pytest.mark.parametrize("levels", [[Level(capacity=12)], TREE])
@pytest.mark.parametrize("rule", RULES)
def test_shapes_and_order(device: str, levels: list[Level], rule: str) -> None:
    memory = stored(levels, device=device)
    x = noisy(memory.prototypes[:5])
    many, one, best = (memory.recall(y, k=k, inference=rule) for y, k in ((x, 7), (x[2], 7), (x, None)))
    assert (many.x.shape, many.index.shape, many.score.shape) == ((5, 7, 8, 8), (5, 7), (5, 7))
    assert (one.x.shape, one.index.shape, one.score.shape) == ((7, 8, 8), (7,), (7,))
    for whole, part in zip(many[:3], one):
        np.testing.assert_array_equal(whole[2], part)
    for whole, first in zip(many[:3], best):
        np.testing.assert_array_equal(whole[:, 0], first)
    assert (np.diff(many.score) <= 0).all()
    assert [len(set(row)) for row in many.index.tolist()] == [7] * 5
    single = memory.recall(x, k=1, inference=rule)
    assert single.index.shape == (5, 1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("similarity", ["shifted_cosine", "cosine", "euclidean"])
def test_products_may_be_as_wrong_as_they_admit(similarity: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice of the best rests on bounds: products that are off by a known share of the lengths change nothing."""
    rng, honest = np.random.default_rng(seed), large.whole_products

    def sloppy(bank: Any, n: int, y: Any, P: Any) -> float:
        error = honest(bank, n, y, P)
        lengths = np.linalg.norm(y, axis=1)[:, None] * np.sqrt(bank.square[n, : P.shape[1]])
        P += rng.choice([-0.1, 0.1], P.shape) * lengths
        return float(error + 0.1)

    monkeypatch.setattr(large, "whole_products", sloppy)
    monkeypatch.setattr(prototypes, "SMALL", 0)
    memory = stored([Level(capacity=40)], count=40, similarity=similarity)
    reference = ReferenceSQHN.of(memory)
    x = noisy(memory.prototypes[:6], 0.3)
    assert_same_ranking(memory, reference, x, None, 7, "paper")


def test_every_neuron_once() -> None:
    memory = stored(TREE)
    assert sorted(memory.recall(noisy(memory.prototypes[0]), k=12).index.tolist()) == list(range(12))


@pytest.mark.parametrize(
    ("k", "message"), [(13, "k=13 is more than the 12 stored neurons"), (0, "k must be"), (1.5, "k must be")]
)
def test_invalid_k(k: Any, message: str) -> None:
    memory = stored(TREE)
    with pytest.raises(ValueError, match=message):
        memory.recall(memory.prototypes[0], k=k)
    with pytest.raises(EmptyMemoryError):
        SQHN((8, 8), capacity=3).recall(np.ones((8, 8)), k=1)


def test_labels_and_known_values_come_along() -> None:
    memory = SQHN((8, 8), capacity=12)
    x = np.random.default_rng(1).random((6, 8, 8), dtype=np.float32)
    memory.learn(x, value=list("abcdef"))
    seen = np.random.default_rng(2).random((2, 8, 8)) < 0.7
    found = memory.recall(x[:2], seen, k=3, keep=True)
    for i in range(2):
        names = ["abcdef"[j] for j in found.index[i]]
        assert found.value[i] == names
        assert found.values[i] == [[(name, 1)] for name in names]
        for j, one in zip(found.index[i], found.x[i]):
            np.testing.assert_array_equal(one, np.where(seen[i], x[i], x[j]))
    assert memory.recall(x[3], k=2).value[0] == "d"


@pytest.mark.parametrize("shape", [(12,), (16, 20)])
def test_samples_that_float32_cannot_tell_apart(shape: tuple[int, ...]) -> None:
    x = scaled_copies(shape, 3)
    levels = [Level(capacity=len(x))]
    memory, reference = SQHN(shape, levels), ReferenceSQHN(shape, levels)
    memory.memorize(x)
    reference.memorize(x)
    masks = np.random.default_rng(4).random((6, *shape)) < 0.6
    for observed in (None, masks):
        assert_same_ranking(memory, reference, x[:6], observed, 20, "paper")


def test_without_length_or_next_to_none() -> None:
    x = np.full((7, 70), 0.5, np.float32)
    x[1:5] += np.random.default_rng(5).uniform(-1, 1, (4, 70)).astype(np.float32) * np.array([[1], [1e-3], [1e-7], [0]])
    levels = [Level(capacity=7)]
    memory, reference = SQHN((70,), levels), ReferenceSQHN((70,), levels)
    memory.memorize(x)
    reference.memorize(x)
    for observed in (None, np.arange(70) % 3 + np.zeros((7, 1)) > 0, np.zeros((7, 70), bool)):
        with pytest.warns() if observed is not None and not observed.any() else np.errstate():
            assert_same_ranking(memory, reference, x, observed, 5, "paper")


@pytest.mark.parametrize("size", [35, 70])
def test_prototypes_that_are_almost_zero_where_observed(size: int) -> None:
    seen = np.arange(size) < 4 * size // 7
    x = np.random.default_rng(6).standard_normal((5, size)).astype(np.float32)
    x[3, seen] *= 1e-14
    memory = SQHN((size,), capacity=5, similarity="cosine")
    memory.memorize(x)
    question = np.where(seen, x[3] * 1e14, 0).astype(np.float32)
    assert memory.recall(question, seen, k=2).index[0] == 3
    assert_same_ranking(memory, ReferenceSQHN.of(memory), question[None], seen[None], 2, "paper")


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_any_memory_any_question(data: st.DataObject) -> None:
    policy: Any = st.sampled_from(["average", "overwrite", "oldest", "freeze"])
    capacity = st.integers(1, 9)
    shape = data.draw(st.sampled_from([(4, 4), (10, 8)]))
    below = [Level(2, data.draw(capacity))] if data.draw(st.booleans()) else []
    levels = [*below, Level(capacity=data.draw(capacity), when_full=data.draw(policy))]
    options: Any = data.draw(
        st.sampled_from([{}, {"similarity": "cosine", "norm": "heard"}, {"similarity": "euclidean"}])
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = (
        (rng.integers(0, 3, (14, *shape)) / 2).astype(np.float32)
        if data.draw(st.booleans())
        else rng.random((14, *shape))
    )
    memory = SQHN(shape, levels, **options)
    memory.learn(x[:10])
    reference = ReferenceSQHN.of(memory)
    k = data.draw(st.integers(1, len(memory)))
    observed = rng.random((5, *shape)) < 0.8 if data.draw(st.booleans()) else None
    assert_same_ranking(memory, reference, x[9:].astype(np.float32), observed, k, data.draw(st.sampled_from(RULES)))
