"""The statistics of neurons, and the outcome of a sample at all nodes of a level at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.neurons import Neurons
from sqhn.banks.rule import GREW, OLDEST, REPLACED, SKIPPED, WHEN_FULL, outcome
from sqhn.level import TIE, Level, Options

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]


class LearningNeurons(Neurons):
    """Statistics that learn: `place` finds the neurons that a sample is written to, and `count` notes them."""

    def __init__(self, nodes: int, level: Level, options: Options, top: bool) -> None:
        super().__init__(nodes, level, top)
        self.node = np.arange(nodes)
        self.pseudo = options.mu == "pseudocount"
        self.when_full = WHEN_FULL[level.when_full]
        self.table = np.array(
            [[outcome(below, full, self.when_full) for full in (False, True)] for below in (False, True)]
        )

    def place(self, winner: Indices, score: Floats, threshold: float, heard: NDArray[np.bool_]) -> tuple[Indices, ...]:
        """The neuron of every node that a sample is written to, and the outcome; all arguments but one: (nodes,).

        score: of the winner, minus infinity where there is no neuron; heard: whether the node observes anything.
        """
        below, full = score < threshold - TIE, (self.grown >= self.level.capacity) & (self.free == 0)
        kind = np.where(heard, self.table[below.astype(int), full.astype(int)], SKIPPED)
        j = np.where(kind == GREW, self.grown, np.where(heard, winner, 0))
        if self.free.any() and kind[0] == GREW:  # only the memory node, which is alone, has free slots
            j[0] = (self.c[0] == 0).argmax()
        if kind[0] == REPLACED:  # only the memory node replaces
            G = int(self.grown[0])
            age = self.written[0, :G]
            j[0] = age.argmin() if self.when_full == OLDEST else np.lexsort((age, self.c[0, :G]))[0]
        return j, kind

    def count(self, j: Indices, kind: Indices, score: Floats, step: int) -> None:
        """Note that a sample with this score at its winners was written to the neurons j; arguments: (nodes,)."""
        n = self.node[kind != SKIPPED]
        j, new, score = j[n], kind[n] >= GREW, score[n]
        self.free[n] -= new & (j < self.grown[n]) & (self.c[n, j] == 0)
        self.grown[n] = np.maximum(self.grown[n], j + 1)
        self.c[n, j] = np.where(new, 1, self.c[n, j] + 1)
        self.note(n, j, step)
        if self.top:
            score = np.where(new, 0.0, score)  # it may be minus infinity
            mean = self.mu[n, j] + (score - self.mu[n, j]) / (self.c[n, j] + self.pseudo)
            self.mu[n, j] = np.where(new, 1.0, mean)

    def note(self, n: Indices, j: Indices, step: int) -> None:
        """Note the step at which neurons j of nodes n were written."""
        if self.top:
            self.written[n, j] = step


def first_best(score: Floats) -> tuple[Indices, Floats]:
    """The first neuron of each row whose score (rows, neurons) is the maximum, up to rounding, and its score."""
    j = (score >= score.max(axis=1, keepdims=True) - TIE).argmax(axis=1)
    return j, score[np.arange(len(j)), j]
