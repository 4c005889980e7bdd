"""Commands on a memory that a folder keeps durably."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from sqhn import SQHN
from sqhn.storage.files import MEMORY
from tests.cli.commands import GRAY, error_of, image_folder, json_of, output_of, put, sqhn
from tests.helpers import fingerprint

SHAPE = GRAY.shape[1:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a memory that knows ten images, all of them in its journal."""
    SQHN(SHAPE, capacity=40, folder=tmp_path / "robot").learn(GRAY[:10])
    return tmp_path / "robot"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_command(folder: Path, tmp_path: Path) -> None:
    more = put(tmp_path / "more.npy", GRAY)
    assert json_of("learn", more, "--memory", folder)["learned"] == len(GRAY)
    expected = SQHN(SHAPE, capacity=40)
    expected.learn(GRAY[:10])
    expected.learn(GRAY)
    assert fingerprint(SQHN.load(folder)) == fingerprint(expected)
    before = contents(folder)
    assert json_of("info", folder)["step"] == expected.step
    assert json_of("recognize", more, "--memory", folder)["new"] == 0
    found = json_of("recall", more, "--memory", folder, "--out", tmp_path / "out.npy")["samples"]
    assert [row["index"] for row in found] == expected.recall(GRAY).index.tolist()
    assert json_of("show", folder, "--out", tmp_path / "sheet.png")["shown"] == len(expected)
    assert contents(folder) == before  # questions write nothing
    json_of("forget", folder, 3)
    rho = json_of("calibrate", more, "--memory", folder, "--as", "old", "--error", 0.2)["rho"]
    memory = SQHN.load(folder)
    assert (memory.counts[3], memory.rho) == (0, rho)


def test_questions_while_another_program_learns(folder: Path, tmp_path: Path) -> None:
    memory, done = SQHN.load(folder), threading.Event()

    def learn() -> None:
        while not done.is_set():
            memory.learn(GRAY[:3])

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        steps = [SQHN.load(folder, read_only=True).step for _ in range(20)]
    finally:
        done.set()
        thread.join()
    assert steps == sorted(steps)
    assert 10 <= steps[0] <= steps[-1] <= memory.step
    copy = SQHN.load(folder, read_only=True)
    assert fingerprint(copy) == fingerprint(memory)
    copy.learn(GRAY)
    assert (copy.folder, SQHN.load(folder, read_only=True).step) == (None, memory.step)
    assert "in use" in error_of("learn", put(tmp_path / "x.npy", GRAY), "--memory", folder)


def test_the_checkpoint_is_no_memory_of_its_own(folder: Path, tmp_path: Path) -> None:
    for words in (
        ("learn", put(tmp_path / "x.npy", GRAY), "--memory", folder / MEMORY),
        ("forget", folder / MEMORY, 0),
    ):
        assert f"belongs to the memory that is kept in {folder}" in error_of(*words)
    assert "is a checkpoint, without the latest changes: name its folder" in sqhn("info", folder / MEMORY).stderr
    assert SQHN.load(folder).step == 10


def test_the_damaged_file_and_the_remedy_are_named(folder: Path) -> None:
    """Not the copy that questions are asked of."""
    journal = folder / "journal.sqlite"
    with closing(sqlite3.connect(journal)) as connection:
        connection.execute("UPDATE record SET content = zeroblob(9) WHERE number = 1")
        connection.commit()
    assert error_of("info", folder).startswith(f"{journal}: change 1 is damaged")
    assert f"; `sqhn repair {folder}` lists all damage" in error_of("info", folder)


def test_damage_is_told(folder: Path) -> None:
    (folder / "journal.sqlite").unlink()
    assert "journal.sqlite has the latest changes of a memory, and is missing" in error_of("info", folder)


INTERRUPTED = """
import os, signal, sys
from sqhn.cli import app
from sqhn.storage.journal import Journal

apply, made = Journal.apply, []

def apply_and_die(self, change, model):
    answer = apply(self, change, model)
    made.append(answer)
    if len(made) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer

Journal.apply = apply_and_die
app(sys.argv[1:])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
def test_learning_continues_after_a_crash(folder: Path, tmp_path: Path) -> None:
    """Between two chunks of samples that are learned at once, which are smaller than those that are read."""
    images = np.random.default_rng(5).integers(0, 256, (1500, *SHAPE), np.uint8)
    source = image_folder(tmp_path / "in", images)
    words = ["learn", str(source), "--memory", str(folder)]
    shutil.copytree(folder, tmp_path / "whole")
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *words], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    learned = SQHN.load(folder).step - 10
    assert 0 < learned < len(images)
    found = json_of(*words)
    assert (found["continued_after"], found["learned"]) == (learned, len(images) - learned)
    json_of("learn", source, "--memory", tmp_path / "whole")
    assert fingerprint(SQHN.load(folder)) == fingerprint(SQHN.load(tmp_path / "whole"))
    assert not list(tmp_path.glob("*.progress"))


def test_info_tells_the_bytes_in_memory(tmp_path: Path) -> None:
    with_folder = SQHN((8,), capacity=20, folder=tmp_path / "robot")
    with_folder.learn(np.eye(8))
    found = json.loads(output_of("info", tmp_path / "robot", "--json"))
    assert found["nbytes"] == SQHN.load(tmp_path / "robot", read_only=True).nbytes > 8 * 8 * 4
    assert f"{found['nbytes']:,} bytes in main memory" in output_of("info", tmp_path / "robot")
    with_folder.save(tmp_path / "m.sqhn")
    assert json.loads(output_of("info", tmp_path / "m.sqhn", "--json"))["nbytes"] == found["nbytes"]


def test_info_says_that_nothing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SQHN((8,), capacity=20).save(tmp_path / "m.sqhn")
    assert "plain NumPy" not in output_of("info", tmp_path / "m.sqhn")
    monkeypatch.setenv("SQHN_COMPILE", "0")
    assert "memories are in plain NumPy: SQHN_COMPILE is 0" in output_of("info", tmp_path / "m.sqhn")
