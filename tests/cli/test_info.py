"""`sqhn info`, and files that are not memories."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sqhn import SQHN, Level
from sqhn.storage.files import FORMAT
from tests.cli.commands import (
    GRAY,
    error_of,
    json_of,
    output_of,
    posix,
    save_array,
    saved_memory,
    sqhn,
)


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


@pytest.mark.parametrize("command", ["recall", "recognize", "info"])
@pytest.mark.parametrize("content", [None, b"", b"some text that is not a memory", "truncated"])
def test_files_that_are_not_memories(command: str, content: bytes | str | None, tmp_path: Path, file: Path) -> None:
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content == "truncated":
        saved_memory(file, GRAY)
        file.write_bytes(file.read_bytes()[:-1])
    source = save_array(tmp_path / "x.npy", GRAY)
    words: dict[str, tuple[object, ...]] = {
        "recall": ("recall", source, "--memory", file, "--out", tmp_path / "out"),
        "recognize": ("recognize", source, "--memory", file),
        "info": ("info", file),
    }
    error = error_of(*words[command])
    assert (f"there is no memory {file}" if content is None else f"{file} is not a memory") in error


@posix
@pytest.mark.parametrize("command", ["learn", "recall", "recognize", "info"])
def test_a_pipe_is_refused(command: str, tmp_path: Path, file: Path) -> None:
    os.mkfifo(file)
    source = save_array(tmp_path / "x.npy", GRAY)
    words: dict[str, tuple[object, ...]] = {
        "learn": ("learn", source, "--memory", file, "--capacity", 3),
        "recall": ("recall", source, "--memory", file, "--out", tmp_path / "out"),
        "recognize": ("recognize", source, "--memory", file),
        "info": ("info", file),
    }
    assert f"{file} is not a file" in error_of(*words[command])
