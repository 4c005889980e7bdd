"""Memories kept in a folder: every change is durable, damage is noticed, and one process at a time has the folder."""

from __future__ import annotations

import copy
import errno
import gc
import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save as serialize

from sqhn import SQHN, Level, MemoryFileError
from sqhn.banks.devices import device_of
from sqhn.level import Options
from sqhn.model.model import Model
from sqhn.storage import atomic, files, journal, log
from sqhn.storage.changes import Change, Forget, Hold, Learn, Memorize, Reset, Resize, SetRho, encode
from sqhn.storage.files import MEMORY, header_of
from sqhn.storage.journal import JOURNAL, Journal
from sqhn.storage.log import Log
from tests.helpers import fingerprint, model_of, set_chunk

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
from tests.storage.test_journal import TREE, stream
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


# -- full disks, signals, and other trouble ----------------------------------------------------------------------------


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
from tests.storage.test_journal import X, crashed, state
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


# -- other processes ---------------------------------------------------------------------------------------------------


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


# -- files that were removed, replaced or damaged ----------------------------------------------------------------------


def test_files_of_others_stay(tmp_path: Path) -> None:
    for name in ("journal-2026.md", "notes", ".memory.sqhn.tmp"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".memory.sqhn.0123abcd.tmp").write_text("left by a crash")
    SQHN(SHAPE, capacity=9, folder=tmp_path)
    assert {"journal-2026.md", "notes", ".memory.sqhn.tmp"} < {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / ".memory.sqhn.0123abcd.tmp").exists()


def test_a_process_that_changes_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ENOUGH", 2000)
    (tmp_path / "b" / "k").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    memory = SQHN(SHAPE, capacity=30, folder="k")
    monkeypatch.chdir(tmp_path / "b")
    for x in X:
        memory.learn(x)
    assert crashed(tmp_path / "k").step == len(X)
    assert not list((tmp_path / "b" / "k").iterdir())


@posix
def test_a_folder_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    memory = SQHN(SHAPE, capacity=30, folder=tmp_path / "link" / "k ?#%20é")
    (tmp_path / "link").unlink()
    memory.learn(X)
    with pytest.raises(BlockingIOError, match="in use"):
        SQHN.load(tmp_path / "real" / "k ?#%20é")
    del memory
    assert SQHN.load(tmp_path / "real" / "k ?#%20é").step == len(X)


def test_the_checkpoint_is_not_overwritten(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    memory.learn(X[:3])
    with pytest.warns(UserWarning, match="is a checkpoint, without the latest changes"):
        other = SQHN.load(tmp_path / MEMORY)
    assert other.step == 0
    (tmp_path / "link").symlink_to(tmp_path / MEMORY)
    for one in (memory, other):
        for path in (tmp_path / "." / MEMORY, tmp_path / "link"):
            with pytest.raises(ValueError, match=f"belongs to the memory that is kept in {tmp_path}"):
                one.save(path)
    memory.learn(X[3])
    assert crashed(tmp_path).step == 4


@pytest.mark.parametrize("name", ["backup.sqhn", f"backup/{MEMORY}"])
def test_a_backup_of_a_checkpoint_is_a_file_like_any_other(name: str, tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path / "k")
    memory.learn(X[:3])
    (tmp_path / "backup").mkdir()
    for place in (tmp_path / name, tmp_path / "k" / "backup.sqhn"):
        shutil.copy(tmp_path / "k" / MEMORY, place)
        memory.save(place)
        assert state(SQHN.load(place)) == state(memory)
    assert crashed(tmp_path / "k").step == 3


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "no writing", str(tmp_path / f".{MEMORY}.lock"))

    folder = kept(tmp_path)
    monkeypatch.setattr(journal, "held", refuse)
    with pytest.raises(OSError, match=r"SQHN\.load\(folder, read_only=True\)") as caught:
        SQHN.load(folder)
    assert (caught.value.errno, caught.value.filename) == (number, str(folder))
    assert SQHN.load(folder, read_only=True).step == 20


@posix
@pytest.mark.parametrize("name", [None, JOURNAL, WAL, MEMORY])
def test_a_folder_that_is_removed_in_use(name: str | None, tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path / "k")
    memory.learn(X[:3])
    if name is None:
        shutil.rmtree(tmp_path / "k")
    else:
        (tmp_path / "k" / name).unlink()
        (tmp_path / "k" / name).write_bytes(b"something else")
    with pytest.raises(FileNotFoundError, match="was removed or replaced: changes cannot be kept"):
        memory.learn(X[3])
    assert (memory.step, len(memory.recall(X[:3]).x)) == (3, 3)


def test_new_folders_outlast_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(atomic, "sync_folder", synced.append)
    SQHN(SHAPE, capacity=9, folder=tmp_path / "a" / "b" / "c")
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"} <= set(synced)


@posix
def test_another_memory_in_the_place_of_a_removed_one(tmp_path: Path) -> None:
    """When the first one ends, it leaves the files of the other alone."""
    first = SQHN(SHAPE, capacity=9, folder=tmp_path / "k")
    first.learn(X[:3])
    shutil.rmtree(tmp_path / "k")
    second = SQHN(SHAPE, capacity=9, folder=tmp_path / "k")
    second.learn(X[:5])
    del first
    second.learn(X[5])
    with pytest.raises(BlockingIOError, match="in use"):
        SQHN.load(tmp_path / "k")
    assert state(crashed(tmp_path / "k")) == state(second)


@posix
@pytest.mark.parametrize("name", [JOURNAL, WAL, f"{JOURNAL}-journal", CONFIRMED])
@pytest.mark.parametrize("kind", ["link", "folder"])
def test_links_and_folders_are_not_followed(name: str, kind: str, tmp_path: Path) -> None:
    folder, victim = kept(tmp_path), tmp_path / "victim"
    victim.write_text("thesis")
    (folder / name).unlink(missing_ok=True)
    if kind == "link":
        (folder / name).symlink_to(victim)
    else:
        (folder / name).mkdir()
    with pytest.raises(MemoryFileError, match=f"{name} is a link or a folder"):
        SQHN.load(folder)
    assert victim.read_text() == "thesis"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (JOURNAL, "journal.sqlite has the latest changes of a memory, and is missing or truncated"),
        (WAL, "journal.sqlite: changes 1 to 20 are missing, or damaged in journal.sqlite-wal"),
    ],
)
def test_files_that_are_missing(name: str, problem: str, tmp_path: Path) -> None:
    """A refused folder is not changed, so a file that is put back is found again."""
    folder = kept(tmp_path)
    (folder / name).rename(tmp_path / name)
    for _ in range(2):
        with pytest.raises(MemoryFileError, match=problem):
            SQHN.load(folder)
    (tmp_path / name).replace(folder / name)
    assert SQHN.load(folder).step == 20


def test_a_memory_that_was_not_kept_in_a_folder(tmp_path: Path) -> None:
    SQHN(SHAPE, capacity=9).save(tmp_path / MEMORY)
    with pytest.raises(MemoryFileError, match="was not kept in a folder"):
        SQHN.load(tmp_path)
    assert SQHN.load(tmp_path / MEMORY).step == 0


@pytest.mark.parametrize("place", ["log", "database"])
@pytest.mark.parametrize("part", np.linspace(0, 0.999, 23))
def test_any_damaged_byte_is_noticed_or_harmless(part: float, place: str, tmp_path: Path) -> None:
    """No confirmed change is ever lost silently; a folder that is refused is not changed."""
    folder = kept(tmp_path)
    expected = state(SQHN.load(shutil.copytree(folder, tmp_path / "whole")))
    if place == "database":
        folder = tmp_path / "whole"
    file = folder / (WAL if place == "log" else JOURNAL)
    content = bytearray(file.read_bytes())
    content[int(part * len(content))] ^= 1 << (int(part * 1000) % 8)
    file.write_bytes(content)
    try:
        memory = SQHN.load(folder)
    except MemoryFileError as error:
        assert JOURNAL in str(error)  # noqa: PT017
        assert file.read_bytes() == content
    else:
        assert state(memory) == expected


@pytest.mark.parametrize("name", [JOURNAL, WAL, CONFIRMED, MEMORY])
@pytest.mark.parametrize("content", [b"", b"x", b"nonsense " * 1000, bytes(5000)], ids=["none", "x", "text", "zeros"])
def test_other_content(content: bytes, name: str, tmp_path: Path) -> None:
    folder = kept(tmp_path)
    (folder / name).write_bytes(content)
    if name == CONFIRMED or (name == JOURNAL and len(content) > 1):  # all is in SQLite's log
        assert SQHN.load(folder).step == 20
        return
    for _ in range(2):
        with pytest.raises(MemoryFileError, match=name.removesuffix("-wal")):
            SQHN.load(folder)
    assert (folder / name).read_bytes() == content


def edited(folder: Path, *statements: str) -> Path:
    """A folder whose journal was changed with SQL."""
    connection = sqlite3.connect(folder / JOURNAL)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return folder


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM record WHERE number = 7", "change 7 is missing"),
        ("DELETE FROM record WHERE number = 1", "change 1 is missing"),
        ("DELETE FROM record WHERE number > 17", "changes 18 to 20 are missing"),
        ("DELETE FROM record", "changes 1 to 20 are missing"),
        ("UPDATE record SET number = -number", "changes 1 to 20 are missing"),
        ("UPDATE record SET more = 1 WHERE number = 20", "change 20 is missing"),
        ("UPDATE record SET content = zeroblob(9) WHERE number = 5", "change 5 is damaged"),
        ("UPDATE record SET content = 'text' WHERE number = 5", "change 5 is damaged"),
        ("UPDATE record SET content = NULL WHERE number = 5", "change 5 is damaged"),
        ("UPDATE record SET sha256 = 3 WHERE number = 20", "change 20 is damaged"),
        (
            "UPDATE record SET content = (SELECT content FROM record WHERE number = 4) WHERE number = 5",
            "change 5 is damaged, of another memory",
        ),
        ("DROP TABLE record", "damaged: no such table"),
        ("ALTER TABLE record DROP COLUMN more", "damaged: no such column"),
    ],
)
def test_changes_that_are_missing_repeated_or_damaged(statement: str, problem: str, tmp_path: Path) -> None:
    folder = edited(kept(tmp_path), statement)
    with pytest.raises(MemoryFileError, match=f"{JOURNAL}.*{problem}"):
        SQHN.load(folder)


def test_a_journal_of_another_memory(tmp_path: Path) -> None:
    for name in "ab":
        memory = SQHN(SHAPE, capacity=9, folder=tmp_path / name)
        memory.learn(X[:5])
        del memory
    shutil.copy(tmp_path / "a" / JOURNAL, tmp_path / "b" / JOURNAL)
    with pytest.raises(MemoryFileError, match="change 1 is damaged, of another memory"):
        SQHN.load(tmp_path / "b")


def test_an_earlier_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its changes were removed since."""
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path / "k")
    first = (tmp_path / "k" / MEMORY).read_bytes()
    memory.learn(X[:5])
    monkeypatch.setattr(journal, "ENOUGH", 0)
    del memory
    memory = SQHN.load(tmp_path / "k")
    memory.learn(X[5:])
    memory.learn(X[5:])
    del memory
    (tmp_path / "k" / MEMORY).write_bytes(first)
    with pytest.raises(MemoryFileError, match="changes 1 to 3 are missing"):
        SQHN.load(tmp_path / "k")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors cannot be counted")
def test_a_refused_copy_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "PAUSE", 0)
    folder = edited(kept(tmp_path), "DELETE FROM record WHERE number = 7")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        with pytest.raises(MemoryFileError, match="change 7 is missing"):
            SQHN.load(folder, read_only=True)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@posix
def test_a_signal_before_a_journal_has_begun() -> None:
    """Its finalizer prints nothing: pytest makes what is printed there an error."""
    Journal.__new__(Journal)
    gc.collect()


# -- changes that no memory has made -----------------------------------------------------------------------------------


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


def raw(name: str, values: dict[str, Any], version: int = 1) -> bytes:
    return serialize({}, {"change": json.dumps({"change": name, "version": version, "values": values})})


BAD: dict[str, tuple[Change | bytes, str]] = {
    "NaN": (Learn(samples=np.full((2, *SHAPE), np.nan, np.float32)), "nan"),
    "shape": (Learn(samples=np.zeros((2, 5), np.float32)), r"expected .* \(6, 6\).*; got shape \(2, 5\)"),
    "one sample": (Learn(samples=X[0]), r"a change has a batch of samples; got one, of shape \(6, 6\)"),
    "mask": (Learn(samples=X[:2], observed=np.ones((2, 5), bool)), r"observed.*\(2, 5\)"),
    "no samples": (Learn(samples=None), "samples must be floats"),
    "part": (Learn(samples=X[:2], part="root"), "part='root' in a memory of 1 levels"),
    "last": (Learn(samples=X[:2], last=None), "last=None is neither true nor false"),  # type: ignore[arg-type]
    "label": (Learn(samples=X[:2], texts=["{", None]), "Expecting property name"),
    "label that is no text": (Learn(samples=X[:2], texts=[3, None]), "'int' object has no attribute 'count'"),  # type: ignore[list-item]
    "labels": (Hold(samples=X[:2], texts=["3"]), r"a batch of 2 samples needs as many labels; got \['3'\]"),
    "memorize": (Memorize(samples=np.zeros((2, 5), np.float32)), r"expected .* got shape \(2, 5\)"),
    "memorize too many": (Memorize(samples=X), "level 1 has room for 10 more neurons; got 60 samples"),
    "forget twice": (Forget(index=[0, 0]), r"index has a neuron twice: \[0, 0\]"),
    "forget what is not there": (Forget(index=[99]), "neuron 99 is not one of 20"),
    "forget a word": (Forget(index=["all"]), "index must be a list of neurons"),  # type: ignore[list-item]
    "resize": (Resize(capacity=3), "resize can only enlarge: the capacity is 30; got 3"),
    "resize by a half": (Resize(capacity=40.5), "capacity must be an int of at least 1; got 40.5"),  # type: ignore[arg-type]
    "rho": (SetRho(rho=-1.0), "rho must be a number of at least 0, or None; got -1.0"),
    "calibration": (raw("calibrate", {"calibration": 5}), "calibration must be that of new or old samples; got 5"),
    "calibration of nothing": (
        raw("calibrate", {"calibration": {"kind": "new", "error": 0.1, "samples": 3, "step": 5}}),
        r"ratios and a threshold of evidence must be numbers; got \[None\]",
    ),
    "more fields": (raw("reset", {"when": "now"}), "got an unexpected keyword argument 'when'"),
    "fewer fields": (raw("forget", {}), "missing 1 required positional argument: 'index'"),
    "name": (raw("__init__", {}), "this version of sqhn does not know '__init__' of version 1"),
    "version": (raw("reset", {}, 2), "this version of sqhn does not know 'reset' of version 2"),
    "no change": (serialize({}, {"x": "y"}), "not a change: 'change'"),
    "nesting": (serialize({}, {"change": "[" * 10**5 + "]" * 10**5}), "not a change: maximum recursion depth"),
    "nonsense": (b"nonsense", "not a change: "),
}


@pytest.mark.parametrize("name", BAD)
def test_changes_that_no_memory_has_made(name: str, tmp_path: Path) -> None:
    """They are refused, each for its reason, and the changes before them are not lost."""
    memory = SQHN(SHAPE, capacity=30, folder=tmp_path)
    memory.memorize(X[:20])
    del memory
    bad, problem = BAD[name]
    append(tmp_path, bad if isinstance(bad, bytes) else encode(bad), encode(Reset()))
    with pytest.raises(MemoryFileError, match=f"{JOURNAL}: change 2 cannot be made: .*{problem}"):
        SQHN.load(tmp_path)
    assert len(records(tmp_path)) == 3
    edited(tmp_path, "DELETE FROM record WHERE number > 1")
    (tmp_path / CONFIRMED).unlink()
    assert len(SQHN.load(tmp_path)) == 20
