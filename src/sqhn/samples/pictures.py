"""Pictures in files, uint8 all the way: grey ones have shape (height, width), color ones (height, width, 3).

Palettes and transparency count as color (a .webp is always in color, a .gif nearly always), and the transparency is
dropped; an EXIF orientation is ignored; of what moves, the first frame is taken. Every header is read before the first
picture is decoded, so what does not fit is named at once. Then chunks are decoded a little ahead of whoever asks for
them: millions of pictures need little memory, and decoding overlaps with learning.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.threads import get_num_threads
from sqhn.samples.common import PICTURES, SampleError, Write, check_file, check_places, chunk_of, named_after

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Pictures", "Size", "check_pictures", "decode", "find"]

SMALL = 64 * 64  # pixels up to which one thread decodes faster than several: they would wait for each other
THREADS = 4
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")

Size = tuple[int, int]  # width, height: as everybody writes the sizes of pictures


@dataclass(frozen=True)
class Pictures:
    """Pictures below a folder, in the order of their names, and the shape that all of them get.

    Iterating gives chunks (n, *shape).
    """

    root: Path
    names: Sequence[str]
    shape: tuple[int, ...]
    resize: Size | None
    threads: int

    def __len__(self) -> int:
        return len(self.names)

    @property
    def chunk(self) -> int:
        """How many pictures are read at once."""
        return chunk_of(self.shape, 1)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        pool = ThreadPoolExecutor(self.threads)
        waiting: deque[Future[NDArray[np.uint8]]] = deque()
        try:
            for start in range(0, len(self), self.chunk):
                waiting.append(pool.submit(self._decode, self.names[start : start + self.chunk]))
                if len(waiting) > self.threads + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _decode(self, names: Sequence[str]) -> NDArray[np.uint8]:
        chunk = np.empty((len(names), *self.shape), np.uint8)
        mode = "L" if len(self.shape) == 2 else "RGB"
        for n, name in enumerate(names):
            pixels = decode(self.root / name, mode, self.resize)
            if pixels.shape != self.shape:
                raise SampleError(f"{self.root / name} has changed while it was read")
            chunk[n] = pixels
        return chunk

    @contextmanager
    def writer(self, out: Path) -> Iterator[Write]:
        """Writes what was recalled for each chunk as .png files of the same names, into a folder.

        For one picture `out` may be a .png file.
        """
        if len(self) == 1 and out.suffix.lower() in PICTURES and not out.is_dir():
            places = [named_after(out, ".png")]
        else:
            places = [out / Path(name).with_suffix(".png") for name in self.names]
        check_places([self.root / name for name in self.names], places)
        left = iter(places)

        def write(values: NDArray[np.float32]) -> None:
            from PIL import Image

            for pixels in np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8):
                place = next(left)
                place.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(place)

        yield write


def find(folder: Path) -> list[str]:
    """The pictures below a folder, sorted; what is hidden is left out."""

    def fail(error: OSError) -> None:
        raise error

    names = []
    for at, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        here = Path(at).relative_to(folder).as_posix()
        found = (name for name in files if not name.startswith(".") and name.lower().endswith(PICTURES))
        names += [f"{here}/{name}".removeprefix("./") for name in found]
    return sorted(names)


def check_pictures(root: Path, names: Sequence[str], shape: tuple[int, ...] | None, resize: Size | None) -> Pictures:
    """Read all headers: pictures of one size, that of the memory if there is one, or to be given one."""
    size, owner = resize, "--resize says"
    if shape is not None:
        if len(shape) != 2 and (len(shape) != 3 or shape[2] != 3):
            raise SampleError(f"the memory holds samples of shape {shape}, not pictures: give a .npy file")
        size, owner = (shape[1], shape[0]), "the memory holds"
        if resize not in (None, size):
            raise SampleError(f"the memory holds pictures of {_text(size)}: --resize {_text(resize)} does not fit")
    colored, pixels = None, 0
    for name in names:
        path = root / name
        own, mode = _header(path)
        if mode.startswith(("I", "F")):
            raise SampleError(
                f"{path} has more than 8 bits per pixel (mode {mode}): "
                "convert it to 8 bits, or give a .npy file of floats from 0 to 1"
            )
        if size is None:
            size, owner = own, f"{path} has"
        if resize is None and own != size:
            raise SampleError(
                f"{path} has {_text(own)} pixels, but {owner} {_text(size)}: "
                f"give --resize {_text(size)} to make them fit"
            )
        colored = colored or (None if mode in ("1", "L") else path)
        pixels = max(pixels, math.prod(own))
    assert size is not None
    if shape is None:
        shape = (size[1], size[0]) if colored is None else (size[1], size[0], 3)
    elif len(shape) == 2 and colored is not None:
        raise SampleError(f"{colored} is a color picture, but the memory holds grey ones: convert it to a grey .png")
    threads = 1 if pixels <= SMALL else min(THREADS, get_num_threads())
    return Pictures(root, names, shape, resize, threads)


def decode(path: Path, mode: str, resize: Size | None, nearest: bool = False) -> NDArray[np.uint8]:
    """The pixels of a picture, scaled."""
    from PIL.Image import Resampling

    with _picture(path) as picture:
        picture.info.pop("transparency", None)
        plain = picture if picture.mode == mode else picture.convert(mode)
        if resize is not None:
            plain = plain.resize(resize, Resampling.NEAREST if nearest else Resampling.BICUBIC)
        return np.asarray(plain)


def _header(path: Path) -> tuple[Size, str]:
    """Size and mode of a picture, which is not decoded."""
    check_file(path)
    with _picture(path) as picture:
        return picture.size, picture.mode


@contextmanager
def _picture(path: Path) -> Iterator[Image]:
    from PIL import Image

    try:
        with Image.open(path, formats=FORMATS) as picture:
            yield picture
    except Exception as error:  # damaged files make decoders raise all kinds
        if isinstance(error, OSError) and error.filename is not None:  # it cannot be opened, and says so itself
            raise
        raise SampleError(f"{path} cannot be read as a picture: {error}") from error


def _text(size: Size | None) -> str:
    return "x".join(map(str, size or ()))
