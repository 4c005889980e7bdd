"""Streams: the right images in the right order."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn.data.streams import class_incremental, domain_incremental, iid, mixed_domains, noisy_samples


def numbered(count: int, start: int = 0) -> NDArray[np.uint8]:
    """Images of one pixel, all different."""
    return np.arange(start, start + count, dtype=np.uint8).reshape(-1, 1, 1)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def names(x: NDArray[np.float32]) -> list[int]:
    return [round(float(value) * 255) for value in x.ravel()]


def test_iid_draws_without_replacement() -> None:
    drawn = names(iid(numbered(100), 60, generator()))
    assert len(set(drawn)) == 60
    assert drawn != sorted(drawn)
    assert drawn == names(iid(numbered(100), 60, generator()))
    assert sorted(names(iid(numbered(5), 60, generator()))) == [0, 1, 2, 3, 4]


def test_class_after_class() -> None:
    labels = np.arange(90) % 3
    stream = class_incremental(numbered(90), labels, 61, generator())
    assert [n % 3 for n in names(stream)] == [0] * 20 + [1] * 20 + [2] * 20
    assert len(set(names(stream))) == 60
    few = class_incremental(numbered(4), np.array([0, 0, 0, 1]), 100, generator())
    assert len(few) == 2  # as many as the smallest class has


def test_domains_are_blocks_of_different_images() -> None:
    sources = [numbered(50), numbered(50, 100)]
    arrived = domain_incremental(sources, ["plain", "flipped"], 80, generator())
    x = arrived.transformed(arrived.x)
    assert names(arrived.transformed(arrived.x[:25])) == names(x[:25])
    blocks = np.split(x, 4)
    first, second = names(blocks[0]), names(1 - blocks[1])
    assert sorted(first + second) == list(range(40))  # the first 40 of the source, each once
    third, fourth = names(blocks[2]), names(1 - blocks[3])
    assert sorted(third + fourth) == list(range(100, 140))


def test_dark_and_bright() -> None:
    arrived = domain_incremental([numbered(4, 200)], ["dark", "bright_flipped"], 4, generator())
    x = arrived.transformed(arrived.x)
    assert x[:2].max() <= 0.5
    assert x[2:].min() >= 0.5


def test_mixed_domains_are_the_same_images_shuffled() -> None:
    sources = [numbered(20), numbered(20, 20)]
    arrived = mixed_domains(sources, ["plain", "flipped"], 40, generator())
    x = arrived.transformed(arrived.x)
    plain = [n if n < 100 else 255 - n for n in names(x)]
    assert sorted(plain) == list(range(40))
    assert 5 < sum(n < 100 for n in names(x)) < 35


def test_noisy_samples() -> None:
    x = np.full((3, 40, 40), 0.3, np.float32)
    white = noisy_samples(x, 5, "white", 0.1, generator(), ema=False)
    assert white.shape == (3, 5, 40, 40)
    assert white.std() == pytest.approx(0.1, rel=0.05)
    binary = noisy_samples(x, 5, "binary", 0.1, generator(), ema=False)
    assert set(np.unique(binary)) == {0.0, 1.0}
    assert binary.mean() == pytest.approx(0.3, abs=0.01)


def test_smoothed_samples() -> None:
    x = np.random.default_rng(1).random((2, 4, 4), np.float32)
    raw = noisy_samples(x, 3, "white", 0.2, generator(), ema=False)
    smooth = noisy_samples(x, 3, "white", 0.2, generator(), ema=True)
    np.testing.assert_array_equal(smooth[:, 0], raw[:, 0])
    np.testing.assert_allclose(smooth[:, 2], raw[:, 0] / 4 + raw[:, 1] / 4 + raw[:, 2] / 2, atol=1e-6)


def test_an_unknown_noise_is_an_error() -> None:
    with pytest.raises(ValueError, match="noise must be one of 'white', 'binary'; got 'pink'"):
        noisy_samples(np.zeros((1, 2, 2), np.float32), 1, "pink", 0.2, generator(), ema=False)
