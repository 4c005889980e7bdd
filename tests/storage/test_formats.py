"""Files and folders that earlier versions wrote: each is the memory that the same calls make today."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sqhn import SQHN
from sqhn.storage.files import MEMORY
from sqhn.storage.journal import JOURNAL
from tests.helpers import model_of
from tests.storage.histories import KEPT, LOGGED, SAVED, SHARDED, X

FILES = Path(__file__).parent / "files"


def assert_same_memory(memory: SQHN, expected: SQHN) -> None:
    """All that a memory holds; means may differ in their last bits, which are a matter of the machine."""
    for bank, other in zip(memory.banks, expected.banks, strict=True):
        states = [one.neurons.state() | one.state() for one in (bank, other)]
        assert states[0].keys() == states[1].keys()
        for name in states[0]:
            np.testing.assert_allclose(states[0][name], states[1][name], rtol=0, atol=1e-9 if name == "mu" else 0)
        assert bank.neurons.step == other.neurons.step
    assert (memory.levels, memory.input_shape) == (expected.levels, expected.input_shape)
    neurons = list(range(len(expected.counts)))
    assert repr(memory.values(neurons)) == repr(expected.values(neurons))
    assert memory.rho == pytest.approx(expected.rho, abs=1e-9)
    found, right = model_of(memory), model_of(expected)
    for name in ("calibration", "evidence_calibration"):
        a, b = getattr(found, name), getattr(right, name)
        assert (a is None) == (b is None)
        if a is not None:
            assert a._replace(threshold=None, ratios=None) == b._replace(threshold=None, ratios=None)
            assert a.threshold == pytest.approx(b.threshold, abs=1e-6)  # a sum of many logarithms
            if a.ratios is not None:  # as in files of earlier versions
                assert a.ratios == pytest.approx(b.ratios, abs=1e-6)


def has_ratios(memory: SQHN) -> list[bool]:
    """Whether each calibration of a memory has the ratios of its samples."""
    model = model_of(memory)
    return [made.ratios is not None for made in (model.calibration, model.evidence_calibration) if made]


def assert_continues(memory: SQHN, expected: SQHN) -> None:
    for other in (memory, expected):
        other.learn(X[:20])
    assert_same_memory(memory, expected)


@pytest.mark.parametrize("name", SAVED)
def test_files_of_format_2(name: str) -> None:
    memory, expected = SQHN.load(FILES / f"format2-{name}.sqhn"), SAVED[name].memory()
    assert has_ratios(memory) == [name == "ratios"] * len(has_ratios(memory))
    assert_same_memory(memory, expected)
    assert_continues(memory, expected)


@pytest.mark.parametrize("name", SHARDED)
def test_sharded_files_of_format_2(name: str, local: Callable[..., None]) -> None:
    local(3)
    path, expected = FILES / f"format2-{name}.sqhn", SHARDED[name].memory()
    for device in ("cpu", "ray"):
        memory = SQHN.load(path, device)
        assert memory.shards == (3 if device == "ray" else None)
        assert_same_memory(memory, expected)
    assert_continues(memory, expected)


@pytest.mark.parametrize("name", KEPT)
def test_folders_with_the_first_journal(name: str, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    folder, expected = tmp_path / "memory", KEPT[name].memory()
    shutil.copytree(FILES / f"format2-{name}", folder)
    memory = SQHN.load(folder)
    assert len(recwarn) == (name == "journal-torn")
    for warning in recwarn:
        assert re.search(r"journal-\w+: the last \d+ bytes are a change that was never completed", str(warning.message))
    assert_same_memory(memory, expected)
    assert {path.name for path in folder.glob("[!.]*")} >= {MEMORY, JOURNAL}
    assert not list(folder.glob("journal-*"))
    assert_continues(memory, expected)
    del memory
    assert_same_memory(SQHN.load(folder), expected)


@pytest.mark.parametrize("name", LOGGED)
def test_folders_with_the_journal_in_sqlite(name: str, tmp_path: Path) -> None:
    folder, expected = tmp_path / "memory", LOGGED[name].memory()
    shutil.copytree(FILES / f"format2-{name}", folder)
    memory = SQHN.load(folder)
    assert has_ratios(memory) == [True, True]
    assert_same_memory(memory, expected)
    assert_continues(memory, expected)
    del memory
    assert_same_memory(SQHN.load(folder), expected)
