"""The reference against the mathematics of the paper, by hand or by brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn.banks.rule import GREW
from sqhn.level import Level, Options
from sqhn.reference import Ablation, Network, Node, Reading, ReferenceSQHN, VariedNode, winner
from sqhn.reference.model import winners
from tests.helpers import levels, noisy

RNG = np.random.default_rng(0)


def small_tree(depth: int = 3, capacity: int = 5) -> ReferenceSQHN:
    kernels = {2: (2, None), 3: (2, 2, None)}[depth]
    return ReferenceSQHN((4, 4) if depth == 2 else (8, 8), [Level(k, capacity) for k in kernels])


def test_ties_go_to_the_lowest_index() -> None:
    assert winner(np.array([0.1, 0.7, 0.7 + 1e-15, 0.2])) == 1
    assert winner(np.array([0.1, 0.7, 0.7 + 1e-9, 0.2])) == 2


def test_patch_activity_is_the_shifted_cosine() -> None:
    node = Node(Level(capacity=2), [3], True, Options())
    node.m[:2], node.grown = [[1.0, 0.5, 0.5], [0.5, 0.5, 0.0]], 2
    h = node.activity(np.array([1.0, 0.5, 0.0], np.float32))
    np.testing.assert_allclose(h, 0.5 + 0.5 / np.sqrt(2), atol=1e-6)
    np.testing.assert_allclose(node.activity(np.full(3, 0.5, np.float32)), 0.5)  # no length: one half
    seen = np.array([True, False, False])
    np.testing.assert_allclose(node.activity(np.array([1.0, 0.5, 0.0], np.float32), seen), [1.0, 0.5], atol=1e-6)
    np.testing.assert_array_equal(node.activity(np.ones(3, np.float32), ~np.ones(3, bool)), 0.0)  # silent


def test_code_activity_is_the_cosine_with_the_strengths() -> None:
    node = Node(Level(capacity=1), [2, 3], False, Options())
    node.m[0], node.grown = [0.25, 0.75, 0.0, 0.5, 0.5], 1
    y = np.array([0.0, 0.8, 0.0, 0.0, 0.6])
    expected = (0.8 * 0.75 + 0.6 * 0.5) / (1.0 * np.sqrt(0.25**2 + 0.75**2 + 2 * 0.5**2))
    assert node.activity(y)[0] == pytest.approx(expected, abs=1e-12)


def test_norm_over_the_heard_children() -> None:
    node = Node(Level(capacity=1), [2, 2], False, Options(norm="heard"))
    node.m[0], node.grown = [1.0, 0.0, 0.5, 0.5], 1
    assert node.activity(np.array([0.9, 0.0, 0.0, 0.0]))[0] == pytest.approx(1.0, abs=1e-6)


def test_weighted_mean() -> None:
    node = VariedNode(Level(capacity=1), [2, 2], False, Options())
    node.reading = Reading(hidden_similarity="weighted_mean")
    node.m[0], node.grown = [0.25, 0.75, 0.5, 0.5], 1
    assert node.activity(np.array([0.0, 0.6, 0.2, 0.0]))[0] == pytest.approx((0.6 * 0.75 + 0.2 * 0.5) / 0.8)


def test_a_column_is_the_mean_of_its_targets(images: NDArray[np.float32]) -> None:
    reference = ReferenceSQHN((32, 32, 3), [Level(capacity=5)])
    index = [reference.learn(x).index for x in images[:60]]
    for j in range(5):
        mean = images[:60][np.array(index) == j].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(reference.root.m[j], mean.ravel(), atol=1e-5)
        assert reference.root.c[j] == index.count(j)


def test_columns_of_hidden_nodes_sum_to_one(images: NDArray[np.float32]) -> None:
    reference = ReferenceSQHN((32, 32, 3), levels("L3 (4,4,2)", 5))
    for x in images[:20]:
        reference.learn(x)
    for node in (node for level in reference.levels[1:] for node in level):
        sums = [node.m[: node.grown, a:b].sum(axis=1) for a, b in zip(node.edges, node.edges[1:])]
        np.testing.assert_allclose(sums, 1.0, atol=1e-9)


def test_strength_after_growth_follows_the_formula(images: NDArray[np.float32]) -> None:
    """sum(v) / (sqrt(N) |v|) for a column that was just written."""
    node = Node(Level(capacity=3), [2, 2, 2], False, Options())
    v = np.array([0.9, 0.5, 0.7])
    y = np.zeros(6)
    y[[0, 3, 4]] = v
    _, strength, score, kind = node.learn(y, (y > 0).astype(float), np.ones(6, bool))
    assert kind == GREW
    assert score == -np.inf
    assert strength == pytest.approx(v.sum() / (np.sqrt(3) * np.linalg.norm(v)), abs=1e-6)


def brute_force_maximum(reference: ReferenceSQHN, x: NDArray[np.float32]) -> float:
    """The largest energy of all assignments, one by one."""
    ranges = [range(node.grown) for node in reference.nodes()]
    sizes = np.cumsum([len(level) for level in reference.levels])[:-1]
    return max(reference.energy(x, np.split(np.array(k), sizes)) for k in product(*ranges))


def test_exact_is_the_maximum_of_the_energy_by_brute_force() -> None:
    reference = ReferenceSQHN((4, 2), [Level((2, 1), 3), Level((1, 2), 3), Level(None, 3)])
    for x in RNG.random((8, 4, 2), np.float32):
        reference.learn(x)
    for x in RNG.random((3, 4, 2), np.float32):
        codes, energy = reference.infer(x, rule="exact"), reference.recall(x, inference="exact").score
        assert energy == pytest.approx(brute_force_maximum(reference, x), abs=1e-12)
        assert energy == pytest.approx(reference.energy(x, codes), abs=1e-12)


@pytest.mark.parametrize("depth", [2, 3])
def test_exact_is_never_below_any_other_state(depth: int) -> None:
    reference = small_tree(depth)
    shape = reference.input_shape
    for x in RNG.random((25, *shape), np.float32):
        reference.learn(x)
    for x in RNG.random((10, *shape), np.float32):
        best = reference.recall(x, inference="exact").score
        others = [reference.infer(x, rule="feedforward"), reference.infer(x), reference.infer(x, sweeps=3)]
        others += [reference.random(RNG) for _ in range(20)]
        assert all(0 <= reference.energy(x, k) <= best + 1e-12 <= 1 + 1e-12 for k in others)


def test_feedback_never_lowers_the_energy_of_two_levels() -> None:
    reference = small_tree(2)
    for x in RNG.random((25, 4, 4), np.float32):
        reference.learn(x)
    for x in RNG.random((30, 4, 4), np.float32):
        assert reference.energy(x) >= reference.energy(x, reference.infer(x, rule="feedforward")) - 1e-12


def test_a_stored_sample_has_energy_one(images: NDArray[np.float32]) -> None:
    """Where every node grew for every sample, all rules agree."""
    reference = small_tree(3, capacity=9)
    stored = RNG.random((9, 8, 8), np.float32)
    for x in stored:
        reference.learn(x)
    assert all(node.grown == 9 for node in reference.nodes())
    for x in stored:
        for codes in (reference.infer(x, rule="feedforward"), reference.infer(x), reference.infer(x, rule="exact")):
            assert reference.energy(x, codes) == pytest.approx(1.0, abs=1e-5)


def test_one_sweep_is_feedforward_and_feedback() -> None:
    """The repeated sweeps end on a downward pass; a first one by hand."""
    reference = small_tree(2)
    for x in RNG.random((12, 4, 4), np.float32):
        reference.learn(x)
    x = RNG.random((4, 4), np.float32)
    h = reference.up(x, None)
    root = winner(h[1][0])
    by_hand = [winner(0.5 * h[0][n] + 0.5 * p[root]) for n, (_, _, p) in enumerate(reference.families(1))]
    assert list(reference.infer(x)[0]) == by_hand


def test_the_second_sweep_by_hand() -> None:
    reference = small_tree(2)
    for x in RNG.random((12, 4, 4), np.float32):
        reference.learn(x)
    x = RNG.random((4, 4), np.float32)
    bottom, (top,) = reference.up(x, None)
    raw = [h.copy() for h in bottom]
    expected = [p for _, _, p in reference.families(1)]
    u = [0.5 * h + 0.5 * p[winner(top)] for h, p in zip(bottom, expected)]
    u = [0.5 * un + 0.5 * h for un, h in zip(u, raw)]
    top = 0.5 * top + 0.5 * reference.root.activity(reference.inputs(1, x, *winners(u))[0])
    u = [0.5 * un + 0.5 * p[winner(top)] for un, p in zip(u, expected)]
    assert list(reference.infer(x, sweeps=2)[0]) == [winner(un) for un in u]


def test_batch_memorization_recalls_what_it_was_given(images: NDArray[np.float32]) -> None:
    stored = images[:8]
    for name in ("L1", "L2 (4,8)", "L3 (2,4,4)"):
        reference = ReferenceSQHN((32, 32, 3), levels(name, 8))
        reference.memorize(stored)
        assert all(node.grown == 8 and node.c.max() == 1 for node in reference.nodes())
        recalled = [reference.recall(x) for x in noisy(stored, 0.05)]
        assert [r.index for r in recalled] == list(range(8))


def test_batch_memorization_gives_duplicates_the_lowest_index() -> None:
    reference = ReferenceSQHN((2, 2), [Level((1, 1), 3), Level(None, 3)])
    x = np.array([[[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.9], [0.8, 0.2]], [[0.9, 0.1], [0.1, 0.9]]], np.float32)
    reference.memorize(x)  # one value per node: only its side of one half counts
    codes = [reference.infer(sample, rule="feedforward")[0].tolist() for sample in x]
    assert codes == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 2]]


def test_held_samples_are_averaged(images: NDArray[np.float32]) -> None:
    reference = ReferenceSQHN((32, 32, 3), levels("L2 (4,8)", 4))
    samples = noisy(np.broadcast_to(images[0], (6, 32, 32, 3)))
    reference.learn_samples(samples)
    mean = samples.astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(reference.recall(images[0]).x, mean, atol=1e-6)
    assert reference.root.c[0] == 6
    assert reference.root.step == 6


@pytest.mark.parametrize("kernels", [(None,), (2, None), (2, 2, None)])
def test_without_variants_the_reference_is_the_network_of_the_paper(kernels: tuple[int | None, ...]) -> None:
    levels = [Level(kernel, 6) for kernel in kernels]
    network, reference = Network((8, 8), levels), ReferenceSQHN((8, 8), levels)
    for x in RNG.random((15, 8, 8), np.float32):
        assert network.learn(x) == reference.learn(x)
    for x in RNG.random((5, 8, 8), np.float32):
        for observed in (None, RNG.random((8, 8)) < 0.4):
            one, other = network.recall(x, observed), reference.recall(x, observed)
            np.testing.assert_array_equal(one.x, other.x)
            assert (one.index, one.score) == (other.index, other.score)
            assert network.recognize(x, observed) == reference.recognize(x, observed)


class TestAblations:
    def test_constant_threshold(self) -> None:
        near = np.array([[[0.9, 0.1]], [[0.9, 0.12]]], np.float32)  # similarity above .9
        full = ReferenceSQHN((1, 2), [Level(capacity=2)])
        lax = ReferenceSQHN((1, 2), [Level(capacity=2, alpha=np.inf, gamma=0.9)])
        assert [full.learn(x).grew for x in near] == [True, True]
        assert [lax.learn(x).grew for x in near] == [True, False]

    def test_constant_step(self) -> None:
        reference = ReferenceSQHN((1, 2), [Level(capacity=1)], ablation=Ablation(step=0.3))
        x = RNG.random((3, 1, 2), np.float32)
        for sample in x:
            reference.learn(sample)
        expected = 0.7 * (0.7 * x[0] + 0.3 * x[1]) + 0.3 * x[2]
        np.testing.assert_allclose(reference.root.m[0], expected.ravel(), atol=1e-6)

    def test_no_growth(self) -> None:
        reference = ReferenceSQHN((1, 2), [Level(capacity=4)], ablation=Ablation(grows=False), seed=3)
        assert reference.root.grown == 4
        assert np.abs(reference.root.m).max() <= 0.5
        x = np.array([[0.9, 0.2]], np.float32)
        j = reference.learn(x).index
        np.testing.assert_array_equal(reference.root.m[j], x.ravel())  # the first assignment overwrites

    def test_no_averaging(self) -> None:
        reference = ReferenceSQHN((1, 2), [Level(capacity=1)], ablation=Ablation(averages=False))
        x = RNG.random((3, 1, 2), np.float32)
        for sample in x:
            reference.learn(sample)
        np.testing.assert_array_equal(reference.root.m[0], x[0].ravel())
        assert reference.root.c[0] == 1


def test_theorem_3_the_column_that_is_updated_is_the_one_that_an_update_changes_least() -> None:
    """Every column in turn takes the same step toward the sample; the energy of the children grows least at the winner.

    That energy is the mean probability of their values, so the theorem is about `weighted_mean`.
    """
    rng = np.random.default_rng(0)
    node = VariedNode(Level(capacity=6), [4, 4, 4], False, Options())
    node.reading = Reading(hidden_similarity="weighted_mean")
    node.m[:] = rng.dirichlet(np.ones(4), (6, 3)).reshape(6, 12)
    node.grown = 6
    for values in product(range(4), repeat=3):
        places = np.arange(0, 12, 4) + values
        sample = np.zeros(12)
        sample[places] = 1
        updated = node.m + 0.3 * (sample - node.m)
        changes = updated[:, places].mean(axis=1) - node.m[:, places].mean(axis=1)
        assert winner(node.activity(sample)) == np.argmin(changes)


def test_strengths_before_or_after_the_update_are_the_same_to_a_root_that_is_not_full(
    distinct: NDArray[np.float32],
) -> None:
    levels = [Level(4, 20), Level(capacity=20)]
    usual, other = (
        ReferenceSQHN((32, 32, 3), levels, reading=one) for one in (Reading(), Reading(update_order="after"))
    )
    for x in distinct[:12]:
        assert usual.learn(x).index == other.learn(x).index
    assert usual.root.grown == other.root.grown == 12
