"""The code bank: the columns of levels above the first, as sparse integer counts.

A step walks, for each child, the short list of neurons that know the child's value. Cost per sample and node: the
lengths of those lists; memory: what was stored, never children x values x neurons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import code_kernels as kernels
from sqhn.banks.arrays import HostArrays
from sqhn.banks.neurons import Codes, Neurons, Sent, Support, check_counts, enlarge, learning_rules
from sqhn.banks.threads import split_range
from sqhn.level import Level, Options

__all__ = ["CodeBank"]


class CodeBank(HostArrays):
    """Counts of `children.shape[0]` nodes; children (nodes, children per node) are rows of the level below."""

    def __init__(self, children: NDArray[np.int32], level: Level, options: Options, top: bool) -> None:
        self.children, self.level, self.options = children, level, options
        self.nodes, self.family = children.shape
        self.neurons = Neurons(self.nodes, level)
        self.pool = np.zeros((self.nodes, 0, 5), np.int32)
        self.used = np.zeros(self.nodes, np.int64)
        self.free = np.full(self.nodes, kernels.NONE, np.int64)
        self.by_value = np.zeros((self.nodes, self.family, 0), np.int32)
        self.by_neuron = np.zeros((self.nodes, 0, self.family), np.int32)
        self.S = np.zeros((self.nodes, 0), np.int64)
        self.how = (options.hidden_similarity == "weighted_mean", options.norm == "heard")
        self.rules = (*learning_rules(level, options, top), *self.how)

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    @staticmethod
    def chunk_size(limit: int) -> int:
        """How many samples to learn at once."""
        return limit

    def reserve(self, more: int, values: int) -> None:
        """Make room for what `more` samples may grow and count, with child values below `values`."""
        room = self.neurons.wanted(more)
        self.by_neuron, self.S = enlarge(self.by_neuron, 1, room, kernels.NONE), enlarge(self.S, 1, room)
        self.by_value = enlarge(self.by_value, 2, values, kernels.NONE)
        entries = int(self.used.max()) + more * self.family
        if entries > self.pool.shape[1]:
            self.pool = enlarge(self.pool, 1, max(entries, self.pool.shape[1] * 3 // 2))
        self.neurons.reserve(room)  # last: stopped on the way, nothing is smaller than it says

    @property
    def lists(self) -> tuple[NDArray[Any], ...]:
        return self.pool, self.used, self.free, self.by_value, self.by_neuron, self.S

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, evidence: Codes) -> Sent:
        """Online steps, one after another; room must have been reserved."""
        batch = evidence.k.shape[1]
        sent = Sent.empty(self.nodes, batch)
        neurons = self.neurons
        split_range(
            kernels.learn, self.nodes, 64.0 * self.nodes * batch * self.family, self.children, *evidence, *self.lists,
            neurons.c, neurons.mu, neurons.written, neurons.grown, neurons.steps, neurons.step + 1,
            neurons.thresholds(batch), *self.rules, *sent,
        )  # fmt: skip
        return sent

    def hold(self, evidence: Codes, times: int, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        """Count the children's values (child nodes, 1) again for the neurons k (nodes,) that the first sample wrote."""
        below = np.ascontiguousarray(evidence.k[:, 0])
        hold: Callable[..., None] = kernels.hold
        neurons, last = self.neurons, self.neurons.step + times
        hold(0, self.nodes, self.children, below, times, k, wrote, *self.lists, neurons.c, neurons.written, last)
        neurons.steps += times

    def store(self, evidence: Codes) -> None:
        """Make every sample's values a new neuron at every node; room must have been reserved."""
        batch = evidence.k.shape[1]
        first = self.neurons.append(batch)
        n, t, q = (axis.ravel() for axis in np.indices((self.nodes, batch, self.family)))
        rows = np.stack([n, first[n] + t, q, evidence.k[self.children[n, q], t], np.ones_like(n)], axis=1)
        kernels.fill(rows.astype(np.int32), *self.lists)

    def settle(self) -> None:
        """Nothing waits here to be put in order."""

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, evidence: Codes) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The winner and its activity at every node, for every sample; both (nodes, batch)."""
        shape = (self.nodes, evidence.k.shape[1])
        k, v = np.empty(shape, np.int32), np.empty(shape)
        split_range(
            kernels.best, k.size, 64.0 * k.size * self.family, self.children, *evidence, self.pool, self.by_value,
            self.by_neuron, self.S, self.neurons.c, self.grown, *self.how, k, v,
        )  # fmt: skip
        return k, v

    def at(self, evidence: Codes, support: Support) -> NDArray[np.float64]:
        """The activity of the neurons that a parent expects."""
        h = np.empty(len(support.value))
        split_range(
            kernels.at, self.nodes, 32.0 * len(h) * self.family, self.children, *evidence, support.start, support.value,
            self.pool, self.by_neuron, self.S, self.neurons.c, *self.how, h,
        )  # fmt: skip
        return h

    def max_sum(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """The best sum each neuron can reach with its children; u (child nodes, batch, values)."""
        out = np.empty((self.nodes, u.shape[1], self.neurons.most))
        split_range(
            kernels.max_sum, self.nodes * u.shape[1], float(out.size) * self.family, self.children, u, u.max(axis=2),
            self.pool, self.by_neuron, self.neurons.c, self.grown, out,
        )  # fmt: skip
        return out

    def support(self, j: NDArray[np.int32]) -> Support:
        """What the neurons j (nodes, batch) expect of every child."""
        batch = j.shape[1]
        start = np.zeros(self.children.size * batch + 1, np.int64)
        work = 32.0 * j.size * self.family
        split_range(kernels.support_sizes, self.nodes, work, self.children, j, self.pool, self.by_neuron, start)
        np.cumsum(start, out=start)
        value, probability = np.empty(start[-1], np.int32), np.empty(start[-1])
        split_range(
            kernels.support_entries, self.nodes, work, self.children, j, self.pool, self.by_neuron, self.neurons.c,
            start, value, probability,
        )  # fmt: skip
        return Support(start, value, probability)

    def probability(self, j: NDArray[np.int32], k: NDArray[np.int32]) -> NDArray[np.float64]:
        """The probability that the neurons j (nodes, batch) give to their children's values k (child nodes, batch)."""
        p = np.empty(k.shape)
        split_range(
            kernels.probability_of, self.nodes, 32.0 * k.size, self.children, j, k, self.pool, self.by_neuron,
            self.neurons.c, p,
        )  # fmt: skip
        return p

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """What must be saved: rows (node, neuron, child, value, count), sorted."""
        many = kernels.dump(self.pool, self.by_neuron, self.grown, np.empty((0, 5), np.int32))
        rows = np.empty((many, 5), np.int32)
        kernels.dump(self.pool, self.by_neuron, self.grown, rows)
        return {"counts": rows[np.lexsort(rows.T[::-1])]}

    def restore(self, state: dict[str, NDArray[Any]], values: int) -> None:
        """Take over a saved state with child values below `values`; the neurons' own must be in place."""
        rows = check_counts(state, (self.nodes, self.neurons.room, self.family, values))
        entries = np.bincount(rows[:, 0], minlength=self.nodes)
        self.pool = np.zeros((self.nodes, int(entries.max()), 5), np.int32)
        self.used[:], self.free[:] = 0, kernels.NONE
        self.by_value = np.full((self.nodes, self.family, values), kernels.NONE, np.int32)
        self.by_neuron = np.full((self.nodes, self.neurons.room, self.family), kernels.NONE, np.int32)
        self.S = np.zeros((self.nodes, self.neurons.room), np.int64)
        kernels.fill(rows, *self.lists)
