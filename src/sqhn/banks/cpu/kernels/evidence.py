"""What blocks say for neurons (`sqhn.evidence`), from sums over their values.

A block's sums: of the question n and x for each channel (values, and their sum) and xx (of their squares); of what each
neuron has stored m for each channel, and over all channels mm (squares) and xm (products). Those of a block are the
sums of those of its parts. They are float64; what remains of them once they have cancelled is float32 in small blocks.

Loops run over neurons, which lie side by side, and do one thing each: so they vectorize.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks.cpu.compiled import compiled, fused, inlined, loop, numbers
from sqhn.banks.cpu.kernels.counts import COUNT, NEXT_BY_NEURON, NONE, VALUE, Lists, counted
from sqhn.banks.cpu.kernels.neurons import Statistics
from sqhn.evidence import FLOOR, LENGTH, ODDS, STRUCTURE

SMALL, MIDDLING = 12, 100
"""Likelihoods of blocks of so many values are always numbers, of float32 and of float64, since FLOOR bounds them."""
ENDLESS = 1e100
"""The length of what has no structure: longer than all that is stored, and its square is still a number."""
TILE = 16
"""Samples that meet a block while it is at hand."""
NEURONS = 64
"""Neurons of which a block is copied while they are at hand."""
LARGE = 600.0
"""Nats up to which odds are a number."""
FRACTION, ONE, EXACT = np.uint64(2**52 - 1), np.uint64(1023 << 52), np.uint64(1075 << 52)
"""The bits of a number's fraction, those of 1, and of 2^52, to which small integers can be added as bits."""
SHIFT, LN2 = 2.0**52 + 1023.0, np.log(2.0)
SEVERAL = -2
"""A neuron has seen more than one value of a child."""


class Question(NamedTuple):
    """Sums of the questions: n, x (nodes, batch, channels), xx (nodes, batch)."""

    n: Any
    x: Any
    xx: Any


class Stored(NamedTuple):
    """Sums of neurons: m (nodes, samples, channels, room), mm (nodes, samples, room), xm (nodes, batch, room).

    m and mm are there for one sample, if they are the same for all.
    """

    m: Any
    mm: Any
    xm: Any


# -- loops over neurons ------------------------------------------------------------------------------------------------


@loop
def add(a, row, G, out):
    """out += a row."""
    for j in range(G):
        out[j] += a * row[j]


@loop
def add_product(row, other, a, G, out):
    """out += a row other."""
    for j in range(G):
        out[j] += a * row[j] * other[j]


@loop
def add_less(row, centre, G, out):
    """out += row - centre."""
    for j in range(G):
        out[j] += row[j] - centre


@loop
def add_squared(row, centre, G, out):
    """out += (row - centre)^2."""
    for j in range(G):
        out[j] += (row[j] - centre) * (row[j] - centre)


@loop
def square(u, G):
    """u = u^2."""
    for j in range(G):
        u[j] *= u[j]


@loop
def square_and_multiply(u, G, z):
    """u = u^2, and z *= that."""
    for j in range(G):
        v = u[j] * u[j]
        u[j] = v
        z[j] *= v


@loop
def divide(u, by, G):
    """u /= by."""
    for j in range(G):
        u[j] /= by


@loop
def largest(u, G):
    """The largest of u."""
    most = u[0]
    for j in range(1, G):
        if u[j] > most:
            most = u[j]
    return most


@loop
def total(z, G):
    """The sum of z."""
    found = 0.0
    for j in range(G):
        found += z[j]
    return found


@loop
def gain(odds, a, z, G):
    """odds *= 1 + a z."""
    for j in range(G):
        odds[j] *= 1.0 + a * z[j]


@numbers
def gather(known, row, G, out):
    """Add the entries of a row that are known; those below 0 are none."""
    for j in range(G):
        if known[j] >= 0:
            out[j] += row[known[j]]


# -- a block -----------------------------------------------------------------------------------------------------------


@numbers
def add_weighted(weights, which, count, rows, G, out):
    """Add the first rows that are named, each times its weight, four at a time."""
    for i in range(0, count, 4):
        a, b, c, d = which[i], which[min(i + 1, count - 1)], which[min(i + 2, count - 1)], which[min(i + 3, count - 1)]
        v, w, x, y = weights[a], weights[b], weights[c], weights[d]
        w, x, y = w * (i + 1 < count), x * (i + 2 < count), y * (i + 3 < count)
        for j in range(G):
            out[j] += v * rows[a, j] + w * rows[b, j] + x * rows[c, j] + y * rows[d, j]


@numbers
def multiply(x, which, count, sums, values, centre, G, out):
    """The products of a block of x, whose sums are given, with what is stored, less the centre, as xm.

    It is taken from the sums, and not from what is stored: that would be rounded.
    """
    start = -centre * sums.sum()
    for j in range(G):
        out[j] = start
    add_weighted(x, which, count, values, G, out)


@numbers
def add_stored(which, count, values, centre, G, m, mm):
    """Add the sums of what is stored, over the first values of a block that are named."""
    for i in range(count):
        add_less(values[which[i]], centre, G, m[which[i] % m.shape[0]])
        add_squared(values[which[i]], centre, G, mm)


@numbers
def lengths(n, m, mm, G, out):
    """Of what is stored in a block, as it is and less its means, into out (2, neurons)."""
    left, energy = out[1], out[0]
    for j in range(G):
        left[j] = mm[j]
    for c in range(n.shape[0]):
        if n[c] > 0:
            add_product(m[c], m[c], -1.0 / n[c], G, left)
    for j in range(G):
        left[j] = np.sqrt(left[j]) if left[j] > STRUCTURE * mm[j] else ENDLESS
    for j in range(G):
        energy[j] = np.sqrt(mm[j])


@loop
def explained(products, long, length, G, u):
    """u = 1 / (1 - r^2 + e) of every neuron, from products and lengths."""
    for j in range(G):
        q = long[j] * length + LENGTH
        p = products[j] if products[j] > 0.0 else 0.0
        q *= q
        rest = q - p * p
        u[j] = q / ((rest if rest > 0.0 else 0.0) + FLOOR * q)


@loop
def weigh(u, living, G, many, d, flat, look, others, own, z):
    """Likelihoods into z, as shares of the largest where d is large; returns what makes N p_j / 10 of them.

    many: how many neurons live here, and everywhere. others, own: at both looks, the logarithm of what the likelihoods
    of those elsewhere add up to, and that of those here, if anybody wants it. u is spent.
    """
    if many[0] < G:
        for j in range(G):
            if not living[j]:
                u[j] = 0
    top = 0.0
    if d > MIDDLING:
        most = largest(u, G)
        divide(u, most, G)
        top = 0.5 * d * np.log(most)
    half = d // 2
    if d % 2:
        for j in range(G):
            z[j] = np.sqrt(u[j])
    else:
        for j in range(G):
            z[j] = 1
    if half % 2:
        for j in range(G):
            z[j] *= u[j]
    half //= 2
    while half:
        if half % 2:
            square_and_multiply(u, G, z)
        else:
            square(u, G)
        half //= 2
    every = total(z, G)
    if len(own):
        own[look] = top + np.log(every)
    if len(others):
        every += np.exp(others[look] - top)
    return many[1] / ODDS / (every + many[1] * (np.exp(flat - top) + np.exp(-top)))


@numbers
def both_looks(d, n, x, xx, m, xm, long, living, G, many, others, own, u, z, odds):
    """`meet`, in the precision of u and z."""
    means = np.empty(n.shape[0])
    channels, mean, price, pixels = 0, 0.0, 0.0, 0.0
    for c in range(n.shape[0]):
        if n[c] > 0:
            channels += 1
            mean += x[c] * x[c] / n[c]
            pixels = pixels if c and n[c] == n[c - 1] else np.log(n[c])
            price += 0.5 * pixels
    left = max(xx - mean, 0.0)
    share = left / xx if xx > 0 else 1.0
    explained(xm, long[0], np.sqrt(xx), G, u)
    flat = -0.5 * d * np.log(share + FLOOR) - price
    gain(odds, weigh(u, living, G, many, d, flat, 0, others, own, z), z, G)
    if d == channels:
        return
    if left > STRUCTURE * xx:
        for c in range(n.shape[0]):
            means[c] = -x[c] / n[c] if n[c] > 0 else 0.0
        add_weighted(means, np.arange(n.shape[0]), n.shape[0], m, G, xm)
        explained(xm, long[1], np.sqrt(left), G, u)
    else:
        for j in range(G):
            u[j] = 1.0 / (1.0 + FLOOR)
    gain(odds, weigh(u, living, G, many, d - channels, -np.inf, 1, others, own, z), z, G)


@inlined
def meet(n, x, xx, m, xm, long, living, G, many, others, own, rough, fine, odds):
    """Multiply odds by what both looks at a block are worth: the evidence is the logarithm. xm is spent.

    long: `lengths`. G: how many neurons there are. many, others, own: `weigh`, for both looks. rough, fine (2,
    neurons): scratch, float32 and float64.
    """
    d = n.sum()
    if d > SMALL:
        both_looks(d, n, x, xx, m, xm, long, living, G, many, others, own, fine[0], fine[1], odds)
    elif d > 0:
        both_looks(d, n, x, xx, m, xm, long, living, G, many, others, own, rough[0], rough[1], odds)


@compiled
def all_lengths(lo, hi, n, m, mm, out):
    """`lengths` of range(lo, hi) of blocks."""
    for b in range(lo, hi):
        lengths(n[b], m[b], mm[b], mm.shape[1], out[b])


@compiled
def ask(x, seen, masked, which, n, sums):
    """The sums of a question over a block, n and x; which values were seen. Returns how many, and xx."""
    count, xx = 0, 0.0
    for i in range(x.shape[0]):
        if not masked or seen[i]:
            n[i % n.shape[0]] += 1
            sums[i % n.shape[0]] += x[i]
            xx += x[i] * x[i]
            which[count] = i
            count += 1
    return count, xx


@compiled
def beside(lo, hi, m, index, centre, values, sums, squares):
    """What is stored, neurons side by side: values (blocks, size, neurons); and its sums, less the centre.

    m (nodes, neurons, all values); index (blocks, size): which values a block has. One node has all blocks, or each
    one. sums (blocks, channels, neurons), squares (blocks, neurons). range(lo, hi) runs over blocks.
    """
    neurons, which = values.shape[2], np.arange(index.shape[1])
    for first in range(0, neurons, NEURONS):
        last = min(first + NEURONS, neurons)
        for b in range(lo, hi):
            rows, one = m[min(b, m.shape[0] - 1)], values[b]
            for i in range(index.shape[1]):
                at = index[b, i]
                for j in range(first, last):
                    one[i, j] = rows[j, at]
    sums[lo:hi] = 0.0
    squares[lo:hi] = 0.0
    for b in range(lo, hi):
        add_stored(which, len(which), values[b], centre, neurons, sums[b], squares[b])


# -- one level ---------------------------------------------------------------------------------------------------------


@compiled
def pyramid(lo, hi, x, seen, masked, values, centre, whole, order, weight, living, many, others, own, out):
    """The evidence of one level: out (batch, neurons), over a pyramid of blocks; range(lo, hi) runs over samples.

    x, seen (finest blocks, batch, size), x less the centre; values (finest blocks, size, neurons): what is stored.
    whole: m (blocks, channels, neurons) and lengths (blocks, 2, neurons) of all blocks, for where nothing is masked.
    order (blocks, 2): which block, and of which scale; each comes after those that it is made of, the whole sample
    last. weight: of that. many: how many neurons live here, and everywhere; others (batch, blocks, 2), in that order:
    the logarithm of the likelihoods of those elsewhere, and own: of those here. Both are empty if there are no others.
    """
    channels, neurons, tile = whole[0].shape[1], values.shape[2], min(TILE, hi - lo)
    shape = (tile, order[-1, 1] + 2)  # what the whole is carried to is never read
    n, sx, sxx = np.zeros((*shape, channels), np.int64), np.zeros((*shape, channels)), np.zeros(shape)
    xm = np.zeros((*shape, neurons))
    some = shape if masked else (0, 0)
    m, mm = np.zeros((*some, channels, neurons)), np.zeros((*some, neurons))
    which, odds = np.empty(x.shape[2], np.int64), np.ones((tile, neurons))
    rough, fine, long = np.empty((2, neurons), np.float32), np.empty((2, neurons)), np.empty((2, neurons))
    bits, scratch = odds.view(np.uint64), np.empty(neurons)
    exponent = scratch.view(np.uint64)
    often = max(1, int(LARGE / (2 * np.log1p(many[1] / ODDS))))
    nobody = np.empty(0)
    out[lo:hi] = 0.0
    for first in range(lo, hi, tile):
        for step in range(order.shape[0]):
            b, scale = order[step]
            last = step == order.shape[0] - 1
            if last or (step and step % often == 0):  # before odds are too large
                for s in range(min(tile, hi - first)):
                    tell(odds[s], bits[s], 1.0, neurons, scratch, exponent, out[first + s])
            for s in range(min(tile, hi - first)):
                if scale == 0:
                    t = first + s
                    there = seen[b, t] if masked else seen[0, 0]
                    count, sxx[s, 0] = ask(x[b, t], there, masked, which, n[s, 0], sx[s, 0])
                    multiply(x[b, t], which, count, sx[s, 0], values[b], centre, neurons, xm[s, 0])
                    if masked:
                        add_stored(which, count, values[b], centre, neurons, m[s, 0], mm[s, 0])
                elsewhere = others[first + s, step] if len(others) else nobody
                told = own[first + s, step] if len(own) else nobody
                n[s, scale + 1] += n[s, scale]
                sx[s, scale + 1] += sx[s, scale]
                sxx[s, scale + 1] += sxx[s, scale]
                add_rows(xm[s], scale)
                if masked:
                    add_rows(m[s].reshape(shape[1], -1), scale)
                    add_rows(mm[s], scale)
                    lengths(n[s, scale], m[s, scale], mm[s, scale], neurons, long)
                    meet(n[s, scale], sx[s, scale], sxx[s, scale], m[s, scale], xm[s, scale], long, living,
                         neurons, many, elsewhere, told, rough, fine, odds[s])  # fmt: skip
                    m[s, scale], mm[s, scale] = 0.0, 0.0
                else:
                    meet(n[s, scale], sx[s, scale], sxx[s, scale], whole[0][b], xm[s, scale], whole[1][b], living,
                         neurons, many, elsewhere, told, rough, fine, odds[s])  # fmt: skip
                n[s, scale], sx[s, scale], sxx[s, scale] = 0, 0.0, 0.0
                if scale:  # at the finest they are written, not added to
                    xm[s, scale] = 0.0
        for s in range(min(tile, hi - first)):
            tell(odds[s], bits[s], weight, neurons, scratch, exponent, out[first + s])
    for t in range(lo, hi):
        for j in range(neurons):
            if not living[j]:
                out[t, j] = -np.inf


@numbers
def add_rows(sums, scale):
    """Add the sums of a scale to those of the next."""
    add(1.0, sums[scale], sums.shape[1], sums[scale + 1])


@fused
def tell(odds, bits, weight, G, scratch, exponent, out):
    """Add the evidence of odds, and begin anew. bits, exponent: odds and scratch (neurons,) as integers.

    A logarithm is that of the exponent, and the series of 2 artanh((f - 1) / (f + 1)) for the fraction 1 <= f < 2. Sums
    must not be reordered: SHIFT is large.
    """
    for j in range(G):
        exponent[j] = (bits[j] >> np.uint64(52)) | EXACT
    for j in range(G):
        bits[j] = (bits[j] & FRACTION) | ONE
    for j in range(G):
        s = (odds[j] - 1.0) / (odds[j] + 1.0)
        q = s * s
        series = 1 / 15 + q * (1 / 17 + q * (1 / 19 + q / 21))
        series = 1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13 + q * series)))
        series = 1.0 + q * (1 / 3 + q * (1 / 5 + q * series))
        out[j] += weight * ((scratch[j] - SHIFT) * LN2 + 2.0 * s * series)
    for j in range(G):
        odds[j] = 1.0


# -- trees -------------------------------------------------------------------------------------------------------------


@compiled
def begin(A, living):
    """Nothing speaks yet for neurons, and none can for what does not live; a node without any has one, as it were."""
    for j in range(len(living)):
        A[j] = 0.0 if living[j] else -np.inf
    A[len(living) :] = -np.inf
    if len(living) == 0:
        A[0] = 0.0


@compiled
def patches(lo, hi, x, seen, masked, values, centre, question, stored, long, statistics, A):
    """The evidence of the nodes of level 1: A (nodes, batch, room), and their sums; range(lo, hi) runs over nodes.

    values (nodes, size, room): what is stored; x is less the centre. long (nodes, 2, room): lengths, if nothing is
    masked.
    """
    question, stored, statistics = Question(*question), Stored(*stored), Statistics(*statistics)
    room, which = values.shape[2], np.empty(x.shape[2], np.int64)
    rough, fine, odds, xm = np.empty((2, room), np.float32), np.empty((2, room)), np.ones(room), np.empty(room)
    own, bits, scratch = np.empty((2, room)), odds.view(np.uint64), np.empty(room)
    exponent, nobody = scratch.view(np.uint64), np.empty(0)
    for node in range(lo, hi):
        G = statistics.grown[node]
        living = statistics.c[node, :G] > 0
        many = living.sum()
        for t in range(x.shape[1]):
            n, sums = question.n[node, t], question.x[node, t]
            begin(A[node, t], living)
            n[:], sums[:] = 0, 0.0
            there = seen[node, t] if masked else seen[0, 0]
            count, question.xx[node, t] = ask(x[node, t], there, masked, which, n, sums)
            s = t if masked else 0
            if many == 0:
                continue
            if masked:
                stored.m[node, s], stored.mm[node, s] = 0.0, 0.0
                add_stored(which, count, values[node], centre, G, stored.m[node, s], stored.mm[node, s])
                lengths(n, stored.m[node, s], stored.mm[node, s], G, own)
            xm[G:] = 0.0
            multiply(x[node, t], which, count, sums, values[node], centre, G, xm)
            stored.xm[node, t] = xm
            meet(n, sums, question.xx[node, t], stored.m[node, s], xm, own if masked else long[node], living, G,
                 (many, many), nobody, nobody, rough, fine, odds)  # fmt: skip
            tell(odds, bits, 1.0, G, scratch, exponent, A[node, t])


@compiled
def read_columns(node, lists, statistics, holes, G, table, main):
    """Which value each neuron gives to each child, (children, neurons): NONE if it knows none, SEVERAL if not one.

    main: the likeliest, the lowest of those that are as likely.
    """
    pool = lists.pool
    for q in range(table.shape[0]):
        for j in range(G):
            e = lists.by_neuron[node, j, q]
            if e == NONE or statistics.c[node, j] <= 0:
                table[q, j] = main[q, j] = NONE
                continue
            often = counted(pool[node], e) if holes else statistics.c[node, j]
            table[q, j] = pool[node, e, VALUE] if pool[node, e, COUNT] == often else SEVERAL
            value, most = NONE, 0
            while e != NONE:
                count, other = pool[node, e, COUNT], pool[node, e, VALUE]
                if count > most or (count == most and other < value):
                    value, most = other, count
                e = pool[node, e, NEXT_BY_NEURON]
            main[q, j] = value


@compiled
def above(lo, hi, children, below, question, under, masked, lists, statistics, holes, stored, weight, A):
    """The evidence of the nodes of a level from that of their children, `below` (child nodes, batch, values).

    question: the sums of this level's; under, stored: of the children's neurons and of this level's, whose blocks are
    those of the values that they most likely give to their children. range(lo, hi) runs over nodes.
    """
    question, under, lists, statistics = Question(*question), Stored(*under), Lists(*lists), Statistics(*statistics)
    stored, pool = Stored(*stored), lists.pool
    family, room = children.shape[1], A.shape[2]
    rough, fine, odds, xm = np.empty((2, room), np.float32), np.empty((2, room)), np.ones(room), np.empty(room)
    long, (table, main) = np.empty((2, room)), np.empty((2, family, room), np.int64)
    bits, scratch = odds.view(np.uint64), np.empty(room)
    exponent, nobody = scratch.view(np.uint64), np.empty(0)
    for node in range(lo, hi):
        G = statistics.grown[node]
        living = statistics.c[node, :G] > 0
        many = living.sum()
        read_columns(node, lists, statistics, holes, G, table, main)
        for t in range(A.shape[1]):
            begin(A[node, t], living)
            if many:
                s, n = t if masked else 0, question.n[node, t]
                anew = masked or t == 0
                xm[:] = 0.0
                if anew:
                    stored.m[node, s], stored.mm[node, s] = 0.0, 0.0
                for q in range(family):
                    child, known = children[node, q], main[q]
                    gather(known, under.xm[child, t], G, xm)
                    if anew:
                        gather(known, under.mm[child, s], G, stored.mm[node, s])
                        for c in range(n.shape[0]):
                            gather(known, under.m[child, s, c], G, stored.m[node, s, c])
                stored.xm[node, t] = xm
                if anew:
                    lengths(n, stored.m[node, s], stored.mm[node, s], G, long)
                meet(n, question.x[node, t], question.xx[node, t], stored.m[node, s], xm, long, living, G,
                     (many, many), nobody, nobody, rough, fine, odds)  # fmt: skip
                tell(odds, bits, weight, G, scratch, exponent, A[node, t])
            for q in range(family):
                row = below[children[node, q], t]
                gather(table[q], row, G, A[node, t])
                for j in range(G):
                    if table[q, j] != SEVERAL:
                        continue
                    first = lists.by_neuron[node, j, q]
                    often = counted(pool[node], first) if holes else statistics.c[node, j]
                    e, top, told = first, -np.inf, 0.0
                    while e != NONE:
                        top = max(top, row[pool[node, e, VALUE]])
                        e = pool[node, e, NEXT_BY_NEURON]
                    e = first
                    while e != NONE:
                        told += pool[node, e, COUNT] / often * np.exp(row[pool[node, e, VALUE]] - top)
                        e = pool[node, e, NEXT_BY_NEURON]
                    A[node, t, j] += np.log(told) + top
