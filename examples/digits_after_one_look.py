"""Classify handwritten digits after a single pass over labeled examples.

The memory has room for a third of the examples. Once it is full, digits are averaged into those that they resemble, and
the labels of each neuron are counted.
"""

from __future__ import annotations

import numpy as np

from sqhn import SQHN
from sqhn.data import load


def main() -> float:
    """Print and return the share of test digits that are classified correctly."""
    train, test = (load("digits").splits[name] for name in ("train", "test"))
    memory = SQHN((28, 28), capacity=1000)
    memory.learn(train.x, value=train.y)
    right = np.mean(np.array(memory.recall(test.x).value) == test.y)
    print(f"{memory}: {right:.1%} of {len(test.y):,} test digits are classified correctly")
    return float(right)


if __name__ == "__main__":
    main()
