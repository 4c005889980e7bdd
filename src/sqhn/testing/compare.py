"""Comparisons whose AssertionErrors name the call, the wrong value and the expected one."""

from __future__ import annotations

from typing import Any

import numpy as np

ROUNDING = 1e-5
"""Two values v and w count as the same if they differ by at most this times 1 + |w|."""

Answer = dict[str, Any]
"""The fields of the answer to a verb, or of the answers to several queries."""


def same(call: str, got: Answer, wanted: Answer, tolerance: float = 0.0) -> None:
    """Two answers are the same, to the last bit or up to a tolerance."""
    for field, value in wanted.items():
        a, b = np.asarray(got[field]), np.asarray(value)
        if a.shape != b.shape:
            raise AssertionError(f"{call}: {field} should have shape {b.shape}; got {a.shape}")
        floats = "f" in (a.dtype.kind, b.dtype.kind)
        equal = np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True) if floats else np.asarray(a == b)
        if not equal.all():
            place = tuple(np.argwhere(~equal)[0])
            where = "".join(f"[{i}]" for i in place)
            raise AssertionError(f"{call}: {field}{where} should be {b[place]}; got {a[place]}")


def form(what: str, value: Any, kind: type, shape: tuple[int, ...], count: int | None) -> None:
    """A field of an answer has its type and shape; shape: of the samples; count: of a batch, None for one sample."""
    if kind is np.ndarray:
        right, wanted = _form(value) == f"float32 array of shape {shape}", f"a float32 array of shape {shape}"
    elif count is None:
        right, wanted = type(value) is kind, f"a plain {kind.__name__}"
    else:
        dtype, array = {int: np.integer, bool: np.bool_, float: np.float64}[kind], np.asarray(value)
        right = isinstance(value, np.ndarray) and np.issubdtype(array.dtype, dtype) and array.shape == (count,)
        wanted = f"an array of {np.dtype(kind) if kind is float else kind.__name__} of shape {(count,)}"
    if not right:
        raise AssertionError(f"{what} should be {wanted}; got {_form(value)}")


def call_text(verb: str, x: Any, observed: Any = None) -> str:
    """A call of a verb as text."""
    mask = "" if observed is None else f", observed={_form(observed)}"
    return f"{verb}({_form(x)}{mask})"


def error_text(error: BaseException) -> str:
    """The type and message of an error."""
    return f"{type(error).__name__}: {error}"


def shortened(answer: object) -> str:
    """An answer in at most one line."""
    words = " ".join(repr(answer).split())
    return words if len(words) <= 200 else words[:200] + "..."


def _form(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"{x.dtype} array of shape {x.shape}"
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
