"""Nodes with many values: a whole chunk meets their prototypes in two matrix products.

The products of the samples with the neurons, and among themselves, are taken in a coarse view where that pays. A walk
over scalars keeps them true while neurons change. Cost per sample: its share of the products, plus O(grown + chunk).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import bounds
from sqhn.banks.cpu.kernels import large as kernels
from sqhn.banks.cpu.kernels.large import STALE, TRIAL, UNSEEN
from sqhn.banks.cpu.neurons import Best
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.cpu.view import CoarseView
from sqhn.banks.interface import Learned, Patches
from sqhn.inputs import batches

if TYPE_CHECKING:
    from sqhn.banks.cpu.prototypes import Prototypes

__all__ = ["LargeNodes", "Met"]

SCRATCH, SHARE = 1 << 23, 8  # float32 products held at once; or a share of what is stored, if that is more
NEURON_BLOCK = 1024
NO_GRAM = np.empty((0, 0), np.float32)
Second = tuple[NDArray[np.int32], NDArray[np.float64]]
"""For each sample another neuron and its similarity."""
NO_SECOND: Second = np.empty(0, np.int32), np.empty(0)
NO_BAR = np.empty(0)
WHOLE, NO_PRODUCTS = np.ones((1, 1, 1), bool), np.empty((0, 0, 0), np.float32)


class Met(NamedTuple):
    """Samples that have met the neurons of a node: P (batch, neurons), and as `Products` has it.

    It is good for as long as neurons are what they were; of those that are not, it tells nothing.
    """

    P: NDArray[np.float32]
    seen: NDArray[np.float32]
    error: float
    whole: bool

    def some(self, rows: NDArray[np.int64]) -> Met:
        return Met(self.P[rows], self.seen[rows], self.error, self.whole)


class LargeNodes:
    """How a bank of large nodes learns and answers; it holds no bank, which would keep itself alive."""

    def __init__(self, nodes: int, shape: tuple[int, ...], centre: float) -> None:
        self.coarse = CoarseView(nodes, shape, centre)

    @staticmethod
    def chunk_size(bank: Prototypes, limit: int) -> int:
        width = bank.nodes * min(bank.level.capacity, bank.neurons.most + limit)
        return max(1, min(limit, max(SCRATCH, bank.m.size // SHARE) // max(1, width)))

    @staticmethod
    def at_once(bank: Prototypes) -> int:
        """So many samples meet the neurons of a node at once, when they ask."""
        return int(max(1, max(SCRATCH, bank.m.size // SHARE) // max(1, bank.neurons.most)))

    def reserve(self, room: int) -> None:
        self.coarse.reserve(room)

    def changed(self, n: Any, j: Any) -> None:
        """Note that the prototypes j of the nodes n are new to the view."""
        self.coarse.moved[n, j] = STALE

    def settle(self, bank: Prototypes) -> None:
        self.coarse.keep(bank.m)

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, bank: Prototypes, evidence: Patches, sent: Learned) -> None:
        neurons, (x, seen) = bank.neurons, evidence
        batch, evaluated = x.shape[1], np.zeros(bank.nodes, np.int64)
        split_range(
            kernels.learn, bank.nodes, float(x.size) * max(1, neurons.most), x,
            self.holes(bank, x, seen) if bank.holes else None, self.products(bank, x), self.coarse.arrays,
            bank.prototypes, neurons.kept, bank.rules, neurons.times(batch), bank.measure, sent.fields, evaluated,
        )  # fmt: skip
        self.coarse.judge(int(evaluated.sum()) / batch / bank.nodes, neurons.most, bank.m)

    @staticmethod
    def holes(bank: Prototypes, x: NDArray[np.float32], seen: NDArray[np.bool_] | None) -> tuple[Any, ...]:
        """What is known of the samples of a chunk that have holes (`Masked`)."""
        batch = x.shape[1]
        row = np.full(batch, -1)
        if seen is None:
            return WHOLE, row, NO_PRODUCTS, NO_PRODUCTS, 0.0
        which = np.flatnonzero(~seen.all(axis=(0, 2)))
        row[which] = np.arange(len(which))
        width = min(bank.neurons.room, bank.neurons.most + batch)
        P, squares = np.zeros((2, bank.nodes, len(which), width), np.float32)
        for n in range(bank.nodes):
            found = observed_products(bank, n, x[n, which], seen[n, which])
            P[n, :, : bank.grown[n]], squares[n, :, : bank.grown[n]] = found
        return seen, row, P, squares, bounds.masked_product(bank.size)

    def products(self, bank: Prototypes, x: NDArray[np.float32]) -> tuple[Any, ...]:
        """Of samples with neurons and among samples, at every node (`Products`)."""
        batch, whole = x.shape[1], bool(self.coarse.blind)
        seen = np.empty((bank.nodes, batch, bank.size if whole else self.coarse.view.size), np.float32)
        gram = np.empty((bank.nodes, batch, batch), np.float32)
        P = np.empty((bank.nodes, batch, min(bank.neurons.room, bank.neurons.most + batch)), np.float32)
        error = 0.0
        for n in range(bank.nodes):
            seen[n] = self.see(bank, x[n], whole)
            np.matmul(seen[n], seen[n].T, out=gram[n])
            error = max(error, self.multiply(bank, n, seen[n], whole, P[n]))
        return P, gram, seen, error, whole

    def see(self, bank: Prototypes, x: NDArray[np.float32], whole: bool) -> NDArray[np.float32]:
        """Samples (batch, size) less the centre, whole or through the coarse view."""
        return x - np.float32(bank.centre) if whole else self.coarse.view(x, bank.centre)

    def multiply(
        self, bank: Prototypes, n: int, seen: NDArray[np.float32], whole: bool, P: NDArray[np.float32]
    ) -> float:
        """Products of samples with the neurons of node n, into P; returns a bound of their relative error."""
        G = int(bank.grown[n])
        if not whole:
            np.matmul(seen, self.coarse.features[n, :G].T, out=P[:, :G])
            return self.coarse.view.error
        inverse = float(np.fmax.reduce(bank.inv[n, :G], initial=0)) if bank.centre else 0.0
        return float(whole_products(bank, n, seen, P[:, :G], inverse))

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, bank: Prototypes, evidence: Patches, found: Best) -> None:
        x, seen = evidence
        for n in range(bank.nodes):
            for part in batches(x.shape[1], self.at_once(bank)):
                here = found.part(n, part)
                if not bank.grown[n]:
                    here.k[:], here.v[:], here.left[:] = 0, 0.0, 0.0
                elif seen is None:
                    self.best_of_whole(bank, n, x[n, part], here)
                else:
                    self.best_of_observed(bank, n, x[n, part], seen[n, part], here)

    def best_of_whole(self, bank: Prototypes, n: int, x: NDArray[np.float32], found: Best) -> None:
        """The winners at one node, for whole samples."""
        self.first(bank, n, x, self.meet(bank, n, x), found)

    def first(
        self,
        bank: Prototypes,
        n: int,
        x: NDArray[np.float32],
        products: Met,
        found: Best,
        second: Second = NO_SECOND,
        bar: NDArray[np.float64] = NO_BAR,
    ) -> None:
        """The winners of samples whose products are known, where any reaches the bar if there is one.

        And others that are good, if there is room for a `second`.
        """
        evaluated = self._evaluate(bank, n, x, products, bar, *found, second)
        if len(x) > TRIAL and evaluated.min() == UNSEEN:  # the coarse view does not pay for these samples
            rest = np.flatnonzero(evaluated == UNSEEN)
            others, more = Best.room((len(rest),)), (second[0][rest], second[1][rest]) if len(second[0]) else second
            whole = self.meet(bank, n, x[rest], whole=True)
            self._evaluate(bank, n, x[rest], whole, bar[rest] if len(bar) else bar, *others, more)
            found.k[rest], found.v[rest], found.left[rest] = others
            if more is not second:
                second[0][rest], second[1][rest] = more

    def _evaluate(
        self, bank: Prototypes, n: int, x: NDArray[np.float32], products: Met, *more: Any
    ) -> NDArray[np.int64]:
        """The same; returns how many neurons were evaluated for each sample."""
        evaluated = np.empty(len(x), np.int64)
        most = math.inf if products.whole else self.coarse.too_many(bank.neurons.most)
        self._ask(kernels.best, bank, n, x, products, most, *more, evaluated)
        return evaluated

    def glance(self, bank: Prototypes, x: NDArray[np.float32], products: Met, found: Best) -> None:
        """Of each whole sample the neuron of the only node that looks best through the view, by cosines."""
        self._ask(kernels.glance, bank, 0, x, products, *found)

    def several(
        self, bank: Prototypes, n: int, x: NDArray[np.float32], products: Met, found: Best
    ) -> NDArray[np.bool_]:
        """Several of the best at one node, k and v (batch, count), of whole samples; where bounds can tell."""
        told = np.empty(len(x), bool)
        self._ask(kernels.several, bank, n, x, products, *found, told)
        return told

    def meet(self, bank: Prototypes, n: int, x: NDArray[np.float32], whole: bool | None = None) -> Met:
        """The products of whole samples with the neurons of a node; through the view, if that pays."""
        whole = bool(self.coarse.blind) if whole is None else whole
        P, seen = np.empty((len(x), int(bank.grown[n])), np.float32), self.see(bank, x, whole)
        return Met(P, seen, self.multiply(bank, n, seen, whole, P), whole)

    def _ask(self, kernel: Any, bank: Prototypes, n: int, x: NDArray[np.float32], products: Met, *more: Any) -> None:
        """What a kernel finds for whole samples at one node, from their products with its neurons."""
        P, seen, error, whole = products
        split_range(
            kernel, len(x), float(P.size) + x.size, x, (P, NO_GRAM, seen, error, whole), self.coarse.of_node(n),
            bank.of_node(n), P.shape[1], bank.measure, *more,
        )  # fmt: skip

    @staticmethod
    def best_of_observed(
        bank: Prototypes, n: int, x: NDArray[np.float32], seen: NDArray[np.bool_], found: Best
    ) -> None:
        """The same where values are missing."""
        P, squares = observed_products(bank, n, x, seen)
        nobody = int((bank.neurons.c[n] > 0).argmax())
        split_range(
            kernels.best_observed, len(x), float(x.size) + float(P.size), x, seen, P, squares,
            bounds.masked_product(bank.size), bank.of_node(n), P.shape[1], bank.measure, nobody, *found,
        )  # fmt: skip


def whole_products(bank: Prototypes, n: int, y: NDArray[np.float32], P: NDArray[np.float32], inverse: Any) -> Any:
    """Products of samples y less the centre and the neurons of node n, into P; returns their relative error.

    inverse: of the length of each neuron, or of the shortest, whose error is that of all.
    """
    np.matmul(y, bank.m[n, : P.shape[1]].T, out=P)
    if not bank.centre:
        return bounds.product(bank.size)
    P -= (bank.centre * y.sum(axis=1, dtype=np.float64)).astype(np.float32)[:, None]
    return bounds.uncentred_product(bank.size, bank.centre, inverse)


def observed_products(
    bank: Prototypes, n: int, x: NDArray[np.float32], seen: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Products of samples and the neurons of node n over the observed values, and the neurons' squares there."""
    G, centre = int(bank.grown[n]), np.float32(bank.centre)
    P, squares = np.empty((len(x), G), np.float32), np.empty((len(x), G), np.float32)
    mask = seen.astype(np.float32)
    y = (x - centre) * mask
    for block in batches(G, NEURON_BLOCK):
        u = bank.m[n, block] - centre
        np.matmul(y, u.T, out=P[:, block])
        np.matmul(mask, np.square(u).T, out=squares[:, block])
    return P, squares
