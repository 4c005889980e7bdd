"""A memory as scikit-learn estimators (extra `sklearn`): outliers, missing values, classes, numbers.

Each is a memory of one level for the rows of a table. It learns the rows once from top to bottom, at once in `fit` or
batch by batch in `partial_fit`, with the same result (except for rounding where two neurons are equally far). Missing
values are NaN, in learned rows and in queries.

**Scale.** All columns count equally, with the values they have. Stored rows cannot be rescaled later, so scale them
first: put a `StandardScaler` (or a `RobustScaler`, if there are outliers) before the estimator in a `Pipeline`; for a
stream, fit the scaler to the first rows and keep it.

**Bounds.** A memory has at most `capacity` neurons. When all are used, `when_full` decides: "average" the row into the
nearest neuron, "freeze" (drop the row), or replace a neuron: the "oldest", or with "overwrite" the one that the fewest
rows were averaged into (see `sqhn.Level`).
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import is_real
from sqhn.concurrency import deferred
from sqhn.estimators.tables import Floats, RowMemory, Weights, WhenFull, as_rows, check_neighbors, check_numbers
from sqhn.inputs import LARGEST, as_numpy

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        OneToOneFeatureMixin,
        OutlierMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("sqhn.sklearn needs scikit-learn 1.6 or newer: pip install 'sqhn[sklearn]'") from error


SCORES = 1000
"""The number of latest scores that are kept for the threshold, or `capacity` if that is more."""


class _Estimator(BaseEstimator, ABC):  # type: ignore[misc]
    """The common part: a memory for rows, with NaN for missing values."""

    capacity: int
    when_full: WhenFull
    rows_: RowMemory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _rows(self, X: Any, *, first: bool = False, y: Any = "no_validation", **more: Any) -> Any:
        """Checked rows, and y if it is given; first: they define the columns."""
        numbers = [np.float64, np.float32]
        checked = validate_data(self, as_rows(X), y, reset=first, dtype=numbers, ensure_all_finite=False, **more)
        rows = checked[0] if isinstance(checked, tuple) else checked
        if (bad := np.abs(rows) > LARGEST).any():
            i, j = np.argwhere(bad)[0].tolist()
            name = list(X.columns)[j] if hasattr(X, "columns") else j
            reason = f"beyond +-{LARGEST:g}" if np.isfinite(rows[i, j]) else "a missing value is NaN"
            raise ValueError(f"column {name!r} has {float(rows[i, j])} in row {i}: {reason}")
        return checked

    def _memory(self, first: bool, holes: bool = True) -> RowMemory:
        """A new memory, or the present one, which must agree with the parameters."""
        if first:
            return RowMemory(self.n_features_in_, self.capacity, self.when_full, holes)
        (made,) = self.rows_.memory.levels
        if (made.capacity, made.when_full) != (self.capacity, self.when_full):
            raise ValueError(
                f"the memory was made with capacity={made.capacity} and when_full={made.when_full!r}; for "
                f"{self.capacity!r} and {self.when_full!r} it must be fitted again"
            )
        return self.rows_

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn rows from scratch; y: their classes or targets."""
        return self._change(True, X, y)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn more rows; y: their classes or targets."""
        return self._change(not hasattr(self, "rows_"), X, y)

    def _change(self, first: bool, *given: Any) -> Self:
        """Learn in a copy, whose attributes the estimator then takes all at once; after an error it takes none.

        Unless it is the first, a change continues the same memory; so signals wait until it is complete.
        """
        with nullcontext() if first else deferred():
            new = copy(self)
            new._learn(first, *given)  # noqa: SLF001
            self.__dict__ = new.__dict__
        self.rows_.warn(stacklevel=4)
        return self

    @abstractmethod
    def _learn(self, first: bool, X: Any, y: Any, *more: Any) -> None:
        """Learn rows; first: from scratch."""

    @property
    def memory_(self) -> Any:
        """The memory, an `sqhn.SQHN`."""
        check_is_fitted(self, "rows_")
        return self.rows_.memory


class SQHNDetector(OutlierMixin, _Estimator):  # type: ignore[misc]
    """Outliers and novelties: rows that differ from all learned rows.

    score_samples: the match of a row with its nearest neuron, 1 / (1 + root mean square of the differences): 1 for a
        stored row.
    contamination: the expected share of outliers among rows like the learned ones. The threshold, `offset_`, comes
        from the score that each row had just before it was learned, since stored rows match themselves. Only the latest
        scores count, those of half of all rows, and at most `capacity` or 1,000, whichever is more: the first rows were
        compared with few others. With fewer than 1 / `contamination` scores the threshold is the lowest of them.

    A missing value is replaced by the mean of its column so far.

    `predict` does not call learned rows outliers, unless they were averaged or replaced. In a stream, call `predict`
    before `partial_fit`. To find the outliers within a batch, use `fit_predict`, which compares each row with all
    others.

    Cost of learning and scoring: O(neurons * columns) per row.

    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(500, 4))
    >>> detector = SQHNDetector(contamination=0.01).fit(rows)
    >>> detector.predict([[0.1, 0.2, 0.0, -0.1], [9, 9, 9, 9], [0.1, np.nan, np.nan, 9]])
    array([ 1, -1, -1])
    """

    scores_: Floats
    offset_: float

    def __init__(self, capacity: int = 10_000, *, contamination: float = 0.05, when_full: WhenFull = "average") -> None:
        self.capacity = capacity
        self.contamination = contamination
        self.when_full = when_full

    def fit_predict(self, X: Any, y: Any = None) -> NDArray[np.int64]:
        """Learn rows from scratch and compare each with all others: -1 for the share that is least like any other.

        A row that was averaged with others is compared with the average.
        """
        self._change(True, X, y)
        found = self.memory_.recall(self.rows_.with_means(self._some(X)), k=min(2, len(self.memory_)))
        own = self.memory_.counts[found.index[:, 0]] == 1
        scores = np.where(own, found.score[:, -1], found.score[:, 0])
        outliers = round(self.contamination * len(scores))
        return np.where(scores < np.partition(scores, outliers)[outliers], -1, 1)

    def _learn(self, first: bool, X: Any, y: Any) -> None:  # noqa: ARG002
        if not is_real(self.contamination) or not 0 < self.contamination <= 0.5:
            raise ValueError(f"contamination must be a number above 0, at most 0.5; got {self.contamination!r}")
        rows = self._some(X, first)
        self.rows_ = self._memory(first, holes=False)
        written = self.rows_.learn(rows)
        assert written is not None
        before = np.zeros(0) if first else self.scores_
        scores = np.concatenate([before, written.score[np.isfinite(written.score)]])  # the very first row has none
        self.scores_ = scores[-max(self.capacity, SCORES) :]
        self.offset_ = self._threshold()

    def _threshold(self) -> float:
        """The k-th lowest of the latest n scores: the next one is below it with a probability of at most k / (n + 1).

        n is half of all rows, or more if `contamination` takes more.
        """
        n = min(len(self.scores_), max(self.memory_.step // 2, math.ceil(1 / self.contamination)))
        if not n:
            return 0.0  # the first row has no score
        k = max(1, math.floor(self.contamination * (n + 1)))
        return float(np.partition(self.scores_[-n:], k - 1)[k - 1])

    def _some(self, X: Any, first: bool = False) -> Floats:
        """Checked rows, each with at least one value."""
        rows: Floats = self._rows(X, first=first)
        if (blank := np.isnan(rows).all(axis=1)).any():
            row = int(blank.argmax())
            raise ValueError(f"row {row} of an array of shape {rows.shape} has no value")
        return rows

    def score_samples(self, X: Any) -> Floats:
        """The match of each row with its nearest neuron: the higher, the more normal."""
        return np.asarray(self.memory_.recognize(self.rows_.with_means(self._some(X))).score)

    def decision_function(self, X: Any) -> Floats:
        """The score minus the threshold: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 for rows like the learned ones, -1 for outliers."""
        return np.where(self.decision_function(X) < 0, -1, 1)


class _Neighbors(_Estimator):
    """An estimator that uses the nearest neurons of a row."""

    def __init__(
        self,
        capacity: int = 10_000,
        *,
        n_neighbors: int = 10,
        weights: Weights = "distance",
        when_full: WhenFull = "average",
    ) -> None:
        self.capacity = capacity
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.when_full = when_full

    def _query(self, X: Any) -> Floats:
        """Checked rows to ask about."""
        check_is_fitted(self, "rows_")
        check_neighbors(self.n_neighbors, self.weights)
        rows: Floats = self._rows(X)
        return rows


class SQHNImputer(OneToOneFeatureMixin, TransformerMixin, _Neighbors):  # type: ignore[misc]
    """Fills in missing values from the most similar rows that have them; other values stay unchanged.

    Learned rows may have missing values too. The distance of two rows is the mean over all columns of the squared
    difference; where one of them has no value, the variance of the column is used instead.

    n_neighbors: the number of neurons that each missing value is averaged from.
    weights: "distance" (a Gaussian of the distance, wider where all are far) or "uniform".

    An empty row gets the means of the columns. In a column without any known value NaN stays, with a warning.

    >>> import numpy as np
    >>> rows = [[0, 0, 1], [0, 0.1, 1.2], [9, 9, 2], [9, 8.8, np.nan]]
    >>> SQHNImputer(n_neighbors=1).fit(rows).transform([[0, np.nan, np.nan], [np.nan, 9, np.nan]])
    array([[0., 0., 1.],
           [9., 9., 2.]])
    """

    def _learn(self, first: bool, X: Any, y: Any) -> None:  # noqa: ARG002
        check_neighbors(self.n_neighbors, self.weights)
        rows = self._rows(X, first=first)
        self.rows_ = self._memory(first)
        self.rows_.learn(rows)

    def transform(self, X: Any) -> Floats:
        """Fill in missing values."""
        filled = self.rows_.impute(self._query(X), self.n_neighbors, self.weights)
        if (left := np.isnan(filled).any(axis=0)).any():
            warnings.warn(f"columns {np.flatnonzero(left).tolist()} have no known value: NaN stays", stacklevel=2)
        return filled


class SQHNClassifier(ClassifierMixin, _Neighbors):  # type: ignore[misc]
    """Classes by the nearest neurons of a row: each sample that such a neuron has learned votes for its class.

    n_neighbors, weights: as in `SQHNImputer`.

    classes_, class_count_: the classes, and how many rows of each were learned.

    In a full memory a row is averaged with the most similar ones, whatever their class, and the neuron has the votes of
    all of them.

    >>> import numpy as np
    >>> rows = [[0, 0], [0, 1], [5, 5], [5, 6]]
    >>> classifier = SQHNClassifier(n_neighbors=2).fit(rows, ["near", "near", "far", "far"])
    >>> classifier.predict([[1, 0], [6, np.nan]]).tolist()
    ['near', 'far']
    """

    classes_: NDArray[Any]
    class_count_: NDArray[np.int64]

    def partial_fit(self, X: Any, y: Any = None, classes: Sequence[Any] | NDArray[Any] | None = None) -> Self:
        """Learn more rows with their classes.

        classes: all classes of the stream; required in the first call.
        """
        first = not hasattr(self, "rows_")
        if first and classes is None:
            raise ValueError("the first call of partial_fit needs classes, a list of all classes of the stream")
        return self._change(first, X, y, classes)

    def _learn(self, first: bool, X: Any, y: Any, classes: Sequence[Any] | NDArray[Any] | None = None) -> None:
        check_neighbors(self.n_neighbors, self.weights)
        rows, y = self._rows(X, first=first, y=y)
        check_classification_targets(y)
        named = np.unique(y if classes is None else np.asarray(classes))
        if not first and classes is not None and not np.array_equal(named, self.classes_):
            raise ValueError(f"classes={named.tolist()} differ from those of the first call, {self.classes_.tolist()}")
        known = named if first else self.classes_
        if (unknown := ~np.isin(y, known)).any():
            raise ValueError(f"y has {y[unknown].tolist()[0]!r}, which is not among the classes {known.tolist()}")
        code = np.searchsorted(known, y)
        count = np.bincount(code, minlength=len(known))
        self.rows_ = self._memory(first)
        self.rows_.learn(rows, np.eye(len(known))[code])
        self.classes_, self.class_count_ = known, count if first else self.class_count_ + count

    def predict_proba(self, X: Any) -> Floats:
        """The share of votes for each class, in the order of `classes_`; for an empty row, the shares of all rows."""
        rows = self._query(X)
        votes = self.rows_.votes(rows, self.n_neighbors, self.weights, self.class_count_.astype(np.float64))
        return np.asarray(votes / votes.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the most votes."""
        shares = self.predict_proba(X)
        return np.asarray(self.classes_[shares.argmax(axis=1)])


class SQHNRegressor(RegressorMixin, _Neighbors):  # type: ignore[misc]
    """Numbers by the nearest neurons of a row: the mean target of the samples that such neurons have learned.

    n_neighbors, weights: as in `SQHNImputer`. A neuron counts as many times as samples were averaged into it.

    y_count_, y_mean_: how many targets were learned, and their mean.

    In a full memory a row is averaged with the most similar ones, whatever their targets, and the neuron has the mean
    of all of them.

    >>> import numpy as np
    >>> rows = [[0, 0], [0, 1], [5, 5], [5, 6]]
    >>> regressor = SQHNRegressor(n_neighbors=2, weights="uniform").fit(rows, [1, 2, 10, 20])
    >>> regressor.predict([[1, 0], [6, np.nan]]).tolist()
    [1.5, 15.0]
    """

    y_count_: int
    y_mean_: float

    def _learn(self, first: bool, X: Any, y: Any) -> None:
        check_neighbors(self.n_neighbors, self.weights)
        if y is not None:
            check_numbers("y", as_numpy(y), "targets must be numbers")
        rows, y = self._rows(X, first=first, y=y, y_numeric=True)
        y = y.astype(np.float64)
        if (bad := ~(np.abs(y) <= LARGEST)).any():
            raise ValueError(f"y has {float(y[bad][0])}: targets must be numbers within +-{LARGEST:g}")
        count, mean = (0, 0.0) if first else (self.y_count_, self.y_mean_)
        self.rows_ = self._memory(first)
        self.rows_.learn(rows, np.stack([y, np.ones(len(y))], axis=1))
        self.y_count_ = count + len(y)
        self.y_mean_ = mean + float((y - mean).sum()) / self.y_count_

    def predict(self, X: Any) -> Floats:
        """The mean target of the nearest neurons; for an empty row, the mean of all rows."""
        rows = self._query(X)
        total, count = self.rows_.votes(rows, self.n_neighbors, self.weights, np.array([self.y_mean_, 1.0])).T
        return np.asarray(total / count)
