"""Memories kept in folders, for tests: samples, damage, and the memory that is found after a crash."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.storage.files import MEMORY, header_of
from sqhn.storage.journal import JOURNAL
from sqhn.storage.log import Log
from tests.helpers import fingerprint, model_of

SHAPE = (6, 6)
TREE = [Level(3, capacity=9), Level(capacity=12)]
WAL, CONFIRMED = f"{JOURNAL}-wal", f"{JOURNAL}.confirmed"
posix = pytest.mark.skipif(sys.platform == "win32", reason="no signals of this kind, no fork")


def stream(count: int = 60) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    things = rng.random((15, *SHAPE)).astype(np.float32)
    return things[rng.integers(15, size=count)] + rng.normal(0, 0.05, (count, *SHAPE)).astype(np.float32)


X = stream()
OBSERVED = np.random.default_rng(1).random(X[:9].shape) < 0.8


def state(memory: SQHN) -> tuple[Any, ...]:
    """All that a memory holds."""
    model = model_of(memory)
    labels = memory.values(list(range(len(memory.counts))))
    return fingerprint(memory), memory.levels, memory.options, model.calibration, model.evidence_calibration, labels


def crashed(folder: Path, name: str = "crashed") -> SQHN:
    """The memory that another process would find if this one were killed now."""
    place = folder.parent / f"{folder.name}-{name}"
    shutil.rmtree(place, ignore_errors=True)
    return SQHN.load(shutil.copytree(folder, place))


def kept(folder: Path, count: int = 20) -> Path:
    """A folder with a memory that learned some samples, one by one; its process was killed."""
    memory = SQHN(SHAPE, capacity=30, folder=folder / "live")
    for x in X[:count]:
        memory.learn(x)
    return Path(shutil.copytree(folder / "live", folder / "k"))


def records(folder: Path) -> list[tuple[Any, ...]]:
    """The records in a folder that no memory has open."""
    with sqlite3.connect(folder / JOURNAL) as connection:
        found = connection.execute("SELECT number, more, sha256, content FROM record ORDER BY number").fetchall()
    connection.close()
    return found


def edited(folder: Path, *statements: str) -> Path:
    """A folder whose journal was changed with SQL."""
    connection = sqlite3.connect(folder / JOURNAL)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return folder


def append(folder: Path, *contents: bytes, confirm: bool = True) -> None:
    """Append records to a journal, as a memory would that has no checks."""
    entry = header_of(folder / MEMORY)["journal"]
    records = Log(folder / JOURNAL, entry["change"], entry["sha256"])
    for _ in records.records():
        pass
    for content in contents:
        records.append(content)
        if confirm:
            records.confirm()
    records.close()
