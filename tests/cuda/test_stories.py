"""Samples with holes, neurons that are forgotten, every similarity, on a GPU: as the reference does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN
from sqhn.reference import ReferenceSQHN
from tests.conformance.test_stories import SHAPES, SIMILARITIES, same_in_all, story, tell, tree
from tests.helpers import assert_same_state, fingerprint


@pytest.mark.parametrize("when_full", ["average", "overwrite", "oldest", "freeze"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("name", SHAPES)
def test_one_story(name: str, similarity: Any, when_full: str, device: str, tmp_path: Path) -> None:
    memory, reference, rng = story(name, similarity, when_full, device)
    tell(memory, reference, rng, 6)
    same_in_all(memory, reference, rng)
    memory.save(tmp_path / "m")
    for other in (SQHN.load(tmp_path / "m", device), SQHN.load(tmp_path / "m")):
        assert fingerprint(other) == fingerprint(memory)
        tell(other, ReferenceSQHN.of(memory), np.random.default_rng(1), 2)


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
