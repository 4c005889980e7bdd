"""Who may win: what pieces tell of their best neurons, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.ray.piece import NONE, Candidates, FollowUp, Indices
from sqhn.banks.ray.shards import Asked, Shards, Shared
from sqhn.level import TIE

__all__ = ["NAME", "Neighbours", "Question"]

NAME = "piece"
"""Of what a shard holds."""
Flags = NDArray[np.bool_]
Scores = NDArray[np.float64]


class Question(NamedTuple):
    """Samples that are shown to all pieces, which look for so many of their `best`; it has a number.

    blank: those of which nothing was observed.
    """

    number: int
    shared: Shared
    best: int
    blank: Indices
    asked: Asked


class Neighbours:
    """What is known of all neurons and the samples of a chunk, from what pieces told of their best.

    k, v: those that they named; left: what no other one of a piece is above. first: the winner of a piece, if it told:
    those before it are not as good as its best. fresh: neurons that have changed since, of which it does not count what
    pieces say. count: for how many of their best they were asked last; 0: for one that may be, at a glance.
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
        """Take in what a piece told of some samples; of fresh neurons it does not matter what it says."""
        k, v = np.full((len(self.k), near.k.shape[1]), NONE), np.full((len(self.k), near.k.shape[1]), -np.inf)
        there = ~np.isin(near.k, self.fresh)
        k[rows], v[rows] = np.where(there, near.k, NONE), np.where(there, near.v, -np.inf)
        self.k, self.v = np.concatenate([self.k, k], 1), np.concatenate([self.v, v], 1)
        self.left[s, rows], self.first[s, rows] = near.rest, NONE
        self.best[s, rows] = np.maximum(v[rows].max(axis=1, initial=-np.inf), near.rest)
        if self.count == 1 and k.shape[1]:  # the winner among all that it named, if they all count
            self.first[s, rows] = np.where(there.all(axis=1), k[rows, 0], NONE)

    @property
    def top(self) -> Scores:
        """The best similarity, as far as it is known."""
        return np.asarray(self.v.max(axis=1, initial=-np.inf))

    def winner(self) -> tuple[Indices, Scores]:
        """The best of all, as far as they are known, and its similarity."""
        if not self.k.shape[1]:
            return np.full(len(self.k), NONE), np.full(len(self.k), -np.inf)
        k, v, _ = self.top_k(1)
        return k[:, 0], v[:, 0]

    def reaching(self, score: Scores, samples: Flags) -> Indices:
        """The neurons that are known to be as good as that, for any of some samples that show anything."""
        there = (self.v >= score[:, None] - TIE) & (self.k != NONE) & samples[:, None]
        there[self.blank] = False
        return np.unique(self.k[there])

    def known(self, samples: Flags) -> Indices:
        """All that are known for some samples."""
        return np.setdiff1d(self.k[samples], [NONE])

    def open(self, score: Scores, winner: Indices) -> Flags:
        """Which pieces may have one, not named yet, that could win instead, for each sample.

        Who comes after the winner must be better to win, not as good.
        """
        spared = (winner <= self.first) & (self.best <= score)
        return np.asarray((self.left >= score - TIE) & (self.left > -np.inf) & ~spared)

    def ask_further(self, score: Scores, winner: Indices, samples: Flags) -> bool:
        """Ask pieces for more where one that they did not name could win; whether there was anything to ask for."""
        beyond = self.open(score, winner) & samples
        if not beyond.any():
            return False
        self.count = 2 * self.count + 1
        number, shared, *_ = self.question
        rows = {s: np.flatnonzero(beyond[s]) for s in range(len(beyond)) if beyond[s].any()}
        asked = {}
        for s, own in rows.items():
            asked[s] = (NAME, "near_again", shared, self.count, FollowUp(number, own, score[own]))
        for s, near in self.shards.ask(asked, aside=True).items():
            self._take(s, rows[s], near)
        return True

    def top_k(self, count: int) -> tuple[Indices, Scores, Scores]:
        """So many of the best of those that are known, and what was the highest when each was taken."""
        order = np.argsort(self.k, axis=1, kind="stable")
        k, v = np.take_along_axis(self.k, order, 1), np.take_along_axis(self.v, order, 1)
        v[:, 1:][(k[:, 1:] == k[:, :-1])] = -np.inf  # was told of twice
        rows, best, value, highest = np.arange(len(k)), [], [], []
        for _ in range(count):
            top = v.max(axis=1)
            at = (v >= top[:, None] - TIE).argmax(axis=1)
            best.append(k[rows, at])
            value.append(v[rows, at].copy())
            highest.append(top)
            v[rows, at] = -np.inf
        return np.stack(best, 1), np.stack(value, 1), np.stack(highest, 1)
