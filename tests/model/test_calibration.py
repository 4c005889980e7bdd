"""Thresholds with a guaranteed error rate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sqhn import SQHN, EmptyMemoryError, Level
from sqhn.data import load
from sqhn.level import TIE
from sqhn.model.calibration import Calibration, tolerance
from tests.helpers import noisy

Kind = Literal["new", "old"]


def digits() -> NDArray[np.float32]:
    x = load("digits").splits["train"].x.astype(np.float32) / np.float32(255)
    return x[np.random.default_rng(0).permutation(len(x))]


def wrong(memory: SQHN, x: NDArray[np.float32], kind: Kind) -> float:
    return float(np.mean(memory.recognize(x).old == (kind == "new")))


def too_many(error: float, calibrated: int, asked: int) -> float:
    """A share of errors that chance rarely exceeds: four standard deviations above the guaranteed one."""
    return error + 4 * math.sqrt(error * (1 - error) * (1 / calibrated + 1 / asked))


@pytest.mark.parametrize("error", [0.02, 0.1])
@pytest.mark.parametrize("levels", [[Level(capacity=300)], [Level(7, 60), Level(capacity=300)]])
def test_the_error_rate_holds_for_other_samples(levels: list[Level], error: float) -> None:
    x = digits()
    memory = SQHN(x.shape[1:], levels)
    memory.learn(x[:300])
    new = x[300:]
    memory.calibrate(new=new[:500], error=error)
    assert wrong(memory, new[500:], "new") <= too_many(error, 500, len(new) - 500)
    again = noisy(np.repeat(x[:300], 4, axis=0), 0.1)
    again = again[np.random.default_rng(1).permutation(len(again))]
    memory.calibrate(old=again[:600], error=error)
    assert wrong(memory, again[600:], "old") <= too_many(error, 600, 600)
    assert wrong(memory, x[:300], "old") <= too_many(error, 600, 300)  # without noise they match better


@settings(deadline=None)
@given(st.data())
def test_the_tolerance_allows_no_more_errors_and_no_fewer(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 60))
    score = np.array(data.draw(st.lists(st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9]), min_size=n, max_size=n)))
    mean = np.array(data.draw(st.lists(st.sampled_from([0.25, 0.5, 1.0]), min_size=n, max_size=n)))
    error = data.draw(st.sampled_from([0.02, 0.05, 0.1, 0.25, 0.5]))
    kind: Any = data.draw(st.sampled_from(["new", "old"]))
    allowed = math.floor(round(error * (n + 1), 9))
    if not allowed:
        with pytest.raises(ValueError, match=f"needs at least {round(1 / error) - 1} samples; got {n}"):
            tolerance(score, mean, kind, error)
        return
    rho = tolerance(score, mean, kind, error)
    old = score >= rho * mean - TIE
    assert (old if kind == "new" else ~old).sum() <= allowed - 1
    looser = tolerance(score, mean, kind, min(0.99, (allowed + 1) / (n + 1)))
    assert looser <= rho if kind == "new" else looser >= rho


def test_the_calibration_is_reported_and_saved(tmp_path: Path) -> None:
    x = digits()
    memory = SQHN(x.shape[1:], capacity=100)
    memory.learn(x[:50])
    assert memory.calibration is None
    rho = memory.calibrate(new=x[300:500], error=0.05)
    assert rho == memory.rho
    assert memory.calibration is not None
    assert memory.calibration._replace(ratios=None) == Calibration("new", 0.05, 200, 50)
    memory.save(tmp_path / "m")
    other = SQHN.load(tmp_path / "m")
    assert (other.rho, other.calibration) == (rho, memory.calibration)
    memory.rho = 0.9
    assert memory.calibration is None
    other.reset()
    assert (other.calibration, other.options.rho) == (None, None)
    memory.calibrate(new=x[300:500], error=np.float32(0.05))
    memory.save(tmp_path / "m")
    assert SQHN.load(tmp_path / "m").calibration == memory.calibration


def test_an_outdated_calibration_warns(recwarn: pytest.WarningsRecorder) -> None:
    x = digits()
    memory = SQHN(x.shape[1:], capacity=300)
    memory.learn(x[:50])
    memory.calibrate(new=x[300:500], error=0.05)
    memory.learn(x[50:99])
    memory.recognize(x[0])
    assert not recwarn.list
    memory.learn(x[100])
    with pytest.warns(UserWarning, match=r"calibrated at step 50 .* 0\.05 of new .* 100 samples .* calibrate again"):
        memory.recognize(x[0])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "new=x, .* or old=x"),
        ({"new": np.ones((200, 4)), "old": np.ones((200, 4))}, "new=x, .* or old=x"),
        ({"new": np.ones(4)}, r"\(n, 4\); got one"),
        ({"new": np.ones((98, 4))}, "error of 0.01 needs at least 99 samples; got 98"),
        ({"new": np.ones((200, 4)), "error": 0}, "between 0 and 1.*got 0"),
        ({"new": np.ones((200, 4)), "error": 1.5}, "between 0 and 1.*got 1.5"),
        ({"old": np.full((200, 4), np.nan)}, "nan"),
        ({"old": np.ones((200, 5))}, r"\(200, 5\)"),
    ],
)
def test_invalid_calibrations_change_nothing(how: dict[str, Any], message: str) -> None:
    memory = SQHN((4,), capacity=9)
    memory.learn(np.random.default_rng(0).random((5, 4)))
    with pytest.raises(ValueError, match=message):
        memory.calibrate(**how)
    assert (memory.calibration, memory.options.rho) == (None, None)


def test_empty_memories_and_negative_mean_matches() -> None:
    with pytest.raises(EmptyMemoryError):
        SQHN((4,), capacity=9).calibrate(new=np.ones((200, 4)))
    memory = SQHN((2,), capacity=1, similarity="cosine")
    memory.learn(np.array([[1.0, 0.0], [-1.0, 0.01], [0.0, -1.0]]))  # each is opposite to the mean of those before
    with pytest.raises(ValueError, match="mean match of -"):
        memory.calibrate(new=np.ones((200, 2)))


def test_no_tolerance_calls_opposites_old() -> None:
    """A negative match is below every tolerance, so too many of them cannot be calibrated."""
    memory = SQHN((3,), capacity=1, similarity="cosine")
    memory.learn([1.0, 0, 0])
    old = np.tile([[-1.0, 0, 0], [1.0, 0, 0]], (50, 1))
    with pytest.raises(ValueError, match="50 of 100 samples have a match below 0"):
        memory.calibrate(old=old, error=0.1)
    assert memory.calibration is None
    memory.calibrate(old=old, error=0.6)
    assert 1 - memory.recognize(old).old.mean() <= 0.6


@pytest.mark.parametrize("rho", [None, 0.9])
def test_reset_restores_the_rho_before_calibration(rho: float | None, tmp_path: Path) -> None:
    x = digits()
    memory = SQHN((28, 28), capacity=50, rho=rho)
    before = memory.rho
    memory.learn(x[:50])
    for kind in ("new", "old"):
        memory.calibrate(**{kind: x[:100]}, error=0.1)  # type: ignore[arg-type]
    memory.save(tmp_path / "m")
    for one in (memory, SQHN.load(tmp_path / "m")):
        assert one.rho != before
        one.reset()
        assert one.rho == before


def test_with_missing_values_the_error_rate_is_that_of_observed_ones() -> None:
    x = digits()
    memory = SQHN((28, 28), capacity=300, similarity="euclidean")
    memory.learn(x[:300])
    half = np.broadcast_to(np.arange(28) < 14, (28, 28))
    by_mask = memory.calibrate(new=x[300:700], error=0.1, observed=half)
    assert np.mean(memory.recognize(x[700:1500], half).old) <= too_many(0.1, 400, 800)
    masked = np.ma.array(x[300:700], mask=~np.broadcast_to(half, (400, 28, 28)))
    assert memory.calibrate(new=masked, error=0.1) == by_mask


@pytest.mark.parametrize("inference", ["paper", "evidence"])
@pytest.mark.parametrize("kind", ["new", "old"])
def test_p_is_the_rank_among_the_samples_of_the_calibration(kind: Kind, inference: Any, tmp_path: Path) -> None:
    x = digits()[:250]
    memory = SQHN(x.shape[1:], capacity=100)
    memory.learn(x[:100])
    samples = noisy(x[:100], 0.3) if kind == "old" else x[100:200]
    given: dict[str, Any] = {kind: samples, "error": 0.1, "inference": inference}
    assert memory.recognize(x).p is None
    memory.calibrate(**given)
    known, found = (memory.recognize(one, inference=inference) for one in (samples, x))
    ratio, asked = known.score / known.threshold, found.score / found.threshold  # thresholds are rho times the means
    sign = 1 if kind == "new" else -1
    extreme = sign * ratio >= sign * asked[:, None] - TIE
    np.testing.assert_array_equal(found.p, (1 + extreme.sum(axis=1)) / (len(samples) + 1))
    np.testing.assert_array_equal(found.p <= 0.1, found.old == (kind == "new"))
    assert memory.recognize(x[0], inference=inference).p == found.p[0]
    memory.save(tmp_path / "memory.sqhn")
    loaded = SQHN.load(tmp_path / "memory.sqhn")
    np.testing.assert_array_equal(loaded.recognize(x, inference=inference).p, found.p)
    assert "100 ratios" in repr(loaded.inspect(lambda model: model.evidence_calibration or model.calibration))


@pytest.mark.parametrize("similarity", ["shifted_cosine", "cosine", "euclidean"])
def test_p_does_not_depend_on_rounding(similarity: Any) -> None:
    known, unknown = np.random.default_rng(0).random((2, 30, 8, 8))
    memory = SQHN((8, 8), capacity=30, similarity=similarity)
    memory.learn(known)
    memory.calibrate(old=known, error=0.3)  # all match exactly, but for rounding
    np.testing.assert_array_equal(memory.recognize(known).p, 1)
    memory.calibrate(new=np.repeat(unknown[:1], 30, axis=0), error=0.3)
    np.testing.assert_array_equal(memory.recognize(unknown[:1]).p, 1)


def test_p_is_uniform_for_samples_like_those_of_the_calibration() -> None:
    x = digits()
    memory = SQHN(x.shape[1:], capacity=300)
    memory.learn(x[:300])
    memory.calibrate(new=x[300:1300], error=0.1)
    p = memory.recognize(x[1300:]).p
    for q in (0.01, 0.1, 0.5, 0.9):
        assert np.mean(p <= q) <= too_many(q, 1000, len(p))
