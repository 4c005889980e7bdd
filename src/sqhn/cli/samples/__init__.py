"""Samples in files: pictures, and arrays in .npy files."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sqhn.cli.samples.arrays import Arrays, check_array, open_array
from sqhn.cli.samples.common import PICTURES, STDIN, Bad, Fit, SampleError, check_file, listed
from sqhn.cli.samples.pictures import Pictures, Size, check_pictures, decode
from sqhn.cli.samples.sources import find
from sqhn.cli.samples.together import Samples

__all__ = ["SampleError", "Samples", "parse_size", "read", "read_mask"]


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


def read(
    sources: Sequence[str],
    shape: tuple[int, ...] | None = None,
    resize: Size | None = None,
    skip_bad: bool = False,
) -> Samples:
    """The samples of folders, files, patterns and standard input ("-"), checked but not decoded yet.

    shape: that of the samples of an existing memory; None if they are to start a new one.
    resize: the size to give to all pictures.
    skip_bad: leave out files that cannot be used; to find them, all pictures are decoded once. Else they are an error.
    """
    files, folder = find(sources)
    bad: Bad = {}
    fit = None if shape is None else Fit(shape)
    arrays, pictures = _check(files, fit, resize, bad)
    if skip_bad and pictures:
        bad |= pictures.damaged()
    good = [file for file in files if file not in bad]
    if bad and not (skip_bad and good):
        raise SampleError(listed(bad))
    parts: list[Pictures | Arrays] = []
    for array, group in groupby(good, lambda file: file in arrays):
        if array or pictures is None:
            parts += [arrays[file] for file in group]
        else:
            parts.append(replace(pictures, files=list(group)))
    return Samples(parts, folder, bad)


def _check(
    files: list[str], fit: Fit | None, resize: Size | None, bad: Bad
) -> tuple[dict[str, Arrays], Pictures | None]:
    """The arrays and all pictures among files; what cannot be used goes to `bad`."""
    arrays: dict[str, Arrays] = {}
    painted = []
    for file in files:
        suffix = Path(file).suffix.lower()
        if suffix in PICTURES:
            painted.append(file)
        elif suffix != ".npy" and file != STDIN:
            bad[file] = f"{file} is neither a folder, nor a picture ({', '.join(PICTURES)}), nor a .npy file"
        else:
            try:
                arrays[file] = check_array(file, fit)
            except (OSError, SampleError) as error:
                bad[file] = f"{error}"
                continue
            fit = fit or Fit(arrays[file].shape, f"{file} holds")
    if resize is not None and not painted and arrays:
        raise SampleError(f"--resize is for pictures; {next(iter(arrays))} holds an array")
    return arrays, check_pictures(painted, fit, resize, bad) if painted else None


def read_mask(path: Path, shape: tuple[int, ...], resize: Size | None = None) -> NDArray[np.bool_]:
    """Which values of samples of a shape were seen: where a picture is not black, or a boolean .npy file is True.

    A mask without channels is for all of them. With `resize` a picture is scaled as the samples are.
    """
    if path.suffix.lower() == ".npy":
        mask = open_array(path)
        if mask.dtype != np.bool_:
            raise SampleError(f"{path} must be boolean, True where a value was seen; got dtype {mask.dtype}")
    else:
        check_file(path)
        mask = np.asarray(decode(path, "RGB", resize, nearest=True).any(axis=2))
    if mask.shape == shape[:-1] and len(shape) == 3:
        mask = mask[..., None]
    elif mask.shape != shape:
        raise SampleError(f"{path} has shape {mask.shape}, but the samples of the memory have {shape}")
    return np.broadcast_to(mask, shape)
