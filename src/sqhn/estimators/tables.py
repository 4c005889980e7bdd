"""Rows of a table in a memory, and what rows like one say about it: the ground of `sqhn.sklearn` and `sqhn.river`.

Rows are compared by their differences, column by column, in one level of neurons; a value that is missing is NaN. Two
rows differ by the mean over all columns of the squared difference, and where one of them has no value, of the variance
of that column: as much as its mean would be off. Without that, rows that have next to nothing in common would be the
nearest of all.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_count, check_word
from sqhn.inputs import as_numpy, batches
from sqhn.level import Level
from sqhn.memory import SQHN
from sqhn.protocol import Written

__all__ = ["Floats", "Like", "Rows", "Weights", "WhenFull", "as_rows", "check_neighbors"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Weights = Literal["distance", "uniform"]
WhenFull = Literal["average", "overwrite", "oldest", "freeze"]

SHARPNESS = 4.0
"""Weights by distance are a Gaussian whose variance is the mean squared distance over twice this."""
WIDER = 4
"""So many times the neurons that a missing value comes from are looked at, before all are."""
MOST = 1 << 22
"""Values that are looked at together."""
LARGE = 1e6
"""Values beyond this are warned of: they are stored with seven digits, and matches of far rows are hard to tell."""


def as_rows(x: Any) -> Any:
    """What holds rows, with NaN for masked values, and as an array if it is a tensor; anything else as it is."""
    kinds = getattr(x, "dtypes", None)  # of the columns of a frame
    kinds = [getattr(x, "dtype", None)] if kinds is None else list(kinds)
    if dates := [str(kind) for kind in kinds if str(kind).lower().startswith(("date", "time", "<m8", "duration"))]:
        raise TypeError(f"dates and times have no scale ({dates[0]}): give numbers, say days since a first one")
    if isinstance(x, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(x), np.nan, x.data) if np.ma.is_masked(x) else x.data
    return as_numpy(x) if hasattr(x, "detach") else x


def check_neighbors(n_neighbors: int, weights: str) -> None:
    """Raise if these are not what they should be."""
    check_count("n_neighbors", n_neighbors)
    check_word("weights", weights, get_args(Weights))


class Like(NamedTuple):
    """For each row the neurons most like it, the most alike first: their numbers, and the squared difference."""

    neurons: NDArray[np.int64]
    apart: Floats


class Rows:
    """A memory for rows, and the mean and variance of every column so far.

    holes: what is missing in rows that are learned stays unknown; else it is taken for the mean of its column so far.
    torn: something is unknown.

    Every row that is not there already takes a neuron, until there are `capacity` of them.
    """

    def __init__(self, columns: int, capacity: int, when_full: WhenFull, holes: bool = True) -> None:
        level = Level(capacity=capacity, when_full=when_full, alpha=math.inf)
        self.memory = SQHN((columns,), [level], similarity="euclidean")
        self.seen: NDArray[np.int64] = np.zeros(columns, np.int64)
        self.mean: Floats = np.zeros(columns)
        self._squares: Floats = np.zeros(columns)
        self.holes, self.torn = holes, False

    @property
    def variance(self) -> Floats:
        """Of every column."""
        return self._squares / np.maximum(self.seen, 1)

    def learn(self, rows: Floats, value: Sequence[Any] | None = None) -> Written | None:
        """Learn rows one after another, but for those without any value; what the memory did, None for nothing."""
        rows = np.asarray(rows, np.float64)
        some = ~np.isnan(rows).all(axis=1)
        if not some.all():
            rows, value = rows[some], None if value is None else [value[i] for i in np.flatnonzero(some).tolist()]
        if not len(rows):
            return None
        there = ~np.isnan(rows)
        if np.nanmax(np.abs(rows)) > LARGE:
            warnings.warn(
                f"values of up to {np.nanmax(np.abs(rows)):.3g}: rows are compared as they are, and stored in float32; "
                "scale them first, for instance with a StandardScaler",
                stacklevel=4,
            )
        given = rows if there.all() else np.where(there, rows, 0.0) if self.holes else self.whole(rows, learning=True)
        written = self.memory.learn(given, observed=there if self.holes and not there.all() else None, value=value)
        self.torn = self.torn or (self.holes and not there.all())
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

    def whole(self, rows: Floats, learning: bool = False) -> Floats:
        """Rows with the means of columns for what is missing; learning: each with the means as they are before it."""
        there = ~np.isnan(rows)
        if there.all():
            return rows
        mean, count = self.mean, self.seen
        if learning:
            before = np.cumsum(there, axis=0) - there
            sums = np.cumsum(np.where(there, rows - mean, 0.0), axis=0) - np.where(there, rows - mean, 0.0)
            mean = mean + sums / np.maximum(count + before, 1)
        return np.where(there, rows, mean)

    def like(self, rows: Floats, count: int) -> Like:
        """The neurons most like each row, of which some value must be there; no more than there are."""
        count = min(count, len(self.memory))
        if not self.torn:
            there = ~np.isnan(rows)
            given = np.where(there, rows, 0.0)
            found = self.memory.recall(given, None if there.all() else there, k=count)
            squares = np.where(there[:, None], found.x - given[:, None], 0.0) ** 2
            unknown = np.where(there, 0.0, self.variance).mean(axis=1, keepdims=True)
            return Like(found.index.astype(np.int64), squares.mean(axis=2) + unknown)
        stored, known = self.memory.prototypes.astype(np.float64), self.memory.known
        done = [_nearest(self.apart(rows[part], stored, known), count) for part in self._parts(len(rows), len(stored))]
        return Like(*map(np.concatenate, zip(*done)))

    @staticmethod
    def _parts(rows: int, values: int) -> Iterator[slice]:
        """Rows in parts, so many that all their values can be looked at together."""
        return batches(rows, max(1, MOST // values))

    def apart(self, rows: Floats, stored: Floats, known: Flags) -> Floats:
        """The squared difference of rows and all neurons, (rows, neurons); infinite for those that were forgotten."""
        there, variance = ~np.isnan(rows), self.variance
        x, m = np.where(there, rows - self.mean, 0.0), np.where(known, stored - self.mean, 0.0)
        both = there.astype(np.float64)
        k = known.astype(np.float64)
        squares = x**2 @ k.T - 2 * x @ m.T + both @ (m**2).T
        unknown = variance.sum() - (both * variance) @ k.T
        found = (np.maximum(squares, 0.0) + np.maximum(unknown, 0.0)) / rows.shape[1]
        return np.where(known.any(axis=1), found, np.inf)

    def filled(self, rows: Floats, count: int, weights: Weights) -> Floats:
        """The rows with missing values from the nearest `count` neurons that know them; of no other, columns' means.

        What no row ever had stays NaN.
        """
        out = rows.copy()
        holes = np.isnan(rows)
        ask = np.flatnonzero(holes.any(axis=1) & ~holes.all(axis=1))
        if len(self.memory):
            stored, known = self.memory.prototypes.astype(np.float64), self.memory.known
            wide = min(len(stored), count * WIDER)
            for part in self._parts(len(ask), max(len(stored), wide * rows.shape[1])):
                out[ask[part]] = self._filled(rows[ask[part]], count, weights, stored, known, wide)
        means = np.where(self.seen > 0, self.mean, np.nan)
        return np.where(np.isnan(out), means, out)

    def _filled(self, rows: Floats, count: int, weights: Weights, stored: Floats, known: Flags, wide: int) -> Floats:
        every = self.apart(rows, stored, known)
        index, apart = _nearest(every, wide)
        able = known[index]
        used = able & (np.cumsum(able, axis=1) <= count)
        weight = weighted(np.broadcast_to(apart[:, :, None], used.shape), used, weights)
        with np.errstate(invalid="ignore"):
            found = np.where(used, weight * stored[index], 0.0).sum(axis=1) / weight.sum(axis=1)
        out = np.where(np.isnan(rows), found, rows)
        short = np.isnan(rows) & (used.sum(axis=1) < np.minimum(count, known.sum(axis=0)))
        for j in np.flatnonzero(short.any(axis=0)):  # of what few know, and not those nearby
            knowing, asking = np.flatnonzero(known[:, j]), np.flatnonzero(short[:, j])
            place, near = _nearest(every[np.ix_(asking, knowing)], min(count, len(knowing)))
            weight = weighted(near, np.ones(near.shape, bool), weights)
            out[asking, j] = (weight * stored[knowing[place], j]).sum(axis=1) / weight.sum(axis=1)
        return out

    def votes(self, rows: Floats, count: int, weights: Weights, values: int) -> Floats:
        """(rows, values): what the samples of the nearest neurons say, each with the weight of its neuron.

        Values are numbers below `values`. Of a row without any value, nothing.
        """
        out = np.zeros((len(rows), values))
        ask = np.flatnonzero(~np.isnan(rows).all(axis=1))
        if not len(ask) or not len(self.memory):
            return out
        index, apart = self.like(rows[ask], count)
        weight = weighted(apart, np.isfinite(apart), weights)
        heard = np.unique(index).tolist()
        said = dict(zip(heard, self.memory.values(heard)))
        for row, own, neurons in zip(ask, weight, index.tolist()):
            for share, j in zip(own, neurons):
                for value, times in said[j]:
                    out[row, value] += share * times
        return out

    def widened(self, first: Floats) -> Self:
        """The same with more columns, of which nothing is known; or, without holes, all is these first values."""
        more, old = len(first), len(self.seen)
        state = self.memory.__getstate__()
        header, tensors = {**state["header"], "input_shape": [old + more]}, dict(state["tensors"])
        stored = tensors["level1.prototypes"]
        if self.holes:
            known = tensors.get("level1.known", np.repeat(tensors["level1.c"][:, None], old, axis=1))
            tensors["level1.known"] = np.pad(known.astype(np.int32), ((0, 0), (0, more)))
            header["features"] = sorted({*header["features"], "holes"})
        new = np.zeros((len(stored), more)) if self.holes else np.repeat(first[None], len(stored), axis=0)
        tensors["level1.prototypes"] = np.concatenate([stored, new], axis=1, dtype=np.float32)
        wider = type(self).__new__(type(self))
        wider.memory = SQHN.__new__(SQHN)
        wider.memory.__setstate__({**state, "header": header, "tensors": tensors})
        wider.seen, wider.mean = np.pad(self.seen, (0, more)), np.pad(self.mean, (0, more))
        wider._squares, wider.holes, wider.torn = np.pad(self._squares, (0, more)), self.holes, self.holes
        return wider


def _nearest(apart: Floats, count: int) -> tuple[NDArray[np.int64], Floats]:
    """The `count` least of every row, ascending, the first of equals first: where they are, and what."""
    if count < apart.shape[1]:
        last = np.partition(apart, count - 1, axis=1)[:, count - 1 : count]
        apart = np.where(apart <= last, apart, np.inf)  # of several that equal the last, the first
    index = np.argsort(apart, axis=1, kind="stable")[:, :count]
    return index, np.take_along_axis(apart, index, axis=1)


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
