"""Memories in main memory: NumPy arrays, and banks whose loops Numba compiles."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.counts import Counts
from sqhn.banks.cpu.kernels import choice, ranking
from sqhn.banks.cpu.prototypes import Prototypes
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Support
from sqhn.inputs import as_floats, as_numpy, is_tensor
from sqhn.level import Level, Options
from sqhn.patches import Tiling

__all__ = ["Cpu"]

NOTHING = nullcontext()


class Cpu:
    """Arrays in main memory."""

    name = "cpu"
    split = False
    tensors = False
    at_once = True
    chunk = 256
    breadth = 1
    room = 1

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
        split_range(choice.choose, k.size, 8.0 * len(value), k, h, start, candidate, value, probability, blend, out)
        return out

    @staticmethod
    def first_best(u: NDArray[np.float64]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = np.empty(u.shape[:2], np.int32), np.empty(u.shape[:2])
        split_range(choice.first_best, k.size, u.size, u, k, v)
        return k, v

    @staticmethod
    def ranking(u: NDArray[np.float64], count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        shape = (*u.shape[:2], count)
        k, v = np.empty(shape, np.int32), np.empty(shape)
        split_range(ranking.of_values, u.shape[0] * u.shape[1], float(count) * u.size, u, k, v)
        return k, v

    @staticmethod
    def pick(u: NDArray[np.float64], support: Support) -> NDArray[np.float64]:
        which = np.repeat(np.arange(len(support.start) - 1), np.diff(support.start))
        values: NDArray[np.float64] = u.reshape(-1, u.shape[2])[which, support.value]
        return values

    values = staticmethod(as_floats)
    log = staticmethod(np.log)

    @staticmethod
    def bring(array: NDArray[Any]) -> NDArray[Any]:
        return array

    @staticmethod
    def own(array: NDArray[Any]) -> NDArray[Any]:
        """The array, or a copy if it is read-only or lies odd: compiled code is made once, for plain arrays."""
        return array if array.flags.carray else np.array(array, order="C")

    @staticmethod
    def stream() -> nullcontext[None]:
        return NOTHING

    @staticmethod
    def count(first: int, many: int) -> NDArray[np.int64]:
        return np.arange(first, first + many)

    @staticmethod
    def indices(first: int, many: int) -> NDArray[np.int32]:
        return np.arange(first, first + many, dtype=np.int32)

    @staticmethod
    def unheard(shape: Sequence[int]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        return np.zeros(shape, np.int32), np.zeros(shape)

    @staticmethod
    def full(shape: Sequence[int], value: float) -> NDArray[np.float64]:
        return np.full(shape, value)

    @staticmethod
    def concatenate(arrays: Sequence[NDArray[Any]], axis: int) -> NDArray[Any]:
        return np.concatenate(arrays, axis)

    @staticmethod
    def stack(arrays: Sequence[NDArray[Any]], axis: int) -> NDArray[Any]:
        return np.stack(arrays, axis)

    @staticmethod
    def give(array: NDArray[Any], x: object) -> Any:
        """An answer to whoever asked with x: a tensor where x is one, on its device."""
        if not is_tensor(x):
            return array
        import torch

        return torch.from_numpy(as_numpy(array)).to(x.device)  # type: ignore[attr-defined]
