"""Arrays of samples in .npy files, or in one that comes from standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sqhn.cli.samples.common import STDIN, Fit, SampleError, Write, check_file, chunk_of, name_below
from sqhn.storage.atomic import written_whole

__all__ = ["Arrays", "check_array", "open_array"]


@dataclass(frozen=True)
class Arrays:
    """The samples of a .npy file, which is open only while it is read.

    whole: the shape of the array, which is one sample if it is a single one, and else a batch.
    """

    file: str
    open: Callable[[], NDArray[Any]]
    whole: tuple[int, ...]
    itemsize: int
    single: bool

    suffix: ClassVar[str] = ".npy"

    def __len__(self) -> int:
        return 1 if self.single else self.whole[0]

    @property
    def files(self) -> Sequence[str]:
        return [self.file]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.whole if self.single else self.whole[1:]

    @property
    def chunk(self) -> int:
        """How many samples are read at once."""
        return chunk_of(self.shape, self.itemsize)

    def names(self, folder: str) -> list[str]:
        """That of the file below a folder, and the numbers of the samples in it."""
        name = name_below(folder, self.file)
        return [name] if self.single else [f"{name}[{n}]" for n in range(len(self))]

    def files_of(self, count: int) -> Sequence[str]:
        """Where the first so many samples come from."""
        return self.files if count else []

    def chunks(self, start: int = 0) -> Iterator[NDArray[Any]]:
        """The samples from a number on, as chunks (n, *shape)."""
        array = self.open()
        if array.shape != self.whole:
            raise SampleError(f"{self.file} has changed while it was read")
        batch = array[None] if self.single else array
        for first in range(start, len(self), self.chunk):
            yield batch[first : first + self.chunk]

    @contextmanager
    def writer(self, places: Sequence[Path], many: int | None = None) -> Iterator[Write]:
        """Writes what was recalled for each chunk into one .npy file, float32, which appears when it is complete.

        many: for each sample, along an axis of their own.
        """
        before = self.whole[: len(self.whole) - len(self.shape)]
        shape = self.whole if many is None else (*before, many, *self.shape)
        with written_whole(places[0]) as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})

            def write(values: NDArray[np.float32]) -> None:
                file.write(np.ascontiguousarray(values, "<f4").data)

            yield write


def check_array(file: str, fit: Fit | None) -> Arrays:
    """The samples of a .npy file; fit: what those of a memory or of other files are like."""
    array = _receive() if file == STDIN else open_array(Path(file))
    again = (lambda: array) if file == STDIN else partial(open_array, Path(file))
    if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
        hint = "; `.astype(np.float32)` makes floats of them" if array.dtype.kind in "iub" else ""
        raise SampleError(
            f"{file} has dtype {array.dtype}: samples must be floats, taken as they are, or uint8, read as /255{hint}"
        )
    single = fit is not None and array.shape == fit.shape
    if array.size == 0 or array.ndim + single < 2:
        raise SampleError(f"{file} has shape {array.shape}: it must be a batch of samples, along the first axis")
    found = Arrays(file, again, array.shape, array.itemsize, single)
    if fit is not None and found.shape != fit.shape:
        raise SampleError(
            f"{file} has shape {array.shape}, but {fit.owner} samples of shape {fit.shape}: "
            f"give one, or a batch of shape (n, {', '.join(map(str, fit.shape))})"
        )
    return found


def open_array(path: Path) -> NDArray[Any]:
    """An array that stays on disk; one of Python objects is refused."""
    check_file(path)
    return _understand(f"{path}", lambda: np.lib.format.open_memmap(path, mode="r"))


def _receive() -> NDArray[Any]:
    """The array that comes from standard input."""
    if sys.stdin.isatty():
        raise SampleError(f"{STDIN} is standard input, and nothing comes from there: give it a .npy file")
    stream = BytesIO(sys.stdin.buffer.read())
    array = _understand("standard input", lambda: np.lib.format.read_array(stream, allow_pickle=False))
    if stream.read(1):
        raise SampleError("standard input goes on after an array: give one array alone")
    return array


def _understand(name: str, reading: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    try:
        with np.errstate(over="ignore"):  # absurd shapes are errors; no need to warn of them as well
            return reading()
    except OSError:
        raise
    except Exception as error:  # damaged headers raise all kinds
        raise SampleError(f"{name} cannot be read as a .npy file: {error}") from error
