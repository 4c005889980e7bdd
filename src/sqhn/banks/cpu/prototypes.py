"""The pattern bank on a CPU: the prototypes of level 1.

Small and large nodes differ in how samples meet their neurons; both end in the same two-step decision
(`kernels.decision`), so neither that nor the chunk size shows in the result.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.kernels import prototypes as kernels
from sqhn.banks.cpu.large import LargeNodes
from sqhn.banks.cpu.neurons import Neurons, enlarge, outcomes
from sqhn.banks.cpu.ranking import ranking
from sqhn.banks.cpu.small import SmallNodes
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Device, Patches, Sent, State, Support
from sqhn.banks.rule import rules
from sqhn.banks.saved import check_prototypes
from sqhn.level import Level, Options

__all__ = ["Prototypes"]

SMALL = 64  # values per node up to which prototypes are met one sample at a time
NOTHING = np.ones((1, 1, 1), bool)


class Prototypes:
    """Prototype vectors of `nodes` nodes that each see `shape` values."""

    def __init__(
        self, device: Device, nodes: int, shape: tuple[int, ...], level: Level, options: Options, top: bool
    ) -> None:
        self.device, self.nodes, self.size, self.level = device, nodes, math.prod(shape), level
        self.centre, self.rules = options.centre, tuple(rules(level, options, top))
        self.neurons = Neurons(nodes, level)
        self.m = np.zeros((nodes, 0, self.size), np.float32)
        self.m2 = np.zeros((nodes, 0))
        self.inv = np.zeros((nodes, 0), np.float32)
        self.way: SmallNodes | LargeNodes = (
            SmallNodes() if self.size <= SMALL else LargeNodes(nodes, shape, self.centre)
        )

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    @property
    def prototypes(self) -> tuple[NDArray[Any], ...]:
        """As kernels take them."""
        return self.m, self.m2, self.inv

    def of_node(self, n: int) -> tuple[NDArray[Any], ...]:
        """The same of one node."""
        return self.m[n], self.m2[n], self.inv[n]

    def chunk_size(self, limit: int) -> int:
        return self.way.chunk_size(self, limit)

    def reserve(self, more: int) -> None:
        room = self.neurons.wanted(more)
        if room != self.neurons.room:
            self.enlarge(room)

    def enlarge(self, room: int) -> None:
        self.way.reserve(room)
        self.m = enlarge(self.m, 1, room)
        self.m2, self.inv = enlarge(self.m2, 1, room), enlarge(self.inv, 1, room)
        self.neurons.reserve(room)  # last: stopped on the way, nothing is smaller than it says

    def settle(self) -> None:
        """Learning leaves nothing to be put in order."""

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, evidence: Patches) -> Sent:
        sent = outcomes(self.nodes, evidence.x.shape[1])
        self.way.learn(self, evidence.x, sent)
        return sent

    def hold(self, evidence: Patches, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        x, last = evidence.x, self.neurons.step + evidence.x.shape[1]
        split_range(
            kernels.hold, self.nodes, x.size, x, k, wrote, self.prototypes, self.neurons.kept, last, self.centre
        )
        self.way.changed(np.arange(self.nodes), k)
        self.way.settle(self)
        self.neurons.steps += x.shape[1]

    def store(self, evidence: Patches) -> None:
        new = self.neurons.append(evidence.x.shape[1])
        n = np.arange(self.nodes)[:, None]
        self.m[n, new] = evidence.x
        self.way.changed(n, new)
        self.derive()

    def derive(self) -> None:
        """Compute what is derived from the prototypes."""
        split_range(kernels.refresh_all, self.nodes, self.m.size, self.prototypes, self.grown, self.centre)
        self.way.settle(self)

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, evidence: Patches) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = np.empty(evidence.x.shape[:2], np.int32), np.empty(evidence.x.shape[:2])
        self.way.best(self, evidence, k, v)
        return k, v

    def ranking(self, evidence: Patches, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        return ranking(self, evidence, count)

    def activity(self, evidence: Patches) -> NDArray[np.float64]:
        x = evidence.x
        s = np.empty((*x.shape[:2], self.neurons.most))
        split_range(
            kernels.activity, self.nodes, float(s.size) * self.size, x, *self.mask(evidence), self.prototypes,
            self.grown, self.centre, s,
        )  # fmt: skip
        return s

    def at(self, evidence: Patches, support: Support) -> NDArray[np.float64]:
        s = np.empty(len(support.value))
        split_range(
            kernels.at, self.nodes, float(len(s)) * self.size, evidence.x, *self.mask(evidence), support.start,
            support.value, self.prototypes, self.centre, s,
        )  # fmt: skip
        return s

    def similarity(self, evidence: Patches, k: NDArray[np.int32]) -> NDArray[np.float64]:
        each = Support(np.arange(k.size + 1), k.ravel(), None)
        return self.at(evidence, each).reshape(k.shape)

    def vectors(self, k: NDArray[np.int32]) -> NDArray[np.float32]:
        out = np.empty((*k.shape, self.size), np.float32)
        split_range(kernels.gather, self.nodes, out.size, k, self.m, out)
        return out

    @staticmethod
    def mask(evidence: Patches) -> tuple[NDArray[np.bool_], bool]:
        return (NOTHING, False) if evidence.seen is None else (evidence.seen, True)

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        return {"prototypes": np.concatenate([self.m[n, :G] for n, G in enumerate(self.grown)])}

    def restore(self, state: State, values: int) -> None:  # noqa: ARG002
        check_prototypes(state["prototypes"], int(self.grown.sum()), self.size)
        self.enlarge(self.neurons.room)
        there = np.arange(self.neurons.room) < self.grown[:, None]
        self.m[there] = state["prototypes"]
        self.way.changed(*np.nonzero(there))
        self.derive()
