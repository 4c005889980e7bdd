from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sqhn.level import Level
from sqhn.patches import Tiling, plan


def test_patches_of_an_image_by_hand() -> None:
    x = np.arange(16).reshape(1, 4, 4)
    patches = Tiling((4, 4), (2, 2)).split(x)
    assert patches[:, 0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


def test_trailing_axes_are_taken_whole() -> None:
    x = np.arange(2 * 4 * 3).reshape(1, 2, 4, 3)
    tiling = Tiling((2, 4, 3), (2, 2))
    assert (tiling.grid, tiling.nodes, tiling.size) == ((1, 2), 2, 12)
    np.testing.assert_array_equal(tiling.split(x)[1, 0], x[0, :, 2:].ravel())


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_join_is_the_inverse_of_split(data: st.DataObject) -> None:
    kernel = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    grid = data.draw(st.lists(st.integers(1, 3), min_size=len(kernel), max_size=len(kernel)))
    rest = data.draw(st.lists(st.integers(1, 3), max_size=2))
    tiling = Tiling((*(g * k for g, k in zip(grid, kernel)), *rest), tuple(kernel))
    x = np.random.default_rng(0).random((2, *tiling.shape))
    patches = tiling.split(x)
    assert patches.shape == (tiling.nodes, 2, tiling.size)
    np.testing.assert_array_equal(tiling.join(patches), x)
    np.testing.assert_array_equal(patches[:, 1], x[1].ravel()[tiling.children()])


def test_every_node_of_a_level_has_one_parent() -> None:
    tilings = plan((32, 32, 3), [Level(2, 9), Level(4, 9), Level(capacity=9)])
    assert [t.nodes for t in tilings] == [256, 16, 1]
    for tiling, below in zip(tilings[1:], tilings):
        assert sorted(tiling.children().ravel()) == list(range(below.nodes))
