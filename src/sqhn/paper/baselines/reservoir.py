"""A uniform choice of a stream, as it goes by (Vitter's algorithm R)."""

from __future__ import annotations

import numpy as np

__all__ = ["Reservoir"]


class Reservoir:
    """Places for `size` things of a stream, at any time each with the same probability of being held.

    >>> reservoir = Reservoir(2, seed=0)
    >>> [reservoir.place() for _ in range(2)]
    [0, 1]
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.met = size, 0
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return min(self.met, self.size)

    def place(self) -> int:
        """Where the next thing goes, in place of what is there; -1 if it is passed over."""
        self.met += 1
        if self.met <= self.size:
            return self.met - 1
        drawn = int(self._rng.integers(self.met))
        return drawn if drawn < self.size else -1
