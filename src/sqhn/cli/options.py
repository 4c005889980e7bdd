"""Arguments and options that several commands share."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, NamedTuple

import typer


class Size(NamedTuple):
    """Width and height in pixels.

    >>> str(Size(64, 48))
    '64x48'
    """

    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


def parse_size(text: str) -> Size:
    """WIDTHxHEIGHT, at most the number of pixels that Pillow reads without a warning.

    >>> parse_size("64x48")
    Size(width=64, height=48)
    """
    from PIL import Image

    match = re.fullmatch("0*([1-9][0-9]*)x0*([1-9][0-9]*)", text.lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not WIDTHxHEIGHT in pixels, such as 64x48")
    most = Image.MAX_IMAGE_PIXELS or math.inf
    if float(match[1]) * float(match[2]) > most:  # floats: Python has no int of thousands of digits
        raise typer.BadParameter(f"{text!r} is too large: an image may have up to {most:,} pixels")
    return Size(int(match[1]), int(match[2]))


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Folders of images (png, jpg, webp, bmp, gif, tif, avif), images, .npy files of samples, quoted patterns "
        'of such files ("photos/**/*.jpg"), or - for a .npy file from standard input.',
    ),
]
MemoryFile = Annotated[Path, typer.Option("--memory", help="The file of the memory, or the folder that keeps it.")]
MemoryArgument = Annotated[Path, typer.Argument(help="The file of the memory, or the folder that keeps it.")]
Resize = Annotated[
    Size | None,
    typer.Option(
        parser=parse_size,
        metavar="WIDTHxHEIGHT",
        help="Scale images to this size, that of a new memory, such as 64x48 (64 wide).",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option("--skip-bad", help="Skip files that cannot be read or do not fit, and name them on stderr."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
