"""A memory as estimators of scikit-learn (extra `sklearn`): outliers, missing values, classes.

Each is a memory of one level for rows of a table, learned once from top to bottom, in `fit` at once or in `partial_fit`
batch by batch: the result is the same (but for rounding where two neurons are equally far). Missing values are NaN, in
what is learned and in what is asked.

**Scale.** Rows are compared by their differences as they are, a column as much as any other. What is stored cannot be
rescaled later, so scale first, and the same for all that comes: put a `StandardScaler` (or a `RobustScaler`, where
there are outliers) before the estimator in a `Pipeline`; for a stream, fit the scaler to the first rows and keep it.

**Bounds.** No more than `capacity` neurons are kept. When they are used up, `when_full` says what becomes of a row:
"average" it into the neuron most like it, "freeze" (drop it), or let it replace a neuron: "oldest" the one written
longest ago, "overwrite" the one that the fewest rows were averaged into (see `sqhn.Level`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import is_real
from sqhn.estimators.tables import Floats, Rows, Weights, WhenFull, as_rows, check_neighbors
from sqhn.inputs import LARGEST

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, OutlierMixin, TransformerMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("sqhn.sklearn needs scikit-learn 1.6 or newer: pip install 'sqhn[sklearn]'") from error

__all__ = ["SQHNClassifier", "SQHNDetector", "SQHNImputer"]

LATEST = 1000
"""Scores that are kept for a threshold, if not more."""


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What the three have in common: rows with NaN for what is missing, in a memory."""

    capacity: int
    when_full: WhenFull

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _rows(self, X: Any, *, first: bool = False, y: Any = "no_validation") -> Any:
        """Checked rows, and y where it is asked for; first: they say which columns there are."""
        numbers = [np.float64, np.float32]
        checked = validate_data(self, as_rows(X), y, reset=first, dtype=numbers, ensure_all_finite="allow-nan")
        rows = checked[0] if isinstance(checked, tuple) else checked
        if (far := np.abs(rows) > LARGEST).any():
            i, j = np.argwhere(far)[0].tolist()
            raise ValueError(
                f"the value at {i, j} of an array of shape {rows.shape} is {rows[i, j]}: beyond +-{LARGEST:g}"
            )
        return checked

    def _begun(self) -> bool:
        return hasattr(self, "rows_")

    def _memory(self, first: bool, holes: bool = True) -> Rows:
        """A new memory, or the one there is, which must still be what the settings say."""
        if first:
            return Rows(self.n_features_in_, self.capacity, self.when_full, holes)
        (made,) = self.rows_.memory.levels
        if (made.capacity, made.when_full) != (self.capacity, self.when_full):
            raise ValueError(
                f"the memory was made with capacity={made.capacity} and when_full={made.when_full!r}; for "
                f"{self.capacity!r} and {self.when_full!r} it must be fitted anew"
            )
        rows: Rows = self.rows_
        return rows

    @contextmanager
    def _or_as_before(self) -> Iterator[None]:
        """What fails leaves the estimator as it was."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    @property
    def memory_(self) -> Any:
        """The memory, an `sqhn.SQHN`."""
        check_is_fitted(self, "rows_")
        return self.rows_.memory


class SQHNDetector(OutlierMixin, _Estimator):  # type: ignore[misc]
    """Outliers and novelties: rows that are unlike all that was learned.

    score_samples: how well the neuron most like a row matches it, 1 / (1 + root mean square of their differences): 1
        for a row that is stored.
    contamination: the share of rows like those learned that are called outliers. The threshold, `offset_`, is found
        from the scores that rows had just before they were learned: stored rows match themselves, so theirs would say
        nothing. Only the latest count, half of all rows but no more than `capacity` or, if that is less, 1,000: when
        the first came, little was known. Fewer than 1 / `contamination` rows cannot say it: then it is their lowest.

    What is missing in a row is taken for the mean of its column so far.

    Rows that were learned are known: `predict` does not call them outliers, unless they were averaged or replaced. In a
    stream, ask first and learn then: `predict`, `partial_fit`. For the outliers within a batch there is `fit_predict`,
    which compares each row with all but itself.

    Cost: learning and asking are O(neurons * columns) for each row.

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

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Forget everything and learn rows."""
        return self._learn(X, first=True)

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn more rows."""
        return self._learn(X, first=not self._begun())

    def fit_predict(self, X: Any, y: Any = None) -> NDArray[np.int64]:  # noqa: ARG002
        """Forget everything, learn rows, and judge each by all others: -1 for the share of those least like any other.

        Where a row was averaged with others, by what came of that.
        """
        self._learn(X, first=True)
        found = self.memory_.recall(self.rows_.whole(self._some(X)), k=min(2, len(self.memory_)))
        own = self.memory_.counts[found.index[:, 0]] == 1
        scores = np.where(own, found.score[:, -1], found.score[:, 0])
        many = round(self.contamination * len(scores))
        return np.where(scores < np.partition(scores, many)[many], -1, 1)

    def _learn(self, X: Any, first: bool) -> Self:
        if not is_real(self.contamination) or not 0 < self.contamination <= 0.5:
            raise ValueError(f"contamination must be a number above 0, at most 0.5; got {self.contamination!r}")
        with self._or_as_before():
            rows = self._some(X, first)
            memory = self._memory(first, holes=False)
            written = memory.learn(rows)
        assert written is not None
        before = np.zeros(0) if first else self.scores_
        scores = np.concatenate([before, written.score[np.isfinite(written.score)]])  # the very first has none
        self.rows_, self.scores_ = memory, scores[-max(self.capacity, LATEST) :]
        self.offset_ = self._threshold()
        return self

    def _threshold(self) -> float:
        """The k-th lowest of the latest n scores: the chance of the next to be below it is at most k / (n + 1).

        Of half of all, or of more if that is what one in so many takes.
        """
        many = min(len(self.scores_), max(self.memory_.step // 2, math.ceil(1 / self.contamination)))
        if not many:
            return 0.0  # one row says nothing about others
        k = max(1, math.floor(self.contamination * (many + 1)))
        return float(np.partition(self.scores_[-many:], k - 1)[k - 1])

    def _some(self, X: Any, first: bool = False) -> Floats:
        """Checked rows, of which something is there."""
        rows: Floats = self._rows(X, first=first)
        if (blank := np.isnan(rows).all(axis=1)).any():
            row = int(blank.argmax())
            raise ValueError(f"row {row} of an array of shape {rows.shape} has no value: nothing can be said of it")
        return rows

    def score_samples(self, X: Any) -> Floats:
        """How well each row matches what it is most like: the higher, the more normal."""
        check_is_fitted(self, "rows_")
        scores: Floats = self.memory_.recognize(self.rows_.whole(self._some(X))).score
        return scores

    def decision_function(self, X: Any) -> Floats:
        """The same less the threshold: negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 for what is like what was learned, -1 for outliers."""
        return np.where(self.decision_function(X) < 0, -1, 1)


class _Neighbors(_Estimator):
    """What asks for the neurons most like a row."""

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

    def _check(self) -> None:
        check_neighbors(self.n_neighbors, self.weights)


class SQHNImputer(OneToOneFeatureMixin, TransformerMixin, _Neighbors):  # type: ignore[misc]
    """Missing values from the rows most like a row, among those that have them; what is there stays as it is.

    Rows may have holes when they are learned too. Two rows differ by the mean over all columns of the squared
    difference; where one of them has no value, the variance of the column stands for it.

    n_neighbors: how many neurons a missing value comes from.
    weights: "distance" (a Gaussian of the distance, wide where all are far) or "uniform".

    A value of a row of which nothing is there is the mean of its column; in a column of which nothing was ever seen it
    stays NaN, and a warning says so.

    >>> import numpy as np
    >>> rows = [[0, 0, 1], [0, 0.1, 1.2], [9, 9, 2], [9, 8.8, np.nan]]
    >>> SQHNImputer(n_neighbors=1).fit(rows).transform([[0, np.nan, np.nan], [np.nan, 9, np.nan]])
    array([[0., 0., 1.],
           [9., 9., 2.]])
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Forget everything and learn rows."""
        return self._learn(X, first=True)

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn more rows."""
        return self._learn(X, first=not self._begun())

    def _learn(self, X: Any, first: bool) -> Self:
        self._check()
        with self._or_as_before():
            rows = self._rows(X, first=first)
            memory = self._memory(first)
            memory.learn(rows)
        self.rows_ = memory
        return self

    def transform(self, X: Any) -> Floats:
        """Fill in what is missing."""
        check_is_fitted(self, "rows_")
        self._check()
        rows = self._rows(X)
        filled = self.rows_.filled(rows, self.n_neighbors, self.weights)
        if (left := np.isnan(filled).any(axis=0)).any():
            warnings.warn(f"nothing was ever seen of columns {np.flatnonzero(left).tolist()}: NaN stays", stacklevel=2)
        return filled


class SQHNClassifier(ClassifierMixin, _Neighbors):  # type: ignore[misc]
    """Classes by the neurons most like a row: each sample that they were learned from votes for its class.

    n_neighbors, weights: as in `SQHNImputer`.

    classes_, class_count_: the classes, and how many rows of each were learned.

    When the memory is full, rows are averaged with the most alike, whatever their class, and a neuron has the votes of
    all of them (of at most 16 classes).

    >>> import numpy as np
    >>> rows = [[0, 0], [0, 1], [5, 5], [5, 6]]
    >>> classifier = SQHNClassifier(n_neighbors=2).fit(rows, ["near", "near", "far", "far"])
    >>> classifier.predict([[1, 0], [6, np.nan]]).tolist()
    ['near', 'far']
    """

    classes_: NDArray[Any]
    class_count_: NDArray[np.int64]

    def fit(self, X: Any, y: Any) -> Self:
        """Forget everything and learn rows with their classes."""
        return self._learn(X, y, None, first=True)

    def partial_fit(self, X: Any, y: Any, classes: Sequence[Any] | NDArray[Any] | None = None) -> Self:
        """Learn more rows with their classes.

        classes: all that will ever come; needed in the first call.
        """
        first = not self._begun()
        if first and classes is None:
            raise ValueError("classes, all that will ever come, must be given to the first call of partial_fit")
        return self._learn(X, y, classes, first)

    def _learn(self, X: Any, y: Any, classes: Sequence[Any] | NDArray[Any] | None, first: bool) -> Self:
        self._check()
        with self._or_as_before():
            rows, y = self._rows(X, first=first, y=y)
            check_classification_targets(y)
            named = np.unique(y if classes is None else np.asarray(classes)) if first or classes is not None else None
            if not first and named is not None and not np.array_equal(named, self.classes_):
                raise ValueError(f"classes={named.tolist()} are not those of the first call, {self.classes_.tolist()}")
            known = self.classes_ if named is None or not first else named
            if (strange := ~np.isin(y, known)).any():
                raise ValueError(f"y has {y[strange].tolist()[0]!r}, which is not among the classes {known.tolist()}")
            code = np.searchsorted(known, y)
            memory = self._memory(first)
            memory.learn(rows, code.tolist())
        count = np.bincount(code, minlength=len(known))
        self.rows_, self.classes_ = memory, known
        self.class_count_ = count if first else self.class_count_ + count
        return self

    def predict_proba(self, X: Any) -> Floats:
        """The share of votes for each class, in the order of `classes_`; of a row without values, that of all rows."""
        check_is_fitted(self, "rows_")
        self._check()
        votes = self.rows_.votes(self._rows(X), self.n_neighbors, self.weights, len(self.classes_))
        votes = np.where(votes.any(axis=1, keepdims=True), votes, self.class_count_)
        shares: Floats = votes / votes.sum(axis=1, keepdims=True)
        return shares

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the most votes."""
        shares = self.predict_proba(X)
        found: NDArray[Any] = self.classes_[shares.argmax(axis=1)]
        return found
