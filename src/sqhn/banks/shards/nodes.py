"""A level whose nodes are in several places: nodes know nothing of each other, so each place has a bank of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.devices import device_of
from sqhn.banks.interface import Device, Patches, Sent, Shown, State, Support
from sqhn.banks.saved import KINDS, check_growth, joined, known_of
from sqhn.banks.shards.shards import BUILD, Shards
from sqhn.level import Level, Options
from sqhn.patches import Tiling

__all__ = ["SplitNodes"]

NAME = "nodes"


class Nodes:
    """The bank of some nodes, on any device, for someone who has NumPy's arrays."""

    def __init__(self, word: str, tiling: Tiling, level: Level, options: Options) -> None:
        self.device = device_of(word)
        self.bank = self.device.patterns(tiling, level, options, top=False)

    def call(self, method: str, *args: Any) -> tuple[Any, Any]:
        """What the bank answers, and how far it has grown then."""
        with self.device.stream():
            found = _each(getattr(self.bank, method)(*(_each(arg, self._bring) for arg in args)), self._give)
            return found, (self._give(self.bank.grown), self.bank.neurons.room, self.bank.neurons.step, self.bank.holes)

    def _bring(self, array: Any) -> Any:
        return self.device.own(self.device.bring(array)) if isinstance(array, np.ndarray) else array

    def _give(self, array: Any) -> Any:
        return self.device.give(array, None) if hasattr(array, "shape") else array

    def kept(self) -> tuple[NDArray[Any], ...]:
        """What is kept of every neuron."""
        with self.device.stream():
            state = self.bank.neurons.state()
        return tuple(state[name] for name in ("grown", *KINDS))

    def state(self) -> State:
        with self.device.stream():
            neurons = self.bank.neurons
            more = {"step": np.array(neurons.step), "room": np.array(neurons.room)}
            return {**neurons.state(), **self.bank.state(), **more}

    def restore(self, state: State) -> None:
        with self.device.stream():
            self.bank.neurons.restore(state, int(state["step"]))
            self.bank.restore(state, 0)
            if "room" in state:  # a write that comes next may count on it
                self.bank.reserve(int(state["room"]) - self.bank.neurons.most)


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


class SplitNodes:
    """The prototypes of many nodes, each in one of several places."""

    top = False

    def __init__(
        self, device: Device, shards: Shards, word: str, tiling: Tiling, level: Level, options: Options
    ) -> None:
        self.device, self.shards, self.tiling, self.level = device, shards, tiling, level
        self.nodes = tiling.nodes
        self.neurons = SplitNeurons(self)
        self.holes = False
        bounds = np.linspace(0, self.nodes, min(len(shards), self.nodes) + 1).astype(int)
        self.parts = [slice(a, b) for a, b in pairwise(bounds.tolist())]
        side, *rest = tiling.patch
        for s, part in enumerate(self.parts):
            some = Tiling(((part.stop - part.start) * side, *rest), tiling.kernel)
            shards.tell({s: (BUILD, NAME, Nodes, word, some, level, options)})

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    def chunk_size(self, limit: int) -> int:
        nodes = max(part.stop - part.start for part in self.parts)
        most: int = nodes * min(self.level.capacity, self.neurons.most + limit)
        return max(1, min(limit, (1 << 23) // max(1, most)))

    def settle(self) -> None:
        """Every place does it after each chunk."""

    def _everywhere(self, how: Callable[..., Any], method: str, *args: Any) -> list[Any]:
        """A method of the banks of all places, each with its part of arrays."""
        calls = {s: (NAME, "call", method, *(_part(arg, part) for arg in args)) for s, part in enumerate(self.parts)}
        found, after = zip(*how(calls).values())
        self.neurons.grown = np.concatenate([one[0] for one in after])
        self.neurons.room, self.neurons.step = max(one[1] for one in after), after[0][2]
        self.holes = any(one[3] for one in after)
        return list(found)

    def _ask(self, method: str, *args: Any) -> Any:
        return _joined(self._everywhere(self.shards.ask, method, *args))

    def _tell(self, method: str, *args: Any) -> Any:
        return _joined(self._everywhere(self.shards.tell, method, *args))

    # -- learning ------------------------------------------------------------------------------------------------

    def reserve(self, more: int) -> None:
        self._tell("reserve", more)

    def learn(self, evidence: Patches) -> Sent:
        sent: Sent = self._tell("learn", evidence)
        self._tell("settle")
        return sent

    def hold(self, evidence: Patches, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        self._tell("hold", evidence, k, wrote)

    def store(self, evidence: Patches) -> None:
        self._tell("store", evidence)

    def forget(self, j: NDArray[np.int64]) -> Never:
        """Only a memory node forgets."""
        raise TypeError(f"neurons {j} of a level below the memory node")

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, evidence: Patches) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = self._ask("best", evidence)
        return k, v

    def ranking(self, evidence: Patches, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = self._ask("ranking", evidence, count)
        return k, v

    def activity(self, evidence: Patches) -> NDArray[np.float64]:
        return np.asarray(_joined(self._everywhere(self.shards.ask, "activity", evidence), -np.inf))

    def shown(self, evidence: Patches) -> Shown:
        found = self._everywhere(self.shards.ask, "shown", evidence)
        rest: Shown = _joined([one._replace(A=None) for one in found])
        return rest._replace(A=_joined([one.A for one in found], -np.inf))

    def shown_at(self, *_: Any) -> Never:
        """For one level."""
        raise TypeError("a level below the memory node")

    def at(self, evidence: Patches, support: Support) -> NDArray[np.float64]:
        batch, calls = evidence.x.shape[1], {}
        for s, part in enumerate(self.parts):
            start = support.start[part.start * batch : part.stop * batch + 1]
            own = slice(start[0], start[-1])
            some = Support(start - start[0], support.value[own], support.probability[own])
            seen = None if evidence.seen is None else evidence.seen[part]
            calls[s] = (NAME, "call", "at", Patches(evidence.x[part], seen), some)
        return np.concatenate([found for found, _ in self.shards.ask(calls).values()])

    def similarity(self, evidence: Patches, k: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.asarray(self._ask("similarity", evidence, k))

    def vectors(self, k: NDArray[np.int32]) -> NDArray[np.float32]:
        return np.asarray(self._ask("vectors", k))

    def knows(self, k: NDArray[np.int32]) -> NDArray[np.bool_]:
        return np.asarray(self._ask("knows", k))

    # -- persistence ---------------------------------------------------------------------------------------------

    def kept(self) -> State:
        """What is kept of the neurons of all places, one after another."""
        found = self.shards.ask(dict.fromkeys(range(len(self.parts)), (NAME, "kept"))).values()
        return {name: np.concatenate(arrays) for name, *arrays in zip(("grown", *KINDS), *found)}

    def pieces(self) -> Iterator[State]:
        first = 0
        for s in range(len(self.parts)):
            found: State = self.shards.ask({s: (NAME, "state")})[s]
            last = first + len(found["c"])
            piece = {"number": np.arange(first, last), "prototypes": found["prototypes"]}
            if self.holes:
                piece["known"] = known_of(found, self.tiling.size).astype(np.int32)
            yield piece
            first = last

    def state(self) -> State:
        return joined(self.pieces(), int(self.grown.sum()), self.tiling.size, self.holes)

    def restore(self, state: State, values: int) -> None:  # noqa: ARG002
        assert self.neurons.waiting is not None
        (kept, step), self.neurons.waiting = self.neurons.waiting, None
        if len(state["prototypes"]) != len(kept["c"]):
            raise ValueError(f"prototypes of shape {state['prototypes'].shape} for {len(kept['c'])} neurons")
        first = np.concatenate([[0], np.cumsum(kept["grown"])])
        for s, part in enumerate(self.parts):
            own = slice(int(first[part.start]), int(first[part.stop]))
            some = {name: array[own] for name, array in (state | kept).items() if name != "grown"}
            some |= {"grown": kept["grown"][part], "step": np.array(step)}
            self.shards.tell({s: (NAME, "restore", some)})
        self._ask("chunk_size", 1)


def _part(value: Any, nodes: slice) -> Any:
    """What of a message concerns some nodes."""
    return _each(value, lambda part: part[nodes] if _is_array(part) else part)


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
