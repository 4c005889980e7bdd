"""The pattern bank on a CPU: the prototypes of level 1.

Small and large nodes differ in how samples meet their neurons; both end in the same two-step decision
(`kernels.decision`), so neither that nor the chunk size shows in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.evidence import Beside, of_patches, of_pyramid
from sqhn.banks.cpu.kernels import prototypes as kernels
from sqhn.banks.cpu.large import LargeNodes
from sqhn.banks.cpu.neurons import Best, Neurons, enlarge, outcomes
from sqhn.banks.cpu.small import SmallNodes
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.cpu.top_k import top_k
from sqhn.banks.interface import BlockEvidence, Device, Learned, Patches, State, Support
from sqhn.banks.rule import rules
from sqhn.banks.saved import check_prototypes
from sqhn.level import Level, Options
from sqhn.patches import Tiling

__all__ = ["Prototypes"]

SMALL = 64  # values per node up to which prototypes are met one sample at a time
NOTHING = np.ones((1, 1, 1), bool)


class Prototypes:
    """Prototype vectors of nodes that each see a patch of a tiling."""

    def __init__(self, device: Device, tiling: Tiling, level: Level, options: Options, top: bool) -> None:
        nodes = tiling.nodes
        self.device, self.nodes, self.size, self.level = device, nodes, tiling.size, level
        self.tiling, self.top = tiling, top
        self.centre, self.rules = options.centre, tuple(rules(level, options, top))
        self.measure = options.centre, True if options.euclidean else None
        self.neurons = Neurons(nodes, level)
        self.m = np.zeros((nodes, 0, self.size), np.float32)
        self.m2 = np.zeros((nodes, 0))
        self.inv = np.zeros((nodes, 0), np.float32)
        self.known: NDArray[np.int32] | None = None  # how often each value was seen, once one was not
        self.beside: Beside | None = None  # a copy for questions by evidence; nothing that changes may leave it
        self.way: SmallNodes | LargeNodes = (
            SmallNodes() if self.size <= SMALL else LargeNodes(nodes, tiling.patch, options.centre)
        )

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    @property
    def prototypes(self) -> tuple[NDArray[Any] | None, ...]:
        """As kernels take them that write."""
        return self.m, self.m2, self.inv, self.known

    @property
    def asked(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """As kernels take them that ask: cosines do not care what is known."""
        return self.m, self.m2, self.inv, self.known if self.measure[1] else None

    def of_node(self, n: int) -> tuple[NDArray[Any] | None, ...]:
        """The same of one node."""
        m, m2, inv, known = self.asked
        return m[n], m2[n], inv[n], None if known is None else known[n]

    @property
    def holes(self) -> bool:
        """Whether a sample with missing values was learned."""
        return self.known is not None

    def chunk_size(self, limit: int) -> int:
        return self.way.chunk_size(self, limit)

    def reserve(self, more: int) -> None:
        room = self.neurons.wanted(more)
        if room != self.neurons.room:
            self.enlarge(room)

    def enlarge(self, room: int) -> None:
        self.beside = None
        self.way.reserve(room)
        self.m = enlarge(self.m, 1, room)
        self.m2, self.inv = enlarge(self.m2, 1, room), enlarge(self.inv, 1, room)
        if self.known is not None:
            self.known = enlarge(self.known, 1, room)
        self.neurons.reserve(room)  # last: stopped on the way, nothing is smaller than it says

    def resize(self, level: Level) -> None:
        self.level = self.neurons.level = level
        self.rules = (level.capacity, *self.rules[1:])

    def settle(self) -> None:
        """Learning leaves nothing to be put in order."""

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, evidence: Patches) -> Learned:
        sent, self.beside = outcomes(self.nodes, evidence.x.shape[1]), None
        if evidence.seen is not None:
            self.count_values()
        self.way.learn(self, evidence, sent)
        return sent if evidence.seen is None else sent._replace(heard=evidence.seen.any(axis=2))

    def count_values(self) -> None:
        """Count from now on how often each value was seen: so far as often as its neuron."""
        if self.known is None:
            self.known = np.repeat(self.neurons.c[:, :, None], self.size, axis=2).astype(np.int32)

    def forget(self, j: NDArray[np.int64]) -> None:
        self.beside = None
        self.neurons.forget(j)
        self.m[0, j] = self.centre
        self.m2[0, j], self.inv[0, j] = -1.0, 0.0
        if self.known is not None:
            self.known[0, j] = 0
        self.way.changed(0, j)
        self.way.settle(self)

    def hold(self, evidence: Patches, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        self.beside = None
        x, last = evidence.x, self.neurons.step + evidence.x.shape[1]
        if evidence.seen is not None:
            self.count_values()
        split_range(
            kernels.hold, self.nodes, x.size, x, *self.learning_mask(evidence), k, wrote, self.prototypes,
            self.neurons.kept, last, self.measure,
        )  # fmt: skip
        self.way.changed(np.arange(self.nodes), k)
        self.way.settle(self)
        self.neurons.steps += x.shape[1]

    def store(self, evidence: Patches) -> None:
        self.beside = None
        new = self.neurons.append(evidence.x.shape[1])
        n = np.arange(self.nodes)[:, None]
        self.m[n, new] = evidence.x
        if self.known is not None:
            self.known[n, new] = 1
        self.way.changed(n, new)
        self.derive()

    def put(self, j: NDArray[np.int64], c: NDArray[np.int64], m: NDArray[np.float32], known: Any) -> None:
        """Write neurons of the only node as they are elsewhere; those after the last one are new, one after another."""
        self.beside = None
        self.neurons.grown[0] = max(int(self.grown[0]), int(j.max(initial=-1)) + 1)
        self.neurons.c[0, j], self.m[0, j] = c, m
        if known is not None:
            self.count_values()
        if self.known is not None:
            self.known[0, j] = c[:, None] if known is None else known
        self.way.changed(0, j)
        split_range(kernels.refresh_some, len(j), float(m.size), j, self.prototypes, self.measure)
        self.way.settle(self)

    def derive(self) -> None:
        """Compute what is derived from the prototypes."""
        split_range(kernels.refresh_all, self.nodes, self.m.size, self.prototypes, self.neurons.kept, self.measure)
        self.way.settle(self)

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, evidence: Patches) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        return self.leading(evidence)[:2]

    def leading(self, evidence: Patches) -> Best:
        """The same, and what is known of the others."""
        found = Best.room(evidence.x.shape[:2])
        self.way.best(self, evidence, found)
        return found

    def top_k(self, evidence: Patches, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        return top_k(self, evidence, count)

    def activity(self, evidence: Patches) -> NDArray[np.float64]:
        x = evidence.x
        s = np.empty((*x.shape[:2], self.neurons.most))
        split_range(
            kernels.activity, self.nodes, float(s.size) * self.size, x, *self.mask(evidence), self.asked,
            self.neurons.kept, self.measure, s,
        )  # fmt: skip
        return s

    def block_evidence(self, evidence: Patches) -> BlockEvidence:
        return of_patches(self, evidence)

    def pyramid_evidence(self, evidence: Patches, scales: Sequence[Tiling]) -> NDArray[np.float64]:
        return of_pyramid(self, evidence, scales)[0]

    def at(self, evidence: Patches, support: Support) -> NDArray[np.float64]:
        s = np.empty(len(support.value))
        split_range(
            kernels.at, self.nodes, float(len(s)) * self.size, evidence.x, *self.mask(evidence), support.start,
            support.value, self.asked, self.grown, self.measure, s,
        )  # fmt: skip
        return s

    def similarity(self, evidence: Patches, k: NDArray[np.int32]) -> NDArray[np.float64]:
        each = Support(np.arange(k.size + 1), k.ravel(), None)
        return self.at(evidence, each).reshape(k.shape)

    def vectors(self, k: NDArray[np.int32]) -> NDArray[np.float32]:
        out = np.empty((*k.shape, self.size), np.float32)
        split_range(kernels.gather, self.nodes, out.size, k, self.m, out)
        return out

    def known_values(self, k: NDArray[np.int32]) -> NDArray[np.bool_]:
        n = np.arange(self.nodes)[:, None]
        if self.known is None:
            return np.repeat(self.neurons.c[n, k, None] > 0, self.size, 2)
        return np.asarray(self.known[n, k] > 0)

    def learning_mask(self, evidence: Patches) -> tuple[NDArray[np.bool_], bool | None]:
        """As kernels take it that know of holes, if there were any: one, also where all was seen."""
        if not self.holes:
            return self.mask(evidence)
        return (np.ones(evidence.x.shape, bool) if evidence.seen is None else evidence.seen), True

    @staticmethod
    def mask(evidence: Patches) -> tuple[NDArray[np.bool_], bool | None]:
        """As kernels take it: None says, by its type, that there is none."""
        return (NOTHING, None) if evidence.seen is None else (evidence.seen, True)

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        found = {"prototypes": np.concatenate([self.m[n, :G] for n, G in enumerate(self.grown)])}
        if self.known is not None:
            found["known"] = np.concatenate([self.known[n, :G] for n, G in enumerate(self.grown)])
        return found

    def restore(self, state: State, values: int) -> None:  # noqa: ARG002
        check_prototypes(state, self.size, self.centre)
        self.enlarge(self.neurons.room)
        there = np.arange(self.neurons.room) < self.grown[:, None]
        self.m[there] = state["prototypes"]
        if "known" in state:
            self.known = np.zeros(self.m.shape, np.int32)
            self.known[there] = state["known"]
        self.way.changed(*np.nonzero(there))
        self.derive()
