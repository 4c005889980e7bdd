"""Memories in several places are what they are in one, whatever is learned, forgotten, asked and saved."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN
from sqhn.reference import ReferenceSQHN
from tests.by_evidence import ODD, assert_as_the_reference, assert_possible, odd
from tests.conformance.test_stories import SHAPES, SIMILARITIES, same_in_all, story, tell
from tests.helpers import fingerprint

Local = Callable[..., None]


@pytest.fixture(autouse=True)
def _in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces look ahead often: at every fifth sample."""
    monkeypatch.setattr("sqhn.banks.shards.prototypes.PART", 5)


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


def test_what_is_sent_does_not_grow_with_the_memory(local: Local) -> None:
    """Nor is a chunk rehearsed twice, where samples resemble nothing or each its own neuron."""
    local(2)
    x = np.random.default_rng(0).random((1200, 8, 12)).astype(np.float32)
    memory = SQHN((8, 12), capacity=1000, device="ray", shards=2)
    bank: Any = memory._patterns
    sent = []
    for part in (x[:100], x[100:900], x[900:1000], x[:100], x[1000:1100]):
        before = bank.shards.sent + bank.shards.received, bank.rounds
        memory.learn(part)
        sent.append((bank.shards.sent + bank.shards.received - before[0]) / len(part) / x[0].nbytes)
    assert max(sent[:3]) < 1.05 * min(sent[:3]) < 2.5  # the sample goes there, and the neuron that it became
    assert sent[3] < 4 > sent[4]  # its neuron comes and goes too
    assert bank.rounds <= 1200 / 5 + 1


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", ["plain", "forgotten", "holes", "fewer neurons than shards"])
def test_evidence(kind: str, shards: int, local: Local) -> None:
    """What all neurons together weigh counts at every look, wherever they are."""
    local(shards)
    rng = np.random.default_rng(0)
    x = rng.random((40, 8, 8)).astype(np.float32)
    memory = SQHN((8, 8), capacity=30, device="ray")
    memory.learn(x[:3] if kind.startswith("fewer") else x)
    if kind == "forgotten":
        memory.forget(np.arange(0, 30, 3))
    if kind == "holes":
        memory.learn(x[:9], observed=rng.random(x[:9].shape) < 0.7)
    asked = np.where(rng.random(x[:6].shape) < 0.3, rng.random(x[:6].shape), x[:6]).astype(np.float32)
    assert_as_the_reference(memory, asked)
    assert_as_the_reference(memory, asked, rng.random(asked.shape) < 0.6)
    one = memory.to("cpu")
    found, expected = (m.recall(asked, inference="evidence") for m in (memory, one))
    np.testing.assert_array_equal(found.index, expected.index)
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-9)


@pytest.mark.parametrize("kind", ODD)
def test_evidence_of_what_is_odd(kind: str, local: Local) -> None:
    local(3)
    memory, x = SQHN((8, 8), capacity=30, device="ray"), odd(1, kind)
    memory.learn(odd(0, kind))
    memory.learn(x[:3])
    assert_possible(memory, x)


def test_threads_that_ask_while_shards_are_lost(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqhn.banks.shards.prototypes.PART", 30)
    local(3, every=12)
    x = np.random.default_rng(0).random((60, 8, 12)).astype(np.float32)
    memory, one = SQHN((8, 12), capacity=60, device="ray", shards=3), SQHN((8, 12), capacity=60)
    memory.learn(x)
    one.learn(x)
    expected = one.recall(x).index.tolist()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: memory.recall(x).index.tolist(), range(12)))
    assert answers == [expected] * 12
