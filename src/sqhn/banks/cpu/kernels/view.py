"""The rows of pictures, added up in pairs."""

from __future__ import annotations

import numpy as np

from sqhn.banks.cpu.compiled import compiled


@compiled
def pair_rows(x, centre, out):
    """Sums of x - centre over pairs of rows, scaled to keep lengths; x (count, 2 * rows, width), out half as high."""
    shift, scale = np.float32(centre), np.float32(np.sqrt(0.5))
    for t in range(out.shape[0]):
        for i in range(out.shape[1]):
            above, below, target = x[t, 2 * i], x[t, 2 * i + 1], out[t, i]
            for k in range(target.shape[0]):
                target[k] = ((above[k] - shift) + (below[k] - shift)) * scale
