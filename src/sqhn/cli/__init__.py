"""The `sqhn` command."""

from __future__ import annotations

from typing import Annotated

import typer

from sqhn import __version__
from sqhn.cli import bench, data, learn, manage, query, reproduction

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
    """Options before the name of a command."""


app.command()(bench.bench)
app.command(cls=reproduction.NamesExperiments)(reproduction.reproduce)
app.command()(reproduction.report)
app.command()(learn.learn)
app.command()(query.recall)
app.command()(query.recognize)
for command in (manage.info, manage.show, manage.repair, manage.warm, manage.forget, manage.calibrate):
    app.command()(command)
app.add_typer(data.app, name="data")
