"""A table of which three values in ten are missing, in what is learned and in what is asked.

Rows are compared by their differences; what a row lacks is filled in from the rows most like it that know it. The table
is seen once, in batches, and a tenth as many neurons as rows are kept.

python examples/table_with_holes.py [PICTURE]
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
    """Measurements of machines: twelve columns that hang on three things nobody measured."""
    rng = np.random.default_rng(seed)
    hidden, weights = rng.uniform(-1, 1, (rows, 3)), np.random.default_rng(9).normal(size=(3, COLUMNS))
    return np.asarray(np.tanh(hidden @ weights) + rng.normal(0, 0.05, (rows, COLUMNS)))


def torn(x: Table, seed: int) -> Table:
    """With holes."""
    return np.where(np.random.default_rng(seed).random(x.shape) < MISSING, np.nan, x)


def draw(path: str, given: Table, filled: Table, wanted: Table) -> None:
    """Some rows, with holes and filled in, and every value that was missing beside the true one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots(1, 4, width_ratios=[1, 1, 1, 2])
    for axis, (name, x) in zip(axes, {"given": given, "filled in": filled, "true": wanted}.items()):
        axis.imshow(x[:30], vmin=-1, vmax=1, cmap="coolwarm", aspect="auto", interpolation="nearest")
        axis.set(title=name, xticks=[], yticks=[])
    gone = np.isnan(given)
    axes[3].plot(wanted[gone], filled[gone], ",", color="0.3")
    axes[3].plot([-1, 1], [-1, 1], color="tab:red", lw=1)
    axes[3].set(xlabel="true", ylabel="filled in", aspect="equal")
    figure.savefig(path, dpi=100)


def main(picture: str | None = None) -> dict[str, float]:
    """Print and return the root mean square error of what was missing, for each way to fill it in."""
    learned, wanted = torn(table(ROWS, 0), 2), table(500, 1)
    asked = torn(wanted, 3)
    memory = SQHNImputer(capacity=ROWS // 10)
    for start in range(0, ROWS, 100):
        memory.partial_fit(learned[start : start + 100])
    some = np.random.default_rng(4).permutation(ROWS)[: ROWS // 10]
    ways = {
        f"SQHNImputer, {ROWS // 10} neurons": memory,
        f"SQHNImputer, {ROWS} neurons": SQHNImputer(capacity=ROWS).fit(learned),
        f"KNNImputer, {ROWS // 10} rows of a reservoir": KNNImputer().fit(learned[some]),
        f"KNNImputer, {ROWS} rows": KNNImputer().fit(learned),
        "means of the columns": SimpleImputer().fit(learned),
    }
    gone = np.isnan(asked)
    errors = {name: float(np.sqrt(np.mean((way.transform(asked) - wanted)[gone] ** 2))) for name, way in ways.items()}
    for name, error in errors.items():
        print(f"{name}: {error:.3f}")
    if picture:
        draw(picture, asked, memory.transform(asked), wanted)
    return errors


if __name__ == "__main__":
    main(*sys.argv[1:2])
