"""`sqhn duplicates`: groups of near-duplicates among images, on the terminal, as JSON and as a page to look at."""

from __future__ import annotations

import base64
import html
import io
from collections import defaultdict
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from sqhn.cli.common import map_chunks, print_results
from sqhn.cli.options import AsJson, Size
from sqhn.cli.samples import read

SIDE = 32  # pixels of the images that are compared


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
    """Find groups of images that show the same, whatever their size, compression, brightness or small marks.

    Images are compared as 32 x 32 pixels, by evidence. Files that cannot be read are named on stderr and left out. No
    file is changed.
    """
    from sqhn.duplicates import find_duplicates

    if sheet is not None and sheet.suffix.lower() != ".html":
        raise ValueError(f"{sheet} is not an .html file")
    samples = read(sources, (SIDE, SIDE, 3), Size(SIDE, SIDE), skip_bad=True)
    images = np.concatenate([*map_chunks(samples, "reading", lambda chunk: chunk)])
    found = find_duplicates(images, error)
    best: dict[int, float] = defaultdict(float)
    for first, second, score in found.pairs:
        best[first], best[second] = max(best[first], score), max(best[second], score)
    names, files = samples.names, samples.files_of(len(samples))
    groups = [
        sorted(
            (_member(names[i], files[i], best[i]) for i in members),
            key=lambda one: (-one.width * one.height, -one.bytes, one.name),
        )
        for members in found.groups()
    ]
    if sheet is not None:
        sheet.write_text(_page(groups, len(samples), found.error), encoding="utf-8")
    promise = f"an image without a duplicate finds one with a probability of at most {found.error:.2g}"
    document = {
        "images": len(samples),
        "groups": [[one._asdict() for one in group] for group in groups],
        "threshold": found.threshold,
        "error": found.error,
        "skipped": [*samples.skipped],
    }
    lines = [line for group in groups for line in [*map(_line, group), ""]]
    copies = sum(map(len, groups)) - len(groups)
    print_results(
        document, [*lines, f"{len(samples):,} images: {len(groups):,} groups with {copies:,} copies", promise], as_json
    )


def _member(name: str, file: str, score: float) -> Member:
    from PIL import Image

    with Image.open(file) as image:
        width, height = image.size
    return Member(name, file, width, height, Path(file).stat().st_size, score)


def _line(one: Member) -> str:
    return f"{one.name}  {one.width}x{one.height}  {one.bytes:,} bytes  score {one.score:.0f}"


# -- the page ----------------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
section { border-top: 1px solid #8886; padding: 1rem 0; display: flex; flex-wrap: wrap; gap: 1rem }
figure { margin: 0; width: 12rem } img { max-width: 12rem; max-height: 12rem; display: block }
figcaption { font-size: .8rem; overflow-wrap: anywhere } small { opacity: .7 }
"""
THUMBNAIL = 192  # pixels of the longer side


def _page(groups: list[list[Member]], count: int, error: float) -> str:
    """All groups as rows of thumbnails, in one file."""
    copies = sum(map(len, groups)) - len(groups)
    rows = "\n".join(f"<section>{''.join(map(_figure, group))}</section>" for group in groups)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Near-duplicates</title><style>{STYLE}</style>'
        f"<h1>Near-duplicates</h1><p>{count:,} images: {len(groups):,} groups with {copies:,} copies. An image without "
        f"a duplicate finds one with a probability of at most {error:.2g}. The largest image of each group is first; "
        f"scores are evidence in nats.</p>{rows}</html>\n"
    )


def _figure(one: Member) -> str:
    from PIL import Image, ImageOps

    with Image.open(one.file) as image:
        small = ImageOps.exif_transpose(image).convert("RGB")
        small.thumbnail((THUMBNAIL, THUMBNAIL))
    written = io.BytesIO()
    small.save(written, "JPEG", quality=85)
    name = html.escape(one.name)
    return (
        f'<figure><img alt="{name}" src="data:image/jpeg;base64,{base64.b64encode(written.getvalue()).decode()}">'
        f"<figcaption>{name}<br><small>{one.width} x {one.height}, {one.bytes:,} bytes, score {one.score:.0f}</small>"
        f"</figcaption></figure>"
    )
