"""The pattern bank's kernels on a GPU.

A chunk is learned in two kernels. `walk`, one program per node, takes every decision from the products of the chunk and
corrects them as neurons change: scalars only, no vector is touched but where two neurons, or a neuron and the
threshold, are too close for the products; there it evaluates in float64 from the stored vectors. `replay`, one program
for each neuron that was looked at or written and so all of them side by side, then repeats what happened on the
vectors: the prototypes in float32, in the order of the samples; the similarities in float64.

In all kernels: `A` products of samples with the unit vectors of neurons, (nodes, batch, width); `gram` products among
samples; `x` patches (nodes, batch, size); `xx` |x - centre|^2; `m` prototypes (nodes, room, size), `m2` their squared
lengths after the shift. What happened to sample t: `looked` is the neuron that it resembled most (-1: there was none),
`k` the one it ended at, `kind` what became of it (`fate_kernels`), `count` the neuron's count after that.
"""

# Triton reads these functions as its own language.
# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from sqhn.banks.cuda.fate_kernels import AVERAGED, BECAME, KEPT, fate
from sqhn.level import DELTA, TIE

__all__ = ["ULP", "at", "best", "replay", "walk"]

ULP = 2.0**-24
_KEPT, _AVERAGED, _BECAME = tl.constexpr(KEPT), tl.constexpr(AVERAGED), tl.constexpr(BECAME)
_DELTA, _TIE, _ULP = tl.constexpr(DELTA), tl.constexpr(TIE), tl.constexpr(ULP)
_LAST = tl.constexpr(2**31 - 1)


@triton.jit
def similarity(xm, xx, mm, centre: tl.constexpr):
    return centre + (1 - centre) * xm / (tl.sqrt(xx) * tl.sqrt(mm) + _DELTA)


@triton.jit
def moved_by(m, x, count):
    """m + (x - m) / count in float32, each step rounded as on a CPU."""
    return m + tl.math.div_rn(x - m, tl.zeros_like(m) + count.to(tl.float32))


@triton.jit
def inverse(square):
    return tl.where(square > 0, 1 / tl.sqrt(tl.maximum(square, 1e-60)), 0.0)


@triton.jit
def next_write(j, t, until, k_n, kind_n, B: tl.constexpr):
    """The first sample after t, and before `until`, that wrote neuron j; `until` if there is none."""
    s = tl.arange(0, B)
    between = (s > t) & (s < until)
    to = tl.load(k_n + s, mask=between, other=-1)
    kind = tl.load(kind_n + s, mask=between, other=0)
    return tl.min(tl.where(between & (to == j) & (kind != _KEPT), s, until))


@triton.jit
def exactly(j, t, xx, x_n, m_n, k_n, kind_n, count_n, size, centre: tl.constexpr, B: tl.constexpr, D: tl.constexpr):
    """The similarity of sample t and neuron j in float64, from the vectors, as the samples before t have left them."""
    xm = tl.zeros([D], tl.float64)
    mm = tl.zeros([D], tl.float64)
    for d in range(0, size, D):
        i = d + tl.arange(0, D)
        inside = i < size
        m = tl.load(m_n + j.to(tl.int64) * size + i, mask=inside, other=0.0)
        s = next_write(j, -1, t, k_n, kind_n, B)
        while s < t:
            y = tl.load(x_n + s * size + i, mask=inside, other=0.0)
            if tl.load(kind_n + s) == _BECAME:
                m = y
            else:
                m = moved_by(m, y, tl.load(count_n + s))
            s = next_write(j, s, t, k_n, kind_n, B)
        u = m.to(tl.float64) - centre
        y8 = tl.load(x_n + t * size + i, mask=inside, other=0.0).to(tl.float64) - centre
        xm += tl.where(inside, y8 * u, 0.0)
        mm += tl.where(inside, u * u, 0.0)
    return similarity(tl.sum(xm), xx, tl.sum(mm), centre)


@triton.jit
def walk(
    A, gram, x, xx, eps, m, m2, scale, moved, c, grown, value, k, looked, kind, count,
    batch, width, room, size, root_size, capacity, error,
    when_full: tl.constexpr, centre: tl.constexpr, J: tl.constexpr, B: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The decisions of a chunk at one node, one sample after another.

    error bounds the relative error of A and gram. m2, scale and moved are, until `replay`, those that the products
    stand for: scale is what a length was added up from, moved how often. value (nodes, room) is scratch.
    """
    n = tl.program_id(0).to(tl.int64)
    A_n, gram_n, x_n = A + n * batch * width, gram + n * batch * batch, x + n * batch * size
    m_n, m2_n, scale_n, moved_n = m + n * room * size, m2 + n * room, scale + n * room, moved + n * room
    c_n, value_n = c + n * room, value + n * room
    k_n, looked_n, kind_n, count_n = k + n * batch, looked + n * batch, kind + n * batch, count + n * batch
    G = tl.load(grown + n).to(tl.int32)
    later = tl.arange(0, B)
    # The shortest neuron, but for those without length: DELTA shortens similarities to it most.
    short = tl.full([J], float("inf"), tl.float64)
    for b in range(0, G, J):
        i = b + tl.arange(0, J)
        square = tl.load(m2_n + i, mask=i < G, other=0.0)
        short = tl.minimum(short, tl.where(square > 0, square, float("inf")))
    shortest = tl.sqrt(tl.min(short))
    spread = tl.load(xx + n * batch) * 0 + 1.0
    loose = spread * 0
    for t in range(batch):
        own = tl.load(xx + n * batch + t)
        length = tl.sqrt(own)
        threshold = tl.load(eps + t) - _TIE
        slack = length * (1.5 * error * spread * spread + loose)
        g = tl.load(gram_n + t * batch + later, mask=later < batch, other=0.0)
        j = G * 0
        below = centre < threshold
        if G > 0 and own > 0:
            high = own * 0 - float("inf")
            for b in range(0, G, J):
                i = b + tl.arange(0, J)
                p = tl.load(A_n + t * width + i, mask=i < G, other=-float("inf"))
                high = tl.maximum(high, tl.max(p).to(tl.float64))
            # DELTA draws a cosine toward 0.
            low = tl.minimum((high - slack) * length / (length + _DELTA / shortest), high - slack)
            bar = tl.where(high > slack, low - slack - 4 * _TIE * length, -float("inf"))
            found = tl.zeros([1], tl.int64)
            for b in range(0, G, J):  # how many reach the bar, and if it is one, which
                i = b + tl.arange(0, J)
                p = tl.load(A_n + t * width + i, mask=i < G, other=-float("inf"))
                found += tl.sum(tl.where((p.to(tl.float64) >= bar) & (i < G), i.to(tl.int64) + (1 << 32), 0))
            hit = tl.sum(found)
            j = (hit & 0xFFFFFFFF).to(tl.int32)
            most = centre + (1 - centre) * tl.maximum(high + slack, 0.0) / length + _TIE
            least = centre + (1 - centre) * low / length - _TIE
            below = most < threshold
            if hit >> 32 != 1 or (not below and least < threshold):
                # Every neuron that may be best, in float64.
                best_ = own * 0 - float("inf")
                for b in range(0, G, J):
                    i = b + tl.arange(0, J)
                    p = tl.load(A_n + t * width + i, mask=i < G, other=-float("inf")).to(tl.float64)
                    open_ = (p >= bar) & (i < G)
                    rest = tl.sum(open_.to(tl.int32))
                    at_ = b - 1
                    while rest > 0:
                        at_ = tl.min(tl.where(open_ & (i > at_), i, _LAST)).to(tl.int32)
                        s = exactly(at_, t, own, x_n, m_n, k_n, kind_n, count_n, size, centre, B, D)
                        tl.store(value_n + at_, s)
                        best_ = tl.maximum(best_, s)
                        rest -= 1
                tl.debug_barrier()
                first = tl.full([J], _LAST, tl.int32)
                for b in range(0, G, J):
                    i = b + tl.arange(0, J)
                    p = tl.load(A_n + t * width + i, mask=i < G, other=-float("inf")).to(tl.float64)
                    s = tl.load(value_n + i, mask=(p >= bar) & (i < G), other=-float("inf"))
                    first = tl.minimum(first, tl.where(s >= best_ - _TIE, i, _LAST))
                j = tl.min(first).to(tl.int32)
                below = tl.load(value_n + j) < threshold
        tl.store(looked_n + t, tl.where(G > 0, j, -1))
        below = below | (G == 0)
        to, what = fate(below, j, G, c_n, capacity, when_full, J)
        # What is known about the neuron, and its products with the samples to come.
        used = tl.load(c_n + to)
        if what != _KEPT:
            ahead = (later > t) & (later < batch)
            if what == _BECAME:
                used = used * 0 + 1
                square = own
                wide = length
                turns = used.to(tl.int32) * 0
                products = g
            else:
                used = used + 1
                r = 1.0 / used.to(tl.float64)
                square = tl.load(m2_n + to)
                was = tl.sqrt(square)
                p = tl.load(A_n + t * width + to).to(tl.float64) * was
                old = tl.load(A_n + later * width + to, mask=ahead, other=0.0)
                square = tl.maximum((1 - r) * (1 - r) * square + 2 * r * (1 - r) * p + r * r * own, 0.0)
                wide = (1 - r) * tl.load(scale_n + to) + r * length
                turns = tl.load(moved_n + to) + 1
                products = ((1 - r) * was).to(old.dtype) * old + r.to(old.dtype) * g
            unit = inverse(square)
            tl.store(A_n + later * width + to, products * unit.to(products.dtype), mask=ahead)
            tl.store(c_n + to, used)
            tl.store(m2_n + to, square)
            tl.store(scale_n + to, wide)
            tl.store(moved_n + to, turns)
            spread = tl.maximum(spread, wide * unit)
            loose = tl.maximum(loose, 8 * _ULP * turns * (wide + centre * root_size) * unit)
            shortest = tl.minimum(shortest, tl.where(square > 0, tl.sqrt(square) / 2, shortest))
            G = tl.maximum(G, to + 1)
        tl.store(k_n + t, to)
        tl.store(kind_n + t, what)
        tl.store(count_n + t, used)
        tl.debug_barrier()
    tl.store(grown + n, G)


@triton.jit
def next_visit(j, e, k_n, looked_n, kind_n, batch, B: tl.constexpr):
    """The first visit after e to neuron j: 2 t where sample t looked at it, 2 t + 1 where t became it."""
    t = tl.arange(0, B)
    inside = t < batch
    became = inside & (tl.load(kind_n + t, mask=inside, other=0) == _BECAME)
    looks = tl.where(inside & (tl.load(looked_n + t, mask=inside, other=-1) == j) & (2 * t > e), 2 * t, _LAST)
    turns = tl.where(became & (tl.load(k_n + t, mask=inside, other=-1) == j) & (2 * t + 1 > e), 2 * t + 1, _LAST)
    return tl.min(tl.minimum(looks, turns))


@triton.jit
def replay(
    x, xx, m, m2, unit, scale, moved, mu, k, looked, kind, count, sums, a, v,
    batch, room, size, pseudo,
    before: tl.constexpr, centre: tl.constexpr, B: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """What happened in a chunk to one neuron, on its vector. sums (nodes, batch, 4) is scratch."""
    n = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(0)
    x_n, xx_n, sums_n = x + n * batch * size, xx + n * batch, sums + n * batch * 4
    k_n, looked_n, kind_n, count_n = k + n * batch, looked + n * batch, kind + n * batch, count + n * batch
    if begin % 2 == 0:
        j = tl.load(looked_n + begin // 2)
    else:
        j = tl.load(k_n + begin // 2)
    if j < 0 or next_visit(j, -1, k_n, looked_n, kind_n, batch, B) != begin:
        return  # nothing, or another program's
    place = n * room + j
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
                if tl.load(kind_n + t) == _AVERAGED:
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
            e = next_visit(j, e, k_n, looked_n, kind_n, batch, B)
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
            sent = own * 0 + 1.0
            if not before:
                sent = similarity(own, own, own, centre)
            tl.store(v + n * batch + t, sent)
        else:
            s = similarity(tl.load(sums_n + 4 * t), own, tl.load(sums_n + 4 * t + 1), centre)
            tl.store(a + n * batch + t, s)
            what = tl.load(kind_n + t)
            if what == _AVERAGED:
                mean += (s - mean) / (tl.load(count_n + t) + pseudo)
            if what != _BECAME:
                sent = s
                if not before:
                    sent = similarity(tl.load(sums_n + 4 * t + 2), own, tl.load(sums_n + 4 * t + 3), centre)
                tl.store(v + n * batch + t, sent)
        e = next_visit(j, e, k_n, looked_n, kind_n, batch, B)
    tl.store(mu + place, mean)
    if wrote == 1:
        tl.store(m2 + place, total)
        tl.store(scale + place, tl.sqrt(total))
        tl.store(moved + place, 0)
        for d in range(0, size, D):
            i = d + tl.arange(0, D)
            p8 = tl.load(row + i, mask=i < size, other=0.0).to(tl.float64) - centre
            tl.store(unit + place * size + i, (p8 * inverse(total)).to(unit.dtype.element_ty), mask=i < size)


@triton.jit
def evaluate(j, x_t, seen_t, xx, m_n, size, masked: tl.constexpr, centre: tl.constexpr, D: tl.constexpr):
    """The similarity of a sample and neuron j in float64, over what was observed if masked."""
    xm = tl.zeros([D], tl.float64)
    mm = tl.zeros([D], tl.float64)
    for d in range(0, size, D):
        i = d + tl.arange(0, D)
        inside = i < size
        if masked:
            inside = inside & (tl.load(seen_t + i, mask=inside, other=0) != 0)
        m = tl.load(m_n + j.to(tl.int64) * size + i, mask=inside, other=0.0).to(tl.float64) - centre
        x = tl.load(x_t + i, mask=inside, other=0.0).to(tl.float64) - centre
        xm += tl.where(inside, x * m, 0.0)
        mm += tl.where(inside, m * m, 0.0)
    return similarity(tl.sum(xm), xx, tl.sum(mm), centre)


@triton.jit
def best(
    A, squares, x, seen, xx, m, grown, value, k, v,
    batch, width, room, size, error,
    masked: tl.constexpr, centre: tl.constexpr, J: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The winner and its similarity for one sample at one node; value (nodes, batch, width) is scratch.

    If masked, xx and A run over what was observed (xx is negative where nothing was), and squares (nodes, batch, width)
    are the squared lengths of the unit vectors there.
    """
    t, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = n * batch + t
    row, value_t = A + place * width, value + place * width
    x_t, seen_t, m_n = x + place * size, seen + place * size, m + n * room * size
    own = tl.load(xx + place)
    G = tl.load(grown + n).to(tl.int32)
    length = tl.sqrt(tl.maximum(own, 0.0))
    slack = length * error
    j = G * 0
    s = own * 0 + centre
    if own > 0:
        high = own * 0 - float("inf")
        for b in range(0, G, J):
            p = products(row, squares + place * width, b, G, masked, J)
            high = tl.maximum(high, tl.max(p))
        # DELTA may shrink a similarity by a share that a lower bound must know: it is evaluated, not bounded.
        top = own * 0 - float("inf")
        bar = own * 0 - float("inf")
        done = G * 0 - 1
        if high > slack:
            first = tl.full([J], 2147483647, tl.int32)
            for b in range(0, G, J):
                i = b + tl.arange(0, J)
                p = products(row, squares + place * width, b, G, masked, J)
                first = tl.minimum(first, tl.where(p >= high, i, 2147483647))
            j = tl.min(first).to(tl.int32)
            top = evaluate(j, x_t, seen_t, own, m_n, size, masked, centre, D)
            done = j
            if top > centre:
                bar = (top - centre - _TIE) / (1 - centre) * length - slack
        best_ = top
        for b in range(0, G, J):
            i = b + tl.arange(0, J)
            p = products(row, squares + place * width, b, G, masked, J)
            open_ = (p >= bar) & (i < G) & (i != done)
            rest = tl.sum(open_.to(tl.int32))
            at_ = b - 1
            while rest > 0:
                at_ = tl.min(tl.where(open_ & (i > at_), i, 2147483647)).to(tl.int32)
                exact = evaluate(at_, x_t, seen_t, own, m_n, size, masked, centre, D)
                tl.store(value_t + at_, exact)
                best_ = tl.maximum(best_, exact)
                rest -= 1
        tl.debug_barrier()
        winner = tl.where(top >= best_ - _TIE, j, 2147483647).to(tl.int32)
        s = tl.where(top >= best_ - _TIE, top, own * 0)
        for b in range(0, G, J):
            i = b + tl.arange(0, J)
            p = products(row, squares + place * width, b, G, masked, J)
            open_ = (p >= bar) & (i < G) & (i != done)
            found = tl.load(value_t + i, mask=open_, other=-float("inf"))
            at_ = tl.min(tl.where(found >= best_ - _TIE, i, 2147483647)).to(tl.int32)
            if at_ < winner:
                winner = at_
                s = tl.load(value_t + at_)
        j = winner
    elif own < 0:
        s = own * 0  # nothing was observed: silent
    tl.store(k + place, j)
    tl.store(v + place, s)


@triton.jit
def products(row, squares, b, G, masked: tl.constexpr, J: tl.constexpr):
    """Cosines times the sample's length of the neurons from b on, in float64; minus infinity where there are none."""
    i = b + tl.arange(0, J)
    p = tl.load(row + i, mask=i < G, other=0.0).to(tl.float64)
    if masked:
        p = p / tl.sqrt(tl.maximum(tl.load(squares + i, mask=i < G, other=1.0).to(tl.float64), 1e-30))
    return tl.where(i < G, p, -float("inf"))


@triton.jit
def at(x, seen, xx, m, start, candidate, s, batch, room, size,
       masked: tl.constexpr, centre: tl.constexpr, D: tl.constexpr):  # fmt: skip
    """The similarities of the candidates of one sample at one node."""
    t, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = n * batch + t
    own = tl.load(xx + place)
    x_t, seen_t, m_n = x + place * size, seen + place * size, m + n * room * size
    e = tl.load(start + place)
    stop = tl.load(start + place + 1)
    while e < stop:
        j = tl.load(candidate + e)
        h = evaluate(j, x_t, seen_t, tl.maximum(own, 0.0), m_n, size, masked, centre, D)
        tl.store(s + e, tl.where(own < 0, own * 0, h))
        e += 1
