"""The candidates for winning, from the best neurons of all pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.kernels.decision import NONE
from sqhn.banks.ray.piece import Candidates, FollowUp, Indices
from sqhn.banks.ray.shards import Shards, Shared, Submitted
from sqhn.level import TIE

NAME = "piece"
"""The name of the piece in every shard."""
Flags = NDArray[np.bool_]
Scores = NDArray[np.float64]


class Question(NamedTuple):
    """A query for the `best` neurons of all pieces for some samples, with a number to refer to it.

    blank: the samples without observed values.
    """

    number: int
    shared: Shared
    best: int
    blank: Indices
    asked: Submitted


class Neighbours:
    """What the pieces' answers say about all neurons, for the samples of a part of a chunk.

    k, v (batch, named): the named neurons and their similarities. left (pieces, batch): an upper bound on the others of
    each piece. first (pieces, batch): the winner of a piece if known; no neuron with a lower index reaches its best.
    fresh: neurons that have changed since, so that the answers do not count for them. count: how many neurons the last
    query asked for; 0: for one that is likely to be the best.
    """

    def __init__(
        self, shards: Shards, question: Question, near: Mapping[int, Candidates], fresh: Indices | tuple[()] = ()
    ) -> None:
        self.shards, self.question, self.fresh, self.count = shards, question, fresh, question.best
        self.blank = question.blank
        batch = len(next(iter(near.values())).rest)
        self.k, self.v = np.zeros((batch, 0), np.int64), np.zeros((batch, 0))
        self.left = np.empty((len(near), batch))
        self.first, self.best = np.full(self.left.shape, NONE), np.empty(self.left.shape)
        for s, one in near.items():
            self._take(s, np.arange(batch), one)
        self.left[:, self.blank] = -np.inf

    def _take(self, s: int, rows: Indices, near: Candidates) -> None:
        """Add the answer of piece s for some samples, without fresh neurons."""
        k, v = np.full((len(self.k), near.k.shape[1]), NONE), np.full((len(self.k), near.k.shape[1]), -np.inf)
        there = ~np.isin(near.k, self.fresh)
        k[rows], v[rows] = np.where(there, near.k, NONE), np.where(there, near.v, -np.inf)
        self.k, self.v = np.concatenate([self.k, k], 1), np.concatenate([self.v, v], 1)
        self.left[s, rows], self.first[s, rows] = near.rest, NONE
        self.best[s, rows] = np.maximum(v[rows].max(axis=1, initial=-np.inf), near.rest)
        if self.count == 1 and k.shape[1]:  # k[:, 0] is the winner of the piece, unless a named neuron is fresh
            self.first[s, rows] = np.where(there.all(axis=1), k[rows, 0], NONE)

    @property
    def top(self) -> Scores:
        """The best similarity of a named neuron."""
        return np.asarray(self.v.max(axis=1, initial=-np.inf))

    def winner(self) -> tuple[Indices, Scores]:
        """The best named neuron, and its similarity."""
        if not self.k.shape[1]:
            return np.full(len(self.k), NONE), np.full(len(self.k), -np.inf)
        k, v, _ = self.top_k(1)
        return k[:, 0], v[:, 0]

    def reaching(self, score: Scores, samples: Flags) -> Indices:
        """The named neurons that reach a score for any of some samples, except blank ones."""
        there = (self.v >= score[:, None] - TIE) & (self.k != NONE) & samples[:, None]
        there[self.blank] = False
        return np.unique(self.k[there])

    def known(self, samples: Flags) -> Indices:
        """All neurons named for some samples."""
        return np.setdiff1d(self.k[samples], [NONE])

    def open(self, score: Scores, winner: Indices) -> Flags:
        """Which pieces may have a neuron that is not named yet and could win instead: (pieces, batch).

        A neuron with a higher index than the winner must exceed its score to win.
        """
        spared = (winner <= self.first) & (self.best <= score)
        return np.asarray((self.left >= score - TIE) & (self.left > -np.inf) & ~spared)

    def query_further(self, score: Scores, winner: Indices, samples: Flags) -> bool:
        """Query for more neurons the pieces where one that is not named could win; whether there are such pieces."""
        beyond = self.open(score, winner) & samples
        if not beyond.any():
            return False
        self.count = 2 * self.count + 1
        number, shared, *_ = self.question
        rows = {s: np.flatnonzero(beyond[s]) for s in range(len(beyond)) if beyond[s].any()}
        asked = {
            s: (NAME, "near_again", shared, self.count, FollowUp(number, own, score[own])) for s, own in rows.items()
        }
        for s, near in self.shards.query(asked, bypass=True).items():
            self._take(s, rows[s], near)
        return True

    def top_k(self, count: int) -> tuple[Indices, Scores, Scores]:
        """The `count` best named neurons, their similarities, and the maximum among those left at each choice."""
        order = np.argsort(self.k, axis=1, kind="stable")
        k, v = np.take_along_axis(self.k, order, 1), np.take_along_axis(self.v, order, 1)
        v[:, 1:][(k[:, 1:] == k[:, :-1])] = -np.inf  # named twice
        rows, best, value, highest = np.arange(len(k)), [], [], []
        for _ in range(count):
            top = v.max(axis=1)
            at = (v >= top[:, None] - TIE).argmax(axis=1)
            best.append(k[rows, at])
            value.append(v[rows, at].copy())
            highest.append(top)
            v[rows, at] = -np.inf
        return np.stack(best, 1), np.stack(value, 1), np.stack(highest, 1)
