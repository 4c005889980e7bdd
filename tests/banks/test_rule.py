"""The outcome of a sample: the table of the rule, and the kernels that follow it."""

from __future__ import annotations

import numpy as np
import pytest

from sqhn.banks.cpu.kernels.neurons import Statistics, written_to
from sqhn.banks.rule import (
    AVERAGE,
    AVERAGED,
    FREEZE,
    GREW,
    OLDEST,
    OVERWRITE,
    REPLACED,
    SKIPPED,
    Rules,
    outcome,
)

TABLE = [  # below the threshold, full, policy, outcome
    (True, False, AVERAGE, GREW),
    (True, False, FREEZE, GREW),
    (True, False, OVERWRITE, GREW),
    (True, False, OLDEST, GREW),
    (True, True, AVERAGE, AVERAGED),
    (True, True, FREEZE, SKIPPED),
    (True, True, OVERWRITE, REPLACED),
    (True, True, OLDEST, REPLACED),
    (False, False, AVERAGE, AVERAGED),
    (False, False, FREEZE, AVERAGED),
    (False, False, OVERWRITE, AVERAGED),
    (False, False, OLDEST, AVERAGED),
    (False, True, AVERAGE, AVERAGED),
    (False, True, FREEZE, SKIPPED),
    (False, True, OVERWRITE, AVERAGED),
    (False, True, OLDEST, AVERAGED),
]
C, WRITTEN = [3, 1, 2, 1, 1], [5, 9, 6, 7, 8]  # 1, 3 and 4 were used least, 3 of them longest ago; 0 of all
FREED = [3, 0, 2, 0, 1]


def place(kind: int, when_full: int) -> int:
    """The neuron and the outcome of a sample that resembles neuron 2 of these 5 most."""
    replaced = {OVERWRITE: 3, OLDEST: 0}
    return 5 if kind == GREW else replaced[when_full] if kind == REPLACED else 2


@pytest.mark.parametrize(("below", "full", "when_full", "expected"), TABLE)
def test_the_table(below: bool, full: bool, when_full: int, expected: int) -> None:
    assert outcome(below, full, when_full) == expected


def on_a_cpu(below: bool, c: list[int], capacity: int, when_full: int) -> tuple[int, int]:
    statistics = Statistics(
        np.array([c]), np.ones((1, 5)), np.array([WRITTEN]), np.array([5]), np.array([c.count(0)]), np.array([9])
    )
    found: tuple[int, int] = written_to(
        2, 0.3 if below else 0.9, 0.5, 0, 5, statistics, Rules(capacity, when_full, 0, False, False)
    )
    return found


@pytest.mark.parametrize(("below", "full", "when_full", "expected"), TABLE)
def test_on_a_cpu(below: bool, full: bool, when_full: int, expected: int) -> None:
    assert on_a_cpu(below, C, 5 if full else 6, when_full) == (place(expected, when_full), expected)


@pytest.mark.parametrize("capacity", [5, 6])
@pytest.mark.parametrize("when_full", [AVERAGE, FREEZE, OVERWRITE, OLDEST])
def test_the_lowest_free_place_comes_first(capacity: int, when_full: int) -> None:
    assert on_a_cpu(True, FREED, capacity, when_full) == (1, GREW)
    assert on_a_cpu(False, FREED, capacity, when_full) == (2, AVERAGED)
