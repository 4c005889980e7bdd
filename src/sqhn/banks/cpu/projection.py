"""A projection of vectors to a few features that hold most of their length, for a cheap first look.

The features are the low frequencies along every axis: rows are added in pairs, then a cosine transform keeps the low
frequencies. The projection is orthonormal, so the length of the rest bounds the part of a product that the features
miss (`bounds.outside`). Neighboring values of images and signals are similar, so the rest is short. For other data the
bound is wide but still correct, and after a while the projection is no longer used (`large`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import bounds
from sqhn.banks.cpu.kernels.large import pair_rows

SHARE = 3 / 8
"""The share of the frequencies along an axis that become features, from the lowest up."""
SHORT_AXIS, LONG_AXIS, JOINT_AXES = 8, 64, 128
"""Axes shorter than the first length (colors, say) keep all frequencies, axes longer than the second are transformed in
blocks, and trailing axes with up to the third number of values are transformed together."""
QUIET = 1 << 18
"""Multiplications of a matrix product up to which BLAS starts no threads, as no call for one sample should."""


def cosines(n: int, share: float) -> NDArray[np.float64]:
    """`(block, share of block)` lowest frequencies of the orthonormal cosine transform; n is a multiple of block."""
    block = max(b for b in range(1, min(n, LONG_AXIS) + 1) if n % b == 0)
    columns = math.ceil(share * block)
    basis = np.cos(np.pi / block * np.outer(np.arange(block) + 0.5, np.arange(columns))) * np.sqrt(2 / block)
    basis[:, 0] /= np.sqrt(2)
    return np.asarray(basis, np.float64)


class Projection:
    """The projection of vectors with the given shape; `size` features each."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.height, self.width = shape[0], math.prod(shape[1:])
        self.paired = self.height >= 2 * SHORT_AXIS and self.height % 2 == 0
        self.lengths, self.exact = self.plan(shape)
        self.factors = [np.ascontiguousarray(f, np.float32) for f in self.exact]
        self.size = math.prod(n // len(f) * f.shape[1] for n, f in zip(self.lengths, self.exact))
        self.error = bounds.projected_product(self.size, bounds.features([len(f) for f in self.exact]))
        """A bound of the relative error of products of features."""
        self.few = max(1, QUIET // (math.prod(self.lengths) * self.factors[0].shape[1]))
        """The number of vectors up to which BLAS starts no threads."""

    def plan(self, shape: tuple[int, ...]) -> tuple[list[int], list[NDArray[np.float64]]]:
        """The lengths of the axes, the last one first, and the matrix by which each is multiplied."""
        first, *rest = shape
        axes = [(first // 2, 2 * SHARE) if self.paired else (first, SHARE), *((n, SHARE) for n in rest)]
        factors: list[NDArray[np.float64]] = []
        lengths: list[int] = []
        for n, share in reversed(axes):
            if n == 1:
                continue
            basis = cosines(n, share if n >= SHORT_AXIS else 1.0)
            if len(lengths) == 1 and max(lengths[0], n) <= LONG_AXIS and lengths[0] * n <= JOINT_AXES:
                factors[0] = np.asarray(np.kron(basis, factors[0]), np.float64)  # short trailing axes as one
                lengths[0] *= n
            else:
                factors.append(basis)
                lengths.append(n)
        return lengths, factors

    def transform(self, z: NDArray[Any], factors: list[NDArray[Any]]) -> NDArray[Any]:
        """Multiply one axis after another, the last one first; z has a row for each vector, paired if `paired`."""
        count, after = len(z), 1  # features of the axes already transformed
        for n, basis in zip(self.lengths, factors):
            block, columns = basis.shape
            if count <= self.few and columns * (z.size if after == 1 else block * after) > QUIET:
                vectors = z.reshape(-1, block, after).swapaxes(1, 2)[:, :, None]
                z = (vectors @ basis)[:, :, 0].swapaxes(1, 2)
            else:
                z = z.reshape(-1, block) @ basis if after == 1 else np.matmul(basis.T, z.reshape(-1, block, after))
            after *= n // block * columns
        return z.reshape(count, -1)

    def __call__(self, x: NDArray[np.float32], centre: float) -> NDArray[np.float32]:
        """`(..., values)` to `(..., size)`: the features of x - centre."""
        z = x.reshape(-1, self.height, self.width)
        if self.paired:
            paired = np.empty((len(z), self.height // 2, self.width), np.float32)
            pair_rows(z, centre, paired)
        features = self.transform(paired if self.paired else z - np.float32(centre), self.factors)
        return features.reshape(*x.shape[:-1], self.size)
