"""Longer than a test: memories on Ray whose processes are killed again and again, beside the same in one place.

python -m tests.soak KILLS
"""

from __future__ import annotations

import sys

import numpy as np

from sqhn import SQHN, Level
from tests.helpers import cluster, fingerprint
from tests.shards.test_ray import SHAPE, TREE, back, kill, stream


def killed(levels: list[Level], kills: int, seed: int) -> None:
    """Learn a stream, kill a process now and then, and compare what was decided, and what is stored in the end."""
    one, many = SQHN(SHAPE, levels), SQHN(SHAPE, levels, device="ray", shards=3)
    one._chunk = many._chunk = 16
    rng, x = np.random.default_rng(seed), stream(60 * kills)
    for i in range(kills):
        s, gently = int(rng.integers(3)), bool(rng.integers(2))  # gently: Ray is told not to start it again
        kill(many, s, gently)
        if not gently and rng.random() < 0.5:
            back(many, s)
        part = x[60 * i : 60 * i + 60]
        for a, b in zip(one.learn(part), many.learn(part)):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(one.recall(part).index, many.recall(part).index)
        print(f"{i + 1} of {kills} killed", end="\r", flush=True)
    assert fingerprint(one) == fingerprint(many)
    print(f"{levels}: the same after {kills} kills")


if __name__ == "__main__":
    with cluster():
        for number, levels in enumerate(([Level(capacity=60)], TREE)):
            killed(levels, int(sys.argv[1]) // 2, number)
