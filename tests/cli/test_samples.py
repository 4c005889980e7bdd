"""Samples of several files, unusable files, masks and sizes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import typer

from sqhn.cli.options import Size, parse_size
from sqhn.cli.samples import read_mask
from tests.cli.commands import everything, load_image, pixels, posix, put, read


def test_samples_come_in_the_given_order(tmp_path: Path) -> None:
    x = pixels(6, 4, 5)
    put(tmp_path / "a.npy", x[:2])
    put(tmp_path / "z.png", x[2])
    put(tmp_path / "in" / "b.png", x[3])
    put(tmp_path / "in" / "c" / "d.png", x[4])
    put(tmp_path / "one.npy", x[5])
    found = read(*(tmp_path / name for name in ("a.npy", "z.png", "in", "one.npy")))
    assert found.names == ["a.npy[0]", "a.npy[1]", "z.png", "in/b.png", "in/c/d.png", "one.npy"]
    assert (len(found), found.shape, len(found.parts)) == (6, (4, 5), 3)
    np.testing.assert_array_equal(everything(found), x)


def test_samples_from_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqhn.cli.samples.files.CHUNK_SAMPLES", 2)
    x = pixels(8, 4, 5)
    put(tmp_path / "a.npy", x[:3])
    for n in range(3, 8):
        put(tmp_path / "in" / f"{n}.png", x[n])
    found = read(tmp_path / "a.npy", tmp_path / "in")
    for start in range(9):
        np.testing.assert_array_equal(np.concatenate([x[:0], *found.chunks(start)]), x[start:])
    for count, files in ((0, []), (1, ["a.npy"]), (3, ["a.npy"]), (5, ["a.npy", "in/3.png", "in/4.png"])):
        assert found.files_of(count) == [str(tmp_path / file) for file in files]


def test_patterns_are_sorted_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = pixels(4, 4, 5)
    for name, values in zip(("p/b/1.png", "p/a/2.PNG", "p/3.jpg", "p/.hidden/4.png"), x):
        put(tmp_path / name, values)
    (tmp_path / "p" / "notes.txt").write_text("not an image")
    put(tmp_path / "p" / "x.npy", x)
    monkeypatch.chdir(tmp_path)
    for pattern, names in (
        ("p/**/*.[pP]*", ["a/2.PNG", "b/1.png"]),
        ("p/*", ["3.jpg", "x.npy[0]", "x.npy[1]", "x.npy[2]", "x.npy[3]"]),
        ("p/**", ["3.jpg", "a/2.PNG", "b/1.png", *(f"x.npy[{n}]" for n in range(4))]),
        ("p/b/?.png", ["1.png"]),
    ):
        assert read(pattern).names == names
        assert read(tmp_path / pattern).names == names
    for pattern in ("p/*.gif", "p/*.txt", "nowhere/**/*.png", "p/[b]"):
        with pytest.raises(ValueError, match=rf"no image .* matches {re.escape(pattern)}$"):
            read("p", pattern)


def test_a_name_that_looks_like_a_pattern(tmp_path: Path) -> None:
    assert read(put(tmp_path / "a[1].png", pixels(4, 5))).names == ["a[1].png"]


def test_more_files_than_may_be_open(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    x = pixels(40, 2, 4, 5)
    for n, values in enumerate(x):
        put(tmp_path / f"{n:02}.npy", values)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/dev/fd").iterdir())) if Path("/dev/fd").exists() else 64
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
    try:
        found = read(tmp_path / "*.npy")
        found.write(tmp_path / "out", (chunk.astype(np.float32) for chunk in found.chunks()))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for n, values in enumerate(x):
        np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{n:02}.npy"), values)


def test_all_samples_have_one_shape(tmp_path: Path) -> None:
    array = put(tmp_path / "a.npy", pixels(2, 4, 5))
    gray, color = put(tmp_path / "b.png", pixels(4, 5)), put(tmp_path / "c.png", pixels(4, 5, 3))
    assert read(gray, color).shape == (4, 5, 3)
    assert read(color, put(tmp_path / "d.npy", pixels(2, 4, 5, 3)), gray).shape == (4, 5, 3)
    with pytest.raises(ValueError, match=r"c\.png is a color image, but .*a\.npy holds gray ones"):
        read(color, array)
    other = put(tmp_path / "e.npy", pixels(2, 5, 4))
    with pytest.raises(ValueError, match=r"e\.npy has shape \(2, 5, 4\), but .*a\.npy holds samples of shape \(4, 5\)"):
        read(array, other)
    wide = put(tmp_path / "f.png", pixels(5, 4))
    with pytest.raises(ValueError, match=r"1 of 1 images has another size \(4x5\), but .*a\.npy holds images of 5x4"):
        read(wide, array)
    assert read(wide, array, resize=Size(5, 4)).shape == (4, 5)


def test_output_keeps_places_below_the_shared_folder(tmp_path: Path) -> None:
    x = pixels(5, 4, 5)
    for name, values in zip(("in/a/1.jpg", "in/b/1.png"), x):
        put(tmp_path / name, values)
    put(tmp_path / "in" / "b" / "x.npy", x[2:4])
    put(tmp_path / "in" / "c" / "2.bmp", x[4])
    sources = [tmp_path / "in" / name for name in ("a/1.jpg", "c/../b/1.png", "b/x.npy", "c")]
    found = read(*sources, shape=(4, 5))
    recalled = [x[n : n + 2].astype(np.float32) / np.float32(1 if n == 2 else 255) for n in (0, 2, 4)]
    found.write(tmp_path / "out", iter(recalled))
    for name, values in (("a/1.png", x[0]), ("b/1.png", x[1]), ("c/2.png", x[4])):
        np.testing.assert_array_equal(load_image(tmp_path / "out" / name), values)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "b" / "x.npy"), x[2:4])
    assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == 4
    for name in ("new.npy", "new.png"):
        with pytest.raises(ValueError, match=f"{name} looks like a file"):
            found.write(tmp_path / name, iter([]))
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(NotADirectoryError, match="notes is not a folder: name a folder, or"):
        found.write(tmp_path / "notes", iter([]))
    (tmp_path / "new.npy").mkdir()
    found.write(tmp_path / "new.npy", iter(recalled))
    assert (tmp_path / "new.npy" / "b" / "1.png").is_file()


def test_a_file_that_is_given_twice(tmp_path: Path) -> None:
    path = put(tmp_path / "a.png", pixels(4, 5))
    found = read(path, path)
    assert len(found) == 2
    with pytest.raises(ValueError, match=r"both be written to .*leave one out"):
        found.write(tmp_path / "out", iter([]))


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder of two good images, and one of every kind of unusable ones."""
    for name in ("a.png", "b.png"):
        put(tmp_path / "in" / name, pixels(20, 10))
    put(tmp_path / "in" / "deep.png", pixels(20, 10).astype(np.uint16))
    put(tmp_path / "in" / "large.png", pixels(21, 10))
    cut = put(tmp_path / "in" / "cut.png", pixels(20, 10))
    cut.write_bytes(cut.read_bytes()[:-60])
    (tmp_path / "in" / "empty.jpg").touch()
    return tmp_path / "in"


def test_unusable_files_are_skipped(mixed: Path) -> None:
    found = read(mixed, skip_bad=True)
    assert found.names == ["a.png", "b.png"]
    np.testing.assert_array_equal(everything(found), [pixels(20, 10)] * 2)
    assert {Path(file).name for file in found.skipped} == {"deep.png", "large.png", "cut.png", "empty.jpg"}
    large = found.skipped.pop(str(mixed / "large.png"))
    assert large == f"1 of 4 images has another size (10x21), but {mixed / 'a.png'} has 10x20: give --resize 10x20"
    assert all(file in reason for file, reason in found.skipped.items())


def test_the_error_names_all_unusable_files(mixed: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^3 files cannot be used: .* \(--skip-bad leaves such files out\)$"
    ) as caught:
        read(mixed)
    for name in ("deep.png", "empty.jpg"):
        assert str(mixed / name) in str(caught.value)


def test_the_error_names_all_damaged_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqhn.cli.samples.files.CHUNK_SAMPLES", 2)
    for n in range(30):
        path = put(tmp_path / f"{n:02}.png", pixels(20, 10))
        if n > 5:
            path.write_bytes(path.read_bytes()[:-60])
    chunks = read(tmp_path).chunks()
    with pytest.raises(
        ValueError, match=r"24 files cannot be used: .*06.*25.* and 4 more \(--skip-bad leaves such files out\)$"
    ) as caught:
        list(chunks)
    assert "26.png" not in str(caught.value)


def test_no_usable_file_is_an_error(mixed: Path) -> None:
    with pytest.raises(ValueError, match=r"empty\.jpg cannot be read as an image: it is none of PNG, .*, AVIF$"):
        read(mixed / "empty.jpg", skip_bad=True)


def test_unusable_arrays_and_other_files_are_skipped(tmp_path: Path) -> None:
    good = str(put(tmp_path / "a.npy", pixels(2, 4, 5)))
    bad = [str(put(tmp_path / "b.npy", pixels(2, 5, 5))), str(tmp_path / "c.npy"), str(tmp_path / "notes.txt")]
    for file in bad[1:]:
        Path(file).write_text("text")
    found = read(good, *bad, skip_bad=True)
    assert found.names == ["0", "1"]
    assert [*found.skipped] == bad


def test_missing_files_are_never_skipped(tmp_path: Path) -> None:
    put(tmp_path / "a.png", pixels(4, 5))
    for missing in ("nowhere", "*.gif"):
        with pytest.raises(ValueError, match=re.escape(missing)):
            read(tmp_path, tmp_path / missing, skip_bad=True)


MASK = np.array([[True, False], [False, True], [True, True]])


@pytest.mark.parametrize("name", ["m.png", "m.npy"])
def test_a_mask_for_gray_images_and_for_all_channels(name: str, tmp_path: Path) -> None:
    path = put(tmp_path / name, MASK)
    np.testing.assert_array_equal(read_mask(path, (3, 2)), MASK)
    np.testing.assert_array_equal(read_mask(path, (3, 2, 3)), np.stack([MASK] * 3, axis=2))


def test_every_color_except_black_is_observed(tmp_path: Path) -> None:
    colors = np.zeros((3, 2, 3), np.uint8)
    colors[MASK] = [[1, 0, 0], [0, 9, 0], [0, 0, 1], [255, 255, 255]]
    np.testing.assert_array_equal(read_mask(put(tmp_path / "m.png", colors), (3, 2)), MASK)


def test_a_mask_for_each_channel(tmp_path: Path) -> None:
    mask = pixels(3, 2, 3) > 100
    np.testing.assert_array_equal(read_mask(put(tmp_path / "m.npy", mask), (3, 2, 3)), mask)


def test_a_mask_is_resized_with_the_images(tmp_path: Path) -> None:
    path = put(tmp_path / "m.png", np.kron(MASK, np.ones((4, 4), bool)))
    np.testing.assert_array_equal(read_mask(path, (3, 2)), MASK)


@posix
@pytest.mark.parametrize("name", ["m.png", "m.npy"])
def test_a_pipe_is_no_mask(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=rf"{name} is not a file"):
        read_mask(tmp_path / name, (3, 2))


def test_masks_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"m\.png has shape \(3, 2\).*\(6,\)"):
        read_mask(put(tmp_path / "m.png", MASK), (6,))
    with pytest.raises(ValueError, match=r"m\.npy must be boolean.*uint8"):
        read_mask(put(tmp_path / "m.npy", pixels(3, 2)), (3, 2))


def test_invalid_sources(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no .*nowhere"):
        read(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds no images"):
        read(tmp_path)
    (tmp_path / "x.txt").write_text("text")
    with pytest.raises(ValueError, match=r"x\.txt is neither"):
        read(tmp_path / "x.txt")


@pytest.mark.parametrize("text", ["", "64", "64x", "x48", "0x5", "-3x5", "64x48x3", "ax5", "6.5x4", "²x5"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="WIDTHxHEIGHT"):
        parse_size(text)


@pytest.mark.parametrize("text", ["100000x100000", "99999999999999999999x1", "1x" + "9" * 5000, "89478486x1"])
def test_sizes_that_are_too_large(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=f"'{text}' is too large: an image may have up to 89,478,485 pixels"):
        parse_size(text)


def test_sizes_up_to_the_limit() -> None:
    assert parse_size("89478485x1") == (89_478_485, 1)
    assert parse_size("0064X048") == (64, 48)
