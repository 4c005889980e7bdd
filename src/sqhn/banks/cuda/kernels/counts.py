"""The code bank's kernels on a GPU.

A chunk is learned as in the pattern bank: `overlaps` and `agreements` compute, in parallel, the overlap of every sample
with every neuron and with every other sample. Then `walk`, one program per node, takes the decisions one after another
and corrects the overlaps as neurons change. All of this is exact: counts are integers, and strengths are float64.

In all kernels: `overlap` (nodes, batch, width) sums of strengths times counts, over the children whose value a sample
and a neuron share; `shared` the same without strengths; `v` (nodes, children, batch) strengths and `k` values of the
children; `S` sums of squared counts. Entries (`entries.Entries`) come as two sorted lists, the large one and the
recent one. Arguments that belong together come as a tuple, which the first lines of a kernel unpack.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sqhn.banks.cuda.kernels.common import AVERAGED, GREW, NO_INDEX, NONE, SKIPPED, TIE, written_to

FREE = tl.constexpr(-1.0)  # instead of a root of squared counts: the slot is free, so its activity is minus infinity


@triton.jit
def over(a, b):
    """a / b in float64 without branches, to within the last bit; b > 0 must be in the range of float32."""
    y = (1.0 / b.to(tl.float32)).to(tl.float64)
    y = y + y * (1 - b * y)
    q = a * y
    return q + y * (a - q * b)


@triton.jit
def root(x):
    """sqrt(x) in float64, by the same means."""
    some = tl.maximum(x, 1e-30)
    y = tl.rsqrt(some.to(tl.float32)).to(tl.float64)
    y = y + 0.5 * y * (1 - some * y * y)
    y = y + 0.5 * y * (1 - some * y * y)
    s = x * y
    return s + 0.5 * y * (x - s * s)


@triton.jit
def find(key, length, wanted, inside):
    """How many of the sorted keys are less than the wanted ones."""
    low = tl.zeros(wanted.shape, tl.int32)
    high = low + length
    while tl.max(high - low) > 0:
        middle = (low + high) // 2
        after = (tl.load(key + middle, mask=inside & (low < high), other=0) < wanted) & (low < high)
        high = tl.where(after | (low == high), high, middle)
        low = tl.where(after, middle + 1, low)
    return low


@triton.jit
def ranges(keys, lengths, k, where, total, batch, values, neurons, E: tl.constexpr):
    """The ranges of the entries of the children's values in both lists; total: nodes * children * batch."""
    key, recent = keys
    length, recent_length = lengths
    low, high, recent_low, recent_high = where
    e = tl.program_id(0) * E + tl.arange(0, E)
    inside = e < total
    first = ((e // batch).to(tl.int64) * values + tl.load(k + e, mask=inside, other=0)) * neurons
    tl.store(low + e, find(key, length, first, inside), mask=inside)
    tl.store(high + e, find(key, length, first + neurons, inside), mask=inside)
    tl.store(recent_low + e, find(recent, recent_length, first, inside), mask=inside)
    tl.store(recent_high + e, find(recent, recent_length, first + neurons, inside), mask=inside)


@triton.jit
def add(key, count, begin, end, first, strength, row, shared_row, E: tl.constexpr):
    """Add the entries of one child's value to the overlaps of a sample."""
    for b in range(begin, end, E):
        e = b + tl.arange(0, E)
        times = tl.load(count + e, mask=e < end, other=0)
        j = tl.load(key + e, mask=e < end, other=0) - first
        there = times > 0
        weighed = tl.load(row + j, mask=there, other=0.0) + strength * times
        unweighed = tl.load(shared_row + j, mask=there, other=0) + times
        tl.store(row + j, weighed, mask=there)
        tl.store(shared_row + j, unweighed, mask=there)
    tl.debug_barrier()


@triton.jit
def overlaps(keys, counts, where, k, v, overlap, shared, family, batch, width, values, neurons, E: tl.constexpr):
    """The overlaps of one sample with the neurons of one node, added up child by child."""
    key, recent = keys
    count, recent_count = counts
    low, high, recent_low, recent_high = where
    t, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row, shared_row = overlap + (n * batch + t) * width, shared + (n * batch + t) * width
    for b in range(0, width, E):
        i = b + tl.arange(0, E)
        tl.store(row + i, tl.zeros([E], tl.float64), mask=i < width)
        tl.store(shared_row + i, tl.zeros([E], tl.int32), mask=i < width)
    tl.debug_barrier()
    for q in range(family):
        place = (n * family + q) * batch + t
        strength = tl.load(v + place)
        first = ((n * family + q) * values + tl.load(k + place)) * neurons
        begin, end = tl.load(low + place), tl.load(high + place)
        recent_begin, recent_end = tl.load(recent_low + place), tl.load(recent_high + place)
        add(key, count, begin, end, first, strength, row, shared_row, E)
        if recent_begin < recent_end:
            add(recent, recent_count, recent_begin, recent_end, first, strength, row, shared_row, E)


@triton.jit
def agreements(k, v, M, same, length, family, batch, B: tl.constexpr):
    """The overlaps of sample t with itself and later samples (M by the later one's strengths; same by none).

    Also the length of its strengths.
    """
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
    strength = tl.load(v + n * family * batch + t)
    squared = strength * strength
    for q in range(1, family):
        strength = tl.load(v + (n * family + q) * batch + t)
        squared += strength * strength
    tl.store(length + n * batch + t, tl.sqrt(squared))


@triton.jit
def activity(overlap, side, length):
    """h from the overlap, the root of the squared counts, and the length of the strengths."""
    h = over(overlap, tl.maximum(length * side, 1e-30))  # a length of 0 has an overlap of 0
    return tl.where(side == FREE, -float("inf"), h)


@triton.jit
def former(i, h, j, g):
    """The entry with the lower index."""
    return tl.minimum(i, j), tl.where(i < j, h, g)


@triton.jit
def first_best(h, i, best):
    """The first neuron whose activity is the best, up to rounding (TIE), and its activity."""
    return tl.reduce((tl.where(h >= best - TIE, i, NO_INDEX), h), 0, former)


@triton.jit
def activities(overlap, sides, i, G, length):
    """The activities of the neurons i; minus infinity where there are none."""
    there = i < G
    side = tl.load(sides + i, mask=there, other=1.0)
    h = activity(tl.load(overlap + i, mask=there, other=0.0), side, length)
    return tl.where(there, h, -float("inf"))


@triton.jit
def best_of(overlap, sides, G, length, J: tl.constexpr):
    """The first of the best neurons and its activity; neuron 0 and minus infinity if there is none."""
    high = tl.full([J], -float("inf"), tl.float64)
    for b in range(0, G, J):
        high = tl.maximum(high, activities(overlap, sides, b + tl.arange(0, J), G, length))
    most = tl.max(high)
    j = tl.where(G > 0, NO_INDEX, 0)
    h = length * 0 - float("inf")
    for b in range(0, G, J):
        i = b + tl.arange(0, J)
        j, h = former(j, h, *first_best(activities(overlap, sides, i, G, length), i, most))
    return j, h


@triton.jit(do_not_specialize=["step"])
def walk(
    overlap, shared, M, same, length, eps, sides, partly, neurons, born, outcome, sizes, capacity, pseudo, step,
    when_full: tl.constexpr, top: tl.constexpr, strengths: tl.constexpr, any_free: tl.constexpr,
    ONE: tl.constexpr, J: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The decisions of a chunk at one node, one sample after another.

    sides (nodes, room) are the roots of S, FREE in free slots. born (nodes, room): the sample of this chunk that a
    neuron began with, NONE if it was there before. kind is the outcome of a sample. With `partly`, the chunk is one
    sample with missing children: `many` (nodes, 1) of them count, and `hearing` (nodes, 1) are in the norm; heard
    (nodes, 1, room) are the sums of squared counts over those, sides their roots, heard_shared their overlaps.

    A step waits for memory once: the values that the next step needs are loaded together with those of the neuron. If
    ONE, there are at most J neurons, and their overlaps and sides stay in registers.
    """
    if partly is not None:
        heard, heard_shared, hearing, many = partly
    S, c, mu, written, grown, free = neurons
    k, v, a, kind = outcome
    family, batch, width, room = sizes
    n = tl.program_id(0).to(tl.int64)
    overlap_n, shared_n = overlap + n * batch * width, shared + n * batch * width
    M_n, same_n = M + n * batch * batch, same + n * batch * batch
    S_n, c_n, mu_n, born_n = S + n * room, c + n * room, mu + n * room, born + n * room
    sides_n, written_n, length_n = sides + n * room, written + n * room, length + n * batch
    G = tl.load(grown + n).to(tl.int32)
    F = tl.load(free + n).to(tl.int32) if any_free else G * 0
    counted = family if partly is None else tl.load(many + n).to(tl.int32)
    later, lane = tl.arange(0, B), tl.arange(0, J)
    if ONE:
        row = tl.load(overlap_n + lane, mask=lane < width, other=0.0)
        side_of = tl.load(sides_n + lane, mask=lane < G, other=1.0)
    long, strength, threshold = tl.load(length_n), tl.load(M_n), tl.load(eps) - TIE
    gain = tl.load(M_n + later, mask=later < batch, other=0.0)
    common = tl.load(same_n + later, mask=later < batch, other=0)
    for t in range(batch):
        if ONE:
            some = tl.where(lane < G, activity(row, side_of, long), -float("inf"))
            j, h = first_best(some, lane, tl.max(some))
        else:
            j, h = best_of(overlap_n + t * width, sides_n, G, long, J)
        to, what = written_to(h < threshold, j, G, F, c_n, written_n, capacity, when_full, any_free, J)
        if partly is not None:  # nothing was observed, nothing is learned
            to = tl.where(counted > 0, to, 0)
            what = tl.where(counted > 0, what, SKIPPED)
            h = tl.where(counted > 0, h, 0.0)
        # The neuron's statistics, its overlaps with the samples to come, and the next sample.
        soon = tl.minimum(t + 1, batch - 1)
        ahead = (later > t) & (later < tl.where(what == SKIPPED, 0, batch))
        old = tl.load(overlap_n + later * width + to, mask=ahead, other=0.0)
        old_common = tl.load(shared_n + later * width + to, mask=ahead, other=0)
        own, old_soon = tl.load(overlap_n + t * width + to), tl.load(overlap_n + soon * width + to)
        agreed, gain_soon = tl.load(shared_n + t * width + to), tl.load(M_n + t * batch + soon)
        used, squares, was = tl.load(c_n + to), tl.load(S_n + to), tl.load(mu_n + to)
        rest = (later > soon) & (later < batch)
        next_gain = tl.load(M_n + soon * batch + later, mask=rest, other=0.0)
        next_common = tl.load(same_n + soon * batch + later, mask=rest, other=0)
        if ONE:
            row = tl.load(overlap_n + soon * width + lane, mask=lane < width, other=0.0)
        long_soon, strength_soon = tl.load(length_n + soon), tl.load(M_n + soon * batch + soon)
        threshold_soon = tl.load(eps + soon) - TIE
        tl.debug_barrier()  # all values that are written now have been read
        if what != SKIPPED:
            new = what >= GREW
            used = tl.where(new, 1, used + 1)
            squares = tl.where(new, 0, squares + 2 * agreed) + counted
            own = tl.where(new, 0.0, own) + strength
            gain += tl.where(new, 0.0, old)
            gain_soon += tl.where(new, 0.0, old_soon)
            common += tl.where(new, 0, old_common)
            if new:
                was = long * 0 + 1.0
                if strengths:
                    all_heard = squares if partly is None else tl.load(hearing + n)
                    was = activity(own, root(all_heard.to(tl.float64)), long)
            else:
                was += over(h - was, (used + pseudo).to(tl.float64))
            tl.store(born_n + to, t, mask=new)
            side = root(squares.to(tl.float64))
            tl.store(overlap_n + later * width + to, gain, mask=ahead)
            tl.store(shared_n + later * width + to, common, mask=ahead)
            tl.store(mu_n + to, was)
            tl.store(c_n + to, used)
            tl.store(written_n + to, step.to(tl.int64) + t)
            tl.store(S_n + to, squares)
            if ONE:
                row = tl.where(lane == to, gain_soon, row)
                side_of = tl.where(lane == to, side, side_of)
            else:
                tl.store(sides_n + to, side)
            if any_free:
                F = tl.where((what == GREW) & (to < G), F - 1, F)
            G = tl.maximum(G, to + 1)
        if top:
            sent = tl.where(what >= GREW, 1.0, h)
        else:
            louder = squares.to(tl.float64)
            if partly is not None:
                louder = tl.load(hearing + n).to(tl.float64)
                if what == AVERAGED:
                    louder += tl.load(heard + n * room + to) + 2 * tl.load(heard_shared + n * width + to)
                elif what == SKIPPED:
                    louder = tl.load(heard + n * room + to)
            sent = tl.where(counted > 0, activity(own, root(louder), long), 0.0)
        tl.store(k + n * batch + t, to)
        tl.store(v + n * batch + t, sent)
        tl.store(a + n * batch + t, h)
        tl.store(kind + n * batch + t, what)
        gain, common = next_gain, next_common
        long, strength, threshold = long_soon, strength_soon, threshold_soon
        tl.debug_barrier()
    tl.store(grown + n, G)
    if any_free:
        tl.store(free + n, F)


@triton.jit
def best(overlap, sides, length, grown, k, h, batch, width, each: tl.constexpr, J: tl.constexpr):
    """The winner and its activity for one sample at one node.

    sides (nodes, batch if each, else 1, width) are the roots of the sums of squared counts.
    """
    t, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = n * batch + t
    sides_t = sides + (place if each else n) * width
    long = tl.load(length + place)
    G = tl.load(grown + n).to(tl.int32)
    j, value = best_of(overlap + place * width, sides_t, G, long, J)
    tl.store(k + place, j)
    tl.store(h + place, tl.where(G > 0, value, 0.0))


@triton.jit
def enter(k, winner, kind, born, key, family, batch, values, neurons, room, NEVER: tl.constexpr, B: tl.constexpr):
    """The keys of the entries that the samples of a chunk wrote for one child of one node; NEVER where they wrote none.

    A sample that was averaged into a neuron which a later one replaced wrote none. key (nodes, children, batch).
    """
    q, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    for start in range(0, batch, B):
        t = start + tl.arange(0, B)
        inside = t < batch
        j = tl.load(winner + n * batch + t, mask=inside, other=0)
        wrote = tl.load(kind + n * batch + t, mask=inside, other=SKIPPED) != SKIPPED
        wrote = wrote & (t >= tl.load(born + n * room + j, mask=inside, other=0))
        place = (n * family + q) * batch + t
        one = ((n * family + q) * values + tl.load(k + place, mask=inside, other=0)) * neurons + j
        tl.store(key + place, tl.where(wrote, one, NEVER), mask=inside)


@triton.jit
def repeats(key, count, length, NEVER: tl.constexpr, E: tl.constexpr):
    """How often each key occurs in a sorted list, stored at its first place; 0 at other places, and for NEVER."""
    e = tl.program_id(0) * E + tl.arange(0, E)
    inside = e < length
    own = tl.load(key + e, mask=inside, other=NEVER)
    first = inside & (own < NEVER) & ((e == 0) | (tl.load(key + e - 1, mask=inside & (e > 0), other=0) != own))
    end = find(key, length, tl.where(first, own + 1, 0), first)
    tl.store(count + e, tl.where(first, end - e, 0), mask=inside)


@triton.jit
def forget(key, count, born, length, room, per_node, neurons,
           recent: tl.constexpr, NEVER: tl.constexpr, E: tl.constexpr):  # fmt: skip
    """Set the counts of replaced neurons to 0; drop their keys from the recent list, which is counted again."""
    e = tl.program_id(0) * E + tl.arange(0, E)
    own = tl.load(key + e, mask=e < length, other=NEVER)
    inside = (e < length) & (own < NEVER)
    again = inside & (tl.load(born + own // per_node * room + own % neurons, mask=inside, other=NONE) != NONE)
    if recent:
        tl.store(key + e, tl.full([E], NEVER, key.dtype.element_ty), mask=again)
    else:
        tl.store(count + e, tl.zeros([E], tl.int32), mask=again)
