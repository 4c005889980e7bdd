"""Repair of damaged folders: all that is whole is kept, and the damaged files too."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from sqhn import SQHN, MemoryFileError
from sqhn.storage.changes import Learn
from sqhn.storage.files import MEMORY
from sqhn.storage.journal import JOURNAL, Journal
from sqhn.storage.repair import FRAME_HEAD, LOG_HEAD, PAGE, repair, salvage
from tests.cli.commands import json_of, output_of, sqhn
from tests.helpers import fingerprint, model_of
from tests.storage.folders import SHAPE, WAL, X, edited, kept, posix, state


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def learned(*numbers: int) -> SQHN:
    """A memory that has learned the samples of these changes."""
    memory = SQHN(SHAPE, capacity=30)
    for number in numbers:
        memory.learn(X[number - 1])
    return memory


@pytest.mark.parametrize(
    ("statement", "problem", "whole"),
    [
        ("DELETE FROM record WHERE number IN (7, 8)", "changes 7 to 8 are missing", [*range(1, 7), *range(10, 21)]),
        ("DELETE FROM record WHERE number > 17", "changes 18 to 20 are missing", range(1, 18)),
        ("DELETE FROM record", "changes 1 to 20 are missing", []),
        ("UPDATE record SET content = '' WHERE number = 5", "change 5 is damaged", [*range(1, 5), *range(6, 21)]),
        ("UPDATE record SET content = NULL WHERE number = 20", "change 20 is damaged", range(1, 20)),
        ("UPDATE record SET sha256 = 3 WHERE number = 20", "change 20 is damaged", range(1, 20)),
        ("UPDATE record SET more = 1 WHERE number = 5", "not a change", range(1, 5)),
        ("UPDATE record SET more = 1 WHERE number = 20", "change 20 is missing", range(1, 20)),
        ("DROP TABLE record", "no such table", []),
    ],
)  # fmt: skip
def test_every_whole_change_is_kept(statement: str, problem: str, whole: list[int], tmp_path: Path) -> None:
    folder = edited(kept(tmp_path), statement)
    before = contents(folder)
    found = salvage(folder)
    assert contents(folder) == before
    assert problem in found.problems[0]
    assert str(folder) in found.problems[0] or found.problems[0].startswith("change")
    assert found.changes == len(whole)
    repaired, original = repair(folder)
    assert repaired.problems == found.problems
    assert original is not None
    assert contents(original) == {name: before[name] for name in contents(original)}
    memory = SQHN.load(folder)
    assert fingerprint(memory) == fingerprint(learned(*whole))
    memory.learn(X[20])
    del memory
    assert SQHN.load(folder).step == len(whole) + 1


def test_a_missing_log(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    (folder / WAL).unlink()
    assert salvage(folder).problems == [f"changes 1 to 20 are missing, or damaged in {WAL}"]
    (folder / JOURNAL).unlink()
    (problem,) = salvage(folder).problems
    assert "is missing or truncated" in problem
    repair(folder)
    assert SQHN.load(folder).step == 0


@pytest.mark.parametrize("log", [None, b"", b"7" * (LOG_HEAD - 1)])
def test_a_damaged_database_without_a_log(log: bytes | None, tmp_path: Path) -> None:
    """A memory that was closed has all changes in the database; SQLite makes an empty log to read it."""
    folder = edited(kept(tmp_path), "UPDATE record SET content = '' WHERE number = 5")
    if log is not None:
        (folder / WAL).write_bytes(log)
    found, _ = repair(folder)
    assert (found.changes, "change 5 is damaged" in found.problems[0]) == (19, True)
    assert fingerprint(SQHN.load(folder)) == fingerprint(learned(1, 2, 3, 4, *range(6, 21)))


def test_neurons_are_not_forgotten_by_their_number_after_a_loss(tmp_path: Path) -> None:
    memory = SQHN(SHAPE, capacity=30, folder=tmp_path / "k")
    for x in X[:5]:
        memory.learn(x)
    memory.forget(3)
    memory.learn(X[5])
    del memory
    folder = edited(tmp_path / "k", "DELETE FROM record WHERE number = 2")
    found = salvage(folder)
    assert found.problems[-1] == "neurons [3] were forgotten then, which may be others now: left out"
    assert (found.changes, found.model.tree.step) == (3, 3)  # change 3 cannot be verified without its predecessor


def test_a_memory_that_is_whole(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    expected = state(learned(*range(1, 21)))
    assert repair(folder)[1] is None
    assert state(SQHN.load(folder)) == expected
    assert not list(folder.glob("damaged-*"))


def test_damage_that_cannot_be_repaired(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    (folder / MEMORY).write_bytes(b"something else")
    with pytest.raises(MemoryFileError, match="is not a memory"):
        repair(folder)
    memory = SQHN(SHAPE, capacity=9, folder=tmp_path / "used")
    with pytest.raises(BlockingIOError, match="in use"):
        repair(tmp_path / "used")
    assert memory.step == 0


def test_the_command(tmp_path: Path) -> None:
    folder = edited(kept(tmp_path), "DELETE FROM record WHERE number = 7")
    told = sqhn("repair", folder)
    assert told.exit_code == 1
    assert told.stdout.splitlines()[:2] == [
        "change 7 is missing",
        "change 8 is damaged, of another memory, or follows a missing one",
    ]
    assert "nothing was changed; --yes keeps 18 changes since the last checkpoint" in told.stdout
    done = json_of("repair", folder, "--yes")
    assert (done["changes"], done["step"], len(done["problems"])) == (18, 18, 2)
    assert Path(done["damaged"]).is_dir()
    assert "is whole" in output_of("repair", folder)


@posix
@pytest.mark.parametrize("damage", ["byte", "missing", "database"])
def test_a_kill_before_every_step(damage: str, tmp_path: Path) -> None:
    """Whenever a repair is killed, the folder is damaged as before or repaired, and another repair keeps as much."""
    folder, again = kept(tmp_path, 8), tmp_path / "again"
    (folder / f".{MEMORY}.lock").unlink()
    if damage == "missing":
        edited(folder, "DELETE FROM record WHERE number = 6")
    else:
        file = folder / (WAL if damage == "byte" else JOURNAL)
        content = bytearray(file.read_bytes())
        content[len(content) // 2 : len(content) // 2 + 9] = b"nonsense!"
        file.write_bytes(content if damage == "byte" else b"nonsense! " * 100 + content)
        if damage == "database":
            (folder / WAL).unlink()
    undisturbed = Path(shutil.copytree(folder, tmp_path / "undisturbed"))
    repair(undisturbed)
    expected, before = fingerprint(SQHN.load(undisturbed)), contents(folder)
    steps = 0
    states: list[str] = []
    while not states or states[-1] != "finished":
        shutil.rmtree(again, ignore_errors=True)
        shutil.copytree(folder, again)
        steps += 1
        if (child := os.fork()) == 0:
            kill_before(again, steps)
            repair(again)
            os._exit(0)
        finished = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        replaced = (again / MEMORY).read_bytes() != before[MEMORY]
        copies = [contents(copy) for copy in again.glob("damaged-*")]
        assert all(copy == before for copy in copies)
        if not replaced:
            assert before.items() <= contents(again).items()
        else:
            assert copies
            assert fingerprint(SQHN.load(again, read_only=True)) == expected
        if steps % 2:  # either continues
            repair(again)
        if steps % 2 or replaced:
            assert fingerprint(SQHN.load(again)) == expected
            assert fingerprint(SQHN.load(again)) == expected
            assert not list(again.glob(".damaged-*")) or replaced
        states.append("finished" if finished else "replaced" if replaced else "as before")
    assert {"as before", "replaced"} < set(states)


def kill_before(folder: Path, step: int) -> None:
    """Kill this process before a step of it: the n-th time that it opens, makes, renames or removes a file there."""
    left = [step]

    def count(event: str, args: tuple[object, ...]) -> None:
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.connect") and (
            str(folder) in str(args[0])
        ):
            left[0] -= 1
            if left[0] == 0:
                os._exit(9)

    sys.addaudithook(count)


@pytest.mark.parametrize("byte", [0, 3, 9, 17, 25, "salt", "checksum", "end of an earlier page"])
def test_changes_after_damage_of_the_log_are_kept(byte: int | str, tmp_path: Path) -> None:
    """In these bytes there is nothing of a change that later bytes do not have too."""
    folder = kept(tmp_path)
    damaged = bytearray((folder / WAL).read_bytes())
    frame = LOG_HEAD + 3 * (FRAME_HEAD + PAGE)
    place = {"salt": frame + 9, "checksum": frame + 17, "end of an earlier page": frame + FRAME_HEAD + PAGE - 1}
    damaged[place[byte] if isinstance(byte, str) else byte] ^= 1
    (folder / WAL).write_bytes(damaged)
    with pytest.raises(MemoryFileError):
        SQHN.load(folder)
    found, _ = repair(folder)
    assert (found.changes, len(found.problems)) == (20, 1)
    assert fingerprint(SQHN.load(folder)) == fingerprint(learned(*range(1, 21)))


@pytest.mark.parametrize("byte", [0, 17, LOG_HEAD + 9, LOG_HEAD + FRAME_HEAD + PAGE + 9])
def test_frames_of_an_earlier_use_of_the_log_are_left_out(byte: int, tmp_path: Path) -> None:
    model = model_of(SQHN(SHAPE, capacity=30))
    keeper = Journal.create(tmp_path / "live", model)
    for number in range(20):
        if number == 16:
            keeper.log.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        keeper.apply(Learn(samples=X[number : number + 1]), model)
    folder = Path(shutil.copytree(tmp_path / "live", tmp_path / "k"))
    damaged = bytearray((folder / WAL).read_bytes())
    salts = [damaged[at + 8 : at + 16] for at in range(LOG_HEAD, len(damaged) - 1, FRAME_HEAD + PAGE)]
    assert salts[0] != salts[-1]
    damaged[byte] ^= 1
    (folder / WAL).write_bytes(damaged)
    found, _ = repair(folder)
    assert (found.changes, len(found.problems)) == (20, 1)
    assert fingerprint(SQHN.load(folder)) == fingerprint(learned(*range(1, 21)))


def test_random_damage_is_repaired(tmp_path: Path) -> None:
    """Whatever bytes are lost, the repaired memory has learned some of the samples, in their order."""
    rng = np.random.default_rng(0)
    for number in range(12):
        folder = kept(tmp_path / f"{number}", 12)
        file = folder / (WAL if number % 3 else JOURNAL)
        damaged = bytearray(file.read_bytes())
        damaged[int(rng.integers(len(damaged)))] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged)
        repair(folder)
        assert SQHN.load(folder).step <= 12
