"""Modern Hopfield networks as differentiable models: parameters, a forward pass and the gradient of the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

from sqhn.paper.baselines.training import Gradient, Product, load_torch
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Forward(NamedTuple):
    """The reconstruction of a batch, and the activity of the memory node's neurons."""

    x: Tensor
    activity: Tensor


class Gradients(NamedTuple):
    """The gradient of the loss for every parameter, and the activity of the memory node in that forward pass."""

    gradients: list[Gradient]
    activity: Tensor


class Network(Protocol):
    """Parameters, a forward pass and a gradient; a batch is a matrix with one row per sample."""

    parameters: list[Tensor]

    def forward(self, x: Tensor) -> Forward: ...

    def backward(self, x: Tensor, target: Tensor) -> Gradients: ...


def uniform(shape: tuple[int, ...], generator: Generator, device: str) -> Tensor:
    """Random matrices for layers of n = `shape[-1]` neurons, uniform within 1 / sqrt(n), as `torch.nn.Linear` does."""
    torch = load_torch()
    bound = 1 / math.sqrt(shape[-1])
    drawn: Tensor = torch.empty(shape).uniform_(-bound, bound, generator=generator).to(device)
    return drawn


class OneLayer:
    """One matrix W with a column for each neuron: activity z = softmax(beta x W), reconstruction z W^T.

    The loss is the squared error summed over the values, averaged over the batch. The gradient is written out: it is a
    product of the errors and inputs with the activities and their gradients, two rows per sample.
    """

    def __init__(self, matrix: Tensor, beta: float) -> None:
        self.parameters, self.beta = [matrix], beta

    def forward(self, x: Tensor) -> Forward:
        (W,) = self.parameters
        z = (self.beta * x @ W).softmax(1)
        return Forward(z @ W.T, z)

    def backward(self, x: Tensor, target: Tensor) -> Gradients:
        torch = load_torch()
        (W,) = self.parameters
        n = len(x)
        left, right = x.new_empty((2 * n, W.shape[0])), x.new_empty((2 * n, W.shape[1]))
        error, scaled = left.chunk(2)
        z, back = right.chunk(2)
        torch.mul(x, self.beta, out=scaled)
        torch.softmax(scaled @ W, 1, out=z)
        torch.mm(z, W.T, out=error).sub_(target)
        torch.mm(error, W, out=back)
        back.mul_(z).addcmul_(z, back.sum(1, keepdim=True), value=-1)  # through the softmax
        return Gradients([Product(left, right, 2 / n)], z)


class LevelProduct(NamedTuple):
    """A product with the matrices of a level: their gradient is the input times the gradient of the output."""

    level: int
    upward: bool
    input: Tensor
    output: Tensor


class Tree:
    """A node for every block of a tiling and a matrix for every node: activities go up, predictions go down.

    A node's input c are the values of its children; it sends up a = c W. On the way down the memory node's value is
    v = a; the value of any other node is the mean of its a and its parent's prediction. Each node predicts
    softmax(beta v) W^T for its children: nodes, or pixels at the bottom.

    variant: "linear": pixels enter unchanged, and a child node as its activity, softmax(beta a). "code": the whole
        input of a node, pixels too, goes through one softmax(beta c), and only the way down is differentiated, as in
        the code published with the paper.

    The loss is the squared error summed over the values of a pixel, averaged over pixels and batch, as in that code.
    With the learning rates (near 1), large betas and consolidation of the paper's tables both variants are stable and
    learn with this scale; "linear" diverges with larger ones, such as a sum over pixels. It learns much better with a
    beta near 1 and a rate near the number of patches.
    """

    def __init__(
        self, tilings: Sequence[Tiling], matrices: list[Tensor], beta: float, variant: Literal["linear", "code"]
    ) -> None:
        torch = load_torch()
        self.parameters, self.beta, self.variant = matrices, beta, variant
        self.pixels = math.prod(tilings[0].kernel) * tilings[0].nodes
        children = [tiling.children() for tiling in tilings]
        device = matrices[0].device
        self._children = [torch.as_tensor(ids, dtype=torch.int64, device=device) for ids in children]
        self._places = [torch.as_tensor(np.argsort(ids, axis=None), device=device) for ids in children]

    def forward(self, x: Tensor) -> Forward:
        return self._sweep(x, None)

    def backward(self, x: Tensor, target: Tensor) -> Gradients:
        torch = load_torch()
        products: list[LevelProduct] = []
        with torch.enable_grad():
            recalled = self._sweep(x, products)
            loss = (recalled.x - target).square().sum() / (self.pixels * len(x))
        slopes = torch.autograd.grad(loss, [product.output for product in products])
        gradients: list[Gradient] = []
        for level in range(len(self.parameters)):
            pairs = [(product, slope) for product, slope in zip(products, slopes) if product.level == level]
            left = [product.input if product.upward else slope for product, slope in pairs]
            right = [slope if product.upward else product.input for product, slope in pairs]
            gradients.append(Product(torch.cat(left, 1), torch.cat(right, 1), 1.0))
        return Gradients(gradients, recalled.activity.detach())

    def _sweep(self, x: Tensor, products: list[LevelProduct] | None) -> Forward:
        """One sweep up and down; `products` collects the products to be differentiated."""
        sent = self.up(x, products if self.variant == "linear" else None)
        value, activities = sent[-1], []
        for level in reversed(range(len(sent))):
            activities.append((self.beta * value).softmax(2))
            predicted = self.scatter(level, self._multiply(level, activities[-1], products, upward=False))
            if level:
                value = (sent[level - 1] + predicted) / 2
        return Forward(predicted[:, :, 0].T, activities[0][0])

    def up(self, x: Tensor, products: list[LevelProduct] | None = None) -> list[Tensor]:
        """The values that the nodes of every level send up, `(nodes, batch, neurons)`; a pixel is a one-neuron node."""
        value, sent = x.T[:, :, None], []
        for level in range(len(self.parameters)):
            if self.variant == "linear" and level:
                value = (self.beta * value).softmax(2)
            gathered = self._gather(level, value)
            if self.variant == "code":
                gathered = (self.beta * gathered).softmax(2)
            value = self._multiply(level, gathered, products, upward=True)
            sent.append(value)
        return sent

    def _multiply(self, level: int, entering: Tensor, products: list[LevelProduct] | None, upward: bool) -> Tensor:
        """The product with the matrices of a level, or with their transposes on the way down."""
        matrix = self.parameters[level]
        result = entering @ (matrix if upward else matrix.mT)
        if products is not None:
            products.append(LevelProduct(level, upward, entering.detach(), result.requires_grad_()))
        return result

    def _gather(self, level: int, value: Tensor) -> Tensor:
        """`(children, batch, neurons)` to `(nodes, batch, inputs of a node)`."""
        return value[self._children[level]].transpose(1, 2).flatten(2)

    def scatter(self, level: int, inputs: Tensor) -> Tensor:
        """`(nodes, batch, inputs of a node)` to `(children, batch, neurons)`."""
        size = self._children[level].shape[1]
        return inputs.reshape(*inputs.shape[:2], size, -1).transpose(1, 2).flatten(0, 1)[self._places[level]]
