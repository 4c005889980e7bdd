"""Samples in files: pictures and arrays, read and written."""

from __future__ import annotations

import os
import re
import struct
import sys
import threading
import warnings
import zlib
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from sqhn.banks.cpu.threads import get_num_threads
from sqhn.cli import samples
from sqhn.cli.samples import SampleError, Samples, common, parse_size, pictures, read_mask
from sqhn.cli.samples.pictures import Pictures

Pixels = NDArray[np.uint8]
pipes = pytest.mark.skipif(sys.platform == "win32", reason="no pipes in folders")


def pixels(*shape: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def put(path: Path, values: Any, **options: Any) -> Path:
    """A file that holds a picture or an array."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, values)
    else:
        Image.fromarray(values).save(path, **options)
    return path


def read(source: Path, shape: tuple[int, ...] | None = None, resize: tuple[int, int] | None = None) -> Samples:
    """The samples of one source."""
    return samples.read([str(source)], shape, resize)


def everything(found: Samples) -> NDArray[Any]:
    return np.concatenate(list(found.chunks()))


class TestPictures:
    def test_a_folder_is_read_in_the_order_of_its_names(self, tmp_path: Path) -> None:
        x = pixels(4, 6, 5)
        for name, values in zip(("b/c/0.png", "a.png", "b/d.PNG", "B.png"), x):
            put(tmp_path / name, values)
        put(tmp_path / ".hidden.png", x[0])
        put(tmp_path / ".trash" / "x.png", x[0])
        (tmp_path / "notes.txt").write_text("no picture")
        found = read(tmp_path)
        assert found.names == ["B.png", "a.png", "b/c/0.png", "b/d.PNG"]
        assert found.shape == (6, 5)
        np.testing.assert_array_equal(everything(found), x[[3, 1, 0, 2]])

    def test_one_picture(self, tmp_path: Path) -> None:
        found = read(put(tmp_path / "a.png", pixels(6, 5, 3)))
        assert (found.names, found.shape) == (["a.png"], (6, 5, 3))
        np.testing.assert_array_equal(everything(found), pixels(6, 5, 3)[None])

    def test_jpeg(self, tmp_path: Path) -> None:
        for name, shape in (("a.jpg", (16, 8)), ("b.jpeg", (16, 8, 3))):
            path = put(tmp_path / name, np.full(shape, 100, np.uint8))
            assert read(path).shape == shape
            np.testing.assert_allclose(everything(read(path)), 100, atol=2)

    @pytest.mark.parametrize("name", ["a.webp", "a.bmp", "a.gif"])
    def test_other_formats(self, name: str, tmp_path: Path) -> None:
        colors = np.repeat(pixels(1, 6, 3), 4, axis=0)  # few enough for a palette
        found = read(put(tmp_path / name, colors, **({"lossless": True} if name == "a.webp" else {})))
        assert (found.names, found.shape) == ([name], (4, 6, 3))
        np.testing.assert_array_equal(everything(found)[0], colors)

    @pytest.mark.parametrize(("name", "shape"), [("a.webp", (4, 6, 3)), ("a.bmp", (4, 6)), ("a.gif", (4, 6, 3))])
    def test_which_formats_are_grey(self, name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
        assert read(put(tmp_path / name, pixels(4, 6))).shape == shape

    @pytest.mark.parametrize("name", ["a.webp", "a.gif", "a.png"])
    def test_of_what_moves_the_first_frame_is_taken(self, name: str, tmp_path: Path) -> None:
        black, *later = [Image.fromarray(np.full((4, 6, 3), value, np.uint8)) for value in (0, 100, 255)]
        black.save(tmp_path / name, save_all=True, append_images=later)
        np.testing.assert_array_equal(everything(read(tmp_path / name)), np.zeros((1, 4, 6, 3)))

    def test_a_mixed_folder_is_color(self, tmp_path: Path) -> None:
        grey, color = pixels(4, 4), pixels(4, 4, 3)
        put(tmp_path / "a.png", grey)
        put(tmp_path / "b.png", color)
        np.testing.assert_array_equal(everything(read(tmp_path)), [np.stack([grey] * 3, axis=2), color])

    def test_grey_pictures_for_a_color_memory(self, tmp_path: Path) -> None:
        grey = pixels(4, 4)
        found = read(put(tmp_path / "a.png", grey), (4, 4, 3))
        np.testing.assert_array_equal(everything(found)[0], np.stack([grey] * 3, axis=2))

    def test_a_color_picture_for_a_grey_memory(self, tmp_path: Path) -> None:
        put(tmp_path / "a.png", pixels(4, 4))
        put(tmp_path / "b.png", pixels(4, 4, 3))
        with pytest.raises(SampleError, match=r"b\.png is a color picture, but the memory holds grey"):
            read(tmp_path, (4, 4))

    @pytest.mark.parametrize("mode", ["RGBA", "P", "LA"])
    def test_palettes_and_transparency_are_color(self, mode: str, tmp_path: Path) -> None:
        picture = Image.fromarray(pixels(4, 4, 4)).convert("RGB").convert(mode)
        path = tmp_path / "a.png"
        picture.save(path)
        assert read(path).shape == (4, 4, 3)
        np.testing.assert_array_equal(everything(read(path))[0], np.asarray(picture.convert("RGB")))

    def test_transparent_colors_of_a_palette_keep_their_color(self, tmp_path: Path) -> None:
        picture = Image.fromarray(pixels(4, 4, 3)).convert("P")
        picture.save(tmp_path / "a.png", transparency=bytes(range(200)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = everything(read(tmp_path))
        np.testing.assert_array_equal(found[0], np.asarray(picture.convert("RGB")))

    def test_black_and_white(self, tmp_path: Path) -> None:
        put(tmp_path / "a.png", pixels(4, 4) > 100)
        np.testing.assert_array_equal(everything(read(tmp_path))[0], np.where(pixels(4, 4) > 100, 255, 0))

    def test_sixteen_bits_are_refused(self, tmp_path: Path) -> None:
        put(tmp_path / "a.png", pixels(4, 4).astype(np.uint16) * 100)
        with pytest.raises(SampleError, match=r"a\.png has more than 8 bits.*convert"):
            read(tmp_path)

    def test_sizes_that_differ(self, tmp_path: Path) -> None:
        put(tmp_path / "a.png", pixels(4, 6))
        put(tmp_path / "b.jpg", pixels(8, 7))
        with pytest.raises(SampleError, match=r"b\.jpg has 7x8.*a\.png has 6x4.*--resize 6x4"):
            read(tmp_path)
        with pytest.raises(SampleError, match=r"a\.png has 6x4.*the memory holds 5x3.*--resize 5x3"):
            read(tmp_path, (3, 5))

    def test_resize(self, tmp_path: Path) -> None:
        put(tmp_path / "a.png", pixels(4, 6))
        put(tmp_path / "b.png", np.full((9, 9), 7, np.uint8))
        found = read(tmp_path, resize=(6, 4))
        assert found.shape == (4, 6)
        np.testing.assert_array_equal(everything(found), [pixels(4, 6), np.full((4, 6), 7)])
        assert read(tmp_path, (4, 6), (6, 4)) == found
        with pytest.raises(SampleError, match="the memory holds pictures of 6x4: --resize 4x6"):
            read(tmp_path, (4, 6), (4, 6))

    def test_a_memory_of_something_else(self, tmp_path: Path) -> None:
        put(tmp_path / "a.png", pixels(4, 6))
        for shape in ((24,), (4, 6, 2), (1, 2, 3, 4)):
            with pytest.raises(SampleError, match="not pictures"):
                read(tmp_path, shape)

    @pytest.mark.parametrize("length", [0, 10, 60])
    def test_damaged_pictures_are_named(self, length: int, tmp_path: Path) -> None:
        path = put(tmp_path / "a.png", pixels(20, 20))
        path.write_bytes(path.read_bytes()[:length])
        with pytest.raises(SampleError, match=r"a\.png cannot be read as a picture"):
            everything(read(tmp_path))

    @pytest.mark.parametrize("size", [(100_000, 100_000), (2**31 - 1, 2**31 - 1), (0, 5)])
    def test_sizes_that_nobody_paints(self, size: tuple[int, int], tmp_path: Path) -> None:
        def part(kind: bytes, content: bytes) -> bytes:
            return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

        header = part(b"IHDR", struct.pack(">II5B", *size, 8, 0, 0, 0, 0))
        path = tmp_path / "a.png"
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + part(b"IDAT", zlib.compress(bytes(99))) + part(b"IEND", b""))
        with pytest.raises(SampleError, match=r"a\.png cannot be read as a picture"):
            read(tmp_path)

    @pipes
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "a.png")
        with pytest.raises(SampleError, match=r"a\.png is not a file"):
            read(tmp_path)

    def test_a_picture_that_changes_after_it_was_checked(self, tmp_path: Path) -> None:
        found = read(put(tmp_path / "a.png", pixels(4, 4)))
        put(tmp_path / "a.png", pixels(5, 4))
        with pytest.raises(SampleError, match=r"a\.png has changed"):
            everything(found)

    @pytest.mark.parametrize("threads", [1, 3])
    def test_chunks_come_in_order_and_not_far_ahead(
        self, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(common, "CHUNK", 2)
        x = pixels(25, 3, 3)
        for n, values in enumerate(x):
            put(tmp_path / f"{n:02}.png", values)
        decode, decoded = pictures.decode, []

        def watch(path: Path, *args: Any) -> Pixels:
            decoded.append(path)
            return decode(path, *args)

        monkeypatch.setattr(pictures, "decode", watch)
        chunks = Pictures([str(path) for path in sorted(tmp_path.iterdir())], (3, 3), None, threads).chunks()
        first = [next(chunks)]
        assert len(decoded) <= 2 * (threads + 2)
        rest = list(chunks)
        assert [len(chunk) for chunk in rest] == [2] * 11 + [1]
        np.testing.assert_array_equal(np.concatenate(first + rest), x)

    def test_a_damaged_one_takes_none_of_those_before_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """However far ahead it is decoded."""
        monkeypatch.setattr(common, "CHUNK", 2)
        x = pixels(7, 3, 3)
        for n, values in enumerate(x):
            put(tmp_path / f"{n:02}.png", values)
        decode, damage_found = pictures.decode, threading.Event()

        def decode_late(path: Path, *args: Any) -> Pixels:
            if path.name == "05.png":
                damage_found.set()
                raise SampleError("damaged")
            if path.name == "03.png":
                assert damage_found.wait(60)
            return decode(path, *args)

        monkeypatch.setattr(pictures, "decode", decode_late)
        files = [str(path) for path in sorted(tmp_path.iterdir())]
        chunks = Pictures(files, (3, 3), None, 3).chunks()
        np.testing.assert_array_equal(np.concatenate([next(chunks), next(chunks)]), x[:4])
        with pytest.raises(SampleError, match="damaged"):
            next(chunks)

    def test_large_pictures_come_in_small_chunks_and_several_threads(self, tmp_path: Path) -> None:
        (found,) = read(put(tmp_path / "a.png", np.zeros((2000, 3000, 3), np.uint8))).parts
        assert isinstance(found, Pictures)
        assert found.chunk == 1
        assert found.threads == min(pictures.THREADS, get_num_threads())

    def test_writing(self, tmp_path: Path) -> None:
        x = pixels(3, 4, 4)
        for name, values in zip(("a.png", "b/c.jpg", "d.png"), x):
            put(tmp_path / "in" / name, values)
        with read(tmp_path / "in").writer(tmp_path / "out" / "new") as write:
            write(x[:2].astype(np.float32) / np.float32(255))
            write((x[2:].astype(np.float32) + np.float32(0.4)) / np.float32(255))
        for name, values in zip(("a.png", "b/c.png", "d.png"), x):
            np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out" / "new" / name)), values)

    def test_values_out_of_range_are_black_or_white(self, tmp_path: Path) -> None:
        put(tmp_path / "a.png", pixels(1, 2))
        with read(tmp_path / "a.png").writer(tmp_path / "out.png") as write:
            write(np.array([[[-3, 1.5]]], np.float32))
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out.png")), [[0, 255]])

    def test_nothing_is_written_twice_or_over_a_source(self, tmp_path: Path) -> None:
        put(tmp_path / "in" / "a.png", pixels(4, 4))
        put(tmp_path / "in" / "b" / "a.jpg", pixels(4, 4))
        for out in (tmp_path / "in", tmp_path / "other" / ".." / "in"):
            with pytest.raises(SampleError, match=r"over.*--out"), read(tmp_path / "in").writer(out):
                pass
        put(tmp_path / "in" / "b" / "a.png", pixels(4, 4))
        with (
            pytest.raises(SampleError, match=r"a\.jpg and .*a\.png would both be written to"),
            read(tmp_path / "in").writer(tmp_path / "out"),
        ):
            pass

    def test_one_picture_is_written_as_png(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.png", pixels(4, 4))
        message = r"out\.jpg must be a folder or end in \.png"
        with pytest.raises(SampleError, match=message), read(path).writer(tmp_path / "out.jpg"):
            pass


class TestArrays:
    def test_a_batch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(common, "CHUNK", 2)
        x = np.random.default_rng(0).random((5, 3, 4))
        found = read(put(tmp_path / "x.npy", x))
        assert (found.names, found.shape) == (["0", "1", "2", "3", "4"], (3, 4))
        assert [len(chunk) for chunk in found.chunks()] == [2, 2, 1]
        np.testing.assert_array_equal(everything(found), x)

    def test_one_sample_of_a_memory(self, tmp_path: Path) -> None:
        path = put(tmp_path / "x.npy", pixels(3, 4))
        np.testing.assert_array_equal(everything(read(path, (3, 4))), pixels(3, 4)[None])
        assert read(path).shape == (4,)

    def test_shapes_that_do_not_fit(self, tmp_path: Path) -> None:
        path = put(tmp_path / "x.npy", pixels(3, 4))
        with pytest.raises(SampleError, match=r"x\.npy has shape \(3, 4\).*\(4, 3\)"):
            read(path, (4, 3))
        for x in (pixels(3), pixels(0, 4)):
            with pytest.raises(SampleError, match=r"x\.npy has shape .* batch"):
                read(put(tmp_path / "x.npy", x))

    @pytest.mark.parametrize("x", [np.zeros((2, 3), int), np.zeros((2, 3), bool), np.zeros((2, 3), complex)])
    def test_other_dtypes(self, x: NDArray[Any], tmp_path: Path) -> None:
        with pytest.raises(SampleError, match=f"{x.dtype}") as caught:
            read(put(tmp_path / "x.npy", x))
        assert ("`.astype(np.float32)`" in str(caught.value)) == (x.dtype != complex)

    def test_files_that_hold_no_plain_array(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npy"
        np.save(path, np.array([{}, []], object), allow_pickle=True)
        with pytest.raises(SampleError, match=r"x\.npy cannot be read"):
            read(path)
        for content in (b"", b"no array at all"):
            path.write_bytes(content)
            with pytest.raises(SampleError, match=r"x\.npy cannot be read"):
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
    def test_damaged_headers(self, header: str, tmp_path: Path) -> None:
        path = tmp_path / "x.npy"
        path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n" + bytes(999))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(SampleError, match=r"x\.npy cannot be read as a \.npy file"):
                read(path)

    @pipes
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "x.npy")
        with pytest.raises(SampleError, match=r"x\.npy is not a file"):
            read(tmp_path / "x.npy")

    def test_an_array_that_changes_after_it_was_checked(self, tmp_path: Path) -> None:
        found = read(put(tmp_path / "x.npy", pixels(3, 4)))
        put(tmp_path / "x.npy", pixels(2, 4))
        with pytest.raises(SampleError, match=r"x\.npy has changed"):
            everything(found)

    def test_a_terminal_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", StringIO())
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        with pytest.raises(SampleError, match=r"- is standard input.*give it a \.npy file"):
            samples.read(["-"])

    def test_resize_is_for_pictures(self, tmp_path: Path) -> None:
        with pytest.raises(SampleError, match="--resize is for pictures"):
            read(put(tmp_path / "x.npy", pixels(3, 4)), resize=(4, 3))

    @pytest.mark.parametrize("out", ["y.npy", "folder"])
    def test_writing(self, out: str, tmp_path: Path) -> None:
        x = pixels(3, 2, 2)
        with read(put(tmp_path / "x.npy", x)).writer(tmp_path / "new" / out) as write:
            write(x[:2].astype(np.float32))
            write(x[2:].astype(np.float32))
        place = tmp_path / "new" / out
        written = np.load(place / "x.npy" if out == "folder" else place)
        assert written.dtype == np.float32
        np.testing.assert_array_equal(written, x)

    def test_one_sample_is_written_as_one(self, tmp_path: Path) -> None:
        with read(put(tmp_path / "x.npy", pixels(2, 2)), (2, 2)).writer(tmp_path / "y.npy") as write:
            write(np.ones((1, 2, 2), np.float32))
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.ones((2, 2)))

    def test_a_failure_leaves_an_old_file_and_nothing_else(self, tmp_path: Path) -> None:
        found = read(put(tmp_path / "x.npy", pixels(3, 2)))
        (tmp_path / "y.npy").write_bytes(b"old")
        with pytest.raises(ZeroDivisionError), found.writer(tmp_path / "y.npy"):
            raise ZeroDivisionError
        assert (tmp_path / "y.npy").read_bytes() == b"old"
        assert {path.name for path in tmp_path.iterdir()} == {"x.npy", "y.npy"}

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk at hand")
    def test_a_full_disk_is_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = read(put(tmp_path / "x.npy", pixels(2, 100_000)))
        open_file = Path.open

        def open_full(self: Path, *options: Any) -> Any:
            return open_file(Path("/dev/full"), "wb") if self.suffix == ".tmp" else open_file(self, *options)

        monkeypatch.setattr(Path, "open", open_full)
        with pytest.raises(OSError, match=r"No space left.*y\.npy"), found.writer(tmp_path / "y.npy") as write:
            write(np.zeros((2, 100_000), np.float32))
        assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]

    def test_not_over_itself(self, tmp_path: Path) -> None:
        path = put(tmp_path / "x.npy", pixels(3, 2))
        with pytest.raises(SampleError, match="--out"), read(path).writer(tmp_path):
            pass


class TestSeveral:
    def test_in_the_order_given(self, tmp_path: Path) -> None:
        x = pixels(6, 4, 5)
        put(tmp_path / "a.npy", x[:2])
        put(tmp_path / "z.png", x[2])
        put(tmp_path / "in" / "b.png", x[3])
        put(tmp_path / "in" / "c" / "d.png", x[4])
        put(tmp_path / "one.npy", x[5])
        found = samples.read([str(tmp_path / name) for name in ("a.npy", "z.png", "in", "one.npy")])
        assert found.names == ["a.npy[0]", "a.npy[1]", "z.png", "in/b.png", "in/c/d.png", "one.npy"]
        assert (len(found), found.shape, len(found.parts)) == (6, (4, 5), 3)
        np.testing.assert_array_equal(everything(found), x)

    def test_from_a_number_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(common, "CHUNK", 2)
        x = pixels(8, 4, 5)
        put(tmp_path / "a.npy", x[:3])
        for n in range(3, 8):
            put(tmp_path / "in" / f"{n}.png", x[n])
        found = samples.read([str(tmp_path / "a.npy"), str(tmp_path / "in")])
        for start in range(9):
            np.testing.assert_array_equal(np.concatenate([x[:0], *found.chunks(start)]), x[start:])
        for count, files in ((0, []), (1, ["a.npy"]), (3, ["a.npy"]), (5, ["a.npy", "in/3.png", "in/4.png"])):
            assert found.files_of(count) == [str(tmp_path / file) for file in files]

    def test_patterns_are_sorted_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        x = pixels(4, 4, 5)
        for name, values in zip(("p/b/1.png", "p/a/2.PNG", "p/3.jpg", "p/.hidden/4.png"), x):
            put(tmp_path / name, values)
        (tmp_path / "p" / "notes.txt").write_text("no picture")
        put(tmp_path / "p" / "x.npy", x)
        monkeypatch.chdir(tmp_path)
        for pattern, names in (
            ("p/**/*.[pP]*", ["a/2.PNG", "b/1.png"]),
            ("p/*", ["3.jpg", "x.npy[0]", "x.npy[1]", "x.npy[2]", "x.npy[3]"]),
            ("p/**", ["3.jpg", "a/2.PNG", "b/1.png", *(f"x.npy[{n}]" for n in range(4))]),
            ("p/b/?.png", ["1.png"]),
        ):
            assert samples.read([pattern]).names == names
            assert samples.read([str(tmp_path / pattern)]).names == names
        for pattern in ("p/*.gif", "p/*.txt", "nowhere/**/*.png", "p/[b]"):
            with pytest.raises(SampleError, match=rf"no picture .* matches {re.escape(pattern)}$"):
                samples.read(["p", pattern])

    def test_a_name_that_looks_like_a_pattern(self, tmp_path: Path) -> None:
        assert read(put(tmp_path / "a[1].png", pixels(4, 5))).names == ["a[1].png"]

    def test_more_files_than_may_be_open(self, tmp_path: Path) -> None:
        resource = pytest.importorskip("resource")
        x = pixels(40, 2, 4, 5)
        for n, values in enumerate(x):
            put(tmp_path / f"{n:02}.npy", values)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(list(Path("/dev/fd").iterdir())) if Path("/dev/fd").exists() else 64
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
        try:
            found = samples.read([str(tmp_path / "*.npy")])
            with found.writer(tmp_path / "out") as write:
                for chunk in found.chunks():
                    write(chunk.astype(np.float32))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for n, values in enumerate(x):
            np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{n:02}.npy"), values)

    def test_one_shape_for_all(self, tmp_path: Path) -> None:
        array, grey, color = (
            str(put(tmp_path / "a.npy", pixels(2, 4, 5))),
            str(put(tmp_path / "b.png", pixels(4, 5))),
            str(put(tmp_path / "c.png", pixels(4, 5, 3))),
        )
        assert samples.read([grey, color]).shape == (4, 5, 3)
        assert samples.read([color, str(put(tmp_path / "d.npy", pixels(2, 4, 5, 3))), grey]).shape == (4, 5, 3)
        with pytest.raises(SampleError, match=r"c\.png is a color picture, but .*a\.npy holds grey ones"):
            samples.read([color, array])
        with pytest.raises(
            SampleError, match=r"e\.npy has shape \(2, 5, 4\), but .*a\.npy holds samples of shape \(4, 5\)"
        ):
            samples.read([array, str(put(tmp_path / "e.npy", pixels(2, 5, 4)))])
        with pytest.raises(SampleError, match=r"f\.png has 4x5 pixels, but .*a\.npy holds 5x4"):
            samples.read([str(put(tmp_path / "f.png", pixels(5, 4))), array])
        assert samples.read([str(tmp_path / "f.png"), array], resize=(5, 4)).shape == (4, 5)

    def test_writing_keeps_places_below_the_shared_folder(self, tmp_path: Path) -> None:
        x = pixels(5, 4, 5)
        for name, values in zip(("in/a/1.jpg", "in/b/1.png"), x):
            put(tmp_path / name, values)
        put(tmp_path / "in" / "b" / "x.npy", x[2:4])
        put(tmp_path / "in" / "c" / "2.bmp", x[4])
        sources = [str(tmp_path / "in" / name) for name in ("a/1.jpg", "c/../b/1.png", "b/x.npy", "c")]
        found = samples.read(sources, (4, 5))
        with found.writer(tmp_path / "out") as write:
            for n in (0, 2, 4):
                write(x[n : n + 2].astype(np.float32) / np.float32(1 if n == 2 else 255))
        for name, values in (("a/1.png", x[0]), ("b/1.png", x[1]), ("c/2.png", x[4])):
            np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out" / name)), values)
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "b" / "x.npy"), x[2:4])
        assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == 4
        for name in ("new.npy", "new.png"):
            with pytest.raises(SampleError, match=f"{name} is named like a file"), found.writer(tmp_path / name):
                pass
        (tmp_path / "new.npy").mkdir()
        with found.writer(tmp_path / "new.npy") as write:
            write(x[:2].astype(np.float32))
        assert (tmp_path / "new.npy" / "b" / "1.png").is_file()

    def test_files_that_are_given_twice(self, tmp_path: Path) -> None:
        path = str(put(tmp_path / "a.png", pixels(4, 5)))
        found = samples.read([path, path])
        assert len(found) == 2
        with pytest.raises(SampleError, match=r"both be written to .*leave one out"), found.writer(tmp_path / "out"):
            pass


class TestSkipping:
    @pytest.fixture
    def mixed(self, tmp_path: Path) -> Path:
        """A folder of two good pictures, and one of every kind of bad ones."""
        for name in ("a.png", "b.png"):
            put(tmp_path / "in" / name, pixels(20, 10))
        put(tmp_path / "in" / "deep.png", pixels(20, 10).astype(np.uint16))
        put(tmp_path / "in" / "large.png", pixels(21, 10))
        cut = put(tmp_path / "in" / "cut.png", pixels(20, 10))
        cut.write_bytes(cut.read_bytes()[:-60])
        (tmp_path / "in" / "empty.jpg").touch()
        return tmp_path / "in"

    def test_the_good_ones_are_left(self, mixed: Path) -> None:
        found = samples.read([str(mixed)], skip_bad=True)
        assert found.names == ["a.png", "b.png"]
        np.testing.assert_array_equal(everything(found), [pixels(20, 10)] * 2)
        assert {Path(file).name for file in found.skipped} == {"deep.png", "large.png", "cut.png", "empty.jpg"}
        assert all(file in reason for file, reason in found.skipped.items())

    def test_otherwise_all_are_named(self, mixed: Path) -> None:
        with pytest.raises(SampleError, match="3 files cannot be used: ") as caught:
            read(mixed)
        for name in ("deep.png", "large.png", "empty.jpg"):
            assert str(mixed / name) in str(caught.value)

    def test_all_that_are_damaged_are_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(common, "CHUNK", 2)
        for n in range(30):
            path = put(tmp_path / f"{n:02}.png", pixels(20, 10))
            if n > 5:
                path.write_bytes(path.read_bytes()[:-60])
        chunks = read(tmp_path).chunks()
        with pytest.raises(SampleError, match=r"24 files cannot be used: .*06.*25.* and 4 more$") as caught:
            list(chunks)
        assert "26.png" not in str(caught.value)

    def test_nothing_left_is_an_error(self, mixed: Path) -> None:
        with pytest.raises(SampleError, match=r"empty\.jpg cannot be read"):
            samples.read([str(mixed / "empty.jpg")], skip_bad=True)

    def test_arrays_and_other_files(self, tmp_path: Path) -> None:
        good = str(put(tmp_path / "a.npy", pixels(2, 4, 5)))
        bad = [str(put(tmp_path / "b.npy", pixels(2, 5, 5))), str(tmp_path / "c.npy"), str(tmp_path / "notes.txt")]
        for file in bad[1:]:
            Path(file).write_text("text")
        found = samples.read([good, *bad], skip_bad=True)
        assert found.names == ["0", "1"]
        assert [*found.skipped] == bad

    def test_what_is_not_there_is_never_skipped(self, tmp_path: Path) -> None:
        put(tmp_path / "a.png", pixels(4, 5))
        for missing in ("nowhere", "*.gif"):
            with pytest.raises(SampleError, match=re.escape(missing)):
                samples.read([str(tmp_path), str(tmp_path / missing)], skip_bad=True)


class TestMasks:
    MASK = np.array([[True, False], [False, True], [True, True]])

    @pytest.mark.parametrize("name", ["m.png", "m.npy"])
    def test_for_grey_and_for_all_channels(self, name: str, tmp_path: Path) -> None:
        path = put(tmp_path / name, self.MASK)
        np.testing.assert_array_equal(read_mask(path, (3, 2)), self.MASK)
        np.testing.assert_array_equal(read_mask(path, (3, 2, 3)), np.stack([self.MASK] * 3, axis=2))

    def test_any_color_but_black_was_seen(self, tmp_path: Path) -> None:
        colors = np.zeros((3, 2, 3), np.uint8)
        colors[self.MASK] = [[1, 0, 0], [0, 9, 0], [0, 0, 1], [255, 255, 255]]
        np.testing.assert_array_equal(read_mask(put(tmp_path / "m.png", colors), (3, 2)), self.MASK)

    def test_channel_by_channel(self, tmp_path: Path) -> None:
        mask = pixels(3, 2, 3) > 100
        np.testing.assert_array_equal(read_mask(put(tmp_path / "m.npy", mask), (3, 2, 3)), mask)

    def test_resized_with_the_pictures(self, tmp_path: Path) -> None:
        path = put(tmp_path / "m.png", np.kron(self.MASK, np.ones((4, 4), bool)))
        np.testing.assert_array_equal(read_mask(path, (3, 2), (2, 3)), self.MASK)

    @pipes
    @pytest.mark.parametrize("name", ["m.png", "m.npy"])
    def test_a_pipe_is_not_waited_for(self, name: str, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / name)
        with pytest.raises(SampleError, match=rf"{name} is not a file"):
            read_mask(tmp_path / name, (3, 2))

    def test_what_does_not_fit(self, tmp_path: Path) -> None:
        with pytest.raises(SampleError, match=r"m\.png has shape \(3, 2\).*\(2, 3\)"):
            read_mask(put(tmp_path / "m.png", self.MASK), (2, 3))
        with pytest.raises(SampleError, match=r"m\.npy must be boolean.*uint8"):
            read_mask(put(tmp_path / "m.npy", pixels(3, 2)), (3, 2))


def test_what_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"there is no .*nowhere"):
        read(tmp_path / "nowhere")
    with pytest.raises(SampleError, match="holds no pictures"):
        read(tmp_path)
    (tmp_path / "x.txt").write_text("text")
    with pytest.raises(SampleError, match=r"x\.txt is neither"):
        read(tmp_path / "x.txt")


@pytest.mark.parametrize("text", ["", "64", "64x", "x48", "0x5", "-3x5", "64x48x3", "ax5", "6.5x4", "²x5"])
def test_sizes_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="WIDTHxHEIGHT"):
        parse_size(text)


@pytest.mark.parametrize("text", ["100000x100000", "99999999999999999999x1", "1x" + "9" * 5000, "89478486x1"])
def test_sizes_that_nobody_paints(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is too large: a picture may have up to 89,478,485 pixels"):
        parse_size(text)


def test_sizes_up_to_the_limit() -> None:
    assert parse_size("89478485x1") == (89_478_485, 1)
    assert parse_size("0064X048") == (64, 48)
