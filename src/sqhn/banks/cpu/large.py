"""Nodes with many values: a whole chunk is compared with their prototypes in matrix products.

The products of the samples with the neurons, and among themselves, are taken in a projection where that pays. Learning
keeps them true while neurons change, one scalar after another. Cost per sample: its share of the products, and
O(grown + chunk).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import bounds
from sqhn.banks.cpu.kernels import steps
from sqhn.banks.cpu.kernels.decision import NONE
from sqhn.banks.cpu.kernels.large import STALE, Products, multiply_one
from sqhn.banks.cpu.neurons import enlarge
from sqhn.banks.cpu.projection import Projection
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
BLIND_CHUNKS = 16
"""Chunks without the projection when it first did not pay; then twice as many each time."""


class LargeNodes:
    """How a bank of large nodes learns and answers; it does not refer to the bank, which would keep itself alive.

    It has the features of the neurons in the projection (`Features`), kept up to date by everything that writes. blind:
    for how many chunks to learn without the projection; features are not kept meanwhile. The projection is not used
    where it would hardly be smaller than the vectors.
    """

    def __init__(self, nodes: int, shape: tuple[int, ...]) -> None:
        self.projection = Projection(shape)
        self.features = np.zeros((nodes, 0, self.projection.size), np.float32)
        self.square, self.scale = np.zeros((2, nodes, 0))
        self.moves = np.zeros((nodes, 0), np.int64)
        self.blind: float = 0 if 2 * self.projection.size <= math.prod(shape) else math.inf
        self.patience = BLIND_CHUNKS

    @staticmethod
    def chunk_size(bank: Prototypes, limit: int) -> int:
        return min(limit, samples_at_once(bank, bank.nodes * min(bank.level.capacity, bank.neurons.most + limit)))

    def reserve(self, room: int) -> None:
        self.features, self.square = enlarge(self.features, 1, room), enlarge(self.square, 1, room)
        self.moves, self.scale = enlarge(self.moves, 1, room), enlarge(self.scale, 1, room)

    def rewritten(self, bank: Prototypes, n: Any, j: Any) -> None:
        """Compute the features of the prototypes j of the nodes n anew."""
        self.moves[n, j] = STALE
        self.update(bank)

    def update(self, bank: Prototypes) -> None:
        """Compute features anew where a neuron was written without them, or where rounding may have added up."""
        if self.blind:
            return
        for n in range(bank.nodes):
            stale = np.flatnonzero(self.moves[n] >= STALE)
            for part in batches(len(stale), self.projection.few):
                rows = stale[part]
                features = self.projection(bank.m[n, rows], bank.centre)
                self.features[n, rows] = features
                self.square[n, rows] = np.einsum("ij,ij->i", features, features, dtype=np.float64)
                self.moves[n, rows], self.scale[n, rows] = 0, np.sqrt(bank.square[n, rows])

    def first_look(self, bank: Prototypes, nodes: slice, products: Products, observed: Any = None) -> FirstLook:
        """At some nodes, from products of whole samples and, where values are missing, over the observed values."""
        moves, scale = self.moves[nodes], self.scale[nodes]
        if products.whole:
            moves, scale = np.zeros_like(moves), np.sqrt(bank.square[nodes])
        evaluated = np.zeros(products.P.shape[:2], np.int64)
        return tuple(products), (self.features[nodes], self.square[nodes], moves, scale), observed, evaluated

    def products(self, bank: Prototypes, nodes: slice, x: Floats, whole: bool, learning: bool = False) -> Products:
        """Products of samples (nodes, batch, size) with the neurons of some nodes, whole or in the projection.

        learning: also those of the samples among themselves, and with room for the neurons that they become.
        """
        batch, most = x.shape[1], bank.neurons.most
        width = min(bank.neurons.room, most + batch) if learning else most
        P, error = np.empty((len(x), batch, width), np.float32), 0.0 if whole else self.projection.error
        z = x - np.float32(bank.centre) if whole else self.projection(x, bank.centre)
        for own, n in enumerate(range(bank.nodes)[nodes]):
            G = int(bank.grown[n])
            if whole:
                error = max(error, whole_products(bank, n, z[own], P[own, :, :G]))
            else:
                multiply(z[own], self.features[n, :G], P[own, :, :G])
        return Products(P, z, error, whole, np.matmul(z, z.swapaxes(1, 2)) if learning else None)

    # -- learning ------------------------------------------------------------------------------------------------

    def first_look_of_chunk(self, bank: Prototypes, x: Floats, seen: NDArray[np.bool_] | None) -> FirstLook:
        """For samples to learn at all nodes."""
        every = slice(None)
        observed = None if seen is None else observed_products(bank, every, x, seen, ~seen.all(axis=2))
        return self.first_look(bank, every, self.products(bank, every, x, bool(self.blind), True), observed)

    def learned(self, bank: Prototypes, first_look: FirstLook) -> None:
        """Go without the projection for a while if it left too many neurons to be evaluated one by one."""
        if self.blind:
            self.blind -= 1
            self.moves[:] = STALE
        elif not pays(bank, first_look):
            self.blind = self.patience
            self.patience *= 2
        self.update(bank)

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, bank: Prototypes, evidence: Patches, k: NDArray[np.int32], v: NDArray[np.float64]) -> None:
        """The best neurons and their similarities, k, v (nodes, batch, count)."""
        for n in range(bank.nodes):
            node = slice(n, n + 1)
            for part in batches(k.shape[1], samples_at_once(bank, bank.neurons.most)):
                seen = None if evidence.seen is None else evidence.seen[node, part]
                self._best(bank, node, evidence.x[node, part], seen, k[node, part], v[node, part])

    def _best(self, bank: Prototypes, node: slice, x: Floats, seen: Any, k: Any, v: Any) -> None:
        """The same at one node."""

        def ask(rows: slice, first_look: FirstLook) -> None:
            some = x[:, rows]
            split_range(
                steps.best, some.shape[1], float(some.size) + some.shape[1] * bank.neurons.most, some, seen, first_look,
                bank.of_nodes(node), bank.grown[node], bank.measure, k[:, rows], v[:, rows],
            )  # fmt: skip

        if seen is None:
            whole = bool(self.blind) or k.shape[2] > 1  # where several are asked for, products must be accurate
            self.in_turns(bank, node, x, self.products(bank, node, x, whole), ask)
        else:
            nothing = np.empty((*x.shape[:2], 0), np.float32)
            observed = observed_products(bank, node, x, seen, np.ones(x.shape[:2], bool))
            ask(slice(None), self.first_look(bank, node, Products(nothing, nothing, 0.0, whole=True), observed))

    def in_turns(
        self, bank: Prototypes, node: slice, x: Floats, products: Products, ask: Callable[[slice, FirstLook], None]
    ) -> None:
        """Ask for samples whose products are known; with whole ones, once the projection has ruled out too few.

        ask: for some rows, with the first look at them.
        """
        first, rest = slice(TRIAL), slice(TRIAL, None)
        if products.whole or x.shape[1] <= TRIAL:
            ask(slice(None), self.first_look(bank, node, products))
            return
        trial = self.first_look(bank, node, products.rows(first))
        ask(first, trial)
        products = products.rows(rest) if pays(bank, trial) else self.products(bank, node, x[:, rest], whole=True)
        ask(rest, self.first_look(bank, node, products))


def pays(bank: Prototypes, first_look: FirstLook) -> bool:
    """Whether a first look in the projection has left few neurons to be evaluated one by one."""
    evaluated = first_look[3]
    return bool(evaluated.sum() <= evaluated.size * max(64, bank.neurons.most) / 8)


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


def observed_products(bank: Prototypes, nodes: slice, x: Floats, seen: NDArray[np.bool_], there: Any) -> FirstLook:
    """Products over the observed values, of the samples that are `there` (nodes, batch) at some nodes (`Observed`)."""
    centre, rows = np.float32(bank.centre), np.flatnonzero(there.any(axis=0))
    P, squares = np.zeros((2, len(x), len(rows), bank.neurons.most), np.float32)
    for n, m in enumerate(bank.m[nodes]):
        mask = seen[n, rows].astype(np.float32)
        y = (x[n, rows] - centre) * mask
        for block in batches(int(bank.grown[nodes][n]), SQUARED_NEURONS):
            u = m[block] - centre
            multiply(y, u, P[n, :, block])
            multiply(mask, np.square(u), squares[n, :, block])
    row = np.where(there, np.cumsum(there.any(axis=0)) - 1, NONE)
    return P, squares, row, bounds.masked_product(bank.size)
