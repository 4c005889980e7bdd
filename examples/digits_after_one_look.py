"""Handwritten digits, each shown once with its label, in a stream; then others are classified.

The memory has room for a third of what it is shown: after that, digits are averaged into those that they resemble, and
their labels are counted.
"""

from __future__ import annotations

import numpy as np

from sqhn import SQHN
from sqhn.data import load


def main() -> float:
    """Print and return the share of digits that are classified correctly."""
    shown, asked = (load("digits").splits[name] for name in ("train", "test"))
    memory = SQHN((28, 28), capacity=1000)
    memory.learn(shown.x, value=shown.y)
    right = np.mean(np.array(memory.recall(asked.x).value) == asked.y)
    print(f"{memory}: {right:.1%} of {len(asked.y):,} others are right")
    return float(right)


if __name__ == "__main__":
    main()
