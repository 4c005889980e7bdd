"""What a node chooses on the way down."""

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
def first_best(lo, hi, u, k, v):
    """See `Device.first_best`; range(lo, hi) runs over (node, sample) pairs."""
    batch, many = u.shape[1], u.shape[2]
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        top = u[n, t, 0]
        for j in range(1, many):
            if u[n, t, j] > top:
                top = u[n, t, j]
        j = 0
        while u[n, t, j] < top - TIE:
            j += 1
        k[n, t], v[n, t] = j, u[n, t, j]
