"""The value objects a memory is configured with, and the constant of its arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

__all__ = ["TIE", "Level", "Options"]

TIE = 1e-12
"""Float64 activities closer than this are equal, and one as close to 0 is silence: rounding must not decide.

Ties go to the lowest index.
"""

MOST = 2**31 - 1
"""The most neurons of a node: they are numbered in 32 bits."""


@dataclass(frozen=True)
class Level:
    """One level of the tree: every node of it has the same kernel, capacity and growth rule.

    kernel: how many nodes of the level below (or input values) one node sees along each leading axis; trailing axes
        are taken whole. An int means `(k, k)`, or `(k,)` where there is only one axis. None means all that is left.
    capacity: the most neurons a node can grow.
    alpha, gamma: a node grows a neuron while its best match is below `gamma * alpha / (t + alpha)` at step t.
    when_full: what a full node does with a sample: "average" it into the best match, "overwrite" a neuron where the
        sample would have grown one, or "freeze". It overwrites the neuron that the fewest samples were averaged into,
        and among those the one written longest ago; so one that has averaged stays while there are others that have
        not.

    >>> Level(kernel=2, capacity=600).threshold(0)
    1.0
    """

    kernel: int | tuple[int, ...] | None = None
    capacity: int = 0  # must be given
    alpha: float = 1e7
    gamma: float = 1.0
    when_full: Literal["average", "overwrite", "freeze"] = "average"

    def __post_init__(self) -> None:
        if isinstance(self.kernel, list):
            object.__setattr__(self, "kernel", tuple(self.kernel))
        sides: tuple[Any, ...] = self.kernel if isinstance(self.kernel, tuple) else (self.kernel,)
        if self.kernel is not None and not (sides and all(_whole(k) and k >= 1 for k in sides)):
            raise ValueError(f"kernel must be a positive int, a tuple of them, or None; got {self.kernel!r}")
        if not _whole(self.capacity) or not 1 <= self.capacity <= MOST:
            raise ValueError(f"capacity must be given, an int from 1 to {MOST:,}; got {self.capacity!r}")
        for name in ("alpha", "gamma"):
            value = getattr(self, name)
            if not _real(value) or not value > 0:
                raise ValueError(f"{name} must be a number above 0; got {value!r}")
        if math.isinf(self.gamma):
            raise ValueError(f"gamma must be finite; got {self.gamma!r}")
        check_words(self)
        kernel = tuple(map(int, sides)) if isinstance(self.kernel, tuple) else self.kernel and int(self.kernel)
        _plain(self, kernel=kernel, capacity=int(self.capacity), alpha=float(self.alpha), gamma=float(self.gamma))

    def threshold(self, t: int | NDArray[np.int64]) -> Any:
        """The growth threshold at step t (counted from 0), in float64; t may be an array.

        >>> Level(capacity=1, alpha=100.0).threshold(100)
        0.5
        """
        if math.isinf(self.alpha):
            return self.gamma * np.ones(np.shape(t))[()]
        return self.gamma * self.alpha / (t + self.alpha)


@dataclass(frozen=True)
class Options:
    """The choices that concern a whole network; the defaults are the paper's model.

    similarity: how an input patch is compared with a prototype: cosine of both shifted by one half and mapped to
        [0, 1], or the plain cosine.
    hidden_similarity: how a node compares its children's values with a column: cosine, or the mean of the column's
        probabilities weighted by the children's strengths.
    blend: weight of the bottom-up activity against the parent's expectation on the way down (the paper's lambda).
    rho: tolerance of `recognize`; None means .99999 for one level and .999 for a tree.
    propagation: what travels up in `recognize`: "argmax" (every child counts as 1) or "max" (its strength, as in
        learning and recall).
    mu: the mean activity that `recognize` compares with: the exact "mean", or with one "pseudocount" of 1.
    norm: over which children the length of a column runs when some are silent: "all" or only the "heard".
    update_order: what a node sends up while learning: its match after the update ("layerwise") or before it, and 1
        when it grew ("after").
    """

    similarity: Literal["shifted_cosine", "cosine"] = "shifted_cosine"
    hidden_similarity: Literal["cosine", "weighted_mean"] = "cosine"
    blend: float = 0.5
    rho: float | None = None
    propagation: Literal["argmax", "max"] = "argmax"
    mu: Literal["mean", "pseudocount"] = "mean"
    norm: Literal["all", "heard"] = "all"
    update_order: Literal["layerwise", "after"] = "layerwise"

    def __post_init__(self) -> None:
        if not _real(self.blend) or not 0 <= self.blend <= 1:
            raise ValueError(f"blend must be a number from 0 to 1; got {self.blend!r}")
        if self.rho is not None and (not _real(self.rho) or not 0 <= self.rho < math.inf):
            raise ValueError(f"rho must be a number of at least 0, or None; got {self.rho!r}")
        check_words(self)
        _plain(self, blend=float(self.blend), rho=None if self.rho is None else float(self.rho))

    @property
    def centre(self) -> float:
        """Similarity to a prototype is `centre + (1 - centre) * cosine` of the vectors less `centre`."""
        return 0.5 if self.similarity == "shifted_cosine" else 0.0


def _plain(value: Any, **numbers: Any) -> None:
    """Put plain Python numbers in place of NumPy's, which compare and are written to files differently."""
    for name, number in numbers.items():
        object.__setattr__(value, name, number)


def check_words(value: Any) -> None:
    """Raise unless every field declared as a `Literal` holds one of its words."""
    hints = get_type_hints(type(value))
    for field in fields(value):
        words = get_args(hints[field.name])
        if words and all(isinstance(word, str) for word in words):
            check_word(field.name, getattr(value, field.name), words)


def check_word(name: str, word: object, words: tuple[str, ...]) -> None:
    """Raise unless `word` is one of `words`."""
    if not isinstance(word, str) or word not in words:
        listed = ", ".join(repr(w) for w in words)
        raise ValueError(f"{name} must be one of {listed}; got {word!r}")


def _whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
