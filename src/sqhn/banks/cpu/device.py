"""Memories in main memory, with banks whose loops Numba compiles."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.counts import Counts
from sqhn.banks.cpu.kernels import neurons
from sqhn.banks.cpu.prototypes import Prototypes
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Support
from sqhn.banks.plain.device import Plain
from sqhn.level import Level, Options
from sqhn.patches import Tiling


class Cpu(Plain):
    """The arrays of a plain device, with compiled banks and choices."""

    name = "cpu"
    atomic = True

    def patterns(self, tiling: Tiling, level: Level, options: Options, top: bool) -> Prototypes:
        return Prototypes(self, tiling, level, options, top)

    def passing(self, tiling: Tiling, level: Level, options: Options) -> Prototypes:
        bank = self.patterns(tiling, level, options, True)
        if bank.large is not None:
            bank.large.blind = math.inf  # features would take longer than one look at the whole vectors
        return bank

    def codes(
        self,
        children: NDArray[np.int32],
        level: Level,
        options: Options,
        top: bool,
        values: int,  # noqa: ARG002
    ) -> Counts:
        return Counts(self, children, level, options, top)

    @staticmethod
    def choose(
        k: NDArray[np.int32], h: NDArray[np.float64], support: Support, value: NDArray[np.float64], blend: float
    ) -> NDArray[np.int32]:
        out = np.empty(k.shape, np.int32)
        start, candidate, probability = support
        split_range(neurons.choose, k.size, 8.0 * len(value), k, h, start, candidate, value, probability, blend, out)
        return out

    @staticmethod
    def top_k(u: NDArray[np.float64], count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        shape = (*u.shape[:2], count)
        k, v = np.empty(shape, np.int32), np.empty(shape)
        values = u if count == 1 else u.copy()
        split_range(neurons.top_k, u.shape[0] * u.shape[1], float(count) * u.size, values, k, v)
        return k, v
