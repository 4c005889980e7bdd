"""The loops of the code bank, compiled.

A column of the paper says how often each child had each value when neuron j won. It is kept as integer counts, sparse:
an entry (j, k, n) of child q stands in two linked lists, one over the neurons that know value k of child q (walked
upward, from what the children say to the neurons that agree) and one over the values of child q that neuron j knows
(walked downward, from a neuron to what it expects). Memory is bounded by what was stored.

Arrays: `pool` (nodes, entries, 5) with the fields below, `used` entries per node, `free` head of the list of freed
ones, `by_value` (nodes, children, values) and `by_neuron` (nodes, neurons, children) heads of the lists, `S` sums of
squared counts, `c` counts, `mu` mean activities, `grown` neurons per node, `children` (nodes, children) rows of `k` and
`v` (child nodes, batch), which are the children's values and strengths.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sqhn.banks.decision_kernels import fate
from sqhn.level import TIE

NEURON, VALUE, COUNT, NEXT_BY_VALUE, NEXT_BY_NEURON = 0, 1, 2, 3, 4
NONE = -1


# -- the lists -------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def find(pool, head, value):
    """The entry of a neuron's list that holds a value, or NONE."""
    e = head
    while e != NONE and pool[e, VALUE] != value:
        e = pool[e, NEXT_BY_NEURON]
    return e


@njit(cache=True, nogil=True)
def count(pool, head, value):
    """How often a neuron's child had a value."""
    e = find(pool, head, value)
    return pool[e, COUNT] if e != NONE else 0


@njit(cache=True, nogil=True)
def add(n, j, q, value, times, pool, used, free, by_value, by_neuron, S):
    """Count a value of child q for neuron j."""
    e = find(pool[n], by_neuron[n, j, q], value)
    if e == NONE:
        if free[n] != NONE:
            e = free[n]
            free[n] = pool[n, e, NEXT_BY_NEURON]
        else:
            e = used[n]
            used[n] += 1
        pool[n, e, NEURON], pool[n, e, VALUE], pool[n, e, COUNT] = j, value, 0
        pool[n, e, NEXT_BY_VALUE], by_value[n, q, value] = by_value[n, q, value], e
        pool[n, e, NEXT_BY_NEURON], by_neuron[n, j, q] = by_neuron[n, j, q], e
    before = np.int64(pool[n, e, COUNT])
    pool[n, e, COUNT] += times
    S[n, j] += times * (2 * before + times)


@njit(cache=True, nogil=True)
def erase(n, j, pool, free, by_value, by_neuron, S):
    """Forget everything neuron j knows."""
    for q in range(by_neuron.shape[2]):
        e = by_neuron[n, j, q]
        while e != NONE:
            value = pool[n, e, VALUE]
            before, at = NONE, by_value[n, q, value]
            while at != e:
                before, at = at, pool[n, at, NEXT_BY_VALUE]
            if before == NONE:
                by_value[n, q, value] = pool[n, e, NEXT_BY_VALUE]
            else:
                pool[n, before, NEXT_BY_VALUE] = pool[n, e, NEXT_BY_VALUE]
            after = pool[n, e, NEXT_BY_NEURON]
            pool[n, e, NEXT_BY_NEURON], free[n] = free[n], e
            e = after
        by_neuron[n, j, q] = NONE
    S[n, j] = 0


# -- bottom-up activity ----------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def heard_of(s):
    """The strength of a child; next to nothing is silence."""
    return s if abs(s) > TIE else 0.0


@njit(cache=True, nogil=True)
def weight(children, v, t):
    """The length and the sum of the strengths, and whether a child is silent."""
    square = total = 0.0
    silent = False
    for q in range(children.shape[0]):
        s = heard_of(v[children[q], t])
        square += s * s
        total += s
        silent = silent or s == 0
    return np.sqrt(square), total, silent


@njit(cache=True, nogil=True)
def heard_squares(n, j, children, v, t, pool, by_neuron):
    """The sum of squared counts of neuron j over the children that are not silent."""
    total = np.int64(0)
    for q in range(children.shape[0]):
        if abs(v[children[q], t]) > TIE:
            e = by_neuron[n, j, q]
            while e != NONE:
                total += np.int64(pool[n, e, COUNT]) ** 2
                e = pool[n, e, NEXT_BY_NEURON]
    return total


@njit(cache=True, nogil=True)
def normalize(overlap, squares, c, length, total, mean):
    """h of a neuron from the strengths times counts that agree, its sum of squared counts and its count."""
    if mean:
        return overlap / c / total if abs(total) > TIE else 0.0
    return overlap / (length * np.sqrt(np.float64(squares))) if length > 0 else 0.0


@njit(cache=True, nogil=True)
def activity_at(n, j, children, k, v, t, pool, by_neuron, S, c, mean, heard):
    """h of one neuron for sample t."""
    length, total, silent = weight(children, v, t)
    overlap = 0.0
    for q in range(children.shape[0]):
        overlap += heard_of(v[children[q], t]) * count(pool[n], by_neuron[n, j, q], k[children[q], t])
    squares = heard_squares(n, j, children, v, t, pool, by_neuron) if heard and silent else S[n, j]
    return normalize(overlap, squares, c[n, j], length, total, mean)


@njit(cache=True, nogil=True)
def decide(n, G, children, k, v, t, pool, by_value, by_neuron, S, c, mean, heard, overlap, touched, mark, stamp):
    """The winning neuron and its activity for sample t.

    overlap, touched and mark are scratch, one entry per neuron; stamp is a number that mark does not hold yet.
    """
    length, total, silent = weight(children, v, t)
    many = 0
    for q in range(children.shape[0]):
        s = heard_of(v[children[q], t])
        if s == 0:
            continue
        e = by_value[n, q, k[children[q], t]]
        while e != NONE:
            j = pool[n, e, NEURON]
            if mark[j] != stamp:
                mark[j], overlap[j], touched[many] = stamp, 0.0, j
                many += 1
            overlap[j] += s * pool[n, e, COUNT]
            e = pool[n, e, NEXT_BY_VALUE]
    best = -np.inf
    for i in range(many):
        j = touched[i]
        squares = heard_squares(n, j, children, v, t, pool, by_neuron) if heard and silent else S[n, j]
        h = normalize(overlap[j], squares, c[n, j], length, total, mean)
        overlap[j] = h
        best = max(best, h)
    if many == 0:
        return 0, 0.0
    if best > TIE:
        winner, value = touched[0], overlap[touched[0]]
        for i in range(1, many):
            j = touched[i]
            if overlap[j] >= best - TIE and (value < best - TIE or j < winner):
                winner, value = j, overlap[j]
        return winner, value
    return first_of_all(n, G, children, k, v, t, pool, by_neuron, S, c, mean, heard)


@njit(cache=True, nogil=True)
def first_of_all(n, G, children, k, v, t, pool, by_neuron, S, c, mean, heard):
    """The winner when no neuron agrees with the children (strengths may be negative): those at 0 count too."""
    best = -np.inf
    for j in range(G):
        best = max(best, activity_at(n, j, children, k, v, t, pool, by_neuron, S, c, mean, heard))
    for j in range(G):
        h = activity_at(n, j, children, k, v, t, pool, by_neuron, S, c, mean, heard)
        if h >= best - TIE:
            return j, h
    return 0, best


@njit(cache=True, nogil=True)
def best(lo, hi, children, k, v, pool, by_value, by_neuron, S, c, grown, mean, heard, winner, value):
    """The winner and its activity; range(lo, hi) runs over (node, sample) pairs."""
    batch = k.shape[1]
    room = S.shape[1]
    overlap, touched, mark = np.empty(room), np.empty(room, np.int64), np.full(room, -1)
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        winner[n, t], value[n, t] = decide(
            n, grown[n], children[n], k, v, t, pool, by_value, by_neuron, S, c, mean, heard, overlap, touched, mark, i
        )


# -- learning --------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def learn(
    lo, hi, children, k, v, pool, used, free, by_value, by_neuron, S, c, mu, written, grown, steps, first, eps,
    capacity, when_full, pseudo, after, mean, heard, out_k, out_v, a, grew, wrote
):  # fmt: skip
    """A chunk of online steps at nodes lo..hi."""
    room = S.shape[1]
    overlap, touched, mark = np.empty(room), np.empty(room, np.int64), np.full(room, -1)
    for n in range(lo, hi):
        below = children[n]
        for t in range(k.shape[1]):
            G = grown[n]
            j, h = -1, -np.inf
            if G:
                j, h = decide(
                    n,
                    G,
                    below,
                    k,
                    v,
                    t,
                    pool,
                    by_value,
                    by_neuron,
                    S,
                    c,
                    mean,
                    heard,
                    overlap,
                    touched,
                    mark,
                    n * k.shape[1] + t,
                )
            j, new, writes = fate(j, h, eps[t], c[n], written[n], G, capacity, when_full)
            if writes:
                written[n, j] = first + t
                if new:
                    if j < G:
                        erase(n, j, pool, free, by_value, by_neuron, S)
                    grown[n] = max(G, j + 1)
                    c[n, j] = 1
                    mu[n, j] = 1.0
                else:
                    c[n, j] += 1
                    mu[n, j] += (h - mu[n, j]) / (c[n, j] + pseudo)
                for q in range(below.shape[0]):
                    add(n, j, q, k[below[q], t], 1, pool, used, free, by_value, by_neuron, S)
            out_k[n, t], a[n, t], grew[n, t], wrote[n, t] = j, h, new, writes
            if after:
                out_v[n, t] = 1.0 if new else h
            else:
                out_v[n, t] = activity_at(n, j, below, k, v, t, pool, by_neuron, S, c, mean, heard)
    if lo == 0:
        steps[0] += k.shape[1]


@njit(cache=True, nogil=True)
def hold(lo, hi, children, k, times, winner, wrote, pool, used, free, by_value, by_neuron, S, c, written, step):
    """Count the values k (child nodes,) again, `times` times, for the neurons that the first sample wrote."""
    for n in range(lo, hi):
        if wrote[n]:
            c[n, winner[n]] += times
            written[n, winner[n]] = step
            for q in range(children.shape[1]):
                add(n, winner[n], q, k[children[n, q]], times, pool, used, free, by_value, by_neuron, S)


# -- top-down --------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def support_sizes(lo, hi, children, j, pool, by_neuron, start):
    """start[child * batch + t + 1] = how many values of the child the neuron j[n, t] knows."""
    batch = j.shape[1]
    for n in range(lo, hi):
        for q in range(children.shape[1]):
            for t in range(batch):
                size = 0
                e = by_neuron[n, j[n, t], q]
                while e != NONE:
                    size += 1
                    e = pool[n, e, NEXT_BY_NEURON]
                start[children[n, q] * batch + t + 1] = size


@njit(cache=True, nogil=True)
def support_entries(lo, hi, children, j, pool, by_neuron, c, start, value, probability):
    """Those values and the probabilities that the neuron gives them."""
    batch = j.shape[1]
    for n in range(lo, hi):
        for q in range(children.shape[1]):
            for t in range(batch):
                i = start[children[n, q] * batch + t]
                e = by_neuron[n, j[n, t], q]
                while e != NONE:
                    value[i], probability[i] = pool[n, e, VALUE], pool[n, e, COUNT] / c[n, j[n, t]]
                    i += 1
                    e = pool[n, e, NEXT_BY_NEURON]


@njit(cache=True, nogil=True)
def at(lo, hi, children, k, v, start, candidate, pool, by_neuron, S, c, mean, heard, h):
    """h of the candidates start[n, t] .. start[n, t + 1] of each node and sample."""
    batch = k.shape[1]
    for n in range(lo, hi):
        for t in range(batch):
            for i in range(start[n * batch + t], start[n * batch + t + 1]):
                h[i] = activity_at(n, candidate[i], children[n], k, v, t, pool, by_neuron, S, c, mean, heard)


@njit(cache=True, nogil=True)
def choose(lo, hi, k, h, start, candidate, value, probability, blend, out):
    """The maximum of blend * h + (1 - blend) * probability over all neurons of a node.

    Beyond the candidates the probability is 0, so there only the bottom-up winner k with its value h can be best.
    range(lo, hi) runs over (node, sample) pairs.
    """
    batch = k.shape[1]
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        top = blend * h[n, t]
        for e in range(start[i], start[i + 1]):
            top = max(top, blend * value[e] + (1 - blend) * probability[e])
        chosen = k[n, t] if blend * h[n, t] >= top - TIE else np.int32(2**31 - 1)
        for e in range(start[i], start[i + 1]):
            if blend * value[e] + (1 - blend) * probability[e] >= top - TIE and candidate[e] < chosen:
                chosen = candidate[e]
        out[n, t] = chosen


@njit(cache=True, nogil=True)
def probability_of(lo, hi, children, j, k, pool, by_neuron, c, p):
    """p[child, t] = the probability that the neuron j[n, t] gives to the value k[child, t] of its child."""
    for n in range(lo, hi):
        for q in range(children.shape[1]):
            child = children[n, q]
            for t in range(j.shape[1]):
                p[child, t] = count(pool[n], by_neuron[n, j[n, t], q], k[child, t]) / c[n, j[n, t]]


@njit(cache=True, nogil=True)
def max_sum(lo, hi, children, u, top, pool, by_neuron, c, grown, out):
    """out[n, t, j] = sum over children of max over values of (probability under j + u of the value).

    u (child nodes, batch, values) and its maximum top (child nodes, batch). range(lo, hi) runs over (node, sample).
    """
    batch = u.shape[1]
    for i in range(lo, hi):
        n, t = i // batch, i % batch
        for j in range(grown[n]):
            total = 0.0
            for q in range(children.shape[1]):
                child = children[n, q]
                reach = top[child, t]
                e = by_neuron[n, j, q]
                while e != NONE:
                    reach = max(reach, pool[n, e, COUNT] / c[n, j] + u[child, t, pool[n, e, VALUE]])
                    e = pool[n, e, NEXT_BY_NEURON]
                total += reach
            out[n, t, j] = total
        for j in range(grown[n], out.shape[2]):
            out[n, t, j] = -np.inf


# -- persistence -----------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def dump(pool, by_neuron, grown, rows):
    """All entries as rows (node, neuron, child, value, count); returns how many (rows may be empty to ask)."""
    many = 0
    for n in range(by_neuron.shape[0]):
        for j in range(grown[n]):
            for q in range(by_neuron.shape[2]):
                e = by_neuron[n, j, q]
                while e != NONE:
                    if many < rows.shape[0]:
                        rows[many, 0], rows[many, 1], rows[many, 2] = n, j, q
                        rows[many, 3], rows[many, 4] = pool[n, e, VALUE], pool[n, e, COUNT]
                    many += 1
                    e = pool[n, e, NEXT_BY_NEURON]
    return many


@njit(cache=True, nogil=True)
def fill(rows, pool, used, free, by_value, by_neuron, S):
    """The inverse of `dump`, into empty lists."""
    for i in range(rows.shape[0]):
        n, j, q, value, times = rows[i]
        add(n, j, q, value, times, pool, used, free, by_value, by_neuron, S)
