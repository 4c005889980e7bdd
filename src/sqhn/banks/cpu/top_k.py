"""The best of the prototypes, best first: one product for all of them, and float64 for those that may be among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import bounds
from sqhn.banks.cpu.kernels.decision import NOTHING
from sqhn.banks.cpu.kernels.top_k import Near, of_products
from sqhn.banks.cpu.large import SCRATCH, observed_products, whole_products
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Patches
from sqhn.inputs import batches

if TYPE_CHECKING:
    from sqhn.banks.cpu.prototypes import Prototypes

__all__ = ["top_k"]

NO_MASK = NOTHING[None]


def top_k(bank: Prototypes, evidence: Patches, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """See `PatternBank.top_k`."""
    x, seen = evidence
    masked = None if seen is None else True
    shape = (*x.shape[:2], count)
    k, v = np.empty(shape, np.int32), np.empty(shape)
    for n in range(bank.nodes):
        for part in batches(x.shape[1], max(1, SCRATCH // bank.neurons.most)):
            mask = NO_MASK if seen is None else seen[n, part]
            near = first_look(bank, n, x[n, part], None if seen is None else mask)
            batch, G = near.products.shape
            split_range(
                of_products, batch, float(batch) * (G + bank.size * count), x[n, part], mask, masked, tuple(near),
                bank.of_node(n), bank.neurons.c[n], bank.measure, k[n, part], v[n, part],
            )  # fmt: skip
    return k, v


def first_look(bank: Prototypes, n: int, x: NDArray[np.float32], seen: NDArray[np.bool_] | None) -> Near:
    """What one product says of samples and the neurons of a node."""
    G, (centre, euclidean) = int(bank.grown[n]), bank.measure
    inv, square = bank.inv[n, :G], np.maximum(bank.m2[n, :G], 0)
    if seen is None:
        P = np.empty((len(x), G), np.float32)
        error = np.zeros(G) + whole_products(bank, n, x - np.float32(centre), P, inv)
    else:
        P, squares = observed_products(bank, n, x, seen)
        error = np.full(G, bounds.masked_product(bank.size))
    if euclidean:
        P -= (square if seen is None else squares) / 2
        P[:, inv != 1] = np.nan
        return Near(P, (error * np.sqrt(square)).astype(np.float32), (error * square).astype(np.float32))
    if seen is None:
        P *= inv
    else:
        brief = squares < np.float32(bounds.BRIEF**2)
        P = np.where(brief, np.inf, P / np.sqrt(np.where(brief, 1, squares)))
    return Near(P, error.astype(np.float32), np.zeros(G, np.float32))
