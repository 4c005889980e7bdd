"""The command on one's own data: learn, recall, recognize, info."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from safetensors import safe_open
from typer.testing import CliRunner, Result

from sqhn import SQHN, Level, Written
from sqhn.cli import app, memory_file
from sqhn.cli.common import failing
from sqhn.cli.samples import common
from sqhn.data import builtin, digits, photos
from sqhn.paper.baselines.training import load_torch
from sqhn.storage.files import FORMAT
from tests.helpers import fingerprint

Pixels = NDArray[np.uint8]
COLOR = photos(32)[:30, ::2, ::2]
GREY = digits()[0][:30, 2:26, 2:22]  # 24 rows, 20 columns
posix = pytest.mark.skipif(sys.platform == "win32", reason="no signals of this kind")


def sqhn(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def feed(content: bytes | NDArray[Any], *words: object) -> Result:
    """A command that gets this from standard input."""
    if not isinstance(content, bytes):
        stream = BytesIO()
        np.save(stream, content)
        content = stream.getvalue()
    return CliRunner().invoke(app, [str(word) for word in words], input=content)


def well(*words: object) -> str:
    """What a command that goes well prints."""
    result = sqhn(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def wrong(*words: object, code: int = 1) -> str:
    """What a command that fails says; on one line unless it is about usage."""
    result = sqhn(*words)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    if code == 1:
        assert result.stderr.count("\n") == 1
    return re.sub(r"[\s│]+", " ", result.stderr)


def document(*words: object) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(well(*words, "--json"))
    return content


def folder(path: Path, x: Pixels, kind: str = "png") -> Path:
    path.mkdir(parents=True)
    for n, pixels in enumerate(x):
        Image.fromarray(pixels).save(path / f"{n:03}.{kind}")
    return path


def array(path: Path, x: ArrayLike) -> Path:
    np.save(path, x)
    return path


def taught(path: Path, x: NDArray[Any], *levels: Level) -> SQHN:
    """A memory of the library, and a file of it."""
    memory = SQHN(x.shape[1:], levels or [Level(capacity=20)])
    if len(x):
        memory.learn(x)
    memory.save(path)
    return memory


def digest(path: Path) -> dict[str, str]:
    """The header of a memory file, and its digest of all that is in it."""
    with safe_open(path, "numpy") as file:
        metadata: dict[str, str] = file.metadata()
    return metadata


def process(program: str, *words: object) -> subprocess.Popen[str]:
    """A program that ends with the command, on its own."""
    whole = f"import os, sys, time; from pathlib import Path; from sqhn import SQHN, cli\n{program}\ncli.app()"
    command = [sys.executable, "-c", whole, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def hear(process: subprocess.Popen[str], words: str) -> str:
    """The next line of stderr, which has these words."""
    assert process.stderr is not None
    line = process.stderr.readline()
    assert words in line
    return line


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "m.sqhn"


class TestLearn:
    @pytest.mark.parametrize("x", [COLOR, GREY], ids=["color", "grey"])
    def test_a_folder_is_the_batch_of_its_pictures(
        self, x: Pixels, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(common, "CHUNK", 7)
        well("learn", folder(tmp_path / "in", x), "--memory", file, "--capacity", 20)
        expected = taught(tmp_path / "expected", x)
        assert fingerprint(SQHN.load(file)) == fingerprint(expected)
        assert digest(file) == digest(tmp_path / "expected")

    def test_jpeg(self, tmp_path: Path, file: Path) -> None:
        pictures = folder(tmp_path / "in", COLOR, "jpg")
        well("learn", pictures, "--memory", file, "--capacity", 20)
        decoded = np.stack([np.asarray(Image.open(path)) for path in sorted(pictures.iterdir())])
        assert fingerprint(SQHN.load(file)) == fingerprint(taught(tmp_path / "expected", decoded))

    @pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
    def test_an_array(self, dtype: type, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(common, "CHUNK", 7)
        x = GREY.astype(dtype) / (1 if dtype is np.uint8 else 255)
        x = x.astype(dtype)
        well("learn", array(tmp_path / "x.npy", x), "--memory", file, "--capacity", 20)
        assert fingerprint(SQHN.load(file)) == fingerprint(taught(tmp_path / "expected", x))

    @pytest.mark.parametrize("spec", [["--capacity", "12"], ["--capacity", "12", "--levels", "4x2,2"]])
    def test_appending_is_learning_at_once(self, spec: list[str], tmp_path: Path, file: Path) -> None:
        well("learn", folder(tmp_path / "a", GREY[:11]), "--memory", file, *spec)
        well("learn", array(tmp_path / "b.npy", GREY[11:20]), "--memory", file)
        well("learn", array(tmp_path / "c.npy", GREY[20]), "--memory", file)  # one sample
        well("learn", folder(tmp_path / "d", GREY[21:]), "--memory", file, *spec)  # said again: the same
        at_once = tmp_path / "at_once.sqhn"
        well("learn", folder(tmp_path / "all", GREY), "--memory", at_once, *spec)
        assert fingerprint(SQHN.load(file)) == fingerprint(SQHN.load(at_once))
        assert digest(file) == digest(at_once)
        assert SQHN.load(file).step == len(GREY)

    def test_resize(self, tmp_path: Path, file: Path) -> None:
        pictures = folder(tmp_path / "in", GREY)
        Image.fromarray(COLOR[0]).save(pictures / "color.png")
        error = wrong("learn", pictures, "--memory", file, "--capacity", 20)
        assert f"{pictures / 'color.png'} has 16x16" in error
        assert f"{pictures / '000.png'} has 20x24: give --resize 20x24" in error
        assert not file.exists()
        well("learn", pictures, "--memory", file, "--capacity", 20, "--resize", "10x12")
        assert SQHN.load(file).input_shape == (12, 10, 3)
        assert "--resize 10x12" in wrong("learn", pictures, "--memory", file)
        assert "64" in wrong("learn", pictures, "--memory", file, "--resize", "64", code=2)

    @pytest.mark.parametrize("size", ["100000x100000", "99999999999999999999x1", "1x" + "9" * 5000])
    def test_absurd_sizes(self, size: str, tmp_path: Path, file: Path) -> None:
        pictures = folder(tmp_path / "in", GREY[:2])
        error = wrong("learn", pictures, "--memory", file, "--capacity", 20, "--resize", size, code=2)
        assert "--resize" in error
        assert "89,478,485 pixels" in error
        assert not file.exists()

    @pytest.mark.parametrize(
        ("error", "line"),
        [
            (MemoryError("Unable to allocate\n9 GiB"), "not enough memory: Unable to allocate 9 GiB "),
            (MemoryError(), "not enough memory "),
        ],
    )
    def test_a_lack_of_memory_is_a_line(
        self, error: MemoryError, line: str, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taught(file, GREY[:3])
        before = file.read_bytes()

        def refuse(*_: object) -> None:
            raise error

        monkeypatch.setattr(SQHN, "learn", refuse)
        assert wrong("learn", array(tmp_path / "x.npy", GREY), "--memory", file) == line
        assert file.read_bytes() == before

    @posix
    def test_links_stay_and_lead_to_the_memory(self, tmp_path: Path, file: Path) -> None:
        (tmp_path / "there").mkdir()
        link = tmp_path / "link.sqhn"
        link.symlink_to(tmp_path / "there" / "m.sqhn")  # which does not exist yet
        source = array(tmp_path / "x.npy", GREY)
        for _ in range(2):
            well("learn", source, "--memory", link, "--capacity", 20)
        assert link.is_symlink()
        assert SQHN.load(tmp_path / "there" / "m.sqhn").step == 60
        assert [path.name for path in (tmp_path / "there").iterdir()] == ["m.sqhn"]
        link.unlink()
        link.symlink_to(tmp_path / "nowhere" / "m.sqhn")
        assert "its folder does not exist" in wrong("learn", source, "--memory", link, "--capacity", 20)

    @posix
    def test_a_full_disk_leaves_the_old_file(self, tmp_path: Path, file: Path) -> None:
        taught(file, GREY[:3])
        before = file.read_bytes()
        source = array(tmp_path / "x.npy", GREY)
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before)}, {len(before)}))"
        with process(limit, "learn", source, "--memory", file) as learning:
            out, said = learning.communicate(timeout=120)
        assert (learning.returncode, out, said.count("\n")) == (1, "", 1)
        assert "File too large" in said
        assert file.read_bytes() == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.sqhn", "x.npy"]

    @pytest.mark.skipif(sys.platform != "linux", reason="names are text there")
    def test_names_that_cannot_be_written(self, tmp_path: Path) -> None:
        """In another encoding, or in none: a name is bytes."""
        source = array(tmp_path / "x.npy", GREY)
        for name, shown in (("日本.sqhn", "日本.sqhn"), (os.fsdecode(b"\xff.sqhn"), "\\udcff.sqhn")):
            assert shown in well("learn", source, "--memory", tmp_path / name, "--capacity", 20)
            assert document("info", tmp_path / name)["memory"] == str(tmp_path / name)
        result = CliRunner(charset="latin-1").invoke(app, ["info", str(tmp_path / "日本.sqhn")])
        assert result.exit_code == 0
        assert "\\u65e5\\u672c.sqhn" in result.stdout

    def test_what_it_says(self, tmp_path: Path, file: Path) -> None:
        pictures = folder(tmp_path / "in", COLOR)
        expected = taught(tmp_path / "expected", COLOR)
        assert document("learn", pictures, "--memory", file, "--capacity", 20) == {
            "memory": str(file),
            "learned": 30,
            "grown": len(expected),
            "replaced": 0,
            "neurons": len(expected),
            "capacity": 20,
            "step": 30,
            "interrupted": False,
            "continued_after": 0,
            "skipped": [],
        }
        assert "learned 30 samples" in well("learn", pictures, "--memory", file)
        assert document("info", file)["step"] == 60

    @pytest.mark.parametrize("broken", ["picture", "value", "half", "infinite half"])
    @pytest.mark.parametrize("old", [True, False])
    def test_bad_input_midway_changes_nothing(
        self, broken: str, old: bool, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(common, "CHUNK", 7)
        if old:
            taught(file, GREY[:3])
        before = file.read_bytes() if old else None
        if broken == "picture":
            source = folder(tmp_path / "in", GREY)
            spoiled = source / "015.png"
            spoiled.write_bytes(spoiled.read_bytes()[:-40])
            expected = str(spoiled)
        else:
            x = (GREY / 255).astype(np.float16 if "half" in broken else np.float64)
            x[15, 2, 3] = np.inf if "infinite" in broken else np.nan
            source, expected = array(tmp_path / "x.npy", x), "counting from sample 14: the value at (1, 2, 3)"
        options = [] if old else ["--capacity", 20]
        assert expected in wrong("learn", source, "--memory", file, *options)
        assert (file.read_bytes() if file.exists() else None) == before
        assert not [path for path in tmp_path.iterdir() if path.suffix in (".tmp", ".lock")]

    def test_a_new_memory_needs_a_capacity_and_a_folder(self, tmp_path: Path, file: Path) -> None:
        pictures = folder(tmp_path / "in", GREY[:2])
        assert "--capacity" in wrong("learn", pictures, "--memory", file, code=2)
        nowhere = tmp_path / "nowhere" / "m.sqhn"
        assert f"{nowhere} cannot be written" in wrong("learn", pictures, "--memory", nowhere, "--capacity", 3)
        assert f"{tmp_path} is a folder" in wrong("learn", pictures, "--memory", tmp_path, "--capacity", 3)
        assert [path.name for path in tmp_path.iterdir()] == ["in"]

    def test_sources_that_do_not_fit(self, tmp_path: Path, file: Path) -> None:
        taught(file, GREY)
        (tmp_path / "empty").mkdir()
        assert "no pictures" in wrong("learn", tmp_path / "empty", "--memory", file)
        assert "there is no" in wrong("learn", tmp_path / "nowhere", "--memory", file)
        color = folder(tmp_path / "color", COLOR[:2])
        assert "000.png is a color picture" in wrong("learn", color, "--memory", file, "--resize", "20x24")
        error = wrong("learn", array(tmp_path / "x.npy", GREY[:, :5]), "--memory", file)
        assert "(30, 5, 20)" in error
        assert "(24, 20)" in error
        error = wrong("learn", array(tmp_path / "x.npy", GREY.astype(int)), "--memory", file)
        assert "int64" in error
        assert "`.astype(np.float32)`" in error

    def test_a_file_that_is_no_memory_is_kept(self, tmp_path: Path, file: Path) -> None:
        file.write_text("something else")
        pictures = folder(tmp_path / "in", GREY[:2])
        assert f"{file} is not a memory" in wrong("learn", pictures, "--memory", file, "--capacity", 3)
        assert file.read_text() == "something else"


class TestLevels:
    @pytest.mark.parametrize(
        ("options", "levels"),
        [
            (["--capacity", "9"], [Level(None, 9)]),
            (["--levels", "9"], [Level(None, 9)]),
            (["--levels", "2:5,4:6,7"], [Level(2, 5), Level(4, 6), Level(None, 7)]),
            (["--levels", "4x2:5, 8"], [Level((4, 2), 5), Level(None, 8)]),
            (["--capacity", "9", "--levels", "2,4"], [Level(2, 9), Level(4, 9), Level(None, 9)]),
            (["--capacity", "9", "--levels", "4x2"], [Level((4, 2), 9), Level(None, 9)]),
            (["--levels", "4:5,4x4:6"], [Level(4, 5), Level((4, 4), 6)]),
        ],
    )
    def test_in_words(self, options: list[str], levels: list[Level], tmp_path: Path, file: Path) -> None:
        well("learn", array(tmp_path / "x.npy", COLOR), "--memory", file, *options)
        memory = SQHN.load(file)
        assert memory.levels == tuple(levels)
        assert fingerprint(memory) == fingerprint(taught(tmp_path / "expected", COLOR, *levels))

    @pytest.mark.parametrize(
        ("options", "piece"),
        [
            (["--levels", "2:5,x,7"], "'x'"),
            (["--levels", "2:5,,7"], "''"),
            (["--levels", "2:5:6,7"], "'2:5:6'"),
            (["--levels", "2:-5,7"], "'2:-5'"),
            (["--levels", "2:0,7"], "'2:0'"),
            (["--levels", "0:5,7"], "'0:5'"),
            (["--levels", "2,4"], "'2'"),
            (["--levels", "2:5,4x4"], "'4x4'"),
            (["--levels", "2:5,7", "--capacity", "9"], "'2:5'"),
        ],
    )
    def test_malformed(self, options: list[str], piece: str, tmp_path: Path, file: Path) -> None:
        error = wrong("learn", array(tmp_path / "x.npy", COLOR), "--memory", file, *options, code=2)
        assert "--levels" in error
        assert f"{piece}:" in error
        assert not file.exists()

    @pytest.mark.parametrize(
        ("options", "option"),
        [
            (["--capacity", "99999999999999999999"], "--capacity"),
            (["--capacity", "2147483648"], "--capacity"),
            (["--capacity", "2147483648", "--levels", "2"], "--capacity"),
            (["--levels", "2:99999999999999999999,7"], "--levels"),
            (["--levels", "2:5,99999999999999999999"], "--levels"),
        ],
    )
    def test_absurd_capacities(self, options: list[str], option: str, tmp_path: Path, file: Path) -> None:
        error = wrong("learn", array(tmp_path / "x.npy", COLOR), "--memory", file, *options, code=2)
        assert f"Invalid value for {option}: " in error
        assert "2,147,483,647" in error
        assert not file.exists()

    def test_kernels_that_do_not_divide(self, tmp_path: Path, file: Path) -> None:
        source = array(tmp_path / "x.npy", COLOR)
        assert "(5, 5)" in wrong("learn", source, "--memory", file, "--levels", "5:3,4")

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--capacity", "9"], "9"),
            (["--levels", "2:5,4:6,8"], "2:5,4:6,8"),
            (["--levels", "2,2", "--capacity", "5"], "2:5,2:5,5"),
        ],
    )
    def test_others_than_those_of_the_file(self, options: list[str], said: str, tmp_path: Path, file: Path) -> None:
        taught(file, COLOR, Level(2, 5), Level((4, 4), 6), Level(None, 7))
        before = file.read_bytes()
        source = array(tmp_path / "x.npy", COLOR)
        error = wrong("learn", source, "--memory", file, *options)
        assert f"has levels 2:5,4:6,7, but the options say {said}:" in error
        assert file.read_bytes() == before
        well("learn", source, "--memory", file, "--levels", "2:5,4:6,7")


class TestSettings:
    GIVEN = ("--when-full", "overwrite", "--alpha", "50", "--gamma", "0.9", "--similarity", "cosine", "--rho", "0.5")

    def test_of_a_new_memory(self, tmp_path: Path, file: Path) -> None:
        source = array(tmp_path / "x.npy", COLOR)
        for _ in range(2):  # said again: the same
            well("learn", source, "--memory", file, "--levels", "4:5,6", *self.GIVEN)
        levels = [Level(4, 5, 50, 0.9), Level(None, 6, 50, 0.9, "overwrite")]
        expected = SQHN(COLOR.shape[1:], levels, similarity="cosine", rho=0.5)
        for _ in range(2):
            expected.learn(COLOR)
        memory = SQHN.load(file)
        assert (memory.levels, memory.options) == (expected.levels, expected.options)
        assert fingerprint(memory) == fingerprint(expected)

    def test_for_ever(self, tmp_path: Path, file: Path) -> None:
        well("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 9, "--alpha", "inf")
        assert SQHN.load(file).levels == (Level(None, 9, np.inf),)

    @pytest.mark.parametrize(
        ("option", "value", "there"),
        [
            ("--similarity", "cosine", "similarity shifted_cosine"),
            ("--when-full", "freeze", "when full average, overwrite"),
            ("--when-full", "average", "when full average, overwrite"),
            ("--when-full", "oldest", "when full overwrite"),
            ("--alpha", "50.0", "alpha 10000000.0"),
            ("--gamma", "0.5", "gamma 0.9"),
        ],
    )
    def test_others_than_those_of_the_file(
        self, option: str, value: str, there: str, tmp_path: Path, file: Path
    ) -> None:
        taught(file, COLOR, Level(4, 5, 1e7, 0.9), Level(None, 6, 1e7, 0.9, "overwrite"))
        before = file.read_bytes()
        error = wrong("learn", array(tmp_path / "x.npy", COLOR), "--memory", file, option, value)
        assert f"{file} has {there}, but the options say {value}: leave out {option} " in error
        assert file.read_bytes() == before

    def test_rho_can_be_changed(self, tmp_path: Path, file: Path) -> None:
        taught(file, GREY)
        well("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--rho", "0.25")
        assert (SQHN.load(file).rho, SQHN.load(file).step) == (0.25, 60)
        well("learn", array(tmp_path / "x.npy", GREY), "--memory", file)
        assert SQHN.load(file).rho == 0.25

    @pytest.mark.parametrize("old", [True, False])
    @pytest.mark.parametrize(
        ("option", "value", "reason"),
        [
            ("--alpha", "0", "got 0.0"),
            ("--alpha", "nan", "got nan"),
            ("--gamma", "inf", "got inf"),
            ("--rho", "-1", "got -1.0"),
            ("--rho", "soon", "number"),
            ("--when-full", "forget", "'forget'"),
            ("--similarity", "dot", "'dot'"),
        ],
    )
    def test_malformed(self, old: bool, option: str, value: str, reason: str, tmp_path: Path, file: Path) -> None:
        if old:
            taught(file, GREY)
        before = file.read_bytes() if old else None
        words = ("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 20)
        error = wrong(*words, option, value, code=2)
        assert option in error
        assert reason in error
        assert (file.read_bytes() if file.exists() else None) == before


class TestInterrupted:
    @pytest.fixture
    def ctrl_c(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
        """Ctrl-C instead of learning the chunk of a number."""
        learn = SQHN.learn

        def at(number: int) -> None:
            calls: list[int] = []

            def learn_or_stop(self: SQHN, x: ArrayLike) -> Written:
                calls.append(1)
                if len(calls) == number:
                    raise KeyboardInterrupt
                return learn(self, x)

            monkeypatch.setattr(SQHN, "learn", learn_or_stop)

        monkeypatch.setattr(common, "CHUNK", 7)
        return at

    def test_what_was_learned_is_saved(self, tmp_path: Path, file: Path, ctrl_c: Callable[[int], None]) -> None:
        expected = taught(tmp_path / "expected", GREY[:14])
        ctrl_c(3)
        result = sqhn("learn", folder(tmp_path / "in", GREY), "--memory", file, "--capacity", 20, "--json")
        assert result.exit_code == 130
        assert json.loads(result.stdout)["learned"] == 14
        assert json.loads(result.stdout)["interrupted"] is True
        assert f"14 of 30 samples are saved in {file}" in result.stderr
        assert fingerprint(SQHN.load(file)) == fingerprint(expected)

    def test_nothing_learned_nothing_saved(self, tmp_path: Path, file: Path, ctrl_c: Callable[[int], None]) -> None:
        ctrl_c(1)
        result = sqhn("learn", folder(tmp_path / "in", GREY), "--memory", file, "--capacity", 20)
        assert result.exit_code == 130
        assert result.stdout == ""
        assert "0 of 30 samples were learned: nothing is saved" in result.stderr
        assert not file.exists()

    @posix
    @pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_a_real_one(self, number: int, status: int, tmp_path: Path, file: Path) -> None:
        x = np.random.default_rng(0).random((10_000, 64), np.float32)
        program = (
            "learn = SQHN.learn\n"
            "def slowly(self, x):\n"
            "    print('learning', file=sys.stderr, flush=True)\n"
            "    time.sleep(0.1)\n"
            "    return learn(self, x)\n"
            "SQHN.learn = slowly"
        )
        words = ["learn", array(tmp_path / "x.npy", x), "--memory", file, "--capacity", 1000, "--json"]
        with process(program, *words) as learning:
            for _ in range(4):
                hear(learning, "learning")
            learning.send_signal(number)
            out, said = learning.communicate(timeout=120)
        assert learning.returncode == status
        learned = SQHN.load(file).step
        assert 0 < learned < len(x)
        assert (json.loads(out)["step"], json.loads(out)["learned"]) == (learned, learned)
        kept = f"stopped: {learned:,} of 10,000 samples are saved in {file}; the same command goes on after them\n"
        assert said.endswith(kept)
        again = SQHN((64,), capacity=1000)
        again.learn(x[:learned])
        assert fingerprint(SQHN.load(file)) == fingerprint(again)
        well("learn", array(tmp_path / "rest.npy", x[learned:]), "--memory", file)
        again.learn(x[learned:])
        assert fingerprint(SQHN.load(file)) == fingerprint(again)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.sqhn", "rest.npy", "x.npy"]

    def test_an_interrupt_that_gets_lost(self, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is raised while an object is deleted goes nowhere."""
        monkeypatch.setattr(common, "CHUNK", 7)
        learn, calls = SQHN.learn, []

        def learn_and_lose(self: SQHN, x: ArrayLike) -> Written:
            calls.append(1)
            if len(calls) == 2:
                with suppress(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)
            return learn(self, x)

        monkeypatch.setattr(SQHN, "learn", learn_and_lose)
        result = sqhn("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 20)
        assert result.exit_code == 130
        assert f"stopped: 14 of 30 samples are saved in {file}" in result.stderr
        assert SQHN.load(file).step == 14

    @posix
    @pytest.mark.parametrize("early", [True, False])
    @pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_no_signal_interrupts_saving(
        self, early: bool, number: int, status: int, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither the first, after all was learned, nor others after the first; nor one between the two."""
        monkeypatch.setattr(common, "CHUNK", 7)
        learn, save, calls = SQHN.learn, SQHN.save, []

        def learn_until_signal(self: SQHN, x: ArrayLike) -> Written:
            written = learn(self, x)
            calls.append(1)
            if early and len(calls) == 2:
                signal.raise_signal(number)
            return written

        def save_in_spite(self: SQHN, path: Path) -> None:
            for other in (number, signal.SIGINT, signal.SIGTERM):
                signal.raise_signal(other)
            save(self, path)
            signal.raise_signal(number)

        monkeypatch.setattr(SQHN, "learn", learn_until_signal)
        monkeypatch.setattr(SQHN, "save", save_in_spite)
        result = sqhn("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 20, "--json")
        monkeypatch.undo()
        assert result.exit_code == status
        learned = 14 if early else 30
        assert json.loads(result.stdout)["learned"] == learned
        assert f"stopped: {learned} of 30 samples are saved in {file}" in result.stderr
        assert fingerprint(SQHN.load(file)) == fingerprint(taught(tmp_path / "expected", GREY[:learned]))

    @posix
    @pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_before_anything_was_learned(
        self, number: int, status: int, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taught(file, GREY)
        before = file.read_bytes()
        monkeypatch.setattr(SQHN, "load", lambda path: signal.raise_signal(number))
        result = sqhn("learn", array(tmp_path / "x.npy", GREY), "--memory", file)
        assert result.exit_code == status
        assert result.stdout == ""
        assert result.stderr == f"stopped before anything was learned: {file} is as it was\n"
        assert file.read_bytes() == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.sqhn", "x.npy"]

    @pytest.fixture
    def handlers(self) -> Iterator[None]:
        """Those of the signals, put back afterwards."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    @posix
    @pytest.mark.usefixtures("handlers")
    def test_what_is_ignored_stays_so(self, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As under nohup."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        learn = SQHN.learn

        def learn_with_signal(self: SQHN, x: ArrayLike) -> Written:
            signal.raise_signal(signal.SIGTERM)
            return learn(self, x)

        monkeypatch.setattr(SQHN, "learn", learn_with_signal)
        well("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 20)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN

    @pytest.mark.usefixtures("handlers")
    def test_afterwards_signals_do_what_they_did(self, tmp_path: Path, file: Path) -> None:
        calls: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
        before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        source = array(tmp_path / "x.npy", GREY)
        well("learn", source, "--memory", file, "--capacity", 20)
        wrong("learn", tmp_path / "nowhere", "--memory", file)
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before

    def test_in_another_thread(self, tmp_path: Path, file: Path) -> None:
        results: list[Result] = []
        words = ("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 20)
        thread = threading.Thread(target=lambda: results.append(sqhn(*words)))
        thread.start()
        thread.join()
        assert results[0].exit_code == 0


class TestCheckpoints:
    @pytest.mark.parametrize(("seconds", "steps"), [(0, [7, 14, 21, 28, 30, 30]), (1000, [30]), (None, [30])])
    def test_when_it_saves(
        self, seconds: int | None, steps: list[int], tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(common, "CHUNK", 7)
        save, saved = SQHN.save, []

        def save_and_tell(self: SQHN, path: Path) -> None:
            saved.append(self.step)
            save(self, path)

        monkeypatch.setattr(SQHN, "save", save_and_tell)
        options = () if seconds is None else ("--checkpoint", seconds)
        well("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 20, *options)
        assert saved == steps
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.sqhn", "x.npy"]

    @pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
    def test_malformed(self, seconds: str, tmp_path: Path, file: Path) -> None:
        source = array(tmp_path / "x.npy", GREY)
        words = ("learn", source, "--memory", file, "--capacity", 20, "--checkpoint", seconds)
        assert "--checkpoint" in wrong(*words, code=2)
        assert not file.exists()

    @posix
    def test_no_signal_interrupts_one(self, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(common, "CHUNK", 7)
        save = SQHN.save

        def save_in_spite(self: SQHN, path: Path) -> None:
            signal.raise_signal(signal.SIGTERM)
            save(self, path)

        monkeypatch.setattr(SQHN, "save", save_in_spite)
        words = ("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 20, "--checkpoint", 0)
        result = sqhn(*words)
        assert result.exit_code == 143
        assert f"stopped: 7 of 30 samples are saved in {file}" in result.stderr
        assert SQHN.load(file).step == 7

    def test_an_error_leaves_what_was_saved(self, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(common, "CHUNK", 7)
        x = GREY / 255
        x[15, 2, 3] = np.nan
        words = ("learn", array(tmp_path / "x.npy", x), "--memory", file, "--capacity", 20, "--checkpoint", 0)
        result = sqhn(*words)
        assert result.exit_code == 1
        first, second = result.stderr.splitlines()
        assert first == f"14 of 30 samples are saved in {file}"
        assert "counting from sample 14: the value at (1, 2, 3)" in second
        assert fingerprint(SQHN.load(file)) == fingerprint(taught(tmp_path / "expected", x[:14]))


class TestGoingOn:
    """The same command after one that was stopped."""

    @pytest.fixture(params=["folder", "array", "both"])
    def sources(self, request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
        if request.param == "folder":
            return [folder(tmp_path / "in", GREY)]
        if request.param == "array":
            return [array(tmp_path / "x.npy", GREY)]
        return [array(tmp_path / "x.npy", GREY[:10]), folder(tmp_path / "in", GREY[10:])]

    @pytest.fixture
    def note(self, file: Path) -> Path:
        return file.with_name("m.sqhn.progress")

    def stop(self, monkeypatch: pytest.MonkeyPatch, at: int, *words: object, content: bytes = b"") -> Result:
        """A command that learns seven samples at a time, and is stopped instead of learning those of a number."""
        learn, calls = SQHN.learn, []

        def learn_or_stop(self: SQHN, x: ArrayLike) -> Written:
            calls.append(1)
            if len(calls) == at:
                raise KeyboardInterrupt
            return learn(self, x)

        with monkeypatch.context() as patched:
            patched.setattr(common, "CHUNK", 7)
            patched.setattr(SQHN, "learn", learn_or_stop)
            result = feed(content, *words)
        assert result.exit_code == 130
        return result

    @pytest.mark.parametrize("old", [True, False])
    def test_nothing_is_learned_twice(
        self, old: bool, sources: list[Path], tmp_path: Path, file: Path, note: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = taught(tmp_path / "expected", GREY[:5] if old else GREY[:0])
        if old:
            expected.save(file)
        words = ("learn", *sources, "--memory", file, "--capacity", 20)
        self.stop(monkeypatch, 2, *words)
        first = SQHN.load(file).step - 5 * old
        assert 0 < first <= 7
        result = self.stop(monkeypatch, 2, *words)
        second = SQHN.load(file).step - 5 * old
        assert first < second <= 14
        assert f"going on after {first} of 30 samples" in result.stderr
        assert f"stopped: {second} of 30 samples are saved" in result.stderr
        found = document(*words)
        assert (found["continued_after"], found["learned"]) == (second, 30 - second)
        expected.learn(GREY)
        assert fingerprint(SQHN.load(file)) == fingerprint(expected)
        assert not note.exists()
        assert document(*words)["learned"] == 30  # on purpose

    @pytest.mark.parametrize(
        ("number", "when", "reached"),
        [(1, "before", 0), (1, "after", 7), (3, "before", 14), (3, "after", 21), (6, "before", 30), (6, "after", 30)],
    )
    def test_a_process_that_dies_while_it_saves(
        self, number: int, when: str, reached: int, tmp_path: Path, file: Path, note: Path
    ) -> None:
        """Before the memory is written, or after; the sixth save is the last, after that of the last chunk."""
        program = (
            "from sqhn.cli.samples import common\n"
            "common.CHUNK = 7\n"
            "save, calls = SQHN.save, []\n"
            "def save_and_die(self, path):\n"
            "    calls.append(1)\n"
            f"    if len(calls) == {number} and {when == 'before'}:\n"
            "        os._exit(9)\n"
            "    save(self, path)\n"
            f"    if len(calls) == {number}:\n"
            "        os._exit(9)\n"
            "SQHN.save = save_and_die"
        )
        words = ("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 20)
        with process(program, *words, "--checkpoint", 0) as dying:
            dying.communicate(timeout=120)
        assert dying.returncode == 9
        assert document(*words)["continued_after"] == reached
        assert fingerprint(SQHN.load(file)) == fingerprint(taught(tmp_path / "expected", GREY))
        assert not note.exists()

    @posix
    def test_a_process_that_is_killed(self, tmp_path: Path, file: Path) -> None:
        program = (
            "from sqhn.cli.samples import common\n"
            "common.CHUNK = 7\n"
            "learn = SQHN.learn\n"
            "def slowly(self, x):\n"
            "    print('learning', file=sys.stderr, flush=True)\n"
            "    time.sleep(0.1)\n"
            "    return learn(self, x)\n"
            "SQHN.learn = slowly"
        )
        words = ("learn", folder(tmp_path / "in", GREY), "--memory", file, "--capacity", 20)
        with process(program, *words, "--checkpoint", 0) as learning:
            for _ in range(3):
                hear(learning, "learning")
            learning.kill()
        assert document(*words)["continued_after"] == 14
        assert fingerprint(SQHN.load(file)) == fingerprint(taught(tmp_path / "expected", GREY))

    def test_files_that_come_later_do_not_matter(
        self, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One is damaged, so it is skipped; and there is a new one."""
        pictures = folder(tmp_path / "in", GREY[:29])
        cut = pictures / "027.png"
        cut.write_bytes(cut.read_bytes()[:-40])
        words = ("learn", pictures, "--memory", file, "--capacity", 20)
        self.stop(monkeypatch, 2, *words)
        Image.fromarray(GREY[29]).save(pictures / "029.png")
        found = document(*words, "--skip-bad")
        assert (found["continued_after"], found["learned"]) == (7, 22)
        assert fingerprint(SQHN.load(file)) == fingerprint(taught(tmp_path / "expected", np.delete(GREY, 27, axis=0)))

    @pytest.mark.parametrize("change", ["removed", "written again", "added", "fewer"])
    def test_other_files_are_learned_from_the_first(
        self, change: str, tmp_path: Path, file: Path, note: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pictures = folder(tmp_path / "in", GREY[:20])
        words = ("learn", pictures, "--memory", file, "--capacity", 20)
        self.stop(monkeypatch, 3, *words)
        if change == "removed":
            (pictures / "003.png").unlink()
        elif change == "written again":
            os.utime(pictures / "003.png", ns=(0, 0))
        elif change == "added":
            Image.fromarray(GREY[20]).save(pictures / "000a.png")
        else:
            for n in range(5, 20):
                (pictures / f"{n:03}.png").unlink()
        result = sqhn(*words)
        assert result.exit_code == 0
        assert "had learned 14 samples, but their files are not the first ones now, or have changed" in result.stderr
        many = {"removed": 19, "written again": 20, "added": 21, "fewer": 5}[change]
        assert SQHN.load(file).step == 14 + many
        assert not note.exists()

    def test_a_memory_that_has_changed(
        self, tmp_path: Path, file: Path, note: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        words = ("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 20)
        self.stop(monkeypatch, 3, *words)
        memory = SQHN.load(file)
        memory.learn(GREY[0])
        memory.save(file)
        result = sqhn(*words)
        assert result.exit_code == 0
        assert f"had learned 14 samples, but {file} has changed since" in result.stderr
        assert SQHN.load(file).step == 14 + 1 + 30
        assert not note.exists()

    def test_a_memory_that_is_gone(self, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        words = ("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 20)
        self.stop(monkeypatch, 3, *words)
        file.unlink()
        assert document(*words)["learned"] == 30

    @pytest.mark.parametrize(
        "content", [b"", b"{}", b"[1, 2]", b'[{"step": 14}]', b"\xff", b'[{"step": 14, "samples": "x", "files": ""}]']
    )
    def test_a_damaged_note(
        self, content: bytes, tmp_path: Path, file: Path, note: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        words = ("learn", array(tmp_path / "x.npy", GREY), "--memory", file, "--capacity", 20)
        self.stop(monkeypatch, 3, *words)
        note.write_bytes(content)
        result = sqhn(*words)
        assert result.exit_code == 0
        assert f"{note} cannot be read: learning all samples from the first" in result.stderr
        assert SQHN.load(file).step == 14 + 30
        assert not note.exists()

    def test_standard_input_cannot_be_read_again(
        self, tmp_path: Path, file: Path, note: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = array(tmp_path / "x.npy", GREY).read_bytes()
        result = self.stop(monkeypatch, 3, "learn", "-", "--memory", file, "--capacity", 20, content=content)
        assert f"14 of 30 samples are saved in {file}; the same command starts from the first" in result.stderr
        assert not note.exists()


@posix
class TestTogether:
    """Several processes that learn into one file."""

    PATIENT = (
        "learn = SQHN.learn\n"
        "def patiently(self, x):\n"
        "    print('learning', file=sys.stderr, flush=True)\n"
        "    while not Path(os.environ['GO']).exists():\n"
        "        time.sleep(0.01)\n"
        "    return learn(self, x)\n"
        "SQHN.learn = patiently"
    )

    @pytest.fixture
    def go(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The file that those who learn wait for."""
        (tmp_path / "signs").mkdir()
        go = tmp_path / "signs" / "go"
        monkeypatch.setenv("GO", str(go))
        return go

    @pytest.fixture
    def start(self, tmp_path: Path, file: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
        """Starts one that learns ten samples; all are ended."""
        with ExitStack() as stack:

            def start(number: int, *options: object) -> subprocess.Popen[str]:
                source = array(tmp_path / "signs" / f"{number}.npy", GREY[10 * number : 10 * number + 10])
                words = options or ("--memory", file, "--capacity", 30)
                learning = stack.enter_context(process(self.PATIENT, "learn", source, *words))
                stack.callback(learning.kill)
                return learning

            yield start

    @pytest.mark.parametrize("many", [2, 3])
    @pytest.mark.parametrize("old", [True, False])
    def test_nothing_is_lost(
        self, many: int, old: bool, tmp_path: Path, file: Path, go: Path, start: Callable[..., subprocess.Popen[str]]
    ) -> None:
        if old:
            taught(file, GREY[:5], Level(capacity=30))
        first = start(0)
        hear(first, "learning")
        others = [start(number) for number in range(1, many)]
        for other in others:
            assert hear(other, f"{file} is in use by process {first.pid} on ")
        go.touch()
        for learning in (first, *others):
            _, said = learning.communicate(timeout=120)
            assert learning.returncode == 0, said
            assert "in use" not in said
        memory = SQHN.load(file)
        assert memory.step == 10 * many + 5 * old
        assert memory.recognize(GREY[: 10 * many]).old.all()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.sqhn", "signs"]

    def test_by_another_name(
        self, tmp_path: Path, file: Path, go: Path, start: Callable[..., subprocess.Popen[str]]
    ) -> None:
        taught(file, GREY[:0], Level(capacity=30))
        link = tmp_path / "signs" / "link.sqhn"
        link.symlink_to(file)
        first = start(0)
        hear(first, "learning")
        second = start(1, "--memory", link)
        hear(second, f"{link} is in use by process {first.pid} on ")
        go.touch()
        assert [learning.wait(120) for learning in (first, second)] == [0, 0]
        assert SQHN.load(file).step == SQHN.load(link).step == 20

    def test_the_death_of_one_is_no_hindrance(
        self, tmp_path: Path, file: Path, go: Path, start: Callable[..., subprocess.Popen[str]]
    ) -> None:
        first = start(0)
        hear(first, "learning")
        second = start(1)
        hear(second, f"process {first.pid} on ")
        first.kill()
        hear(second, "learning")
        go.touch()
        assert second.wait(120) == 0
        assert SQHN.load(file).step == 10
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.sqhn", "signs"]

    @pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_a_signal_ends_the_wait(
        self,
        number: int,
        status: int,
        tmp_path: Path,
        file: Path,
        go: Path,
        start: Callable[..., subprocess.Popen[str]],
    ) -> None:
        taught(file, GREY[:5], Level(capacity=30))
        before = file.read_bytes()
        first = start(0)
        hear(first, "learning")
        second = start(1)
        hear(second, f"process {first.pid} on ")
        second.send_signal(number)
        out, said = second.communicate(timeout=60)
        assert second.returncode == status
        assert out == ""
        assert said == f"stopped before anything was learned: {file} is as it was\n"
        assert file.read_bytes() == before
        go.touch()
        assert first.wait(120) == 0
        assert SQHN.load(file).step == 15
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.sqhn", "signs"]


class TestRecall:
    @pytest.mark.parametrize("x", [COLOR, GREY], ids=["color", "grey"])
    @pytest.mark.parametrize("mask_kind", ["png", "npy"])
    def test_the_missing_half_is_filled_in(
        self, x: Pixels, mask_kind: str, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(common, "CHUNK", 7)
        x = x[:20]
        memory = taught(file, x)
        seen = np.zeros(x.shape[1:3], bool)
        seen[:, : x.shape[2] // 2] = True
        halves = x.copy()
        halves[:, ~seen] = 0
        mask = tmp_path / f"mask.{mask_kind}"
        if mask_kind == "png":
            Image.fromarray(seen).save(mask)
        else:
            array(mask, seen)
        words = ("recall", folder(tmp_path / "in", halves), "--memory", file, "--out", tmp_path / "out")
        rows = document(*words, "--observed", mask)["samples"]
        observed = np.broadcast_to(seen.reshape(seen.shape + (1,) * (x.ndim - 3)), x.shape[1:])
        expected = memory.recall(halves, observed)
        assert [row["name"] for row in rows] == [f"{n:03}.png" for n in range(20)]
        assert [row["index"] for row in rows] == expected.index.tolist()
        assert [row["score"] for row in rows] == expected.score.tolist()
        for n in range(20):
            written = np.asarray(Image.open(tmp_path / "out" / f"{n:03}.png"))
            np.testing.assert_array_equal(written, np.rint(expected.x[n] * 255))
            np.testing.assert_array_equal(written, x[n])

    @pytest.mark.parametrize("inference", ["paper", "exact"])
    def test_an_array(self, inference: str, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(common, "CHUNK", 7)
        memory = taught(file, COLOR, Level(4, 20), Level(None, 20))
        x = np.clip(COLOR / 255 + np.random.default_rng(0).normal(0, 0.2, COLOR.shape), 0, 1)
        words = ("recall", array(tmp_path / "x.npy", x), "--memory", file, "--out", tmp_path / "y.npy")
        rows = document(*words, "--inference", inference)["samples"]
        expected = memory.recall(x, inference=inference)
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected.x)
        assert [(row["name"], row["index"], row["score"]) for row in rows] == [
            (str(n), k, score) for n, (k, score) in enumerate(zip(expected.index.tolist(), expected.score.tolist()))
        ]

    def test_missing_values_may_be_anything(self, tmp_path: Path, file: Path) -> None:
        memory = taught(file, GREY)
        seen = np.random.default_rng(0).random((24, 20)) < 0.5
        one = np.where(seen, GREY[3] / 255, np.nan)
        words = ("recall", array(tmp_path / "x.npy", one), "--memory", file, "--out", tmp_path / "out")
        assert "nan" in wrong(*words)
        assert not (tmp_path / "out").exists()
        well(*words, "--observed", array(tmp_path / "mask.npy", seen))
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "x.npy"), memory.recall(one, seen).x)

    @pytest.mark.parametrize("kind", ["x.npy", "x.png"])
    def test_places_that_cannot_be_written(self, kind: str, tmp_path: Path, file: Path) -> None:
        taught(file, GREY)
        source = tmp_path / kind
        if kind == "x.npy":
            array(source, GREY)
        else:
            Image.fromarray(GREY[0]).save(source)
        for out in (file, file / kind):
            assert str(file) in wrong("recall", source, "--memory", file, "--out", out)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.sqhn", kind]

    @pytest.mark.parametrize(
        ("mask", "reason"),
        [
            (np.zeros((20, 24), bool), "has shape (20, 24), but the samples of the memory have (24, 20)"),
            (np.zeros((0, 20), bool), "has shape (0, 20)"),
            (np.zeros((24, 20)), "must be boolean"),
        ],
    )
    def test_masks_that_do_not_fit(self, mask: NDArray[Any], reason: str, tmp_path: Path, file: Path) -> None:
        taught(file, GREY)
        words = ("recall", array(tmp_path / "x.npy", GREY), "--memory", file, "--out", tmp_path / "out")
        assert reason in wrong(*words, "--observed", array(tmp_path / "mask.npy", mask))
        assert not (tmp_path / "out").exists()

    def test_one_picture_in_words(self, tmp_path: Path, file: Path) -> None:
        memory = taught(file, GREY[:20])
        source = folder(tmp_path / "in", GREY[:20]) / "004.png"
        text = well("recall", source, "--memory", file, "--out", tmp_path / "found.png")
        assert text == f"004.png  neuron 4  score {memory.recall(GREY[4]).score:.6f}\n"
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "found.png")), GREY[4])

    def test_resize(self, tmp_path: Path, file: Path) -> None:
        taught(file, GREY)
        larger = tmp_path / "large.png"
        Image.fromarray(GREY[0]).resize((40, 48), Image.Resampling.NEAREST).save(larger)
        words = ("recall", larger, "--memory", file, "--out", tmp_path / "out")
        assert f"{larger} has 40x48 pixels, but the memory holds 20x24: give --resize 20x24" in wrong(*words)
        assert document(*words, "--resize", "20x24")["samples"][0]["index"] == 0
        assert Image.open(tmp_path / "out" / "large.png").size == (20, 24)

    def test_an_empty_memory(self, tmp_path: Path, file: Path) -> None:
        taught(file, GREY[:0])
        source = folder(tmp_path / "in", GREY[:2])
        assert wrong("recall", source, "--memory", file, "--out", tmp_path / "out").startswith("this memory is empty")

    def test_other_words_for_inference(self, tmp_path: Path, file: Path) -> None:
        words = ("recall", tmp_path, "--memory", file, "--out", tmp_path, "--inference", "guess")
        assert "guess" in wrong(*words, code=2)


class TestRecognize:
    def test_old_and_new(self, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(common, "CHUNK", 7)
        memory = taught(file, COLOR[:20])
        judged = memory.recognize(COLOR)
        source = folder(tmp_path / "in", COLOR)
        found = document("recognize", source, "--memory", file)
        assert found["samples"] == [
            {"name": f"{n:03}.png", "old": old, "score": score, "threshold": threshold}
            for n, (old, score, threshold) in enumerate(zip(*(field.tolist() for field in judged)))
        ]
        assert (found["old"], found["new"]) == (judged.old.sum(), (~judged.old).sum())
        lines = well("recognize", source, "--memory", file).splitlines()
        assert [line.split()[1] for line in lines[:-1]] == ["old" if old else "new" for old in judged.old]
        assert lines[-1] == f"{judged.old.sum()} old, {(~judged.old).sum()} new"

    def test_an_empty_memory_knows_nothing(self, tmp_path: Path, file: Path) -> None:
        taught(file, GREY[:0])
        found = document("recognize", array(tmp_path / "x.npy", GREY[:2]), "--memory", file)
        assert [(row["old"], row["score"]) for row in found["samples"]] == [(False, None)] * 2


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_halves(bad: float, tmp_path: Path, file: Path) -> None:
    halves = (GREY / 255).astype(np.float16)
    memory = taught(file, halves.astype(np.float32))
    source = array(tmp_path / "x.npy", halves)
    found = document("recognize", source, "--memory", file)["samples"]
    assert [row["score"] for row in found] == memory.recognize(halves.astype(np.float32)).score.tolist()
    well("recall", source, "--memory", file, "--out", tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), memory.recall(halves.astype(np.float32)).x)
    halves[3, 2, 1] = bad
    array(source, halves)
    for words in (("recognize",), ("recall", "--out", tmp_path / "z.npy")):
        error = wrong(words[0], source, "--memory", file, *words[1:])
        assert "counting from sample 0: the value at (3, 2, 1)" in error
        assert f"{bad}: not finite" in error
    assert not (tmp_path / "z.npy").exists()


class TestSources:
    def test_several(self, tmp_path: Path, file: Path) -> None:
        sources = (array(tmp_path / "z.npy", GREY[:9]), folder(tmp_path / "b", GREY[9:15]), f"{tmp_path}/a/**/*.png")
        folder(tmp_path / "a" / "deep", GREY[15:])
        well("learn", *sources, "--memory", file, "--capacity", 30)
        memory = taught(tmp_path / "expected", GREY, Level(capacity=30))
        assert fingerprint(SQHN.load(file)) == fingerprint(memory)
        names = [f"z.npy[{n}]" for n in range(9)] + [f"b/{n:03}.png" for n in range(6)]
        names += [f"a/deep/{n:03}.png" for n in range(15)]
        found = document("recognize", *sources, "--memory", file)
        assert [row["name"] for row in found["samples"]] == names
        assert found["old"] == 30
        found = document("recall", *sources, "--memory", file, "--out", tmp_path / "out")
        assert [(row["name"], row["index"]) for row in found["samples"]] == [*zip(names, memory.recall(GREY).index)]
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "z.npy"), memory.recall(GREY[:9]).x)
        for n in range(6):
            np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out" / "b" / f"{n:03}.png")), GREY[9 + n])

    def test_patterns_without_a_match_are_named(self, tmp_path: Path, file: Path) -> None:
        taught(file, GREY)
        pattern = tmp_path / "nowhere" / "*.jpg"
        for words in (("learn",), ("recognize",), ("recall", "--out", tmp_path / "out")):
            error = wrong(words[0], array(tmp_path / "x.npy", GREY), pattern, "--memory", file, *words[1:])
            assert f"matches {pattern}" in error
        assert SQHN.load(file).step == 30

    def test_shapes_that_differ(self, tmp_path: Path, file: Path) -> None:
        sources = array(tmp_path / "x.npy", GREY), folder(tmp_path / "in", COLOR[:1])
        error = wrong("learn", *sources, "--memory", file, "--capacity", 3)
        assert f"{tmp_path / 'in' / '000.png'} has 16x16 pixels, but {tmp_path / 'x.npy'} holds 20x24" in error
        assert not file.exists()

    @pytest.mark.parametrize("old", [True, False])
    def test_bad_files_can_be_skipped(self, old: bool, tmp_path: Path, file: Path) -> None:
        pictures = folder(tmp_path / "in", GREY)
        cut, text = pictures / "015.png", pictures / "notes.png"
        cut.write_bytes(cut.read_bytes()[:-40])
        text.write_text("no picture")
        if old:
            taught(file, GREY[:3])
        before = file.read_bytes() if old else None
        words = ("learn", pictures, "--memory", file, "--capacity", 20)
        assert f"{text} cannot be read" in wrong(*words)
        assert (file.read_bytes() if file.exists() else None) == before
        result = sqhn(*words, "--skip-bad", "--json")
        assert result.exit_code == 0
        assert json.loads(result.stdout)["skipped"] == [str(text), str(cut)]
        assert [line.split()[:2] for line in result.stderr.splitlines()] == [
            ["skipped:", f"{bad}"] for bad in (text, cut)
        ]
        expected = taught(tmp_path / "expected", GREY[:3] if old else GREY[:0])
        expected.learn(np.delete(GREY, 15, axis=0))
        assert fingerprint(SQHN.load(file)) == fingerprint(expected)
        found = document("recognize", pictures, "--memory", file, "--skip-bad")
        assert found["skipped"] == [str(text), str(cut)]
        assert len(found["samples"]) == 29
        found = document("recall", pictures, "--memory", file, "--out", tmp_path / "out", "--skip-bad")
        assert found["skipped"] == [str(text), str(cut)]
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [row["name"] for row in found["samples"]]


class TestStandardInput:
    def test_is_an_array(self, tmp_path: Path, file: Path) -> None:
        result = feed(GREY, "learn", "-", "--memory", file, "--capacity", 20)
        assert result.exit_code == 0, result.output
        memory = taught(tmp_path / "expected", GREY)
        assert fingerprint(SQHN.load(file)) == fingerprint(memory)
        result = feed(GREY, "recognize", "-", "--memory", file, "--json")
        rows = json.loads(result.stdout)["samples"]
        assert [row["name"] for row in rows] == [str(n) for n in range(30)]
        assert [row["score"] for row in rows] == memory.recognize(GREY).score.tolist()
        for out, place in (("y.npy", "y.npy"), ("out", "out/stdin.npy")):
            result = feed(GREY, "recall", "-", "--memory", file, "--out", tmp_path / out)
            assert result.exit_code == 0, result.output
            np.testing.assert_array_equal(np.load(tmp_path / place), memory.recall(GREY).x)

    def test_beside_others(self, tmp_path: Path, file: Path) -> None:
        source = array(tmp_path / "x.npy", GREY[:10])
        result = feed(GREY[10:], "learn", source, "-", "--memory", file, "--capacity", 20)
        assert result.exit_code == 0, result.output
        assert fingerprint(SQHN.load(file)) == fingerprint(taught(tmp_path / "expected", GREY))

    def test_of_a_process(self, tmp_path: Path, file: Path) -> None:
        """From a pipe, in which nobody can go back."""
        command = [sys.executable, "-m", "sqhn.cli", "learn", "-", "--memory", str(file), "--capacity", "20"]
        content = array(tmp_path / "x.npy", GREY).read_bytes()
        subprocess.run(command, input=content, check=True, capture_output=True)
        assert SQHN.load(file).step == 30

    def test_what_is_no_array(self, tmp_path: Path, file: Path) -> None:
        whole = array(tmp_path / "x.npy", GREY).read_bytes()
        for content, reason in (
            (b"", "standard input cannot be read as a .npy file"),
            (b"no array at all", "standard input cannot be read as a .npy file"),
            (whole[:-1], "standard input cannot be read as a .npy file"),
            (whole + whole, "standard input goes on after an array"),
            (GREY.astype(int), "- has dtype int64"),
        ):
            result = feed(content, "learn", "-", "--memory", file, "--capacity", 20)
            assert result.exit_code == 1
            assert reason in result.stderr
            assert result.stderr.count("\n") == 1
        assert "give it once" in wrong("learn", "-", "-", "--memory", file, "--capacity", 20)
        assert not file.exists()


class TestInfo:
    def test_a_tree(self, file: Path) -> None:
        levels = [Level((4, 2), 9, np.inf, 0.9, "freeze"), Level(2, 8), Level(None, 7)]
        memory = taught(file, GREY, *levels)
        about = document("info", file)
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

    def test_in_words(self, file: Path) -> None:
        taught(file, GREY, Level((4, 2), 9, np.inf), Level(None, 7))
        text = well("info", file)
        for words in ("shape (24, 20)", "30 learned", "kernel 4x2, nodes 60, capacity 9", "alpha inf", "kernel all"):
            assert words in text

    def test_is_quick(self, file: Path) -> None:
        """The content is not read, and nothing is compiled."""
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
        well("info", file)
        assert time.perf_counter() - start < 1


def test_info_on_a_damaged_header_is_no_traceback(file: Path) -> None:
    taught(file, GREY)
    content = file.read_bytes()
    for position in range(8, 8 + int.from_bytes(content[:8], "little"), 5):
        damaged = bytearray(content)
        damaged[position] ^= 1
        file.write_bytes(damaged)
        result = sqhn("info", file)
        if result.exit_code:  # some digits of it may be others
            assert isinstance(result.exception, SystemExit)
            assert str(file) in result.stderr


@pytest.mark.parametrize("command", ["recall", "recognize", "info"])
@pytest.mark.parametrize("content", [None, b"", b"once upon a time, there was no memory", "truncated"])
def test_files_that_are_no_memory(command: str, content: bytes | str | None, tmp_path: Path, file: Path) -> None:
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content == "truncated":
        taught(file, GREY)
        file.write_bytes(file.read_bytes()[:-1])
    source = array(tmp_path / "x.npy", GREY)
    words: dict[str, tuple[object, ...]] = {
        "recall": ("recall", source, "--memory", file, "--out", tmp_path / "out"),
        "recognize": ("recognize", source, "--memory", file),
        "info": ("info", file),
    }
    error = wrong(*words[command])
    assert (f"there is no memory {file}" if content is None else f"{file} is not a memory") in error


@posix
@pytest.mark.parametrize("command", ["learn", "recall", "recognize", "info"])
def test_a_pipe_is_not_waited_for(command: str, tmp_path: Path, file: Path) -> None:
    os.mkfifo(file)
    source = array(tmp_path / "x.npy", GREY)
    words: dict[str, tuple[object, ...]] = {
        "learn": ("learn", source, "--memory", file, "--capacity", 3),
        "recall": ("recall", source, "--memory", file, "--out", tmp_path / "out"),
        "recognize": ("recognize", source, "--memory", file),
        "info": ("info", file),
    }
    assert f"{file} is not a file" in wrong(*words[command])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk at hand")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_results_that_cannot_be_printed(options: tuple[str, ...], file: Path) -> None:
    taught(file, GREY)
    command = [sys.executable, "-m", "sqhn.cli", "info", str(file), *options]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("all is done, but the results cannot be printed: ")
    assert done.stderr.count("\n") == 1


class TestExtras:
    """Packages that only some commands need."""

    @pytest.mark.parametrize(
        ("words", "module", "line"),
        [
            (["reproduce", "TH2"], "joblib", "joblib is not installed: pip install 'sqhn[experiments]'"),
            (["bench", "recall-1"], "skimage.data", "scikit-image is not installed: pip install 'sqhn[experiments]'"),
            (["data", "get", "mnist"], "pooch", "pooch is not installed: pip install 'sqhn[experiments]'"),
            (
                ["reproduce", "TH2", "--quick", "--backend", "dask"],
                "distributed",
                "distributed is not installed: pip install 'sqhn[dask]'",
            ),
        ],
    )
    def test_a_missing_package_is_named(
        self, words: list[str], module: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("SQHN_DATA", "SQHN_CACHE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setitem(sys.modules, module, None)
        builtin.photographs.cache_clear()
        result = sqhn(*words)
        assert result.exit_code == 1
        assert result.stderr.splitlines()[-1] == line

    @pytest.mark.parametrize(
        ("error", "line"),
        [
            (
                ModuleNotFoundError("No module named 'scipy'", name="scipy"),
                "scipy is not installed: pip install 'sqhn[",
            ),
            (
                ModuleNotFoundError("No module named 'torch'", name="torch"),
                "torch is not installed: pip install 'sqhn[",
            ),
            (
                ImportError("libwhatever.so: cannot open shared object file"),
                "libwhatever.so: cannot open shared object",
            ),
        ],
    )
    def test_what_there_is_to_say(self, error: ImportError, line: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(typer.Exit), failing(ImportError):
            raise error
        said = capsys.readouterr().err
        assert said.startswith(line)
        assert said.count("\n") == 1

    def test_errors_that_say_it_already(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(typer.Exit), failing(ImportError):
            load_torch()
        assert capsys.readouterr().err == "this memory needs PyTorch: pip install 'sqhn[torch]'\n"


@pytest.mark.parametrize("words", [[], ["learn"], ["recall"], ["recognize"], ["info"], ["bench"], ["data", "get"]])
def test_help_has_a_short_name(words: list[str]) -> None:
    assert well(*words, "-h") == well(*words, "--help")


def test_the_version() -> None:
    assert well("--version") == f"sqhn {version('sqhn')}\n"


def test_a_progress_bar_is_for_terminals_and_never_on_stdout(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    monkeypatch.setattr(memory_file, "progress", Console(stderr=True, force_terminal=True, width=80))
    result = sqhn("learn", folder(tmp_path / "in", GREY), "--memory", file, "--capacity", 20, "--json")
    assert "learning" in result.stderr
    assert json.loads(result.stdout)["learned"] == 30
