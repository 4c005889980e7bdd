"""The code bank on a CPU: the columns of levels above the first, as rows of values and sparse integer counts.

A step compares the children's values with the rows of all neurons, a byte at a time, and walks, for each child, the
short list of other neurons that have counted the child's value. Memory use grows with the stored entries, never with
children x values x neurons; a neuron that is one sample takes a byte or two for each child.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.evidence import above
from sqhn.banks.cpu.kernels import columns as stored
from sqhn.banks.cpu.kernels import counts as kernels
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import BlockEvidence, Codes, Device, Learned, State, Support
from sqhn.banks.neurons import Neurons, enlarge, outcomes
from sqhn.banks.rule import rules
from sqhn.banks.saved import check_columns, heard_of, narrow, row_neurons
from sqhn.level import Level, Options

HEADS = np.array([0, stored.NONE, 0, stored.NONE, 0])
"""Those of a node without neurons (`kernels.columns`)."""


class Counts:
    """Counts of `children.shape[0]` nodes; children (nodes, children per node) are rows of the level below."""

    def __init__(self, device: Device, children: NDArray[np.int32], level: Level, options: Options, top: bool) -> None:
        self.device, self.children, self.level, self.top = device, children, level, top
        self.nodes, self.family = children.shape
        self.neurons = Neurons(self.nodes, level, top)
        self.rows = np.zeros((1, self.nodes, self.family, 0), np.uint8)
        self.slot = np.zeros((self.nodes, 0), np.int32)
        self.heads = np.tile(HEADS, (self.nodes, 1))
        self.by_value = np.zeros((self.nodes, self.family, 0), np.int32)
        self.empty_lists()
        self.heard_only = options.norm == "heard"
        self.holes = False  # whether a node ever learned from some of its children only
        self.rules = tuple(rules(level, options, top))

    def empty_lists(self) -> None:
        """Give the memory of the lists back, in which nothing is."""
        self.pool = np.zeros((self.nodes, 0, 5), np.int32)
        self.by_neuron = np.zeros((self.nodes, 0, self.family), np.int32)
        self.owner, self.S = np.zeros((self.nodes, 0), np.int32), np.zeros((self.nodes, 0), np.int64)

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """The columns as the kernels expect them."""
        return self.rows, self.slot, self.heads, self.pool, self.by_value, self.by_neuron, self.owner, self.S

    def scratch(self) -> tuple[NDArray[Any], ...]:
        """Room for the intermediate results of a thread."""
        return kernels.scratch(self.neurons.room)

    @staticmethod
    def chunk_size(limit: int) -> int:
        return limit

    def reserve(self, more: int, values: int) -> None:
        room = self.neurons.wanted(more)
        self.make_room(room, values)
        rows, listed = int(self.heads[:, stored.ROWS].max()), int(self.heads[:, stored.SLOTS].max())
        self.make_lists(
            min(listed + more, room), int(self.heads[:, stored.USED].max()) + (more + min(more, rows)) * self.family
        )
        self.neurons.reserve(room)  # last, so that after an interruption no array is smaller than `room`

    def make_room(self, room: int, values: int) -> None:
        """Make room for neurons, and for values of the children below `values`."""
        self.by_value = enlarge(self.by_value, 2, values, stored.NONE)
        self.rows = enlarge(enlarge(self.rows, 0, bytes_of(values)), 3, room)
        self.slot = enlarge(self.slot, 1, room, stored.FREE)

    def make_lists(self, slots: int, entries: int) -> None:
        """Make room for neurons in lists, and for their entries."""
        if slots > self.owner.shape[1]:
            slots = max(slots, min(self.owner.shape[1] * 3 // 2, self.slot.shape[1]))
            self.by_neuron = enlarge(self.by_neuron, 1, slots, stored.NONE)
            self.S, self.owner = enlarge(self.S, 1, slots), enlarge(self.owner, 1, slots, stored.NONE)
        if entries > self.pool.shape[1]:
            self.pool = enlarge(self.pool, 1, max(entries, self.pool.shape[1] * 3 // 2))

    def resize(self, level: Level) -> None:
        self.level = self.neurons.level = level
        self.rules = (level.capacity, *self.rules[1:])

    def settle(self) -> None:
        if not self.heads[:, stored.SLOTS].any():
            self.empty_lists()

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, evidence: Codes) -> Learned:
        batch = evidence.k.shape[1]
        found = outcomes(self.nodes, batch)
        split_range(
            kernels.learn, self.nodes, 64.0 * self.nodes * batch * self.family, self.children, codes(evidence),
            self.columns, self.neurons.statistics, self.rules, self.neurons.times(batch), self.heard_only, found,
            scratch=self.scratch,
        )  # fmt: skip
        if evidence.heard is not None:
            self.holes = self.holes or not evidence.heard.all()
        return Learned(*found)

    def forget(self, j: NDArray[np.int64]) -> None:
        self.neurons.forget(j)
        stored.erase(j, self.columns)

    def hold(self, evidence: Codes, times: int, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        self.neurons.steps += (times - 1) * k.shape[1]
        step = self.neurons.step + 1
        kernels.hold(self.children, codes(evidence), times, k, wrote, self.columns, self.neurons.statistics, step)
        self.neurons.steps += k.shape[1]

    def store(self, evidence: Codes) -> None:
        new = self.neurons.append(evidence.k.shape[1])
        n = np.repeat(np.arange(self.nodes), new.shape[1])
        self.put_rows(n, new.ravel(), evidence.k[self.children].swapaxes(1, 2).reshape(-1, self.family))

    def put_rows(self, n: NDArray[Any], j: NDArray[Any], values: NDArray[Any]) -> None:
        """Let neurons j of nodes n, which are none yet, be rows of these values (neurons, children)."""
        for p, plane in enumerate(self.rows):
            plane[n, :, j] = (values >> (8 * p)) & 255
        self.slot[n, j] = stored.ROW
        self.heads[:, stored.ROWS] = (self.slot == stored.ROW).sum(axis=1)

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
            kernels.best, k.size, 64.0 * k.size * self.family, self.children, codes(evidence), self.columns,
            self.neurons.statistics, self.heard_only, k, v, scratch=self.scratch,
        )  # fmt: skip
        return k, v

    def at(self, evidence: Codes, support: Support) -> NDArray[np.float64]:
        h = np.empty(len(support.value))
        split_range(
            kernels.at, len(support.start) - 1, 32.0 * len(h) * self.family, self.children, codes(evidence),
            support.start, support.value, self.columns, self.neurons.c, self.heard_only, h,
        )  # fmt: skip
        return h

    def max_sum(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.empty((self.nodes, u.shape[1], self.neurons.most))
        split_range(
            kernels.max_sum, self.nodes * u.shape[1], float(out.size) * self.family, self.children, u, u.max(axis=2),
            self.columns, self.neurons.statistics, self.holes, out,
        )  # fmt: skip
        return out

    def block_evidence(self, below: BlockEvidence, weight: float) -> BlockEvidence:
        return above(self, below, weight)

    def support(self, j: NDArray[np.int32]) -> Support:
        start = np.zeros(self.children.size * j.shape[1] + 1, np.int64)
        work = 32.0 * j.size * self.family
        split_range(kernels.support_sizes, self.nodes, work, self.children, j, self.columns, start)
        np.cumsum(start, out=start)
        value, probability = np.empty(start[-1], np.int32), np.empty(start[-1])
        split_range(
            kernels.support_entries, self.nodes, work, self.children, j, self.columns, self.neurons.c, self.holes,
            start, value, probability,
        )  # fmt: skip
        return Support(start, value, probability)

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        entries = np.empty((int(self.heads[:, stored.USED].sum()), 5), np.int32)
        entries = entries[: stored.dump(self.columns, self.grown, entries)]
        found: State = {"codes": narrow(self.all_rows()), "counts": entries}
        if self.holes:
            found["known"] = heard_of(self.neurons.state() | found, self.family).astype(np.int32)
        return found

    def all_rows(self) -> NDArray[np.uint32]:
        """The values of all neurons that are rows, (neurons, children)."""
        return np.concatenate(
            [
                sum(plane[n][:, slot == stored.ROW].T.astype(np.uint32) << (8 * p) for p, plane in enumerate(self.rows))
                for n, slot in enumerate(self.slot)
            ]
        )

    def restore(self, state: State, values: int) -> None:
        state = check_columns(state, (self.nodes, self.neurons.room, self.family, values))
        entries = state["counts"]
        self.holes = "known" in state
        self.make_room(self.neurons.room, values)
        self.put_rows(*row_neurons(state), state["codes"])
        each, of_node = np.unique(entries[:, :2], axis=0)[:, 0], entries[:, 0]
        self.make_lists(*(int(np.bincount(nodes, minlength=1).max()) for nodes in (each, of_node)))
        stored.fill(entries, self.columns)


ALL = np.empty((0, 0), bool)


def bytes_of(values: int) -> int:
    """How many bytes the values below this number take.

    >>> bytes_of(256), bytes_of(257)
    (1, 2)
    """
    return max(1, (max(1, values - 1).bit_length() + 7) // 8)


def codes(evidence: Codes) -> tuple[NDArray[Any], ...]:
    """The codes as the kernels expect them; an empty array means that all children were heard."""
    return evidence.k, evidence.v, ALL if evidence.heard is None else evidence.heard
