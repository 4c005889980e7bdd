"""Choices among the scores of neurons."""

from __future__ import annotations

import numpy as np

from sqhn.banks.cpu.compiled import compiled, numbers
from sqhn.level import TIE


@compiled
def choose(lo, hi, k, h, start, candidate, value, probability, blend, out):
    """See `Device.choose`; range(lo, hi) runs over (node, sample) pairs."""
    batch = k.shape[1]
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        top = blend * h[n, t]
        for e in range(start[i], start[i + 1]):
            top = max(top, blend * value[e] + (1 - blend) * probability[e])
        chosen = k[n, t] if blend * h[n, t] >= top - TIE else np.int32(2**31 - 1)
        for e in range(start[i], start[i + 1]):
            if blend * value[e] + (1 - blend) * probability[e] >= top - TIE and candidate[e] < chosen:
                chosen = candidate[e]
        out[n, t] = chosen


@numbers
def top_k(lo, hi, u, k, v):
    """The first neuron whose value is the maximum, rounding apart; then that of the rest, and so on.

    u (nodes, batch, neurons); k, v (nodes, batch, count); range(lo, hi) runs over (node, sample) pairs.
    """
    batch, neurons, count = u.shape[1], u.shape[2], k.shape[2]
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        left = u[n, t].copy() if count > 1 else u[n, t]
        for c in range(count):
            top = left[0]
            for j in range(1, neurons):
                if left[j] > top:
                    top = left[j]
            j = 0
            while left[j] < top - TIE:
                j += 1
            k[n, t, c], v[n, t, c] = j, left[j]
            if count > 1:
                left[j] = -np.inf
