"""A memory in a file and the samples for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqhn.cli.common import progress, say

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sqhn.cli.options import Size
    from sqhn.cli.samples import Samples
    from sqhn.memory import SQHN


Answer = TypeVar("Answer")


def check_memory(path: Path) -> Path:
    """The path of a memory; raises unless it is a file."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a memory")
    if not path.exists():
        raise FileNotFoundError(f"there is no memory {path}: `sqhn learn` makes one")
    if not path.is_file():  # reading a pipe would wait for a writer
        raise OSError(f"{path} is not a file, so not a memory")
    return path


def load(path: Path) -> SQHN:
    """The memory of a file."""
    from sqhn.memory import SQHN

    return SQHN.load(check_memory(path))


def open_samples(sources: Sequence[str], resize: Size | None, skip_bad: bool, shape: tuple[int, ...] | None) -> Samples:
    """The samples of a command, of this shape if it is given; skipped files are named on stderr."""
    from sqhn.cli.samples import read

    samples = read(sources, shape, resize, skip_bad)
    for reason in samples.skipped.values():
        say(f"skipped: {reason}")
    return samples


def map_chunks(
    samples: Samples, title: str, function: Callable[[NDArray[Any]], Answer], start: int = 0
) -> Iterator[Answer]:
    """The results of a function for each chunk of samples from index `start`, with a progress bar on a terminal."""
    from rich.progress import Progress

    from sqhn.protocol import EmptyMemoryError

    done = start
    with Progress(console=progress, transient=True, disable=not progress.is_terminal) as bar:
        task = bar.add_task(title, total=len(samples), completed=start)
        for chunk in samples.chunks(start):
            try:
                yield function(chunk)
            except EmptyMemoryError:
                raise
            except ValueError as error:
                raise ValueError(f"counting from sample {samples.names[done]}: {error}") from error
            done += len(chunk)
            bar.update(task, completed=done)
