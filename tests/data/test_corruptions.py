"""Corruptions: the share of damaged values, their colors and their places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sqhn.data.corruptions import (
    CORRUPTIONS,
    DAMAGES,
    blurred,
    brighter,
    coarser,
    covered_and_noisy,
    darker,
    occlusion,
    pixel_dropout,
    rectangles,
    right_mask,
    salt_and_pepper,
    shifted,
    white_noise,
)


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def test_white_noise(images: NDArray[np.float32]) -> None:
    gray = np.full((50, 32, 32, 3), 0.5, np.float32)
    corrupted, observed = white_noise(gray, 0.1, generator())
    assert observed is None
    assert np.std(corrupted - gray) == pytest.approx(0.1, rel=0.01)
    loud, _ = white_noise(images[:5], 2.0, generator())
    assert (loud.min(), loud.max()) == (0, 1)


def test_salt_and_pepper_hits_whole_pixels() -> None:
    gray = np.full((20, 32, 32, 3), 0.5, np.float32)
    corrupted, observed = salt_and_pepper(gray, 0.3, generator())
    assert observed is None
    hit = corrupted != gray
    assert hit.mean() == pytest.approx(0.3, abs=0.02)
    assert np.all(hit == hit[..., :1])
    assert set(np.unique(corrupted[hit])) == {0.0, 1.0}
    assert corrupted[hit].mean() == pytest.approx(0.5, abs=0.05)


def test_pixel_dropout(images: NDArray[np.float32]) -> None:
    _, observed = pixel_dropout(images[:20], 0.75, generator())
    assert observed is not None
    assert observed.mean() == pytest.approx(0.25, abs=0.01)
    assert np.all(observed == observed[..., :1])  # all channels together
    assert np.any(observed[0] != observed[1])
    _, shared = pixel_dropout(images[:20], 0.75, generator(), shared=True)
    assert shared is not None
    assert np.all(shared == shared[:1])


@pytest.mark.parametrize(("share", "kept"), [(0.25, 24), (0.75, 8), (0.0, 32)])
def test_right_mask(images: NDArray[np.float32], share: float, kept: int) -> None:
    _, observed = right_mask(images[:2], share, generator())
    assert observed is not None
    assert observed[:, :, :kept].all()
    assert not observed[:, :, kept:].any()


@given(share=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 0.875, 0.9375]), seed=st.integers(0, 1000),
       height=st.integers(8, 40), width=st.integers(8, 40))  # fmt: skip
def test_a_rectangle_covers_its_share(share: float, seed: int, height: int, width: int) -> None:
    white = np.ones((1, height, width), np.float32)
    corrupted, observed = occlusion(white, share, np.random.default_rng(seed))
    assert observed is None
    covered = corrupted[0] == 0
    rows, columns = covered.any(axis=1).sum(), covered.any(axis=0).sum()
    assert covered.sum() == rows * columns  # one rectangle
    assert covered.sum() <= share * height * width
    largest = (height - 1) * width  # a rectangle never covers the whole image
    assert covered.sum() > min(share * height * width, largest + 1) - height  # its width is rounded down


@pytest.mark.parametrize("shared", [False, True])
def test_rectangles_for_each_image_or_for_all(shared: bool) -> None:
    white = np.ones((10, 32, 32, 3), np.float32)
    covered = occlusion(white, 0.25, generator(), shared=shared)[0] == 0
    assert len({one.tobytes() for one in covered}) == (1 if shared else 10)


def test_fills(images: NDArray[np.float32]) -> None:
    gray = np.full((1, 32, 32, 3), 0.3, np.float32)
    places = {}
    for fill in ("black", "color", "noise", "clipped_normal"):
        corrupted, _ = occlusion(gray, 0.5, generator(), fill=fill)
        covered = np.any(corrupted[0] != gray[0], axis=2)
        places[fill] = covered
        values = corrupted[0][covered]
        assert (len(np.unique(values, axis=0)) == 1) == (fill in ("black", "color"))
        assert values.min() >= 0
        assert values.max() <= 1
    assert all(np.array_equal(places["black"], place) for place in places.values())  # drawn before the paint
    assert np.mean(occlusion(gray, 0.9, generator(), fill="clipped_normal")[0] == 0) > 0.35


def test_an_unknown_fill_lists_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="fill must be one of 'black', 'color'"):
        occlusion(np.ones((1, 8, 8), np.float32), 0.5, generator(), fill="pink")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruptions_are_seeded_and_leave_the_original_unchanged(name: str) -> None:
    for shape in ((4, 12, 16), (4, 12, 16, 3)):
        x = np.random.default_rng(1).random(shape, np.float32)
        before = x.copy()
        one, other = (CORRUPTIONS[name](x, 0.5, generator()) for _ in range(2))
        np.testing.assert_array_equal(one[0], other[0])
        assert (one[0].shape, one[0].dtype.name) == (x.shape, "float32")
        np.testing.assert_array_equal(x, before)
        assert one[1] is None or one[1].shape == x.shape


def test_there_are_33_damages() -> None:
    assert len(DAMAGES) == len(set(DAMAGES)) == 33
    assert {kind for kind, _ in DAMAGES} <= set(CORRUPTIONS)
    gray = np.full((2, 16, 16), 0.5, np.float32)
    for kind, level in DAMAGES:
        corrupted, observed = CORRUPTIONS[kind](gray, level, generator())
        assert observed is None
        assert corrupted.dtype == np.float32


def test_blurred_is_a_mean_of_neighbors() -> None:
    x = np.zeros((1, 7, 7, 1), np.float32)
    x[0, 3, 3] = 16
    once, _ = blurred(x, 1, generator())
    np.testing.assert_array_equal(once[0, 2:5, 2:5, 0], np.outer([1, 2, 1], [1, 2, 1]))
    assert once.sum() == 16
    flat = np.full((1, 4, 5), 0.3, np.float32)
    np.testing.assert_allclose(blurred(flat, 3, generator())[0], flat, rtol=1e-6)


def test_darker_brighter_coarser_shifted() -> None:
    x = np.linspace(0, 1, 12, dtype=np.float32).reshape(1, 3, 4)
    np.testing.assert_allclose(darker(x, 0.25, generator())[0], 0.75 * x, rtol=1e-6)
    np.testing.assert_allclose(brighter(x, 0.3, generator())[0], np.minimum(x + 0.3, 1), rtol=1e-6)
    assert np.unique(coarser(x, 4, generator())[0]) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    np.testing.assert_array_equal(shifted(x, 1, generator())[0][0, 1:, 1:], x[0, :-1, :-1])
    np.testing.assert_array_equal(shifted(x, 1, generator())[0][0, 0, 1:], x[0, 0, :-1])


def test_eight_rectangles_and_one_with_noise() -> None:
    gray = np.full((20, 32, 32, 3), 0.5, np.float32)
    covered = (rectangles(gray, 0.8, generator())[0] != gray).all(axis=3)
    assert 0.4 < covered.mean() < 0.8  # they overlap
    assert len(np.unique(rectangles(gray[:1], 0.8, generator())[0].reshape(-1, 3), axis=0)) > 4
    both, _ = covered_and_noisy(gray, 0.5, generator())
    assert np.std(both[both > 0] - 0.5) > 0.15


def test_a_segment_of_a_signal_is_covered() -> None:
    signal = np.full((30, 40, 1, 6), 0.5, np.float32)
    covered = occlusion(signal, 0.25, generator())[0] == 0
    assert (covered.sum(axis=(1, 2, 3)) == 10 * 6).all()
    assert len(np.unique(covered.argmax(axis=1)[:, 0, 0])) > 5
