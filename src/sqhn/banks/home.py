"""Where a memory lives: the arrays of a device, and the banks that work on them.

The network is written once; what it holds are arrays of its home, on which indexing and arithmetic mean the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqhn.banks.neurons import Array

__all__ = ["Home", "home"]


class Home(Protocol):
    """Arrays of one device."""

    name: str
    tensors: bool  # whether samples that come as torch tensors stay so
    at_once: bool  # whether a bank learns a chunk in one call, that nothing interrupts
    chunk: int  # how many samples to learn at once, if there is memory for it
    breadth: int  # how many times as many samples as on a CPU to answer at once

    def patterns(self, nodes: int, shape: tuple[int, ...], level: Any, options: Any, top: bool) -> Any:
        """A bank for level 1."""

    def codes(self, children: Any, level: Any, options: Any, top: bool, values: int) -> Any:
        """A bank for a level above; values: how many neurons a child may have."""

    def values(self, samples: Array) -> Array:
        """Samples as float32; uint8 is read as /255."""

    def bring(self, array: Array) -> Array:
        """An array from wherever it is."""

    def own(self, array: Array) -> Array:
        """An array that kernels can take."""

    def stream(self) -> AbstractContextManager[None]:
        """Where a device works one thing after another: whatever concerns one memory happens within."""

    def count(self, first: int, many: int) -> Array:
        """Whole numbers from a first one on."""

    def full(self, shape: Sequence[int], value: float) -> Array:
        """A new float64 array."""

    def concatenate(self, arrays: Sequence[Array], axis: int) -> Array:
        """Arrays one after another."""

    def give(self, array: Array, x: object) -> Any:
        """An answer as the one who asked with x expects it: NumPy for NumPy, a tensor on its device for a tensor."""


def home(device: str) -> Home:
    """The home that a word stands for: "cpu", "cuda", or "cuda:1" and so on."""
    if device == "cpu":
        from sqhn.banks.host import Host

        return Host()
    if isinstance(device, str) and (device == "cuda" or device.startswith("cuda:")):
        from sqhn.banks.cuda.home import cuda

        return cuda(device)
    raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:0' and so on; got {device!r}")
