"""What all commands share: what they tell people on stderr, and errors that are no tracebacks."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

__all__ = ["WRONG", "as_json_text", "failing", "print_either", "progress", "say", "show"]

WRONG = (OSError, ValueError, MemoryError)  # with a file, with a sample, with the machine

progress = Console(stderr=True)
PACKAGES = {"skimage": "scikit-image", "sklearn": "scikit-learn"}  # where modules have other names
EXTRAS = {"torch": "torch", "ray": "ray", "distributed": "dask"}  # those of all other packages are the experiments'


def say(text: str) -> None:
    """Tell people something, on one line of stderr."""
    print(" ".join(text.splitlines()), file=sys.stderr)


def show(text: str) -> None:
    """Tell people something on stderr, in as many lines as it has, with colors where there are any."""
    progress.print(text, markup=False, soft_wrap=True)


@contextmanager
def failing(*kinds: type[Exception], tell: Callable[[str], None] = show) -> Iterator[None]:
    """Errors of these kinds are told and end the command with status 1, others are tracebacks; warnings are told."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say(f"{message}")
            yield
    except kinds as error:
        tell(_in_words(error))
        raise typer.Exit(1) from error


def _in_words(error: Exception) -> str:
    if isinstance(error, ImportError):
        return _missing(error)
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}".removesuffix(": ")
    return f"{error}"


def _missing(error: ImportError) -> str:
    """What is missing and how to get it; an error that says both already says it best."""
    cause = error
    while isinstance(cause.__cause__, ImportError):
        cause = cause.__cause__
    if not isinstance(cause, ModuleNotFoundError) or not cause.name:  # it is there, but broken
        return f"{error}"
    module = cause.name.partition(".")[0]
    if "pip install" in str(error) and module in str(error).lower():
        return f"{error}"
    return f"{PACKAGES.get(module, module)} is not installed: pip install 'sqhn[{EXTRAS.get(module, 'experiments')}]'"


def as_json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON; arrays as lists, or where those cannot be said, as text."""
    return json.dumps(value, indent=indent, allow_nan=False, default=_listed)


def _listed(array: Any) -> Any:
    import numpy as np

    return array.tolist() if array.dtype.kind != "c" and np.isfinite(array).all() else repr(array)


def print_either(document: dict[str, Any], lines: list[str], as_json: bool) -> None:
    """Print one or the other; what the terminal cannot write of the name of a file is escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        for line in [as_json_text(document, indent=2)] if as_json else lines:
            print(line.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        raise
    except OSError as error:
        say(f"all is done, but the results cannot be printed: {error}")
        raise typer.Exit(1) from error
