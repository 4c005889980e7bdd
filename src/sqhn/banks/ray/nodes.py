"""Levels whose nodes are divided among shards. Nodes are independent, so every shard has a bank of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import devices
from sqhn.banks.compilation import at_once
from sqhn.banks.interface import BlockEvidence, Codes, State, Support
from sqhn.banks.ray.shards import BUILD, Call, each_array
from sqhn.banks.saved import KINDS, check_columns, check_growth, joined, known_of, row_neurons
from sqhn.level import Level, Options
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from sqhn.banks.ray.device import Sharded

LONGEST_CHUNK = 1536
"""The most samples that are learned at once: large chunks, since each level needs one round trip for a chunk."""


COLUMNS = "codes", "counts", "known"
"""The names of the saved arrays of a code bank."""
Status = tuple[NDArray[np.int64], int, int, bool, int]
"""The bank of a shard after a write: grown, room, step, holes, and how many samples it can learn at once."""


class Nodes:
    """The bank of some nodes in a shard, on any device, with NumPy arrays for arguments and results.

    kind, args: the method of the device that makes the bank, "patterns" or "codes", and its arguments.
    """

    def __init__(self, device: str, kind: str, *args: Any) -> None:
        with at_once():
            self.device = devices.device_of(device)
        self.bank = getattr(self.device, kind)(*map(_writable, args))
        self.reserved: tuple[int, ...] = ()

    def query(self, method: str, *args: Any) -> Any:
        """The result of a method of the bank, or of its statistics ("neurons.state")."""
        with self.device.stream():
            found = attrgetter(method)(self.bank)(*(each_array(arg, self.device.asarray) for arg in args))
            return each_array(found, self._to_numpy)

    def write(self, method: str, *args: Any) -> tuple[Any, Status]:
        """The result of a method that changes the bank, and the status after it."""
        if method == "reserve":
            self.reserved = args
        return self.query(method, *args), self._status()

    def _status(self) -> Status:
        bank, neurons = self.bank, self.bank.neurons
        with self.device.stream():
            grown, chunk = self._to_numpy(bank.grown), bank.chunk_size(LONGEST_CHUNK)
            return grown, neurons.room, neurons.step, bank.holes, chunk

    def _to_numpy(self, array: Any) -> NDArray[Any]:
        found: NDArray[Any] = self.device.to_user(array, None)
        return found

    def state(self) -> State:
        """All that must be saved."""
        more = {"step": np.array(self.bank.neurons.step), "reserved": np.array(self.reserved, np.int64)}
        with self.device.stream():
            return {**self.bank.neurons.state(), **self.bank.state(), **more}

    def restore(self, state: State) -> Status:
        """Load a state into a new bank, with the room that was reserved: the next write may need it."""
        self.reserved = tuple(state["reserved"].tolist())
        state = {name: _writable(array) for name, array in state.items()}
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

    @property
    def most(self) -> int:
        return int(self.grown.max())

    def skip(self, steps: int) -> None:
        self.bank.write_shards("neurons.skip", steps)

    def state(self) -> State:
        found = self.bank.query_shards("neurons.state")
        return {name: np.concatenate([one[name] for one in found]) for name in found[0]}

    def restore(self, state: State, step: int) -> None:
        """Check the statistics; `SplitNodes.restore` sends them to the shards, with the prototypes or counts."""
        self.grown, self.step = check_growth(state, self.bank.nodes, self.bank.level, top=False), step


def asked(method: str, fill: float = 0.0) -> Any:
    """A method that asks all shards; fill: the value that pads arrays where a shard has fewer neurons."""
    return lambda bank, *args: _joined(bank.query_shards(method, *args), fill)


def written(method: str) -> Any:
    """A method that changes the banks of all shards."""
    return lambda bank, *args: bank.write_shards(method, *args)


class SplitNodes:
    """A level below the memory node: each shard has some of its nodes.

    Arguments are divided by nodes, and results joined. The attributes change with writes only.
    """

    def __init__(self, device: Sharded, name: str, nodes: int, level: Level, made: Callable[[slice], Call]) -> None:
        """Build the banks of all shards; made: the kind of a bank of some nodes and its arguments, as in `Nodes`."""
        self.device, self.shards, self.name, self.nodes, self.level = device, device.start(), name, nodes, level
        self.neurons = SplitNeurons(self)
        self.holes, self.chunk = False, LONGEST_CHUNK
        bounds = np.linspace(0, nodes, min(len(self.shards), nodes) + 1).astype(int)
        self.parts = [slice(a, b) for a, b in pairwise(bounds.tolist())]  # the nodes of each shard
        build = BUILD, name, Nodes, device.shard_device
        self.shards.write({s: (*build, *made(part)) for s, part in enumerate(self.parts)})

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    def chunk_size(self, limit: int) -> int:
        return min(limit, self.chunk)

    def _calls(self, how: str, method: str, args: Sequence[Any]) -> dict[int, Call]:
        return {
            s: (self.name, how, method, *(self._part(arg, nodes) for arg in args)) for s, nodes in enumerate(self.parts)
        }

    def query_shards(self, method: str, *args: Any) -> list[Any]:
        """The results of all shards."""
        return list(self.shards.query(self._calls("query", method, args)).values())

    def write_shards(self, method: str, *args: Any) -> Any:
        """The joined result of a method that changes the banks."""
        found, statuses = zip(*self.shards.write(self._calls("write", method, args)).values())
        self._update(statuses)
        return _joined(list(found))

    def _update(self, statuses: Iterable[Status]) -> None:
        """Note the status of all shards after a write."""
        grown, room, step, holes, chunk = zip(*statuses)
        self.neurons.grown, self.neurons.room, self.neurons.step = np.concatenate(grown), max(room), step[0]
        self.holes, self.chunk = any(holes), min(chunk)

    def _part(self, value: Any, nodes: slice) -> Any:
        """The part of an argument that concerns some nodes."""
        if not isinstance(value, Support):
            return each_array(value, itemgetter(nodes))
        batch = (len(value.start) - 1) // self.nodes
        start = value.start[nodes.start * batch : nodes.stop * batch + 1]
        return Support(start - start[0], value.value[start[0] : start[-1]], None)  # banks do not need the probabilities

    reserve, learn, hold, store, settle = map(written, ("reserve", "learn", "hold", "store", "settle"))
    top_k, at = map(asked, ("top_k", "at"))

    def block_evidence(self, *args: Any) -> BlockEvidence:
        found = self.query_shards("block_evidence", *args)
        rest: BlockEvidence = _joined([one._replace(A=None) for one in found])
        return rest._replace(A=_joined([one.A for one in found], -np.inf))

    # -- persistence ---------------------------------------------------------------------------------------------

    def states(self, entries: int) -> Iterator[tuple[slice, State]]:
        """The nodes of every shard and their state; with holes, also how often each of the entries was observed."""
        for s, part in enumerate(self.parts):
            found: State = self.shards.query({s: (self.name, "state")})[s]
            if self.holes:
                found["known"] = known_of(found, entries).astype(np.int32)
            yield part, found

    def divide(self, state: State, of_nodes: Callable[[slice], State]) -> None:
        """Load a checked state.

        of_nodes: for some nodes, saved arrays without a row for each neuron, and the arguments of `reserve`
        (`reserved`).
        """
        first, writes = np.concatenate([[0], np.cumsum(self.grown)]), {}
        for s, nodes in enumerate(self.parts):
            own = slice(int(first[nodes.start]), int(first[nodes.stop]))
            some = {name: array[own] for name, array in state.items() if name in (*KINDS, "prototypes", "known")}
            some |= {"grown": state["grown"][nodes], "step": np.array(self.neurons.step), **of_nodes(nodes)}
            writes[s] = (self.name, "restore", some)
        self._update(self.shards.write(writes).values())


class SplitPatterns(SplitNodes):
    """The prototypes of level 1 of a tree."""

    top = False

    def __init__(self, device: Sharded, tiling: Tiling, level: Level, options: Options) -> None:
        self.tiling = tiling
        side, *rest = tiling.patch

        def made(part: slice) -> Call:
            return "patterns", Tiling(((part.stop - part.start) * side, *rest), tiling.kernel), level, options, False

        super().__init__(device, "patterns", tiling.nodes, level, made)

    activity = asked("activity", -np.inf)
    vectors, known_values = map(asked, ("vectors", "known_values"))

    # -- persistence ---------------------------------------------------------------------------------------------

    def shard_states(self) -> Iterator[State]:
        first = 0
        for _, found in self.states(self.tiling.size):
            number = np.arange(first, first + len(found["c"]))
            yield {"number": number, **{name: found[name] for name in ("prototypes", "known") if name in found}}
            first += len(number)

    def state(self) -> State:
        return joined(self.shard_states(), int(self.grown.sum()), self.tiling.size, self.holes)

    def restore(self, state: State, values: int) -> None:  # noqa: ARG002
        self.divide(state, lambda _: {"reserved": np.zeros(1, np.int64)})


class SplitCodes(SplitNodes):
    """The counts of a level above; children (nodes, children each): nodes of the level below."""

    top = False

    def __init__(
        self, device: Sharded, name: str, children: NDArray[np.int32], level: Level, options: Options, values: int
    ) -> None:
        self.children = children

        def made(part: slice) -> Call:
            own = np.arange(children[part].size, dtype=np.int32).reshape(children[part].shape)
            return "codes", own, level, options, False, values

        super().__init__(device, name, len(children), level, made)

    def _part(self, value: Any, nodes: slice) -> Any:
        if isinstance(value, Codes | BlockEvidence):  # of the level below
            return each_array(value, itemgetter(self.children[nodes].ravel()))
        return super()._part(value, nodes)

    def max_sum(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        below = [u[self.children[nodes].ravel()] for nodes in self.parts]
        found = self.shards.query({s: (self.name, "query", "max_sum", its) for s, its in enumerate(below)})
        return np.asarray(_joined(list(found.values()), -np.inf))

    def support(self, j: NDArray[np.int32]) -> Support:
        found: list[Support] = self.query_shards("support", j)  # with children in the order of their parents
        many = np.concatenate([np.diff(one.start) for one in found]).reshape(self.children.size, -1)
        order = np.argsort(self.children.ravel())
        sizes, first = many.sum(axis=1)[order], (np.cumsum(many.sum(axis=1)) - many.sum(axis=1))[order]
        at = np.repeat(first - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
        _, value, probability = (np.concatenate(part) for part in zip(*found))
        return Support(np.concatenate([[0], np.cumsum(many[order].ravel())]), value[at], probability[at])

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        found = []
        for part, one in self.states(self.children.shape[1]):
            found.append(one | {"counts": one["counts"] + np.array([part.start, 0, 0, 0, 0], np.int32)})
        return {name: np.concatenate([one[name] for one in found]) for name in COLUMNS if name in found[0]}

    def restore(self, state: State, values: int) -> None:
        state = check_columns(state, (self.nodes, self.neurons.most, self.children.shape[1], values))
        (row_nodes, _), codes, entries = row_neurons(state), state["codes"], state["counts"]

        def of_nodes(nodes: slice) -> State:
            row, own = ((of >= nodes.start) & (of < nodes.stop) for of in (row_nodes, entries[:, 0]))
            counts = entries[own] - np.array([nodes.start, 0, 0, 0, 0], np.int32)
            return {"codes": codes[row], "counts": counts, "reserved": np.array([0, values])}

        self.divide(state, of_nodes)


def _writable(value: Any) -> Any:
    """The value, or a copy of an array that is read-only, as those from Ray are: torch warns of them."""
    return np.require(value, requirements="W") if isinstance(value, np.ndarray) else value


def _joined(parts: list[Any], fill: float = 0.0) -> Any:
    """The results of all shards as one: arrays one after another, padded along their last axis."""
    first = parts[0]
    if isinstance(first, tuple):
        fields = [_joined(list(field), fill) for field in zip(*parts)]
        return type(first)(*fields) if hasattr(first, "_fields") else tuple(fields)
    if not isinstance(first, np.ndarray):
        return first
    if first.ndim > 1 and (last := max(part.shape[-1] for part in parts)) > min(part.shape[-1] for part in parts):
        wide = [(0, 0)] * (first.ndim - 1)
        parts = [np.pad(part, [*wide, (0, last - part.shape[-1])], constant_values=fill) for part in parts]
    return np.concatenate(parts)
