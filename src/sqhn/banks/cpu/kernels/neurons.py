"""The statistics of the neurons of a node, which of them a sample is written to, and choices among their scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks import rule
from sqhn.banks.cpu.compiled import compiled, inlined, kernel, numbers
from sqhn.banks.rule import GREW, OLDEST, REPLACED
from sqhn.level import TIE


class Statistics(NamedTuple):
    """Counts, mean activities and last writes (nodes, room), growth and free slots (nodes,), number of steps (1,).

    A neuron of count 0 is a free slot. Below the memory node, mean activities and last writes have no values.
    """

    c: Any
    mu: Any
    written: Any
    grown: Any
    free: Any
    steps: Any


class Times(NamedTuple):
    """The first step of a chunk, counted from 1, and the growth thresholds of all of its steps."""

    first: Any
    eps: Any


outcome = compiled(rule.outcome)


@compiled
def replaceable(c, written, G, when_full):
    """The neuron of lowest count, unless only age decides; of equals the one written longest ago, then the first."""
    found = 0
    for j in range(1, G):
        more = 0 if when_full == OLDEST else c[j] - c[found]
        if more < 0 or (more == 0 and written[j] < written[found]):
            found = j
    return found


@compiled
def first_free(c, G):
    """The lowest free place, or the next."""
    for j in range(G):
        if c[j] == 0:
            return j
    return G


@inlined
def written_to(j, a, eps, n, G, statistics, rules):
    """The neuron of node n that a sample is written to, which matches j best with a, and the outcome."""
    what = outcome(a < eps - TIE, rules.capacity <= G and statistics.free[n] == 0, rules.when_full)
    if what == GREW:
        return (first_free(statistics.c[n], G) if statistics.free[n] else G), what
    if what == REPLACED:
        return replaceable(statistics.c[n], statistics.written[n], G, rules.when_full), what
    return j, what


@compiled
def note(n, j, step, statistics):
    """Note the step at which neuron j of node n was written."""
    if statistics.written.shape[1]:
        statistics.written[n, j] = step


@inlined
def count(n, j, new, a, step, statistics, rules):
    """Note that neuron j of node n was written, as a new one or by averaging a sample that matched with a."""
    note(n, j, step, statistics)
    if new:
        if j < statistics.grown[n] and statistics.c[n, j] == 0:
            statistics.free[n] -= 1
        statistics.grown[n] = max(statistics.grown[n], j + 1)
        statistics.c[n, j] = 1
    else:
        statistics.c[n, j] += 1
    if statistics.mu.shape[1]:
        mean = statistics.mu[n, j] + (a - statistics.mu[n, j]) / (statistics.c[n, j] + rules.pseudo)
        statistics.mu[n, j] = 1.0 if new else mean


@kernel
def choose(lo, hi, k, h, start, candidate, value, probability, blend, out):
    """See `Device.choose`; range(lo, hi) runs over (node, sample) pairs."""
    batch = k.shape[1]
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        top = blend * h[n, t]
        for e in range(start[i], start[i + 1]):
            top = max(top, blend * value[e] + (1 - blend) * probability[e])
        chosen = k[n, t] if blend * h[n, t] >= top - TIE else np.int32(2**31 - 1)
        for e in range(start[i], start[i + 1]):
            if blend * value[e] + (1 - blend) * probability[e] >= top - TIE and candidate[e] < chosen:
                chosen = candidate[e]
        out[n, t] = chosen


@kernel
def top_k(lo, hi, u, k, v):
    """The first neuron whose value is the maximum, rounding apart; then that of the rest, and so on.

    u (nodes, batch, neurons), is spent if there are several; k, v (nodes, batch, count); range(lo, hi) runs over (node,
    sample) pairs.
    """
    batch, count = u.shape[1], k.shape[2]
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        left = u[n, t]
        for c in range(count):
            top, j = highest(left), 0
            while left[j] < top - TIE:
                j += 1
            k[n, t, c], v[n, t, c] = j, left[j]
            if count > 1:
                left[j] = -np.inf


@numbers
def highest(values):
    """The maximum."""
    top = values[0]
    for j in range(1, values.shape[0]):
        if values[j] > top:
            top = values[j]
    return top
