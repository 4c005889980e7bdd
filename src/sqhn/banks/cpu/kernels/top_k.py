"""The best of a node's neurons, best first: the winner, then the winner of those that are left, and so on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks.bounds import BRIEF
from sqhn.banks.cpu.compiled import compiled, fused, inlined
from sqhn.banks.cpu.kernels.decision import BLOCK, Measure, Prototypes, reach, reaching, similarity
from sqhn.banks.cpu.kernels.prototypes import regard
from sqhn.level import TIE


class Near(NamedTuple):
    """What float32 says of samples and the neurons of a node: cosines times the samples' lengths (batch, neurons).

    By differences: products less half the neurons' squares. Wrong by no more than the length of the sample times
    error[j], and shift[j]. What is not a number says nothing.
    """

    products: Any
    error: Any
    shift: Any


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
def last_of(value, top):
    """The last of as many of the largest values as `top` has room for."""
    top[:] = -np.inf
    for b in range(0, value.shape[0], BLOCK):
        block = value[b : b + BLOCK]
        if reaching(block, block.shape[0], top[0]):
            for e in range(block.shape[0]):
                if block[e] > top[0]:
                    i = 1
                    while i < top.shape[0] and top[i] < block[e]:
                        top[i - 1] = top[i]
                        i += 1
                    top[i - 1] = block[e]
    return top[0]


@fused
def from_below(p, error, shift, length, c, low):
    """What the products of a sample are at least; nothing, of free places and where they say nothing."""
    for j in range(p.shape[0]):
        least = p[j] - (length * error[j] + shift[j])
        low[j] = least if least < np.inf and c[j] else -np.inf


@compiled
def of_products(lo, hi, x, seen, masked, near, own, c, measure, k, v):
    """From what float32 says of the samples lo..hi and the neurons of a node (`Near`).

    What may be among the best is evaluated: what reaches the last of as many as are wanted, from above and from below.
    """
    own, measure = Prototypes(*own), Measure(*measure)
    products, error, shift = Near(*near)
    G, count = products.shape[1], k.shape[1]
    index, value = np.empty(G, np.int64), np.empty(G)
    low, top = np.empty(G, np.float32), np.empty(count, np.float32)
    for t in range(lo, hi):
        sample = regard(x[t], seen[0] if masked is None else seen[t], masked, measure.centre)
        length = np.float32(np.sqrt(sample.xx))
        bar = -np.inf
        if count < G and (length >= BRIEF or measure.euclidean is not None):
            from_below(products[t], error, shift, length, c, low)
            last = np.float64(last_of(low, top))
            if measure.euclidean is not None:
                far = (sample.xx - 2 * last) / max(sample.many, 1)
                bar = reach(1 / (1 + np.sqrt(max(far, 0.0))), sample, 0.0, measure)
            else:
                bar = last - TIE / (1 - measure.centre) * length
        many = 0
        for j in range(G):
            if not (products[t, j] + (length * error[j] + shift[j]) < bar):
                index[many], value[many] = j, similarity(sample, own, j, measure)
                if sample.many == 0 and c[j]:
                    value[many] = 0.0
                many += 1
        take(index, value, many, k[t], v[t])
