"""A table of which three values in ten are missing, in what is learned and in what is asked.

Rows are compared by their differences, over the values that both have; what a row lacks is filled in from the nearest
rows that know it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sqhn import SQHN

COLUMNS, MISSING = 12, 0.3


def table(rows: int, seed: int) -> NDArray[np.float32]:
    """Measurements of machines: twelve columns that hang on three things nobody measured."""
    rng = np.random.default_rng(seed)
    hidden, weights = rng.uniform(-1, 1, (rows, 3)), np.random.default_rng(9).normal(size=(3, COLUMNS))
    return np.asarray(np.tanh(hidden @ weights) + rng.normal(0, 0.05, (rows, COLUMNS)), np.float32)


def main() -> tuple[float, float]:
    """Print and return the error of what is filled in, and that of the columns' means in its place."""
    learned, asked = table(4000, 0), table(500, 1)
    there, seen = (np.random.default_rng(seed).random(x.shape) > MISSING for seed, x in ((2, learned), (3, asked)))
    there[~there.any(axis=1), 0] = seen[~seen.any(axis=1), 0] = True

    memory = SQHN((COLUMNS,), capacity=4000, similarity="euclidean")
    memory.learn(learned, observed=there)

    found = memory.recall(asked, observed=seen, k=8)
    known = found.known.sum(axis=1)
    filled = (found.x * found.known).sum(axis=1) / np.maximum(known, 1)
    mean = np.nanmean(np.where(there, learned, np.nan), axis=0)
    filled = np.where(known > 0, filled, mean)  # nobody knew: very rarely
    error, plain = (float(np.sqrt(np.mean((x - asked)[~seen] ** 2))) for x in (filled, mean + 0 * asked))
    print(f"{memory}: error of what was missing {error:.3f} from memory, {plain:.3f} with the columns' means")
    return error, plain


if __name__ == "__main__":
    main()
