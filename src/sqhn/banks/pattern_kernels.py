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
BLOCK = 128
NOBODY = -1
EAGER = 8  # neurons that are looked at in the order of their bounds
STALE = 64  # updates after which the features of a neuron are computed anew

AVERAGE, OVERWRITE, FREEZE = 0, 1, 2
NOTHING = np.ones(1, np.bool_)  # stands for a mask where there is none


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
def observed(x, m, seen, centre):
    """<x - centre, m - centre> and |m - centre|^2 over the observed values."""
    xm = mm = 0.0
    for i in range(x.shape[0]):
        u = (np.float64(m[i]) - centre) * np.float64(seen[i])
        xm += (np.float64(x[i]) - centre) * u
        mm += u * u
    return xm, mm


@njit(cache=True, nogil=True, fastmath=SUM)
def inner_single(y, m, centre):
    """<y, m - centre> in float32."""
    total = np.float32(0)
    for i in range(y.shape[0]):
        total += y[i] * (m[i] - np.float32(centre))
    return total


@njit(cache=True, nogil=True)
def similarity(x, xx, seen, masked, m, mm, centre):
    """s of one neuron; xx and mm are squared lengths after the shift, xx over the observed values if masked."""
    if masked:
        xm, mm = observed(x, m, seen, centre)
    else:
        xm = inner(x, m, centre)
    return centre + (1 - centre) * xm / (np.sqrt(xx) * np.sqrt(mm) + DELTA)


@njit(cache=True, nogil=True)
def shift(x, centre, y):
    """y = x - centre in float32, for products; returns |x - centre|^2."""
    for i in range(x.shape[0]):
        y[i] = x[i] - np.float32(centre)
    return squared(x, centre)


@njit(cache=True, nogil=True)
def shift_observed(x, seen, centre, y):
    """As `shift`, over the observed values; y is 0 elsewhere."""
    for i in range(x.shape[0]):
        y[i] = x[i] - np.float32(centre) if seen[i] else np.float32(0)
    return observed(x, x, seen, centre)[1]


# -- the two-step decision -------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def upper_bounds(p, inv, ratio, yb, G, upper):
    """upper[j] = p[j] inv[j] + yb ratio[j]."""
    for j in range(G):
        upper[j] = p[j] * inv[j] + yb * ratio[j]


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def scaled(p, inv, G, upper):
    """upper[j] = p[j] inv[j]."""
    for j in range(G):
        upper[j] = p[j] * inv[j]


@njit(cache=True, nogil=True)
def highest(upper, G):
    """The neuron with the highest upper bound, if any is positive.

    Positive floats are ordered as their bits are, and a maximum of integers is what compilers know how to vectorize.
    """
    bits = upper[:G].view(np.int32)
    top, at = np.int32(-(2**31)), 0
    for b in range(0, G, BLOCK):
        block = bits[b : b + BLOCK]
        local = np.int32(-(2**31))
        for j in range(block.shape[0]):
            local = max(local, block[j])
        if local > top:
            top, at = local, b
    block = bits[at : at + BLOCK]
    for j in range(block.shape[0]):
        if block[j] == top:
            return at + j
    return at


@njit(cache=True, nogil=True)
def reaching(upper, G, bar):
    """How many upper bounds reach the bar."""
    many = np.int32(0)
    for j in range(G):
        many += np.int32(upper[j] >= bar)
    return many


@njit(cache=True, nogil=True)
def decide(upper, G, slack, x, xx, seen, masked, m, m2, centre, index, value):
    """The winning neuron, its similarity, and how many neurons were evaluated.

    upper[j] + slack is an upper bound of cosine times |x - centre|. Those that reach the best value so far are
    evaluated, the most promising first. index and value are scratch, one entry per neuron.
    """
    length = np.sqrt(xx)
    first = highest(upper, G)
    best = similarity(x, xx, seen, masked, m[first], m2[first], centre)
    reached = reach(best, centre, length, slack)
    if upper[first] >= reached and reaching(upper, G, np.float32(reached)) == 1:
        return first, best, 1
    index[0], value[0], done = first, best, 1
    n = contenders(upper, G, reached, first, index)
    while True:
        j, n = next_best(upper, index, done, n, reached)
        if done == n:
            break
        value[done] = similarity(x, xx, seen, masked, m[j], m2[j], centre)
        if value[done] > best:
            best = value[done]
            reached = reach(best, centre, length, slack)
        done += 1
    winner, s = G, best
    for i in range(done):
        if value[i] >= best - TIE and index[i] < winner:
            winner, s = index[i], value[i]
    return winner, s, done


@njit(cache=True, nogil=True)
def contenders(upper, G, reached, first, index):
    """The neurons other than `first` whose upper bound reaches a value, into index[1:n]; returns n."""
    n = 1
    for b in range(0, G, BLOCK):
        stop = min(b + BLOCK, G)
        if reaching(upper[b:stop], stop - b, np.float32(reached)):
            for j in range(b, stop):
                if upper[j] >= reached and j != first:
                    index[n] = j
                    n += 1
    return n


@njit(cache=True, nogil=True)
def next_best(upper, index, done, n, reached):
    """The next of the neurons index[done:n] that reaches a value, and n less those that do not.

    The first few are taken by their upper bounds, so that the bar rises fast; then they come as they are.
    """
    if done <= EAGER:
        at = done
        for i in range(done + 1, n):
            if upper[index[i]] > upper[index[at]]:
                at = i
        if done < n:
            index[at], index[done] = index[done], index[at]
    while done < n and upper[index[done]] < reached:
        n -= 1
        index[done] = index[n]
    return (index[done] if done < n else NOBODY), n


@njit(cache=True, nogil=True)
def tighten(upper, G, slack, length, y, m, inv, centre, index):
    """Tight upper bounds, by whole products in float32, for the neurons that may be best; returns how many.

    upper[j] + slack is an upper bound before and after. Float32 touches half the bytes of float64, and most of the
    neurons that the coarse view could not tell apart need no more than this.
    """
    error = 2 * (y.shape[0] + 16) * ULP * length
    j, n, done, reached = highest(upper, G), 1, 0, -np.inf
    while done < n:
        near = inner_single(y, m[j], centre) * np.float64(inv[j])
        upper[j] = near + error - slack
        reached = max(reached, near - error - slack)
        done += 1
        if done == 1:
            n = contenders(upper, G, reached, j, index)
        j, n = next_best(upper, index, done, n, reached)
    return done


@njit(cache=True, nogil=True)
def reach(best, centre, length, slack):
    """What an upper bound must reach for its neuron to be as good as the best so far.

    Below zero the bound does not hold (DELTA then raises a cosine); with no length at all everything ties.
    """
    return (best - centre) / (1 - centre) * length - slack if best > centre and length > 0 else -np.inf


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
    if below and capacity > G:
        return G, True, True
    if below and when_full == OVERWRITE:
        return least_used(c, G), True, True
    return j, False, not (capacity == G and when_full == FREEZE)


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


# -- small nodes: the prototypes fit the cache, so each sample meets them as they are --------------------------------


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
def strength(grew, before, x, xx, m, mm, centre, after):
    """What a node sends up: its match after the update, or before it."""
    if after:
        return 1.0 if grew else before
    return similarity(x, xx, NOTHING, False, m, mm, centre)


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


# -- large nodes: matrix products for a whole chunk, corrected as neurons change --------------------------------------


@njit(cache=True, nogil=True)
def residual(outside, mm, vv, scale, error):
    """An upper bound of the length of a vector outside the coarse view, from both squared lengths.

    A feature vector is wrong by less than half the error of products, so its squared length by less than that error.
    """
    return np.sqrt(max(mm - vv, 0.0) + error * scale * scale) if outside else 0.0


@njit(cache=True, nogil=True)
def learn_large(
    lo,
    hi,
    x,
    P,
    gram,
    seen,
    error,
    outside,
    m,
    m2,
    inv,
    features,
    v2,
    drift,
    c,
    mu,
    grown,
    steps,
    eps,
    capacity,
    when_full,
    pseudo,
    after,
    centre,
    k,
    v,
    a,
    grew,
    wrote,
    evaluated,
):
    """A chunk of online steps at nodes lo..hi.

    seen (nodes, batch, view) are the samples in the coarse view, features those of the neurons, v2 their squared
    lengths and drift how often they were updated since they were computed. P (nodes, batch, room) holds the products
    of samples with neurons in the view, gram (nodes, batch, batch) those among samples; error bounds the relative
    error of all of them. outside is False where the view is everything; then there are no features.
    A step changes one neuron, so it changes one column of P, by a combination of what is already known.
    """
    room, d, batch = m.shape[1], m.shape[2], x.shape[1]
    y = np.empty(d, np.float32)
    upper, ratio = np.empty(room, np.float32), np.empty(room, np.float32)
    scale = np.empty(room)
    index, value = np.empty(room, np.int64), np.empty(room, np.float64)
    for n in range(lo, hi):
        G = grown[n]
        spread = 1.0  # the largest scale[j] / |u_j|: how far averaging has cancelled
        for j in range(G):
            scale[j] = np.sqrt(m2[n, j])
            ratio[j] = residual(outside, m2[n, j], v2[n, j], scale[j], error) * inv[n, j]
        for t in range(batch):
            xx = shift(x[n, t], centre, y)
            length = np.sqrt(xx)
            j, s = -1, -np.inf
            if G:
                yb = residual(outside, xx, np.float64(gram[n, t, t]), length, error)
                upper_bounds(P[n, t], inv[n], ratio, np.float32(yb), G, upper)
                slack = error * length * spread
                evaluated[n] += tighten(upper, G, slack, length, y, m[n], inv[n], centre, index)
                j, s, _ = decide(upper, G, slack, x[n, t], xx, NOTHING, False, m[n], m2[n], centre, index, value)
            j, new, writes = fate(j, s, eps[t], c[n], G, capacity, when_full)
            if writes:
                write(j, new, s, x[n, t], m[n], m2[n], inv[n], c[n], mu[n], pseudo, centre)
                G = max(G, j + 1)
                step = 1.0 if new else 1.0 / c[n, j]
                scale[j] = length if new else (1 - step) * scale[j] + step * length
                correct(P[n], gram[n, t], t, j, np.float32(step))
                if outside:
                    follow(features[n, j], seen[n, t], np.float32(step))
                    v2[n, j] = squared(features[n, j], 0.0)
                    drift[n, j] = 0 if new else drift[n, j] + 1
                else:
                    drift[n, j] = STALE
                ratio[j] = residual(outside, m2[n, j], v2[n, j], scale[j], error) * inv[n, j]
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
def best_large(lo, hi, x, P, seen, error, outside, m, m2, inv, v2, G, centre, k, v, evaluated):
    """The winner and its similarity at one node for samples lo..hi, from products P (batch, G) in the coarse view."""
    y = np.empty(x.shape[1], np.float32)
    ratio = np.empty(G, np.float32)
    upper = np.empty(G, np.float32)
    index, value = np.empty(G, np.int64), np.empty(G, np.float64)
    for j in range(G):
        ratio[j] = residual(outside, m2[j], v2[j], np.sqrt(m2[j]), error) * inv[j]
    for t in range(lo, hi):
        xx = shift(x[t], centre, y)
        length = np.sqrt(xx)
        yb = residual(outside, xx, squared(seen[t], 0.0), length, error)
        upper_bounds(P[t], inv, ratio, np.float32(yb), G, upper)
        evaluated[t] = tighten(upper, G, error * length, length, y, m, inv, centre, index)
        k[t], v[t] = decide(upper, G, error * length, x[t], xx, NOTHING, False, m, m2, centre, index, value)[:2]


@njit(cache=True, nogil=True)
def best_observed(lo, hi, x, seen, P, lengths, error, m, m2, G, centre, k, v):
    """As `best_large`, with missing values: P and the squared lengths (batch, G) run over observed ones."""
    y = np.empty(x.shape[1], np.float32)
    inv, upper = np.empty(G, np.float32), np.empty(G, np.float32)
    index, value = np.empty(G, np.int64), np.empty(G, np.float64)
    for t in range(lo, hi):
        if not seen[t].any():
            k[t], v[t] = 0, 0.0
            continue
        xx = shift_observed(x[t], seen[t], centre, y)
        for j in range(G):
            inv[j] = np.float32(1.0) / np.sqrt(max(lengths[t, j], np.float32(1e-30)))
        scaled(P[t], inv, G, upper)
        k[t], v[t], _ = decide(upper, G, error * np.sqrt(xx), x[t], xx, seen[t], True, m, m2, centre, index, value)


@njit(cache=True, nogil=True)
def pair_rows(x, centre, out):
    """Sums of x - centre over pairs of rows, scaled to keep lengths; x (count, 2 * rows, width), out half as high."""
    shift, scale = np.float32(centre), np.float32(np.sqrt(0.5))
    for t in range(out.shape[0]):
        for i in range(out.shape[1]):
            above, below, target = x[t, 2 * i], x[t, 2 * i + 1], out[t, i]
            for k in range(target.shape[0]):
                target[k] = ((above[k] - shift) + (below[k] - shift)) * scale


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
