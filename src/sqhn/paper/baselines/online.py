"""Modern Hopfield networks trained online by gradient steps: the baselines of the paper on streams.

The networks are in `networks`, optimizers and replay in `training`. PyTorch is imported when a model is built.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.checks import as_shape, check_count, check_number, check_word, check_words
from sqhn.concurrency import deferred
from sqhn.inputs import as_answers, as_floats, as_samples, batches, join_batches
from sqhn.level import Level
from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.networks import Network, OneLayer, Tree, uniform
from sqhn.paper.baselines.training import EWC, OPTIMIZERS, Replay, load_torch
from sqhn.patches import plan
from sqhn.protocol import EmptyMemoryError, Recalled, Recognized, Written

if TYPE_CHECKING:
    from torch import Generator, Tensor


BATCH_SIZE = 256
"""The most samples that are sent to the device, or recalled, at once."""

STEPS_PER_BLOCK = 32
"""Samples learned without interruption by a signal; fewer with replay, where a sample costs more."""


@dataclass(frozen=True)
class Training:
    """How a network is trained: one step of the `optimizer` for every sample.

    rate: the learning rate.
    consolidation: the strength of EWC++; 0 means none.
    replay: the number of past samples that are kept and learned again with every new one; the paper keeps 64.
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
    """Trains a network on a stream, one gradient step for every sample."""

    def __init__(self, network: Network, training: Training, like: Tensor, seed: int) -> None:
        """`like` is a tensor with the shape, type and device of one sample."""
        self.network = network
        self.optimizer = OPTIMIZERS[training.optimizer](network.parameters, training.rate)
        self.consolidation = EWC(network.parameters, training.consolidation) if training.consolidation else None
        self.replay = Replay(training.replay, like, seed) if training.replay else None

    def step(self, x: Tensor, target: Tensor) -> Tensor:
        """Learn one sample, `(1, values)`; returns the activity of the memory node before the step."""
        batch = self.replay.batch(x[0], target[0]) if self.replay else (x, target)
        found = self.network.backward(*batch)
        terms = [[gradient] for gradient in found.gradients]
        if self.consolidation:
            for summed, gradient in zip(terms, self.consolidation.gradients()):
                summed.append(gradient)
        self.optimizer.step(terms)
        if self.consolidation:
            self.consolidation.update(self.network.backward(x, target).gradients)
        if self.replay:
            self.replay.insert()
        return found.activity[-1]


class OnlineNetwork(ABC):
    """The verbs of a memory for a network and its trainer; subclasses build the network."""

    cannot: ClassVar[Mapping[str, str]] = {  # see `sqhn.testing`
        "one shot": "one gradient step brings the answer closer to a sample, but does not store it",
        "from half": "missing values are taken as black: the network has no notion of them",
        "len": "all its neurons are there from the beginning",
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
    def _build(self, generator: Generator) -> Network: ...

    def reset(self) -> None:
        """Forget everything: the weights are drawn again from the seed."""
        torch = load_torch()
        self.network = self._build(torch.Generator().manual_seed(self.seed))
        like = torch.empty(math.prod(self.input_shape), device=self.device)
        self._trainer = Trainer(self.network, self.training, like, self.seed)
        self._step = 0

    @property
    def step(self) -> int:
        """The number of samples learned."""
        return self._step

    def __len__(self) -> int:
        """The number of neurons of the memory node; all are there from the beginning."""
        return self.capacity

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_shape}, {self.capacity} neurons, step {self.step})"

    def learn(self, x: ArrayLike, target: ArrayLike | None = None) -> Written:
        """Learn one sample, or a batch as if one after another: one gradient step each.

        target: the sample that x is to be recalled as; x itself by default. With it, noisy samples of one thing can
            learn from each other.

        Returns the neuron of the memory node that was most active before the step, and its activity.
        """
        samples, single, _ = as_samples(x, self.input_shape)
        targets = samples if target is None else as_samples(target, self.input_shape)[0]
        if targets.shape != samples.shape:
            raise ValueError(f"every sample needs a target: got {len(samples)} samples and {len(targets)} targets")
        found: list[Winners] = []
        for part in batches(len(samples), BATCH_SIZE):
            rows = self._inside(samples[part])
            goals = rows if target is None else self._inside(targets[part])
            activity = rows.new_empty((len(rows), self.capacity))
            steps = zip(rows[:, None].unbind(), goals[:, None].unbind(), activity.unbind())
            for block in blocks(steps, max(1, STEPS_PER_BLOCK // (1 + self.training.replay))):
                with deferred():
                    for row, goal, active in block:
                        active.copy_(self._learn_one(row, goal))
            found.append(most_active(activity))
        index, score = join_batches(found)
        step = np.arange(self._step - len(index), self._step) + 1
        return Written(*as_answers(single, index, np.zeros(len(index), bool), score, step))

    def _learn_one(self, x: Tensor, target: Tensor) -> Tensor:
        """Learn one sample; returns the activity of the memory node before the step."""
        activity = self._trainer.step(x, target)
        self._step += 1
        return activity

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        """The network's reconstruction of x, and the most active neuron of its memory node.

        observed: True where a value was observed. Missing values are taken as black, 0: the network has no notion of
            missing values, and the paper gives it none.
        """
        samples, single, seen = as_samples(x, self.input_shape, observed, holes=True)
        if not self.step:
            raise EmptyMemoryError("this memory is empty: learn something before asking it")
        out, found = np.empty(samples.shape, np.float32), []
        for part in batches(len(samples), BATCH_SIZE):
            recalled = self.network.forward(self._inside(samples[part], None if seen is None else seen[part]))
            out[part] = self._outside(recalled.x).cpu().numpy().reshape(-1, *self.input_shape)
            found.append(most_active(recalled.activity))
        return Recalled(*as_answers(single, out, *join_batches(found)))

    def _inside(self, samples: NDArray[Any], seen: NDArray[np.bool_] | None = None) -> Tensor:
        """Samples as rows in the range of values that the network works with."""
        given = as_floats(samples) if seen is None else np.where(seen, as_floats(samples), np.float32(0))
        scale, shift = self.squeeze
        rows: Tensor = load_torch().tensor(given.reshape(len(given), -1), device=self.device)
        return rows.mul_(scale).add_(shift)

    def _outside(self, rows: Tensor) -> Tensor:
        """The inverse of `_inside`."""
        scale, shift = self.squeeze
        return (rows - shift).div_(scale)


class OnlineMHN(OnlineNetwork):
    """A modern Hopfield network of one layer that learns a stream, one gradient step for every sample.

    beta: the inverse temperature of the softmax over its neurons.
    rate, optimizer, consolidation, replay: see `Training`.
    squeeze: samples are mapped to `scale * x + shift` for the network, and its answers are mapped back.
    recognition: "activity" (old: the most active neuron is at least `rho` times as active as its mean over training)
        or "error" (old: the squared error of recall is at most `rho` times its mean over training, each measured after
        the step). Default `rho`: 70 and .5.

    learn: four products of `capacity * values` for each sample, `replay + 1` times that with replay.
    """

    cannot: ClassVar[Mapping[str, str]] = {
        **OnlineNetwork.cannot,
        "old and new": "it tells old from new only after many samples",
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

    def _build(self, generator: Generator) -> Network:
        return OneLayer(uniform((math.prod(self.input_shape), self.capacity), generator, self.device), self.beta)

    def reset(self) -> None:
        """Forget everything: the weights are drawn again from the seed."""
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
        """The mean squared error of recall of every row, in the range of values of the caller."""
        scale, _ = self.squeeze
        return (self.network.forward(x).x - target).square_().mean(1).div_(scale**2)

    def recognize(self, x: ArrayLike) -> Recognized:
        """Was this sample learned before? Judged by activity or by error; the score by error is minus the error."""
        samples, single, _ = as_samples(x, self.input_shape)
        score, threshold = np.full(len(samples), -np.inf), np.full(len(samples), self.rho)
        for part in batches(len(samples), BATCH_SIZE) if self.step else ():
            rows = self._inside(samples[part])
            if self.recognition == "activity":
                best, index = self.network.forward(rows).activity.max(1)
                score[part] = best.cpu().numpy()
                threshold[part] = (self._activity[index] * (self.rho / self.step)).cpu().numpy()
            else:
                score[part] = -self._errors(rows, rows).cpu().numpy()
                threshold[part] = -float(self._error) * self.rho / self.step
        return Recognized(*as_answers(single, score >= threshold, score, threshold))


class OnlineMHNTree(OnlineNetwork):
    """A tree of modern Hopfield networks that learns a stream by gradient steps through the whole tree.

    kernels: of the levels below the memory node, as in `sqhn.level.Level`; every node has `capacity` neurons.
    variant: "linear", the paper's network, or "code", as in the code published with the paper. `Tree` defines both,
        and the scale of the loss, to which the learning rate refers.
    squeeze: as in `OnlineMHN`; by default samples are not changed.

    beta, rate, optimizer, consolidation, replay: as in `OnlineMHN`.
    """

    cannot: ClassVar[Mapping[str, str]] = {
        **OnlineNetwork.cannot,
        "recognize": "recognition is defined for one layer only, OnlineMHN",
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

    def _build(self, generator: Generator) -> Network:
        matrices = []
        for level, tiling in enumerate(self._tilings):
            inputs = tiling.size * (self.capacity if level else 1)
            matrices.append(uniform((tiling.nodes, inputs, self.capacity), generator, self.device))
        return Tree(self._tilings, matrices, self.beta, self.variant)

    def recognize(self, x: ArrayLike) -> Recognized:  # noqa: ARG002
        """Not supported: recognition is not defined for more than one layer."""
        raise UnsupportedError("OnlineMHNTree cannot recognize: recognition is defined for one layer only, OnlineMHN")


Winners = tuple[NDArray[np.int32], NDArray[np.float64]]
Step = TypeVar("Step")


def blocks(steps: Iterator[Step], size: int) -> Iterator[list[Step]]:
    """The steps in blocks of at most `size`."""
    while block := list(islice(steps, size)):
        yield block


def most_active(activity: Tensor) -> Winners:
    """The winner of every row and its activity."""
    score, index = activity.max(1)
    return index.cpu().numpy().astype(np.int32), score.cpu().numpy().astype(np.float64)
