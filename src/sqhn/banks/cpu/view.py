"""A coarse view of vectors: few features that hold most of their length, for a cheap first look.

The features are the low frequencies along every axis: rows are added up in pairs, then a cosine transform keeps the
slow part. All of it is orthonormal, so what is left outside bounds what a product in the view can miss
(`bounds.outside`). Neighbouring values of pictures and signals resemble each other, so little is left outside; where
that is not so, the bound is wide, never wrong, and after a while the view is given up.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import bounds
from sqhn.banks.cpu.kernels.large import STALE
from sqhn.banks.cpu.kernels.view import pair_rows
from sqhn.banks.cpu.neurons import enlarge

__all__ = ["CoarseView", "View"]

SKIPPED = 3 / 8  # of the frequencies along an axis
SHORT = 8  # axes below this length (colours, say) are kept whole
LONGEST = 64  # longer axes are transformed in blocks
WIDEST = 128  # short trailing axes are transformed together
PATIENCE = 16  # chunks without the view when it first did not pay; then twice as many each time


def cosines(n: int, kept: float) -> NDArray[np.float64]:
    """`(block, kept of block)` lowest frequencies of the orthonormal cosine transform; n is a multiple of block."""
    block = max(b for b in range(1, min(n, LONGEST) + 1) if n % b == 0)
    columns = math.ceil(kept * block)
    basis = np.cos(np.pi / block * np.outer(np.arange(block) + 0.5, np.arange(columns))) * np.sqrt(2 / block)
    basis[:, 0] /= np.sqrt(2)
    return np.asarray(basis, np.float64)


class View:
    """The coarse view of vectors with the given shape; `size` features each."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.height, self.width = shape[0], math.prod(shape[1:])
        self.paired = self.height >= 2 * SHORT and self.height % 2 == 0
        self.lengths, self.exact = self.plan(shape)
        self.factors = [np.ascontiguousarray(f, np.float32) for f in self.exact]
        self.size = math.prod(n // len(f) * f.shape[1] for n, f in zip(self.lengths, self.exact))
        self.error = bounds.view_product(self.size, bounds.features([len(f) for f in self.exact]))
        """Bound of the relative error of products in the view."""

    def plan(self, shape: tuple[int, ...]) -> tuple[list[int], list[NDArray[np.float64]]]:
        """The lengths of axes, the last one first, and what each is multiplied with."""
        first, *rest = shape
        axes = [(first // 2, 2 * SKIPPED) if self.paired else (first, SKIPPED), *((n, SKIPPED) for n in rest)]
        factors: list[NDArray[np.float64]] = []
        lengths: list[int] = []
        for n, kept in reversed(axes):
            if n == 1:
                continue
            basis = cosines(n, kept if n >= SHORT else 1.0)
            if len(lengths) == 1 and max(lengths[0], n) <= LONGEST and lengths[0] * n <= WIDEST:
                factors[0] = np.asarray(np.kron(basis, factors[0]), np.float64)  # short trailing axes as one
                lengths[0] *= n
            else:
                factors.append(basis)
                lengths.append(n)
        return lengths, factors

    def transform(self, z: NDArray[Any], factors: list[NDArray[Any]]) -> NDArray[Any]:
        """Multiply axis after axis, the last one first; z has a row for each vector, its rows paired if they are."""
        count, after = len(z), 1  # features of the axes already transformed
        for n, basis in zip(self.lengths, factors):
            block, kept = basis.shape
            z = z.reshape(-1, block) @ basis if after == 1 else np.matmul(basis.T, z.reshape(-1, block, after))
            after *= n // block * kept
        return z.reshape(count, -1)

    def __call__(self, x: NDArray[np.float32], centre: float) -> NDArray[np.float32]:
        """`(count, values)` to `(count, size)`: the features of x - centre."""
        if self.paired:
            z = np.empty((len(x), self.height // 2, self.width), np.float32)
            pair_rows(x.reshape(len(x), self.height, self.width), centre, z)
        else:
            z = x - np.float32(centre)
        return self.transform(z, self.factors)


class CoarseView:
    """What the neurons of large nodes look like in the view: features, kept up to date by whoever writes.

    blind: for how many chunks to learn without the view; while there are any, features are not kept. It is not used
    where it would hardly be smaller than the vectors.
    """

    def __init__(self, nodes: int, shape: tuple[int, ...], centre: float) -> None:
        self.view, self.centre = View(shape), centre
        self.features = np.zeros((nodes, 0, self.view.size), np.float32)
        self.v2 = np.zeros((nodes, 0))
        self.moved = np.zeros((nodes, 0), np.int64)
        self.blind: float = 0 if 2 * self.view.size <= math.prod(shape) else math.inf
        self.patience = PATIENCE

    def reserve(self, room: int) -> None:
        self.features = enlarge(self.features, 1, room)
        self.v2, self.moved = enlarge(self.v2, 1, room), enlarge(self.moved, 1, room)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """As kernels take them (`Features`)."""
        return self.features, self.v2, self.moved

    def of_node(self, n: int) -> tuple[NDArray[Any], ...]:
        return self.features[n], self.v2[n], self.moved[n]

    def keep(self, m: NDArray[np.float32]) -> None:
        """Compute features anew where a neuron was written without them, or where rounding may have added up."""
        if not self.blind:
            self.refresh(m)

    def refresh(self, m: NDArray[np.float32]) -> None:
        for n in range(len(m)):
            rows = np.flatnonzero(self.moved[n] >= STALE)
            if len(rows):
                features = self.view(m[n, rows], self.centre)
                self.features[n, rows] = features
                self.v2[n, rows] = np.einsum("ij,ij->i", features, features, dtype=np.float64)
                self.moved[n, rows] = 0

    def judge(self, evaluated: float, most: int, m: NDArray[np.float32]) -> None:
        """Go without the view for a while if it left too many neurons to be evaluated one by one."""
        if self.blind > 1:
            self.blind -= 1
        elif self.blind:
            self.refresh(m)
            self.blind = 0
        elif evaluated > self.too_many(most):
            self.blind = self.patience
            self.patience *= 2
        else:
            self.keep(m)

    @staticmethod
    def too_many(most: int) -> float:
        """How many neurons to evaluate for a sample are too many for the view to be worth it, of `most`."""
        return max(64, most) / 8
