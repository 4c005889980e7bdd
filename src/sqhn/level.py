"""The settings of a memory, and the tolerance of its arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_number, check_share, check_words, is_real, is_whole

__all__ = ["TIE", "Level", "Options", "as_levels", "default_similarity", "evidence_centre"]

TIE = 1e-12
"""Float64 activities that differ by less than this are ties, and an activity below it counts as silent.

Rounding therefore never decides. Ties go to the lowest index.
"""

REPLACING = ("overwrite", "oldest")
"""The choices of `when_full` that replace neurons."""

UNSET: Any = None
"""A setting that depends on others."""

LARGEST_CAPACITY = 2**31 - 1
"""The largest number of neurons of a node, because indices have 32 bits."""


@dataclass(frozen=True)
class Level:
    """One level of the tree: every node of it has the same kernel, capacity and growth rule.

    kernel: how many nodes of the level below (or input values) one node sees along each leading axis; a node sees all
        of the trailing axes. An int means `(k, k)`, or `(k,)` if there is only one axis; None means the whole level
        below.
    capacity: the largest number of neurons that a node can grow.
    alpha, gamma: a node grows a neuron while its best match is below `gamma * alpha / (t + alpha)` at step t. By
        default 1e7 and 1; infinity and 1 / 1.1 if the level is shared: by differences, a patch then grows a neuron if
        the root mean square of its difference from the nearest one is above .1.
    when_full: what a full node does: "average" every sample into its best match, "freeze" (learn nothing more), or
        replace a neuron where a sample would have grown one: "overwrite" replaces the one with the fewest samples, and
        among those the one written longest ago; "oldest" replaces the one written longest ago. Only the memory node
        can replace neurons: a parent would mistake the new neuron of a child for the old one.
    shared: all nodes of the level have the same neurons, which learn from one place after another, row by row; a step
        is one of these. The level below must be shared too, if there is one. Not for the memory node.
    stops: the level learns nothing while the memory node is full, which must have `when_full="freeze"`.

    >>> Level(kernel=2, capacity=600).threshold(0)
    1.0
    """

    kernel: int | tuple[int, ...] | None = None
    capacity: int = 0  # must be given
    alpha: float = UNSET
    gamma: float = UNSET
    when_full: Literal["average", "overwrite", "oldest", "freeze"] = "average"
    shared: bool = False
    stops: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.kernel, list):
            object.__setattr__(self, "kernel", tuple(self.kernel))
        sides: tuple[Any, ...] = self.kernel if isinstance(self.kernel, tuple) else (self.kernel,)
        if self.kernel is not None and not (sides and all(is_whole(k) and k >= 1 for k in sides)):
            raise ValueError(f"kernel must be a positive int, a tuple of them, or None; got {self.kernel!r}")
        if not is_whole(self.capacity) or not 1 <= self.capacity <= LARGEST_CAPACITY:
            raise ValueError(f"capacity must be given, an int from 1 to {LARGEST_CAPACITY:,}; got {self.capacity!r}")
        for name in ("shared", "stops"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False; got {getattr(self, name)!r}")
        alpha, gamma = (math.inf, 1 / 1.1) if self.shared else (1e7, 1.0)
        alpha = alpha if self.alpha is None else self.alpha
        if not is_real(alpha) or not alpha > 0:
            raise ValueError(f"alpha must be a number above 0; got {alpha!r}")
        gamma = check_number("gamma", gamma if self.gamma is None else self.gamma)
        check_words(self)
        kernel = tuple(map(int, sides)) if isinstance(self.kernel, tuple) else self.kernel and int(self.kernel)
        _set(self, kernel=kernel, capacity=int(self.capacity), alpha=float(alpha), gamma=gamma)

    def threshold(self, t: int | NDArray[np.int64]) -> Any:
        """The growth threshold at step t (counted from 0), in float64; t may be an array.

        >>> Level(capacity=1, alpha=100.0).threshold(100)
        0.5
        """
        if math.isinf(self.alpha):
            return np.full(np.shape(t), self.gamma)[()]
        return self.gamma * self.alpha / (t + self.alpha)


@dataclass(frozen=True)
class Options:
    """The choices that concern a whole network; the defaults are the paper's model.

    similarity: how a patch is compared with a prototype: by the cosine after one half is subtracted from both, mapped
        to [0, 1] ("shifted_cosine"), by the plain "cosine", or by their difference: 1 / (1 + its root mean square)
        ("euclidean"). Cosines ignore amplitude.
    blend: weight of the bottom-up activity against the parent's expectation on the way down (the paper's lambda).
    rho: tolerance of `recognize`; None means .99999 for one level and .999 for a tree.
    propagation: how children count in `recognize`: each as 1 ("argmax"), or by its strength ("max"), as in learning and
        recall, so that nodes choose as they did when they learned.
    mu: the mean activity that `recognize` compares with: the exact "mean", or with one "pseudocount" of 1.
    norm: the children over which the length of a column is computed when some are silent: "all", or only the "heard"
        ones.
    """

    similarity: Literal["shifted_cosine", "cosine", "euclidean"] = "shifted_cosine"
    blend: float = 0.5
    rho: float | None = None
    propagation: Literal["argmax", "max"] = "argmax"
    mu: Literal["mean", "pseudocount"] = "mean"
    norm: Literal["all", "heard"] = "all"

    def __post_init__(self) -> None:
        blend = check_share("blend", self.blend)
        if self.rho is not None and (not is_real(self.rho) or not 0 <= self.rho < math.inf):
            raise ValueError(f"rho must be a number of at least 0, or None; got {self.rho!r}")
        check_words(self)
        _set(self, blend=blend, rho=None if self.rho is None else float(self.rho))

    def tolerance(self, levels: int) -> float:
        """The rho in use in a network of so many levels: the given one or the default.

        >>> Options().tolerance(levels=1)
        0.99999
        """
        if self.rho is not None:
            return self.rho
        return 0.99999 if levels == 1 else 0.999

    @property
    def centre(self) -> float:
        """The center: the value subtracted from both vectors before their cosine; unknown values are set to it.

        The similarity is `centre + (1 - centre) * cosine`.
        """
        return 0.5 if self.similarity == "shifted_cosine" else 0.0

    @property
    def euclidean(self) -> bool:
        """Whether patches are compared by their difference, and not by a cosine."""
        return self.similarity == "euclidean"


def evidence_centre(level: Level, options: Options) -> float:
    """The value subtracted from a sample before its blocks are compared by evidence; unknown values are set to it.

    It is the center of the similarity. But by differences that is 0, and a shared level 1, whose growth threshold is
    for values from 0 to 1, then has the middle of these.
    """
    return 0.5 if level.shared and options.euclidean else options.centre


def _set(value: Any, **numbers: Any) -> None:
    """Store plain Python numbers instead of NumPy's, which compare differently and are saved in another form."""
    for name, number in numbers.items():
        object.__setattr__(value, name, number)


def as_levels(levels: Sequence[Level] | None, capacity: int | None = None, **settings: Any) -> tuple[Level, ...]:
    """Checked levels of a tree, or one level with this capacity and these settings of `Level`; None: not given."""
    if (levels is None) == (capacity is None):
        raise ValueError("give either capacity=N for one level, or a list of Levels, and not both")
    given = {name: value for name, value in settings.items() if value is not None}
    if levels is None:
        return (Level(None, capacity or 0, **given),)
    if given:
        named = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise ValueError(f"{named} is for one level; in a list of Levels, each has its own: Level({named}, ...)")
    if isinstance(levels, Integral):
        raise TypeError(f"levels must be a list of Levels; for one level of {levels} neurons give capacity={levels}")
    if isinstance(levels, Level) or not isinstance(levels, Sequence) or not levels:
        raise TypeError(f"levels must be a list of at least one Level; got {levels!r}")
    for number, level in enumerate(levels, start=1):
        if not isinstance(level, Level):
            raise TypeError(f"levels must be a list of Levels; entry {number} is {level!r}")
        if number < len(levels) and level.when_full in REPLACING:
            raise ValueError(
                f"when_full={level.when_full!r} at level {number} of {len(levels)}: only the memory node, the last "
                "level, can replace neurons: a parent would mistake the new neuron of a child for the old one"
            )
        if level.shared and number == len(levels):
            raise ValueError(f"shared=True at level {number} of {len(levels)}: the memory node is a single node")
        if level.shared and number > 1 and not levels[number - 2].shared:
            raise ValueError(
                f"shared=True at level {number} needs shared=True at level {number - 1}: otherwise equal values of "
                "children at different places mean different things"
            )
        if level.stops and (number == len(levels) or levels[-1].when_full != "freeze"):
            raise ValueError(
                f"stops=True at level {number} of {len(levels)} is for levels below a memory node with "
                f"when_full='freeze'; the last level has when_full={levels[-1].when_full!r}"
            )
    return tuple(levels)


def default_similarity(levels: Sequence[Level]) -> Literal["shifted_cosine", "euclidean"]:
    """The similarity of a memory for which none is given: differences, if the places of level 1 share prototypes."""
    return "euclidean" if levels[0].shared else "shifted_cosine"
