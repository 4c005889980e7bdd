"""Optimizers, consolidation and replay, each against its definition."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sqhn.paper.baselines.training import EWC, OPTIMIZERS, SGD, Gradient, Product, Replay, dense, load_torch

if TYPE_CHECKING:
    from torch import Tensor

torch = pytest.importorskip("torch")


def matrix(*shape: int, seed: int = 0) -> Tensor:
    drawn: Tensor = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn


def test_without_torch_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'sqhn\[torch\]'"):
        load_torch()


def adam(gradients: list[Tensor], rate: float) -> Tensor:
    """The total of the steps of Adam (Kingma & Ba, 2015, algorithm 1), with its averages as explicit sums."""
    moved: Tensor = torch.zeros_like(gradients[0])
    for t in range(1, len(gradients) + 1):
        mean = sum(0.1 * 0.9 ** (t - i) * g for i, g in enumerate(gradients[:t], start=1)) / (1 - 0.9**t)
        square = sum(0.001 * 0.999 ** (t - i) * g**2 for i, g in enumerate(gradients[:t], start=1)) / (1 - 0.999**t)
        moved -= rate * mean / (square**0.5 + 1e-8)
    return moved


def descent(gradients: list[Tensor], rate: float) -> Tensor:
    moved: Tensor = -rate * torch.stack(gradients).sum(0)
    return moved


@pytest.mark.parametrize(("name", "formula"), [("sgd", descent), ("adam", adam)])
def test_steps_match_the_formulas(name: str, formula: Callable[[list[Tensor], float], Tensor]) -> None:
    """Gradients are given as the sum of a product and a tensor, as a tensor, and as products of several nodes."""
    start = [matrix(5, 3), matrix(4, seed=1), matrix(2, 5, 3, seed=2)]
    ours = [parameter.clone() for parameter in start]
    optimizer = OPTIMIZERS[name](ours, 0.03)
    seen: list[list[Tensor]] = [[], [], []]
    for step in range(20):
        left, right, extra = matrix(2, 5, seed=10 + step), matrix(2, 3, seed=50 + step), matrix(5, 3, seed=90 + step)
        vector = matrix(4, seed=130 + step)
        lefts, rights = matrix(2, 6, 5, seed=170 + step), matrix(2, 6, 3, seed=210 + step)
        optimizer.step([[Product(left, right, 0.5), extra], [vector], [Product(lefts, rights, 2.0)]])
        seen[0].append(0.5 * left.T @ right + extra)
        seen[1].append(vector)
        seen[2].append(2 * torch.stack([a.T @ b for a, b in zip(lefts, rights)]))
        for one, before, gradients in zip(ours, start, seen):
            torch.testing.assert_close(one, before + formula(gradients, 0.03), rtol=1e-10, atol=1e-12)


def test_a_product_can_hold_several_nodes() -> None:
    left, right, like = matrix(4, 2, 5), matrix(4, 2, 3, seed=1), matrix(4, 5, 3)
    expected = torch.stack([3.0 * a.T @ b for a, b in zip(left, right)])
    torch.testing.assert_close(dense([Product(left, right, 3.0)], like.clone()), expected)


def test_consolidation_averages_match_their_sums() -> None:
    """The first thousand examples weigh the same; anchors count the initial parameters as one more example."""
    parameter = matrix(3, 2)
    consolidation = EWC([parameter], 0.7)
    places, squares = [parameter.clone()], []
    for step in range(1, 8):
        parameter.add_(matrix(3, 2, seed=step))
        gradient = matrix(3, 2, seed=100 + step)
        consolidation.update([gradient])
        places.append(parameter.clone())
        squares.append(gradient**2)
        anchor, importance = sum(places) / (step + 1), sum(squares) / step
        torch.testing.assert_close(consolidation.anchors[0], anchor)
        torch.testing.assert_close(consolidation.importances[0], importance)
        leaf = parameter.clone().requires_grad_()
        (expected,) = torch.autograd.grad(0.7 * (importance * (leaf - anchor) ** 2).sum(), leaf)
        torch.testing.assert_close(consolidation.gradients()[0], expected)


def test_consolidation_forgets_exponentially_after_a_thousand() -> None:
    parameter = torch.ones(1, dtype=torch.float64)
    consolidation = EWC([parameter], 1.0)
    for _ in range(1000):
        consolidation.update([parameter])
    parameter.zero_()
    for _ in range(500):
        consolidation.update([parameter])
    expected = torch.tensor([0.999**500], dtype=torch.float64)
    torch.testing.assert_close(consolidation.anchors[0], expected)
    torch.testing.assert_close(consolidation.importances[0], expected)


def test_consolidation_of_strength_zero_is_plain_descent() -> None:
    """Bit for bit."""
    plain, tied = torch.rand(6, 4), torch.empty(6, 4)
    tied.copy_(plain)
    first, second, consolidation = SGD([plain], 0.3), SGD([tied], 0.3), EWC([tied], 0.0)
    for _ in range(10):
        gradient: Gradient = Product(torch.rand(2, 6), torch.rand(2, 4), 2.0)
        first.step([[gradient]])
        second.step([[gradient, *consolidation.gradients()]])
        consolidation.update([gradient])
    assert torch.equal(plain, tied)


def test_the_replay_batch_is_the_buffer_and_the_current_example() -> None:
    replay = Replay(2, torch.empty(1), seed=0)
    batches = []
    for value in (1.0, 2.0, 3.0):
        inputs, targets = replay.batch(torch.tensor([value]), torch.tensor([-value]))
        batches.append(inputs[:, 0].tolist())
        assert torch.equal(targets, -inputs)
        replay.insert()
    assert batches == [[1.0], [1.0, 2.0], [1.0, 2.0, 3.0]]
    assert len(replay.reservoir) == 2


def test_every_example_is_equally_likely_to_be_stored() -> None:
    """After T examples each is stored with probability size / T: simulated, within four standard deviations."""
    size, examples, trials = 4, 12, 3000
    held = np.zeros(examples)
    for seed in range(trials):
        replay = Replay(size, torch.empty(()), seed)
        for number in range(examples):
            replay.batch(torch.tensor(float(number)), torch.tensor(float(number)))
            replay.insert()
        kept = replay.inputs[:size].int().tolist()
        assert len(set(kept)) == size
        assert torch.equal(replay.inputs[:size], replay.targets[:size])
        held[kept] += 1
    p = size / examples
    assert np.abs(held / trials - p).max() < 4 * math.sqrt(p * (1 - p) / trials)
