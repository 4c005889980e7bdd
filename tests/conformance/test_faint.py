"""Lengths do not count: flat samples, and faint ones, are stored once and recognized."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.level import Options
from sqhn.reference import ReferenceSQHN
from tests.helpers import assert_same_answers, assert_same_state, set_small

PATHS = ("small", "large", "tree", "plain", "plain tree")


def taught(
    path: str, x: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[SQHN, ReferenceSQHN]:
    """A memory and the reference that learned the same, and decided the same."""
    set_small(monkeypatch, 0 if path == "large" else 64)
    levels = [Level(4, 20), Level(capacity=20)] if "tree" in path else [Level(capacity=20)]
    memory = SQHN((8, 8), levels, **options, device="plain" if "plain" in path else "cpu")
    reference = ReferenceSQHN((8, 8), levels, Options(**options))
    written = memory.learn(x)
    assert list(written.index) == [reference.learn(sample).index for sample in x]
    assert_same_state(memory, reference)
    return memory, reference


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("value", "similarity"), [(0.5, "shifted_cosine"), (0.0, "cosine"), (0.3, "shifted_cosine")])
def test_a_sensor_that_is_dead_takes_one_neuron(
    path: str, value: float, similarity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.full((100, 8, 8), value, np.float32)
    memory, _ = taught(path, x, monkeypatch, similarity=similarity)
    assert len(memory) == 1
    judged = memory.recognize(x)
    assert judged.old.all()
    assert judged.score == pytest.approx(np.ones(100), abs=1e-12)
    assert memory.recall(x[0]).score == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("contrast", [1e-7, 1e-6, 1e-3, 0.01, 0.05, 1.0])
def test_a_repeated_sample_of_any_contrast_takes_one_neuron(
    path: str, contrast: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = 0.5 + contrast * (np.random.default_rng(0).random((8, 8)) - 0.5)
    x = np.repeat(one[None].astype(np.float32), 100, axis=0)
    memory, reference = taught(path, x, monkeypatch)
    assert len(memory) == 1
    assert memory.recognize(x).old.all()
    assert_same_answers(memory, reference, x[:3])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e-20, 1e-14, 1e-11])
def test_the_scale_of_samples_does_not_matter_to_plain_cosines(
    path: str, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    x = (rng.random((30, 8, 8)) * scale).astype(np.float32)
    x = np.concatenate([x[:15], x[:15], rng.random((5, 8, 8)).astype(np.float32), x[15:], x[::3]])
    memory, reference = taught(path, x, monkeypatch, similarity="cosine")
    assert_same_answers(memory, reference, x[::9])


@pytest.mark.parametrize("path", PATHS)
def test_zero_length_samples_match_each_other_and_nothing_else(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    x = rng.random((12, 8, 8)).astype(np.float32)
    x[[3, 7]] = 0.5
    x[5, :4] = 0.5
    x[9, :, :4] = 0.5
    memory, reference = taught(path, np.concatenate([x, x[::-1]]), monkeypatch)
    assert_same_answers(memory, reference, x)
    if "tree" not in path:
        assert memory.recall(x[7])[1:3] == (3, 1.0)
        empty = SQHN((8, 8), capacity=3, device=memory.device)
        empty.learn(x[0])
        assert empty.recall(x[3]).score == 0.5  # the cosine is 0
        half = np.zeros((8, 8), bool)
        half[:4] = True
        assert memory.recall(x[3], half).index == 3  # of all that have no length there, the first


@pytest.mark.parametrize(("device", "small"), [("cpu", 0), ("cpu", 64), ("plain", 64)])
def test_prototypes_may_cancel(device: str, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Averaging opposites leaves a neuron of length zero, which then matches flat samples."""
    one = np.random.default_rng(3).integers(0, 2, (8, 8)).astype(np.float32)
    flat = np.full((8, 8), 0.5, np.float32)
    set_small(monkeypatch, small)
    levels = [Level(capacity=1)]
    memory, reference = SQHN((8, 8), levels, device=device), ReferenceSQHN((8, 8), levels)
    x = np.stack([one, 1 - one, flat, one, 1 - one])
    assert list(memory.learn(x).score) == pytest.approx([reference.learn(s).score for s in x], abs=1e-12)
    assert_same_state(memory, reference)
    assert_same_answers(memory, reference, x)
