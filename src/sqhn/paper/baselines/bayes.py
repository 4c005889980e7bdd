"""BayesPCN: a predictive-coding memory that is certain of what it wrote and unsure of the rest.

Yoo & Wood, BayesPCN: a continually learnable predictive coding associative memory, NeurIPS 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from sqhn.checks import check_count, check_number, check_share
from sqhn.concurrency.signals import deferred
from sqhn.inputs import as_samples
from sqhn.paper.baselines.predictive import Activation, Chain, PredictiveMemory, written
from sqhn.protocol import Written

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BayesPCN"]


class BayesPCN(PredictiveMemory):
    """A predictive-coding network with a Gaussian belief about its weights, written one image at a time.

    A write finds the hidden values of an image and then updates the belief in closed form, as Bayesian linear
    regression does: no learning rate, no epochs, nothing is replayed. `learn(batch)` is the loop over the batch.

    width, hidden: how wide the hidden layers are, and how many there are.
    particles: how many networks, each from its own random weights; they share recall by how well they predicted
        what they were taught.
    forget: how far the belief drifts back to the prior after every `forget_every` images (see the method `forget`).
    steps, rate: of the descent in the hidden values.
    recall_steps: how long recall descends at most.
    sigma_prior, sigma: the standard deviations of the weights before learning, and of all values in units of [-1, 1].

    A step costs 3 * width**2 multiply-adds per sample and layer, and 2 * values * width more in recall where not the
    same pixels of all samples are missing. The belief is float64: a write then keeps its covariances positive definite
    without the projection that float32 needs.
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
        """Forget everything: the memory is as new."""
        import torch

        super().reset()
        self._priors = [chain.copy(torch.float64) for chain in self._chains]
        self._beliefs = [chain.copy(torch.float64) for chain in self._chains]

    def _new_chain(self) -> Chain:
        import torch

        chain = super()._new_chain()
        for layer in chain.layers:
            layer.covariance = torch.eye(len(layer.mean), device=self.device) * self.sigma_prior**2
        return chain

    def learn(self, x: ArrayLike) -> Written:
        """Write one image, or a batch one after another.

        There is no neuron to name: the index is -1. The score is the log-density that was predicted for the image
        and its hidden values, before it was written. Ctrl-C takes effect between images.
        """
        import torch

        samples, single, _ = as_samples(x, self.input_shape)
        scores = torch.stack([self._write(pixels[None]) for pixels in self._inside(samples)])
        return written(single, scores.cpu().numpy(), self.step)

    def forget(self, beta: float) -> None:
        """Let the belief drift toward the prior, so that later images find weights that are free to change.

        0 changes nothing, 1 is the prior; beta twice is 1 - (1 - beta)**2 once.
        """
        beliefs = self._drifted(check_share("beta", beta))
        chains = _in_float32(beliefs)
        with deferred():
            self._beliefs, self._chains = beliefs, chains

    def _write(self, pixels: Tensor) -> Tensor:
        """Every particle finds its own hidden values and learns from them; its weight is how well it predicted."""
        import torch

        beliefs, chains = self._beliefs, self._chains
        if self.forgetting and self.step and self.step % self.forget_every == 0:
            beliefs = self._drifted(self.forgetting)
            chains = _in_float32(beliefs)
        found = []
        energies = []
        for chain in chains:
            hidden = self._hidden(1, self._random)
            energies.append(self._settle([chain.clamp(pixels)], hidden, np.full(self.steps, self.rate))[0])
            found.append([layer.double() for layer in (pixels, *hidden)])
        joint = self._log_weights - torch.stack(energies)
        score = joint.logsumexp(0)
        with deferred():
            for belief, values in zip(beliefs, found):
                belief.write(values)
            self._beliefs, self._chains, self._log_weights = beliefs, _in_float32(beliefs), joint - score
            self.step += 1
        return score.double()

    def _drifted(self, beta: float) -> list[Chain]:
        return [belief.drifted(prior, beta) for belief, prior in zip(self._beliefs, self._priors)]


def _in_float32(beliefs: list[Chain]) -> list[Chain]:
    """What descent works on: half the bytes, and on most GPUs far more than twice the speed."""
    import torch

    return [belief.copy(torch.float32) for belief in beliefs]
