"""Memories that answer from a file (`mmap=True`) answer as if they had been loaded, and change nothing."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, EmptyMemoryError, Level, MemoryFileError
from sqhn.banks import in_file
from sqhn.storage.files import encode, write
from tests.helpers import ON_HOSTS, scaled_copies

SHAPE = (6, 6, 2)
HALF = np.arange(72).reshape(SHAPE) % 2 == 0
ROWS = 7  # of a block


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_file, "BLOCK", 72 * ROWS)
    monkeypatch.setattr(in_file, "MOST_SCORES", 100)


def samples(kind: str) -> NDArray[Any]:
    x = np.random.default_rng(0).integers(0, 256, (50, *SHAPE), np.uint8)
    return x if kind == "bytes" else x.astype(np.float32) / np.float32(255)


def saved(path: Path, kind: str = "bytes", device: str = "plain", **settings: Any) -> Path:
    """A file with averages, labels, forgotten neurons, all of one block among them, and perhaps missing values."""
    x, memory = samples(kind), SQHN(SHAPE, capacity=40, device=device, **settings)
    memory.learn(x, value=list(range(50)))
    if kind == "holes":
        memory.learn(x[:5], observed=HALF)
    memory.forget([*range(2 * ROWS, 3 * ROWS), 30])
    memory.calibrate(new=x, error=0.1)
    memory.save(path)
    return path


def assert_same_answers(found: SQHN, right: SQHN, x: NDArray[Any]) -> None:
    """Scores by evidence are sums of logarithms, whose order depends on the blocks."""
    for rule in ("paper", "exact", "feedforward", "evidence"):
        for k in (None, 3):
            for observed in (None, HALF):
                for cue in (x, x[0]):
                    one, other = (memory.recall(cue, observed, k=k, inference=rule) for memory in (found, right))
                    np.testing.assert_array_equal(one.index, other.index)
                    np.testing.assert_array_equal(one.x, other.x)
                    np.testing.assert_array_equal(one.known, other.known)
                    assert one.values == other.values
                    np.testing.assert_allclose(one.score, other.score, rtol=0, atol=1e-9)
    for one, other in zip(found.recognize(x), right.recognize(x)):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.energy(x), right.energy(x), rtol=0, atol=1e-12)
    for name in ("prototypes", "known", "counts", "written"):
        np.testing.assert_array_equal(getattr(found, name), getattr(right, name))
    for name in ("step", "rho", "levels", "calibration", "capacity"):
        assert getattr(found, name) == getattr(right, name)


@ON_HOSTS
@pytest.mark.parametrize("kind", ["bytes", "floats", "holes"])
@pytest.mark.parametrize("similarity", ["shifted_cosine", "euclidean"])
def test_answers_are_those_of_the_loaded_memory(device: str, kind: str, similarity: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "m", kind, device, similarity=similarity)
    memory = SQHN.load(path, device, mmap=True)
    assert_same_answers(memory, SQHN.load(path, device), samples(kind)[::3])
    assert memory.nbytes < 40 * 100 < 40 * 72 * 4


@ON_HOSTS
def test_near_ties_and_copies_in_several_blocks(device: str, tmp_path: Path) -> None:
    """Prototypes that float32 cannot tell apart, some of them equal, and questions without observed values."""
    x = scaled_copies(SHAPE, 0)
    memory = SQHN(SHAPE, capacity=200, device=device)
    memory.memorize(np.concatenate([x, x[::-1]]))
    memory.save(tmp_path / "m")
    found, cues = SQHN.load(tmp_path / "m", device, mmap=True), x[::5]
    for k in (None, 2, 5):
        np.testing.assert_array_equal(found.recall(cues, k=k).index, memory.recall(cues, k=k).index)
    with pytest.warns(UserWarning, match="no observed value"):
        assert found.recall(cues[0], np.zeros(SHAPE, bool)).index == 0


CHANGES: dict[str, Callable[[SQHN], Any]] = {
    "learn": lambda memory: memory.learn(samples("bytes")),
    "memorize": lambda memory: memory.memorize(samples("bytes")),
    "forget": lambda memory: memory.forget(0),
    "where": lambda memory: memory.forget(where=bool),
    "resize": lambda memory: memory.resize(100),
    "reset": lambda memory: memory.reset(),
    "rho": lambda memory: setattr(memory, "rho", 0.5),
    "calibrate": lambda memory: memory.calibrate(new=samples("bytes"), error=0.1),
    "stream": lambda memory: memory.learn_stream(samples("bytes")),
    "save": lambda memory: memory.save("other"),
    "copy": copy.copy,
    "pickle": pickle.dumps,
    "to": lambda memory: memory.to("cpu"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_and_copies_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path / "m")
    before = path.read_bytes()
    memory = SQHN.load(path, "plain", mmap=True)
    with pytest.raises(RuntimeError, match=r"answers from the file .*SQHN\.load\('.*m'\) without mmap"):
        CHANGES[name](memory)
    assert path.read_bytes() == before
    assert not Path("other").exists()
    assert_same_answers(memory, SQHN.load(path, "plain"), samples("bytes")[:2])


def test_memories_that_cannot_stay_in_a_file(tmp_path: Path) -> None:
    tree = SQHN((8, 8), [Level(4, 5), Level(capacity=5)], device="plain")
    tree.learn(np.random.default_rng(0).random((3, 8, 8)))
    tree.save(tmp_path / "tree")
    with pytest.raises(ValueError, match=r"mmap=True is for memories of one level in one file; .* has 2 levels"):
        SQHN.load(tmp_path / "tree", mmap=True)
    kept = SQHN(SHAPE, capacity=5, folder=tmp_path / "kept")
    with pytest.raises(ValueError, match=r"mmap=True is for a memory in one file.*durable memory: save it first"):
        SQHN.load(tmp_path / "kept", mmap=True)
    del kept
    with pytest.raises(FileNotFoundError):
        SQHN.load(tmp_path / "nothing", mmap=True)


def test_an_empty_memory(tmp_path: Path) -> None:
    SQHN(SHAPE, capacity=5, device="plain").save(tmp_path / "m")
    memory = SQHN.load(tmp_path / "m", "plain", mmap=True)
    assert (len(memory), memory.recognize(samples("bytes")[0]).old) == (0, False)
    with pytest.raises(EmptyMemoryError):
        memory.recall(samples("bytes")[0])


@pytest.mark.parametrize("end", [0, 5, 300, -1])
def test_a_file_that_is_cut_or_damaged_before_it_is_loaded(end: int, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    whole = path.read_bytes()
    path.write_bytes(whole[:end])
    with pytest.raises(MemoryFileError):
        SQHN.load(path, "plain", mmap=True)
    for place in (len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(MemoryFileError, match="does not match its digest"):
            SQHN.load(path, "plain", mmap=True)


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "longer"])
@pytest.mark.parametrize("kind", ["bytes", "floats"])
def test_a_file_that_changes_after_it_was_loaded(damage: str, kind: str, tmp_path: Path) -> None:
    """It is an error that names the file, and never the end of the process, as if the file were mapped."""
    path = saved(tmp_path / "m", kind)
    os.utime(path, (1, 1))  # changes are never at the same time
    memory = SQHN.load(path, "plain", mmap=True)
    with path.open("r+b") as file:
        if damage in ("cut", "empty"):
            file.truncate(0 if damage == "empty" else path.stat().st_size - 5)
        else:
            file.seek(-1 if damage == "changed" else 0, os.SEEK_END)
            file.write(b"x")
    for ask in (memory.recall, memory.recognize, lambda x: memory.recall(x, inference="evidence")):
        with pytest.raises(MemoryFileError, match=r"m was changed or truncated after it was loaded: load it again"):
            ask(samples(kind)[:2])


def test_another_file_may_take_its_place(tmp_path: Path) -> None:
    path, x = saved(tmp_path / "m"), samples("bytes")
    loaded, memory = SQHN.load(path, "plain"), SQHN.load(path, "plain", mmap=True)
    other = SQHN(SHAPE, capacity=3, device="plain")
    other.learn(x[-3:])
    other.save(path)
    assert_same_answers(memory, loaded, x[:3])
    path.unlink()
    assert_same_answers(memory, loaded, x[:3])


def test_a_file_that_contradicts_itself(tmp_path: Path) -> None:
    header, tensors = SQHN.load(saved(tmp_path / "m", "floats"), "plain").inspect(encode)
    tensors["level1.prototypes"][3, 3] = np.nan
    write(tmp_path / "m", header, tensors)
    memory = SQHN.load(tmp_path / "m", "plain", mmap=True)
    with pytest.raises(MemoryFileError, match=r"m does not hold a consistent memory: prototypes that are not finite"):
        memory.recall(samples("floats")[0])
    tensors["level1.prototypes"] = tensors["level1.prototypes"][:, :-1].copy()
    write(tmp_path / "m", header, tensors)
    with pytest.raises(MemoryFileError, match="does not hold a consistent memory"):
        SQHN.load(tmp_path / "m", "plain", mmap=True)


def test_threads_ask_at_once(tmp_path: Path) -> None:
    path, x = saved(tmp_path / "m"), samples("bytes")
    right, memory = SQHN.load(path, "plain").recall(x).index, SQHN.load(path, "plain", mmap=True)
    same: list[bool] = []

    def ask() -> None:
        same.extend((memory.recall(x).index == right).all() for _ in range(5))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(same) == 20
    assert all(same)


def peak(call: Callable[[], Any]) -> int:
    """The most bytes of arrays and objects during a call, beyond those before it."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("rule", ["paper", "evidence"])
def test_memory_does_not_grow_with_the_file(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for statistics and scores: at most 150 bytes for each neuron, which has 1,152 in the file."""
    monkeypatch.setattr(in_file, "BLOCK", 288 * 20)
    monkeypatch.setattr("sqhn.storage.headers.BLOCK", 1 << 14)
    x = np.random.default_rng(0).random((3000, 12, 12, 2)).astype(np.float32)

    def peaks(count: int) -> tuple[int, int]:
        memory = SQHN(x.shape[1:], capacity=count, device="plain")
        memory.memorize(x[:count])
        memory.save(tmp_path / "m")
        found: list[SQHN] = []
        loading = peak(lambda: found.append(SQHN.load(tmp_path / "m", "plain", mmap=True)))
        assert found[0].recall(x[7]).index == 7
        return loading, peak(lambda: found[0].recall(x[0], inference=rule))

    for small, large in zip(peaks(500), peaks(3000)):
        assert large - small < 2500 * 150


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_the_file_is_closed_with_the_memory(tmp_path: Path) -> None:
    path = saved(tmp_path / "m")

    def is_open() -> bool:
        return str(path) in map(os.path.realpath, Path("/proc/self/fd").iterdir())

    memory = SQHN.load(path, "plain", mmap=True)
    assert is_open()
    del memory
    assert not is_open()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MemoryFileError):
        SQHN.load(path, "plain", mmap=True)
    assert not is_open()
