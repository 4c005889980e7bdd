"""A memory as estimators of river (extra `river`): anomalies, classes, missing values, one sample after another.

A sample is a dict of numbers. What is None, NaN or not in it is missing. Features that come for the first time find
room, and were missing in all samples before. Text is refused: put river's `preprocessing.OneHotEncoder` before it.

**Scale.** Samples are compared by their differences as they are, a feature as much as any other. Put river's
`preprocessing.StandardScaler` before it: what it has stored is not rescaled when the scaler changes its mind, which it
does less and less. For batches, and for what `capacity` and `when_full` mean, see `sqhn.sklearn`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np

from sqhn.estimators.tables import Floats, Rows, Weights, WhenFull, check_neighbors
from sqhn.inputs import LARGEST
from sqhn.level import Level

try:
    from river import base
except ImportError as error:
    raise ImportError("sqhn.river needs river: pip install 'sqhn[river]'") from error

__all__ = ["SQHNClassifier", "SQHNDetector", "SQHNImputer"]

Sample = Mapping[Hashable, Any]


class _Features:
    """Samples as rows of a memory: a column for each feature, in the order in which they first came.

    holes: as in `Rows`.
    """

    def __init__(self, capacity: int, when_full: WhenFull, holes: bool = True) -> None:
        level = Level(capacity=capacity, when_full=when_full)  # checks them
        self.capacity, self.when_full = level.capacity, level.when_full
        self.holes = holes
        self.columns: dict[Hashable, int] = {}
        self.rows: Rows | None = None

    def learn(self, x: Sample, value: int | None = None) -> None:
        """Learn a sample; of one without any value there is nothing to learn."""
        given = dict(_numbers(x))
        if new := [name for name in given if name not in self.columns]:
            first = np.array([given[name] for name in new])
            fresh = Rows(len(new), self.capacity, self.when_full, self.holes)
            self.rows = self.rows.widened(first) if self.rows else fresh
            self.columns |= {name: len(self.columns) + i for i, name in enumerate(new)}
        if self.rows:
            self.rows.learn(self.row(given), None if value is None else [value])

    def row(self, x: Sample) -> Floats:
        """A sample as one row; features that were never learned are left out."""
        row = np.full((1, len(self.columns)), np.nan)
        for name, number in _numbers(x):
            if name in self.columns:
                row[0, self.columns[name]] = number
        return row


def _numbers(x: Sample) -> Iterator[tuple[Hashable, float]]:
    """The features of a sample that have a value."""
    for name, value in x.items():
        if value is None or type(value).__name__ == "NAType":  # as pandas says None
            continue
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"the feature {name!r} is {value!r}: only numbers can be compared; encode it first, for instance with "
                "river.preprocessing.OneHotEncoder"
            ) from error
        if abs(number) > LARGEST:
            raise ValueError(f"the feature {name!r} is {value!r}: beyond +-{LARGEST:g}")
        if number == number:
            yield name, number


class _Estimator:
    """What the three have in common."""

    capacity: int
    when_full: WhenFull
    _features: _Features

    @property
    def memory(self) -> Any:
        """The memory, an `sqhn.SQHN`; None before anything was learned."""
        return self._features.rows and self._features.rows.memory


class SQHNDetector(_Estimator, base.AnomalyDetector):
    """Anomalies: samples that are unlike all that was learned.

    The score is 0 for what is stored, and 1 - 1 / (1 + r) where r is the root mean square of the differences to what is
    most alike: below 1. Wrap it in `river.anomaly.QuantileFilter` for a verdict.

    Parameters
    ----------
    capacity
        The most neurons that are kept.
    when_full
        What becomes of a sample then: "average" it with what is most like it, "freeze", or let it replace a neuron:
        the "oldest" (a sliding window, for streams that drift), or "overwrite" what the fewest were averaged into.

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
        self._features = _Features(capacity, when_full, holes=False)
        self.capacity, self.when_full = capacity, when_full

    def learn_one(self, x: Sample) -> None:
        """Learn a sample."""
        self._features.learn(x)

    def score_one(self, x: Sample) -> float:
        """How unlike all that was learned it is; 0 where there is nothing to compare."""
        row, rows = self._features.row(x), self._features.rows
        if rows is None or np.isnan(row).all():
            return 0.0
        match: float = rows.memory.recognize(rows.whole(row)[0]).score
        return 1.0 - match


class _Neighbors(_Estimator):
    """What asks for the neurons most like a sample."""

    def __init__(
        self,
        capacity: int = 1000,
        n_neighbors: int = 10,
        weights: Weights = "distance",
        when_full: WhenFull = "average",
    ) -> None:
        check_neighbors(n_neighbors, weights)
        self._features = _Features(capacity, when_full)
        self._counts: dict[Hashable, int] = {}  # of classes, where there are any
        self.capacity, self.n_neighbors, self.weights, self.when_full = capacity, n_neighbors, weights, when_full


class SQHNImputer(_Neighbors, base.Transformer):
    """Missing values from the samples most like a sample, among those that have them: None, NaN, or not there.

    Parameters
    ----------
    capacity
        The most neurons that are kept.
    n_neighbors
        How many neurons a missing value comes from.
    weights
        "distance" (a Gaussian of the distance, wide where all are far) or "uniform".
    when_full
        As in `SQHNDetector`.

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
        """Learn a sample, with its holes."""
        self._features.learn(x)

    def transform_one(self, x: Sample) -> dict[Hashable, Any]:
        """All features that were ever learned, and what is given as it is; what nobody ever saw is 0."""
        there, columns = dict(_numbers(x)), self._features.columns
        missing = [name for name in {**x, **columns} if name not in there]
        if not missing:
            return dict(x)
        filled: Any = {}
        if self._features.rows is not None:
            row = self._features.rows.filled(self._features.row(x), self.n_neighbors, self.weights)[0]
            filled = {name: float(row[column]) for name, column in columns.items()}
        return {**x, **{name: filled.get(name, 0.0) for name in missing}}


class SQHNClassifier(_Neighbors, base.Classifier):
    """Classes by the neurons most like a sample: each sample that they were learned from votes for its class.

    Parameters
    ----------
    capacity
        The most neurons that are kept.
    n_neighbors
        How many of them vote.
    weights, when_full
        As in `SQHNImputer`.

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
        self._features.learn(x, code)
        self._counts[y] = self._counts.get(y, 0) + 1

    def predict_proba_one(self, x: Sample, **kwargs: Any) -> dict[Any, float]:  # noqa: ARG002
        """The share of votes for every class that was met; where there is nothing to compare, that of all samples."""
        votes = np.array(list(self._counts.values()), float)
        if self._features.rows:
            row = self._features.row(x)
            heard = self._features.rows.votes(row, self.n_neighbors, self.weights, len(votes))[0]
            votes = heard if heard.any() else votes
        return dict(zip(self._counts, (votes / votes.sum()).tolist())) if len(votes) else {}
