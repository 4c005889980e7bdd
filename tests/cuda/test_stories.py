"""Random sequences of operations on a GPU: missing values, forgotten neurons, every similarity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN
from sqhn.reference import ReferenceSQHN
from tests.conformance.test_stories import SHAPES, SIMILARITIES, told_and_saved, tree
from tests.helpers import assert_same_state


@pytest.mark.parametrize("when_full", ["average", "overwrite", "oldest", "freeze"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("name", SHAPES)
def test_one_story(name: str, similarity: Any, when_full: str, device: str, tmp_path: Path) -> None:
    told_and_saved(name, similarity, when_full, device, tmp_path / "m")


@pytest.mark.parametrize("name", ["small", "two levels"])
def test_all_forgotten_and_learned_again(name: str, device: str) -> None:
    shape, levels = SHAPES[name][0], tree(name, 9, "average")
    memory, reference = SQHN(shape, levels, device=device), ReferenceSQHN(shape, levels)
    x = np.random.default_rng(0).random((14, *shape)).astype(np.float32)
    x[5] = 0.5
    for part in (x[:9], x[5:6], x[9:]):
        memory.learn(part)
        for one in part:
            reference.learn(one)
        assert_same_state(memory, reference)
        living = np.flatnonzero(memory.counts)
        memory.forget(living)
        for j in living:
            reference.forget(int(j))
        assert len(memory) == 0
        assert not memory.recognize(x).old.any()
