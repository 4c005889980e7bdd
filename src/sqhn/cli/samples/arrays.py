"""Arrays of samples in .npy files, or in one from standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sqhn.cli.samples.files import IMAGE_SUFFIXES, STDIN, Required, check_file, chunk_length
from sqhn.inputs import batch_of
from sqhn.storage.atomic import written_whole


@dataclass(frozen=True)
class Arrays:
    """The samples of a .npy file, which is open only while it is read.

    files: this file. count: how many samples it has; None if the array is itself a sample.
    """

    files: Sequence[str]
    open: Callable[[], NDArray[Any]]
    shape: tuple[int, ...]
    count: int | None

    suffix: ClassVar[str] = ".npy"

    def __len__(self) -> int:
        return 1 if self.count is None else self.count

    @property
    def places(self) -> Sequence[str]:
        """The place of each sample in the file."""
        return [""] if self.count is None else [f"[{n}]" for n in range(self.count)]

    def chunks(self, start: int = 0) -> Iterator[NDArray[Any]]:
        """The samples from index `start`, as chunks (n, *shape)."""
        array = self.open()
        batch = array[None] if self.count is None else array
        if batch.shape != (len(self), *self.shape):
            raise ValueError(f"{self.files[0]} has changed while it was read")
        length = chunk_length(self.shape, array.itemsize)
        for first in range(start, len(self), length):
            yield batch[first : first + length]

    def write(self, places: Sequence[Path], shape: tuple[int, ...], chunks: Iterable[NDArray[np.float32]]) -> None:
        """Write chunks (n, *shape) to one .npy file, float32, which appears once it is complete."""
        whole = shape if self.count is None else (self.count, *shape)
        with written_whole(places[0]) as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": whole})
            for values in chunks:
                file.write(np.ascontiguousarray(values, "<f4").data)


def check_array(file: str, required: Required | None) -> Arrays:
    """The samples of a .npy file; required: the shape of other samples."""
    if file != STDIN and Path(file).suffix.lower() != ".npy":
        raise ValueError(f"{file} is neither a folder, nor an image ({', '.join(IMAGE_SUFFIXES)}), nor a .npy file")
    array = _read_stdin() if file == STDIN else open_array(Path(file))
    again = (lambda: array) if file == STDIN else partial(open_array, Path(file))
    if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
        hint = "; convert it with `.astype(np.float32)`" if array.dtype.kind in "iub" else ""
        raise ValueError(
            f"{file} has dtype {array.dtype}: samples must be floats, used as they are, or uint8, divided by 255{hint}"
        )
    single = required is not None and array.shape == required.shape
    if array.size == 0 or array.ndim + single < 2:
        raise ValueError(f"{file} has shape {array.shape}: it must be a batch of samples, along the first axis")
    shape, count = (array.shape, None) if single else (array.shape[1:], len(array))
    if required is not None and shape != required.shape:
        raise ValueError(
            f"{file} has shape {array.shape}, but {required.reason} samples of shape {required.shape}: "
            f"give one, or a batch of shape {batch_of(required.shape)}"
        )
    return Arrays([file], again, shape, count)


def open_array(path: Path) -> NDArray[Any]:
    """A memory map of a .npy file; arrays of Python objects are refused."""
    check_file(path)
    return _parse(f"{path}", lambda: np.lib.format.open_memmap(path, mode="r"))


def _read_stdin() -> NDArray[Any]:
    if sys.stdin.isatty():
        raise ValueError(f"{STDIN} is standard input, which is a terminal: pipe a .npy file into it")
    stream = BytesIO(sys.stdin.buffer.read())
    array = _parse("standard input", lambda: np.lib.format.read_array(stream, allow_pickle=False))
    if stream.read(1):
        raise ValueError("standard input continues after an array: give exactly one array")
    return array


def _parse(name: str, read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    try:
        with np.errstate(over="ignore"):  # absurd shapes are errors; no need for a warning too
            return read()
    except OSError:
        raise
    except Exception as error:  # damaged headers raise errors of any kind
        raise ValueError(f"{name} cannot be read as a .npy file: {error}") from error
