"""The river estimators: its own checks, and streams of dicts."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import checks, compose, datasets, dummy, evaluate, metrics, preprocessing, stats

from sqhn.estimators.tables import RowMemory
from sqhn.river import SQHNClassifier, SQHNDetector, SQHNImputer, SQHNRegressor

ALL: list[Any] = [SQHNDetector(), SQHNImputer(), SQHNClassifier(), SQHNRegressor()]
FEATURES = "abcd"


class Payments:
    """Stands in for a data set that river would download: one payment in twenty is an outlier."""

    def take(self, count: int) -> Iterator[tuple[dict[str, float], int]]:
        rng = np.random.default_rng(0)
        for _ in range(count):
            odd = int(rng.random() < 0.05)
            yield dict(zip(map(str, range(29)), (rng.normal(size=29) + 3 * odd).tolist())), odd


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "CreditCard", Payments)


def checks_of(model: Any) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "CreditCard", Payments)
        found = list(checks.yield_checks(model))
    assert len(found) > 20
    return [
        pytest.param(model, check, id=f"{type(model).__name__}-{check.__name__}-{i}") for i, check in enumerate(found)
    ]


@pytest.mark.parametrize(("model", "check"), [case for model in ALL for case in checks_of(model)])
def test_the_checks_of_river(model: Any, check: Any) -> None:
    check(model.clone())


def samples(count: int, seed: int) -> list[dict[str, Any]]:
    x = np.random.default_rng(seed).normal(size=(count, len(FEATURES)))
    return [dict(zip(FEATURES, row)) for row in x.tolist()]


def learned(model: Any, x: list[dict[str, Any]]) -> Any:
    for n, one in enumerate(x):
        model.learn_one(*((one, n % 3) if isinstance(model, (SQHNClassifier, SQHNRegressor)) else (one,)))
    return model


def asked(model: Any, x: dict[str, Any]) -> Any:
    verb: dict[Any, str] = {
        SQHNDetector: "score_one",
        SQHNImputer: "transform_one",
        SQHNClassifier: "predict_proba_one",
        SQHNRegressor: "predict_one",
    }
    return getattr(model, verb[type(model)])(x)


@pytest.mark.parametrize("model", ALL)
@pytest.mark.parametrize("nothing", [None, float("nan"), pd.NA])
def test_missing_values_in_all_forms(model: Any, nothing: Any) -> None:
    x = samples(40, 0)
    whole = learned(model.clone(), [{k: v for k, v in one.items() if k != "b" or n % 2} for n, one in enumerate(x)])
    other = learned(model.clone(), [one if n % 2 else one | {"b": nothing} for n, one in enumerate(x)])
    question = samples(1, 1)[0]
    assert asked(whole, question | {"c": None}) == asked(other, question | {"c": nothing})


@pytest.mark.parametrize("model", ALL)
def test_features_may_appear_late(model: Any) -> None:
    x = samples(40, 0)
    late = learned(model.clone(), [{k: v for k, v in one.items() if k < "c" or n > 20} for n, one in enumerate(x)])
    assert late.memory.input_shape == (4,)
    assert late.memory.step == 40
    assert asked(late, x[39] | {"new": 3.0}) is not None  # has no known value


@pytest.mark.parametrize("model", ALL)
def test_text_and_huge_numbers_are_refused_and_change_nothing(model: Any) -> None:
    one = learned(model.clone(), samples(10, 0))
    before = pickle.dumps(one)
    for bad, kind, words in (
        ("red", ValueError, "'color' has words .'red'.: .*OneHotEncoder"),
        ("12", ValueError, "'color' has words .'12'.: .*OneHotEncoder"),
        (1e300, ValueError, r"'color' has 1e\+300: beyond"),
        (10**400, ValueError, r"'color' has 1\.00e\+400: beyond \+-1e\+15"),
        (-(10**5000), ValueError, r"'color' has -1\.00e\+5000: beyond"),
        (float("-inf"), ValueError, "'color' has -inf: beyond"),
    ):
        with pytest.raises(kind, match=words):
            learned(one, [samples(1, 1)[0] | {"color": bad}])
        with pytest.raises(kind, match=words):
            asked(one, {"color": bad})
    assert pickle.dumps(one) == before


@pytest.mark.parametrize("model", ALL)
def test_before_the_first_sample(model: Any) -> None:
    nothing: dict[Any, Any] = {
        SQHNDetector: 0.0,
        SQHNImputer: {"a": 0.0, "b": 1},
        SQHNClassifier: {},
        SQHNRegressor: 0.0,
    }
    fresh = model.clone()
    assert fresh.memory is None
    assert asked(fresh, {"a": None, "b": 1}) == nothing[type(model)]
    learned(fresh, [{}])
    assert asked(fresh, {"a": None, "b": 1}) == {**nothing, SQHNClassifier: {0: 1.0}}[type(model)]


def test_scores_grow_with_the_distance() -> None:
    detector = learned(SQHNDetector(), samples(200, 0))
    assert detector.score_one(samples(200, 0)[7]) == pytest.approx(0, abs=1e-6)
    far = [detector.score_one(dict.fromkeys(FEATURES, value)) for value in (3.0, 10.0, 1000.0)]
    assert far == sorted(far)
    assert far[-1] < 1


def test_a_missing_value_does_not_hide_anomalies() -> None:
    detector = learned(SQHNDetector(), samples(200, 0))
    detector.learn_one({"a": 0.001})
    assert detector.score_one({"a": 0.0, "b": 1000.0}) > 0.99


def test_a_new_feature_is_soon_normal() -> None:
    detector = learned(SQHNDetector(), samples(50, 0))
    for n in range(20):
        detector.learn_one(samples(1, n)[0] | {"e": 500.0 + n % 2})
    assert detector.score_one(samples(1, 3)[0] | {"e": 500.5}) < 0.5
    assert detector.score_one(samples(1, 3)[0] | {"e": 0.0}) > 0.9


def test_absent_features_are_filled_in() -> None:
    imputer = learned(SQHNImputer(n_neighbors=1), samples(50, 0))
    known = samples(50, 0)[7]
    found = imputer.transform_one({"a": known["a"], "z": None})
    assert found == pytest.approx({**known, "z": 0.0})


def present(x: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in x.items() if value is not None}


def test_scaling_before_imputing() -> None:
    model = compose.FuncTransformer(present) | preprocessing.StandardScaler() | SQHNImputer() | SQHNClassifier(300)
    right = 0
    for n, (x, y) in enumerate(datasets.Phishing().take(300)):
        torn = {name: None if (n + i) % 5 == 0 else value for i, (name, value) in enumerate(x.items())}
        right += model.predict_one(torn) == y
        model.learn_one(torn, y)
    assert right > 0.7 * 300


def test_bad_parameters_are_refused() -> None:
    for make, words in (
        (lambda: SQHNDetector(capacity=0), "capacity"),
        (lambda: SQHNImputer(n_neighbors=0), "n_neighbors"),
        (lambda: SQHNClassifier(weights="heavy"), "weights"),  # type: ignore[arg-type]
        (lambda: SQHNDetector(when_full="burn"), "when_full"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=words):
            make()


def test_in_a_pipeline() -> None:
    pipeline = compose.Pipeline(preprocessing.StandardScaler(), SQHNClassifier(300))
    result = evaluate.progressive_val_score(datasets.Phishing(), pipeline, metrics.Accuracy())  # type: ignore[no-untyped-call]
    assert result.get() > 0.85


class Stop(Exception):  # noqa: N818
    pass


def stop(*_: object) -> None:
    raise Stop


@pytest.mark.parametrize("model", ALL)
def test_a_stop_comes_after_the_whole_sample(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = [*samples(9, 0), samples(1, 1)[0] | {"new": 5.0}]
    stopped, whole = learned(model.clone(), x[:9]), learned(model.clone(), x[:9])
    whole.learn_one(*((x[9], 7) if isinstance(model, (SQHNClassifier, SQHNRegressor)) else (x[9],)))
    change = RowMemory.add_columns

    def change_and_signal(*args: Any) -> None:
        change(*args)
        signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(RowMemory, "add_columns", change_and_signal)
    handler = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(Stop):
            stopped.learn_one(*((x[9], 7) if isinstance(model, (SQHNClassifier, SQHNRegressor)) else (x[9],)))
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert stopped.memory.step == 10
    np.testing.assert_array_equal(stopped.memory.prototypes, whole.memory.prototypes)
    for question in (x[3], x[9], {}, {"new": 4.0}):
        assert asked(stopped, question) == asked(whole, question)


def test_a_stream_that_drifts_raises_one_warning() -> None:
    x = [{name: value + n / 100 for name, value in one.items()} for n, one in enumerate(samples(1500, 0))]
    with pytest.warns(UserWarning, match="the rows drift") as found:
        learned(SQHNDetector(capacity=50), x)
    assert [warning.filename for warning in found] == [__file__]


def test_the_regressor_averages_targets() -> None:
    regressor = SQHNRegressor(n_neighbors=2, weights="uniform")
    regressor.learn_one({}, 30)
    assert regressor.predict_one({"a": 1}) == 30
    for a, y in ((0, 1), (1, 2), (10, 27)):
        regressor.learn_one({"a": a}, y)
    assert regressor.predict_one({"a": 0.2}) == 1.5
    assert regressor.predict_one({"a": 9}) == 14.5
    assert regressor.predict_one({"a": None}) == regressor.predict_one({}) == (30 + 1 + 2 + 27) / 4


@pytest.mark.parametrize(
    ("y", "kind"),
    [("3", ValueError), (None, ValueError), ([3], TypeError), (float("nan"), ValueError), (10**400, ValueError),
     (-1e16, ValueError)],
)  # fmt: skip
def test_bad_targets_are_refused_and_change_nothing(y: Any, kind: type[Exception]) -> None:
    regressor = learned(SQHNRegressor(), samples(10, 0))
    before = pickle.dumps(regressor)
    with pytest.raises(kind, match="the target has"):
        regressor.learn_one({"a": 1, "new": 2}, y)
    assert pickle.dumps(regressor) == before


def test_a_regressor_in_a_pipeline() -> None:
    pipeline = compose.Pipeline(preprocessing.StandardScaler(), SQHNRegressor(300))
    found = evaluate.progressive_val_score(datasets.TrumpApproval(), pipeline, metrics.MAE())  # type: ignore[no-untyped-call]
    usual = evaluate.progressive_val_score(datasets.TrumpApproval(), stats_model(), metrics.MAE())  # type: ignore[no-untyped-call]
    assert found.get() < usual.get()


def stats_model() -> Any:
    """Predicts the mean of all targets so far."""
    return dummy.StatisticRegressor(stats.Mean())
