"""The chain of predictive coding against autograd, finite differences and closed forms."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from sqhn.paper.baselines.chain import Chain, Layer
from tests.paper.baselines.chains import VARIANCE, activities, assert_close, chain, energy, numbers, values

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")


@pytest.mark.parametrize("uncertain", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_energy_and_gradient_match_autograd(activation: str, uncertain: bool) -> None:
    model = chain(activation, uncertain)
    x = [value.requires_grad_() for value in values()]
    expected = energy(model, x)
    gradients = torch.autograd.grad(expected.sum(), x)
    found, by_hand = model.energy([value.detach() for value in x])
    assert_close(found, expected.detach())
    for one, other in zip(by_hand, gradients, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("uncertain", [False, True])
def test_gradient_matches_finite_differences(uncertain: bool) -> None:
    model, x, h = chain("gelu", uncertain), values(), 1e-5
    _, gradients = model.energy(x)
    for depth, gradient in enumerate(gradients):
        direction = numbers(*x[depth].shape, seed=99)
        ends = []
        for sign in (1, -1):
            moved = list(x)
            moved[depth] = x[depth] + sign * h * direction
            ends.append(model.energy(moved)[0])
        assert_close((ends[0] - ends[1]) / (2 * h), (gradient * direction).sum(1), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("missing", ["none", "the same for all", "different for each", "all"])
@pytest.mark.parametrize("pixels", [3, 9, 40])
@pytest.mark.parametrize("uncertain", [False, True])
def test_clamping_in_few_coordinates_keeps_the_energy(uncertain: bool, pixels: int, missing: str) -> None:
    """With fewer pixels than parents, about as many, and many more; a quarter of the rows of the weights are copies."""
    widths, x = (pixels, 8, 8, 1), [numbers(5, width, seed=width) for width in (pixels, 8, 8)]
    layers = []
    for seed, (children, parents) in enumerate(pairwise(widths)):
        mean = numbers(parents, children, seed=seed)
        mean[: parents // 4] = mean[parents // 4 : parents // 4 * 2]
        root = numbers(parents, parents, seed=10 + seed)
        layers.append(Layer(mean, root @ root.T if uncertain else None))
    model = Chain(layers, "gelu", 0.3)
    seen = {
        "none": None,
        "the same for all": (torch.arange(pixels) % 4 > 0).expand(5, -1),
        "different for each": numbers(5, pixels, seed=77) > -0.5,
        "all": torch.zeros(5, pixels, dtype=torch.bool),
    }[missing]
    clamped, given = model.clamp(x[0], seen)
    if missing == "none":
        assert given.shape[1] == min(pixels, 16)
    if seen is not None:  # missing pixels lie where the energy is least
        x[0] = torch.where(seen, x[0], model.predict(x[1:])[0])
    expected, gradients = model.energy(x)
    found, fast = clamped.energy([given, *x[1:]])
    assert_close(found, expected, rtol=1e-10)
    assert_close(fast[1:], gradients[1:], rtol=1e-10, atol=1e-10)
    if seen is not None:
        assert (gradients[0][~seen].abs() < 1e-12).all()


def test_weight_step_matches_autograd() -> None:
    model, x, rate = chain(uncertain=False), values(), 1e-3
    means = [layer.mean.clone() for layer in model.layers]
    for layer in model.layers:
        layer.mean.requires_grad_()
    gradients = torch.autograd.grad(energy(model, x).mean(), [layer.mean for layer in model.layers])
    for layer in model.layers:
        layer.mean = layer.mean.detach().clone()
    model.step(x, rate / VARIANCE)
    for layer, before, gradient in zip(model.layers, means, gradients, strict=True):
        assert_close(layer.mean, before - rate * gradient)


def test_writes_match_bayesian_linear_regression() -> None:
    model, x = chain(), values(samples=7)
    before = model.copy(torch.float64)
    for sample in range(7):
        model.write([value[sample : sample + 1] for value in x])
    for depth, (layer, prior) in enumerate(zip(model.layers, before.layers, strict=True)):
        assert prior.covariance is not None
        z = activities(model, x, depth)
        precision = torch.linalg.inv(prior.covariance)
        covariance = torch.linalg.inv(precision + z.T @ z / VARIANCE)
        assert_close(layer.covariance, covariance, rtol=1e-9)
        assert_close(
            layer.mean, covariance @ (precision @ prior.mean + z.T @ x[depth] / VARIANCE), rtol=1e-9, atol=1e-10
        )


def test_a_write_shrinks_the_error_by_the_share_of_noise_in_the_variance() -> None:
    model, x = chain(), values(samples=1)
    before, spread = model.predict(x[1:])
    model.write(x)
    after, _ = model.predict(x[1:])
    assert_close(x[0] - after, (x[0] - before) * VARIANCE / spread)


def test_drift_composes_and_ends_at_the_prior() -> None:
    prior, model = chain(), chain()
    for sample in range(3):
        model.write(values(1, seed=20 + sample))
    often = model
    for _ in range(4):
        often = often.drifted(prior, 0.1)
    for one, other in zip(often.layers, model.drifted(prior, 1 - 0.9**4).layers, strict=True):
        assert_close(one.mean, other.mean)
        assert_close(one.covariance, other.covariance)
    for expected, found in ((model, model.drifted(prior, 0.0)), (prior, model.drifted(prior, 1.0))):
        for one, other in zip(expected.layers, found.layers, strict=True):
            assert_close(one.mean, other.mean, rtol=0, atol=0)
            assert_close(one.covariance, other.covariance, rtol=0, atol=0)
