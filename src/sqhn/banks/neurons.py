"""What every bank keeps about its neurons, and what passes between banks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.level import Level, Options

__all__ = ["Codes", "Neurons", "Patches", "Sent", "Support", "enlarge", "learning_rules"]

AVERAGE, OVERWRITE, FREEZE = 0, 1, 2
WHEN_FULL = {"average": AVERAGE, "overwrite": OVERWRITE, "freeze": FREEZE}


class Patches(NamedTuple):
    """What level 1 looks at: values, and which of them were observed; both (nodes, batch, size)."""

    x: NDArray[np.float32]
    seen: NDArray[np.bool_] | None = None


class Codes(NamedTuple):
    """What a level above looks at: its children's values and strengths; both (child nodes, batch)."""

    k: NDArray[np.int32]
    v: NDArray[np.float64]


class Sent(NamedTuple):
    """The outcome of a chunk of learning at every node; all (nodes, batch)."""

    k: NDArray[np.int32]
    v: NDArray[np.float64]
    score: NDArray[np.float64]
    grew: NDArray[np.bool_]
    wrote: NDArray[np.bool_]

    @classmethod
    def empty(cls, nodes: int, batch: int) -> Sent:
        shape = (nodes, batch)
        return cls(
            np.empty(shape, np.int32), np.empty(shape), np.empty(shape), np.empty(shape, bool), np.empty(shape, bool)
        )


class Support(NamedTuple):
    """For each (node, sample), the values its parent expects: entries start[node * batch + t] up to the next start."""

    start: NDArray[np.int64]
    value: NDArray[np.int32]
    probability: NDArray[np.float64]

    @classmethod
    def single(cls, k: NDArray[np.int32]) -> Support:
        """One value for each (node, sample), for certain."""
        return cls(np.arange(k.size + 1), k.ravel(), np.ones(k.size))


class Neurons:
    """Counts, mean activities and growth of the neurons of a level; arrays (nodes, room), room grows as needed."""

    def __init__(self, nodes: int, level: Level) -> None:
        self.level = level
        self.c = np.zeros((nodes, 0), np.int64)
        self.mu = np.zeros((nodes, 0))
        self.grown = np.zeros(nodes, np.int64)
        self.steps = np.zeros(1, np.int64)  # an array, so that learning and counting are one call

    @property
    def step(self) -> int:
        """How many samples were learned."""
        return int(self.steps[0])

    @property
    def room(self) -> int:
        return self.c.shape[1]

    def wanted(self, more: int) -> int:
        """How much room `more` samples may need: geometric growth, never beyond the capacity."""
        need = min(int(self.grown.max()) + more, self.level.capacity)
        return self.room if need <= self.room else min(max(need, 2 * self.room), self.level.capacity)

    def reserve(self, room: int) -> None:
        self.mu = enlarge(self.mu, 1, room)
        self.c = enlarge(self.c, 1, room)  # last: `room` is its length

    def append(self, count: int) -> NDArray[np.int64]:
        """Count `count` new neurons at every node; returns the index of the first of them at each."""
        first = self.grown.copy()
        new = np.arange(count) + first[:, None]
        np.put_along_axis(self.c, new, 1, axis=1)
        np.put_along_axis(self.mu, new, 1.0, axis=1)
        self.grown += count
        self.steps += count
        return first

    def thresholds(self, batch: int) -> NDArray[np.float64]:
        """The growth thresholds of the next steps."""
        eps: NDArray[np.float64] = np.asarray(self.level.threshold(self.step + np.arange(batch)))
        return eps


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
