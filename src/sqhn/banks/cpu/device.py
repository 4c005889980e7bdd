"""Memories in main memory: NumPy arrays, and banks whose loops Numba compiles."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.counts import Counts
from sqhn.banks.cpu.kernels import neurons
from sqhn.banks.cpu.prototypes import Prototypes
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Limits, Support
from sqhn.inputs import as_floats, as_numpy, is_tensor
from sqhn.level import Level, Options
from sqhn.patches import Tiling


class Cpu:
    """Arrays in main memory."""

    name = "cpu"
    xp = np
    place = None
    limits = Limits()
    shards: int | None = None
    keeps_tensors = False
    atomic = True

    def patterns(self, tiling: Tiling, level: Level, options: Options, top: bool) -> Prototypes:
        return Prototypes(self, tiling, level, options, top)

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

    def first_best(self, u: NDArray[np.float64]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = self.top_k(u, 1)
        return k[:, :, 0], v[:, :, 0]

    @staticmethod
    def top_k(u: NDArray[np.float64], count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        shape = (*u.shape[:2], count)
        k, v = np.empty(shape, np.int32), np.empty(shape)
        values = u if count == 1 else u.copy()
        split_range(neurons.top_k, u.shape[0] * u.shape[1], float(count) * u.size, values, k, v)
        return k, v

    @staticmethod
    def pick(u: NDArray[np.float64], support: Support) -> NDArray[np.float64]:
        which = np.repeat(np.arange(len(support.start) - 1), np.diff(support.start))
        values: NDArray[np.float64] = u.reshape(-1, u.shape[2])[which, support.value]
        return values

    floats = staticmethod(as_floats)

    @staticmethod
    def asarray(array: NDArray[Any]) -> NDArray[Any]:
        """The array, or a copy if it is read-only or not contiguous: kernels are compiled once, for plain arrays."""
        return array if array.flags.carray else np.array(array, order="C")

    @staticmethod
    def stream() -> nullcontext[None]:
        return nullcontext()

    @staticmethod
    def to_user(array: NDArray[Any], x: object) -> Any:
        if not is_tensor(x):
            return array
        import torch

        return torch.from_numpy(as_numpy(array)).to(x.device)  # type: ignore[attr-defined]
