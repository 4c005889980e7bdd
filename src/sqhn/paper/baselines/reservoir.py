"""A uniform random sample of a stream (Vitter's algorithm R)."""

from __future__ import annotations

import numpy as np


class Reservoir:
    """Slots for `size` items of a stream; every item so far is stored with the same probability.

    >>> reservoir = Reservoir(2, seed=0)
    >>> [reservoir.place() for _ in range(2)]
    [0, 1]
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.count = size, 0
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return min(self.count, self.size)

    def place(self) -> int:
        """The slot for the next item, which replaces the one there; -1 if the item is not stored."""
        self.count += 1
        if self.count <= self.size:
            return self.count - 1
        drawn = int(self._rng.integers(self.count))
        return drawn if drawn < self.size else -1
