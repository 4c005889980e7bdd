"""Online training by gradient steps: optimizers, consolidation and replay, for any network.

The gradient of a parameter is a sum of terms, each a tensor or a product of two thin matrices. Plain gradient descent
adds a product to the parameter without forming it: a step then costs no more than its matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from sqhn.paper.baselines.reservoir import Reservoir

if TYPE_CHECKING:
    from torch import Tensor


def load_torch() -> Any:
    """Import PyTorch, which only some of the baselines need."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("this memory needs PyTorch: pip install 'sqhn[torch]'") from error
    return torch


class Product(NamedTuple):
    """The gradient `scale * left.T @ right`, with one or more rows in both for every example of a batch.

    Where one parameter holds the matrices of several nodes, both have a leading axis of nodes.
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


def dense(terms: Sequence[Gradient], out: Tensor) -> Tensor:
    """The sum of the terms, written to `out`: allocating a new tensor would cost more than the sum itself."""
    first, *others = terms
    if isinstance(first, Product):
        load_torch().matmul((first.scale * first.left).mT, first.right, out=out)
    else:
        out.copy_(first)
    for gradient in others:
        add(out, gradient, 1.0)
    return out


class Optimizer(Protocol):
    """Moves parameters against their gradients; `terms` has a list of summands for every parameter."""

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
    """Adam with the constants of Kingma and Ba (2015)."""

    def __init__(self, parameters: Sequence[Tensor], rate: float) -> None:
        torch = load_torch()
        self.parameters = parameters
        self._adam = torch.optim.Adam(parameters, lr=rate, fused=True)

    def step(self, terms: Sequence[Sequence[Gradient]]) -> None:
        for parameter, gradients in zip(self.parameters, terms):
            if parameter.grad is None:  # at the first step, and in a copy
                parameter.grad = parameter.new_empty(parameter.shape)
            dense(gradients, parameter.grad)
        self._adam.step()


OPTIMIZERS: dict[str, Callable[[Sequence[Tensor], float], Optimizer]] = {"sgd": SGD, "adam": Adam}


class EWC:
    """Consolidation without task boundaries (EWC++): important parameters are tied to their past values.

    The loss grows by `strength * sum(importance * (parameter - anchor)**2)`. Anchors are running averages of the
    parameters, importances of the squared gradients: plain averages for the first thousand examples, then exponential.
    """

    LEAST_WEIGHT = 0.001  # of a new example in the running averages

    def __init__(self, parameters: Sequence[Tensor], strength: float) -> None:
        self.parameters, self.strength, self.steps = parameters, strength, 0
        self.anchors = [parameter.clone() for parameter in parameters]
        self.importances = [parameter.new_zeros(parameter.shape) for parameter in parameters]
        self._scratch = [parameter.clone() for parameter in parameters]

    def gradients(self) -> list[Tensor]:
        """The gradient of the added loss; valid until the next update."""
        return [
            load_torch().sub(parameter, anchor, out=scratch).mul_(importance).mul_(2 * self.strength)
            for scratch, parameter, anchor, importance in zip(
                self._scratch, self.parameters, self.anchors, self.importances
            )
        ]

    def update(self, gradients: Sequence[Gradient]) -> None:
        """Update the averages with the parameters after a step, and the gradients of the plain loss there."""
        self.steps += 1
        anchoring = max(1 / (self.steps + 1), self.LEAST_WEIGHT)
        weighing = max(1 / self.steps, self.LEAST_WEIGHT)
        for parameter, anchor, importance, scratch, gradient in zip(
            self.parameters, self.anchors, self.importances, self._scratch, gradients
        ):
            anchor.lerp_(parameter, anchoring)
            total = dense([gradient], scratch)
            importance.lerp_(total.square_(), weighing)


class Replay:
    """At most `size` past examples, at any time a uniform sample of all examples so far.

    An example is a row of inputs and a row of targets. The current example follows the stored ones.
    """

    def __init__(self, size: int, like: Tensor, seed: int) -> None:
        """`like` is a tensor with the shape, type and device of one row."""
        self.reservoir = Reservoir(size, seed)
        self.inputs, self.targets = (like.new_empty((size + 1, *like.shape)) for _ in range(2))

    def batch(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The batch to learn from: all stored examples, followed by the current one."""
        stored = len(self.reservoir)
        self.inputs[stored], self.targets[stored] = x, target
        return self.inputs[: stored + 1], self.targets[: stored + 1]

    def insert(self) -> None:
        """Store the current example with the probability that makes all equal, in place of another if it is full."""
        place = self.reservoir.place()
        if 0 <= place < self.reservoir.count - 1:  # otherwise it already lies there, or is not stored
            for rows in (self.inputs, self.targets):
                rows[place] = rows[self.reservoir.size]
