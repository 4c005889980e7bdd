"""Levels whose nodes are in several places: nodes know nothing of each other, so each place has a bank of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, Never

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import devices
from sqhn.banks.interface import BlockEvidence, Codes, Device, Learned, Patches, State, Support
from sqhn.banks.ray.shards import BUILD, Shards
from sqhn.banks.saved import KINDS, check_growth, joined, known_of
from sqhn.level import Level, Options
from sqhn.patches import Tiling

__all__ = ["SplitCodes", "SplitPatterns"]


CHUNK = 1536
"""So many samples are learned at once, if there is memory for it: every level takes a round for them."""


class After(NamedTuple):
    """What the bank of some nodes is after a call; chunk: how many samples to learn at once."""

    grown: NDArray[np.int64]
    room: int
    step: int
    holes: bool
    chunk: int


class Nodes:
    """The bank of some nodes, on any device, for someone who has NumPy's arrays.

    kind: "patterns" or "codes", and what a device makes it from.
    """

    def __init__(self, word: str, kind: str, *args: Any) -> None:
        self.device = devices.device_of(word)
        self.bank = getattr(self.device, kind)(*args)
        self.reserved: tuple[int, ...] = ()

    def call(self, method: str, *args: Any) -> tuple[Any, After]:
        """What the bank answers, and what it is then."""
        if method == "reserve":
            self.reserved = args
        with self.device.stream():
            found = _each(getattr(self.bank, method)(*(_each(arg, self._bring) for arg in args)), self._give)
            return found, self._after()

    def _after(self) -> After:
        bank = self.bank
        return After(self._give(bank.grown), bank.neurons.room, bank.neurons.step, bank.holes, bank.chunk_size(CHUNK))

    def _bring(self, array: Any) -> Any:
        return self.device.asarray(array) if isinstance(array, np.ndarray) else array

    def _give(self, array: Any) -> Any:
        return self.device.to_user(array, None) if hasattr(array, "shape") else array

    def kept(self) -> tuple[NDArray[Any], ...]:
        """What is kept of every neuron."""
        with self.device.stream():
            state = self.bank.neurons.state()
        return tuple(state[name] for name in ("grown", *KINDS))

    def state(self) -> State:
        with self.device.stream():
            more = {"step": np.array(self.bank.neurons.step), "reserved": np.array(self.reserved, np.int64)}
            return {**self.bank.neurons.state(), **self.bank.state(), **more}

    def restore(self, state: State) -> None:
        """Become what a state says. A write that comes next may count on what was reserved, the last number of it too:
        the values of children, where there are any.
        """
        self.reserved = tuple(state["reserved"].tolist())
        with self.device.stream():
            self.bank.neurons.restore(state, int(state["step"]))
            self.bank.restore(state, self.reserved[-1] if self.reserved else 0)
            if self.reserved:
                self.bank.reserve(*self.reserved)


class SplitNeurons:
    """What is kept of the neurons of all nodes, as far as it is known here."""

    def __init__(self, bank: SplitNodes) -> None:
        self.bank = bank
        self.grown = np.zeros(bank.nodes, np.int64)
        self.free = np.zeros(bank.nodes, np.int64)
        self.room = self.step = 0
        self.waiting: tuple[State, int] | None = None

    @property
    def most(self) -> int:
        return int(self.grown.max())

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name not in KINDS:
            raise AttributeError(name)
        found = np.zeros((self.bank.nodes, self.room), KINDS[name])
        found[np.arange(self.room) < self.grown[:, None]] = self.state()[name]
        return found

    def state(self) -> State:
        return self.bank.kept()

    def restore(self, state: State, step: int) -> None:
        check_growth(state, self.bank.nodes, self.bank.level)
        self.waiting = state, step


class Below(NamedTuple):
    """A message about the nodes of the level below."""

    message: Any


class SplitNodes(ABC):
    """A level below the memory node: its nodes, each in one of several places."""

    def __init__(self, device: Device, shards: Shards, name: str, nodes: int, level: Level) -> None:
        self.device, self.shards, self.name, self.nodes, self.level = device, shards, name, nodes, level
        self.neurons = SplitNeurons(self)
        self.holes, self.chunk = False, CHUNK
        bounds = np.linspace(0, nodes, min(len(shards), nodes) + 1).astype(int)
        self.parts = [slice(a, b) for a, b in pairwise(bounds.tolist())]

    def _build(self, word: str, kind: str, args: Callable[[slice], tuple[Any, ...]]) -> None:
        """Banks, each made from what concerns some nodes."""
        for s, part in enumerate(self.parts):
            self.shards.tell({s: (BUILD, self.name, Nodes, word, kind, *args(part))})

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    def chunk_size(self, limit: int) -> int:
        return min(limit, self.chunk)

    def settle(self) -> None:  # noqa: B027
        """Every place does it after each chunk."""

    def _everywhere(self, how: Callable[..., Any], method: str, *args: Any) -> list[Any]:
        """A method of the banks of all places, each with its part of arrays."""
        calls = {
            s: (self.name, "call", method, *(self._part(arg, part) for arg in args))
            for s, part in enumerate(self.parts)
        }
        found, after = zip(*how(calls).values())
        self.neurons.grown = np.concatenate([one.grown for one in after])
        self.neurons.room, self.neurons.step = max(one.room for one in after), after[0].step
        self.holes, self.chunk = any(one.holes for one in after), min(one.chunk for one in after)
        return list(found)

    def _part(self, value: Any, nodes: slice) -> Any:
        """What of a message concerns some nodes."""
        if isinstance(value, Below):
            return _some(value.message, self._children(nodes))
        return self._entries(value, nodes) if isinstance(value, Support) else _some(value, nodes)

    def _children(self, nodes: slice) -> NDArray[np.int32]:
        raise TypeError(f"there is nothing below nodes {nodes}")

    def _entries(self, support: Support, nodes: slice) -> Support:
        """What the level above expects of some nodes, without how much: who asks for activities there need not know."""
        batch = (len(support.start) - 1) // self.nodes
        start = support.start[nodes.start * batch : nodes.stop * batch + 1]
        own = slice(start[0], start[-1])
        return Support(start - start[0], support.value[own], None)

    def _ask(self, method: str, *args: Any, fill: float = 0.0) -> Any:
        return _joined(self._everywhere(self.shards.ask, method, *args), fill)

    def _tell(self, method: str, *args: Any) -> Any:
        return _joined(self._everywhere(self.shards.tell, method, *args))

    def _shown(self, *args: Any) -> BlockEvidence:
        found = self._everywhere(self.shards.ask, "block_evidence", *args)
        rest: BlockEvidence = _joined([one._replace(A=None) for one in found])
        return rest._replace(A=_joined([one.A for one in found], -np.inf))

    def forget(self, j: NDArray[np.int64]) -> Never:
        """Only a memory node forgets."""
        raise TypeError(f"neurons {j} of a level below the memory node")

    def resize(self, level: Level) -> Never:
        """Only a memory node grows further than it could."""
        raise TypeError(f"{level} below the memory node")

    # -- persistence ---------------------------------------------------------------------------------------------

    def kept(self) -> State:
        """What is kept of the neurons of all places, one after another."""
        found = self.shards.ask(dict.fromkeys(range(len(self.parts)), (self.name, "kept"))).values()
        return {name: np.concatenate(arrays) for name, *arrays in zip(("grown", *KINDS), *found)}

    def states(self) -> Iterator[tuple[slice, State]]:
        """What is saved of each place, and of which nodes."""
        for s, part in enumerate(self.parts):
            yield part, self.shards.ask({s: (self.name, "state")})[s]

    def restore(self, state: State, values: int) -> None:
        assert self.neurons.waiting is not None
        (kept, step), self.neurons.waiting = self.neurons.waiting, None
        first = np.concatenate([[0], np.cumsum(kept["grown"])])
        more: State = {"step": np.array(step), "reserved": np.array(self._reserved(values))}
        for s, part in enumerate(self.parts):
            own = slice(int(first[part.start]), int(first[part.stop]))
            some = {name: kept[name][own] for name in KINDS} | {"grown": kept["grown"][part]} | more
            self.shards.tell({s: (self.name, "restore", some | self._own(state, len(kept["c"]), part, own))})
        self._ask("chunk_size", 1)

    def _reserved(self, values: int) -> tuple[int, ...]:  # noqa: ARG002
        """Room for nothing more; values: of children."""
        return (0,)

    @abstractmethod
    def _own(self, state: State, total: int, nodes: slice, neurons: slice) -> State:
        """What of a state concerns some nodes, whose neurons are these of so many."""


class SplitPatterns(SplitNodes):
    """Prototypes."""

    top = False

    def __init__(
        self, device: Device, shards: Shards, word: str, tiling: Tiling, level: Level, options: Options
    ) -> None:
        super().__init__(device, shards, "patterns", tiling.nodes, level)
        self.tiling = tiling
        side, *rest = tiling.patch

        def some(part: slice) -> tuple[Any, ...]:
            return Tiling(((part.stop - part.start) * side, *rest), tiling.kernel), level, options, False

        self._build(word, "patterns", some)

    # -- learning ------------------------------------------------------------------------------------------------

    def reserve(self, more: int) -> None:
        self._tell("reserve", more)

    def learn(self, evidence: Patches) -> Learned:
        sent: Learned = self._tell("learn", evidence)
        self._tell("settle")
        return sent

    def hold(self, evidence: Patches, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        self._tell("hold", evidence, k, wrote)

    def store(self, evidence: Patches) -> None:
        self._tell("store", evidence)

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, evidence: Patches) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = self._ask("best", evidence)
        return k, v

    def top_k(self, evidence: Patches, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = self._ask("top_k", evidence, count)
        return k, v

    def activity(self, evidence: Patches) -> NDArray[np.float64]:
        return np.asarray(self._ask("activity", evidence, fill=-np.inf))

    def block_evidence(self, evidence: Patches) -> BlockEvidence:
        return self._shown(evidence)

    def pyramid_evidence(self, *_: Any) -> Never:
        """For one level."""
        raise TypeError("a level below the memory node")

    def at(self, evidence: Patches, support: Support) -> NDArray[np.float64]:
        return np.asarray(self._ask("at", evidence, support))

    def similarity(self, evidence: Patches, k: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.asarray(self._ask("similarity", evidence, k))

    def vectors(self, k: NDArray[np.int32]) -> NDArray[np.float32]:
        return np.asarray(self._ask("vectors", k))

    def known_values(self, k: NDArray[np.int32]) -> NDArray[np.bool_]:
        return np.asarray(self._ask("known_values", k))

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
    """Counts; children (nodes, children each) are rows of the level below."""

    def __init__(
        self,
        device: Device,
        shards: Shards,
        word: str,
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

        self._build(word, "codes", some)

    def _children(self, nodes: slice) -> NDArray[np.int32]:
        return self.children[nodes].ravel()

    # -- learning ------------------------------------------------------------------------------------------------

    def reserve(self, more: int, values: int) -> None:
        self._tell("reserve", more, values)

    def learn(self, evidence: Codes) -> Learned:
        sent: Learned = self._tell("learn", Below(evidence))
        return sent

    def hears(self, evidence: Codes) -> NDArray[np.bool_] | None:
        return None if evidence.heard is None else np.asarray(evidence.heard[self.children].any(axis=1))

    def hold(self, evidence: Codes, times: int, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        self._tell("hold", Below(evidence), times, k, wrote)

    def store(self, evidence: Codes) -> None:
        self._tell("store", Below(evidence))

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, evidence: Codes) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = self._ask("best", Below(evidence))
        return k, v

    def top_k(self, evidence: Codes, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = self._ask("top_k", Below(evidence), count)
        return k, v

    def at(self, evidence: Codes, support: Support) -> NDArray[np.float64]:
        return np.asarray(self._ask("at", Below(evidence), support))

    def block_evidence(self, below: BlockEvidence, weight: float) -> BlockEvidence:
        return self._shown(Below(below), weight)

    def max_sum(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self._ask("max_sum", Below(u), fill=-np.inf))

    def support(self, j: NDArray[np.int32]) -> Support:
        """Children are in the order of their parents at first."""
        found: list[Support] = self._everywhere(self.shards.ask, "support", j)
        many = np.concatenate([np.diff(one.start) for one in found]).reshape(self.children.size, -1)
        order = np.argsort(self.children.ravel())
        sizes, first = many.sum(axis=1)[order], (np.cumsum(many.sum(axis=1)) - many.sum(axis=1))[order]
        at = np.repeat(first - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
        _, value, probability = (np.concatenate(part) for part in zip(*found))
        return Support(np.concatenate([[0], np.cumsum(many[order].ravel())]), value[at], probability[at])

    def expects(self, j: NDArray[np.int32], known: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return self._by_children(self._ask("expects", j, known))

    def probability(self, j: NDArray[np.int32], k: NDArray[np.int32]) -> NDArray[np.float64]:
        return self._by_children(self._ask("probability", j, Below(k)))

    def _by_children(self, found: NDArray[Any]) -> NDArray[Any]:
        """What is told of children in the order of their parents, in their own."""
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


def _some(value: Any, rows: Any) -> Any:
    """Rows of all arrays of a message."""
    return _each(value, lambda part: part[rows] if _is_array(part) else part)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """What is changed of all parts of a message."""
    if isinstance(value, tuple):
        parts = [_each(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return change(value)


def _joined(parts: list[Any], fill: float = 0.0) -> Any:
    """Answers of all places as one: arrays one after another, those with fewer neurons filled up."""
    first = parts[0]
    if isinstance(first, tuple):
        fields = [_joined(list(field), fill) for field in zip(*parts)]
        return type(first)(*fields) if hasattr(first, "_fields") else tuple(fields)
    if not _is_array(first):
        return first
    if first.ndim > 1:
        last = max(part.shape[-1] for part in parts)
        wide = [(0, 0)] * (first.ndim - 1)
        parts = [
            part if part.shape[-1] == last else np.pad(part, [*wide, (0, last - part.shape[-1])], constant_values=fill)
            for part in parts
        ]
    return np.concatenate(parts)
