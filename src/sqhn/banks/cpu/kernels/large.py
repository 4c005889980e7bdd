"""Nodes with many values: matrix products for a whole chunk, corrected as neurons change."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks import bounds
from sqhn.banks.bounds import BRIEF
from sqhn.banks.cpu.compiled import compiled, fused, inlined
from sqhn.banks.cpu.kernels.decision import (
    NOTHING,
    Prototypes,
    Sample,
    decide,
    of_node,
    scratch,
    shift,
    shift_observed,
    squared,
    tighten,
)
from sqhn.banks.cpu.kernels.neurons import Kept, Times, written_to
from sqhn.banks.cpu.kernels.prototypes import strength, write
from sqhn.banks.rule import BECAME, KEPT, Rules

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


class Widths(NamedTuple):
    """How far a neuron's product may be wrong: `ratio` times the length of a sample outside the view, and `loose` times
    its whole length, for rounding; scale is the mean length of what a neuron was added up from.
    """

    ratio: Any
    loose: Any
    scale: Any


@compiled
def widths(room):
    """Of `room` neurons."""
    return Widths(np.empty(room, np.float32), np.empty(room, np.float32), np.empty(room))


@inlined
def measure(lo, hi, moved, own, v2, error, whole, centre, widths):
    """How far the products of neurons lo..hi may be wrong, which moved so often."""
    ratio, loose, scale = widths
    _, m2, inv = own
    root = np.sqrt(np.float64(own.m.shape[1]))
    for j in range(lo, hi):
        loose[j] = drifted(moved[j], scale[j], root, inv[j], centre)
    for j in range(lo, hi):
        ratio[j] = 0 if whole else outside(m2[j], v2[j], scale[j], error + 2 * loose[j]) * inv[j]


@fused
def bound(p, inv, widths, yb, length, G, upper):
    """Upper bounds from products p, for a sample that is yb long outside the view, and `length` in all."""
    ratio, loose, _ = widths
    for j in range(G):
        upper[j] = p[j] * inv[j] + yb * ratio[j] + length * loose[j]


@compiled
def learn(lo, hi, x, products, look, prototypes, kept, rules, times, centre, sent, evaluated):
    """A chunk of online steps at nodes lo..hi; evaluated (nodes,): how many neurons a first look could not rule out.

    A step moves one neuron, so it changes one column of the products, by a combination of what is already known.
    """
    prototypes, kept, rules, times = Prototypes(*prototypes), Kept(*kept), Rules(*rules), Times(*times)
    P, gram, seen, error, whole = products
    look = Features(*look)
    k, v, a, kind = sent
    room, d = prototypes.m.shape[1], prototypes.m.shape[2]
    y, work, width, moved = np.empty(d, np.float32), scratch(room), widths(room), np.empty(room)
    for n in range(lo, hi):
        own, sight = of_node(prototypes, n), Features(look.features[n], look.v2[n], look.moved[n])
        spread = 1.0  # the largest scale[j] / |u_j|: how far averaging has cancelled
        for j in range(kept.grown[n]):
            width.scale[j] = np.sqrt(own.m2[j])
            moved[j] = 0 if whole else sight.moved[j]
        measure(0, kept.grown[n], moved, own, sight.v2, error, whole, centre, width)
        for t in range(x.shape[1]):
            G = kept.grown[n]
            sample = Sample(x[n, t], shift(x[n, t], centre, y), NOTHING, False)
            length = np.sqrt(sample.xx)
            j, s = -1, -np.inf
            if G:
                yb = 0.0 if whole else outside(sample.xx, np.float64(gram[n, t, t]), length, error)
                bound(P[n, t], own.inv, width, np.float32(yb), np.float32(length), G, work.upper)
                slack = error * length * spread
                evaluated[n] += tighten(y, length, own, G, slack, centre, work)
                j, s = decide(sample, own, G, slack, centre, work)
            j, what = written_to(j, s, times.eps[t], n, G, kept, rules)
            new = what == BECAME
            if what != KEPT:
                write(n, j, new, s, sample.x, times.first + t, prototypes, kept, rules, centre)
                step = 1.0 if new else 1.0 / kept.c[n, j]
                width.scale[j] = length if new else (1 - step) * width.scale[j] + step * length
                moved[j] = 0 if new else moved[j] + 1
                correct(P[n], gram[n, t], t, j, np.float32(step))
                if whole:
                    sight.moved[j] = STALE
                else:
                    follow(sight.features[j], seen[n, t], np.float32(step))
                    sight.v2[j] = squared(sight.features[j], 0.0)
                    sight.moved[j] = moved[j]
                measure(j, j + 1, moved, own, sight.v2, error, whole, centre, width)
                spread = max(spread, width.scale[j] * own.inv[j])
            k[n, t], a[n, t], kind[n, t] = j, s, what
            v[n, t] = strength(sample, own, j, new, s, centre, rules)
    if lo == 0:
        kept.steps[0] += x.shape[1]


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


@compiled
def best(lo, hi, x, products, look, own, G, centre, most, k, v, evaluated):
    """The winner and its similarity at one node for samples lo..hi.

    Where the first few leave more than `most` neurons each to be evaluated, the rest is left UNSEEN.
    """
    own, look = Prototypes(*own), Features(*look)
    P, _, seen, error, whole = products
    y, work, width, moved = np.empty(x.shape[1], np.float32), scratch(G), widths(G), np.empty(G)
    for j in range(G):
        width.scale[j] = np.sqrt(own.m2[j])
        moved[j] = 0 if whole else look.moved[j]
    measure(0, G, moved, own, look.v2, error, whole, centre, width)
    many = 0
    for t in range(lo, hi):
        if t - lo == TRIAL and many > most * TRIAL:
            evaluated[t:hi] = UNSEEN
            break
        sample = Sample(x[t], shift(x[t], centre, y), NOTHING, False)
        length = np.sqrt(sample.xx)
        yb = 0.0 if whole else outside(sample.xx, squared(seen[t], 0.0), length, error)
        bound(P[t], own.inv, width, np.float32(yb), np.float32(length), G, work.upper)
        evaluated[t] = tighten(y, length, own, G, error * length, centre, work)
        many += evaluated[t]
        k[t], v[t] = decide(sample, own, G, error * length, centre, work)


@compiled
def best_observed(lo, hi, x, seen, P, squares, error, own, G, centre, k, v):
    """As `best`, with missing values: products P and squared lengths (batch, G) run over observed ones."""
    own = Prototypes(*own)
    y, work = np.empty(x.shape[1], np.float32), scratch(G)
    for t in range(lo, hi):
        if not seen[t].any():
            k[t], v[t] = 0, 0.0
            continue
        xx = shift_observed(x[t], seen[t], centre, y)
        for j in range(G):
            brief = squares[t, j] < np.float32(BRIEF * BRIEF)
            work.upper[j] = np.inf if brief else P[t, j] / np.sqrt(squares[t, j])
        k[t], v[t] = decide(Sample(x[t], xx, seen[t], True), own, G, error * np.sqrt(xx), centre, work)
