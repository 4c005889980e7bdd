"""Fill in missing values of a table: 30% are missing, in the rows to learn from and in the rows to complete.

A missing value is estimated from the most similar stored rows that have the value. The table is read once, in batches,
and the memory has a tenth as many neurons as the table has rows.

python examples/table_with_holes.py [FIGURE]
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray
from sklearn.impute import KNNImputer, SimpleImputer

from sqhn.sklearn import SQHNImputer

Table = NDArray[np.float64]
ROWS, COLUMNS, MISSING = 4000, 12, 0.3


def table(rows: int, seed: int) -> Table:
    """Synthetic measurements: twelve columns that depend on three hidden variables."""
    rng = np.random.default_rng(seed)
    hidden, weights = rng.uniform(-1, 1, (rows, 3)), np.random.default_rng(9).normal(size=(3, COLUMNS))
    return np.asarray(np.tanh(hidden @ weights) + rng.normal(0, 0.05, (rows, COLUMNS)))


def with_missing(x: Table, seed: int) -> Table:
    """The table with 30% of its values missing at random."""
    return np.where(np.random.default_rng(seed).random(x.shape) < MISSING, np.nan, x)


def draw(path: str, given: Table, filled: Table, complete: Table) -> None:
    """Draw some rows, incomplete, filled in and true; and every estimated value against the true one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots(1, 4, width_ratios=[1, 1, 1, 2])
    for axis, (name, x) in zip(axes, {"given": given, "filled in": filled, "true": complete}.items()):
        axis.imshow(x[:30], vmin=-1, vmax=1, cmap="coolwarm", aspect="auto", interpolation="nearest")
        axis.set(title=name, xticks=[], yticks=[])
    missing = np.isnan(given)
    axes[3].plot(complete[missing], filled[missing], ",", color="0.3")
    axes[3].plot([-1, 1], [-1, 1], color="tab:red", lw=1)
    axes[3].set(xlabel="true", ylabel="filled in", aspect="equal")
    figure.savefig(path, dpi=100)


def main(figure: str | None = None) -> dict[str, float]:
    """Print and return the root mean square error of the estimates of each imputer."""
    learned, complete = with_missing(table(ROWS, 0), 2), table(500, 1)
    given = with_missing(complete, 3)
    memory = SQHNImputer(capacity=ROWS // 10)
    for start in range(0, ROWS, 100):
        memory.partial_fit(learned[start : start + 100])
    reservoir = np.random.default_rng(4).permutation(ROWS)[: ROWS // 10]
    imputers = {
        f"SQHNImputer, {ROWS // 10} neurons": memory,
        f"SQHNImputer, {ROWS} neurons": SQHNImputer(capacity=ROWS).fit(learned),
        f"KNNImputer, {ROWS // 10} rows of a reservoir": KNNImputer().fit(learned[reservoir]),
        f"KNNImputer, {ROWS} rows": KNNImputer().fit(learned),
        "column means": SimpleImputer().fit(learned),
    }
    missing = np.isnan(given)
    errors = {
        name: float(np.sqrt(np.mean((imputer.transform(given) - complete)[missing] ** 2)))
        for name, imputer in imputers.items()
    }
    for name, error in errors.items():
        print(f"{name}: {error:.3f}")
    if figure:
        draw(figure, given, memory.transform(given), complete)
    return errors


if __name__ == "__main__":
    main(*sys.argv[1:2])
