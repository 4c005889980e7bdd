"""Whether memories on "cpu" use compiled kernels yet.

Loading kernels takes half a second, and compiling them tens of seconds, once for a machine. Until they are ready,
memories are in plain NumPy, which takes the same decisions (`sqhn.startup` prepares the kernels).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec

from sqhn.banks.interface import Device
from sqhn.banks.plain.device import Plain

VARIABLE = "SQHN_COMPILE"
"""0: never compile; 1: compile a kernel before its first use; otherwise: in the background."""


class State:
    """ready: whether the kernels are loaded."""

    ready = False


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
    """The device "cpu" while its kernels are not ready."""

    name = "cpu"


def why_plain() -> str | None:
    """Why nothing is compiled, or None if kernels are."""
    if os.environ.get(VARIABLE) == "0":
        return f"{VARIABLE} is 0"
    return None if find_spec("numba") else "Numba is not installed"


def cpu() -> Device:
    """The device "cpu" as it is now."""
    if why_plain():
        return Plain()
    at_once = os.environ.get(VARIABLE) == "1" or _at_once.get() or os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
    return compiled() if State.ready or at_once else Pending()


def compiled() -> Device:
    """Compiled kernels."""
    from sqhn.banks.cpu.device import Cpu

    return Cpu()
