"""Who may win: what pieces tell of their best neurons, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import Patches
from sqhn.banks.shards.piece import NONE, Indices, Near
from sqhn.banks.shards.shards import Shards
from sqhn.level import TIE

__all__ = ["NAME", "Neighbours"]

NAME = "piece"
"""Of what a shard holds."""


class Neighbours:
    """What is known of all neurons and the samples of a chunk, from what pieces told of their best.

    k, v: those that they named; left: what no other one of a piece is above. k1, v1: the winner of all. first: the
    winner of a piece, if no other is named: those before it are not as good as its best. blank: samples of which
    nothing was observed. fresh: neurons that have changed since, of which it does not count what pieces say.
    """

    def __init__(
        self,
        shards: Shards,
        evidence: Patches,
        near: Mapping[int, Near],
        fresh: Indices | tuple[()] = (),
        count: int = 1,
    ) -> None:
        self.shards, self.evidence, self.fresh, self.count = shards, evidence, fresh, count
        x, seen = evidence
        found = list(near.values())
        self.blank = () if seen is None else np.flatnonzero(~seen[0].any(axis=1))
        self.k, self.v = np.zeros((x.shape[1], 0), np.int64), np.zeros((x.shape[1], 0))
        self.left = np.stack([one.left for one in found])  # (pieces, batch)
        self.left[:, list(self.blank)] = -np.inf
        self.add(np.arange(x.shape[1]), found)
        self.first = np.full(self.left.shape, NONE)
        self.best = self.left.copy()
        for s, one in enumerate(found):
            if count == 1 and one.k.shape[1]:  # at a glance, others before it may be as good
                there = ~np.isin(one.k[:, 0], fresh)
                self.first[s, there] = one.k[there, 0]
                self.best[s, there] = np.maximum(one.v[there, 0], one.left[there])
        self.k1, self.v1 = np.full(x.shape[1], NONE), np.full(x.shape[1], -np.inf)
        if self.k.shape[1]:
            k, v, _ = self.ranking(1)
            self.k1, self.v1 = k[:, 0], v[:, 0]

    def add(self, rows: Indices, found: Sequence[Near]) -> None:
        """Take in what pieces told of the samples `rows`."""
        for near in found:
            k, v = np.full((len(self.k), near.k.shape[1]), NONE), np.full((len(self.k), near.k.shape[1]), -np.inf)
            changed = np.isin(near.k, self.fresh)
            k[rows], v[rows] = np.where(changed, NONE, near.k), np.where(changed, -np.inf, near.v)
            self.k, self.v = np.concatenate([self.k, k], 1), np.concatenate([self.v, v], 1)

    @property
    def top(self) -> NDArray[np.float64]:
        """The best similarity, as far as it is known."""
        return np.asarray(self.v.max(axis=1, initial=-np.inf))

    def reaching(self, score: NDArray[np.float64], samples: NDArray[np.bool_]) -> Indices:
        """The neurons that are known to be as good as that, for any of some samples that show anything."""
        there = (self.v >= score[:, None] - TIE) & (self.k != NONE) & samples[:, None]
        there[list(self.blank)] = False
        return np.unique(self.k[there])

    def repeated(self, samples: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of some samples, those whose best is that of another one too: it may have changed when they come."""
        own = np.where(samples, self.k1, NONE)
        _, at, many = np.unique(own, return_inverse=True, return_counts=True)
        return np.asarray((many[at] > 1) & samples)

    def known(self, samples: NDArray[np.bool_]) -> Indices:
        """All that are known for some samples."""
        return np.setdiff1d(self.k[samples], [NONE])

    def open(self, score: NDArray[np.float64], winner: Indices) -> NDArray[np.bool_]:
        """Which pieces may have one, not named yet, that could win instead, for each sample.

        Who comes after the winner must be better to win, not as good.
        """
        spared = (winner <= self.first) & (self.best <= score)
        return np.asarray((self.left >= score - TIE) & (self.left > -np.inf) & ~spared)

    def ask_further(self, score: NDArray[np.float64], winner: Indices, samples: NDArray[np.bool_]) -> bool:
        """Ask pieces for more where one that they did not name could win; whether there was anything to ask for."""
        beyond = self.open(score, winner) & samples
        if not beyond.any():
            return False
        self.count = 2 * self.count + 1
        rows = {s: np.flatnonzero(beyond[s]) for s in range(len(beyond)) if beyond[s].any()}
        x, seen = self.evidence
        asked = {
            s: (NAME, "near", Patches(x[:, own], None if seen is None else seen[:, own]), self.count)
            for s, own in rows.items()
        }
        for s, near in self.shards.ask(asked, aside=True).items():  # of fresh ones it does not matter what they say
            self.left[s, rows[s]], self.first[s, rows[s]] = near.left, NONE
            self.add(rows[s], [near])
        return True

    def ranking(self, count: int) -> tuple[Indices, NDArray[np.float64], NDArray[np.float64]]:
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
