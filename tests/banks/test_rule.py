"""What becomes of a sample: the table of the rule, and the kernels that follow it."""

from __future__ import annotations

import numpy as np
import pytest

from sqhn.banks.cpu.kernels.neurons import Kept, written_to
from sqhn.banks.rule import AVERAGE, AVERAGED, BECAME, FREEZE, KEPT, OVERWRITE, Rules, outcome

TABLE = [  # below the threshold, full, policy, what becomes of the sample
    (True, False, AVERAGE, BECAME),
    (True, False, OVERWRITE, BECAME),
    (True, False, FREEZE, BECAME),
    (True, True, AVERAGE, AVERAGED),
    (True, True, OVERWRITE, BECAME),
    (True, True, FREEZE, KEPT),
    (False, False, AVERAGE, AVERAGED),
    (False, False, OVERWRITE, AVERAGED),
    (False, False, FREEZE, AVERAGED),
    (False, True, AVERAGE, AVERAGED),
    (False, True, OVERWRITE, AVERAGED),
    (False, True, FREEZE, KEPT),
]
C, WRITTEN = [3, 1, 2, 1, 1], [5, 9, 1, 7, 8]  # counts and last writes: 1, 3 and 4 were used least, 3 longest ago


@pytest.mark.parametrize(("below", "full", "when_full", "expected"), TABLE)
def test_the_table(below: bool, full: bool, when_full: int, expected: int) -> None:
    assert outcome(below, full, when_full) == expected


@pytest.mark.parametrize(("below", "full", "when_full", "expected"), TABLE)
def test_on_a_cpu(below: bool, full: bool, when_full: int, expected: int) -> None:
    kept = Kept(np.array([C]), np.ones((1, 5)), np.array([WRITTEN]), np.array([5]), np.array([9]))
    rules = Rules(5 if full else 6, when_full, 0, False)
    j, what = written_to(2, 0.3 if below else 0.9, 0.5, 0, 5, kept, rules)
    assert what == expected
    assert j == ((3 if full else 5) if what == BECAME else 2)
