"""What blocks say for neurons (`sqhn.evidence`), from sums over their values.

A block's sums, for each channel c: n, x and xx of the question (values, their sum, that of their squares), and for each
neuron m, mm and xm (the sums of what it has stored, of its squares, and of products). Those of a block are the sums of
those of its parts. All of it is float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks.cpu.compiled import compiled, numbers
from sqhn.banks.cpu.kernels.counts import COUNT, NEXT_BY_NEURON, NONE, VALUE, Lists, counted
from sqhn.banks.cpu.kernels.neurons import Kept
from sqhn.evidence import FLOOR, LENGTH, ODDS, STRUCTURE

FINITE = 500.0
"""Log likelihoods up to this can be computed as such; beyond, logarithms are."""
TILE = 4
"""Samples that meet a block while it is at hand."""
NEGLIGIBLE = 60.0
"""Nats below the best from which a likelihood is left out of sums."""


class Question(NamedTuple):
    """Sums of the questions, all (nodes, batch, channels)."""

    n: Any
    x: Any
    xx: Any


class Stored(NamedTuple):
    """Sums of neurons, (nodes, samples, channels, room); m and mm for one sample, if they are the same for all."""

    m: Any
    mm: Any
    xm: Any


@numbers
def lengths(n, m, mm, G, out):
    """Of what is stored in a block, as it is and less its means, into out (2, neurons); infinite if that is nothing."""
    for j in range(G):
        out[0, j] = 0.0
        out[1, j] = 0.0
    for c in range(n.shape[0]):
        if n[c] > 0:
            share = 1.0 / n[c]
            for j in range(G):
                out[0, j] += mm[c, j]
                out[1, j] += mm[c, j] - m[c, j] * m[c, j] * share
    for j in range(G):
        energy, left = out[0, j], out[1, j]
        out[0, j] = np.sqrt(energy)
        out[1, j] = np.sqrt(left) if left > STRUCTURE * energy else np.inf


@numbers
def unexplained(products, long, length, G, t):
    """t = 1 - r^2 + e of every neuron, from products and lengths."""
    for j in range(G):
        r = products[j] / (long[j] * length + LENGTH)
        rest = 1.0 - r * r if r > 0.0 else 1.0
        t[j] = (rest if rest > 0.0 else 0.0) + FLOOR


@numbers
def weigh(t, living, G, many, d, flat, power, z):
    """N p_j / 10 of every neuron into z, from t; 0 for those that do not live."""
    if many < G:
        for j in range(G):
            if not living[j]:
                t[j] = np.inf
    least = t[0]
    for j in range(1, G):
        if t[j] < least:
            least = t[j]
    top = max(-0.5 * d * np.log(least), flat, 0.0)
    total = 0.0
    if top < FINITE:
        half = d // 2
        if d % 2:
            for j in range(G):
                z[j] = np.sqrt(t[j])
        else:
            for j in range(G):
                z[j] = 1.0
        for j in range(G):
            power[j] = t[j]
        while half:
            if half % 2:
                for j in range(G):
                    z[j] *= power[j]
            half //= 2
            if half:
                for j in range(G):
                    power[j] *= power[j]
        for j in range(G):
            z[j] = 1.0 / z[j]
            total += z[j]
        total += many * (np.exp(flat) + 1.0)
    else:
        cut = np.exp(-2.0 / d * (top - NEGLIGIBLE))
        for j in range(G):
            z[j] = 0.0
            if t[j] <= cut:
                z[j] = np.exp(-0.5 * d * np.log(t[j]) - top)
                total += z[j]
        total += many * (np.exp(flat - top) + np.exp(-top))
    share = many / total / ODDS
    for j in range(G):
        z[j] *= share


@numbers
def look(n, x, xx, m, xm, long, living, G, many, scratch, z):
    """Both looks at a block: what they multiply odds by, less 1, into z (2, neurons). Arrays have channels first.

    long: `lengths`. G: how many neurons there are, many: how many of them live. Returns how many looks there were.
    """
    t, power, products = scratch[0], scratch[1], scratch[2]
    d, channels, energy, mean, price = 0, 0, 0.0, 0.0, 0.0
    for c in range(n.shape[0]):
        if n[c] > 0:
            d += n[c]
            channels += 1
            energy += xx[c]
            mean += x[c] * x[c] / n[c]
            price += 0.5 * np.log(n[c])
    if d == 0 or many == 0:
        return 0
    left = max(energy - mean, 0.0)
    for j in range(G):
        products[j] = xm[0, j]
    for c in range(1, n.shape[0]):
        for j in range(G):
            products[j] += xm[c, j]
    unexplained(products, long[0], np.sqrt(energy), G, t)
    share = left / energy if energy > 0 else 1.0
    weigh(t, living, G, many, d, -0.5 * d * np.log(share + FLOOR) - price, power, z[0])
    if d == channels:
        return 1
    if left > STRUCTURE * energy:
        for c in range(n.shape[0]):
            if n[c] > 0:
                share = x[c] / n[c]
                for j in range(G):
                    products[j] -= share * m[c, j]
        unexplained(products, long[1], np.sqrt(left), G, t)
    else:
        for j in range(G):
            t[j] = 1.0 + FLOOR
    weigh(t, living, G, many, d - channels, -np.inf, power, z[1])
    return 2


@numbers
def add_sums(x, seen, masked, values, G, channels, question, m, mm, xm):
    """Add those of one block's values (size, room), less the centre, to the sums; only seen ones where masked."""
    n, sx, sxx = question
    for i in range(x.shape[0]):
        if masked and not seen[i]:
            continue
        c = i % channels
        n[c] += 1
        sx[c] += x[i]
        sxx[c] += x[i] * x[i]
        for j in range(G):
            xm[c, j] += x[i] * values[i, j]
        if masked:
            for j in range(G):
                m[c, j] += values[i, j]
                mm[c, j] += values[i, j] * values[i, j]


@compiled
def pyramid(lo, hi, x, seen, masked, values, whole, order, weight, living, many, out):
    """The evidence of one level: out (batch, neurons), over a pyramid of blocks; range(lo, hi) runs over samples.

    x, seen (finest blocks, batch, size); values (finest blocks, size, neurons): what is stored, less the centre. whole:
    m and mm (blocks, channels, neurons) of all blocks, for where nothing is masked. order (blocks, 2): which block, and
    of which scale; each comes after those that it is made of, and the whole sample last. weight: of that.
    """
    channels, neurons, tile = whole[0].shape[1], values.shape[2], min(TILE, hi - lo)
    shape = (tile, order[-1, 1] + 1, channels)
    n, sx, sxx = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape)
    xm = np.zeros((*shape, neurons))
    own = (*shape, neurons) if masked else (0, 0, 0, 0)
    m, mm = np.zeros(own), np.zeros(own)
    scratch, z, long = np.empty((3, neurons)), np.empty((2, neurons)), np.empty((2, neurons))
    odds = np.ones((tile, neurons))
    out[lo:hi] = 0.0
    for first in range(lo, hi, tile):
        for step in range(order.shape[0]):
            b, scale = order[step]
            last = step == order.shape[0] - 1
            for s in range(min(tile, hi - first)):
                question = n[s, scale], sx[s, scale], sxx[s, scale]
                ms, mms = (m[s, scale], mm[s, scale]) if masked else (whole[0][b], whole[1][b])
                if scale == 0:
                    t = first + s
                    add_sums(x[b, t], seen[b, t] if masked else seen[0, 0], masked, values[b], neurons, channels,
                             question, ms, mms, xm[s, 0])  # fmt: skip
                if masked or s == 0:
                    lengths(question[0], ms, mms, neurons, long)
                looks = look(*question, ms, xm[s, scale], long, living, neurons, many, scratch, z)
                for i in range(looks):
                    if last:
                        for j in range(neurons):
                            out[first + s, j] += weight * np.log1p(z[i, j])
                    else:
                        gain(odds[s], z[i], neurons)
                if not last:
                    carry(n[s], sx[s], sxx[s], xm[s], scale)
                    if masked:
                        carry_rows(m[s], scale)
                        carry_rows(mm[s], scale)
                else:
                    clear(n[s], sx[s], sxx[s], xm[s], scale)
                    if masked:
                        m[s, scale], mm[s, scale] = 0.0, 0.0
            if step % 16 == 15 or last:  # before a product of odds is too large
                for s in range(min(tile, hi - first)):
                    for j in range(neurons):
                        out[first + s, j] += np.log(odds[s, j])
                        odds[s, j] = 1.0
    for t in range(lo, hi):
        for j in range(neurons):
            if not living[j]:
                out[t, j] = -np.inf


@numbers
def gain(odds, z, G):
    """Multiply odds by what a look is worth."""
    for j in range(G):
        odds[j] *= 1.0 + z[j]


@compiled
def carry(n, sx, sxx, xm, scale):
    """Move the sums of a block to the one that it is a part of."""
    n[scale + 1] += n[scale]
    sx[scale + 1] += sx[scale]
    sxx[scale + 1] += sxx[scale]
    n[scale], sx[scale], sxx[scale] = 0, 0.0, 0.0
    carry_rows(xm, scale)


@numbers
def carry_rows(sums, scale):
    """The same for the sums of neurons."""
    for c in range(sums.shape[1]):
        for j in range(sums.shape[2]):
            sums[scale + 1, c, j] += sums[scale, c, j]
            sums[scale, c, j] = 0.0


@compiled
def clear(n, sx, sxx, xm, scale):
    """Begin anew."""
    n[scale], sx[scale], sxx[scale], xm[scale] = 0, 0.0, 0.0, 0.0


@compiled
def patches(lo, hi, x, seen, masked, values, question, stored, kept, A):
    """The evidence of the nodes of level 1: A (nodes, batch, room), and their sums; range(lo, hi) runs over nodes.

    values (nodes, size, room): what is stored, less the centre.
    """
    question, stored, kept = Question(*question), Stored(*stored), Kept(*kept)
    room = values.shape[2]
    scratch, z, long = np.empty((3, room)), np.empty((2, room)), np.empty((2, room))
    for node in range(lo, hi):
        G = kept.grown[node]
        living = kept.c[node] > 0
        many = living[:G].sum()
        for t in range(x.shape[1]):
            s = t if masked else 0
            m, mm, xm = stored.m[node, s], stored.mm[node, s], stored.xm[node, t]
            sums = question.n[node, t], question.x[node, t], question.xx[node, t]
            add_sums(x[node, t], seen[node, t] if masked else seen[0, 0], masked, values[node], G,
                     question.n.shape[2], sums, m, mm, xm)  # fmt: skip
            if masked or t == 0:
                lengths(sums[0], m, mm, G, long)
            looks = look(*sums, m, xm, long, living, G, many, scratch, z)
            tell(A[node, t], living, G, z, looks, 1.0)


@compiled
def tell(A, living, G, z, looks, weight):
    """The evidence of looks, for the neurons that live; a node that has none has one for which nothing speaks."""
    A[:] = -np.inf
    for j in range(G):
        if living[j]:
            A[j] = 0.0
            if looks == 2:
                A[j] = weight * np.log((1.0 + z[0, j]) * (1.0 + z[1, j]))
            elif looks:
                A[j] = weight * np.log(1.0 + z[0, j])
    if G == 0:
        A[0] = 0.0


@compiled
def above(lo, hi, children, below, question, under, masked, lists, kept, holes, stored, single, weight, A):
    """The evidence of the nodes of a level from that of their children, `below` (child nodes, batch, values).

    question: the sums of this level's; under, stored: of the children's neurons and of this level's. single (nodes,):
    whose neurons are all single samples, so that their blocks are what their children's values are. range(lo, hi) runs
    over nodes.
    """
    question, under, lists, kept = Question(*question), Stored(*under), Lists(*lists), Kept(*kept)
    stored, pool = Stored(*stored), lists.pool
    room = A.shape[2]
    scratch, z, long = np.empty((3, room)), np.empty((2, room)), np.empty((2, room))
    for node in range(lo, hi):
        G = kept.grown[node]
        living = kept.c[node] > 0
        many = living[:G].sum()
        for t in range(A.shape[1]):
            s, looks = t if masked else 0, 0
            if single[node] and G:
                anew = masked or t == 0
                gather(node, t, s, anew, children, under, lists, living, G, stored)
                n, x, xx = question.n[node, t], question.x[node, t], question.xx[node, t]
                if anew:
                    lengths(n, stored.m[node, s], stored.mm[node, s], G, long)
                looks = look(n, x, xx, stored.m[node, s], stored.xm[node, t], long, living, G, many, scratch, z)
            tell(A[node, t], living, G, z, looks, weight)
            for q in range(children.shape[1]):
                child = children[node, q]
                top = below[child, t].max()
                for j in range(G):
                    e = lists.by_neuron[node, j, q]
                    if e == NONE or not living[j]:
                        continue
                    often = counted(pool[node], e) if holes else kept.c[node, j]
                    if pool[node, e, COUNT] == often:  # a single value
                        A[node, t, j] += below[child, t, pool[node, e, VALUE]]
                        continue
                    total = 0.0
                    while e != NONE:
                        total += pool[node, e, COUNT] / often * np.exp(below[child, t, pool[node, e, VALUE]] - top)
                        e = pool[node, e, NEXT_BY_NEURON]
                    A[node, t, j] += np.log(total) + top


@compiled
def gather(node, t, s, anew, children, under, lists, living, G, stored):
    """The sums of a node's neurons from those of the values that their columns have; anew: also m and mm."""
    stored.xm[node, t] = 0.0
    if anew:
        stored.m[node, s], stored.mm[node, s] = 0.0, 0.0
    for q in range(children.shape[1]):
        child = children[node, q]
        for j in range(G):
            e = lists.by_neuron[node, j, q]
            if e == NONE or not living[j]:
                continue
            value = lists.pool[node, e, VALUE]
            for c in range(stored.xm.shape[2]):
                stored.xm[node, t, c, j] += under.xm[child, t, c, value]
                if anew:
                    stored.m[node, s, c, j] += under.m[child, s, c, value]
                    stored.mm[node, s, c, j] += under.mm[child, s, c, value]
