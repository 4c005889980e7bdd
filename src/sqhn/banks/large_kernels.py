"""Nodes with many values, compiled: matrix products for a whole chunk, corrected as neurons change."""

from __future__ import annotations

import numpy as np
from numba import njit

from sqhn.banks.decision_kernels import (
    BRIEF,
    NOTHING,
    ULP,
    decide,
    fate,
    shift,
    shift_observed,
    squared,
    strength,
    tighten,
    upper_bounds,
    write,
)

STALE = 64  # updates after which the features of a neuron are computed anew
TRIAL = 16  # samples of a question after which the coarse view is judged
UNSEEN = -1


@njit(cache=True, nogil=True)
def residual(outside, mm, vv, scale, error):
    """An upper bound of the length of a vector outside the coarse view, from both squared lengths.

    A feature vector is wrong by less than half the error of products, so its squared length by less than that error.
    """
    return np.sqrt(max(mm - vv, 0.0) + error * scale * scale) if outside else 0.0


@njit(cache=True, nogil=True)
def looseness(moved, scale, d, inv, centre):
    """A bound of the error, relative to its length, that rounding has added since a neuron's products were computed.

    Each time a neuron moves, its prototype is rounded, relative to its own length and not to that after the shift; and
    so are its features and products.
    """
    return 8 * ULP * moved * (scale + centre * np.sqrt(d)) * inv


@njit(cache=True, nogil=True)
def learn_large(
    lo, hi, x, P, gram, seen, error, outside, m, m2, inv, features, v2, drift, c, mu, written, grown, steps, first, eps,
    capacity, when_full, pseudo, after, centre, k, v, a, grew, wrote, evaluated
):  # fmt: skip
    """A chunk of online steps at nodes lo..hi.

    seen (nodes, batch, view) are the samples in the coarse view, features those of the neurons, v2 their squared
    lengths and drift how often they moved since they were computed. P (nodes, batch, room) holds the products of
    samples with neurons in the view, gram (nodes, batch, batch) those among samples; error bounds the relative error
    of all of them. outside is False where the view is everything; then there are no features.
    A step moves one neuron, so it changes one column of P, by a combination of what is already known.
    """
    room, d, batch = m.shape[1], m.shape[2], x.shape[1]
    y = np.empty(d, np.float32)
    upper, ratio, loose = np.empty(room, np.float32), np.empty(room, np.float32), np.empty(room, np.float32)
    scale, moved = np.empty(room), np.empty(room)
    index, value = np.empty(room, np.int64), np.empty(room, np.float64)
    for n in range(lo, hi):
        G = grown[n]
        spread = 1.0  # the largest scale[j] / |u_j|: how far averaging has cancelled
        for j in range(G):
            scale[j] = np.sqrt(m2[n, j])
            moved[j] = drift[n, j] if outside else 0
            loose[j] = looseness(moved[j], scale[j], d, inv[n, j], centre)
            ratio[j] = residual(outside, m2[n, j], v2[n, j], scale[j], error + 2 * loose[j]) * inv[n, j]
        for t in range(batch):
            xx = shift(x[n, t], centre, y)
            length = np.sqrt(xx)
            j, s = -1, -np.inf
            if G:
                yb = np.float32(residual(outside, xx, np.float64(gram[n, t, t]), length, error))
                upper_bounds(P[n, t], inv[n], ratio, yb, loose, np.float32(length), G, upper)
                slack = error * length * spread
                evaluated[n] += tighten(upper, G, slack, length, y, m[n], inv[n], centre, index)
                j, s, _ = decide(upper, G, slack, x[n, t], xx, NOTHING, False, m[n], m2[n], centre, index, value)
            j, new, writes = fate(j, s, eps[t], c[n], written[n], G, capacity, when_full)
            if writes:
                write(j, new, s, x[n, t], m[n], m2[n], inv[n], c[n], mu[n], written[n], first + t, pseudo, centre)
                G = max(G, j + 1)
                step = 1.0 if new else 1.0 / c[n, j]
                scale[j] = length if new else (1 - step) * scale[j] + step * length
                moved[j] = 0 if new else moved[j] + 1
                loose[j] = looseness(moved[j], scale[j], d, inv[n, j], centre)
                correct(P[n], gram[n, t], t, j, np.float32(step))
                if outside:
                    follow(features[n, j], seen[n, t], np.float32(step))
                    v2[n, j] = squared(features[n, j], 0.0)
                    drift[n, j] = moved[j]
                else:
                    drift[n, j] = STALE
                ratio[j] = residual(outside, m2[n, j], v2[n, j], scale[j], error + 2 * loose[j]) * inv[n, j]
                spread = max(spread, scale[j] * inv[n, j])
            k[n, t], a[n, t], grew[n, t], wrote[n, t] = j, s, new, writes
            v[n, t] = strength(new, s, x[n, t], xx, m[n, j], m2[n, j], centre, after)
        grown[n] = G
    if lo == 0:
        steps[0] += x.shape[1]


@njit(cache=True, nogil=True)
def correct(P, gram, t, j, step):
    """The products of the samples after t with neuron j, once sample t has moved it by `step`."""
    if step == 1:
        for s in range(t + 1, P.shape[0]):
            P[s, j] = gram[s]
    else:
        for s in range(t + 1, P.shape[0]):
            P[s, j] += step * (gram[s] - P[s, j])


@njit(cache=True, nogil=True)
def follow(features, seen, step):
    """The features of a neuron that a sample has moved by `step`."""
    if step == 1:
        features[:] = seen
    else:
        for i in range(seen.shape[0]):
            features[i] += step * (seen[i] - features[i])


@njit(cache=True, nogil=True)
def best_large(lo, hi, x, P, seen, error, outside, m, m2, inv, v2, drift, G, centre, most, k, v, evaluated):
    """The winner and its similarity at one node for samples lo..hi, from products P (batch, G) in the coarse view.

    Where the first few leave more than `most` neurons each to be evaluated, the rest is left UNSEEN.
    """
    d = x.shape[1]
    y = np.empty(d, np.float32)
    upper, ratio, loose = np.empty(G, np.float32), np.empty(G, np.float32), np.empty(G, np.float32)
    index, value = np.empty(G, np.int64), np.empty(G, np.float64)
    for j in range(G):
        scale = np.sqrt(m2[j])
        loose[j] = looseness(drift[j] if outside else 0, scale, d, inv[j], centre)
        ratio[j] = residual(outside, m2[j], v2[j], scale, error + 2 * loose[j]) * inv[j]
    many = 0
    for t in range(lo, hi):
        if t - lo == TRIAL and many > most * TRIAL:
            evaluated[t:hi] = UNSEEN
            break
        xx = shift(x[t], centre, y)
        length = np.sqrt(xx)
        yb = np.float32(residual(outside, xx, squared(seen[t], 0.0), length, error))
        upper_bounds(P[t], inv, ratio, yb, loose, np.float32(length), G, upper)
        evaluated[t] = tighten(upper, G, error * length, length, y, m, inv, centre, index)
        many += evaluated[t]
        k[t], v[t] = decide(upper, G, error * length, x[t], xx, NOTHING, False, m, m2, centre, index, value)[:2]


@njit(cache=True, nogil=True)
def best_observed(lo, hi, x, seen, P, squares, error, m, m2, G, centre, k, v):
    """As `best_large`, with missing values: products P and squared lengths (batch, G) run over observed ones."""
    y = np.empty(x.shape[1], np.float32)
    upper = np.empty(G, np.float32)
    index, value = np.empty(G, np.int64), np.empty(G, np.float64)
    for t in range(lo, hi):
        if not seen[t].any():
            k[t], v[t] = 0, 0.0
            continue
        xx = shift_observed(x[t], seen[t], centre, y)
        for j in range(G):
            upper[j] = P[t, j] / np.sqrt(squares[t, j]) if squares[t, j] >= np.float32(BRIEF * BRIEF) else np.inf
        slack = error * np.sqrt(xx)
        k[t], v[t], _ = decide(upper, G, slack, x[t], xx, seen[t], True, m, m2, centre, index, value)


@njit(cache=True, nogil=True)
def pair_rows(x, centre, out):
    """Sums of x - centre over pairs of rows, scaled to keep lengths; x (count, 2 * rows, width), out half as high."""
    shift, scale = np.float32(centre), np.float32(np.sqrt(0.5))
    for t in range(out.shape[0]):
        for i in range(out.shape[1]):
            above, below, target = x[t, 2 * i], x[t, 2 * i + 1], out[t, i]
            for k in range(target.shape[0]):
                target[k] = ((above[k] - shift) + (below[k] - shift)) * scale
