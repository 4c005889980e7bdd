"""What the banks in main memory can do with values of neurons, whoever computed them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import code_kernels
from sqhn.banks.neurons import Support
from sqhn.banks.threads import split_range
from sqhn.level import TIE

__all__ = ["HostArrays"]


class HostArrays:
    """Choices among the neurons of a node."""

    @staticmethod
    def choose(
        k: NDArray[np.int32],
        h: NDArray[np.float64],
        support: Support,
        value: NDArray[np.float64],
        blend: float,
    ) -> NDArray[np.int32]:
        """The value of every node, given its bottom-up winner k with activity h and what its parent expects."""
        out = np.empty(k.shape, np.int32)
        start, candidate, probability = support
        split_range(
            code_kernels.choose, k.size, 8.0 * len(value), k, h, start, candidate, value, probability, blend, out
        )
        return out

    @staticmethod
    def first_best(u: NDArray[np.float64]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The first neuron whose value is the maximum, rounding apart, and its value; u (nodes, batch, neurons)."""
        k = (u >= u.max(axis=2, keepdims=True) - TIE).argmax(axis=2)
        return k.astype(np.int32), np.take_along_axis(u, k[:, :, None], 2)[:, :, 0]

    @staticmethod
    def pick(u: NDArray[np.float64], support: Support) -> NDArray[np.float64]:
        """The values of the neurons that a parent expects."""
        which = np.repeat(np.arange(len(support.start) - 1), np.diff(support.start))
        values: NDArray[np.float64] = u.reshape(-1, u.shape[2])[which, support.value]
        return values
