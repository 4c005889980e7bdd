"""Codecs: how samples become bytes, and samples again."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sqhn.evidence import leading
from sqhn.paper.baselines.store import flat

Bytes = NDArray[np.uint8]

QUALITIES = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 95)
"""The qualities that a JPEG can have here."""
END_OF_IMAGE = b"\xff\xd9"


class Codec(Protocol):
    """How samples become bytes. Samples are uint8 of shape (batch, *sample shape)."""

    @property
    def size(self) -> int | None:
        """The bytes of every code; None: they differ."""

    @property
    def nbytes(self) -> int:
        """The bytes that all codes share, such as a codebook."""

    def train(self, samples: Bytes) -> None:
        """See the first samples to be stored, before any is encoded."""

    def encode(self, samples: Bytes) -> list[bytes]:
        """One code for each sample."""

    def decode(self, codes: Sequence[bytes]) -> Bytes:
        """The samples, as far as their codes tell."""


def as_bytes(samples: NDArray[Any]) -> Bytes:
    """Samples as uint8; floats are clipped to [0, 1] and rounded."""
    return np.asarray(samples if samples.dtype == np.uint8 else np.rint(255 * np.clip(samples, 0, 1)), np.uint8)


class Plain:
    """One byte for each value."""

    nbytes = 0

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.size = shape, math.prod(shape)

    def train(self, samples: Bytes) -> None:
        pass

    def encode(self, samples: Bytes) -> list[bytes]:
        return [sample.tobytes() for sample in samples]

    def decode(self, codes: Sequence[bytes]) -> Bytes:
        return np.frombuffer(b"".join(codes), np.uint8).reshape(-1, *self.shape)


class Pictures:
    """Samples as pictures: images as they are, a signal of several sensors as gray columns, a vector as one column."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.is_image = leading(shape) == 2 and (len(shape) == 2 or shape[2:] == (3,))
        self.drawn = shape if self.is_image else (shape[0], math.prod(shape[1:]))

    def picture(self, sample: Bytes) -> Image.Image:
        return Image.fromarray(np.ascontiguousarray(sample.reshape(self.drawn)))

    def sample(self, picture: Image.Image) -> Bytes:
        return np.asarray(picture).reshape(self.shape)


class Smaller:
    """Pictures whose sides are divided by a factor: both sides of an image, the time of a signal."""

    nbytes = 0

    def __init__(self, shape: tuple[int, ...], factor: int) -> None:
        self.pictures = Pictures(shape)
        height, width, *channels = self.pictures.drawn
        sides = (height // factor, width // factor if self.pictures.is_image else width)
        if min(sides) < 1:
            raise ValueError(f"factor {factor} leaves nothing of samples of shape {shape}")
        self.whole, self.small = (width, height), (*sides, *channels)
        self.size = math.prod(self.small)

    def train(self, samples: Bytes) -> None:
        pass

    def encode(self, samples: Bytes) -> list[bytes]:
        sides = (self.small[1], self.small[0])
        return [self.pictures.picture(sample).resize(sides, Image.Resampling.BICUBIC).tobytes() for sample in samples]

    def decode(self, codes: Sequence[bytes]) -> Bytes:
        small = [Image.fromarray(np.frombuffer(code, np.uint8).reshape(self.small)) for code in codes]
        return np.stack([self.pictures.sample(one.resize(self.whole, Image.Resampling.BICUBIC)) for one in small])


class Jpeg:
    """JPEGs of the smallest quality at which a sample is within a mean squared error.

    header: whether a code is a whole file, or only its compressed data and its quality. The rest of a file follows from
    its quality, since all have the same tables of code words.
    """

    size, nbytes = None, 0

    def __init__(self, shape: tuple[int, ...], limit: float, header: bool) -> None:
        self.pictures, self.limit, self.header = Pictures(shape), limit, header

    def train(self, samples: Bytes) -> None:
        pass

    def encode(self, samples: Bytes) -> list[bytes]:
        return [self._encode(sample) for sample in samples]

    def _encode(self, sample: Bytes) -> bytes:
        """By bisection: a higher quality is expected to be nearer to the sample."""
        picture, low, high = self.pictures.picture(sample), 0, len(QUALITIES) - 1
        files: dict[int, bytes] = {}
        while low < high:
            middle = (low + high) // 2
            files[middle] = _file(picture, QUALITIES[middle])
            gap = self._decode(files[middle]).astype(np.float64) - sample
            low, high = (low, middle) if np.mean(np.square(gap / 255)) < self.limit else (middle + 1, high)
        file = files[low] if low in files else _file(picture, QUALITIES[low])
        if self.header:
            return file
        return bytes([low]) + file[len(self.headers[low]) : -len(END_OF_IMAGE)]

    def decode(self, codes: Sequence[bytes]) -> Bytes:
        if self.header:
            return np.stack([self._decode(code) for code in codes])
        return np.stack([self._decode(self.headers[code[0]] + code[1:] + END_OF_IMAGE) for code in codes])

    def _decode(self, file: bytes) -> Bytes:
        with Image.open(io.BytesIO(file)) as picture:
            return self.pictures.sample(picture)

    @cached_property
    def headers(self) -> list[bytes]:
        """All of a file before its compressed data, for every quality."""
        blank = Image.fromarray(np.zeros(self.pictures.drawn, np.uint8))
        return [_header(_file(blank, quality)) for quality in QUALITIES]


def _file(picture: Image.Image, quality: int) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return file.getvalue()


def _header(file: bytes) -> bytes:
    """A file up to the end of the segment that starts the compressed data."""
    at = 2
    while file[at + 1] != 0xDA:
        at += 2 + int.from_bytes(file[at + 2 : at + 4])
    return file[: at + 2 + int.from_bytes(file[at + 2 : at + 4])]


class Quantizer:
    """Product quantization by FAISS: k-means for every group of at most `width` values, trained once."""

    def __init__(self, shape: tuple[int, ...], width: int, bits: int) -> None:
        import faiss

        values = math.prod(shape)
        width = next(one for one in range(width, 0, -1) if values % one == 0)
        self.shape = shape
        self._quantizer: Any = faiss.ProductQuantizer(values, values // width, bits)
        self.size = int(self._quantizer.code_size)
        self._quantizer.cp.min_points_per_centroid = 1  # no warnings about small batches
        self.centers = 2**bits
        self.nbytes = 4 * values * self.centers
        self._trained = False

    def train(self, samples: Bytes) -> None:
        if self._trained:
            return
        if len(samples) < self.centers:
            raise ValueError(
                f"the first batch trains {self.centers} centers, so it needs as many samples; got {len(samples)}"
            )
        self._quantizer.train(flat(samples))
        self._trained = True

    def encode(self, samples: Bytes) -> list[bytes]:
        return [code.tobytes() for code in self._quantizer.compute_codes(flat(samples))]

    def decode(self, codes: Sequence[bytes]) -> Bytes:
        rows: Any = self._quantizer.decode(np.frombuffer(b"".join(codes), np.uint8).reshape(-1, self.size))
        return as_bytes(rows).reshape(-1, *self.shape)
