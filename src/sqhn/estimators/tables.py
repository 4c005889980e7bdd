"""A memory for the rows of a table, and what similar rows tell about one: the core of `sqhn.sklearn` and `sqhn.river`.

The distance of two rows is the mean over all columns of the squared difference; missing values are NaN. Where one of
the rows has no value, the variance of the column stands for the difference, which is the expected error of its mean.
Otherwise rows that share hardly any columns would be the nearest of all.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_count, check_word
from sqhn.inputs import LARGEST, as_numpy, batches, join_batches
from sqhn.level import Level
from sqhn.memory import SQHN
from sqhn.protocol import Written

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Weights = Literal["distance", "uniform"]
WhenFull = Literal["average", "overwrite", "oldest", "freeze"]

NUMBERS = "biufc"
"""The kinds of NumPy dtypes that are numbers; scikit-learn refuses complex ones."""
ENCODE = "encode it, for instance with OneHotEncoder, or convert it to numbers"
NO_SCALE = "which have no scale: give numbers, such as days since the first date"

SHARPNESS = 4.0
"""Weights by distance are a Gaussian; its variance is the mean squared distance divided by twice this number."""
POOL = 4
"""A missing value is first searched among this many times `n_neighbors` neurons, then among all."""
BLOCK_VALUES = 1 << 22
"""The number of values that are compared at a time."""
SMALLEST_BLOCK = 200
"""The smallest number of rows that are compared with earlier ones to find a drift."""
DRIFTS = (
    'the rows drift: they differ more and more from the first ones, and when_full="average" averages new rows with old '
    'ones; if recent rows matter most, use when_full="oldest"'
)
LARGE_VALUE = 1e6
"""Larger values raise a warning: they are stored with seven digits, and the matches of far rows are hard to tell."""


def as_rows(x: Any) -> Any:
    """A table with NaN for masked values, and as an array if it is a tensor; anything else unchanged.

    Raises an error that names the column if one has words, dates or other objects that are not numbers.
    """
    if hasattr(x, "detach"):
        return as_numpy(x)
    columns: Iterable[tuple[Any, Any]] = []
    if hasattr(x, "iter_columns"):  # a frame of polars
        columns = zip(x.columns, x.iter_columns())
    elif hasattr(x, "columns") and hasattr(x, "items"):  # of pandas
        columns = x.items()
    elif isinstance(x, np.ndarray) and x.ndim == 2 and x.dtype.kind not in NUMBERS:
        columns = enumerate(x.T)
    elif isinstance(x, (list, tuple)) and (array := np.asarray(x)).ndim == 2 and array.dtype.kind not in NUMBERS:
        columns = enumerate(np.array(x, object).T)  # `array` may be text because of another column
    for name, column in columns:
        check_numbers(f"column {name!r}", column)
    if isinstance(x, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(x), np.nan, x.data) if np.ma.is_masked(x) else x.data
    return x


def check_numbers(name: str, column: Any, advice: str = ENCODE) -> None:
    """Raise if a column has anything but numbers and missing values; advice: for words."""
    kind = getattr(column.dtype, "kind", "O")  # polars has no kinds
    if kind in NUMBERS:
        return
    if kind in "mM" or str(column.dtype).startswith(("Date", "Time", "Duration", "date", "time", "duration")):
        raise TypeError(f"{name} has dates or times ({column.dtype}), {NO_SCALE}")
    values = np.asarray(column)
    if values.dtype.kind not in NUMBERS:
        for value in values.tolist():
            as_number(name, value, advice)


def as_number(name: str, value: Any, advice: str) -> float:
    """A value as a float, NaN if it is None; advice: for words."""
    if isinstance(value, (str, bytes)):
        raise ValueError(f"{name} has words ({value!r}): {advice}")
    if isinstance(value, (date, timedelta, np.datetime64, np.timedelta64)):
        raise TypeError(f"{name} has dates or times ({value!r}), {NO_SCALE}")
    try:
        number = math.nan if value is None else float(value)
    except OverflowError as error:  # an int beyond all floats
        raise ValueError(f"{name} has {Decimal(int(value)):.3g}: beyond +-{LARGEST:g}") from error
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} has {value!r}: {error}") from error
    if abs(number) > LARGEST:
        raise ValueError(f"{name} has {number}: beyond +-{LARGEST:g}")
    return number


def check_neighbors(n_neighbors: int, weights: str) -> None:
    """Raise unless both parameters are valid."""
    check_count("n_neighbors", n_neighbors)
    check_word("weights", weights, get_args(Weights))


class Drift:
    """Whether a stream drifts, judged by blocks of `size` rows.

    The deviation of a row is the mean squared difference from the means of the first block, in its variances. One in
    ten rows of the second block deviates more than `limit`. The stream drifts if most rows of a later block do.
    """

    def __init__(self, size: int) -> None:
        self.size, self.blocks, self.left = size, 0, size
        self.deviations: list[float] = []  # in the present block
        self.mean: Floats = np.zeros(0)
        self.variance: Floats = np.zeros(0)
        self.limit, self.found = 0.0, False

    def add(self, rows: Floats, known: Flags, mean: Floats, variance: Floats) -> None:
        """At most `left` rows; mean, variance: of the columns, with these rows."""
        if self.blocks:
            first = slice(len(self.mean))  # columns that are newer have no mean
            squares = np.where(known[:, first], rows[:, first] - self.mean, 0.0) ** 2 / self.variance
            self.deviations += (squares.sum(axis=1) / np.maximum(known[:, first].sum(axis=1), 1)).tolist()
        self.left -= len(rows)
        if self.left:
            return
        if self.blocks == 0:
            self.mean, self.variance = mean, np.where(variance > 0, variance, 1.0)
        elif self.blocks == 1:
            self.limit = float(np.quantile(self.deviations, 0.9))
        else:
            self.found |= bool(np.mean(np.array(self.deviations) > self.limit) > 0.5)
        self.blocks, self.left, self.deviations = self.blocks + 1, self.size, []


class RowMemory:
    """A memory for rows, and the mean and variance of every column so far.

    holes: missing values of learned rows stay unknown; otherwise they are filled with the mean of their column so far.
    has_unknown: some stored values are unknown.

    Every row that is not stored yet takes a neuron, until there are `capacity` neurons.
    """

    def __init__(self, columns: int, capacity: int, when_full: WhenFull, holes: bool = True) -> None:
        level = Level(capacity=capacity, when_full=when_full, alpha=math.inf)
        self.memory = SQHN((columns,), [level], similarity="euclidean")
        self.count: NDArray[np.int64] = np.zeros(columns, np.int64)
        self.mean: Floats = np.zeros(columns)
        self.squares: Floats = np.zeros(columns)
        self.holes, self.has_unknown = holes, False
        self.votes_of: dict[int, Floats] = {}  # of every neuron: the sums of the votes of its samples
        self.drift = Drift(max(capacity, SMALLEST_BLOCK)) if when_full == "average" else None
        self.notes: list[str] = []  # warnings to come

    @property
    def variance(self) -> Floats:
        """Of every column."""
        return self.squares / np.maximum(self.count, 1)

    def learn(self, rows: Floats, votes: Floats | None = None) -> Written | None:
        """Learn rows one after another, except those without any value; None if all are.

        Rows may have more columns than before. votes (rows, votes): each row adds its votes to those of its neuron;
        there may be more of them than before.
        """
        some = ~np.isnan(rows).all(axis=1)
        rows = np.asarray(rows[some], np.float64)
        if not len(rows):
            return None
        known = ~np.isnan(rows)
        if new := rows.shape[1] - len(self.count):
            first = known[:, -new:].argmax(axis=0)  # the first row that knows each new column
            self.add_columns(np.nan_to_num(rows[first, np.arange(-new, 0)]))
        stored = len(self.memory)
        if known.all() or not self.holes:
            written = self.memory.learn(self.with_means(rows, learning=True))
        else:
            written = self.memory.learn(np.where(known, rows, 0.0), observed=known)
            self.has_unknown = True
        if votes is not None:
            self._add_votes(written, votes[some], stored)
        self._update_columns(rows, known)
        if (largest := np.nanmax(np.abs(rows))) > LARGE_VALUE:
            self.notes.append(
                f"values of up to {largest:.3g}: rows are compared as they are, and stored in float32; "
                "scale them first, for instance with a StandardScaler"
            )
        return written

    def _add_votes(self, written: Written, votes: Floats, stored: int) -> None:
        """Add votes to those of the neurons that learned the rows; stored: how many neurons there were before."""
        (level,) = self.memory.levels
        neurons = stored + np.cumsum(written.grew) - written.grew
        none = np.zeros(0)
        for j, new, used, one in zip(written.index.tolist(), written.grew.tolist(), neurons.tolist(), votes):
            if level.when_full != "freeze" or used < level.capacity:
                self.votes_of[j] = added(one, none if new else self.votes_of.get(j, none))

    def warn(self, stacklevel: int) -> None:
        """Raise the warnings about the rows that were learned, once these are complete."""
        notes, self.notes = self.notes, []
        for note in notes:
            warnings.warn(note, stacklevel=stacklevel)

    def _update_columns(self, rows: Floats, known: Flags) -> None:
        """Update the mean and variance of the columns, as if row by row."""
        while len(rows):
            size = min(len(rows), self.drift.left) if self.drift else len(rows)
            self._update_means(rows[:size], known[:size])
            if self.drift:
                self.drift.add(rows[:size], known[:size], self.mean, self.variance)
                if self.drift.found and len(self.memory) == self.memory.capacity:
                    self.notes.append(DRIFTS)
                    self.drift = None
            rows, known = rows[size:], known[size:]

    def _update_means(self, rows: Floats, known: Flags) -> None:
        count = known.sum(axis=0)
        mean = np.where(known, rows, 0).sum(axis=0) / np.maximum(count, 1)
        squares = np.where(known, rows - mean, 0) ** 2
        total = self.count + count
        share = count / np.maximum(total, 1)
        shift = mean - self.mean
        self.squares = self.squares + squares.sum(axis=0) + shift**2 * self.count * share
        self.mean = self.mean + shift * share
        self.count = total

    def with_means(self, rows: Floats, learning: bool = False) -> Floats:
        """Rows with column means for missing values; learning: each row with the means of all rows before it."""
        known = ~np.isnan(rows)
        if known.all():
            return rows
        mean = self.mean
        if learning:
            shifts = np.where(known, rows - mean, 0.0)
            before, sums = (np.cumsum(each, axis=0) - each for each in (known, shifts))
            mean = mean + sums / np.maximum(self.count + before, 1)
        return np.where(known, rows, mean)

    def neighbors(self, rows: Floats, count: int) -> tuple[NDArray[np.int64], Floats]:
        """The nearest neurons of each row, at most as many as are stored, and their squared distances.

        Each row needs at least one value.
        """
        count = min(count, len(self.memory))
        if not self.has_unknown:
            known = ~np.isnan(rows)
            given = np.where(known, rows, 0.0)
            found = self.memory.recall(given, None if known.all() else known, k=count)
            squares = np.where(known[:, None], found.x - given[:, None], 0.0) ** 2
            unknown = np.where(known, 0.0, self.variance).mean(axis=1, keepdims=True)
            return found.index.astype(np.int64), squares.mean(axis=2) + unknown
        stored, known = self.memory.prototypes.astype(np.float64), self.memory.known
        blocks = _blocks(len(rows), len(stored))
        index, distance = join_batches([_nearest(self.distances(rows[b], stored, known), count) for b in blocks])
        return index, distance

    def distances(self, rows: Floats, stored: Floats, known: Flags) -> Floats:
        """The squared distances of rows and all neurons, (rows, neurons); infinite for forgotten neurons."""
        given, variance = ~np.isnan(rows), self.variance
        x, m = np.where(given, rows - self.mean, 0.0), np.where(known, stored - self.mean, 0.0)
        both = given.astype(np.float64)
        k = known.astype(np.float64)
        squares = x**2 @ k.T - 2 * x @ m.T + both @ (m**2).T
        unknown = variance.sum() - (both * variance) @ k.T
        found = (np.maximum(squares, 0.0) + np.maximum(unknown, 0.0)) / rows.shape[1]
        return np.where(known.any(axis=1), found, np.inf)

    def impute(self, rows: Floats, count: int, weights: Weights) -> Floats:
        """Fill in missing values from the nearest `count` neurons that know them, or else with the column's mean.

        Values of columns without any known value stay NaN.
        """
        out = rows.copy()
        missing = np.isnan(rows)
        partial = np.flatnonzero(missing.any(axis=1) & ~missing.all(axis=1))
        if len(self.memory):
            stored, known = self.memory.prototypes.astype(np.float64), self.memory.known
            pool = min(len(stored), count * POOL)
            for block in _blocks(len(partial), max(len(stored), pool * rows.shape[1])):
                out[partial[block]] = self._impute(rows[partial[block]], count, weights, stored, known, pool)
        means = np.where(self.count > 0, self.mean, np.nan)
        return np.where(np.isnan(out), means, out)

    def _impute(self, rows: Floats, count: int, weights: Weights, stored: Floats, known: Flags, pool: int) -> Floats:
        distances = self.distances(rows, stored, known)
        index, distance = _nearest(distances, pool)
        able = known[index]
        used = able & (np.cumsum(able, axis=1) <= count)
        weight = weighted(np.broadcast_to(distance[:, :, None], used.shape), used, weights)
        with np.errstate(invalid="ignore"):
            means = np.where(used, weight * stored[index], 0.0).sum(axis=1) / weight.sum(axis=1)
        out = np.where(np.isnan(rows), means, rows)
        short = np.isnan(rows) & (used.sum(axis=1) < np.minimum(count, known.sum(axis=0)))
        for j in np.flatnonzero(short.any(axis=0)):  # too few in the pool know this column
            knowing, asking = np.flatnonzero(known[:, j]), np.flatnonzero(short[:, j])
            nearest, near = _nearest(distances[np.ix_(asking, knowing)], min(count, len(knowing)))
            weight = weighted(near, np.ones(near.shape, bool), weights)
            out[asking, j] = (weight * stored[knowing[nearest], j]).sum(axis=1) / weight.sum(axis=1)
        return out

    def votes(self, rows: Floats, count: int, weights: Weights, otherwise: Floats) -> Floats:
        """(rows, votes): the votes of all samples that the nearest neurons learned, times the weights of the neurons.

        otherwise (votes,): for empty rows, or if nothing was learned.
        """
        out = np.zeros((len(rows), len(otherwise)))
        some = np.flatnonzero(~np.isnan(rows).all(axis=1))
        if len(some) and len(self.memory):
            index, distance = self.neighbors(rows[some], count)
            weight = weighted(distance, np.isfinite(distance), weights)
            used, place = np.unique(index, return_inverse=True)
            none = np.zeros(len(otherwise))
            votes = np.array([added(none, self.votes_of.get(j, none)) for j in used.tolist()])
            for share, j in zip(weight.T, place.reshape(index.shape).T):
                out[some] += share[:, None] * votes[j]
        out[~out.any(axis=1)] = otherwise
        return out

    def add_columns(self, first: Floats) -> None:
        """Add columns, unknown in all stored rows; without holes, stored rows get these first values."""
        more, old = len(first), len(self.count)
        state = self.memory.__getstate__()
        header, tensors = {**state["header"], "input_shape": [old + more]}, dict(state["tensors"])
        stored = tensors["level1.prototypes"]
        if self.holes:
            known = tensors.get("level1.known", np.repeat(tensors["level1.c"][:, None], old, axis=1))
            tensors["level1.known"] = np.pad(known.astype(np.int32), ((0, 0), (0, more)))
            header["features"] = sorted({*header["features"], "holes"})
        new = np.zeros((len(stored), more)) if self.holes else np.repeat(first[None], len(stored), axis=0)
        tensors["level1.prototypes"] = np.concatenate([stored, new], axis=1, dtype=np.float32)
        self.memory.__setstate__({**state, "header": header, "tensors": tensors})
        self.count, self.mean = np.pad(self.count, (0, more)), np.pad(self.mean, (0, more))
        self.squares = np.pad(self.squares, (0, more))
        self.has_unknown = self.holes


def added(votes: Floats, earlier: Floats) -> Floats:
    """The sum of votes and earlier ones, which may be fewer."""
    out = votes.copy()
    out[: len(earlier)] += earlier
    return out


def _blocks(rows: int, values: int) -> Iterator[slice]:
    """Blocks of rows that are compared at a time; values: for each row."""
    return batches(rows, max(1, BLOCK_VALUES // values))


def _nearest(distances: Floats, count: int) -> tuple[NDArray[np.int64], Floats]:
    """The indices and values of the `count` smallest of every row, ascending; of equal ones, the first."""
    if count < distances.shape[1]:
        last = np.partition(distances, count - 1, axis=1)[:, count - 1 : count]
        distances = np.where(distances <= last, distances, np.inf)
    index = np.argsort(distances, axis=1, kind="stable")[:, :count]
    return index, np.take_along_axis(distances, index, axis=1)


def weighted(distance: Floats, used: Flags, weights: Weights) -> Floats:
    """The weights of neurons (rows, neurons, ...) by their squared distances; 0 if they are not used.

    Weights by distance are a Gaussian around the row; its width follows the mean distance of the used neurons.
    """
    if weights == "uniform":
        return used.astype(np.float64)
    count = np.maximum(used.sum(axis=1, keepdims=True), 1)
    nearest = np.where(used, distance, np.inf).min(axis=1, keepdims=True)
    mean = np.where(used, distance, 0).sum(axis=1, keepdims=True) / count
    farther = np.where(used, distance - np.where(np.isfinite(nearest), nearest, 0), 0)
    return np.where(used, np.exp(-SHARPNESS * farther / np.where(mean > 0, mean, 1)), 0)
