"""Pictures in files, uint8 all the way: grey ones have shape (height, width), color ones (height, width, 3).

Palettes and transparency count as color (a .webp is always in color, a .gif nearly always), and the transparency is
dropped; an EXIF orientation is ignored; of what moves, the first frame is taken. Every header is read before the first
picture is decoded, so what does not fit is named at once. Then chunks are decoded a little ahead of whoever asks for
them: millions of pictures need little memory, and decoding overlaps with learning.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.threads import get_num_threads
from sqhn.cli.samples.common import Bad, Fit, SampleError, Write, check_file, chunk_of, listed, name_below

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Pictures", "Size", "check_pictures", "decode"]

SMALL = 64 * 64  # pixels up to which one thread decodes faster than several: they would wait for each other
THREADS = 4
GREY = ("1", "L")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")

Size = tuple[int, int]  # width, height: as everybody writes the sizes of pictures


@dataclass(frozen=True)
class Pictures:
    """Pictures in files, and the shape that all of them get."""

    files: Sequence[str]
    shape: tuple[int, ...]
    resize: Size | None
    threads: int

    suffix: ClassVar[str] = ".png"

    def __len__(self) -> int:
        return len(self.files)

    @property
    def chunk(self) -> int:
        """How many pictures are read at once."""
        return chunk_of(self.shape, 1)

    def names(self, folder: str) -> list[str]:
        """What the pictures are called below a folder."""
        return [name_below(folder, file) for file in self.files]

    def files_of(self, count: int) -> Sequence[str]:
        """Where the first so many pictures come from."""
        return self.files[:count]

    def chunks(self, start: int = 0) -> Iterator[NDArray[np.uint8]]:
        """The pictures from a number on, as chunks (n, *shape); after a damaged one there are no more.

        All that follow are tried then, so that the error names every one that is damaged.
        """
        bad: Bad = {}
        for chunk, own in self._decoded(start):
            bad |= own
            if not bad:
                yield chunk
        if bad:
            raise SampleError(listed(bad))

    def damaged(self) -> Bad:
        """The pictures that cannot be decoded, whatever their headers say."""
        bad: Bad = {}
        for _, own in self._decoded(0):
            bad |= own
        return bad

    def _decoded(self, start: int) -> Iterator[tuple[NDArray[np.uint8], Bad]]:
        """Chunk after chunk, decoded a little ahead, and those of its files that cannot be."""
        pool = ThreadPoolExecutor(self.threads)
        waiting: deque[Future[tuple[NDArray[np.uint8], Bad]]] = deque()
        try:
            for first in range(start, len(self), self.chunk):
                waiting.append(pool.submit(self._decode, self.files[first : first + self.chunk]))
                if len(waiting) > self.threads + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _decode(self, files: Sequence[str]) -> tuple[NDArray[np.uint8], Bad]:
        chunk = np.empty((len(files), *self.shape), np.uint8)
        bad: Bad = {}
        mode = "L" if len(self.shape) == 2 else "RGB"
        for n, file in enumerate(files):
            try:
                pixels = decode(Path(file), mode, self.resize)
                if pixels.shape != self.shape:
                    raise SampleError(f"{file} has changed while it was read")
                chunk[n] = pixels
            except (OSError, SampleError) as error:
                bad[file] = f"{error}"
        return chunk, bad

    @contextmanager
    def writer(self, places: Sequence[Path], many: int | None = None) -> Iterator[Write]:
        """Writes what was recalled for each chunk as .png files; if it is `many` for each, side by side."""
        left = iter(places)

        def write(values: NDArray[np.float32]) -> None:
            from PIL import Image

            for pixels in np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8):
                row = pixels if many is None else np.concatenate(pixels, axis=1)
                Image.fromarray(row).save(next(left))

        yield write


def check_pictures(files: Sequence[str], fit: Fit | None, resize: Size | None, bad: Bad) -> Pictures:
    """Read all headers: pictures of one size, that of the memory if there is one, or to be given one.

    What cannot be used goes to `bad`.
    """
    size, owner = _wanted(fit, resize)
    grey = fit is not None and len(fit.shape) == 2
    good: list[str] = []
    colored, pixels = False, 0
    for file in files:
        try:
            own, mode = _header(Path(file))
            if resize is None and size is not None and own != size:
                raise SampleError(
                    f"{file} has {_text(own)} pixels, but {owner} {_text(size)}: "
                    f"give --resize {_text(size)} to make them fit"
                )
            if grey and mode not in GREY:
                raise SampleError(f"{file} is a color picture, but {owner} grey ones: convert it to a grey .png")
        except (OSError, SampleError) as error:
            bad[file] = f"{error}"
            continue
        if size is None:
            size, owner = own, f"{file} has"
        good.append(file)
        colored = colored or mode not in GREY
        pixels = max(pixels, math.prod(own))
    width, height = size or (0, 0)
    shape = (height, width, 3) if colored else (height, width)
    threads = 1 if pixels <= SMALL else min(THREADS, get_num_threads())
    return Pictures(good, shape if fit is None else fit.shape, resize, threads)


def _wanted(fit: Fit | None, resize: Size | None) -> tuple[Size | None, str]:
    """The size that pictures must have, and who says so."""
    if fit is None:
        return resize, "--resize says"
    if len(fit.shape) != 2 and (len(fit.shape) != 3 or fit.shape[2] != 3):
        raise SampleError(f"{fit.owner} samples of shape {fit.shape}, not pictures: give a .npy file")
    size = fit.shape[1], fit.shape[0]
    if resize not in (None, size):
        raise SampleError(f"{fit.owner} pictures of {_text(size)}: --resize {_text(resize)} does not fit")
    return size, fit.owner


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
    """Size and mode of a picture of 8 bits, which is not decoded."""
    check_file(path)
    with _picture(path) as picture:
        size, mode = picture.size, picture.mode
    if mode.startswith(("I", "F")):
        raise SampleError(
            f"{path} has more than 8 bits per pixel (mode {mode}): "
            "convert it to 8 bits, or give a .npy file of floats from 0 to 1"
        )
    return size, mode


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
