"""The evidence of blocks for neurons (`sqhn.evidence`), from sums over their values.

The sums of a block: of the question n and x for each channel (how many values, and their sum) and xx (of their
squares); of each neuron m for each channel, and over all channels mm (squares) and xm (products). Those of a block are
the sums of those of its parts. They are float64; what remains of them once they have cancelled is float32 in small
blocks.

Neurons lie side by side, and loops over them do one thing each: so they vectorize.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks.cpu.compiled import compiled, fused, kernel, loop, numbers
from sqhn.banks.cpu.kernels.decision import is_seen
from sqhn.evidence import FLOOR, LENGTH, ODDS, STRUCTURE

FLOAT32_VALUES, FLOAT64_VALUES = 12, 100
"""Likelihoods of blocks of so many values are always numbers, of float32 and of float64, since FLOOR bounds them."""
ENDLESS = 1e100
"""The length of a block without structure: longer than all that is stored, and its square is still a number."""
TILE = 16
"""Samples that are compared with a block while it is in the cache."""
NEURON_BLOCK = 64
"""Neurons of which a block is copied while they are in the cache."""
LARGE = 600.0
"""Nats up to which odds are a number."""
FRACTION, ONE, EXACT = np.uint64(2**52 - 1), np.uint64(1023 << 52), np.uint64(1075 << 52)
"""The bits of a number's fraction, those of 1, and of 2^52, to which small integers can be added as bits."""
SHIFT, LN2 = 2.0**52 + 1023.0, np.log(2.0)


class Work(NamedTuple):
    """Scratch: likelihoods in float32 and in float64 (2, neurons), lengths (2, neurons), logarithms (neurons,).

    bits: the memory of the logarithms as integers. means (channels,). which (values,): indices. living: for each
    neuron. products: with each neuron.
    """

    rough: Any
    fine: Any
    long: Any
    logs: Any
    bits: Any
    means: Any
    which: Any
    living: Any
    products: Any


def even_odds(*shape: int) -> tuple[Any, Any]:
    """Odds of one, and the same memory as integers."""
    value = np.ones(shape)
    return value, value.view(np.uint64)


def scratch(room: int, channels: int, values: int) -> tuple[Any, ...]:
    """For `room` neurons, and blocks with so many channels and values."""
    logs = np.empty(room)
    return (
        np.empty((2, room), np.float32), np.empty((2, room)), np.empty((2, room)), logs, logs.view(np.uint64),
        np.empty(channels), np.empty(max(channels, values), np.int64), np.empty(room, bool), np.empty(room),
    )  # fmt: skip


# -- sums --------------------------------------------------------------------------------------------------------------


@compiled
def ask(x, seen, which, n, sums):
    """The sums of a question over a block, n and x. Returns which values were seen, with room in `which`, and xx."""
    n[:], sums[:] = 0, 0.0
    count, xx = 0, 0.0
    for i in range(x.shape[0]):
        if is_seen(seen, i):
            n[i % n.shape[0]] += 1
            sums[i % n.shape[0]] += x[i]
            xx += x[i] * x[i]
            which[count] = i
            count += 1
    return which[:count], xx


@numbers
def add_weighted(weights, which, rows, G, out):
    """Add the rows that are named, each times its weight, four at a time."""
    last = len(which) - 1
    for i in range(0, len(which), 4):
        a, b, c, d = which[i], which[min(i + 1, last)], which[min(i + 2, last)], which[min(i + 3, last)]
        v, w, x, y = weights[a], weights[b], weights[c], weights[d]
        w, x, y = w * (i + 1 <= last), x * (i + 2 <= last), y * (i + 3 <= last)
        for j in range(G):
            out[j] += v * rows[a, j] + w * rows[b, j] + x * rows[c, j] + y * rows[d, j]


@numbers
def multiply(x, which, sums, values, centre, G, out):
    """The products of a block of x, whose sums are given, with neurons, less the centre, as xm.

    The centre is taken off with the sums, and not from the stored values: that would be rounded.
    """
    total = 0.0
    for c in range(sums.shape[0]):
        total += sums[c]
    start = -centre * total
    for j in range(G):
        out[j] = start
    add_weighted(x, which, values, G, out)


@numbers
def add_stored(which, values, centre, G, m, mm):
    """Add the sums of neurons over the values of a block that are named."""
    for at in range(len(which)):
        i = which[at]
        row, sums = values[i], m[i % m.shape[0]]
        for j in range(G):
            sums[j] += row[j] - centre
        for j in range(G):
            mm[j] += (row[j] - centre) * (row[j] - centre)


@numbers
def add_to(out, row):
    """Add the sums of a scale to those of the next."""
    for j in range(row.shape[0]):
        out[j] += row[j]


@compiled
def copy(row, out):
    """Copy all of it."""
    for j in range(row.shape[0]):
        out[j] = row[j]


@numbers
def lengths(n, m, mm, G, out):
    """The lengths of a block of neurons, as it is and less its means, into out (2, neurons)."""
    left, energy = out[1], out[0]
    for j in range(G):
        left[j] = mm[j]
    for c in range(n.shape[0]):
        if n[c] > 0:
            row, a = m[c], -1.0 / n[c]
            for j in range(G):
                left[j] += a * row[j] * row[j]
    for j in range(G):
        left[j] = np.sqrt(left[j]) if left[j] > STRUCTURE * mm[j] else ENDLESS
    for j in range(G):
        energy[j] = np.sqrt(mm[j])


@kernel
def all_lengths(lo, hi, n, m, mm, out):
    """`lengths` of range(lo, hi) of blocks."""
    for b in range(lo, hi):
        lengths(n[b], m[b], mm[b], mm.shape[1], out[b])


@kernel
def beside(lo, hi, m, start, index, values):
    """The values of neurons side by side, (blocks, size, neurons), where those of m begin at `start`.

    m (nodes, neurons, all values); index (blocks, size): which values a block has. One node has all blocks, or each
    one. range(lo, hi) runs over blocks.
    """
    for first in range(0, m.shape[1], NEURON_BLOCK):
        last = min(first + NEURON_BLOCK, m.shape[1])
        for b in range(lo, hi):
            rows, one = m[min(b, m.shape[0] - 1)], values[b]
            for i in range(index.shape[1]):
                at = index[b, i]
                for j in range(first, last):
                    one[i, start + j] = rows[j, at]


@kernel
def stored_sums(lo, hi, values, centre, sums, squares, which):
    """Sums over the values of blocks, less the centre: (blocks, channels, neurons), and of squares (blocks, neurons).

    range(lo, hi) runs over blocks.
    """
    for b in range(lo, hi):
        sums[b], squares[b] = 0.0, 0.0
        add_stored(which, values[b], centre, values.shape[2], sums[b], squares[b])


# -- a block -----------------------------------------------------------------------------------------------------------


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
def gain(odds, a, z, G):
    """odds *= 1 + a z. Within `weigh` the rounding of this would depend on how many slots there are."""
    for j in range(G):
        odds[j] *= 1.0 + a * z[j]


@loop
def weigh(d, flat, neurons, total, u, z, odds):
    """Multiply odds by 1 + N p_j / 10, from likelihoods z, the powers of u; u is spent.

    Where d is large, z are shares of the largest. total: the logarithm of the sum of likelihoods on all shards. If
    it is minus infinity, that of the neurons here is written there, and odds stay. Without shards it has no values.
    """
    living, many = neurons
    G = len(living)
    for j in range(G):
        if not living[j]:
            u[j] = 0
    top = 0.0
    if d > FLOAT64_VALUES:
        most = u[0]
        for j in range(1, G):
            if u[j] > most:
                most = u[j]
        for j in range(G):
            u[j] /= most
        top = 0.5 * d * np.log(most)
    if d % 2:
        for j in range(G):
            z[j] = np.sqrt(u[j])
    else:
        for j in range(G):
            z[j] = 1
    half = d // 2
    if half % 2:
        for j in range(G):
            z[j] *= u[j]
    half //= 2
    while half:
        if half % 2:
            for j in range(G):
                v = u[j] * u[j]
                u[j] = v
                z[j] *= v
        else:
            for j in range(G):
                u[j] *= u[j]
        half //= 2
    every = 0.0
    for j in range(G):
        every += z[j]
    if len(total):
        if total[0] == -np.inf:
            total[0] = top + np.log(every)
            return
        every = np.exp(total[0] - top)
    a = many / ODDS / (every + many * (np.exp(flat - top) + np.exp(-top)))
    gain(odds, a, z, G)


@numbers
def both_looks(d, n, x, xx, m, xm, long, neurons, totals, means, every, u, z, odds):
    """`compare`, in the precision of u and z; means, every: scratch."""
    G = len(neurons[0])
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
    weigh(d, flat, neurons, totals[:1], u, z, odds)
    if d == channels:
        return
    if left > STRUCTURE * xx:
        for c in range(n.shape[0]):
            means[c] = -x[c] / n[c] if n[c] > 0 else 0.0
            every[c] = c
        add_weighted(means, every[: n.shape[0]], m, G, xm)
        explained(xm, long[1], np.sqrt(left), G, u)
    else:
        for j in range(G):
            u[j] = 1.0 / (1.0 + FLOOR)
    weigh(d - channels, -np.inf, neurons, totals[1:], u, z, odds)


@compiled
def compare(n, x, xx, m, xm, long, neurons, totals, work, odds):
    """Multiply odds by the worth of both looks at a block: the evidence is the logarithm. xm is spent.

    long: `lengths`. neurons: which live, and how many do on all shards. totals: for each look, as in `weigh`.
    """
    d = np.int64(0)  # of this type from the start: parts are compiled for every type that a value may have
    for c in range(n.shape[0]):
        d += n[c]
    rough, fine, means, which = work.rough, work.fine, work.means, work.which
    if d > FLOAT32_VALUES:
        both_looks(d, n, x, xx, m, xm, long, neurons, totals, means, which, fine[0], fine[1], odds)
    elif d > 0:
        both_looks(d, n, x, xx, m, xm, long, neurons, totals, means, which, rough[0], rough[1], odds)


@fused
def tell(odds, bits, weight, G, logs, exponent, out):
    """Add the evidence of odds, and begin anew; logs: scratch; bits, exponent: the memory of both as integers.

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
        out[j] += weight * ((logs[j] - SHIFT) * LN2 + 2.0 * s * series)
    for j in range(G):
        odds[j] = 1.0


# -- one level ---------------------------------------------------------------------------------------------------------


def pyramid_room(batch: int, scales: int, channels: int, size: int, room: int, masked: bool) -> tuple[Any, ...]:
    """Scratch of a thread, for a tile of samples: the sums of every scale, and the odds.

    The sums of the whole are carried up too, and never read there.
    """
    tile = min(TILE, batch), scales + 1
    some = tile if masked else (0, 0)
    sums = (
        np.zeros((*tile, channels), np.int64), np.zeros((*tile, channels)), np.zeros(tile), np.zeros((*tile, room)),
        np.zeros((*some, channels, room)), np.zeros((*some, room)),
    )  # fmt: skip
    return sums, even_odds(tile[0], room), scratch(room, channels, size)


@kernel
def pyramid(lo, hi, x, seen, values, centre, whole, order, weight, neurons, totals, out, room):
    """The evidence of one level: out (batch, neurons), over a pyramid of blocks; range(lo, hi) runs over samples.

    x, seen (finest blocks, batch, size), x less the centre; values (finest blocks, size, neurons): the stored ones.
    whole: m (blocks, channels, neurons) and lengths (blocks, 2, neurons) of all blocks, for where nothing is masked.
    order (blocks, 2): which block, and of which scale; each comes after those that it is made of, the whole sample
    last. weight: of that. neurons, totals (batch, blocks, 2 or 0), in that order: `compare`. room: `pyramid_room`.
    """
    (living, many), (whole_m, whole_long), (sums, all_odds, work) = neurons, whole, room
    (n, sx, sxx, xm, m, mm), (all_odds, bits), work = sums, all_odds, Work(*work)
    tile, masked, neuron_count = n.shape[0], seen.shape[2] > 0, values.shape[2]
    often = max(1, int(LARGE / (2 * np.log1p(many / ODDS))))
    out[lo:hi] = 0.0
    for first in range(lo, hi, tile):
        for step in range(order.shape[0]):
            b, scale = order[step, 0], order[step, 1]
            last = step == order.shape[0] - 1
            for s in range(min(tile, hi - first)):
                t, odds = first + s, all_odds[s]
                if last or (step and step % often == 0):  # before odds are too large
                    tell(odds, bits[s], 1.0, neuron_count, work.logs, work.bits, out[t])
                if scale == 0:
                    which, sxx[s, 0] = ask(x[b, t], seen[b, t], work.which, n[s, 0], sx[s, 0])
                    multiply(x[b, t], which, sx[s, 0], values[b], centre, neuron_count, xm[s, 0])
                    if masked:
                        add_stored(which, values[b], centre, neuron_count, m[s, 0], mm[s, 0])
                of_m, long = whole_m[b], whole_long[b]
                add_to(n[s, scale + 1], n[s, scale])
                add_to(sx[s, scale + 1], sx[s, scale])
                sxx[s, scale + 1] += sxx[s, scale]
                add_to(xm[s, scale + 1], xm[s, scale])
                if masked:
                    of_m, long = m[s, scale], work.long
                    add_to(mm[s, scale + 1], mm[s, scale])
                    for c in range(of_m.shape[0]):
                        add_to(m[s, scale + 1, c], of_m[c])
                    lengths(n[s, scale], of_m, mm[s, scale], neuron_count, long)
                compare(n[s, scale], sx[s, scale], sxx[s, scale], of_m, xm[s, scale], long, neurons,
                        totals[t, step], work, odds)  # fmt: skip
                if masked:
                    m[s, scale], mm[s, scale] = 0.0, 0.0
                n[s, scale], sx[s, scale], sxx[s, scale] = 0, 0.0, 0.0
                if scale:  # at the finest they are written, not added to
                    xm[s, scale] = 0.0
        for s in range(min(tile, hi - first)):
            tell(all_odds[s], bits[s], weight, neuron_count, work.logs, work.bits, out[first + s])
    for t in range(lo, hi):
        for j in range(neuron_count):
            if not living[j]:
                out[t, j] = -np.inf
