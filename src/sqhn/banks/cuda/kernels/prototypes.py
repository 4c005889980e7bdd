"""The pattern bank's kernels on a GPU.

A chunk is learned in two kernels. `walk`, one program per node, takes every decision in the order of the samples. It
works on the matrix products of the chunk and corrects them as neurons change: scalars only, no vectors. If two neurons,
or a neuron and the growth threshold, are too close for float32 products, it evaluates them in float64 from the stored
vectors. `replay` then repeats the same steps on the vectors, one program for each neuron that was compared or written,
all in parallel: the prototypes in float32, in the order of the samples; the similarities in float64.

In all kernels: `A` cosines of samples and neurons, products of unit vectors, (nodes, batch, width), in `walk` in the
order of `cell` and 1 where both have no length; `gram` products among samples; `x` patches (nodes, batch, size); `xx`
|x - centre|^2; `m` prototypes (nodes, room, size), `m2` their squared lengths after the centre is subtracted, `norm`
the roots of those; `c` counts of the neurons, 0 in a free slot. For sample t: `looked` is its best match, NONE where
the node had no neuron; `k` the neuron it was written to; `kind` the outcome (`banks.rule`); `count` the neuron's count
afterwards. The visits to a neuron, numbered as in `visit`, are a linked list: `first` and `last` (nodes, room), NONE
before any; `next_` (nodes, 2 batch). Arguments that belong together come as a tuple, which the first lines of a kernel
unpack.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sqhn.banks import bounds
from sqhn.banks.cuda.kernels.common import AVERAGED, GREW, NO_INDEX, NONE, OVERWRITE, SKIPPED, TIE, compiled, written_to

lost, rough_of = compiled(bounds.lost), compiled(bounds.rough)
_U, _SHORT = tl.constexpr(bounds.U), tl.constexpr(bounds.SHORT * bounds.SHORT)
_FREE = tl.constexpr(-4.0)  # for a cosine in a free slot: less than that of any neuron


@triton.jit
def similarity(xm, xx, mm, centre: tl.constexpr):
    """From a product and squared lengths; the cosine is 1 if both have no length, 0 if one has none."""
    both = tl.sqrt(xx) * tl.sqrt(mm)
    cosine = tl.where(both > 0, xm / tl.where(both > 0, both, 1.0), tl.where(xx == mm, 1.0, 0.0))
    return centre + (1 - centre) * cosine


@triton.jit
def moved_by(m, x, count):
    """m + (x - m) / count in float32, each step rounded as on a CPU."""
    return m + tl.math.div_rn(x - m, tl.zeros_like(m) + count.to(tl.float32))


@triton.jit
def inverse(square):
    """The inverse of a length, from its square; 0 for length 0."""
    return tl.where(square > 0, 1 / tl.sqrt(tl.maximum(square, 1e-300)), 0.0)


@triton.jit
def observed(any_seen, place):
    """Whether any value of a sample was observed."""
    return True if any_seen is None else tl.load(any_seen + place) != 0


@triton.jit
def observed_values(seen, place, i, size):
    """Which of the positions i are within a sample and were observed."""
    inside = i < size
    if seen is not None:
        inside = inside & (tl.load(seen + place * size + i, mask=inside, other=0) != 0)
    return inside


@triton.jit
def shifted(values, inside, centre: tl.constexpr):
    """Values less the centre, in float64; 0 elsewhere."""
    return tl.where(inside, tl.load(values, mask=inside, other=0.0).to(tl.float64) - centre, 0.0)


@triton.jit
def exactly(j, x, seen, place, xx, m_n, visits, t, size, centre: tl.constexpr, D: tl.constexpr):
    """The similarity of a sample and neuron j in float64, over the observed values, from the vectors.

    With visits, the neuron is as the samples before t left it.
    """
    xm = tl.zeros([D], tl.float64)
    mm = tl.zeros([D], tl.float64)
    for d in range(0, size, D):
        i = d + tl.arange(0, D)
        inside = observed_values(seen, place, i, size)
        m = tl.load(m_n + j.to(tl.int64) * size + i, mask=inside, other=0.0)
        if visits is not None:
            first_n, next_n, kind_n, count_n = visits
            e = tl.load(first_n + j)
            e = tl.where(e == NONE, 2 * t, e)
            while e < 2 * t:
                y = tl.load(x + (place - t + e // 2) * size + i, mask=inside, other=0.0)
                if e % 2 == 1:
                    m = y
                elif tl.load(kind_n + e // 2) == AVERAGED:
                    m = moved_by(m, y, tl.load(count_n + e // 2))
                e = tl.load(next_n + e)
        u = tl.where(inside, m.to(tl.float64) - centre, 0.0)
        xm += shifted(x + place * size + i, inside, centre) * u
        mm += u * u
    return similarity(tl.sum(xm), xx, tl.sum(mm), centre)


@triton.jit
def better(p, i, rest, q, j, other):
    """The larger of two products with its neuron, the first of equals, and the best of all that remain."""
    first = (p > q) | ((p == q) & (i < j))
    return tl.where(first, p, q), tl.where(first, i, j), tl.maximum(tl.minimum(p, q), tl.maximum(rest, other))


@triton.jit
def best_two(p, i):
    """The largest product, its neuron, and the second largest."""
    return tl.reduce((p, i, tl.full(p.shape, -float("inf"), p.dtype)), 0, better)


@triton.jit
def cell(t, i, width, Q: tl.constexpr):
    """The place of the product of sample t and neuron i among those of a node; Q samples of a neuron are adjacent."""
    return (t // Q * width + i) * Q + t % Q


@triton.jit
def arrange(products, xx, norm, c, A, batch, width, wide, room, Q: tl.constexpr, J: tl.constexpr):
    """Put the products (nodes, batch, width) of Q samples of one node with J neurons in the order of `cell`.

    A row there has `wide` products: 0 beyond the width and, if c is given, less than any product in free slots.
    """
    t, n = Q * tl.program_id(1) + tl.arange(0, Q)[None, :], tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * J + tl.arange(0, J)[:, None]
    p = tl.load(products + (n * batch + t) * width + i, mask=(t < batch) & (i < width), other=0.0)
    square = tl.load(xx + n * batch + t, mask=t < batch, other=1.0)
    own = tl.load(norm + n * room + i, mask=i < width, other=1.0)
    p = tl.where((square == 0) & (own == 0), 1.0, p)
    if c is not None:
        p = tl.where(tl.load(c + n * room + i, mask=i < width, other=1) == 0, _FREE, p)
    A_n = A + n * ((batch + Q - 1) // Q * Q) * wide
    tl.store(A_n + cell(t, i, wide, Q), p.to(tl.float32), mask=i + 0 * t < wide)


@triton.jit
def tops(A, top, batch, width, wide, tiles, Q: tl.constexpr, J: tl.constexpr):
    """The largest product of Q samples of one node with every J neurons: top (nodes, batch, tiles)."""
    tile, n = tl.program_id(0), tl.program_id(2).to(tl.int64)
    t, i = Q * tl.program_id(1) + tl.arange(0, Q), tile * J + tl.arange(0, J)[:, None]
    A_n = A + n * ((batch + Q - 1) // Q * Q) * wide
    p = tl.load(A_n + cell(t[None, :], i, wide, Q), mask=i + 0 * t[None, :] < width, other=-float("inf"))
    tl.store(top + (n * batch + t) * tiles + tile, tl.max(p, 0), mask=t < batch)


@triton.jit
def measure(samples, y, xx, learning, batch, size, centre: tl.constexpr, D: tl.constexpr):
    """The squared length and the unit vector of one sample at one node, after the centre is subtracted.

    Both are over the observed values; the unit vector is 0 elsewhere. For learning, facts (nodes, batch, 2) are the
    length and the cosine that reaches the growth threshold, and the activity a starts at minus infinity.
    """
    x, seen, _ = samples
    t, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = n * batch + t
    square = tl.zeros([D], tl.float64)
    for d in range(0, size, D):
        i = d + tl.arange(0, D)
        u = shifted(x + place * size + i, observed_values(seen, place, i, size), centre)
        square += u * u
    own = tl.sum(square)
    scale = inverse(own)
    for d in range(0, size, D):
        i = d + tl.arange(0, D)
        u = shifted(x + place * size + i, observed_values(seen, place, i, size), centre)
        tl.store(y + place * size + i, (u * scale).to(y.dtype.element_ty), mask=i < size)
    tl.store(xx + place, own)
    if learning is not None:
        eps, facts, a = learning
        tl.store(a + place, -float("inf"))
        tl.store(facts + 2 * place, tl.sqrt(own).to(tl.float32))
        tl.store(facts + 2 * place + 1, ((tl.load(eps + t) - (TIE + centre)) / (1 - centre)).to(tl.float32))


@triton.jit(do_not_specialize=["step"])
def walk(
    A, top, gram, samples, prototypes, neurons, first, last, next_, outcome, value, sizes,
    capacity, root_size, error, step, when_full: tl.constexpr, any_free: tl.constexpr, centre: tl.constexpr,
    Q: tl.constexpr, J: tl.constexpr, T: tl.constexpr, B: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The decisions of a chunk at one node, one sample after another.

    error bounds the relative error of A and gram. norm, scale and moved describe the neurons as the corrected products
    have them: their length, the length they were added up from, and how often they moved in this chunk. value
    (nodes, room) is scratch. Where a row of A has more than one tile of J neurons, top (nodes, batch, tiles) bounds the
    products of each tile from above. step is that of the first sample. Without any_free no neuron was ever forgotten.

    A step waits for memory once: the values that the next step needs are loaded together with those of the neuron, or
    before. All of it is float32. `slack` covers its errors: those of the products, of this arithmetic, and of the
    float32 prototypes when they move.
    """
    x, xx, facts, eps = samples
    m, norm, scale, moved = prototypes
    c, written, grown, free = neurons
    k, looked, kind, count = outcome
    batch, width, tiles, room, size = sizes
    n = tl.program_id(0).to(tl.int64)
    A_n, gram_n = A + n * ((batch + Q - 1) // Q * Q) * width, gram + n * batch * batch
    top_n, xx_n, facts_n = top + n * batch * tiles, xx + n * batch, facts + 2 * n * batch
    m_n, norm_n, scale_n, moved_n = m + n * room * size, norm + n * room, scale + n * room, moved + n * room
    c_n, written_n, value_n = c + n * room, written + n * room, value + n * room
    first_n, last_n, next_n = first + n * room, last + n * room, next_ + 2 * n * batch
    k_n, looked_n, kind_n, count_n = k + n * batch, looked + n * batch, kind + n * batch, count + n * batch
    followed = first_n, next_n, kind_n, count_n
    G = tl.load(grown + n).to(tl.int32)
    F = tl.load(free + n).to(tl.int32) if any_free else G * 0
    later, lane, tile = tl.arange(0, B), tl.arange(0, J), tl.arange(0, T)
    flats = tl.where(tl.load(xx_n + later, mask=later < batch, other=1.0) == 0, 1.0, 0.0)
    long, need, own = tl.load(facts_n), tl.load(facts_n + 1), tl.load(xx_n)
    rough = long * 0 + rough_of(error, 1.0)
    loose = long * 0
    g = tl.load(gram_n + later, mask=later < batch, other=0.0)
    if T == 1:
        row = tl.load(A_n + cell(0, lane, width, Q), mask=lane < width, other=0.0)
    for t in range(batch):
        soon = tl.minimum(t + 1, batch - 1)
        if T == 1:  # loaded while this sample is decided, with all changes by earlier samples
            next_row = tl.load(A_n + cell(soon, lane, width, Q), mask=lane < width, other=0.0)
        slack = rough + loose
        flat = own == 0
        j = G * 0
        below = need > 0
        if G > F:
            if T == 1:
                high, j, second = best_two(tl.where(lane < G, row, -float("inf")), lane)
            else:
                bound = tl.load(top_n + t * tiles + tile, mask=tile < tiles, other=-float("inf"))
                most, b, _ = best_two(bound, tile)
                high = most * 0 - float("inf")
                second = high
                while (most > -float("inf")) & (most >= high - 2 * slack):
                    i = b * J + lane
                    p, i, rest = best_two(tl.load(A_n + cell(t, i, width, Q), mask=i < G, other=-float("inf")), i)
                    high, j, second = better(high, j, second, p, i, rest)
                    bound = tl.where(tile == b, -float("inf"), bound)
                    most, b, _ = best_two(bound, tile)
            bar = high - 2 * slack
            alone = flat & (high + slack < 0.5)  # no neuron is flat: its cosine with all of them is 0
            near = (second >= bar) & (alone == 0)
            below = tl.where(alone, need > 0, high + slack < need)
            if capacity > G - F or when_full >= OVERWRITE:  # otherwise the threshold decides nothing
                near = near | ((below == 0) & (alone == 0) & (high - slack < need))
            if near:
                # Every neuron that may be best, in float64.
                top_value = own * 0 - float("inf")
                for b in range(0, G, J):
                    i = b + lane
                    p = tl.load(A_n + cell(t, i, width, Q), mask=i < G, other=-float("inf"))
                    left = (p >= bar) & (i < G)
                    rest = tl.sum(left.to(tl.int32))
                    i_next = b - 1
                    while rest > 0:
                        i_next = tl.min(tl.where(left & (i > i_next), i, NO_INDEX)).to(tl.int32)
                        s = exactly(i_next, x, None, n * batch + t, own, m_n, followed, t, size, centre, D)
                        if any_free:
                            s = tl.where(tl.load(c_n + i_next) == 0, -float("inf"), s)
                        tl.store(value_n + i_next, s)
                        top_value = tl.maximum(top_value, s)
                        rest -= 1
                tl.debug_barrier()
                earliest = tl.full([J], NO_INDEX, tl.int32)
                for b in range(0, G, J):
                    i = b + lane
                    p = tl.load(A_n + cell(t, i, width, Q), mask=i < G, other=-float("inf"))
                    s = tl.load(value_n + i, mask=(p >= bar) & (i < G), other=-float("inf"))
                    earliest = tl.minimum(earliest, tl.where(s >= top_value - TIE, i, NO_INDEX))
                j = tl.minimum(tl.min(earliest), G - 1).to(tl.int32)
                below = tl.load(value_n + j) < tl.load(eps + t) - TIE
        to, what = written_to(below | (G == F), j, G, F, c_n, written_n, capacity, when_full, any_free, J)
        # The neuron's statistics, its products with the samples to come, and the next sample.
        ahead = (later > t) & (later < tl.where(what == SKIPPED, 0, batch))
        old = tl.load(A_n + cell(later, to, width, Q), mask=ahead, other=0.0)
        old_soon, p = tl.load(A_n + cell(soon, to, width, Q)), tl.load(A_n + cell(t, to, width, Q))
        used, was, wide, turns = tl.load(c_n + to), tl.load(norm_n + to), tl.load(scale_n + to), tl.load(moved_n + to)
        before_look, before_birth = tl.load(last_n + j), tl.load(last_n + to)
        g_soon = tl.load(gram_n + t * batch + soon)
        g_next = tl.load(gram_n + soon * batch + later, mask=later < batch, other=0.0)
        own_soon = tl.load(xx_n + soon)
        long_soon, need_soon = tl.load(facts_n + 2 * soon), tl.load(facts_n + 2 * soon + 1)
        tl.debug_barrier()  # all values that are written now have been read
        seen, born = tl.where(G > F, j, NONE), tl.where(what >= GREW, to, NONE)
        if what != SKIPPED:
            used = tl.where(what >= GREW, 1, used + 1)
            turns = tl.where(what >= GREW, 0, turns + 1)
            r = 1.0 / used.to(tl.float32)
            keep, add = (1 - r) * was, r * long
            wide = (1 - r) * wide + add
            square = tl.maximum(keep * keep + 2 * keep * add * p + add * add, 0.0)
            unit = tl.where(square > 0, tl.rsqrt(tl.maximum(square, 1e-30)), 0.0)
            anew, still = what >= GREW, add == 0  # a sample of length 0 moves nothing
            of_old = tl.where(anew, 0.0, tl.where(still, 1.0, keep * unit))
            of_new = tl.where(anew, 1.0, tl.where(still, 0.0, add * unit))
            corrected = of_old * old + of_new * (g + flats * tl.where(flat, 1.0, 0.0))  # both flat: 1
            tl.store(A_n + cell(later, to, width, Q), corrected, mask=ahead)
            if T == 1:
                g_soon = tl.where(flat & (own_soon == 0), 1.0, g_soon)
                next_row = tl.where(lane == to, of_old * old_soon + of_new * g_soon, next_row)
            else:
                bounds = top_n + later * tiles + to // J
                tl.store(bounds, tl.maximum(tl.load(bounds, mask=ahead, other=0.0), corrected), mask=ahead)
            tl.store(c_n + to, used)
            tl.store(written_n + to, step.to(tl.int64) + t)
            tl.store(norm_n + to, tl.where(anew, add, square * unit))
            tl.store(scale_n + to, wide)
            tl.store(moved_n + to, turns)
            spread = tl.where(anew, 1.0, wide * unit)
            rough = tl.maximum(rough, rough_of(error, spread))
            worn = lost(turns, spread, unit, root_size, centre, _U)
            unknown = (square < 1e-6 * wide * wide) | (square < _SHORT)  # its products may have any value,
            unknown = unknown & ((was > 0) | (add > 0))  # unless it had no length and still has none
            loose = tl.maximum(loose, tl.where(anew, 0.0, tl.where(unknown, 2.0, worn)))
        visit(2 * t, seen, before_look, first_n, last_n, next_n, batch)
        visit(2 * t + 1, born, tl.where(seen == to, 2 * t, before_birth), first_n, last_n, next_n, batch)
        tl.store(looked_n + t, seen)
        tl.store(k_n + t, to)
        tl.store(kind_n + t, what)
        tl.store(count_n + t, used)
        if any_free:
            F = tl.where((what == GREW) & (to < G), F - 1, F)
        G = tl.where(what >= GREW, tl.maximum(G, to + 1), G)
        g = g_next
        if T == 1:
            row = next_row
        long, need, own = long_soon, need_soon, own_soon
        tl.debug_barrier()
    tl.store(grown + n, G)
    if any_free:
        tl.store(free + n, F)


@triton.jit
def visit(e, j, before, first_n, last_n, next_n, batch):
    """Append a visit to those of neuron j, if any: 2 t where it was the best match of t, 2 t + 1 where t became it."""
    tl.store(next_n + before, e, mask=(j != NONE) & (before != NONE))
    tl.store(first_n + j, e, mask=(j != NONE) & (before == NONE))
    tl.store(last_n + j, e, mask=j != NONE)
    tl.store(next_n + e, 2 * batch)


@triton.jit
def replay(
    x, xx, m, m2, unit, mu, first, next_, k, looked, kind, count, sums, a, v, batch, room, size, pseudo,
    top: tl.constexpr, centre: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The steps of a chunk at one neuron, repeated on its vector. sums (nodes, batch, 4) is scratch."""
    n = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(0)
    j = tl.where(begin % 2 == 0, tl.load(looked + n * batch + begin // 2), tl.load(k + n * batch + begin // 2))
    x_n, xx_n, sums_n = x + n * batch * size, xx + n * batch, sums + n * batch * 4
    kind_n, count_n, next_n = kind + n * batch, count + n * batch, next_ + 2 * n * batch
    place = n * room + j
    if j == NONE or tl.load(first + place, mask=j != NONE, other=NONE) != begin:
        return  # no neuron, or one of another program
    row = m + place * size
    square = tl.zeros([D], tl.float64)
    wrote = 0
    for d in range(0, size, D):
        i = d + tl.arange(0, D)
        inside = i < size
        p = tl.load(row + i, mask=inside, other=0.0)
        e = begin
        while e < 2 * batch:
            t = e // 2
            y = tl.load(x_n + t * size + i, mask=inside, other=0.0)
            if e % 2 == 1:
                p = y
                wrote = 1
            else:
                y8 = tl.where(inside, y.to(tl.float64) - centre, 0.0)
                p8 = tl.where(inside, p.to(tl.float64) - centre, 0.0)
                xm, mm = tl.sum(y8 * p8), tl.sum(p8 * p8)
                if tl.load(kind_n + t) == AVERAGED:
                    p = moved_by(p, y, tl.load(count_n + t))
                    wrote = 1
                    p8 = tl.where(inside, p.to(tl.float64) - centre, 0.0)
                xm_after, mm_after = tl.sum(y8 * p8), tl.sum(p8 * p8)
                if d > 0:
                    xm += tl.load(sums_n + 4 * t)
                    mm += tl.load(sums_n + 4 * t + 1)
                    xm_after += tl.load(sums_n + 4 * t + 2)
                    mm_after += tl.load(sums_n + 4 * t + 3)
                    tl.debug_barrier()
                tl.store(sums_n + 4 * t, xm)
                tl.store(sums_n + 4 * t + 1, mm)
                tl.store(sums_n + 4 * t + 2, xm_after)
                tl.store(sums_n + 4 * t + 3, mm_after)
            e = tl.load(next_n + e)
        if wrote == 1:
            tl.store(row + i, p, mask=inside)
        p8 = tl.where(inside, p.to(tl.float64) - centre, 0.0)
        square += p8 * p8
        tl.debug_barrier()
    total = tl.sum(square)
    # Similarities, and their running mean.
    mean = tl.load(mu + place)
    e = begin
    while e < 2 * batch:
        t = e // 2
        own = tl.load(xx_n + t)
        if e % 2 == 1:
            mean = own * 0 + 1.0
            tl.store(v + n * batch + t, mean if top else similarity(own, own, own, centre))
        else:
            s = similarity(tl.load(sums_n + 4 * t), own, tl.load(sums_n + 4 * t + 1), centre)
            tl.store(a + n * batch + t, s)
            what = tl.load(kind_n + t)
            if what == AVERAGED:
                mean += (s - mean) / (tl.load(count_n + t) + pseudo)
            if not top:
                s = similarity(tl.load(sums_n + 4 * t + 2), own, tl.load(sums_n + 4 * t + 3), centre)
            tl.store(v + n * batch + t, s, mask=what < GREW)
        e = tl.load(next_n + e)
    tl.store(mu + place, mean)
    if wrote == 1:
        tl.store(m2 + place, total)
        for d in range(0, size, D):
            i = d + tl.arange(0, D)
            p8 = tl.load(row + i, mask=i < size, other=0.0).to(tl.float64) - centre
            tl.store(unit + place * size + i, (p8 * inverse(total)).to(unit.dtype.element_ty), mask=i < size)


@triton.jit
def best(
    A, squares, samples, xx, m, c, grown, value, k, v, batch, width, room, size, error,
    centre: tl.constexpr, J: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The winner and its similarity for one sample at one node; value (nodes, batch, width) is scratch.

    If values are missing, xx and A run over the observed ones, and squares (nodes, batch, width) are the squared
    lengths of the neurons' unit vectors there. c is given if there may be free slots.
    """
    x, seen, any_seen = samples
    t, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = n * batch + t
    value_t, m_n = value + place * width, m + n * room * size
    own = tl.load(xx + place)
    G = tl.load(grown + n).to(tl.int32)
    j = G * 0
    s = own * 0
    if G > 0:
        high = tl.full([J], -float("inf"), tl.float64)
        first = tl.zeros([J], tl.int32)
        for b in range(0, G, J):
            i, p = products(A, squares, c, place * width, n * room, b, G, J)
            first = tl.where(p > high, i, first)
            high = tl.maximum(high, p)
        j = tl.minimum(tl.min(tl.where(high >= tl.max(high), first, NO_INDEX)), G - 1).to(tl.int32)
        if observed(any_seen, place):  # otherwise silent, at the first neuron
            s = exactly(j, x, seen, place, own, m_n, None, t, size, centre, D)
            bar = (s - centre - TIE) / (1 - centre) - error
            bar = tl.where(own == 0, -float("inf"), bar)  # products cannot tell vectors of length 0 apart
            others = tl.zeros([J], tl.int32)
            for b in range(0, G, J):
                i, p = products(A, squares, c, place * width, n * room, b, G, J)
                others += candidates(i, p, bar, j).to(tl.int32)
            if tl.sum(others) > 0:
                tl.store(value_t + j, s)
                for b in range(0, G, J):
                    i, p = products(A, squares, c, place * width, n * room, b, G, J)
                    left = candidates(i, p, bar, j)
                    rest = tl.sum(left.to(tl.int32))
                    i_next = b - 1
                    while rest > 0:
                        i_next = tl.min(tl.where(left & (i > i_next), i, NO_INDEX)).to(tl.int32)
                        exact = exactly(i_next, x, seen, place, own, m_n, None, t, size, centre, D)
                        tl.store(value_t + i_next, exact)
                        s = tl.maximum(s, exact)
                        rest -= 1
                tl.debug_barrier()
                earliest = tl.full([J], NO_INDEX, tl.int32)
                for b in range(0, G, J):
                    i, p = products(A, squares, c, place * width, n * room, b, G, J)
                    evaluated = (i == j) | candidates(i, p, bar, j)
                    exact = tl.load(value_t + i, mask=evaluated, other=-float("inf"))
                    earliest = tl.minimum(earliest, tl.where(exact >= s - TIE, i, NO_INDEX))
                j = tl.min(earliest).to(tl.int32)
                s = tl.load(value_t + j)
    tl.store(k + place, j)
    tl.store(v + place, s)


@triton.jit
def products(A, squares, c, row, node, b, G, J: tl.constexpr):
    """The neurons from b on and their cosines in float64: minus infinity if there is none, infinity if unknown.

    row, node: the places of the first product of the sample and of the first neuron of the node.
    """
    i = b + tl.arange(0, J)
    p = tl.load(A + row + i, mask=i < G, other=0.0).to(tl.float64)
    if squares is not None:
        left = tl.load(squares + row + i, mask=i < G, other=1.0).to(tl.float64)
        p = tl.where(left < _SHORT, float("inf"), p / tl.sqrt(tl.maximum(left, _SHORT)))
    if c is not None:
        p = tl.where(tl.load(c + node + i, mask=i < G, other=1) == 0, -float("inf"), p)
    return i, tl.where(i < G, p, -float("inf"))


@triton.jit
def candidates(i, p, bar, first):
    """Which neurons may be as good as the best, other than the first that was evaluated."""
    return (p >= bar) & (p > -float("inf")) & (i != first)
