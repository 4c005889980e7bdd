"""Samples per second from the costs of one sample, against values by hand."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")
from sqhn.banks.ray.prototypes import PART
from sqhn.bench.shards import Costs


def test_one_machine() -> None:
    """The limit is all cores, the program, or the one thread of each shard."""
    even = Costs(shards=6e-4, program=2e-4, bytes=1e4, message=0.0)
    assert even.here(1, 2) == pytest.approx(1 / 4e-4)
    assert even.here(2, 2) == pytest.approx(1 / 4e-4)
    assert Costs(1e-4, 9e-4, 1e4, 0.0).here(2, 2) == pytest.approx(1 / 9e-4)
    assert Costs(8e-4, 1e-5, 1e4, 0.0).here(1, 1) == pytest.approx(1 / 8.1e-4)


def test_messages_to_other_shards() -> None:
    costs = Costs(shards=0.0, program=1e-3, bytes=0.0, message=PART * 1e-3, messages=2.0)
    assert costs.here(4, 8) == pytest.approx(1 / 7e-3)


def test_many_machines() -> None:
    """Twice as many machines are twice as fast, until sending the samples to all of them takes longer."""
    costs = Costs(shards=0.8, program=1e-4, bytes=1e4, message=0.0)
    assert costs.there(10, 4, 0.0, 1e9) == pytest.approx(1 / 0.02)
    assert costs.there(20, 4, 0.0, 1e9) == pytest.approx(1 / 0.01)
    assert costs.there(400, 4, 0.0, 1e9) == pytest.approx(1 / 4e-3)
    assert costs.there(20, 4, PART * 5e-3, 1e9) == pytest.approx(1 / 0.02)
