"""Kernels of the pattern bank that compare vectors directly: for missing values, and for similarity by differences.

Matrix products do not help in these cases, so every neuron is compared with every sample in float64, from the stored
vectors. A few samples are learned in two kernels: `activity` compares them with all neurons in parallel; `walk`, one
program per node, then takes one sample after another and compares it again with the neurons that have changed since.

In all kernels: `samples` are patches x (nodes, batch, size), which of their values were observed, and of which patches
(nodes, batch) any; None: all. `prototypes` are m (nodes, room, size), and how often each of their values was observed,
if there are holes. `c` counts of the neurons, 0 in a free slot.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sqhn.banks.cuda.kernels.common import GREW, NONE, SKIPPED, TIE, first_of, written_to
from sqhn.banks.cuda.kernels.prototypes import moved_by, observed, observed_values, shifted, similarity


@triton.jit
def compare(
    j, there, samples, prototypes, t, n, sizes,
    euclidean: tl.constexpr, centre: tl.constexpr, J: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The similarities of sample t of node n with its neurons j [J], where `there`; 0 if nothing was observed."""
    x, seen, any_seen = samples
    m, known = prototypes
    batch, room, size = sizes
    place = n * batch + t
    xm = tl.zeros([J, D], tl.float64)
    mm = tl.zeros([J, D], tl.float64)
    xx = tl.zeros([D], tl.float64)
    many = tl.zeros([J, D], tl.int32)
    rows = (n * room + j)[:, None] * size
    for d in range(0, size, D):
        i = d + tl.arange(0, D)
        inside = observed_values(seen, place, i, size)
        y = shifted(x + place * size + i, inside, centre)
        both = there[:, None] & inside[None, :]
        u = shifted(m + rows + i[None, :], both, centre)
        if euclidean:
            if known is not None:
                both = both & (tl.load(known + rows + i[None, :], mask=both, other=0) > 0)
            apart = tl.where(both, y[None, :] - u, 0.0)
            mm += apart * apart
            many += both.to(tl.int32)
        else:
            xm += y[None, :] * u
            mm += u * u
            xx += y * y
    square = tl.sum(mm, 1)
    if euclidean:
        common = tl.sum(many, 1)
        s = 1.0 / (1.0 + tl.sqrt(square / tl.maximum(common, 1).to(tl.float64)))
        s = tl.where(common > 0, s, 0.0)
    else:
        s = similarity(tl.sum(xm, 1), tl.sum(xx) + 0 * square, square, centre)
    return tl.where(observed(any_seen, place), s, 0.0)


@triton.jit(do_not_specialize=["step"])
def walk(
    samples, eps, prototypes, neurons, outcome, value, changed, sizes, width, capacity, pseudo, step,
    when_full: tl.constexpr, top: tl.constexpr, euclidean: tl.constexpr, centre: tl.constexpr,
    W: tl.constexpr, B: tl.constexpr, J: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Online steps at one node; step is that of the first sample.

    value (nodes, batch, width): the similarities that `activity` found before them. changed (nodes, batch) is scratch:
    the neurons that have changed since. W values are read at once, and J neurons compared.
    """
    x, seen, any_seen = samples
    m, known = prototypes
    c, mu, written, grown, free = neurons
    k, v, a, kind = outcome
    batch, room, size = sizes
    n = tl.program_id(0).to(tl.int64)
    c_n, mu_n, written_n, changed_n = c + n * room, mu + n * room, written + n * room, changed + n * batch
    G, F = tl.load(grown + n).to(tl.int32), tl.load(free + n).to(tl.int32)
    others = G * 0  # how many have changed
    lane, listed = tl.arange(0, J), tl.arange(0, B)
    for t in range(batch):
        place = n * batch + t
        value_t = value + place * width
        sent = tl.load(eps + t) * 0
        best = sent
        to = G * 0
        what = G * 0 + SKIPPED
        if observed(any_seen, place):
            for b in range(0, others, J):
                e = b + lane
                j = tl.load(changed_n + e, mask=e < others, other=0)
                s = compare(j, e < others, samples, prototypes, t, n, sizes, euclidean, centre, J, D)
                tl.store(value_t + j, s, mask=e < others)
            tl.debug_barrier()
            winner, best = first_of(value_t, G, W)
            below = best < tl.load(eps + t) - TIE
            to, what = written_to(below, winner, G, F, c_n, written_n, capacity, when_full, True, W)
            used, was = tl.load(c_n + to), tl.load(mu_n + to)
            tl.debug_barrier()  # all values that are written now have been read
            if what != SKIPPED:
                new = what >= GREW
                count = tl.where(new, 1, used + 1)
                mean = tl.where(new, 1.0, was + (best - was) / (count + pseudo).to(tl.float64))
                tl.store(c_n + to, count)
                tl.store(mu_n + to, mean)
                tl.store(written_n + to, step.to(tl.int64) + t)
                row = (n * room + to) * size
                for d in range(0, size, D):
                    i = d + tl.arange(0, D)
                    inside = i < size
                    there = observed_values(seen, place, i, size)
                    y = tl.load(x + place * size + i, mask=there, other=0.0)
                    p = tl.load(m + row + i, mask=inside, other=0.0)
                    often = count.to(tl.int32)
                    if known is not None:
                        before = tl.load(known + row + i, mask=inside, other=0)
                        often = tl.where(new, 0, before) + there.to(tl.int32)
                        tl.store(known + row + i, often, mask=inside)
                    averaged = tl.where(often == 1, y, moved_by(p, y, tl.maximum(often, 1)))
                    p = tl.where(there, averaged, tl.where(new, centre, p))
                    tl.store(m + row + i, p, mask=inside)
                F = tl.where((what == GREW) & (to < G), F - 1, F)
                G = tl.where(new, tl.maximum(G, to + 1), G)
                before = tl.load(changed_n + listed, mask=listed < others, other=NONE)
                fresh = tl.sum((before == to).to(tl.int32)) == 0
                tl.store(changed_n + others, to, mask=fresh)
                others += fresh.to(tl.int32)
            tl.debug_barrier()
            sent = tl.where(what >= GREW, 1.0, best)
            if not top:
                s = compare(to + lane * 0, lane < 1, samples, prototypes, t, n, sizes, euclidean, centre, J, D)
                sent = tl.sum(tl.where(lane < 1, s, 0.0))
        tl.store(k + place, to)
        tl.store(v + place, sent)
        tl.store(a + place, best)
        tl.store(kind + place, what)
        tl.debug_barrier()
    tl.store(grown + n, G)
    tl.store(free + n, F)


@triton.jit
def activity(
    samples, prototypes, c, s, sizes, width,
    euclidean: tl.constexpr, centre: tl.constexpr, J: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The similarities of one sample and J neurons of one node: s (nodes, batch, width); minus infinity for others."""
    batch, room, _ = sizes
    t, n = tl.program_id(1), tl.program_id(2).to(tl.int64)
    j = tl.program_id(0) * J + tl.arange(0, J)
    living = tl.load(c + n * room + j, mask=j < width, other=0) > 0
    found = compare(j, living, samples, prototypes, t, n, sizes, euclidean, centre, J, D)
    tl.store(s + (n * batch + t) * width + j, tl.where(living, found, -float("inf")), mask=j < width)


@triton.jit
def at(
    samples, prototypes, start, candidate, s, sizes,
    euclidean: tl.constexpr, centre: tl.constexpr, J: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The similarities of the candidates of one sample at one node."""
    batch, _, _ = sizes
    t, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    stop = tl.load(start + n * batch + t + 1)
    for b in range(tl.load(start + n * batch + t), stop, J):
        e = b + tl.arange(0, J)
        j = tl.load(candidate + e, mask=e < stop, other=0)
        found = compare(j, e < stop, samples, prototypes, t, n, sizes, euclidean, centre, J, D)
        tl.store(s + e, found, mask=e < stop)
