"""Learning from any iterable of samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN
from tests.helpers import fingerprint

X = np.random.default_rng(0).random((600, 3, 4), dtype=np.float32)


def taught(samples: Any, shape: tuple[int, ...] = (3, 4), **how: Any) -> tuple[SQHN, Any]:
    memory = SQHN(shape, capacity=500)
    return memory, memory.learn_stream(samples, **how)


@pytest.fixture(scope="module")
def expected() -> str:
    memory = SQHN((3, 4), capacity=500)
    memory.learn(X)
    return fingerprint(memory)


def uneven() -> Iterator[Any]:
    yield X[0]
    yield X[1:7]
    yield from X[7:20]
    yield X[20:].astype(np.float64)


def test_samples_and_batches_as_they_come(expected: str) -> None:
    for samples in (X, iter(X), list(X), [X[:100], X[100:]], uneven(), ((x, n) for n, x in enumerate(X))):
        memory, streamed = taught(samples)
        assert fingerprint(memory) == expected
        assert (streamed.learned, streamed.grew) == (600, 500)
        assert streamed.seconds > 0


def test_memory_maps_tensors_and_loaders(expected: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    np.save(tmp_path / "x.npy", X)
    tensor = torch.from_numpy(X)
    pairs = torch.utils.data.TensorDataset(tensor, torch.arange(600))
    loader = torch.utils.data.DataLoader(pairs, batch_size=64)
    for samples in (np.load(tmp_path / "x.npy", mmap_mode="r"), tensor, loader):
        assert fingerprint(taught(samples)[0]) == expected


def test_tables() -> None:
    pandas = pytest.importorskip("pandas")
    rows = np.random.default_rng(1).integers(0, 9, (300, 3))
    for kind in (np.float32, np.float64, np.uint8):  # as arrays: the last is read as / 255
        memory, streamed = taught(pandas.DataFrame(rows.astype(kind), columns=["a", "b", "c"]), (3,))
        other = SQHN((3,), capacity=500)
        other.learn(rows.astype(kind))
        assert (fingerprint(memory), streamed.learned) == (fingerprint(other), 300)
    with pytest.raises(TypeError, match=r"sample 0 of the stream: .*int64"):
        taught(pandas.DataFrame(rows), (3,))
    with pytest.raises(ValueError, match=r"a batch of samples of shape \(150,\); got shape \(300,\)"):
        taught(pandas.Series(rows[:, 0].astype(float)), (150,))


def test_tables_that_only_convert_to_numpy() -> None:
    class Frame:
        """A table that iterates over its columns."""

        def to_numpy(self) -> Any:
            return X[:12].reshape(12, 12)

        def __iter__(self) -> Iterator[Any]:
            return iter(X[:12].reshape(12, 12).T)

    memory, _ = taught(Frame(), (12,))
    np.testing.assert_array_equal(memory.prototypes, X[:12].reshape(12, 12))


def test_a_list_of_samples_is_a_batch_and_a_pair_is_not() -> None:
    assert taught([[X[0], X[1], X[2]], [X[3]]])[1].learned == 4
    assert taught([(X[0], X[1]), [X[2:4], np.arange(2)], (X[4:6], X[4:6])])[1].learned == 5
    assert taught([X[0].tolist(), [list(row) for row in X[1]]])[1].learned == 2


def test_an_error_names_the_item_and_keeps_those_before() -> None:
    bad = X[:5].copy()
    bad[3, 1, 2] = np.nan
    memory = SQHN((3, 4), capacity=500)
    with pytest.raises(ValueError, match=r"item 2 of the stream, after 8 samples: the value at \(3, 1, 2\).*nan"):
        memory.learn_stream([X[0], X[1:8], bad, X[20]])
    assert memory.step == 8
    with pytest.raises(TypeError, match=r"item 1 of the stream, after 1 samples: .*int64"):
        memory.learn_stream([X[0], np.ones((3, 4), int)])
    with pytest.raises(ValueError, match=r"a batch of samples of shape \(3, 4\); got shape \(3, 4\)"):
        memory.learn_stream(X[0])


def test_samples_of_an_array_before_a_bad_one_are_learned() -> None:
    bad = X.copy()
    bad[300, 1, 2] = np.inf
    memory = SQHN((3, 4), capacity=500)
    with pytest.raises(ValueError, match=r"sample 300 of the stream: the value at \(1, 2\)"):
        memory.learn_stream(bad)
    assert memory.step == 300


def test_an_empty_stream() -> None:
    assert taught([])[1][:2] == (0, 0)


def test_checkpoints_at_intervals_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "m"
    seen: list[int] = []

    def samples() -> Iterator[Any]:
        for x in X[:4]:
            seen.append(SQHN.load(path).step if path.exists() else 0)
            yield x

    taught(samples(), checkpoint=(path, 0))
    assert seen == [0, 1, 2, 3]
    assert SQHN.load(path).step == 4


@pytest.mark.parametrize("end", [KeyboardInterrupt, RuntimeError, ValueError])
def test_a_checkpoint_whatever_ends_the_stream(end: type[BaseException], tmp_path: Path) -> None:
    def samples() -> Iterator[Any]:
        yield from X[:7]
        raise end("enough")

    with pytest.raises(end, match=r"^enough"):
        taught(samples(), checkpoint=(tmp_path / "m", 1000))
    assert SQHN.load(tmp_path / "m").step == 7


def test_a_checkpoint_if_a_batch_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SQHN((3, 4), capacity=500)

    learn = SQHN.learn

    def stopped(memory: SQHN, x: Any) -> Any:
        learn(memory, x[:5])
        raise KeyboardInterrupt

    monkeypatch.setattr(SQHN, "learn", stopped)
    with pytest.raises(KeyboardInterrupt):
        memory.learn_stream([X], checkpoint=(tmp_path / "m", 1000))
    assert SQHN.load(tmp_path / "m").step == 5


def test_the_first_error_is_raised_if_the_checkpoint_fails_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SQHN((3, 4), capacity=500)

    def full(memory: SQHN, path: Any) -> None:
        raise OSError("disk full")

    def samples() -> Iterator[Any]:
        yield X[0]
        raise RuntimeError("enough")

    monkeypatch.setattr(SQHN, "save", full)
    with pytest.raises(RuntimeError, match="enough") as caught:
        memory.learn_stream(samples(), checkpoint=(tmp_path / "m", 1000))
    assert caught.value.__notes__ == ["and the memory could not be saved: disk full"]


def test_invalid_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"seconds of a checkpoint .* got -1"):
        taught(X, checkpoint=("m", -1))
    with pytest.raises(FileNotFoundError, match="its folder does not exist"):
        taught(X, checkpoint=("nowhere/m", 60))
    with pytest.raises(IsADirectoryError, match="is a folder"):
        taught(X, checkpoint=(tmp_path, 60))
    memory = SQHN((3, 4), capacity=9, folder=tmp_path / "kept")
    with pytest.raises(ValueError, match="belongs to the memory that is kept in"):
        memory.learn_stream(X, checkpoint=(tmp_path / "kept" / "memory.sqhn", 60))
    assert memory.step == 0
    wrong: Any
    for wrong in ("m.sqhn", ("m.sqhn",), (None, 1)):
        with pytest.raises(TypeError, match="checkpoint must be a file and a number of seconds"):
            taught(X, checkpoint=wrong)


def test_the_memory_can_be_used_between_samples() -> None:
    memory = SQHN((3, 4), capacity=500)
    asked = []

    def samples() -> Iterator[Any]:
        for x in X[:5]:
            yield x
            asked.append(memory.recall(x).index)

    memory.learn_stream(samples())
    assert asked == [0, 1, 2, 3, 4]


def test_masked_samples_in_lists_are_masked_samples() -> None:
    one = np.ma.array([0.1, 0.9, -999.0], mask=[False, False, True])
    for verb in ("learn", "learn_stream"):
        memory = SQHN((3,), capacity=5, similarity="euclidean")
        getattr(memory, verb)([one, one] if verb == "learn" else [[one, one]])
        np.testing.assert_array_equal(memory.prototypes, np.array([[0.1, 0.9, 0]], np.float32))
        assert memory.recall([one]).known.tolist() == [[True, True, False]]
        assert memory.recognize([one, np.ma.array([0.1, 0.9, 7])]).score.tolist() == [1, 1]


@pytest.mark.parametrize("stream", [None, 7])
def test_invalid_streams(stream: Any) -> None:
    with pytest.raises(TypeError, match=f"a stream must be an iterable of samples; got {stream}"):
        SQHN((3,), capacity=5).learn_stream(stream)
