"""Some of the neurons of a memory node, on one shard."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.device import Cpu
from sqhn.banks.cpu.evidence import Elsewhere, of_pyramid
from sqhn.banks.cpu.kernels.decision import NONE
from sqhn.banks.cpu.kernels.large import Products
from sqhn.banks.cpu.large import LargeNodes, samples_at_once
from sqhn.banks.cpu.prototypes import Prototypes
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Patches, State
from sqhn.banks.ray.kernels import nearest
from sqhn.inputs import batches
from sqhn.level import TIE, Level, Options
from sqhn.patches import Tiling

Indices = NDArray[np.int64]
UNLIMITED = 2**31 - 1
"""The capacity of a piece: it grows as far as the driver lets it."""
QUESTIONS_KEPT, BYTES_KEPT = 6, 1 << 25
"""Questions whose products are kept for follow-up questions, and the most bytes of the products of one."""
FEW = 8
"""Neurons that are looked for one after another; more are ranked with products of their own."""
NO_BAR = np.empty(0)


class Vectors(NamedTuple):
    """Neurons as they are: how often each was written, its prototype, and how often each value of it was seen.

    The last is None where all values were seen as often as the neuron was written.
    """

    c: Indices
    m: NDArray[np.float32]
    known: NDArray[np.int32] | None

    def some(self, j: Indices) -> Vectors:
        return Vectors(self.c[j], self.m[j], None if self.known is None else self.known[j])


class Candidates(NamedTuple):
    """The best neurons of a piece and their similarities, (batch, count), and an upper bound for all others.

    The winner is first; where no more are named, k is NONE and v minus infinity.
    """

    k: Indices
    v: NDArray[np.float64]
    rest: NDArray[np.float64]


class FollowUp(NamedTuple):
    """A further question about some samples (rows) of an earlier one, which has a number.

    bar: the similarity that a neuron must reach to matter, for each of these samples.
    """

    question: int
    rows: Indices
    bar: NDArray[np.float64]


class Piece:
    """Neurons that are known by their numbers in the whole memory; they are stored in that order."""

    def __init__(self, tiling: Tiling, level: Level, options: Options) -> None:
        self.bank = Prototypes(Cpu(), tiling, replace(level, capacity=UNLIMITED), options, top=True)
        self.number = np.zeros(0, np.int64)  # of each place
        self.products: deque[tuple[int, Products]] = deque(maxlen=QUESTIONS_KEPT)

    @property
    def living(self) -> int:
        return int((self.bank.neurons.c[0] > 0).sum())

    # -- questions -----------------------------------------------------------------------------------------------

    def near(
        self, evidence: Patches, count: int = 1, question: int = NONE, follow_up: FollowUp | None = None
    ) -> Candidates:
        """So many of the best neurons for each sample, and one more; fewer if there are no more.

        count: 0 for one that may be the best. question: its number, if products are to be kept. follow_up: if these are
        samples of an earlier question.
        """
        x, seen = evidence = _own(evidence)
        large, cosines, living = self.bank.large, self.bank.measure[1] is None, self.living
        if large is not None and seen is None and cosines and count <= FEW and count < living:
            return self._nearest(large, x[0], count, question, follow_up)
        named = min(max(count, 1) + 1, living)
        nothing_else = np.full(x.shape[1], -np.inf)
        if not named:
            return Candidates(np.zeros((x.shape[1], 0), np.int64), np.zeros((x.shape[1], 0)), nothing_else)
        k, v = (part[0] for part in self.bank.top_k(evidence, named))
        return Candidates(self.number[k], v, v[:, -1] + TIE if named < living else nothing_else)

    def near_again(self, evidence: Patches, count: int, follow_up: FollowUp) -> Candidates:
        """The same of some samples of a question."""
        x, seen = evidence
        rows = follow_up.rows
        return self.near(Patches(x[:, rows], None if seen is None else seen[:, rows]), count, NONE, follow_up)

    def _nearest(
        self, large: LargeNodes, x: NDArray[np.float32], count: int, question: int, follow_up: FollowUp | None
    ) -> Candidates:
        """For samples without missing values, by cosines, from products that may be known."""
        k, v = np.empty((len(x), count + 1), np.int32), np.empty((len(x), count + 1))
        rest, bar = np.empty(len(x)), NO_BAR if follow_up is None else Cpu.asarray(follow_up.bar)
        for part in batches(len(x), samples_at_once(self.bank, self.bank.neurons.most)):

            def ask(rows: slice, products: Products, now: slice = part) -> NDArray[np.int64]:
                evaluated = np.zeros(products.P.shape[:2], np.int64)
                first_look = large.first_look(0, products, evaluated)
                found = (array[now][rows] for array in (bar, k, v, rest))
                split_range(
                    nearest, products.P.shape[1], float(products.P.size) + x.size, x[now][rows], first_look,
                    self.bank.of_nodes(), self.bank.measure, *found,
                )  # fmt: skip
                return evaluated

            products = self._products(large, x[part], follow_up, part)
            large.in_turns(self.bank, 0, x[part], products, ask)
            if question != NONE and len(x[part]) == len(x) and products.P.nbytes <= BYTES_KEPT:
                self.products.append((question, products))
        return Candidates(np.where(k == NONE, NONE, self.number[k]), v, rest)

    def _products(self, large: LargeNodes, x: NDArray[np.float32], follow_up: FollowUp | None, part: slice) -> Products:
        """The products of samples with the neurons here; those that are known may be of neurons as they were."""
        if follow_up is not None:
            for question, products in list(self.products):
                if question == follow_up.question:
                    return products.rows(follow_up.rows[part])
        return large.products(self.bank, 0, x, bool(large.projected.blind))

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
