"""Memories for rows of a table, compared with plain loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.impute import KNNImputer

from sqhn.estimators.tables import SHARPNESS, RowMemory, Weights, as_rows

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
    rows.learn(x, [n % 3 for n in range(30)])
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
    rows.learn(np.array([[0.0], [10.0], [1.0], [0.5], [9.0]]), [0, 1, 1, 0, 1])
    found = rows.votes(np.array([[0.2], [9.9], [np.nan]]), 1, "distance", np.array([5, 7]))
    assert found.tolist() == [[2, 1], [0, 2], [5, 7]]


@given(st.integers(0, 10**6), st.sampled_from(["average", "oldest"]))
@settings(deadline=None, max_examples=30)
def test_new_columns_count_as_missing_in_earlier_rows(seed: int, when_full: str) -> None:
    first, later = with_holes((8, 2), seed), with_holes((8, 4), seed + 1)
    late = RowMemory(2, 6, when_full)  # type: ignore[arg-type]
    late.learn(first, list(range(8)))
    late.add_columns(np.ones(2))
    early = RowMemory(4, 6, when_full)  # type: ignore[arg-type]
    early.learn(np.pad(first, ((0, 0), (0, 2)), constant_values=np.nan), list(range(8)))
    for rows in (late, early):
        rows.learn(later, list(range(8)))
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
    with pytest.warns(UserWarning, match=r"values of up to 1\.2e\+09.*StandardScaler"):
        RowMemory(1, 5, "average").learn(np.array([[1.2e9]]))


def test_masked_values_are_missing() -> None:
    masked = np.ma.masked_array([[1, 2], [3, 4]], [[False, True], [False, False]])
    np.testing.assert_array_equal(as_rows(masked), [[1, np.nan], [3, 4]])


@pytest.mark.parametrize("dtype", ["datetime64[ms]", "timedelta64[ms]"])
def test_dates_are_refused(dtype: str) -> None:
    x = np.arange(4).reshape(2, 2).astype(dtype)
    for table in (x, pd.DataFrame(x), pl.DataFrame({"a": x[:, 0]})):
        with pytest.raises(TypeError, match="give numbers"):
            as_rows(table)
