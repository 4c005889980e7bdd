"""The two loops over samples at the nodes of a pattern bank: learning, and questions for the best neurons.

A first look gives upper bounds, and those decide what is evaluated. How to look is chosen by type, and the loops are
compiled for each kind: `small` compares one sample after another, `large` has products of a whole chunk. A first look
has these parts:

    begin    before the samples of a node
    bound    upper bounds for the neurons of a node and a sample
    refine   tighter ones for the neurons that may be best
    follow   after a step has written a neuron
"""

from __future__ import annotations

import numpy as np
from numba.core.types import NoneType

from sqhn.banks.cpu.compiled import borrowed, by_type, compiled, inlined
from sqhn.banks.cpu.kernels import large, small
from sqhn.banks.cpu.kernels.decision import (
    NEVER,
    Measure,
    Prototypes,
    decide,
    evaluate,
    of_node,
    part,
    regard,
    scratch,
    shift,
    similarity,
    winner,
)
from sqhn.banks.cpu.kernels.neurons import Statistics, Times, written_to
from sqhn.banks.cpu.kernels.prototypes import write
from sqhn.banks.rule import GREW, SKIPPED, Rules

LOOKS = {small.Small: small, large.Large: large}

begin = by_type(lambda look, *_: LOOKS[look.instance_class].begin)
bound = by_type(lambda look, *_: LOOKS[look.instance_class].bound)
refine = by_type(lambda look, *_: LOOKS[look.instance_class].refine)
follow = by_type(lambda look, *_: LOOKS[look.instance_class].follow)


@by_type
def first_look(products, m):
    """The first look for nodes of neurons m (nodes, room, size).

    products: None, or what `large` needs, in plain tuples.
    """
    return small.first_look if isinstance(products, NoneType) else large.first_look


@compiled
def learn(lo, hi, x, seen, products, prototypes, statistics, rules, times, measure, sent):
    """A chunk of online steps at nodes lo..hi."""
    m = prototypes[0]
    room = first_look(products, m), scratch(m.shape[1]), padded(m.shape[2])
    learn_in(room, lo, hi, (x, seen, times, sent), (prototypes, statistics), rules, measure)


@inlined
def learn_in(room, lo, hi, chunk, neurons, rules, measure):
    """The same, with room for intermediate results."""
    (look, work, y), (x, seen, times, sent) = borrowed(room), borrowed(chunk)
    (k, v, a, kind), (prototypes, statistics) = sent, borrowed(neurons)
    prototypes, statistics = Prototypes(*prototypes), Statistics(*statistics)
    times, rules, measure = Times(*times), Rules(*rules), Measure(*measure)
    for n in range(lo, hi):
        own = of_node(prototypes, n)
        begin(look, n, own, statistics.grown[n], measure)
        for t in range(x.shape[1]):
            sample, G = regard(x[n, t], part(part(seen, n), t), measure.centre), statistics.grown[n]
            if sample.many == 0:
                k[n, t], v[n, t], a[n, t], kind[n, t] = 0, 0.0, 0.0, SKIPPED
                continue
            j, s = -1, -np.inf
            if G:
                shift(sample, measure.centre, y)
                bound(look, n, t, sample, y, own, G, measure, work.upper)
                refine(look, n, t, sample, y, own, G, measure, work, 0)
                j, s = decide(sample, own, G, measure, work)
            j, what = written_to(j, s, times.eps[t], n, G, statistics, rules)
            new = what >= GREW
            if what != SKIPPED:
                write(n, j, new, s, sample, times.first + t, own, statistics, rules, measure)
                follow(look, n, t, sample, j, own, statistics.c[n, j], measure)
            k[n, t], a[n, t], kind[n, t] = j, s, what
            if rules.top:
                v[n, t] = 1.0 if new else s
            else:
                v[n, t] = similarity(sample, own, j, measure)
    if lo == 0:
        statistics.steps[0] += x.shape[1]


@compiled
def best(lo, hi, x, seen, products, prototypes, grown, measure, k, v):
    """The best neurons and their similarities, k, v (nodes, batch, count); lo..hi runs over (node, sample) pairs."""
    m = prototypes[0]
    room = first_look(products, m), scratch(m.shape[1]), padded(m.shape[2])
    best_in(room, lo, hi, (x, seen, k, v), (prototypes, grown), measure)


@inlined
def best_in(room, lo, hi, question, neurons, measure):
    """The same, with room for intermediate results."""
    (look, work, y), (x, seen, k, v) = borrowed(room), borrowed(question)
    prototypes, grown = borrowed(neurons)
    prototypes, measure, batch = Prototypes(*prototypes), Measure(*measure), x.shape[1]
    for n in range(lo // batch, (hi + batch - 1) // batch):
        own, G = of_node(prototypes, n), grown[n]
        begin(look, n, own, G, measure)
        for t in range(max(lo - n * batch, 0), min(hi - n * batch, batch)):
            sample = regard(x[n, t], part(part(seen, n), t), measure.centre)
            if sample.many == 0 or G == 0:
                silent(own.candidate, G, k[n, t], v[n, t])
                continue
            shift(sample, measure.centre, y)
            bound(look, n, t, sample, y, own, G, measure, work.upper)
            refine(look, n, t, sample, y, own, G, measure, work, 0)
            if k.shape[2] == 1:
                k[n, t, 0], v[n, t, 0] = decide(sample, own, G, measure, work)
            else:
                rank(sample, own, G, measure, work, k[n, t], v[n, t])


@inlined
def rank(sample, own, G, measure, work, k, v):
    """The winner, then the winner of the rest, and so on."""
    done = 0
    for i in range(k.shape[0]):
        done = evaluate(sample, own, G, measure, work, done)
        first = winner(work.index, work.value, done)
        k[i], v[i] = work.index[first], work.value[first]
        work.value[first] = -np.inf


@compiled
def padded(size):
    """Room for the values of a sample, and 0 up to a multiple of 4."""
    return np.zeros(size + -size % 4, np.float32)


@compiled
def silent(candidate, G, k, v):
    """The first neurons win where nothing was seen, with no strength."""
    k[:], v[:], i = 0, 0.0, 0
    for j in range(G):
        if candidate[j] != NEVER and i < k.shape[0]:
            k[i] = j
            i += 1
