"""The `sqhn` command: what each part of it does is in the module of that name."""

from __future__ import annotations

import typer

from sqhn.cli import bench, data, own, reproduction

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="An associative memory that learns from a stream.")
app.command()(bench.bench)
app.command(cls=reproduction.NamesExperiments)(reproduction.reproduce)
app.command()(reproduction.report)
app.command()(own.learn)
app.command()(own.recall)
app.command()(own.recognize)
app.command()(own.info)
app.add_typer(data.app, name="data")
