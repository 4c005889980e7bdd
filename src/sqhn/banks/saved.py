"""Checks of saved arrays of banks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import State
from sqhn.inputs import as_floats
from sqhn.level import Level

KINDS = {"c": np.int64, "mu": np.float64, "written": np.int64}
"""The statistics of neurons, and their dtypes."""


def check_growth(state: State, nodes: int, level: Level) -> NDArray[np.int64]:
    """The number of neurons of every node, or an error if a saved state contradicts itself."""
    grown = state["grown"]
    if grown.shape != (nodes,) or grown.dtype != np.int64 or grown.min() < 0 or grown.max() > level.capacity:
        raise ValueError("wrong numbers of neurons")
    total = int(grown.sum())
    for name, kind in KINDS.items():
        if state[name].shape != (total,) or state[name].dtype != kind:
            raise ValueError(f"{name} of shape {state[name].shape} and dtype {state[name].dtype} for {total} neurons")
    if state["c"].min(initial=0) < 0:
        raise ValueError("counts below 0")
    if "prototypes" in state and len(state["prototypes"]) + len(state.get("bytes", ())) != total:
        raise ValueError(f"prototypes of shape {state['prototypes'].shape} for {total} neurons")
    return grown


def check_prototypes(state: State, size: int, centre: float) -> None:
    """Raise unless there is a prototype for every neuron, with the centre in place of unknown values."""
    if "bytes" in state:
        is_bytes = check_bytes(state, size)
        check_prototypes({"c": state["c"][~is_bytes], "prototypes": state["prototypes"]}, size, centre)
        return
    prototypes, known, total = state["prototypes"], known_of(state, size), len(state["c"])
    if prototypes.shape != (total, size) or prototypes.dtype != np.float32:
        raise ValueError(f"prototypes of shape {prototypes.shape} for {total} neurons of {size} values")
    if not np.isfinite(prototypes).all():
        raise ValueError("prototypes that are not finite")
    if (prototypes[known == 0] != np.float32(centre)).any():
        raise ValueError(f"unknown values that are not {centre}")


def check_bytes(state: State, size: int) -> NDArray[np.bool_]:
    """Which neurons are stored as bytes, or an error if there are not as many rows of bytes, or bytes in free slots."""
    raw, is_bytes, total = state["bytes"], state["is_bytes"], len(state["c"])
    if is_bytes.shape != (total,) or is_bytes.dtype != np.bool_:
        raise ValueError(f"is_bytes of shape {is_bytes.shape} and dtype {is_bytes.dtype} for {total} neurons")
    if raw.shape != (is_bytes.sum(), size) or raw.dtype != np.uint8:
        raise ValueError(f"bytes of shape {raw.shape} and dtype {raw.dtype} for {is_bytes.sum()} neurons")
    if "known" in state or raw[state["c"][is_bytes] == 0].any():
        raise ValueError("bytes of unknown values")
    return np.asarray(is_bytes)


def part_of(state: State, rows: slice) -> State:
    """The saved arrays of some neurons of the only node, from those of all."""
    found = {name: state[name][rows] for name in (*KINDS, "prototypes", "is_bytes", "known") if name in state}
    if "bytes" in state:
        start, many = np.count_nonzero(state["is_bytes"][: rows.start]), np.count_nonzero(found["is_bytes"])
        found["bytes"] = state["bytes"][start : start + many]
        found["prototypes"] = state["prototypes"][rows.start - start : rows.stop - start - many]
    return found


def prototypes_of(state: State, centre: float) -> NDArray[np.float32]:
    """The prototypes of neurons in float32; in free slots they are the centre."""
    if "bytes" not in state:
        return state["prototypes"]
    is_bytes = state["is_bytes"]
    found = np.empty((len(is_bytes), state["bytes"].shape[1]), np.float32)
    found[is_bytes], found[~is_bytes] = as_floats(state["bytes"]), state["prototypes"]
    found[state["c"] == 0] = centre
    return found


def joined(pieces: Iterable[State], total: int, size: int, holes: bool) -> State:
    """The saved prototypes of `total` neurons, from shards that list the indices of their neurons."""
    found: State = {"prototypes": np.empty((total, size), np.float32)}
    if holes:
        found["known"] = np.empty((total, size), np.int32)
    for piece in pieces:
        for name, array in found.items():
            array[piece["number"]] = piece[name]
    return found


def known_of(state: State, entries: int) -> NDArray[np.int32]:
    """How often each value, or child, of every neuron was observed; by default as often as the neuron was written."""
    c, known = state["c"][:, None], state.get("known")
    if known is None:
        return np.broadcast_to(c, (len(c), entries))
    if known.shape != (len(c), entries) or known.dtype != np.int32:
        raise ValueError(f"known of shape {known.shape} and dtype {known.dtype} for {len(c)} neurons of {entries}")
    if known.min(initial=0) < 0 or (known > c).any():
        raise ValueError("values observed less often than never, or more often than their neurons were written")
    return known


def check_counts(state: State, limits: tuple[int, int, int, int]) -> NDArray[np.int32]:
    """Saved counts, rows (node, neuron, child, value, count) within limits, or an error.

    A neuron counted as many values of a child as it was heard.
    """
    rows, grown = state["counts"], state["grown"]
    if rows.ndim != 2 or rows.shape[1] != 5 or rows.dtype != np.int32:
        raise ValueError(f"counts of shape {rows.shape} and dtype {rows.dtype}")
    if rows.min(initial=0) < 0 or any(rows[:, i].max(initial=0) >= max(1, top) for i, top in enumerate(limits)):
        raise ValueError(f"counts outside the limits {limits}")
    if (rows[:, 1] >= grown[rows[:, 0]]).any():
        raise ValueError("counts of neurons that do not exist")
    if (heard_of(rows, grown, limits[2]) != known_of(state, limits[2])).any():
        raise ValueError("counts that do not add up")
    return rows


def heard_of(rows: NDArray[np.int32], grown: NDArray[np.int64], family: int) -> NDArray[np.int64]:
    """How often each neuron heard each child, from saved counts."""
    n, j, q, _, count = rows.astype(np.int64).T
    place = (np.cumsum(grown)[n] - grown[n] + j) * family + q
    heard = np.bincount(place.astype(np.intp), count, minlength=int(grown.sum()) * family)
    return heard.reshape(-1, family).astype(np.int64)
