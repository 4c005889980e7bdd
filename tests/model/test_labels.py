"""Labels of samples are kept with their neurons."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from sqhn import SQHN, Level, MemoryFileError
from sqhn.model.labels import LONGEST, MOST, Labels
from tests.helpers import fingerprint, set_chunk

X = np.random.default_rng(0).random((40, 4, 4), dtype=np.float32)
TREE = [Level(2, 20), Level(capacity=20)]


@pytest.mark.parametrize("levels", [[Level(capacity=20)], TREE])
def test_a_label_for_each_sample(levels: list[Level]) -> None:
    memory = SQHN((4, 4), levels)
    memory.learn(X[:3], value=["a", "b", "c"])
    memory.learn(X[3], value={"name": "d", "seen": [1, 2.5, None, True]})
    memory.learn(X[4])
    found = memory.recall(X[:5])
    assert found.value == ["a", "b", "c", {"name": "d", "seen": [1, 2.5, None, True]}, None]
    assert found.values[:2] == [[("a", 1)], [("b", 1)]]
    one = memory.recall(X[1])
    assert (one.value, one.values) == ("b", [("b", 1)])
    assert memory.recall(X[4]).value is None


def test_without_labels_there_are_no_values() -> None:
    memory = SQHN((4, 4), capacity=9)
    memory.learn(X[:3])
    found = memory.recall(X[:3])
    assert (found.values, found.value) == (None, [None] * 3)
    assert (memory.recall(X[0]).values, memory.recall(X[0]).value) == (None, None)


def test_labels_of_neurons() -> None:
    memory = SQHN((4, 4), capacity=9)
    memory.learn(X[:3], value=["a", None, "c"])
    assert memory.values(2) == memory.values(np.int64(2)) == [("c", 1)]
    assert memory.values([0, 1]) == memory.values(np.arange(2)) == [[("a", 1)], []]
    assert memory.values([[0], []]) == [[[("a", 1)]], []]
    for index, problem in ((3, "neuron 3 is not one of 3"), (-1, "neuron -1 is not one of 3"), ([0, 99], "neuron 99")):
        with pytest.raises(IndexError, match=problem):
            memory.values(index)
    for wrong in ("a", 1.0, None, True, [0, "b"]):
        with pytest.raises(TypeError, match="index must be the number of a neuron"):
            memory.values(wrong)


def test_labels_of_averaged_samples_are_counted() -> None:
    memory = SQHN((4, 4), capacity=1)
    memory.learn(X[:6], value=[1, 2, 2, None, 3, 1])
    assert memory.recall(X[0]).values == [(1, 2), (2, 2), (3, 1)]  # the latest first among equals
    memory.learn(X[7], value=3)
    memory.learn(X[8], value=3)
    assert memory.recall(X[0]).value == 3


def test_labels_of_replaced_and_frozen_neurons() -> None:
    memory = SQHN((4, 4), [Level(capacity=2, when_full="overwrite")])
    memory.learn(X[:2], value=["a", "b"])
    assert memory.learn(X[2], value="c").index == 0
    assert memory.recall(X[:3]).value[1:] == ["b", "c"]
    assert memory.learn(X[3]).index == 1
    assert memory.recall(X[3]).value is None
    frozen = SQHN((4, 4), [Level(capacity=1, when_full="freeze")])
    frozen.learn(X[:2], value=["a", "b"])
    assert frozen.recall(X[1]).values == [("a", 1)]


def test_held_samples_share_one_label() -> None:
    memory = SQHN((4, 4), capacity=3)
    memory.learn(X[:5], hold=True, value="thing")
    memory.learn(X[5:7], hold=True)
    assert memory.recall(X[:5].mean(0)).values == [("thing", 5)]
    assert memory.recall(X[5:7].mean(0)).value is None


def test_labels_with_pretraining() -> None:
    memory = SQHN((4, 4), TREE)
    memory.pretrain(X[:5])
    memory.learn(X[:5], root_only=True, value=range(5))
    assert memory.recall(X[:5]).value == [0, 1, 2, 3, 4]
    memory.pretrain(X[:5])
    assert memory.recall(X[:5]).value == [0, 1, 2, 3, 4]


def test_arrays_and_numpy_numbers_as_labels() -> None:
    memory = SQHN((4, 4), capacity=20)
    arrays = [np.arange(6, dtype=">i2").reshape(2, 3), np.array([True]), np.zeros((0, 3), np.float16), np.array(1j)]
    for sample, value in zip(X, arrays):
        memory.learn(sample, value=value)
    for sample, value in zip(X, arrays):
        found = memory.recall(sample).value
        np.testing.assert_array_equal(found, value)
        assert (found.dtype.kind, found.shape) == (value.dtype.kind, value.shape)
    memory.learn(X[4:7], value=np.array([7, 8, 9]))
    assert memory.recall(X[4:7]).value == [7, 8, 9]
    memory.learn(np.stack([X[8]] * 3), value=[3, np.int64(3), np.array(3)])
    assert memory.recall(X[8]).values == [(3, 3)]
    memory.learn(X[7], value={"at": np.float32(0.5), "where": np.array([1, 2])})
    assert memory.recall(X[7]).value["where"].tolist() == [1, 2]
    memory.recall(X[7]).value["where"][0] = 9
    assert memory.recall(X[7]).value["where"].tolist() == [1, 2]  # a returned label is a copy


@pytest.mark.parametrize(
    ("x", "value", "error", "message"),
    [
        (X[0], float("nan"), ValueError, "nan"),
        (X[0], {1, 2}, TypeError, "set"),
        (X[0], np.array([object()]), TypeError, "object"),
        (X[0], "x" * LONGEST, ValueError, f"{LONGEST + 2:,}"),
        (X[0], {"\u0000array": 1}, TypeError, "a JSON value or an array"),
        (X[0], np.longdouble(1.5), TypeError, "dtype float128"),
        (X[0], eval("[" * 150 + "]" * 150), ValueError, "nested more than 100 deep"),
        (X[0], np.ma.array([1, 2], mask=[False, True]), TypeError, "masked"),
        (X[:2], np.ma.array([1, 2], mask=[False, True]), TypeError, "masked"),
        (X[0], {"\u0000array": ["<M8[D]", [1], "AAAAAAAAAAA="]}, ValueError, "dtype '<M8"),
        (X[:3], ["a", "b"], ValueError, "3 samples needs as many labels; got 2"),
        (X[:3], "abc", ValueError, "3 labels; got str 'abc'"),
        (X[:3], {"a", "b", "c"}, ValueError, "3 labels; got set"),
        (X[:3], np.array(7), ValueError, "3 labels; got ndarray"),
        (X[:3], 7, ValueError, "3 labels; got int 7"),
    ],
)
def test_invalid_labels_change_nothing(x: Any, value: Any, error: type[Exception], message: str) -> None:
    memory = SQHN((4, 4), capacity=9)
    memory.learn(X[5], value="there")
    before = fingerprint(memory)
    with pytest.raises(error, match=message):
        memory.learn(x, value=value)
    assert (fingerprint(memory), memory.recall(X[5]).values) == (before, [("there", 1)])


def test_a_neuron_keeps_a_limited_number_of_labels() -> None:
    memory = SQHN((4, 4), capacity=1)
    many = [*range(MOST), 0, 0, "new"]
    memory.learn(np.resize(X, (len(many), 4, 4)), value=many)
    found = memory.recall(X[0]).values
    assert found[0] == (0, 3)
    assert [value for value, _ in found[1:]] == ["new", *range(MOST - 1, 1, -1)]  # 1 was the least recent of the rarest


def test_labels_in_files_copies_and_pickles(tmp_path: Path) -> None:
    memory = SQHN((4, 4), TREE)
    memory.learn(X[:9], value=[{"n": n} for n in range(9)])
    memory.save(tmp_path / "m")
    for other in (SQHN.load(tmp_path / "m"), pickle.loads(pickle.dumps(memory)), copy.deepcopy(memory)):
        assert other.recall(X[:9]).values == memory.recall(X[:9]).values
        other.learn(X[0], value="later")
        assert memory.recall(X[0]).value == {"n": 0}
    memory.reset()
    memory.learn(X[:2])
    assert memory.recall(X[:2]).values is None


def test_files_list_labels_as_a_feature(tmp_path: Path) -> None:
    for value, features in ((None, ["compact"]), (["a"], ["compact", "values"])):
        memory = SQHN((4, 4), capacity=3)
        memory.learn(X[:1], value=value)
        memory.save(tmp_path / "m")
        with safe_open(tmp_path / "m", "numpy") as file:
            assert json.loads(file.metadata()["sqhn"])["features"] == features


@pytest.mark.parametrize(
    "rows",
    [[[5, [["1", 1]]]], [[0, []]], [[0, [["1", 0]]]], [[0, [["{", 1]]]], [[-1, [["1", 1]]]], [[0, [["[" * 5000, 1]]]]],
)
def test_inconsistent_labels_in_files(rows: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SQHN((4, 4), capacity=9)
    memory.learn(X[:5], value=range(5))
    monkeypatch.setattr(Labels, "state", lambda _: np.frombuffer(json.dumps(rows).encode(), np.uint8))
    memory.save(tmp_path / "m")
    with pytest.raises(MemoryFileError, match="consistent"):
        SQHN.load(tmp_path / "m")


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(0, 3))), min_size=1, max_size=40),
    st.sampled_from(["average", "overwrite", "oldest", "freeze"]),
    st.integers(1, 6),
    st.booleans(),
)
def test_labels_match_a_plain_table(
    steps: list[tuple[int, int | None]], policy: Any, capacity: int, tree: bool
) -> None:
    below = [Level(2, 3)] if tree else []
    memory = SQHN((4, 4), [*below, Level(capacity=capacity, when_full=policy)])
    set_chunk(memory, 7)
    written = memory.learn(X[[i for i, _ in steps]], value=[value for _, value in steps])
    table: dict[int, dict[int, int]] = {}
    full = 0
    for j, grew, (_, value) in zip(written.index.tolist(), written.grew.tolist(), steps):
        kept = policy == "freeze" and full == capacity and not grew
        full = max(full, j + 1)
        if grew:
            table[j] = {}
        if value is not None and not kept:
            table[j][value] = table[j].get(value, 0) + 1
    found = memory.recall(X[:10])
    for j, values in zip(found.index.tolist(), found.values or [[]] * 10):
        assert dict(values) == table[j]
        assert [times for _, times in values] == sorted(table[j].values(), reverse=True)


def test_threads_never_see_a_sample_without_its_label() -> None:
    memory = SQHN((4, 4), capacity=len(X))
    memory.learn(X[0], value=0)
    wrong: list[Any] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            found = memory.recall(X)
            wrong.extend((j, v) for j, v in zip(found.index.tolist(), found.value) if v != j)

    readers = [threading.Thread(target=ask) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(1, len(X)):
        memory.learn(X[n], value=n)
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_table_columns_as_labels() -> None:
    pandas = pytest.importorskip("pandas")
    memory = SQHN((4, 4), capacity=9)
    memory.learn(X[:3], value=pandas.Series(["a", "b", "c"], index=[7, 8, 9]))
    memory.learn(X[3:5], value=pandas.Categorical(["x", "y"]))
    assert memory.recall(X[:5]).value == ["a", "b", "c", "x", "y"]


def test_neurons_are_forgotten_by_their_latest_label() -> None:
    x = np.random.default_rng(0).random((5, 6))
    memory = SQHN((6,), capacity=10)
    memory.learn(x[:4], value=[10, 20, 30, None])
    memory.learn(x[0], value=40)  # neuron 0 was seen again
    assert memory.forget(where=lambda time: time < 35) == 5
    assert memory.counts.tolist() == [2, 0, 0, 1]
    assert memory.values([0, 1, 2, 3]) == [[(40, 1), (10, 1)], [], [], []]
    assert memory.forget(where=lambda time: False) == 5
    for index, where in ((None, None), (0, bool)):
        with pytest.raises(TypeError, match="either the neurons, or where="):
            memory.forget(index, where=where)
    with pytest.raises(ZeroDivisionError):
        memory.forget(where=lambda time: time < 1 / 0)
    for answer in (None, "yes", 1, np.ones(2, bool)):
        with pytest.raises(TypeError, match="where must return True or False; for the label 40 it returned"):
            memory.forget(where=lambda time, answer=answer: answer)  # type: ignore[misc]
    with pytest.raises(RuntimeError, match=r"in the middle of another call to it: .*`where=`"):
        memory.forget(where=lambda _: bool(memory.learn(x[0]).grew))
    assert memory.forget(where=lambda time: bool(time > memory.step + 1000)) == 5
    assert len(memory) == 2
