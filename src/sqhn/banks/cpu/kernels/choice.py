"""What a node chooses on the way down."""

from __future__ import annotations

import numpy as np

from sqhn.banks.cpu.compiled import compiled
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
