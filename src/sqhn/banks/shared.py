"""Levels whose nodes share one bank: the inputs of all nodes are one sequence for a bank with a single node.

Learning takes sample after sample and, within a sample, place after place, row by row. Answers do not depend on an
order, so questions keep that of the arrays, place after place. The bank inside is one of any device; its steps count
the inputs of all places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import (
    Array,
    BlockEvidence,
    CodeBank,
    Codes,
    Device,
    Growth,
    Learned,
    Patches,
    PatternBank,
    State,
    Support,
)
from sqhn.level import Level, Options
from sqhn.patches import Tiling


def patterns(device: Device, tiling: Tiling, level: Level, options: Options, top: bool) -> PatternBank:
    """The bank of level 1 on a device."""
    if not level.shared:
        return device.patterns(tiling, level, options, top)
    return SharedPatterns(device.patterns(Tiling(tiling.patch, tiling.kernel), level, options, top), tiling)


def codes(
    device: Device, children: NDArray[np.int32], level: Level, options: Options, top: bool, values: int
) -> CodeBank:
    """The bank of a level above on a device."""
    if not level.shared:
        return device.codes(children, level, options, top, values)
    own = np.arange(children.shape[1], dtype=np.int32)[None]
    return SharedCodes(device.codes(own, level, options, top, values), children)


class Shared:
    """The methods of both kinds of banks: so many nodes share the bank `inner`, which has one node."""

    def __init__(self, inner: Any, nodes: int) -> None:
        self.inner, self.nodes, self.level = inner, nodes, inner.level
        self.device: Device = inner.device

    @property
    def neurons(self) -> Growth:
        found: Growth = self.inner.neurons
        return found

    @property
    def grown(self) -> Array:
        return self.inner.grown[[0] * self.nodes]

    @property
    def holes(self) -> bool:
        return bool(self.inner.holes)

    @staticmethod
    def chunk_size(limit: int) -> int:
        return limit

    def settle(self) -> None:
        self.inner.settle()

    def state(self) -> State:
        found: State = self.inner.state()
        return found

    def restore(self, state: State, values: int) -> None:
        self.inner.restore(state, values)

    # -- order -------------------------------------------------------------------------------------------------------

    def by_place(self, array: Array) -> Array:
        """An array of the input as a question to the only node: (.., nodes * batch, ..)."""
        raise NotImplementedError

    def by_sample(self, array: Array) -> Array:
        """An array of the input in the order of learning: (.., batch * nodes, ..)."""
        raise NotImplementedError

    @staticmethod
    def each(message: Any, change: Callable[[Array], Array]) -> Any:
        """A message with all its arrays changed."""
        return type(message)(*(None if array is None else change(array) for array in message))

    def of_nodes(self, found: Array) -> Array:
        """An answer of the only node, (1, nodes * batch, ...), by nodes: (nodes, batch, ...)."""
        return found.reshape(self.nodes, found.shape[1] // self.nodes, *found.shape[2:])

    def evidence_of_nodes(self, found: BlockEvidence) -> BlockEvidence:
        """The evidence by nodes; sums that are the same for all samples are those of every node."""
        A, question, stored = found
        stored = tuple(one if one.shape[1] > 1 else one[:, [0] * self.nodes] for one in stored)
        return BlockEvidence(self.of_nodes(A), tuple(map(self.of_nodes, question)), tuple(map(self.of_nodes, stored)))

    # -- learning ----------------------------------------------------------------------------------------------------

    def learn(self, evidence: Any) -> Learned:
        every, done, start, at = self.each(evidence, self.by_sample), [], 0, self.device
        while start < every[0].shape[1]:
            part = slice(start, start + self.inner.chunk_size(at.limits.chunk))
            some = (None if array is None else at.asarray(array[:, part]) for array in every)
            done.append(self.inner.learn(type(every)(*some)))
            start = part.stop
        fields = (at.xp.concat(field, 1).reshape(-1, self.nodes).swapaxes(0, 1) for field in zip(*done))
        return Learned(*map(at.asarray, fields))

    def store(self, evidence: Any) -> None:
        self.inner.store(self.each(evidence, self.by_sample))

    # -- questions ---------------------------------------------------------------------------------------------------

    def top_k(self, evidence: Any, count: int) -> tuple[Array, Array]:
        k, v = self.inner.top_k(self.each(evidence, self.by_place), count)
        return self.of_nodes(k), self.of_nodes(v)

    def at(self, evidence: Any, support: Support) -> Array:
        return self.inner.at(self.each(evidence, self.by_place), support)


class SharedPatterns(Shared):
    """The prototypes of level 1 of a tree."""

    top = False

    def __init__(self, inner: Any, tiling: Tiling) -> None:
        super().__init__(inner, tiling.nodes)
        self.tiling = tiling

    def by_place(self, array: Array) -> Array:
        return one_node(array, self.device)

    def by_sample(self, array: Array) -> Array:
        return one_node(array.swapaxes(0, 1), self.device)

    def reserve(self, more: int) -> None:
        self.inner.reserve(more * self.nodes)

    def hold(self, evidence: Patches, k: Array, wrote: Array) -> None:
        self.inner.hold(self.each(evidence, self.by_sample), self.by_sample(k), self.by_sample(wrote))

    def activity(self, evidence: Patches) -> Array:
        return self.of_nodes(self.inner.activity(self.each(evidence, self.by_place)))

    def vectors(self, k: Array) -> Array:
        return self.of_nodes(self.inner.vectors(self.by_place(k)))

    def known_values(self, k: Array) -> Array:
        return self.of_nodes(self.inner.known_values(self.by_place(k)))

    def block_evidence(self, evidence: Patches) -> BlockEvidence:
        return self.evidence_of_nodes(self.inner.block_evidence(self.each(evidence, self.by_place)))

    def shard_states(self) -> Iterator[State]:
        found: Iterator[State] = self.inner.shard_states()
        return found


class SharedCodes(Shared):
    """The counts of a level above, whose children share one bank too; children (nodes, children each)."""

    top = False

    def __init__(self, inner: Any, children: NDArray[np.int32]) -> None:
        super().__init__(inner, len(children))
        self.children = self.device.asarray(children.astype(np.int64))
        parent, rank = np.empty((2, children.size), np.int64)  # of every child: its parent, and its place there
        parent[children], rank[children] = np.indices(children.shape)
        self.place = self.device.asarray(rank * len(children) + parent)

    def by_place(self, array: Array) -> Array:
        found = array[self.children].swapaxes(0, 1)
        return self.device.asarray(found.reshape(len(found), -1, *found.shape[3:]))

    def by_sample(self, array: Array) -> Array:
        found = array[self.children].swapaxes(0, 1).swapaxes(1, 2)
        return self.device.asarray(found.reshape(len(found), -1))

    def reserve(self, more: int, values: int) -> None:
        self.inner.reserve(more * self.nodes, values)

    def hold(self, evidence: Codes, times: int, k: Array, wrote: Array) -> None:
        k, wrote = (one_node(array.swapaxes(0, 1), self.device) for array in (k, wrote))
        self.inner.hold(self.each(evidence, self.by_sample), times, k, wrote)

    def max_sum(self, u: Array) -> Array:
        return self.of_nodes(self.inner.max_sum(self.by_place(u)))

    def block_evidence(self, below: BlockEvidence, weight: float) -> BlockEvidence:
        (A, question, stored), first = below, self.children[0]
        alike = stored[0].shape[1] < A.shape[1]  # for all samples: then the sums of one place are those of all
        sums = tuple(self.by_place(one) if i == 2 or not alike else one[first] for i, one in enumerate(stored))
        family = BlockEvidence(self.by_place(A), tuple(map(self.by_place, question)), sums)
        return self.evidence_of_nodes(self.inner.block_evidence(family, weight))

    def support(self, j: Array) -> Support:
        xp, place, batch = self.device.xp, self.device.place, j.shape[1]
        start, value, probability = self.inner.support(one_node(j, self.device))
        pair = (self.place[:, None] * batch + xp.arange(batch, device=place)).reshape(-1)
        begin = xp.zeros(len(pair) + 1, dtype=xp.int64, device=place)
        begin[1:] = xp.cumsum(start[pair + 1] - start[pair], 0)
        entry = xp.arange(int(begin[-1]), device=place)
        which = xp.searchsorted(begin, entry, side="right") - 1
        at = entry - begin[which] + start[pair[which]]
        return Support(begin, value[at], probability[at])


def one_node(array: Array, device: Device) -> Array:
    """(nodes, batch, ...) to (1, nodes * batch, ...)."""
    return device.asarray(array.reshape(1, -1, *array.shape[2:]))
