"""Nodes with few values, compiled: their prototypes fit the cache, so each sample meets them as they are."""

from __future__ import annotations

import numpy as np
from numba import njit

from sqhn.banks.decision_kernels import (
    BRIEF,
    NOTHING,
    SUM,
    ULP,
    decide,
    fate,
    shift,
    shift_observed,
    strength,
    write,
)


@njit(cache=True, nogil=True)
def transpose(m, G, centre, ut):
    """ut[i, j] = m[j, i] - centre, so that products run over neurons; rows beyond the values are 0."""
    ut[m.shape[1] :] = 0
    for j in range(G):
        for i in range(m.shape[1]):
            ut[i, j] = m[j, i] - np.float32(centre)


@njit(cache=True, nogil=True, fastmath=SUM)
def cosines(ut, y, inv, G, upper):
    """upper[j] = <y, u_j> inv[j]; the length of y is a multiple of 4."""
    last = y.shape[0] - 4
    for j in range(G):
        upper[j] = 0
    i = 0
    while i + 8 <= last:
        a, b, c, e = y[i], y[i + 1], y[i + 2], y[i + 3]
        f, g, h, o = y[i + 4], y[i + 5], y[i + 6], y[i + 7]
        ua, ub, uc, ue = ut[i], ut[i + 1], ut[i + 2], ut[i + 3]
        uf, ug, uh, uo = ut[i + 4], ut[i + 5], ut[i + 6], ut[i + 7]
        for j in range(G):
            upper[j] += (a * ua[j] + b * ub[j] + c * uc[j] + e * ue[j]) + (
                f * uf[j] + g * ug[j] + h * uh[j] + o * uo[j]
            )
        i += 8
    while i < last:
        a, b, c, e = y[i], y[i + 1], y[i + 2], y[i + 3]
        ua, ub, uc, ue = ut[i], ut[i + 1], ut[i + 2], ut[i + 3]
        for j in range(G):
            upper[j] += a * ua[j] + b * ub[j] + c * uc[j] + e * ue[j]
        i += 4
    a, b, c, e = y[i], y[i + 1], y[i + 2], y[i + 3]
    ua, ub, uc, ue = ut[i], ut[i + 1], ut[i + 2], ut[i + 3]
    for j in range(G):
        upper[j] = (upper[j] + a * ua[j] + b * ub[j] + c * uc[j] + e * ue[j]) * inv[j]


@njit(cache=True, nogil=True)
def learn_small(
    lo, hi, x, m, m2, inv, c, mu, written, grown, steps, first, eps, capacity, when_full, pseudo, after, centre, k, v,
    a, grew, wrote
):  # fmt: skip
    """A chunk of online steps at nodes lo..hi."""
    room, d = m.shape[1], m.shape[2]
    ut, y = np.empty((d + -d % 4, room), np.float32), np.zeros(d + -d % 4, np.float32)
    upper = np.empty(room, np.float32)
    index, value = np.empty(room, np.int64), np.empty(room, np.float64)
    for n in range(lo, hi):
        mn, m2n, invn, cn, mun = m[n], m2[n], inv[n], c[n], mu[n]
        G = grown[n]
        transpose(mn, G, centre, ut)
        for t in range(x.shape[1]):
            xt = x[n, t]
            xx = shift(xt, centre, y)
            j, s = -1, -np.inf
            if G:
                cosines(ut, y, invn, G, upper)
                slack = (2 * d + 16) * ULP * np.sqrt(xx)
                j, s, _ = decide(upper, G, slack, xt, xx, NOTHING, False, mn, m2n, centre, index, value)
            j, new, writes = fate(j, s, eps[t], cn, written[n], G, capacity, when_full)
            if writes:
                write(j, new, s, xt, mn, m2n, invn, cn, mun, written[n], first + t, pseudo, centre)
                G = max(G, j + 1)
                for i in range(d):
                    ut[i, j] = mn[j, i] - np.float32(centre)
            k[n, t], a[n, t], grew[n, t], wrote[n, t] = j, s, new, writes
            v[n, t] = strength(new, s, xt, xx, mn[j], m2n[j], centre, after)
        grown[n] = G
    if lo == 0:
        steps[0] += x.shape[1]


@njit(cache=True, nogil=True)
def cosines_observed(ut, y, seen, G, upper, squares):
    """As `cosines`, with both lengths over the observed values."""
    for j in range(G):
        upper[j] = 0
        squares[j] = 0
    for i in range(seen.shape[0]):
        if seen[i]:
            a, u = y[i], ut[i]
            for j in range(G):
                upper[j] += a * u[j]
                squares[j] += u[j] * u[j]
    for j in range(G):
        upper[j] = upper[j] / np.sqrt(squares[j]) if squares[j] >= np.float32(BRIEF * BRIEF) else np.inf


@njit(cache=True, nogil=True)
def best_small(lo, hi, x, seen, masked, m, m2, inv, grown, centre, k, v):
    """The winner and its similarity at nodes lo..hi, for every sample."""
    room, d = m.shape[1], m.shape[2]
    ut, y = np.empty((d + -d % 4, room), np.float32), np.zeros(d + -d % 4, np.float32)
    upper, squares = np.empty(room, np.float32), np.empty(room, np.float32)
    index, value = np.empty(room, np.int64), np.empty(room, np.float64)
    for n in range(lo, hi):
        mn, m2n, invn = m[n], m2[n], inv[n]
        G = grown[n]
        transpose(mn, G, centre, ut)
        for t in range(x.shape[1]):
            xt = x[n, t]
            if masked and not seen[n, t].all():
                st = seen[n, t]
                if not st.any():
                    k[n, t], v[n, t] = 0, 0.0
                    continue
                xx = shift_observed(xt, st, centre, y)
                cosines_observed(ut, y, st, G, upper, squares)
                slack = (4 * d + 32) * ULP * np.sqrt(xx)
                k[n, t], v[n, t], _ = decide(upper, G, slack, xt, xx, st, True, mn, m2n, centre, index, value)
            else:
                xx = shift(xt, centre, y)
                cosines(ut, y, invn, G, upper)
                slack = (2 * d + 16) * ULP * np.sqrt(xx)
                k[n, t], v[n, t], _ = decide(upper, G, slack, xt, xx, NOTHING, False, mn, m2n, centre, index, value)
