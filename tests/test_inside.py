"""The properties that look inside a memory; `helpers.assert_same_state` compares them with the reference."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from sqhn import SQHN, Level
from sqhn.display import NOTEBOOK_IMAGES, pixels

TREE = [Level(4, 30), Level(capacity=30)]


@pytest.mark.parametrize("levels", [[Level(capacity=30)], TREE])
def test_prototypes_counts_and_steps_of_samples_stored_once(levels: list[Level]) -> None:
    x = np.random.default_rng(0).random((12, 8, 8), dtype=np.float32)
    memory = SQHN((8, 8), levels)
    assert memory.prototypes.shape == (0, 8, 8)
    memory.learn(x)
    np.testing.assert_array_equal(memory.prototypes, x)
    assert memory.counts.tolist() == [1] * 12
    assert memory.written.tolist() == list(range(1, 13))


def test_the_mean_and_count_of_averaged_samples() -> None:
    a, b = np.array([0.25, 0.5, 1.0], np.float32), np.array([0.25, 0.5, 0.5], np.float32)
    memory = SQHN((3,), capacity=1)
    memory.learn(np.stack([a, b, b, b]))
    np.testing.assert_allclose(memory.prototypes, [(a + 3 * b) / 4], atol=1e-7)
    assert (memory.counts.tolist(), memory.written.tolist()) == ([4], [4])


@pytest.mark.parametrize("levels", [[Level(capacity=30)], TREE])
def test_known_values_of_each_neuron(levels: list[Level]) -> None:
    x = np.random.default_rng(0).random((5, 8, 8), dtype=np.float32)
    memory = SQHN((8, 8), levels)
    memory.learn(x)
    assert memory.known.shape == x.shape
    assert memory.known.all()
    observed = np.ones((8, 8), bool)
    observed[:4] = False
    memory.learn(1 - x[0], observed=observed)
    np.testing.assert_array_equal(memory.known, [*np.ones((5, 8, 8), bool), observed])
    memory.forget(2)
    assert memory.known.any(axis=(1, 2)).tolist() == [True, True, False, True, True, True]


def test_labels_of_each_neuron() -> None:
    memory = SQHN((2,), capacity=2)
    memory.learn([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], value=["a", "b", "c"])
    assert memory.values(0) == [("a", 1)]
    assert memory.values([1, 0]) == [[("c", 1), ("b", 1)], [("a", 1)]]


def test_properties_are_copies() -> None:
    x = np.random.default_rng(1).random((300, 5), dtype=np.float32)  # more than one batch
    memory = SQHN((5,), capacity=300)
    memory.learn(x)
    for array in (memory.prototypes, memory.known, memory.counts, memory.written):
        array[:] = 0
    np.testing.assert_array_equal(memory.prototypes, x)
    assert memory.counts.min() == 1


def test_a_notebook_shows_the_first_neurons() -> None:
    x = np.random.default_rng(2).integers(0, 256, (NOTEBOOK_IMAGES + 3, 6, 7, 3), dtype=np.uint8)
    memory = SQHN((6, 7, 3), capacity=100)
    assert repr(memory) in memory._repr_html_()
    memory.learn(x)
    page = memory._repr_html_()
    images = re.findall(r'base64,([^"]+)"', page)
    assert len(images) == NOTEBOOK_IMAGES
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(images[5])))), x[5])
    assert "and 3 more" in page
    assert "neuron 5, learned from 1 sample" in page


def test_which_shapes_can_be_shown() -> None:
    for shape, shown in {(9,): 1, (9, 9): 1, (9, 9, 1): 1, (9, 9, 3): 1, (9, 9, 2): 0, (3, 3, 3, 3): 0}.items():
        assert (pixels(np.zeros(shape, np.float32)) is not None) == shown
    memory = SQHN((3, 3, 3, 3), capacity=3)
    memory.learn(np.ones((3, 3, 3, 3)))
    assert "<img" not in memory._repr_html_()
