"""Some of the neurons of a memory node, wherever they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.device import Cpu
from sqhn.banks.cpu.evidence import Elsewhere, of_pyramid
from sqhn.banks.cpu.large import NO_BAR, LargeNodes, Met
from sqhn.banks.cpu.neurons import Best
from sqhn.banks.cpu.prototypes import Prototypes
from sqhn.banks.interface import Patches, State
from sqhn.inputs import batches
from sqhn.level import TIE, Level, Options
from sqhn.patches import Tiling

__all__ = ["NONE", "Again", "Indices", "Near", "Piece", "Vectors"]

Indices = NDArray[np.int64]
ANY = 2**31 - 1
"""How far a piece may grow: as far as it is told."""
NONE = -1
"""In the place of a neuron."""
LOOKS, KEPT_BYTES = 6, 1 << 25
"""Of so many questions products are kept, of so many bytes at most."""
FEW = 8
"""So many of the best are looked for one after another."""


class Vectors(NamedTuple):
    """Neurons as they are: how often each was written, its prototype, and how often each value of it was seen.

    The last is None where all values were, as often as the neuron was written.
    """

    c: Indices
    m: NDArray[np.float32]
    known: NDArray[np.int32] | None

    def some(self, j: Indices) -> Vectors:
        return Vectors(self.c[j], self.m[j], None if self.known is None else self.known[j])


class Near(NamedTuple):
    """The best neurons of a piece and their similarities, (batch, count); left: what no other one is above.

    The winner is first; others are NONE, and minus infinity, where none is told.
    """

    k: Indices
    v: NDArray[np.float64]
    left: NDArray[np.float64]


class Again(NamedTuple):
    """A further question about some samples of an earlier one, which has a number.

    bar: for each of them, what a neuron must reach to matter; it counts where only the best is asked for.
    """

    question: int
    rows: Indices
    bar: NDArray[np.float64]


class Piece:
    """Neurons that are known by their numbers in the whole memory; they are kept in that order."""

    def __init__(self, tiling: Tiling, level: Level, options: Options) -> None:
        self.bank = Prototypes(Cpu(), tiling, replace(level, capacity=ANY), options, top=True)
        self.number = np.zeros(0, np.int64)  # of each place
        self.met: deque[tuple[int, Met]] = deque(maxlen=LOOKS)  # of the last questions

    # -- questions -----------------------------------------------------------------------------------------------

    def near(self, evidence: Patches, count: int = 1, question: int = NONE, again: Again | None = None) -> Near:
        """So many of the best for each sample, fewer if there are no more; 0: one that may be, at a glance.

        question: its number, if it is a first one. again: of which earlier one these samples are.
        """
        evidence, way = _own(evidence), self.bank.way
        living, batch = int((self.bank.neurons.c[0] > 0).sum()), evidence.x.shape[1]
        if isinstance(way, LargeNodes) and evidence.seen is None and self.bank.measure[1] is None and living > 1:
            if count < 2:
                return self._first(way, evidence.x[0], count, question, again)
            if count <= min(FEW, living):
                return self._several(way, evidence, count, again)
        count = min(max(count, 1), living)
        if not count:
            return Near(np.zeros((batch, 0), np.int64), np.zeros((batch, 0)), np.full(batch, -np.inf))
        if count == 1:
            k, v, left = (part[0] for part in self.bank.leading(evidence))
            k, v = k[:, None], v[:, None]
        else:
            k, v, left = self._ranked(evidence, count)
        return Near(self.number[k], v, np.full(batch, -np.inf) if living == count else left)

    def near_again(self, evidence: Patches, count: int, again: Again) -> Near:
        """The same of some samples of a question."""
        x, seen = evidence
        return self.near(Patches(x[:, again.rows], None if seen is None else seen[:, again.rows]), count, NONE, again)

    def _first(self, way: LargeNodes, x: NDArray[np.float32], count: int, question: int, again: Again | None) -> Near:
        """One that may be best, at a glance, or the best of whole samples, and another if one was evaluated too."""
        found, bar = Best.room((1, len(x))), NO_BAR if again is None else Cpu.asarray(again.bar)
        other, value = np.full(len(x), NONE, np.int32), np.full(len(x), -np.inf)
        for part in batches(len(x), way.at_once(self.bank)):
            met = self._met(way, x[part], again, part)
            if count:
                way.first(self.bank, 0, x[part], met, found.part(0, part), (other[part], value[part]), bar[part])
            else:
                way.glance(self.bank, x[part], met, found.part(0, part))
            if question != NONE and len(met.P) == len(x) and met.P.nbytes <= KEPT_BYTES:
                self.met.append((question, met))
        k, v = np.stack([found.k[0], other], 1), np.stack([found.v[0], value], 1)
        return Near(np.where(k < 0, NONE, self.number[k]), v, found.left[0])

    def _met(self, way: LargeNodes, x: NDArray[np.float32], again: Again | None, part: slice) -> Met:
        """The products of samples with the neurons here; they may be known, but for neurons that were written since."""
        for question, met in list(self.met) if again is not None else ():
            if again is not None and question == again.question:
                return met.some(again.rows[part])
        return way.meet(self.bank, 0, x)

    def _several(self, way: LargeNodes, evidence: Patches, count: int, again: Again | None) -> Near:
        """Where bounds can tell, by products."""
        x = evidence.x[0]
        found = Best(np.empty((len(x), count), np.int32), np.empty((len(x), count)), np.empty(len(x)))
        rest = np.flatnonzero(~way.several(self.bank, 0, x, self._met(way, x, again, slice(None)), found))
        if len(rest):
            found.k[rest], found.v[rest], found.left[rest] = self._ranked(Patches(evidence.x[:, rest]), count)
        left = found.left if count < (self.bank.neurons.c[0] > 0).sum() else np.full(len(x), -np.inf)
        return Near(self.number[found.k], found.v, left)

    def _ranked(self, evidence: Patches, count: int) -> Best:
        living = int((self.bank.neurons.c[0] > 0).sum())
        k, v = (part[0] for part in self.bank.top_k(evidence, min(count + 1, living)))
        return Best(k[:, :count], v[:, :count], v[:, -1] + TIE)

    def activity(self, evidence: Patches) -> tuple[Indices, NDArray[np.float64]]:
        """The numbers of all neurons, and their similarities (batch, neurons)."""
        if not len(self.number):
            return self.number, np.zeros((evidence.x.shape[1], 0))
        return self.number, self.bank.activity(_own(evidence))[0]

    def weights(self, evidence: Patches, scales: Sequence[Tiling], many: int) -> NDArray[np.float64]:
        """What the neurons here weigh at each look at a block (`Elsewhere`), where there are so many in all."""
        looks = evidence.x.shape[1], sum(one.nodes for one in scales), 2
        return self._shown(evidence, scales, Elsewhere(many, np.full(looks, -np.inf)))[1]

    def block_evidence(
        self, evidence: Patches, scales: Sequence[Tiling], elsewhere: Elsewhere
    ) -> tuple[Indices, NDArray[np.float64]]:
        """The numbers of all neurons, and the evidence for them (batch, neurons)."""
        return self.number, self._shown(evidence, scales, elsewhere)[0]

    def _shown(
        self, evidence: Patches, scales: Sequence[Tiling], elsewhere: Elsewhere
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if not (self.bank.neurons.c[0] > 0).any():
            return np.full((evidence.x.shape[1], len(self.number)), -np.inf), np.full_like(elsewhere.others, -np.inf)
        own = Elsewhere(elsewhere.many, Cpu.asarray(elsewhere.others))
        A, weights = of_pyramid(self.bank, _own(evidence), scales, own)
        return A[0, :, : len(self.number)], weights

    def fetch(self, j: Indices) -> Vectors:
        at = self._places(j)
        known = self.bank.known
        return Vectors(self.bank.neurons.c[0, at], self.bank.m[0, at], None if known is None else known[0, at])

    # -- writes --------------------------------------------------------------------------------------------------

    def reserve(self, many: int) -> int:
        """Make room for so many neurons in all; for how many there is then."""
        self.bank.reserve(max(0, many - len(self.number)))
        return self.bank.neurons.room

    def put_copies(self, j: Indices, vectors: Vectors, evidence: Patches, rows: Indices) -> None:
        """As `put`, of some that are copies of samples: of which one, in rows; or NONE, for those in `vectors`."""
        own, copies = np.flatnonzero(rows == NONE), np.flatnonzero(rows != NONE)
        c, m = np.ones(len(j), np.int64), np.empty((len(j), evidence.x.shape[2]), np.float32)
        c[own], m[own], m[copies] = vectors.c, vectors.m, evidence.x[0, rows[copies]]
        self.put(j, Vectors(c, m, None))

    def put(self, j: Indices, vectors: Vectors) -> None:
        """Write neurons, in the order of their numbers; those that are new here are after all others."""
        first = len(self.number)
        new = j[j > self.number[-1]] if first else j
        self.bank.reserve(len(new))
        self.number = np.concatenate([self.number, new])
        self.bank.put(self._places(j), *vectors)

    def forget(self, j: Indices) -> None:
        self.bank.forget(self._places(j))

    def _places(self, j: Indices) -> Indices:
        return np.searchsorted(self.number, j)

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        """All of it."""
        known, grown = self.bank.known, len(self.number)
        found: State = {
            "number": self.number,
            "c": self.bank.neurons.c[0, :grown],
            "prototypes": self.bank.m[0, :grown],
        }
        return found if known is None else {**found, "known": known[0, :grown]}

    def restore(self, state: State) -> None:
        """Take over a state, into a new piece."""
        if len(state["number"]):
            self.put(state["number"], Vectors(state["c"], state["prototypes"], state.get("known")))
        gone = np.flatnonzero(state["c"] == 0)
        self.bank.neurons.c[0, gone] = 1
        self.bank.forget(gone)


def _own(evidence: Patches) -> Patches:
    """As kernels take it: what comes from elsewhere may be read-only."""
    own = Cpu.asarray
    return Patches(own(evidence.x), None if evidence.seen is None else own(evidence.seen))
