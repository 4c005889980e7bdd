"""The two loops over samples at the nodes of a pattern bank: learning, and questions for the best neurons.

A first look gives upper bounds, and those decide what is evaluated. There are two: `small` compares one sample after
another, `large` has products of a whole chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.compiled import compiled, inlined, kernel
from sqhn.banks.cpu.kernels import large, small
from sqhn.banks.cpu.kernels.decision import (
    NEVER,
    Measure,
    Scratch,
    decide,
    evaluate,
    featureless,
    has_no_length,
    of_node,
    regard,
    scratch,
    shift,
    similarity,
    winner,
)
from sqhn.banks.cpu.kernels.neurons import Statistics, Times, written_to
from sqhn.banks.cpu.kernels.prototypes import write
from sqhn.banks.rule import GREW, SKIPPED, Rules

NO_SIDES, NO_COLUMNS = small.scratch(0, 0), large.scratch(0)


class Look(NamedTuple):
    """Which of the two it is, and what each of them needs."""

    is_large: Any
    small: Any
    large: Any


def room_for(size: int, room: int, is_large: bool, decoded: NDArray[np.float32]) -> tuple[tuple[Any, ...], ...]:
    """Room for the intermediate results of one thread, at nodes with so many values and neurons."""
    sides = NO_SIDES if is_large else small.scratch(size, room)
    return scratch(size, room, decoded), sides, large.scratch(room) if is_large else NO_COLUMNS


@inlined
def first_look(products, room):
    """The first look, for which a large node has products, and scratch for decisions."""
    work, sides, columns = room
    look = Look(products[3].shape[0] > 0, small.Small(*sides), large.first_look(products, columns))
    return look, Scratch(*work)


@inlined
def begin(look, n, own, G, measure):
    """Begin with a node."""
    if look.is_large:
        large.begin(look.large, n, own, G, measure)
    else:
        small.begin(look.small, own, G, measure)


@inlined
def bound(look, n, t, sample, own, G, measure, work):
    """Upper bounds for the neurons of a node and a sample, into the scratch."""
    shift(sample, measure.centre, work.y)
    if look.is_large:
        large.bound(look.large, n, t, sample, own, G, measure, work.upper)
        large.refine(look.large, n, t, sample, own, G, measure, work, np.int64(0))
    else:
        small.bound(look.small, sample, own, G, measure, work)


@inlined
def follow(look, n, t, sample, j, own, c, measure):
    """Take over what a step has written to neuron j."""
    if look.is_large:
        large.follow(look.large, n, t, sample, j, own, c, measure)
    else:
        small.renew(look.small, own, j, measure)


@kernel
def learn(lo, hi, x, seen, raw, products, prototypes, statistics, rules, times, measure, sent, room):
    """A chunk of online steps at nodes lo..hi."""
    (look, work), (k, v, a, kind) = first_look(products, room), sent
    statistics, times, rules, measure = Statistics(*statistics), Times(*times), Rules(*rules), Measure(*measure)
    for n in range(lo, hi):
        own = of_node(prototypes, n, work.decoded)
        begin(look, n, own, statistics.grown[n], measure)
        for t in range(x.shape[1]):
            sample, G = regard(x[n, t], seen[n, t], measure.centre), statistics.grown[n]
            if sample.many == 0:
                k[n, t], v[n, t], a[n, t], kind[n, t] = 0, 0.0, 0.0, SKIPPED
                continue
            j, s = -1, -np.inf
            if G:
                bound(look, n, t, sample, own, G, measure, work)
                j, s = decide(sample, own, G, measure, work)
            j, what = written_to(j, s, times.eps[t], n, G, statistics, rules)
            new = what >= GREW
            if what != SKIPPED:
                write(n, j, new, s, sample, raw[n, t], times.first + t, own, statistics, rules, measure)
                follow(look, n, t, sample, j, own, statistics.c[n, j], measure)
            k[n, t], a[n, t], kind[n, t] = j, s, what
            if rules.top:
                v[n, t] = 1.0 if new else s
            else:
                v[n, t] = similarity(sample, own, j, measure)
    if lo == 0:
        statistics.steps[0] += x.shape[1]


@kernel
def best(lo, hi, x, seen, products, prototypes, grown, measure, k, v, room):
    """The best neurons and their similarities, k, v (nodes, batch, count); lo..hi runs over (node, sample) pairs."""
    look, work = first_look(products, room)
    measure, batch = Measure(*measure), x.shape[1]
    for n in range(lo // batch, (hi + batch - 1) // batch):
        own, G = of_node(prototypes, n, work.decoded), grown[n]
        begin(look, n, own, G, measure)
        for t in range(max(lo - n * batch, 0), min(hi - n * batch, batch)):
            sample = regard(x[n, t], seen[n, t], measure.centre)
            if sample.many == 0 or G == 0:
                silent(own.candidate, G, k[n, t], v[n, t])
                continue
            bound(look, n, t, sample, own, G, measure, work)
            if k.shape[2] == 1 and has_no_length(sample, measure):
                k[n, t, 0], v[n, t, 0] = featureless(own.square, own.candidate, G, measure.centre)
            else:
                rank(sample, own, G, measure, work, k[n, t], v[n, t])


@inlined
def rank(sample, own, G, measure, work, k, v):
    """The winner, then the winner of the rest, and so on."""
    done = np.int64(0)
    for i in range(k.shape[0]):
        done = evaluate(sample, own, G, measure, work, done)
        first = winner(work.index, work.value, done)
        k[i], v[i] = work.index[first], work.value[first]
        work.value[first] = -np.inf


@compiled
def silent(candidate, G, k, v):
    """The first neurons win where nothing was seen, with no strength."""
    i = 0
    for j in range(G):
        if candidate[j] != NEVER and i < k.shape[0]:
            k[i], v[i] = j, 0.0
            i += 1
    for rest in range(i, k.shape[0]):
        k[rest], v[rest] = 0, 0.0
