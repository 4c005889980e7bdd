"""Image files, as uint8: gray images have shape (height, width), color images (height, width, 3).

Palettes and transparency count as color (.webp is always color, .gif nearly always); transparency is dropped, EXIF
orientation is ignored, and of animated images only the first frame is used. All headers are checked before the first
image is decoded. Chunks are then decoded slightly ahead of the reader, so that millions of images need little memory
and decoding overlaps with learning.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.threads import get_num_threads
from sqhn.cli.options import Size
from sqhn.cli.samples.files import Required, Unusable, check_file, chunk_length, summary

if TYPE_CHECKING:
    from PIL.Image import Image


SMALL_IMAGE = 64 * 64  # pixels up to which one thread decodes faster than several
DECODING_THREADS = 4
GRAY_MODES = ("1", "L")
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")


@dataclass(frozen=True)
class Images:
    """Image files, and the shape of all images after resizing."""

    files: Sequence[str]
    shape: tuple[int, ...]
    resize: Size | None
    threads: int

    suffix: ClassVar[str] = ".png"
    places: ClassVar[Sequence[str]] = [""]

    def __len__(self) -> int:
        return len(self.files)

    def chunks(self, start: int = 0) -> Iterator[NDArray[np.uint8]]:
        """The images from index `start`, as chunks (n, *shape), up to the first that is damaged.

        The rest are then decoded too, so that the error names all damaged images.
        """
        damaged: Unusable = {}
        for chunk, errors in self._decoded(start):
            damaged |= errors
            if not damaged:
                yield chunk
        if damaged:
            raise ValueError(summary(damaged))

    def damaged(self) -> Unusable:
        """The images that cannot be decoded although their headers are valid."""
        return {file: reason for _, errors in self._decoded(0) for file, reason in errors.items()}

    def _decoded(self, start: int) -> Iterator[tuple[NDArray[np.uint8], Unusable]]:
        """Chunk after chunk, decoded slightly ahead, each with its damaged files."""
        length = chunk_length(self.shape, 1)
        pool = ThreadPoolExecutor(self.threads)
        futures = (pool.submit(self._decode, self.files[n : n + length]) for n in range(start, len(self), length))
        waiting = deque(islice(futures, self.threads + 1))
        try:
            while waiting:
                waiting.extend(islice(futures, 1))
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _decode(self, files: Sequence[str]) -> tuple[NDArray[np.uint8], Unusable]:
        chunk = np.empty((len(files), *self.shape), np.uint8)
        damaged: Unusable = {}
        mode = "L" if len(self.shape) == 2 else "RGB"
        for n, file in enumerate(files):
            try:
                pixels = decode(Path(file), mode, self.resize)
                if pixels.shape != self.shape:
                    raise ValueError(f"{file} has changed while it was read")
                chunk[n] = pixels
            except (OSError, ValueError) as error:
                damaged[file] = f"{error}"
        return chunk, damaged

    def write(self, places: Sequence[Path], shape: tuple[int, ...], chunks: Iterable[NDArray[np.float32]]) -> None:
        """Write chunks (n, *shape) as .png files; with another axis, the images along it side by side."""
        from PIL import Image

        for place, values in zip(places, chain.from_iterable(chunks)):
            row = values if shape == self.shape else np.concatenate(values, axis=1)
            Image.fromarray(np.rint(np.clip(row, 0, 1) * 255).astype(np.uint8)).save(place)


def check_images(files: Sequence[str], required: Required | None, resize: Size | None, unusable: Unusable) -> Images:
    """Check all headers: images of one size, that of the memory if there is one, or with `resize` of any size.

    Files that cannot be used are added to `unusable`.
    """
    size, reason, gray = resize, "--resize says", False
    if required is not None:
        shape, reason = required
        if len(shape) < 2 or shape[2:] not in ((), (3,)):
            raise ValueError(f"{reason} samples of shape {shape}, not images: give a .npy file")
        size, gray = Size(shape[1], shape[0]), len(shape) == 2
        if resize not in (None, size):
            raise ValueError(f"{reason} images of {size}: --resize {resize} does not fit")
    good: list[str] = []
    colored, pixels = False, 0
    for file in files:
        try:
            own, mode = _header(Path(file))
            if resize is None and size is not None and own != size:
                raise ValueError(f"{file} has {own} pixels, but {reason} {size}: give --resize {size} to make them fit")
            if gray and mode not in GRAY_MODES:
                raise ValueError(f"{file} is a color image, but {reason} gray ones: convert it to a gray .png")
        except (OSError, ValueError) as error:
            unusable[file] = f"{error}"
            continue
        if size is None:
            size, reason = own, f"{file} has"
        good.append(file)
        colored = colored or mode not in GRAY_MODES
        pixels = max(pixels, math.prod(own))
    width, height = size or (0, 0)
    shape = (height, width, 3) if colored else (height, width)
    threads = 1 if pixels <= SMALL_IMAGE else min(DECODING_THREADS, get_num_threads())
    return Images(good, shape if required is None else required.shape, resize, threads)


def decode(path: Path, mode: str, resize: Size | None, nearest: bool = False) -> NDArray[np.uint8]:
    """The pixels of an image, scaled."""
    from PIL.Image import Resampling

    with _image(path) as image:
        image.info.pop("transparency", None)
        plain = image if image.mode == mode else image.convert(mode)
        if resize is not None:
            plain = plain.resize(resize, Resampling.NEAREST if nearest else Resampling.BICUBIC)
        return np.asarray(plain)


def _header(path: Path) -> tuple[Size, str]:
    """Size and mode of an image of 8 bits, without decoding it."""
    check_file(path)
    with _image(path) as image:
        size, mode = Size(*image.size), image.mode
    if mode.startswith(("I", "F")):
        raise ValueError(
            f"{path} has more than 8 bits per pixel (mode {mode}): "
            "convert it to 8 bits, or give a .npy file of floats from 0 to 1"
        )
    return size, mode


@contextmanager
def _image(path: Path) -> Iterator[Image]:
    from PIL import Image

    try:
        with Image.open(path, formats=FORMATS) as image:
            yield image
    except Exception as error:  # damaged files make decoders raise errors of any kind
        if isinstance(error, OSError) and error.filename is not None:  # it cannot be opened
            raise
        raise ValueError(f"{path} cannot be read as an image: {error}") from error
