"""Recall by evidence: the rule against plain arithmetic, the fast paths against the reference, what it is for."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.data import photos
from sqhn.evidence import FLOOR, LENGTH, ODDS, STRUCTURE, WHOLE, chance, pyramid
from sqhn.model.inference import MOST_SAMPLES, Evidence
from sqhn.reference import ReferenceSQHN
from sqhn.reference.evidence import evidence
from tests.by_evidence import ODD, assert_as_the_reference, assert_possible, odd
from tests.helpers import ON_HOSTS

# -- a block -----------------------------------------------------------------------------------------------------------


def plain(x: Any, m: Any) -> list[float]:
    """The rule as it is written down, number by number; all is seen, d is small."""
    pixels, channels = x.shape

    def likelihoods(x: Any, m: Any, d: int) -> list[float]:
        found = []
        for one in m:
            cosine = float((x * one).sum()) / (
                math.sqrt(float((x**2).sum())) * math.sqrt(float((one**2).sum())) + LENGTH
            )
            found.append((1 - max(0.0, cosine) ** 2 + FLOOR) ** (-d / 2))
        return found

    def told(L: list[float], flat: float) -> list[float]:
        N = len(L)
        return [math.log(1 + N * (one / (sum(L) + N * flat + N)) / ODDS) for one in L]

    d = pixels * channels
    left = float(((x - x.mean(axis=0)) ** 2).sum()) / float((x**2).sum())
    flat = (left + FLOOR) ** (-d / 2) * pixels ** (-channels / 2)
    first = told(likelihoods(x, m, d), flat)
    y, u = x - x.mean(axis=0), m - m.mean(axis=1, keepdims=True)
    u[(u**2).sum(axis=(1, 2)) <= STRUCTURE * (m**2).sum(axis=(1, 2))] = 0  # it is rounding
    centred = likelihoods(y if left > STRUCTURE else 0 * y, u, d - channels)
    return [a + b for a, b in zip(first, told(centred, 0.0))]


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 3), st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_the_evidence_of_a_block_follows_the_rule(seed: int, pixels: int, channels: int, many: int) -> None:
    rng = np.random.default_rng(seed)
    m = rng.uniform(-0.5, 0.5, (many, pixels, channels))
    x = m[0] + rng.normal(0, rng.choice([0.01, 0.3]), m[0].shape)
    np.testing.assert_allclose(evidence(x, m, np.ones(x.shape, bool)), plain(x, m), rtol=1e-9, atol=1e-12)


def test_values_that_were_not_seen_are_as_if_they_were_not_there() -> None:
    rng = np.random.default_rng(0)
    x, m = rng.uniform(-0.5, 0.5, (6, 2)), rng.uniform(-0.5, 0.5, (4, 6, 2))
    seen = np.ones((6, 2), bool)
    seen[3:] = False
    np.testing.assert_allclose(evidence(x, m, seen), evidence(x[:3], m[:, :3], seen[:3]))
    seen[:, 1] = False  # a whole channel
    np.testing.assert_allclose(evidence(x, m, seen), evidence(x[:3, :1], m[:, :3, :1], seen[:3, :1]))
    assert not evidence(x, m, np.zeros((6, 2), bool)).any()


def test_neither_strength_nor_brightness_matters_and_no_block_says_more_than_it_may() -> None:
    rng = np.random.default_rng(1)
    m = rng.uniform(-0.5, 0.5, (50, 16, 3))
    all_of_it = np.ones((16, 3), bool)
    clean = evidence(m[7], m, all_of_it)
    assert clean.argmax() == 7
    assert clean.max() <= 2 * math.log1p(len(m) / ODDS)
    np.testing.assert_allclose(evidence(0.3 * m[7], m, all_of_it), clean, atol=1e-2)
    darker = evidence(m[7] - 0.4, m, all_of_it)  # one look of two is enough
    assert darker[7] > 0.9 * math.log1p(len(m) / ODDS)


def test_a_flat_block_is_rather_flat_than_anything_stored() -> None:
    m = np.full((20, 16, 3), 0.3) + np.random.default_rng(2).normal(0, 0.1, (20, 16, 3))
    m[4] = -0.5  # a black thing
    assert evidence(np.full((16, 3), -0.5), m, np.ones((16, 3), bool)).max() < 0.5


# -- blocks of a sample ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28), (64, 48, 3), (200, 6), (12,), (29, 31), (7, 7), (16, 16, 16)])
def test_every_scale_divides_the_next_and_the_last_is_all(shape: tuple[int, ...]) -> None:
    sides = pyramid(shape)
    assert sides[-1] == shape[: len(sides[-1])]
    for finer, coarser in itertools.pairwise(sides):
        assert all(b % a == 0 for a, b in zip(finer, coarser))
        assert finer != coarser


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        (((3, 3), (16, 16)), "must divide those of the next"),
        (((4, 4), (8, 8)), "must be the whole sample, \\(16, 16\\)"),
        (((4,), (16, 16)), "do not fit"),
        (((16, 16), (16, 16)), "of the next, larger one"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(blocks: Any, words: str) -> None:
    memory = SQHN((16, 16, 3), capacity=5)
    memory.learn(np.random.default_rng(0).random((3, 16, 16, 3)))
    with pytest.raises(ValueError, match=words):
        memory.recall(np.zeros((16, 16, 3)), inference=Evidence(blocks=blocks))


@pytest.mark.parametrize(
    "blocks",
    [
        ((0, 0), (8, 8)),
        ((-2, -2), (8, 8)),
        ((4.0, 4.0), (8, 8)),
        ((True, True), (8, 8)),
        ((),),
        (),
        "ab",
        8,
        (8, 8),
        {1: 2},
    ],
)
def test_invalid_blocks_are_refused(blocks: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="blocks must be the sides"):
        Evidence(blocks=blocks)


def test_blocks_in_any_sequence_and_in_trees() -> None:
    assert Evidence(blocks=np.array([[4, 4], [8, 8]])) == Evidence(blocks=[[4, 4], [8, 8]])  # type: ignore[arg-type]
    memory = SQHN((8,), [Level((4,), 3), Level(capacity=3)])
    memory.learn(np.eye(8, dtype=np.float32)[:3])
    with pytest.raises(ValueError, match="are for one level"):
        memory.recall(np.zeros(8), inference=Evidence(blocks=((4,), (8,))))
    with pytest.raises(TypeError, match=r"use Evidence\(\)"):
        memory.recall(np.zeros(8), inference=Evidence)  # type: ignore[arg-type]


# -- fast paths --------------------------------------------------------------------------------------------------------


def images(count: int, side: int = 16) -> NDArray[np.float32]:
    return np.ascontiguousarray(photos(32)[:count, ::2, ::2].astype(np.float32) / np.float32(255))[:, :side, :side]


TREES = {
    "one level": [Level(capacity=12)],
    "one level, past capacity": [Level(capacity=5)],
    "three levels": [Level(2, 12), Level(4, 12), Level(capacity=12)],
    "two levels": [Level(4, 12), Level(capacity=12)],
    "past capacity": [Level(4, 5), Level(2, 5), Level(capacity=5)],
    "only below": [Level(4, 5), Level(2, 12), Level(capacity=12)],
}


@ON_HOSTS
@pytest.mark.parametrize("name", TREES)
def test_the_same_as_the_reference(device: str, name: str) -> None:
    rng = np.random.default_rng(0)
    x = images(14)
    memory = SQHN(x.shape[1:], TREES[name], device=device)
    memory.learn(x[:10])
    asked = np.clip(x[:4] + rng.normal(0, 0.3, x[:4].shape), 0, 1).astype(np.float32)
    asked[2, :10], asked[3] = 0, x[3]
    observed = rng.random(asked.shape) < 0.5
    observed[1, :8] = False
    for mask in (None, observed):
        assert_as_the_reference(memory, asked, mask)
    memory.forget(3 if len(memory) > 3 else 0)
    assert_as_the_reference(memory, asked, observed)
    half = np.ones((2, *x.shape[1:]), bool)
    half[:, :8] = False
    memory.learn(x[10:12], observed=half)
    assert_as_the_reference(memory, asked)


SHAPES = {
    "signal": ((24, 3), [Level((4,), 9), Level(capacity=9)]),
    "signal, one level": ((24, 3), [Level(capacity=9)]),
    "vector": ((10,), [Level(capacity=9)]),
    "volume": ((4, 4, 4), [Level((2, 2, 2), 9), Level(capacity=9)]),
    "gray": ((8, 12), [Level(2, 9), Level(capacity=9)]),
}


@ON_HOSTS
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("similarity", ["shifted_cosine", "cosine", "euclidean"])
def test_any_shape_and_similarity(device: str, name: str, similarity: Any) -> None:
    shape, levels = SHAPES[name]
    rng = np.random.default_rng(3)
    x = rng.random((12, *shape), np.float32)
    memory = SQHN(shape, levels, similarity=similarity, device=device)
    memory.learn(x)
    asked = (x[:4] + rng.normal(0, 0.2, x[:4].shape)).astype(np.float32)
    assert_as_the_reference(memory, asked)
    assert_as_the_reference(memory, asked, rng.random(asked.shape) < 0.6)


@ON_HOSTS
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(ODD))
@settings(deadline=None, max_examples=40)
def test_odd_samples_have_finite_scores_that_the_reference_has_too(device: str, seed: int, kind: str) -> None:
    x = odd(seed, kind)
    for levels in ([Level(capacity=4)], [Level(2, 4), Level(capacity=4)]):
        memory = SQHN((8, 8), levels, device=device)
        memory.learn(x)
        assert_possible(memory, x)


@ON_HOSTS
@pytest.mark.parametrize("shape", [(200,), (4, 4, 4), (16, 16)])
def test_dark_samples_and_faint_ones(device: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    for low, contrast in ((0.0, 0.012), (0.7, 0.01)):
        x = (low + contrast * rng.random((12, *shape))).astype(np.float32)
        memory = SQHN(shape, capacity=20, device=device)
        memory.learn(x)
        asked = 0.3 * x + 0.7 * np.roll(x, 1, axis=0) + rng.normal(0, contrast, x.shape)
        assert_as_the_reference(memory, asked.astype(np.float32))


@ON_HOSTS
def test_evidence_of_many_hundreds_of_nats(device: str) -> None:
    x = np.random.default_rng(1).random((60, 64, 32), np.float32)
    memory = SQHN((64, 32), [Level(2, 200), Level(16, 200), Level(capacity=5)], device=device)
    memory.learn(x)
    asked = x[20].copy()
    asked[:32] = x[1, :32]  # the first neuron knows of many upper halves, of which this one is not
    assert np.isfinite(memory.recall(asked, inference="evidence", k=5).score).all()
    assert_as_the_reference(memory, asked[None], k=2)


@ON_HOSTS
def test_evidence_of_a_thousand_nats_at_one_level(device: str) -> None:
    """More than the odds of float64 can be: many blocks, in which one of many neurons fits."""
    x = np.random.default_rng(2).random((60, 32, 32), np.float32)
    memory = SQHN((32, 32), capacity=60, device=device)
    memory.memorize(x)
    assert memory.recall(x[7], inference="evidence").score > math.log(np.finfo(np.float64).max)
    assert_as_the_reference(memory, x[7:9])


@ON_HOSTS
def test_blocks_that_are_the_centre(device: str) -> None:
    x = images(10)
    memory = SQHN((16, 16, 3), capacity=10, device=device)
    memory.learn(x)
    x[:2, 4:12] = 0.5
    assert_as_the_reference(memory, x[:3])
    assert_as_the_reference(memory, x[:3], np.random.default_rng(0).random((3, 16, 16, 3)) < 0.5)


@ON_HOSTS
@pytest.mark.parametrize("name", ["past capacity", "only below"])
def test_neurons_that_did_not_always_hear_their_children(device: str, name: str) -> None:
    rng = np.random.default_rng(0)
    x = images(24)
    observed = np.repeat(np.repeat(rng.random((24, 4, 4, 1)) < 0.6, 4, axis=1), 4, axis=2) & np.ones(x.shape, bool)
    memory = SQHN((16, 16, 3), [replace(level, capacity=4) for level in TREES[name]], device=device)
    memory.learn(x, observed=observed)
    assert_as_the_reference(memory, x[:4])
    assert_as_the_reference(memory, x[:4], observed[4:8])


@ON_HOSTS
def test_rules_with_other_blocks_do_not_disturb_each_other(device: str) -> None:
    x = images(8)
    memory = SQHN((16, 16, 3), capacity=8, device=device)
    memory.learn(x)
    asked = np.clip(x + np.random.default_rng(0).normal(0, 0.3, x.shape), 0, 1).astype(np.float32)
    rules = [Evidence(blocks=((side, side), (16, 16))) for side in (2, 4)]
    alone = [SQHN((16, 16, 3), capacity=8, device=device) for _ in rules]
    for rule, other in zip(rules, alone):
        other.learn(x)
        for _ in range(2):
            np.testing.assert_array_equal(
                memory.recall(asked, inference=rule).score, other.recall(asked, inference=rule).score
            )


def test_samples_at_once_are_fewer_where_sums_of_all_channels_are_kept() -> None:
    rule = Evidence()
    assert rule.samples(10_000, 1) == MOST_SAMPLES
    assert rule.samples(1_000_000, 200) == 1 < rule.samples(1_000_000, 1)


@ON_HOSTS
def test_nodes_that_never_saw_anything(device: str) -> None:
    memory = SQHN((3,), [Level((1,), 4), Level(capacity=4)], device=device)
    memory.learn(np.array([[0.2, np.nan, 0.9]]), observed=[[True, False, True]])
    assert_as_the_reference(memory, np.array([[0.2, 0.5, 0.9]], np.float32), k=1)


def test_the_whole_sample_counts_four_times() -> None:
    x = np.random.default_rng(5).random((6, 10), np.float32)
    memory = SQHN((10,), capacity=6)
    memory.learn(x)
    stored, asked = x.astype(np.float64)[:, :, None] - 0.5, x[2].astype(np.float64)[:, None] - 0.4
    block = evidence(asked, stored, np.ones((10, 1), bool))
    found = memory.recall(asked[:, 0] + 0.5, inference="evidence", k=6)
    np.testing.assert_allclose(found.score, 4 * block[found.index], rtol=1e-5)


def test_below_capacity_a_tree_is_one_level_with_its_levels_as_scales() -> None:
    x = images(10)
    tree, flat = SQHN((16, 16, 3), TREES["three levels"]), SQHN((16, 16, 3), capacity=12)
    for memory in (tree, flat):
        memory.learn(x)
    asked = np.clip(x + np.random.default_rng(0).normal(0, 0.4, x.shape), 0, 1).astype(np.float32)
    asked[:3, 4:, 4:] = 0.2
    one, other = (
        tree.recall(asked, inference="evidence"),
        flat.recall(asked, inference=Evidence(blocks=((2, 2), (8, 8), (16, 16)))),
    )
    np.testing.assert_array_equal(one.index, other.index)
    np.testing.assert_allclose(one.score, other.score, rtol=1e-9)
    np.testing.assert_array_equal(one.x, other.x)


def test_a_node_sums_over_all_values_of_its_children() -> None:
    x = np.random.default_rng(4).random((30, 8), np.float32)
    memory = SQHN((8,), [Level((4,), 3), Level(capacity=3)])
    memory.learn(x)
    reference = ReferenceSQHN.of(memory)
    A = reference.messages(x[0], None, "evidence")
    assert (reference.root.c[:3] > 1).all()
    columns = [[p[v] for _, _, p in reference.families(1)] for v in range(3)]
    likeliest = [np.concatenate([reference.levels[0][q].m[p.argmax()] for q, p in enumerate(two)]) for two in columns]
    stored = np.array(likeliest, np.float64)[:, :, None] - 0.5
    own = evidence(x[0].astype(np.float64)[:, None] - 0.5, stored, np.ones((8, 1), bool))
    for v in range(3):
        every = sum(
            columns[v][0][a] * columns[v][1][b] * math.exp(A[0][0][a] + A[0][1][b]) for a in range(3) for b in range(3)
        )
        assert A[1][0][v] == pytest.approx(math.log(every) + WHOLE * own[v])


@ON_HOSTS
@pytest.mark.parametrize("levels", [[Level(capacity=6)], [Level(4, 6), Level(capacity=6)]])
def test_a_query_knows_samples_learned_since_the_last_one(device: str, levels: list[Level]) -> None:
    x = images(12)
    memory = SQHN((16, 16, 3), levels, device=device)
    changes: list[Any] = [
        lambda: memory.memorize(x[:3]),
        lambda: memory.learn(x[3:6]),
        lambda: memory.learn(x[6:9], hold=True),
        lambda: memory.forget(1),
        lambda: memory.learn(x[9:]),
    ]
    for change in changes:
        change()
        assert_as_the_reference(memory, x[:4])
        assert_as_the_reference(memory, x[8:10])


# -- what it is for ----------------------------------------------------------------------------------------------------


def plenty_to_see() -> NDArray[np.float32]:
    every = photos(32).astype(np.float32) / np.float32(255)
    return np.asarray(every[every.std(axis=(1, 2, 3)) > 0.15])


def damaged(x: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    covered: dict[str, Any] = {name: x.copy() for name in ("black", "color", "noise")}
    fills: dict[str, Any] = {"black": 0, "color": [0.9, 0.1, 0.3], "noise": rng.random((len(x), 24, 24, 3))}
    for name, fill in fills.items():
        covered[name][:, 4:28, 4:28] = fill
    return covered | {"dark": x / 2, "noisy": np.clip(x + rng.normal(0, 0.5, x.shape), 0, 1).astype(np.float32)}


@pytest.mark.parametrize("levels", [[Level(capacity=60)], [Level(2, 60), Level(4, 60), Level(capacity=60)]])
def test_recall_from_damage_that_nobody_announced(levels: list[Level]) -> None:
    x = plenty_to_see()[:60]
    memory = SQHN((32, 32, 3), levels)
    memory.learn(x)
    right = {
        rule: [np.mean(memory.recall(one[:20], inference=rule).index == np.arange(20)) for one in damaged(x).values()]
        for rule in ("paper", "evidence")
    }
    assert min(right["evidence"]) > 0.9
    assert min(right["paper"]) < 0.5


def test_averages_are_still_found_from_themselves() -> None:
    x = np.random.default_rng(0).permutation(plenty_to_see())[:180]
    memory = SQHN((32, 32, 3), capacity=60)
    memory.learn(x)
    assert (memory.counts > 1).sum() > 25
    agreed = memory.recall(x[:100], inference="evidence").index == memory.recall(x[:100]).index
    assert agreed.mean() > 0.95  # .89 without a start
    assert chance(2 * (256 + 16 + WHOLE)) == pytest.approx(552 * math.log(1.05))


@ON_HOSTS
def test_asking_changes_nothing_and_energy_takes_it_too(device: str) -> None:
    x = images(8)
    memory = SQHN((16, 16, 3), TREES["two levels"], device=device)
    memory.learn(x)
    before = memory.step, memory.prototypes
    assert memory.energy(x, inference="evidence") == pytest.approx(memory.energy(x))
    assert memory.step == before[0]
    np.testing.assert_array_equal(memory.prototypes, before[1])


# -- old or new --------------------------------------------------------------------------------------------------------


def covered(x: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """A third of the area behind a rectangle somewhere, of some color."""
    rng, x = np.random.default_rng(seed), x.copy()
    for one in x:
        i, j = rng.integers(0, 14, 2)
        one[i : i + 18, j : j + 18] = rng.random(3)
    return x


def auc(old: Any, new: Any) -> float:
    return float(np.mean(np.asarray(old)[:, None] > np.asarray(new)))


@ON_HOSTS
@pytest.mark.parametrize("levels", [[Level(capacity=150)], [Level(4, 150), Level(capacity=150)]])
def test_old_is_told_from_new_behind_rectangles(device: str, levels: list[Level], tmp_path: Path) -> None:
    x = np.random.default_rng(1).permutation(plenty_to_see())
    memory = SQHN((32, 32, 3), levels, device=device)
    memory.learn(x[:150])
    with pytest.raises(ValueError, match="calibrate"):
        memory.recognize(x[0], inference="evidence")
    threshold = memory.calibrate(new=covered(x[150:400], 0), error=0.05, inference="evidence")
    old, new = covered(x[:100], 1), covered(x[400:700], 2)
    judged = [memory.recognize(some, inference="evidence") for some in (old, new)]
    assert judged[0].threshold[0] == threshold
    assert judged[0].old.mean() > 0.9
    assert judged[1].old.mean() < 0.05 + 4 * math.sqrt(0.05 * 0.95 * (1 / 250 + 1 / 300))
    assert auc(judged[0].score, judged[1].score) > 0.97
    if len(levels) == 1:
        assert auc(memory.recognize(old).score, memory.recognize(new).score) < 0.9
    assert judged[0].score[3] == pytest.approx(memory.recall(old[3], inference="evidence").score, rel=1e-12)
    memory.save(tmp_path / "m")
    again = SQHN.load(tmp_path / "m").recognize(new, inference="evidence")
    np.testing.assert_array_equal(again.old, judged[1].old)
    assert memory.rho in (0.99999, 0.999)  # which is another thing


def test_an_old_threshold_is_warned_of() -> None:
    x = images(60)
    memory = SQHN((16, 16, 3), capacity=60)
    memory.learn(x[:10])
    memory.calibrate(old=x[:10], error=0.2, inference="evidence")
    assert memory.recognize(x[0], inference="evidence").old
    memory.learn(x[10:])
    with pytest.warns(UserWarning, match="the threshold of evidence was calibrated at step 10"):
        memory.recognize(x[0], inference="evidence")
    memory.reset()
    with pytest.raises(ValueError, match="inference must be one of"):
        memory.recognize(x[0], inference="exact")  # type: ignore[arg-type]


def test_a_rule_that_lacks_methods_is_told_which() -> None:
    class Half:
        def look(self) -> None: ...

        def at(self) -> None: ...

    memory = SQHN((16, 16, 3), capacity=60)
    memory.learn(images(2))
    with pytest.raises(TypeError, match="Half lacks samples, up, score, blend"):
        memory.recall(images(1), inference=Half())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"'paper'.* or an object .*; object lacks samples, look, up"):
        memory.recall(images(1), inference=object())  # type: ignore[arg-type]


@ON_HOSTS
@pytest.mark.parametrize("kernels", [(2, 2, None), (4, None), (2, 2, 1, None)])
def test_only_the_memory_node_has_the_weight_of_the_whole(device: str, kernels: tuple[int | None, ...]) -> None:
    """A level below it may be one node too."""
    memory = SQHN((4, 4), [Level(kernel, 20) for kernel in kernels], device=device)
    x = np.random.default_rng(0).random((12, 4, 4), np.float32)
    memory.learn(x)
    assert_as_the_reference(memory, x + np.float32(0.1) * x[::-1])
