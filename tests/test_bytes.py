"""Memories of one level keep samples of uint8 as bytes, and are otherwise as if these had come as float32."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sqhn import SQHN
from sqhn.inputs import as_floats
from sqhn.protocol import MemoryFileError
from sqhn.reference import ReferenceSQHN
from sqhn.storage.files import describe, encode, write
from tests.helpers import (
    ON_HOSTS,
    assert_same_answers,
    assert_same_state,
    fingerprint,
    set_chunk,
    using_threads,
    without_projection,
)
from tests.storage.folders import crashed

SHAPE = (8, 8, 4)
HALF = np.broadcast_to(np.arange(8)[:, None] < 4, (8, 8))[..., None] & np.ones(SHAPE, bool)
Bytes = NDArray[np.uint8]


def pictures(count: int, seed: int = 0) -> Bytes:
    """Pictures with all values of a byte; each third one is like an earlier one."""
    rng = np.random.default_rng(seed)
    x = np.array([rng.permutation(256) for _ in range(count)], np.uint8).reshape(count, *SHAPE)
    for i in range(3, count, 3):
        x[i] = x[rng.integers(i)] // 2 + rng.integers(0, 128, SHAPE)
    return x


def rows_of(memory: SQHN) -> Any:
    """The rows of the only level."""
    return memory.banks[0].rows  # type: ignore[attr-defined]


def are_bytes(memory: SQHN) -> NDArray[np.bool_]:
    """Which neurons of a memory that has bytes are such."""
    return memory.banks[0].state()["is_bytes"]


def assert_same(memory: SQHN, floats: SQHN, cues: Bytes) -> None:
    """Compare state and answers, to the last bit."""
    assert fingerprint(memory) == fingerprint(floats)
    np.testing.assert_array_equal(memory.prototypes, floats.prototypes)
    for rule in ("paper", "exact", "evidence"):
        for k in (None, min(3, len(memory))):
            for observed in (None, HALF):
                for x in (cues, cues[0]):
                    found = memory.recall(x, observed, k=k, inference=rule)
                    right = floats.recall(as_floats(x), observed, k=k, inference=rule)
                    for name in ("x", "index", "score"):
                        np.testing.assert_array_equal(getattr(found, name), getattr(right, name))
    for found, right in zip(memory.recognize(cues), floats.recognize(as_floats(cues))):
        np.testing.assert_array_equal(found, right)
    np.testing.assert_array_equal(memory.energy(cues), floats.energy(as_floats(cues)))


def assert_same_values(memory: SQHN, floats: SQHN) -> None:
    """Compare the neurons of memories that may have learned on different devices, whose sums differ in the last bit."""
    for name in ("prototypes", "counts", "written", "known"):
        np.testing.assert_array_equal(getattr(memory, name), getattr(floats, name))


def pair(device: str, capacity: int = 20, **settings: Any) -> tuple[SQHN, SQHN]:
    """Two equal memories, for samples as bytes and as floats."""
    one, other = (SQHN(SHAPE, capacity=capacity, device=device, **settings) for _ in range(2))
    return one, other


def learn(memories: tuple[SQHN, SQHN], x: Bytes, **more: Any) -> None:
    for found, right in zip(memories[0].learn(x, **more), memories[1].learn(as_floats(x), **more)):
        np.testing.assert_array_equal(found, right)


SETTINGS = [
    {},
    {"when_full": "overwrite"},
    {"when_full": "oldest"},
    {"when_full": "freeze"},
    {"similarity": "euclidean", "gamma": 0.8},
    {"similarity": "cosine", "gamma": 0.9},
]


@ON_HOSTS
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_all_is_as_with_floats(device: str, settings: dict[str, Any]) -> None:
    memory, floats = both = pair(device, **settings)
    x = pictures(60)
    for part in (x[:7], x[7], x[8:9], x[9:]):
        learn(both, part)
    assert are_bytes(memory).sum() == (memory.counts == 1).sum()
    assert rows_of(floats).raw.size == 0
    assert_same(memory, floats, x[::9])
    for index in ([3, 5], 0):
        assert memory.forget(index) == floats.forget(index)
    assert_same(memory, floats, x[::9])
    for one in both:
        one.resize(24)
    learn(both, x[:5], hold=True)
    learn(both, x[20:26])
    assert_same(memory, floats, x[::9])
    assert are_bytes(memory)[memory.counts == 1].all()


@ON_HOSTS
@pytest.mark.parametrize("settings", [{}, {"when_full": "oldest"}, {"similarity": "euclidean"}], ids=str)
def test_decisions_are_those_of_the_reference(device: str, settings: dict[str, Any]) -> None:
    memory, x = SQHN(SHAPE, capacity=9, device=device, **settings), pictures(30)
    reference = ReferenceSQHN(SHAPE, memory.levels, memory.options)
    for part in (x[:20], x[20]):
        memory.learn(part)
    for sample in as_floats(x[:21]):
        reference.learn(sample)
    assert rows_of(memory).has_bytes
    assert_same_state(memory, reference)
    assert_same_answers(memory, reference, as_floats(x[21:25]))


@ON_HOSTS
def test_averages_are_float32_and_the_others_stay_bytes(device: str) -> None:
    memory, x = SQHN(SHAPE, capacity=20, device=device), pictures(20)
    memory.learn(x)
    assert are_bytes(memory).all()
    assert rows_of(memory).m.nbytes == 0
    memory.learn(x[[4, 7, 4]])
    np.testing.assert_array_equal(np.flatnonzero(~are_bytes(memory)), [4, 7])
    assert (memory.prototypes == as_floats(x)).all()  # the mean of copies
    rows = rows_of(memory)
    assert rows.raw.nbytes >= 20 * 256
    assert rows.m.shape[1] <= 2 * 2 + 8


@ON_HOSTS
def test_a_row_of_a_replaced_average_is_used_again(device: str) -> None:
    memory, x = SQHN(SHAPE, capacity=4, when_full="oldest", device=device), pictures(40)[np.arange(40) % 3 != 0]
    memory.learn(x[[0, 1, 2, 3, 0, 1, 2, 3]])
    assert (memory.counts == 2).all()
    assert not are_bytes(memory).any()
    memory.learn(x[4:6])  # in the place of neurons 0 and 1
    np.testing.assert_array_equal(are_bytes(memory), [True, True, False, False])
    np.testing.assert_array_equal(memory.prototypes, as_floats(x[[4, 5, 2, 3]]))
    assert rows_of(memory).used[0] == 2


@ON_HOSTS
def test_floats_keep_their_layout(device: str) -> None:
    memory, x = SQHN(SHAPE, capacity=20, device=device), pictures(12)
    memory.learn(as_floats(x[:5]))
    memory.learn(x[5:])
    rows = rows_of(memory)
    assert not rows.has_bytes
    assert (rows.raw.nbytes, rows.place.nbytes, rows.owner.nbytes) == (0, 0, 0)
    assert "bytes" not in memory.banks[0].state()


@ON_HOSTS
def test_floats_among_bytes(device: str) -> None:
    memory, floats = both = pair(device)
    x, others = pictures(18), np.random.default_rng(3).random((6, *SHAPE))
    learn(both, x[:8])
    for one in both:
        one.learn(others)
    learn(both, x[8:])
    assert (~are_bytes(memory)[8:14]).all()
    assert are_bytes(memory)[memory.counts == 1].sum() >= 8
    assert_same(memory, floats, x[::4])


@ON_HOSTS
@pytest.mark.parametrize("first", ["complete", "missing"])
def test_samples_with_missing_values(device: str, first: str) -> None:
    memory, floats = both = pair(device)
    x = pictures(18)
    learn(both, x[:8], observed=None if first == "complete" else HALF)
    for one in both:
        one.forget(2)
    learn(both, x[8:10], observed=HALF)
    assert not rows_of(memory).has_bytes
    learn(both, x[10:])
    assert_same(memory, floats, x[::4])
    np.testing.assert_array_equal(memory.known, floats.known)


@ON_HOSTS
def test_memorize(device: str) -> None:
    memory, floats = pair(device)
    x = pictures(15)
    for one, samples in ((memory, x), (floats, as_floats(x))):
        one.memorize(samples[:5])
        one.memorize(samples[5:])
    assert are_bytes(memory).all()
    assert_same(memory, floats, x[::4])


@ON_HOSTS
@pytest.mark.parametrize("other", ["cpu", "plain"])
def test_files_copies_and_devices(device: str, other: str, tmp_path: Path) -> None:
    memory, floats = both = pair(device)
    x = pictures(40)
    learn(both, x)
    assert memory.forget(4) == floats.forget(4)
    memory.save(tmp_path / "m")
    copies = [SQHN.load(tmp_path / "m", other), copy.copy(memory), memory.to(other)]
    assert describe(tmp_path / "m")["levels"][0]["grown"]["max"] == 20
    for one in copies:
        assert rows_of(one).has_bytes
        assert fingerprint(one) == fingerprint(memory)
        assert_same(one, floats.to(one.device), x[::9])
    learn((copies[0], copy.copy(floats).to(other)), x[::-1])
    learn((memory, floats), x[::-1])
    for one in (copies[0], memory):
        assert_same_values(one, floats)


def test_the_file_announces_bytes(tmp_path: Path) -> None:
    memory, floats = both = pair("plain")
    learn(both, pictures(10))
    headers = [one.inspect(encode)[0] for one in both]
    assert [one["features"] for one in headers] == [["compact", "bytes"], ["compact"]]
    sizes = []
    for number, one in enumerate(both):
        one.save(tmp_path / str(number))
        sizes.append((tmp_path / str(number)).stat().st_size)
    assert sizes[1] - sizes[0] >= 10 * 3 * 256 - 300  # three of four bytes, less a longer header
    memory.learn(pictures(10)[:1], observed=HALF)
    assert memory.inspect(encode)[0]["features"] == ["compact", "holes"]
    assert floats.nbytes > 0


@pytest.mark.parametrize("damage", ["is_bytes", "dtype", "bytes", "free", "known", "feature", "float", "shape"])
def test_files_that_contradict_themselves(tmp_path: Path, damage: str) -> None:
    memory, x = SQHN(SHAPE, capacity=6, device="plain"), pictures(12)
    memory.learn(x)
    memory.forget(int(np.flatnonzero(are_bytes(memory))[0]))
    header, tensors = memory.inspect(encode)
    if damage == "is_bytes":
        tensors["level1.is_bytes"][1] ^= True
    elif damage == "dtype":
        tensors["level1.is_bytes"] = tensors["level1.is_bytes"].astype(np.uint8)
    elif damage == "bytes":
        tensors["level1.bytes"] = tensors["level1.bytes"][:-1]
    elif damage == "free":
        tensors["level1.bytes"][0, 3] = 1
    elif damage == "known":
        tensors["level1.known"] = np.ones((6, 256), np.int32)
        header["features"].append("holes")
    elif damage == "feature":
        header["features"].remove("bytes")
    elif damage == "float":
        tensors["level1.bytes"] = as_floats(tensors["level1.bytes"])
    else:
        tensors["level1.bytes"] = tensors["level1.bytes"][:, 1:].copy()
    write(tmp_path / "m", header, tensors)
    with pytest.raises(MemoryFileError, match="does not hold a consistent memory"):
        SQHN.load(tmp_path / "m", "plain")


@ON_HOSTS
def test_a_journal_makes_the_same_memory(device: str, tmp_path: Path) -> None:
    x = pictures(40)
    kept = SQHN(SHAPE, capacity=20, device=device, folder=tmp_path / "kept")
    floats = SQHN(SHAPE, capacity=20, device=device)
    learn((kept, floats), x[:25])
    kept.forget(3)
    floats.forget(3)
    learn((kept, floats), x[25:])
    again = crashed(tmp_path / "kept")
    assert rows_of(again).has_bytes
    assert_same_values(again, floats)


@pytest.mark.parametrize("projection", [True, False])
def test_threads_and_chunks_do_not_matter(projection: bool) -> None:
    x, found = pictures(150), []
    for threads, chunk in ((1, 256), (3, 256), (1, 1), (2, 7)):
        with using_threads(threads):
            memory = SQHN(SHAPE, capacity=100)
            set_chunk(memory, chunk)
            if not projection:
                without_projection(memory)
            memory.learn(x)
            found.append((fingerprint(memory), memory.recall(x, k=3).index.tolist()))
    assert found.count(found[0]) == len(found)


def test_a_tree_and_small_nodes_keep_floats() -> None:
    small = SQHN((4, 4), capacity=5)
    small.learn(pictures(3)[:, :2, :2].reshape(3, 4, 4))
    assert not rows_of(small).has_bytes
    from sqhn import Level

    tree = SQHN(SHAPE, [Level(4, 5), Level(capacity=5)])
    tree.learn(pictures(3))
    assert not rows_of(tree).has_bytes


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["learn", "one", "hold", "floats", "forget", "memorize", "reload", "missing", "reset"]),
        st.integers(0, 2**32 - 1),
    ),
    max_size=14,
)


@ON_HOSTS
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS, st.sampled_from(SETTINGS), st.integers(1, 8))
def test_random_histories(device: str, steps: Any, settings: dict[str, Any], capacity: int) -> None:
    memory, floats = pair(device, capacity, **settings)
    stream = pictures(12, capacity)
    learn((memory, floats), stream[:2])
    for verb, seed in steps:
        rng = np.random.default_rng(seed)
        x = stream[rng.integers(0, len(stream), rng.integers(1, 6))]
        if verb in ("learn", "hold"):
            learn((memory, floats), x, hold=verb == "hold")
        elif verb == "one":
            learn((memory, floats), x[0])
        elif verb == "missing":
            learn((memory, floats), x, observed=HALF)
        elif verb == "forget" and len(memory):
            j = rng.choice(np.flatnonzero(memory.counts), rng.integers(1, len(memory) + 1), replace=False)
            assert memory.forget(j) == floats.forget(j)
        elif verb == "reload":
            for one in (memory, floats):  # both: sums depend on how much room there is
                one.__setstate__(one.__getstate__())
        else:
            for one, samples in ((memory, x), (floats, as_floats(x))):
                if verb == "floats":
                    one.learn(as_floats(x) * np.float32(0.9))
                elif verb == "reset":
                    one.reset()
                elif verb == "memorize" and len(one) == len(one.counts) <= capacity - len(x):
                    one.memorize(samples)
        assert fingerprint(memory) == fingerprint(floats)
    if len(memory):
        assert_same(memory, floats, stream[:3])
