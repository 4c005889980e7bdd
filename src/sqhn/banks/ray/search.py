"""A search for the best neurons on all shards."""

from __future__ import annotations

from itertools import count as numbers

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.device import Cpu
from sqhn.banks.cpu.kernels.decision import NONE
from sqhn.banks.interface import Patches
from sqhn.banks.ray.piece import Candidates, Indices
from sqhn.banks.ray.shards import Shards
from sqhn.level import TIE

NAME = "piece"
"""The name of the `Piece` in every shard."""
QUESTIONS = numbers()
"""The numbers of questions."""
Flags = NDArray[np.bool_]
Scores = NDArray[np.float64]


class Search:
    """The best neurons of all shards for some samples, in the order in which the shards named them.

    k, v (batch, named): the named neurons and their similarities. rest (shards, batch): an upper bound for the other
    neurons of each shard. first (shards, batch): the winner of a shard if known; no neuron with a lower index reaches
    its best. outdated: neurons that have changed since, so that the answers do not count for them. count: how many
    neurons the last query asked for; 0: for one that is likely to be the best.
    """

    def __init__(self, shards: Shards, evidence: Patches, count: int) -> None:
        """Send the samples to all shards, without waiting for their answers."""
        self.shards, self.count, self.question = shards, count, next(QUESTIONS)
        batch, self.samples = evidence.x.shape[1], shards.share(evidence)
        self.k, self.v = np.full((batch, 1), NONE), np.full((batch, 1), -np.inf)
        self.rest = np.empty((len(shards), batch))
        self.first, self.best = np.full(self.rest.shape, NONE), np.empty(self.rest.shape)
        self.outdated = np.zeros(0, np.int64)
        self.answers = shards.submit(shards.each(NAME, "near", self.samples, count, self.question))

    def wait(self, outdated: Indices) -> None:
        """Wait for the answers."""
        self.outdated = outdated
        for s, near in self.answers().items():
            self._add(s, np.arange(len(self.k)), near)

    def _add(self, s: int, rows: Indices, near: Candidates) -> None:
        """Add the answer of shard s for some samples, without outdated neurons."""
        k, v = np.full((len(self.k), near.k.shape[1]), NONE), np.full((len(self.k), near.k.shape[1]), -np.inf)
        valid = ~np.isin(near.k, self.outdated)
        k[rows], v[rows] = np.where(valid, near.k, NONE), np.where(valid, near.v, -np.inf)
        self.k, self.v = np.concatenate([self.k, k], 1), np.concatenate([self.v, v], 1)
        self.rest[s, rows], self.first[s, rows] = near.rest, NONE
        self.best[s, rows] = np.maximum(v[rows].max(axis=1, initial=-np.inf), near.rest)
        if self.count == 1 and k.shape[1]:  # k[:, 0] is its winner, unless a named neuron is outdated
            self.first[s, rows] = np.where(valid.all(axis=1), k[rows, 0], NONE)

    @property
    def top(self) -> Scores:
        """The best similarity of a named neuron."""
        return np.asarray(self.v.max(axis=1))

    def reaching(self, samples: Flags, score: Scores | float = -np.inf) -> Indices:
        """The named neurons that reach a score for any of some samples."""
        there = (self.v >= np.reshape(score, (-1, 1)) - TIE) & (self.k != NONE) & samples[:, None]
        return np.unique(self.k[there])

    def open(self, score: Scores, winner: Indices) -> Flags:
        """Which shards may have a neuron that is not named yet and could win instead: (shards, batch).

        A neuron with a higher index than the winner must exceed its score to win.
        """
        ruled_out = (winner <= self.first) & (self.best <= score)
        return np.asarray((self.rest >= score - TIE) & (self.rest > -np.inf) & ~ruled_out)

    def extend(self, score: Scores, winner: Indices, samples: Flags) -> bool:
        """Query the shards where a neuron that is not named could win for more; whether there are such shards."""
        beyond = self.open(score, winner) & samples
        if not beyond.any():
            return False
        self.count = 2 * self.count + 1
        rows = {s: np.flatnonzero(own) for s, own in enumerate(beyond) if own.any()}
        asked = {s: (NAME, "near", self.samples, self.count, self.question, own, score[own]) for s, own in rows.items()}
        for s, near in self.shards.query(asked, bypass=True).items():
            self._add(s, rows[s], near)
        return True

    def top_k(self, count: int) -> tuple[Indices, Scores]:
        """The `count` best named neurons and their similarities: the winner, then the winner of the others ..."""
        order = np.argsort(self.k, axis=1, kind="stable")
        k, v = np.take_along_axis(self.k, order, 1), np.take_along_axis(self.v, order, 1)
        v[:, 1:][(k[:, 1:] == k[:, :-1])] = -np.inf  # named twice
        at, best = Cpu.top_k(v[None], count)
        return np.take_along_axis(k, at[0], 1), best[0]
