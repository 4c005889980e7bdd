"""Float32 products of samples with all neurons, and the few neurons that they leave as candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import bounds
from sqhn.banks.bounds import SHORT
from sqhn.banks.interface import Patches
from sqhn.level import TIE

if TYPE_CHECKING:
    from sqhn.banks.plain.prototypes import Prototypes

half_square: Any = np.vectorize(bounds.half_square, otypes=[np.float64])
rounded: Any = bounds.rounded  # of arrays too


def squares(vectors: NDArray[Any]) -> NDArray[Any]:
    """The squared lengths of vectors (..., size)."""
    return np.asarray(np.einsum("...i,...i", vectors, vectors))


class Candidates:
    """The products P (nodes, batch, width) of a chunk of samples with the first `width` neurons of a bank.

    By cosines they are the cosines. By differences they are <x, m> - |m|^2 / 2, since the nearest neuron has the
    largest: |x - m|^2 = |x|^2 - 2 (<x, m> - |m|^2 / 2). Sums run over observed values. A product is NaN where nothing
    can be said, and such a neuron is always a candidate.
    """

    def __init__(self, bank: Prototypes, evidence: Patches, width: int) -> None:
        self.bank, self.evidence = bank, evidence
        (x, self.seen, _), self.error = evidence, bounds.product(bank.size)
        y = np.subtract(x, bank.centre, dtype=np.float64)
        self.silent = np.zeros(x.shape[:2], bool)  # where nothing was observed
        self.values = np.full(x.shape[:2], bank.size)  # how many were
        if self.seen is not None:
            y, self.silent, self.values = y * self.seen, ~self.seen.any(axis=2), self.seen.sum(axis=2)
        self.square = squares(y)
        if not bank.euclidean:
            y /= np.sqrt(np.where(self.square > 0, self.square, np.nan))[:, :, None]
            self.error = self.error if self.seen is None else bounds.masked_product(bank.size)
        self.y = y.astype(np.float32)
        self.P = self.products(slice(None), bank.look[:, :width], bank.half[:, :width])

    def products(self, samples: slice, look: NDArray[np.float32], half: NDArray[np.float32]) -> NDArray[np.float32]:
        """The products of some samples with some neurons of each node."""
        with np.errstate(invalid="ignore"):  # some BLAS warn of NaN
            P = self.y[:, samples] @ look.swapaxes(1, 2)
            if self.seen is not None:
                squared = self.seen[:, samples].astype(np.float32) @ np.square(look).swapaxes(1, 2)
                if self.bank.euclidean:
                    P -= squared / 2
                else:
                    P /= np.sqrt(np.where(squared >= SHORT**2, squared, np.nan))
            elif self.bank.euclidean:
                P -= half[:, None]
        return np.asarray(P)

    def follow(self, t: int, j: NDArray[Any]) -> None:
        """Renew the products of the samples after t with the neurons j (nodes,), which sample t was written to."""
        if t + 1 < self.P.shape[1]:
            n, later = self.bank.node, slice(t + 1, None)
            look, half = self.bank.look[n, j][:, None], self.bank.half[n, j][:, None]
            self.P[n, later, j] = self.products(later, look, half)[:, :, 0]

    def scores(self, t: int, count: int = 1) -> NDArray[np.float64]:
        """The similarities of sample t and all neurons that may be among the `count` best: (nodes, width).

        Minus infinity for all others. Where nothing is observed, and in a node without neurons, they are 0.
        """
        bank, P = self.bank, self.P[:, t]
        living = bank.neurons.c[:, : P.shape[1]] > 0
        asked = living & ~self.silent[:, t, None]
        if count == 1:
            top = np.fmax.reduce(P, axis=1)
        else:
            top = np.partition(np.where(np.isnan(P), -np.inf, P), -count, axis=1)[:, -count]
        bar = self.bar(t, top.astype(np.float64)).astype(np.float32)
        n, j = np.nonzero(~(bar[:, None] > P) & asked)
        found = np.where(living & self.silent[:, t, None], 0.0, -np.inf)
        found[n, j] = bank.compare(self.evidence, n, np.full_like(n, t), j)
        found[bank.grown == 0, 0] = 0.0
        return found

    def bar(self, t: int, top: NDArray[np.float64]) -> NDArray[np.float64]:
        """The least product of a neuron that may be as good as one with the product `top`; arrays (nodes,).

        By differences a tie can be far away: a similarity of s - TIE belongs to a square of (1 / (s - TIE) - 1)^2 for
        each value.
        """
        if not self.bank.euclidean:
            return top - 2 * self.error
        longest, square, values = 2.0 * self.bank.half.max(axis=1), self.square[:, t], self.values[:, t]
        error = half_square(self.error, np.sqrt(square), longest)
        furthest = np.maximum(square - 2 * (top - error), 0.0)
        least = 1 / (1 + np.sqrt(furthest / np.maximum(values, 1))) - TIE
        reach = np.where(least > TIE, (1 / np.maximum(least, TIE) - 1) ** 2 * values, np.inf)
        return np.asarray((square - reach) / 2 - rounded(square, reach) - error)
