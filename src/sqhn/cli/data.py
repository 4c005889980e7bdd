"""`sqhn data`: which data sets there are, and getting them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from sqhn.cli.common import failing, progress

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Data sets: which there are, and getting them.")


@app.command("list")
def data_list() -> None:
    """Which data sets there are, which of them are here, and how to get the others."""
    from rich.table import Table

    from sqhn.data.builtin import BUILT_IN, BuiltIn
    from sqhn.data.catalogue import CATALOGUE, Entry
    from sqhn.data.dataset import where

    table = Table(box=None, caption="sqhn data get NAME gets it from the first source that works", pad_edge=False)
    table.add_column("name", no_wrap=True)
    for heading in ("what it is", "pictures", "here?", "sources"):
        table.add_column(heading)
    known: dict[str, BuiltIn | Entry] = {**BUILT_IN, **CATALOGUE}
    for name, entry in known.items():
        shape = "x".join(map(str, entry.picture))
        pictures = f"{sum(entry.counts.values()):,} of {shape}, {entry.classes} classes"
        sources = CATALOGUE[name].sources if name in CATALOGUE else ()
        ways = [f"{way.title}, {way.size / 1e6:,.0f} MB" if way.size else way.title for way in sources]
        table.add_row(name, entry.what, pictures, where(name) or "missing", "; ".join(ways))
    Console().print(table)


@app.command("get")
def data_get(names: Annotated[list[str], typer.Argument(help="Which data sets; `sqhn data list` lists them.")]) -> None:
    """Download data sets, check them, and store them for this user (extra packages: experiments)."""
    from sqhn.data.dataset import NAMES, where
    from sqhn.data.fetch import FetchError, get

    for name in names:
        if name not in NAMES:
            raise typer.BadParameter(f"unknown data set {name!r}; there are {', '.join(NAMES)}")
    for name in names:
        if here := where(name):
            print(f"{name} is already here: {here}")
            continue
        with failing(ImportError), bars(name) as bar, failing(FetchError, OSError):
            source = get(name, bar)
        print(f"{name}: stored, from {source}")


@contextmanager
def bars(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on stderr for each step of a job that tells (step, done, total)."""
    from rich.progress import Progress, TaskID

    with Progress(console=progress) as shown:
        steps: dict[str, TaskID] = {}

        def bar(step: str, done: int, total: int) -> None:
            if step not in steps:
                steps[step] = shown.add_task(f"{title}: {step}")
            shown.update(steps[step], completed=done, total=total)

        yield bar
