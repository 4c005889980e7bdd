"""Compiles kernels once, into a cache folder that is named by a digest of all their source files.

Numba's own cache checks only the file of a function, not the files of the functions that it calls.

Kernels create no arrays: the caller gives them all that they need, as scratch too. So nothing in them counts
references, which would be most of their code and of the time to compile it. For the same reason each kernel is compiled
for one set of types: an array that is not there has no values, and is never None.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit as numba_njit
from numba.core import config as numba_config

njit: Any = numba_njit  # neither is typed in full
config: Any = numba_config


def folder_of(package: Path) -> str:
    """The cache folder: beside the code if that is writable, else in the user's cache; NUMBA_CACHE_DIR moves it."""
    banks = package / "banks"
    beside = banks / "cpu" / "__pycache__"
    base = beside if os.access(beside.parent, os.W_OK) else Path.home() / ".cache" / "sqhn"
    files = [*banks.glob("*.py"), *(banks / "cpu").rglob("*.py"), banks / "ray" / "kernels.py"]
    files += [package / "level.py", package / "evidence.py"]
    sources = b"".join(path.read_bytes() for path in sorted(files)) + str(config.BOUNDSCHECK).encode()
    return str(Path(config.CACHE_DIR or base) / hashlib.sha256(sources).hexdigest()[:16])


FOLDER = folder_of(Path(__file__).parents[2])
PLAIN = {"_nrt": False, "no_cfunc_wrapper": True, "error_model": "numpy"}
SUMS, NUMBERS = {"reassoc", "contract", "nsz", "arcp"}, {"reassoc", "contract", "nsz", "arcp", "nnan"}


def kernel(function: Callable[..., Any]) -> Any:
    """A function for Python to call, compiled to machine code that releases the interpreter's lock."""
    before = config.CACHE_DIR
    config.CACHE_DIR = FOLDER  # read when a function is decorated
    try:
        return njit(function, cache=True, nogil=True, **PLAIN)
    finally:
        config.CACHE_DIR = before


def compiled(function: Callable[..., Any], **how: Any) -> Any:
    """A part of kernels, compiled into those that call it; Python may call it too, and then interprets it."""
    part: Any = function
    if not config.DISABLE_JIT:
        part.compiled = njit(function, no_cpython_wrapper=True, **PLAIN, **how)
        part._numba_type_ = part.compiled._numba_type_  # in kernels it means the compiled one
    return part


def summing(function: Callable[..., Any]) -> Any:
    """As `compiled`; sums may be reordered, where their rounding never decides."""
    return compiled(function, fastmath=SUMS)


def fused(function: Callable[..., Any]) -> Any:
    """As `compiled`; a product and a sum may be rounded once, where a bound covers both."""
    return compiled(function, fastmath={"contract", "nsz"})


def numbers(function: Callable[..., Any]) -> Any:
    """As `summing`, for values that are never NaN, so that minima and divisions can be vectorized."""
    return compiled(function, fastmath=NUMBERS)


def loop(function: Callable[..., Any]) -> Any:
    """As `numbers`, for a loop of such a function."""
    return compiled(function, fastmath=NUMBERS, forceinline=True)


def inlined(function: Callable[..., Any]) -> Any:
    """A part of a kernel that is read as if it stood in the functions that call it, and never compiled by itself."""
    return njit(function, inline="always", **PLAIN)
