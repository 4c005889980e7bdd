"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sqhn.cli.size import Size, parse_size

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Folders of images (png, jpg, webp, bmp, gif), images, .npy files of samples, quoted patterns of such "
        'files ("photos/**/*.jpg"), or - for a .npy file from standard input.',
    ),
]
MemoryFile = Annotated[Path, typer.Option("--memory", help="The file of the memory.")]
MemoryArgument = Annotated[Path, typer.Argument(help="The file of the memory.")]
Resize = Annotated[
    Size | None,
    typer.Option(
        parser=parse_size, metavar="WIDTHxHEIGHT", help="Scale all images to this size, such as 64x48 (64 wide)."
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option("--skip-bad", help="Skip files that cannot be read or do not fit, and name them on stderr."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Judging = Annotated[
    Literal["paper", "evidence"],
    typer.Option("--inference", help="The rule of recognition: the paper's, or evidence, for samples with any damage."),
]
