"""Levels whose nodes share one bank: the inputs of all nodes are one sequence for a bank with a single node.

Learning takes sample after sample and, within a sample, place after place, row by row. Answers do not depend on an
order, so questions keep that of the arrays, place after place. The bank inside is one of any device; its steps count
the inputs of all places.
"""

from __future__ import annotations

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
    """The methods of both kinds of banks: so many nodes share the bank `inner`, which has one node.

    `asked` and `sequence` give the inputs of all nodes as those of one, place after place and sample after sample.
    """

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

    def asked(self, evidence: Any) -> Any:
        """A question to all nodes as one to the only node: (.., nodes * batch, ..)."""
        raise NotImplementedError

    def sequence(self, evidence: Any) -> Any:
        """Samples to learn in their order: (.., batch * nodes, ..)."""
        raise NotImplementedError

    def answer(self, found: Array) -> Array:
        """An answer of the only node, (1, nodes * batch, ...), by nodes: (nodes, batch, ...)."""
        return found.reshape(self.nodes, found.shape[1] // self.nodes, *found.shape[2:])

    def of_nodes(self, found: BlockEvidence) -> BlockEvidence:
        """The evidence of all nodes; sums that are the same for all samples are those of every node."""
        A, question, stored = found
        stored = tuple(one if one.shape[1] > 1 else one[:, [0] * self.nodes] for one in stored)
        return BlockEvidence(self.answer(A), tuple(map(self.answer, question)), tuple(map(self.answer, stored)))

    # -- learning ----------------------------------------------------------------------------------------------------

    def learn(self, evidence: Any) -> Learned:
        every, done, start, xp = self.sequence(evidence), [], 0, self.device.xp
        while start < every[0].shape[1]:
            part = slice(start, start + self.inner.chunk_size(self.device.limits.chunk))
            done.append(self.inner.learn(self.each(every, lambda array, part=part: array[:, part])))
            start = part.stop
        fields = (xp.concat(field, 1).reshape(-1, self.nodes).swapaxes(0, 1) for field in zip(*done))
        return Learned(*map(self.device.asarray, fields))

    def each(self, message: Any, change: Any) -> Any:
        """A message with all its arrays changed, as the inner bank accepts them."""
        return type(message)(*(None if array is None else self.device.asarray(change(array)) for array in message))

    def store(self, evidence: Any) -> None:
        self.inner.store(self.sequence(evidence))

    # -- questions ---------------------------------------------------------------------------------------------------

    def top_k(self, evidence: Any, count: int) -> tuple[Array, Array]:
        k, v = self.inner.top_k(self.asked(evidence), count)
        return self.answer(k), self.answer(v)

    def at(self, evidence: Any, support: Support) -> Array:
        return self.inner.at(self.asked(evidence), support)


class SharedPatterns(Shared):
    """The prototypes of level 1 of a tree."""

    top = False

    def __init__(self, inner: Any, tiling: Tiling) -> None:
        super().__init__(inner, tiling.nodes)
        self.tiling = tiling

    def asked(self, evidence: Patches) -> Patches:
        found: Patches = self.each(evidence, one_node)
        return found

    def sequence(self, evidence: Patches) -> Patches:
        found: Patches = self.each(evidence, in_sequence)
        return found

    def reserve(self, more: int) -> None:
        self.inner.reserve(more * self.nodes)

    def hold(self, evidence: Patches, k: Array, wrote: Array) -> None:
        self.inner.hold(self.sequence(evidence), in_sequence(k), in_sequence(wrote))

    def activity(self, evidence: Patches) -> Array:
        return self.answer(self.inner.activity(self.asked(evidence)))

    def vectors(self, k: Array) -> Array:
        return self.answer(self.inner.vectors(one_node(k)))

    def known_values(self, k: Array) -> Array:
        return self.answer(self.inner.known_values(one_node(k)))

    def block_evidence(self, evidence: Patches) -> BlockEvidence:
        return self.of_nodes(self.inner.block_evidence(self.asked(evidence)))

    def shard_states(self) -> Any:
        return self.inner.shard_states()


class SharedCodes(Shared):
    """The counts of a level above, whose children share one bank too; children (nodes, children each)."""

    def __init__(self, inner: Any, children: NDArray[np.int32]) -> None:
        super().__init__(inner, len(children))
        self.children = self.device.asarray(children.astype(np.int64))
        order = np.empty((2, children.size), np.int64)
        order[:, children] = np.indices(children.shape)
        self.parent, self.rank = map(self.device.asarray, order)  # of every child: its parent, and its place there

    def one_family(self, array: Array) -> Array:
        """(child nodes, batch, ...) to (children each, nodes * batch, ...)."""
        found = array[self.children].swapaxes(0, 1)
        return found.reshape(len(found), -1, *found.shape[3:])

    def asked(self, evidence: Codes) -> Codes:
        found: Codes = self.each(evidence, self.one_family)
        return found

    def sequence(self, evidence: Codes) -> Codes:
        def ordered(array: Array) -> Array:
            found = array[self.children].swapaxes(0, 1).swapaxes(1, 2)
            return found.reshape(len(found), -1)

        found: Codes = self.each(evidence, ordered)
        return found

    def reserve(self, more: int, values: int) -> None:
        self.inner.reserve(more * self.nodes, values)

    def hold(self, evidence: Codes, times: int, k: Array, wrote: Array) -> None:
        self.inner.hold(self.sequence(evidence), times, in_sequence(k), in_sequence(wrote))

    def max_sum(self, u: Array) -> Array:
        return self.answer(self.inner.max_sum(self.device.asarray(self.one_family(u))))

    def block_evidence(self, below: BlockEvidence, weight: float) -> BlockEvidence:
        A, question, stored = below
        batch, first = A.shape[1], self.children[0]  # the sums of one place are those of all, if all of it is observed
        sums = tuple(self.one_family(one) if one.shape[1] == batch else one[first] for one in stored)
        family = BlockEvidence(self.one_family(A), tuple(map(self.one_family, question)), sums)
        return self.of_nodes(self.inner.block_evidence(family, weight))

    def support(self, j: Array) -> Support:
        xp, place, (nodes, batch) = self.device.xp, self.device.place, j.shape
        start, value, probability = self.inner.support(one_node(j))
        first = (self.rank * nodes + self.parent)[:, None] * batch
        pair = (first + xp.arange(batch, device=place)).reshape(-1)  # of every child node and sample, in the answer
        begin = xp.zeros(len(pair) + 1, dtype=xp.int64, device=place)
        begin[1:] = xp.cumsum(start[pair + 1] - start[pair], 0)
        entry = xp.arange(int(begin[-1]), device=place)
        which = xp.searchsorted(begin, entry, side="right") - 1
        at = entry - begin[which] + start[pair[which]]
        return Support(begin, value[at], probability[at])


def one_node(array: Array) -> Array:
    """(nodes, batch, ...) to (1, nodes * batch, ...): place after place."""
    return array.reshape(1, -1, *array.shape[2:])


def in_sequence(array: Array) -> Array:
    """(nodes, batch, ...) to (1, batch * nodes, ...): sample after sample."""
    return one_node(array.swapaxes(0, 1))
