"""Commands that describe and change a memory, and files that are not memories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sqhn import SQHN, Level
from sqhn.display import CAPTION, GAP
from sqhn.storage.files import FORMAT
from tests.cli.commands import GRAY, error_of, json_of, load_image, output_of, posix, put, saved_memory, sqhn


def test_a_tree(file: Path) -> None:
    levels = [Level((4, 2), 9, np.inf, 0.9, "freeze"), Level(2, 8), Level(None, 7)]
    memory = saved_memory(file, GRAY, *levels)
    about = json_of("info", file)
    assert about["memory"] == str(file)
    assert about["bytes"] == file.stat().st_size
    assert about["format"] == FORMAT
    assert about["input_shape"] == [24, 20]
    assert about["step"] == 30
    assert about["options"]["blend"] == memory.options.blend
    first, second, last = about["levels"]
    grown = memory.banks[0].grown
    assert first == {
        "kernel": [4, 2],
        "capacity": 9,
        "alpha": "inf",
        "gamma": 0.9,
        "when_full": "freeze",
        "nodes": 60,
        "grown": {"min": grown.min(), "mean": grown.mean(), "max": grown.max()},
    }
    assert (second["kernel"], second["nodes"]) == (2, 15)
    assert (last["kernel"], last["nodes"], last["grown"]["max"]) == (None, 1, len(memory))


def test_a_description(file: Path) -> None:
    saved_memory(file, GRAY, Level((4, 2), 9, np.inf), Level(None, 7))
    text = output_of("info", file)
    for words in ("shape (24, 20)", "30 learned", "kernel 4x2, nodes 60, capacity 9", "alpha inf", "kernel all"):
        assert words in text


def test_only_the_header_is_read(file: Path) -> None:
    x = np.random.default_rng(0).random((200, 30_000))
    memory = SQHN((30_000,), capacity=200)
    memory.memorize(x)
    memory.save(file)
    program = (
        "import sys; from sqhn.storage.files import describe; describe(sys.argv[1]); print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    start = time.perf_counter()
    output_of("info", file)
    assert time.perf_counter() - start < 1


def test_a_damaged_header(file: Path) -> None:
    saved_memory(file, GRAY)
    content = file.read_bytes()
    for position in range(8, 8 + int.from_bytes(content[:8], "little"), 5):
        damaged = bytearray(content)
        damaged[position] ^= 1
        file.write_bytes(damaged)
        result = sqhn("info", file)
        if result.exit_code:  # some digits may have other values
            assert isinstance(result.exception, SystemExit)
            assert str(file) in result.stderr


def words_of(command: str, tmp_path: Path, file: Path) -> tuple[object, ...]:
    """A command with all that it needs."""
    if command == "info":
        return command, file
    more = {"learn": ("--capacity", 3), "recall": ("--out", tmp_path / "out")}.get(command, ())
    return command, put(tmp_path / "x.npy", GRAY), "--memory", file, *more


@pytest.mark.parametrize("command", ["recall", "recognize", "info"])
@pytest.mark.parametrize("content", [None, b"", b"some text that is not a memory", "truncated"])
def test_files_that_are_not_memories(command: str, content: bytes | str | None, tmp_path: Path, file: Path) -> None:
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content == "truncated":
        saved_memory(file, GRAY)
        file.write_bytes(file.read_bytes()[:-1])
    error = error_of(*words_of(command, tmp_path, file))
    assert (f"there is no memory {file}" if content is None else f"{file} is not a memory") in error


@posix
@pytest.mark.parametrize("command", ["learn", "recall", "recognize", "info"])
def test_a_pipe_is_refused(command: str, tmp_path: Path, file: Path) -> None:
    os.mkfifo(file)
    assert f"{file} is not a file" in error_of(*words_of(command, tmp_path, file))


X = np.random.default_rng(0).integers(0, 256, (9, 16, 24, 3), dtype=np.uint8)
NEW = np.random.default_rng(1).integers(0, 256, (99, 16, 24, 3), dtype=np.uint8)
SCALE = 3  # the smallest that makes an image 64 pixels wide


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SQHN:
    """A memory with labels, saved as m.sqhn in the current folder."""
    monkeypatch.chdir(tmp_path)
    made = SQHN((16, 24, 3), capacity=20)
    made.learn(X, value=[f"image {n}" for n in range(9)])
    made.save("m.sqhn")
    put(tmp_path / "x.npy", X)
    put(tmp_path / "new.npy", NEW)
    return made


def test_a_sheet_of_stored_images(memory: SQHN) -> None:
    assert "sheet.png shows 9 of 9 neurons" in output_of("show", "m.sqhn", "--out", "sheet.png")
    sheet = load_image("sheet.png")
    high = 16 * SCALE + 2 * CAPTION + GAP  # a line for the neuron, and one for its label
    columns = (sheet.shape[1] - GAP) // (24 * SCALE + GAP)
    for j, x in enumerate(X):
        top, left = GAP + j // columns * high, GAP + j % columns * (24 * SCALE + GAP)
        np.testing.assert_array_equal(sheet[top : top + 16 * SCALE : SCALE, left : left + 24 * SCALE : SCALE], x)
    some = json_of("show", "m.sqhn", "--out", "some.png", "--most", 4)
    assert (some["shown"], some["neurons"]) == (4, 9)


def test_memories_that_cannot_be_shown(memory: SQHN) -> None:
    SQHN((5, 5, 5), capacity=3).save("empty.sqhn")
    assert "nothing is stored" in error_of("show", "empty.sqhn", "--out", "s.png")
    cube = SQHN((5, 5, 5), capacity=3)
    cube.learn(np.ones((5, 5, 5)))
    cube.save("cube.sqhn")
    assert "(5, 5, 5) are not images" in error_of("show", "cube.sqhn", "--out", "s.png")
    assert "s.gif should be a .png" in error_of("show", "m.sqhn", "--out", "s.gif")
    assert "no memory nothing" in error_of("show", "nothing", "--out", "s.png")
    assert not Path("s.png").exists()


def test_forget(memory: SQHN) -> None:
    assert "forgot 2 neurons; m.sqhn has 7 of 20" in output_of("forget", "m.sqhn", 0, 4)
    left = SQHN.load("m.sqhn")
    assert left.counts.tolist() == [0, 1, 1, 1, 0, 1, 1, 1, 1]
    before = Path("m.sqhn").read_bytes()
    assert "neuron 4 is already forgotten; nothing was changed" in error_of("forget", "m.sqhn", 1, 4)
    assert "neuron 9 is not one of 9; nothing was changed" in error_of("forget", "m.sqhn", 9)
    assert Path("m.sqhn").read_bytes() == before
    some = json_of("show", "m.sqhn", "--out", "some.png", "--most", 4)
    assert (some["shown"], some["neurons"]) == (4, 7)
    sheet = load_image("some.png")
    np.testing.assert_array_equal(sheet[GAP : GAP + 16 * SCALE : SCALE, GAP : GAP + 24 * SCALE : SCALE], X[1])
    output_of("learn", put(Path("4.npy"), X[4]), "--memory", "m.sqhn")
    assert SQHN.load("m.sqhn").recall(X[4]).index == 0


def test_info_after_replacing_and_forgetting(memory: SQHN) -> None:
    source = put(Path("g.npy"), np.random.default_rng(0).random((20, 4)).astype(np.float32))
    text = output_of("learn", source, "--memory", "g.sqhn", "--capacity", 5, "--when-full", "oldest")
    assert "learned 20 samples, 20 of them as new neurons (15 in place of others); g.sqhn has 5 of 5" in text
    output_of("forget", "g.sqhn", 1, 3)
    about = json_of("info", "g.sqhn")
    assert (about["forgotten"], about["holes"]) == (2, False)
    assert "forgotten: 2 neurons of the memory node" in output_of("info", "g.sqhn")
    holed = SQHN.load("g.sqhn")
    holed.learn(np.ones(4), observed=[True, True, True, False])
    holed.save("g.sqhn")
    assert "samples with missing values were learned" in output_of("info", "g.sqhn")


@pytest.mark.parametrize(("inference", "name"), [("paper", "rho"), ("evidence", "threshold")])
def test_calibrate(inference: str, name: str, memory: SQHN) -> None:
    words = ("calibrate", "new.npy", "--memory", "m.sqhn", "--inference", inference)
    about = json_of(*words, "--as", "new", "--error", 0.1)
    assert about[name] == memory.calibrate(new=NEW, error=0.1, inference=inference)  # type: ignore[arg-type]
    saved = SQHN.load("m.sqhn")
    assert (saved.rho, saved.calibration) == (memory.rho, memory.calibration)
    assert saved.recall(X[4]).value == "image 4"
    found = json_of("recognize", "x.npy", "--memory", "m.sqhn", "--inference", inference)
    expected = memory.recognize(X, inference=inference)  # type: ignore[arg-type]
    assert [row["score"] for row in found["samples"]] == expected.score.tolist()
    assert [row["threshold"] for row in found["samples"]] == expected.threshold.tolist()
    assert "old samples will be called new" in output_of(*words, "--as", "old")


def test_invalid_calibrations(memory: SQHN) -> None:
    before = Path("m.sqhn").read_bytes()
    words = ("calibrate", "x.npy", "--memory", "m.sqhn")
    assert "needs at least 99 samples; got 9" in error_of(*words, "--as", "new")
    assert "got 2.0" in error_of(*words, "--as", "new", "--error", 2)
    assert "odd" in error_of(*words, "--as", "odd", status=2)
    assert "exact" in error_of(*words, "--as", "new", "--inference", "exact", status=2)
    assert Path("m.sqhn").read_bytes() == before


def test_recognition_by_evidence_needs_a_calibration(memory: SQHN) -> None:
    error = error_of("recognize", "x.npy", "--memory", "m.sqhn", "--inference", "evidence")
    assert error.startswith(
        "m.sqhn has no threshold for evidence: `sqhn calibrate NEW --as new --inference evidence --memory m.sqhn` "
    )


def test_only_folders_are_repaired(memory: SQHN) -> None:
    assert "m.sqhn is a file: `repair` is for a memory that is kept in a folder" in error_of("repair", "m.sqhn")


def test_info_of_labels_and_calibration(memory: SQHN) -> None:
    memory.learn(X[0], value=np.array([np.nan]))
    memory.calibrate(new=NEW)
    memory.save("m.sqhn")
    source = put(Path("0.npy"), X[:1])
    assert "nan" in output_of("recall", source, "--memory", "m.sqhn", "--out", "found", "--json")
    text = output_of("info", "m.sqhn")
    assert "calibrated at step 10 " in text
    assert "labels" in text


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line(memory: SQHN) -> None:
    memory.calibrate(new=NEW)
    for _ in range(2):
        memory.learn(X)
    memory.save("m.sqhn")
    result = sqhn("recognize", "x.npy", "--memory", "m.sqhn", "--json")
    assert "calibrate again" in result.stderr
    assert "UserWarning" not in result.stderr
    assert json.loads(result.stdout)["old"] == 9
