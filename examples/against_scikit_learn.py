"""The estimators of `sqhn.sklearn` beside those of scikit-learn: the tables of docs/estimators.md.

Data sets that scikit-learn carries; seeds 0 to 4, each with a split of its own: 70% are learned, 30% asked. Columns are
scaled to a standard deviation of 1 by what is learned. "All": everything is stored. "A tenth": the stream is seen once,
and a tenth as many neurons, or rows of a reservoir, are kept of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.ensemble import IsolationForest
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, LocalOutlierFactor, NearestNeighbors
from sklearn.preprocessing import StandardScaler

from sqhn.sklearn import SQHNClassifier, SQHNDetector, SQHNImputer

Values = NDArray[np.float64]
Cells = dict[str, dict[str, float]]  # by data set and by what was measured
SEEDS = range(5)
MISSING = 0.3
IMPUTED = ("iris", "wine", "breast_cancer", "diabetes", "digits")
CLASSIFIED = ("iris", "wine", "breast_cancer", "digits")
DETECTED = {"breast_cancer": 0, "wine": 2, "digits": 8, "iris": 1}  # the class that is new


def data(name: str) -> tuple[Values, NDArray[np.int64]]:
    """Rows and classes."""
    loaded = getattr(datasets, f"load_{name}")()
    return loaded.data, loaded.target


def scaled(learned: Values, *others: Values) -> list[Values]:
    """By what is learned."""
    scaler = StandardScaler().fit(learned)
    return [scaler.transform(rows) for rows in (learned, *others)]


def reservoir(count: int, seed: int) -> NDArray[np.int64]:
    """Which rows of a stream a reservoir of a tenth ends up with: any are as likely as others."""
    return np.random.default_rng(seed).permutation(count)[: count // 10]


def mean(cells: Cells) -> Cells:
    """With a last row, the mean over the sets."""
    names = next(iter(cells.values()))
    return cells | {"mean": {name: float(np.mean([row[name] for row in cells.values()])) for name in names}}


def over_seeds(measure: Callable[[int], dict[str, float]]) -> dict[str, float]:
    """The mean of everything that is measured with a seed."""
    found = [measure(seed) for seed in SEEDS]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


# -- missing values ----------------------------------------------------------------------------------------------------


def holes(rows: Values, seed: int) -> Values:
    """Three values in ten are missing, at random."""
    gone = np.random.default_rng(seed).random(rows.shape) < MISSING
    gone[gone.all(axis=1), 0] = False
    return np.where(gone, np.nan, rows)


def imputation(tenth: bool) -> Cells:
    """The root mean square error of what was missing, with holes in what is learned and in what is asked."""

    def measured(name: str, seed: int) -> dict[str, float]:
        whole, wanted = train_test_split(data(name)[0], test_size=0.3, random_state=seed)
        learned, asked, wanted = scaled(holes(whole, 2 * seed), holes(wanted, 2 * seed + 1), wanted)
        kept = learned[reservoir(len(learned), seed)] if tenth else learned
        memory = SQHNImputer(capacity=len(kept)).fit(learned)
        imputers = {
            "SQHNImputer": memory,
            "KNNImputer(5)": KNNImputer(n_neighbors=5).fit(kept),
            "KNNImputer(10)": KNNImputer(n_neighbors=10).fit(kept),
            'KNNImputer(5, "distance")': KNNImputer(n_neighbors=5, weights="distance").fit(kept),
            "means": SimpleImputer().fit(learned),
        }
        gone = np.isnan(asked)
        return {
            name: float(np.sqrt(np.mean((imputer.transform(asked) - wanted)[gone] ** 2)))
            for name, imputer in imputers.items()
        }

    return mean({name: over_seeds(lambda seed, name=name: measured(name, seed)) for name in IMPUTED})  # type: ignore[misc]


# -- outliers ----------------------------------------------------------------------------------------------------------


def detection(tenth: bool) -> Cells:
    """The area under the curve, rows of a class that was never learned against others; and false alarms at 5%."""

    def measured(name: str, seed: int) -> dict[str, float]:
        rows, y = data(name)
        new = y == DETECTED[name]
        learned, asked = train_test_split(rows[~new], test_size=0.3, random_state=seed)
        learned, asked, strange = scaled(learned, asked, rows[new])
        kept = learned[reservoir(len(learned), seed)] if tenth else learned
        ours = SQHNDetector(capacity=len(kept), contamination=0.05).fit(learned)
        nearest = NearestNeighbors(n_neighbors=1).fit(kept)
        scores: dict[str, Callable[[Values], Values]] = {
            "SQHNDetector": ours.score_samples,
            "LOF": LocalOutlierFactor(n_neighbors=min(20, len(kept) - 1), novelty=True).fit(kept).score_samples,
            "IsolationForest": IsolationForest(random_state=seed).fit(kept).score_samples,
            "1-NN": lambda x: -nearest.kneighbors(x)[0][:, 0],
        }
        known = np.arange(len(asked) + len(strange)) < len(asked)
        both = np.concatenate([asked, strange])
        found = {name: float(roc_auc_score(known, score(both))) for name, score in scores.items()}
        return found | {"false alarms of SQHNDetector": float(np.mean(ours.predict(asked) == -1))}

    return mean({name: over_seeds(lambda seed, name=name: measured(name, seed)) for name in DETECTED})  # type: ignore[misc]


# -- classes -----------------------------------------------------------------------------------------------------------


def classification(tenth: bool) -> Cells:
    """The share of rows whose class is right."""

    def measured(name: str, seed: int) -> dict[str, float]:
        rows, y = data(name)
        learned, asked, known, wanted = train_test_split(rows, y, test_size=0.3, random_state=seed)
        learned, asked = scaled(learned, asked)
        kept = reservoir(len(learned), seed) if tenth else np.arange(len(learned))
        classifiers = {
            "SQHNClassifier": SQHNClassifier(capacity=len(kept)).fit(learned, known),
            "KNN(1)": KNeighborsClassifier(1).fit(learned[kept], known[kept]),
            "KNN(5)": KNeighborsClassifier(5).fit(learned[kept], known[kept]),
            'KNN(10, "distance")': KNeighborsClassifier(10, weights="distance").fit(learned[kept], known[kept]),
        }
        return {name: float(np.mean(one.predict(asked) == wanted)) for name, one in classifiers.items()}

    return mean({name: over_seeds(lambda seed, name=name: measured(name, seed)) for name in CLASSIFIED})  # type: ignore[misc]


# -- time --------------------------------------------------------------------------------------------------------------


def seconds() -> list[list[str]]:
    """To learn 1,257 digits of 64 values and to answer for 540, the best of five, in milliseconds."""
    rows, y = data("digits")
    learned, asked, known, _ = train_test_split(rows, y, test_size=0.3, random_state=0)
    learned, asked = scaled(learned, asked)
    torn, partial = holes(learned, 0), holes(asked, 1)
    jobs: dict[str, tuple[Any, tuple[Any, ...], str, Values]] = {
        "SQHNImputer": (SQHNImputer(), (torn,), "transform", partial),
        "KNNImputer": (KNNImputer(), (torn,), "transform", partial),
        "SQHNDetector": (SQHNDetector(), (learned,), "predict", asked),
        "LOF": (LocalOutlierFactor(novelty=True), (learned,), "predict", asked),
        "IsolationForest": (IsolationForest(random_state=0), (learned,), "predict", asked),
        "SQHNClassifier": (SQHNClassifier(), (learned, known), "predict", asked),
        "KNeighborsClassifier": (KNeighborsClassifier(), (learned, known), "predict", asked),
    }
    found = [["", "fit", "answer"]]
    for name, (estimator, given, verb, question) in jobs.items():
        times = [(timed(estimator.fit, *given), timed(getattr(estimator, verb), question)) for _ in range(5)]
        found.append([name, *(f"{min(part):.1f}" for part in zip(*times))])
    return found


def timed(call: Callable[..., object], *args: Any) -> float:
    """In milliseconds."""
    start = time.perf_counter()
    call(*args)
    return 1000 * (time.perf_counter() - start)


# -- tables ------------------------------------------------------------------------------------------------------------


def table(rows: list[list[str]]) -> str:
    """As Markdown."""
    first, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([first, "|" + " --- |" * len(rows[0]), *others])


def as_rows(cells: Cells) -> list[list[str]]:
    """A row for each data set."""
    names = list(next(iter(cells.values())))
    return [["", *names], *([name, *(f"{row[one]:.3f}" for one in names)] for name, row in cells.items())]


def tables() -> Iterator[tuple[str, Cells]]:
    """All but the times."""
    for measure in (imputation, detection, classification):
        for tenth in (False, True):
            yield f"{measure.__name__}, {'a tenth' if tenth else 'all'}", measure(tenth)


def main() -> dict[str, Cells]:
    """Print the tables and return what is in them, but for the times."""
    found = {}
    for title, cells in tables():
        found[title] = cells
        print(f"{title}\n\n{table(as_rows(cells))}\n")
    print(f"milliseconds\n\n{table(seconds())}")
    return found


if __name__ == "__main__":
    main()
