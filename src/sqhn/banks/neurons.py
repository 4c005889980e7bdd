"""What every bank keeps about its neurons, and what passes between banks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.level import Level, Options

__all__ = [
    "Array",
    "Codes",
    "Neurons",
    "Patches",
    "Sent",
    "Support",
    "check_counts",
    "check_growth",
    "check_prototypes",
    "enlarge",
    "learning_rules",
]

Array = Any
"""Of NumPy, or of torch on a device: indexing and arithmetic mean the same."""

AVERAGE, OVERWRITE, FREEZE = 0, 1, 2
KEPT = {"c": np.int64, "mu": np.float64, "written": np.int64}
"""What is kept of every neuron."""
WHEN_FULL = {"average": AVERAGE, "overwrite": OVERWRITE, "freeze": FREEZE}


class Patches(NamedTuple):
    """What level 1 looks at: values, and which of them were observed; both (nodes, batch, size)."""

    x: Array
    seen: Array = None


class Codes(NamedTuple):
    """What a level above looks at: its children's values and strengths; both (child nodes, batch)."""

    k: Array
    v: Array


class Sent(NamedTuple):
    """The outcome of a chunk of learning at every node; all (nodes, batch)."""

    k: Array
    v: Array
    score: Array
    grew: Array
    wrote: Array

    @classmethod
    def empty(cls, nodes: int, batch: int) -> Sent:
        shape = (nodes, batch)
        return cls(
            np.empty(shape, np.int32), np.empty(shape), np.empty(shape), np.empty(shape, bool), np.empty(shape, bool)
        )


class Support(NamedTuple):
    """For each (node, sample), the values its parent expects: entries start[node * batch + t] up to the next start."""

    start: Array
    value: Array
    probability: Array

    @classmethod
    def single(cls, k: NDArray[np.int32]) -> Support:
        """One value for each (node, sample), for certain."""
        return cls(np.arange(k.size + 1), k.ravel(), np.ones(k.size))


class Neurons:
    """Counts, mean activities, last writes and growth of the neurons of a level.

    Arrays (nodes, room), room grows as needed. A write is known by its step, counted from 1; 0 is before all.
    """

    def __init__(self, nodes: int, level: Level) -> None:
        self.level = level
        self.c = np.zeros((nodes, 0), np.int64)
        self.mu = np.zeros((nodes, 0))
        self.written = np.zeros((nodes, 0), np.int64)
        self.grown = np.zeros(nodes, np.int64)
        self.steps = np.zeros(1, np.int64)  # an array, so that learning and counting are one call

    @property
    def step(self) -> int:
        """How many samples were learned."""
        return int(self.steps[0])

    @property
    def room(self) -> int:
        return self.c.shape[1]

    @property
    def most(self) -> int:
        """How many neurons the node has that has most of them."""
        return int(self.grown[0] if len(self.grown) == 1 else self.grown.max())  # of one, that is quicker

    def wanted(self, more: int) -> int:
        """How much room `more` samples may need: geometric growth, never beyond the capacity."""
        need = min(self.most + more, self.level.capacity)
        return self.room if need <= self.room else min(max(need, 2 * self.room), self.level.capacity)

    def reserve(self, room: int) -> None:
        self.mu, self.written = enlarge(self.mu, 1, room), enlarge(self.written, 1, room)
        self.c = enlarge(self.c, 1, room)  # last: `room` is its length

    def append(self, count: int) -> NDArray[np.int64]:
        """Count `count` new neurons at every node; returns the index of the first of them at each."""
        first = self.grown.copy()
        new = np.arange(count) + first[:, None]
        np.put_along_axis(self.c, new, 1, axis=1)
        np.put_along_axis(self.mu, new, 1.0, axis=1)
        np.put_along_axis(self.written, new, self.step + 1 + np.arange(count)[None], axis=1)
        self.grown += count
        self.steps += count
        return first

    def thresholds(self, batch: int) -> NDArray[np.float64]:
        """The growth thresholds of the next steps."""
        steps = np.arange(self.step, self.step + batch)
        eps: NDArray[np.float64] = self.level.threshold(steps)
        return eps

    def state(self) -> dict[str, NDArray[Any]]:
        """What must be saved, as copies: growth, and what is known of the grown, one node after another."""
        there = np.arange(self.room) < self.grown[:, None]
        return {"grown": self.grown.copy(), **{name: getattr(self, name)[:, : self.room][there] for name in KEPT}}

    def restore(self, state: dict[str, NDArray[Any]], step: int) -> None:
        """Take over a saved state, into new neurons."""
        grown = check_growth(state, len(self.grown), self.level)
        self.grown[:] = grown
        self.steps[0] = step
        self.reserve(int(grown.max()))
        there = np.arange(self.room) < grown[:, None]
        for name in KEPT:
            getattr(self, name)[there] = state[name]


def check_growth(state: dict[str, NDArray[Any]], nodes: int, level: Level) -> NDArray[np.int64]:
    """The number of neurons of every node, or an error if a saved state contradicts itself."""
    grown = state["grown"]
    if grown.shape != (nodes,) or grown.dtype != np.int64 or grown.min() < 0 or grown.max() > level.capacity:
        raise ValueError("wrong numbers of neurons")
    total = int(grown.sum())
    for name, kind in KEPT.items():
        if state[name].shape != (total,) or state[name].dtype != kind:
            raise ValueError(f"{name} of shape {state[name].shape} and dtype {state[name].dtype} for {total} neurons")
    if state["c"].min(initial=1) < 1:
        raise ValueError("counts below 1")
    return grown


def check_prototypes(prototypes: NDArray[Any], total: int, size: int) -> None:
    """Raise unless saved prototypes are those of `total` neurons."""
    if prototypes.shape != (total, size) or prototypes.dtype != np.float32:
        raise ValueError(f"prototypes of shape {prototypes.shape} for {total} neurons of {size} values")
    if not np.isfinite(prototypes).all():
        raise ValueError("prototypes that are not finite")


def check_counts(state: dict[str, NDArray[Any]], limits: tuple[int, int, int, int]) -> NDArray[np.int32]:
    """Saved counts, rows (node, neuron, child, value, count) within limits, or an error.

    A neuron that c samples were written to counted c values of every child.
    """
    rows, grown, c = state["counts"], state["grown"], state["c"]
    if rows.ndim != 2 or rows.shape[1] != 5 or rows.dtype != np.int32:
        raise ValueError(f"counts of shape {rows.shape} and dtype {rows.dtype}")
    if rows.min(initial=0) < 0 or any(rows[:, i].max(initial=0) >= max(1, top) for i, top in enumerate(limits)):
        raise ValueError(f"counts outside the limits {limits}")
    n, j, q, _, count = rows.astype(np.int64).T
    if (j >= grown[n]).any():
        raise ValueError("counts of neurons that are not there")
    family = limits[2]
    place = (np.cumsum(grown)[n] - grown[n] + j) * family + q
    if (np.bincount(place, count, minlength=len(c) * family) != np.repeat(c, family)).any():
        raise ValueError("counts that do not add up")
    return rows


def learning_rules(level: Level, options: Options, top: bool) -> tuple[int, int, int, bool]:
    """Capacity, policy, pseudocount, and whether the strength sent up is the match before the update.

    Nobody hears what the top level sends, so there the cheaper one will do.
    """
    before = top or options.update_order == "after"
    return level.capacity, WHEN_FULL[level.when_full], int(options.mu == "pseudocount"), before


def enlarge(array: NDArray[Any], axis: int, length: int, fill: int = 0) -> NDArray[Any]:
    """A copy that is longer along an axis, or the array itself if it is long enough."""
    if array.shape[axis] >= length:
        return array
    shape = list(array.shape)
    shape[axis] = length
    larger = np.zeros(shape, array.dtype) if fill == 0 else np.full(shape, fill, array.dtype)
    larger[tuple(slice(n) for n in array.shape)] = array
    return larger
