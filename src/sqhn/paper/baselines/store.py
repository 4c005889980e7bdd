"""Models that store the samples themselves: the store, its verbs, and the nearest neighbor.

A model is a store of rows and a rule that compares a query with every row. Learning writes one row per sample. Callers
give samples in [0, 1], whatever range of values a rule works with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.checks import as_shape, check_count, check_number, check_word
from sqhn.inputs import as_answers, as_floats, as_samples, batches, join_batches
from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.reservoir import Reservoir
from sqhn.protocol import EmptyMemoryError, Recalled, Recognized, Written

QUERIES_PER_BATCH = 256

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]
Keep = Literal["first_in_first_out", "reservoir"]


class Store:
    """One row for each stored sample; at most `capacity` of them, where one is given.

    keep: which samples a full store keeps: the latest, or every sample so far with the same probability.
    """

    def __init__(
        self, width: int, capacity: int | None = None, keep: Keep = "first_in_first_out", seed: int = 0
    ) -> None:
        check_word("keep", keep, ("first_in_first_out", "reservoir"))
        self.capacity, self.keep = capacity, keep
        self._seed = seed
        self._buffer = np.empty((0, width), np.float32)
        self.reset()

    def reset(self) -> None:
        self._buffer = np.empty((0, self._buffer.shape[1]), np.float32)
        self._reservoir = Reservoir(self.capacity or 0, self._seed)
        self.count = 0

    def __len__(self) -> int:
        return self.count if self.capacity is None else min(self.count, self.capacity)

    @property
    def rows(self) -> Array:
        return self._buffer[: len(self)]

    def write(self, new: Array) -> NDArray[np.int32]:
        """Store samples one after another; returns the row of each, -1 for a sample that was not stored."""
        slots = np.array([self._slot(t) for t in range(self.count, self.count + len(new))], np.int32)
        self.count += len(new)
        if len(self) > len(self._buffer):
            size = max(len(self), 2 * len(self._buffer))
            size = size if self.capacity is None else min(size, self.capacity)
            buffer = np.empty((size, new.shape[1]), np.float32)
            buffer[: len(self._buffer)] = self._buffer
            self._buffer = buffer
        self._buffer[slots[slots >= 0]] = new[slots >= 0]  # of several samples for one row, the last is kept
        return slots

    def _slot(self, t: int) -> int:
        """The row for sample number t, counted from 0."""
        if self.capacity is None:
            return t
        return self._reservoir.place() if self.keep == "reservoir" else t % self.capacity


class Rule(Protocol):
    """How a query is compared with the rows. Samples and rows are flat; `x` is in [0, 1] and black where not `seen`."""

    @property
    def batch_size(self) -> int | None:
        """The most queries that are answered at once; None: the whole batch."""

    def inside(self, x: Array) -> Array:
        """Samples as the rule stores them."""

    def similarity(self, x: Array, rows: Array) -> NDArray[np.float64]:
        """How well every sample, as the rule stores it, matches every row."""

    def recall(self, x: Array, seen: Mask | None, rows: Array) -> Recalled:
        """The answers to queries."""


class StoredSamples:
    """The verbs of a memory for a store and a rule."""

    cannot: ClassVar[Mapping[str, str]] = {"recognize": "it is defined for recall only"}  # see `sqhn.testing`

    def __init__(self, input_shape: Sequence[int], rule: Rule, capacity: int | None = None, **keep: Any) -> None:
        self.input_shape = as_shape(input_shape)
        self.rule = rule
        self.store = Store(math.prod(self.input_shape), capacity, **keep)

    def __len__(self) -> int:
        """The number of stored samples."""
        return len(self.store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_shape}, {len(self)} samples)"

    def reset(self) -> None:
        """Forget everything."""
        self.store.reset()

    def learn(self, x: ArrayLike) -> Written:
        """Store one sample, or a batch one after another.

        Returns the row (-1: not stored), whether the sample was stored, and its best match among the samples stored
        before it.
        """
        samples, single, _ = as_samples(x, self.input_shape)
        new = self.rule.inside(flat(samples))
        index, score = join_batches([self._learn(new[part]) for part in batches(len(new), QUERIES_PER_BATCH)])
        step = np.arange(self.store.count - len(index), self.store.count) + 1
        return Written(*as_answers(single, index, index >= 0, score, step))

    def _learn(self, new: Array) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Compares all pairs at once; `held` then tracks which sample is in which row after every write."""
        old = self.store.rows
        similarity = np.hstack([self.rule.similarity(new, rows) for rows in (old, new)])
        held, count = np.arange(similarity.shape[1]), len(old)
        slots = self.store.write(new)
        best = np.full(len(new), -np.inf)
        for number, slot in enumerate(slots):
            best[number] = similarity[number, held[:count]].max(initial=-np.inf)
            if slot >= 0:
                held[slot] = len(old) + number
                count = max(count, slot + 1)
        return slots, best

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        """The answer of the rule to one sample or a batch.

        observed: True where a value was observed; of the shape of x, or of one sample for all. Values elsewhere do not
            matter.
        """
        samples, single, mask = as_samples(x, self.input_shape, observed, holes=True)
        if not len(self):
            raise EmptyMemoryError("this memory is empty: learn something before asking it")
        queries, seen = flat(samples), None
        if mask is not None:
            seen = mask.reshape(queries.shape)
            queries = np.where(seen, queries, np.float32(0))
        done = [
            self.rule.recall(queries[part], None if seen is None else seen[part], self.store.rows)
            for part in batches(len(queries), self.rule.batch_size or len(queries))
        ]
        found, index, score = join_batches([one[:3] for one in done])
        return Recalled(*as_answers(single, found.reshape(samples.shape), index, score))

    def recognize(self, x: ArrayLike) -> Recognized:  # noqa: ARG002
        """Not supported: no paper defines recognition for a model that is not trained."""
        raise UnsupportedError(f"{type(self).__name__} cannot recognize: it is defined for recall only")


class NearestNeighbor(StoredSamples):
    """Stores samples and returns the one at the smallest Euclidean distance.

    keep: a full store keeps the latest samples ("first_in_first_out") or a uniform choice of all ("reservoir").
    tolerance: `recognize` calls a sample old if its mean squared error to the nearest stored one is at most this. The
        default allows for rounding only.

    Only observed values are compared. Scores are minus the mean squared errors.

    >>> memory = NearestNeighbor((2,), capacity=2)
    >>> memory.learn(np.array([[0.1, 0.9], [0.2, 0.7], [0.8, 0.6]])).index
    array([0, 1, 0], dtype=int32)
    >>> memory.recall(np.array([0.7, np.nan]), observed=np.array([True, False])).x
    array([0.8, 0.6], dtype=float32)
    >>> memory.recognize(np.array([0.2, 0.7])).old, memory.recognize(np.array([0.1, 0.9])).old
    (True, False)
    """

    cannot: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        input_shape: Sequence[int],
        capacity: int,
        keep: Keep = "first_in_first_out",
        seed: int = 0,
        tolerance: float = 1e-6,
    ) -> None:
        self.tolerance = check_number("tolerance", tolerance)
        super().__init__(input_shape, Euclidean(), check_count("capacity", capacity), keep=keep, seed=seed)

    def recognize(self, x: ArrayLike) -> Recognized:
        """Is this sample stored? It is old if a stored sample is within the tolerance."""
        samples, single, _ = as_samples(x, self.input_shape)
        score = self.recall(samples).score if len(self) else np.full(len(samples), -np.inf)
        threshold = np.full(len(samples), -self.tolerance)
        return Recognized(*as_answers(single, score >= threshold, score, threshold))


class Euclidean:
    """Squared distances by matrix products; the nearest rows are measured again by differences. NumPy only."""

    batch_size = QUERIES_PER_BATCH

    def inside(self, x: Array) -> Array:
        return x

    def similarity(self, x: Array, rows: Array) -> NDArray[np.float64]:
        return np.asarray(-np.maximum(0.0, self._distance(x, rows, None).astype(np.float64)) / x.shape[1])

    def _distance(self, x: Array, rows: Array, seen: Mask | None) -> Array:
        """x is 0 where not seen; the rows must not count there either."""
        own, others = np.einsum("ij,ij->i", x, x), np.einsum("ij,ij->i", rows, rows)
        if seen is not None:
            others = seen.astype(np.float32) @ np.square(rows).T
        return np.asarray(own[:, None] - 2 * (x @ rows.T) + others)

    def recall(self, x: Array, seen: Mask | None, rows: Array) -> Recalled:
        size = np.square(np.linalg.norm(x, axis=1) + np.linalg.norm(rows, axis=1).max())

        def exact(query: int, near: NDArray[np.intp]) -> NDArray[np.float64]:
            gap = np.square(x[query] - rows[near].astype(np.float64))
            return np.asarray((gap if seen is None else gap * seen[query]).sum(axis=1))

        index, distance = nearest_rows(self._distance(x, rows, seen), rounding_error(x.shape[1]) * size, exact)
        compared = x.shape[1] if seen is None else np.maximum(1, seen.sum(axis=1))
        return Recalled(rows[index], index, -distance / compared)


def nearest_rows(
    approximate: Array, error: Array, exact: Callable[[int, NDArray[np.intp]], NDArray[np.float64]]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The first row at the smallest distance; rows within the rounding error are measured again in float64."""
    index, distance = np.empty(len(approximate), np.int32), np.empty(len(approximate))
    for query, line in enumerate(approximate):
        near = np.flatnonzero(line <= line.min() + error[query])
        again = exact(query, near)
        index[query], distance[query] = near[again.argmin()], again.min()
    return index, distance


def rounding_error(terms: int) -> float:
    """A bound on the error of the difference of two float32 sums, relative to their size; doubled for safety."""
    return 4 * (terms + 4) * 2.0**-24


def flat(samples: NDArray[Any]) -> Array:
    """Samples as rows."""
    return as_floats(samples).reshape(len(samples), -1)
