"""Kernels of the pattern bank that compare vectors directly: for missing values, and for similarity by differences.

Matrix products do not help there, so every neuron is compared with every sample in float64, from the stored vectors. A
few samples are learned in two kernels: `activity` compares them with all neurons in parallel; `walk`, one program per
node, then takes one sample after another and compares it again with the neurons that have changed since.

In all kernels: `x` patches (nodes, batch, size); if masked, `seen` (the same shape) tells which values were observed,
and `any_seen` (nodes, batch) whether any was. `m` prototypes (nodes, room, size); if there are holes, `known` counts
how often each of their values was observed. `c` counts of the neurons, 0 in a free slot.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sqhn.banks.cuda.kernels.common import GREW, NONE, SKIPPED, TIE, first_of, written_to
from sqhn.banks.cuda.kernels.prototypes import moved_by, observed, similarity

__all__ = ["activity", "at", "walk"]


@triton.jit
def compare(j, there, x_t, seen_t, m_n, known_n, size,
            masked: tl.constexpr, holes: tl.constexpr, euclidean: tl.constexpr, centre: tl.constexpr,
            J: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """The similarities of a sample with observed values and the neurons j [J], where `there`."""
    xm = tl.zeros([J, D], tl.float64)
    mm = tl.zeros([J, D], tl.float64)
    xx = tl.zeros([D], tl.float64)
    many = tl.zeros([J, D], tl.int32)
    rows = j.to(tl.int64)[:, None] * size
    for d in range(0, size, D):
        i = d + tl.arange(0, D)
        inside = i < size
        if masked:
            inside = inside & (tl.load(seen_t + i, mask=inside, other=0) != 0)
        y = tl.where(inside, tl.load(x_t + i, mask=inside, other=0.0).to(tl.float64) - centre, 0.0)
        both = there[:, None] & inside[None, :]
        u = tl.load(m_n + rows + i[None, :], mask=both, other=0.0).to(tl.float64) - centre
        if euclidean:
            if holes:
                both = both & (tl.load(known_n + rows + i[None, :], mask=both, other=0) > 0)
            apart = tl.where(both, y[None, :] - u, 0.0)
            mm += apart * apart
            many += both.to(tl.int32)
        else:
            u = tl.where(both, u, 0.0)
            xm += y[None, :] * u
            mm += u * u
            xx += y * y
    square = tl.sum(mm, 1)
    if euclidean:
        seen = tl.sum(many, 1)
        s = 1.0 / (1.0 + tl.sqrt(square / tl.maximum(seen, 1).to(tl.float64)))
        s = tl.where(seen > 0, s, 0.0)
    else:
        s = similarity(tl.sum(xm, 1), tl.sum(xx) + 0 * square, square, centre)
    return s


@triton.jit(do_not_specialize=["step"])
def walk(
    samples, prototypes, neurons, outcome, value, changed, sizes, capacity, pseudo, step,
    when_full: tl.constexpr, top: tl.constexpr, masked: tl.constexpr, holes: tl.constexpr, euclidean: tl.constexpr,
    centre: tl.constexpr, W: tl.constexpr, B: tl.constexpr, J: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Online steps at one node; step is that of the first sample.

    value (nodes, batch, width): the similarities that `activity` found before them. changed (nodes, batch) is scratch:
    the neurons that have changed since. W values are read at once, and J neurons compared.
    """
    x, seen, any_seen, eps = samples
    m, known = prototypes
    c, mu, written, grown, free = neurons
    k, v, a, kind = outcome
    batch, room, width, size = sizes
    n = tl.program_id(0).to(tl.int64)
    m_n, known_n, changed_n = m + n * room * size, known + n * room * size, changed + n * batch
    c_n, mu_n, written_n = c + n * room, mu + n * room, written + n * room
    G, F = tl.load(grown + n).to(tl.int32), tl.load(free + n).to(tl.int32)
    others = G * 0  # how many have changed
    lane, listed = tl.arange(0, J), tl.arange(0, B)
    for t in range(batch):
        x_t, seen_t = x + (n * batch + t) * size, seen + (n * batch + t) * size
        value_t = value + (n * batch + t) * width
        sent = tl.load(eps + t) * 0
        best = sent - float("inf")
        to = G * 0
        what = G * 0 + SKIPPED
        if observed(any_seen, n * batch + t, masked):
            for b in range(0, others, J):
                e = b + lane
                j = tl.load(changed_n + e, mask=e < others, other=0)
                s = compare(j, e < others, x_t, seen_t, m_n, known_n, size, masked, holes, euclidean, centre, J, D)
                tl.store(value_t + j, s, mask=e < others)
            tl.debug_barrier()
            winner, best = first_of(value_t, G, W)
            if G > F:
                best = tl.load(value_t + winner)
            to, what = written_to(best < tl.load(eps + t) - TIE, winner, G, F, c_n, written_n, capacity, when_full,
                                  True, W)  # fmt: skip
            used, was = tl.load(c_n + to), tl.load(mu_n + to)
            tl.debug_barrier()  # all values that are written now have been read
            if what != SKIPPED:
                new = what >= GREW
                count = tl.where(new, 1, used + 1)
                mean = tl.where(new, 1.0, was + (best - was) / (count + pseudo).to(tl.float64))
                tl.store(c_n + to, count)
                tl.store(mu_n + to, mean)
                tl.store(written_n + to, step.to(tl.int64) + t)
                row = to.to(tl.int64) * size
                for d in range(0, size, D):
                    i = d + tl.arange(0, D)
                    inside = i < size
                    there = inside
                    if masked:
                        there = inside & (tl.load(seen_t + i, mask=inside, other=0) != 0)
                    y = tl.load(x_t + i, mask=there, other=0.0)
                    p = tl.load(m_n + row + i, mask=inside, other=0.0)
                    often = count.to(tl.int32) + tl.zeros([D], tl.int32)
                    if holes:
                        before = tl.load(known_n + row + i, mask=inside, other=0)
                        often = tl.where(new, 0, before) + there.to(tl.int32)
                        tl.store(known_n + row + i, often, mask=inside)
                    averaged = tl.where(often == 1, y, moved_by(p, y, tl.maximum(often, 1)))
                    blank = tl.where(new, tl.zeros([D], tl.float32) + centre, p)
                    p = tl.where(there, tl.where(new, y, averaged), blank)
                    tl.store(m_n + row + i, p, mask=inside)
                F = tl.where((what == GREW) & (to < G), F - 1, F)
                G = tl.where(new, tl.maximum(G, to + 1), G)
                before = tl.load(changed_n + listed, mask=listed < others, other=NONE)
                fresh = tl.sum((before == to).to(tl.int32)) == 0
                tl.store(changed_n + others, to, mask=fresh)
                others += fresh.to(tl.int32)
            tl.debug_barrier()
            sent = tl.where(what >= GREW, 1.0, best)
            if not top:
                s = compare(to + lane * 0, lane < 1, x_t, seen_t, m_n, known_n, size, masked, holes, euclidean, centre,
                            J, D)  # fmt: skip
                sent = tl.sum(tl.where(lane < 1, s, 0.0))
        else:
            best = sent
        tl.store(k + n * batch + t, to)
        tl.store(v + n * batch + t, sent)
        tl.store(a + n * batch + t, best)
        tl.store(kind + n * batch + t, what)
        tl.debug_barrier()
    tl.store(grown + n, G)
    tl.store(free + n, F)


@triton.jit
def activity(samples, prototypes, c, s, sizes,
             masked: tl.constexpr, holes: tl.constexpr, euclidean: tl.constexpr, centre: tl.constexpr,
             J: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """The similarities of one sample and J neurons of one node: s (nodes, batch, width); minus infinity for others."""
    x, seen, any_seen = samples
    m, known = prototypes
    batch, room, width, size = sizes
    b, t, n = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    place = n * batch + t
    j = b * J + tl.arange(0, J)
    living = tl.load(c + n * room + j, mask=j < width, other=0) > 0
    found = compare(j, living, x + place * size, seen + place * size, m + n * room * size, known + n * room * size,
                    size, masked, holes, euclidean, centre, J, D)  # fmt: skip
    found = tl.where(observed(any_seen, place, masked), found, 0.0)
    tl.store(s + place * width + j, tl.where(living, found, -float("inf")), mask=j < width)


@triton.jit
def at(samples, prototypes, start, candidate, s, sizes,
       masked: tl.constexpr, holes: tl.constexpr, euclidean: tl.constexpr, centre: tl.constexpr,
       J: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """The similarities of the candidates of one sample at one node."""
    x, seen, any_seen = samples
    m, known = prototypes
    batch, room, size = sizes
    t, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = n * batch + t
    stop = tl.load(start + place + 1)
    some = observed(any_seen, place, masked)
    for b in range(tl.load(start + place), stop, J):
        e = b + tl.arange(0, J)
        j = tl.load(candidate + e, mask=e < stop, other=0)
        found = compare(j, e < stop, x + place * size, seen + place * size, m + n * room * size,
                        known + n * room * size, size, masked, holes, euclidean, centre, J, D)  # fmt: skip
        tl.store(s + e, tl.where(some, found, 0.0), mask=e < stop)
