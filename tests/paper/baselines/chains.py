"""A small chain of predictive coding with random weights, and its energy from torch's own distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sqhn.paper.baselines.chain import Chain, Layer

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = pytest.importorskip("torch")

SIZES = (6, 5, 4)  # pixels and two hidden layers
VARIANCE = 0.3


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def chain(activation: Any = "gelu", uncertain: bool = True, seed: int = 0) -> Chain:
    layers = []
    for depth, (size, parents) in enumerate(zip(SIZES, (*SIZES[1:], 1))):
        root = numbers(parents, parents, seed=seed + 10 + depth)
        covariance = root @ root.T / parents + 0.1 * torch.eye(parents)
        layers.append(Layer(numbers(parents, size, seed=seed + depth), covariance if uncertain else None))
    return Chain(layers, activation, VARIANCE)


def values(samples: int = 3, seed: int = 5) -> list[Tensor]:
    return [numbers(samples, size, seed=seed + depth) for depth, size in enumerate(SIZES)]


def activities(model: Chain, x: list[Tensor], depth: int) -> Tensor:
    f = {"gelu": torch.nn.GELU(), "relu": torch.nn.ReLU()}[model.activation]
    z: Tensor = f(x[depth + 1]) if depth + 1 < len(x) else torch.ones(len(x[0]), 1, dtype=torch.float64)
    return z


def energy(model: Chain, x: list[Tensor]) -> Tensor:
    """Minus the log-density, each child a Gaussian whose weights are integrated out."""
    total = torch.zeros(len(x[0]), dtype=torch.float64)
    for depth, layer in enumerate(model.layers):
        z = activities(model, x, depth)
        uncertain = 0 if layer.covariance is None else torch.einsum("bi,ij,bj->b", z, layer.covariance, z)
        spread = torch.as_tensor(model.variance + uncertain, dtype=torch.float64).expand(len(z))
        normal = torch.distributions.Normal(z @ layer.mean, spread.sqrt()[:, None])
        total = total - normal.log_prob(x[depth]).sum(1)  # type: ignore[no-untyped-call]
    return total


def assert_close(actual: Any, expected: Any, rtol: float = 1e-12, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)
