"""Nodes with few values: their prototypes fit the cache, so each sample meets them as they are."""

from __future__ import annotations

import numpy as np

from sqhn.banks import bounds
from sqhn.banks.bounds import BRIEF
from sqhn.banks.cpu.compiled import compiled, inlined, summing
from sqhn.banks.cpu.kernels.decision import (
    Measure,
    Prototypes,
    Sample,
    decide,
    has_holes,
    of_node,
    product,
    rounded,
    scratch,
    shift,
    shift_observed,
)
from sqhn.banks.cpu.kernels.neurons import Kept, Times, written_to
from sqhn.banks.cpu.kernels.prototypes import mask_of, nobody, strength, write
from sqhn.banks.rule import GREW, SKIPPED, Rules

masked_product, difference = compiled(bounds.masked_product), compiled(bounds.difference)


@compiled
def transpose(m, G, centre, ut):
    """ut[i, j] = m[j, i] - centre, so that products run over neurons; rows beyond the values are 0."""
    ut[m.shape[1] :] = 0
    for j in range(G):
        for i in range(m.shape[1]):
            ut[i, j] = m[j, i] - np.float32(centre)


@summing
def cosines(ut, y, inv, G, upper):
    """upper[j] = <y, u_j> inv[j]; the length of y is a multiple of 4."""
    last = y.shape[0] - 4
    for j in range(G):
        upper[j] = 0
    i = 0
    while i + 8 <= last:
        a, b, c, e = y[i], y[i + 1], y[i + 2], y[i + 3]
        f, g, h, o = y[i + 4], y[i + 5], y[i + 6], y[i + 7]
        ua, ub, uc, ue = ut[i], ut[i + 1], ut[i + 2], ut[i + 3]
        uf, ug, uh, uo = ut[i + 4], ut[i + 5], ut[i + 6], ut[i + 7]
        for j in range(G):
            upper[j] += (a * ua[j] + b * ub[j] + c * uc[j] + e * ue[j]) + (
                f * uf[j] + g * ug[j] + h * uh[j] + o * uo[j]
            )
        i += 8
    while i < last:
        a, b, c, e = y[i], y[i + 1], y[i + 2], y[i + 3]
        ua, ub, uc, ue = ut[i], ut[i + 1], ut[i + 2], ut[i + 3]
        for j in range(G):
            upper[j] += a * ua[j] + b * ub[j] + c * uc[j] + e * ue[j]
        i += 4
    a, b, c, e = y[i], y[i + 1], y[i + 2], y[i + 3]
    ua, ub, uc, ue = ut[i], ut[i + 1], ut[i + 2], ut[i + 3]
    for j in range(G):
        upper[j] = (upper[j] + a * ua[j] + b * ub[j] + c * uc[j] + e * ue[j]) * inv[j]


@inlined
def look(sample, ut, y, own, G, measure, work, squares):
    """Upper bounds from a first look at the neurons of a node, and what they may lack."""
    d = own.m.shape[1]
    if measure.euclidean is not None:
        return promising(sample, ut, y, own, G, work.upper)
    if has_holes(sample.masked):
        cosines_observed(ut, y, sample.seen, G, work.upper, squares)
        return masked_product(d) * np.sqrt(sample.xx)
    cosines(ut, y, own.inv, G, work.upper)
    return product(d) * np.sqrt(sample.xx)


@compiled
def promising(sample, ut, y, own, G, upper):
    """The same by differences: (|x|^2 - |x - m|^2) / 2, whose error is that of the second; without those not known."""
    for j in range(G):
        upper[j] = 0
    for i in range(own.m.shape[1]):
        if not has_holes(sample.masked) or sample.seen[i]:
            a, u = y[i], ut[i]
            for j in range(G):
                d = a - u[j]
                upper[j] += d * d
    exact = 1 - difference(own.m.shape[1])
    for j in range(G):
        upper[j] = (sample.xx - upper[j] * exact) / 2 if own.inv[j] == 1 else -np.inf if own.m2[j] < 0 else np.inf
    return rounded(sample.xx, 0.0)


@inlined
def see(x, seen, masked, measure, y):
    """A patch as it was seen, and less the centre in y."""
    if masked is None:
        return Sample(x, shift(x, measure.centre, y), seen, masked, x.shape[0])
    if seen.all():
        return Sample(x, shift(x, measure.centre, y), seen, False, x.shape[0])
    return Sample(x, shift_observed(x, seen, measure.centre, y), seen, True, seen.sum())


@compiled
def learn(lo, hi, x, seen, masked, prototypes, kept, rules, times, measure, sent):
    """A chunk of online steps at nodes lo..hi."""
    prototypes, kept, rules, times = Prototypes(*prototypes), Kept(*kept), Rules(*rules), Times(*times)
    measure = Measure(*measure)
    k, v, a, kind = sent
    room, d = prototypes.m.shape[1], prototypes.m.shape[2]
    ut, y = np.empty((d + -d % 4, room), np.float32), np.zeros(d + -d % 4, np.float32)
    work, squares = scratch(room), np.empty(room, np.float32)
    for n in range(lo, hi):
        own = of_node(prototypes, n)
        transpose(own.m, kept.grown[n], measure.centre, ut)
        for t in range(x.shape[1]):
            G = kept.grown[n]
            sample = see(x[n, t], mask_of(seen, masked, n, t), masked, measure, y)
            if sample.many == 0:
                k[n, t], v[n, t], a[n, t], kind[n, t] = 0, 0.0, 0.0, SKIPPED
                continue
            j, s = -1, -np.inf
            if G:
                slack = look(sample, ut, y, own, G, measure, work, squares)
                j, s = decide(sample, own, G, slack, measure, work)
            j, what = written_to(j, s, times.eps[t], n, G, kept, rules)
            new = what >= GREW
            if what != SKIPPED:
                write(n, j, new, s, sample, times.first + t, own, kept, rules, measure)
                for i in range(d):
                    ut[i, j] = own.m[j, i] - np.float32(measure.centre)
            k[n, t], a[n, t], kind[n, t] = j, s, what
            v[n, t] = strength(sample, own, j, new, s, measure, rules)
    if lo == 0:
        kept.steps[0] += x.shape[1]


@compiled
def cosines_observed(ut, y, seen, G, upper, squares):
    """As `cosines`, with both lengths over the observed values."""
    for j in range(G):
        upper[j] = 0
        squares[j] = 0
    for i in range(seen.shape[0]):
        if seen[i]:
            a, u = y[i], ut[i]
            for j in range(G):
                upper[j] += a * u[j]
                squares[j] += u[j] * u[j]
    for j in range(G):
        upper[j] = upper[j] / np.sqrt(squares[j]) if squares[j] >= np.float32(BRIEF * BRIEF) else np.inf


@compiled
def best(lo, hi, x, seen, masked, prototypes, kept, measure, k, v, left):
    """The winner and its similarity at nodes lo..hi, for every sample, and what no other neuron is above."""
    prototypes, kept, measure = Prototypes(*prototypes), Kept(*kept), Measure(*measure)
    room, d = prototypes.m.shape[1], prototypes.m.shape[2]
    ut, y = np.empty((d + -d % 4, room), np.float32), np.zeros(d + -d % 4, np.float32)
    work, squares = scratch(room), np.empty(room, np.float32)
    for n in range(lo, hi):
        own, G = of_node(prototypes, n), kept.grown[n]
        transpose(own.m, G, measure.centre, ut)
        for t in range(x.shape[1]):
            sample = see(x[n, t], mask_of(seen, masked, n, t), masked, measure, y)
            if sample.many == 0 or G == 0:
                k[n, t], v[n, t] = nobody(n, kept)
                left[n, t] = 0.0
            else:
                slack = look(sample, ut, y, own, G, measure, work, squares)
                k[n, t], v[n, t] = decide(sample, own, G, slack, measure, work)
                left[n, t] = work.left[0]
