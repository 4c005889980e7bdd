"""A memory as river estimators (extra `river`): anomalies, classes, numbers, missing values.

A sample is a dict of numbers. A feature that is None, NaN or absent is missing. New features may appear at any time;
they count as missing in all earlier samples. Text is refused: put river's `preprocessing.OneHotEncoder` first.

**Scale.** All features count equally, with the values they have. Put river's `preprocessing.StandardScaler` first.
Stored samples are not rescaled when the scaler adapts, which it does less and less. For batches, and for the meaning of
`capacity` and `when_full`, see `sqhn.sklearn`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from sqhn.concurrency import deferred
from sqhn.estimators.tables import Floats, RowMemory, Weights, WhenFull, added, as_number, check_neighbors
from sqhn.level import Level

try:
    from river import base
except ImportError as error:
    raise ImportError("sqhn.river needs river: pip install 'sqhn[river]'") from error


Sample = Mapping[Hashable, Any]
ENCODE = "encode it first, for instance with river.preprocessing.OneHotEncoder"


def _numbers(x: Sample) -> dict[Hashable, float]:
    """The features of a sample that have a value; NAType is the type of missing values of pandas."""
    given = {name: value for name, value in x.items() if type(value).__name__ != "NAType"}
    numbers = {name: as_number(f"the feature {name!r}", value, ENCODE) for name, value in given.items()}
    return {name: number for name, number in numbers.items() if number == number}


def _row(given: Mapping[Hashable, float], columns: Iterable[Hashable]) -> Floats:
    """Numbers as one row, without those that have no column."""
    return np.array([[given.get(name, np.nan) for name in columns]])


class _Estimator:
    """Samples as rows of a memory, with a column for each feature in the order of its first appearance.

    holes: as in `RowMemory`.
    """

    def __init__(self, capacity: int, when_full: WhenFull, holes: bool = True) -> None:
        level = Level(capacity=capacity, when_full=when_full)  # checks them
        self.capacity, self.when_full = level.capacity, level.when_full
        self._holes = holes
        self._columns: tuple[Hashable, ...] = ()
        self._rows: RowMemory | None = None
        self._total: Floats = np.zeros(0)  # of the votes of all samples

    @property
    def memory(self) -> Any:
        """The memory, an `sqhn.SQHN`; None before the first sample is learned."""
        return self._rows and self._rows.memory

    def _learn(self, x: Sample, votes: Floats | None = None, **new: Any) -> None:
        """Learn a sample with its votes, and set attributes; signals wait. One without any value teaches only votes."""
        given = _numbers(x)
        columns = tuple(dict.fromkeys((*self._columns, *given)))
        with deferred():
            if columns:
                rows = self._rows or RowMemory(len(columns), self.capacity, self.when_full, self._holes)
                rows.learn(_row(given, columns), None if votes is None else votes[None])
                self._rows, self._columns = rows, columns
            if votes is not None:
                self._total = added(votes, self._total)
            vars(self).update(new)
        if self._rows:
            self._rows.warn(stacklevel=4)


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
        self._learn(x)

    def score_one(self, x: Sample) -> float:
        """The anomaly score; 0 if there is nothing to compare."""
        row = _row(_numbers(x), self._columns)
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

    def _votes(self, x: Sample) -> Floats:
        """The votes of the nearest neurons; if there is nothing to compare, those of all samples."""
        if self._rows is None:
            return self._total
        row = _row(_numbers(x), self._columns)
        (votes,) = self._rows.votes(row, self.n_neighbors, self.weights, self._total)
        return np.asarray(votes)


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
        self._learn(x)

    def transform_one(self, x: Sample) -> dict[Hashable, Any]:
        """The sample with all features ever learned; a feature without any known value is 0."""
        given = _numbers(x)
        missing = [name for name in dict.fromkeys((*x, *self._columns)) if name not in given]
        filled = dict.fromkeys(missing, 0.0)
        if missing and self._rows is not None:
            row = self._rows.impute(_row(_numbers(x), self._columns), self.n_neighbors, self.weights)[0].tolist()
            filled |= {name: number for name, number in zip(self._columns, row) if name in filled}
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

    _classes: tuple[Hashable, ...] = ()

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Sample, y: Hashable) -> None:
        """Learn a sample with its class."""
        classes = self._classes if y in self._classes else (*self._classes, y)
        self._learn(x, np.eye(len(classes))[classes.index(y)], _classes=classes)

    def predict_proba_one(self, x: Sample, **kwargs: Any) -> dict[Any, float]:  # noqa: ARG002
        """The share of votes for each known class; if there is nothing to compare, the shares of all samples."""
        votes = self._votes(x)
        return dict(zip(self._classes, (votes / votes.sum()).tolist()))


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
        target = as_number("the target", y, "it must be a number")
        if target != target:
            raise ValueError(f"the target has {y!r}: it must be a number")
        self._learn(x, np.array([target, 1.0]))

    def predict_one(self, x: Sample) -> float:
        """The mean of the nearest neurons' targets; if there is nothing to compare, the mean of all, at first 0."""
        total, count = self._votes(x) if len(self._total) else (0.0, 1.0)
        return float(total / count)
