"""Whether memories on "cpu" use compiled kernels yet.

Loading kernels takes half a second, and compiling them tens of seconds, once for a machine. Until the kernels for a
kind of memory are ready, such memories are in plain NumPy, which takes the same decisions (`sqhn.startup` prepares
them).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import NamedTuple

from sqhn.banks.interface import Device
from sqhn.banks.plain.device import Plain
from sqhn.level import Level, Options

VARIABLE = "SQHN_COMPILE"
"""0: never compile; 1: compile a kernel before its first use; otherwise: in the background."""


class Kind(NamedTuple):
    """The settings that decide which kernels a memory needs."""

    tree: bool
    euclidean: bool

    def __str__(self) -> str:
        return f"{'tree' if self.tree else 'level'}-{'euclidean' if self.euclidean else 'cosine'}"

    @classmethod
    def of(cls, levels: Sequence[Level], options: Options) -> Kind:
        return cls(len(levels) > 1, options.euclidean)


READY: set[Kind] = set()
"""The kinds whose kernels are loaded."""
_at_once = ContextVar("at_once", default=False)


@contextmanager
def at_once() -> Iterator[None]:
    """Within, memories on "cpu" use compiled kernels from the start, and wait for the compiler."""
    token = _at_once.set(True)
    try:
        yield
    finally:
        _at_once.reset(token)


class Pending(Plain):
    """The device "cpu" of memories whose kernels are not ready yet."""

    name = "cpu"


def cpu() -> Device:
    """The device "cpu", as far as that can be told without the settings of a memory; see `current`."""
    choice = os.environ.get(VARIABLE, "")
    if choice == "0" or find_spec("numba") is None:
        return Plain()
    if choice == "1" or _at_once.get() or os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return compiled()
    return Pending()


def compiled() -> Device:
    """Compiled kernels."""
    from sqhn.banks.cpu.device import Cpu

    return Cpu()


def current(device: Device, levels: Sequence[Level], options: Options) -> Device:
    """The device to use from now on in place of this one, for a memory with these settings."""
    return compiled() if isinstance(device, Pending) and Kind.of(levels, options) in READY else device
