"""The code bank on a CPU: the columns of levels above the first, as sparse integer counts.

A step walks, for each child, the short list of neurons that have counted the child's value. The cost per sample and
node is the total length of these lists. Memory use grows with the stored entries, never with children x values x
neurons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.evidence import above
from sqhn.banks.cpu.kernels import counts as kernels
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import BlockEvidence, Codes, Device, Learned, State, Support
from sqhn.banks.neurons import Neurons, enlarge, outcomes
from sqhn.banks.rule import rules
from sqhn.banks.saved import check_counts, heard_of
from sqhn.level import Level, Options


class Counts:
    """Counts of `children.shape[0]` nodes; children (nodes, children per node) are rows of the level below."""

    def __init__(self, device: Device, children: NDArray[np.int32], level: Level, options: Options, top: bool) -> None:
        self.device, self.children, self.level = device, children, level
        self.nodes, self.family = children.shape
        self.neurons = Neurons(self.nodes, level)
        self.pool = np.zeros((self.nodes, 0, 5), np.int32)
        self.used = np.zeros(self.nodes, np.int64)
        self.free = np.full(self.nodes, kernels.NONE, np.int64)
        self.by_value = np.zeros((self.nodes, self.family, 0), np.int32)
        self.by_neuron = np.zeros((self.nodes, 0, self.family), np.int32)
        self.S = np.zeros((self.nodes, 0), np.int64)
        self.heard_only = options.norm == "heard"
        self.holes = False  # whether a node ever learned from some of its children only
        self.rules = tuple(rules(level, options, top))

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    @property
    def lists(self) -> tuple[NDArray[Any], ...]:
        """The lists as the kernels expect them."""
        return self.pool, self.used, self.free, self.by_value, self.by_neuron, self.S

    def scratch(self) -> tuple[NDArray[Any], ...]:
        """Room for the intermediate results of a thread."""
        return kernels.scratch(self.neurons.room)

    @staticmethod
    def chunk_size(limit: int) -> int:
        return limit

    def reserve(self, more: int, values: int) -> None:
        room = self.neurons.wanted(more)
        self.by_neuron, self.S = enlarge(self.by_neuron, 1, room, kernels.NONE), enlarge(self.S, 1, room)
        self.by_value = enlarge(self.by_value, 2, values, kernels.NONE)
        entries = int(self.used.max()) + more * self.family
        if entries > self.pool.shape[1]:
            self.pool = enlarge(self.pool, 1, max(entries, self.pool.shape[1] * 3 // 2))
        self.neurons.reserve(room)  # last, so that after an interruption no array is smaller than `room`

    def resize(self, level: Level) -> None:
        self.level = self.neurons.level = level
        self.rules = (level.capacity, *self.rules[1:])

    def settle(self) -> None:
        """Nothing to do: no work is delayed here."""

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, evidence: Codes) -> Learned:
        batch = evidence.k.shape[1]
        found = outcomes(self.nodes, batch)
        split_range(
            kernels.learn, self.nodes, 64.0 * self.nodes * batch * self.family, self.children, codes(evidence),
            self.lists, self.neurons.statistics, self.rules, self.neurons.times(batch), self.heard_only, found,
            scratch=self.scratch,
        )  # fmt: skip
        if evidence.heard is not None:
            self.holes = self.holes or not evidence.heard.all()
        return Learned(*found)

    def forget(self, j: NDArray[np.int64]) -> None:
        self.neurons.forget(j)
        kernels.erase(j, self.lists)

    def hold(self, evidence: Codes, times: int, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        self.neurons.steps += (times - 1) * k.shape[1]
        step = self.neurons.step + 1
        kernels.hold(self.children, codes(evidence), times, k, wrote, self.lists, self.neurons.statistics, step)
        self.neurons.steps += k.shape[1]

    def store(self, evidence: Codes) -> None:
        new = self.neurons.append(evidence.k.shape[1])
        n, t, q = (axis.ravel() for axis in np.indices((*new.shape, self.family)))
        rows = np.stack([n, new[n, t], q, evidence.k[self.children[n, q], t], np.ones_like(n)], axis=1)
        kernels.fill(rows.astype(np.int32), self.lists)

    # -- questions -----------------------------------------------------------------------------------------------

    def top_k(self, evidence: Codes, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        if count == 1:
            k, v = self._best(evidence)
            return k[:, :, None], v[:, :, None]
        pairs, most = self.nodes * evidence.k.shape[1], self.neurons.most
        every = Support(np.arange(pairs + 1) * most, np.tile(np.arange(most, dtype=np.int32), pairs), None)
        h = self.at(evidence, every).reshape(self.nodes, -1, most)
        return self.device.top_k(np.where(self.neurons.c[:, None, :most] > 0, h, -np.inf), count)

    def _best(self, evidence: Codes) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        shape = (self.nodes, evidence.k.shape[1])
        k, v = np.empty(shape, np.int32), np.empty(shape)
        split_range(
            kernels.best, k.size, 64.0 * k.size * self.family, self.children, codes(evidence), self.lists,
            self.neurons.statistics, self.heard_only, k, v, scratch=self.scratch,
        )  # fmt: skip
        return k, v

    def at(self, evidence: Codes, support: Support) -> NDArray[np.float64]:
        h = np.empty(len(support.value))
        split_range(
            kernels.at, len(support.start) - 1, 32.0 * len(h) * self.family, self.children, codes(evidence),
            support.start, support.value, self.lists, self.heard_only, h,
        )  # fmt: skip
        return h

    def max_sum(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.empty((self.nodes, u.shape[1], self.neurons.most))
        split_range(
            kernels.max_sum, self.nodes * u.shape[1], float(out.size) * self.family, self.children, u, u.max(axis=2),
            self.lists, self.neurons.statistics, self.holes, out,
        )  # fmt: skip
        return out

    def block_evidence(self, below: BlockEvidence, weight: float) -> BlockEvidence:
        return above(self, below, weight)

    def support(self, j: NDArray[np.int32]) -> Support:
        start = np.zeros(self.children.size * j.shape[1] + 1, np.int64)
        work = 32.0 * j.size * self.family
        split_range(kernels.support_sizes, self.nodes, work, self.children, j, self.lists, start)
        np.cumsum(start, out=start)
        value, probability = np.empty(start[-1], np.int32), np.empty(start[-1])
        split_range(
            kernels.support_entries, self.nodes, work, self.children, j, self.lists, self.neurons.c, self.holes, start,
            value, probability,
        )  # fmt: skip
        return Support(start, value, probability)

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Rows (node, neuron, child, value, count), sorted."""
        rows = np.empty((int(self.used.sum()), 5), np.int32)
        rows = rows[: kernels.dump(self.lists, self.grown, rows)]
        known = {"known": heard_of(rows, self.grown, self.family).astype(np.int32)} if self.holes else {}
        return {"counts": rows[np.lexsort(rows.T[::-1])], **known}

    def restore(self, state: State, values: int) -> None:
        rows = check_counts(state, (self.nodes, self.neurons.room, self.family, values))
        self.holes = "known" in state
        entries = np.bincount(rows[:, 0], minlength=self.nodes)
        self.pool = np.zeros((self.nodes, int(entries.max()), 5), np.int32)
        self.used[:], self.free[:] = 0, kernels.NONE
        self.by_value = np.full((self.nodes, self.family, values), kernels.NONE, np.int32)
        self.by_neuron = np.full((self.nodes, self.neurons.room, self.family), kernels.NONE, np.int32)
        self.S = np.zeros((self.nodes, self.neurons.room), np.int64)
        kernels.fill(rows, self.lists)


ALL = np.empty((0, 0), bool)


def codes(evidence: Codes) -> tuple[NDArray[Any], ...]:
    """The codes as the kernels expect them; an empty array means that all children were heard."""
    return evidence.k, evidence.v, ALL if evidence.heard is None else evidence.heard
