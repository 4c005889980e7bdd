"""Memories that outlive their process."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, Level, MemoryFileError
from sqhn.level import Options
from sqhn.storage import journal
from sqhn.storage.journal import HEAD, MEMORY, PREFIX
from tests.helpers import fingerprint, set_chunk

SHAPE = (6, 6)
TREE = [Level(3, capacity=9), Level(capacity=12)]
posix = pytest.mark.skipif(sys.platform == "win32", reason="no signals of this kind, no fork")


def stream(count: int = 60) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    things = rng.random((15, *SHAPE)).astype(np.float32)
    return things[rng.integers(15, size=count)] + rng.normal(0, 0.05, (count, *SHAPE)).astype(np.float32)


def journal_in(folder: Path) -> Path:
    (found,) = folder.glob(f"{PREFIX}*")
    return found


def again(memory: SQHN) -> SQHN:
    """The same memory, from its folder: nobody else has it any more."""
    folder = memory.folder
    assert folder is not None
    memory._journal = None
    return SQHN.load(folder)


def everything(memory: SQHN) -> tuple[Any, ...]:
    said = memory.values(list(range(int(memory.banks[-1].grown[0]))))
    return fingerprint(memory), memory.levels, memory.options, memory.calibration, memory._shown, said


X = stream()
SEEN = np.random.default_rng(1).random(X[:9].shape) < 0.8
CHANGES: dict[str, Callable[[SQHN], object]] = {
    "learn": lambda memory: memory.learn(X[:30]),
    "one": lambda memory: memory.learn(X[30]),
    "bytes": lambda memory: memory.learn((255 * X[:3].clip(0, 1)).astype(np.uint8)),
    "other order of bytes": lambda memory: memory.learn(X[4:6].astype(">f8")),
    "strides": lambda memory: memory.learn(X[::-1, ::-1, ::-1][:4]),
    "holes": lambda memory: memory.learn(X[:9], observed=SEEN),
    "hold": lambda memory: memory.learn(X[40:44], hold=True),
    "values": lambda memory: memory.learn(X[:2], value=["é", {"a": [1, None]}]),
    "forget": lambda memory: memory.forget([0, 2]),
    "into what is free": lambda memory: memory.learn(X[31:40]),
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
    """After each of them the folder has what the memory is, and what comes of both is the same."""
    monkeypatch.setattr(journal, "ENOUGH", enough)
    kept, free = SQHN(SHAPE, levels, folder=tmp_path / "a" / "b"), SQHN(SHAPE, levels)
    set_chunk(kept, 7)
    set_chunk(free, 7)
    for change in CHANGES.values():
        change(kept)
        change(free)
        assert everything(kept) == everything(free)
        kept = again(kept)
        assert everything(kept) == everything(free)
        assert kept.folder == tmp_path / "a" / "b"
        assert len(list(kept.folder.glob(f"{PREFIX}*"))) == 1


def test_copies_are_not_kept(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    memory.learn(X[:5])
    memory.save(tmp_path / "other")
    for copy in (pickle.loads(pickle.dumps(memory)), SQHN.load(tmp_path / "other")):
        assert copy.folder is None
        copy.learn(X[5:])
    assert again(memory).step == 5


def test_one_at_a_time(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()}"):
        SQHN.load(tmp_path)
    memory.learn(X[:5])
    del memory
    with pytest.raises(FileExistsError, match=r"has a memory already: SQHN\.load"):
        SQHN(SHAPE, capacity=9, folder=tmp_path)
    assert SQHN.load(tmp_path).step == 5


@posix
def test_a_child_has_a_copy(tmp_path: Path) -> None:
    """It does not write, nor does it give up the lock when it ends."""
    program = """
import os, sys, numpy as np
from sqhn import SQHN
memory = SQHN((6, 6), capacity=9, folder=sys.argv[1])
memory.learn(np.random.default_rng(0).random((5, 6, 6)))
if os.fork():
    assert os.wait()[1] == 0
    try:
        SQHN.load(sys.argv[1])
    except BlockingIOError:
        memory.learn(np.random.default_rng(1).random((2, 6, 6)))
else:
    try:
        memory.learn(np.random.default_rng(1).random((6, 6)))
    except RuntimeError as error:
        sys.exit(0 if "has a copy" in str(error) else 1)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert SQHN.load(tmp_path).step == 7


@posix
@pytest.mark.parametrize("turn", range(4))
def test_a_process_that_is_killed(turn: int, tmp_path: Path) -> None:
    """All that a call returned from is there, and nothing but whole chunks."""
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
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(30 * turn + 1):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    told = [int(line) for line in process.stdout.read().splitlines() if line]
    process.wait()
    memory = SQHN.load(tmp_path)
    assert max([240 * turn, *told[:-1]]) <= memory.step
    assert memory.step % 4 == 0
    expected = SQHN(SHAPE, TREE)
    expected.learn(stream(4000)[: memory.step])
    assert fingerprint(memory) == fingerprint(expected)


def test_a_journal_that_ends_anywhere(tmp_path: Path) -> None:
    """What was not written to its end was never returned from."""
    memory, states, ends = SQHN(SHAPE, capacity=9, folder=tmp_path), [], []
    for i in range(3):
        states.append(everything(memory))
        ends.append(journal_in(tmp_path).stat().st_size)
        memory.learn(X[i])
    content = journal_in(tmp_path).read_bytes()
    memory._journal = None
    for cut in [*range(0, len(content), 7), *ends, *(end + HEAD for end in ends), len(content) - 1]:
        journal_in(tmp_path).write_bytes(content[:cut])
        found = SQHN.load(tmp_path)
        assert everything(found) == states[sum(end <= cut for end in ends) - 1]
        found.learn(X[7])
        assert again(found).step == found.step


def test_damage_is_found(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    for i in range(3):
        memory.learn(X[i])
    memory._journal = None
    place = journal_in(tmp_path)
    content = bytearray(place.read_bytes())
    content[HEAD + 9] ^= 1
    place.write_bytes(content)
    with pytest.raises(MemoryFileError, match="is damaged, at byte 0 of"):
        SQHN.load(tmp_path)
    place.unlink()
    with pytest.raises(MemoryFileError, match=f"{PREFIX}.* belongs to .*, and is not there"):
        SQHN.load(tmp_path)
    SQHN(SHAPE, capacity=9).save(tmp_path / MEMORY)
    with pytest.raises(MemoryFileError, match="was not kept in a folder"):
        SQHN.load(tmp_path)
    assert SQHN.load(tmp_path / MEMORY).step == 0


def test_what_fails_is_taken_back(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    memory.learn(X[:5])
    before = everything(memory), journal_in(tmp_path).read_bytes()
    with pytest.raises(IndexError, match="not one of 5"):
        memory.forget(7)
    assert (everything(memory), journal_in(tmp_path).read_bytes()) == before
    memory = again(memory)
    assert everything(memory) == before[0]


def test_a_process_that_ends_before_it_takes_back_what_fails(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    memory.learn(X[:5])
    state = everything(memory)
    journal_in(tmp_path).open("ab").write(journal._record("_forget", ([7],)))
    memory = again(memory)
    assert everything(memory) == state
    memory.learn(X[5])
    assert again(memory).step == 6


class Full:
    """A file on a disk that becomes full."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room = file, room

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, content: bytes) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(self.file.write(content[: self.room]))


@pytest.mark.parametrize("room", [0, 50])
def test_a_full_disk(room: int, tmp_path: Path) -> None:
    """Nothing is learned that cannot be kept."""
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    memory.learn(X[:5])
    state, kept = everything(memory), memory._journal
    assert kept is not None
    whole = kept.file
    kept.file = Full(whole, room)
    with pytest.raises(OSError, match=f"{PREFIX}") as caught:
        memory.learn(X[5:])
    assert caught.value.errno == errno.ENOSPC
    assert everything(memory) == state
    kept.file = whole
    del kept, caught
    memory.learn(X[5])
    state = everything(memory)
    assert everything(again(memory)) == state


def test_a_memory_that_cannot_be_saved_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are kept for longer, and it is tried again later."""
    monkeypatch.setattr(journal, "ENOUGH", 2000)
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    first, save, tried = journal_in(tmp_path), SQHN._save, []

    def fail(*args: Any) -> None:
        tried.append(args)
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(SQHN, "_save", fail)
    with pytest.warns(UserWarning, match="cannot be saved now"):
        memory.learn(X[:30])
    memory.learn(X[30])
    assert len(tried) == 1
    assert journal_in(tmp_path) == first
    monkeypatch.setattr(SQHN, "_save", save)
    memory = again(memory)
    assert memory.step == 31
    memory.learn(X[31:])
    assert journal_in(tmp_path) != first
    assert again(memory).step == 60


@posix
def test_a_signal_while_the_memory_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ENOUGH", 100)
    memory, save = SQHN(SHAPE, capacity=9, folder=tmp_path), SQHN._save

    def interrupted(self: SQHN, *args: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        save(self, *args)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(SQHN, "_save", interrupted)
    set_chunk(memory, 4)
    with pytest.raises(KeyboardInterrupt):
        memory.learn(X)
    assert (step := memory.step) in (4, 8, 12)
    journal_in(tmp_path)
    assert again(memory).step == step


# -- what users and others do ------------------------------------------------------------------------------------------


def kept(folder: Path, count: int = 20) -> Path:
    """A folder that a memory was kept in, and its journal."""
    memory = SQHN(SHAPE, capacity=30, folder=folder)
    for x in X[:count]:
        memory.learn(x)
    del memory
    return journal_in(folder)


def test_files_of_others_stay(tmp_path: Path) -> None:
    for name in ("journal-2026.md", "notes", ".memory.sqhn.tmp"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".memory.sqhn.0123abcd.tmp").write_text("of one that died")
    SQHN(SHAPE, capacity=9, folder=tmp_path)
    assert {"journal-2026.md", "notes", ".memory.sqhn.tmp"} < {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / ".memory.sqhn.0123abcd.tmp").exists()


@pytest.mark.parametrize("byte", [0, 4, 7, 9, 13, 20])
def test_any_bit_of_a_change_that_is_not_the_last(byte: int, tmp_path: Path) -> None:
    """Nothing is taken for an unfinished end that is none, and what is there stays."""
    place = kept(tmp_path)
    content = bytearray(place.read_bytes())
    content[byte] ^= 1
    place.write_bytes(content)
    with pytest.raises(MemoryFileError, match="is damaged, at byte 0"):
        SQHN.load(tmp_path)
    assert place.read_bytes() == content


@pytest.mark.parametrize("zeros", [1, 15, 16, 600])
def test_blocks_that_nothing_was_written_to(zeros: int, tmp_path: Path) -> None:
    place = kept(tmp_path)
    place.write_bytes(place.read_bytes() + bytes(zeros))
    memory = SQHN.load(tmp_path)
    assert memory.step == 20
    memory.learn(X[20])
    assert again(memory).step == 21


def test_a_process_that_goes_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ENOUGH", 2000)
    (tmp_path / "b" / "k").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    memory = SQHN(SHAPE, capacity=30, folder="k")
    monkeypatch.chdir(tmp_path / "b")
    for x in X:
        memory.learn(x)
    assert again(memory).step == len(X)
    assert not list((tmp_path / "b" / "k").iterdir())


def test_where_it_is_kept_it_is_not_saved(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    memory.learn(X[:3])
    with pytest.raises(ValueError, match="is where this memory is kept"):
        memory.save(tmp_path / "." / MEMORY)
    memory.learn(X[3])
    assert again(memory).step == 4
    with pytest.warns(UserWarning, match="its folder has all since then"):
        assert SQHN.load(tmp_path / MEMORY).step == 0


@posix
def test_links_are_not_followed(tmp_path: Path) -> None:
    place, victim = kept(tmp_path / "k"), tmp_path / "victim"
    victim.write_text("thesis")
    place.unlink()
    place.symlink_to(victim)
    with pytest.raises(MemoryFileError, match="is not there"):
        SQHN.load(tmp_path / "k")
    assert victim.read_text() == "thesis"


def test_what_comes_after_the_memory_is_saved_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal that it names is the one that is written to."""
    memory, save = SQHN(SHAPE, capacity=9, folder=tmp_path), SQHN._save
    memory.learn(X[:3])

    def fail(self: SQHN, *args: Any) -> None:
        save(self, *args)
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(SQHN, "_save", fail)
    assert memory._journal is not None
    memory._journal.next = 0
    memory.learn(X[3:6])
    memory.learn(X[6:9])
    assert again(memory).step == 9


def test_what_is_learned_is_learned_whatever_happens_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError("no room")

    memory = SQHN(SHAPE, capacity=9, folder=tmp_path)
    monkeypatch.setattr(SQHN, "_save", fail)
    assert memory._journal is not None
    memory._journal.next = 0
    with pytest.warns(UserWarning, match="no room"):
        memory.learn(X[:3])
    assert again(memory).step == 3


def test_who_fails_does_not_keep_the_lock(tmp_path: Path) -> None:
    """Even if the error is kept, as interpreters do."""
    place = kept(tmp_path)
    with pytest.raises(FileExistsError) as first:
        SQHN(SHAPE, capacity=9, folder=tmp_path)
    content = place.read_bytes()
    place.write_bytes(b"x" * 50)
    with pytest.raises(MemoryFileError) as second:
        SQHN.load(tmp_path)
    place.write_bytes(content)
    assert SQHN.load(tmp_path).step == 20
    assert first.tb is not second.tb


def test_what_is_noted_is_what_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else writes into the sample meanwhile."""
    memory, x, write = SQHN(SHAPE, capacity=9, folder=tmp_path), X[:5].copy(), journal.Journal._write

    def write_and_change(self: journal.Journal, record: bytes) -> None:
        write(self, record)
        x[:] = 0.25

    monkeypatch.setattr(journal.Journal, "_write", write_and_change)
    memory.learn(x)
    np.testing.assert_array_equal(memory.prototypes, X[:5])
    state = everything(memory)
    assert everything(again(memory)) == state


@posix
def test_a_folder_that_is_removed(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path / "k")
    memory.learn(X[:3])
    shutil.rmtree(tmp_path / "k")
    with pytest.raises(OSError, match="the journal was removed"):
        memory.learn(X[3])
    assert memory.step == 3


@posix
def test_a_child_that_outlives_its_parent(tmp_path: Path) -> None:
    """The lock is the parent's."""
    program = """
import os, sys, time, numpy as np
from sqhn import SQHN
memory = SQHN((6, 6), capacity=9, folder=sys.argv[1])
memory.learn(np.random.default_rng(0).random((5, 6, 6)))
if child := os.fork():
    print(child, flush=True)
    os.kill(os.getpid(), 9)
time.sleep(60)
"""
    words = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            process.wait()
            assert SQHN.load(tmp_path).step == 5
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    "change",
    [
        ("_learn_chunk", (np.full((2, *SHAPE), np.nan, np.float32), None, "all", True, None)),
        ("_learn_chunk", (np.zeros((2, 5), np.float32), None, "all", True, None)),
        ("_learn_chunk", (X[:2], np.ones((2, 5), bool), "all", True, None)),
        ("_learn_chunk", (None, None)),
        ("_learn_chunk", (X[:2], None, "all", True, ["{", None])),
        ("_learn_chunk", (X[:2], None, "all", True, [3, None])),
        ("_forget", ([0, 0],)),
        ("_set_options", (None,)),
        ("_set_options", (Options(similarity="cosine"), None)),
        ("_set_shown", (5,)),
        ("_reset", (1, 2)),
        ("__init__", ((6, 6),)),
    ],
)
def test_changes_that_nobody_made(change: tuple[str, tuple[Any, ...]], tmp_path: Path) -> None:
    place = kept(tmp_path)
    with place.open("ab") as file:
        file.write(journal._record(*change))
        file.write(journal._record("_reset", ()))
    with pytest.raises(MemoryFileError, match="cannot be"):
        SQHN.load(tmp_path)
