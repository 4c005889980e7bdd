"""Samples with missing values, and forgotten neurons, by hand.

Against the reference: conformance/test_stories, properties/test_machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN, Level
from sqhn.reference import ReferenceSQHN
from tests.helpers import (
    ON_HOSTS,
    assert_same_answers,
    assert_same_ranking,
    assert_same_state,
    fingerprint,
    without_projection,
)

X = np.random.default_rng(0).random((6, 8, 8)).astype(np.float32)
LEFT = np.broadcast_to(np.arange(8) < 4, (8, 8))


@ON_HOSTS
@pytest.mark.parametrize("similarity", ["shifted_cosine", "cosine", "euclidean"])
def test_each_value_is_the_mean_of_the_observed_ones(device: str, similarity: Any) -> None:
    memory = SQHN((4,), [Level(capacity=1)], similarity=similarity, device=device)
    rows = np.array([[0.2, 0.4, 9, 9], [0.4, 9, 0.5, 9], [0.9, 0.5, 9, 9]], np.float32)
    for row in rows:
        memory.learn(row, observed=row < 9)
    centre = 0.5 if similarity == "shifted_cosine" else 0.0
    np.testing.assert_allclose(memory.prototypes[0], [0.5, 0.45, 0.5, centre], rtol=1e-6)
    found = memory.recall(rows[0], observed=rows[0] < 9)
    assert found.known.tolist() == [True, True, True, False]
    assert memory.counts.tolist() == [3]
    kept = memory.recall([0.1, 0.1, 0.1, 0.7], observed=[False, False, False, True], keep=True)
    np.testing.assert_allclose(kept.x, [0.5, 0.45, 0.5, 0.7], rtol=1e-6)
    assert kept.known.all()


@ON_HOSTS
def test_a_repeated_half_is_old_and_uses_one_neuron(device: str) -> None:
    for levels in (
        [Level(capacity=9)],
        [Level(4, 9), Level(capacity=9)],
        [Level(2, 9), Level(2, 9), Level(capacity=9)],
    ):
        memory = SQHN((8, 8), levels, propagation="max", device=device)
        memory.learn(X[:3], observed=LEFT)
        assert memory.learn(X[:3], observed=LEFT).index.tolist() == [0, 1, 2]
        assert memory.recognize(X[:3], LEFT).old.all()
        assert not memory.recognize(X[3:], LEFT).old.any()
        np.testing.assert_allclose(memory.energy(X[:3], LEFT), 1)
        found = memory.recall(X[:3])
        np.testing.assert_array_equal(found.known, np.broadcast_to(LEFT, (3, 8, 8)))
        np.testing.assert_allclose(found.x, np.where(LEFT, X[:3], np.float32(0.5)), rtol=1e-6)
        memory.learn(X[0])  # the whole sample: another neuron, or in a tree other patches
        assert memory.recall(X[0]).known.all()


@ON_HOSTS
def test_the_rest_of_a_sample_can_come_later(device: str) -> None:
    memory = SQHN((8, 8), [Level(4, 9), Level(capacity=1)], device=device)
    memory.learn(X[0], observed=LEFT)
    memory.learn(X[0], observed=~LEFT)
    np.testing.assert_allclose(memory.prototypes[0], X[0])
    found = memory.recall(X[0], observed=LEFT)
    np.testing.assert_allclose(found.x, X[0])
    assert found.known.all()


@ON_HOSTS
@pytest.mark.parametrize("kernels", [(4,), (2, 2)])
def test_nodes_that_never_saw_anything(device: str, kernels: tuple[int, ...]) -> None:
    levels = [*(Level(kernel, 9) for kernel in kernels), Level(capacity=9)]
    memory, reference = SQHN((8, 8), levels, device=device), ReferenceSQHN((8, 8), levels)
    memory.learn(X[:4], observed=LEFT)
    for x in X[:4]:
        reference.learn(x, observed=LEFT)
    assert memory.banks[-2].grown.tolist() == [4, 0, 4, 0]
    assert_same_state(memory, reference)
    assert_same_answers(memory, reference, X[2:])
    for rule in ("exact", "feedforward"):
        assert_same_ranking(memory, reference, X, None, 3, rule)


@ON_HOSTS
def test_the_memory_node_does_not_hear_nodes_that_never_saw_anything(device: str) -> None:
    levels = [Level(4, 9), Level(capacity=9)]
    memory, reference = SQHN((8, 8), levels, device=device), ReferenceSQHN((8, 8), levels)
    memory.learn(X[0], observed=LEFT)
    reference.learn(X[0], observed=LEFT)
    written = memory.learn(X, root_only=True)
    expected = [reference.learn(x, root_only=True) for x in X]
    assert written.index.tolist() == [one.index for one in expected]
    assert written.score == pytest.approx([one.score for one in expected], abs=1e-9)
    assert_same_state(memory, reference)


@ON_HOSTS
def test_samples_without_observed_values_are_refused(device: str) -> None:
    memory = SQHN((8, 8), capacity=4, device=device)
    memory.learn(X[:2])
    before, nothing = fingerprint(memory), np.zeros(X.shape, bool)
    nothing[0] = True
    for verb in (lambda **mask: memory.learn(X, **mask), lambda **mask: memory.recognize(X, **mask),
                 lambda **mask: memory.energy(X, **mask)):  # fmt: skip
        with pytest.raises(ValueError, match=r"5 of 6 samples have no observed value \(the first is sample 1\)"):
            verb(observed=nothing)
        with pytest.raises(
            ValueError, match=r"observed must have the shape of x, \(6, 8, 8\), or broadcast to it; got \(3, 8, 8\)"
        ):
            verb(observed=nothing[:3])
    assert fingerprint(memory) == before
    memory.learn(X, observed=np.ones(X.shape, bool))
    assert not memory.banks[0].holes
    assert memory.recall(X).known is None


@ON_HOSTS
@pytest.mark.parametrize("levels", [[Level(capacity=9)], [Level(4, 9), Level(capacity=9)]])
def test_missing_values_and_forgotten_neurons_in_files(device: str, levels: list[Level], tmp_path: Path) -> None:
    memory = SQHN((8, 8), levels, device=device)
    memory.learn(X[:4], observed=np.random.default_rng(1).random((4, 8, 8)) < 0.6, value=list("abcd"))
    memory.learn(X[:2], observed=LEFT)
    memory.forget([1, 3])
    memory.save(tmp_path / "m")
    again = SQHN.load(tmp_path / "m")
    assert fingerprint(again) == fingerprint(memory)
    assert (len(again), again.counts.tolist()) == (len(memory), memory.counts.tolist())
    for one in (memory, again):
        assert one.learn(X[5]).index == 1
        one.resize(12)
    assert fingerprint(again) == fingerprint(memory)
    assert memory.recall(X[3]).value != "d"


LARGE = (8, 16)
LEFT_OF_LARGE = np.broadcast_to(np.arange(16) < 8, LARGE)
WHOLE = np.ones(LARGE, bool)


def learned_by_both(similarity: Any, chunks: float, before: Any, then: Any) -> list[int]:
    """The neurons of samples in a memory of two neurons and in the reference; the memory learns `then` as one chunk."""
    memory = SQHN(LARGE, [Level(capacity=2)], similarity=similarity)
    reference = ReferenceSQHN(LARGE, memory.levels, memory.options)
    without_projection(memory, chunks)
    centre = memory.options.centre
    went = []
    for x, seen in before:
        went.append(memory.learn(centre + x, observed=seen).index)
    went += memory.learn(centre + np.stack(then)).index.tolist()
    told = [*before, *((x, WHOLE) for x in then)]
    assert went == [reference.learn((centre + x).astype(np.float32), observed=seen).index for x, seen in told]
    assert_same_state(memory, reference)
    return went


@pytest.mark.parametrize("chunks", [0, np.inf])
@pytest.mark.parametrize("similarity", ["shifted_cosine", "euclidean"])
def test_a_half_observed_for_the_first_time_counts_in_full(similarity: Any, chunks: float) -> None:
    """A half-known neuron averages a whole sample: its unknown half becomes that of the sample, not a mean.

    The next sample of the chunk is that half alone, and another neuron resembles it less.
    """
    rng = np.random.default_rng(3)
    a, b, other = (0.2 * np.kron(rng.choice([-1.0, 1.0], (4, 8)), np.ones((2, 2))) for _ in range(3))
    whole, half = np.where(LEFT_OF_LARGE, a, b), np.where(LEFT_OF_LARGE, 0, b)
    similar = np.where(LEFT_OF_LARGE, other, 0) + 0.6 * half
    before = [(whole, LEFT_OF_LARGE), (similar, WHOLE)]
    assert learned_by_both(similarity, chunks, before, [whole, half]) == [0, 1, 0, 0]


@pytest.mark.parametrize("chunks", [0, np.inf])
@pytest.mark.parametrize("similarity", ["shifted_cosine", "cosine"])
def test_values_are_averaged_by_how_often_they_were_observed(similarity: Any, chunks: float) -> None:
    """A neuron averaged two samples, but observed each value once: the next sample counts one half."""
    a, e, o = np.linalg.qr(np.random.default_rng(0).normal(size=(128, 3)))[0].T.reshape(3, *LARGE)
    before = [(a, LEFT_OF_LARGE), (0.36 * e + 0.93 * o, WHOLE), (a, ~LEFT_OF_LARGE)]
    assert learned_by_both(similarity, chunks, before, [a + e, e]) == [0, 1, 0, 0, 0]


@ON_HOSTS
def test_forgotten_neurons_never_win(device: str) -> None:
    for levels in ([Level(capacity=6)], [Level(4, 9), Level(capacity=6)]):
        memory = SQHN((8, 8), levels, similarity="cosine", device=device)
        memory.learn(-X)
        assert memory.forget(np.array([0, 2])) == memory.forget([]) == len(X)
        for rule in ("paper", "exact", "feedforward"):
            assert sorted(memory.recall(X[0], k=4, inference=rule).index.tolist()) == [1, 3, 4, 5]
            assert memory.recall(X[0], inference=rule).index in (1, 3, 4, 5)
        with pytest.raises(ValueError, match="k=5 is more than the 4 stored"):
            memory.recall(X[0], k=5)
        np.testing.assert_array_equal(memory.prototypes[2], 0)
        memory.forget([1, 3, 4, 5])
        assert not memory.recognize(X).old.any()
        memory.learn(X)
        assert len(memory) == 6


@ON_HOSTS
@pytest.mark.parametrize("rule", ["paper", "exact", "feedforward", "evidence"])
@pytest.mark.parametrize("levels", [[Level(capacity=6)], [Level(4, 9), Level(capacity=6)]], ids=len)
def test_forgotten_neurons_do_not_win_where_nothing_is_observed(device: str, levels: list[Level], rule: Any) -> None:
    memory = SQHN((8, 8), levels, device=device)
    memory.learn(X)
    memory.forget([0, 2])
    for k, index in ((1, [1]), (4, [1, 3, 4, 5])):
        with pytest.warns(UserWarning, match="no observed value"):
            assert memory.recall(X[0], np.zeros((8, 8), bool), inference=rule, k=k).index.tolist() == index


@ON_HOSTS
def test_oldest_replaces_the_neuron_written_longest_ago(device: str) -> None:
    memory = SQHN((8, 8), [Level(capacity=3, when_full="oldest")], device=device)
    memory.learn(X[:3])
    memory.learn(X[0])  # averaged, so it is no longer the oldest
    written = memory.learn(X[3:])
    assert written.index.tolist() == [1, 2, 0]
    assert written.replaced.all()
    assert written.grew.all()
    assert memory.learn(X[3]).replaced is False


@ON_HOSTS
@pytest.mark.parametrize("policy", ["overwrite", "oldest"])
def test_only_the_memory_node_may_replace_neurons(device: str, policy: Any) -> None:
    with pytest.raises(ValueError, match=rf"when_full='{policy}' at level 1 of 2: only the memory node"):
        SQHN((8, 8), [Level(4, 9, when_full=policy), Level(capacity=9)], device=device)


@ON_HOSTS
def test_euclidean_similarity_depends_on_amplitude(device: str) -> None:
    memory = SQHN((4,), capacity=9, similarity="euclidean", device=device)
    x = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.8, 1.2, 1.6], [0.2] * 4, [0.3] * 4], np.float32)
    assert memory.learn(x).grew.all()
    assert memory.recognize(x).old.all()
    found = memory.recall(x[2] + 0.5, k=4)
    rms = np.sqrt(np.mean((x[found.index] - (x[2] + 0.5)) ** 2, axis=1))
    np.testing.assert_allclose(found.score, 1 / (1 + rms), rtol=1e-6)
    masked = memory.recall(x[0], observed=[True, False, False, False], k=4)
    np.testing.assert_allclose(masked.score, 1 / (1 + np.abs(x[masked.index, 0] - x[0, 0])), rtol=1e-6)


@ON_HOSTS
@pytest.mark.parametrize(
    "index",
    [
        True,
        [0, True],
        [0.0],
        "0",
        ["0"],
        [[0]],
        [0, [1]],
        np.array([[0]]),
        np.ma.array([0, 1], mask=[False, True]),
    ],
    ids=str,
)
def test_invalid_indices_to_forget(device: str, index: Any) -> None:
    memory = SQHN((8, 8), capacity=9, device=device)
    memory.learn(X)
    with pytest.raises(TypeError, match=r"index must be the number of a neuron, or a sequence of them; got"):
        memory.forget(index)
    for beyond in (-1, 6, 2**70, np.uint64(2**64 - 1)):
        with pytest.raises(IndexError, match=f"neuron {int(beyond)} is not one of 6; nothing was changed"):
            memory.forget(beyond)
    assert len(memory) == len(X)
