"""A memory as river estimators (extra `river`): anomalies, classes, numbers, missing values.

A sample is a dict of numbers. A feature that is None, NaN or absent is missing. New features may appear at any time;
they count as missing in all earlier samples. Text is refused: put river's `preprocessing.OneHotEncoder` first.

**Scale.** All features count equally, with the values they have. Put river's `preprocessing.StandardScaler` first.
Stored samples are not rescaled when the scaler adapts, which it does less and less. For batches, and for the meaning of
`capacity` and `when_full`, see `sqhn.sklearn`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from sqhn.concurrency import deferred
from sqhn.estimators.tables import Floats, RowMemory, Weights, WhenFull, check_neighbors, shown
from sqhn.inputs import LARGEST
from sqhn.level import Level

try:
    from river import base
except ImportError as error:
    raise ImportError("sqhn.river needs river: pip install 'sqhn[river]'") from error


Sample = Mapping[Hashable, Any]


def _numbers(x: Sample) -> Iterator[tuple[Hashable, float]]:
    """The features of a sample that have a value."""
    for name, value in x.items():
        if value is None or type(value).__name__ == "NAType":  # the missing value of pandas
            continue
        number = _number(
            f"the feature {name!r}", value, "; encode it first, for instance with river.preprocessing.OneHotEncoder"
        )
        if number == number:
            yield name, number


def _number(name: str, value: Any, hint: str = "") -> float:
    """A value as a float, perhaps NaN."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError("words are not read as numbers")
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is {value!r}: only numbers can be compared{hint}") from error
    if abs(number) > LARGEST:
        raise ValueError(f"{name} is {shown(value)}: beyond +-{LARGEST:g}")
    return number


class _Estimator:
    """Samples as rows of a memory, with a column for each feature in the order of its first appearance.

    holes: as in `RowMemory`.
    """

    def __init__(self, capacity: int, when_full: WhenFull, holes: bool = True) -> None:
        level = Level(capacity=capacity, when_full=when_full)  # checks them
        self.capacity, self.when_full = level.capacity, level.when_full
        self._holes = holes
        self._columns: dict[Hashable, int] = {}
        self._rows: RowMemory | None = None

    @property
    def memory(self) -> Any:
        """The memory, an `sqhn.SQHN`; None before the first sample is learned."""
        return self._rows and self._rows.memory

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Learn a sample and all that belongs to it: signals wait."""
        with deferred():
            yield
        if self._rows:
            self._rows.warn(stacklevel=5)

    def _learn(self, x: Sample, value: int | None = None, target: float | None = None) -> None:
        """Learn a sample; one without any value teaches nothing."""
        given = dict(_numbers(x))
        columns = {**self._columns}
        for name in given:
            columns.setdefault(name, len(columns))
        if columns:
            rows = self._rows or RowMemory(len(columns), self.capacity, self.when_full, self._holes)
            rows.learn(
                _row(given, columns),
                None if value is None else [value],
                None if target is None else np.array([target]),
            )
            self._rows, self._columns = rows, columns

    def _row(self, x: Sample) -> Floats:
        """A sample as one row, without features that were never learned."""
        return _row(dict(_numbers(x)), self._columns)


def _row(given: dict[Hashable, float], columns: dict[Hashable, int]) -> Floats:
    row = np.full((1, len(columns)), np.nan)
    for name, number in given.items():
        if name in columns:
            row[0, columns[name]] = number
    return row


class SQHNDetector(_Estimator, base.AnomalyDetector):
    """Anomalies: samples that differ from all learned samples.

    The score is 1 - 1 / (1 + r), where r is the root mean square of the differences from the nearest neuron: 0 for a
    stored sample, and always below 1. For a verdict, wrap the detector in `river.anomaly.QuantileFilter`.

    Parameters
    ----------
    capacity
        The largest number of neurons.
    when_full
        What a full memory does with a sample: "average" it into the nearest neuron, "freeze", or replace a neuron: the
        "oldest" (a sliding window, for streams that drift), or with "overwrite" the one that the fewest samples were
        averaged into.

    Examples
    --------
    >>> import random
    >>> from sqhn.river import SQHNDetector
    >>> random.seed(0)
    >>> detector = SQHNDetector(capacity=500, when_full="oldest")
    >>> for _ in range(300):
    ...     detector.learn_one({"heat": random.gauss(0, 1), "noise": random.gauss(0, 1)})
    >>> detector.score_one({"heat": 0.1, "noise": -0.2}) < 0.2
    True
    >>> detector.score_one({"heat": 9, "noise": None}) > 0.8
    True
    """

    def __init__(self, capacity: int = 1000, when_full: WhenFull = "average") -> None:
        super().__init__(capacity, when_full, holes=False)

    def learn_one(self, x: Sample) -> None:
        """Learn a sample."""
        with self._change():
            self._learn(x)

    def score_one(self, x: Sample) -> float:
        """The anomaly score; 0 if there is nothing to compare."""
        row = self._row(x)
        if self._rows is None or np.isnan(row).all():
            return 0.0
        match: float = self._rows.memory.recognize(self._rows.with_means(row)[0]).score
        return 1.0 - match


class _Neighbors(_Estimator):
    """An estimator that uses the nearest neurons of a sample."""

    def __init__(
        self,
        capacity: int = 1000,
        n_neighbors: int = 10,
        weights: Weights = "distance",
        when_full: WhenFull = "average",
    ) -> None:
        check_neighbors(n_neighbors, weights)
        super().__init__(capacity, when_full)
        self.n_neighbors, self.weights = n_neighbors, weights
        self._counts: dict[Hashable, int] = {}  # of each class
        self._targets = 0, 0.0  # their number and mean


class SQHNImputer(_Neighbors, base.Transformer):
    """Fills in missing values (None, NaN or absent) from the most similar samples that have them.

    Parameters
    ----------
    capacity, when_full
        As in `SQHNDetector`.
    n_neighbors
        The number of neurons that each missing value is averaged from.
    weights
        "distance" (a Gaussian of the distance, wider where all are far) or "uniform".

    Examples
    --------
    >>> from sqhn.river import SQHNImputer
    >>> imputer = SQHNImputer(n_neighbors=1)
    >>> imputer.learn_one({"heat": 20, "power": 1})
    >>> imputer.learn_one({"heat": 90, "power": 5})
    >>> imputer.transform_one({"heat": 80, "power": None})
    {'heat': 80, 'power': 5.0}
    """

    def learn_one(self, x: Sample) -> None:
        """Learn a sample, with its missing values."""
        with self._change():
            self._learn(x)

    def transform_one(self, x: Sample) -> dict[Hashable, Any]:
        """The sample with all features ever learned; a feature without any known value is 0."""
        given = dict(_numbers(x))
        missing = [name for name in {**x, **self._columns} if name not in given]
        filled = dict.fromkeys(missing, 0.0)
        if missing and self._rows is not None:
            row = self._rows.impute(self._row(x), self.n_neighbors, self.weights)[0].tolist()
            filled |= {name: row[self._columns[name]] for name in missing if name in self._columns}
        return {**x, **filled}


class SQHNClassifier(_Neighbors, base.Classifier):
    """Classes by the nearest neurons of a sample: each sample that such a neuron has learned votes for its class.

    Parameters
    ----------
    capacity, weights, when_full
        As in `SQHNImputer`.
    n_neighbors
        The number of neurons that vote.

    Examples
    --------
    >>> from sqhn.river import SQHNClassifier
    >>> classifier = SQHNClassifier(n_neighbors=1)
    >>> classifier.learn_one({"heat": 20, "power": 1}, "idle")
    >>> classifier.learn_one({"heat": 90, "power": 5}, "busy")
    >>> classifier.predict_one({"heat": 80})
    'busy'
    """

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Sample, y: Hashable) -> None:
        """Learn a sample with its class."""
        code = list(self._counts).index(y) if y in self._counts else len(self._counts)
        with self._change():
            self._learn(x, code)
            self._counts[y] = self._counts.get(y, 0) + 1

    def predict_proba_one(self, x: Sample, **kwargs: Any) -> dict[Any, float]:  # noqa: ARG002
        """The share of votes for each known class; if there is nothing to compare, the shares of all samples."""
        votes = np.array(list(self._counts.values()), float)
        if self._rows:
            votes = self._rows.votes(self._row(x), self.n_neighbors, self.weights, votes)[0]
        return dict(zip(self._counts, (votes / votes.sum()).tolist())) if len(votes) else {}


class SQHNRegressor(_Neighbors, base.Regressor):
    """Numbers by the nearest neurons of a sample: the mean target of the samples that they have learned.

    Parameters
    ----------
    capacity, weights, when_full
        As in `SQHNImputer`.
    n_neighbors
        The number of neurons that are averaged.

    Examples
    --------
    >>> from sqhn.river import SQHNRegressor
    >>> regressor = SQHNRegressor(n_neighbors=1)
    >>> regressor.learn_one({"heat": 20, "power": 1}, 0.5)
    >>> regressor.learn_one({"heat": 90, "power": 5}, 7.5)
    >>> regressor.predict_one({"heat": 80})
    7.5
    """

    def learn_one(self, x: Sample, y: float) -> None:
        """Learn a sample with its target."""
        target = _number("the target", y)
        if target != target:
            raise ValueError(f"the target is {y!r}: it must be a number")
        with self._change():
            self._learn(x, target=target)
            count, mean = self._targets
            self._targets = count + 1, mean + (target - mean) / (count + 1)

    def predict_one(self, x: Sample) -> float:
        """The mean of the nearest neurons' targets; if there is nothing to compare, the mean of all, at first 0."""
        _, mean = self._targets
        if self._rows is None:
            return mean
        return float(self._rows.averages(self._row(x), self.n_neighbors, self.weights, mean)[0])
