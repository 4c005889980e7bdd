"""Counts of children's values: the columns of the levels above the first.

A column of the paper says how often each child had each value when neuron j won. It is kept as integer counts, sparse:
an entry (j, k, n) of child q stands in two linked lists, one over the neurons that know value k of child q (walked
upward, from the children's values to the neurons that agree) and one over the values of child q that neuron j knows
(walked downward, from a neuron to what it expects). Memory is bounded by what was stored.

`children` (nodes, children) are rows of `k` and `v` (child nodes, batch), the children's values and strengths, and of
`heard`: whether any of their values was observed; an empty array if all children were heard.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks.cpu.compiled import compiled, inlined, kernel
from sqhn.banks.cpu.kernels.neurons import Statistics, Times, count, written_to
from sqhn.banks.rule import GREW, SKIPPED, Rules
from sqhn.level import TIE

NEURON, VALUE, COUNT, NEXT_BY_VALUE, NEXT_BY_NEURON = 0, 1, 2, 3, 4
NONE = -1


class Lists(NamedTuple):
    """The entries of all nodes, `pool` (nodes, entries, 5) with the fields above, `used` of them by each node.

    free: heads of the lists of freed entries (nodes,); by_value (nodes, children, values) and by_neuron (nodes,
    neurons, children): heads of the two lists; S (nodes, neurons): sums of squared counts.
    """

    pool: Any
    used: Any
    free: Any
    by_value: Any
    by_neuron: Any
    S: Any


class Heard(NamedTuple):
    """The children of a node, and the values k and strengths v of a level, of which a sample t is heard.

    length: of the strengths; partly: a child is silent, and the norm is over those that are heard; many: how many
    children have anything to count.
    """

    children: Any
    k: Any
    v: Any
    t: Any
    length: Any
    partly: Any
    many: Any


def scratch(room: int) -> tuple[Any, ...]:
    """For decisions, one entry per neuron: overlaps, which were touched, and for which decision."""
    return np.empty(room), np.empty(room, np.int64), np.full(room, -1)


# -- the lists -------------------------------------------------------------------------------------------------------


@compiled
def find(pool, head, value):
    """The entry of a neuron's list that holds a value, or NONE."""
    e = head
    while e != NONE and pool[e, VALUE] != value:
        e = pool[e, NEXT_BY_NEURON]
    return e


@compiled
def times(pool, head, value):
    """How often a neuron's child had a value."""
    e = find(pool, head, value)
    return pool[e, COUNT] if e != NONE else 0


@compiled
def add(n, j, q, value, more, lists):
    """Count a value of child q for neuron j."""
    pool, used, free, by_value, by_neuron, S = lists
    e = find(pool[n], by_neuron[n, j, q], value)
    if e == NONE:
        if free[n] != NONE:
            e = free[n]
            free[n] = pool[n, e, NEXT_BY_NEURON]
        else:
            e = used[n]
            used[n] += 1
        pool[n, e, NEURON], pool[n, e, VALUE], pool[n, e, COUNT] = j, value, 0
        pool[n, e, NEXT_BY_VALUE], by_value[n, q, value] = by_value[n, q, value], e
        pool[n, e, NEXT_BY_NEURON], by_neuron[n, j, q] = by_neuron[n, j, q], e
    before = np.int64(pool[n, e, COUNT])
    pool[n, e, COUNT] += more
    S[n, j] += more * (2 * before + more)


@kernel
def erase(neurons, lists):
    """Forget everything that these neurons of the only node know."""
    lists = Lists(*lists)
    for i in range(neurons.shape[0]):
        clear(np.int64(0), neurons[i], lists)


@compiled
def clear(n, j, lists):
    """Forget everything that neuron j knows."""
    pool, _, free, by_value, by_neuron, S = lists
    for q in range(by_neuron.shape[2]):
        e = by_neuron[n, j, q]
        while e != NONE:
            value = pool[n, e, VALUE]
            before, at = NONE, by_value[n, q, value]
            while at != e:
                before, at = at, pool[n, at, NEXT_BY_VALUE]
            if before == NONE:
                by_value[n, q, value] = pool[n, e, NEXT_BY_VALUE]
            else:
                pool[n, before, NEXT_BY_VALUE] = pool[n, e, NEXT_BY_VALUE]
            after = pool[n, e, NEXT_BY_NEURON]
            pool[n, e, NEXT_BY_NEURON], free[n] = free[n], e
            e = after
        by_neuron[n, j, q] = NONE
    S[n, j] = 0


# -- bottom-up activity ----------------------------------------------------------------------------------------------


@compiled
def loud(s):
    """The strength of a child; next to nothing is silence."""
    return s if abs(s) > TIE else 0.0


@compiled
def there(heard, child, t):
    """Whether anything of a child was seen."""
    return heard.shape[0] == 0 or heard[child, t]


@inlined
def hear(children, codes, t, heard_only):
    """The message of sample t for a node with these children."""
    k, v, heard = codes
    square = 0.0
    silent, many = False, 0
    for q in range(children.shape[0]):
        s = loud(v[children[q], t])
        square += s * s
        silent = silent or s == 0
        many += there(heard, children[q], t)
    partly = silent and (heard_only or many < children.shape[0])
    return Heard(children, k, v, t, np.sqrt(square), partly, many)


@compiled
def squares_of(n, j, heard, lists):
    """The sum of squared counts of neuron j; if the norm asks for it, over the children that are not silent."""
    if not heard.partly:
        return lists.S[n, j]
    total = np.int64(0)
    for q in range(heard.children.shape[0]):
        if loud(heard.v[heard.children[q], heard.t]) != 0:
            e = lists.by_neuron[n, j, q]
            while e != NONE:
                total += np.int64(lists.pool[n, e, COUNT]) ** 2
                e = lists.pool[n, e, NEXT_BY_NEURON]
    return total


@compiled
def normalize(overlap, squares, length):
    """h of a neuron from the strengths times counts that agree, its squared counts, and the length of the strengths.

    h is 0 for a neuron that has counted no value of the children that are heard.
    """
    return overlap / (length * np.sqrt(np.float64(squares))) if length > 0 and squares > 0 else 0.0


@compiled
def activity_at(n, j, heard, lists):
    """h of one neuron."""
    overlap = 0.0
    for q in range(heard.children.shape[0]):
        child = heard.children[q]
        s = loud(heard.v[child, heard.t])
        overlap += s * times(lists.pool[n], lists.by_neuron[n, j, q], heard.k[child, heard.t])
    return normalize(overlap, squares_of(n, j, heard, lists), heard.length)


@inlined
def decide(n, G, heard, lists, c, scratch, stamp):
    """The winning neuron and its activity; stamp: a number that was not used with this scratch; c: their counts.

    Only neurons that know a value of a child are looked at, unless none of them agrees: strengths may be negative.
    """
    overlap, touched, mark = scratch
    pool = lists.pool
    many = 0
    for q in range(heard.children.shape[0]):
        child = heard.children[q]
        s = loud(heard.v[child, heard.t])
        if s == 0:
            continue
        e = lists.by_value[n, q, heard.k[child, heard.t]]
        while e != NONE:
            j = pool[n, e, NEURON]
            if mark[j] != stamp:
                mark[j], overlap[j], touched[many] = stamp, 0.0, j
                many += 1
            overlap[j] += s * pool[n, e, COUNT]
            e = pool[n, e, NEXT_BY_VALUE]
    best = -np.inf
    for i in range(many):
        j = touched[i]
        h = normalize(overlap[j], squares_of(n, j, heard, lists), heard.length)
        overlap[j] = h
        best = max(best, h)
    if best <= TIE:
        for j in range(G):
            if c[j] and mark[j] != stamp:
                best, overlap[j], touched[many] = max(best, 0.0), 0.0, j
                many += 1
    if many == 0:
        return 0, 0.0
    winner = G - 1  # a neuron even if all strengths are NaN
    for i in range(many):
        if overlap[touched[i]] >= best - TIE:
            winner = min(winner, touched[i])
    return winner, overlap[winner]


@kernel
def best(lo, hi, children, codes, lists, statistics, heard_only, k, v, scratch):
    """The winner and its activity; range(lo, hi) runs over (node, sample) pairs."""
    lists, statistics = Lists(*lists), Statistics(*statistics)
    for i in range(lo, hi):
        n, t = i // k.shape[1], i % k.shape[1]
        heard = hear(children[n], codes, t, heard_only)
        k[n, t], v[n, t] = decide(n, statistics.grown[n], heard, lists, statistics.c[n], scratch, i)


@kernel
def at(lo, hi, children, codes, start, candidate, lists, heard_only, h):
    """h of the candidates start[i] .. start[i + 1] of (node, sample) pairs, over which range(lo, hi) runs."""
    lists, batch = Lists(*lists), codes[0].shape[1]
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        heard = hear(children[n], codes, t, heard_only)
        for e in range(start[i], start[i + 1]):
            h[e] = activity_at(n, np.int64(candidate[e]), heard, lists)


# -- learning --------------------------------------------------------------------------------------------------------


@kernel
def learn(lo, hi, children, codes, lists, statistics, rules, steps, heard_only, sent, scratch):
    """A chunk of online steps at nodes lo..hi."""
    lists, statistics, rules, steps = Lists(*lists), Statistics(*statistics), Rules(*rules), Times(*steps)
    (below, _, seen), (k, v, a, kind) = codes, sent
    batch = k.shape[1]
    for n in range(lo, hi):
        for t in range(batch):
            heard = hear(children[n], codes, t, heard_only)
            if heard.many == 0:
                k[n, t], v[n, t], a[n, t], kind[n, t] = 0, 0.0, 0.0, SKIPPED
                continue
            G = statistics.grown[n]
            j, h = -1, -np.inf
            if statistics.free[n] < G:
                j, h = decide(n, G, heard, lists, statistics.c[n], scratch, n * batch + t)
            j, what = written_to(j, h, steps.eps[t], n, G, statistics, rules)
            new = what >= GREW
            if what != SKIPPED:
                if new and j < G:
                    clear(n, j, lists)
                count(n, j, new, h, steps.first + t, statistics, rules)
                for q in range(children.shape[1]):
                    if there(seen, children[n, q], t):
                        add(n, j, q, below[children[n, q], t], np.int64(1), lists)
                if new and rules.strengths:
                    statistics.mu[n, j] = activity_at(n, j, heard, lists)
            k[n, t], a[n, t], kind[n, t] = j, h, what
            if rules.top:
                v[n, t] = 1.0 if new else h
            else:
                v[n, t] = activity_at(n, j, heard, lists)
    if lo == 0:
        statistics.steps[0] += batch


@kernel
def hold(children, codes, more, winner, wrote, lists, statistics, step):
    """Count samples `more` times again for the neurons k of their nodes, where `wrote` says so; step: of the first."""
    (k, _, heard), lists, statistics = codes, Lists(*lists), Statistics(*statistics)
    for n in range(children.shape[0]):
        for t in range(k.shape[1]):
            if wrote[n, t]:
                j = np.int64(winner[n, t])
                statistics.c[n, j] += more
                statistics.written[n, j] = step + t
                for q in range(children.shape[1]):
                    if there(heard, children[n, q], t):
                        add(n, j, q, k[children[n, q], t], more, lists)


# -- top-down --------------------------------------------------------------------------------------------------------


@compiled
def counted(pool, head, c, holes):
    """How many values of a child a neuron of count c has counted: c of them, but for holes; at least 1."""
    if not holes:
        return np.int64(c)
    total, e = np.int64(0), head
    while e != NONE:
        total += pool[e, COUNT]
        e = pool[e, NEXT_BY_NEURON]
    return max(total, 1)


@kernel
def support_sizes(lo, hi, children, j, lists, start):
    """start[child * batch + t + 1] = how many values of the child the neuron j[n, t] knows."""
    lists = Lists(*lists)
    batch = j.shape[1]
    for n in range(lo, hi):
        for q in range(children.shape[1]):
            for t in range(batch):
                size = 0
                e = lists.by_neuron[n, j[n, t], q]
                while e != NONE:
                    size += 1
                    e = lists.pool[n, e, NEXT_BY_NEURON]
                start[children[n, q] * batch + t + 1] = size


@kernel
def support_entries(lo, hi, children, j, lists, c, holes, start, value, probability):
    """Those values and the probabilities that the neuron gives them."""
    lists = Lists(*lists)
    batch = j.shape[1]
    for n in range(lo, hi):
        pool = lists.pool[n]
        for q in range(children.shape[1]):
            for t in range(batch):
                i = start[children[n, q] * batch + t]
                e = lists.by_neuron[n, j[n, t], q]
                often = counted(pool, e, c[n, j[n, t]], holes)
                while e != NONE:
                    value[i], probability[i] = pool[e, VALUE], pool[e, COUNT] / often
                    i += 1
                    e = pool[e, NEXT_BY_NEURON]


@kernel
def max_sum(lo, hi, children, u, top, lists, statistics, holes, out):
    """out[n, t, j] = sum over children of max over values of (probability under j + u of the value).

    u (child nodes, batch, values) and its maximum top (child nodes, batch). range(lo, hi) runs over (node, sample).
    """
    lists, statistics = Lists(*lists), Statistics(*statistics)
    pool, batch = lists.pool, u.shape[1]
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        for j in range(statistics.grown[n]):
            total = 0.0 if statistics.c[n, j] else -np.inf
            for q in range(children.shape[1]):
                child, e = children[n, q], lists.by_neuron[n, j, q]
                reach, often = top[child, t], counted(pool[n], e, statistics.c[n, j], holes)
                while e != NONE:
                    reach = max(reach, pool[n, e, COUNT] / often + u[child, t, pool[n, e, VALUE]])
                    e = pool[n, e, NEXT_BY_NEURON]
                total += reach
            out[n, t, j] = total
        for j in range(statistics.grown[n], out.shape[2]):
            out[n, t, j] = -np.inf
        if statistics.grown[n] == 0:
            out[n, t, 0] = 0.0


# -- persistence -----------------------------------------------------------------------------------------------------


@kernel
def dump(lists, grown, rows):
    """All entries as rows (node, neuron, child, value, count); returns how many."""
    lists = Lists(*lists)
    pool, by_neuron = lists.pool, lists.by_neuron
    many = 0
    for n in range(by_neuron.shape[0]):
        for j in range(grown[n]):
            for q in range(by_neuron.shape[2]):
                e = by_neuron[n, j, q]
                while e != NONE:
                    rows[many, 0], rows[many, 1], rows[many, 2] = n, j, q
                    rows[many, 3], rows[many, 4] = pool[n, e, VALUE], pool[n, e, COUNT]
                    many += 1
                    e = pool[n, e, NEXT_BY_NEURON]
    return many


@kernel
def fill(rows, lists):
    """The inverse of `dump`, into empty lists."""
    lists = Lists(*lists)
    for i in range(rows.shape[0]):
        n, j, q, more = np.int64(rows[i, 0]), np.int64(rows[i, 1]), np.int64(rows[i, 2]), np.int64(rows[i, 4])
        add(n, j, q, rows[i, 3], more, lists)
