"""The best of a node's neurons, best first: the winner, then the winner of those that are left, and so on."""

from __future__ import annotations

import numpy as np

from sqhn.banks.bounds import BRIEF
from sqhn.banks.cpu.compiled import compiled, inlined
from sqhn.banks.cpu.kernels.decision import Measure, Prototypes, half_square, reach, similarity
from sqhn.banks.cpu.kernels.prototypes import regard
from sqhn.level import TIE


@inlined
def take(index, value, many, k, v):
    """The best of `many` neurons, by ascending index, into k and v; values that were taken are minus infinity then."""
    for i in range(k.shape[0]):
        best = -np.inf
        for e in range(many):
            best = max(best, value[e])
        e = 0
        while value[e] < best - TIE:
            e += 1
        k[i], v[i] = index[e], value[e]
        value[e] = -np.inf


@compiled
def of_values(lo, hi, u, k, v):
    """From the values u of all neurons; range(lo, hi) runs over (node, sample) pairs."""
    index = np.arange(u.shape[2])
    for i in range(lo, hi):
        n, t = i // u.shape[1], i % u.shape[1]
        take(index, u[n, t].copy(), u.shape[2], k[n, t], v[n, t])


@compiled
def of_products(lo, hi, x, seen, masked, products, error, own, c, measure, k, v):
    """From cosines times lengths (batch, neurons) at one node that are wrong by `error` times the length at most.

    By differences: from products less half the neurons' squares, wrong by `error` times both lengths and the square.

    What may be among the best is evaluated: what reaches the last of as many as are wanted, from above and from below.
    A product that is not a number says nothing.
    """
    own, measure = Prototypes(*own), Measure(*measure)
    G, count = products.shape[1], k.shape[1]
    index, value, known, off = np.empty(G, np.int64), np.empty(G), np.empty(G, np.float32), np.zeros(G, np.float32)
    for t in range(lo, hi):
        sample = regard(x[t], seen[0] if masked is None else seen[t], masked, measure.centre)
        length = np.sqrt(sample.xx)
        bar = -np.inf
        if count < G and (length >= BRIEF or measure.euclidean is not None):
            for j in range(G):
                if measure.euclidean is not None:
                    off[j] = half_square(error, length, max(own.m2[j], 0.0))
                p = products[t, j] - off[j]
                known[j] = p if p < np.inf and c[j] else -np.inf
            last = np.float64(np.partition(known, G - count)[G - count])
            if measure.euclidean is not None:
                far = (sample.xx - 2 * last) / max(sample.many, 1)
                bar = reach(1 / (1 + np.sqrt(max(far, 0.0))), sample, 0.0, measure)
            else:
                bar = last - (2 * error + TIE / (1 - measure.centre)) * length
        many = 0
        for j in range(G):
            if not (products[t, j] + off[j] < bar):
                index[many], value[many] = j, similarity(sample, own, j, measure)
                if sample.many == 0 and c[j]:
                    value[many] = 0.0
                many += 1
        take(index, value, many, k[t], v[t])
