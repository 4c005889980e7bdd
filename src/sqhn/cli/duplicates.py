"""`sqhn duplicates`: groups of near-duplicates among images, on the terminal, as JSON and as a page to look at."""

from __future__ import annotations

import base64
import html
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from sqhn.cli.common import counted, print_results, progress, say
from sqhn.cli.options import AsJson, Size

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 32  # pixels of the images that are compared
PREVIEW = 192  # pixels of the longer side, of which borders are trimmed and thumbnails are made
BORDER_BLUR = 12  # of the colors of a border, of 255: JPEG blurs them
LEAST = 0.25  # the share of the pixels that trimming must leave


class Photo(NamedTuple):
    """An image that was read: the pixels that are compared, its size, and a thumbnail (JPEG) if there is a page."""

    file: str
    pixels: NDArray[np.uint8]
    size: Size
    thumbnail: bytes


class Member(NamedTuple):
    """An image of a group; score: its highest evidence for another one of the group, in nats."""

    name: str
    file: str
    width: int
    height: int
    bytes: int
    score: float


def duplicates(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE", help="Folders of images, images, and quoted patterns of images."),
    ],
    error: Annotated[
        float | None,
        typer.Option(
            help="The probability that an image without a duplicate finds one; 0.01 by default, or more where there "
            "are fewer than 50 images."
        ),
    ] = None,
    sheet: Annotated[
        Path | None, typer.Option(help="Write a page with the images of all groups: an .html file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find groups of images that show the same, whatever their size, compression, brightness, border or small marks.

    Borders of one color are trimmed; then images are compared as 32 x 32 pixels, by evidence. Files that cannot be read
    are named on stderr and left out. No file is changed.
    """
    from sqhn.cli.samples.files import find, name_below
    from sqhn.duplicates import find_duplicates

    if sheet is not None and sheet.suffix.lower() != ".html":
        raise ValueError(f"{sheet} is not an .html file")
    if sheet is not None and not sheet.parent.is_dir():  # before minutes are spent
        raise ValueError(f"{sheet} cannot be written: its folder does not exist")
    files, folder, unread = find(sources)
    each = {Path(file).resolve(): file for file in files}  # once: sources may overlap, and links lead to other files
    photos, bad = _read([*each.values()], thumbnails=sheet is not None)
    if len(photos) < 2:
        raise ValueError(f"duplicates are found among at least 2 images; here {len(photos)} can be read")
    with progress.status(f"comparing {len(photos):,} images"):
        found = find_duplicates(np.stack([photo.pixels for photo in photos]), error)
    best: dict[int, float] = defaultdict(float)
    for first, second, score in found.pairs:
        best[first], best[second] = max(best[first], score), max(best[second], score)
    groups = [
        sorted(
            (_member(photos[i], name_below(folder, photos[i].file), best[i]) for i in members),
            key=lambda one: (-one.width * one.height, -one.bytes, one.name),
        )
        for members in found.groups()
    ]
    if sheet is not None:
        thumbnails = {photo.file: photo.thumbnail for photo in photos}
        sheet.write_text(_page(groups, thumbnails, found.error), encoding="utf-8")
    promise = f"an image without a duplicate finds one with a probability of at most {found.error:.2g}"
    document = {
        "images": len(photos),
        "groups": [[one._asdict() for one in group] for group in groups],
        "threshold": found.threshold,
        "error": found.error,
        "skipped": [*bad, *unread],
    }
    lines = [line for group in groups for line in [*map(_line, group), ""]]
    print_results(document, [*lines, _count(groups, len(photos)), promise], as_json)


def _count(groups: list[list[Member]], images: int) -> str:
    copies = sum(map(len, groups)) - len(groups)
    return f"{images:,} images: {counted(groups, 'group')} with {counted(copies, 'copy', 'copies')}"


def _member(photo: Photo, name: str, score: float) -> Member:
    return Member(name, photo.file, *photo.size, Path(photo.file).stat().st_size, score)


def _line(one: Member) -> str:
    return f"{one.name}  {one.width}x{one.height}  {one.bytes:,} bytes  score {one.score:.0f}"


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(files: Sequence[str], thumbnails: bool) -> tuple[list[Photo], list[str]]:
    """The images, each decoded once, and the files that cannot be read, which are named on stderr."""
    from rich.progress import track

    from sqhn.cli.samples.images import DECODING_THREADS

    photos, bad = [], []
    with ThreadPoolExecutor(DECODING_THREADS) as pool:
        each: Iterator[Photo | Exception] = pool.map(lambda file: _photo(file, thumbnails), files)
        hidden = not progress.is_terminal
        for file, photo in zip(
            files, track(each, "reading", len(files), console=progress, transient=True, disable=hidden)
        ):
            if isinstance(photo, Exception):
                bad.append(file)
                say(f"skipped: {photo}")
            else:
                photos.append(photo)
    return photos, bad


def _photo(file: str, thumbnail: bool) -> Photo | Exception:
    from PIL import Image

    from sqhn.cli.samples.images import preview

    try:
        image, size = preview(Path(file), PREVIEW)
    except (OSError, ValueError) as error:
        return error
    inside = image.crop(trimmed(np.asarray(image)))
    pixels = np.asarray(inside.resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    return Photo(file, pixels, size, _jpeg(image) if thumbnail else b"")


def trimmed(x: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of an image (height, width, 3) without the border of one color along its edges.

    An image that would lose most of its pixels is not trimmed, such as one that is all of one color.
    """
    height, width = x.shape[:2]
    top, bottom = _edges(x)
    left, right = _edges(x[top:bottom].transpose(1, 0, 2))
    if (bottom - top) * (right - left) < LEAST * height * width:
        return 0, 0, width, height
    return left, top, right, bottom


def _edges(x: NDArray[np.uint8]) -> tuple[int, int]:
    """The first row within the borders at either end, and the row after the last; all rows if none is left."""
    ends = []
    for rows in (x, x[::-1]):
        far = np.abs(rows.astype(np.int16) - np.median(rows[0], axis=0)).max(axis=(1, 2)) > BORDER_BLUR
        ends.append(int(far.argmax()))
    first, after = ends[0], len(x) - ends[1]
    return (first, after) if first < after else (0, len(x))


# -- the page ----------------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
section { border-top: 1px solid #8886; padding: 1rem 0; display: flex; flex-wrap: wrap; gap: 1rem }
figure { margin: 0; width: 12rem } img { max-width: 12rem; max-height: 12rem; display: block }
figcaption { font-size: .8rem; overflow-wrap: anywhere } small { opacity: .7 }
"""


def _page(groups: list[list[Member]], thumbnails: dict[str, bytes], error: float) -> str:
    """All groups as rows of thumbnails, in one file."""
    figures = ["".join(_figure(one, thumbnails[one.file]) for one in group) for group in groups]
    rows = "\n".join(f"<section>{row}</section>" for row in figures)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Near-duplicates</title><style>{STYLE}</style>'
        f"<h1>Near-duplicates</h1><p>{_count(groups, len(thumbnails))}. An image without "
        f"a duplicate finds one with a probability of at most {error:.2g}. The largest image of each group is first; "
        f"scores are evidence in nats.</p>{rows}</html>\n"
    )


def _figure(one: Member, thumbnail: bytes) -> str:
    name = html.escape(one.name)
    return (
        f'<figure><img alt="{name}" src="data:image/jpeg;base64,{base64.b64encode(thumbnail).decode()}">'
        f"<figcaption>{name}<br><small>{one.width} x {one.height}, {one.bytes:,} bytes<br>score {one.score:.0f}</small>"
        f"</figcaption></figure>"
    )


def _jpeg(image: Image) -> bytes:
    written = io.BytesIO()
    image.save(written, "JPEG", quality=85)
    return written.getvalue()
