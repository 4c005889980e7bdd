"""The levels above the first in plain NumPy: how often each child had each value when a neuron won.

An entry says that a neuron counted a value of a child. The entries of all nodes are in one table, in the order in which
they came, so memory is bounded by what was stored. A question compares all entries with one value for each child, or
with one neuron for each node: its cost is O(entries) per sample.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import BlockEvidence, Codes, Device, Learned, State, Support
from sqhn.banks.neurons import enlarge, outcomes
from sqhn.banks.plain.evidence import above
from sqhn.banks.plain.neurons import LearningNeurons, first_best
from sqhn.banks.rule import GREW, SKIPPED
from sqhn.banks.saved import all_entries, check_columns, saved_columns
from sqhn.level import LARGEST_CAPACITY, TIE, Level, Options

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

CHILD, NEURON, VALUE, COUNT = range(4)
"""The rows of the table of entries."""


class Columns(NamedTuple):
    """All entries, those of one neuron and one child next to each other.

    begin: where the entries of each such pair begin; neuron, child: of the pair. value, probability: of each entry,
    which belongs to the pair `pair`.
    """

    begin: NDArray[np.int64]
    neuron: NDArray[np.int32]
    child: NDArray[np.int32]
    value: NDArray[np.int32]
    probability: Floats
    pair: NDArray[np.int64]

    def highest(self, values: NDArray[Any]) -> NDArray[Any]:
        """The maximum of the values of each pair, from those of all entries."""
        return np.maximum.reduceat(values, self.begin) if len(self.begin) else values

    def total(self, values: NDArray[Any]) -> NDArray[Any]:
        """The sum of the values of each pair, from those of all entries."""
        return np.add.reduceat(values, self.begin) if len(self.begin) else values


class Counts:
    """Counts of `children.shape[0]` nodes; children (nodes, children per node) are rows of the level below.

    table (4, room for entries): child, neuron, value and count of each entry, of which `used` are in use. node, rank
    (child nodes,): the parent of each child, and its place among the parent's children. S (nodes, room): the sums of
    the squared counts of every neuron.
    """

    def __init__(self, device: Device, children: NDArray[np.int32], level: Level, options: Options, top: bool) -> None:
        self.device, self.children, self.level, self.top = device, children, level, top
        self.nodes, self.family = children.shape
        self.neurons = LearningNeurons(self.nodes, level, options, top)
        self.table, self.used = np.zeros((4, 0), np.int32), 0
        self.node, self.rank = np.empty((2, children.size), np.intp)
        self.node[children], self.rank[children] = np.arange(self.nodes)[:, None], np.arange(self.family)
        self.S = np.zeros((self.nodes, 0), np.int64)
        self.heard_only, self.strengths = options.norm == "heard", options.propagation == "max"
        self.holes = False  # whether a node ever learned from some of its children only

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    @property
    def entries(self) -> NDArray[np.int32]:
        """The part of the table that is in use."""
        return self.table[:, : self.used]

    @staticmethod
    def chunk_size(limit: int) -> int:
        return limit

    def reserve(self, more: int, values: int) -> None:  # noqa: ARG002
        room, entries = self.neurons.wanted(more), self.used + more * self.children.size
        self.S = enlarge(self.S, 1, room)
        if entries > self.table.shape[1]:
            self.table = enlarge(self.table, 1, max(entries, self.used * 3 // 2))
        self.neurons.reserve(room)  # last, so that after an interruption no array is smaller than `room`

    def resize(self, level: Level) -> None:
        self.level = self.neurons.level = level

    def settle(self) -> None:
        """Nothing to do: no work is delayed here."""

    # -- activity --------------------------------------------------------------------------------------------------

    def sum_of(self, which: NDArray[np.int64], weight: Any) -> Floats:
        """The sums of weights of some entries for each neuron, (nodes, room)."""
        child, neuron, _, _ = self.entries[:, which]
        slot, room = self.node[child] * self.neurons.room + neuron, self.neurons.room
        sums: Any = np.bincount(slot, weight, minlength=self.nodes * room)
        return np.asarray(sums.reshape(self.nodes, room))

    def agreeing(self, values: NDArray[np.int32]) -> NDArray[np.int64]:
        """The entries with these values of the children (child nodes,), by child: so sums do not depend on the past."""
        child, _, value, _ = self.entries
        found = np.flatnonzero(values[child] == value)
        return found[np.argsort(child[found], kind="stable")]

    def strengths_of(self, evidence: Codes, t: int) -> tuple[Floats, Mask | None]:
        """The strengths of the children (child nodes,), 0 of silent ones; and the children that lengths run over.

        None: all. In a node that does not hear all of its children, or with norm="heard", silent ones do not count.
        """
        v = evidence.v[:, t]
        v = np.where(np.abs(v) > TIE, v, 0.0)
        partly = np.full(self.nodes, self.heard_only)
        if evidence.heard is not None:
            partly |= ~evidence.heard[self.children, t].all(axis=1)
        audible = (v != 0) | ~partly[self.node]
        return v, None if audible.all() else audible

    def activity(self, evidence: Codes, t: int) -> Floats:
        """The activities of all neurons for sample t, (nodes, most grown); minus infinity where there is none."""
        v, audible = self.strengths_of(evidence, t)
        agreeing = self.agreeing(evidence.k[:, t])
        overlap = self.sum_of(agreeing, v[self.entries[CHILD, agreeing]] * self.entries[COUNT, agreeing])
        squared = self.S[:, : overlap.shape[1]] if audible is None else self.squares_over(audible)
        length = np.sqrt(np.square(v)[self.children].sum(axis=1))
        h = cosine(overlap, squared, length[:, None])[:, : max(1, self.neurons.most)]
        h[self.neurons.c[:, : h.shape[1]] == 0] = -np.inf
        h[self.grown == 0, 0] = 0.0
        return h

    def squares_over(self, audible: Mask) -> Floats:
        """The sums of the squared counts of some children, (nodes, room)."""
        which = np.flatnonzero(audible[self.entries[CHILD]])
        return self.sum_of(which, np.square(self.entries[COUNT, which], dtype=np.float64))

    # -- learning --------------------------------------------------------------------------------------------------

    def learn(self, evidence: Codes) -> Learned:
        neurons, batch, node = self.neurons, evidence.k.shape[1], np.arange(self.nodes)
        found = k, v, score, kind = outcomes(self.nodes, batch)
        counted = np.ones(evidence.k.shape, bool) if evidence.heard is None else evidence.heard
        self.holes = self.holes or not counted.all()
        step, threshold = neurons.times(batch)
        for t in range(batch):
            j, h = first_best(self.activity(evidence, t))
            heard = counted[self.children, t].any(axis=1)
            h = np.where(heard, np.where(self.grown > 0, h, -np.inf), 0.0)
            j, kind[:, t] = neurons.place(j, h, threshold[t], heard)
            if kind[0, t] >= GREW and neurons.c[0, j[0] : j[0] + 1].any():
                self.erase(j[:1])  # only the memory node replaces neurons, and it is alone
            neurons.count(j, kind[:, t], h, step + t)
            self.add(evidence.k[:, t], counted[:, t] & (kind[:, t] != SKIPPED)[self.node], j, 1)
            k[:, t], score[:, t] = j, h
            v[:, t] = np.where(heard, self.activity(evidence, t)[node, j], 0.0)
            if self.top and self.strengths:
                new = kind[:, t] >= GREW
                neurons.mu[node[new], j[new]] = v[new, t]
        neurons.steps += batch
        return Learned(*found)

    def add(self, values: NDArray[np.int32], counted: Mask, j: NDArray[Any], times: int) -> None:
        """Count the values (child nodes,) of some children for the neurons j (nodes,) of their parents."""
        agreeing = self.agreeing(values)
        child, neuron = self.entries[CHILD, agreeing], self.entries[NEURON, agreeing]
        old = agreeing[counted[child] & (neuron == j[self.node[child]])]
        n, before = self.node[self.entries[CHILD, old]], self.entries[COUNT, old].astype(np.int64)
        np.add.at(self.S, (n, j[n]), times * (2 * before + times))
        self.entries[COUNT, old] += times
        fresh = counted.copy()
        fresh[self.entries[CHILD, old]] = False
        new = np.flatnonzero(fresh)
        n, end = self.node[new], self.used + len(new)
        np.add.at(self.S, (n, j[n]), times * times)
        self.table[:, self.used : end] = new, j[n], values[new], np.full(len(new), times)
        self.used = end

    def erase(self, j: NDArray[Any]) -> None:
        """Delete everything that neurons of the only node have counted."""
        kept = self.entries[:, ~np.isin(self.entries[NEURON], j)]
        self.used = kept.shape[1]
        self.table[:, : self.used] = kept
        self.S[0, j] = 0

    def forget(self, j: NDArray[np.int64]) -> None:
        self.neurons.forget(j)
        self.erase(j)

    def hold(self, evidence: Codes, times: int, k: NDArray[np.int32], wrote: Mask) -> None:
        heard = np.ones(evidence.k.shape, bool) if evidence.heard is None else evidence.heard
        self.neurons.steps += (times - 1) * k.shape[1]
        for t in range(k.shape[1]):
            self.neurons.steps += 1
            n = np.flatnonzero(wrote[:, t])
            self.add(evidence.k[:, t], heard[:, t] & wrote[self.node, t], k[:, t], times)
            self.neurons.c[n, k[n, t]] += times
            self.neurons.note(n, k[n, t], self.neurons.step)

    def store(self, evidence: Codes) -> None:
        every = np.ones(len(evidence.k), bool)
        for t, j in enumerate(self.neurons.append(evidence.k.shape[1]).T):
            self.add(evidence.k[:, t], every, j, 1)

    # -- questions -------------------------------------------------------------------------------------------------

    def top_k(self, evidence: Codes, count: int) -> tuple[NDArray[np.int32], Floats]:
        shape = (self.nodes, evidence.k.shape[1], count)
        k, v = np.empty(shape, np.int32), np.empty(shape)
        for t in range(shape[1]):
            k[:, t : t + 1], v[:, t : t + 1] = self.device.top_k(self.activity(evidence, t)[:, None], count)
        return k, v

    def at(self, evidence: Codes, support: Support) -> Floats:
        batch, h = evidence.k.shape[1], np.empty(len(support.value))
        n, t = np.divmod(np.repeat(np.arange(self.nodes * batch), np.diff(support.start)), batch)
        for one in range(batch):
            those = t == one
            h[those] = self.activity(evidence, one)[n[those], support.value[those]]
        return h

    def columns(self) -> Columns:
        """All entries, sorted by neuron and child."""
        child, neuron, value, count = self.entries
        pairs = (self.node[child] * self.neurons.room + neuron) * self.family + self.rank[child]
        order = np.argsort(pairs, kind="stable")
        first = np.diff(pairs[order], prepend=-1) > 0
        begin, pair = np.flatnonzero(first), np.cumsum(first) - 1
        columns = Columns(begin, neuron[order][begin], child[order][begin], value[order], count[order], pair)
        return columns._replace(probability=count[order] / columns.total(count[order])[pair])

    def max_sum(self, u: Floats) -> Floats:
        columns, top = self.columns(), u.max(axis=2)
        living = self.neurons.c[:, : max(1, self.neurons.most)] > 0
        out = np.full((self.nodes, u.shape[1], living.shape[1]), -np.inf)
        entry = columns.child[columns.pair], columns.value
        for t in range(u.shape[1]):
            reach = columns.probability + u[entry[0], t, entry[1]]
            more = np.maximum(columns.highest(reach) - top[columns.child, t], 0.0)
            found = self.sum_of_pairs(columns, more) + top[self.children, t].sum(axis=1)[:, None]
            out[:, t] = np.where(living, found[:, : living.shape[1]], -np.inf)
        out[self.grown == 0, :, 0] = 0.0
        return out

    def sum_of_pairs(self, columns: Columns, weight: Any) -> Floats:
        """The sums of weights of pairs for each neuron, (nodes, room)."""
        slot, room = self.node[columns.child] * self.neurons.room + columns.neuron, self.neurons.room
        sums: Any = np.bincount(slot, weight, minlength=self.nodes * room)
        return np.asarray(sums.reshape(self.nodes, room))

    def likeliest(self, columns: Columns) -> NDArray[np.int64]:
        """The value that each neuron most likely gives to each child, the lowest of equals: (child nodes, room).

        -1 where it knows none.
        """
        found = np.full((self.children.size, self.neurons.room), -1)
        most = columns.probability == columns.highest(columns.probability)[columns.pair]
        found[columns.child, columns.neuron] = -columns.highest(np.where(most, -columns.value, -LARGEST_CAPACITY))
        return found

    def block_evidence(self, below: BlockEvidence, weight: float) -> BlockEvidence:
        return above(self, below, weight)

    def support(self, j: NDArray[np.int32]) -> Support:
        child, neuron, _, _ = self.entries
        batch, empty = j.shape[1], np.empty(0, np.intp)
        found = [np.flatnonzero(j[self.node, t][child] == neuron) for t in range(batch)]
        entry, t = np.concatenate([empty, *found]), np.repeat(np.arange(batch), list(map(len, found)))
        which = child[entry].astype(np.intp) * batch + t
        order = np.argsort(which, kind="stable")
        entry, which = entry[order], which[order]
        _, _, value, count = self.entries[:, entry]
        often = np.bincount(which, count, minlength=self.children.size * batch)
        start = np.searchsorted(which, np.arange(len(often) + 1))
        return Support(start, value, count / often[which])

    # -- persistence -----------------------------------------------------------------------------------------------

    def state(self) -> State:

        child, neuron, value, count = self.entries
        rows = np.stack(
            [self.node[child], neuron, self.rank[child], value, count], axis=1, dtype=np.int32, casting="same_kind"
        )
        return saved_columns(rows[np.lexsort(rows.T[::-1])], self.neurons.state(), self.family, self.holes)

    def restore(self, state: State, values: int) -> None:
        state = check_columns(state, (self.nodes, self.neurons.room, self.family, values))
        self.holes = "known" in state
        n, j, q, value, count = all_entries(state).T
        self.used = len(n)
        self.table = np.array([self.children[n, q], j, value, count], np.int32)
        self.S = np.zeros((self.nodes, self.neurons.room), np.int64)
        np.add.at(self.S, (n, j), np.square(count, dtype=np.int64))


def cosine(products: Floats, squares: NDArray[Any], length: Floats) -> Floats:
    """Activities, from products, the squared lengths of neurons and the length of the strengths; 0 for no length."""
    both = np.sqrt(squares) * length
    return np.where(both > 0, products / np.where(both > 0, both, 1), 0.0)
