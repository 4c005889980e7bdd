"""Near-duplicates: every pair is compared, and images without a duplicate find one as seldom as promised."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn.duplicates import find_duplicates

Images = NDArray[np.uint8]


def smooth(count: int, seed: int, side: int = 16) -> Images:
    """Unrelated images with large and small structures, as likely upside down as upright."""
    rng = np.random.default_rng(seed)
    x = np.zeros((count, side, side, 3))
    for block in (1, 2, 4, 8):
        x += rng.normal(0, 12 * block**0.5, (count, side // block, side // block, 3)).repeat(block, 1).repeat(block, 2)
    return np.clip(128 + x, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("first", range(0, 40, 7))
def test_copies_are_found_wherever_they_are(first: int) -> None:
    x = smooth(41, seed=first)
    x[first + 1 :: 9] = x[first]
    copies = [first, *range(first + 1, 41, 9)]
    assert copies in find_duplicates(x).groups()


def test_changed_copies_are_found_and_their_scores_are_sorted() -> None:
    x = smooth(120, seed=1)
    x[10] = x[60] // 2  # darker
    x[20] = x[70].mean(-1, keepdims=True)  # gray
    x[30] = np.clip(x[80] + np.random.default_rng(0).normal(0, 10, x[80].shape), 0, 255)
    x[40] = x[90]
    x[40, 4:9, 4:9] = 255  # covered
    found = find_duplicates(x)
    assert {pair[:2] for pair in found.pairs} >= {(10, 60), (20, 70), (30, 80), (40, 90)}
    scores = [score for *_, score in found.pairs]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] >= found.threshold


@pytest.mark.parametrize("error", [0.02, 0.1])
def test_unrelated_images_find_one_as_seldom_as_promised(error: float) -> None:
    """Each image finds one with a probability of at most `error`: five standard deviations of 600 draws are allowed."""
    false = 0
    for seed in range(3):
        found = find_duplicates(smooth(200, seed=100 + seed), error)
        assert found.error == error
        false += len(found.pairs)
    assert false <= 600 * error + 5 * (600 * error * (1 - error)) ** 0.5


def test_a_symmetric_image_with_copies_does_not_raise_the_threshold() -> None:
    """Upside down it shows its copies as well, which tells nothing about images without a duplicate."""
    x = smooth(40, seed=5)
    before = find_duplicates(x).threshold
    x[0] = 0.6 * x[0] + 0.4 * x[0, ::-1]
    x[1] = x[0]
    found = find_duplicates(x)
    assert [0, 1] in found.groups()
    assert found.threshold < 1.1 * before


def test_the_result_depends_on_images_not_on_their_order() -> None:
    x = smooth(60, seed=2)
    x[5] = x[50]
    shuffled = np.random.default_rng(1).permutation(60)
    group = find_duplicates(x[shuffled]).groups()[0]
    assert sorted(shuffled[group]) == [5, 50]


def test_groups_are_connected_pairs() -> None:
    found = find_duplicates(smooth(10, seed=0))._replace(
        pairs=[(1, 2, 9.0), (3, 4, 8.0), (5, 6, 7.0), (2, 5, 6.0), (8, 9, 5.0), (1, 6, 4.0)]
    )
    assert found.groups() == [[1, 2, 5, 6], [3, 4], [8, 9]]


def test_gray_images_and_few_images() -> None:
    x = smooth(6, seed=4)[..., 0]
    x[0] = x[5]
    found = find_duplicates(x)
    assert found.groups() == [[0, 5]]
    assert found.error == pytest.approx(1 / 13)  # of 12 turned images and another one, one is the best


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (smooth(3, 0), 0.01, "an error of 0.01 needs more than 3 images; these allow 0.14"),
        (smooth(3, 0), 0, "error must be a probability, between 0 and 1; got 0"),
        (smooth(3, 0), "a", "error must be a probability, between 0 and 1; got 'a'"),
        (smooth(1, 0), None, "at least two"),
        (smooth(3, 0) / 255, None, "got float64 of shape (3, 16, 16, 3)"),
        (np.zeros((5, 4), np.uint8), None, "got uint8 of shape (5, 4)"),
    ],
)
def test_bad_input(images: Any, error: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        find_duplicates(images, error)
