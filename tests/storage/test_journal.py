"""Memories kept in a folder: every change is durable, whenever the process or the power ends."""

from __future__ import annotations

import copy
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sqhn import SQHN, Level
from sqhn.storage import journal, log
from sqhn.storage.changes import Forget, encode
from sqhn.storage.files import MEMORY, header_of
from sqhn.storage.journal import JOURNAL
from sqhn.storage.log import Log
from tests.helpers import fingerprint, set_chunk
from tests.storage.folders import (
    CONFIRMED,
    OBSERVED,
    SHAPE,
    TREE,
    WAL,
    X,
    append,
    crashed,
    posix,
    records,
    state,
    stream,
)

# -- every change ------------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[SQHN], object]] = {
    "learn": lambda memory: memory.learn(X[:30]),
    "one": lambda memory: memory.learn(X[30]),
    "bytes": lambda memory: memory.learn((255 * X[:3].clip(0, 1)).astype(np.uint8)),
    "other byte order": lambda memory: memory.learn(X[4:6].astype(">f8")),
    "strides": lambda memory: memory.learn(X[::-1, ::-1, ::-1][:4]),
    "missing values": lambda memory: memory.learn(X[:9], observed=OBSERVED),
    "hold": lambda memory: memory.learn(X[40:44], hold=True),
    "labels": lambda memory: memory.learn(X[:2], value=["é", {"a": [1, None]}]),
    "forget": lambda memory: memory.forget([0, 2]),
    "into free slots": lambda memory: memory.learn(X[31:40]),
    "rho": lambda memory: setattr(memory, "rho", 0.25),
    "calibrate": lambda memory: memory.calibrate(new=X[44:], error=0.2),
    "calibrate evidence": lambda memory: memory.calibrate(new=X[44:], error=0.2, inference="evidence"),
    "resize": lambda memory: memory.resize(20),
    "root only": lambda memory: memory.learn(X[:5], root_only=True),
    "pretrain": lambda memory: memory.pretrain(X[50:]) if len(memory.levels) > 1 else None,
    "reset": lambda memory: memory.reset(),
    "memorize": lambda memory: memory.memorize(X[:7]),
}


@pytest.mark.parametrize("enough", [1, 5000, 1 << 26])
@pytest.mark.parametrize("levels", [[Level(capacity=12, when_full="overwrite")], TREE], ids=["one level", "tree"])
def test_every_change(levels: list[Level], enough: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each change, a crash and a normal end leave the memory in the folder, and it continues the same."""
    monkeypatch.setattr(journal, "ENOUGH", enough)
    monkeypatch.setattr(log, "ROW", 700)  # bytes: large changes take several rows
    folder = tmp_path / "a" / "b"
    durable, free = SQHN(SHAPE, levels, folder=folder), SQHN(SHAPE, levels)
    for call in CALLS.values():
        set_chunk(durable, 7)
        set_chunk(free, 7)
        call(durable)
        call(free)
        expected = state(free)
        assert state(durable) == expected
        assert state(crashed(folder)) == expected
        del durable
        durable = SQHN.load(folder)
        assert state(durable) == expected
        assert durable.folder == folder
    del durable
    assert {path.name for path in folder.iterdir()} == {MEMORY, JOURNAL, CONFIRMED}


def test_copies_have_no_folder(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path / "k")
    memory.learn(X[:5])
    memory.save(tmp_path / "other")
    for other in (pickle.loads(pickle.dumps(memory)), copy.deepcopy(memory), SQHN.load(tmp_path / "other")):
        assert other.folder is None
        other.learn(X[5:])
    assert crashed(tmp_path / "k").step == 5


def test_the_caller_may_change_a_sample_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, x, append = SQHN(SHAPE, capacity=9, folder=tmp_path / "k"), X[:5].copy(), Log.append

    def append_and_change(self: Log, content: bytes) -> None:
        append(self, content)
        x[:] = 0.25

    monkeypatch.setattr(Log, "append", append_and_change)
    memory.learn(x)
    np.testing.assert_array_equal(memory.prototypes, X[:5])
    assert state(crashed(tmp_path / "k")) == state(memory)


def test_a_change_that_fails_leaves_nothing(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path / "k")
    memory.learn(X[:5])
    before = state(memory)
    with pytest.raises(IndexError, match="not one of 5"):
        memory.forget(7)
    assert state(memory) == before
    other = crashed(tmp_path / "k")
    assert state(other) == before
    del other
    assert len(records(tmp_path / "k-crashed")) == 1
    memory.learn(X[5])
    assert crashed(tmp_path / "k").step == 6


def test_threads(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=60, folder=tmp_path / "k")
    threads = [threading.Thread(target=memory.learn, args=(X[i::6],)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory.step == 60
    assert state(crashed(tmp_path / "k")) == state(memory)


# -- crashes -----------------------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("turn", range(4))
def test_a_process_that_is_killed(turn: int, tmp_path: Path) -> None:
    """All changes of calls that returned are there, and nothing but whole chunks."""
    program = """
import sys, numpy as np
from sqhn import SQHN
from sqhn.storage import journal
from tests.helpers import set_chunk
from tests.storage.folders import TREE, stream
journal.ENOUGH = 20_000
memory, x = SQHN((6, 6), TREE, folder=sys.argv[1]), stream(4000)
set_chunk(memory, 4)
for i in range(0, 4000, 8):
    print(memory.learn(x[i : i + 8]).step[-1], flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(30 * turn + 1):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        told = [int(line) for line in process.stdout.read().splitlines() if line]
    memory = SQHN.load(tmp_path)
    assert max([240 * turn, *told[:-1]]) <= memory.step
    assert memory.step % 4 == 0
    expected = SQHN(SHAPE, TREE)
    expected.learn(stream(4000)[: memory.step])
    assert fingerprint(memory) == fingerprint(expected)


def test_a_power_cut_at_any_byte(tmp_path: Path) -> None:
    """The journal may end anywhere after the last confirmed change: no call has returned from later ones."""
    memory, states, ends = SQHN(SHAPE, capacity=9, folder=tmp_path / "k"), [], []
    folder, confirmed = tmp_path / "k", []
    for i in range(4):
        states.append(state(memory))
        ends.append((folder / WAL).stat().st_size)
        confirmed.append((folder / CONFIRMED).read_bytes())
        memory.learn(X[i])
    content = (folder / WAL).read_bytes()
    for done in range(4):
        for cut in [*range(ends[done], len(content), 701), ends[done] + 1, len(content) - 1]:
            shutil.rmtree(tmp_path / "cut", ignore_errors=True)
            shutil.copytree(folder, tmp_path / "cut")
            (tmp_path / "cut" / WAL).write_bytes(content[:cut])
            (tmp_path / "cut" / CONFIRMED).write_bytes(confirmed[done])
            found = SQHN.load(tmp_path / "cut")
            assert state(found) in states[done:]
            found.learn(X[7])
            step = found.step
            del found
            assert SQHN.load(tmp_path / "cut").step == step


def test_a_crash_before_a_failed_change_is_removed(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    memory.learn(X[:5])
    before = state(memory)
    del memory
    append(tmp_path, encode(Forget(index=[7])), confirm=False)
    with pytest.warns(UserWarning, match=r"change 2 cannot be made: .*not one of 5.* never confirmed, and is left out"):
        memory = SQHN.load(tmp_path)
    assert state(memory) == before
    memory.learn(X[5])
    assert crashed(tmp_path).step == 6


def test_a_crash_between_checkpoint_and_removal_of_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ENOUGH", 0)
    memory = SQHN(SHAPE, capacity=1, folder=tmp_path / "k")
    monkeypatch.setattr(Log, "clear", lambda _: None)
    for _ in range(3):
        memory.learn(X)
    assert header_of(tmp_path / "k" / MEMORY)["journal"]["change"] == 3
    other = crashed(tmp_path / "k")
    assert state(other) == state(memory)
    other.learn(X[3])
    assert crashed(tmp_path / "k-crashed").step == 181
