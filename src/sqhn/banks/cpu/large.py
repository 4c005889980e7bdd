"""Nodes with many values: matrix products compare a whole chunk of samples with their prototypes.

The products of the samples with the neurons, and of the samples with each other, are computed in a projection where
that is faster. While neurons change during learning, the products are corrected, one number at a time. Cost per
sample: its share of the products, and O(grown + chunk).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import bounds
from sqhn.banks.cpu.kernels import steps
from sqhn.banks.cpu.kernels.decision import NONE, as_mask
from sqhn.banks.cpu.kernels.large import NO_OBSERVED, NO_PRODUCTS, STALE, Products, multiply_one
from sqhn.banks.cpu.projection import Projection
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Patches
from sqhn.banks.neurons import enlarge
from sqhn.inputs import batches

if TYPE_CHECKING:
    from sqhn.banks.cpu.prototypes import Prototypes


Floats = NDArray[np.float32]
FirstLook = Any
"""As the kernels expect it (`steps.first_look`)."""

HELD_PRODUCTS, HELD_SHARE = 1 << 23, 32
"""The most float32 products in memory at once: this number, or one for every so many bytes of prototypes if larger."""
DECODED_NEURONS = 64
"""How many neurons that are kept as bytes become float32 at once."""
SQUARED_NEURONS = 1024
"""How many neurons have their squares over observed values computed at once."""
TRIAL = 16
"""After so many samples of a query, decide whether the projection is worth it."""
BLIND_CHUNKS = 16
"""How many chunks to learn without the projection once it was not worth it; twice as many each further time."""


class LargeNodes:
    """How a bank of large nodes learns and answers.

    It holds no reference to its bank: a cycle would keep the bank alive. It has the features of the neurons in the
    projection (`Features`), and every write updates them. blind: for how many more chunks to learn without the
    projection; meanwhile features are not kept. A projection that is hardly smaller than the vectors is never used.
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
        """Compute the features of the prototypes j of the nodes n again."""
        self.moves[n, j] = STALE
        self.update(bank)

    def update(self, bank: Prototypes) -> None:
        """Compute features again where a neuron was written without them, or where rounding may have added up."""
        if self.blind:
            return
        for n in range(bank.nodes):
            stale = np.flatnonzero(self.moves[n] >= STALE)
            for part in batches(len(stale), self.projection.few):
                rows = stale[part]
                features = self.projection(bank.rows.of(n, rows), bank.centre)
                self.features[n, rows] = features
                self.square[n, rows] = np.einsum("ij,ij->i", features, features, dtype=np.float64)
                self.moves[n, rows], self.scale[n, rows] = 0, np.sqrt(bank.square[n, rows])

    def first_look(self, bank: Prototypes, nodes: slice, products: Products, observed: Any = NO_OBSERVED) -> FirstLook:
        """The first look at some nodes: products of whole samples and, if values are missing, over observed values."""
        moves, scale = self.moves[nodes], self.scale[nodes]
        if products.whole:
            moves, scale = np.zeros_like(moves), np.sqrt(bank.square[nodes])
        evaluated = np.zeros(products.P.shape[:2], np.int64)
        return tuple(products), (self.features[nodes], self.square[nodes], moves, scale), observed, evaluated

    def products(self, bank: Prototypes, nodes: slice, x: Floats, whole: bool, learning: bool = False) -> Products:
        """Products of samples (nodes, batch, size) with the neurons of some nodes, whole or in the projection.

        learning: also the products of the samples with each other, and room for the neurons that they may become.
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
        return Products(P, z, error, whole, np.matmul(z, z.swapaxes(1, 2)) if learning else NO_PRODUCTS)

    # -- learning ------------------------------------------------------------------------------------------------

    def first_look_of_chunk(self, bank: Prototypes, x: Floats, seen: NDArray[np.bool_] | None) -> FirstLook:
        """The first look at samples to learn, at all nodes."""
        every = slice(None)
        observed = NO_OBSERVED if seen is None else observed_products(bank, every, x, seen, ~seen.all(axis=2))
        return self.first_look(bank, every, self.products(bank, every, x, bool(self.blind), True), observed)

    def learned(self, bank: Prototypes, first_look: FirstLook) -> None:
        """Stop using the projection for a while if it left too many neurons to be evaluated one by one."""
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
                steps.best, some.shape[1], float(some.size) + some.shape[1] * bank.neurons.most, some,
                as_mask(some, seen), first_look, bank.of_nodes(node), bank.grown[node], bank.measure, k[:, rows],
                v[:, rows], scratch=bank.scratch,
            )  # fmt: skip

        if seen is None:
            whole = bool(self.blind) or k.shape[2] > 1  # several neurons per sample need accurate products
            self.in_turns(bank, node, x, self.products(bank, node, x, whole), ask)
        else:
            nothing = np.empty((*x.shape[:2], 0), np.float32)
            observed = observed_products(bank, node, x, seen, np.ones(x.shape[:2], bool))
            ask(slice(None), self.first_look(bank, node, Products(nothing, nothing, 0.0, whole=True), observed))

    def in_turns(
        self, bank: Prototypes, node: slice, x: Floats, products: Products, ask: Callable[[slice, FirstLook], None]
    ) -> None:
        """Answer the first samples from given products, and the others from whole ones if the projection did not pay.

        ask: answers for some rows, given the first look at them.
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
    """How many samples can have their products with `width` neurons in memory at once."""
    return int(max(1, max(HELD_PRODUCTS, bank.rows.nbytes // HELD_SHARE) // max(1, width)))


def blocks(bank: Prototypes, neurons: int) -> Iterator[slice]:
    """The first neurons, in blocks if they must be decoded: these stay in the cache until they are multiplied."""
    return batches(neurons, DECODED_NEURONS if bank.rows.has_bytes else max(1, neurons))


def multiply(y: Floats, u: Floats, P: Floats) -> None:
    """Products of samples y and neurons u, into P; of one sample without BLAS, whose threads are slow to start."""
    if len(y) == 1:
        multiply_one(y[0], u, P[0])
    else:
        np.matmul(y, u.T, out=P)


def whole_products(bank: Prototypes, n: int, y: Floats, P: Floats) -> float:
    """Write products of samples y, less the centre, with the neurons of node n into P.

    Returns a bound of their relative error, which is largest for the shortest neuron.
    """
    for block in blocks(bank, P.shape[1]):
        multiply(y, bank.floats(block)[n], P[:, block])
    if not bank.centre:
        return bounds.product(bank.size)
    P -= (bank.centre * y.sum(axis=1, dtype=np.float64)).astype(np.float32)[:, None]
    return bounds.uncentred_product(bank.size, bank.centre, float(bank.inverse[n, : P.shape[1]].max(initial=0)))


def observed_products(bank: Prototypes, nodes: slice, x: Floats, seen: NDArray[np.bool_], there: Any) -> FirstLook:
    """Products over the observed values at some nodes (`Observed`); there (nodes, batch): for which samples."""
    centre, rows = np.float32(bank.centre), np.flatnonzero(there.any(axis=0))
    P, squares = np.zeros((2, len(x), len(rows), bank.neurons.most), np.float32)
    for own, n in enumerate(range(bank.nodes)[nodes]):
        mask = seen[own, rows].astype(np.float32)
        y = (x[own, rows] - centre) * mask
        for block in batches(int(bank.grown[n]), SQUARED_NEURONS):
            u = bank.floats(block)[n] - centre
            multiply(y, u, P[own, :, block])
            multiply(mask, np.square(u), squares[own, :, block])
    row = np.where(there, np.cumsum(there.any(axis=0)) - 1, NONE)
    return P, squares, row, bounds.masked_product(bank.size)
