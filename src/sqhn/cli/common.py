"""Memories and samples in files; output to people on stderr, errors without tracebacks, and JSON."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console

from sqhn.protocol import EmptyMemoryError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sqhn.cli.samples import Samples
    from sqhn.memory import SQHN

Answer = TypeVar("Answer")
COMPILING = 10
"""How long a first `learn` compiles on one core, in seconds."""
progress = Console(stderr=True)
PACKAGES = {"skimage": "scikit-image", "sklearn": "scikit-learn"}  # module: package, if the names differ
EXTRAS = {"torch": "torch", "ray": "ray", "distributed": "dask"}  # all other packages are in `experiments`


def say(text: str) -> None:
    """Print one line to stderr."""
    print(" ".join(text.splitlines()), file=sys.stderr)


def show(text: str) -> None:
    """Print text of any number of lines to stderr."""
    progress.print(text, markup=False, soft_wrap=True)


@contextmanager
def failing(*kinds: type[Exception], tell: Callable[[str], None] = show) -> Iterator[None]:
    """Errors of these kinds are printed and end the command with status 1; warnings are printed."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say(f"{message}")
            yield
    except BrokenPipeError:  # the reader of the results has stopped
        raise
    except kinds as error:
        tell(_message(error))
        raise typer.Exit(1) from error


def _message(error: Exception) -> str:
    """The text of an error; of a missing package also the extra that installs it, unless the error names it."""
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}".removesuffix(": ")
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    cause = error
    while isinstance(cause, ImportError) and isinstance(cause.__cause__, ImportError):
        cause = cause.__cause__
    if not isinstance(cause, ModuleNotFoundError) or not cause.name:  # or installed, but broken
        return f"{error}"
    module = cause.name.partition(".")[0]
    if "pip install" in str(error) and module in str(error).lower():
        return f"{error}"
    return f"{PACKAGES.get(module, module)} is not installed: pip install 'sqhn[{EXTRAS.get(module, 'experiments')}]'"


def counted(things: int | Sized, one: str, more: str | None = None) -> str:
    """How many things there are.

    >>> counted(1, "group"), counted(2000, "group"), counted([], "copy", "copies")
    ('1 group', '2,000 groups', '0 copies')
    """
    count = things if isinstance(things, int) else len(things)
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def as_json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON; arrays become lists, or text if JSON has no such numbers."""
    return json.dumps(value, indent=indent, allow_nan=False, default=_as_list)


def _as_list(array: Any) -> Any:
    import numpy as np

    return array.tolist() if array.dtype.kind != "c" and np.isfinite(array).all() else repr(array)


def of(label: Any) -> str:
    """A label as the end of a line: a name as it is, other labels as JSON; nothing if there is none."""
    return "" if label is None else f"  value {label if isinstance(label, str) else as_json_text(label)}"


def print_results(document: dict[str, Any], lines: list[str], as_json: bool) -> None:
    """Print the document or the lines; characters that the terminal cannot print are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        for line in [as_json_text(document, indent=2)] if as_json else lines:
            print(line.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has stopped
        raise
    except OSError as error:
        say(f"the command is done, but its results cannot be printed: {error}")
        raise typer.Exit(1) from error


# -- memories and samples ----------------------------------------------------------------------------------------------


def check_memory(path: Path) -> Path:
    """The path of a memory; raises unless it is a file, or a folder that keeps a memory."""
    from sqhn.storage.files import MEMORY

    if not path.exists():
        raise FileNotFoundError(f"there is no memory {path}: `sqhn learn` makes one")
    if path.is_dir() and not (path / MEMORY).exists():
        raise IsADirectoryError(f"{path} is a folder, not a memory")
    if not path.is_dir() and not path.is_file():  # reading a pipe would wait for a writer
        raise OSError(f"{path} is not a file, so not a memory")
    return path


def load(path: Path) -> SQHN:
    """The memory of a file, or a copy of that in a folder, which another program may use."""
    from sqhn.memory import SQHN

    return SQHN.load(check_memory(path), read_only=True)


@contextmanager
def reserved(path: Path) -> Iterator[None]:
    """A block that may write a memory there: a file is locked until it ends; a folder has a lock of its own."""
    from sqhn.storage.files import check_place
    from sqhn.storage.locks import held

    if path.is_dir():
        check_memory(path)
        yield
        return
    check_place(path)
    with held(path, say):
        yield


@contextmanager
def changing(path: Path) -> Iterator[SQHN]:
    """A memory to change: a file is saved at the end; a folder keeps every change at once."""
    from sqhn.memory import SQHN

    check_memory(path)
    with reserved(path):
        network = SQHN.load(path)
        yield network
        if network.folder is None:
            network.save(path)


@contextmanager
def announcing_compilation(seconds: int = COMPILING) -> Iterator[None]:
    """On a terminal, say once that kernels are compiled, if the cache does not have them, and how long it takes."""
    from sqhn.warmup import compiling

    @cache
    def announce() -> None:
        show(f"compiling, once: about {seconds} s")

    with compiling(announce) if progress.is_terminal else nullcontext():
        yield


def map_chunks(
    samples: Samples, title: str, function: Callable[[NDArray[Any]], Answer], start: int = 0
) -> Iterator[Answer]:
    """The results of a function for each chunk of samples from index `start`, with a progress bar on a terminal."""
    from rich.progress import Progress

    done = start
    bar = Progress(console=progress, transient=True, disable=not progress.is_terminal)
    with bar, announcing_compilation():
        task = bar.add_task(title, total=None)  # moving, but without a share, until the first chunk is done
        for chunk in samples.chunks(start):
            try:
                yield function(chunk)
            except EmptyMemoryError:
                raise
            except ValueError as error:
                raise ValueError(f"counting from sample {samples.names[done]}: {error}") from error
            done += len(chunk)
            bar.update(task, total=len(samples), completed=done)
