"""Memories in several places are what they are in one, whatever is learned, forgotten, asked and saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN
from sqhn.reference import ReferenceSQHN
from tests.conformance.test_stories import SHAPES, SIMILARITIES, same_in_all, story, tell
from tests.helpers import fingerprint

Local = Callable[..., None]


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("name", SHAPES)
def test_one_story(name: str, similarity: Any, shards: int, local: Local, tmp_path: Path) -> None:
    local(shards)
    when_full = ["average", "overwrite", "oldest", "freeze"][(shards + len(name)) % 4]
    memory, reference, rng = story(name, similarity, when_full, "ray")
    tell(memory, reference, rng, 6)
    same_in_all(memory, reference, rng)
    memory.save(tmp_path / "m")
    for other in (SQHN.load(tmp_path / "m", "ray"), SQHN.load(tmp_path / "m")):
        assert fingerprint(other) == fingerprint(memory)
        tell(other, ReferenceSQHN.of(memory), np.random.default_rng(1), 2)


@pytest.mark.parametrize("when_full", ["average", "overwrite", "oldest", "freeze"])
@pytest.mark.parametrize("name", SHAPES)
def test_shards_that_are_lost_and_come_back(
    name: str, when_full: str, local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    local(3, every=8)
    monkeypatch.setattr("sqhn.banks.shards.shards.ENOUGH", 2000)
    memory, reference, rng = story(name, "shifted_cosine", when_full, "ray")
    tell(memory, reference, rng, 6)
    same_in_all(memory, reference, rng)
    assert memory._patterns.shards.carrier.lost  # type: ignore[attr-defined]
