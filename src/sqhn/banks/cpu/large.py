"""Nodes with many values: a whole chunk is compared with their prototypes in matrix products.

The products of the samples with the neurons, and among themselves, are taken in a projection where that pays. Learning
keeps them true while neurons change, one scalar after another. Cost per sample: its share of the products, and
O(grown + chunk).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import bounds
from sqhn.banks.cpu.kernels import steps
from sqhn.banks.cpu.kernels.decision import NONE
from sqhn.banks.cpu.kernels.large import STALE, Products, multiply_one
from sqhn.banks.cpu.projection import Projected
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Patches
from sqhn.inputs import batches

if TYPE_CHECKING:
    from sqhn.banks.cpu.prototypes import Prototypes


Floats = NDArray[np.float32]
FirstLook = Any
"""As kernels take it (`steps.first_look`)."""

HELD_PRODUCTS, HELD_SHARE = 1 << 23, 8
"""float32 products held at once; or a share of the prototypes, if that is more."""
SQUARED_NEURONS = 1024
"""Neurons whose squares over observed values are computed at once."""
TRIAL = 16
"""Samples of a question after which the projection is judged."""


class LargeNodes:
    """How a bank of large nodes learns and answers; it does not refer to the bank, which would keep itself alive."""

    def __init__(self, nodes: int, shape: tuple[int, ...], centre: float) -> None:
        self.projected = Projected(nodes, shape, centre)

    @staticmethod
    def chunk_size(bank: Prototypes, limit: int) -> int:
        return min(limit, samples_at_once(bank, bank.nodes * min(bank.level.capacity, bank.neurons.most + limit)))

    def rewritten(self, bank: Prototypes, n: Any, j: Any) -> None:
        """Compute the features of the prototypes j of the nodes n anew."""
        self.projected.moves[n, j] = STALE
        self.projected.update(bank.m, bank.square)

    # -- learning ------------------------------------------------------------------------------------------------

    def first_look_of_chunk(self, bank: Prototypes, x: Floats, seen: NDArray[np.bool_] | None) -> FirstLook:
        """For samples to learn at all nodes."""
        observed = None
        if seen is not None:
            observed = observed_products(bank, slice(None), x, seen, np.flatnonzero(~seen.all(axis=(0, 2))))
        evaluated = np.zeros(x.shape[:2], np.int64)
        return tuple(self.chunk_products(bank, x)), self.projected.of_nodes(slice(None)), observed, evaluated

    def learned(self, bank: Prototypes, first_look: FirstLook) -> None:
        """Judge the projection by how many neurons were evaluated, and bring features up to date."""
        evaluated = first_look[3]
        self.projected.judge(int(evaluated.sum()) / evaluated.size, bank.neurons.most)
        self.projected.update(bank.m, bank.square)

    def chunk_products(self, bank: Prototypes, x: Floats) -> Products:
        """Products of the samples of a chunk with neurons and among themselves, at every node."""
        batch, whole = x.shape[1], bool(self.projected.blind)
        P = np.empty((bank.nodes, batch, min(bank.neurons.room, bank.neurons.most + batch)), np.float32)
        z = np.empty((bank.nodes, batch, bank.size if whole else self.projected.projection.size), np.float32)
        gram = np.empty((bank.nodes, batch, batch), np.float32)
        error = 0.0
        for n in range(bank.nodes):
            z[n], own_error = self.multiply(bank, n, x[n], whole, P[n])
            error = max(error, own_error)
            multiply(z[n], z[n], gram[n])
        return Products(P, z, error, whole, gram)

    def multiply(self, bank: Prototypes, n: int, x: Floats, whole: bool, P: Floats) -> tuple[Floats, float]:
        """Products of samples with the neurons of node n, whole or in the projection, into P.

        Returns the samples there, and a bound of the relative error of the products.
        """
        G, projection = int(bank.grown[n]), self.projected.projection
        z = x - np.float32(bank.centre) if whole else projection(x, bank.centre)
        if whole:
            return z, whole_products(bank, n, z, P[:, :G])
        multiply(z, self.projected.features[n, :G], P[:, :G])
        return z, projection.error

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, bank: Prototypes, evidence: Patches, k: NDArray[np.int32], v: NDArray[np.float64]) -> None:
        for n in range(bank.nodes):
            for part in batches(k.shape[1], samples_at_once(bank, bank.neurons.most)):
                x, seen = evidence.x[n, part], None if evidence.seen is None else evidence.seen[n, part]
                if seen is None:
                    self._best_of_whole(bank, n, x, k[n, part], v[n, part])
                else:
                    products = observed_products(bank, slice(n, n + 1), x[None], seen[None], np.arange(len(x)))
                    _best(bank, n, x, seen, products, k[n, part], v[n, part])

    def _best_of_whole(self, bank: Prototypes, n: int, x: Floats, k: NDArray[np.int32], v: NDArray[np.float64]) -> None:
        """At one node, for samples without missing values; where several are asked for, products must be accurate."""

        def ask(rows: slice, products: Products) -> NDArray[np.int64]:
            evaluated = np.zeros(products.P.shape[:2], np.int64)
            _best(bank, n, x[rows], None, self.first_look(n, products, evaluated), k[rows], v[rows])
            return evaluated

        self.in_turns(bank, n, x, self.products(bank, n, x, bool(self.projected.blind) or k.shape[1] > 1), ask)

    def products(self, bank: Prototypes, n: int, x: Floats, whole: bool) -> Products:
        """The products of samples with the neurons of a node, whole or in the projection."""
        P = np.empty((1, len(x), int(bank.grown[n])), np.float32)
        z, error = self.multiply(bank, n, x, whole, P[0])
        return Products(P, z[None], error, whole)

    def first_look(self, n: int, products: Products, evaluated: NDArray[np.int64]) -> FirstLook:
        """For a question at one node."""
        return tuple(products), self.projected.of_nodes(slice(n, n + 1)), None, evaluated

    def in_turns(
        self, bank: Prototypes, n: int, x: Floats, products: Products, ask: Callable[[slice, Products], Any]
    ) -> None:
        """Ask for samples whose products are known; with whole ones, once the projection has ruled out too few.

        ask: for some rows and their products; returns how many neurons were evaluated for each.
        """
        if products.whole or len(x) <= TRIAL:
            ask(slice(None), products)
            return
        first, rest = slice(TRIAL), slice(TRIAL, None)
        pays = ask(first, products.rows(first)).mean() <= self.projected.too_many(bank.neurons.most)
        ask(rest, products.rows(rest) if pays else self.products(bank, n, x[rest], whole=True))


def _best(bank: Prototypes, n: int, x: Floats, seen: Any, first_look: FirstLook, k: Any, v: Any) -> None:
    """The best neurons of one node."""
    one, work = slice(n, n + 1), float(len(x)) * (bank.size + int(bank.grown[n]))
    split_range(
        steps.best, len(x), work, x[None], None if seen is None else seen[None], first_look, bank.of_nodes(one),
        bank.grown[one], bank.measure, k[None], v[None],
    )  # fmt: skip


def samples_at_once(bank: Prototypes, width: int) -> int:
    """How many samples have their products with `width` neurons held at once."""
    return int(max(1, max(HELD_PRODUCTS, bank.m.size // HELD_SHARE) // max(1, width)))


def multiply(y: Floats, u: Floats, P: Floats) -> None:
    """Products of samples y and neurons u, into P; of one sample without BLAS, whose threads are slow to start."""
    if len(y) == 1:
        multiply_one(y[0], u, P[0])
    else:
        np.matmul(y, u.T, out=P)


def whole_products(bank: Prototypes, n: int, y: Floats, P: Floats) -> float:
    """Products of samples y less the centre and the neurons of node n, into P.

    Returns a bound of their relative error: that of the shortest neuron.
    """
    multiply(y, bank.m[n, : P.shape[1]], P)
    if not bank.centre:
        return bounds.product(bank.size)
    P -= (bank.centre * y.sum(axis=1, dtype=np.float64)).astype(np.float32)[:, None]
    return bounds.uncentred_product(bank.size, bank.centre, float(bank.inverse[n, : P.shape[1]].max(initial=0)))


def observed_products(
    bank: Prototypes, nodes: slice, x: Floats, seen: NDArray[np.bool_], rows: NDArray[np.intp]
) -> FirstLook:
    """Products of some samples with the neurons of some nodes over the observed values (`Observed`)."""
    centre = np.float32(bank.centre)
    P, squares = np.zeros((2, len(x), len(rows), bank.neurons.most), np.float32)
    for n, m in enumerate(bank.m[nodes]):
        mask = seen[n, rows].astype(np.float32)
        y = (x[n, rows] - centre) * mask
        for block in batches(int(bank.grown[nodes][n]), SQUARED_NEURONS):
            u = m[block] - centre
            multiply(y, u, P[n, :, block])
            multiply(mask, np.square(u), squares[n, :, block])
    row = np.full(x.shape[1], NONE)
    row[rows] = np.arange(len(rows))
    return P, squares, row, bounds.masked_product(bank.size)
