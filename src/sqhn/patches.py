"""Tilings cut arrays into patches, one for each node of a level, and join them again.

A tiling cuts the leading axes of a shape into blocks and takes the trailing axes whole. The same code cuts an image
into patches for level 1 and the grid of a level's nodes into groups of children for the level above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.inputs import is_tensor
from sqhn.level import Level


@dataclass(frozen=True)
class Tiling:
    """Blocks of size `kernel` over the leading axes of `shape`.

    >>> tiling = Tiling((4, 6), (2, 3))
    >>> tiling.grid, tiling.nodes, tiling.size
    ((2, 2), 4, 6)
    """

    shape: tuple[int, ...]
    kernel: tuple[int, ...]

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Nodes along each tiled axis."""
        return tuple(n // k for n, k in zip(self.shape, self.kernel, strict=False))

    @cached_property
    def nodes(self) -> int:
        return math.prod(self.grid)

    @cached_property
    def size(self) -> int:
        """Values that one node sees."""
        return math.prod(self.shape) // self.nodes

    @property
    def patch(self) -> tuple[int, ...]:
        """The shape of the patch of one node."""
        return self.kernel + self.shape[len(self.kernel) :]

    @property
    def channels(self) -> int:
        """How many values each position on the tiled axes has."""
        return math.prod(self.shape[len(self.kernel) :])

    @cached_property
    def _axes(self) -> list[int]:
        """The axes of a batch cut into blocks, as patches have them: grid, batch, kernel, and the axes taken whole."""
        end = 2 * len(self.kernel) + 1
        return [*range(1, end, 2), 0, *range(2, end, 2), *range(end, len(self.shape) + len(self.kernel) + 1)]

    def split(self, x: Any) -> Any:
        """`(batch, *shape)` to `(nodes, batch, size)`, nodes in row-major order of the grid; contiguous."""
        if self.nodes > 1:
            pairs = [n for pair in zip(self.grid, self.kernel, strict=True) for n in pair]
            x = _permuted(x.reshape(len(x), *pairs, *self.shape[len(self.kernel) :]), self._axes)
        return _contiguous(x).reshape(self.nodes, -1, self.size)

    def join(self, patches: Any) -> Any:
        """The inverse of `split`: `(nodes, batch, size)` to `(batch, *shape)`."""
        batch = patches.shape[1]
        if self.nodes > 1:
            blocks = patches.reshape(*self.grid, batch, *self.patch)
            patches = _permuted(blocks, np.argsort(self._axes).tolist())
        return _contiguous(patches).reshape(batch, *self.shape)

    def children(self) -> NDArray[np.int32]:
        """`(nodes, size)`: which entries of the flattened shape each node sees."""
        ids = np.arange(math.prod(self.shape), dtype=np.int32).reshape(1, *self.shape)
        return np.asarray(self.split(ids)[:, 0])

    def within(self, coarser: Tiling) -> NDArray[np.int32]:
        """`(coarser nodes, parts)`: the nodes of this tiling that make up each node of a coarser one.

        >>> Tiling((4,), (1,)).within(Tiling((4,), (2,))).tolist()
        [[0, 1], [2, 3]]
        """
        return Tiling(self.grid, tuple(b // a for a, b in zip(self.kernel, coarser.kernel))).children()


def _permuted(x: Any, order: list[int]) -> Any:
    return x.permute(order) if is_tensor(x) else x.transpose(order)


def _contiguous(x: Any) -> Any:
    return x.contiguous() if is_tensor(x) else np.ascontiguousarray(x)


def plan(input_shape: Sequence[int], levels: Sequence[Level]) -> tuple[Tiling, ...]:
    """The tiling of every level, from the input up to the single memory node.

    >>> [t.nodes for t in plan((32, 32, 3), [Level(2, 9), Level(4, 9), Level(capacity=9)])]
    [256, 16, 1]
    """
    tilings: list[Tiling] = []
    shape = tuple(input_shape)
    for number, level in enumerate(levels, start=1):
        tilings.append(Tiling(shape, _sides(level, shape, number, len(levels))))
        shape = tilings[-1].grid
    if math.prod(shape) != 1:
        raise ValueError(
            f"level {len(levels)} has {math.prod(shape)} nodes in a grid of {shape}, but the last level must have one: "
            f"give it kernel {tilings[-1].shape} or None"
        )
    return tuple(tilings)


def _sides(level: Level, shape: tuple[int, ...], number: int, depth: int) -> tuple[int, ...]:
    """The kernel of a level as a tuple that divides the shape."""
    if level.kernel is None:
        if number != depth:
            raise ValueError(
                f"level {number} of {depth} has no kernel; only the last level may take the whole shape below it"
            )
        return shape
    sides = level.kernel if isinstance(level.kernel, tuple) else (level.kernel,) * min(2, len(shape))
    if len(sides) > len(shape):
        raise ValueError(f"level {number}: kernel {sides} has more axes than the shape {shape} below it")
    for axis, (n, k) in enumerate(zip(shape, sides, strict=False)):
        if n % k:
            fits = [d for d in range(1, n + 1) if n % d == 0]
            alone = "" if isinstance(level.kernel, tuple) or axis == 0 else f"; kernel=({k},) cuts the first axis alone"
            raise ValueError(
                f"level {number}: kernel {sides} does not divide the shape {shape} below it: "
                f"axis {axis} has length {n}, so its side can be one of {fits}, not {k}{alone}"
            )
    return sides
