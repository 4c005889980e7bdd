"""The `sqhn` command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, add_completion=False, help="An associative memory that learns from a stream.")
progress = Console(stderr=True)


@contextmanager
def extras() -> Iterator[None]:
    """A missing extra package is a line that says what to install."""
    try:
        yield
    except ImportError as error:
        progress.print(f"{error}", markup=False)
        raise typer.Exit(1) from error


@app.command()
def bench(
    cases: Annotated[list[str] | None, typer.Argument(help="Which cases to run; all of them if none is named.")] = None,
) -> None:
    """Measure speed and size against comparators in the same run; prints JSON."""
    from sqhn.bench import CASES, run

    for name in cases or []:
        if name not in CASES:
            raise typer.BadParameter(f"unknown case {name!r}; the cases are {', '.join(CASES)}")
    with extras():
        print(run(cases or list(CASES), progress.print))


@app.command()
def reproduce(
    out: Annotated[Path, typer.Option(help="Where pictures go.")] = Path("out"),
) -> None:
    """Memorize built-in pictures online, recall them from corrupted ones, tell old from new (`sqhn[experiments]`)."""
    from sqhn.demo import demonstrate

    with extras():
        demonstrate(out, progress)


if __name__ == "__main__":
    app()
