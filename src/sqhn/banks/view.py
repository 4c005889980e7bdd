"""A coarse view of vectors: few features that hold most of their length, for a cheap first look.

The features are the low frequencies of a cosine transform along every axis. The transform is orthonormal, so for two
vectors with parts a inside the view and b outside it, |<y, u> - <y_a, u_a>| <= |y_b| |u_b|. Neighbouring values of
pictures and signals resemble each other, so little is left outside; where that is not so, the bound is wide, never wrong.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["View"]

KEPT = 7 / 16  # of the frequencies along each axis
LONGEST = 64  # longer axes are transformed in blocks
WIDEST = 2 * LONGEST  # short trailing axes are transformed together


def cosines(n: int) -> NDArray[np.float64]:
    """`(block, kept)` lowest frequencies of the orthonormal cosine transform of a block; n is a multiple of block."""
    block = max(b for b in range(1, min(n, LONGEST) + 1) if n % b == 0)
    kept = math.ceil(KEPT * block)
    angles = np.pi / block * np.outer(np.arange(block) + 0.5, np.arange(kept))
    basis = np.cos(angles) * np.sqrt(2 / block)
    basis[:, 0] /= np.sqrt(2)
    return basis


class View:
    """The coarse view of vectors with the given shape; `size` features each."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        axes = [n for n in shape if n > 1]
        factors: list[NDArray[np.float64]] = []
        lengths: list[int] = []
        for n in reversed(axes):  # merge short trailing axes into one transform
            basis = cosines(n)
            if len(lengths) == 1 and max(lengths[0], n) <= LONGEST and lengths[0] * n <= WIDEST:
                factors[0], lengths[0] = np.kron(basis, factors[0]), lengths[0] * n
            else:
                factors.append(basis)
                lengths.append(n)
        self.factors = [np.ascontiguousarray(f, np.float32) for f in factors]
        self.lengths = lengths
        self.d = math.prod(shape)
        self.size = math.prod(n // len(f) * f.shape[1] for n, f in zip(lengths, factors))
        self.error = sum(len(f) * math.sqrt(len(f)) for f in factors) * 2.0**-24
        """Bound of the error of a feature vector relative to the length of the vector."""

    def __call__(self, y: NDArray[np.float32]) -> NDArray[np.float32]:
        """`(count, d)` to `(count, size)`."""
        after = 1  # features of the axes already transformed
        z = y
        for n, basis in zip(self.lengths, self.factors):
            block, kept = basis.shape
            if after == 1:
                z = z.reshape(-1, block) @ basis
            else:
                z = np.matmul(basis.T, z.reshape(-1, block, after))
            after *= n // block * kept
        return z.reshape(len(y), -1)
