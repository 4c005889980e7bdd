"""Samples in .npy files."""

from __future__ import annotations

import os
import struct
import sys
import warnings
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn.cli.options import Size
from tests.cli.commands import everything, files_in, pixels, posix, put, read


def test_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqhn.cli.samples.files.CHUNK_SAMPLES", 2)
    x = np.random.default_rng(0).random((5, 3, 4))
    found = read(put(tmp_path / "x.npy", x))
    assert (found.names, found.shape) == (["0", "1", "2", "3", "4"], (3, 4))
    assert [len(chunk) for chunk in found.chunks()] == [2, 2, 1]
    np.testing.assert_array_equal(everything(found), x)


def test_one_sample_of_a_memory(tmp_path: Path) -> None:
    path = put(tmp_path / "x.npy", pixels(3, 4))
    np.testing.assert_array_equal(everything(read(path, shape=(3, 4))), pixels(3, 4)[None])
    assert read(path).shape == (4,)


def test_shapes_that_do_not_fit(tmp_path: Path) -> None:
    path = put(tmp_path / "x.npy", pixels(3, 4))
    with pytest.raises(ValueError, match=r"x\.npy has shape \(3, 4\).*\(4, 3\)"):
        read(path, shape=(4, 3))
    for x in (pixels(3), pixels(0, 4)):
        with pytest.raises(ValueError, match=r"x\.npy has shape .* batch"):
            read(put(tmp_path / "x.npy", x))


@pytest.mark.parametrize("x", [np.zeros((2, 3), int), np.zeros((2, 3), bool), np.zeros((2, 3), complex)])
def test_other_dtypes(x: NDArray[Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{x.dtype}") as caught:
        read(put(tmp_path / "x.npy", x))
    assert ("`.astype(np.float32)`" in str(caught.value)) == (x.dtype != complex)


def test_files_without_a_plain_array(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{}, []], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"x\.npy cannot be read"):
        read(path)
    for content in (b"", b"no array at all"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.npy cannot be read"):
            read(path)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000000, 8, 8)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999, 8)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 8)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 8)}",
        "{[]: 3}",
        "(" * 999,
        " " * 20_000,
    ],
)
def test_damaged_headers(header: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n" + bytes(999))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"x\.npy cannot be read as a \.npy file"):
            read(path)


@posix
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=r"x\.npy is not a file"):
        read(tmp_path / "x.npy")


def test_an_array_that_changes_after_the_check(tmp_path: Path) -> None:
    found = read(put(tmp_path / "x.npy", pixels(3, 4)))
    put(tmp_path / "x.npy", pixels(2, 4))
    with pytest.raises(ValueError, match=r"x\.npy has changed"):
        everything(found)


def test_a_terminal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(ValueError, match=r"- is standard input.*pipe a \.npy file"):
        read("-")


def test_resize_is_for_images(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--resize is for images"):
        read(put(tmp_path / "x.npy", pixels(3, 4)), resize=Size(4, 3))


@pytest.mark.parametrize("out", ["y.npy", "folder"])
def test_writing(out: str, tmp_path: Path) -> None:
    x = pixels(3, 2, 2)
    recalled = x.astype(np.float32)
    read(put(tmp_path / "x.npy", x)).write(tmp_path / "new" / out, iter([recalled[:2], recalled[2:]]))
    place = tmp_path / "new" / out
    written = np.load(place / "x.npy" if out == "folder" else place)
    assert written.dtype == np.float32
    np.testing.assert_array_equal(written, x)


def test_a_single_sample_is_written_as_one(tmp_path: Path) -> None:
    sample = read(put(tmp_path / "x.npy", pixels(2, 2)), shape=(2, 2))
    sample.write(tmp_path / "y.npy", iter([np.ones((1, 2, 2), np.float32)]))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.ones((2, 2)))


def test_an_error_keeps_an_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    found = read(put(tmp_path / "x.npy", pixels(3, 2)))
    (tmp_path / "y.npy").write_bytes(b"old")

    def fail() -> Iterator[Any]:
        yield np.zeros((1, 2), np.float32)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        found.write(tmp_path / "y.npy", fail())
    assert (tmp_path / "y.npy").read_bytes() == b"old"
    assert files_in(tmp_path) == ["x.npy", "y.npy"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(put(tmp_path / "x.npy", pixels(2, 100_000)))
    open_file = Path.open

    def open_full(self: Path, *options: Any) -> Any:
        return open_file(Path("/dev/full"), "wb") if self.suffix == ".tmp" else open_file(self, *options)

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(OSError, match=r"No space left.*y\.npy"):
        found.write(tmp_path / "y.npy", iter([np.zeros((2, 100_000), np.float32)]))
    assert files_in(tmp_path) == ["x.npy"]


def test_a_source_is_not_overwritten(tmp_path: Path) -> None:
    path = put(tmp_path / "x.npy", pixels(3, 2))
    with pytest.raises(ValueError, match=r"overwrite the source .*--out"):
        read(path).write(tmp_path, iter([]))
