"""Samples in files: a folder of pictures, one picture, or an array in a .npy file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sqhn.samples.arrays import Arrays, check_array, open_array
from sqhn.samples.common import PICTURES, SampleError, check_file
from sqhn.samples.pictures import Pictures, Size, check_pictures, decode, find

__all__ = ["Arrays", "Pictures", "SampleError", "parse_size", "read", "read_mask"]


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
        names = find(source)
        if not names:
            raise SampleError(f"{source} holds no pictures ({', '.join(PICTURES)})")
        return check_pictures(source, names, shape, resize)
    suffix = source.suffix.lower()
    if suffix in PICTURES:
        return check_pictures(source.parent, [source.name], shape, resize)
    if suffix != ".npy":
        raise SampleError(f"{source} is neither a folder, nor a picture ({', '.join(PICTURES)}), nor a .npy file")
    if resize is not None:
        raise SampleError(f"--resize is for pictures; {source} holds an array")
    check_file(source)
    return check_array(source, shape)


def read_mask(path: Path, shape: tuple[int, ...], resize: Size | None = None) -> NDArray[np.bool_]:
    """Which values of samples of a shape were seen: where a picture is not black, or a boolean .npy file is True.

    A mask without channels is for all of them. With `resize` a picture is scaled as the samples are.
    """
    check_file(path)
    if path.suffix.lower() == ".npy":
        mask = open_array(path)
        if mask.dtype != np.bool_:
            raise SampleError(f"{path} must be boolean, True where a value was seen; got dtype {mask.dtype}")
    else:
        mask = np.asarray(decode(path, "RGB", resize, nearest=True).any(axis=2))
    if mask.shape == shape[:-1] and len(shape) == 3:
        mask = mask[..., None]
    elif mask.shape != shape:
        raise SampleError(f"{path} has shape {mask.shape}, but the samples of the memory have {shape}")
    return np.broadcast_to(mask, shape)
