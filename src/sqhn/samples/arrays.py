"""Arrays of samples in .npy files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.files import written_whole
from sqhn.samples.common import PICTURES, SampleError, Write, check_places, chunk_of, named_after

__all__ = ["Arrays", "check_array", "open_array"]


@dataclass(frozen=True)
class Arrays:
    """The samples of a .npy file, which stays on disk. Iterating gives chunks (n, *shape)."""

    path: Path
    batch: NDArray[Any]
    single: bool

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch.shape[1:]

    @property
    def names(self) -> Sequence[str]:
        """Samples have no names but their numbers."""
        return [str(n) for n in range(len(self))]

    @property
    def chunk(self) -> int:
        """How many samples are read at once."""
        return chunk_of(self.shape, self.batch.itemsize)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for start in range(0, len(self), self.chunk):
            yield self.batch[start : start + self.chunk]

    @contextmanager
    def writer(self, out: Path) -> Iterator[Write]:
        """Writes what was recalled for each chunk into one .npy file, float32, which appears when it is complete.

        It is `out`, or has the name of the source in the folder `out`.
        """
        named = out.suffix.lower() in (*PICTURES, ".npy") and not out.is_dir()
        place = named_after(out, ".npy") if named else out / self.path.name
        check_places([self.path], [place])
        place.parent.mkdir(parents=True, exist_ok=True)
        shape = self.shape if self.single else self.batch.shape
        with written_whole(place) as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})

            def write(values: NDArray[np.float32]) -> None:
                file.write(np.ascontiguousarray(values, "<f4").data)

            yield write


def check_array(path: Path, shape: tuple[int, ...] | None) -> Arrays:
    """The samples of a .npy file; shape: that of those of a memory."""
    array = open_array(path)
    if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
        hint = "; `.astype(np.float32)` makes floats of them" if array.dtype.kind in "iub" else ""
        raise SampleError(
            f"{path} has dtype {array.dtype}: samples must be floats, taken as they are, or uint8, read as /255{hint}"
        )
    single = array.shape == shape
    batch = array[None] if single else array
    if batch.ndim < 2 or batch.size == 0:
        raise SampleError(f"{path} has shape {array.shape}: it must be a batch of samples, along the first axis")
    if shape is not None and batch.shape[1:] != shape:
        raise SampleError(
            f"{path} has shape {array.shape}, but the memory holds samples of shape {shape}: "
            f"give one, or a batch of shape (n, {', '.join(map(str, shape))})"
        )
    return Arrays(path, batch, single)


def open_array(path: Path) -> NDArray[Any]:
    """An array that stays on disk; one of Python objects is refused."""
    try:
        with np.errstate(over="ignore"):  # absurd shapes are errors; no need to warn of them as well
            return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # damaged headers raise all kinds
        raise SampleError(f"{path} cannot be read as a .npy file: {error}") from error
