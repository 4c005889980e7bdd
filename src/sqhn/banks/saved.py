"""What is saved of banks, and whether it can be true."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import State
from sqhn.level import Level

__all__ = ["KINDS", "check_counts", "check_growth", "check_prototypes"]

KINDS = {"c": np.int64, "mu": np.float64, "written": np.int64}
"""What is kept of every neuron."""


def check_growth(state: State, nodes: int, level: Level) -> NDArray[np.int64]:
    """The number of neurons of every node, or an error if a saved state contradicts itself."""
    grown = state["grown"]
    if grown.shape != (nodes,) or grown.dtype != np.int64 or grown.min() < 0 or grown.max() > level.capacity:
        raise ValueError("wrong numbers of neurons")
    total = int(grown.sum())
    for name, kind in KINDS.items():
        if state[name].shape != (total,) or state[name].dtype != kind:
            raise ValueError(f"{name} of shape {state[name].shape} and dtype {state[name].dtype} for {total} neurons")
    if state["c"].min(initial=1) < 1:
        raise ValueError("counts below 1")
    return grown


def check_prototypes(prototypes: NDArray[np.float32], total: int, size: int) -> None:
    """Raise unless saved prototypes are those of `total` neurons."""
    if prototypes.shape != (total, size) or prototypes.dtype != np.float32:
        raise ValueError(f"prototypes of shape {prototypes.shape} for {total} neurons of {size} values")
    if not np.isfinite(prototypes).all():
        raise ValueError("prototypes that are not finite")


def check_counts(state: State, limits: tuple[int, int, int, int]) -> NDArray[np.int32]:
    """Saved counts, rows (node, neuron, child, value, count) within limits, or an error.

    A neuron that c samples were written to counted c values of every child.
    """
    rows, grown, c = state["counts"], state["grown"], state["c"]
    if rows.ndim != 2 or rows.shape[1] != 5 or rows.dtype != np.int32:
        raise ValueError(f"counts of shape {rows.shape} and dtype {rows.dtype}")
    if rows.min(initial=0) < 0 or any(rows[:, i].max(initial=0) >= max(1, top) for i, top in enumerate(limits)):
        raise ValueError(f"counts outside the limits {limits}")
    n, j, q, _, count = rows.astype(np.int64).T
    if (j >= grown[n]).any():
        raise ValueError("counts of neurons that are not there")
    family = limits[2]
    place = (np.cumsum(grown)[n] - grown[n] + j) * family + q
    if (np.bincount(place, count, minlength=len(c) * family) != np.repeat(c, family)).any():
        raise ValueError("counts that do not add up")
    return rows
