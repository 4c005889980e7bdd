"""Activities of columns, learning, and what neurons expect of their children: the levels above the first.

A decision looks at the neurons in lists that know a value of a child, and counts for each row how many children agree.
The strengths of children are between the least and the greatest, so these counts rule most rows out. The others are
evaluated, and that decides.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks.cpu.compiled import compiled, inlined, kernel
from sqhn.banks.cpu.kernels.columns import (
    COUNT,
    FREE,
    NEXT_BY_NEURON,
    NEXT_BY_VALUE,
    NONE,
    ROW,
    ROWS,
    SLOT,
    SLOTS,
    VALUE,
    Columns,
    clear,
    count_sample,
    find,
    there,
    value_of,
)
from sqhn.banks.cpu.kernels.neurons import Statistics, Times, count, note, written_to
from sqhn.banks.rule import GREW, SKIPPED, Rules
from sqhn.level import TIE

MOST_AGREEING = 255
"""Children whose agreement is counted in one byte."""
SCANNED = 128
"""Neurons that are compared at once in a search."""
ROUNDED = 1e-9
"""More than the rounding error of a sum of strengths, for each child."""


class Heard(NamedTuple):
    """The children of a node, and the values k and strengths v of a level, of which a sample t is heard.

    length: of the strengths; partly: a child is silent, and the norm is over those that are heard; many: how many
    children have anything to count; loud: how many are not silent; least, most: the extreme strengths of these.
    """

    children: Any
    k: Any
    v: Any
    t: Any
    length: Any
    partly: Any
    many: Any
    loud: Any
    least: Any
    most: Any


class Scratch(NamedTuple):
    """For decisions, one entry per neuron: activities and indices of those that were evaluated, and, for slots, where
    among these they are. same, few, agreeing: which neurons agree with a child, and with how many children.
    """

    value: Any
    index: Any
    mark: Any
    same: Any
    few: Any
    agreeing: Any


def scratch(room: int) -> tuple[Any, ...]:
    """For `room` neurons."""
    return (
        np.empty(room), np.empty(room, np.int64), np.full(room, -1), np.empty(room, np.uint8), np.empty(room, np.uint8),
        np.empty(room, np.int32),
    )  # fmt: skip


# -- bottom-up activity ----------------------------------------------------------------------------------------------


@compiled
def loud(s):
    """The strength of a child; next to nothing is silence."""
    return s if abs(s) > TIE else 0.0


@inlined
def hear(children, codes, t, heard_only):
    """The message of sample t for a node with these children."""
    k, v, heard = codes
    square, least, most = 0.0, np.inf, -np.inf
    counted, many = 0, 0
    for q in range(children.shape[0]):
        s = loud(v[children[q], t])
        square += s * s
        if s != 0:
            counted += 1
            least, most = min(least, s), max(most, s)
        many += there(heard, children[q], t)
    partly = counted < children.shape[0] and (heard_only or many < children.shape[0])
    return Heard(children, k, v, t, np.sqrt(square), partly, many, counted, least, most)


@compiled
def squares_of(n, s, heard, columns):
    """The sum of squared counts of a slot; if the norm asks for it, over the children that are not silent."""
    if not heard.partly:
        return columns.S[n, s]
    total = np.int64(0)
    for q in range(heard.children.shape[0]):
        if loud(heard.v[heard.children[q], heard.t]) != 0:
            e = columns.by_neuron[n, s, q]
            while e != NONE:
                total += np.int64(columns.pool[n, e, COUNT]) ** 2
                e = columns.pool[n, e, NEXT_BY_NEURON]
    return total


@compiled
def squares_of_row(c, heard):
    """The same of a row that has counted c samples."""
    return c * c * np.int64(heard.loud if heard.partly else heard.children.shape[0])


@compiled
def normalize(overlap, squares, length):
    """h of a neuron from the strengths times counts that agree, its squared counts, and the length of the strengths.

    h is 0 for a neuron that has counted no value of the children that are heard.
    """
    return overlap / (length * np.sqrt(np.float64(squares))) if length > 0 and squares > 0 else 0.0


@compiled
def activity_at(n, j, c, heard, columns):
    """h of neuron j, which has counted c samples."""
    overlap, s = 0.0, np.int64(columns.slot[n, j])
    if s == FREE:
        return 0.0
    for q in range(heard.children.shape[0]):
        child = heard.children[q]
        strength, value = loud(heard.v[child, heard.t]), np.int64(heard.k[child, heard.t])
        if s == ROW:
            overlap += strength * c if value_of(columns.rows, n, q, j) == value else 0.0
        else:
            e = find(columns.pool[n], columns.by_neuron[n, s, q], value)
            overlap += strength * columns.pool[n, e, COUNT] if e != NONE else 0.0
    squares = squares_of_row(c, heard) if s == ROW else squares_of(n, s, heard, columns)
    return normalize(overlap, squares, heard.length)


# -- the winner ------------------------------------------------------------------------------------------------------


@compiled
def agree(rows, n, q, value, G, same, few):
    """Count the neurons whose rows have a value of child q; same: scratch."""
    low, first = rows[0, n, q], np.uint8(value & 255)
    if rows.shape[0] == 1:
        for j in range(G):
            few[j] += np.uint8(low[j] == first)
        return
    high, second = rows[1, n, q], np.uint8((value >> 8) & 255)
    if rows.shape[0] == 2:
        for j in range(G):
            few[j] += np.uint8((low[j] == first) & (high[j] == second))
        return
    for j in range(G):
        same[j] = np.uint8((low[j] == first) & (high[j] == second))
    for p in range(2, rows.shape[0]):
        row, byte = rows[p, n, q], np.uint8((value >> (8 * p)) & 255)
        for j in range(G):
            same[j] &= np.uint8(row[j] == byte)
    for j in range(G):
        few[j] += same[j]


@compiled
def agreements(n, G, heard, columns, work):
    """How many loud children agree with each row; returns the largest number."""
    same, few, agreeing, slot = work.same, work.few, work.agreeing, columns.slot[n]
    family = heard.children.shape[0]
    for j in range(G):
        agreeing[j] = 0
    for first in range(0, family, MOST_AGREEING):
        for j in range(G):
            few[j] = 0
        for q in range(first, min(first + MOST_AGREEING, family)):
            child = heard.children[q]
            if loud(heard.v[child, heard.t]) != 0:
                agree(columns.rows, n, q, np.int64(heard.k[child, heard.t]), G, same, few)
        for j in range(G):
            agreeing[j] += np.int32(few[j])
    top = np.int32(0)
    for j in range(G):
        agreeing[j] = agreeing[j] if slot[j] == ROW else np.int32(0)
        top = max(top, agreeing[j])
    return top


@compiled
def reaching(agreeing, least):
    """How many rows agree with so many children."""
    many = np.int32(0)
    for j in range(agreeing.shape[0]):
        many += np.int32(agreeing[j] >= least)
    return many


@compiled
def evaluate_slots(n, heard, columns, work, stamp):
    """Evaluate the neurons in lists that know a value of a loud child; returns how many.

    stamp: a number that is higher than all entries of `mark`.
    """
    value, index, mark = work.value, work.index, work.mark
    pool, many = columns.pool[n], 0
    for q in range(heard.children.shape[0]):
        child = heard.children[q]
        strength = loud(heard.v[child, heard.t])
        if strength == 0:
            continue
        e = columns.by_value[n, q, heard.k[child, heard.t]]
        while e != NONE:
            s = pool[e, SLOT]
            if mark[s] < stamp:
                mark[s], index[many], value[many] = stamp + many, s, 0.0
                many += 1
            value[mark[s] - stamp] += strength * pool[e, COUNT]
            e = pool[e, NEXT_BY_VALUE]
    for i in range(many):
        value[i] = normalize(value[i], squares_of(n, index[i], heard, columns), heard.length)
        index[i] = columns.owner[n, index[i]]
    return many


@compiled
def evaluate_rows(n, G, heard, columns, c, work, first):
    """Evaluate the rows whose activity may be the best, after the `first` neurons that were evaluated before.

    No strength is negative, so an overlap lies between the number of children that agree times the least strength, and
    the same times the greatest. Returns how many neurons were evaluated.
    """
    value, index, agreeing, many = work.value, work.index, work.agreeing, first
    top = agreements(n, G, heard, columns, work)
    if top == 0:
        return many
    reach, length = top * heard.least, heard.length * np.sqrt(np.float64(squares_of_row(np.int64(1), heard)))
    for i in range(first):
        reach = max(reach, value[i] * length)
    reach -= ROUNDED * heard.children.shape[0]
    least = np.int32(max(1.0, np.ceil(reach / heard.most)))
    for b in range(0, G, SCANNED):
        stop = min(b + SCANNED, G)
        if reaching(agreeing[b:stop], least):
            for j in range(b, stop):
                if agreeing[j] >= least:
                    index[many], value[many] = j, 0.0
                    many += 1
    for q in range(heard.children.shape[0]):
        child = heard.children[q]
        strength, k = loud(heard.v[child, heard.t]), np.int64(heard.k[child, heard.t])
        if strength != 0:
            for i in range(first, many):
                value[i] += strength * c[index[i]] if value_of(columns.rows, n, q, index[i]) == k else 0.0
    for i in range(first, many):
        value[i] = normalize(value[i], squares_of_row(c[index[i]], heard), heard.length)
    return many


@compiled
def one_by_one(n, G, heard, columns, c, work):
    """Evaluate all neurons; returns how many there are."""
    many = 0
    for j in range(G):
        if columns.slot[n, j] != FREE:
            work.index[many], work.value[many] = j, activity_at(n, j, c[j], heard, columns)
            many += 1
    return many


@compiled
def first_neuron(slot, G):
    """The first neuron of a node."""
    for j in range(G):
        if slot[j] != FREE:
            return j
    return 0


@inlined
def decide(n, G, heard, columns, c, work, stamp):
    """The winning neuron of a node that has grown, and its activity; stamp: as in `evaluate_slots`."""
    value, index, many, best = work.value, work.index, 0, -np.inf
    if heard.loud and heard.least < 0:
        many = one_by_one(n, G, heard, columns, c, work)
    elif heard.loud:
        if columns.heads[n, SLOTS] > 0:
            many = evaluate_slots(n, heard, columns, work, stamp)
        if columns.heads[n, ROWS] > 0:
            many = evaluate_rows(n, G, heard, columns, c, work, many)
    for i in range(many):
        best = max(best, value[i])
    if heard.least > 0 and best <= TIE:  # no activity is negative, so all are ties
        winner = first_neuron(columns.slot[n], G)
        return winner, activity_at(n, winner, c[winner], heard, columns)
    winner, h = G, best
    for i in range(many):
        if value[i] >= best - TIE and index[i] < winner:
            winner, h = index[i], value[i]
    return min(winner, G - 1), h


@kernel
def best(lo, hi, children, codes, columns, statistics, heard_only, k, v, work):
    """The winner and its activity; range(lo, hi) runs over (node, sample) pairs."""
    columns, statistics, work = Columns(*columns), Statistics(*statistics), Scratch(*work)
    for i in range(lo, hi):
        n, t = i // k.shape[1], i % k.shape[1]
        k[n, t], v[n, t] = 0, 0.0
        if statistics.grown[n]:
            heard = hear(children[n], codes, t, heard_only)
            stamp = i * work.mark.shape[0]
            k[n, t], v[n, t] = decide(n, statistics.grown[n], heard, columns, statistics.c[n], work, stamp)


@kernel
def at(lo, hi, children, codes, start, candidate, columns, c, heard_only, h):
    """h of the candidates start[i] .. start[i + 1] of (node, sample) pairs, over which range(lo, hi) runs."""
    columns, batch = Columns(*columns), codes[0].shape[1]
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        heard = hear(children[n], codes, t, heard_only)
        for e in range(start[i], start[i + 1]):
            j = np.int64(candidate[e])
            h[e] = activity_at(n, j, c[n, j], heard, columns)


# -- learning --------------------------------------------------------------------------------------------------------


@kernel
def learn(lo, hi, children, codes, columns, statistics, rules, steps, heard_only, sent, work):
    """A chunk of online steps at nodes lo..hi."""
    columns, statistics, rules, steps = Columns(*columns), Statistics(*statistics), Rules(*rules), Times(*steps)
    (k, v, a, kind), work = sent, Scratch(*work)
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
                j, h = decide(n, G, heard, columns, statistics.c[n], work, (n * batch + t) * work.mark.shape[0])
            j, what = written_to(j, h, steps.eps[t], n, G, statistics, rules)
            new = what >= GREW
            if what != SKIPPED:
                before = np.int64(0)
                if not new:
                    before = statistics.c[n, j]
                elif j < G:
                    clear(n, j, columns)
                count(n, j, new, h, steps.first + t, statistics, rules)
                count_sample(n, j, before, np.int64(1), children[n], codes, t, columns)
                if new and rules.top and rules.strengths:
                    statistics.mu[n, j] = activity_at(n, j, statistics.c[n, j], heard, columns)
            k[n, t], a[n, t], kind[n, t] = j, h, what
            if rules.top:
                v[n, t] = 1.0 if new else h
            else:
                v[n, t] = activity_at(n, j, statistics.c[n, j], heard, columns)
    if lo == 0:
        statistics.steps[0] += batch


@kernel
def hold(children, codes, more, winner, wrote, columns, statistics, step):
    """Count samples `more` times again for the neurons k of their nodes, where `wrote` says so; step: of the first."""
    columns, statistics = Columns(*columns), Statistics(*statistics)
    for n in range(children.shape[0]):
        for t in range(winner.shape[1]):
            if wrote[n, t]:
                j = np.int64(winner[n, t])
                count_sample(n, j, statistics.c[n, j], more, children[n], codes, t, columns)
                statistics.c[n, j] += more
                note(n, j, step + t, statistics)


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
def support_sizes(lo, hi, children, j, columns, start):
    """start[child * batch + t + 1] = how many values of the child the neuron j[n, t] knows."""
    columns = Columns(*columns)
    batch = j.shape[1]
    for n in range(lo, hi):
        for q in range(children.shape[1]):
            for t in range(batch):
                s = np.int64(columns.slot[n, j[n, t]])
                size = np.int64(s == ROW)
                e = columns.by_neuron[n, s, q] if s >= 0 else NONE
                while e != NONE:
                    size += 1
                    e = columns.pool[n, e, NEXT_BY_NEURON]
                start[children[n, q] * batch + t + 1] = size


@kernel
def support_entries(lo, hi, children, j, columns, c, holes, start, value, probability):
    """Those values and the probabilities that the neuron gives them."""
    columns = Columns(*columns)
    batch = j.shape[1]
    for n in range(lo, hi):
        pool = columns.pool[n]
        for q in range(children.shape[1]):
            for t in range(batch):
                i = start[children[n, q] * batch + t]
                s = np.int64(columns.slot[n, j[n, t]])
                if s == ROW:
                    value[i], probability[i] = value_of(columns.rows, n, q, j[n, t]), 1.0
                e = columns.by_neuron[n, s, q] if s >= 0 else NONE
                often = counted(pool, e, c[n, j[n, t]], holes)
                while e != NONE:
                    value[i], probability[i] = pool[e, VALUE], pool[e, COUNT] / often
                    i += 1
                    e = pool[e, NEXT_BY_NEURON]


@kernel
def max_sum(lo, hi, children, u, top, columns, statistics, holes, out):
    """out[n, t, j] = sum over children of max over values of (probability under j + u of the value).

    u (child nodes, batch, values) and its maximum top (child nodes, batch). range(lo, hi) runs over (node, sample).
    """
    columns, statistics = Columns(*columns), Statistics(*statistics)
    pool, batch = columns.pool, u.shape[1]
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        for j in range(statistics.grown[n]):
            s = np.int64(columns.slot[n, j])
            total = 0.0 if s != FREE else -np.inf
            for q in range(children.shape[1]):
                child = children[n, q]
                e, reach = columns.by_neuron[n, s, q] if s >= 0 else NONE, top[child, t]
                if s == ROW:
                    reach = max(reach, 1.0 + u[child, t, value_of(columns.rows, n, q, j)])
                often = counted(pool[n], e, statistics.c[n, j], holes)
                while e != NONE:
                    reach = max(reach, pool[n, e, COUNT] / often + u[child, t, pool[n, e, VALUE]])
                    e = pool[n, e, NEXT_BY_NEURON]
                total += reach
            out[n, t, j] = total
        for j in range(statistics.grown[n], out.shape[2]):
            out[n, t, j] = -np.inf
        if statistics.grown[n] == 0:
            out[n, t, 0] = 0.0
