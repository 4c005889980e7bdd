"""BayesPCN: a predictive-coding memory with a probability distribution over its weights.

Yoo & Wood, BayesPCN: a continually learnable predictive coding associative memory, NeurIPS 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from sqhn.checks import check_count, check_number, check_share
from sqhn.concurrency import deferred
from sqhn.inputs import as_samples
from sqhn.paper.baselines.chain import Activation, Chain
from sqhn.paper.baselines.predictive import PredictiveMemory, written
from sqhn.protocol import Written

if TYPE_CHECKING:
    from torch import Tensor


class BayesPCN(PredictiveMemory):
    """A predictive-coding network with a Gaussian belief about its weights, written one image at a time.

    A write finds the hidden values of an image and then updates the belief in closed form, as in Bayesian linear
    regression: no learning rate, no epochs, no replay. `learn(batch)` is the loop over the batch.

    width, hidden: the width and the number of the hidden layers.
    particles: the number of networks, each with its own random weights; their share in recall is how well they
        predicted the images before they were written.
    forget: how far the belief drifts back to the prior after every `forget_every` images (see the method `forget`).
    steps, rate: of the descent in the hidden values.
    recall_steps: the most steps of a recall.
    sigma_prior, sigma: the standard deviations of the weights before learning, and of all values in units of [-1, 1].

    A step costs 3 * width**2 multiply-adds per sample and layer, and 2 * values * width more in recall where samples
    have different missing pixels. The belief is float64: a write then keeps its covariances positive definite without
    the projection that float32 needs.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        width: int = 256,
        *,
        hidden: int = 3,
        activation: Activation = "gelu",
        particles: int = 1,
        forget: float = 0.0,
        forget_every: int = 64,
        steps: int = 500,
        rate: float = 0.01,
        sigma_prior: float = 1.0,
        sigma: float = 0.01,
        recall_steps: int = 500,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.particles, self.sigma_prior = check_count("particles", particles), check_number("sigma_prior", sigma_prior)
        self.forgetting, self.forget_every = check_share("forget", forget), check_count("forget_every", forget_every)
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

    def reset(self) -> None:
        """Forget everything."""
        import torch

        super().reset()
        self._priors = [chain.copy(torch.float64) for chain in self.chains]
        self.beliefs = [chain.copy(torch.float64) for chain in self.chains]

    def _new_chain(self) -> Chain:
        import torch

        chain = super()._new_chain()
        for layer in chain.layers:
            layer.covariance = torch.eye(len(layer.mean), device=self.device) * self.sigma_prior**2
        return chain

    def learn(self, x: ArrayLike) -> Written:
        """Write one image, or a batch one after another.

        The memory has no neurons: the index is -1. The score is the predicted log-density of the image and its hidden
        values before it was written. Ctrl-C takes effect between images.
        """
        import torch

        samples, single, _ = as_samples(x, self.input_shape)
        scores = torch.stack([self._write(pixels[None]) for pixels in self.inside(samples)])
        return written(single, scores.cpu().numpy(), self.step)

    def forget(self, beta: float) -> None:
        """Let the belief drift toward the prior, so that weights are free to change for later images.

        0 changes nothing, 1 restores the prior; beta twice is 1 - (1 - beta)**2 once.
        """
        beliefs = self._drifted(check_share("beta", beta))
        chains = in_float32(beliefs)
        with deferred():
            self.beliefs, self.chains = beliefs, chains

    def _write(self, pixels: Tensor) -> Tensor:
        """Every particle finds its own hidden values, learns from them, and is weighted by how well it predicted."""
        import torch

        beliefs, chains = self.beliefs, self.chains
        if self.forgetting and self.step and self.step % self.forget_every == 0:
            beliefs = self._drifted(self.forgetting)
            chains = in_float32(beliefs)
        found = []
        energies = []
        for chain in chains:
            hidden = self.hidden_values(1, self.random)
            energies.append(self.settle([chain.clamp(pixels)], hidden, np.full(self.steps, self.rate))[0])
            found.append([layer.double() for layer in (pixels, *hidden)])
        joint = self.log_weights - torch.stack(energies)
        score = joint.logsumexp(0)
        with deferred():
            for belief, values in zip(beliefs, found):
                belief.write(values)
            self.beliefs, self.chains, self.log_weights = beliefs, in_float32(beliefs), joint - score
            self.step += 1
        return score.double()

    def _drifted(self, beta: float) -> list[Chain]:
        return [belief.drifted(prior, beta) for belief, prior in zip(self.beliefs, self._priors)]


def in_float32(beliefs: list[Chain]) -> list[Chain]:
    """The chains for descent: half the bytes, and on most GPUs far more than twice the speed."""
    import torch

    return [belief.copy(torch.float32) for belief in beliefs]
