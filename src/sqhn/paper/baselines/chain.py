"""The chain of predictive coding: layers of values, each predicted by the layer above, and their energy.

The layers go from the pixels x_0 up to the last hidden layer. Each is predicted by the one above it, f(x_{l+1}) W_l,
the last one by a bias. The energy is the sum of the squared errors of all predictions in units of their variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from sqhn.paper.baselines.descent import Values

if TYPE_CHECKING:
    import torch
    from torch import Tensor


Activation = Literal["gelu", "relu"]

WIDTH_MULTIPLE = 8  # matrix products of such widths are faster on a GPU
JITTER = 1e-12
"""Added to the squared lengths of weights, relative to their mean: just above the rounding error of float64."""


@dataclass
class Layer:
    """The weights into one layer of values, shape (parents, children).

    covariance: of the rows, the same for every child; None if the weights are certain.
    children: the number of children, where they are given in fewer coordinates (see `Chain.clamp`).
    seen: which children of each sample are observed, (samples, children); the others equal their prediction.
    """

    mean: Tensor
    covariance: Tensor | None = None
    children: int | None = None
    seen: Tensor | None = None


@dataclass
class Chain:
    """Layers of weights, from the pixels up; the last has one parent that is always 1, so that its row is the bias."""

    layers: list[Layer]
    activation: Activation
    variance: float

    def energy(self, x: Values) -> tuple[Tensor, Values]:
        """The energy of every sample, -log p(x), and its gradient with respect to all values.

        The weights are integrated out: the variance of a layer is that of its values plus the contribution of the
        covariance of its weights. Where that exceeds the observed error, the second term of the gradient drives the
        hidden values away from uncertain weights; where it falls short, toward them.
        """
        import torch

        total: Any = 0.0
        below: Any = 0.0  # how this layer's values would have to move to predict the layer below better
        gradients = []
        for depth, layer in enumerate(self.layers):
            z = self._parents(x, depth)
            size = layer.children or x[depth].shape[1]
            error = x[depth].addmm(z, layer.mean, alpha=-1)
            if layer.seen is not None:
                error *= layer.seen
            variance, uncertain = self._predicted_variance(layer, z)
            pull = error / variance
            misfit = torch.linalg.vector_norm(error, dim=1, keepdim=True).square() / variance
            log_variance = math.log(variance) if isinstance(variance, float) else variance.log()
            total = total + misfit + size * (math.log(2 * math.pi) + log_variance)
            gradients.append(pull - below)
            if depth + 1 < len(x):
                slope = pull @ layer.mean.T
                if uncertain is not None:
                    slope -= uncertain * ((size - misfit) / variance)
                below = self._derivative(x[depth + 1], slope)
        return total[:, 0] / 2, gradients

    def clamp(self, pixels: Tensor, seen: Tensor | None = None) -> tuple[Chain, Tensor]:
        """This chain and fixed pixels, in coordinates that make descent in the hidden values cheap.

        seen: which pixels are observed. The energy is least where the others equal their prediction, so they only
            count toward the number of values.
        """
        import torch

        first, values = self.layers[0], pixels.shape[1]
        mean = first.mean
        if seen is not None and not bool((seen == seen[:1]).all()):
            layer, pixels = replace(first, seen=seen), torch.where(seen, pixels, 0)
        else:
            if seen is not None:
                mean, pixels = mean[:, seen[0]], pixels[:, seen[0]]
            if pixels.shape[1] > len(mean) + WIDTH_MULTIPLE:
                mean, pixels = narrowed(mean, pixels)
            layer = Layer(mean, first.covariance, values)
        return replace(self, layers=[layer, *self.layers[1:]]), pixels

    def predict(self, hidden: Values) -> tuple[Tensor, Tensor | float]:
        """The pixels that the first hidden layer predicts, and their variance, per sample or for all."""
        z = self._activity(hidden[0])
        return z @ self.layers[0].mean, self._predicted_variance(self.layers[0], z)[0]

    def step(self, x: Values, gain: float) -> None:
        """Move the weights down the mean energy of the samples, by `gain` times the gradient of the errors."""
        for depth, layer in enumerate(self.layers):
            z = self._parents(x, depth)
            layer.mean += gain / len(z) * (z.T @ (x[depth] - z @ layer.mean))

    def write(self, x: Values) -> None:
        """Condition the weights on the values of one sample: a step of Bayesian linear regression in every layer."""
        for depth, layer in enumerate(self.layers):
            z = self._parents(x, depth)
            error = x[depth] - z @ layer.mean
            variance, uncertain = self._predicted_variance(layer, z)
            assert layer.covariance is not None
            assert uncertain is not None
            layer.mean += uncertain.T @ error / variance
            layer.covariance -= uncertain.T @ uncertain / variance

    def drifted(self, prior: Chain, beta: float) -> Chain:
        """A copy whose weights diffused toward the prior: 0 changes nothing, 1 is the prior."""
        layers = []
        for layer, first in zip(self.layers, prior.layers):
            assert layer.covariance is not None
            assert first.covariance is not None
            mean = layer.mean.lerp(first.mean, 1 - math.sqrt(1 - beta))
            layers.append(Layer(mean, layer.covariance.lerp(first.covariance, beta)))
        return replace(self, layers=layers)

    def copy(self, dtype: torch.dtype) -> Chain:
        """A copy in another precision."""
        layers = [
            Layer(layer.mean.to(dtype, copy=True), None if (U := layer.covariance) is None else U.to(dtype, copy=True))
            for layer in self.layers
        ]
        return replace(self, layers=layers)

    def _parents(self, x: Values, depth: int) -> Tensor:
        """The activities that predict the values of this layer."""
        if depth + 1 == len(x):
            return x[depth].new_ones((len(x[depth]), 1))
        return self._activity(x[depth + 1])

    def _activity(self, x: Tensor) -> Tensor:
        import torch

        return getattr(torch.nn.functional, self.activation)(x)  # type: ignore[no-any-return]

    def _predicted_variance(self, layer: Layer, z: Tensor) -> tuple[Tensor | float, Tensor | None]:
        """The variance of the prediction from z for every sample, and z times the covariance (None: there is none)."""
        if layer.covariance is None:
            return self.variance, None
        uncertain = z @ layer.covariance
        return (uncertain * z).sum(1, keepdim=True) + self.variance, uncertain

    def _derivative(self, x: Tensor, slope: Tensor) -> Tensor:
        """The slope with respect to the input of the activation."""
        import torch

        if self.activation == "relu":
            return slope * (x > 0)
        return torch.ops.aten.gelu_backward(slope, x)  # type: ignore[no-any-return]


def narrowed(mean: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and pixels in one more coordinate than there are parents, rounded up to a multiple that suits a GPU.

    All predictions lie in the span of the rows of the weights. Errors depend only on the coordinates in an orthonormal
    basis of that span and on the distance of the pixels from it. The rows in that basis are a triangular matrix, the
    Cholesky factor of their products.
    """
    import torch

    rows, known = mean.double(), pixels.double()
    products = rows @ rows.T
    products.diagonal().add_(JITTER * products.diagonal().mean())
    triangle = torch.linalg.cholesky_ex(products)[0]
    inside = torch.linalg.solve_triangular(triangle, rows @ known.T, upper=False).T
    distance = (known.square().sum(1, keepdim=True) - inside.square().sum(1, keepdim=True)).clamp(min=0).sqrt()
    padding = WIDTH_MULTIPLE - len(mean) % WIDTH_MULTIPLE
    narrow = torch.nn.functional.pad(triangle, (0, padding))
    seen = torch.cat([inside, torch.nn.functional.pad(distance, (0, padding - 1))], 1)
    return narrow.to(mean.dtype), seen.to(pixels.dtype)
