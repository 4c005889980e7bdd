"""The `sqhn` command."""

from __future__ import annotations

from typing import Annotated

import typer

from sqhn import __version__
from sqhn.cli import damage, data, duplicates, learn, manage, query, reproduction
from sqhn.cli.common import failing, say

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


app.command()(reproduction.bench)
app.command(cls=reproduction.NamesExperiments)(reproduction.reproduce)
app.command()(reproduction.report)
app.command()(damage.damage)
for command in (learn.learn, query.recall, query.recognize, duplicates.duplicates, *manage.COMMANDS):
    app.command()(failing(OSError, ValueError, MemoryError, tell=say)(command))
app.add_typer(data.app, name="data")
