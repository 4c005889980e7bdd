"""The prototypes of level 1: how a step writes them, and what they are asked besides who wins."""

from __future__ import annotations

import numpy as np

from sqhn.banks.bounds import BRIEF
from sqhn.banks.cpu.compiled import compiled, inlined
from sqhn.banks.cpu.kernels.decision import (
    Measure,
    Prototypes,
    Sample,
    has_holes,
    observed,
    of_node,
    part,
    similarity,
    squared,
)
from sqhn.banks.cpu.kernels.neurons import Kept, count, first_living


@compiled
def average_into(m, x, count):
    """m += (x - m) / count, in float32 and in this order, whatever the chunk or the device."""
    step = np.float32(count)
    for i in range(m.shape[0]):
        m[i] += (x[i] - m[i]) / step


@compiled
def average_observed(m, x, seen, masked, known):
    """The same where values are missing, or were: each is the mean of those that were seen."""
    for i in range(m.shape[0]):
        there = not masked or seen[i]
        known[i] += there
        moved = m[i] + (x[i] - m[i]) / np.float32(max(known[i], 1))
        m[i] = (x[i] if known[i] == 1 else moved) if there else m[i]


@inlined
def average(m, known, sample, count):
    """Average a sample into a prototype, its count-th."""
    if known is None:
        average_into(m, sample.x, count)
    else:
        average_observed(m, sample.x, sample.seen, has_holes(sample.masked), known)


@inlined
def become(m, known, sample, measure):
    """Let a sample become a prototype; what was not seen of it is the centre."""
    m[:] = sample.x
    if known is not None:
        for i in range(sample.x.shape[0]):
            there = not has_holes(sample.masked) or sample.seen[i]
            known[i] = there
            if not there:
                m[i] = measure.centre


@inlined
def write(n, j, new, s, sample, step, own, kept, rules, measure):
    """Grow or average neuron j of node n."""
    count(n, j, new, s, step, kept, rules)
    if new:
        become(own.m[j], part(own.known, j), sample, measure)
    else:
        average(own.m[j], part(own.known, j), sample, kept.c[n, j])
    refresh(own, j, measure)


@inlined
def refresh(own, j, measure):
    """What is derived from the prototype of neuron j of a node."""
    own.m2[j] = squared(own.m[j], measure.centre)
    if measure.euclidean is not None:
        own.inv[j] = 1.0 if complete(part(own.known, j)) else np.inf
    else:
        own.inv[j] = inverse(own.m2[j])


@inlined
def complete(known):
    """Whether all values of a neuron are known."""
    return True if known is None else known.all()


@compiled
def inverse(mm):
    """1 / sqrt(mm) in float32; 0 for a neuron without length, and not a number where products say nothing."""
    if mm < BRIEF * BRIEF:
        return np.float32(np.nan) if mm > 0 else np.float32(0.0)
    return np.float32(1.0 / np.sqrt(mm))


@inlined
def strength(sample, own, j, new, before, measure, rules):
    """What a node sends up: its match after the update; if nobody hears it, the one before."""
    if rules.top:
        return 1.0 if new else before
    return similarity(sample, own, j, measure)


@compiled
def refresh_all(lo, hi, prototypes, kept, measure):
    """What is derived from every prototype."""
    prototypes, kept, measure = Prototypes(*prototypes), Kept(*kept), Measure(*measure)
    for n in range(lo, hi):
        own = of_node(prototypes, n)
        for j in range(kept.grown[n]):
            if kept.c[n, j]:
                refresh(own, j, measure)
            else:
                own.m2[j], own.inv[j] = -1.0, 0.0


@compiled
def refresh_some(lo, hi, j, prototypes, measure):
    """What is derived from the prototypes j[lo:hi] of the only node."""
    own, measure = of_node(Prototypes(*prototypes), 0), Measure(*measure)
    for i in range(lo, hi):
        refresh(own, j[i], measure)


@compiled
def hold(lo, hi, x, seen, masked, k, wrote, prototypes, kept, step, measure):
    """Average further samples of one thing into the neurons that its first sample wrote; step: the last of them."""
    prototypes, kept, measure = Prototypes(*prototypes), Kept(*kept), Measure(*measure)
    for n in range(lo, hi):
        if wrote[n]:
            j, own = k[n], of_node(prototypes, n)
            for t in range(x.shape[1]):
                kept.c[n, j] += 1
                sample = Sample(x[n, t], 0.0, mask_of(seen, masked, n, t), masked, 0)
                average(own.m[j], part(own.known, j), sample, kept.c[n, j])
            kept.written[n, j] = step
            refresh(own, j, measure)


@inlined
def mask_of(seen, masked, n, t):
    """What was seen of a sample at a node; anything, where there are no masks."""
    return seen[0, 0] if masked is None else seen[n, t]


@inlined
def regard(x, seen, masked, centre):
    """A patch as it was seen."""
    if masked is None:
        return Sample(x, squared(x, centre), seen, masked, x.shape[0])
    if seen.all():
        return Sample(x, squared(x, centre), seen, False, x.shape[0])
    return Sample(x, observed(x, x, seen, centre)[1], seen, True, seen.sum())


@compiled
def activity(lo, hi, x, seen, masked, prototypes, kept, measure, s):
    """s (nodes, batch, room) of every neuron; minus infinity in free places and beyond the grown ones.

    A node without neurons is as one with one that is silent.
    """
    prototypes, kept, measure = Prototypes(*prototypes), Kept(*kept), Measure(*measure)
    for n in range(lo, hi):
        own, G = of_node(prototypes, n), kept.grown[n]
        for t in range(x.shape[1]):
            sample = regard(x[n, t], mask_of(seen, masked, n, t), masked, measure.centre)
            for j in range(G):
                s[n, t, j] = similarity(sample, own, j, measure)
                if sample.many == 0 and kept.c[n, j]:
                    s[n, t, j] = 0.0
            s[n, t, G:] = -np.inf
            if G == 0:
                s[n, t, 0] = 0.0


@compiled
def at(lo, hi, x, seen, masked, start, candidate, prototypes, grown, measure, s):
    """s of the candidates start[n, t] .. start[n, t + 1] of each node and sample; none is a free place."""
    batch = x.shape[1]
    prototypes, measure = Prototypes(*prototypes), Measure(*measure)
    for n in range(lo, hi):
        own = of_node(prototypes, n)
        for t in range(batch):
            sample = regard(x[n, t], mask_of(seen, masked, n, t), masked, measure.centre)
            silent = sample.many == 0 or grown[n] == 0
            for i in range(start[n * batch + t], start[n * batch + t + 1]):
                s[i] = 0.0 if silent else similarity(sample, own, candidate[i], measure)


@inlined
def nobody(n, kept):
    """Who wins where nothing is heard, and with which strength."""
    return first_living(kept.c[n], kept.grown[n]), 0.0


@compiled
def gather(lo, hi, k, m, out):
    """out[n, t] = m[n, k[n, t]]."""
    for n in range(lo, hi):
        for t in range(out.shape[1]):
            out[n, t] = m[n, k[n, t]]
