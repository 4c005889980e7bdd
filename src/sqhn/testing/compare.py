"""Comparisons that say in an AssertionError which call gave which wrong answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-5
"""Two values v and w count as the same if they differ by at most this times 1 + |w|."""

Answer = dict[str, Any]
"""The fields of the answer to a verb."""


def same(call: str, got: Answer, wanted: Answer, tolerance: float = 0.0) -> None:
    """Two answers are the same, to the last bit or up to a tolerance."""
    for field, value in wanted.items():
        a, b = np.asarray(got[field]), np.asarray(value)
        if a.shape != b.shape:
            raise AssertionError(f"{call}: {field} should have shape {b.shape}; got {a.shape}")
        place = _difference(a, b, tolerance)
        if place is not None:
            where = "".join(f"[{i}]" for i in place)
            raise AssertionError(f"{call}: {field}{where} should be {b[place]}; got {a[place]}")


def answers(calls: str, got: Mapping[str, Answer], wanted: Mapping[str, Answer], tolerance: float = 0.0) -> None:
    """The same for the answers to several queries; calls: a sentence with {} for the query."""
    for query, answer in wanted.items():
        same(calls.format(query), got[query], answer, tolerance)


def unchanged(what: str, x: NDArray[Any], before: NDArray[Any]) -> None:
    """An array still holds the same values."""
    place = _difference(x, before, 0.0)
    if place is not None:
        raise AssertionError(f"{what}: the value at {place} was {before[place]} and is now {x[place]}")


def exact(call: str, x: Any, wanted: NDArray[Any]) -> None:
    """Samples were recalled exactly, up to rounding."""
    off = np.abs(np.asarray(x, np.float64) - wanted).reshape(len(wanted), -1).max(axis=1)
    if not (off <= ROUNDING).all():
        worst = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
        raise AssertionError(f"{call}: expected exact recall; sample {worst} differs by up to {off[worst]:.3g}")


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


def _difference(a: NDArray[Any], b: NDArray[Any], tolerance: float) -> tuple[int, ...] | None:
    """The first place where two arrays differ, if there is one."""
    if "f" in (a.dtype.kind, b.dtype.kind):
        close = np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        close = np.asarray(a == b)
    return None if close.all() else tuple(int(i) for i in np.argwhere(~close)[0])
