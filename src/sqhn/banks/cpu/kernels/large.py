"""Nodes with many values: matrix products for a whole chunk, corrected as neurons change."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core.types import NoneType
from numba.extending import overload

from sqhn.banks import bounds
from sqhn.banks.bounds import BRIEF
from sqhn.banks.cpu.compiled import compiled, fused, inlined
from sqhn.banks.cpu.kernels.decision import (
    NOBODY,
    NOTHING,
    Measure,
    Prototypes,
    Sample,
    decide,
    half_square,
    has_holes,
    highest,
    largest,
    of_node,
    part,
    reach,
    reaching,
    scratch,
    shift,
    shift_observed,
    similarity,
    squared,
    tighten,
)
from sqhn.banks.cpu.kernels.neurons import Kept, Times, written_to
from sqhn.banks.cpu.kernels.prototypes import strength, write
from sqhn.banks.rule import GREW, SKIPPED, Rules
from sqhn.level import TIE

STALE = 64  # updates after which the features of a neuron are computed anew
TRIAL = 16  # samples of a question after which the coarse view is judged
UNSEEN = -1

outside = compiled(bounds.outside)
drifted = compiled(bounds.drift)


class Features(NamedTuple):
    """What the neurons of a level, or of a node, look like in the coarse view.

    features (nodes, room, view), their squared lengths v2, and how often a neuron moved since they were computed.
    """

    features: Any
    v2: Any
    moved: Any


class Products(NamedTuple):
    """What a first look gives: of a level, or without nodes of one.

    P (nodes, batch, room), the products of samples and neurons in the view; gram (nodes, batch, batch), those among
    samples; seen (nodes, batch, view), the samples there. error bounds the relative error of all of them. whole: the
    view is everything, and there are no features.
    """

    P: Any
    gram: Any
    seen: Any
    error: Any
    whole: Any


class Masked(NamedTuple):
    """The samples of a chunk that have holes: what was seen (nodes, batch, size), and products and squares over that.

    row (batch,): the number of a sample among these, or -1 for one that is whole; where all are, seen is any. P and
    squares (nodes, these, room) are those of the neurons as the chunk finds them, and error bounds the relative error
    of P.
    """

    seen: Any
    row: Any
    P: Any
    squares: Any
    error: Any


class Widths(NamedTuple):
    """How far a neuron's product may be wrong: `ratio` times the length of a sample outside the view, and `loose` times
    its whole length, for rounding; scale is the mean length of what a neuron was added up from. By cosines all of it is
    relative to the neuron's length. By differences `loose` has the error of the product as well, and `bias` is what
    must be taken off the product, less what that may be wrong.
    """

    ratio: Any
    loose: Any
    scale: Any
    bias: Any


@compiled
def widths(room):
    """Of `room` neurons."""
    return Widths(np.empty(room, np.float32), np.empty(room, np.float32), np.empty(room), np.empty(room, np.float32))


@inlined
def measure_widths(lo, hi, moved, own, v2, error, whole, measure, widths):
    """How far the products of neurons lo..hi may be wrong, which moved so often; infinitely, where that is infinite."""
    ratio, loose, scale, bias = widths
    root = np.sqrt(np.float64(own.m.shape[1]))
    for j in range(lo, hi):  # loops that are simple enough to be vectorized
        inv = np.float64(own.inv[j])
        if measure.euclidean is not None:
            inv = 1 / scale[j] if scale[j] > 0 else 0.0
        loose[j] = drifted(moved[j], scale[j], root, inv, measure.centre)
    for j in range(lo, hi):
        far = 0.0 if whole else outside(own.m2[j], v2[j], scale[j], error + 2 * loose[j])
        ratio[j] = far if measure.euclidean is not None else far * np.float64(own.inv[j])
    if measure.euclidean is not None:
        for j in range(lo, hi):  # `half_square`
            loose[j] = np.inf if own.inv[j] == np.inf else (loose[j] + error) * scale[j]
            bias[j] = own.m2[j] / 2 - error * scale[j] * scale[j]
    for j in range(lo, hi):
        gone, unknown = own.m2[j] < 0, moved[j] == np.inf
        loose[j] = -np.inf if gone else np.inf if unknown else loose[j]
        ratio[j] = 0 if gone or unknown else ratio[j]


@fused
def bound(p, inv, widths, yb, length, G, upper):
    """Upper bounds from products p, for a sample that is yb long outside the view, and `length` in all."""
    ratio, loose = widths.ratio, widths.loose
    for j in range(G):
        upper[j] = p[j] * inv[j] + yb * ratio[j] + length * loose[j]


@fused
def bound_differences(p, widths, yb, length, G, upper):
    """The same by differences."""
    ratio, loose, bias = widths.ratio, widths.loose, widths.bias
    for j in range(G):
        upper[j] = (p[j] - bias[j]) + yb * ratio[j] + length * loose[j]


@inlined
def look(p, y, sample, inside, own, G, spread, error, whole, measure, width, work):
    """Upper bounds for a whole sample from its products p, if `inside` is its square in the view.

    Returns how far they may be surpassed, and how many neurons may be best.
    """
    length = np.sqrt(sample.xx)
    yb = np.float32(0.0 if whole else outside(sample.xx, inside, length, error))
    slack = 0.0
    if measure.euclidean is not None:
        bound_differences(p, width, yb, np.float32(length), G, work.upper)
    else:
        bound(p, own.inv, width, yb, np.float32(length), G, work.upper)
        slack = error * length * spread
    return slack, tighten(y, sample, own, G, slack, measure, work)


@inlined
def look_masked(P, squares, error, sample, own, G, measure, upper):
    """Upper bounds for a sample with holes, from products and squares over what was seen; returns what they lack."""
    length = np.sqrt(sample.xx)
    for j in range(G):
        if measure.euclidean is not None:
            off = half_square(error, length, np.float64(squares[j]))
            upper[j] = P[j] - squares[j] / 2 + off if own.inv[j] == 1 else -np.inf if own.m2[j] < 0 else np.inf
        else:
            brief = squares[j] < np.float32(BRIEF * BRIEF)
            upper[j] = np.inf if brief else P[j] / np.sqrt(squares[j])
    return 0.0 if measure.euclidean is not None else error * length


@compiled
def learn(lo, hi, x, holes, products, sight, prototypes, kept, rules, times, measure, sent, evaluated):
    """A chunk of online steps at nodes lo..hi; evaluated (nodes,): how many neurons a first look could not rule out.

    A step moves one neuron, so it changes one column of the products, by a combination of what is already known. One
    that a sample with holes has moved is evaluated anew until the chunk ends, and to such samples all that have moved.
    """
    prototypes, kept, rules, times = Prototypes(*prototypes), Kept(*kept), Rules(*rules), Times(*times)
    measure = Measure(*measure)
    P, gram, seen, error, whole = products
    sight = Features(*sight)
    k, v, a, kind = sent
    room, d = prototypes.m.shape[1], prototypes.m.shape[2]
    y, work, width, moved = np.empty(d, np.float32), scratch(room), widths(room), np.empty(room)
    touched = np.zeros(room, np.bool_)
    for n in range(lo, hi):
        own, features = of_node(prototypes, n), sight.features[n]
        v2, known_moves = sight.v2[n], sight.moved[n]
        spread = 1.0  # the largest scale[j] / |u_j|: how far averaging has cancelled
        touched[:] = False
        for j in range(kept.grown[n]):
            width.scale[j] = np.sqrt(max(own.m2[j], 0.0))
            moved[j] = 0 if whole else known_moves[j]
        measure_widths(0, kept.grown[n], moved, own, v2, error, whole, measure, width)
        for t in range(x.shape[1]):
            G = kept.grown[n]
            sample = see(x[n, t], holes, n, t, measure, y)
            masked = has_holes(sample.masked)
            if sample.many == 0:
                k[n, t], v[n, t], a[n, t], kind[n, t] = 0, 0.0, 0.0, SKIPPED
                continue
            j, s = -1, -np.inf
            if G and masked:
                slack = look_anew(holes, n, t, sample, own, G, measure, touched, work.upper)
                j, s = decide(sample, own, G, slack, measure, work)
            elif G:
                inside = np.float64(gram[n, t, t])
                slack, many = look(P[n, t], y, sample, inside, own, G, spread, error, whole, measure, width, work)
                evaluated[n] += many
                j, s = decide(sample, own, G, slack, measure, work)
            j, what = written_to(j, s, times.eps[t], n, G, kept, rules)
            new = what >= GREW
            if what != SKIPPED:
                write(n, j, new, s, sample, times.first + t, own, kept, rules, measure)
                touched[j] = True
                length, often = np.sqrt(sample.xx), how_often(part(own.known, j), kept.c[n, j])
                step = 1.0 / often if often else 1.0
                if masked:
                    moved[j] = np.inf
                    width.scale[j] = np.sqrt(own.m2[j])
                else:
                    width.scale[j] = length if new else (1 - step) * width.scale[j] + step * length
                    moved[j] = 0 if new else moved[j] + 1
                    correct(P[n], gram[n, t], t, j, np.float32(step))
                    if not evenly(part(own.known, j)):
                        moved[j] = np.inf
                if whole or moved[j] == np.inf:
                    known_moves[j] = STALE
                else:
                    follow(features[j], seen[n, t], np.float32(step))
                    v2[j] = squared(features[j], 0.0)
                    known_moves[j] = moved[j]
                measure_widths(j, j + 1, moved, own, v2, error, whole, measure, width)
                if moved[j] < np.inf and measure.euclidean is None:
                    spread = max(spread, width.scale[j] * own.inv[j])
            k[n, t], a[n, t], kind[n, t] = j, s, what
            v[n, t] = strength(sample, own, j, new, s, measure, rules)
    if lo == 0:
        kept.steps[0] += x.shape[1]


@inlined
def whole_sample(x, holes, n, t, measure, y):
    """See `see`."""
    return Sample(x, shift(x, measure.centre, y), NOTHING, None, x.shape[0])


@inlined
def any_sample(x, holes, n, t, measure, y):
    """See `see`."""
    seen, row, _, _, _ = holes
    mask = seen[n, t] if row[t] >= 0 else seen[0, 0]
    if row[t] < 0 or mask.all():
        return Sample(x, shift(x, measure.centre, y), mask, False, x.shape[0])
    return Sample(x, shift_observed(x, mask, measure.centre, y), mask, True, mask.sum())


def see(x, holes, n, t, measure, y):
    """A sample as it was seen, and less the centre in y."""
    return (whole_sample if holes is None else any_sample)(x, holes, n, t, measure, y)


@overload(see, jit_options={"forceinline": True})
def _see(x, holes, n, t, measure, y):
    """By the type, so that kernels are compiled for the one or the other."""
    if isinstance(holes, NoneType):
        return lambda x, holes, n, t, measure, y: whole_sample(x, holes, n, t, measure, y)
    return lambda x, holes, n, t, measure, y: any_sample(x, holes, n, t, measure, y)


@inlined
def look_anew(holes, n, t, sample, own, G, measure, touched, upper):
    """Upper bounds for a sample with holes: none for neurons that were touched in this chunk."""
    if holes is None:
        return 0.0
    _, row, P, squares, error = holes
    slack = look_masked(P[n, row[t]], squares[n, row[t]], error, sample, own, G, measure, upper)
    for i in range(G):
        if touched[i]:
            upper[i] = np.inf
    return slack


@inlined
def how_often(known, c):
    """How often a neuron was averaged, as far as its first value tells."""
    return c if known is None else np.int64(known[0])


@inlined
def evenly(known):
    """Whether all values of a neuron were seen equally often, so that it moves as a whole."""
    return True if known is None else same(known)


@compiled
def same(known):
    """Whether all numbers are the first."""
    others = 0
    for i in range(known.shape[0]):
        others += known[i] != known[0]
    return others == 0


@compiled
def correct(P, gram, t, j, step):
    """The products of the samples after t with neuron j, once sample t has moved it by `step`."""
    if step == 1:
        for s in range(t + 1, P.shape[0]):
            P[s, j] = gram[s]
    else:
        for s in range(t + 1, P.shape[0]):
            P[s, j] += step * (gram[s] - P[s, j])


@compiled
def follow(features, seen, step):
    """The features of a neuron that a sample has moved by `step`."""
    if step == 1:
        features[:] = seen
    else:
        for i in range(seen.shape[0]):
            features[i] += step * (seen[i] - features[i])


@inlined
def widths_at_rest(own, sight, G, error, whole, measure):
    """How far the products of G neurons may be wrong that do not change meanwhile."""
    width, moved = widths(G), np.empty(G)
    for j in range(G):
        width.scale[j] = np.sqrt(max(own.m2[j], 0.0))
        moved[j] = 0 if whole else sight.moved[j]
    measure_widths(0, G, moved, own, sight.v2, error, whole, measure, width)
    return width


@inlined
def ready(x, products, sight, own, G, measure):
    """What a question about G neurons needs, which do not change meanwhile: scratch, and how far products are wrong."""
    own, measure = Prototypes(*own), Measure(*measure)
    width = widths_at_rest(own, Features(*sight), G, products[3], products[4], measure)
    return own, measure, np.empty(x.shape[1], np.float32), scratch(G), width


@compiled
def best(lo, hi, x, products, sight, own, G, measure, most, bar, k, v, left, second, evaluated):
    """The winner and its similarity at one node for samples lo..hi, and what no other neuron is above.

    bar: a similarity for each sample, if any: where no neuron can be as good, the winner is NOBODY, at minus infinity.
    second: another that is good, and its similarity, if one was evaluated (else as it was); then `left` is of the rest.
    Where the first few leave more than `most` neurons each to be evaluated, the rest is left UNSEEN.
    """
    own, measure, y, work, width = ready(x, products, sight, own, G, measure)
    P, _, seen, error, whole = products
    many = 0
    for t in range(lo, hi):
        if t - lo == TRIAL and many > most * TRIAL:
            evaluated[t:hi] = UNSEEN
            break
        sample = Sample(x[t], shift(x[t], measure.centre, y), NOTHING, None, x.shape[1])
        inside = 0.0 if whole else squared(seen[t], 0.0)
        if len(bar) and measure.euclidean is None and np.sqrt(sample.xx) >= BRIEF:
            slack = glimpse(P[t], sample, inside, own, G, error, whole, width, work)
            above = at_most(work.upper, G, sample.xx, slack, measure.centre)
            if above < bar[t] - TIE:
                k[t], v[t], left[t], evaluated[t] = NOBODY, -np.inf, above, 0
                continue
            evaluated[t] = tighten(y, sample, own, G, slack, measure, work)
        else:
            slack, evaluated[t] = look(P[t], y, sample, inside, own, G, 1.0, error, whole, measure, width, work)
        many += evaluated[t]
        k[t], v[t] = decide(sample, own, G, slack, measure, work)
        left[t] = work.left[0]
        if measure.euclidean is None and reach(v[t], sample, slack, measure) > -np.inf:
            others, best = rest(t, k[t], v[t], second, work)
            unknown = np.nextafter(best - TIE, -np.inf)
            left[t] = max(others, min(unknown, at_most(work.upper, G, sample.xx, slack, measure.centre)))


@compiled
def rest(t, winner, v, second, work):
    """The best of those that were evaluated less the winner, and less a `second` if anybody wants one; and of all.

    They are out of the upper bounds then.
    """
    top, next_top, at = -np.inf, -np.inf, -1
    for i in range(work.done[0]):
        j, value = work.index[i], work.value[i]
        work.upper[j] = -np.inf
        if j != winner and value > top:
            top, next_top, at = value, top, j
        elif j != winner:
            next_top = max(next_top, value)
    others, others_v = second
    if len(others) and at >= 0:
        others[t], others_v[t] = at, top
        return next_top, max(v, top)
    return top, max(v, top)


@inlined
def glimpse(p, sample, inside, own, G, error, whole, width, work):
    """Upper bounds for a whole sample, by cosines, before any neuron is looked at; returns what they lack."""
    length = np.sqrt(sample.xx)
    yb = np.float32(0.0 if whole else outside(sample.xx, inside, length, error))
    bound(p, own.inv, width, yb, np.float32(length), G, work.upper)
    return error * length


@compiled
def glance(lo, hi, x, products, sight, own, G, measure, k, v, left):
    """As `best`, but of each sample only the neuron that looks best is evaluated: others may have up to `left`."""
    own, measure, y, work, width = ready(x, products, sight, own, G, measure)
    P, _, seen, error, whole = products
    for t in range(lo, hi):
        sample = Sample(x[t], shift(x[t], measure.centre, y), NOTHING, None, x.shape[1])
        inside = 0.0 if whole else squared(seen[t], 0.0)
        slack = glimpse(P[t], sample, inside, own, G, error, whole, width, work)
        k[t] = highest(work.upper, G)
        v[t] = similarity(sample, own, k[t], measure)
        work.upper[k[t]] = -np.inf
        left[t] = np.inf
        if np.sqrt(sample.xx) >= BRIEF:
            left[t] = at_most(work.upper, G, sample.xx, slack, measure.centre)


@compiled
def at_most(upper, G, xx, slack, centre):
    """What no similarity is above, from upper bounds; more by what float32 may round in a sum of three terms.

    Where one of them is no number, or infinite, nothing is known.
    """
    if reaching(upper, G, np.float32(np.inf)):
        return np.inf
    top = np.float64(upper[highest(upper, G)])
    if top <= 0:  # then it need not be the highest
        top = np.float64(upper[largest(upper, G)])
    return centre + (1 - centre) * (max(top + slack, 0.0) / np.sqrt(xx) + 1e-6)


@compiled
def several(lo, hi, x, products, sight, own, G, measure, k, v, left, found):
    """As many of the best as k (batch, count) has room for: the winner, then that of the rest, and so on.

    left: what no other neuron is above. found: whether bounds could tell; they cannot where all neurons must be looked
    at, those that are out already too.
    """
    own, measure, y, work, width = ready(x, products, sight, own, G, measure)
    P, _, seen, error, whole = products
    for t in range(lo, hi):
        sample = Sample(x[t], shift(x[t], measure.centre, y), NOTHING, None, x.shape[1])
        inside = 0.0 if whole else squared(seen[t], 0.0)
        slack, _ = look(P[t], y, sample, inside, own, G, 1.0, error, whole, measure, width, work)
        found[t] = sample.xx > 0
        for i in range(k.shape[1]):
            if i:
                work.upper[k[t, i - 1]] = -np.inf
                tighten(y, sample, own, G, slack, measure, work)
            k[t, i], v[t, i] = decide(sample, own, G, slack, measure, work)
            out = i and k[t, i] in k[t, :i]
            if out or reach(v[t, i], sample, slack, measure) == -np.inf:
                found[t] = False
                break
        left[t] = work.left[0]


@compiled
def best_observed(lo, hi, x, seen, P, squares, error, own, G, measure, nobody, k, v, left):
    """As `best`, with missing values: products P and squared lengths (batch, G) run over observed ones.

    nobody: who wins where nothing was observed.
    """
    own, measure = Prototypes(*own), Measure(*measure)
    y, work = np.empty(x.shape[1], np.float32), scratch(G)
    for t in range(lo, hi):
        if not seen[t].any():
            k[t], v[t], left[t] = nobody, 0.0, 0.0
            continue
        masked = not seen[t].all()
        xx = shift_observed(x[t], seen[t], measure.centre, y) if masked else shift(x[t], measure.centre, y)
        sample = Sample(x[t], xx, seen[t], masked, seen[t].sum())
        slack = look_masked(P[t], squares[t], error, sample, own, G, measure, work.upper)
        k[t], v[t] = decide(sample, own, G, slack, measure, work)
        left[t] = work.left[0]
