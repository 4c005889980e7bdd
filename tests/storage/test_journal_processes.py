"""One process at a time has the folder of a memory."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sqhn import SQHN, MemoryFileError
from sqhn.storage.files import MEMORY
from sqhn.storage.journal import JOURNAL
from tests.storage.folders import (
    SHAPE,
    X,
    crashed,
    kept,
    posix,
)


def test_one_memory_at_a_time(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    with pytest.raises(BlockingIOError, match=rf"{MEMORY} is in use by process {os.getpid()} on .* since [-\d :]+$"):
        SQHN.load(tmp_path)
    memory.learn(X[:5])
    del memory
    with pytest.raises(FileExistsError, match=r"has a memory already: SQHN\.load"):
        SQHN(SHAPE, capacity=9, folder=tmp_path)
    assert SQHN.load(tmp_path).step == 5


def test_a_memory_that_nobody_uses_does_not_keep_its_folder(tmp_path: Path) -> None:
    class Remembering(SQHN):
        pass

    memory = Remembering(SHAPE, capacity=9, folder=tmp_path)
    memory.itself = memory  # type: ignore[attr-defined]
    memory.learn(X[:5])
    del memory
    assert SQHN.load(tmp_path).step == 5


def test_an_error_that_is_kept_does_not_keep_the_folder(tmp_path: Path) -> None:
    """Interpreters keep the last error, with all that it refers to."""
    folder = kept(tmp_path)
    with pytest.raises(FileExistsError) as first:
        SQHN(SHAPE, capacity=9, folder=folder)
    content = (folder / MEMORY).read_bytes()
    (folder / MEMORY).write_bytes(b"x" * 50)
    with pytest.raises(MemoryFileError) as second:
        SQHN.load(folder)
    (folder / MEMORY).write_bytes(content)
    memory = SQHN.load(folder)
    memory.learn(X[20])
    assert first.tb is not second.tb
    del first, second
    assert crashed(folder).step == 21


@posix
@pytest.mark.parametrize("end", ["sys.exit()", "os._exit(0)", "del memory; import gc; gc.collect(); os._exit(0)"])
def test_a_forked_child_has_a_copy(end: str, tmp_path: Path) -> None:
    """It cannot write, and its end leaves the journal and the lock to its parent."""
    program = f"""
import os, sys, numpy as np
from pathlib import Path
from sqhn import SQHN
memory = SQHN((6, 6), capacity=9, folder=sys.argv[1])
memory.learn(np.random.default_rng(0).random((5, 6, 6)))
wal = Path(sys.argv[1], "journal.sqlite-wal").read_bytes()
if os.fork():
    assert os.wait()[1] == 0
    assert Path(sys.argv[1], "journal.sqlite-wal").read_bytes() == wal
    try:
        SQHN.load(sys.argv[1])
    except BlockingIOError:
        memory.learn(np.random.default_rng(1).random((2, 6, 6)))
        os.kill(os.getpid(), 9)
else:
    assert memory.step == 5
    try:
        memory.learn(np.random.default_rng(1).random((6, 6)))
    except RuntimeError as error:
        assert "has a copy" in str(error)
        {end}
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert SQHN.load(tmp_path).step == 7


@posix
def test_a_forked_child_outlives_its_parent(tmp_path: Path) -> None:
    """Others can use the folder then, the child itself as well."""
    program = """
import os, sys, time, numpy as np
from sqhn import SQHN
memory = SQHN((6, 6), capacity=9, folder=sys.argv[1])
memory.learn(np.random.default_rng(0).random((5, 6, 6)))
parent = os.getpid()
if child := os.fork():
    print(child, flush=True)
    os.kill(parent, 9)
while os.getppid() == parent:
    time.sleep(0.01)
again = SQHN.load(sys.argv[1])
again.learn(np.random.default_rng(0).random((3, 6, 6)))
del again
print("done", flush=True)
time.sleep(60)
"""
    words = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            process.wait()
            assert process.stdout.readline() == "done\n"
            assert SQHN.load(tmp_path).step == 8
        finally:
            os.kill(child, signal.SIGKILL)


@posix
def test_two_processes_that_open_at_once(tmp_path: Path) -> None:
    """One of them has the folder, the other is refused at once."""
    folder = kept(tmp_path)
    program = """
import sys, time
from sqhn import SQHN
try:
    memory = SQHN.load(sys.argv[1])
except BlockingIOError as error:
    print("refused" if "in use by" in str(error) else error, flush=True)
else:
    print("opened", flush=True)
    time.sleep(60)
"""
    words = [sys.executable, "-c", program, str(folder)]
    processes = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        said = sorted(process.stdout.readline() for process in processes if process.stdout)
        assert said == ["opened\n", "refused\n", "refused\n"]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert SQHN.load(folder).step == 20


def test_other_programs_cannot_read_the_journal_meanwhile(tmp_path: Path) -> None:
    """A program with SQLite that closes it would remove the latest changes."""
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path / "k")
    memory.learn(X[:5])
    program = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0)
try:
    connection.execute("SELECT count(*) FROM record").fetchall()
except sqlite3.OperationalError as error:
    print(error)
"""
    words = [sys.executable, "-c", program, str(tmp_path / "k" / JOURNAL)]
    assert subprocess.run(words, capture_output=True, text=True).stdout == "database is locked\n"
    memory.learn(X[5])
    assert crashed(tmp_path / "k").step == 6


@posix
def test_another_program_reads_the_journal(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    program = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM record").fetchall(), flush=True)
input()
"""
    words = [sys.executable, "-c", program, str(folder / JOURNAL)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[(20,)]\n"
        with pytest.raises(BlockingIOError, match=f"another program has the journal open.*{JOURNAL}"):
            SQHN.load(folder)
        process.communicate("\n")
    assert SQHN.load(folder).step == 20


@posix
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.warns(UserWarning, match="there are no locks on the file system of"):
        memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    memory.learn(X[:5])
    del memory
    with pytest.warns(UserWarning, match="let nothing else write to it"):
        assert SQHN.load(tmp_path).step == 5
