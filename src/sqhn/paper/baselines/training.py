"""Parts of online training by gradient steps: optimizers, consolidation, replay. Each fits any model.

The gradient of a parameter is a sum of terms, each a tensor or a product of two thin matrices. Plain gradient descent
adds a product to the parameter without ever forming it: a step then costs no more than its matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from sqhn.paper.baselines.reservoir import Reservoir

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EWC", "OPTIMIZERS", "SGD", "Adam", "Gradient", "Optimizer", "Product", "Replay", "load_torch"]


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


def dense(terms: Sequence[Gradient], out: Tensor) -> Tensor:
    """The sum of the terms, into `out`: a new tensor of this size costs more than what is done with it."""
    first, *others = terms
    if isinstance(first, Product):
        load_torch().matmul((first.scale * first.left).mT, first.right, out=out)
    else:
        out.copy_(first)
    for gradient in others:
        add(out, gradient, 1.0)
    return out


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

    def __init__(self, parameters: Sequence[Tensor], rate: float) -> None:
        torch = load_torch()
        self.parameters = parameters
        self._adam = torch.optim.Adam(parameters, lr=rate, fused=True)

    def step(self, terms: Sequence[Sequence[Gradient]]) -> None:
        for parameter, gradients in zip(self.parameters, terms):
            if parameter.grad is None:  # at first, and in a copy
                parameter.grad = parameter.new_empty(parameter.shape)
            dense(gradients, parameter.grad)
        self._adam.step()


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
        self._scratch = [parameter.clone() for parameter in parameters]

    def gradients(self) -> list[Tensor]:
        """The gradient of what is added to the loss; good until the next update."""
        return [
            load_torch().sub(parameter, anchor, out=scratch).mul_(importance).mul_(2 * self.strength)
            for scratch, parameter, anchor, importance in zip(
                self._scratch, self.parameters, self.anchors, self.importances
            )
        ]

    def update(self, gradients: Sequence[Gradient]) -> None:
        """Take in the parameters after a step, and the gradients there of the plain loss of the example."""
        self.steps += 1
        anchoring = max(1 / (self.steps + 1), self.SLOWEST)
        weighing = max(1 / self.steps, self.SLOWEST)
        for parameter, anchor, importance, scratch, gradient in zip(
            self.parameters, self.anchors, self.importances, self._scratch, gradients
        ):
            anchor.lerp_(parameter, anchoring)
            total = dense([gradient], scratch)
            importance.lerp_(total.square_(), weighing)


class Replay:
    """At most `size` past examples, at any time a uniform sample of all that were seen.

    An example is a row of inputs and a row of targets. The one that is being learned lies behind those held.
    """

    def __init__(self, size: int, like: Tensor, seed: int) -> None:
        """`like` has the shape of a row, and its type and device."""
        self.reservoir = Reservoir(size, seed)
        self.inputs, self.targets = (like.new_empty((size + 1, *like.shape)) for _ in range(2))

    def batch(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """What to learn from: everything held, followed by the current example."""
        held = len(self.reservoir)
        self.inputs[held], self.targets[held] = x, target
        return self.inputs[: held + 1], self.targets[: held + 1]

    def insert(self) -> None:
        """Keep the current example with the probability that makes all equal, in place of one held if need be."""
        place = self.reservoir.place()
        if 0 <= place < self.reservoir.met - 1:  # otherwise it is where it belongs, or is passed over
            for rows in (self.inputs, self.targets):
                rows[place] = rows[self.reservoir.size]
