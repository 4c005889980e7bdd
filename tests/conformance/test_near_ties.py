"""Prototypes that float32 cannot tell apart: scaled copies around one half, equal but for their own rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.level import TIE, Options
from sqhn.reference import ReferenceSQHN
from tests.helpers import (
    ON_HOSTS,
    assert_same_state,
    device_of_path,
    scaled_copies,
    set_small,
    ties_in_a_row,
    without_projection,
)

if TYPE_CHECKING:
    from sqhn.banks.cpu.kernels.large import Products
    from sqhn.banks.cpu.large import LargeNodes
    from sqhn.banks.cpu.prototypes import Prototypes


@pytest.mark.parametrize("path", ["small", "large", "large without projection", "plain"])
@pytest.mark.parametrize("shape", [(12,), (16, 12), (8, 8, 3)])
@pytest.mark.parametrize("alpha", [np.inf, 1e7])
def test_near_ties_are_decided_as_by_the_reference(
    shape: tuple[int, ...], path: str, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_small(monkeypatch, 10**9 if path == "small" else 0)
    levels = [Level(capacity=50, alpha=alpha)]  # so that some copies are averaged too
    memory, reference = SQHN(shape, levels, device=device_of_path(path)), ReferenceSQHN(shape, levels)
    if path == "large without projection":
        without_projection(memory)
    stream = scaled_copies(shape, 0)
    written = memory.learn(stream)
    assert list(written.index) == [reference.learn(x).index for x in stream]
    assert_same_state(memory, reference)
    rng = np.random.default_rng(1)
    queries = scaled_copies(shape, 0)[:40] + rng.normal(0, 1e-4, (40, *shape)).astype(np.float32)
    observed = rng.random(queries.shape) < 0.6
    assert list(memory.recall(queries).index) == [reference.recall(x).index for x in queries]
    masked = memory.recall(queries, observed)
    assert list(masked.index) == [reference.recall(x, o).index for x, o in zip(queries, observed)]


@pytest.mark.parametrize("path", ["small", "large", "large without projection", "plain"])
def test_near_ties_by_differences(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors near each other and far from zero: in float32, products less half squares give other winners."""
    set_small(monkeypatch, 10**9 if path == "small" else 0)
    rng = np.random.default_rng(0)
    stored = (1 + 3e-4 * rng.uniform(-1, 1, (80, 12))).astype(np.float32)
    queries = stored[:60] + 3e-4 * rng.uniform(-1, 1, (60, 12)).astype(np.float32)
    memory = SQHN((12,), capacity=100, similarity="euclidean", device=device_of_path(path))
    memory.memorize(stored)
    if path == "large without projection":
        without_projection(memory)
    reference = ReferenceSQHN.of(memory)
    right = [reference.recall(x).index for x in queries]
    assert list(memory.recall(queries).index) == right
    rounded = (queries @ stored.T - np.square(stored).sum(axis=1) / 2).argmax(axis=1)
    assert np.mean(rounded != right) > 0.1
    written = memory.learn(queries)
    assert list(written.index) == [reference.learn(x).index for x in queries]
    assert_same_state(memory, reference)


def test_float32_alone_would_not_do() -> None:
    """The test above means something: products in float32 give other winners."""
    stored = scaled_copies((12,), 0)
    queries = scaled_copies((12,), 0)[:40] + np.random.default_rng(1).normal(0, 1e-4, (40, 12)).astype(np.float32)

    def winners(kind: type) -> NDArray[np.intp]:
        y, u = queries.astype(kind) - kind(0.5), stored.astype(kind) - kind(0.5)
        cosine = (y @ u.T) / np.linalg.norm(u, axis=1)
        return np.asarray(cosine.argmax(axis=1))

    assert np.mean(winners(np.float32) != winners(np.float64)) > 0.2


@pytest.mark.parametrize("path", ["small", "large", "plain"])
@pytest.mark.parametrize("size", [12, 300])
def test_exact_ties_go_to_the_lowest_index_whatever_the_rounding(
    size: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permutations of one vector are equally near to a flat one, though their sums round differently."""
    set_small(monkeypatch, 10**9 if path == "small" else 0)
    rng = np.random.default_rng(0)
    values = rng.random(size).astype(np.float32)
    memory = SQHN((size,), [Level(capacity=80, alpha=np.inf)], device=device_of_path(path))
    memory.learn(np.stack([rng.permutation(values) for _ in range(80)]))
    assert len(memory) == 80
    for grey in np.linspace(0.55, 0.95, 20):
        flat = np.full(size, grey, np.float32)
        assert memory.recall(flat).index == 0
        assert memory.recall(flat, np.ones(size, bool)).index == 0


@ON_HOSTS
def test_exact_ties_of_codes_go_to_the_lowest_index(device: str) -> None:
    """Neurons that agree with other children by the same strengths, summed in another order."""
    rng = np.random.default_rng(0)
    parts = rng.random((2, 40, 7)).astype(np.float32)  # two values that each of 40 nodes knows
    first = parts[0]
    memory = SQHN((40, 7), [Level((1, 7), 2), Level(None, 30, alpha=np.inf)], propagation="max", device=device)
    memory.learn(np.stack([first, parts[1]]))
    for _ in range(28):  # each keeps half of the first's parts
        memory.learn(np.where(rng.permutation(40)[:, None] < 20, first, parts[1]))
    reference = ReferenceSQHN.of(memory)
    for scale in (1.0, 0.9, 0.7):
        question = (0.5 + scale * (first - 0.5)).astype(np.float32)
        question[::3] = 0.5 + 0.01 * (parts[0] - 0.5)[::3]
        assert memory.recall(question).index == reference.recall(question).index


@pytest.mark.parametrize("path", ["small", "large", "plain"])
def test_values_next_to_the_centre(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prototypes that are almost the center: every rounding is as large as their length."""
    set_small(monkeypatch, 10**9 if path == "small" else 0)
    half, one, zero = np.float32(0.5), np.float32(1), np.float32(0)
    values = np.array([half, np.nextafter(half, one), np.nextafter(half, zero)])
    for seed in range(100):
        rng = np.random.default_rng(seed)
        x = rng.choice(values, (20, 4, 8))
        x[::3, :, 4:] = rng.choice(values, (7, 1, 1))
        levels = [Level(capacity=5, alpha=5.0)]
        loop, batch = (SQHN((4, 8), levels, device=device_of_path(path)) for _ in range(2))
        reference = ReferenceSQHN((4, 8), levels)
        expected = [reference.learn(sample).index for sample in x]
        assert [loop.learn(sample).index for sample in x] == expected
        assert list(batch.learn(x).index) == expected


@pytest.mark.parametrize("path", ["small", "large", "large without projection", "plain"])
def test_the_smallest_angle_wins_however_faint(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths do not count: neither those of prototypes nor those of samples."""
    set_small(monkeypatch, 10**9 if path == "small" else 0)
    direction = np.full((32, 32), 1 / 32)
    other = np.tile(np.cos(np.pi * (np.arange(32) + 0.5) / 32), (32, 1)) / np.sqrt(512)  # slow, so the view sees it all
    faint = 0.5 + 1e-5 * direction
    strong = 0.5 + (0.9 * direction + np.sqrt(1 - 0.81) * other)
    memory = SQHN((32, 32), [Level(capacity=2, alpha=np.inf)], device=device_of_path(path))
    if path == "large without projection":
        without_projection(memory)
    memory.learn(np.stack([faint, strong]))
    assert len(memory) == 2
    for length in (1e-4, 1e-3, 10.0):
        assert memory.recall(0.5 + length * direction).index == 0
        assert memory.recall(0.5 + length * (0.93 * direction + 0.5 * other)).index == 1


@pytest.mark.parametrize("similarity", ["shifted_cosine", "euclidean"])
@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_products_may_be_as_wrong_as_they_admit(
    seed: int, projected: bool, similarity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions rest on bounds: products that are off by a known share of the lengths change nothing."""
    set_small(monkeypatch, 0)
    from sqhn.banks.cpu.large import LargeNodes

    honest = LargeNodes.products
    rng = np.random.default_rng(seed)
    wrong = 0.2

    def sloppy(self: LargeNodes, bank: Prototypes, nodes: slice, x: NDArray[np.float32], *how: bool) -> Products:
        found = honest(self, bank, nodes, x, *how)
        P, gram = found.P, found.gram
        lengths = np.linalg.norm(x[0] - np.float32(bank.centre), axis=1)
        G = int(bank.grown[0])
        neurons = np.sqrt(bank.square[0, :G])
        P[0, :, :G] += wrong * rng.choice([-1, 1], (len(lengths), G)) * lengths[:, None] * neurons
        gram[0] += wrong * rng.choice([-1, 1], gram[0].shape) * lengths[:, None] * lengths
        return found._replace(error=found.error + wrong)

    monkeypatch.setattr(LargeNodes, "products", sloppy)
    levels = [Level(capacity=4)]
    memory = SQHN((16, 12), levels, similarity=similarity)
    reference = ReferenceSQHN((16, 12), levels, memory.options)
    without_projection(memory, 0 if projected else np.inf)
    # Opposite images are averaged too, and cancel: a small length then carries the errors of large ones.
    basis = np.repeat(np.repeat(rng.uniform(-1, 1, (3, 4, 3)), 4, axis=1), 4, axis=2)
    stream = (memory.options.centre + np.tensordot(rng.uniform(-1, 1, (300, 3)), basis, axes=1)).astype(np.float32)
    written = memory.learn(stream)
    assert list(written.index) == [reference.learn(x).index for x in stream]
    assert_same_state(memory, reference)


def test_errors_do_not_shrink_with_a_neuron_that_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Averaging opposite samples leaves a short vector with the errors of long ones."""
    set_small(monkeypatch, 0)
    from sqhn.banks.cpu.large import LargeNodes

    honest = LargeNodes.products
    wrong = 0.03

    def pessimistic(self: LargeNodes, bank: Prototypes, nodes: slice, x: NDArray[np.float32], *how: bool) -> Products:
        found = honest(self, bank, nodes, x, *how)
        lengths = np.linalg.norm(x[0] - np.float32(bank.centre), axis=1)
        found.gram[0] -= wrong * lengths[:, None] * lengths * (1 - np.eye(len(lengths), dtype=np.float32))
        return found._replace(error=found.error + wrong)

    monkeypatch.setattr(LargeNodes, "products", pessimistic)
    a, b = np.eye(8)[:2]
    stream = 0.5 + np.stack([a, b, -0.9 * b - a, b + 0.0305 * a])
    memory = SQHN((8,), [Level(capacity=2)])
    without_projection(memory)
    assert list(memory.learn(stream).index) == [0, 1, 1, 1]


@pytest.mark.parametrize(("similarity", "strength"), [("cosine", 1.0), ("shifted_cosine", 100.0)])
def test_features_of_a_neuron_that_cancelled_in_an_earlier_call(similarity: Any, strength: float) -> None:
    """Opposite samples leave a short neuron, whose features must be as accurate as those of any other."""
    waves = np.cos(np.pi / 16 * np.outer(np.arange(3), np.arange(16) + 0.5))  # slow, so the view sees them all
    for seed in range(5):
        rng = np.random.default_rng(seed)
        one, left, aside = np.einsum("ki,nkl,lj->nij", waves, rng.normal(size=(3, 3, 3)), waves)
        memory = SQHN((16, 16), capacity=1, similarity=similarity)
        memory.learn(memory.options.centre + strength * np.stack([one, 2e-6 * left - one]))
        assert memory.counts.tolist() == [2]
        memory.resize(2)
        direction = memory.prototypes[0].astype(np.float64) - memory.options.centre
        direction, aside = direction / np.linalg.norm(direction), aside / np.linalg.norm(aside)
        assert memory.learn(memory.options.centre + direction + 0.02 * aside).index == 1
        reference = ReferenceSQHN.of(memory)
        questions = direction + rng.uniform(-0.03, 0.05, (40, 1, 1)) * aside
        questions = (memory.options.centre + questions).astype(np.float32)
        assert list(memory.recall(questions).index) == [reference.recall(x).index for x in questions]


@ON_HOSTS
@pytest.mark.parametrize("rule", ["paper", "feedforward", "exact"])
@pytest.mark.parametrize("blend", [0.5, 1.0])
def test_ties_do_not_reach_from_one_to_the_next(device: str, rule: str, blend: float) -> None:
    stored, question = ties_in_a_row()
    levels = [Level(4, 3), Level(capacity=3)]
    options = Options(similarity="cosine", blend=blend)
    memory, reference = (
        SQHN((8,), levels, similarity="cosine", blend=blend, device=device),
        ReferenceSQHN((8,), levels, options),
    )
    memory.memorize(stored)
    reference.memorize(stored)
    similar = reference.up(question, None)[0][0]
    assert similar[0] < similar[2] - TIE < similar[1] < similar[0] + TIE
    index = 1 if rule == "feedforward" or (rule == "paper" and blend == 1) else 0
    assert reference.infer(question, rule=rule)[0][0] == index
    np.testing.assert_array_equal(memory.recall(question, inference=rule).x[:4], stored[index, :4])
