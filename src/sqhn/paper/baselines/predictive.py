"""Predictive coding as a memory: the chain, its descent and its recall; and GPCN, which learns by gradient descent.

A chain of layers of values, from the pixels x_0 up to the last hidden layer. Every layer is predicted by the one above
it, f(x_{l+1}) W_l, the last by a bias. The energy sums the squared errors of all predictions in units of their
variance; descending it in the hidden values finds the code of a picture, and what that predicts fills in the pixels
that are missing.

GPCN is the model of Salvatori et al. (Associative memories via predictive coding, NeurIPS 2021) with the settings of
Yoo & Wood (BayesPCN, NeurIPS 2022), whose figures the SQHN paper's Table 1 reports; BayesPCN is in `bayes`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.checks import as_shape, check_count, check_number, check_word
from sqhn.concurrency.signals import deferred
from sqhn.inputs import as_answers, as_floats, as_samples
from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.training import load_torch
from sqhn.protocol import EmptyMemoryError, Recalled, Recognized, Written

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["GPCN", "Chain", "Layer", "PredictiveMemory", "descend", "written"]

Activation = Literal["gelu", "relu"]
Values = list["Tensor"]  # from the pixels or the first hidden layer upward; each is (samples, width)
Energy = Callable[[Values], "tuple[Tensor, Values]"]
Parts = Sequence["tuple[Chain, Tensor]"]  # chains and what they are to explain
Rates = NDArray[np.float64]
Progress = Callable[[int, float], object]

STILL = 1e-3
"""Descent stops when one more step changes no sample's energy by more than this."""
LOOK = 10
"""Descent looks whether it may stop every so many steps: on a GPU every look waits for the device."""
ALIGNED = 8
JITTER = 1e-12
"""What is added to squared lengths of weights, as a share of their mean: more than float64 is wrong by, and no more."""


@dataclass
class Layer:
    """The weights into one layer of values, shape (parents, children).

    covariance: of the rows, the same for every child; None if the weights are certain.
    stands_for: how many children there are, where they are given in fewer coordinates (see `Chain.clamp`).
    seen: which children of each sample count, (samples, children); the others are what is predicted for them.
    """

    mean: Tensor
    covariance: Tensor | None = None
    stands_for: int | None = None
    seen: Tensor | None = None


@dataclass
class Chain:
    """Layers of weights, from the pixels up; the last has one parent that is always 1, so that its row is the bias."""

    layers: list[Layer]
    activation: Activation
    variance: float

    def energy(self, x: Values) -> tuple[Tensor, Values]:
        """The energy of every sample, -log p(x), and its gradient with respect to all values.

        The weights are integrated out: a layer's variance is that of its values plus what its weights' covariance
        contributes. Where that is too much for the error seen, the second term of the gradient drives the code away
        from uncertain weights, and toward them where it is too little.
        """
        import torch

        total: Any = 0.0
        below: Any = 0.0  # how a layer of values would have to move to predict the one below better
        gradients = []
        for depth, layer in enumerate(self.layers):
            z = self._parents(x, depth)
            size = layer.stands_for or x[depth].shape[1]
            error = x[depth].addmm(z, layer.mean, alpha=-1)
            if layer.seen is not None:
                error *= layer.seen
            spread, uncertain = self._spread(layer, z)
            pull = error / spread
            misfit = torch.linalg.vector_norm(error, dim=1, keepdim=True).square() / spread
            total = total + misfit + size * (math.log(2 * math.pi) + _log(spread))
            gradients.append(pull - below)
            if depth + 1 < len(x):
                slope = pull @ layer.mean.T
                if uncertain is not None:
                    slope -= uncertain * ((size - misfit) / spread)
                below = self._derivative(x[depth + 1], slope)
        return total[:, 0] / 2, gradients

    def clamp(self, pixels: Tensor, seen: Tensor | None = None) -> tuple[Chain, Tensor]:
        """This chain and pixels that stay as they are, in coordinates that make descent in the hidden values cheap.

        seen: which of them are known. The energy is least where the others are what is predicted for them, so they
            count for nothing but the number of values.
        """
        import torch

        first, values = self.layers[0], pixels.shape[1]
        mean = first.mean
        if seen is not None and not bool((seen == seen[:1]).all()):
            layer, pixels = replace(first, seen=seen), torch.where(seen, pixels, 0)
        else:
            if seen is not None:
                mean, pixels = mean[:, seen[0]], pixels[:, seen[0]]
            if pixels.shape[1] > len(mean) + ALIGNED:
                mean, pixels = _narrowed(mean, pixels)
            layer = Layer(mean, first.covariance, values)
        return replace(self, layers=[layer, *self.layers[1:]]), pixels

    def predict(self, hidden: Values) -> tuple[Tensor, Tensor | float]:
        """The pixels that the first hidden layer predicts, and their variance, for every sample or of all."""
        z = self._activity(hidden[0])
        return z @ self.layers[0].mean, self._spread(self.layers[0], z)[0]

    def step(self, x: Values, gain: float) -> None:
        """Move the weights down the mean energy of the samples: by `gain` times what the errors ask for."""
        for depth, layer in enumerate(self.layers):
            z = self._parents(x, depth)
            layer.mean += gain / len(z) * (z.T @ (x[depth] - z @ layer.mean))

    def write(self, x: Values) -> None:
        """Condition the weights on the values of one sample: a step of Bayesian linear regression in every layer."""
        for depth, layer in enumerate(self.layers):
            z = self._parents(x, depth)
            error = x[depth] - z @ layer.mean
            spread, uncertain = self._spread(layer, z)
            assert layer.covariance is not None
            assert uncertain is not None
            layer.mean += uncertain.T @ error / spread
            layer.covariance -= uncertain.T @ uncertain / spread

    def drifted(self, prior: Chain, beta: float) -> Chain:
        """The same after its weights diffused toward the prior: 0 changes nothing, 1 is the prior."""
        layers = []
        for layer, first in zip(self.layers, prior.layers):
            assert layer.covariance is not None
            assert first.covariance is not None
            mean = layer.mean.lerp(first.mean, 1 - math.sqrt(1 - beta))
            layers.append(Layer(mean, layer.covariance.lerp(first.covariance, beta)))
        return replace(self, layers=layers)

    def copy(self, dtype: torch.dtype) -> Chain:
        """The same in another precision."""
        layers = [
            Layer(layer.mean.to(dtype, copy=True), None if (U := layer.covariance) is None else U.to(dtype, copy=True))
            for layer in self.layers
        ]
        return replace(self, layers=layers)

    def _parents(self, x: Values, depth: int) -> Tensor:
        """What predicts the values of this depth."""
        if depth + 1 == len(x):
            return x[depth].new_ones((len(x[depth]), 1))
        return self._activity(x[depth + 1])

    def _activity(self, x: Tensor) -> Tensor:
        import torch

        return getattr(torch.nn.functional, self.activation)(x)  # type: ignore[no-any-return]

    def _spread(self, layer: Layer, z: Tensor) -> tuple[Tensor | float, Tensor | None]:
        """The variance of what z predicts for every sample, and z times the covariance (None: there is none)."""
        if layer.covariance is None:
            return self.variance, None
        uncertain = z @ layer.covariance
        return (uncertain * z).sum(1, keepdim=True) + self.variance, uncertain

    def _derivative(self, x: Tensor, slope: Tensor) -> Tensor:
        """The slope with respect to what went into the activation."""
        import torch

        if self.activation == "relu":
            return slope * (x > 0)
        return torch.ops.aten.gelu_backward(slope, x)  # type: ignore[no-any-return]


def _narrowed(mean: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and pixels in as many coordinates as there are parents and one more, up to a multiple that suits a GPU.

    All predictions lie in the span of the weights' rows. An orthonormal basis of it, and how far the pixels are from
    it, is all that errors depend on. The rows in that basis are a triangle, the root of their products.
    """
    import torch

    rows, known = mean.double(), pixels.double()
    products = rows @ rows.T
    products.diagonal().add_(JITTER * products.diagonal().mean())
    triangle = torch.linalg.cholesky_ex(products)[0]
    inside = torch.linalg.solve_triangular(triangle, rows @ known.T, upper=False).T
    beyond = (known.square().sum(1, keepdim=True) - inside.square().sum(1, keepdim=True)).clamp(min=0).sqrt()
    wide = ALIGNED - len(mean) % ALIGNED
    narrow = torch.nn.functional.pad(triangle, (0, wide))
    seen = torch.cat([inside, torch.nn.functional.pad(beyond, (0, wide - 1))], 1)
    return narrow.to(mean.dtype), seen.to(pixels.dtype)


def _log(x: Tensor | float) -> Any:
    return math.log(x) if isinstance(x, float) else x.log()


def cooled(steps: int, rate: float) -> Rates:
    """The rates of a descent that comes to rest: one rate, then ever smaller ones.

    At one rate it hovers. With 1,024 pictures in a BayesPCN of width 1,024 that is so far above the minimum that pixels
    which are missing are wrong by .25; a thousand steps of cooling then bring them to .0001.
    """
    return rate * np.minimum(1, 2 * np.arange(steps, 0, -1) / steps)


def descend(energy: Energy, x: Values, rates: Rates) -> tuple[Tensor, int]:
    """Move values down their energy, in place, with Adam, a step for each rate; the final energies and the steps taken.

    All samples stop together, when none of them changes any more; because this is only looked at every `LOOK` steps,
    descent can run longer than that, never shorter.
    """
    import torch

    rate = torch.tensor(0.0, device=x[0].device)
    optimizer = torch.optim.Adam(x, lr=rate, fused=True, capturable=x[0].is_cuda)
    before, now = torch.full((2, len(x[0])), math.inf, device=x[0].device, dtype=x[0].dtype)

    def step() -> None:
        energies, gradients = energy(x)
        before.copy_(now)
        now.copy_(energies)
        for values, gradient in zip(x, gradients, strict=True):
            values.grad = gradient
        optimizer.step()

    again, last = step, 0.0
    for taken, now_rate in enumerate(rates.tolist(), start=1):
        if now_rate != last:
            rate.fill_(now_rate)
            last = now_rate
        again()
        if taken == 1 and x[0].is_cuda:  # the optimizer has its state now
            again = _captured(step)
        if taken % LOOK == 0 and bool(((now - before).abs() <= STILL).all()):
            break
    return energy(x)[0], taken


class Graphs(threading.local):
    """The last graph of a thread on each stream: the next one takes over its memory.

    Graphs with memory of their own would keep it until the device is full, and it cannot be freed in a capture.
    """

    def __init__(self) -> None:
        self.last: dict[torch.cuda.Stream, torch.cuda.CUDAGraph] = {}


GRAPHS = Graphs()


def _captured(step: Callable[[], None]) -> Callable[[], None]:
    """The same work on the same tensors as one launch on the GPU: a step is dozens of small ones."""
    import torch

    graph, own, here = torch.cuda.CUDAGraph(), torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
    last = GRAPHS.last.get(here)
    own.wait_stream(here)
    with torch.cuda.stream(own):
        graph.capture_begin(pool=last.pool() if last else None, capture_error_mode="thread_local")
        step()
        graph.capture_end()
    here.wait_stream(own)
    GRAPHS.last[here] = graph
    return graph.replay


class PredictiveMemory:
    """What GPCN and BayesPCN share: everything but learning.

    Samples are in [0, 1] for whoever calls, and in [-1, 1] inside. Recall starts from the same random hidden values
    at every call: it does not depend on what was asked before, and never changes the memory.
    """

    cannot: ClassVar[Mapping[str, str]] = {  # see `sqhn.testing`
        "recognize": "no rule for it was published",
        "one shot": "what comes back is a prediction, close to the sample",
        "from half": "what comes back is a prediction, close to the sample",
        "answers one by one": "each sample of a batch starts from random hidden values of its own",
        "len": "it has no neurons to count",
    }
    particles = 1

    def __init__(
        self,
        input_shape: Sequence[int],
        width: int,
        *,
        hidden: int,
        activation: Activation,
        steps: int,
        rate: float,
        sigma: float,
        recall_steps: int,
        device: str,
        seed: int,
    ) -> None:
        torch = load_torch()
        self.input_shape = as_shape(input_shape)
        check_word("activation", activation, get_args(Activation))
        self.activation = activation
        self.width, self.hidden = check_count("width", width), check_count("hidden", hidden)
        self.steps, self.recall_steps = check_count("steps", steps), check_count("recall_steps", recall_steps)
        self.rate, self.sigma = check_number("rate", rate), check_number("sigma", sigma)
        self.device, self.seed = torch.device(device), seed
        self.reset()

    def reset(self) -> None:
        """Forget everything: the memory is as new."""
        import torch

        self.step = 0
        self._random = self._generator(self.seed)
        self._chains = [self._new_chain() for _ in range(self.particles)]
        self._log_weights = torch.full((self.particles,), -math.log(self.particles), device=self.device)

    def __repr__(self) -> str:
        size = f"{self.hidden} x {self.width} hidden values, {self.activation}"
        return f"{type(self).__name__}({self.input_shape}, {size}, step {self.step})"

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        """Complete one sample or a batch.

        Hidden values are found for what was observed, and their prediction is the answer, but for what was observed:
        that is returned as it came. (The published code descends to that prediction, which is the minimum over the
        pixels, with Adam, together with the hidden values where some are missing: pixels that start far from it, black,
        take thousands of steps, and end at the same energy.) It ends after `recall_steps`, the second half of them ever
        smaller, or when nothing changes any more.

        There is no neuron to name: the index is -1. The score is minus the energy.
        """
        samples, single, seen = as_samples(x, self.input_shape, observed, holes=True)
        if self.step == 0:
            raise EmptyMemoryError("nothing was learned yet")
        pixels = self._inside(samples)
        random = self._generator(self.seed + 1)  # not the numbers that the weights started from
        parts = self._clamped(pixels, seen)
        hidden = self._hidden(len(samples), random)
        energy = self._settle(parts, hidden, cooled(self.recall_steps, self.rate))
        answer = self._outside(self._predict(parts, hidden))
        if seen is not None:
            answer = np.where(seen, as_floats(samples), answer)
        score = -energy.double().cpu().numpy()
        index = np.full(len(samples), -1, np.int32)
        return Recalled(*as_answers(single, answer, index, score))

    def recognize(self, x: ArrayLike) -> Recognized:  # noqa: ARG002
        """Refuse: neither paper says how these models would tell old from new."""
        raise UnsupportedError(f"{type(self).__name__} does not recognize: no rule for it was published")

    # -- recall --------------------------------------------------------------------------------------------------

    def _clamped(self, pixels: Tensor, seen: NDArray[np.bool_] | None) -> list[tuple[Chain, Tensor]]:
        """Each chain and what it is to explain."""
        import torch

        flat = None if seen is None else np.ascontiguousarray(seen).reshape(len(pixels), -1)
        known = None if flat is None else torch.tensor(flat, device=self.device)
        return [chain.clamp(pixels, known) for chain in self._chains]

    def _settle(self, parts: Parts, hidden: Values, rates: Rates) -> Tensor:
        """Move hidden values, in place, to what chains find for their pixels together; the energy of that."""

        def energy(hidden: Values) -> tuple[Tensor, Values]:
            total, gradients = self._mixed([chain.energy([pixels, *hidden]) for chain, pixels in parts])
            return total, gradients[1:]

        return descend(energy, hidden, rates)[0]

    def _mixed(self, parts: list[tuple[Tensor, Values]]) -> tuple[Tensor, Values]:
        """The energy of a mixture, and its gradient, from those of its parts."""
        import torch

        if len(parts) == 1:
            return parts[0]
        energies, gradients = zip(*parts)
        joint = self._log_weights[:, None] - torch.stack(energies)
        shares = joint.softmax(0)[..., None]
        return -joint.logsumexp(0), [sum(map(torch.mul, shares, layer)) for layer in zip(*gradients)]  # type: ignore[misc]

    def _predict(self, parts: Parts, hidden: Values) -> Tensor:
        """The pixels that minimize the energy while the hidden values, and so the share of every chain, stay."""
        import torch

        if len(parts) == 1:
            return self._chains[0].predict(hidden)[0]
        energies = torch.stack([chain.energy([pixels, *hidden])[0] for chain, pixels in parts])
        shares = (self._log_weights[:, None] - energies).softmax(0)[..., None]
        means, spreads = map(torch.stack, zip(*(chain.predict(hidden) for chain in self._chains)))
        precision = shares / spreads
        return (precision * means).sum(0) / precision.sum(0)

    # -- tensors -------------------------------------------------------------------------------------------------

    def _generator(self, seed: int) -> torch.Generator:
        import torch

        return torch.Generator(self.device).manual_seed(seed)

    def _normal(self, shape: tuple[int, int], random: torch.Generator) -> Tensor:
        """Random numbers of variance 1 / columns."""
        import torch

        return torch.randn(shape, generator=random, device=self.device) / math.sqrt(shape[1])

    def _hidden(self, samples: int, random: torch.Generator) -> Values:
        return [self._normal((samples, self.width), random) for _ in range(self.hidden)]

    def _new_chain(self) -> Chain:
        sizes = [math.prod(self.input_shape), *[self.width] * self.hidden, 1]
        means = [self._normal((parents, size), self._random) for size, parents in pairwise(sizes)]
        return Chain([Layer(mean) for mean in means], self.activation, self.sigma**2)

    def _inside(self, samples: NDArray[Any]) -> Tensor:
        import torch

        flat = as_floats(samples).reshape(len(samples), -1)
        return torch.tensor(flat, device=self.device) * 2 - 1

    def _outside(self, pixels: Tensor) -> NDArray[np.float32]:
        flat: NDArray[np.float32] = ((pixels + 1) / 2).cpu().numpy()
        return flat.reshape(len(flat), *self.input_shape)


class GPCN(PredictiveMemory):
    """A predictive-coding network trained offline (Salvatori et al. 2021), as the SQHN paper's Table 1 has it.

    `learn` trains on the whole batch that it is given, for `epochs`; learning again goes on with the new batch
    alone, and what was learned before is overwritten little by little. In every epoch hidden values go on from
    where they were, descend for `steps` at `rate`, and then the weights take one gradient step at `weight_rate`.
    (The published code starts them anew, and takes 500 steps: ten times the work for the same energy and recall.)
    The 4,000 epochs of the published runs are for a GPU, which may round the factors of products while it trains
    (TF32); a few pictures need about a hundred.

    width, hidden: how wide the hidden layers are, and how many there are.
    sigma: the standard deviation of all values, in units of [-1, 1].
    recall_steps: how long recall descends at most; thousands where much is stored and most of a sample is missing.

    A step costs 2 * width**2 multiply-adds per sample and layer, and 2 * values * width more in recall where not the
    same pixels of all samples are missing.
    """

    cannot: ClassVar[Mapping[str, str]] = {
        **PredictiveMemory.cannot,
        "batch equals loop": "it trains on the whole of a batch, again and again",
    }

    def __init__(
        self,
        input_shape: Sequence[int],
        width: int = 256,
        *,
        hidden: int = 3,
        activation: Activation = "gelu",
        epochs: int = 4000,
        steps: int = 50,
        rate: float = 0.01,
        weight_rate: float = 1e-4,
        sigma: float = 0.01,
        recall_steps: int = 500,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.epochs, self.weight_rate = check_count("epochs", epochs), check_number("weight_rate", weight_rate)
        super().__init__(
            input_shape,
            width,
            hidden=hidden,
            activation=activation,
            steps=steps,
            rate=rate,
            sigma=sigma,
            recall_steps=recall_steps,
            device=device,
            seed=seed,
        )

    def learn(self, x: ArrayLike, progress: Progress | None = None) -> Written:
        """Train on a batch, all of it in every epoch.

        progress: called after every epoch with its number, from 1, and the mean energy that the hidden values came
            down to; training ends where it returns something true. Ctrl-C ends it too: between epochs.

        There is no neuron to name: the index is -1. The scores are minus the energies of the last epoch.
        """
        samples, single, _ = as_samples(x, self.input_shape)
        pixels = self._inside(samples)
        hidden, rates = self._hidden(len(pixels), self._random), np.full(self.steps, self.rate)
        with tensor_cores():
            for epoch in range(1, self.epochs + 1):
                energy = self._settle(self._clamped(pixels, None), hidden, rates)
                with deferred():
                    self._chains[0].step([pixels, *hidden], self.weight_rate / self.sigma**2)
                    self.step += len(pixels) if epoch == 1 else 0
                if progress is not None and progress(epoch, float(energy.mean())):
                    break
        return written(single, -energy.double().cpu().numpy(), self.step)


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let a GPU round the factors of products to 11 bits (TF32), which is twice as fast: the values' sigma is larger.

    Not where a covariance is multiplied: what it is sure of comes out as a difference of large numbers.
    """
    import torch

    products = torch.backends.cuda.matmul
    before, products.allow_tf32 = products.allow_tf32, True
    try:
        yield
    finally:
        products.allow_tf32 = before


def written(single: bool, score: NDArray[np.float64], last: int) -> Written:
    """What learning did, in a memory without neurons; last: the step of the last sample."""
    step = np.arange(last - len(score), last) + 1
    return Written(*as_answers(single, np.full(len(score), -1, np.int32), np.zeros(len(score), bool), score, step))
