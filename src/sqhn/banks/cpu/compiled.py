"""Compiles kernels once, into a cache folder that is named by a digest of all their source files.

Numba's own cache checks only the file of a function, not the files of the functions that it calls.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit, typeof
from numba.core import cgutils as numba_code
from numba.core import config as numba_config
from numba.core import types as numba_types
from numba.extending import intrinsic, overload
from numba.np import arrayobj

config: Any = numba_config  # none of this is typed
code: Any = numba_code
types: Any = numba_types
make_array: Any = arrayobj.make_array


def folder_of(package: Path) -> str:
    """The cache folder: beside the code if that is writable, else in the user's cache; NUMBA_CACHE_DIR moves it."""
    banks = package / "banks"
    beside = banks / "cpu" / "__pycache__"
    base = beside if os.access(beside.parent, os.W_OK) else Path.home() / ".cache" / "sqhn"
    files = [*banks.glob("*.py"), *(banks / "cpu").rglob("*.py"), banks / "ray" / "kernels.py"]
    files += [package / "level.py", package / "evidence.py"]
    sources = b"".join(path.read_bytes() for path in sorted(files)) + str(config.BOUNDSCHECK).encode()
    return str(Path(config.CACHE_DIR or base) / hashlib.sha256(sources).hexdigest()[:16])


NUMBERS = {"reassoc", "contract", "nsz", "arcp", "nnan"}
FOLDER = folder_of(Path(__file__).parents[2])


def compiled(function: Callable[..., Any], **how: Any) -> Any:
    """The function, compiled to machine code that releases the interpreter's lock."""
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
    """As `summing`, for values that are never NaN, so that minima and divisions can be vectorized."""
    return compiled(function, fastmath=NUMBERS, error_model="numpy")


def loop(function: Callable[..., Any]) -> Any:
    """As `numbers`, for a loop of such a function."""
    return compiled(function, fastmath=NUMBERS, error_model="numpy", forceinline=True)


def inlined(function: Callable[..., Any]) -> Any:
    """As `compiled`, for a part of a loop: it is inlined into its caller."""
    return compiled(function, forceinline=True)


def by_type(choose: Callable[..., Any]) -> Callable[..., Any]:
    """A part of a loop, compiled as the function that `choose` returns for the types of the arguments."""

    def chosen(*args: Any) -> Any:
        return choose(*map(typeof, args))(*args)  # without a compiler

    overload(chosen, jit_options={"forceinline": True}, strict=False)(choose)
    return chosen


def _borrowed(typing: Any, value: Any) -> Any:  # noqa: ARG001
    """An argument, an array or a tuple of any kind, whose arrays are no longer reference-counted.

    Counting takes longer than most work on a view of an array. The caller holds the arrays, so this is safe for the
    arguments of a function, and only for them: never for arrays that the function creates itself.
    """

    def lend(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, types.Array):
            array = make_array(kind)(context, builder, value)
            array.meminfo, array.parent = (code.get_null_value(one.type) for one in (array.meminfo, array.parent))
            return array._getvalue()  # noqa: SLF001
        if isinstance(kind, types.BaseTuple):
            for i, part in enumerate(kind):
                lent = lend(context, builder, part, builder.extract_value(value, i))
                value = builder.insert_value(value, lent, i)
        return value

    return value(value), lambda context, builder, _, args: lend(context, builder, value, args[0])


borrowed: Any = (lambda value: value) if config.DISABLE_JIT else intrinsic(_borrowed)
