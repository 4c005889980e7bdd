"""Samples in image files."""

from __future__ import annotations

import os
import struct
import threading
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sqhn.banks.cpu.threads import get_num_threads
from sqhn.cli.options import Size
from sqhn.cli.samples import images
from sqhn.cli.samples.files import chunk_length
from sqhn.cli.samples.images import Images
from tests.cli.commands import Pixels, everything, image_folder, load_image, pixels, posix, put, read


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    x = pixels(4, 6, 5)
    for name, values in zip(("b/c/0.png", "a.png", "b/d.PNG", "B.png"), x):
        put(tmp_path / name, values)
    put(tmp_path / ".hidden.png", x[0])
    put(tmp_path / ".trash" / "x.png", x[0])
    (tmp_path / "notes.txt").write_text("not an image")
    found = read(tmp_path)
    assert found.names == ["B.png", "a.png", "b/c/0.png", "b/d.PNG"]
    assert found.shape == (6, 5)
    np.testing.assert_array_equal(everything(found), x[[3, 1, 0, 2]])


def test_one_image(tmp_path: Path) -> None:
    found = read(put(tmp_path / "a.png", pixels(6, 5, 3)))
    assert (found.names, found.shape) == (["a.png"], (6, 5, 3))
    np.testing.assert_array_equal(everything(found), pixels(6, 5, 3)[None])


def test_jpeg(tmp_path: Path) -> None:
    for name, shape in (("a.jpg", (16, 8)), ("b.jpeg", (16, 8, 3))):
        path = put(tmp_path / name, np.full(shape, 100, np.uint8))
        assert read(path).shape == shape
        np.testing.assert_allclose(everything(read(path)), 100, atol=2)


@pytest.mark.parametrize("name", ["a.webp", "a.bmp", "a.gif"])
def test_other_formats(name: str, tmp_path: Path) -> None:
    colors = np.repeat(pixels(1, 6, 3), 4, axis=0)  # few enough for a palette
    found = read(put(tmp_path / name, colors, **({"lossless": True} if name == "a.webp" else {})))
    assert (found.names, found.shape) == ([name], (4, 6, 3))
    np.testing.assert_array_equal(everything(found)[0], colors)


@pytest.mark.parametrize(("name", "shape"), [("a.webp", (4, 6, 3)), ("a.bmp", (4, 6)), ("a.gif", (4, 6, 3))])
def test_formats_that_can_be_gray(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    assert read(put(tmp_path / name, pixels(4, 6))).shape == shape


@pytest.mark.parametrize("name", ["a.webp", "a.gif", "a.png"])
def test_the_first_frame_of_an_animation(name: str, tmp_path: Path) -> None:
    black, *later = [Image.fromarray(np.full((4, 6, 3), value, np.uint8)) for value in (0, 100, 255)]
    black.save(tmp_path / name, save_all=True, append_images=later)
    np.testing.assert_array_equal(everything(read(tmp_path / name)), np.zeros((1, 4, 6, 3)))


def test_a_mixed_folder_is_color(tmp_path: Path) -> None:
    gray, color = pixels(4, 4), pixels(4, 4, 3)
    put(tmp_path / "a.png", gray)
    put(tmp_path / "b.png", color)
    np.testing.assert_array_equal(everything(read(tmp_path)), [np.stack([gray] * 3, axis=2), color])


def test_gray_images_for_a_color_memory(tmp_path: Path) -> None:
    gray = pixels(4, 4)
    found = read(put(tmp_path / "a.png", gray), shape=(4, 4, 3))
    np.testing.assert_array_equal(everything(found)[0], np.stack([gray] * 3, axis=2))


def test_a_color_image_for_a_gray_memory(tmp_path: Path) -> None:
    put(tmp_path / "a.png", pixels(4, 4))
    put(tmp_path / "b.png", pixels(4, 4, 3))
    with pytest.raises(ValueError, match=r"b\.png is a color image, but the memory holds gray"):
        read(tmp_path, shape=(4, 4))


@pytest.mark.parametrize("mode", ["RGBA", "P", "LA"])
def test_palettes_and_transparency_are_color(mode: str, tmp_path: Path) -> None:
    image = Image.fromarray(pixels(4, 4, 4)).convert("RGB").convert(mode)
    path = tmp_path / "a.png"
    image.save(path)
    assert read(path).shape == (4, 4, 3)
    np.testing.assert_array_equal(everything(read(path))[0], np.asarray(image.convert("RGB")))


def test_transparent_colors_of_a_palette_keep_their_color(tmp_path: Path) -> None:
    image = Image.fromarray(pixels(4, 4, 3)).convert("P")
    image.save(tmp_path / "a.png", transparency=bytes(range(200)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = everything(read(tmp_path))
    np.testing.assert_array_equal(found[0], np.asarray(image.convert("RGB")))


def test_black_and_white(tmp_path: Path) -> None:
    put(tmp_path / "a.png", pixels(4, 4) > 100)
    np.testing.assert_array_equal(everything(read(tmp_path))[0], np.where(pixels(4, 4) > 100, 255, 0))


def test_sixteen_bits_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "a.png", pixels(4, 4).astype(np.uint16) * 100)
    with pytest.raises(ValueError, match=r"a\.png has more than 8 bits.*convert"):
        read(tmp_path)


def test_sizes_that_differ(tmp_path: Path) -> None:
    put(tmp_path / "a.png", pixels(4, 6))
    put(tmp_path / "b.jpg", pixels(8, 7))
    message = r"^1 of 2 images has another size \(7x8\), but .*a\.png has 6x4: give --resize 6x4 \(--skip-bad "
    with pytest.raises(ValueError, match=message):
        read(tmp_path)
    for n in range(3):
        put(tmp_path / f"c{n}.png", pixels(9, n + 1))
    with pytest.raises(ValueError, match=r"^4 of 5 images have other sizes \(7x8, 1x9, 2x9, \.\.\.\), but "):
        read(tmp_path)


@pytest.mark.parametrize(("count", "line"), [(1, "1 image is"), (2, "2 images are")])
def test_images_are_scaled_to_the_size_of_a_memory(
    count: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "a.png", pixels(4, 6))
    for n in range(count):
        put(tmp_path / f"b{n}.png", np.full((9, 9 + n), 7, np.uint8))
    found = read(tmp_path, shape=(4, 6))
    assert capsys.readouterr().err == f"{line} scaled to 6x4, the size of the memory\n"
    np.testing.assert_array_equal(everything(found), [pixels(4, 6), *[np.full((4, 6), 7)] * count])
    assert capsys.readouterr().err == ""


def test_the_first_image_that_can_be_decoded_gives_the_size(tmp_path: Path) -> None:
    cut = put(tmp_path / "a.png", pixels(30, 30))
    cut.write_bytes(cut.read_bytes()[:-60])
    put(tmp_path / "b.png", pixels(4, 6))
    with pytest.raises(ValueError, match=r"a\.png cannot be read as an image"):
        read(tmp_path)
    found = read(tmp_path, skip_bad=True)
    assert (found.names, found.shape, [*found.skipped]) == (["b.png"], (4, 6), [str(cut)])


ARROW = np.array([[9, 200, 30], [60, 90, 255]], np.uint8).repeat(8, 0).repeat(8, 1)  # no symmetry
TURNED = {  # by the definition of EXIF: the first stored row and column are these sides of the upright image
    1: ARROW,  # top, left
    2: ARROW[:, ::-1],  # top, right
    3: ARROW[::-1, ::-1],  # bottom, right
    4: ARROW[::-1],  # bottom, left
    5: ARROW.T,  # left, top
    6: ARROW.T[::-1],  # right, top
    7: ARROW.T[::-1, ::-1],  # right, bottom
    8: ARROW.T[:, ::-1],  # left, bottom
    99: ARROW,  # no orientation
}


@pytest.mark.parametrize("orientation", TURNED)
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp", "a.tif"])
def test_images_are_turned_as_their_exif_data_say(name: str, orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    quality = {"lossless": True} if name == "a.webp" else {"quality": 100} if name == "a.jpg" else {}
    put(tmp_path / name, TURNED[orientation], exif=exif, **quality)
    found = read(tmp_path)
    pixels = everything(found)[0].astype(int)
    gray = pixels if pixels.ndim == 2 else pixels[..., 0]
    assert found.shape[:2] == ARROW.shape
    assert np.abs(gray - ARROW).max() <= 3
    image, size = images.preview(tmp_path / name, 24)
    assert (image.size, size) == ((24, 16), (24, 16))
    assert np.abs(np.asarray(image)[..., 0].astype(int) - ARROW).max() <= 3


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_data_are_ignored(tmp_path: Path) -> None:
    put(tmp_path / "a.jpg", ARROW, exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xffnonsense")
    assert read(tmp_path).shape == ARROW.shape


@pytest.mark.parametrize("name", ["a.tif", "a.TIFF"])
def test_tiff_of_eight_bits(name: str, tmp_path: Path) -> None:
    for shape in ((6, 5), (6, 5, 3)):
        Image.fromarray(pixels(*shape)).save(tmp_path / name, "TIFF")
        np.testing.assert_array_equal(everything(read(tmp_path))[0], pixels(*shape))
    Image.fromarray(pixels(6, 5).astype(np.uint16)).save(tmp_path / name, "TIFF")
    with pytest.raises(ValueError, match="has more than 8 bits"):
        read(tmp_path)


def test_formats_that_are_not_read_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "a.png", pixels(4, 5))
    for name in ("b.HEIC", "c/d.cr2", "e.avif"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"content")
    monkeypatch.setattr("PIL.features.check", lambda _: False)
    unread = [str(tmp_path / name) for name in ("b.HEIC", "c/d.cr2", "e.avif")]
    for source in (tmp_path, f"{tmp_path}/**"):
        found = read(source)
        assert capsys.readouterr().err == f"3 files are in a format that is not read: {', '.join(unread)}\n"
        assert (found.names, [*found.skipped]) == (["a.png"], unread)
    with pytest.raises(ValueError, match=r"c holds no images of a format that is read, only .*d\.cr2$"):
        read(tmp_path / "c")


def test_resize(tmp_path: Path) -> None:
    put(tmp_path / "a.png", pixels(4, 6))
    put(tmp_path / "b.png", np.full((9, 9), 7, np.uint8))
    found = read(tmp_path, resize=Size(6, 4))
    assert found.shape == (4, 6)
    np.testing.assert_array_equal(everything(found), [pixels(4, 6), np.full((4, 6), 7)])
    again = read(tmp_path, shape=(4, 6), resize=Size(6, 4))
    np.testing.assert_array_equal(everything(again), everything(found))
    with pytest.raises(ValueError, match="the memory holds images of 6x4: --resize 4x6"):
        read(tmp_path, shape=(4, 6), resize=Size(4, 6))


def test_a_memory_of_other_samples(tmp_path: Path) -> None:
    put(tmp_path / "a.png", pixels(4, 6))
    for shape in ((24,), (4, 6, 2), (1, 2, 3, 4)):
        with pytest.raises(ValueError, match="not images"):
            read(tmp_path, shape=shape)


@pytest.mark.parametrize("length", [0, 10, 60])
def test_damaged_images_are_named(length: int, tmp_path: Path) -> None:
    path = put(tmp_path / "a.png", pixels(20, 20))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"a\.png cannot be read as an image"):
        everything(read(tmp_path))


@pytest.mark.parametrize("size", [(100_000, 100_000), (2**31 - 1, 2**31 - 1), (0, 5)])
def test_invalid_sizes_in_headers(size: tuple[int, int], tmp_path: Path) -> None:
    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = part(b"IHDR", struct.pack(">II5B", *size, 8, 0, 0, 0, 0))
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + part(b"IDAT", zlib.compress(bytes(99))) + part(b"IEND", b""))
    with pytest.raises(ValueError, match=r"a\.png cannot be read as an image"):
        read(tmp_path)


@posix
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"a\.png is not a file"):
        read(tmp_path)


def test_an_image_that_changes_after_the_check(tmp_path: Path) -> None:
    found = read(put(tmp_path / "a.png", pixels(4, 4)))
    put(tmp_path / "a.png", pixels(5, 4))
    with pytest.raises(ValueError, match=r"a\.png has changed"):
        everything(found)


@pytest.mark.parametrize("threads", [1, 3])
def test_chunks_come_in_order_and_not_far_ahead(threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqhn.cli.samples.files.CHUNK_SAMPLES", 2)
    x = pixels(25, 3, 3)
    image_folder(tmp_path, x)
    decode, decoded = images.decode, []

    def watch(path: Path, *args: Any) -> Pixels:
        decoded.append(path)
        return decode(path, *args)

    monkeypatch.setattr(images, "decode", watch)
    chunks = Images([str(path) for path in sorted(tmp_path.iterdir())], (3, 3), None, threads).chunks()
    first = [next(chunks)]
    assert len(decoded) <= 2 * (threads + 2)
    rest = list(chunks)
    assert [len(chunk) for chunk in rest] == [2] * 11 + [1]
    np.testing.assert_array_equal(np.concatenate(first + rest), x)


def test_all_images_before_a_damaged_one_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the damage is found while earlier images are still being decoded."""
    monkeypatch.setattr("sqhn.cli.samples.files.CHUNK_SAMPLES", 2)
    x = pixels(7, 3, 3)
    image_folder(tmp_path, x)
    decode, damage_found = images.decode, threading.Event()

    def decode_late(path: Path, *args: Any) -> Pixels:
        if path.name == "005.png":
            damage_found.set()
            raise ValueError("damaged")
        if path.name == "003.png":
            assert damage_found.wait(60)
        return decode(path, *args)

    monkeypatch.setattr(images, "decode", decode_late)
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    chunks = Images(files, (3, 3), None, 3).chunks()
    np.testing.assert_array_equal(np.concatenate([next(chunks), next(chunks)]), x[:4])
    with pytest.raises(ValueError, match="damaged"):
        next(chunks)


def test_large_images_come_in_small_chunks_from_several_threads(tmp_path: Path) -> None:
    (found,) = read(put(tmp_path / "a.png", np.zeros((2000, 3000, 3), np.uint8))).parts
    assert isinstance(found, Images)
    assert chunk_length(found.shape, 1) == 1
    assert found.threads == min(images.DECODING_THREADS, get_num_threads())


def test_writing(tmp_path: Path) -> None:
    x = pixels(3, 4, 4)
    for name, values in zip(("a.png", "b/c.jpg", "d.png"), x):
        put(tmp_path / "in" / name, values)
    recalled = (x.astype(np.float32) + np.float32(0.4)) / np.float32(255)
    read(tmp_path / "in").write(tmp_path / "out" / "new", iter([recalled[:2], recalled[2:]]))
    for name, values in zip(("a.png", "b/c.png", "d.png"), x):
        np.testing.assert_array_equal(load_image(tmp_path / "out" / "new" / name), values)


def test_values_out_of_range_are_black_or_white(tmp_path: Path) -> None:
    put(tmp_path / "a.png", pixels(1, 2))
    read(tmp_path / "a.png").write(tmp_path / "out.png", iter([np.array([[[-3, 1.5]]], np.float32)]))
    np.testing.assert_array_equal(load_image(tmp_path / "out.png"), [[0, 255]])


def test_nothing_is_written_twice_or_over_a_source(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.png", pixels(4, 4))
    put(tmp_path / "in" / "b" / "a.jpg", pixels(4, 4))
    for out in (tmp_path / "in", tmp_path / "other" / ".." / "in"):
        with pytest.raises(ValueError, match=r"overwrite the source .*--out"):
            read(tmp_path / "in").write(out, iter([]))
    put(tmp_path / "in" / "b" / "a.png", pixels(4, 4))
    with pytest.raises(ValueError, match=r"a\.jpg and .*a\.png would both be written to"):
        read(tmp_path / "in").write(tmp_path / "out", iter([]))


def test_one_image_is_written_as_png(tmp_path: Path) -> None:
    path = put(tmp_path / "a.png", pixels(4, 4))
    message = r"out\.jpg must be a folder or end in \.png"
    with pytest.raises(ValueError, match=message):
        read(path).write(tmp_path / "out.jpg", iter([]))
