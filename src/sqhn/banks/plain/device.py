"""Memories in main memory: NumPy arrays, and banks in plain NumPy."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import CodeBank, Limits, PartOfLevel, PatternBank, Support
from sqhn.banks.plain.counts import Counts
from sqhn.banks.plain.neurons import first_best
from sqhn.banks.plain.prototypes import Prototypes
from sqhn.inputs import as_floats, as_numpy, is_tensor
from sqhn.level import LARGEST_CAPACITY, TIE, Level, Options
from sqhn.patches import Tiling
from sqhn.sizes import array_bytes


class Plain:
    """Arrays in main memory.

    A loop over the samples of a chunk can be interrupted by a signal, so a bank does not learn in one step (`atomic`).
    """

    name = "plain"
    xp = np
    place = None
    limits = Limits()
    shards: int | None = None
    keeps_tensors = False
    keeps_bytes = True
    atomic = False

    def patterns(self, tiling: Tiling, level: Level, options: Options, top: bool) -> PatternBank:
        return Prototypes(self, tiling, level, options, top)

    def passing(self, tiling: Tiling, level: Level, options: Options) -> PartOfLevel:
        """A bank for some neurons of the only level, which are compared with one question and then dropped."""
        return Prototypes(self, tiling, level, options, True)

    def codes(
        self,
        children: NDArray[np.int32],
        level: Level,
        options: Options,
        top: bool,
        values: int,  # noqa: ARG002
    ) -> CodeBank:
        return Counts(self, children, level, options, top)

    @staticmethod
    def choose(
        k: NDArray[np.int32], h: NDArray[np.float64], support: Support, value: NDArray[np.float64], blend: float
    ) -> NDArray[np.int32]:
        own, score = blend * h.ravel(), blend * value + (1 - blend) * support.probability
        which = np.repeat(np.arange(k.size), np.diff(support.start))
        top = own.copy()
        np.maximum.at(top, which, score)
        chosen = np.where(own >= top - TIE, k.ravel(), LARGEST_CAPACITY)
        good = score >= top[which] - TIE
        np.minimum.at(chosen, which[good], support.value[good])
        return chosen.reshape(k.shape)

    @staticmethod
    def top_k(u: NDArray[np.float64], count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        left, shape = u.reshape(-1, u.shape[2]), (*u.shape[:2], count)
        left = left if count == 1 else left.copy()
        k, v = np.empty((len(left), count), np.int32), np.empty((len(left), count))
        for i in range(count):
            k[:, i], v[:, i] = first_best(left)
            if count > 1:
                left[np.arange(len(left)), k[:, i]] = -np.inf
        return k.reshape(shape), v.reshape(shape)

    floats = staticmethod(as_floats)

    @staticmethod
    def asarray(array: NDArray[Any]) -> NDArray[Any]:
        """The array, or a copy if it is read-only or not contiguous: kernels are compiled once, for plain arrays."""
        return array if array.flags.carray else np.array(array, order="C")

    nbytes = staticmethod(array_bytes)

    @staticmethod
    def stream() -> nullcontext[None]:
        return nullcontext()

    @staticmethod
    def to_user(array: NDArray[Any], x: object) -> Any:
        if not is_tensor(x):
            return array
        import torch

        return torch.from_numpy(as_numpy(array)).to(x.device)  # type: ignore[attr-defined]
