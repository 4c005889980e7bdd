"""The neurons of the memory node that are on one shard."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.device import Cpu
from sqhn.banks.cpu.evidence import of_pyramid
from sqhn.banks.cpu.kernels.decision import NONE, as_mask
from sqhn.banks.cpu.kernels.large import Products
from sqhn.banks.cpu.large import FirstLook, LargeNodes, samples_at_once
from sqhn.banks.cpu.prototypes import Prototypes
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Patches, State
from sqhn.banks.ray.kernels import nearest
from sqhn.banks.ray.shards import each_array
from sqhn.inputs import batches
from sqhn.level import TIE, Level, Options
from sqhn.patches import Tiling

Indices = NDArray[np.int64]
own = partial(each_array, change=Cpu.asarray)
"""A message as the kernels expect it; arrays from other processes may be read-only."""
UNLIMITED = 2**31 - 1
"""The capacity of a shard: it grows as far as the driver lets it."""
QUESTIONS_KEPT, BYTES_KEPT = 6, 1 << 25
"""Questions whose products are kept for follow-up questions, and the most bytes of the products of one."""
FEW = 8
"""Up to so many neurons are searched for one after another; more are ranked with products of their own."""
NO_BAR = np.empty(0)
ONLY = slice(1)
"""The only node."""


class Vectors(NamedTuple):
    """Neurons with their indices j: how often each was written, its prototype, and how often each value of it was seen.

    known: None where all values were seen as often as the neuron was written.
    """

    j: Indices
    c: Indices
    m: NDArray[np.float32]
    known: NDArray[np.int32] | None

    def some(self, which: Indices) -> Vectors:
        return Vectors(*(None if part is None else part[which] for part in self))  # type: ignore[arg-type]


class Candidates(NamedTuple):
    """The best neurons of a shard and their similarities, (batch, count), and an upper bound for all others.

    The winner is first; where no more are named, k is NONE and v minus infinity. A sample without observed values has
    no others.
    """

    k: Indices
    v: NDArray[np.float64]
    rest: NDArray[np.float64]


class Piece:
    """The neurons of a shard; `number` has their indices in the memory, in increasing order."""

    def __init__(self, tiling: Tiling, level: Level, options: Options) -> None:
        self.bank = Prototypes(Cpu(), tiling, replace(level, capacity=UNLIMITED), options, top=True)
        self.number = np.zeros(0, np.int64)
        self.products: deque[tuple[int, Products]] = deque(maxlen=QUESTIONS_KEPT)

    @property
    def living(self) -> int:
        return int((self.bank.neurons.c[0] > 0).sum())

    # -- questions -----------------------------------------------------------------------------------------------

    def near(
        self,
        evidence: Patches,
        count: int = 1,
        question: int = NONE,
        rows: Indices | None = None,
        bar: NDArray[np.float64] = NO_BAR,
    ) -> Candidates:
        """The `count` best neurons for each sample and one more, or all if there are fewer.

        count: 0 for a single neuron that may be the best. question: the number of this query, whose products are kept.
        rows: a follow-up query about only these of its samples. bar: the similarities that a neuron must reach to
        matter to them.
        """
        x, seen, _ = evidence = own(evidence if rows is None else each_array(evidence, itemgetter((slice(None), rows))))
        large, cosines, living = self.bank.large, not self.bank.measure[1], self.living
        if large is not None and seen is None and cosines and count <= FEW and count < living:
            return self._nearest(large, x[0], count, question, rows, bar)
        named = min(max(count, 1) + 1, living)
        nothing_else = np.full(x.shape[1], -np.inf)
        if not named:
            return Candidates(np.zeros((x.shape[1], 0), np.int64), np.zeros((x.shape[1], 0)), nothing_else)
        k, v = (part[0] for part in self.bank.top_k(evidence, named))
        rest = v[:, -1] + TIE if named < living else nothing_else
        return Candidates(self.number[k], v, rest if seen is None else np.where(evidence.heard[0], rest, -np.inf))

    def _nearest(
        self,
        large: LargeNodes,
        x: NDArray[np.float32],
        count: int,
        question: int,
        asked: Indices | None,
        bar: NDArray[np.float64],
    ) -> Candidates:
        """For samples without missing values, by cosines. Products that were kept may be of neurons as they were."""
        k, v = np.empty((len(x), count + 1), np.int32), np.empty((len(x), count + 1))
        rest, bar = np.empty(len(x)), Cpu.asarray(bar)
        kept = None if asked is None else dict(self.products).get(question)
        for part in batches(len(x), samples_at_once(self.bank, self.bank.neurons.most)):

            def ask(rows: slice, first_look: FirstLook, now: slice = part) -> None:
                own, *found = (array[now][rows] for array in (x, bar, k, v, rest))
                split_range(
                    nearest, len(own), float(len(own)) * (len(self.number) + self.bank.size), own[None],
                    as_mask(own[None], None), first_look,
                    self.bank.of_nodes(), self.bank.measure, *found, scratch=self.bank.scratch,
                )  # fmt: skip

            if kept is None or asked is None:
                products = large.products(self.bank, ONLY, x[None, part], bool(large.blind))
            else:
                products = kept.rows(asked[part])
            large.in_turns(self.bank, ONLY, x[None, part], products, ask)
            if asked is None and len(x[part]) == len(x) and products.P.nbytes <= BYTES_KEPT:
                self.products.append((question, products))
        return Candidates(np.where(k == NONE, NONE, self.number[k]), v, rest)

    def activity(self, evidence: Patches) -> tuple[Indices, NDArray[np.float64]]:
        """The indices of all neurons, and their similarities (batch, neurons)."""
        return self.number, self.bank.activity(own(evidence))[0]

    def totals(self, evidence: Patches, scales: Sequence[Tiling], many: int) -> NDArray[np.float64]:
        """The totals of the neurons of this shard (`of_pyramid`); many: the number of neurons on all shards."""
        totals = np.full((evidence.x.shape[1], sum(scale.nodes for scale in scales), 2), -np.inf)
        of_pyramid(self.bank, own(evidence), scales, many, totals)
        return totals

    def block_evidence(
        self, evidence: Patches, scales: Sequence[Tiling], many: int, totals: NDArray[np.float64]
    ) -> tuple[Indices, NDArray[np.float64]]:
        """The indices of all neurons, and the evidence for them (batch, neurons); totals: those of all shards."""
        return self.number, of_pyramid(self.bank, own(evidence), scales, many, own(totals))[0, :, : len(self.number)]

    def fetch(self, j: Indices) -> tuple[NDArray[np.float32], NDArray[np.int32] | None]:
        """The prototypes of neurons, and how often each value of them was seen (as in `Vectors`)."""
        at, known = self._places(j), self.bank.known
        return self.bank.rows.of(0, at), None if known is None else known[0, at]

    # -- writes --------------------------------------------------------------------------------------------------

    def reserve(self, many: int) -> int:
        """Make room for this number of neurons in all; returns the room."""
        self.bank.reserve(max(0, many - len(self.number)))
        return self.bank.neurons.room

    def put_copies(self, j: Indices, vectors: Vectors, evidence: Patches, rows: Indices) -> None:
        """As `put`, for neurons j that are copies of samples, in these rows; or in `vectors`, where a row is NONE."""
        copies = rows != NONE
        c, m = np.ones(len(j), np.int64), np.empty((len(j), evidence.x.shape[2]), np.float32)
        c[~copies], m[~copies], m[copies] = vectors.c, vectors.m, evidence.x[0, rows[copies]]
        self.put(Vectors(j, c, m, None))

    def put(self, vectors: Vectors) -> None:
        """Write neurons, in the order of their indices; new ones have larger indices than all others."""
        new = vectors.j[self._places(vectors.j) == len(self.number)]
        self.bank.reserve(len(new))
        self.number = np.concatenate([self.number, new])
        self.bank.put(self._places(vectors.j), *vectors[1:])

    def forget(self, j: Indices) -> None:
        self.bank.forget(self._places(j))

    def _places(self, j: Indices) -> Indices:
        return np.searchsorted(self.number, j)

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        known, grown = self.bank.known, len(self.number)
        found: State = {
            "number": self.number,
            "c": self.bank.neurons.c[0, :grown],
            "prototypes": self.bank.rows.m[0, :grown],
        }
        return found if known is None else {**found, "known": known[0, :grown]}

    def restore(self, state: State) -> None:
        """Load a state, without any neurons before."""
        self.put(Vectors(state["number"], state["c"], state["prototypes"], state.get("known")))
