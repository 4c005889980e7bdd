"""Checks of settings: words, numbers and shapes. An error names the setting and its value."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

StrPath = str | os.PathLike[str]


def is_whole(value: object) -> bool:
    """Whether a value is an integer, and not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_real(value: object) -> bool:
    """Whether a value is a number, perhaps infinite, but neither a bool nor NaN."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
    except OverflowError:  # an int beyond all floats
        return False


def check_count(name: str, value: Any, least: int = 1) -> int:
    """The value as an int, which must be at least `least`."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{name} must be an int of at least {least}; got {value!r}")
    return int(value)


def check_number(name: str, value: Any, zero: bool = False) -> float:
    """The value as a finite float above 0; zero: 0 is allowed too."""
    if not is_real(value) or not 0 <= value < math.inf or (value == 0 and not zero):
        raise ValueError(f"{name} must be a finite number {'of at least' if zero else 'above'} 0; got {value!r}")
    return float(value)


def check_share(name: str, value: Any) -> float:
    """The value as a float from 0 to 1."""
    if not is_real(value) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1; got {value!r}")
    return float(value)


def check_word(name: str, word: object, words: tuple[str, ...]) -> None:
    """Raise unless `word` is one of `words`."""
    if not isinstance(word, str) or word not in words:
        listed = ", ".join(repr(w) for w in words)
        raise ValueError(f"{name} must be one of {listed}; got {word!r}")


def check_words(value: Any) -> None:
    """Raise unless every `Literal` field of a dataclass holds one of its words."""
    for name, hint in get_type_hints(type(value)).items():
        if get_origin(hint) is Literal:
            check_word(name, getattr(value, name), get_args(hint))


def as_shape(shape: object) -> tuple[int, ...]:
    """The shape of a sample as a tuple of ints; a single int is the length of a signal."""
    sides: Any = (shape,) if isinstance(shape, Integral) else shape
    if not isinstance(sides, Sequence) or isinstance(sides, str) or not sides:
        raise TypeError(f"input_shape must be a tuple of positive ints such as (28, 28); got {shape!r}")
    if not all(is_whole(n) and n >= 1 for n in sides):
        raise ValueError(f"input_shape must be a tuple of positive ints such as (28, 28); got {shape!r}")
    return tuple(int(n) for n in sides)
