"""Image files, as uint8: gray images have shape (height, width), color images (height, width, 3).

Palettes and transparency count as color (.webp and .avif are always color, .gif nearly always); transparency is
dropped, images are turned as their EXIF data say, and of animated images only the first frame is used. All headers are
checked before the first image is decoded. Chunks are then decoded slightly ahead of the reader, so that millions of
images need little memory and decoding overlaps with learning.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "AVIF")
ORIENTATION = 274  # a tag of EXIF and TIFF
TURNS = {  # its values: the turn that makes an image upright
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
NAMED_SIZES = 3


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


def check_images(
    files: Sequence[str], required: Required | None, resize: Size | None, unusable: Unusable
) -> tuple[Images, list[str]]:
    """Check all headers: images of any size for an existing memory or with `resize`, else of one size.

    Returns the images, and the files that will be scaled. Files that cannot be used are added to `unusable`.
    """
    size, owner, gray = resize, "", False
    if required is not None:
        shape, reason, memory = required
        if len(shape) < 2 or shape[2:] not in ((), (3,)):
            raise ValueError(f"{reason} samples of shape {shape}, not images: give a .npy file")
        size, owner, gray = Size(shape[1], shape[0]), f"{reason} images of", len(shape) == 2
        if resize not in (None, size):
            raise ValueError(f"{reason} images of {size}: --resize {resize} does not fit")
        resize = size if memory else resize
    sizes: dict[str, Size] = {}
    colored = False
    for file in files:
        try:
            own, mode = _header(Path(file))
            if gray and mode not in GRAY_MODES:
                raise ValueError(f"{file} is a color image, but {reason} gray ones: convert it to a gray .png")
            if size is None:
                decode(Path(file), "RGB")
                size, owner = own, f"{file} has"
        except (OSError, ValueError) as error:
            unusable[file] = f"{error}"
            continue
        sizes[file] = own
        colored = colored or mode not in GRAY_MODES
    others = {file: own for file, own in sizes.items() if own != size}
    if resize is None and others:
        different = list(dict.fromkeys(map(str, others.values())))
        listed = ", ".join([*different[:NAMED_SIZES], *(["..."] if len(different) > NAMED_SIZES else [])])
        have = "has another size" if len(others) == 1 else "have other sizes"
        count = f"{len(others):,} of {len(sizes):,} images {have} ({listed})"
        unusable |= dict.fromkeys(others, f"{count}, but {owner} {size}: give --resize {size}")
    good = [file for file in sizes if file not in unusable]
    width, height = size or (0, 0)
    shape = (height, width, 3) if colored else (height, width)
    pixels = max((math.prod(sizes[file]) for file in good), default=0)
    threads = 1 if pixels <= SMALL_IMAGE else min(DECODING_THREADS, get_num_threads())
    return Images(good, shape if required is None else required.shape, resize, threads), list(others)


def decode(path: Path, mode: str, resize: Size | None = None, nearest: bool = False) -> NDArray[np.uint8]:
    """The pixels of an image, upright and scaled."""
    from PIL.Image import Resampling

    with _image(path) as image:
        plain = _upright(image, mode)
        if resize is not None:
            plain = plain.resize(resize, Resampling.NEAREST if nearest else Resampling.BICUBIC)
        return np.asarray(plain)


def preview(path: Path, side: int) -> tuple[Image, Size]:
    """An image in color with sides of at most `side` pixels, and its size; JPEGs are decoded at a reduced size."""
    size, _ = _header(path)
    with _image(path) as image:
        image.draft("RGB", (side, side))
        plain = _upright(image, "RGB").copy()
        plain.thumbnail((side, side))
        return plain, size


def _header(path: Path) -> tuple[Size, str]:
    """Size and mode of an image of 8 bits, without decoding it."""
    check_file(path)
    with _image(path) as image:
        size, mode = _size(image), image.mode
    if mode.startswith(("I", "F")):
        raise ValueError(
            f"{path} has more than 8 bits per pixel (mode {mode}): "
            "convert it to 8 bits, or give a .npy file of floats from 0 to 1"
        )
    return size, mode


def _size(image: Image) -> Size:
    """The size of the upright image."""
    tags = getattr(image, "tag_v2", None)  # of .tif; Pillow's versions differ in the size before decoding
    width, height = image.size if tags is None else (tags[256], tags[257])
    return Size(height, width) if _orientation(image) > 4 else Size(width, height)


def _upright(image: Image, mode: str) -> Image:
    from PIL.Image import Transpose

    turn = None if image.format == "TIFF" else TURNS.get(_orientation(image))  # Pillow turns .tif itself
    image.info.pop("transparency", None)
    plain = image if image.mode == mode else image.convert(mode)
    return plain if turn is None else plain.transpose(Transpose[turn])


def _orientation(image: Image) -> int:
    """The orientation that the data before the pixels tell; 1, upright, if none."""
    from PIL.Image import Image

    with suppress(Exception):  # damaged EXIF data raise errors of any kind
        found = Image.getexif(image).get(ORIENTATION, 1)  # unlike that of .png, it decodes nothing
        return found if found in TURNS else 1
    return 1


@contextmanager
def _image(path: Path) -> Iterator[Image]:
    from PIL import Image, UnidentifiedImageError

    try:
        with path.open("rb") as file, Image.open(file, formats=FORMATS) as image:  # by name, Pillow garbles turned .tif
            yield image
    except UnidentifiedImageError as error:
        raise ValueError(f"{path} cannot be read as an image: it is none of {', '.join(FORMATS)}") from error
    except Exception as error:  # damaged files make decoders raise errors of any kind
        if isinstance(error, OSError) and error.filename is not None:  # it cannot be opened
            raise
        raise ValueError(f"{path} cannot be read as an image: {error}") from error
