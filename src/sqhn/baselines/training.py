"""Parts of online training by gradient steps: optimizers, consolidation, replay. Each fits any model.

The gradient of a parameter is a sum of terms, each a tensor or a product of two thin matrices. Plain gradient descent
adds a product to the parameter without ever forming it: a step then costs no more than its matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EWC", "OPTIMIZERS", "SGD", "Adam", "Gradient", "Optimizer", "Product", "Reservoir", "load_torch"]


def load_torch() -> Any:
    """PyTorch, which only some of the memories need."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("this memory needs PyTorch: pip install 'sqhn[torch]'") from error
    return torch


class Product(NamedTuple):
    """The gradient `scale * left.T @ right`, with a row in both for every example of a batch, or a few.

    For the matrices of several nodes in one parameter, both have a leading axis of nodes.
    """

    left: Tensor
    right: Tensor
    scale: float


Gradient: TypeAlias = "Tensor | Product"


def add(target: Tensor, gradient: Gradient, scale: float) -> None:
    """`target += scale * gradient`, in place."""
    if isinstance(gradient, Product):
        multiply_and_add = target.addmm_ if target.ndim == 2 else target.baddbmm_
        multiply_and_add(gradient.left.mT, gradient.right, alpha=scale * gradient.scale)
    else:
        target.add_(gradient, alpha=scale)


def dense(terms: Sequence[Gradient], like: Tensor) -> Tensor:
    """The sum of the terms, as a tensor."""
    total = like.new_zeros(like.shape)
    for gradient in terms:
        add(total, gradient, 1.0)
    return total


class Optimizer(Protocol):
    """Moves parameters against their gradients; `terms` has a list for every parameter, to be summed."""

    def step(self, terms: Sequence[Sequence[Gradient]]) -> None: ...


class SGD:
    """Plain gradient descent: no momentum."""

    def __init__(self, parameters: Sequence[Tensor], rate: float) -> None:
        self.parameters, self.rate = parameters, rate

    def step(self, terms: Sequence[Sequence[Gradient]]) -> None:
        for parameter, gradients in zip(self.parameters, terms):
            for gradient in gradients:
                add(parameter, gradient, -self.rate)


class Adam:
    """Adam with the constants of its authors."""

    DECAY, DECAY_OF_SQUARES, EPSILON = 0.9, 0.999, 1e-8

    def __init__(self, parameters: Sequence[Tensor], rate: float) -> None:
        self.parameters, self.rate, self.steps = parameters, rate, 0
        self.means = [parameter.new_zeros(parameter.shape) for parameter in parameters]
        self.squares = [parameter.new_zeros(parameter.shape) for parameter in parameters]

    def step(self, terms: Sequence[Sequence[Gradient]]) -> None:
        self.steps += 1
        bias = 1 - self.DECAY**self.steps
        bias_of_squares = 1 - self.DECAY_OF_SQUARES**self.steps
        for parameter, mean, square, gradients in zip(self.parameters, self.means, self.squares, terms):
            total = dense(gradients, parameter)
            mean.lerp_(total, 1 - self.DECAY)
            square.mul_(self.DECAY_OF_SQUARES).addcmul_(total, total, value=1 - self.DECAY_OF_SQUARES)
            deviation = square.sqrt().div_(math.sqrt(bias_of_squares)).add_(self.EPSILON)
            parameter.addcdiv_(mean, deviation, value=-self.rate / bias)


OPTIMIZERS: dict[str, Callable[[Sequence[Tensor], float], Optimizer]] = {"sgd": SGD, "adam": Adam}


class EWC:
    """Consolidation that needs no task boundaries (EWC++): parameters that mattered are tied to where they were.

    The loss grows by `strength * sum(importance * (parameter - anchor)**2)`. Anchors are running averages of the
    parameters, importances of the squared gradients: plain averages for the first thousand examples, then exponential.
    """

    SLOWEST = 0.001

    def __init__(self, parameters: Sequence[Tensor], strength: float) -> None:
        self.parameters, self.strength, self.steps = parameters, strength, 0
        self.anchors = [parameter.clone() for parameter in parameters]
        self.importances = [parameter.new_zeros(parameter.shape) for parameter in parameters]

    def gradients(self) -> list[Tensor]:
        """The gradient of what is added to the loss."""
        return [
            (parameter - anchor).mul_(importance).mul_(2 * self.strength)
            for parameter, anchor, importance in zip(self.parameters, self.anchors, self.importances)
        ]

    def update(self, gradients: Sequence[Gradient]) -> None:
        """Take in the parameters after a step, and the gradients there of the plain loss of the example."""
        self.steps += 1
        anchoring = max(1 / (self.steps + 1), self.SLOWEST)
        weighing = max(1 / self.steps, self.SLOWEST)
        for parameter, anchor, importance, gradient in zip(self.parameters, self.anchors, self.importances, gradients):
            anchor.lerp_(parameter, anchoring)
            total = dense([gradient], parameter)
            importance.mul_(1 - weighing).addcmul_(total, total, value=weighing)


class Reservoir:
    """Replay: at most `size` past examples, at any time a uniform sample of all that were seen.

    An example is a row of inputs and a row of targets. The one that is being learned lies behind those held.
    """

    def __init__(self, size: int, like: Tensor, seed: int) -> None:
        """`like` has the shape of a row, and its type and device."""
        self.size, self.held, self.seen = size, 0, 0
        self.inputs, self.targets = (like.new_empty((size + 1, *like.shape)) for _ in range(2))
        self._rng = np.random.default_rng(seed)

    def batch(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """What to learn from: everything held, followed by the current example."""
        self.inputs[self.held], self.targets[self.held] = x, target
        return self.inputs[: self.held + 1], self.targets[: self.held + 1]

    def insert(self) -> None:
        """Keep the current example, the `seen`-th, with probability `size / seen`, in place of one held if need be."""
        self.seen += 1
        if self.held < self.size:
            self.held += 1
            return
        slot = int(self._rng.integers(self.seen))
        if slot < self.size:
            for rows in (self.inputs, self.targets):
                rows[slot] = rows[self.size]
