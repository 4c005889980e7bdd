"""`sqhn learn`: images and arrays, options and errors."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sqhn import SQHN
from sqhn.cli import app
from tests.cli.commands import (
    COLOR,
    GRAY,
    Pixels,
    error_of,
    files_in,
    image_folder,
    image_names,
    json_of,
    load_image,
    metadata_of,
    output_of,
    posix,
    put,
    saved_memory,
    sqhn,
    start_process,
)
from tests.helpers import fingerprint

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.mark.parametrize("x", [COLOR, GRAY], ids=["color", "gray"])
def test_a_folder_is_a_batch_of_its_images(x: Pixels, tmp_path: Path, file: Path) -> None:
    output_of("learn", image_folder(tmp_path / "in", x), "--memory", file, "--capacity", 20)
    expected = saved_memory(tmp_path / "expected", x, names=image_names(len(x)))
    assert fingerprint(SQHN.load(file)) == fingerprint(expected)
    assert metadata_of(file) == metadata_of(tmp_path / "expected")


def test_jpeg(tmp_path: Path, file: Path) -> None:
    images = image_folder(tmp_path / "in", COLOR, "jpg")
    output_of("learn", images, "--memory", file, "--capacity", 20)
    decoded = np.stack([load_image(path) for path in sorted(images.iterdir())])
    assert fingerprint(SQHN.load(file)) == fingerprint(saved_memory(tmp_path / "expected", decoded))


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
def test_an_array(dtype: type, tmp_path: Path, file: Path) -> None:
    x = GRAY.astype(dtype) / (1 if dtype is np.uint8 else 255)
    x = x.astype(dtype)
    output_of("learn", put(tmp_path / "x.npy", x), "--memory", file, "--capacity", 20)
    assert fingerprint(SQHN.load(file)) == fingerprint(saved_memory(tmp_path / "expected", x))


@pytest.mark.parametrize("spec", [["--capacity", "12"], ["--capacity", "12", "--levels", "4x2,2"]])
def test_appending_is_learning_at_once(spec: list[str], tmp_path: Path, file: Path) -> None:
    output_of("learn", image_folder(tmp_path / "a", GRAY[:11]), "--memory", file, *spec)
    output_of("learn", put(tmp_path / "b.npy", GRAY[11:20]), "--memory", file)
    output_of("learn", put(tmp_path / "c.npy", GRAY[20]), "--memory", file)  # one sample
    output_of("learn", image_folder(tmp_path / "d", GRAY[21:]), "--memory", file, *spec)  # the same levels again
    at_once = tmp_path / "at_once.sqhn"
    output_of("learn", image_folder(tmp_path / "all", GRAY), "--memory", at_once, *spec)
    assert fingerprint(SQHN.load(file)) == fingerprint(SQHN.load(at_once))
    assert SQHN.load(file).step == len(GRAY)


def test_resize(tmp_path: Path, file: Path) -> None:
    images = image_folder(tmp_path / "in", GRAY)
    put(images / "color.png", COLOR[0])
    error = error_of("learn", images, "--memory", file, "--capacity", 20)
    assert error == (
        f"1 of 31 images has another size (16x16), but {images / '000.png'} has 20x24: give --resize 20x24 "
        "(--skip-bad leaves such files out) "
    )
    assert not file.exists()
    output_of("learn", images, "--memory", file, "--capacity", 20, "--resize", "10x12")
    assert SQHN.load(file).input_shape == (12, 10, 3)
    assert "31 images are scaled to 10x12, the size of the memory\n" in sqhn("learn", images, "--memory", file).stderr
    assert "--resize 12x10 does not fit" in error_of("learn", images, "--memory", file, "--resize", "12x10")
    assert "64" in error_of("learn", images, "--memory", file, "--resize", "64", status=2)


@pytest.mark.parametrize("size", ["100000x100000", "99999999999999999999x1", "1x" + "9" * 5000])
def test_sizes_that_are_too_large(size: str, tmp_path: Path, file: Path) -> None:
    images = image_folder(tmp_path / "in", GRAY[:2])
    error = error_of("learn", images, "--memory", file, "--capacity", 20, "--resize", size, status=2)
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
def test_too_little_memory_is_a_one_line_error(
    error: MemoryError, line: str, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_memory(file, GRAY[:3])
    before = file.read_bytes()

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(SQHN, "learn", refuse)
    assert error_of("learn", put(tmp_path / "x.npy", GRAY), "--memory", file) == line
    assert file.read_bytes() == before


@posix
def test_a_link_stays_a_link(tmp_path: Path, file: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.sqhn"
    link.symlink_to(tmp_path / "there" / "m.sqhn")  # a file that does not exist yet
    source = put(tmp_path / "x.npy", GRAY)
    for _ in range(2):
        output_of("learn", source, "--memory", link, "--capacity", 20)
    assert link.is_symlink()
    assert SQHN.load(tmp_path / "there" / "m.sqhn").step == 60
    assert files_in(tmp_path / "there") == ["m.sqhn"]
    link.unlink()
    link.symlink_to(tmp_path / "nowhere" / "m.sqhn")
    assert "its folder does not exist" in error_of("learn", source, "--memory", link, "--capacity", 20)


@posix
def test_a_full_disk_keeps_the_old_file(tmp_path: Path, file: Path) -> None:
    saved_memory(file, GRAY[:3])
    before = file.read_bytes()
    source = put(tmp_path / "x.npy", GRAY)
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before)}, {len(before)}))"
    with start_process(limit, "learn", source, "--memory", file) as learning:
        out, errors = learning.communicate(timeout=120)
    assert (learning.returncode, out, errors.count("\n")) == (1, "", 1)
    assert "File too large" in errors
    assert file.read_bytes() == before
    assert files_in(tmp_path) == ["m.sqhn", "x.npy"]


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text on other systems")
def test_names_that_cannot_be_printed(tmp_path: Path) -> None:
    """In another encoding, or in none: on Linux a name is bytes."""
    source = put(tmp_path / "x.npy", GRAY)
    for name, shown in (("日本.sqhn", "日本.sqhn"), (os.fsdecode(b"\xff.sqhn"), "\\udcff.sqhn")):
        assert shown in output_of("learn", source, "--memory", tmp_path / name, "--capacity", 20)
        assert json_of("info", tmp_path / name)["memory"] == str(tmp_path / name)
    result = CliRunner(charset="latin-1").invoke(app, ["info", str(tmp_path / "日本.sqhn")])
    assert result.exit_code == 0
    assert "\\u65e5\\u672c.sqhn" in result.stdout


def test_results(tmp_path: Path, file: Path) -> None:
    images = image_folder(tmp_path / "in", COLOR)
    expected = saved_memory(tmp_path / "expected", COLOR)
    assert json_of("learn", images, "--memory", file, "--capacity", 20) == {
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
    assert "learned 30 samples" in output_of("learn", images, "--memory", file)
    assert json_of("info", file)["step"] == 60


@pytest.mark.parametrize("broken", ["image", "value", "half", "infinite half"])
@pytest.mark.parametrize("old", [True, False])
def test_bad_samples_in_the_middle_change_nothing(broken: str, old: bool, tmp_path: Path, file: Path) -> None:
    if old:
        saved_memory(file, GRAY[:3])
    before = file.read_bytes() if old else None
    if broken == "image":
        source = image_folder(tmp_path / "in", GRAY)
        damaged = source / "015.png"
        damaged.write_bytes(damaged.read_bytes()[:-40])
        expected = str(damaged)
    else:
        x = (GRAY / 255).astype(np.float16 if "half" in broken else np.float64)
        x[15, 2, 3] = np.inf if "infinite" in broken else np.nan
        source, expected = put(tmp_path / "x.npy", x), "counting from sample 14: the value at (1, 2, 3)"
    options = [] if old else ["--capacity", 20]
    assert expected in error_of("learn", source, "--memory", file, *options)
    assert (file.read_bytes() if file.exists() else None) == before
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".tmp", ".lock")]


def test_a_new_memory_needs_a_capacity_and_a_folder(tmp_path: Path, file: Path) -> None:
    images = image_folder(tmp_path / "in", GRAY[:2])
    assert "--capacity" in error_of("learn", images, "--memory", file, status=2)
    nowhere = tmp_path / "nowhere" / "m.sqhn"
    problem = error_of("learn", images, "--memory", nowhere, "--capacity", 3)
    assert f"{nowhere}: cannot be written: its folder does not exist, or is write-protected" in problem
    assert f"{tmp_path} is a folder" in error_of("learn", images, "--memory", tmp_path, "--capacity", 3)
    assert files_in(tmp_path) == ["in"]


def test_sources_that_do_not_fit(tmp_path: Path, file: Path) -> None:
    saved_memory(file, GRAY)
    (tmp_path / "empty").mkdir()
    assert "no images" in error_of("learn", tmp_path / "empty", "--memory", file)
    assert "there is no" in error_of("learn", tmp_path / "nowhere", "--memory", file)
    color = image_folder(tmp_path / "color", COLOR[:2])
    assert "000.png is a color image" in error_of("learn", color, "--memory", file)
    error = error_of("learn", put(tmp_path / "x.npy", GRAY[:, :5]), "--memory", file)
    assert "(30, 5, 20)" in error
    assert "(24, 20)" in error
    error = error_of("learn", put(tmp_path / "x.npy", GRAY.astype(int)), "--memory", file)
    assert "int64" in error
    assert "`.astype(np.float32)`" in error


def test_another_file_is_not_overwritten(tmp_path: Path, file: Path) -> None:
    file.write_text("something else")
    images = image_folder(tmp_path / "in", GRAY[:2])
    assert f"{file} is not a memory" in error_of("learn", images, "--memory", file, "--capacity", 3)
    assert file.read_text() == "something else"
