"""Samples in files: a folder of pictures, one picture, or an array in a .npy file.

Pictures are uint8 all the way: grey ones have shape (height, width), color ones (height, width, 3). Palettes and
transparency count as color, and the transparency is dropped; an EXIF orientation is ignored. Every header is read
before the first picture is decoded, so what does not fit is named at once. Then chunks are decoded a little ahead of
whoever asks for them: millions of pictures need little memory, and decoding overlaps with learning.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import stat
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.threads import get_num_threads

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Arrays", "Pictures", "SampleError", "parse_size", "read", "read_mask"]

PICTURES = (".png", ".jpg", ".jpeg")
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
PNG_MODES = {b"\x08\x00": "L", b"\x08\x02": "RGB", b"\x08\x03": "P", b"\x08\x06": "RGBA"}  # depth, color type
CHUNK = 256
CHUNK_BYTES = 1 << 24
QUICK = 1 << 26  # pixels up to which a header is believed; of larger pictures the library says whether it reads them
SMALL = 64 * 64  # pixels up to which one thread decodes faster than several: they would wait for each other
THREADS = 4

Size = tuple[int, int]  # width, height: as everybody writes the sizes of pictures
Write = Callable[[NDArray[np.float32]], None]


class SampleError(ValueError):
    """Samples that cannot be used; the message names the file."""


def parse_size(text: str) -> Size:
    """The size of a picture, WIDTHxHEIGHT; larger ones than the library reads without a warning are refused.

    >>> parse_size("64x48")
    (64, 48)
    """
    from PIL import Image

    match = re.fullmatch("0*([1-9][0-9]*)x0*([1-9][0-9]*)", text.lower())
    if match is None:
        raise ValueError(f"{text!r} is not WIDTHxHEIGHT in pixels, such as 64x48")
    most = Image.MAX_IMAGE_PIXELS or sys.maxsize
    width, height = (int(side) if len(side) <= len(str(most)) else most + 1 for side in match.groups())
    if width * height > most:
        raise ValueError(f"{text!r} is too large: a picture may have up to {most:,} pixels")
    return width, height


def read(source: Path, shape: tuple[int, ...] | None = None, resize: Size | None = None) -> Pictures | Arrays:
    """The samples of a folder, a picture or a .npy file, checked but not decoded yet.

    shape: that of the samples of an existing memory; None if they are to start a new one.
    resize: the size to give to all pictures.
    """
    if not source.exists():
        raise SampleError(f"there is no {source}")
    if source.is_dir():
        names = _find(source)
        if not names:
            raise SampleError(f"{source} holds no pictures ({', '.join(PICTURES)})")
        return _check_pictures(source, names, shape, resize)
    suffix = source.suffix.lower()
    if suffix in PICTURES:
        return _check_pictures(source.parent, [source.name], shape, resize)
    if suffix != ".npy":
        raise SampleError(f"{source} is neither a folder, nor a picture ({', '.join(PICTURES)}), nor a .npy file")
    if resize is not None:
        raise SampleError(f"--resize is for pictures; {source} holds an array")
    _check_file(source)
    return _check_array(source, shape)


def read_mask(path: Path, shape: tuple[int, ...], resize: Size | None = None) -> NDArray[np.bool_]:
    """Which values of samples of a shape were seen: where a picture is not black, or a boolean .npy file is True.

    A mask without channels is for all of them. With `resize` a picture is scaled as the samples are.
    """
    _check_file(path)
    if path.suffix.lower() == ".npy":
        mask = _open_array(path)
        if mask.dtype != np.bool_:
            raise SampleError(f"{path} must be boolean, True where a value was seen; got dtype {mask.dtype}")
    else:
        mask = np.asarray(_decode(path, "RGB", resize, nearest=True).any(axis=2))
    if mask.shape == shape[:-1] and len(shape) == 3:
        mask = mask[..., None]
    elif mask.shape != shape:
        raise SampleError(f"{path} has shape {mask.shape}, but the samples of the memory have {shape}")
    return np.broadcast_to(mask, shape)


# -- pictures ----------------------------------------------------------------------------------------------------


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
        return _chunk(self.shape, 1)

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
            pixels = _decode(self.root / name, mode, self.resize)
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
            places = [_file(out, ".png")]
        else:
            places = [out / Path(name).with_suffix(".png") for name in self.names]
        _check_places([self.root / name for name in self.names], places)
        left = iter(places)

        def write(values: NDArray[np.float32]) -> None:
            from PIL import Image

            for pixels in np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8):
                place = next(left)
                place.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(place)

        yield write


def _find(folder: Path) -> list[str]:
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


def _check_pictures(root: Path, names: Sequence[str], shape: tuple[int, ...] | None, resize: Size | None) -> Pictures:
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
        raise SampleError(f"{colored} is a color picture, but the memory holds grey ones: convert it to grey")
    threads = 1 if pixels <= SMALL else min(THREADS, get_num_threads())
    return Pictures(root, names, shape, resize, threads)


def _header(path: Path) -> tuple[Size, str]:
    """Size and mode of a picture. The usual PNGs are quick, for there may be millions; the library knows the others."""
    _check_file(path)
    with path.open("rb", buffering=0) as file:
        head = file.read(26)
    if head.startswith(PNG) and head[24:] in PNG_MODES:
        width, height = struct.unpack(">II", head[16:24])
        if 0 < width * height <= QUICK:
            return (width, height), PNG_MODES[head[24:]]
    with _picture(path) as picture:
        return picture.size, picture.mode


def _decode(path: Path, mode: str, resize: Size | None, nearest: bool = False) -> NDArray[np.uint8]:
    from PIL.Image import Resampling

    with _picture(path) as picture:
        picture.info.pop("transparency", None)
        plain = picture if picture.mode == mode else picture.convert(mode)
        if resize is not None:
            plain = plain.resize(resize, Resampling.NEAREST if nearest else Resampling.BICUBIC)
        return np.asarray(plain)


@contextmanager
def _picture(path: Path) -> Iterator[Image]:
    from PIL import Image

    try:
        with Image.open(path, formats=("PNG", "JPEG")) as picture:
            yield picture
    except Exception as error:  # damaged files make decoders raise all kinds
        raise SampleError(f"{path} cannot be read as a picture: {error}") from error


def _text(size: Size | None) -> str:
    return "x".join(map(str, size or ()))


# -- arrays ------------------------------------------------------------------------------------------------------


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
        return _chunk(self.shape, self.batch.itemsize)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for start in range(0, len(self), self.chunk):
            yield self.batch[start : start + self.chunk]

    @contextmanager
    def writer(self, out: Path) -> Iterator[Write]:
        """Writes what was recalled for each chunk into one .npy file, float32, which appears when it is complete.

        It is `out`, or has the name of the source in the folder `out`.
        """
        named = out.suffix.lower() in (*PICTURES, ".npy") and not out.is_dir()
        place = _file(out, ".npy") if named else out / self.path.name
        _check_places([self.path], [place])
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
        shape = self.shape if self.single else self.batch.shape
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        try:
            with draft.open("xb") as file:
                np.lib.format.write_array_header_1_0(file, header)

                def write(values: NDArray[np.float32]) -> None:
                    file.write(np.ascontiguousarray(values, "<f4").data)

                yield write
            draft.replace(place)
        except BaseException as error:
            draft.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename in (None, str(draft)):
                error.filename = str(place)
            raise


def _check_array(path: Path, shape: tuple[int, ...] | None) -> Arrays:
    array = _open_array(path)
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


def _open_array(path: Path) -> NDArray[Any]:
    """An array that stays on disk; one of Python objects is refused."""
    try:
        with np.errstate(over="ignore"):  # absurd shapes are errors; no need to warn of them as well
            return np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # damaged headers raise all kinds
        raise SampleError(f"{path} cannot be read as a .npy file: {error}") from error


# -- both --------------------------------------------------------------------------------------------------------


def _check_file(path: Path) -> None:
    """Raise unless it is a plain file: a pipe would be waited for, as long as nobody writes to it."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise SampleError(f"{path} is not a file")


def _chunk(shape: tuple[int, ...], itemsize: int) -> int:
    return max(1, min(CHUNK, CHUNK_BYTES // (math.prod(shape) * itemsize)))


def _file(out: Path, suffix: str) -> Path:
    """`out` itself, if it is named after what will be in it."""
    if out.suffix.lower() != suffix:
        raise SampleError(f"{out} must be a folder or end in {suffix}, for that is what is written")
    return out


def _check_places(sources: list[Path], places: list[Path]) -> None:
    """Nothing may be written twice, or over what is still to be read."""
    given = {path.resolve() for path in sources}
    taken: dict[Path, Path] = {}
    for source, place in zip(sources, places):
        if place.resolve() in given:
            raise SampleError(f"what is recalled for {source} would be written over {place}: give another --out")
        if place in taken:
            raise SampleError(f"{taken[place]} and {source} would both be written to {place}: rename one")
        taken[place] = source
