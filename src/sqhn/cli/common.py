"""Output to people on stderr, errors without tracebacks, and JSON."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

EXPECTED_ERRORS = (OSError, ValueError, MemoryError)
"""Errors of files, of samples, and of a machine with too little memory."""

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
    except kinds as error:
        tell(_message(error))
        raise typer.Exit(1) from error


def _message(error: Exception) -> str:
    if isinstance(error, ImportError):
        return _missing_package(error)
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}".removesuffix(": ")
    return f"{error}"


def _missing_package(error: ImportError) -> str:
    """The missing package and the extra that installs it, unless the error itself names them."""
    cause = error
    while isinstance(cause.__cause__, ImportError):
        cause = cause.__cause__
    if not isinstance(cause, ModuleNotFoundError) or not cause.name:  # installed, but broken
        return f"{error}"
    module = cause.name.partition(".")[0]
    if "pip install" in str(error) and module in str(error).lower():
        return f"{error}"
    return f"{PACKAGES.get(module, module)} is not installed: pip install 'sqhn[{EXTRAS.get(module, 'experiments')}]'"


def as_json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON; arrays become lists, or text if JSON has no such numbers."""
    return json.dumps(value, indent=indent, allow_nan=False, default=_as_list)


def _as_list(array: Any) -> Any:
    import numpy as np

    return array.tolist() if array.dtype.kind != "c" and np.isfinite(array).all() else repr(array)


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
