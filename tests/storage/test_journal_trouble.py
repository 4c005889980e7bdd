"""Full disks, signals, and other trouble: no change is lost, and none is made by half."""

from __future__ import annotations

import errno
import gc
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN, Level
from sqhn.banks.devices import device_of
from sqhn.level import Options
from sqhn.model.model import Model
from sqhn.storage import files, journal
from sqhn.storage.changes import Learn
from sqhn.storage.files import MEMORY, header_of
from sqhn.storage.journal import JOURNAL, Journal
from sqhn.storage.log import Log
from tests.helpers import set_chunk
from tests.storage.folders import (
    SHAPE,
    WAL,
    X,
    crashed,
    kept,
    posix,
    state,
)


def test_a_full_disk(tmp_path: Path) -> None:
    """Nothing is learned that cannot be kept, and the memory goes on when there is room."""
    model = Model(SHAPE, [Level(capacity=9)], Options(), device_of("cpu"))
    keeper = Journal.create(tmp_path / "k", model)
    keeper.apply(Learn(samples=X[:5]), model)
    ((pages,),) = keeper.log.connection.execute("PRAGMA page_count")
    keeper.log.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OSError, match=JOURNAL) as caught:
        keeper.apply(Learn(samples=np.concatenate([X] * 9)), model)
    assert (caught.value.errno, model.tree.step) == (errno.ENOSPC, 5)
    keeper.log.connection.execute("PRAGMA max_page_count = 1000000")
    keeper.apply(Learn(samples=X[5:8]), model)
    assert crashed(tmp_path / "k").step == model.tree.step == 8


@posix
def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """The same, with writes that really fail, at any place."""
    program = """
import resource, signal, sys, warnings
from sqhn import SQHN
from sqhn.storage import journal
from tests.storage.folders import X, crashed, state
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
memory = SQHN((6, 6), capacity=9, folder=folder)
for x in X[:5]:
    memory.learn(x)
size = (folder / "journal.sqlite-wal").stat().st_size
for more in (1, 30, 4000, 5000, 9000):
    before = state(memory)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + more, resource.RLIM_INFINITY))
    try:
        memory.learn(X)
    except OSError as error:
        assert "journal.sqlite" in str(error), error
    else:
        raise AssertionError("learned without room")
    assert state(memory) == before
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert state(crashed(folder)) == before
    memory.learn(X[6])
    assert state(crashed(folder)) == state(memory)
    size = (folder / "journal.sqlite-wal").stat().st_size
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "k")], check=True)


def fail_to_save(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[Path]:
    """Let saving a checkpoint fail; the list gets the paths that were tried."""
    tried: list[Path] = []

    def fail(path: Path, *_: object, **__: object) -> None:
        tried.append(path)
        raise error

    monkeypatch.setattr(journal, "save", fail)
    return tried


def test_a_checkpoint_that_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are kept for longer, and it is tried again later."""
    monkeypatch.setattr(journal, "ENOUGH", 2000)
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    first = (tmp_path / MEMORY).read_bytes()
    with monkeypatch.context() as context:
        tried = fail_to_save(context, OSError(errno.ENOSPC, "no room"))
        with pytest.warns(UserWarning, match="cannot be saved now, and changes are kept for longer: .*no room"):
            memory.learn(X[:30])
        memory.learn(X[30])
        assert len(tried) == 1
    assert (tmp_path / MEMORY).read_bytes() == first
    assert crashed(tmp_path).step == 31
    memory.learn(X[31:])
    assert header_of(tmp_path / MEMORY)["journal"]["change"] == 3
    assert crashed(tmp_path).step == 60


@pytest.mark.parametrize("error", [MemoryError("no room"), sqlite3.OperationalError("no room")])
def test_a_change_is_made_whatever_happens_to_the_checkpoint(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "ENOUGH", 0)
    memory = SQHN(SHAPE, capacity=1, folder=tmp_path)
    fail_to_save(monkeypatch, error)
    with pytest.warns(UserWarning, match="no room"):
        memory.learn(np.concatenate([X] * 20))
    assert crashed(tmp_path).step == 1200


def test_errors_after_the_checkpoint_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ENOUGH", 0)
    memory, save = SQHN(SHAPE, capacity=1, folder=tmp_path), files.save

    def save_and_fail(*args: Any, **entries: Any) -> None:
        save(*args, **entries)
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(journal, "save", save_and_fail)
    for number in (1, 2):
        with pytest.warns(UserWarning, match="too many"):
            memory.learn(X)
        assert header_of(tmp_path / MEMORY)["journal"]["change"] == number
    assert state(crashed(tmp_path)) == state(memory)


@posix
def test_a_signal_during_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits until the change is made."""
    memory, append = SQHN(SHAPE, capacity=9, folder=tmp_path), Log.append

    def interrupted(self: Log, content: bytes) -> None:
        signal.raise_signal(signal.SIGINT)
        append(self, content)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Log, "append", interrupted)
    set_chunk(memory, 4)
    with pytest.raises(KeyboardInterrupt):
        memory.learn(X)
    monkeypatch.undo()
    assert memory.step in (4, 8)
    assert state(crashed(tmp_path)) == state(memory)


@posix
def test_a_signal_during_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ENOUGH", 100)
    memory, save = SQHN(SHAPE, capacity=9, folder=tmp_path), files.save

    def interrupted(*args: Any, **entries: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        save(*args, **entries)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(journal, "save", interrupted)
    set_chunk(memory, 4)
    with pytest.raises(KeyboardInterrupt):
        memory.learn(X)
    monkeypatch.undo()
    assert memory.step in (4, 8, 12, 16)
    assert state(crashed(tmp_path)) == state(memory)


@posix
@pytest.mark.parametrize("place", ["lock", "open", "replay"])
def test_a_signal_while_a_memory_is_loaded(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves no lock, no open file, and the folder as it was."""
    folder = kept(tmp_path)
    SQHN.load(folder, read_only=True)  # all modules are imported now
    real: dict[str, tuple[Any, str]] = {
        "lock": (journal, "held"), "open": (Log, "_keep_others_out"), "replay": (Learn, "apply")
    }  # fmt: skip
    owner, name = real[place]
    function = getattr(owner, name)

    def interrupted(*args: Any) -> Any:
        answer = function(*args)
        signal.raise_signal(signal.SIGINT)
        return answer

    gc.collect()  # memories of other tests
    before = len([*Path("/dev/fd").iterdir()])
    with monkeypatch.context() as context:
        context.setattr(owner, name, interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                SQHN.load(folder)
    gc.collect()
    assert len([*Path("/dev/fd").iterdir()]) == before
    assert SQHN.load(folder).step == 20


@posix
def test_a_signal_while_a_damaged_memory_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage is found before SQLite removes its log, with all that follows the damage."""
    folder, apply = kept(tmp_path), Learn.apply
    damaged = bytearray((folder / WAL).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (folder / WAL).write_bytes(damaged)

    def interrupted(self: Learn, model: Model) -> Any:
        signal.raise_signal(signal.SIGINT)
        return apply(self, model)

    monkeypatch.setattr(Learn, "apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SQHN.load(folder)
    assert (folder / WAL).read_bytes() == damaged
