"""How kernels are compiled: once, into a cache that knows every file they are made of.

Numba's own cache looks at the file of a function, and not at those of the functions that it calls.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import config as numba_config

config: Any = numba_config  # its settings are attributes that nobody declared

__all__ = ["compiled", "fused", "inlined", "loop", "numbers", "summing"]


def folder_of(package: Path) -> str:
    """Beside the code if that can be written to, else in the user's cache; or where NUMBA_CACHE_DIR says."""
    banks = package / "banks"
    beside = banks / "cpu" / "__pycache__"
    base = beside if os.access(beside.parent, os.W_OK) else Path.home() / ".cache" / "sqhn"
    files = [*banks.glob("*.py"), *(banks / "cpu").rglob("*.py"), package / "level.py", package / "evidence.py"]
    sources = b"".join(path.read_bytes() for path in sorted(files)) + str(config.BOUNDSCHECK).encode()
    return str(Path(config.CACHE_DIR or base) / hashlib.sha256(sources).hexdigest()[:16])


NUMBERS = {"reassoc", "contract", "nsz", "arcp", "nnan"}
FOLDER = folder_of(Path(__file__).parents[2])


def compiled(function: Callable[..., Any], **how: Any) -> Any:
    """A function as machine code that does not hold the interpreter's lock."""
    before = config.CACHE_DIR
    config.CACHE_DIR = FOLDER  # read when a function is decorated
    try:
        return njit(function, cache=True, nogil=True, **how)
    finally:
        config.CACHE_DIR = before


def summing(function: Callable[..., Any]) -> Any:
    """As `compiled`; sums may be reordered, where their rounding never decides."""
    return compiled(function, fastmath={"reassoc", "contract", "nsz", "arcp"})


def fused(function: Callable[..., Any]) -> Any:
    """As `compiled`; a product and a sum may be rounded once, where a bound covers both."""
    return compiled(function, fastmath={"contract", "nsz"}, error_model="numpy")


def numbers(function: Callable[..., Any]) -> Any:
    """As `summing`, where nothing is ever NaN: least values can be found, and divided, several at a time."""
    return compiled(function, fastmath=NUMBERS, error_model="numpy")


def loop(function: Callable[..., Any]) -> Any:
    """As `numbers`, for a loop of such a function."""
    return compiled(function, fastmath=NUMBERS, error_model="numpy", forceinline=True)


def inlined(function: Callable[..., Any]) -> Any:
    """As `compiled`, for a part of a loop: a call would count references to every array of the groups it takes."""
    return compiled(function, forceinline=True)
