"""How a pattern bank decides and learns one step, compiled.

Every decision is taken in two steps. A cheap float32 product gives, for each neuron, a score and a bound on its error;
the neurons whose upper bound reaches the best value found so far are evaluated again in float64 from the stored
vectors. So the decision depends on nothing but those vectors.

In all kernels of a pattern bank: `m` float32 prototypes, `m2` their squared lengths after the shift by `centre`, `inv`
the inverse square roots of those, `c` counts, `mu` mean activities, `written` the steps of the last writes, `G` or
`grown` how many neurons there are; `x` patches. Arrays of a whole level have nodes first, then neurons or samples; a
kernel for a range takes `lo, hi` first. No value, not even NaN, may lead to an index out of range.

A compiled function is cached by the time stamp of its own file, not of those it calls: after a change here, remove
the caches of the others (`make clean`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sqhn.banks.neurons import FREEZE, OVERWRITE
from sqhn.level import TIE

SUM = {"reassoc", "contract", "nsz", "arcp"}  # sums may be reordered: their rounding never decides
ULP = 2.0**-24
BLOCK = 128
NOBODY = -1
EAGER = 8  # neurons that are looked at in the order of their bounds
BRIEF = 1e-12  # length below which float32 products say nothing: there may be nothing left of them

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
    return centre + (1 - centre) * cosine(xm, xx, mm)


@njit(cache=True, nogil=True)
def cosine(xm, xx, mm):
    """From a product and squared lengths: 1 if both have no length, 0 if one has none."""
    if xx > 0 and mm > 0:
        return xm / (np.sqrt(xx) * np.sqrt(mm))
    return 1.0 if xx == mm else 0.0


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
def upper_bounds(p, inv, ratio, yb, loose, length, G, upper):
    """upper[j] = p[j] inv[j] + yb ratio[j] + length loose[j]."""
    for j in range(G):
        upper[j] = p[j] * inv[j] + yb * ratio[j] + length * loose[j]


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
    """How many upper bounds reach the bar; what is not a number is no bound, so it does."""
    many = np.int32(0)
    for j in range(G):
        many += np.int32(not (upper[j] < bar))
    return many


@njit(cache=True, nogil=True)
def decide(upper, G, slack, x, xx, seen, masked, m, m2, centre, index, value):
    """The winning neuron, its similarity, and how many neurons were evaluated.

    upper[j] + slack is an upper bound of cosine times |x - centre|. Those that reach the best value so far are
    evaluated, the most promising first. index and value are scratch, one entry per neuron.
    """
    if xx == 0 and not masked:
        return featureless(m2, G, centre)
    length = np.sqrt(xx)
    first = highest(upper, G)
    best = similarity(x, xx, seen, masked, m[first], m2[first], centre)
    reached = reach(best, centre, length, slack)
    bar = np.float32(reached)
    if upper[first] >= bar and reaching(upper, G, bar) == 1:
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
    winner, s = first, value[0]
    for i in range(1, done):
        if value[i] >= best - TIE and (s < best - TIE or index[i] < winner):
            winner, s = index[i], value[i]
    return winner, s, done


@njit(cache=True, nogil=True)
def featureless(m2, G, centre):
    """As `decide`, for a sample without length: it is like a neuron without length, and unlike all others."""
    for j in range(G):
        if m2[j] == 0:
            return j, 1.0, 1
    return 0, centre + (1 - centre) * 0.0, 1


@njit(cache=True, nogil=True)
def contenders(upper, G, reached, first, index):
    """The neurons other than `first` whose upper bound reaches a value, into index[1:n]; returns n."""
    n = 1
    for b in range(0, G, BLOCK):
        stop = min(b + BLOCK, G)
        if reaching(upper[b:stop], stop - b, np.float32(reached)):
            for j in range(b, stop):
                if not (upper[j] < reached) and j != first:
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
    if length < BRIEF:
        return G  # all of them may be
    while done < n:
        if upper[j] == upper[j]:
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
    """What an upper bound must reach for its neuron to be as good as the best so far; for short samples, nothing."""
    return (best - centre) / (1 - centre) * length - slack if best > centre and length >= BRIEF else -np.inf


# -- one learning step -----------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def average_into(m, x, count):
    """m += (x - m) / count, in float32 and in this order, whatever the chunk or the device."""
    step = np.float32(count)
    for i in range(m.shape[0]):
        m[i] += (x[i] - m[i]) / step


@njit(cache=True, nogil=True)
def least_used(c, written, G):
    """The neuron with the smallest count; of equals the one written longest ago, then the lowest index."""
    least = 0
    for j in range(1, G):
        if c[j] < c[least] or (c[j] == c[least] and written[j] < written[least]):
            least = j
    return least


@njit(cache=True, nogil=True)
def fate(j, a, eps, c, written, G, capacity, when_full):
    """Which neuron a step writes, whether as a new one, and whether it writes at all."""
    below = a < eps - TIE
    if below and capacity > G:
        return G, True, True
    if below and when_full == OVERWRITE:
        return least_used(c, written, G), True, True
    return j, False, not (capacity == G and when_full == FREEZE)


@njit(cache=True, nogil=True)
def write(j, grew, a, x, m, m2, inv, c, mu, written, step, pseudo, centre):
    """Grow or average neuron j."""
    written[j] = step
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
    """1 / sqrt(mm) in float32; 0 for a neuron without length, and not a number where products say nothing."""
    if mm < BRIEF * BRIEF:
        return np.float32(np.nan) if mm > 0 else np.float32(0.0)
    return np.float32(1.0 / np.sqrt(mm))


@njit(cache=True, nogil=True)
def strength(grew, before, x, xx, m, mm, centre, after):
    """What a node sends up: its match after the update, or before it."""
    if after:
        return 1.0 if grew else before
    return similarity(x, xx, NOTHING, False, m, mm, centre)
