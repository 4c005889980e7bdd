"""`sqhn data`: list and download data sets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from sqhn.cli.common import failing, progress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

app = typer.Typer(no_args_is_help=True, help="List and download data sets.")


@app.command("list")
def data_list() -> None:
    """List the data sets, where they are on this machine, and their sources."""
    from rich.table import Column, Table

    from sqhn.data.builtin import BUILT_IN
    from sqhn.data.catalogue import CATALOGUE
    from sqhn.data.dataset import NAMES, location

    caption = "sqhn data get NAME downloads it from the first source that works"
    first = Column("name", no_wrap=True)
    table = Table(first, "contents", "images", "here?", "sources", box=None, caption=caption, pad_edge=False)
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
    from rich.progress import Progress

    from sqhn.data.dataset import NAMES, location
    from sqhn.data.fetch import FetchError, get

    for name in names:
        if name not in NAMES:
            raise typer.BadParameter(f"unknown data set {name!r}; there are {', '.join(NAMES)}")
    for name in names:
        if found := location(name):
            print(f"{name} is already here: {found}")
            continue
        with failing(ImportError, FetchError, OSError), Progress(console=progress) as bars:
            source = get(name, partial(_report, bars, {}, name))
        print(f"{name}: stored, from {source}")


def _report(bars: Progress, tasks: dict[str, TaskID], title: str, step: str, done: int, total: int) -> None:
    """Show how much of a step is done, with a progress bar for each step."""
    if step not in tasks:
        tasks[step] = bars.add_task(f"{title}: {step}")
    bars.update(tasks[step], completed=done, total=total)
