"""Kills hundreds of Ray workers, and removes a machine from a cluster, while memories are in use.

`python -m tests.soak KILLS`. The memories must stay equal to others on a CPU. Before that, memories are
used after `warm` with an empty cache, and nothing may be compiled.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from sqhn import SQHN, Level
from tests.helpers import cluster, fingerprint, set_chunk
from tests.ray.test_ray import SHAPE, TREE, kill, stream, wait_for_restart
from tests.test_warmup import MEMORIES, in_a_new_process


def killed(levels: list[Level], kills: int, seed: int) -> None:
    """Learn a stream while shards are killed; compare all decisions, and the memories at the end."""
    one, many = SQHN(SHAPE, levels), SQHN(SHAPE, levels, device="ray", shards=3)
    set_chunk(one, 16)
    set_chunk(many, 16)
    rng, x = np.random.default_rng(seed), stream(60 * kills)
    for i in range(kills):
        s, for_good = int(rng.integers(3)), bool(rng.integers(2))
        kill(many, s, for_good)
        if not for_good and rng.random() < 0.5:
            wait_for_restart(many, s)
        part = x[60 * i : 60 * i + 60]
        for a, b in zip(one.learn(part), many.learn(part)):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(one.recall(part).index, many.recall(part).index)
        print(f"{i + 1} of {kills} killed", end="\r", flush=True)
    assert fingerprint(one) == fingerprint(many)
    print(f"{levels}: the same after {kills} kills")


def without_a_machine(levels: list[Level]) -> None:
    """Learn half a stream, remove one of three machines, and learn the rest."""
    from ray.cluster_utils import Cluster

    import ray

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    lost = [machines.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=machines.address, log_to_driver=False)
    try:
        one, many, x = SQHN(SHAPE, levels), SQHN(SHAPE, levels, device="ray", shards=3), stream(600)
        for part in (x[:300], x[300:]):
            for a, b in zip(one.learn(part), many.learn(part)):
                np.testing.assert_array_equal(a, b)
            if lost:
                machines.remove_node(lost.pop())
        assert fingerprint(one) == fingerprint(many)
        print(f"{levels}: the same without a machine")
    finally:
        ray.shutdown()
        machines.shutdown()  # type: ignore[no-untyped-call]


def warmed(name: str) -> None:
    """Start with an empty cache, compile ahead in one process, and use a memory in every way in another."""
    with TemporaryDirectory() as cache, TemporaryDirectory() as folder:
        memory = f"SQHN(MEMORIES[{name!r}][0], **MEMORIES[{name!r}][1])"
        in_a_new_process(f"warm({memory})", NUMBA_CACHE_DIR=cache)
        compiled = {*Path(cache).rglob("*.nbc")}
        in_a_new_process(f"use({memory}, Path({folder!r}))", NUMBA_CACHE_DIR=cache)
        assert compiled
        assert {*Path(cache).rglob("*.nbc")} == compiled, name
    print(f"{name}: {len(compiled)} functions compiled ahead, and none later")


if __name__ == "__main__":
    for name in MEMORIES:
        warmed(name)
    with cluster():
        for number, levels in enumerate(([Level(capacity=60)], TREE)):
            killed(levels, int(sys.argv[1]) // 2, number)
    for levels in ([Level(capacity=60)], TREE):
        without_a_machine(levels)
