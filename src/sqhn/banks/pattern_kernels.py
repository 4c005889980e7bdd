"""What a pattern bank is asked besides who wins, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from sqhn.banks.decision_kernels import NOTHING, average_into, observed, refresh, similarity, squared


@njit(cache=True, nogil=True)
def refresh_all(lo, hi, m, m2, inv, grown, centre):
    """What is derived from every prototype."""
    for n in range(lo, hi):
        for j in range(grown[n]):
            refresh(m[n], m2[n], inv[n], j, centre)


@njit(cache=True, nogil=True)
def hold(lo, hi, x, k, wrote, m, m2, inv, c, written, step, centre):
    """Average further samples of one thing into the neurons that its first sample wrote."""
    for n in range(lo, hi):
        if wrote[n]:
            j = k[n]
            for t in range(x.shape[1]):
                c[n, j] += 1
                average_into(m[n, j], x[n, t], c[n, j])
            written[n, j] = step
            refresh(m[n], m2[n], inv[n], j, centre)


@njit(cache=True, nogil=True)
def regard(x, seen, masked, centre):
    """|x - centre|^2 over what was observed, whether something is missing, and whether everything is."""
    if masked and not seen.all():
        return observed(x, x, seen, centre)[1], True, not seen.any()
    return squared(x, centre), False, False


@njit(cache=True, nogil=True)
def activity(lo, hi, x, seen, masked, m, m2, grown, centre, s):
    """s (nodes, batch, room) of every neuron; minus infinity beyond the grown ones."""
    for n in range(lo, hi):
        for t in range(x.shape[1]):
            st = seen[n, t] if masked else NOTHING
            xx, partial, silent = regard(x[n, t], st, masked, centre)
            for j in range(grown[n]):
                s[n, t, j] = 0.0 if silent else similarity(x[n, t], xx, st, partial, m[n, j], m2[n, j], centre)
            for j in range(grown[n], s.shape[2]):
                s[n, t, j] = -np.inf


@njit(cache=True, nogil=True)
def at(lo, hi, x, seen, masked, start, candidate, m, m2, centre, s):
    """s of the candidates start[n, t] .. start[n, t + 1] of each node and sample."""
    batch = x.shape[1]
    for n in range(lo, hi):
        for t in range(batch):
            st = seen[n, t] if masked else NOTHING
            xx, partial, silent = regard(x[n, t], st, masked, centre)
            for i in range(start[n * batch + t], start[n * batch + t + 1]):
                j = candidate[i]
                s[i] = 0.0 if silent else similarity(x[n, t], xx, st, partial, m[n, j], m2[n, j], centre)


@njit(cache=True, nogil=True)
def gather(lo, hi, k, m, out):
    """out[n, t] = m[n, k[n, t]]."""
    for n in range(lo, hi):
        for t in range(out.shape[1]):
            out[n, t] = m[n, k[n, t]]
