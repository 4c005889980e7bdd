"""The best of the prototypes, best first: one product for all of them, and float64 for those that may be among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import bounds
from sqhn.banks.cpu.kernels.decision import NOTHING
from sqhn.banks.cpu.kernels.ranking import of_products
from sqhn.banks.cpu.large import SCRATCH, observed_products
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Patches
from sqhn.door import parts

if TYPE_CHECKING:
    from sqhn.banks.cpu.prototypes import Prototypes

__all__ = ["ranking"]

NO_MASK = NOTHING[None]
BLOCK = 256  # neurons whose shifted copy stays in the cache while they are multiplied


def ranking(bank: Prototypes, evidence: Patches, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """See `PatternBank.ranking`."""
    x, seen = evidence
    masked = None if seen is None else True
    shape = (*x.shape[:2], count)
    k, v = np.empty(shape, np.int32), np.empty(shape)
    for n in range(bank.nodes):
        for part in parts(x.shape[1], max(1, SCRATCH // bank.neurons.most)):
            mask = NO_MASK if seen is None else seen[n, part]
            products, error = cosines(bank, n, x[n, part], None if seen is None else mask)
            split_range(
                of_products, len(products), float(products.size) + float(bank.size) * count * len(products),
                x[n, part], mask, masked, products, error, bank.of_node(n), bank.neurons.c[n], bank.measure,
                k[n, part], v[n, part],
            )  # fmt: skip
    return k, v


def cosines(
    bank: Prototypes, n: int, x: NDArray[np.float32], seen: NDArray[np.bool_] | None
) -> tuple[NDArray[np.float32], float]:
    """Of samples with the neurons of a node, times the samples' lengths; and a bound of their relative error.

    By differences: products less half the neurons' squares, and their error by both lengths and the square.
    """
    G, (centre, euclidean) = int(bank.grown[n]), bank.measure
    if seen is None:
        P, y = np.empty((len(x), G), np.float32), x - np.float32(centre)
        for block in parts(G, BLOCK):
            np.matmul(y, (bank.m[n, block] - np.float32(centre)).T, out=P[:, block])
            if not euclidean:
                P[:, block] *= bank.inv[n, block]
        if euclidean:
            P -= np.where(bank.inv[n, :G] == 1, bank.m2[n, :G] / 2, np.nan).astype(np.float32)
        return P, bounds.product(bank.size)
    P, squares = observed_products(bank, n, x, seen)
    if euclidean:
        return np.where(bank.inv[n, :G] == 1, P - squares / 2, np.float32(np.nan)), bounds.masked_product(bank.size)
    brief = squares < np.float32(bounds.BRIEF**2)
    return np.where(brief, np.inf, P / np.sqrt(np.where(brief, 1, squares))), bounds.masked_product(bank.size)
