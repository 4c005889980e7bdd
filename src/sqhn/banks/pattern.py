"""The pattern bank: the prototypes of level 1, with exact chunked learning on a CPU.

Few-valued nodes meet every sample with their prototypes in the cache. Nodes with many values see a whole chunk through
two matrix products, of the samples with the prototypes and among themselves, and a walk over scalars keeps the products
true while neurons change. Both end in the same two-step decision (`decision_kernels`), so neither the path nor the
chunk size shows in the result. Cost per sample: its share of the products, plus O(grown + chunk).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import large_kernels, pattern_kernels, small_kernels
from sqhn.banks.arrays import HostArrays
from sqhn.banks.decision_kernels import ULP
from sqhn.banks.large_kernels import STALE, TRIAL, UNSEEN
from sqhn.banks.neurons import Neurons, Patches, Sent, Support, check_prototypes, enlarge, learning_rules
from sqhn.banks.threads import split_range
from sqhn.banks.view import View
from sqhn.level import Level, Options

__all__ = ["PatternBank"]

SMALL = 64  # values per node up to which prototypes are met one sample at a time
SCRATCH = 1 << 23  # float32 products held at once
NEURON_BLOCK = 1024
PATIENCE = 16  # chunks without the coarse view when it first did not pay; then twice as many each time
NOTHING = np.ones((1, 1, 1), bool)


class PatternBank(HostArrays):
    """Prototype vectors of `nodes` nodes that each see `shape` values."""

    def __init__(self, nodes: int, shape: tuple[int, ...], level: Level, options: Options, top: bool) -> None:
        self.nodes, self.size, self.level, self.options = nodes, math.prod(shape), level, options
        self.neurons = Neurons(nodes, level)
        self.m = np.zeros((nodes, 0, self.size), np.float32)
        self.m2 = np.zeros((nodes, 0))
        self.inv = np.zeros((nodes, 0), np.float32)
        self.small = self.size <= SMALL
        self.rules = (*learning_rules(level, options, top), options.centre)
        # Large nodes only: features of the prototypes in the coarse view, and updates since they were computed.
        self.view = View(shape)
        self.features = np.zeros((nodes, 0, self.view.size), np.float32)
        self.v2 = np.zeros((nodes, 0))
        self.drift = np.zeros((nodes, 0), np.int64)
        # Chunks to learn without the view; while there are any, features are not kept. Only writers look after them.
        self.blind: float = 0 if 2 * self.view.size <= self.size and not self.small else math.inf
        self.patience = PATIENCE

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    def chunk_size(self, limit: int) -> int:
        """How many samples to learn at once."""
        if self.small:
            return limit
        width = self.nodes * min(self.level.capacity, self.neurons.most + limit)
        return max(1, min(limit, SCRATCH // max(1, width)))

    def reserve(self, more: int) -> None:
        """Make room for what `more` samples may grow; where learning may run out of memory."""
        room = self.neurons.wanted(more)
        if room == self.neurons.room:
            return
        if not self.small:
            self.features = enlarge(self.features, 1, room)
            self.v2, self.drift = enlarge(self.v2, 1, room), enlarge(self.drift, 1, room)
        self.m = enlarge(self.m, 1, room)
        self.m2, self.inv = enlarge(self.m2, 1, room), enlarge(self.inv, 1, room)
        self.neurons.reserve(room)  # last: stopped on the way, nothing is smaller than it says

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, evidence: Patches) -> Sent:
        """Online steps, one after another; room must have been reserved."""
        x = evidence.x
        batch = x.shape[1]
        sent = Sent.empty(self.nodes, batch)
        neurons = self.neurons
        work = float(x.size) * max(1, self.neurons.most)
        state = (neurons.c, neurons.mu, neurons.written, neurons.grown, neurons.steps)
        rules = (neurons.step + 1, neurons.thresholds(batch), *self.rules)
        if self.small:
            split_range(
                small_kernels.learn_small, self.nodes, work, x, self.m, self.m2, self.inv, *state, *rules, *sent
            )
        else:
            coarse = not self.blind
            evaluated = np.zeros(self.nodes, np.int64)
            split_range(
                large_kernels.learn_large, self.nodes, work, x, *self.products(x, coarse), coarse, self.m, self.m2,
                self.inv, self.features, self.v2, self.drift, *state, *rules, *sent, evaluated,
            )  # fmt: skip
            self.judge_view(int(evaluated.sum()) / batch / self.nodes)
        return sent

    def products(
        self, x: NDArray[np.float32], coarse: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], float]:
        """Products of samples with neurons, among samples, what was multiplied, and a bound of the relative error."""
        batch = x.shape[1]
        seen = np.empty((self.nodes, batch, self.view.size if coarse else self.size), np.float32)
        gram = np.empty((self.nodes, batch, batch), np.float32)
        P = np.empty((self.nodes, batch, min(self.neurons.room, self.neurons.most + batch)), np.float32)
        error = 0.0
        for n in range(self.nodes):
            seen[n] = self.see(x[n], coarse)
            np.matmul(seen[n], seen[n].T, out=gram[n])
            error = max(error, self.multiply(n, seen[n], coarse, P[n]))
        return P, gram, seen, error

    def see(self, x: NDArray[np.float32], coarse: bool) -> NDArray[np.float32]:
        """Samples (batch, size) less the centre, through the coarse view or whole."""
        return self.view(x, self.options.centre) if coarse else x - np.float32(self.options.centre)

    def multiply(self, n: int, seen: NDArray[np.float32], coarse: bool, P: NDArray[np.float32]) -> float:
        """Products of samples with the neurons of node n, into P; returns a bound of their relative error."""
        G = int(self.grown[n])
        if coarse:
            np.matmul(seen, self.features[n, :G].T, out=P[:, :G])
            return float(2 * ((self.view.size + 16) * ULP + 2 * self.view.error))
        centre = self.options.centre
        np.matmul(seen, self.m[n, :G].T, out=P[:, :G])
        P[:, :G] -= (centre * seen.sum(axis=1, dtype=np.float64)).astype(np.float32)[:, None]
        # The products are with m, not m - centre: |m| <= |m - centre| + centre * sqrt(size).
        stretch = 1 + centre * math.sqrt(self.size) * float(np.fmax.reduce(self.inv[n, :G], initial=0))
        return 2 * (self.size + 16) * ULP * stretch

    def keep_view(self) -> None:
        """Compute features anew where a neuron was written without them, or where rounding may have added up."""
        if self.blind:
            return
        for n in range(self.nodes):
            self.refresh_view(n)

    def refresh_view(self, n: int) -> None:
        rows = np.flatnonzero(self.drift[n] >= STALE)
        if len(rows):
            features = self.view(self.m[n, rows], self.options.centre)
            self.features[n, rows] = features
            self.v2[n, rows] = np.einsum("ij,ij->i", features, features, dtype=np.float64)
            self.drift[n, rows] = 0

    def judge_view(self, evaluated: float) -> None:
        """Go without the coarse view for a while if it left too many neurons to be evaluated one by one."""
        if self.blind > 1:
            self.blind -= 1
        elif self.blind:
            for n in range(self.nodes):
                self.refresh_view(n)
            self.blind = 0
        elif evaluated > self.too_many:
            self.blind = self.patience
            self.patience *= 2
        else:
            self.keep_view()

    @property
    def too_many(self) -> float:
        """How many neurons to evaluate for a sample are too many for the coarse view to be worth it."""
        return max(64, self.neurons.most) / 8

    def hold(self, evidence: Patches, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        """Average further samples of one thing into the neurons k (nodes,) that its first sample wrote."""
        x = evidence.x
        split_range(
            pattern_kernels.hold,
            self.nodes,
            x.size,
            x,
            k,
            wrote,
            self.m,
            self.m2,
            self.inv,
            self.neurons.c,
            self.neurons.written,
            self.neurons.step + x.shape[1],
            self.options.centre,
        )
        if not self.small:
            self.drift[np.arange(self.nodes), k] = STALE
            self.keep_view()
        self.neurons.steps += x.shape[1]

    def store(self, evidence: Patches) -> None:
        """Make every sample a new neuron at every node; room must have been reserved."""
        batch = evidence.x.shape[1]
        for n, first in enumerate(self.neurons.append(batch)):
            self.m[n, first : first + batch] = evidence.x[n]
            if not self.small:
                self.drift[n, first : first + batch] = STALE
        self.derive()

    def derive(self) -> None:
        """Compute what is derived from the prototypes."""
        split_range(
            pattern_kernels.refresh_all,
            self.nodes,
            self.m.size,
            self.m,
            self.m2,
            self.inv,
            self.grown,
            self.options.centre,
        )
        self.keep_view()

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, evidence: Patches) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The winner and its similarity at every node, for every sample; both (nodes, batch)."""
        x, seen = evidence
        k, v = np.empty(x.shape[:2], np.int32), np.empty(x.shape[:2])
        if self.small:
            split_range(
                small_kernels.best_small, self.nodes, float(x.size) * self.neurons.most, x, *self.mask(evidence),
                self.m, self.m2, self.inv, self.grown, self.options.centre, k, v,
            )  # fmt: skip
            return k, v
        rows = max(1, SCRATCH // self.neurons.most)
        for n in range(self.nodes):
            for lo in range(0, x.shape[1], rows):
                part = slice(lo, lo + rows)
                if seen is None:
                    self.best_of_whole(n, x[n, part], k[n, part], v[n, part])
                else:
                    self.best_of_observed(n, x[n, part], seen[n, part], k[n, part], v[n, part])
        return k, v

    def best_of_whole(self, n: int, x: NDArray[np.float32], k: NDArray[np.int32], v: NDArray[np.float64]) -> None:
        """The winners k at one node and their similarities v, for whole samples."""
        evaluated = self.best_of_large(n, x, not self.blind, k, v)
        if len(x) > TRIAL and evaluated.min() == UNSEEN:  # the coarse view does not pay for these samples
            rest = np.flatnonzero(evaluated == UNSEEN)
            others = np.empty(len(rest), np.int32), np.empty(len(rest))
            self.best_of_large(n, x[rest], False, *others)
            k[rest], v[rest] = others

    def best_of_large(
        self, n: int, x: NDArray[np.float32], coarse: bool, k: NDArray[np.int32], v: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """The same through the coarse view or not; returns how many neurons were evaluated for each sample."""
        G, batch = int(self.grown[n]), len(x)
        P = np.empty((batch, G), np.float32)
        seen = self.see(x, coarse)
        error = self.multiply(n, seen, coarse, P)
        evaluated = np.empty(batch, np.int64)
        split_range(
            large_kernels.best_large, batch, float(batch) * G + x.size, x, P, seen, error, coarse, self.m[n],
            self.m2[n], self.inv[n], self.v2[n], self.drift[n], G, self.options.centre,
            self.too_many if coarse else math.inf, k, v, evaluated,
        )  # fmt: skip
        return evaluated

    def best_of_observed(
        self,
        n: int,
        x: NDArray[np.float32],
        seen: NDArray[np.bool_],
        k: NDArray[np.int32],
        v: NDArray[np.float64],
    ) -> None:
        """The same where values are missing."""
        G, batch = int(self.grown[n]), len(x)
        centre = np.float32(self.options.centre)
        P, squares = np.empty((batch, G), np.float32), np.empty((batch, G), np.float32)
        mask = seen.astype(np.float32)
        y = (x - centre) * mask
        for lo in range(0, G, NEURON_BLOCK):
            block = slice(lo, min(lo + NEURON_BLOCK, G))
            u = self.m[n, block] - centre
            np.matmul(y, u.T, out=P[:, block])
            np.matmul(mask, np.square(u).T, out=squares[:, block])
        error = 4 * (self.size + 16) * ULP
        split_range(
            large_kernels.best_observed, batch, float(x.size) + float(batch) * G, x, seen, P, squares, error, self.m[n],
            self.m2[n], G, self.options.centre, k, v,
        )  # fmt: skip

    def activity(self, evidence: Patches) -> NDArray[np.float64]:
        """The similarity of every neuron: (nodes, batch, most grown), minus infinity where a node has fewer."""
        x = evidence.x
        s = np.empty((*x.shape[:2], self.neurons.most))
        split_range(
            pattern_kernels.activity, self.nodes, float(s.size) * self.size, x, *self.mask(evidence), self.m, self.m2,
            self.grown, self.options.centre, s,
        )  # fmt: skip
        return s

    def at(self, evidence: Patches, support: Support) -> NDArray[np.float64]:
        """The similarity of the neurons that a parent expects."""
        s = np.empty(len(support.value))
        split_range(
            pattern_kernels.at, self.nodes, float(len(s)) * self.size, evidence.x, *self.mask(evidence), support.start,
            support.value, self.m, self.m2, self.options.centre, s,
        )  # fmt: skip
        return s

    def vectors(self, k: NDArray[np.int32]) -> NDArray[np.float32]:
        """The prototypes of neurons k (nodes, batch): (nodes, batch, size)."""
        out = np.empty((*k.shape, self.size), np.float32)
        split_range(pattern_kernels.gather, self.nodes, out.size, k, self.m, out)
        return out

    def similarity(self, evidence: Patches, k: NDArray[np.int32]) -> NDArray[np.float64]:
        """The similarity of neurons k (nodes, batch), one for each sample."""
        return self.at(evidence, Support.single(k)).reshape(k.shape)

    def likelihood(self, evidence: Patches, k: NDArray[np.int32]) -> NDArray[np.float64]:
        """The mean likelihood of values as those of binary pixels that neurons k (nodes, batch) predict."""
        x, m = evidence.x, self.vectors(k)
        mean: NDArray[np.float64] = np.mean(x * m + (1 - x) * (1 - m), axis=2, dtype=np.float64)
        return mean

    @staticmethod
    def mask(evidence: Patches) -> tuple[NDArray[np.bool_], bool]:
        return (NOTHING, False) if evidence.seen is None else (evidence.seen, True)

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """What must be saved: the grown prototypes of all nodes, one after another."""
        return {"prototypes": np.concatenate([self.m[n, :G] for n, G in enumerate(self.grown)])}

    def restore(self, state: dict[str, NDArray[Any]], values: int) -> None:  # noqa: ARG002
        """Take over a saved state; the neurons' own (counts and growth) must be in place."""
        room = self.neurons.room
        check_prototypes(state["prototypes"], int(self.grown.sum()), self.size)
        self.m = np.zeros((self.nodes, room, self.size), np.float32)
        ends = np.cumsum(self.grown)
        for n, G in enumerate(self.grown):
            self.m[n, :G] = state["prototypes"][ends[n] - G : ends[n]]
        self.m2, self.inv = np.zeros((self.nodes, room)), np.zeros((self.nodes, room), np.float32)
        if not self.small:
            self.features = np.zeros((self.nodes, room, self.view.size), np.float32)
            self.v2 = np.zeros((self.nodes, room))
            self.drift = np.where(np.arange(room) < self.grown[:, None], STALE, 0)
        self.derive()
