"""The samples of several files, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.cli.samples.arrays import Arrays
from sqhn.cli.samples.common import IMAGE_SUFFIXES, STDIN, SampleError, Unusable, check_places, name_below, named_after
from sqhn.cli.samples.images import Images


@dataclass(frozen=True)
class Samples:
    """Samples of one shape, in the order of their files.

    folder: the common folder of all files; their names are relative to it.
    skipped: the files that cannot be used, and why.
    """

    parts: Sequence[Images | Arrays]
    folder: str
    skipped: Unusable

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape

    @property
    def names(self) -> list[str]:
        """The samples of a single array are named by their index alone."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Arrays):
            return [str(n) for n in range(len(self))]
        return [name for part in self.parts for name in part.names(self.folder)]

    def files_of(self, count: int) -> list[str]:
        """The files of the first `count` samples."""
        files: list[str] = []
        for part in self.parts:
            files += part.files_of(min(count, len(part)))
            count -= min(count, len(part))
        return files

    @property
    def repeatable(self) -> bool:
        """Whether they can be read again: standard input cannot."""
        return not any(STDIN in part.files for part in self.parts)

    def chunks(self, start: int = 0) -> Iterator[NDArray[Any]]:
        """The samples from index `start`, as chunks (n, *shape)."""
        for part in self.parts:
            if start < len(part):
                yield from part.chunks(start)
            start = max(0, start - len(part))

    def write(self, out: Path, chunks: Iterator[NDArray[np.float32]], best: int | None = None) -> None:
        """Write what was recalled for each chunk: images as .png, arrays as .npy, with the names of the sources.

        best: how many are recalled for each sample, along a second axis; images are put side by side.
        For a single source file `out` may be a file; otherwise it is a folder.
        """
        places = self._places(out)
        check_places([Path(file) for part in self.parts for file in part.files], [*chain(*places)])
        for part, own in zip(self.parts, places):
            values = _take(chunks, len(part))
            first = next(values)  # if this fails, no folder is made
            for folder in {place.parent for place in own}:
                folder.mkdir(parents=True, exist_ok=True)
            part.write(own, chain([first], values), best)

    def _places(self, out: Path) -> list[list[Path]]:
        """The output files of each part."""
        first = self.parts[0]
        if out.suffix.lower() in (*IMAGE_SUFFIXES, ".npy") and not out.is_dir():
            if len(self.parts) > 1 or len(first.files) > 1:
                raise SampleError(f"{out} looks like a file, but there are several to write: name a folder")
            return [[named_after(out, first.suffix)]]
        return [
            [out / Path(name_below(self.folder, file)).with_suffix(part.suffix) for file in part.files]
            for part in self.parts
        ]


def _take(chunks: Iterator[NDArray[np.float32]], count: int) -> Iterator[NDArray[np.float32]]:
    """The chunks of the next `count` samples."""
    while count:
        values = next(chunks)
        count -= len(values)
        yield values
