"""Counts of children's values, for strengths that no level below sends."""

from __future__ import annotations

import numpy as np
import pytest

from sqhn import SQHN, Level
from sqhn.banks.cpu.counts import Counts
from sqhn.banks.interface import Codes


@pytest.mark.parametrize("strength", [np.inf, -np.inf, np.nan, -1.0, 0.0])
def test_any_strength_has_a_winner_that_exists(strength: float) -> None:
    memory = SQHN((4,), [Level(2, 3), Level(capacity=3, alpha=np.inf)])
    memory.learn(np.random.default_rng(0).random((3, 4)))
    bank = memory.banks[1]
    assert isinstance(bank, Counts)
    k = bank.top_k(Codes(np.zeros((2, 1), np.int32), np.full((2, 1), strength)), 1)[0][..., 0]
    assert 0 <= k[0, 0] < len(memory)
