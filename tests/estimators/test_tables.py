"""Memories for rows of a table, compared with plain loops."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.impute import KNNImputer

from sqhn.estimators.tables import SHARPNESS, RowMemory, Weights, WhenFull, as_rows

Floats = NDArray[np.float64]
WEIGHTS: tuple[Weights, ...] = ("distance", "uniform")


def with_holes(shape: tuple[int, int], seed: int, missing: float = 0.3) -> Floats:
    """Random rows with missing values, but at least one value in each."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=shape).astype(np.float32).astype(np.float64)
    gone = rng.random(shape) < missing
    gone[gone.all(axis=1), 0] = False
    return np.where(gone, np.nan, rows)


def plain_weights(distances: list[float], weights: Weights) -> list[float]:
    if weights == "uniform":
        return [1.0] * len(distances)
    mean = sum(distances) / len(distances) or 1.0
    return [float(np.exp(-SHARPNESS * (one - distances[0]) / mean)) for one in distances]


def plain_impute(learned: Floats, asked: Floats, count: int, weights: Weights) -> Floats:
    """The definition, one value at a time, if each learned row has its own neuron."""
    variance = np.array([column[~np.isnan(column)].var() if (~np.isnan(column)).any() else 0 for column in learned.T])
    out = asked.copy()
    for i, j in np.argwhere(np.isnan(asked)):
        squares = (learned - asked[i]) ** 2
        distance = np.where(np.isnan(squares), variance, squares).mean(axis=1)
        able = [n for n in np.argsort(distance, kind="stable") if not np.isnan(learned[n, j])][:count]
        if able:
            shares = plain_weights([float(distance[n]) for n in able], weights)
            out[i, j] = np.average(learned[able, j], weights=shares)
    return out


@given(
    seed=st.integers(0, 10**6), columns=st.integers(2, 6), size=st.integers(4, 60), count=st.integers(1, 5),
    weights=st.sampled_from(WEIGHTS),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_imputed_values_follow_the_definition(seed: int, columns: int, size: int, count: int, weights: Weights) -> None:
    learned, asked = with_holes((size, columns), seed), with_holes((5, columns), seed + 1)
    rows = RowMemory(columns, size, "average")
    rows.learn(learned)
    expected = plain_impute(learned, asked, count, weights)
    expected = np.where(np.isnan(expected), rows.mean, expected)
    expected[:, np.isnan(learned).all(axis=0)] = asked[:, np.isnan(learned).all(axis=0)]
    np.testing.assert_allclose(rows.impute(asked, count, weights), expected, atol=1e-6)


@pytest.mark.parametrize("count", [1, 5])
def test_without_missing_values_in_learned_rows_it_imputes_as_scikit_learn_does(count: int) -> None:
    learned, asked = with_holes((80, 5), 0, missing=0), with_holes((40, 5), 1)
    rows = RowMemory(5, 80, "average")
    rows.learn(learned)
    theirs = KNNImputer(n_neighbors=count).fit(learned).transform(asked)
    np.testing.assert_allclose(rows.impute(asked, count, "uniform"), theirs, atol=1e-6)


@given(st.integers(0, 10**6), st.lists(st.integers(1, 9), min_size=1, max_size=5))
@settings(deadline=None, max_examples=30)
def test_means_and_variances_do_not_depend_on_the_batches(seed: int, sizes: list[int]) -> None:
    x = with_holes((sum(sizes), 3), seed)
    rows = RowMemory(3, 50, "average")
    for part in np.split(x, np.cumsum(sizes)[:-1]):
        rows.learn(part)
    there = ~np.isnan(x)
    assert rows.count.tolist() == there.sum(axis=0).tolist()
    for j in range(3):
        values = x[there[:, j], j]
        if len(values):
            assert rows.mean[j] == pytest.approx(values.mean())
            assert rows.variance[j] == pytest.approx(values.var())


def test_an_empty_row_teaches_nothing_and_gets_the_means() -> None:
    rows = RowMemory(2, 9, "average")
    assert rows.learn(np.full((2, 2), np.nan)) is None
    rows.learn(np.array([[1.0, 2.0], [np.nan, np.nan], [3.0, 8.0]]))
    assert rows.memory.step == 2
    assert rows.impute(np.full((1, 2), np.nan), 1, "uniform").tolist() == [[2.0, 5.0]]


def test_a_column_without_known_values_stays_missing() -> None:
    rows = RowMemory(2, 9, "average")
    rows.learn(np.array([[1.0, np.nan]]))
    np.testing.assert_array_equal(rows.impute(np.array([[1.0, np.nan]]), 1, "uniform"), [[1.0, np.nan]])


def test_a_row_with_few_shared_columns_is_not_the_nearest() -> None:
    rows = RowMemory(4, 9, "average")
    rows.learn(np.array([[0.0, 0.1, 0.1, 1.0], [0.0, np.nan, np.nan, 5.0], [9.0, -9.0, 9.0, 9.0]]))
    assert rows.impute(np.array([[0.0, 0.0, 0.0, np.nan]]), 1, "uniform")[0, 3] == 1.0


@pytest.mark.parametrize("weights", WEIGHTS)
def test_votes_count_samples(weights: Weights) -> None:
    x = with_holes((30, 3), 4)
    rows = RowMemory(3, 30, "average")
    rows.learn(x, np.eye(3)[np.arange(30) % 3])
    variance, asked = np.nanvar(x, axis=0), with_holes((6, 3), 5)
    expected = np.zeros((6, 3))
    for i in range(6):
        squares = (x - asked[i]) ** 2
        distance = np.where(np.isnan(squares), variance, squares).mean(axis=1)
        best = np.argsort(distance, kind="stable")[:8]
        for n, share in zip(best, plain_weights([float(distance[n]) for n in best], weights)):
            expected[i, n % 3] += share
    np.testing.assert_allclose(rows.votes(asked, 8, weights, np.zeros(3)), expected, rtol=1e-5)


def test_a_neuron_has_the_votes_of_all_samples_averaged_into_it() -> None:
    rows = RowMemory(1, 2, "average")
    rows.learn(np.array([[0.0], [10.0], [1.0], [0.5], [9.0]]), np.eye(2)[[0, 1, 1, 0, 1]])
    found = rows.votes(np.array([[0.2], [9.9], [np.nan]]), 1, "distance", np.array([5, 7]))
    assert found.tolist() == [[2, 1], [0, 2], [5, 7]]


def test_a_neuron_counts_any_number_of_classes() -> None:
    rows = RowMemory(1, 1, "average")
    rows.learn(np.zeros((40, 1)), np.eye(40))
    rows.learn(np.zeros((1, 1)), np.eye(41)[[7]])  # a class appears later
    expected = np.ones(41) + np.eye(41)[7] - np.eye(41)[40]
    assert rows.votes(np.zeros((1, 1)), 1, "uniform", np.zeros(41)).tolist() == [expected.tolist()]


def targets(y: Any) -> Floats:
    """The votes that sum up targets, and count them."""
    return np.stack([y, np.ones(len(y))], axis=1)


def averages(rows: RowMemory, asked: Floats, count: int, weights: Weights) -> Floats:
    total, number = rows.votes(asked, count, weights, np.array([5.0, 1.0])).T
    return np.asarray(total / number)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_averages_follow_the_definition(weights: Weights) -> None:
    x, y = with_holes((30, 3), 4), np.random.default_rng(6).normal(1e6, 1, 30)
    rows = RowMemory(3, 30, "average")
    rows.learn(x[:11], targets(y[:11]))
    rows.learn(x[11:], targets(y[11:]))
    variance, asked = np.nanvar(x, axis=0), with_holes((6, 3), 5)
    for one, found in zip(asked, averages(rows, asked, 8, weights)):
        squares = (x - one) ** 2
        distance = np.where(np.isnan(squares), variance, squares).mean(axis=1)
        best = np.argsort(distance, kind="stable")[:8]
        shares = plain_weights([float(distance[n]) for n in best], weights)
        assert found - 1e6 == pytest.approx(np.average(y[best] - 1e6, weights=shares), abs=1e-4)


@pytest.mark.parametrize(
    ("when_full", "expected"),
    [
        ("average", [(0 + 4) / 2, (20 + 8 + 6) / 3]),  # 0.5 joins 0, and 9 and the second 10 join 10
        ("freeze", [0, 20]),
        ("oldest", [8, 6]),  # 0.5 replaces 0, 9 replaces 10, the second 10 replaces 0.5
        ("overwrite", [6, 8]),
    ],
)
def test_targets_of_a_full_memory(when_full: WhenFull, expected: list[float]) -> None:
    rows = RowMemory(1, 2, when_full)
    for x, y in (([0.0, 10.0, np.nan], [0.0, 20.0, 99.0]), ([0.5, 9.0], [4.0, 8.0]), ([10.0], [6.0])):
        rows.learn(np.array(x)[:, None], targets(y))
    stored = rows.memory.prototypes
    order = np.argsort(stored[:, 0])
    found = averages(rows, stored[order].astype(float), 1, "uniform")
    wanted = sorted(expected) if when_full == "overwrite" else expected
    assert (sorted(found) if when_full == "overwrite" else found.tolist()) == pytest.approx(wanted)


def test_an_empty_row_has_the_other_average() -> None:
    rows = RowMemory(2, 9, "average")
    assert averages(rows, np.array([[1.0, 2.0]]), 1, "uniform").tolist() == [5.0]
    rows.learn(np.array([[1.0, 2.0]]), targets([3.0]))
    assert averages(rows, np.array([[1.0, 2.0], [np.nan, np.nan]]), 1, "uniform").tolist() == [3.0, 5.0]


def notes(x: Floats, capacity: int, when_full: WhenFull = "average", parts: int = 1) -> list[str]:
    rows = RowMemory(x.shape[1], capacity, when_full)
    for part in np.array_split(x, parts):
        rows.learn(part)
    return rows.notes


def drifting(seed: int, steps: int = 2000) -> Floats:
    """Two of four columns move by six standard deviations."""
    x = np.random.default_rng(seed).normal(size=(steps, 4))
    x[:, :2] += np.linspace(0, 6, steps)[:, None]
    return x


@pytest.mark.parametrize("capacity", [20, 300])
@pytest.mark.parametrize("parts", [1, 7, 400])
def test_drift_is_noticed_once(capacity: int, parts: int) -> None:
    for seed in range(3):
        (note,) = notes(drifting(seed), capacity, parts=parts)
        assert 'use when_full="oldest"' in note


def test_drift_with_missing_values_is_noticed() -> None:
    assert notes(np.where(np.random.default_rng(1).random((2000, 4)) < 0.3, np.nan, drifting(0)), 50)


@pytest.mark.parametrize("when_full", ["oldest", "overwrite", "freeze"])
def test_drift_concerns_averages_alone(when_full: WhenFull) -> None:
    assert not notes(drifting(0), 50, when_full)


def test_drift_does_not_concern_a_memory_that_stores_all() -> None:
    assert not notes(np.round(drifting(0)[:, :1]), 200)  # few distinct rows, which have neurons of their own
    assert not notes(drifting(0), 3000)


def stationary(kind: str, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    shape = (3000, 4)
    x = rng.normal(size=shape)
    if kind == "heavy tails":
        x = rng.standard_cauchy(shape)
    elif kind == "clusters":
        x += 5 * rng.normal(size=(20, 4))[rng.integers(20, size=3000)]
    elif kind == "rare outliers":
        x[rng.random(3000) < 0.02] += 20
    elif kind == "missing values":
        x = with_holes(shape, seed)
    elif kind == "rare columns":
        x = (rng.random((3000, 30)) < 0.01) + 0.01 * rng.normal(size=(3000, 30))
    elif kind == "correlated":
        for t in range(1, 3000):
            x[t] = 0.8 * x[t - 1] + 0.6 * x[t]
    elif kind == "periodic":
        x += 3 * np.sin(np.arange(3000) / 10)[:, None]
    return x


@pytest.mark.parametrize("capacity", [20, 300])
@pytest.mark.parametrize(
    "kind",
    [
        "normal",
        "heavy tails",
        "clusters",
        "rare outliers",
        "missing values",
        "rare columns",
        "autocorrelated",
        "periodic",
    ],
)
def test_stationary_streams_raise_no_alarm(kind: str, capacity: int) -> None:
    # One in ten rows is beyond the limit. That most of 200 are has a probability below 1e-12, even if the limit of the
    # 200 rows before lets three in ten pass.
    for seed in range(3):
        assert not notes(stationary(kind, seed), capacity, parts=5)


@given(st.integers(0, 10**6), st.sampled_from(["average", "oldest"]))
@settings(deadline=None, max_examples=30)
def test_new_columns_count_as_missing_in_earlier_rows(seed: int, when_full: str) -> None:
    first, later = with_holes((8, 2), seed), with_holes((8, 4), seed + 1)
    late = RowMemory(2, 6, when_full)  # type: ignore[arg-type]
    late.learn(first, np.eye(8))
    late.add_columns(np.ones(2))
    early = RowMemory(4, 6, when_full)  # type: ignore[arg-type]
    early.learn(np.pad(first, ((0, 0), (0, 2)), constant_values=np.nan), np.eye(8))
    for rows in (late, early):
        rows.learn(later, np.eye(8))
    assert late.memory.step == early.memory.step
    np.testing.assert_array_equal(late.memory.prototypes, early.memory.prototypes)
    np.testing.assert_array_equal(late.memory.known, early.memory.known)
    np.testing.assert_array_equal(late.memory.counts, early.memory.counts)
    asked = with_holes((4, 4), seed + 2)
    np.testing.assert_allclose(late.impute(asked, 3, "distance"), early.impute(asked, 3, "distance"))
    nothing = np.zeros(8)
    np.testing.assert_allclose(late.votes(asked, 3, "distance", nothing), early.votes(asked, 3, "distance", nothing))


def test_without_holes_missing_values_become_the_mean_so_far() -> None:
    rows = RowMemory(2, 9, "average", holes=False)
    x = np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, 7.0], [np.nan, np.nan], [8.0, np.nan]])
    rows.learn(x[:3])
    rows.learn(x[3:])
    np.testing.assert_array_equal(rows.memory.prototypes, [[1, 0], [3, 5], [2, 7], [8, 6]])
    np.testing.assert_array_equal(rows.with_means(np.array([[np.nan, 1.0]])), [[4, 1]])
    rows.add_columns(np.array([9.0]))
    np.testing.assert_array_equal(rows.memory.prototypes[:, 2], 9)
    assert not rows.has_unknown


def test_each_distinct_row_takes_its_own_neuron() -> None:
    x = np.linspace(0, 0.05, 3000)[:, None]
    rows = RowMemory(1, 3000, "average")
    rows.learn(x)
    rows.learn(x)  # repeated rows take no new neuron
    assert len(rows.memory) == 3000
    assert (rows.memory.counts == 2).all()


def test_a_value_that_few_neurons_know_comes_from_them() -> None:
    rng = np.random.default_rng(0)
    a, b, q = rng.random(1000), rng.random(200), rng.random(50)
    nothing = np.full(1000, np.nan)
    rows = RowMemory(3, 1200, "average")
    rows.learn(np.concatenate([np.c_[a, a, nothing], np.c_[b, nothing[:200], 10 * b]]))
    found = rows.impute(np.c_[q, np.full((50, 2), np.nan)], 1, "distance")[:, 2]
    np.testing.assert_allclose(found, 10 * b[np.abs(b - q[:, None]).argmin(axis=1)], rtol=1e-5)


def test_means_of_float32_are_exact() -> None:
    x = np.random.default_rng(0).standard_normal((200_000, 1), np.float32) * np.float32(0.1) + np.float32(1000)
    rows = RowMemory(1, 5, "freeze")
    rows.learn(x)  # type: ignore[arg-type]
    assert rows.mean[0] == pytest.approx(x.mean(dtype=np.float64), rel=1e-9)
    assert rows.variance[0] == pytest.approx(x.var(dtype=np.float64), rel=1e-6)


def test_large_values_raise_a_warning() -> None:
    rows = RowMemory(1, 5, "average")
    rows.learn(np.array([[1.2e9]]))
    with pytest.warns(UserWarning, match=r"values of up to 1\.2e\+09.*StandardScaler"):
        rows.warn(stacklevel=1)
    rows.warn(stacklevel=1)  # only once


def test_masked_values_are_missing() -> None:
    masked = np.ma.masked_array([[1, 2], [3, 4]], [[False, True], [False, False]])
    np.testing.assert_array_equal(as_rows(masked), [[1, np.nan], [3, 4]])


@pytest.mark.parametrize("dtype", ["datetime64[ms]", "timedelta64[ms]"])
def test_dates_are_refused(dtype: str) -> None:
    x = np.arange(4).reshape(2, 2).astype(dtype)
    for table in (x, pd.DataFrame(x), pl.DataFrame({"a": x[:, 0]})):
        with pytest.raises(TypeError, match=r"column .* has dates or times .*give numbers"):
            as_rows(table)


DAY = dt.date(2026, 1, 2)


@pytest.mark.parametrize(
    ("cell", "kind", "words"),
    [
        ("white", ValueError, r"column 'b' has words \('white'\): encode it, for instance with OneHotEncoder"),
        ("12", ValueError, r"column 'b' has words \('12'\)"),
        (b"12", ValueError, r"column 'b' has words \(b'12'\)"),
        (DAY, TypeError, r"column 'b' has dates or times \(datetime.date\(2026, 1, 2\)\)"),
        (np.datetime64("2026"), TypeError, "column 'b' has dates"),
        (10**400, ValueError, r"column 'b' has 1\.00e\+400: beyond \+-1e\+15"),
        pytest.param(-(10**5000), ValueError, r"column 'b' has -1\.00e\+5000: beyond", id="longest"),
        ({"x": 1}, TypeError, r"column 'b' has \{'x': 1\}: .*number"),
        (1j, TypeError, r"column 'b' has 1j"),
    ],
)
def test_a_column_without_numbers_is_named(cell: Any, kind: type[Exception], words: str) -> None:
    cells = np.array([[1, 2.5], [2, None], [3, cell]], object)
    tables = [pd.DataFrame(cells, columns=["a", "b"]), cells, cells.tolist()]
    if not isinstance(cell, (dict, complex)):
        tables.append(pl.DataFrame({"a": [1, 2, 3], "b": pl.Series(cells[:, 1].tolist(), dtype=pl.Object)}))
    for table in tables:
        with pytest.raises(kind, match=words if hasattr(table, "columns") else words.replace("'b'", "1")):
            as_rows(table)


@pytest.mark.parametrize("dtype", ["object", "str", "string", "category"])
def test_columns_of_words_in_frames(dtype: str) -> None:
    for words in (["red", "white"], ["1", "2"]):
        frame = pd.DataFrame({"size": [1.0, 2.0], 7: pd.Series(words).astype(dtype)})
        with pytest.raises(ValueError, match="column 7 has words"):
            as_rows(frame)


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum(["red", "white"]), pl.Binary])
def test_columns_of_words_in_polars_frames(dtype: Any) -> None:
    words = [b"red", b"white"] if dtype == pl.Binary else ["red", "white"]
    with pytest.raises(ValueError, match="column 'color' has words"):
        as_rows(pl.DataFrame({"size": [1.0, None], "color": pl.Series(words, dtype=dtype)}))


def test_arrays_of_text_name_their_first_column() -> None:
    for table in (np.array([["1", "2"]]), np.array([[b"1", b"2"]]), [["1", "2"]], np.array([["1", "2"]], object)):
        with pytest.raises(ValueError, match=r"column 0 has words \(b?'1'\)"):
            as_rows(table)
    with pytest.raises(ValueError, match=r"column 1 has words \('a'\)"):  # NumPy makes text of both
        as_rows([[1, "a"], [2, "b"]])


def test_columns_of_numbers_in_any_form_are_accepted() -> None:
    columns = {
        "objects": np.array([1, 2.5, None, Decimal("0.5"), True], object),
        "nullable": pd.array([1, None, 3, 4, 5], dtype="Int64"),
        "flags": pd.array([True, None, False, True, True], dtype="boolean"),
        "categories": pd.Categorical([1, 2, 1, 2, 1]),
    }
    frame = pd.DataFrame(columns)
    assert as_rows(frame) is frame
    polars = pl.DataFrame({"a": [1, None], "b": [True, None], "c": [None, None], "d": [Decimal("0.5"), None]})
    assert as_rows(polars) is polars
