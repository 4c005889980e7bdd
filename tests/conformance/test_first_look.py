"""Neurons that screening must not rule out: by differences, among very many, in parts, where nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.reference import ReferenceSQHN
from tests.helpers import ON_HOSTS, assert_same_state, device_of_path, noisy, set_small, without_projection

if TYPE_CHECKING:
    from sqhn.banks.cpu.kernels.large import Products
    from sqhn.banks.cpu.large import LargeNodes
    from sqhn.banks.cpu.prototypes import Prototypes

PATHS = ("small", "large", "large without projection", "plain")


def memorized(
    path: str, similarity: Any, stored: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> tuple[SQHN, ReferenceSQHN]:
    """A memory with one neuron for each sample, and its reference."""
    set_small(monkeypatch, 10**9 if path == "small" else 0)
    memory = SQHN(stored.shape[1:], capacity=len(stored), similarity=similarity, device=device_of_path(path))
    memory.memorize(stored)
    if path == "large without projection":
        without_projection(memory)
    return memory, ReferenceSQHN.of(memory)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape", [(12,), (16, 20)])
def test_neurons_that_are_equally_far_but_for_their_rounding(
    shape: tuple[int, ...], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By differences: every value of every neuron is as far from the questions, whatever is observed."""
    rng = np.random.default_rng(0)
    middle = rng.random(shape)
    stored = (middle + 0.1 * rng.choice([-1, 1], (60, *shape))).astype(np.float32)
    memory, reference = memorized(path, "euclidean", stored, monkeypatch)
    questions = (middle + rng.normal(0, 1e-8, (40, *shape))).astype(np.float32)
    observed = rng.random(questions.shape) < 0.6
    assert list(memory.recall(questions).index) == [reference.recall(x).index for x in questions]
    masked = memory.recall(questions, observed)
    assert list(masked.index) == [reference.recall(x, o).index for x, o in zip(questions, observed)]
    best = [[one.index for one in reference.recall_best(x, 4)] for x in questions]
    assert memory.recall(questions, k=4).index.tolist() == best
    observed[::2] = True
    written = memory.learn(questions, observed=observed)
    assert list(written.index) == [reference.learn(x, observed=o).index for x, o in zip(questions, observed)]
    assert_same_state(memory, reference)


@pytest.mark.parametrize("path", PATHS)
def test_sums_in_which_every_rounding_is_the_same(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By differences: flat prototypes around flat questions, and prototypes of one length but different values."""
    rng = np.random.default_rng(0)
    grey, step = np.linspace(1, 3, 40), rng.uniform(0.005, 0.015, 40)
    flat = np.concatenate([grey - step, grey + step])[:, None] + np.zeros(3000)
    cases = [(flat, grey[:, None] + np.zeros(3000))]
    for least in range(1000, 1005):
        many = np.arange(least, 3000, 50)[:, None]
        cases.append(((np.arange(3000) < many) / np.sqrt(many), np.zeros((1, 3000))))
    for stored, questions in cases:
        memory, reference = memorized(path, "euclidean", stored.astype(np.float32), monkeypatch)
        asked = questions.astype(np.float32)
        observed = np.arange(3000) % 3 > np.zeros((len(asked), 1))
        assert list(memory.recall(asked).index) == [reference.recall(x).index for x in asked]
        masked = memory.recall(asked, observed)
        assert list(masked.index) == [reference.recall(x, o).index for x, o in zip(asked, observed)]


@pytest.mark.parametrize("path", PATHS)
def test_differences_of_faint_samples_tie_too(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Similarities of 1 and 1 - 5e-13 are a tie, however clearly float32 tells values so small apart."""
    x = (1e-10 * np.random.default_rng(0).random((16, 16))).astype(np.float32)
    memory, _ = memorized(path, "euclidean", np.stack([x + np.float32(5e-13), x]), monkeypatch)
    assert memory.recall(x).index == 0
    assert memory.recall(x, np.arange(256).reshape(16, 16) > 9).index == 0


@pytest.mark.parametrize("path", PATHS)
def test_differences_of_far_samples_tie_too(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Similarities of 1e-8 and 1e-8 - 5e-13 are a tie, though the distances differ by a share of 5e-5."""
    stored = np.full((2, 4), -1e8) * np.array([1 + 5e-5, 1])[:, None]
    memory, reference = memorized(path, "euclidean", stored.astype(np.float32), monkeypatch)
    assert memory.recall(np.zeros(4)).index == reference.recall(np.zeros(4, np.float32)).index == 0


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("tiny", ["questions", "prototypes"])
def test_the_smallest_numbers(tiny: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products with them are rounded to whole multiples of the smallest number, and inverse lengths are infinite."""
    rng = np.random.default_rng(0)
    least = float(np.finfo(np.float32).smallest_subnormal)
    stored, questions = (
        (least * rng.integers(-3, 4, (count, 16, 16)) if name == tiny else rng.normal(size=(count, 16, 16)))
        for name, count in (("prototypes", 40), ("questions", 20))
    )
    memory, reference = memorized(path, "cosine", stored.astype(np.float32), monkeypatch)
    asked = questions.astype(np.float32)
    observed = rng.random(asked.shape) < 0.6
    assert list(memory.recall(asked).index) == [reference.recall(x).index for x in asked]
    masked = memory.recall(asked, observed)
    assert list(masked.index) == [reference.recall(x, o).index for x, o in zip(asked, observed)]


@pytest.mark.parametrize("path", ["small", "large", "plain"])
def test_squares_that_underflow_where_observed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Float32 rounds the squares of the observed values to a few multiples of the smallest number."""
    rng = np.random.default_rng(0)
    values = rng.integers(100, 300, (16, 16))
    stored = 1e-24 * (values + rng.integers(-1, 2, (40, 16, 16)))
    stored[:, 0] = rng.random((40, 16))  # so the whole prototypes are not short
    memory, reference = memorized(path, "cosine", stored.astype(np.float32), monkeypatch)
    queries = (values + rng.normal(0, 1, (20, 16, 16))).astype(np.float32)
    observed = rng.random(queries.shape) < 0.6
    observed[:, 0] = False
    found = memory.recall(queries, observed)
    assert list(found.index) == [reference.recall(x, o).index for x, o in zip(queries, observed)]


@pytest.mark.parametrize("path", ["small", "large", "plain"])
@pytest.mark.parametrize("similarity", ["shifted_cosine", "euclidean"])
def test_ties_among_hundreds_of_neurons(similarity: Any, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neurons are searched in blocks; the first copy is found in any of them."""
    rng = np.random.default_rng(0)
    things, stored = (rng.random((many, 80)).astype(np.float32) for many in (20, 400))
    for thing in things:
        stored[rng.integers(400, size=5)] = thing
    memory, _ = memorized(path, similarity, stored, monkeypatch)
    first = [int((stored == thing).all(axis=1).argmax()) for thing in things]
    assert memory.recall(things).index.tolist() == first
    assert memory.recall(things, np.arange(80) % 3 > 0).index.tolist() == first
    assert memory.recall(things, k=2).index[:, 0].tolist() == first


@pytest.mark.parametrize("anything", [-1e9, np.copysign(np.nan, -1)])
@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_products_that_do_not_follow_a_neuron_may_be_anything(
    similarity: Any, projected: bool, anything: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of neurons to come are undefined, and stay so if a sample with missing values becomes the neuron."""
    set_small(monkeypatch, 0)
    from sqhn.banks.cpu.large import LargeNodes

    honest = LargeNodes.products

    def undefined(self: LargeNodes, bank: Prototypes, nodes: slice, x: NDArray[np.float32], *how: bool) -> Products:
        found = honest(self, bank, nodes, x, *how)
        found.P[:, :, int(bank.grown[0]) :] = anything
        return found

    monkeypatch.setattr(LargeNodes, "products", undefined)
    x = np.random.default_rng(0).normal(size=(3, 16, 12)).astype(np.float32)
    left = np.broadcast_to(np.arange(12) < 6, (16, 12))
    opposite, turned = np.where(left, x[2], -x[0]), np.where(left, -2 * x[0], x[0])
    halves = [(x[0], left), (x[1], left), (opposite, left | True), (turned, ~left)]
    told = [*halves, *((one, left | True) for one in x[[0, 0, 1, 1]])]
    stream, observed = (np.stack(part) for part in zip(*told))
    memory = SQHN((16, 12), capacity=3, similarity=similarity)
    without_projection(memory, 0 if projected else np.inf)
    reference = ReferenceSQHN((16, 12), memory.levels, memory.options)
    written = memory.learn(stream, observed=observed)
    assert list(written.index) == [reference.learn(*each).index for each in told]
    assert_same_state(memory, reference)


@ON_HOSTS
def test_a_neuron_moves_out_of_the_view(device: str) -> None:
    """Two samples whose parts in the view cancel leave a neuron outside it, where the next sample is too."""
    i, j = np.indices((16, 16))
    beyond, slow = (-1.0) ** (i + j), np.cos(np.pi / 16 * (i + 0.5))
    stream = np.stack([5 * slow + beyond, slow, beyond - 4.9 * slow, beyond + 0.5 * slow])
    memory = SQHN((16, 16), capacity=2, similarity="cosine", device=device)
    reference = ReferenceSQHN((16, 16), memory.levels, memory.options)
    first, then = np.split(stream.astype(np.float32), 2)
    memory.memorize(first)
    reference.memorize(first)
    assert list(memory.learn(then).index) == [reference.learn(x).index for x in then] == [0, 0]


def test_the_error_of_products_is_that_of_the_worst_node() -> None:
    """The first node has neurons next to the centre and near ties among them, the last one has neither."""
    rng = np.random.default_rng(0)
    stored = rng.random((40, 2, 100))
    stored[:, 0] = 0.5 + np.geomspace(1e-5, 1e-4, 40)[:, None] * (stored[:, 0] - 0.5)
    stored, again = stored.astype(np.float32), stored.copy()
    directions = stored[:, 0].astype(np.float64) - 0.5
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    again[:, 0] = 0.5 + 0.1 * (directions + directions[rng.permutation(40)])
    memory = SQHN((2, 100), [Level((1, 100), 40), Level(capacity=40)])
    reference = ReferenceSQHN((2, 100), memory.levels)
    without_projection(memory)
    for stream in (stored.astype(np.float32), again.astype(np.float32)):
        memory.learn(stream)
        for x in stream:
            reference.learn(x)
        assert_same_state(memory, reference)


@pytest.mark.parametrize("similarity", ["shifted_cosine", "euclidean"])
def test_products_of_a_few_samples_and_squares_of_a_few_neurons_at_once(
    similarity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with more of them than fit into memory."""
    set_small(monkeypatch, 0)
    for name, value in {"HELD_PRODUCTS": 100, "HELD_SHARE": 10**9, "SQUARED_NEURONS": 7}.items():
        monkeypatch.setattr(f"sqhn.banks.cpu.large.{name}", value)
    rng = np.random.default_rng(0)
    stream = noisy(rng.random((10, 8, 10))[rng.integers(10, size=60)])
    memory = SQHN((8, 10), capacity=20, similarity=similarity)
    memory.learn(stream)
    reference = ReferenceSQHN((8, 10), memory.levels, memory.options)
    for x in stream:
        reference.learn(x)
    assert_same_state(memory, reference)
    questions, observed = noisy(stream[:23], seed=2), rng.random((23, 8, 10)) < 0.6
    assert list(memory.recall(questions).index) == [reference.recall(x).index for x in questions]
    masked = memory.recall(questions, observed)
    assert list(masked.index) == [reference.recall(x, o).index for x, o in zip(questions, observed)]
