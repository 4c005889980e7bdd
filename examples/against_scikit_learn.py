"""Compare the estimators of `sqhn.sklearn` with those of scikit-learn: prints the tables of docs/estimators.md.

The data sets are those that scikit-learn contains. Each seed from 0 to 4 has its own split into 70% training and 30%
test rows; columns are standardized with the training rows. "All": every training row is stored. "A tenth": memories
have a tenth as many neurons as training rows, and the other estimators keep a reservoir sample of a tenth of the rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.ensemble import IsolationForest
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, LocalOutlierFactor, NearestNeighbors
from sklearn.preprocessing import StandardScaler

from sqhn.sklearn import SQHNClassifier, SQHNDetector, SQHNImputer, SQHNRegressor

Values = NDArray[np.float64]
Cells = dict[str, dict[str, float]]  # by data set and estimator
SEEDS = range(5)
MISSING = 0.3
IMPUTED = ("iris", "wine", "breast_cancer", "diabetes", "digits")
CLASSIFIED = ("iris", "wine", "breast_cancer", "digits")
REGRESSED = ("iris", "wine", "breast_cancer", "diabetes")
DETECTED = {"breast_cancer": 0, "wine": 2, "digits": 8, "iris": 1}  # the class of the outliers


def data(name: str) -> tuple[Values, NDArray[Any]]:
    """The rows and classes of a data set."""
    loaded = getattr(datasets, f"load_{name}")()
    return loaded.data, loaded.target


def standardized(train: Values, *others: Values) -> list[Values]:
    """All rows, standardized with the mean and deviation of the training rows."""
    scaler = StandardScaler().fit(train)
    return [scaler.transform(rows) for rows in (train, *others)]


def reservoir(count: int, seed: int) -> NDArray[np.int64]:
    """The rows of a reservoir sample of a tenth of a stream: a uniform choice."""
    return np.random.default_rng(seed).permutation(count)[: count // 10]


def mean(cells: Cells) -> Cells:
    """The table with a last row, the mean over the data sets."""
    names = next(iter(cells.values()))
    return cells | {"mean": {name: float(np.mean([row[name] for row in cells.values()])) for name in names}}


def over_seeds(measure: Callable[[int], dict[str, float]]) -> dict[str, float]:
    """The means over seeds of what `measure(seed)` returns."""
    found = [measure(seed) for seed in SEEDS]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


# -- missing values ----------------------------------------------------------------------------------------------------


def with_missing(rows: Values, seed: int) -> Values:
    """The rows with 30% of their values missing at random, but at least one value in each."""
    missing = np.random.default_rng(seed).random(rows.shape) < MISSING
    missing[missing.all(axis=1), 0] = False
    return np.where(missing, np.nan, rows)


def incomplete_split(name: str, seed: int) -> list[Values]:
    """Training rows and test rows with missing values, and the complete test rows."""
    train, complete = train_test_split(data(name)[0], test_size=0.3, random_state=seed)
    return standardized(with_missing(train, 2 * seed), with_missing(complete, 2 * seed + 1), complete)


def imputation(tenth: bool) -> Cells:
    """The root mean square error of the imputed values, with missing values in training and test rows."""

    def measured(name: str, seed: int) -> dict[str, float]:
        train, test, complete = incomplete_split(name, seed)
        stored = train[reservoir(len(train), seed)] if tenth else train
        memory = SQHNImputer(capacity=len(stored)).fit(train)
        imputers = {
            "SQHNImputer": memory,
            "KNNImputer(5)": KNNImputer(n_neighbors=5).fit(stored),
            "KNNImputer(10)": KNNImputer(n_neighbors=10).fit(stored),
            'KNNImputer(5, "distance")': KNNImputer(n_neighbors=5, weights="distance").fit(stored),
            "means": SimpleImputer().fit(train),
        }
        missing = np.isnan(test)
        return {
            name: float(np.sqrt(np.mean((imputer.transform(test) - complete)[missing] ** 2)))
            for name, imputer in imputers.items()
        }

    return mean({name: over_seeds(lambda seed, name=name: measured(name, seed)) for name in IMPUTED})  # type: ignore[misc]


# -- outliers ----------------------------------------------------------------------------------------------------------


def outlier_split(name: str, seed: int) -> list[Values]:
    """Training rows and test rows of all classes but one, and the rows of that one."""
    rows, y = data(name)
    new = y == DETECTED[name]
    train, test = train_test_split(rows[~new], test_size=0.3, random_state=seed)
    return standardized(train, test, rows[new])


def detection(tenth: bool) -> Cells:
    """The area under the ROC curve, with one class as outliers; and the false-alarm rate at contamination 5%."""

    def measured(name: str, seed: int) -> dict[str, float]:
        train, test, outliers = outlier_split(name, seed)
        stored = train[reservoir(len(train), seed)] if tenth else train
        ours = SQHNDetector(capacity=len(stored), contamination=0.05).fit(train)
        nearest = NearestNeighbors(n_neighbors=1).fit(stored)
        scores: dict[str, Callable[[Values], Values]] = {
            "SQHNDetector": ours.score_samples,
            "LOF": LocalOutlierFactor(n_neighbors=min(20, len(stored) - 1), novelty=True).fit(stored).score_samples,
            "IsolationForest": IsolationForest(random_state=seed).fit(stored).score_samples,
            "1-NN": lambda x: -nearest.kneighbors(x)[0][:, 0],
        }
        inlier = np.arange(len(test) + len(outliers)) < len(test)
        both = np.concatenate([test, outliers])
        found = {name: float(roc_auc_score(inlier, score(both))) for name, score in scores.items()}
        return found | {"false alarms of SQHNDetector": float(np.mean(ours.predict(test) == -1))}

    return mean({name: over_seeds(lambda seed, name=name: measured(name, seed)) for name in DETECTED})  # type: ignore[misc]


# -- classes -----------------------------------------------------------------------------------------------------------


def labeled_split(name: str, seed: int, column: bool = False) -> tuple[Values, Values, NDArray[Any], NDArray[Any]]:
    """Training and test rows, and their targets; column: where targets are classes, the last column is the target."""
    rows, y = data(name)
    if column and name != "diabetes":
        rows, y = rows[:, :-1], rows[:, -1]
    train, test, y_train, y_test = train_test_split(rows, y, test_size=0.3, random_state=seed)
    train, test = standardized(train, test)
    return train, test, y_train, y_test


def classification(tenth: bool) -> Cells:
    """The share of test rows that are classified correctly."""

    def measured(name: str, seed: int) -> dict[str, float]:
        train, test, y_train, y_test = labeled_split(name, seed)
        stored = reservoir(len(train), seed) if tenth else np.arange(len(train))
        classifiers = {
            "SQHNClassifier": SQHNClassifier(capacity=len(stored)).fit(train, y_train),
            "KNN(1)": KNeighborsClassifier(1).fit(train[stored], y_train[stored]),
            "KNN(5)": KNeighborsClassifier(5).fit(train[stored], y_train[stored]),
            'KNN(10, "distance")': KNeighborsClassifier(10, weights="distance").fit(train[stored], y_train[stored]),
        }
        return {name: float(np.mean(one.predict(test) == y_test)) for name, one in classifiers.items()}

    return mean({name: over_seeds(lambda seed, name=name: measured(name, seed)) for name in CLASSIFIED})  # type: ignore[misc]


# -- numbers -----------------------------------------------------------------------------------------------------------


def regression(tenth: bool) -> Cells:
    """The coefficient of determination, R2; where targets are classes, the last column is predicted from the others."""

    def measured(name: str, seed: int) -> dict[str, float]:
        train, test, y_train, y_test = labeled_split(name, seed, column=True)
        stored = reservoir(len(train), seed) if tenth else np.arange(len(train))
        regressors = {
            "SQHNRegressor": SQHNRegressor(capacity=len(stored)).fit(train, y_train),
            "KNN(1)": KNeighborsRegressor(1).fit(train[stored], y_train[stored]),
            "KNN(5)": KNeighborsRegressor(5).fit(train[stored], y_train[stored]),
            'KNN(10, "distance")': KNeighborsRegressor(10, weights="distance").fit(train[stored], y_train[stored]),
        }
        return {name: float(r2_score(y_test, one.predict(test))) for name, one in regressors.items()}

    return mean({name: over_seeds(lambda seed, name=name: measured(name, seed)) for name in REGRESSED})  # type: ignore[misc]


# -- defaults ----------------------------------------------------------------------------------------------------------


def when_full() -> Cells:
    """All tasks with a tenth as many neurons as rows, and a stream with and without drift, by `when_full`."""

    def measured(seed: int, policy: Any) -> dict[str, float]:
        errors, areas, shares, determined = [], [], [], []
        for name in IMPUTED:
            train, test, complete = incomplete_split(name, seed)
            filled = SQHNImputer(len(train) // 10, when_full=policy).fit(train).transform(test)
            errors.append(np.sqrt(np.mean((filled - complete)[np.isnan(test)] ** 2)))
        for name in DETECTED:
            train, test, outliers = outlier_split(name, seed)
            detector = SQHNDetector(len(train) // 10, when_full=policy).fit(train)
            inlier = np.arange(len(test) + len(outliers)) < len(test)
            areas.append(roc_auc_score(inlier, detector.score_samples(np.concatenate([test, outliers]))))
        for name in CLASSIFIED:
            train, test, y, expected = labeled_split(name, seed)
            shares.append(SQHNClassifier(len(train) // 10, when_full=policy).fit(train, y).score(test, expected))
        for name in REGRESSED:
            train, test, y, expected = labeled_split(name, seed, column=True)
            determined.append(SQHNRegressor(len(train) // 10, when_full=policy).fit(train, y).score(test, expected))
        return {
            "missing values (error)": float(np.mean(errors)),
            "outliers": float(np.mean(areas)),
            "classes": float(np.mean(shares)),
            "numbers": float(np.mean(determined)),
            "a stream": stream(seed, policy, 0),
            "a stream that drifts": stream(seed, policy, 12),
        }

    policies = ("average", "oldest", "overwrite", "freeze")
    return {policy: over_seeds(lambda seed, policy=policy: measured(seed, policy)) for policy in policies}  # type: ignore[misc]


def stream(seed: int, policy: Any, drift: float) -> float:
    """The share of rows classified correctly before they are learned; two of four columns move by `drift`."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 4000)
    x = rng.normal(size=(4000, 4))
    x[:, 0] += np.linspace(0, drift, 4000) + 3 * y
    x[:, 1] -= np.linspace(0, drift, 4000)
    classifier, right = SQHNClassifier(200, when_full=policy), []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the rows drift")
        for start in range(0, 4000, 100):
            now = slice(start, start + 100)
            if start:
                right.append(classifier.score(x[now], y[now]))
            classifier.partial_fit(x[now], y[now], classes=[0, 1])
    return float(np.mean(right))


def neighbors() -> Cells:
    """The mean over data sets, all and a tenth, for choices of `n_neighbors` and `weights`."""
    counts = (1, 3, 5, 10, 20)
    found: Cells = {}

    def add(estimator: Any, sizes: int, score: Callable[[Any], float]) -> None:
        for weights in ("distance", "uniform"):
            row = found.setdefault(f'{type(estimator).__name__}, "{weights}"', dict.fromkeys(map(str, counts), 0.0))
            for n in counts:
                estimator.set_params(n_neighbors=n, weights=weights)
                row[str(n)] += score(estimator) / (sizes * 2 * len(SEEDS))

    def error(imputer: Any) -> float:
        return float(np.sqrt(np.mean((imputer.transform(test) - complete)[np.isnan(test)] ** 2)))

    for seed in SEEDS:
        for part in (1, 10):
            for name in IMPUTED:
                train, test, complete = incomplete_split(name, seed)
                add(SQHNImputer(len(train) // part).fit(train), len(IMPUTED), error)
            for make, names in ((SQHNClassifier, CLASSIFIED), (SQHNRegressor, REGRESSED)):
                for name in names:
                    train, query, y, expected = labeled_split(name, seed, column=make is SQHNRegressor)
                    one = make(len(train) // part).fit(train, y)
                    add(one, len(names), partial(make.score, X=query, y=expected))
    return found


# -- time --------------------------------------------------------------------------------------------------------------


def seconds() -> list[list[str]]:
    """Milliseconds to learn 1,257 digits of 64 values and to answer for 540, the best of five runs."""
    rows, y = data("digits")
    train, test, y_train, _ = train_test_split(rows, y, test_size=0.3, random_state=0)
    train, test = standardized(train, test)
    incomplete, incomplete_test = with_missing(train, 0), with_missing(test, 1)
    jobs: dict[str, tuple[Any, tuple[Any, ...], str, Values]] = {
        "SQHNImputer": (SQHNImputer(), (incomplete,), "transform", incomplete_test),
        "KNNImputer": (KNNImputer(), (incomplete,), "transform", incomplete_test),
        "SQHNDetector": (SQHNDetector(), (train,), "predict", test),
        "LOF": (LocalOutlierFactor(novelty=True), (train,), "predict", test),
        "IsolationForest": (IsolationForest(random_state=0), (train,), "predict", test),
        "SQHNClassifier": (SQHNClassifier(), (train, y_train), "predict", test),
        "KNeighborsClassifier": (KNeighborsClassifier(), (train, y_train), "predict", test),
        "SQHNRegressor": (SQHNRegressor(), (train, y_train), "predict", test),
        "KNeighborsRegressor": (KNeighborsRegressor(), (train, y_train), "predict", test),
    }
    found = [["", "fit", "answer"]]
    for name, (estimator, given, method, query) in jobs.items():
        times = [(timed(estimator.fit, *given), timed(getattr(estimator, method), query)) for _ in range(5)]
        found.append([name, *(f"{min(part):.1f}" for part in zip(*times))])
    return found


def timed(call: Callable[..., object], *args: Any) -> float:
    """The duration of a call, in milliseconds."""
    start = time.perf_counter()
    call(*args)
    return 1000 * (time.perf_counter() - start)


# -- tables ------------------------------------------------------------------------------------------------------------


def table(rows: list[list[str]]) -> str:
    """Rows as a Markdown table; the first row is the header."""
    first, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([first, "|" + " --- |" * len(rows[0]), *others])


def as_rows(cells: Cells) -> list[list[str]]:
    """A header, and a row for each data set."""
    names = list(next(iter(cells.values())))
    return [["", *names], *([name, *(f"{row[one]:.3f}" for one in names)] for name, row in cells.items())]


def tables() -> Iterator[tuple[str, Cells]]:
    """All tables but the times, with their titles."""
    for measure in (imputation, detection, classification, regression):
        for tenth in (False, True):
            yield f"{measure.__name__}, {'a tenth' if tenth else 'all'}", measure(tenth)
    yield "when_full", when_full()
    yield "neighbors", neighbors()


def main() -> dict[str, Cells]:
    """Print the tables; return all but the times."""
    found = {}
    for title, cells in tables():
        found[title] = cells
        print(f"{title}\n\n{table(as_rows(cells))}\n")
    print(f"milliseconds\n\n{table(seconds())}")
    return found


if __name__ == "__main__":
    main()
