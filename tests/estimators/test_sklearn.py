"""The scikit-learn estimators: its own checks, and typical uses."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sqhn import SQHN, Level
from sqhn.estimators.tables import WhenFull
from sqhn.sklearn import SQHNClassifier, SQHNDetector, SQHNImputer, SQHNRegressor

Floats = NDArray[np.float64]
KNOWN = {
    "check_outliers_train": "it expects outliers among the learned rows, but stored rows are known",
    "check_outliers_fit_predict": "it expects fit_predict to equal fit and predict, which knows stored rows",
}


def rows(count: int, seed: int, missing: float = 0.0) -> Floats:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4)) @ np.random.default_rng(9).normal(size=(4, 4))
    gone = rng.random(x.shape) < missing
    gone[gone.all(axis=1), 0] = False
    return np.where(gone, np.nan, x)


@parametrize_with_checks(
    [SQHNDetector(), SQHNImputer(), SQHNClassifier(), SQHNRegressor()],
    expected_failed_checks=lambda estimator: KNOWN if isinstance(estimator, SQHNDetector) else {},
)  # type: ignore[untyped-decorator]
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


# -- all of them -------------------------------------------------------------------------------------------------------

ALL = [SQHNDetector(50), SQHNImputer(50), SQHNClassifier(50), SQHNRegressor(50)]


def fitted(estimator: Any, x: Any) -> Any:
    return clone(estimator).fit(x, np.arange(len(x)) % 3)


def asked(estimator: Any, x: Any) -> Any:
    verb: dict[Any, str] = {
        SQHNDetector: "score_samples",
        SQHNImputer: "transform",
        SQHNClassifier: "predict_proba",
        SQHNRegressor: "predict",
    }
    return getattr(estimator, verb[type(estimator)])(x)


def same(one: Any, other: Any, x: Any) -> None:
    np.testing.assert_array_equal(asked(one, x), asked(other, x))


@pytest.mark.parametrize("estimator", ALL)
def test_batches_give_the_same_result_as_one_fit(estimator: Any) -> None:
    x = rows(200, 0, 0.2)
    whole, parts = fitted(estimator, x), clone(estimator)
    for start in range(0, 200, 33):
        now = slice(start, start + 33)
        more = {"classes": [0, 1, 2]} if isinstance(estimator, SQHNClassifier) else {}
        parts.partial_fit(x[now], (np.arange(200) % 3)[now], **more)
    np.testing.assert_array_equal(whole.memory_.prototypes, parts.memory_.prototypes)
    np.testing.assert_allclose(asked(whole, x[:50]), asked(parts, x[:50]))
    if isinstance(estimator, SQHNDetector):
        assert whole.offset_ == parts.offset_


@pytest.mark.parametrize("estimator", ALL)
def test_pickles_and_repeated_fits(estimator: Any) -> None:
    x = rows(100, 1, 0.2)
    one = fitted(estimator, x)
    same(one, pickle.loads(pickle.dumps(one)), x)
    same(one, fitted(estimator, rows(30, 2)).fit(x, np.arange(100) % 3), x)


@pytest.mark.parametrize("estimator", ALL)
def test_queries_change_nothing(estimator: Any) -> None:
    x = rows(100, 1, 0.2)
    one = fitted(estimator, x)
    before = pickle.dumps(one)
    asked(one, x)
    assert pickle.dumps(one) == before


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize("kind", ["nullable", "polars", "tensor", "bfloat16", "masked", "float32"])
def test_many_kinds_of_tables(estimator: Any, kind: str) -> None:
    whole = np.round(4 * rows(60, 3, 0.2))  # exact in all of them
    torch = pytest.importorskip("torch")
    listed = {name: [None if v != v else v for v in whole[:, j].tolist()] for j, name in enumerate("abcd")}
    kinds: dict[str, Any] = {
        "nullable": lambda: pd.DataFrame(whole).convert_dtypes(),
        "polars": lambda: pl.DataFrame(listed),
        "tensor": lambda: torch.tensor(whole),
        "bfloat16": lambda: torch.tensor(whole).bfloat16(),
        "masked": lambda: np.ma.masked_invalid(whole),
        "float32": lambda: whole.astype(np.float32),
    }
    given = kinds[kind]()
    if kind == "nullable":
        assert {str(dtype) for dtype in given.dtypes} == {"Int64"}
    one, other = fitted(estimator, whole), fitted(estimator, given)
    np.testing.assert_allclose(asked(one, whole), asked(other, given), rtol=1e-6)


@pytest.mark.parametrize("estimator", ALL)
def test_uint8_is_not_scaled(estimator: Any) -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 4)).astype(np.uint8)
    same(fitted(estimator, x), fitted(estimator, x.astype(float)), x)


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([["a", "b"]] * 4, "column 0 has words .'a'.: encode it"),
        ([[1, np.inf]] * 4, "column 1 has inf in row 0"),
        ([[np.nan, 1e300]] * 4, "column 1 has 1e\\+300 in row 0: beyond"),
        ([1, 2, 3, 4], "Expected 2D array"),
        (np.ones((4, 2, 2)), "dim 3"),
        (np.empty((0, 2)), "0 sample"),
        (np.array([[1, 2j]] * 4), "Complex data"),
    ],
)
def test_bad_tables_are_refused_and_change_nothing(estimator: Any, x: Any, words: str) -> None:
    one = fitted(estimator, rows(50, 0)[:, :2])
    before = one.memory_.prototypes
    for call in (one.fit, one.partial_fit):
        with pytest.raises(ValueError, match=words):
            call(x, [0, 1, 2, 0][: len(x)])
    with pytest.raises(ValueError, match=words):
        asked(one, x)
    np.testing.assert_array_equal(one.memory_.prototypes, before)


@pytest.mark.parametrize("estimator", ALL)
def test_an_error_leaves_the_estimator_unchanged(estimator: Any) -> None:
    x = rows(50, 0)
    one = fitted(estimator, x)
    before = asked(one, x)
    for bad in ([[np.inf, 1.0], [1.0, 2.0]], [[1e300, 1.0], [1.0, 2.0]]):
        with pytest.raises(ValueError, match=r"has inf|beyond"):
            one.fit(bad, [0, 1])
    np.testing.assert_array_equal(asked(one, x), before)


@pytest.mark.parametrize("estimator", ALL)
def test_changed_parameters_are_checked(estimator: Any) -> None:
    x = rows(50, 0, 0.2)
    one = fitted(estimator, x).set_params(capacity=7)
    with pytest.raises(ValueError, match=r"made with capacity=50 .* fitted again"):
        one.partial_fit(x, np.arange(50) % 3)
    if "weights" in one.get_params():
        for name, value in (("weights", "heavy"), ("n_neighbors", 0), ("n_neighbors", 2.5)):
            with pytest.raises(ValueError, match=name):
                asked(fitted(estimator, x).set_params(**{name: value}), x)


@pytest.mark.parametrize("estimator", ALL)
@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"capacity": 0}, "capacity"), ({"when_full": "burn"}, "when_full"), ({"weights": "heavy"}, "weights"),
     ({"n_neighbors": 1.5}, "n_neighbors"), ({"contamination": 0.9}, "contamination")],
)  # fmt: skip
def test_bad_parameters_are_refused(estimator: Any, parameters: dict[str, Any], words: str) -> None:
    if not set(parameters) <= set(estimator.get_params()):
        pytest.skip("it has no such parameter")
    with pytest.raises(ValueError, match=words):
        fitted(clone(estimator).set_params(**parameters), rows(9, 0))


@pytest.mark.parametrize("estimator", ALL)
def test_errors_name_the_column(estimator: Any) -> None:
    good = pd.DataFrame({"size": np.arange(20.0), "color": 0.0})
    one, y = fitted(estimator, good), np.arange(20) % 3
    for bad, words in (
        (good.assign(color="white"), r"'color' has words \('white'\): encode it, for instance with OneHotEncoder"),
        (good.assign(color=np.inf), "'color' has inf in row 0: a missing value is NaN"),
        (good.assign(size=[*range(19), 1e16]), "'size' has 1e\\+16 in row 19: beyond"),
    ):
        before = pickle.dumps(one)
        for table in (bad, pl.DataFrame({name: bad[name].tolist() for name in bad})):
            for call in (one.fit, one.partial_fit, clone(estimator).fit):
                with pytest.raises(ValueError, match=f"column {words}"):
                    call(table, y)
            with pytest.raises(ValueError, match=f"column {words}"):
                asked(one, table)
        assert pickle.dumps(one) == before


class Stop(Exception):  # noqa: N818
    pass


def stop(*_: object) -> None:
    raise Stop


@pytest.mark.parametrize("estimator", ALL)
def test_a_stop_leaves_the_estimator_as_it_was_or_complete(estimator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, more = rows(60, 0, 0.2), np.arange(60) % 3, {}
    if isinstance(estimator, SQHNClassifier):
        more = {"classes": [0, 1, 2]}
    begun = clone(estimator).partial_fit(x[:20], y[:20], **more)
    half, whole = pickle.dumps(begun), pickle.dumps(pickle.loads(pickle.dumps(begun)).partial_fit(x[20:], y[20:]))
    learn = SQHN.learn

    def learn_and_signal(*args: Any, **kwargs: Any) -> Any:
        written = learn(*args, **kwargs)
        signal.raise_signal(signal.SIGUSR1)
        return written

    monkeypatch.setattr(SQHN, "learn", learn_and_signal)
    handler = signal.signal(signal.SIGUSR1, stop)
    try:
        for call, expected in (("partial_fit", whole), ("fit", half)):
            one = pickle.loads(half)
            with pytest.raises(Stop):
                getattr(one, call)(x[20:], y[20:])
            same_state(one, pickle.loads(expected))
    finally:
        signal.signal(signal.SIGUSR1, handler)


def same_state(one: Any, other: Any) -> None:
    assert vars(one).keys() == vars(other).keys()
    for name, value in vars(one).items():
        if name == "rows_":
            assert value.memory.step == other.rows_.memory.step
            np.testing.assert_array_equal(value.memory.prototypes, other.rows_.memory.prototypes)
            for part in ("count", "mean", "squares", "votes_of"):
                np.testing.assert_equal(getattr(value, part), getattr(other.rows_, part))
        else:
            np.testing.assert_equal(value, getattr(other, name))


@pytest.mark.parametrize("estimator", ALL)
def test_a_stream_that_drifts_raises_one_warning(estimator: Any) -> None:
    x = rows(1500, 0) + np.linspace(0, 60, 1500)[:, None]
    with pytest.warns(UserWarning, match='the rows drift.*use when_full="oldest"') as found:
        one = fitted(estimator, x)
    assert [warning.filename for warning in found] == [__file__]
    one.partial_fit(x, np.arange(1500) % 3)
    fitted(estimator.set_params(when_full="oldest"), x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        half = clone(estimator).set_params(when_full="average")
        with pytest.raises(UserWarning, match="the rows drift"):
            half.fit(x, np.arange(1500) % 3)
    assert half.memory_.step == 1500
    estimator.set_params(when_full="average")


def test_without_scikit_learn_the_error_names_the_extra() -> None:
    program = "import sys; sys.modules['sklearn'] = None; sys.modules['sklearn.base'] = None; import sqhn.sklearn"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'sqhn[sklearn]'" in done.stderr


# -- the detector ------------------------------------------------------------------------------------------------------


def test_scores_follow_the_definition() -> None:
    x = rows(50, 0)
    detector = SQHNDetector().fit(x)
    y = rows(20, 1).astype(np.float32)
    nearest = np.sqrt(((x.astype(np.float32)[None] - y[:, None]) ** 2).mean(axis=2)).min(axis=1)
    np.testing.assert_allclose(detector.score_samples(y), 1 / (1 + nearest), rtol=1e-5)
    np.testing.assert_array_equal(detector.decision_function(y), detector.score_samples(y) - detector.offset_)
    np.testing.assert_array_equal(detector.predict(y) == -1, detector.decision_function(y) < 0)


def test_the_threshold_comes_from_scores_before_learning() -> None:
    x = rows(40, 0)
    memory = SQHN((4,), [Level(capacity=1000, alpha=np.inf)], similarity="euclidean")
    before = []
    for row in x:
        if len(memory):
            before.append(memory.recognize(row).score)
        memory.learn(row)
    latest = sorted(before[-20:])
    assert SQHNDetector(contamination=0.1).fit(x).offset_ == pytest.approx(latest[1])  # the floor of .1 * 21 is 2
    # One in a hundred takes more than 39 scores: the lowest of all.
    assert SQHNDetector(contamination=0.01).fit(x).offset_ == pytest.approx(min(before))


@pytest.mark.parametrize("capacity", [10_000, 100])
@pytest.mark.parametrize("contamination", [0.02, 0.1])
def test_the_share_of_false_alarms(capacity: int, contamination: float) -> None:
    rates = []
    for seed in range(8):
        detector = SQHNDetector(capacity, contamination=contamination).fit(rows(1000, seed))
        rates.append(np.mean(detector.predict(rows(1000, 100 + seed)) == -1))
    # Queries score a little better than the rows before, so there may be fewer. Allow four standard deviations, for 500
    # scores and 1,000 queries over 8 seeds.
    deviation = np.sqrt(contamination * (1 - contamination) * (1 / 500 + 1 / 1000) / 8)
    assert contamination / 2 - 4 * deviation < np.mean(rates) < contamination + 4 * deviation


@pytest.mark.parametrize("missing", [0.01, 0.3])
def test_missing_values_do_not_hide_outliers(missing: float) -> None:
    detector = SQHNDetector().fit(rows(1000, 0, missing))
    strange = rows(200, 1) + np.array([40, 0, 0, 0])
    assert (detector.predict(strange) == -1).mean() > 0.99
    assert (detector.predict(rows(200, 2)) == -1).mean() < 0.1


def test_one_row_sets_no_threshold() -> None:
    detector = SQHNDetector().fit([[1.0, 2.0]])
    assert detector.predict([[1.0, 2.0], [50.0, 50.0]]).tolist() == [1, 1]


def test_outliers_within_a_batch() -> None:
    x = rows(100, 0)
    x[[3, 50]] += 100 * np.array([[1], [-1]])
    found = SQHNDetector(contamination=0.02).fit_predict(x)
    assert np.flatnonzero(found == -1).tolist() == [3, 50]
    twice = np.concatenate([x, x[[3]]])  # now it is not alone
    assert SQHNDetector(contamination=0.02).fit_predict(twice)[[3, -1]].tolist() == [1, 1]


def test_a_window_forgets_what_was_normal() -> None:
    x = rows(300, 0)
    detector = SQHNDetector(100, when_full="oldest").fit(np.concatenate([x, x + 1000]))
    assert (detector.predict(x) == -1).all()


def test_an_empty_row_is_refused() -> None:
    detector = SQHNDetector().fit(rows(20, 0))
    with pytest.raises(ValueError, match=r"row 1 of an array of shape \(2, 4\) has no value"):
        detector.predict([[1, 2, 3, 4], [np.nan] * 4])


# -- the imputer -------------------------------------------------------------------------------------------------------


def test_known_values_stay_unchanged() -> None:
    x = rows(80, 0, 0.3) * 1e3 + 1 / 3  # not exact in float32
    filled = SQHNImputer().fit_transform(x)
    there = ~np.isnan(x)
    np.testing.assert_array_equal(filled[there], x[there])
    assert np.isfinite(filled).all()


def test_columns_keep_their_names() -> None:
    frame = pd.DataFrame(rows(30, 0, 0.3), columns=[*"abcd"])
    out = SQHNImputer().set_output(transform="pandas").fit_transform(frame)
    assert isinstance(out, pd.DataFrame)
    assert out.columns.tolist() == [*"abcd"]
    assert SQHNImputer().set_output(transform="polars").fit_transform(frame).columns == [*"abcd"]
    with pytest.raises(ValueError, match="feature names"):
        SQHNImputer().fit(frame).transform(frame[[*"dcba"]])
    assert not hasattr(SQHNImputer().fit(frame).fit(frame.to_numpy()), "feature_names_in_")


def test_a_column_without_known_values() -> None:
    imputer = SQHNImputer().fit([[1, np.nan], [2, np.nan]])
    with pytest.warns(UserWarning, match=r"columns \[1\]"):
        out = imputer.transform([[np.nan, np.nan]])
    np.testing.assert_array_equal(out, [[1.5, np.nan]])


def test_in_a_pipeline() -> None:
    x, y = load_iris(return_X_y=True)
    gone = np.random.default_rng(0).random(x.shape) < 0.2
    pipeline = make_pipeline(StandardScaler(), SQHNImputer(), LogisticRegression())
    assert cross_val_score(pipeline, np.where(gone, np.nan, x), y, cv=5).mean() > 0.85
    pipeline = make_pipeline(StandardScaler(), SQHNClassifier())
    search = GridSearchCV(pipeline, {"sqhnclassifier__n_neighbors": [1, 10]}, cv=3).fit(x, y)
    assert search.best_score_ > 0.9


# -- the classifier ----------------------------------------------------------------------------------------------------


def test_digits_after_one_look() -> None:
    x, y = load_digits(return_X_y=True)
    assert SQHNClassifier(200).fit(x[:1200] / 16, y[:1200]).score(x[1200:] / 16, y[1200:]) > 0.9


def test_classes_of_any_kind() -> None:
    x = rows(60, 0)
    names = np.array(["b", "a", "c"])[np.arange(60) % 3]
    classifier = SQHNClassifier(n_neighbors=1).fit(x, names)
    assert classifier.classes_.tolist() == [*"abc"]
    assert classifier.class_count_.tolist() == [20, 20, 20]
    assert classifier.predict(x).tolist() == names.tolist()
    np.testing.assert_allclose(classifier.predict_proba(x).sum(axis=1), 1)


def test_an_empty_row_has_the_shares_of_all() -> None:
    classifier = SQHNClassifier().fit(rows(40, 0), [0] * 30 + [1] * 10)
    np.testing.assert_allclose(classifier.predict_proba([[np.nan] * 4]), [[0.75, 0.25]])


def test_classes_are_required_and_fixed() -> None:
    x = rows(6, 0)
    with pytest.raises(ValueError, match="first call of partial_fit needs classes"):
        SQHNClassifier().partial_fit(x, [0, 1] * 3)
    classifier = SQHNClassifier().partial_fit(x, [0, 1] * 3, classes=[0, 1, 2])
    assert classifier.predict_proba(x).shape == (6, 3)
    with pytest.raises(ValueError, match="differ from those of the first call"):
        classifier.partial_fit(x, [0, 1] * 3, classes=[0, 1])
    with pytest.raises(ValueError, match="has 7, which is not among"):
        classifier.partial_fit(x, [0, 7] * 3)
    with pytest.raises(ValueError, match="Unknown label type"):
        SQHNClassifier().fit(x, np.linspace(0, 1, 6))
    assert classifier.memory_.step == 6


def test_classes_are_routed() -> None:
    x, y = load_iris(return_X_y=True)
    with sklearn.config_context(enable_metadata_routing=True):
        inner = SQHNClassifier().set_partial_fit_request(classes=True)
        outer = OneVsRestClassifier(inner).partial_fit(x, y, classes=[0, 1, 2])
        assert outer.score(x, y) > 0.9


# -- the regressor -----------------------------------------------------------------------------------------------------


def test_a_regressor_of_all_rows_is_that_of_scikit_learn() -> None:
    x, y = load_diabetes(return_X_y=True)
    x = 20 * x  # about one
    ours = SQHNRegressor(weights="uniform", n_neighbors=5).fit(x[:300], y[:300])
    theirs = KNeighborsRegressor(5).fit(x[:300].astype(np.float32), y[:300])
    np.testing.assert_allclose(ours.predict(x[300:]), theirs.predict(x[300:].astype(np.float32)), rtol=1e-9)


def test_predictions_follow_the_scale_of_the_targets() -> None:
    x, y = rows(200, 0, 0.1), np.random.default_rng(1).normal(size=200)
    one, other = (SQHNRegressor(30).fit(x, target) for target in (y, 3e6 - 1e5 * y))
    np.testing.assert_allclose(other.predict(x), 3e6 - 1e5 * one.predict(x), rtol=1e-9)
    np.testing.assert_array_equal(one.memory_.prototypes, other.memory_.prototypes)


def test_an_empty_row_has_the_mean_of_all_targets() -> None:
    regressor = SQHNRegressor().fit(rows(3, 0), [1, 2, 6])
    regressor.partial_fit([[np.nan] * 4], [11])
    assert regressor.predict([[np.nan] * 4]).tolist() == [5.0]
    assert SQHNRegressor().fit([[np.nan]] * 2, [1, 2]).predict([[7.0]]).tolist() == [1.5]


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (["1", "2", "3"], r"y has words \('1'\): targets must be numbers"),
        ([1, np.nan, 3], "contains NaN"),
        ([1, None, 3], "y has nan: targets must be numbers"),
        ([1, np.inf, 3], "infinity"),
        ([1, 2, -1e16], r"y has -1e\+16: targets must be numbers within"),
        ([1, 2], "inconsistent numbers of samples"),
        ([[1, 2]] * 3, "1d array"),
    ],
)
def test_bad_targets_are_refused_and_change_nothing(y: Any, words: str) -> None:
    regressor = SQHNRegressor().fit(rows(5, 0), range(5))
    before = pickle.dumps(regressor)
    for call in (regressor.fit, regressor.partial_fit):
        with pytest.raises(ValueError, match=words):
            call(rows(3, 0), y)
    assert pickle.dumps(regressor) == before


@pytest.mark.parametrize("when_full", ["average", "oldest", "overwrite", "freeze"])
def test_a_bounded_regressor(when_full: WhenFull) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (1500, 2))
    y = x[:, 0] ** 2 + x[:, 1]
    regressor = SQHNRegressor(100, when_full=when_full)
    for part in range(0, 1000, 90):
        regressor.partial_fit(x[part : part + 90], y[part : part + 90])
    assert len(regressor.memory_) == 100
    assert regressor.score(x[1000:], y[1000:]) > 0.85
