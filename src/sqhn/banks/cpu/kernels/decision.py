"""The two-step decision of a pattern bank: cheap products rule neurons out, float64 decides (`bounds`).

A first look gives every neuron an upper bound: of its cosine times the length of the sample; or, by differences, of its
product with the sample less half its own square, since |x - m|^2 = |x|^2 - 2 (<x, m> - |m|^2 / 2). The neurons whose
upper bound reaches the best value found so far are the candidates, and they are evaluated in float64 from the stored
vectors. So a decision depends on nothing but those.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import bounds
from sqhn.banks.bounds import SHORT
from sqhn.banks.cpu.compiled import compiled, inlined, summing
from sqhn.banks.cpu.kernels.rows import prototype
from sqhn.level import TIE

NONE = -1
"""In the place of a neuron."""
SCANNED = 128
"""Neurons that are compared at once in a search."""
SORTED = 8
"""Candidates that are taken in the order of their upper bounds; the others come as they are."""
ALWAYS, NEVER = np.inf, -np.inf
"""In the place of an upper bound: of a neuron that is always a candidate, and of one that never is."""

product, half_square, rounded = compiled(bounds.product), compiled(bounds.half_square), compiled(bounds.rounded)


class Measure(NamedTuple):
    """How a sample and a prototype are compared: by the cosine of both less the centre, or by their difference."""

    centre: Any
    euclidean: Any


class Prototypes(NamedTuple):
    """The neurons of one node: their prototypes, and what is derived from them.

    m, raw, place, owner, used: `sqhn.banks.rows`; decoded: scratch for a prototype that is bytes, if there are such.
    square: of their lengths, less the centre, in float64. inverse: of their lengths, in float32; 0 where a vector has
    none or is short; 1 by differences. candidate: what is added to upper bounds: nothing, or ALWAYS, where float32
    products cannot be trusted (short vectors; by differences, values that are not known), or NEVER (free slots).
    known: how often each value was seen, if samples with missing values were learned; else it has no values.
    """

    m: Any
    raw: Any
    place: Any
    owner: Any
    used: Any
    square: Any
    inverse: Any
    candidate: Any
    known: Any
    decoded: Any


class Sample(NamedTuple):
    """A sample at a node, its squared length less the centre, which of its values were seen, and how many.

    seen: has no values where all values of all samples were.
    """

    x: Any
    square: Any
    seen: Any
    many: Any


class Scratch(NamedTuple):
    """For decisions: the sample less the centre, and 0 up to a multiple of 4; and one entry per neuron.

    upper, bits: upper bounds, and the same memory as integers. index, value: the neurons that were evaluated, and their
    similarities. decoded: for `Prototypes`.
    """

    y: Any
    upper: Any
    bits: Any
    index: Any
    value: Any
    decoded: Any


def scratch(size: int, room: int, decoded: NDArray[np.float32]) -> tuple[Any, ...]:
    """For samples of this size and `room` neurons."""
    upper = np.empty(room, np.float32)
    y = np.zeros(size + -size % 4, np.float32)
    return y, upper, upper.view(np.int32), np.empty(room, np.int64), np.empty(room), decoded


def as_mask(x: Any, seen: Any) -> Any:
    """Which values of samples (nodes, batch, size) were seen; no values where all were."""
    return np.empty((*x.shape[:2], 0), bool) if seen is None else seen


@compiled
def of_node(prototypes, n, decoded):
    """The neurons of one node, from arrays of all nodes; decoded: scratch."""
    m, raw, place, owner, used, square, inverse, candidate, known = prototypes
    return Prototypes(
        m[n], raw[n], place[n], owner[n], used[n : n + 1], square[n], inverse[n], candidate[n], known[n], decoded
    )


@compiled
def is_seen(seen, i):
    """Whether a value was seen; all were, where there is no mask."""
    return seen.shape[0] == 0 or seen[i]


@compiled
def has_holes(sample):
    """Whether values of a sample were not seen."""
    return sample.many < sample.x.shape[0]


@compiled
def regard(x, seen, centre):
    """A sample as it was seen."""
    many = x.shape[0]
    for i in range(seen.shape[0]):
        many -= not seen[i]
    square = squared(x, centre) if many == x.shape[0] else observed(x, x, seen, centre)[1]
    return Sample(x, square, seen, many)


@compiled
def shift(sample, centre, y):
    """y = x - centre in float32, for products; 0 where nothing was seen."""
    for i in range(sample.x.shape[0]):
        y[i] = sample.x[i] - np.float32(centre)
    if has_holes(sample):
        for i in range(sample.x.shape[0]):
            y[i] = y[i] if sample.seen[i] else np.float32(0)


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
    for i in range(m.shape[0]):
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
def observed_difference(x, m, seen, known):
    """|x - m|^2 over the values that were observed and are known, and how many these are."""
    total, many = 0.0, 0
    for i in range(x.shape[0]):
        there = is_seen(seen, i) and (known.shape[0] == 0 or known[i] > 0)
        d = (np.float64(x[i]) - np.float64(m[i])) * np.float64(there)
        total += d * d
        many += np.int64(there)
    return total, many


@compiled
def nearness(square, many):
    """The similarity of two vectors from the square of their difference over so many values; 0 over none."""
    return 1.0 / (1.0 + np.sqrt(square / many)) if many else 0.0


@compiled
def cosine(xm, xx, mm):
    """From a product and squared lengths: 1 if both have no length, 0 if one has none."""
    if xx > 0 and mm > 0:
        return xm / (np.sqrt(xx) * np.sqrt(mm))
    return 1.0 if xx == mm else 0.0


@compiled
def similarity(sample, own, j, measure):
    """The similarity of a sample and neuron j of a node; minus infinity of a free slot."""
    x, centre = sample.x, measure.centre
    if own.candidate[j] == NEVER:
        return -np.inf
    m = prototype(own, j)
    if measure.euclidean:
        if own.known.shape[1] or has_holes(sample):
            square, many = observed_difference(x, m, sample.seen, own.known[j])
        else:
            square, many = difference(x, m), x.shape[0]
        return nearness(square, many)
    if has_holes(sample):
        xm, mm = observed(x, m, sample.seen, centre)
    else:
        xm, mm = inner(x, m, centre), own.square[j]
    return centre + (1 - centre) * cosine(xm, sample.square, mm)


# -- which neurons may be best ---------------------------------------------------------------------------------------


@compiled
def ordered(bits):
    """An integer for the bits of a float32, ordered as floats are: those of negative ones are turned around."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & np.int32(2**31 - 1)))


@compiled
def highest(bits, G):
    """The neuron with the highest upper bound. Compilers know how to vectorize a maximum of integers."""
    top, at = np.int32(-(2**31)), 0
    for b in range(0, G, SCANNED):
        block = bits[b : min(b + SCANNED, G)]
        local = np.int32(-(2**31))
        for j in range(block.shape[0]):
            local = max(local, ordered(block[j]))
        if local > top:
            top, at = local, b
    block = bits[at : min(at + SCANNED, G)]
    for j in range(block.shape[0]):
        if ordered(block[j]) == top:
            return at + j
    return at


@compiled
def reaching(upper, bar):
    """How many upper bounds reach the bar; NaN counts as reaching it."""
    many = np.int32(0)
    for j in range(upper.shape[0]):
        many += np.int32(not (upper[j] < bar))
    return many


@compiled
def candidates(upper, G, reached, but, index, n):
    """The neurons but one whose upper bound reaches a value, into index[n:]; returns how many the index has then."""
    for b in range(0, G, SCANNED):
        stop = min(b + SCANNED, G)
        if reaching(upper[b:stop], np.float32(reached)):
            for j in range(b, stop):
                if not (upper[j] < reached) and upper[j] != NEVER and j != but:
                    index[n] = j
                    n += 1
    return n


@compiled
def next_best(upper, index, start, done, n, reached):
    """The next of the candidates index[done:n] that reaches a value, and n less those that do not.

    The first few after `start` are taken by their upper bounds, so that the bar rises fast.
    """
    if done - start <= SORTED:
        at = done
        for i in range(done + 1, n):
            if upper[index[i]] > upper[index[at]]:
                at = i
        if done < n:
            index[at], index[done] = index[done], index[at]
    while done < n and upper[index[done]] < reached:
        n -= 1
        index[done] = index[n]
    return (index[done] if done < n else NONE), n


@compiled
def reach(best, sample, measure):
    """The upper bound that a neuron must have to be as good as the best so far; any will do for short samples.

    By differences, the square of one that is as good is less than that of 1 / (1 + rms) = best - TIE, and the error of
    rounding the result to float32 is taken off.
    """
    if measure.euclidean:
        if best <= 2 * TIE:
            return -np.inf
        most = (1 / (best - TIE) - 1) ** 2 * sample.many
        return (sample.square - most) / 2 - rounded(sample.square, most)
    length = np.sqrt(sample.square)
    if length < SHORT:
        return -np.inf
    return (best - TIE - measure.centre) / (1 - measure.centre) * length


@inlined
def tighten(sample, own, G, measure, scratch, done):
    """Tight upper bounds, by whole products in float32, for the neurons that may be best; returns how many.

    `done` neurons were evaluated before. Float32 reads half the bytes of float64, and
    most neurons that a projection could not tell apart need no more than this.
    """
    upper, index, start, reached = scratch.upper, scratch.index, done, -np.inf
    length, error = np.sqrt(sample.square), product(own.m.shape[1])
    if length < SHORT and not measure.euclidean:
        return G  # all of them may be
    j, n = highest(scratch.bits, G), done + 1
    while done < n:
        if own.candidate[j] == 0 and upper[j] != NEVER:
            near = np.float64(inner_single(scratch.y, prototype(own, j), measure.centre)) * own.inverse[j]
            off = error * length
            if measure.euclidean:
                near -= own.square[j] / 2
                off = half_square(error, length, own.square[j])
            upper[j] = near + off
            reached = max(reached, near - off)
        done += 1
        if done == start + 1:
            n = candidates(upper, G, reached, j, index, done)
        j, n = next_best(upper, index, start, done, n, reached)
    return done - start


@inlined
def evaluate(sample, own, G, measure, scratch, done):
    """Evaluate neurons until no other one can be as good as the best of them; returns how many were evaluated.

    They are index[:done] of the scratch with their similarities in value[:done], and never candidates any more. `done`
    of them were evaluated before.
    """
    upper, index, value = scratch.upper, scratch.index, scratch.value
    best = -np.inf
    for i in range(done):
        best = max(best, value[i])
    if best == -np.inf:
        j = highest(scratch.bits, G)
        best = similarity(sample, own, j, measure)
        index[done], value[done], upper[j] = j, best, NEVER
        done += 1
    reached, start = reach(best, sample, measure), done
    n = candidates(upper, G, reached, np.int64(NONE), index, done)
    while True:
        j, n = next_best(upper, index, start, done, n, reached)
        if done == n:
            return done
        value[done], upper[j] = similarity(sample, own, j, measure), NEVER
        if value[done] > best:
            best = value[done]
            reached = reach(best, sample, measure)
        done += 1


@compiled
def winner(index, value, done):
    """Where the first of the best is among the neurons that were evaluated."""
    best, at = value[0], NONE
    for i in range(1, done):
        best = max(best, value[i])
    for i in range(done):
        if value[i] >= best - TIE and (at == NONE or index[i] < index[at]):
            at = i
    return at


@inlined
def decide(sample, own, G, measure, scratch):
    """The winner of a node and its similarity, from the upper bounds that a first look left in the scratch."""
    if has_no_length(sample, measure):
        return featureless(own.square, own.candidate, G, measure.centre)
    i = winner(scratch.index, scratch.value, evaluate(sample, own, G, measure, scratch, np.int64(0)))
    return scratch.index[i], scratch.value[i]


@compiled
def has_no_length(sample, measure):
    """Whether a sample has no length, where lengths matter."""
    return sample.square == 0 and not has_holes(sample) and not measure.euclidean


@compiled
def featureless(square, candidate, G, centre):
    """As `decide`, for a sample without length: it is like a neuron without length, and unlike all others."""
    living = NONE
    for j in range(G):
        if candidate[j] != NEVER:
            if square[j] == 0:
                return j, 1.0
            if living == NONE:
                living = j
    return (living, centre + (1 - centre) * 0.0) if living != NONE else (0, -np.inf)
