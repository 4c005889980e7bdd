"""Modern Hopfield networks that learn online by gradient steps: what the paper compares SQHN with on streams.

A model is parameters, a forward pass and a gradient; a trainer takes one gradient step for every sample; the memories
put the verbs around them. PyTorch is loaded when a memory is built.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.checks import as_shape, check_count, check_number, check_word, check_words
from sqhn.concurrency.signals import deferred
from sqhn.inputs import as_answers, as_floats, as_samples, batches, join_batches
from sqhn.level import Level
from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.training import EWC, OPTIMIZERS, Gradient, Product, Replay, load_torch
from sqhn.patches import Tiling, plan
from sqhn.protocol import EmptyMemoryError, Recalled, Recognized, Written

if TYPE_CHECKING:
    from torch import Generator, Tensor

__all__ = ["OneLayer", "OnlineMHN", "OnlineMHNTree", "Trainer", "Training", "Tree"]

CHUNK = 256
"""Samples that travel to the device, or are recalled, together."""

RUN = 32
"""Samples learned between two chances to interrupt; fewer with replay, which learns each many times."""


# -- models --------------------------------------------------------------------------------------------------------


class Pass(NamedTuple):
    """What came of a batch: its reconstruction, and the activity of the memory node's neurons."""

    x: Tensor
    activity: Tensor


class Learning(NamedTuple):
    """The gradient of the loss for every parameter, and the activity of the memory node on the way there."""

    gradients: list[Gradient]
    activity: Tensor


class Model(Protocol):
    """Parameters and what to do with them; a batch is a matrix with a row for every sample."""

    parameters: list[Tensor]

    def forward(self, x: Tensor) -> Pass: ...

    def learning(self, x: Tensor, target: Tensor) -> Learning: ...


def initial(shape: tuple[int, ...], generator: Generator, device: str) -> Tensor:
    """Matrices for layers of `shape[-1]` neurons: uniform within 1 over the root of that number, as `Linear` does."""
    torch = load_torch()
    bound = 1 / math.sqrt(shape[-1])
    drawn: Tensor = torch.empty(shape).uniform_(-bound, bound, generator=generator).to(device)
    return drawn


class OneLayer:
    """One matrix W of a column for each neuron: activity z = softmax(beta x W), reconstruction z W^T.

    The loss is the squared error summed over the values, its mean over the batch. The gradient is written out: it is a
    product of the errors and inputs with the activities and their gradients, two rows for every sample.
    """

    def __init__(self, matrix: Tensor, beta: float) -> None:
        self.parameters, self.beta = [matrix], beta

    def forward(self, x: Tensor) -> Pass:
        (W,) = self.parameters
        z = (self.beta * x @ W).softmax(1)
        return Pass(z @ W.T, z)

    def learning(self, x: Tensor, target: Tensor) -> Learning:
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
        return Learning([Product(left, right, 2 / n)], z)


class _Use(NamedTuple):
    """A product with the matrices of a level: their gradient is a product of what entered and the result's gradient."""

    level: int
    up: bool
    entered: Tensor
    result: Tensor


class Tree:
    """A node for every block of a tiling, a matrix for every node: up with the activities, down with predictions.

    A node's input c are the values of its children; it sends up a = c W. On the way down the memory node's value is
    v = a, any other node's the mean of its a and what its parent predicts for it, and each predicts softmax(beta v) W^T
    for its children: nodes, or pixels at the bottom.

    variant: "linear": pixels enter as they are, and a child node as its activity, softmax(beta a). "code": what enters
        a node, pixels too, goes through one softmax(beta c) together, and only the way down is differentiated, as in
        the code published with the paper.

    The loss is the squared error summed over the values of a pixel, its mean over pixels and batch, as in that code.
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

    def forward(self, x: Tensor) -> Pass:
        return self._pass(x, None)

    def learning(self, x: Tensor, target: Tensor) -> Learning:
        torch = load_torch()
        uses: list[_Use] = []
        with torch.enable_grad():
            recalled = self._pass(x, uses)
            loss = (recalled.x - target).square().sum() / (self.pixels * len(x))
        slopes = torch.autograd.grad(loss, [use.result for use in uses])
        gradients: list[Gradient] = []
        for level in range(len(self.parameters)):
            pairs = [(use, slope) for use, slope in zip(uses, slopes) if use.level == level]
            left = [use.entered if use.up else slope for use, slope in pairs]
            right = [slope if use.up else use.entered for use, slope in pairs]
            gradients.append(Product(torch.cat(left, 1), torch.cat(right, 1), 1.0))
        return Learning(gradients, recalled.activity.detach())

    def _pass(self, x: Tensor, uses: list[_Use] | None) -> Pass:
        """Up and down; what is to be differentiated is written down in `uses`."""
        sent = self._up(x, uses if self.variant == "linear" else None)
        value, activities = sent[-1], []
        for level in reversed(range(len(sent))):
            activities.append((self.beta * value).softmax(2))
            predicted = self._scatter(level, self._use(level, activities[-1], uses, up=False))
            if level:
                value = (sent[level - 1] + predicted) / 2
        return Pass(predicted[:, :, 0].T, activities[0][0])

    def _up(self, x: Tensor, uses: list[_Use] | None = None) -> list[Tensor]:
        """What the nodes of every level send up, `(nodes, batch, neurons)`; a pixel is a node of one neuron."""
        value, sent = x.T[:, :, None], []
        for level in range(len(self.parameters)):
            if self.variant == "linear" and level:
                value = (self.beta * value).softmax(2)
            gathered = self._gather(level, value)
            if self.variant == "code":
                gathered = (self.beta * gathered).softmax(2)
            value = self._use(level, gathered, uses, up=True)
            sent.append(value)
        return sent

    def _use(self, level: int, entering: Tensor, uses: list[_Use] | None, up: bool) -> Tensor:
        """The product with the matrices of a level, or with their transposes on the way down."""
        matrix = self.parameters[level]
        result = entering @ (matrix if up else matrix.mT)
        if uses is not None:
            uses.append(_Use(level, up, entering.detach(), result.requires_grad_()))
        return result

    def _gather(self, level: int, value: Tensor) -> Tensor:
        """`(children, batch, neurons)` to `(nodes, batch, what a node sees)`."""
        return value[self._children[level]].transpose(1, 2).flatten(2)

    def _scatter(self, level: int, seen: Tensor) -> Tensor:
        """The inverse of `_gather`."""
        size = self._children[level].shape[1]
        return seen.reshape(*seen.shape[:2], size, -1).transpose(1, 2).flatten(0, 1)[self._places[level]]


# -- the trainer ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """How a model is trained: one step of the `optimizer` for every sample.

    rate: the learning rate.
    consolidation: strength of EWC++; 0 means none.
    replay: how many past samples are kept and learned again together with every new one; the paper keeps 64.
    """

    rate: float
    optimizer: Literal["sgd", "adam"] = "sgd"
    consolidation: float = 0.0
    replay: int = 0

    def __post_init__(self) -> None:
        check_words(self)
        check_number("rate", self.rate)
        check_number("consolidation", self.consolidation, zero=True)
        check_count("replay", self.replay, least=0)


class Trainer:
    """Takes a model through a stream, a gradient step for every sample."""

    def __init__(self, model: Model, training: Training, like: Tensor, seed: int) -> None:
        """`like` is one sample, of the type and on the device of all of them."""
        self.model = model
        self.optimizer = OPTIMIZERS[training.optimizer](model.parameters, training.rate)
        self.consolidation = EWC(model.parameters, training.consolidation) if training.consolidation else None
        self.replay = Replay(training.replay, like, seed) if training.replay else None

    def step(self, x: Tensor, target: Tensor) -> Tensor:
        """Learn one sample, `(1, values)`; the memory node's activity before that."""
        batch = self.replay.batch(x[0], target[0]) if self.replay else (x, target)
        learning = self.model.learning(*batch)
        terms = [[gradient] for gradient in learning.gradients]
        if self.consolidation:
            for summed, gradient in zip(terms, self.consolidation.gradients()):
                summed.append(gradient)
        self.optimizer.step(terms)
        if self.consolidation:
            self.consolidation.update(self.model.learning(x, target).gradients)
        if self.replay:
            self.replay.insert()
        return learning.activity[-1]


# -- the memories --------------------------------------------------------------------------------------------------


class _Online(ABC):
    """The verbs around a model and its trainer; subclasses say which model."""

    cannot: ClassVar[Mapping[str, str]] = {  # see `sqhn.testing`
        "one shot": "one gradient step comes closer to a sample, but does not store it",
        "from half": "it has no notion of missing values: they are black",
        "len": "it counts its neurons, all there from the beginning",
    }

    def __init__(
        self,
        input_shape: Sequence[int],
        capacity: int,
        beta: float,
        training: Training,
        squeeze: tuple[float, float],
        device: str,
        seed: int,
    ) -> None:
        load_torch()
        self.input_shape = as_shape(input_shape)
        self.capacity = Level(capacity=capacity).capacity
        check_number("beta", beta)
        scale, shift = squeeze
        check_number("the scale of squeeze", scale)
        if not math.isfinite(shift):
            raise ValueError(f"the shift of squeeze must be finite; got {shift!r}")
        self.beta, self.training, self.squeeze = float(beta), training, (float(scale), float(shift))
        self.device, self.seed = device, seed
        self.reset()

    @abstractmethod
    def _model(self, generator: Generator) -> Model: ...

    def reset(self) -> None:
        """Forget everything: the weights are drawn anew from the seed."""
        torch = load_torch()
        self.model = self._model(torch.Generator().manual_seed(self.seed))
        like = torch.empty(math.prod(self.input_shape), device=self.device)
        self._trainer = Trainer(self.model, self.training, like, self.seed)
        self._step = 0

    @property
    def step(self) -> int:
        """How many samples were learned."""
        return self._step

    def __len__(self) -> int:
        """How many neurons the memory node has: all of them, from the beginning."""
        return self.capacity

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_shape}, {self.capacity} neurons, step {self.step})"

    def learn(self, x: ArrayLike, target: ArrayLike | None = None) -> Written:
        """Learn one sample, or a batch as if one after another: a gradient step each.

        target: what x is to be recalled as; x itself if not given. Noisy samples of one thing learn from each other so.

        Returns the neuron of the memory node that was most active before the step, and how active it was.
        """
        samples, single, _ = as_samples(x, self.input_shape)
        targets = samples if target is None else as_samples(target, self.input_shape)[0]
        if targets.shape != samples.shape:
            raise ValueError(f"every sample needs a target: got {len(samples)} samples and {len(targets)} targets")
        found: list[_Found] = []
        for part in batches(len(samples), CHUNK):
            given = self._inside(samples[part])
            wanted = given if target is None else self._inside(targets[part])
            activity = given.new_empty((len(given), self.capacity))
            steps = zip(given[:, None].unbind(), wanted[:, None].unbind(), activity.unbind())
            for run in _runs(steps, max(1, RUN // (1 + self.training.replay))):
                with deferred():
                    for one, goal, row in run:
                        row.copy_(self._learn_one(one, goal))
            found.append(_most_active(activity))
        index, score = join_batches(found)
        step = np.arange(self._step - len(index), self._step) + 1
        return Written(*as_answers(single, index, np.zeros(len(index), bool), score, step))

    def _learn_one(self, x: Tensor, target: Tensor) -> Tensor:
        """Learn one sample; the memory node's activity before that."""
        activity = self._trainer.step(x, target)
        self._step += 1
        return activity

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        """What the network makes of x, and the most active neuron of its memory node.

        observed: True where a value was seen. Other values are taken for black, 0: the network has no notion of
            missing values, and the paper gives it none.
        """
        samples, single, seen = as_samples(x, self.input_shape, observed, holes=True)
        if not self.step:
            raise EmptyMemoryError("this memory is empty: learn something before asking it")
        out, found = np.empty(samples.shape, np.float32), []
        for part in batches(len(samples), CHUNK):
            recalled = self.model.forward(self._inside(samples[part], None if seen is None else seen[part]))
            out[part] = self._outside(recalled.x).cpu().numpy().reshape(-1, *self.input_shape)
            found.append(_most_active(recalled.activity))
        return Recalled(*as_answers(single, out, *join_batches(found)))

    def _inside(self, samples: NDArray[Any], seen: NDArray[np.bool_] | None = None) -> Tensor:
        """Samples as rows in the range that the network works in."""
        given = as_floats(samples) if seen is None else np.where(seen, as_floats(samples), np.float32(0))
        scale, shift = self.squeeze
        rows: Tensor = load_torch().tensor(given.reshape(len(given), -1), device=self.device)
        return rows.mul_(scale).add_(shift)

    def _outside(self, rows: Tensor) -> Tensor:
        """The inverse of `_inside`."""
        scale, shift = self.squeeze
        return (rows - shift).div_(scale)


class OnlineMHN(_Online):
    """A modern Hopfield network of one layer that learns a stream by gradient steps, one for every sample.

    beta: the inverse temperature of the softmax over its neurons.
    rate, optimizer, consolidation, replay: how it is trained, see `Training`.
    squeeze: samples are mapped to `scale * x + shift` inside; what is recalled is mapped back.
    recognition: "activity" (old: the most active neuron is at least `rho` times as active as its mean over training)
        or "error" (old: the squared error of recall is at most `rho` times its mean over training, each taken after
        the step). Default `rho`: 70 and .5.

    learn: four products of `capacity * values` for each sample, `replay + 1` times that with replay.
    """

    cannot: ClassVar[Mapping[str, str]] = {
        **_Online.cannot,
        "old and new": "it tells them apart only after many samples",
    }

    def __init__(
        self,
        input_shape: Sequence[int],
        capacity: int,
        *,
        beta: float,
        rate: float,
        optimizer: Literal["sgd", "adam"] = "sgd",
        consolidation: float = 0.0,
        replay: int = 0,
        squeeze: tuple[float, float] = (0.99, 0.005),
        recognition: Literal["activity", "error"] = "activity",
        rho: float | None = None,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        check_word("recognition", recognition, ("activity", "error"))
        self.recognition = recognition
        self.rho = float((70.0 if recognition == "activity" else 0.5) if rho is None else rho)
        check_number("rho", self.rho)
        training = Training(rate, optimizer, consolidation, replay)
        super().__init__(input_shape, capacity, beta, training, squeeze, device, seed)

    def _model(self, generator: Generator) -> Model:
        return OneLayer(initial((math.prod(self.input_shape), self.capacity), generator, self.device), self.beta)

    def reset(self) -> None:
        """Forget everything: the weights are drawn anew from the seed."""
        super().reset()
        torch = load_torch()
        self._activity = torch.zeros(self.capacity, dtype=torch.float64, device=self.device)
        self._error = torch.zeros((), dtype=torch.float64, device=self.device)

    def _learn_one(self, x: Tensor, target: Tensor) -> Tensor:
        activity = super()._learn_one(x, target)
        if self.recognition == "activity":
            self._activity += activity
        else:
            self._error += self._errors(x, target)[0]
        return activity

    def _errors(self, x: Tensor, target: Tensor) -> Tensor:
        """The mean squared error of recall of every row, in the range of the user."""
        scale, _ = self.squeeze
        return (self.model.forward(x).x - target).square_().mean(1).div_(scale**2)

    def recognize(self, x: ArrayLike) -> Recognized:
        """Was this sample learned before? By activity or by error, see the class; a score by error is its negative."""
        samples, single, _ = as_samples(x, self.input_shape)
        score, threshold = np.full(len(samples), -np.inf), np.full(len(samples), self.rho)
        for part in batches(len(samples), CHUNK) if self.step else ():
            rows = self._inside(samples[part])
            if self.recognition == "activity":
                best, index = self.model.forward(rows).activity.max(1)
                score[part] = best.cpu().numpy()
                threshold[part] = (self._activity[index] * (self.rho / self.step)).cpu().numpy()
            else:
                score[part] = -self._errors(rows, rows).cpu().numpy()
                threshold[part] = -float(self._error) * self.rho / self.step
        return Recognized(*as_answers(single, score >= threshold, score, threshold))


class OnlineMHNTree(_Online):
    """A tree of modern Hopfield networks that learns a stream by gradient steps through all of it.

    kernels: of the levels below the memory node, as in `sqhn.level.Level`; every node has `capacity` neurons.
    variant: "linear", the paper's network, or "code", what the code published with the paper computes. See `Tree` for
        both, and for the scale of the loss, to which the learning rate refers.
    squeeze: as in `OnlineMHN`; by default samples are taken as they are.

    beta, rate, optimizer, consolidation, replay: as in `OnlineMHN`.
    """

    cannot: ClassVar[Mapping[str, str]] = {
        **_Online.cannot,
        "recognize": "it is defined for one layer only, OnlineMHN",
    }

    def __init__(
        self,
        input_shape: Sequence[int],
        kernels: Sequence[int | tuple[int, ...]],
        capacity: int,
        *,
        beta: float,
        rate: float,
        optimizer: Literal["sgd", "adam"] = "sgd",
        consolidation: float = 0.0,
        replay: int = 0,
        squeeze: tuple[float, float] = (1.0, 0.0),
        variant: Literal["linear", "code"] = "linear",
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        check_word("variant", variant, ("linear", "code"))
        self.variant = variant
        self._tilings = plan(as_shape(input_shape), [Level(kernel, capacity) for kernel in [*kernels, None]])
        training = Training(rate, optimizer, consolidation, replay)
        super().__init__(input_shape, capacity, beta, training, squeeze, device, seed)

    def _model(self, generator: Generator) -> Model:
        matrices = []
        for level, tiling in enumerate(self._tilings):
            seen = tiling.size * (self.capacity if level else 1)
            matrices.append(initial((tiling.nodes, seen, self.capacity), generator, self.device))
        return Tree(self._tilings, matrices, self.beta, self.variant)

    def recognize(self, x: ArrayLike) -> Recognized:  # noqa: ARG002
        """Nobody has defined this for more than one layer."""
        raise UnsupportedError("OnlineMHNTree cannot recognize: it is defined for one layer only, OnlineMHN")


# -- results -------------------------------------------------------------------------------------------------------


_Found = tuple[NDArray[np.int32], NDArray[np.float64]]
Step = TypeVar("Step")


def _runs(steps: Iterator[Step], size: int) -> Iterator[list[Step]]:
    """The steps, `size` at a time."""
    while run := list(islice(steps, size)):
        yield run


def _most_active(activity: Tensor) -> _Found:
    """The winner of every row and how active it is."""
    score, index = activity.max(1)
    return index.cpu().numpy().astype(np.int32), score.cpu().numpy().astype(np.float64)
