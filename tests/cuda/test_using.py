"""Labels, resizing, masks and calibration on a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sqhn import SQHN, Level
from tests.helpers import fingerprint, noisy, set_chunk

X = np.random.default_rng(0).random((24, 8, 8), dtype=np.float32)
LEVELS = [[Level(capacity=12, when_full="overwrite")], [Level(4, 6), Level(capacity=12, when_full="overwrite")]]


@pytest.mark.parametrize("levels", LEVELS)
def test_labels_follow_their_samples(levels: list[Level], device: str, tmp_path: Path) -> None:
    memory = SQHN((8, 8), levels, device=device)
    set_chunk(memory, 7)
    written = memory.learn(X, value=range(24))
    labels = dict(
        zip(written.index.tolist(), range(24))
    )  # the last of each neuron: all samples were new, or replaced one
    found = memory.recall(X[12:], k=2)
    if written.grew.all():
        assert found.value == [[labels[j] for j in row] for row in found.index.tolist()]
    memory.save(tmp_path / "m")
    assert SQHN.load(tmp_path / "m", device).recall(X).values == memory.recall(X).values
    memory.learn(X[:1])
    assert memory.recall(X[0]).value is None


@pytest.mark.parametrize("levels", LEVELS)
def test_resize_and_observed_values(levels: list[Level], device: str) -> None:
    memory, larger = (
        SQHN((8, 8), [*levels[:-1], Level(capacity=J, when_full="overwrite")], device=device) for J in (12, 20)
    )
    for one in (memory, larger):
        one.learn(X[:12])
    memory.resize(20)
    for one in (memory, larger):
        one.learn(X[12:])
    assert fingerprint(memory) == fingerprint(larger)
    seen = np.random.default_rng(1).random((5, 8, 8)) < 0.6
    given = noisy(X[:5], 0.1)
    plain, kept = memory.recall(given, seen, k=2), memory.recall(given, seen, k=2, keep=True)
    np.testing.assert_array_equal(kept.x, np.where(seen[:, None], given[:, None], plain.x))


def test_calibrated_error_rate(device: str) -> None:
    memory = SQHN((8, 8), capacity=24, device=device)
    memory.learn(X)
    new = np.random.default_rng(2).random((99, 8, 8), dtype=np.float32)
    memory.calibrate(new=new, error=0.1)
    assert memory.recognize(new).old.sum() <= 9
    assert memory.recognize(X).old.all()
