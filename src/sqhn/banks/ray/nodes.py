"""Levels whose nodes are divided among shards. Nodes are independent, so every shard has a bank of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import devices
from sqhn.banks.interface import BlockEvidence, Codes, Device, Learned, Patches, State, Support
from sqhn.banks.ray.shards import BUILD, Shards
from sqhn.banks.saved import KINDS, check_growth, joined, known_of
from sqhn.level import Level, Options
from sqhn.patches import Tiling

MOST_SAMPLES = 1536
"""The most samples that are learned at once: large chunks, since each level needs one round trip for a chunk."""


class Status(NamedTuple):
    """How far the nodes of a shard have grown after a write; chunk: how many samples their bank can learn at once."""

    grown: NDArray[np.int64]
    room: int
    step: int
    holes: bool
    chunk: int


class Nodes:
    """The bank of some nodes in a shard, on any device, with NumPy arrays for arguments and results.

    kind, args: the method of the device that makes the bank, "patterns" or "codes", and its arguments.
    """

    def __init__(self, device: str, kind: str, *args: Any) -> None:
        self.device = devices.device_of(device)
        self.bank = getattr(self.device, kind)(*args)
        self.reserved: tuple[int, ...] = ()

    def query(self, method: str, *args: Any) -> Any:
        """The result of a method of the bank that changes nothing."""
        return self._call(method, args)

    def write(self, method: str, *args: Any) -> tuple[Any, Status]:
        """The result of a method of the bank that changes it, and the status after it."""
        if method == "reserve":
            self.reserved = args
        found = self._call(method, args)
        return found, self._status()

    def _call(self, method: str, args: tuple[Any, ...]) -> Any:
        with self.device.stream():
            return _each(getattr(self.bank, method)(*(_each(arg, self._to_device) for arg in args)), self._to_numpy)

    def _status(self) -> Status:
        bank, neurons = self.bank, self.bank.neurons
        with self.device.stream():
            grown, chunk = self._to_numpy(bank.grown), bank.chunk_size(MOST_SAMPLES)
            return Status(grown, neurons.room, neurons.step, bank.holes, chunk)

    def _to_device(self, array: Any) -> Any:
        return self.device.asarray(array) if isinstance(array, np.ndarray) else array

    def _to_numpy(self, array: Any) -> Any:
        return self.device.to_user(array, None) if hasattr(array, "shape") else array

    def statistics(self) -> tuple[NDArray[Any], ...]:
        """The statistics of all neurons."""
        with self.device.stream():
            state = self.bank.neurons.state()
        return tuple(state[name] for name in ("grown", *KINDS))

    def state(self) -> State:
        """All that must be saved."""
        with self.device.stream():
            more = {"step": np.array(self.bank.neurons.step), "reserved": np.array(self.reserved, np.int64)}
            return {**self.bank.neurons.state(), **self.bank.state(), **more}

    def restore(self, state: State) -> Status:
        """Load a state into a new bank, with the room that was reserved: the next write may need it."""
        self.reserved = tuple(state["reserved"].tolist())
        with self.device.stream():
            self.bank.neurons.restore(state, int(state["step"]))
            self.bank.restore(state, self.reserved[-1] if self.reserved else 0)  # the last one: the children's values
            if self.reserved:
                self.bank.reserve(*self.reserved)
        return self._status()


class SplitNeurons:
    """How far the nodes of all shards have grown; the statistics of their neurons are on the shards."""

    def __init__(self, bank: SplitNodes) -> None:
        self.bank = bank
        self.grown = np.zeros(bank.nodes, np.int64)
        self.free = np.zeros(bank.nodes, np.int64)
        self.room = self.step = 0
        self.loaded: tuple[State, int] | None = None  # for `SplitNodes.restore`, with the prototypes or counts

    @property
    def most(self) -> int:
        return int(self.grown.max())

    def state(self) -> State:
        return self.bank.statistics()

    def restore(self, state: State, step: int) -> None:
        check_growth(state, self.bank.nodes, self.bank.level)
        self.loaded = state, step


class Below(NamedTuple):
    """An argument with a row for each node of the level below, not of this one."""

    message: Any


class SplitNodes(ABC):
    """A level below the memory node: each shard has some of its nodes.

    Arguments are divided by nodes, and results joined. What is known here changes with writes only.
    """

    def __init__(self, device: Device, shards: Shards, name: str, nodes: int, level: Level) -> None:
        self.device, self.shards, self.name, self.nodes, self.level = device, shards, name, nodes, level
        self.neurons = SplitNeurons(self)
        self.holes, self.chunk = False, MOST_SAMPLES
        bounds = np.linspace(0, nodes, min(len(shards), nodes) + 1).astype(int)
        self.parts = [slice(a, b) for a, b in pairwise(bounds.tolist())]  # the nodes of each shard

    def _build(self, shard_device: str, kind: str, args: Callable[[slice], tuple[Any, ...]]) -> None:
        """Build the banks of all shards; args: the arguments for some nodes."""
        for s, part in enumerate(self.parts):
            self.shards.write({s: (BUILD, self.name, Nodes, shard_device, kind, *args(part))})

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    def chunk_size(self, limit: int) -> int:
        return min(limit, self.chunk)

    def settle(self) -> None:
        self._write("settle")

    def _calls(self, how: str, method: str, args: Sequence[Any]) -> dict[int, tuple[Any, ...]]:
        return {
            s: (self.name, how, method, *(self._part(arg, nodes) for arg in args)) for s, nodes in enumerate(self.parts)
        }

    def _query_each(self, method: str, *args: Any) -> list[Any]:
        """The results of all shards."""
        return list(self.shards.query(self._calls("query", method, args)).values())

    def _query(self, method: str, *args: Any, fill: float = 0.0) -> Any:
        return _joined(self._query_each(method, *args), fill)

    def _write(self, method: str, *args: Any) -> Any:
        found, statuses = zip(*self.shards.write(self._calls("write", method, args)).values())
        self._update(statuses)
        return _joined(list(found))

    def _update(self, statuses: Sequence[Status]) -> None:
        """Note the status of all shards after a write."""
        self.neurons.grown = np.concatenate([one.grown for one in statuses])
        self.neurons.room, self.neurons.step = max(one.room for one in statuses), statuses[0].step
        self.holes, self.chunk = any(one.holes for one in statuses), min(one.chunk for one in statuses)

    def _part(self, value: Any, nodes: slice) -> Any:
        """The part of an argument that concerns some nodes."""
        if not isinstance(value, Support):
            return _rows(value, nodes)
        batch = (len(value.start) - 1) // self.nodes
        start = value.start[nodes.start * batch : nodes.stop * batch + 1]
        return Support(start - start[0], value.value[start[0] : start[-1]], None)  # banks do not need the probabilities

    def _input(self, evidence: Any) -> Any:
        """The input of this level as an argument."""
        return evidence

    def learn(self, evidence: Any) -> Learned:
        learned: Learned = self._write("learn", self._input(evidence))
        return learned

    def store(self, evidence: Any) -> None:
        self._write("store", self._input(evidence))

    def best(self, evidence: Any) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = self._query("best", self._input(evidence))
        return k, v

    def top_k(self, evidence: Any, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = self._query("top_k", self._input(evidence), count)
        return k, v

    def at(self, evidence: Any, support: Support) -> NDArray[np.float64]:
        return np.asarray(self._query("at", self._input(evidence), support))

    def _block_evidence(self, *args: Any) -> BlockEvidence:
        found = self._query_each("block_evidence", *args)
        rest: BlockEvidence = _joined([one._replace(A=None) for one in found])
        return rest._replace(A=_joined([one.A for one in found], -np.inf))

    # -- persistence ---------------------------------------------------------------------------------------------

    def statistics(self) -> State:
        """The statistics of all neurons, shard by shard."""
        found = self.shards.query(dict.fromkeys(range(len(self.parts)), (self.name, "statistics"))).values()
        return {name: np.concatenate(arrays) for name, *arrays in zip(("grown", *KINDS), *found)}

    def states(self) -> Iterator[tuple[slice, State]]:
        """The nodes of every shard, and their state."""
        for s, part in enumerate(self.parts):
            yield part, self.shards.query({s: (self.name, "state")})[s]

    def restore(self, state: State, values: int) -> None:
        assert self.neurons.loaded is not None
        (kept, step), self.neurons.loaded = self.neurons.loaded, None
        first = np.concatenate([[0], np.cumsum(kept["grown"])])
        more: State = {"step": np.array(step), "reserved": np.array(self._reserved(values))}
        statuses = []
        for s, part in enumerate(self.parts):
            own = slice(int(first[part.start]), int(first[part.stop]))
            some = {name: kept[name][own] for name in KINDS} | {"grown": kept["grown"][part]} | more
            some |= self._own(state, len(kept["c"]), part, own)
            statuses.append(self.shards.write({s: (self.name, "restore", some)})[s])
        self._update(statuses)

    def _reserved(self, values: int) -> tuple[int, ...]:  # noqa: ARG002
        """The arguments of `reserve` for no more neurons; values: of children."""
        return (0,)

    @abstractmethod
    def _own(self, state: State, total: int, nodes: slice, neurons: slice) -> State:
        """The part of a state of `total` neurons for some nodes, and these neurons of them."""


class SplitPatterns(SplitNodes):
    """The prototypes of level 1 of a tree."""

    top = False

    def __init__(
        self, device: Device, shards: Shards, shard_device: str, tiling: Tiling, level: Level, options: Options
    ) -> None:
        super().__init__(device, shards, "patterns", tiling.nodes, level)
        self.tiling = tiling
        side, *rest = tiling.patch

        def some(part: slice) -> tuple[Any, ...]:
            return Tiling(((part.stop - part.start) * side, *rest), tiling.kernel), level, options, False

        self._build(shard_device, "patterns", some)

    def reserve(self, more: int) -> None:
        self._write("reserve", more)

    def hold(self, evidence: Patches, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        self._write("hold", evidence, k, wrote)

    def activity(self, evidence: Patches) -> NDArray[np.float64]:
        return np.asarray(self._query("activity", evidence, fill=-np.inf))

    def block_evidence(self, evidence: Patches) -> BlockEvidence:
        return self._block_evidence(evidence)

    def similarity(self, evidence: Patches, k: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.asarray(self._query("similarity", evidence, k))

    def vectors(self, k: NDArray[np.int32]) -> NDArray[np.float32]:
        return np.asarray(self._query("vectors", k))

    def known_values(self, k: NDArray[np.int32]) -> NDArray[np.bool_]:
        return np.asarray(self._query("known_values", k))

    # -- persistence ---------------------------------------------------------------------------------------------

    def shard_states(self) -> Iterator[State]:
        first = 0
        for _, found in self.states():
            last = first + len(found["c"])
            piece = {"number": np.arange(first, last), "prototypes": found["prototypes"]}
            if self.holes:
                piece["known"] = known_of(found, self.tiling.size).astype(np.int32)
            yield piece
            first = last

    def state(self) -> State:
        return joined(self.shard_states(), int(self.grown.sum()), self.tiling.size, self.holes)

    def _own(self, state: State, total: int, nodes: slice, neurons: slice) -> State:  # noqa: ARG002
        if len(state["prototypes"]) != total:
            raise ValueError(f"prototypes of shape {state['prototypes'].shape} for {total} neurons")
        return {name: array[neurons] for name, array in state.items() if name in ("prototypes", "known")}


class SplitCodes(SplitNodes):
    """The counts of a level above; children (nodes, children each): nodes of the level below."""

    def __init__(
        self,
        device: Device,
        shards: Shards,
        shard_device: str,
        name: str,
        children: NDArray[np.int32],
        level: Level,
        options: Options,
        values: int,
    ) -> None:
        super().__init__(device, shards, name, len(children), level)
        self.children = children

        def some(part: slice) -> tuple[Any, ...]:
            own = np.arange(children[part].size, dtype=np.int32).reshape(children[part].shape)
            return own, level, options, False, values

        self._build(shard_device, "codes", some)

    def _part(self, value: Any, nodes: slice) -> Any:
        if isinstance(value, Below):
            return _rows(value.message, self.children[nodes].ravel())
        return super()._part(value, nodes)

    def _input(self, evidence: Codes) -> Below:
        return Below(evidence)

    def reserve(self, more: int, values: int) -> None:
        self._write("reserve", more, values)

    def hears(self, evidence: Codes) -> NDArray[np.bool_] | None:
        return None if evidence.heard is None else np.asarray(evidence.heard[self.children].any(axis=1))

    def hold(self, evidence: Codes, times: int, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        self._write("hold", Below(evidence), times, k, wrote)

    def block_evidence(self, below: BlockEvidence, weight: float) -> BlockEvidence:
        return self._block_evidence(Below(below), weight)

    def max_sum(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self._query("max_sum", Below(u), fill=-np.inf))

    def support(self, j: NDArray[np.int32]) -> Support:
        found: list[Support] = self._query_each("support", j)  # with children in the order of their parents
        many = np.concatenate([np.diff(one.start) for one in found]).reshape(self.children.size, -1)
        order = np.argsort(self.children.ravel())
        sizes, first = many.sum(axis=1)[order], (np.cumsum(many.sum(axis=1)) - many.sum(axis=1))[order]
        at = np.repeat(first - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
        _, value, probability = (np.concatenate(part) for part in zip(*found))
        return Support(np.concatenate([[0], np.cumsum(many[order].ravel())]), value[at], probability[at])

    def expects(self, j: NDArray[np.int32], known: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return self._by_children(self._query("expects", j, known))

    def probability(self, j: NDArray[np.int32], k: NDArray[np.int32]) -> NDArray[np.float64]:
        return self._by_children(self._query("probability", j, Below(k)))

    def _by_children(self, found: NDArray[Any]) -> NDArray[Any]:
        """From the order of the parents to that of the children themselves."""
        every = np.empty_like(found)
        every[self.children.ravel()] = found
        return every

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        counts, known = [], []
        for part, found in self.states():
            counts.append(found["counts"] + np.array([part.start, 0, 0, 0, 0], np.int32))
            if self.holes:
                known.append(known_of(found, self.children.shape[1]).astype(np.int32))
        return {"counts": np.concatenate(counts), **({"known": np.concatenate(known)} if known else {})}

    def _reserved(self, values: int) -> tuple[int, ...]:
        return 0, values

    def _own(self, state: State, total: int, nodes: slice, neurons: slice) -> State:
        rows = state["counts"]
        if rows.ndim != 2 or rows.shape[1] != 5 or rows.dtype != np.int32:
            raise ValueError(f"counts of shape {rows.shape} and dtype {rows.dtype}")
        if len(rows) and not 0 <= rows[:, 0].min() <= rows[:, 0].max() < self.nodes:
            raise ValueError("counts of nodes that are not there")
        if "known" in state and len(state["known"]) != total:
            raise ValueError(f"known of shape {state['known'].shape} for {total} neurons")
        there = (rows[:, 0] >= nodes.start) & (rows[:, 0] < nodes.stop)
        some = rows[there] - np.array([nodes.start, 0, 0, 0, 0], np.int32)
        return {"counts": some, **({"known": state["known"][neurons]} if "known" in state else {})}


def _rows(value: Any, rows: Any) -> Any:
    """Rows of all arrays of a message."""
    return _each(value, lambda part: part[rows] if isinstance(part, np.ndarray) else part)


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """A message with all its parts changed."""
    if isinstance(value, tuple):
        parts = [_each(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return change(value)


def _joined(parts: list[Any], fill: float = 0.0) -> Any:
    """The results of all shards as one: arrays one after another, padded along their last axis."""
    first = parts[0]
    if isinstance(first, tuple):
        fields = [_joined(list(field), fill) for field in zip(*parts)]
        return type(first)(*fields) if hasattr(first, "_fields") else tuple(fields)
    if not isinstance(first, np.ndarray):
        return first
    if first.ndim > 1:
        last = max(part.shape[-1] for part in parts)
        wide = [(0, 0)] * (first.ndim - 1)
        parts = [
            part if part.shape[-1] == last else np.pad(part, [*wide, (0, last - part.shape[-1])], constant_values=fill)
            for part in parts
        ]
    return np.concatenate(parts)
