"""Shards in processes of Ray, some of which are killed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN, Level
from tests.helpers import cluster, fingerprint, set_chunk

ray = pytest.importorskip("ray")
SHAPE = (8, 12)
TREE = [Level(4, capacity=30), Level(capacity=60)]


@pytest.fixture(scope="module", autouse=True)
def on_ray() -> Iterator[None]:
    with cluster():
        yield


def stream(count: int) -> Any:
    """Noisy repetitions of 100 samples, which is more than a memory stores."""
    rng = np.random.default_rng(count)
    samples = rng.random((100, *SHAPE)).astype(np.float32)
    return samples[rng.integers(100, size=count)] + rng.normal(0, 0.02, (count, *SHAPE)).astype(np.float32)


def kill(memory: SQHN, s: int, for_good: bool) -> None:
    """Kill the process of a shard. for_good: Ray does not restart it."""
    shard = memory.banks[0].shards.shards[s]  # type: ignore[attr-defined]
    if for_good:
        ray.kill(shard)
    else:
        os.kill(ray.get(shard.process.remote())[0], signal.SIGKILL)


def wait_for_restart(memory: SQHN, s: int) -> None:
    """Wait until Ray has restarted a shard, which is empty."""
    while True:
        with suppress(ray.exceptions.RayActorError):
            assert ray.get(memory.banks[0].shards.shards[s].applied.remote()) == 0  # type: ignore[attr-defined]
            return
        time.sleep(0.1)


@pytest.mark.parametrize("levels", [[Level(capacity=60)], TREE], ids=["one level", "tree"])
def test_shards_that_are_killed(levels: list[Level], monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten kills during a stream no write is lost, and none was applied twice."""
    monkeypatch.setattr("sqhn.banks.ray.shards.SNAPSHOT_BYTES", 50_000)
    one, many = SQHN(SHAPE, levels), SQHN(SHAPE, levels, device="ray", shards=2)
    set_chunk(one, 32)
    set_chunk(many, 32)
    x, rng = stream(500), np.random.default_rng(0)
    for i in range(10):
        s = int(rng.integers(2))
        kill(many, s, for_good=bool(i % 2))
        if i % 4 == 0:
            wait_for_restart(many, s)
        part = x[50 * i : 50 * i + 50]
        for a, b in zip(one.learn(part), many.learn(part)):
            np.testing.assert_array_equal(a, b)
    assert fingerprint(one) == fingerprint(many)
    for a, b in zip(one.recall(x)[:3], many.recall(x)[:3]):
        np.testing.assert_array_equal(a, b)


def test_from_one_process_to_shards_and_back(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=60)
    memory.learn(stream(100))
    there = memory.to("ray", shards=3)
    assert (there.device, there.shards, memory.shards) == ("ray", 3, None)
    assert there.to("ray") is there
    there.save(tmp_path / "m")
    copies = [there.to("cpu"), SQHN.load(tmp_path / "m"), SQHN.load(tmp_path / "m", "ray", shards=2)]
    copies.append(pickle.loads(pickle.dumps(there)))
    there.resize(80)
    assert there.capacity == 80
    for copy in copies:
        assert fingerprint(copy) == fingerprint(memory)


def fail_in_the_last_shard(memory: SQHN, one: SQHN, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last shard has no room but the others have, nothing changes, and learning can go on."""
    x = stream(100)
    memory.learn(x[:40])
    before, shards = fingerprint(memory), memory.banks[0].shards  # type: ignore[attr-defined]
    call, result, reserving = shards.transport.call, shards.transport.result, []

    def note(shard: Any, method: str, *args: Any, **how: Any) -> Any:
        sent = call(shard, method, *args, **how)
        if shard is shards.shards[-1] and method == "write" and "reserve" in args[:4]:
            reserving.append(sent)
        return sent

    def fail(sent: Any) -> Any:
        found = result(sent)
        if any(sent is one for one in reserving):
            raise MemoryError("no room")
        return found

    monkeypatch.setattr(shards.transport, "call", note)
    monkeypatch.setattr(shards.transport, "result", fail)
    with pytest.raises(MemoryError):
        memory.learn(x[40:50])
    monkeypatch.undo()
    assert fingerprint(memory) == before
    one.learn(x)
    memory.learn(x[40:])


@pytest.mark.parametrize("levels", [[Level(capacity=60)], TREE], ids=["one level", "tree"])
def test_a_write_that_fails_in_a_shard_changes_nothing(levels: list[Level], monkeypatch: pytest.MonkeyPatch) -> None:
    memory, one = SQHN(SHAPE, levels, device="ray", shards=2), SQHN(SHAPE, levels)
    fail_in_the_last_shard(memory, one, monkeypatch)
    assert fingerprint(memory) == fingerprint(one)


def test_invalid_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="needs shards=N"):
        SQHN(SHAPE, capacity=9, device="ray")
    with pytest.raises(ValueError, match="shards=2 is for device='ray'"):
        SQHN(SHAPE, capacity=9, shards=2)
    with pytest.raises(ValueError, match="'ray' or 'ray:cuda'; got 'ray:tpu'"):
        SQHN(SHAPE, capacity=9, device="ray:tpu", shards=2)
    if not ray.cluster_resources().get("GPU"):
        with pytest.raises(RuntimeError, match=r"cannot be used: the cluster of Ray has no GPU; use device='ray'"):
            SQHN(SHAPE, TREE, device="ray:cuda", shards=2)
    with pytest.raises(ValueError, match="shards"):
        SQHN(SHAPE, capacity=9, device="ray", shards=0)


@pytest.mark.parametrize("levels", [[Level(capacity=60)], TREE], ids=["one level", "tree"])
def test_a_memory_survives_the_program(levels: list[Level], tmp_path: Path) -> None:
    """Another program continues with other shards, and all samples are there that `learn` returned from."""
    program = f"""
import sys
from sqhn import SQHN, Level
from sqhn.storage import journal
from tests.ray.test_ray import SHAPE, stream
journal.ENOUGH = 100_000
memory = SQHN(SHAPE, {levels}, device="ray", shards=2, folder=sys.argv[1])
for part in stream(900).reshape(30, 30, *SHAPE):
    print(memory.learn(part).step[-1], flush=True)
"""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root / "src"), str(root)])
    address = {"RAY_ADDRESS": ray.get_runtime_context().gcs_address, "PYTHONPATH": path}
    words, more = [sys.executable, "-c", program, str(tmp_path)], os.environ | address
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=more) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(12)]
        process.kill()
        told += [int(line) for line in process.stdout.read().splitlines()]
    memory, one = SQHN.load(tmp_path, "ray", shards=3), SQHN(SHAPE, levels)
    assert memory.step >= told[-1] >= 360
    one.learn(stream(900)[: memory.step])
    assert fingerprint(memory) == fingerprint(one)
