"""`sqhn duplicates`: groups of images in files, trimming of borders, and the page."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from sqhn.cli.duplicates import trimmed
from sqhn.cli.samples import images
from sqhn.data import photos
from tests.cli.commands import Pixels, error_of, json_of, output_of, pixels, posix, put, sqhn

PHOTOS = np.stack([x for x in photos(64) if x.std() > 50][:60])  # none is nearly of one color


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of 60 photographs, with changed copies of four of them."""
    found = tmp_path / "in"
    for n, x in enumerate(PHOTOS):
        put(found / f"{n:02}.png", x)
    first, second, third, fourth = (Image.fromarray(PHOTOS[n]) for n in (3, 10, 20, 30))
    (found / "again").mkdir()
    first.resize((200, 200)).save(found / "again" / "large.jpg", quality=80)
    ImageOps.expand(second, 9, "black").save(found / "again" / "framed.jpg", quality=80)
    turned = Image.Exif()
    turned[274] = 6  # stored on its side
    third.rotate(90).save(found / "turned.jpg", exif=turned)
    fourth.point(lambda value: value // 2).save(found / "dark.tif")
    return found


GROUPS = [
    {"03.png", "again/large.jpg"},
    {"10.png", "again/framed.jpg"},
    {"20.png", "turned.jpg"},
    {"30.png", "dark.tif"},
]


def groups_of(document: dict[str, Any]) -> list[set[str]]:
    return [{one["name"] for one in group} for group in document["groups"]]


def test_changed_copies_are_grouped(folder: Path) -> None:
    found = json_of("duplicates", folder, "--error", 0.02)
    assert (found["images"], found["error"], found["skipped"]) == (64, 0.02, [])
    for group in GROUPS:
        assert group in groups_of(found)
    group = found["groups"][groups_of(found).index(GROUPS[0])]
    assert [(one["width"], one["height"]) for one in group] == [(200, 200), (64, 64)]  # the largest first
    assert group[0]["bytes"] == (folder / "again" / "large.jpg").stat().st_size
    assert all(one["score"] >= found["threshold"] for group in found["groups"] for one in group)


@posix
def test_a_file_is_no_copy_of_itself(folder: Path) -> None:
    (folder / "link.png").symlink_to(folder / "00.png")
    found = json_of("duplicates", folder, folder / "again", folder / "00.png", "--error", 0.02)
    assert found["images"] == 64


def test_the_output_for_people(folder: Path) -> None:
    text = output_of("duplicates", folder, "--error", 0.02)
    groups = groups_of(json_of("duplicates", folder, "--error", 0.02))
    assert "again/large.jpg  200x200  " in text
    copies = sum(map(len, groups)) - len(groups)
    *_, count, promise = text.splitlines()
    assert count == f"64 images: {len(groups)} groups with {copies} copies"
    assert promise == "an image without a duplicate finds one with a probability of at most 0.02"


def test_files_that_cannot_be_read_are_named_and_left_out(folder: Path) -> None:
    (folder / "bad.jpg").write_bytes(b"nonsense")
    (folder / "x.heic").write_bytes(b"nonsense")
    deep = put(folder / "deep.png", PHOTOS[0, ..., 0].astype(np.uint16) * 200)
    result = sqhn("duplicates", folder, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["skipped"] == [str(folder / "bad.jpg"), str(deep), str(folder / "x.heic")]
    unread, skipped, bits = result.stderr.splitlines()
    assert unread == f"1 file is in a format that is not read: {folder / 'x.heic'}"
    assert skipped.startswith(f"skipped: {folder / 'bad.jpg'} cannot be read as an image")
    assert bits.startswith(f"skipped: {deep} has more than 8 bits per pixel")


class Figures(HTMLParser):
    """The captions and sources of the images of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.images: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "img":
            self.images.append((found["alt"] or "", found["src"] or ""))


def test_the_page_and_each_file_is_decoded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / "<b>&.png", PHOTOS[40])  # a copy whose name must be escaped
    preview, opened = images.preview, Counter[str]()

    def watch(path: Path, side: int) -> Any:
        opened[path.name] += 1
        return preview(path, side)

    monkeypatch.setattr(images, "preview", watch)
    page = folder.parent / "sheet.html"
    found = json_of("duplicates", folder, "--error", 0.02, "--sheet", page)
    assert set(opened.values()) == {1}
    assert opened.total() == 65
    parser = Figures()
    parser.feed(page.read_text(encoding="utf-8"))
    assert [name for name, _ in parser.images] == [one["name"] for group in found["groups"] for one in group]
    assert "<b>&.png" in dict(parser.images)
    assert all(source.startswith("data:image/jpeg;base64,") for _, source in parser.images)


def test_invalid_input(folder: Path, tmp_path: Path) -> None:
    assert "sheet.png is not an .html file" in error_of("duplicates", folder, "--sheet", tmp_path / "sheet.png")
    nowhere = tmp_path / "nowhere" / "sheet.html"
    assert f"{nowhere} cannot be written" in error_of("duplicates", folder, "--sheet", nowhere)
    one = folder / "00.png"
    assert "among at least 2 images; here 1 can be read" in error_of("duplicates", one)
    assert "between 0 and 1; got 2.0" in error_of("duplicates", folder, "--error", 2)
    assert "there is no" in error_of("duplicates", tmp_path / "nowhere")


def framed(inside: Pixels, top: int, bottom: int, left: int, right: int, color: int) -> Pixels:
    return np.pad(inside, ((top, bottom), (left, right), (0, 0)), constant_values=color)


@pytest.mark.parametrize("color", [0, 128, 255])
@pytest.mark.parametrize("sides", [(0, 0, 0, 0), (3, 5, 0, 0), (0, 0, 4, 2), (1, 2, 3, 4), (0, 0, 0, 7)])
def test_borders_are_trimmed(sides: tuple[int, int, int, int], color: int) -> None:
    top, _, left, _ = sides
    x = framed(pixels(30, 20, 3), *sides, color)
    assert trimmed(x) == (left, top, left + 20, top + 30)
    noise = np.random.default_rng(0).integers(-3, 4, x.shape)  # as JPEG leaves it
    assert trimmed(np.clip(x + noise, 0, 255).astype(np.uint8)) == (left, top, left + 20, top + 30)


def test_images_of_one_color_and_nearly_so_stay_as_they_are() -> None:
    flat = np.full((30, 20, 3), 200, np.uint8)
    assert trimmed(flat) == (0, 0, 20, 30)
    flat[15:] = 100  # two colors
    assert trimmed(flat) == (0, 0, 20, 30)
    flat[:] = 200
    flat[10:12, 10:12] = 0  # a small thing on a plain background
    assert trimmed(flat) == (0, 0, 20, 30)


def test_a_gradient_is_no_border() -> None:
    x = np.broadcast_to(np.linspace(0, 255, 40).astype(np.uint8)[:, None, None], (40, 30, 3))
    left, top, right, bottom = trimmed(x)
    assert (left, right) == (0, 30)
    assert top <= 2  # rows within the tolerance
    assert bottom >= 38
