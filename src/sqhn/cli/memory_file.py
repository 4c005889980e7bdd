"""A memory in a file: found, loaded and asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import typer

from sqhn.cli.common import progress, say

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sqhn.cli.samples import Samples
    from sqhn.memory import SQHN

__all__ = ["Wanted", "ask", "check_there", "load", "open_samples", "size_of"]

Answer = TypeVar("Answer")


class Wanted(NamedTuple):
    """Which samples a command is for."""

    sources: list[str]
    size: tuple[int, int] | None
    skip_bad: bool


def check_there(path: Path) -> Path:
    """The path of a memory, if it is one of a file."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a memory")
    if not path.exists():
        raise FileNotFoundError(f"there is no memory {path}: `sqhn learn` makes one")
    if not path.is_file():  # to read a pipe would be to wait for whoever writes to it
        raise OSError(f"{path} is not a file, so not a memory")
    return path


def load(path: Path) -> SQHN:
    """The memory of a file."""
    from sqhn.memory import SQHN

    return SQHN.load(check_there(path))


def open_samples(wanted: Wanted, shape: tuple[int, ...] | None) -> Samples:
    """The samples that the command names; what is skipped is said. shape: that of the samples of a memory."""
    from sqhn.cli.samples import read

    samples = read(wanted.sources, shape, wanted.size, wanted.skip_bad)
    for reason in samples.skipped.values():
        say(f"skipped: {reason}")
    return samples


def ask(samples: Samples, verb: str, question: Callable[[NDArray[Any]], Answer], start: int = 0) -> Iterator[Answer]:
    """The answers for chunk after chunk, from a number on, with a progress bar for people."""
    from rich.progress import Progress

    from sqhn.protocol import EmptyMemoryError

    done = start
    with Progress(console=progress, transient=True, disable=not progress.is_terminal) as bar:
        task = bar.add_task(verb, total=len(samples), completed=start)
        for chunk in samples.chunks(start):
            try:
                yield question(chunk)
            except EmptyMemoryError:
                raise
            except ValueError as error:
                raise ValueError(f"counting from sample {samples.names[done]}: {error}") from error
            done += len(chunk)
            bar.update(task, completed=done)


def size_of(text: str | None) -> tuple[int, int] | None:
    """What --resize says."""
    from sqhn.cli.samples import parse_size

    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}", param_hint="--resize") from error
