"""Memories on shards equal those in one place, through learning, forgetting, queries and files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqhn import SQHN, Level
from sqhn.banks.cpu.prototypes import Prototypes
from sqhn.banks.interface import Learned, Patches
from sqhn.banks.ray.nodes import Nodes
from tests.by_evidence import ODD, assert_as_the_reference, assert_possible, odd
from tests.conformance.test_stories import SHAPES, SIMILARITIES, same_in_all, story, tell, told_and_saved, tree
from tests.helpers import fingerprint, model_of, set_chunk

Local = Callable[..., None]


@pytest.fixture(autouse=True)
def _in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards look ahead often: at every fifth sample."""
    monkeypatch.setattr("sqhn.banks.ray.prototypes.PART", 5)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("name", SHAPES)
def test_one_story(name: str, similarity: Any, shards: int, local: Local, tmp_path: Path) -> None:
    local(shards)
    when_full = ["average", "overwrite", "oldest", "freeze"][(shards + len(name)) % 4]
    told_and_saved(name, similarity, when_full, "ray", tmp_path / "m")


@pytest.mark.parametrize("when_full", ["average", "overwrite", "oldest", "freeze"])
@pytest.mark.parametrize("name", SHAPES)
def test_shards_that_are_lost_and_come_back(
    name: str, when_full: str, local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    local(3, every=20)
    monkeypatch.setattr("sqhn.banks.ray.shards.SNAPSHOT_BYTES", 2000)
    memory, reference, rng = story(name, "shifted_cosine", when_full, "ray")
    tell(memory, reference, rng, 6)
    same_in_all(memory, reference, rng)
    assert memory.banks[0].device.start().transport.lost  # type: ignore[attr-defined]


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_story_full_of_ties(local: Local, monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    """Samples of few values, in chunks of 1 to 512, that shards look at a few or many at a time."""
    local(data.draw(st.sampled_from([1, 2, 3, 7])))
    monkeypatch.setattr("sqhn.banks.ray.prototypes.PART", data.draw(st.sampled_from([1, 4, 32, 384])))
    shape: Any = data.draw(st.sampled_from([(8, 12), (6, 6), (10, 10)]))  # nodes of many values, and of few
    policy: Any = data.draw(st.sampled_from(["average", "overwrite", "oldest", "freeze"]))
    level = Level(None, data.draw(st.integers(1, 30)), data.draw(st.sampled_from([1e7, 20.0])), when_full=policy)
    memory = SQHN(shape, [level], similarity=data.draw(st.sampled_from(SIMILARITIES)), device="ray")
    set_chunk(memory, data.draw(st.integers(1, 512)))
    one, rng = (
        SQHN(shape, [level], similarity=memory.options.similarity),
        np.random.default_rng(data.draw(st.integers(0, 99))),
    )
    things = rng.choice([0.0, 0.5, 1.0], (12, *shape)).astype(np.float32)
    for count in data.draw(st.lists(st.sampled_from([1, 10, 60]), max_size=5)):
        x = things[rng.integers(12, size=count)]
        x[rng.random(count) < 0.3, 0] = rng.choice([0.0, 0.5, 1.0])
        x[rng.random(count) < 0.1] = 0.5
        for a, b in zip(memory.learn(x), one.learn(x)):
            np.testing.assert_array_equal(a, b)
        k = min(3, len(one))
        for a, b in zip(memory.recall(x, k=k)[:3], one.recall(x, k=k)[:3]):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(memory.recall(x).index, one.recall(x).index)
    assert fingerprint(memory) == fingerprint(one)


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 512])
def test_chunks_of_any_size(chunk: int, local: Local) -> None:
    local(3)
    memory, reference, rng = story("large", "shifted_cosine", "oldest", "ray")
    set_chunk(memory, chunk)
    tell(memory, reference, rng, 8)
    same_in_all(memory, reference, rng)


def test_one_level_is_not_on_gpus(local: Local) -> None:
    local(2)
    with pytest.raises(ValueError, match="'ray:cuda' is for trees"):
        SQHN((8, 12), capacity=9, device="ray:cuda")


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("shards", [1, 3])
def test_more_room_and_a_new_beginning(name: str, shards: int, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither starts other shards; one that is lost afterwards has all of it again."""
    local(shards, every=10)
    monkeypatch.setattr("sqhn.banks.ray.shards.SNAPSHOT_BYTES", 2000)
    memory, larger = (SQHN(SHAPES[name][0], tree(name, J, "oldest"), device="ray") for J in (9, 30))
    x = np.random.default_rng(0).random((50, *memory.input_shape)).astype(np.float32)
    before = memory.banks[0].device.start()  # type: ignore[attr-defined]
    for _ in range(2):
        for one in (memory, larger):
            one.learn(x[:9])
        if memory.capacity == 9:
            memory.resize(30)
        for one in (memory, larger):
            one.learn(x[9:])
        assert fingerprint(memory) == fingerprint(larger)
        np.testing.assert_array_equal(memory.recall(x).x, larger.recall(x).x)
        for one in (memory, larger):
            one.reset()
        assert (len(memory), memory.step, memory.capacity) == (0, 0, 30)
    assert memory.banks[0].device.start() is before  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("failing", "after"), [("share", 5), ("share", 8), ("call", 5), ("call", 8), ("call", 20), ("call", 40)]
)
def test_a_chunk_that_fails_is_not_learned_at_all(
    failing: str, after: int, local: Local, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """However many parts of it were: neither here, nor on shards, nor in the folder."""
    local(2)
    monkeypatch.setattr("sqhn.banks.ray.shards.SNAPSHOT_BYTES", 2000)
    rng = np.random.default_rng(0)
    things = rng.random((30, 8, 12)).astype(np.float32)
    x = things[rng.integers(30, size=150)] + rng.normal(0, 0.05, (150, 8, 12)).astype(np.float32)
    memory, one = SQHN((8, 12), capacity=20, device="ray", folder=tmp_path), SQHN((8, 12), capacity=20)
    for part in (x[:50], x[50:60]):
        memory.learn(part)
        one.learn(part)
    transport = memory.banks[0].device.start().transport  # type: ignore[attr-defined]
    real, calls = getattr(transport, failing), iter(range(1000))

    def fail(*args: Any, **how: Any) -> Any:
        if next(calls) == after:
            raise OSError("full")
        return real(*args, **how)

    monkeypatch.setattr(transport, failing, fail)
    with pytest.raises(OSError, match="full"):
        memory.learn(x[60:])
    assert fingerprint(memory) == fingerprint(one)
    for part in (x[100:], x[60:100]):
        for a, b in zip(memory.learn(part), one.learn(part)):
            np.testing.assert_array_equal(a, b)
    assert fingerprint(memory) == fingerprint(one)
    del memory
    assert fingerprint(SQHN.load(tmp_path)) == fingerprint(one)


def test_a_signal_waits_for_the_end_of_a_chunk(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunk has several parts, and all of them are learned."""
    local(2)
    memory, one = (SQHN((8, 12), capacity=200, device=device) for device in ("ray", "cpu"))
    x = np.random.default_rng(0).random((300, 8, 12)).astype(np.float32)
    set_chunk(memory, 32)
    chunk = memory.banks[0].chunk_size(32)
    transport = memory.banks[0].device.start().transport  # type: ignore[attr-defined]
    real, calls = transport.call, iter(range(10_000))

    def call(*args: Any, **how: Any) -> Any:
        if next(calls) == 12:
            signal.raise_signal(signal.SIGINT)
        return real(*args, **how)

    monkeypatch.setattr(transport, "call", call)
    with pytest.raises(KeyboardInterrupt):
        memory.learn(x)
    assert memory.step == chunk < len(x)
    one.learn(x[:chunk])
    assert fingerprint(memory) == fingerprint(one)


@pytest.mark.parametrize("shards", [1, 2])
def test_ties_with_one_that_has_changed(shards: int, local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """u ties with W, and W with F, but not u with F: as soon as F is elsewhere, u wins."""
    monkeypatch.setattr("sqhn.banks.ray.prototypes.PART", 384)
    local(shards)
    e, others = np.eye(80), np.zeros((383, 80))
    others[:, 5:] = np.random.default_rng(0).normal(size=(383, 75))
    stored = np.stack([e[0] + np.sqrt(3.0e-12) * e[1], e[0] + np.sqrt(1.6e-12) * e[2], e[0]])
    if shards == 2:  # these three are on the same
        stored = np.concatenate([np.stack(pair) for pair in zip(stored, others[:3])])
    away = e[0] - 3e-4 * e[1] - 3e-4 * e[2]
    memory, one = (SQHN((80,), capacity=5000, similarity="cosine", device=device) for device in ("ray", "cpu"))
    for m in (memory, one):
        m.memorize(stored.astype(np.float32))
    x = np.concatenate([away[None], others, e[:1]]).astype(np.float32)
    for a, b in zip(memory.learn(x), one.learn(x)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_scores_of_whole_samples_beside_others(similarity: Any, local: Local) -> None:
    """To the last bit, in learning and in recall."""
    local(2)
    rng = np.random.default_rng(0)
    x = (rng.random((600, 100)) ** 3).astype(np.float32)
    seen = np.ones(x.shape, bool)
    seen[::7] = rng.random(seen[::7].shape) < 0.7
    memory, one = (SQHN((100,), capacity=5000, similarity=similarity, device=device) for device in ("ray", "cpu"))
    for a, b in zip(memory.learn(x, observed=seen), one.learn(x, observed=seen)):
        np.testing.assert_array_equal(a, b)
    for k in (None, 1, 3):
        for a, b in zip(memory.recall(x, seen, k=k)[:3], one.recall(x, seen, k=k)[:3]):
            np.testing.assert_array_equal(a, b)


def test_threads_leave_products_as_they_were() -> None:
    """In any order in which threads begin and end."""
    program = """
import threading, time
import numpy
from threadpoolctl import threadpool_info
from sqhn.banks.ray.prototypes import single_blas_thread
def told(): return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
before = told()
def wait(begin, seconds):
    time.sleep(begin)
    with single_blas_thread():
        time.sleep(seconds)
threads = [threading.Thread(target=wait, args=args) for args in ((0, 0.3), (0.1, 0.4), (0.2, 0.05))]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert told() == before != [1], (told(), before)
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"OMP_NUM_THREADS": "2"})


def test_as_many_shards_as_before(local: Local, tmp_path: Path) -> None:
    """Also if there are fewer nodes."""
    local(3)
    SQHN((8, 8), [Level(4, 9), Level(None, 9)], device="ray", shards=6).save(tmp_path / "m")
    local(0)
    assert SQHN.load(tmp_path / "m", "ray").shards == 6


def test_room_is_part_of_the_state_of_a_shard() -> None:
    """The next write relies on the space that was reserved."""
    memory = SQHN((18, 9), [Level(9, 40), Level(None, 12)])
    made = model_of(memory).tree.tilings[0], memory.levels[0], memory.options, False
    nodes, other = (Nodes("cpu", "patterns", *made) for _ in range(2))
    nodes.write("reserve", 20)
    other.restore(nodes.state())
    assert other.bank.neurons.room >= nodes.bank.neurons.room >= 20


def test_traffic_does_not_grow_with_the_memory(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a chunk learned twice, where samples resemble nothing or each its own neuron."""
    local(2)
    x = np.random.default_rng(0).random((1200, 8, 12)).astype(np.float32)
    memory = SQHN((8, 12), capacity=1000, device="ray", shards=2)
    bank: Any = memory.banks[0]
    sent, learned = [], list[int]()

    class Counted(Prototypes):
        def learn(self, evidence: Patches) -> Learned:
            learned.append(evidence.x.shape[1])
            return super().learn(evidence)

    monkeypatch.setattr("sqhn.banks.ray.prototypes.Prototypes", Counted)
    for part in (x[:100], x[100:900], x[900:1000], x[:100], x[1000:1100]):
        before = bank.shards.sent + bank.shards.received
        memory.learn(part)
        sent.append((bank.shards.sent + bank.shards.received - before) / len(part) / x[0].nbytes)
    assert max(sent[:3]) < 1.05 * min(sent[:3]) < 2.5  # the sample goes there, and the neuron that it became
    assert sent[3] < 4 > sent[4]  # its neuron comes and goes too
    assert len(learned) <= 1200 / 5 + 1


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", ["plain", "forgotten", "holes", "fewer neurons than shards"])
def test_evidence(kind: str, shards: int, local: Local) -> None:
    """At every look the neurons of all shards count."""
    local(shards)
    rng = np.random.default_rng(0)
    x = rng.random((40, 8, 8)).astype(np.float32)
    memory = SQHN((8, 8), capacity=30, device="ray")
    memory.learn(x[:3] if kind.startswith("fewer") else x)
    if kind == "forgotten":
        memory.forget(np.arange(0, 30, 3))
    if kind == "holes":
        memory.learn(x[:9], observed=rng.random(x[:9].shape) < 0.7)
    asked = np.where(rng.random(x[:6].shape) < 0.3, rng.random(x[:6].shape), x[:6]).astype(np.float32)
    assert_as_the_reference(memory, asked)
    assert_as_the_reference(memory, asked, rng.random(asked.shape) < 0.6)
    one = memory.to("cpu")
    found, expected = (m.recall(asked, inference="evidence") for m in (memory, one))
    np.testing.assert_array_equal(found.index, expected.index)
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-9)


@pytest.mark.parametrize("shards", [2, 3, 7])
@pytest.mark.parametrize("name", ["two levels", "three levels"])
@pytest.mark.parametrize("inference", ["evidence", "exact", "feedforward"])
def test_rules_in_trees(inference: Any, name: str, shards: int, local: Local) -> None:
    """All levels below the memory node are in several places, the values of children in any order."""
    local(shards)
    as_in_one_place(*story(name, "shifted_cosine", "average", "ray"), inference)


def as_in_one_place(memory: SQHN, _: Any, rng: np.random.Generator, inference: Any, near: float = 1e-9) -> None:
    """Recall by a rule, but for rounding."""
    x = rng.random((40, *memory.input_shape)).astype(np.float32)
    memory.learn(x[:30])
    one, seen = memory.to("cpu"), rng.random(x[:8].shape) < 0.6
    for observed in (None, seen):
        found, expected = (m.recall(x[:8], observed, inference=inference, k=2) for m in (memory, one))
        np.testing.assert_array_equal(found.index, expected.index)
        np.testing.assert_array_equal(found.x, expected.x)
        np.testing.assert_allclose(found.score, expected.score, rtol=near)
        if inference != "evidence":
            energy = memory.energy(x[:8], observed, inference=inference)
            np.testing.assert_allclose(energy, one.energy(x[:8], observed, inference=inference), rtol=near / 1000)


@pytest.mark.parametrize("kind", ODD)
def test_evidence_of_odd_samples(kind: str, local: Local) -> None:
    local(3)
    memory, x = SQHN((8, 8), capacity=30, device="ray"), odd(1, kind)
    memory.learn(odd(0, kind))
    memory.learn(x[:3])
    assert_possible(memory, x)


def test_threads_that_ask_while_shards_are_lost(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqhn.banks.ray.prototypes.PART", 30)
    local(3, every=12)
    x = np.random.default_rng(0).random((60, 8, 12)).astype(np.float32)
    memory, one = SQHN((8, 12), capacity=60, device="ray", shards=3), SQHN((8, 12), capacity=60)
    memory.learn(x)
    one.learn(x)
    expected = one.recall(x).index.tolist()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: memory.recall(x).index.tolist(), range(12)))
    assert answers == [expected] * 12
