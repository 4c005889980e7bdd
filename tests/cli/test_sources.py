"""Folders, files, patterns and standard input as sources of commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sqhn import SQHN, Level
from tests.cli.commands import (
    COLOR,
    GRAY,
    error_of,
    files_in,
    image_folder,
    json_of,
    load_image,
    npy,
    output_of,
    put,
    saved_memory,
    sqhn,
)
from tests.helpers import fingerprint


def test_several_sources(tmp_path: Path, file: Path) -> None:
    sources = (put(tmp_path / "z.npy", GRAY[:9]), image_folder(tmp_path / "b", GRAY[9:15]), f"{tmp_path}/a/**/*.png")
    image_folder(tmp_path / "a" / "deep", GRAY[15:])
    output_of("learn", *sources, "--memory", file, "--capacity", 30)
    memory = saved_memory(tmp_path / "expected", GRAY, Level(capacity=30))
    assert fingerprint(SQHN.load(file)) == fingerprint(memory)
    names = [f"z.npy[{n}]" for n in range(9)] + [f"b/{n:03}.png" for n in range(6)]
    names += [f"a/deep/{n:03}.png" for n in range(15)]
    found = json_of("recognize", *sources, "--memory", file)
    assert [row["name"] for row in found["samples"]] == names
    assert found["old"] == 30
    found = json_of("recall", *sources, "--memory", file, "--out", tmp_path / "out")
    assert [(row["name"], row["index"]) for row in found["samples"]] == [*zip(names, range(30))]
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "z.npy"), memory.recall(GRAY[:9]).x)
    for n in range(6):
        np.testing.assert_array_equal(load_image(tmp_path / "out" / "b" / f"{n:03}.png"), GRAY[9 + n])


def test_errors_name_patterns_without_a_match(tmp_path: Path, file: Path) -> None:
    saved_memory(file, GRAY)
    pattern = tmp_path / "nowhere" / "*.jpg"
    for words in (("learn",), ("recognize",), ("recall", "--out", tmp_path / "out")):
        error = error_of(words[0], put(tmp_path / "x.npy", GRAY), pattern, "--memory", file, *words[1:])
        assert f"matches {pattern}" in error
    assert SQHN.load(file).step == 30


def test_a_file_that_links_lead_to_counts_once(tmp_path: Path, file: Path) -> None:
    folder = image_folder(tmp_path / "d", GRAY[:3])
    (folder / "a").symlink_to(folder, target_is_directory=True)
    (folder / "again.png").symlink_to(folder / "002.png")
    assert json_of("learn", f"{folder}/**/*.png", "--memory", file, "--capacity", 9)["learned"] == 3
    found = json_of("recognize", f"{folder}/**/*.png", "--memory", file)["samples"]
    assert [row["name"] for row in found] == ["000.png", "001.png", "002.png"]


def test_shapes_that_differ(tmp_path: Path, file: Path) -> None:
    sources = put(tmp_path / "x.npy", GRAY), image_folder(tmp_path / "in", COLOR[:1])
    error = error_of("learn", *sources, "--memory", file, "--capacity", 3)
    assert f"{tmp_path / 'in' / '000.png'} is a color image, but {tmp_path / 'x.npy'} holds gray ones" in error
    assert not file.exists()


@pytest.mark.parametrize("old", [True, False])
def test_bad_files_can_be_skipped(old: bool, tmp_path: Path, file: Path) -> None:
    images = image_folder(tmp_path / "in", GRAY)
    cut, text = images / "015.png", images / "notes.png"
    cut.write_bytes(cut.read_bytes()[:-40])
    text.write_text("not an image")
    if old:
        saved_memory(file, GRAY[:3])
    before = file.read_bytes() if old else None
    words = ("learn", images, "--memory", file, "--capacity", 20)
    assert f"{text} cannot be read" in error_of(*words)
    assert (file.read_bytes() if file.exists() else None) == before
    result = sqhn(*words, "--skip-bad", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["skipped"] == [str(text), str(cut)]
    assert [line.split()[:2] for line in result.stderr.splitlines()] == [["skipped:", f"{bad}"] for bad in (text, cut)]
    expected = saved_memory(tmp_path / "expected", GRAY[:3] if old else GRAY[:0])
    expected.learn(np.delete(GRAY, 15, axis=0))
    assert fingerprint(SQHN.load(file)) == fingerprint(expected)
    found = json_of("recognize", images, "--memory", file, "--skip-bad")
    assert found["skipped"] == [str(text), str(cut)]
    assert len(found["samples"]) == 29
    found = json_of("recall", images, "--memory", file, "--out", tmp_path / "out", "--skip-bad")
    assert found["skipped"] == [str(text), str(cut)]
    assert files_in(tmp_path / "out") == [row["name"] for row in found["samples"]]


def test_an_array_from_standard_input(tmp_path: Path, file: Path) -> None:
    output_of("learn", "-", "--memory", file, "--capacity", 20, stdin=GRAY)
    memory = saved_memory(tmp_path / "expected", GRAY)
    assert fingerprint(SQHN.load(file)) == fingerprint(memory)
    rows = json_of("recognize", "-", "--memory", file, stdin=GRAY)["samples"]
    assert [row["name"] for row in rows] == [str(n) for n in range(30)]
    assert [row["score"] for row in rows] == memory.recognize(GRAY).score.tolist()
    for out, place in (("y.npy", "y.npy"), ("out", "out/stdin.npy")):
        output_of("recall", "-", "--memory", file, "--out", tmp_path / out, stdin=GRAY)
        np.testing.assert_array_equal(np.load(tmp_path / place), memory.recall(GRAY).x)


def test_standard_input_after_another_source(tmp_path: Path, file: Path) -> None:
    source = put(tmp_path / "x.npy", GRAY[:10])
    output_of("learn", source, "-", "--memory", file, "--capacity", 20, stdin=GRAY[10:])
    assert fingerprint(SQHN.load(file)) == fingerprint(saved_memory(tmp_path / "expected", GRAY))


def test_a_pipe(tmp_path: Path, file: Path) -> None:
    command = [sys.executable, "-m", "sqhn.cli", "learn", "-", "--memory", str(file), "--capacity", "20"]
    subprocess.run(command, input=npy(GRAY), check=True, capture_output=True)
    assert SQHN.load(file).step == 30


def test_standard_input_that_is_not_one_array(file: Path) -> None:
    whole = npy(GRAY)
    for content, reason in (
        (b"", "standard input cannot be read as a .npy file"),
        (b"no array at all", "standard input cannot be read as a .npy file"),
        (whole[:-1], "standard input cannot be read as a .npy file"),
        (whole + whole, "standard input continues after an array"),
        (GRAY.astype(int), "- has dtype int64"),
    ):
        assert reason in error_of("learn", "-", "--memory", file, "--capacity", 20, stdin=content)
    assert "give it once" in error_of("learn", "-", "-", "--memory", file, "--capacity", 20)
    assert not file.exists()
