"""`sqhn data`: list and download data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from sqhn.cli.common import failing, progress

app = typer.Typer(no_args_is_help=True, help="List and download data sets.")


@app.command("list")
def data_list() -> None:
    """List the data sets, where they are on this machine, and their sources."""
    from rich.table import Table

    from sqhn.data.builtin import BUILT_IN
    from sqhn.data.catalogue import CATALOGUE
    from sqhn.data.dataset import NAMES, location

    table = Table(box=None, caption="sqhn data get NAME downloads it from the first source that works", pad_edge=False)
    table.add_column("name", no_wrap=True)
    for heading in ("contents", "images", "here?", "sources"):
        table.add_column(heading)
    for name in NAMES:
        entry = BUILT_IN.get(name) or CATALOGUE[name]
        contents = entry.contents
        shape = "x".join(map(str, contents.shape))
        images = f"{sum(contents.counts.values()):,} of {shape}, {contents.classes} classes"
        sources = [
            f"{source.title}, {source.size / 1e6:,.0f} MB" if source.size else source.title
            for source in getattr(entry, "sources", ())
        ]
        table.add_row(name, contents.title, images, location(name) or "missing", "; ".join(sources))
    Console().print(table)


@app.command("get")
def data_get(names: Annotated[list[str], typer.Argument(help="Data sets; `sqhn data list` lists them.")]) -> None:
    """Download data sets, check them, and store them for this user (extra packages: experiments)."""
    from sqhn.data.dataset import NAMES, location
    from sqhn.data.fetch import FetchError, get

    for name in names:
        if name not in NAMES:
            raise typer.BadParameter(f"unknown data set {name!r}; there are {', '.join(NAMES)}")
    for name in names:
        if found := location(name):
            print(f"{name} is already here: {found}")
            continue
        with failing(ImportError, FetchError, OSError), progress_bars(name) as report:
            source = get(name, report)
        print(f"{name}: stored, from {source}")


@contextmanager
def progress_bars(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """One progress bar on stderr for each step of a job that reports (step, done, total)."""
    from rich.progress import Progress, TaskID

    with Progress(console=progress) as bars:
        tasks: dict[str, TaskID] = {}

        def report(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(f"{title}: {step}")
            bars.update(tasks[step], completed=done, total=total)

        yield report
