"""How a pattern bank decides: cheap products rule out, float64 from the stored vectors decides (`bounds`).

A first look gives for each neuron an upper bound of its cosine times the sample's length. Those that reach the best
value found so far are evaluated. So the decision depends on nothing but the stored vectors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks import bounds
from sqhn.banks.bounds import BRIEF
from sqhn.banks.cpu.compiled import compiled, inlined, summing
from sqhn.level import TIE

BLOCK = 128
NOBODY = -1
EAGER = 8  # neurons that are looked at in the order of their bounds

NOTHING = np.ones(1, np.bool_)  # stands for a mask where there is none

product = compiled(bounds.product)


class Prototypes(NamedTuple):
    """float32 prototypes m, their squared lengths m2 less the centre, and the inverse roots of those; of a level, or of
    one node.
    """

    m: Any
    m2: Any
    inv: Any


class Sample(NamedTuple):
    """A patch, its squared length less the centre, and which values were seen, if masked; the length is over those."""

    x: Any
    xx: Any
    seen: Any
    masked: Any


class Scratch(NamedTuple):
    """For decisions, one entry per neuron: upper bounds, and which were evaluated with which result."""

    upper: Any
    index: Any
    value: Any


@compiled
def scratch(room):
    """For `room` neurons."""
    return Scratch(np.empty(room, np.float32), np.empty(room, np.int64), np.empty(room, np.float64))


@inlined
def of_node(prototypes, n):
    """Those of one node."""
    return Prototypes(prototypes.m[n], prototypes.m2[n], prototypes.inv[n])


# -- float64 from the stored vectors ---------------------------------------------------------------------------------


@summing
def squared(x, centre):
    """|x - centre|^2."""
    total = 0.0
    for i in range(x.shape[0]):
        d = np.float64(x[i]) - centre
        total += d * d
    return total


@summing
def inner(x, m, centre):
    """<x - centre, m - centre>."""
    total = 0.0
    for i in range(x.shape[0]):
        total += (np.float64(x[i]) - centre) * (np.float64(m[i]) - centre)
    return total


@summing
def observed(x, m, seen, centre):
    """<x - centre, m - centre> and |m - centre|^2 over the observed values."""
    xm = mm = 0.0
    for i in range(x.shape[0]):
        u = (np.float64(m[i]) - centre) * np.float64(seen[i])
        xm += (np.float64(x[i]) - centre) * u
        mm += u * u
    return xm, mm


@summing
def inner_single(y, m, centre):
    """<y, m - centre> in float32."""
    total = np.float32(0)
    for i in range(y.shape[0]):
        total += y[i] * (m[i] - np.float32(centre))
    return total


@inlined
def similarity(sample, own, j, centre):
    """s of a sample and neuron j of a node."""
    if sample.masked:
        xm, mm = observed(sample.x, own.m[j], sample.seen, centre)
    else:
        xm, mm = inner(sample.x, own.m[j], centre), own.m2[j]
    return centre + (1 - centre) * cosine(xm, sample.xx, mm)


@compiled
def cosine(xm, xx, mm):
    """From a product and squared lengths: 1 if both have no length, 0 if one has none."""
    if xx > 0 and mm > 0:
        return xm / (np.sqrt(xx) * np.sqrt(mm))
    return 1.0 if xx == mm else 0.0


@compiled
def shift(x, centre, y):
    """y = x - centre in float32, for products; returns |x - centre|^2."""
    for i in range(x.shape[0]):
        y[i] = x[i] - np.float32(centre)
    return squared(x, centre)


@compiled
def shift_observed(x, seen, centre, y):
    """As `shift`, over the observed values; y is 0 elsewhere."""
    for i in range(x.shape[0]):
        y[i] = x[i] - np.float32(centre) if seen[i] else np.float32(0)
    return observed(x, x, seen, centre)[1]


# -- the two-step decision -------------------------------------------------------------------------------------------


@compiled
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


@compiled
def reaching(upper, G, bar):
    """How many upper bounds reach the bar; what is not a number is no bound, so it does."""
    many = np.int32(0)
    for j in range(G):
        many += np.int32(not (upper[j] < bar))
    return many


@inlined
def decide(sample, own, G, slack, centre, scratch):
    """The winning neuron of a node and its similarity.

    scratch.upper[j] + slack is an upper bound of cosine times |x - centre|. Those that reach the best value so far are
    evaluated, the most promising first.
    """
    if sample.xx == 0 and not sample.masked:
        return featureless(own.m2, G, centre)
    upper, index, value = scratch
    length = np.sqrt(sample.xx)
    first = highest(upper, G)
    best = similarity(sample, own, first, centre)
    reached = reach(best, centre, length, slack)
    bar = np.float32(reached)
    if upper[first] >= bar and reaching(upper, G, bar) == 1:
        return first, best
    index[0], value[0], done = first, best, 1
    n = contenders(upper, G, reached, first, index)
    while True:
        j, n = next_best(upper, index, done, n, reached)
        if done == n:
            break
        value[done] = similarity(sample, own, j, centre)
        if value[done] > best:
            best = value[done]
            reached = reach(best, centre, length, slack)
        done += 1
    winner, s = first, value[0]
    for i in range(1, done):
        if value[i] >= best - TIE and (s < best - TIE or index[i] < winner):
            winner, s = index[i], value[i]
    return winner, s


@compiled
def featureless(m2, G, centre):
    """As `decide`, for a sample without length: it is like a neuron without length, and unlike all others."""
    for j in range(G):
        if m2[j] == 0:
            return j, 1.0
    return 0, centre + (1 - centre) * 0.0


@compiled
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


@compiled
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


@inlined
def tighten(y, length, own, G, slack, centre, scratch):
    """Tight upper bounds, by whole products in float32, for the neurons that may be best; returns how many.

    scratch.upper[j] + slack is an upper bound before and after; y is the sample less the centre. Float32 touches half
    the bytes of float64, and most of the neurons that the coarse view could not tell apart need no more than this.
    """
    upper, index, _ = scratch
    error = product(y.shape[0]) * length
    j, n, done, reached = highest(upper, G), 1, 0, -np.inf
    if length < BRIEF:
        return G  # all of them may be
    while done < n:
        if upper[j] == upper[j]:
            near = inner_single(y, own.m[j], centre) * np.float64(own.inv[j])
            upper[j] = near + error - slack
            reached = max(reached, near - error - slack)
        done += 1
        if done == 1:
            n = contenders(upper, G, reached, j, index)
        j, n = next_best(upper, index, done, n, reached)
    return done


@compiled
def reach(best, centre, length, slack):
    """What an upper bound must reach for its neuron to be as good as the best so far; for short samples, nothing."""
    return (best - centre) / (1 - centre) * length - slack if best > centre and length >= BRIEF else -np.inf
