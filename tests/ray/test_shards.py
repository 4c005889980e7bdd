"""Shards on a transport that loses calls: numbering, snapshots, rolling back; and queries of a level change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN, Level
from sqhn.banks.ray.shards import BUILD, Shards
from tests.ray.local import LocalTransport


class Sum:
    """A part of a shard: adds numbers up."""

    def __init__(self) -> None:
        self.total, self.added = 0, 0

    def add(self, numbers: Any) -> int:
        if (numbers < 0).any():
            raise ValueError("negative")
        self.total, self.added = self.total + int(numbers.sum()), self.added + 1
        return self.total

    def read(self) -> tuple[int, int]:
        return self.total, self.added

    def state(self) -> dict[str, Any]:
        return {"total": self.total, "added": self.added}

    def restore(self, state: dict[str, Any]) -> None:
        self.total, self.added = state["total"], state["added"]


def sums(count: int, every: int) -> Shards:
    shards = Shards(count, LocalTransport(every))
    shards.write_all(BUILD, "sum", Sum)
    return shards


def totals(shards: Shards) -> list[Any]:
    return list(shards.query(shards.each("sum", "read")).values())


@pytest.mark.parametrize("every", [0, 9])
def test_every_write_is_applied_once(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqhn.banks.ray.shards.SNAPSHOT_BYTES", 200)
    shards = sums(2, every)
    for number in range(60):
        writes = {s: ("sum", "add", np.full(2, number)) for s in range(2)}
        if number % 3:
            assert shards.write(writes) == dict.fromkeys(range(2), number * (number + 1))
        else:
            shards.post(writes)
    assert totals(shards) == [(60 * 59, 60)] * 2
    assert all(shards.covered)  # snapshots were taken
    assert max(map(len, shards.log)) < 60


def test_writes_are_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    shards = sums(3, 0)
    shards.write_all("sum", "add", np.ones(1))

    def write_and_fail() -> None:
        with shards.all_or_none():
            shards.post({1: ("sum", "add", np.ones(1))})
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_and_fail()
    assert totals(shards) == [(1, 1)] * 3
    with pytest.raises(ValueError, match="negative"):
        shards.write({s: ("sum", "add", np.full(1, 1 - s)) for s in range(3)})
    assert totals(shards) == [(1, 1)] * 3


def test_a_query_that_bypasses_does_not_wait_for_posted_writes() -> None:
    shards = sums(1, 0)
    shards.post({0: ("sum", "add", np.ones(3))})
    assert shards.query({0: ("sum", "read")}, bypass=True) == {0: (3, 1)}  # at any time: here at once
    shards.wait_for_writes([0])
    assert not shards.posted


def test_queries_change_nothing_that_is_known_of_a_level(local: Callable[..., None]) -> None:
    local(2)
    memory = SQHN((8, 8), [Level(4, 9), Level(capacity=9)], device="ray")
    x = np.random.default_rng(0).random((9, 8, 8), np.float32)
    memory.learn(x)
    bank: Any = memory.banks[0]
    before = vars(bank.neurons) | vars(bank)
    memory.recall(x, k=3)
    memory.recall(x, inference="evidence")
    memory.recognize(x)
    memory.energy(x, inference="exact")
    after = vars(bank.neurons) | vars(bank)
    assert before.keys() == after.keys()
    assert all(after[name] is value for name, value in before.items())
