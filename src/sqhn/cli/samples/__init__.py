"""Samples in files: images, and arrays in .npy files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sqhn.cli.samples.arrays import Arrays, check_array, open_array
from sqhn.cli.samples.combined import Samples
from sqhn.cli.samples.common import IMAGES, STDIN, Required, SampleError, Unusable, check_file, summary
from sqhn.cli.samples.images import Images, check_images, decode
from sqhn.cli.samples.sources import find
from sqhn.cli.size import Size

__all__ = ["SampleError", "Samples", "read", "read_mask"]


def read(
    sources: Sequence[str],
    shape: tuple[int, ...] | None = None,
    resize: Size | None = None,
    skip_bad: bool = False,
) -> Samples:
    """The samples of folders, files, patterns and standard input ("-"), checked but not decoded yet.

    shape: of the samples of an existing memory; None for a new one.
    resize: the size for all images.
    skip_bad: leave out unusable files; all images are decoded once to find them. Otherwise they are an error.
    """
    files, folder = find(sources)
    unusable: Unusable = {}
    arrays, images = _check(files, None if shape is None else Required(shape), resize, unusable)
    if skip_bad and images:
        unusable |= images.damaged()
    good = [file for file in files if file not in unusable]
    if unusable and not (skip_bad and good):
        raise SampleError(summary(unusable))
    parts: list[Images | Arrays] = []
    for array, group in groupby(good, lambda file: file in arrays):
        if array or images is None:
            parts += [arrays[file] for file in group]
        else:
            parts.append(replace(images, files=list(group)))
    return Samples(parts, folder, unusable)


def _check(
    files: list[str], required: Required | None, resize: Size | None, unusable: Unusable
) -> tuple[dict[str, Arrays], Images | None]:
    """The arrays and all images among the files; others are added to `unusable`."""
    arrays: dict[str, Arrays] = {}
    images = []
    for file in files:
        suffix = Path(file).suffix.lower()
        if suffix in IMAGES:
            images.append(file)
        elif suffix != ".npy" and file != STDIN:
            unusable[file] = f"{file} is neither a folder, nor an image ({', '.join(IMAGES)}), nor a .npy file"
        else:
            try:
                arrays[file] = check_array(file, required)
            except (OSError, SampleError) as error:
                unusable[file] = f"{error}"
                continue
            required = required or Required(arrays[file].shape, f"{file} holds")
    if resize is not None and not images and arrays:
        raise SampleError(f"--resize is for images; {next(iter(arrays))} holds an array")
    return arrays, check_images(images, required, resize, unusable) if images else None


def read_mask(path: Path, shape: tuple[int, ...], resize: Size | None = None) -> NDArray[np.bool_]:
    """The mask of observed values for samples of a shape: an image that is not black, or a boolean .npy file.

    A mask without channels is for all channels. With `resize` an image is scaled like the samples.
    """
    if path.suffix.lower() == ".npy":
        mask = open_array(path)
        if mask.dtype != np.bool_:
            raise SampleError(f"{path} must be boolean, True for observed values; got dtype {mask.dtype}")
    else:
        check_file(path)
        mask = np.asarray(decode(path, "RGB", resize, nearest=True).any(axis=2))
    if mask.shape == shape[:-1] and len(shape) == 3:
        mask = mask[..., None]
    elif mask.shape != shape:
        raise SampleError(f"{path} has shape {mask.shape}, but the samples of the memory have {shape}")
    return np.broadcast_to(mask, shape)
