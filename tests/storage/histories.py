"""Memories made by fixed calls: this version makes them anew, and compares them with the `files` of earlier versions.

Only public calls that every version has, so that each version can make them and write its own files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqhn import SQHN, Level

SHAPE = (4, 6)
RANDOM = np.random.default_rng(11)
ITEMS = RANDOM.random((10, *SHAPE)).astype(np.float32)
X = ITEMS[RANDOM.integers(10, size=60)] + RANDOM.normal(0, 0.05, (60, *SHAPE)).astype(np.float32)
OBSERVED = RANDOM.random(X.shape) < 0.8
NEW = RANDOM.random((40, *SHAPE)).astype(np.float32)


@dataclass(frozen=True)
class History:
    """The levels of a memory, and the calls that it got."""

    levels: list[Level]
    calls: list[Callable[[SQHN], Any]]

    def memory(self, **where: Any) -> SQHN:
        """The memory after all calls; where: the device or folder."""
        memory = SQHN(SHAPE, self.levels, **where)
        for call in self.calls:
            call(memory)
        return memory


def tree(when_full: Any) -> list[Level]:
    return [Level(2, capacity=5), Level(capacity=8, when_full=when_full)]


SAVED = {
    "average": History(
        [Level(capacity=7)],
        [
            lambda memory: memory.learn(X[:30], value=[{"item": n % 4} for n in range(30)]),
            lambda memory: memory.learn(X[30], value=np.arange(3)),
            lambda memory: memory.learn(X[31:40], observed=OBSERVED[31:40]),
            lambda memory: memory.forget([1, 4]),
            lambda memory: memory.calibrate(new=NEW, error=0.1),
            lambda memory: memory.calibrate(new=NEW, error=0.1, inference="evidence"),
        ],
    ),
    "oldest": History(
        [Level(capacity=6, when_full="oldest", alpha=50.0, gamma=1.1)],
        [
            lambda memory: memory.learn(X[:40], value=list(range(40))),
            lambda memory: memory.forget(3),
            lambda memory: setattr(memory, "rho", 0.25),
        ],
    ),
    "overwrite": History(
        [Level(capacity=6, when_full="overwrite", alpha=np.inf)], [lambda memory: memory.learn(X[:40])]
    ),
    "freeze": History([Level(capacity=6, when_full="freeze")], [lambda memory: memory.learn(X[:40])]),
    "tree": History(
        tree("overwrite"),
        [
            lambda memory: memory.learn(X[:20], value=[f"é{n}" for n in range(20)]),
            lambda memory: memory.learn(X[20:40], observed=OBSERVED[20:40]),
            lambda memory: memory.forget([0, 5]),
            lambda memory: memory.learn(X[40]),
            lambda memory: memory.calibrate(old=X[:40], error=0.2),
        ],
    ),
    "ratios": History(
        [Level(capacity=7)],
        [
            lambda memory: memory.learn(X[:30]),
            lambda memory: memory.calibrate(old=X[:40], error=0.1),
            lambda memory: memory.calibrate(new=NEW, error=0.1, inference="evidence"),
        ],
    ),
}
"""Format 2, on one device."""

SHARDED = {
    "shards": History(
        [Level(capacity=12)],
        [
            lambda memory: memory.learn(X[:30], value=list(range(30))),
            lambda memory: memory.learn(X[30:40], observed=OBSERVED[30:40]),
            lambda memory: memory.forget([2]),
        ],
    ),
    "shards-tree": History(tree("average"), [lambda memory: memory.learn(X[:30])]),
}
"""Format 2, on three shards."""

CHANGES: list[Callable[[SQHN], Any]] = [
    lambda memory: memory.learn(X[:30]),
    lambda memory: memory.learn(X[30:33].astype(">f8")),
    lambda memory: memory.learn((255 * X[33:36].clip(0, 1)).astype(np.uint8)),
    lambda memory: memory.learn(X[36:40], observed=OBSERVED[36:40]),
    lambda memory: memory.learn(X[40:44], hold=True),
    lambda memory: memory.learn(X[44:48], hold=True, value="one thing", observed=OBSERVED[44:48]),
    lambda memory: memory.learn(X[48:50], value=["é", {"a": [1, None]}]),
    lambda memory: memory.learn(X[50]),
    lambda memory: memory.learn(X[54:57], hold=True),
    lambda memory: memory.forget([0, 2]),
    lambda memory: memory.learn(X[51:54]),
    lambda memory: setattr(memory, "rho", 0.25),
    lambda memory: memory.calibrate(new=NEW, error=0.1),
    lambda memory: memory.calibrate(new=NEW, error=0.1, inference="evidence"),
    lambda memory: memory.resize(10),
    lambda memory: memory.learn(X[:5], root_only=True),
    lambda memory: memory.pretrain(X[5:9]) if len(memory.levels) > 1 else None,
]
RESET: list[Callable[[SQHN], Any]] = [lambda memory: memory.reset(), lambda memory: memory.memorize(X[:3])]

KEPT = {
    "journal": History([Level(capacity=7, when_full="oldest")], CHANGES),
    "journal-tree": History(tree("overwrite"), CHANGES),
    "journal-reset": History([Level(capacity=7)], [*CHANGES[:2], *CHANGES[12:14], *RESET, *CHANGES[7:8]]),
    "journal-torn": History([Level(capacity=7)], CHANGES[:3]),
}
"""Folders with the first journal; the last record of `journal-torn`, of one more sample, is not complete."""

LOGGED = {"log": History([Level(capacity=7, when_full="oldest")], CHANGES)}
"""Folders with the journal in SQLite."""
