"""The `sqhn` command: what each part of it does is in the module of that name."""

from __future__ import annotations

from typing import Annotated

import typer

from sqhn import __version__
from sqhn.cli import bench, data, inside, own, reproduction

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="An associative memory that learns from a stream.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"sqhn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What comes before the name of a command; done when a command is called."""


app.command()(bench.bench)
app.command(cls=reproduction.NamesExperiments)(reproduction.reproduce)
app.command()(reproduction.report)
app.command()(own.learn)
app.command()(own.recall)
app.command()(own.recognize)
app.command()(own.info)
app.command()(inside.show)
app.command()(inside.forget)
app.command()(inside.calibrate)
app.add_typer(data.app, name="data")
