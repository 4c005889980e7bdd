"""Nodes with few values, compiled: their prototypes fit the cache, so each sample meets them as they are."""

from __future__ import annotations

import numpy as np
from numba import njit

from sqhn.banks.decision_kernels import NOTHING, SUM, ULP, decide, fate, scaled, shift, shift_observed, strength, write


@njit(cache=True, nogil=True)
def transpose(m, G, centre, ut):
    """ut[i, j] = m[j, i] - centre, so that the product below runs over neurons."""
    for j in range(G):
        for i in range(m.shape[1]):
            ut[i, j] = m[j, i] - np.float32(centre)


@njit(cache=True, nogil=True, fastmath=SUM)
def product(ut, y, G, p):
    """p[j] = <y, u_j>, eight inputs at a time."""
    d = y.shape[0]
    for j in range(G):
        p[j] = 0
    i = 0
    while i + 8 <= d:
        a, b, c, e = y[i], y[i + 1], y[i + 2], y[i + 3]
        f, g, h, o = y[i + 4], y[i + 5], y[i + 6], y[i + 7]
        ua, ub, uc, ue = ut[i], ut[i + 1], ut[i + 2], ut[i + 3]
        uf, ug, uh, uo = ut[i + 4], ut[i + 5], ut[i + 6], ut[i + 7]
        for j in range(G):
            p[j] += (a * ua[j] + b * ub[j] + c * uc[j] + e * ue[j]) + (f * uf[j] + g * ug[j] + h * uh[j] + o * uo[j])
        i += 8
    while i + 4 <= d:
        a, b, c, e = y[i], y[i + 1], y[i + 2], y[i + 3]
        ua, ub, uc, ue = ut[i], ut[i + 1], ut[i + 2], ut[i + 3]
        for j in range(G):
            p[j] += a * ua[j] + b * ub[j] + c * uc[j] + e * ue[j]
        i += 4
    while i < d:
        a = y[i]
        ua = ut[i]
        for j in range(G):
            p[j] += a * ua[j]
        i += 1


@njit(cache=True, nogil=True)
def learn_small(
    lo, hi, x, m, m2, inv, c, mu, grown, steps, eps, capacity, when_full, pseudo, after, centre, k, v, a, grew, wrote
):
    """A chunk of online steps at nodes lo..hi."""
    room, d = m.shape[1], m.shape[2]
    ut = np.empty((d, room), np.float32)
    y = np.empty(d, np.float32)
    p, upper = np.empty(room, np.float32), np.empty(room, np.float32)
    index, value = np.empty(room, np.int64), np.empty(room, np.float64)
    for n in range(lo, hi):
        G = grown[n]
        transpose(m[n], G, centre, ut)
        for t in range(x.shape[1]):
            xx = shift(x[n, t], centre, y)
            j, s = -1, -np.inf
            if G:
                product(ut, y, G, p)
                scaled(p, inv[n], G, upper)
                slack = (2 * d + 16) * ULP * np.sqrt(xx)
                j, s, _ = decide(upper, G, slack, x[n, t], xx, NOTHING, False, m[n], m2[n], centre, index, value)
            j, new, writes = fate(j, s, eps[t], c[n], G, capacity, when_full)
            if writes:
                write(j, new, s, x[n, t], m[n], m2[n], inv[n], c[n], mu[n], pseudo, centre)
                G = max(G, j + 1)
                for i in range(d):
                    ut[i, j] = m[n, j, i] - np.float32(centre)
            k[n, t], a[n, t], grew[n, t], wrote[n, t] = j, s, new, writes
            v[n, t] = strength(new, s, x[n, t], xx, m[n, j], m2[n, j], centre, after)
        grown[n] = G
    if lo == 0:
        steps[0] += x.shape[1]


@njit(cache=True, nogil=True)
def product_observed(ut, y, seen, G, p, inv):
    """Inner products over observed values, and the inverse lengths over them."""
    for j in range(G):
        p[j] = 0
        inv[j] = 0
    for i in range(y.shape[0]):
        if seen[i]:
            a, u = y[i], ut[i]
            for j in range(G):
                p[j] += a * u[j]
                inv[j] += u[j] * u[j]
    for j in range(G):
        inv[j] = np.float32(1.0) / np.sqrt(max(inv[j], np.float32(1e-30)))


@njit(cache=True, nogil=True)
def best_small(lo, hi, x, seen, masked, m, m2, inv, grown, centre, k, v):
    """The winner and its similarity at nodes lo..hi, for every sample."""
    room, d = m.shape[1], m.shape[2]
    ut = np.empty((d, room), np.float32)
    y = np.empty(d, np.float32)
    p, upper = np.empty(room, np.float32), np.empty(room, np.float32)
    partial = np.empty(room, np.float32)
    index, value = np.empty(room, np.int64), np.empty(room, np.float64)
    for n in range(lo, hi):
        G = grown[n]
        transpose(m[n], G, centre, ut)
        for t in range(x.shape[1]):
            if masked and not seen[n, t].all():
                st = seen[n, t]
                if not st.any():
                    k[n, t], v[n, t] = 0, 0.0
                    continue
                xx = shift_observed(x[n, t], st, centre, y)
                product_observed(ut, y, st, G, p, partial)
                scaled(p, partial, G, upper)
                slack = (4 * d + 32) * ULP * np.sqrt(xx)
                k[n, t], v[n, t], _ = decide(upper, G, slack, x[n, t], xx, st, True, m[n], m2[n], centre, index, value)
            else:
                xx = shift(x[n, t], centre, y)
                product(ut, y, G, p)
                scaled(p, inv[n], G, upper)
                slack = (2 * d + 16) * ULP * np.sqrt(xx)
                k[n, t], v[n, t], _ = decide(
                    upper, G, slack, x[n, t], xx, NOTHING, False, m[n], m2[n], centre, index, value
                )
