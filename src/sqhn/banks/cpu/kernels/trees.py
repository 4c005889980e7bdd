"""The evidence of the blocks of a tree's nodes for their neurons, from sums over values (`kernels.evidence`).

The sums n and x are (nodes, batch, channels), xx (nodes, batch), m (nodes, samples, channels, room), mm (nodes,
samples, room) and xm (nodes, batch, room); there is one of `samples` if m and mm are the same for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqhn.banks.cpu.compiled import compiled, kernel
from sqhn.banks.cpu.kernels.columns import COUNT, NEXT_BY_NEURON, NONE, ROW, SLOTS, VALUE, Columns
from sqhn.banks.cpu.kernels.counts import counted
from sqhn.banks.cpu.kernels.evidence import (
    Work,
    add_stored,
    ask,
    compare,
    copy,
    even_odds,
    lengths,
    multiply,
    scratch,
    tell,
)
from sqhn.banks.cpu.kernels.neurons import Statistics

SIDE_BY_SIDE = GROUP = 4
"""Children whose values are added to the sums of a neuron at once, and sums of a value that lie side by side."""


@compiled
def begin(A, living):
    """Start with no evidence for living neurons, and minus infinity for others; a node without neurons has one."""
    for j in range(len(living)):
        A[j] = 0.0 if living[j] else -np.inf
    A[len(living) :] = -np.inf
    if len(living) == 0:
        A[0] = 0.0


@compiled
def those_living(c, G, living):
    """Which neurons of a node are living, and how many; living: room for that."""
    many = 0
    for j in range(G):
        living[j] = c[j] > 0
        many += living[j]
    return living[:G], many


def tree_room(channels: int, size: int, room: int, values: int | None = None) -> tuple[Any, ...]:
    """Scratch of a thread, for nodes with so many values or children.

    values: how many values each child has; None at level 1. Trees have no totals of shards.
    """
    columns: tuple[Any, ...] = ()
    if values is not None:
        groups = -(-(1 + channels) // GROUP)
        columns = (
            np.empty((size, room), np.int32), np.zeros((SIDE_BY_SIDE, values + 1, 2)), np.empty((room, 2)),
            np.zeros((groups, SIDE_BY_SIDE, values + 1, GROUP)), np.empty((groups, room, GROUP)),
        )  # fmt: skip
    return scratch(room, channels, size), even_odds(room), np.empty(0), columns


@kernel
def patches(lo, hi, x, seen, values, centre, question, stored, all_long, statistics, A, room):
    """The evidence of the nodes of level 1: A (nodes, batch, room), and their sums.

    values (nodes, size, room): the stored ones; x is less the centre. all_long (nodes, 2, room): lengths, if nothing is
    masked. range(lo, hi) runs over (node, sample) pairs.
    """
    (n, sums, xx), (m, mm, xm), statistics = question, stored, Statistics(*statistics)
    (work, (odds, bits), totals, _), masked = room, seen.shape[2] > 0
    work = Work(*work)
    products, batch = work.products, x.shape[1]
    for node in range(lo // batch, (hi + batch - 1) // batch):
        G = statistics.grown[node]
        neurons = those_living(statistics.c[node], G, work.living)
        for t in range(max(lo - node * batch, 0), min(hi - node * batch, batch)):
            begin(A[node, t], neurons[0])
            which, xx[node, t] = ask(x[node, t], seen[node, t], work.which, n[node, t], sums[node, t])
            if not neurons[1]:
                continue
            s, long = 0, all_long[node]
            if masked:
                s, long = t, work.long
                m[node, t], mm[node, t] = 0.0, 0.0
                add_stored(which, values[node], centre, G, m[node, t], mm[node, t])
                lengths(n[node, t], m[node, t], mm[node, t], G, long)
            products[G:] = 0.0
            multiply(x[node, t], which, sums[node, t], values[node], centre, G, products)
            copy(products, xm[node, t])
            compare(n[node, t], sums[node, t], xx[node, t], m[node, s], products, long, neurons, totals, work, odds)
            tell(odds, bits, 1.0, G, work.logs, work.bits, A[node, t])


@compiled
def read_columns(node, columns, G, values, main):
    """The likeliest value that each neuron gives to each child, the lowest of those that are: (children, neurons).

    `values`, an index beyond all values, if it knows none.
    """
    pool, rows = columns.pool[node], columns.rows
    for q in range(main.shape[0]):
        low, own = rows[0, node, q], main[q]
        for j in range(G):
            own[j] = np.int32(low[j])
        for p in range(1, rows.shape[0]):
            more, shift = rows[p, node, q], np.int32(8 * p)
            for j in range(G):
                own[j] |= np.int32(more[j]) << shift
    for j in range(G):
        s = np.int64(columns.slot[node, j])
        if s != ROW:
            for q in range(main.shape[0]):
                e = columns.by_neuron[node, s, q] if s >= 0 else NONE
                value, most = values, 0
                while e != NONE:
                    count, other = pool[e, COUNT], pool[e, VALUE]
                    if count > most:  # the lowest of equals comes first
                        value, most = other, count
                    e = pool[e, NEXT_BY_NEURON]
                main[q, j] = value


@compiled
def mean_odds(pool, head, often, row):
    """The logarithm of the mean of exp(row) over the values of a neuron's child."""
    e, top, total = head, -np.inf, 0.0
    while e != NONE:
        top = max(top, row[pool[e, VALUE]])
        e = pool[e, NEXT_BY_NEURON]
    e = head
    while e != NONE:
        total += pool[e, COUNT] / often * np.exp(row[pool[e, VALUE]] - top)
        e = pool[e, NEXT_BY_NEURON]
    return np.log(total) + top


@compiled
def add_pairs(a, b, c, d, tables, G, sums):
    """Add two sums of the values of four children, which neurons know, to those of each neuron."""
    of_a, of_b, of_c, of_d = tables[0], tables[1], tables[2], tables[3]
    for j in range(G):
        k, m, n, o = a[j], b[j], c[j], d[j]
        first = sums[j, 0] + of_a[k, 0] + of_b[m, 0] + of_c[n, 0] + of_d[o, 0]
        second = sums[j, 1] + of_a[k, 1] + of_b[m, 1] + of_c[n, 1] + of_d[o, 1]
        sums[j, 0], sums[j, 1] = first, second


@compiled
def add_groups(a, b, c, d, tables, G, sums):
    """The same for four sums of each."""
    of_a, of_b, of_c, of_d = tables[0], tables[1], tables[2], tables[3]
    for j in range(G):
        k, m, n, o = a[j], b[j], c[j], d[j]
        first = sums[j, 0] + of_a[k, 0] + of_b[m, 0] + of_c[n, 0] + of_d[o, 0]
        second = sums[j, 1] + of_a[k, 1] + of_b[m, 1] + of_c[n, 1] + of_d[o, 1]
        third = sums[j, 2] + of_a[k, 2] + of_b[m, 2] + of_c[n, 2] + of_d[o, 2]
        fourth = sums[j, 3] + of_a[k, 3] + of_b[m, 3] + of_c[n, 3] + of_d[o, 3]
        sums[j, 0], sums[j, 1], sums[j, 2], sums[j, 3] = first, second, third, fourth


@compiled
def place_pairs(children, first, t, A, xm, tables):
    """Put the evidence and the products of the values of four children side by side."""
    for i in range(SIDE_BY_SIDE):
        if first + i < children.shape[0]:
            child = children[first + i]
            for k in range(xm.shape[2]):
                tables[i, k, 0], tables[i, k, 1] = A[child, t, k], xm[child, t, k]
        else:
            tables[i] = 0.0


@compiled
def place_groups(children, first, s, mm, m, tables):
    """Put the squares and the sums of the values of four children side by side."""
    for i in range(SIDE_BY_SIDE):
        for g in range(1 + m.shape[2]):
            table, part = tables[g // GROUP, i], g % GROUP
            if first + i >= children.shape[0]:
                table[:, part] = 0.0
            elif g == 0:
                for k in range(mm.shape[2]):
                    table[k, part] = mm[children[first + i], s, k]
            else:
                for k in range(mm.shape[2]):
                    table[k, part] = m[children[first + i], s, g - 1, k]


@compiled
def add_several(node, columns, statistics, holes, q, main, row, sums):
    """Correct the evidence from child q, whose values have the evidence `row`, where a neuron knows several of them."""
    pool = columns.pool[node]
    for s in range(columns.heads[node, SLOTS]):
        j, e = columns.owner[node, s], columns.by_neuron[node, s, q]
        if j == NONE or e == NONE or pool[e, NEXT_BY_NEURON] == NONE:
            continue
        often = counted(pool, e, statistics.c[node, j], holes)
        sums[j, 0] += mean_odds(pool, e, often, row) - row[main[j]]


@kernel
def above(lo, hi, children, below, question, under, columns, statistics, holes, stored, weight, A, room):
    """The evidence of the nodes of a level from that of their children, `below` (child nodes, batch, values).

    question: the sums of this level's; under, stored: of the children's neurons and of this level's, whose blocks are
    those of the values that they most likely give to their children. range(lo, hi) runs over nodes.

    All sums of a value lie side by side in a table, so that a neuron finds those of its child's value in one place.
    """
    (n, sums, xx), (m, mm, xm), (under_m, under_mm, under_xm) = question, stored, under
    work, (odds, bits), totals, (main, pairs, found, groups, static) = room
    columns, statistics, work, family = Columns(*columns), Statistics(*statistics), Work(*work), children.shape[1]
    products, values, last = work.products, under_xm.shape[2], family - 1
    for node in range(lo, hi):
        G, own = statistics.grown[node], children[node]
        neurons = those_living(statistics.c[node], G, work.living)
        read_columns(node, columns, G, np.int32(values), main)
        for t in range(A.shape[1]):
            begin(A[node, t], neurons[0])
            if not neurons[1]:
                continue
            s = min(t, m.shape[1] - 1)
            of_m, of_mm = m[node, s], mm[node, s]
            found[:G], static[:, :G] = 0.0, 0.0
            for q in range(0, family, SIDE_BY_SIDE):
                four = main[q], main[min(q + 1, last)], main[min(q + 2, last)], main[min(q + 3, last)]
                place_pairs(own, q, t, below, under_xm, pairs)
                add_pairs(four[0], four[1], four[2], four[3], pairs, G, found)
                if s == t:
                    place_groups(own, q, s, under_mm, under_m, groups)
                    for g in range(groups.shape[0]):
                        add_groups(four[0], four[1], four[2], four[3], groups[g], G, static[g])
            for q in range(family):
                add_several(node, columns, statistics, holes, q, main[q], below[own[q], t], found)
            products[G:] = 0.0
            for j in range(G):
                products[j] = found[j, 1]
            copy(products, xm[node, t])
            if s == t:
                of_m[:], of_mm[:] = 0.0, 0.0
                for j in range(G):
                    of_mm[j] = static[0, j, 0]
                for c in range(1, 1 + of_m.shape[0]):
                    for j in range(G):
                        of_m[c - 1, j] = static[c // GROUP, j, c % GROUP]
                lengths(n[node, t], of_m, of_mm, G, work.long)
            compare(n[node, t], sums[node, t], xx[node, t], of_m, products, work.long, neurons, totals, work, odds)
            tell(odds, bits, weight, G, work.logs, work.bits, A[node, t])
            for j in range(G):
                A[node, t, j] += found[j, 0]
