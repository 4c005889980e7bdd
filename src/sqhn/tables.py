"""Rows of a table in a memory, and what rows like one say about it: the ground of `sqhn.sklearn` and `sqhn.river`.

Rows are compared by their differences, column by column, in one level of neurons; a value that is missing is NaN. Two
rows differ by the mean over all columns of the squared difference, and where one of them has no value, of the variance
of that column: as much as its mean would be off. Without that, rows that have next to nothing in common would be the
nearest of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_count, check_word
from sqhn.door import as_numpy, parts
from sqhn.level import Level
from sqhn.memory import Written
from sqhn.network import SQHN

__all__ = ["Like", "Rows", "Weights", "WhenFull", "as_rows", "check_neighbors"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Weights = Literal["distance", "uniform"]
WhenFull = Literal["average", "overwrite", "oldest", "freeze"]

WIDER = 4
"""Where rows with holes were learned, so many times the neurons asked for are looked at: a memory ranks by what a row
and a neuron both have."""
SHARPNESS = 4.0
"""Weights by distance are a Gaussian whose variance is the mean squared distance over twice this."""
MOST = 1 << 22
"""Values of rows that are looked at together."""


def as_rows(x: Any) -> Any:
    """What holds rows, with NaN for masked values, and as an array if it is a tensor; anything else as it is."""
    if isinstance(x, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(x), np.nan, x.data) if np.ma.is_masked(x) else x.data
    return as_numpy(x) if hasattr(x, "detach") else x


class Like(NamedTuple):
    """For each row the neurons most like it, the most alike first: (rows, neurons).

    apart: the squared difference. x, known: what the neurons have stored, with one more axis. votes: how often each
    value was said about the samples of each neuron, None where nothing was.
    """

    apart: Floats
    x: NDArray[np.float32]
    known: Flags
    votes: list[list[list[tuple[Any, int]]]] | None


class Rows:
    """A memory for rows with holes, and the mean and variance of every column so far."""

    def __init__(self, columns: int, capacity: int, when_full: WhenFull) -> None:
        self.memory = SQHN((columns,), [Level(capacity=capacity, when_full=when_full)], similarity="euclidean")
        self.seen: NDArray[np.int64] = np.zeros(columns, np.int64)
        self.mean: Floats = np.zeros(columns)
        self._squares: Floats = np.zeros(columns)
        self.holes = False

    @property
    def variance(self) -> Floats:
        """Of every column."""
        return self._squares / np.maximum(self.seen, 1)

    def learn(self, rows: Floats, value: Sequence[Any] | None = None) -> Written | None:
        """Learn rows one after another, but for those without any value; what the memory did, None for nothing."""
        there = ~np.isnan(rows)
        some = there.any(axis=1)
        if not some.all():
            rows, there = rows[some], there[some]
            value = None if value is None else [value[i] for i in np.flatnonzero(some).tolist()]
        if not len(rows):
            return None
        whole = bool(there.all())
        written = self.memory.learn(rows, observed=None if whole else there, value=value)
        self.holes = self.holes or not whole
        self._describe(rows, there)
        return written

    def _describe(self, rows: Floats, there: Flags) -> None:
        """Take rows into the mean and variance of the columns, as if one after another."""
        count = there.sum(axis=0)
        mean = np.where(there, rows, 0).sum(axis=0) / np.maximum(count, 1)
        squares = np.where(there, rows - mean, 0) ** 2
        total = self.seen + count
        share = count / np.maximum(total, 1)
        shift = mean - self.mean
        self._squares += squares.sum(axis=0) + shift**2 * self.seen * share
        self.mean += shift * share
        self.seen = total

    def like(self, rows: Floats, count: int) -> Like:
        """The neurons most like each row, of which some value must be there."""
        there = ~np.isnan(rows)
        given = np.where(there, rows, 0.0)
        many = min(len(self.memory), count * (WIDER if self.holes else 1))
        found = self.memory.recall(given, observed=None if there.all() else there, k=many)
        known = np.ones(found.x.shape, bool) if found.known is None else found.known
        both = known & there[:, None]
        apart = np.where(both, (found.x - given[:, None]) ** 2, self.variance).mean(axis=2)
        if not self.holes:  # the memory's order is that of `apart`
            return Like(apart, found.x, known, found.values)
        order = np.argsort(apart, axis=1, kind="stable")
        x, known = (np.take_along_axis(field, order[:, :, None], axis=1) for field in (found.x, known))
        votes = found.values and [[own[i] for i in best] for own, best in zip(found.values, order.tolist())]
        return Like(np.take_along_axis(apart, order, axis=1), x, known, votes)

    def filled(self, rows: Floats, count: int, weights: Weights) -> Floats:
        """The rows with missing values from the nearest `count` neurons that know them; of no other, columns' means.

        What no row ever had stays NaN.
        """
        out = rows.copy()
        holes = np.isnan(rows)
        ask = np.flatnonzero(holes.any(axis=1) & ~holes.all(axis=1))
        if len(self.memory):
            for part in parts(len(ask), max(1, MOST // (count * WIDER * rows.shape[1]))):
                out[ask[part]] = self._filled(rows[ask[part]], count, weights)
        means = np.where(self.seen > 0, self.mean, np.nan)
        return np.where(np.isnan(out), means, out)

    def _filled(self, rows: Floats, count: int, weights: Weights) -> Floats:
        like = self.like(rows, count)
        used = like.known & (np.cumsum(like.known, axis=1) <= count)
        weight = weighted(np.broadcast_to(like.apart[:, :, None], used.shape), used, weights)
        total = weight.sum(axis=1)
        with np.errstate(invalid="ignore"):
            found = np.where(used, weight * like.x, 0).sum(axis=1) / total  # NaN where nobody knows
        return np.where(np.isnan(rows), found, rows)

    def votes(self, rows: Floats, count: int, weights: Weights, values: int) -> Floats:
        """(rows, values): what the samples of the nearest neurons say, each with the weight of its neuron.

        Values are numbers below `values`. Of a row without any value, nothing.
        """
        out = np.zeros((len(rows), values))
        ask = np.flatnonzero(~np.isnan(rows).all(axis=1))
        for part in parts(len(ask) if len(self.memory) else 0, max(1, MOST // (count * WIDER * rows.shape[1]))):
            like = self.like(rows[ask[part]], count)
            near = like.apart[:, :count]
            weight = weighted(near, np.ones(near.shape, bool), weights)
            for row, own, heard in zip(ask[part], weight, like.votes or []):
                for share, said in zip(own, heard):
                    for value, times in said:
                        out[row, value] += share * times
        return out

    def widened(self, columns: int) -> Self:
        """The same with room for more columns, of which nothing is known."""
        more = columns - len(self.seen)
        state = self.memory.__getstate__()
        header, tensors = state["header"], dict(state["tensors"])
        known = tensors.get("level1.known", np.repeat(tensors["level1.c"][:, None], len(self.seen), axis=1))
        tensors["level1.known"] = np.pad(known.astype(np.int32), ((0, 0), (0, more)))
        tensors["level1.prototypes"] = np.pad(tensors["level1.prototypes"], ((0, 0), (0, more)))
        features = sorted({*header["features"], "holes"})
        wider = type(self).__new__(type(self))
        wider.memory = SQHN.__new__(SQHN)
        changed = {"input_shape": [columns], "features": features}
        wider.memory.__setstate__({**state, "header": {**header, **changed}, "tensors": tensors})
        wider.seen, wider.mean = np.pad(self.seen, (0, more)), np.pad(self.mean, (0, more))
        wider._squares = np.pad(self._squares, (0, more))
        wider.holes = True
        return wider


def weighted(apart: Floats, used: Flags, weights: Weights) -> Floats:
    """The weights of neurons (rows, neurons, ...) by their squared differences; 0 for those that are not used.

    By distance they fall as a Gaussian around the row, whose width is a share of the distance of those that are used:
    wide where all are far.
    """
    if weights == "uniform":
        return used.astype(np.float64)
    count = np.maximum(used.sum(axis=1, keepdims=True), 1)
    nearest = np.where(used, apart, np.inf).min(axis=1, keepdims=True)
    mean = np.where(used, apart, 0).sum(axis=1, keepdims=True) / count
    farther = np.where(used, apart - np.where(np.isfinite(nearest), nearest, 0), 0)
    return np.where(used, np.exp(-SHARPNESS * farther / np.where(mean > 0, mean, 1)), 0)


def check_neighbors(n_neighbors: int, weights: str) -> None:
    """Raise if these are not what they should be."""
    check_count("n_neighbors", n_neighbors)
    check_word("weights", weights, get_args(Weights))
