"""The code bank's kernels on a GPU.

A chunk is learned like one of patterns: what every sample of it has in common with every neuron (`overlaps`) and with
every other sample (`agreements`) is computed side by side; then `walk`, one program per node, takes the decisions one
after another and corrects the overlaps as neurons change. All of it is exact: counts are integers, strengths float64.

In all kernels: `overlap` (nodes, batch, width) sums of strengths times counts of the values that a sample and a neuron
share, `shared` the same without strengths; `v` (nodes, children, batch) strengths and `k` values of the children; `S`
sums of squared counts.
"""

# Triton reads these functions as its own language.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from sqhn.banks.cuda.fate_kernels import AVERAGED, BECAME, KEPT, fate
from sqhn.level import DELTA, TIE

__all__ = ["agreements", "overlaps", "walk"]

_DELTA, _TIE = tl.constexpr(DELTA), tl.constexpr(TIE)
_KEPT, _AVERAGED, _BECAME = tl.constexpr(KEPT), tl.constexpr(AVERAGED), tl.constexpr(BECAME)


@triton.jit
def overlaps(low, high, v, neuron, count, overlap, shared, family, batch, width, E: tl.constexpr):
    """Add up what one sample shares with the neurons of one node, child by child.

    low, high (nodes, children, batch): where the entries of the child's value are; neuron and count are entries.
    overlap and shared are zero before.
    """
    t, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row, shared_row = overlap + (n * batch + t) * width, shared + (n * batch + t) * width
    for q in range(family):
        place = (n * family + q) * batch + t
        strength = tl.load(v + place)
        begin, end = tl.load(low + place), tl.load(high + place)
        for b in range(begin, end, E):
            e = b + tl.arange(0, E)
            inside = e < end
            j = tl.load(neuron + e, mask=inside, other=0)
            times = tl.load(count + e, mask=inside, other=0)
            tl.store(row + j, tl.load(row + j, mask=inside, other=0.0) + strength * times, mask=inside)
            tl.store(shared_row + j, tl.load(shared_row + j, mask=inside, other=0) + times, mask=inside)
        tl.debug_barrier()


@triton.jit
def agreements(k, v, M, same, family, batch, B: tl.constexpr):
    """What sample t shares with the samples after it: M weighs by the strengths of the later one."""
    t, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    for start in range(0, batch, B):
        s = start + tl.arange(0, B)
        inside = (s < batch) & (s >= t)
        weighed = tl.zeros([B], tl.float64)
        many = tl.zeros([B], tl.int32)
        for q in range(family):
            place = (n * family + q) * batch
            agree = inside & (tl.load(k + place + s, mask=inside, other=-1) == tl.load(k + place + t))
            weighed += tl.where(agree, tl.load(v + place + s, mask=inside, other=0.0), 0.0)
            many += agree.to(tl.int32)
        tl.store(M + (n * batch + t) * batch + s, weighed, mask=inside)
        tl.store(same + (n * batch + t) * batch + s, many, mask=inside)


@triton.jit
def activity(overlap, squares, used, length, total, mean: tl.constexpr):
    """h from the strengths times counts that agree, the sum of squared counts and the count."""
    if mean:
        return tl.where(tl.abs(total) > _TIE, overlap / used / tl.where(tl.abs(total) > _TIE, total, 1.0), 0.0)
    return overlap / (length * tl.sqrt(squares.to(tl.float64)) + _DELTA * used)


@triton.jit
def walk(
    overlap, shared, M, same, length, total, heard, heard_shared, hearing, eps, S, c, mu, grown, born, k, v, a, kind,
    family, batch, width, room, capacity, pseudo,
    when_full: tl.constexpr, before: tl.constexpr, mean: tl.constexpr, partial: tl.constexpr, J: tl.constexpr,
    B: tl.constexpr,
):  # fmt: skip
    """The decisions of a chunk at one node, one sample after another.

    born (nodes, room), -1 before: the sample that a neuron began with in this chunk, if any. kind is what became of a
    sample. If partial, the chunk is one sample, of whose children `hearing` (nodes, 1) are not silent; heard (nodes, 1,
    room) are the sums of squared counts over those, heard_shared their overlaps.
    """
    n = tl.program_id(0).to(tl.int64)
    overlap_n, shared_n = overlap + n * batch * width, shared + n * batch * width
    M_n, same_n = M + n * batch * batch, same + n * batch * batch
    S_n, c_n, mu_n, born_n = S + n * room, c + n * room, mu + n * room, born + n * room
    G = tl.load(grown + n).to(tl.int32)
    later = tl.arange(0, B)
    for t in range(batch):
        long = tl.load(length + n * batch + t)
        strength = tl.load(total + n * batch + t)
        threshold = tl.load(eps + t) - _TIE
        j = G * 0
        h = long * 0 - float("inf")
        if G > 0:
            top = tl.full([J], -float("inf"), tl.float64)
            for b in range(0, G, J):
                i = b + tl.arange(0, J)
                top = tl.maximum(
                    top, row(overlap_n + t * width, S_n, heard + n * room, c_n, i, G, long, strength, mean, partial)
                )
            best = tl.max(top)
            first = tl.full([J], 2147483647, tl.int32)
            for b in range(0, G, J):
                i = b + tl.arange(0, J)
                some = row(overlap_n + t * width, S_n, heard + n * room, c_n, i, G, long, strength, mean, partial)
                first = tl.minimum(first, tl.where(some >= best - _TIE, i, 2147483647))
            j = tl.min(first).to(tl.int32)
            squares = tl.load(heard + n * room + j) if partial else tl.load(S_n + j)
            h = activity(
                tl.load(overlap_n + t * width + j), squares, tl.load(c_n + j).to(tl.float64), long, strength, mean
            )
        below = h < threshold
        to, what = fate(below, j, G, c_n, capacity, when_full, J)
        used = tl.load(c_n + to)
        squares = tl.load(S_n + to)
        own = tl.load(overlap_n + t * width + to)
        if what != _KEPT:
            ahead = (later > t) & (later < batch)
            gain = tl.load(M_n + t * batch + later, mask=ahead, other=0.0)
            common = tl.load(same_n + t * batch + later, mask=ahead, other=0)
            if what == _BECAME:
                used = used * 0 + 1
                squares = squares * 0 + family
                own = strength
                tl.store(mu_n + to, long * 0 + 1.0)
                tl.store(born_n + to, t)
            else:
                used = used + 1
                squares = squares + 2 * tl.load(shared_n + t * width + to) + family
                own = own + strength
                gain += tl.load(overlap_n + later * width + to, mask=ahead, other=0.0)
                common += tl.load(shared_n + later * width + to, mask=ahead, other=0)
                was = tl.load(mu_n + to)
                tl.store(mu_n + to, was + (h - was) / (used + pseudo))
            tl.store(overlap_n + later * width + to, gain, mask=ahead)
            tl.store(shared_n + later * width + to, common, mask=ahead)
            tl.store(c_n + to, used)
            tl.store(S_n + to, squares)
            G = tl.maximum(G, to + 1)
        sent = h
        if before:
            if what == _BECAME:
                sent = long * 0 + 1.0
        else:
            if partial:
                louder = tl.load(hearing + n).to(tl.float64)
                if what == _AVERAGED:
                    louder += tl.load(heard + n * room + to) + 2 * tl.load(heard_shared + n * width + to)
                elif what == _KEPT:
                    louder = tl.load(heard + n * room + to)
                sent = activity(own, louder, used.to(tl.float64), long, strength, mean)
            else:
                sent = activity(own, squares, used.to(tl.float64), long, strength, mean)
        tl.store(k + n * batch + t, to)
        tl.store(v + n * batch + t, sent)
        tl.store(a + n * batch + t, h)
        tl.store(kind + n * batch + t, what)
        tl.debug_barrier()
    tl.store(grown + n, G)


@triton.jit
def row(overlap, S, heard, c, i, G, length, total, mean: tl.constexpr, partial: tl.constexpr):
    """The activities of the neurons i; minus infinity where there are none."""
    squares = tl.load(heard + i, mask=i < G, other=1) if partial else tl.load(S + i, mask=i < G, other=1)
    used = tl.load(c + i, mask=i < G, other=1).to(tl.float64)
    h = activity(tl.load(overlap + i, mask=i < G, other=0.0), squares, used, length, total, mean)
    return tl.where(i < G, h, -float("inf"))
