"""Whatever gives samples can be learned from."""

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
        memory, fed = taught(samples)
        assert fingerprint(memory) == expected
        assert (fed.learned, fed.grew) == (600, 500)
        assert fed.seconds > 0


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
    memory, fed = taught(pandas.DataFrame(rows, columns=["a", "b", "c"]), (3,))
    other = SQHN((3,), capacity=500)
    other.learn(rows.astype(np.float32))
    assert (fingerprint(memory), fed.learned) == (fingerprint(other), 300)


def test_what_is_wrong_is_named_and_what_came_before_is_kept() -> None:
    bad = X[:5].copy()
    bad[3, 1, 2] = np.nan
    memory = SQHN((3, 4), capacity=500)
    with pytest.raises(ValueError, match=r"item 2 of the stream, after 8 samples: the value at \(3, 1, 2\).*nan"):
        memory.learn_stream([X[0], X[1:8], bad, X[20]])
    assert memory.step == 8
    with pytest.raises(TypeError, match=r"item 1 of the stream, after 1 samples: .*int64"):
        memory.learn_stream([X[0], np.ones((3, 4), int)])
    with pytest.raises(ValueError, match="got one of them"):
        memory.learn_stream(X[0])


def test_nothing_at_all() -> None:
    assert taught([])[1][:2] == (0, 0)


def test_a_file_so_often_and_at_the_end(tmp_path: Path) -> None:
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
def test_a_file_whatever_ends_it(end: type[BaseException], tmp_path: Path) -> None:
    def samples() -> Iterator[Any]:
        yield from X[:7]
        raise end("enough")

    with pytest.raises(end, match=r"^enough"):
        taught(samples(), checkpoint=(tmp_path / "m", 1000))
    assert SQHN.load(tmp_path / "m").step == 7


def test_a_checkpoint_that_makes_no_sense() -> None:
    with pytest.raises(ValueError, match=r"seconds of a checkpoint .* got -1"):
        taught(X, checkpoint=("m", -1))
    with pytest.raises(PermissionError, match="its folder does not exist"):
        taught(X, checkpoint=("nowhere/m", 60))


def test_others_may_ask_between_samples() -> None:
    memory = SQHN((3, 4), capacity=500)
    asked = []

    def samples() -> Iterator[Any]:
        for x in X[:5]:
            yield x
            asked.append(memory.recall(x).index)

    memory.learn_stream(samples())
    assert asked == [0, 1, 2, 3, 4]
