"""How a pattern bank decides: cheap products rule out, float64 from the stored vectors decides (`bounds`).

A first look gives for each neuron an upper bound of its cosine times the sample's length; or of its product with the
sample less half its own square, which tells the difference: |x - m|^2 = |x|^2 - 2 (<x, m> - |m|^2 / 2). Those that
reach the best value found so far are evaluated. So the decision depends on nothing but the stored vectors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core.types import NoneType
from numba.extending import overload

from sqhn.banks import bounds
from sqhn.banks.bounds import BRIEF
from sqhn.banks.cpu.compiled import compiled, inlined, summing
from sqhn.level import TIE

BLOCK = 128
NOBODY = -1
EAGER = 8  # neurons that are looked at in the order of their bounds

NOTHING = np.ones(1, np.bool_)  # stands for a mask where there is none

product, half_square, rounded = compiled(bounds.product), compiled(bounds.half_square), compiled(bounds.rounded)


class Measure(NamedTuple):
    """How a patch and a prototype are compared: by the cosine of both less the centre, or by their difference.

    euclidean: True, or None for cosines: of another type, so that kernels are compiled for the one or the other.
    """

    centre: Any
    euclidean: Any


class Prototypes(NamedTuple):
    """float32 prototypes m, their squared lengths m2 less the centre, and the inverse roots of those; of a level, or of
    one node. A free place has a squared length of -1, and an inverse of 0.

    known: how often each of their values was seen, if samples with holes were learned; else None.
    """

    m: Any
    m2: Any
    inv: Any
    known: Any


class Sample(NamedTuple):
    """A patch, its squared length less the centre, and which values were seen, if masked; the length is over those.

    masked: None where no sample is, so that kernels are compiled without. many: how many were seen.
    """

    x: Any
    xx: Any
    seen: Any
    masked: Any
    many: Any


def has_holes(masked):
    """Whether values of a sample were not seen."""
    return masked is not None and masked


@overload(has_holes, jit_options={"forceinline": True})
def _has_holes(masked):
    """By the type, so that kernels are compiled for whole samples, or for any."""
    return (lambda masked: False) if isinstance(masked, NoneType) else (lambda masked: masked)


class Scratch(NamedTuple):
    """For decisions, one entry per neuron: upper bounds, and which were evaluated with which result.

    left[0]: what no neuron but the winner is above. done[0]: how many were evaluated, the first of index and value.
    """

    upper: Any
    index: Any
    value: Any
    left: Any
    done: Any


@compiled
def scratch(room):
    """For `room` neurons."""
    upper, index, value = np.empty(room, np.float32), np.empty(room, np.int64), np.empty(room, np.float64)
    return Scratch(upper, index, value, np.empty(1), np.zeros(1, np.int64))


@inlined
def of_node(prototypes, n):
    """Those of one node."""
    return Prototypes(prototypes.m[n], prototypes.m2[n], prototypes.inv[n], part(prototypes.known, n))


def part(known, n):
    """Of a node, or of a neuron, if there is any."""
    return None if known is None else known[n]


@overload(part, jit_options={"forceinline": True})
def _part(known, n):
    """By the type, so that kernels are compiled for the one or the other."""
    return (lambda known, n: None) if isinstance(known, NoneType) else (lambda known, n: known[n])


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


@summing
def difference(x, m):
    """|x - m|^2."""
    total = 0.0
    for i in range(x.shape[0]):
        d = np.float64(x[i]) - np.float64(m[i])
        total += d * d
    return total


@summing
def observed_difference(x, m, seen, masked, known):
    """|x - m|^2 over the values that were observed and are known, and how many these are."""
    total, many = 0.0, 0
    for i in range(x.shape[0]):
        there = not masked or seen[i]
        if known is not None:
            there = there and known[i] > 0
        d = (np.float64(x[i]) - np.float64(m[i])) * np.float64(there)
        total += d * d
        many += np.int64(there)
    return total, many


@inlined
def distant(sample, m, known):
    """|x - m|^2 over what was observed and is known, and how many values these are."""
    if known is None and not has_holes(sample.masked):
        return difference(sample.x, m), sample.x.shape[0]
    return observed_difference(sample.x, m, sample.seen, has_holes(sample.masked), known)


@compiled
def nearness(square, many):
    """The similarity of two vectors from the square of their difference over so many values; 0 over none."""
    return 1.0 / (1.0 + np.sqrt(square / many)) if many else 0.0


@inlined
def similarity(sample, own, j, measure):
    """s of a sample and neuron j of a node; minus infinity of a free place."""
    centre = measure.centre
    if own.m2[j] < 0:
        return -np.inf
    if measure.euclidean is not None:
        square, many = distant(sample, own.m[j], part(own.known, j))
        return nearness(square, many)
    if has_holes(sample.masked):
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


@compiled
def largest(upper, G):
    """As `highest`, whatever the signs."""
    at, top = 0, np.float32(-np.inf)
    for j in range(G):
        if upper[j] > top:
            at, top = j, upper[j]
    return at


@inlined
def decide(sample, own, G, slack, measure, scratch):
    """The winning neuron of a node and its similarity.

    scratch.upper[j] + slack is an upper bound of what a first look gives. Those that reach the best value so far are
    evaluated, the most promising first.
    """
    if sample.xx == 0 and not has_holes(sample.masked) and measure.euclidean is None:
        winner, s = featureless(own.m2, G, measure.centre)
        scratch.left[0], scratch.done[0] = s, 0
        return winner, s
    upper, index, value, left, evaluated = scratch
    first = largest(upper, G) if measure.euclidean is not None else highest(upper, G)
    best = similarity(sample, own, first, measure)
    reached = reach(best, sample, slack, measure)
    bar = np.float32(reached)
    left[0] = np.nextafter(best - TIE, -np.inf)
    index[0], value[0], done = first, best, 1
    evaluated[0] = done
    if upper[first] >= bar and reaching(upper, G, bar) == 1:
        return first, best
    n = contenders(upper, G, reached, first, index)
    while True:
        j, n = next_best(upper, index, done, n, reached)
        if done == n:
            break
        value[done] = similarity(sample, own, j, measure)
        if value[done] > best:
            best = value[done]
            reached = reach(best, sample, slack, measure)
        done += 1
    winner, s = first, value[0]
    for i in range(1, done):
        if value[i] >= best - TIE and (s < best - TIE or index[i] < winner):
            winner, s = index[i], value[i]
    left[0], evaluated[0] = np.nextafter(best - TIE, -np.inf), done
    for i in range(done):
        if index[i] != winner:
            left[0] = max(left[0], value[i])
    return winner, s


@compiled
def featureless(m2, G, centre):
    """As `decide`, for a sample without length: it is like a neuron without length, and unlike all others."""
    living = -1
    for j in range(G):
        if m2[j] == 0:
            return j, 1.0
        if living < 0 and m2[j] > 0:
            living = j
    return (living, centre + (1 - centre) * 0.0) if living >= 0 else (0, -np.inf)


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
def tighten(y, sample, own, G, slack, measure, scratch):
    """Tight upper bounds, by whole products in float32, for the neurons that may be best; returns how many.

    scratch.upper[j] + slack is an upper bound before and after; y is the sample less the centre. Float32 touches half
    the bytes of float64, and most of the neurons that the coarse view could not tell apart need no more than this.
    """
    upper, index = scratch.upper, scratch.index
    length = np.sqrt(sample.xx)
    error = product(y.shape[0])
    if length < BRIEF and measure.euclidean is None:
        return G  # all of them may be
    j, n, done, reached = largest(upper, G) if measure.euclidean is not None else highest(upper, G), 1, 0, -np.inf
    while done < n:
        if upper[j] > -np.inf and not (measure.euclidean is not None and own.inv[j] == np.inf):
            near = np.float64(inner_single(y, own.m[j], measure.centre))
            if measure.euclidean is not None:
                near -= own.m2[j] / 2
                off = half_square(error, length, own.m2[j])
            else:
                near *= np.float64(own.inv[j])
                off = error * length
            upper[j] = near + off - slack
            reached = max(reached, near - off - slack)
        done += 1
        if done == 1:
            n = contenders(upper, G, reached, j, index)
        j, n = next_best(upper, index, done, n, reached)
    return done


@inlined
def reach(best, sample, slack, measure):
    """What an upper bound must reach for its neuron to be as good as the best so far; for short samples, nothing.

    By differences, the square of one that is as good is less than that of 1 / (1 + rms) = best - TIE; what float32
    rounds of the result is spared.
    """
    if measure.euclidean is not None:
        if best <= 2 * TIE:
            return -np.inf
        most = (1 / (best - TIE) - 1) ** 2 * sample.many
        return (sample.xx - most) / 2 - rounded(sample.xx, most) - slack
    length = np.sqrt(sample.xx)
    if best > measure.centre and length >= BRIEF:
        return (best - measure.centre) / (1 - measure.centre) * length - slack
    return -np.inf
