"""A coarse view of vectors: few features that hold most of their length, for a cheap first look.

The features are the low frequencies along every axis: rows are added up in pairs, then a cosine transform keeps the
slow part. All of it is orthonormal, so for two vectors with parts a inside the view and b outside it,
|<y, u> - <y_a, u_a>| <= |y_b| |u_b|. Neighbouring values of pictures and signals resemble each other, so little is left
outside; where that is not so, the bound is wide, never wrong.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.decision_kernels import ULP
from sqhn.banks.large_kernels import pair_rows

__all__ = ["View"]

KEPT = 3 / 8  # of the frequencies along an axis
SHORT = 8  # axes below this length (colours, say) are kept whole
LONGEST = 64  # longer axes are transformed in blocks
WIDEST = 128  # short trailing axes are transformed together


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
        first, *rest = shape
        self.height, self.width = first, math.prod(rest)
        self.paired = first >= 2 * SHORT and first % 2 == 0
        axes = [(first // 2, 2 * KEPT) if self.paired else (first, KEPT), *((n, KEPT) for n in rest)]
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
        self.factors = [np.ascontiguousarray(f, np.float32) for f in factors]
        self.lengths = lengths
        self.size = math.prod(n // len(f) * f.shape[1] for n, f in zip(lengths, factors))
        self.error: float = (16 + sum(len(f) * math.sqrt(len(f)) for f in factors)) * ULP
        """Bound of the error of a feature vector relative to the length of the vector."""

    def __call__(self, x: NDArray[np.float32], centre: float) -> NDArray[np.float32]:
        """`(count, values)` to `(count, size)`: the features of x - centre."""
        if self.paired:
            z = np.empty((len(x), self.height // 2, self.width), np.float32)
            pair_rows(x.reshape(len(x), self.height, self.width), centre, z)
        else:
            z = x - np.float32(centre)
        after = 1  # features of the axes already transformed
        for n, basis in zip(self.lengths, self.factors):
            block, kept = basis.shape
            z = z.reshape(-1, block) @ basis if after == 1 else np.matmul(basis.T, z.reshape(-1, block, after))
            after *= n // block * kept
        return z.reshape(len(x), -1)
