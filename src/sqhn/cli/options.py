"""The arguments and options of the commands on one's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "Alpha",
    "AsJson",
    "Best",
    "Capacity",
    "Checkpoint",
    "Gamma",
    "Inference",
    "Levels",
    "MemoryFile",
    "Observed",
    "Out",
    "Resize",
    "Rho",
    "Similarity",
    "SkipBad",
    "Sources",
    "WhenFull",
]

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Folders of pictures (png, jpg, webp, bmp, gif), pictures, .npy files of samples, quoted patterns of such "
        'files ("photos/**/*.jpg"), or - for a .npy file from standard input.',
    ),
]
MemoryFile = Annotated[Path, typer.Option("--memory", help="The file of the memory.")]
Resize = Annotated[
    str | None, typer.Option(metavar="WIDTHxHEIGHT", help="Scale all pictures to this size; 64x48 is 64 wide.")
]
SkipBad = Annotated[
    bool,
    typer.Option("--skip-bad", help="Leave out files that cannot be read or do not fit, and name them on stderr."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

Capacity = Annotated[int | None, typer.Option(min=1, help="The most neurons of a node of a new memory.")]
Levels = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="A new memory as a tree, from the input up: 2:600,4:600,600 are KERNEL:CAPACITY and the memory "
        "node's CAPACITY; with --capacity just kernels, as 2,4. A kernel 4x2 has 4 rows and 2 columns.",
    ),
]
Similarity = Annotated[
    Literal["shifted_cosine", "cosine", "euclidean"] | None,
    typer.Option(
        help="How a new memory compares: by the cosine after subtracting one half, for values from 0 to 1, as by "
        "default; by the plain cosine; or by the difference, which sees amplitude."
    ),
]
WhenFull = Annotated[
    Literal["average", "overwrite", "oldest", "freeze"] | None,
    typer.Option(
        help="What full nodes of a new memory do with a sample; average by default. Overwrite and oldest replace a "
        "neuron of the memory node: the least used, or the one written longest ago."
    ),
]
Alpha = Annotated[
    float | None,
    typer.Option(help="How long nodes of a new memory keep growing neurons; 1e7 samples by default, or inf."),
]
Gamma = Annotated[
    float | None,
    typer.Option(help="The match below which nodes of a new memory grow a neuron at first; 1 by default."),
]
Rho = Annotated[
    float | None,
    typer.Option(help="The tolerance of `recognize`; of a memory that exists it is changed."),
]
Checkpoint = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Save every so many seconds while learning, so that not even a crash loses more."
    ),
]

Out = Annotated[
    Path, typer.Option(help="Where to write: a folder, or for a single file as source a .png or .npy file.")
]
Observed = Annotated[
    Path | None,
    typer.Option(
        metavar="MASK",
        help="What was seen of every sample: a picture, black where it is missing (PNG, for JPEG blurs black), "
        "or a boolean .npy file.",
    ),
]
Best = Annotated[
    int | None,
    typer.Option(
        "-k", min=1, help="So many of the best for each sample: pictures side by side, arrays with one more axis."
    ),
]
Inference = Annotated[
    Literal["paper", "exact"], typer.Option(help="The paper's one sweep, or the true maximum of the energy.")
]
