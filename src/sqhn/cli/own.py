"""Data and memories of users in the commands that run experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sqhn.paper.experiments.own import Own

Data = Annotated[
    str,
    typer.Option(
        metavar="builtin|paper|FILE.npz",
        help="The built-in data sets, those of the paper, or a file with arrays x_train, y_train, x_test and y_test: "
        "uint8 images and integer labels.",
    ),
]


def check_data(data: str) -> None:
    """Exit unless the data are known, or in a file that can be read."""
    from sqhn.data import load

    if data in ("builtin", "paper"):
        return
    if not data.endswith(".npz"):
        raise typer.BadParameter(f"--data is builtin, paper or an .npz file; got {data!r}")
    load(data)


def find_memories(sources: Sequence[str]) -> list[Own]:
    """The memories of these names, MODULE:NAME."""
    from sqhn.paper.experiments.own import SourceError, own_memory

    try:
        return [own_memory(source) for source in dict.fromkeys(sources)]
    except SourceError as error:
        raise typer.BadParameter(str(error)) from error
