"""The loops of the pattern bank, compiled.

Every decision is taken in two steps. A cheap float32 product gives, for each neuron, a score and a bound on its error;
the neurons whose upper bound reaches the best value found so far are evaluated again in float64 from the stored
vectors. So the decision depends on nothing but those vectors.

Arrays: nodes first, then neurons or samples. `m` (nodes, room, d) float32 prototypes, `m2` their squared length after
the shift by `centre`, `inv` its inverse square root, `c` counts, `mu` mean activities, `grown` neurons per node;
`x` (nodes, batch, d) patches.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sqhn.level import DELTA, TIE

SUM = {"reassoc", "contract", "nsz", "arcp"}  # sums may be reordered: their rounding never decides
ULP = 2.0**-24
BLOCK = 64

AVERAGE, OVERWRITE, FREEZE = 0, 1, 2


# -- float64 from the stored vectors ---------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=SUM)
def squared(x, centre):
    """|x - centre|^2."""
    total = 0.0
    for i in range(x.shape[0]):
        d = np.float64(x[i]) - centre
        total += d * d
    return total


@njit(cache=True, nogil=True, fastmath=SUM)
def inner(x, m, centre):
    """<x - centre, m - centre>."""
    total = 0.0
    for i in range(x.shape[0]):
        total += (np.float64(x[i]) - centre) * (np.float64(m[i]) - centre)
    return total


@njit(cache=True, nogil=True, fastmath=SUM)
def inner_observed(x, m, seen, centre):
    """The inner product and both squared lengths over the observed values."""
    xm = xx = mm = 0.0
    for i in range(x.shape[0]):
        o = np.float64(seen[i])
        a = (np.float64(x[i]) - centre) * o
        b = (np.float64(m[i]) - centre) * o
        xm += a * b
        xx += a * a
        mm += b * b
    return xm, xx, mm


@njit(cache=True, nogil=True)
def cosine(xm, xx, mm):
    """The cosine from an inner product and squared lengths."""
    return xm / (np.sqrt(xx) * np.sqrt(mm) + DELTA)


@njit(cache=True, nogil=True)
def similarity_at(x, xx, seen, masked, m, mm, centre):
    """s of one neuron; 0 where nothing was observed."""
    if masked:
        if not seen.any():
            return 0.0
        xm, xx, mm = inner_observed(x, m, seen, centre)
        return centre + (1 - centre) * cosine(xm, xx, mm)
    return centre + (1 - centre) * cosine(inner(x, m, centre), xx, mm)


# -- the two-step decision -------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "nnan"})
def upper_bounds(p, inv, ratio, yb, G, upper, peak):
    """upper[j] = p[j] inv[j] + yb ratio[j], and its maximum over each block of neurons."""
    for b in range(0, G, BLOCK):
        top = np.float32(-np.inf)
        for j in range(b, min(b + BLOCK, G)):
            u = p[j] * inv[j] + yb * ratio[j]
            upper[j] = u
            top = max(top, u)
        peak[b // BLOCK] = top


@njit(cache=True, nogil=True)
def decide(upper, peak, G, slack, x, xx, seen, masked, m, m2, centre, index, value):
    """The winning neuron and its similarity.

    upper[j] + slack is an upper bound of cosine times |y|. index and value are scratch, one entry per neuron.
    """
    length = np.sqrt(xx)
    b = np.argmax(peak[: (G + BLOCK - 1) // BLOCK])
    first = b * BLOCK + np.argmax(upper[b * BLOCK : min((b + 1) * BLOCK, G)])
    best = similarity_at(x, xx, seen, masked, m[first], m2[first], centre)
    index[0], value[0], n = first, best, 1
    # Below zero the bound does not hold (DELTA then raises a cosine); with no length at all everything ties.
    reached = (best - centre) / (1 - centre) * length - slack if best > centre and length > 0 else -np.inf
    for b in range((G + BLOCK - 1) // BLOCK):
        if peak[b] < reached:
            continue
        for j in range(b * BLOCK, min((b + 1) * BLOCK, G)):
            if upper[j] < reached or j == first:
                continue
            s = similarity_at(x, xx, seen, masked, m[j], m2[j], centre)
            index[n], value[n] = j, s
            n += 1
            if s > best:
                best = s
                if reached > -np.inf:
                    reached = (best - centre) / (1 - centre) * length - slack
    winner, s = G, best
    for i in range(n):
        if value[i] >= best - TIE and index[i] < winner:
            winner, s = index[i], value[i]
    return winner, s, n


# -- one learning step -----------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def average_into(m, x, count):
    """m += (x - m) / count, in float32 and in this order, whatever the chunk or the device."""
    step = np.float32(count)
    for i in range(m.shape[0]):
        m[i] += (x[i] - m[i]) / step


@njit(cache=True, nogil=True)
def least_used(c, G):
    """The neuron with the smallest count, lowest index first."""
    least = 0
    for j in range(1, G):
        if c[j] < c[least]:
            least = j
    return least


@njit(cache=True, nogil=True)
def fate(j, a, eps, c, G, capacity, when_full):
    """Which neuron a step writes, whether as a new one, and whether it writes at all."""
    below = a < eps - TIE
    if below and G < capacity:
        return G, True, True
    if below and when_full == OVERWRITE:
        return least_used(c, G), True, True
    return j, False, not (G == capacity and when_full == FREEZE)


@njit(cache=True, nogil=True)
def write(j, grew, a, x, m, m2, inv, c, mu, pseudo, centre):
    """Grow or average neuron j."""
    if grew:
        m[j] = x
        c[j] = 1
        mu[j] = 1.0
    else:
        c[j] += 1
        mu[j] += (a - mu[j]) / (c[j] + pseudo)
        average_into(m[j], x, c[j])
    refresh(m, m2, inv, j, centre)


@njit(cache=True, nogil=True)
def refresh(m, m2, inv, j, centre):
    """What is derived from m[j]."""
    m2[j] = squared(m[j], centre)
    inv[j] = inverse(m2[j])


@njit(cache=True, nogil=True)
def inverse(mm):
    """1 / sqrt(mm) in float32, finite."""
    return np.float32(1.0 / max(np.sqrt(mm), 1e-30)) if mm > 0 else np.float32(0.0)


@njit(cache=True, nogil=True)
def refresh_all(lo, hi, m, m2, inv, grown, centre):
    """What is derived from every prototype."""
    for n in range(lo, hi):
        for j in range(grown[n]):
            refresh(m[n], m2[n], inv[n], j, centre)


# -- small nodes: the prototypes fit the cache, so each sample meets them as they are -----------------------------------


@njit(cache=True, nogil=True)
def transpose(m, G, centre, ut):
    """ut[i, j] = m[j, i] - centre, so that the product below runs over neurons."""
    shift = np.float32(centre)
    for j in range(G):
        for i in range(m.shape[1]):
            ut[i, j] = m[j, i] - shift


@njit(cache=True, nogil=True, fastmath=SUM)
def product(ut, y, G, p):
    """p[j] = <y, u_j>, four inputs at a time."""
    d = y.shape[0]
    for j in range(G):
        p[j] = 0
    i = 0
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
def shifted(x, centre, y):
    """y = x - centre."""
    shift = np.float32(centre)
    for i in range(x.shape[0]):
        y[i] = x[i] - shift


@njit(cache=True, nogil=True)
def learn_small(lo, hi, x, m, m2, inv, c, mu, grown, eps, capacity, when_full, pseudo, after, centre, k, v, a, grew, wrote):
    """A chunk of online steps at nodes lo..hi."""
    room, d = m.shape[1], m.shape[2]
    ut = np.empty((d, room), np.float32)
    y = np.empty(d, np.float32)
    p, upper, flat = np.empty(room, np.float32), np.empty(room, np.float32), np.zeros(room, np.float32)
    peak = np.empty(room // BLOCK + 1, np.float32)
    index, value = np.empty(room, np.int64), np.empty(room, np.float64)
    seen = np.ones(1, np.bool_)
    for n in range(lo, hi):
        G = grown[n]
        transpose(m[n], G, centre, ut)
        for t in range(x.shape[1]):
            xt = x[n, t]
            xx = squared(xt, centre)
            j, s = -1, -np.inf
            if G:
                shifted(xt, centre, y)
                product(ut, y, G, p)
                upper_bounds(p, inv[n], flat, np.float32(0), G, upper, peak)
                slack = (2 * d + 16) * ULP * np.sqrt(xx)
                j, s, _ = decide(upper, peak, G, slack, xt, xx, seen, False, m[n], m2[n], centre, index, value)
            j, new, writes = fate(j, s, eps[t], c[n], G, capacity, when_full)
            if writes:
                write(j, new, s, xt, m[n], m2[n], inv[n], c[n], mu[n], pseudo, centre)
                G = max(G, j + 1)
                for i in range(d):
                    ut[i, j] = m[n, j, i] - np.float32(centre)
            k[n, t], a[n, t], grew[n, t], wrote[n, t] = j, s, new, writes
            v[n, t] = strength(new, s, xt, xx, m[n, j], m2[n, j], centre, after)
        grown[n] = G


@njit(cache=True, nogil=True)
def strength(grew, before, x, xx, m, mm, centre, after):
    """What a node sends up: its match after the update, or before it."""
    if after:
        return 1.0 if grew else before
    return centre + (1 - centre) * cosine(inner(x, m, centre), xx, mm)


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
    p, upper, flat = np.empty(room, np.float32), np.empty(room, np.float32), np.zeros(room, np.float32)
    partial = np.empty(room, np.float32)
    peak = np.empty(room // BLOCK + 1, np.float32)
    index, value = np.empty(room, np.int64), np.empty(room, np.float64)
    none = np.ones(1, np.bool_)
    for n in range(lo, hi):
        G = grown[n]
        transpose(m[n], G, centre, ut)
        for t in range(x.shape[1]):
            xt = x[n, t]
            shifted(xt, centre, y)
            if masked and not seen[n, t].all():
                st = seen[n, t]
                if not st.any():
                    k[n, t], v[n, t] = 0, 0.0
                    continue
                xx = 0.0
                for i in range(d):
                    if st[i]:
                        xx += (np.float64(xt[i]) - centre) ** 2
                product_observed(ut, y, st, G, p, partial)
                upper_bounds(p, partial, flat, np.float32(0), G, upper, peak)
                slack = (4 * d + 32) * ULP * np.sqrt(xx)
                k[n, t], v[n, t], _ = decide(
                    upper, peak, G, slack, xt, xx, st, True, m[n], m2[n], centre, index, value
                )
            else:
                xx = squared(xt, centre)
                product(ut, y, G, p)
                upper_bounds(p, inv[n], flat, np.float32(0), G, upper, peak)
                slack = (2 * d + 16) * ULP * np.sqrt(xx)
                k[n, t], v[n, t], _ = decide(
                    upper, peak, G, slack, xt, xx, none, False, m[n], m2[n], centre, index, value
                )


# -- large nodes: matrix products for a whole chunk, corrected as neurons change --------------------------------------


@njit(cache=True, nogil=True)
def residual(outside, mm, vv, scale, margin):
    """An upper bound of the length of a vector outside the coarse view, from both squared lengths."""
    return np.sqrt(max(mm - vv, 0.0) + margin * scale * scale) if outside else 0.0


@njit(cache=True, nogil=True)
def learn_large(
    lo, hi, x, P, gram, error, outside, m, m2, inv, v2, stale, c, mu, grown, eps, capacity, when_full, pseudo, after, centre,
    k, v, a, grew, wrote, evaluated,
):
    """A chunk of online steps at nodes lo..hi.

    P (nodes, batch, room) holds the products of the samples with the neurons in the coarse view, gram (nodes, batch,
    batch) those among the samples; v2 the squared lengths of the neurons in the view; error bounds the relative error
    of all of them, outside says whether the view leaves anything out, and stale[n, j] is set where a neuron changes.
    A step changes one neuron, so it changes one column of P, by a combination of what is already known.
    """
    room, batch = m.shape[1], x.shape[1]
    upper = np.empty(room, np.float32)
    ratio = np.empty(room, np.float32)
    scale = np.empty(room, np.float64)
    peak = np.empty(room // BLOCK + 1, np.float32)
    index, value = np.empty(room, np.int64), np.empty(room, np.float64)
    seen = np.ones(1, np.bool_)
    margin = 8 * error
    for n in range(lo, hi):
        G = grown[n]
        spread = 1.0  # the largest scale[j] / |u_j|: how far averaging has cancelled
        for j in range(G):
            scale[j] = np.sqrt(m2[n, j])
            ratio[j] = residual(outside, m2[n, j], v2[n, j], scale[j], margin) * inv[n, j]
        for t in range(batch):
            xt = x[n, t]
            xx = squared(xt, centre)
            length = np.sqrt(xx)
            yb = residual(outside, xx, np.float64(gram[n, t, t]), length, margin)
            j, s = -1, -np.inf
            if G:
                upper_bounds(P[n, t], inv[n], ratio, np.float32(yb), G, upper, peak)
                slack = error * length * spread
                j, s, count = decide(upper, peak, G, slack, xt, xx, seen, False, m[n], m2[n], centre, index, value)
                evaluated[n] += count
            j, new, writes = fate(j, s, eps[t], c[n], G, capacity, when_full)
            if writes:
                write(j, new, s, xt, m[n], m2[n], inv[n], c[n], mu[n], pseudo, centre)
                G = max(G, j + 1)
                step = 1.0 if new else 1.0 / c[n, j]
                if new:
                    v2[n, j], scale[j] = gram[n, t, t], length
                else:
                    v2[n, j] = (
                        (1 - step) ** 2 * v2[n, j]
                        + 2 * step * (1 - step) * np.float64(P[n, t, j])
                        + step * step * np.float64(gram[n, t, t])
                    )
                    scale[j] = (1 - step) * scale[j] + step * length
                correct(P[n], gram[n, t], t, j, np.float32(step))
                ratio[j] = residual(outside, m2[n, j], v2[n, j], scale[j], margin) * inv[n, j]
                spread = max(spread, scale[j] * inv[n, j])
                stale[n, j] = True
            k[n, t], a[n, t], grew[n, t], wrote[n, t] = j, s, new, writes
            v[n, t] = strength(new, s, xt, xx, m[n, j], m2[n, j], centre, after)
        grown[n] = G


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
def best_large(lo, hi, x, P, y2, error, outside, m, m2, inv, v2, G, centre, k, v, evaluated):
    """The winner and its similarity at one node for samples lo..hi, from products P (batch, G) in the coarse view."""
    ratio = np.empty(G, np.float32)
    upper = np.empty(G, np.float32)
    peak = np.empty(G // BLOCK + 1, np.float32)
    index, value = np.empty(G, np.int64), np.empty(G, np.float64)
    seen = np.ones(1, np.bool_)
    margin = 8 * error
    for j in range(G):
        ratio[j] = residual(outside, m2[j], v2[j], np.sqrt(m2[j]), margin) * inv[j]
    for t in range(lo, hi):
        xx = squared(x[t], centre)
        length = np.sqrt(xx)
        yb = residual(outside, xx, y2[t], length, margin)
        upper_bounds(P[t], inv, ratio, np.float32(yb), G, upper, peak)
        k[t], v[t], count = decide(
            upper, peak, G, error * length, x[t], xx, seen, False, m, m2, centre, index, value
        )
        evaluated[t] = count


@njit(cache=True, nogil=True)
def best_observed(lo, hi, x, seen, P, lengths, error, m, m2, G, centre, k, v):
    """As `best_large`, with missing values: P and the squared lengths (batch, G) run over observed ones."""
    flat, inv = np.zeros(G, np.float32), np.empty(G, np.float32)
    upper = np.empty(G, np.float32)
    peak = np.empty(G // BLOCK + 1, np.float32)
    index, value = np.empty(G, np.int64), np.empty(G, np.float64)
    for t in range(lo, hi):
        if not seen[t].any():
            k[t], v[t] = 0, 0.0
            continue
        xx = inner_observed(x[t], x[t], seen[t], centre)[1]
        for j in range(G):
            inv[j] = np.float32(1.0) / np.sqrt(max(lengths[t, j], np.float32(1e-30)))
        upper_bounds(P[t], inv, flat, np.float32(0), G, upper, peak)
        k[t], v[t], _ = decide(
            upper, peak, G, error * np.sqrt(xx), x[t], xx, seen[t], True, m, m2, centre, index, value
        )


# -- other questions -------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def hold(lo, hi, x, k, wrote, m, m2, inv, c, centre):
    """Average further samples of one thing into the neurons that its first sample wrote."""
    for n in range(lo, hi):
        if wrote[n]:
            j = k[n]
            for t in range(x.shape[1]):
                c[n, j] += 1
                average_into(m[n, j], x[n, t], c[n, j])
            refresh(m[n], m2[n], inv[n], j, centre)


@njit(cache=True, nogil=True)
def activity(lo, hi, x, seen, masked, m, m2, grown, centre, s):
    """s (nodes, batch, room) of every neuron; minus infinity beyond the grown ones."""
    none = np.ones(1, np.bool_)
    for n in range(lo, hi):
        for t in range(x.shape[1]):
            xx = squared(x[n, t], centre)
            st = seen[n, t] if masked else none
            partial = masked and not st.all()
            for j in range(grown[n]):
                s[n, t, j] = similarity_at(x[n, t], xx, st, partial, m[n, j], m2[n, j], centre)
            for j in range(grown[n], s.shape[2]):
                s[n, t, j] = -np.inf


@njit(cache=True, nogil=True)
def at(lo, hi, x, seen, masked, start, candidate, m, m2, centre, s):
    """s of the candidates start[n, t] .. start[n, t + 1] of each node and sample."""
    batch = x.shape[1]
    none = np.ones(1, np.bool_)
    for n in range(lo, hi):
        for t in range(batch):
            xx = squared(x[n, t], centre)
            st = seen[n, t] if masked else none
            partial = masked and not st.all()
            for i in range(start[n * batch + t], start[n * batch + t + 1]):
                j = candidate[i]
                s[i] = similarity_at(x[n, t], xx, st, partial, m[n, j], m2[n, j], centre)


@njit(cache=True, nogil=True)
def gather(lo, hi, k, m, out):
    """out[n, t] = m[n, k[n, t]]."""
    for n in range(lo, hi):
        for t in range(out.shape[1]):
            out[n, t] = m[n, k[n, t]]
