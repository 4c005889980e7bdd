"""The home of memories in main memory: NumPy arrays, and banks whose loops Numba compiles."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.code import CodeBank
from sqhn.banks.pattern import PatternBank
from sqhn.door import as_floats, as_numpy, is_tensor
from sqhn.level import Level, Options

__all__ = ["Host"]

NOTHING = nullcontext()


class Host:
    """Arrays in main memory."""

    name = "cpu"
    tensors = False
    at_once = True
    chunk = 256
    breadth = 1

    @staticmethod
    def patterns(nodes: int, shape: tuple[int, ...], level: Level, options: Options, top: bool) -> PatternBank:
        return PatternBank(nodes, shape, level, options, top)

    @staticmethod
    def codes(children: NDArray[np.int32], level: Level, options: Options, top: bool, values: int) -> CodeBank:  # noqa: ARG004
        return CodeBank(children, level, options, top)

    values = staticmethod(as_floats)

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
    def full(shape: Sequence[int], value: float) -> NDArray[np.float64]:
        return np.full(shape, value)

    @staticmethod
    def concatenate(arrays: Sequence[NDArray[Any]], axis: int) -> NDArray[Any]:
        return np.concatenate(arrays, axis)

    @staticmethod
    def give(array: NDArray[Any], x: object) -> Any:
        """An answer to whoever asked with x: a tensor where x is one, on its device."""
        if not is_tensor(x):
            return array
        import torch

        return torch.from_numpy(as_numpy(array)).to(x.device)  # type: ignore[attr-defined]
