"""The samples of several files, as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.cli.samples.arrays import Arrays
from sqhn.cli.samples.common import PICTURES, STDIN, Bad, SampleError, Write, check_places, name_below, named_after
from sqhn.cli.samples.pictures import Pictures

__all__ = ["Samples"]


@dataclass(frozen=True)
class Samples:
    """Samples of one shape, in the order of their files.

    folder: that which all files are in or below; their names leave it out.
    skipped: files that cannot be used, and why.
    """

    parts: Sequence[Pictures | Arrays]
    folder: str
    skipped: Bad

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape

    @property
    def names(self) -> list[str]:
        """The samples of one array have no names but their numbers."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Arrays):
            return [str(n) for n in range(len(self))]
        return [name for part in self.parts for name in part.names(self.folder)]

    def files_of(self, count: int) -> list[str]:
        """Where the first so many samples come from."""
        files: list[str] = []
        for part in self.parts:
            files += part.files_of(min(count, len(part)))
            count -= min(count, len(part))
        return files

    @property
    def lasting(self) -> bool:
        """Whether they can be read again: standard input cannot."""
        return not any(STDIN in part.files for part in self.parts if isinstance(part, Arrays))

    def chunks(self, start: int = 0) -> Iterator[NDArray[Any]]:
        """The samples from a number on, as chunks (n, *shape)."""
        for part in self.parts:
            if start < len(part):
                yield from part.chunks(start)
            start = max(0, start - len(part))

    @contextmanager
    def writer(self, out: Path, many: int | None = None) -> Iterator[Write]:
        """Writes what was recalled for chunk after chunk: pictures as .png, arrays as .npy, of the same names.

        many: so much was recalled for each sample, along a second axis: pictures are put side by side.
        For a single file `out` may be named after what is written; else it is a folder.
        """
        places = self._places(out)
        everywhere = [place for own in places for place in own]
        check_places([Path(file) for part in self.parts for file in part.files], everywhere)
        waiting = zip(self.parts, places)
        left = 0
        put: Write | None = None
        with ExitStack() as opened:

            def write(values: NDArray[np.float32]) -> None:
                nonlocal left, put
                if put is None or not left:
                    opened.close()
                    part, own = next(waiting)
                    for folder in {place.parent for place in own}:
                        folder.mkdir(parents=True, exist_ok=True)
                    left, put = len(part), opened.enter_context(part.writer(own, many))
                put(values)
                left -= len(values)

            yield write

    def _places(self, out: Path) -> list[list[Path]]:
        """Where what is recalled for the files of each part goes."""
        first = self.parts[0]
        if out.suffix.lower() in (*PICTURES, ".npy") and not out.is_dir():
            if len(self.parts) > 1 or len(first.files) > 1:
                raise SampleError(f"{out} is named like a file, but there are several to write: name a folder")
            return [[named_after(out, first.suffix)]]
        return [
            [out / Path(name_below(self.folder, file)).with_suffix(part.suffix) for file in part.files]
            for part in self.parts
        ]
