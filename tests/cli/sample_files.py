"""Small image files and arrays, and their samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sqhn.cli import samples
from sqhn.cli.options import Size
from sqhn.cli.samples import Samples
from tests.cli.commands import Pixels


def pixels(*shape: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def put(path: Path, values: Any, **options: Any) -> Path:
    """A file that holds a image or an array."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, values)
    else:
        Image.fromarray(values).save(path, **options)
    return path


def read(source: Path, shape: tuple[int, ...] | None = None, resize: Size | None = None) -> Samples:
    """The samples of one source."""
    return samples.read([str(source)], shape, resize)


def everything(found: Samples) -> NDArray[Any]:
    return np.concatenate(list(found.chunks()))
