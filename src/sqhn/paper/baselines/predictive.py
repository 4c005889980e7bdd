"""Predictive coding as a memory: recall by descent on the energy of a chain, and GPCN, which is trained offline.

The energy of the chain (see `chain`) is minimized over the hidden values; their prediction then fills in the missing
pixels.

GPCN is the model of Salvatori et al. (Associative memories via predictive coding, NeurIPS 2021) with the settings of
Yoo & Wood (BayesPCN, NeurIPS 2022), whose numbers the SQHN paper's Table 1 reports; BayesPCN is in `bayes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.checks import as_shape, check_count, check_number, check_word
from sqhn.concurrency import deferred
from sqhn.inputs import as_answers, as_floats, as_samples
from sqhn.paper.baselines.chain import Activation, Chain, Layer
from sqhn.paper.baselines.descent import Rates, Values, cooled, descend
from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.training import load_torch
from sqhn.protocol import EmptyMemoryError, Recalled, Recognized, Written

if TYPE_CHECKING:
    import torch
    from torch import Tensor


Clamped = Sequence["tuple[Chain, Tensor]"]  # chains and the fixed pixels of each
Progress = Callable[[int, float], object]


class PredictiveMemory:
    """The common part of GPCN and BayesPCN: everything but learning.

    Callers give samples in [0, 1]; inside they are in [-1, 1]. Recall starts from the same random hidden values at
    every call, so it does not depend on earlier calls, and never changes the memory.
    """

    cannot: ClassVar[Mapping[str, str]] = {  # see `sqhn.testing`
        "recognize": "no rule for it was published",
        "one shot": "the answer is a prediction, close to the sample",
        "from half": "the answer is a prediction, close to the sample",
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
        """Forget everything."""
        import torch

        self.step = 0
        self.random = self._generator(self.seed)
        self.chains = [self._new_chain() for _ in range(self.particles)]
        self.log_weights = torch.full((self.particles,), -math.log(self.particles), device=self.device)

    def __repr__(self) -> str:
        size = f"{self.hidden} x {self.width} hidden values, {self.activation}"
        return f"{type(self).__name__}({self.input_shape}, {size}, step {self.step})"

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        """Complete one sample or a batch.

        The answer is the prediction of the hidden values that fit the observed values best; observed values are
        returned unchanged. (The published code descends to that prediction, the minimum over the pixels, with Adam,
        together with the hidden values where pixels are missing: pixels that start far from it, black, take thousands
        of steps, and end at the same energy.) Descent ends after `recall_steps`, with falling rates in the second half,
        or as soon as nothing changes any more.

        The memory has no neurons: the index is -1. The score is minus the energy.
        """
        samples, single, seen = as_samples(x, self.input_shape, observed, holes=True)
        if self.step == 0:
            raise EmptyMemoryError("nothing was learned yet")
        pixels = self.inside(samples)
        random = self._generator(self.seed + 1)  # other random numbers than those of the weights
        clamped = self._clamp(pixels, seen)
        hidden = self.hidden_values(len(samples), random)
        energy = self.settle(clamped, hidden, cooled(self.recall_steps, self.rate))
        answer = self._outside(self.predict(clamped, hidden))
        if seen is not None:
            answer = np.where(seen, as_floats(samples), answer)
        score = -energy.double().cpu().numpy()
        index = np.full(len(samples), -1, np.int32)
        return Recalled(*as_answers(single, answer, index, score))

    def recognize(self, x: ArrayLike) -> Recognized:  # noqa: ARG002
        """Not supported: neither paper defines recognition for these models."""
        raise UnsupportedError(f"{type(self).__name__} does not recognize: no rule for it was published")

    # -- descent -------------------------------------------------------------------------------------------------------

    def _clamp(self, pixels: Tensor, seen: NDArray[np.bool_] | None) -> list[tuple[Chain, Tensor]]:
        """Each chain with the pixels that it has to explain."""
        import torch

        flat = None if seen is None else np.ascontiguousarray(seen).reshape(len(pixels), -1)
        known = None if flat is None else torch.tensor(flat, device=self.device)
        return [chain.clamp(pixels, known) for chain in self.chains]

    def settle(self, clamped: Clamped, hidden: Values, rates: Rates) -> Tensor:
        """Move hidden values, in place, down the energy of all chains together; returns the final energy."""

        def energy(hidden: Values) -> tuple[Tensor, Values]:
            total, gradients = self.mix([chain.energy([pixels, *hidden]) for chain, pixels in clamped])
            return total, gradients[1:]

        return descend(energy, hidden, rates)[0]

    def mix(self, parts: list[tuple[Tensor, Values]]) -> tuple[Tensor, Values]:
        """The energy of a mixture of chains and its gradient, from those of the chains."""
        import torch

        if len(parts) == 1:
            return parts[0]
        energies, gradients = zip(*parts)
        joint = self.log_weights[:, None] - torch.stack(energies)
        shares = joint.softmax(0)[..., None]
        return -joint.logsumexp(0), [sum(map(torch.mul, shares, layer)) for layer in zip(*gradients)]  # type: ignore[misc]

    def predict(self, clamped: Clamped, hidden: Values) -> Tensor:
        """The pixels that minimize the energy while the hidden values, and so the share of every chain, stay fixed."""
        import torch

        if len(clamped) == 1:
            return self.chains[0].predict(hidden)[0]
        energies = torch.stack([chain.energy([pixels, *hidden])[0] for chain, pixels in clamped])
        shares = (self.log_weights[:, None] - energies).softmax(0)[..., None]
        means, variances = map(torch.stack, zip(*(chain.predict(hidden) for chain in self.chains)))
        precision = shares / variances
        return (precision * means).sum(0) / precision.sum(0)

    # -- tensors -------------------------------------------------------------------------------------------------------

    def _generator(self, seed: int) -> torch.Generator:
        import torch

        return torch.Generator(self.device).manual_seed(seed)

    def _normal(self, shape: tuple[int, int], random: torch.Generator) -> Tensor:
        """Normal random numbers of variance 1 / columns."""
        import torch

        return torch.randn(shape, generator=random, device=self.device) / math.sqrt(shape[1])

    def hidden_values(self, samples: int, random: torch.Generator) -> Values:
        """Random hidden values to start from."""
        return [self._normal((samples, self.width), random) for _ in range(self.hidden)]

    def _new_chain(self) -> Chain:
        sizes = [math.prod(self.input_shape), *[self.width] * self.hidden, 1]
        means = [self._normal((parents, size), self.random) for size, parents in pairwise(sizes)]
        return Chain([Layer(mean) for mean in means], self.activation, self.sigma**2)

    def inside(self, samples: NDArray[Any]) -> Tensor:
        """Samples as rows in [-1, 1]."""
        import torch

        flat = as_floats(samples).reshape(len(samples), -1)
        return torch.tensor(flat, device=self.device) * 2 - 1

    def _outside(self, pixels: Tensor) -> NDArray[np.float32]:
        """The inverse of `inside`."""
        flat: NDArray[np.float32] = ((pixels + 1) / 2).cpu().numpy()
        return flat.reshape(len(flat), *self.input_shape)


class GPCN(PredictiveMemory):
    """A predictive-coding network trained offline (Salvatori et al. 2021), as in the SQHN paper's Table 1.

    `learn` trains on the whole batch for `epochs`; learning again continues with the new batch alone, which gradually
    overwrites earlier ones. In every epoch the hidden values continue from the epoch before, descend for `steps` at
    `rate`, and then the weights take one gradient step at `weight_rate`. (The published code restarts them in every
    epoch, and takes 500 steps: ten times the work for the same energy and recall.) The 4,000 epochs of the published
    runs are meant for a GPU, which may round the factors of products while it trains (TF32); a few images need about a
    hundred.

    width, hidden: the width and the number of the hidden layers.
    sigma: the standard deviation of all values, in units of [-1, 1].
    recall_steps: the most steps of a recall; thousands where much is stored and most of a sample is missing.

    A step costs 2 * width**2 multiply-adds per sample and layer, and 2 * values * width more in recall where samples
    have different missing pixels.
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

        progress: called after every epoch with its number, counted from 1, and the mean energy after the descent;
            training stops when it returns a true value. Ctrl-C stops it too, between epochs.

        The memory has no neurons: the index is -1. The scores are minus the energies of the last epoch.
        """
        samples, single, _ = as_samples(x, self.input_shape)
        pixels = self.inside(samples)
        hidden, rates = self.hidden_values(len(pixels), self.random), np.full(self.steps, self.rate)
        with tensor_cores():
            for epoch in range(1, self.epochs + 1):
                energy = self.settle(self._clamp(pixels, None), hidden, rates)
                with deferred():
                    self.chains[0].step([pixels, *hidden], self.weight_rate / self.sigma**2)
                    self.step += len(pixels) if epoch == 1 else 0
                if progress is not None and progress(epoch, float(energy.mean())):
                    break
        return written(single, -energy.double().cpu().numpy(), self.step)


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let a GPU round the factors of products to 11 bits (TF32): twice as fast, with errors below the values' sigma.

    Not for products with a covariance, whose small values are differences of large ones.
    """
    import torch

    products = torch.backends.cuda.matmul
    before, products.allow_tf32 = products.allow_tf32, True
    try:
        yield
    finally:
        products.allow_tf32 = before


def written(single: bool, score: NDArray[np.float64], last: int) -> Written:
    """The result of learning in a memory without neurons; last: the step of the last sample."""
    step = np.arange(last - len(score), last) + 1
    return Written(*as_answers(single, np.full(len(score), -1, np.int32), np.zeros(len(score), bool), score, step))
