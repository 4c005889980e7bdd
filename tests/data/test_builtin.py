"""The built-in data sets: contents, splits and labels."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn.data import digits, load, photos
from sqhn.data.builtin import BUILT_IN, CONTRAST, LUMA

PHOTOS = ("grey_photos", "photos32", "photos64", "photos128")


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_contents_are_as_listed(name: str) -> None:
    listed, got = BUILT_IN[name].contents, load(name)
    assert (got.name, got.source) == (name, "built-in")
    assert {split: len(y) for split, (_, y) in got.splits.items()} == listed.counts
    for x, y in got.splits.values():
        assert x.dtype == np.uint8
        assert y.dtype == np.int64
        assert x.shape == (len(y), *listed.shape)
        assert set(y.tolist()) == set(range(listed.classes))
        assert not x.flags.writeable
        assert not y.flags.writeable
    assert load(name) is got


def test_another_process_makes_the_same_arrays() -> None:
    code = """
import hashlib
from sqhn.data import load
for name in ("painted_digits", "photos64"):
    for x, y in load(name).splits.values():
        print(hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest())
"""
    expected = [
        hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()
        for name in ("painted_digits", "photos64")
        for x, y in load(name).splits.values()
    ]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected


def test_digits_are_divided_evenly() -> None:
    train, test = load("digits").splits.values()
    np.testing.assert_array_equal(np.bincount(train.y), [300] * 10)
    np.testing.assert_array_equal(np.bincount(test.y), [200] * 10)
    both = sorted(zip(map(bytes, np.concatenate([train.x, test.x])), np.concatenate([train.y, test.y]).tolist()))
    x, y = digits(seed=None)
    assert both == sorted(zip(map(bytes, x), y.tolist()))
    assert len(set(train.y[:50].tolist())) == 10  # shuffled


def test_painted_digits_are_the_digits_in_two_colors() -> None:
    for split, (x, y) in load("painted_digits").splits.items():
        plain = load("digits").splits[split]
        np.testing.assert_array_equal(y, plain.y)
        background = x[:, 0, 0].astype(float)
        strokes = np.pad(plain.x, ((0, 0), (2, 2), (2, 2)))
        full = strokes.reshape(len(x), -1).argmax(1)
        ink = x.reshape(len(x), -1, 3)[np.arange(len(x)), full].astype(float)
        brightest = strokes.reshape(len(x), -1).max(1)
        assert (abs((ink - background) @ LUMA) >= CONTRAST * brightest / 255 - 1).all()
        mixed = background[:, None] + (ink - background)[:, None] * (strokes / brightest[:, None, None]).reshape(
            len(x), -1, 1
        )
        assert abs(mixed.reshape(x.shape) - x).max() <= 1
        assert len(np.unique(background, axis=0)) > 0.99 * len(x)


def crops_of(x: NDArray[np.uint8]) -> list[bytes]:
    """The sorted values of each crop, which are the same for all its variants."""
    return [values.tobytes() for values in np.sort(x.reshape(len(x), -1), axis=1)]


@pytest.mark.parametrize("name", PHOTOS)
def test_photos_are_split_by_crop(name: str) -> None:
    splits = load(name).splits
    crops = {split: crops_of(x) for split, (x, _) in splits.items()}
    assert not set(crops["train"]) & set(crops["test"])
    variants = BUILT_IN[name].contents.classes // 7
    for split, (_, y) in splits.items():
        found = set(zip(crops[split], (y % variants).tolist()))
        assert len(set(crops[split])) * variants == len(found) == len(y)  # every variant of every crop, once
        assert len(set(zip(crops[split], (y // variants).tolist()))) == len(set(crops[split]))  # of one photograph
    assert len(splits["test"].y) / len(splits["train"].y) == pytest.approx(1 / 3, rel=0.05)


def test_labels_encode_photograph_and_variant() -> None:
    grid = {bytes(crop): place for place, crop in enumerate(photos(64, seed=None))}
    for x, y in load("photos64").splits.values():
        upright = y % 8 == 0
        places = np.array([grid[bytes(image)] for image in x[upright]])
        order = np.argsort(places)
        assert (np.diff(y[upright][order]) >= 0).all()  # photographs come one after another in the grid
        mirrored = {bytes(image[:, ::-1]) for image in x[y % 8 == 4]}
        assert mirrored == {bytes(image) for image in x[upright]}


def test_gray_is_luma() -> None:
    gray = {bytes(np.rint(crop @ LUMA).astype(np.uint8)) for crop in photos(28, seed=None)}
    for x, y in load("grey_photos").splits.values():
        assert {bytes(image) for image in x[y % 8 == 0]} <= gray
