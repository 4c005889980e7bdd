"""Descent with Adam: its steps, and when it stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from sqhn.paper.baselines.descent import CHECK_INTERVAL, cooled, descend
from tests.paper.baselines.chains import assert_close, chain, numbers, values

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = pytest.importorskip("torch")


def quadratic(x: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    return 50 * x[0].square().sum(1), [100 * x[0]]


def test_descent_stops_when_no_sample_changes() -> None:
    _, taken = descend(quadratic, [torch.zeros(3, 2)], np.full(500, 0.01))
    assert taken == CHECK_INTERVAL
    moving = torch.zeros(3, 2)
    moving[1] = 1
    found, taken = descend(quadratic, [moving], np.full(2000, 0.01))
    assert 100 < taken < 2000  # it moves about 0.01 in a step, from 1 to 0
    assert found.max() < 0.1  # it swings out around 0, and started at 100
    assert descend(quadratic, [torch.ones(1, 2)], np.full(7, 0.01))[1] == 7


def test_the_first_step_of_descent_is_the_rate() -> None:
    x = [torch.tensor([[1.0, -2.0]], dtype=torch.float64)]
    descend(quadratic, x, np.array([0.01]))
    assert_close(x[0], torch.tensor([[0.99, -1.99]], dtype=torch.float64), rtol=1e-9)


def test_cooling_comes_to_rest() -> None:
    """In a sharp valley, descent at a constant rate jumps back and forth."""

    def sharp(x: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        return x[0].abs().sum(1), [x[0].sign()]

    start = numbers(50, 4) / 4
    hovers, _ = descend(sharp, [start.clone()], np.full(600, 0.01))
    rests, _ = descend(sharp, [start.clone()], cooled(600, 0.01))
    assert rests.mean() < hovers.mean() / 3


def test_samples_descend_independently() -> None:
    model, together = chain(), values()
    alone = [[value[row : row + 1].clone() for value in together] for row in range(3)]
    _, taken = descend(model.energy, together, np.full(40, 0.01))
    assert taken == 40  # it did not stop early, which would depend on the other samples
    for row, x in enumerate(alone):
        descend(model.energy, x, np.full(40, 0.01))
        for one, other in zip(x, together):
            assert_close(one[0], other[row])


@pytest.mark.parametrize("uncertain", [False, True])
def test_descent_in_the_pixels_ends_at_the_prediction(uncertain: bool) -> None:
    model, x = chain(uncertain=uncertain), values()
    model.variance = 1e-4  # as published, so that pixels at rest are at the minimum
    for layer in model.layers:
        layer.covariance = None if layer.covariance is None else layer.covariance * 1e-5  # as after a write
    expected, _ = model.predict(x[1:])
    pixels = [expected + 0.5 * numbers(*expected.shape, seed=7).clamp(-1, 1)]

    def energy(pixels: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        total, gradients = model.energy([*pixels, *x[1:]])
        return total, gradients[:1]

    descend(energy, pixels, np.full(1000, 0.01))
    assert (pixels[0] - expected).square().mean() < 1e-6
