"""Files in the folder of a memory that were removed, replaced or damaged are noticed."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save as serialize

from sqhn import SQHN, MemoryFileError
from sqhn.storage import atomic, journal
from sqhn.storage.changes import Change, Forget, Hold, Learn, Memorize, Reset, Resize, SetRho, encode
from sqhn.storage.files import MEMORY
from sqhn.storage.journal import JOURNAL, Journal
from tests.storage.folders import (
    CONFIRMED,
    SHAPE,
    WAL,
    X,
    append,
    crashed,
    edited,
    kept,
    posix,
    records,
    state,
)

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
