"""Checks of saved arrays of banks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import State
from sqhn.inputs import as_floats
from sqhn.level import Level

KINDS = {"c": np.int64, "mu": np.float64, "written": np.int64}
"""The statistics of the memory node's neurons, and their dtypes; below it, neurons only have a count."""


def kinds(top: bool) -> tuple[str, ...]:
    """The names of the statistics of neurons; top: of the memory node."""
    return tuple(KINDS) if top else ("c",)


def check_growth(state: State, nodes: int, level: Level, top: bool) -> NDArray[np.int64]:
    """The number of neurons of every node, or an error if a saved state contradicts itself; top: the memory node."""
    grown = state["grown"]
    if grown.shape != (nodes,) or grown.dtype != np.int64 or grown.min() < 0 or grown.max() > level.capacity:
        raise ValueError("wrong numbers of neurons")
    total = int(grown.sum())
    for name in kinds(top):
        if state[name].shape != (total,) or state[name].dtype != KINDS[name]:
            raise ValueError(f"{name} of shape {state[name].shape} and dtype {state[name].dtype} for {total} neurons")
    if state["c"].min(initial=0) < 0:
        raise ValueError("counts below 0")
    if top and not (np.abs(state["mu"]) <= 1 + 1e-6).all():
        raise ValueError("mean matches beyond -1 and 1")
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
    check_split(state, size)
    if state["bytes"][state["c"][state["is_bytes"]] == 0].any():
        raise ValueError("bytes in free slots")
    return state["is_bytes"]


def check_split(state: State, size: int) -> None:
    """Raise unless there are as many prototypes in bytes and in float32 as the saved state says."""
    raw, is_bytes, total = state["bytes"], state["is_bytes"], len(state["c"])
    if is_bytes.shape != (total,) or is_bytes.dtype != np.bool_:
        raise ValueError(f"is_bytes of shape {is_bytes.shape} and dtype {is_bytes.dtype} for {total} neurons")
    if raw.shape != (is_bytes.sum(), size) or raw.dtype != np.uint8:
        raise ValueError(f"bytes of shape {raw.shape} and dtype {raw.dtype} for {is_bytes.sum()} neurons")
    if "known" in state:
        raise ValueError("bytes of unknown values")


def part_of(state: State, rows: slice) -> State:
    """The saved arrays of some neurons of the only node, from those of all."""
    found = {name: state[name][rows] for name in (*KINDS, "prototypes", "is_bytes", "known") if name in state}
    if "bytes" in state:
        start, many = np.count_nonzero(state["is_bytes"][: rows.start]), np.count_nonzero(found["is_bytes"])
        found["bytes"] = state["bytes"][start : start + many]
        found["prototypes"] = state["prototypes"][rows.start - start : rows.stop - start - many]
    if "known" in found:
        found["known"] = found["known"].astype(np.int32)  # files have smaller integers
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


# -- columns of code banks ---------------------------------------------------------------------------------------------

# Neurons whose samples all had the same values are rows: `codes` has the values of all their children, for one such
# neuron after another. `counts` has the entries (node, neuron, child, value, count) of all other neurons, sorted.


def narrow(array: NDArray[Any]) -> NDArray[Any]:
    """Integers of at least 0 in the smallest type that holds them.

    >>> narrow(np.array([0, 255])).dtype, narrow(np.array([256])).dtype
    (dtype('uint8'), dtype('uint16'))
    """
    return array.astype(np.min_scalar_type(int(array.max(initial=0))))


def split_columns(entries: NDArray[np.int32], state: State, family: int) -> State:
    """The saved form of the entries of all neurons, which are sorted; state: how often these were written."""
    c, place = state["c"], places(entries, state["grown"])
    many = np.bincount(place, minlength=len(c))
    other = np.bincount(place, entries[:, 4] != c[place], minlength=len(c))
    of_row = ((many == family) & (other == 0))[place]
    return {"codes": narrow(entries[of_row, 3].reshape(-1, family)), "counts": entries[~of_row]}


def saved_columns(entries: NDArray[np.int32], statistics: State, family: int, holes: bool) -> State:
    """All that a code bank saves besides the statistics of its neurons, from their entries, which are sorted."""
    found = split_columns(entries, statistics, family)
    if holes:
        found["known"] = heard_of(statistics | found, family).astype(np.int32)
    return found


def all_entries(state: State) -> NDArray[np.int32]:
    """The inverse of `split_columns`."""
    codes, entries, (n, j) = state["codes"], state["counts"], row_neurons(state)
    c, child = state["c"][first_places(state["grown"])[n] + j], np.arange(codes.shape[1])
    rows = np.broadcast_arrays(n[:, None], j[:, None], child, codes, c[:, None])
    found = np.concatenate([entries, np.stack([field.ravel() for field in rows], axis=1).astype(np.int32)])
    return np.asarray(found[np.lexsort(found.T[::-1])])


def first_places(grown: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the neurons of each node begin in the list of all."""
    return np.asarray(np.cumsum(grown) - grown)


def places(entries: NDArray[np.int32], grown: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each entry's neuron in the list of all."""
    return np.asarray(first_places(grown)[entries[:, 0]] + entries[:, 1])


def row_neurons(state: State) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The nodes and indices of the neurons that are rows: those without entries, but for forgotten ones."""
    grown, alone = state["grown"], state["c"] > 0
    alone[places(state["counts"], grown)] = False
    (place,), node = np.nonzero(alone), np.repeat(np.arange(len(grown)), grown)
    return node[place], place - first_places(grown)[node[place]]


def check_columns(state: State, limits: tuple[int, int, int, int]) -> State:
    """A state with saved columns, `codes` and `counts`, or an error if they contradict themselves.

    limits: the numbers of nodes, neurons, children and values. A neuron counted as many values of a child as it was
    heard. Files of earlier versions have no codes, but entries for all neurons.
    """
    entries, (*_, family, values) = check_entries(state, limits), limits
    if "codes" not in state:
        state = state | split_columns(entries, state, family)
    codes, rows = state["codes"], len(row_neurons(state)[0])
    if codes.shape != (rows, family) or codes.dtype.kind != "u":
        raise ValueError(
            f"codes of shape {codes.shape} and dtype {codes.dtype} for {rows} neurons of {family} children"
        )
    if codes.max(initial=0) >= max(1, values):
        raise ValueError(f"the value {codes.max()} of a child with {values}")
    if (heard_of(state, family) != known_of(state, family)).any():
        raise ValueError("counts that do not add up")
    return state


def check_entries(state: State, limits: tuple[int, ...]) -> NDArray[np.int32]:
    """Saved entries, rows (node, neuron, child, value, count) within limits, or an error."""
    rows, grown = state["counts"], state["grown"]
    if rows.ndim != 2 or rows.shape[1] != 5 or rows.dtype != np.int32:
        raise ValueError(f"counts of shape {rows.shape} and dtype {rows.dtype}")
    if rows.min(initial=0) < 0 or any(rows[:, i].max(initial=0) >= max(1, top) for i, top in enumerate(limits)):
        raise ValueError(f"counts outside the limits {limits}")
    if (rows[:, 1] >= grown[rows[:, 0]]).any():
        raise ValueError("counts of neurons that do not exist")
    places = rows[np.lexsort(rows[:, 3::-1].T), :4]
    if rows[:, 4].min(initial=1) < 1 or not np.diff(places, axis=0).any(axis=1).all():
        raise ValueError("counts of 0, or two of the same value")
    return rows


def heard_of(state: State, family: int) -> NDArray[np.int64]:
    """How often each neuron heard each child, (neurons, children), from saved columns."""
    entries, c = state["counts"], state["c"]
    place = places(entries, state["grown"])
    heard: Any = np.bincount((place * family + entries[:, 2]).astype(np.intp), entries[:, 4], minlength=len(c) * family)
    heard = heard.reshape(-1, family).astype(np.int64)
    n, j = row_neurons(state)
    heard[first_places(state["grown"])[n] + j] = c[first_places(state["grown"])[n] + j, None]
    return np.asarray(heard)
