"""The statistics of the neurons of a bank in main memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import State
from sqhn.banks.saved import check_growth, kinds
from sqhn.level import Level


class Neurons:
    """Counts, mean activities, last writes and growth of the neurons of a level.

    Arrays have the shape (nodes, room), and room grows as needed. Writes are numbered by their steps, from 1; 0 means
    never. A neuron of count 0 is a free slot; `free` (nodes,) is the number of free slots. Only the memory node (`top`)
    has mean activities and last writes; below it, these arrays have no values.
    """

    def __init__(self, nodes: int, level: Level, top: bool) -> None:
        self.level, self.top = level, top
        self.c = np.zeros((nodes, 0), np.int64)
        self.mu = np.zeros((nodes, 0))
        self.written = np.zeros((nodes, 0), np.int64)
        self.grown = np.zeros(nodes, np.int64)
        self.free = np.zeros(nodes, np.int64)
        self.steps = np.zeros(1, np.int64)  # an array, so that a kernel can count while it learns

    @property
    def step(self) -> int:
        """How many samples were learned."""
        return int(self.steps[0])

    @property
    def room(self) -> int:
        return self.c.shape[1]

    @property
    def most(self) -> int:
        """The number of neurons of the largest node."""
        return int(self.grown[0] if len(self.grown) == 1 else self.grown.max())  # faster for a single node

    def wanted(self, more: int) -> int:
        """How much room `more` samples may need: geometric growth, never beyond the capacity."""
        need = min(self.most + more, self.level.capacity)
        return self.room if need <= self.room else min(max(need, 2 * self.room), self.level.capacity)

    def reserve(self, room: int) -> None:
        if self.top:
            self.mu, self.written = enlarge(self.mu, 1, room), enlarge(self.written, 1, room)
        self.c = enlarge(self.c, 1, room)  # last, because `room` is its length

    @property
    def statistics(self) -> tuple[NDArray[Any], ...]:
        """The statistics as the kernels expect them (`Statistics`)."""
        return self.c, self.mu, self.written, self.grown, self.free, self.steps

    def times(self, batch: int) -> tuple[int, NDArray[np.float64]]:
        """The first of the next steps and the growth thresholds of all of them (`Times`)."""
        step = self.step
        eps: NDArray[np.float64] = self.level.threshold(np.arange(step, step + batch))
        return step + 1, eps

    def append(self, count: int) -> NDArray[np.int64]:
        """Add `count` new neurons to every node; returns their indices (nodes, count)."""
        new = self.grown[:, None] + np.arange(count)
        np.put_along_axis(self.c, new, 1, axis=1)
        if self.top:
            self.mu[0, new], self.written[0, new] = 1.0, self.step + 1 + np.arange(count)
        self.grown += count
        self.steps += count
        return new

    def skip(self, steps: int) -> None:
        self.steps += steps

    def forget(self, j: NDArray[np.int64]) -> None:
        """Free the slots of distinct neurons of the only node."""
        self.c[0, j], self.mu[0, j], self.written[0, j] = 0, 0.0, 0
        self.free[0] += len(j)

    def state(self) -> State:
        """Copies of all that is saved: growth, and the statistics of the grown neurons, one node after another."""
        there = np.arange(self.room) < self.grown[:, None]
        parts = {name: getattr(self, name)[:, : self.room][there] for name in kinds(self.top)}
        return {"grown": self.grown.copy(), **parts}

    def restore(self, state: State, step: int) -> None:
        """Load a saved state into new statistics."""
        grown = check_growth(state, len(self.grown), self.level, self.top)
        self.grown[:] = grown
        self.steps[0] = step
        self.reserve(int(grown.max()))
        there = np.arange(self.room) < grown[:, None]
        for name in kinds(self.top):
            getattr(self, name)[there] = state[name]
        self.free[:] = (there & (self.c == 0)).sum(axis=1)


def enlarge(array: NDArray[Any], axis: int, length: int, fill: float = 0) -> NDArray[Any]:
    """A copy that is longer along an axis, or the array itself if it is long enough."""
    if array.shape[axis] >= length:
        return array
    shape = list(array.shape)
    shape[axis] = length
    larger = np.zeros(shape, array.dtype) if fill == 0 else np.full(shape, fill, array.dtype)
    larger[tuple(slice(n) for n in array.shape)] = array
    return larger


def outcomes(nodes: int, batch: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Empty arrays for the fields of `Learned`."""
    shape = (nodes, batch)
    return np.empty(shape, np.int32), np.empty(shape), np.empty(shape), np.empty(shape, np.int32)
