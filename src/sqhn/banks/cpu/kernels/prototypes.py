"""The prototypes of level 1: how a step writes them, and questions about all or some of them."""

from __future__ import annotations

import numpy as np

from sqhn.banks.bounds import SHORT
from sqhn.banks.cpu.compiled import compiled, inlined, kernel
from sqhn.banks.cpu.kernels.decision import (
    ALWAYS,
    NEVER,
    Measure,
    is_seen,
    of_node,
    regard,
    similarity,
    squared,
)
from sqhn.banks.cpu.kernels.neurons import Statistics, count, note
from sqhn.banks.cpu.kernels.rows import become_bytes, prototype, row


@compiled
def average_into(m, x, seen, known, count):
    """m += (x - m) / count, in float32 and in this order, whatever the chunk or the device.

    Where values are missing, or were, each is the mean of those that were seen.
    """
    if known.shape[0] == 0:
        for i in range(m.shape[0]):
            m[i] += (x[i] - m[i]) / np.float32(count)
        return
    for i in range(m.shape[0]):
        there = is_seen(seen, i)
        known[i] += there
        moved = m[i] + (x[i] - m[i]) / np.float32(max(known[i], 1))
        m[i] = (x[i] if known[i] == 1 else moved) if there else m[i]


@compiled
def become(m, known, sample, measure):
    """Let a sample become a prototype; the values that were not seen are the centre."""
    for i in range(m.shape[0]):
        m[i] = sample.x[i]
    for i in range(known.shape[0]):
        known[i] = is_seen(sample.seen, i)
        if not known[i]:
            m[i] = measure.centre


@inlined
def write(n, j, new, s, sample, raw, step, own, statistics, rules, measure):
    """Grow or average neuron j of node n; raw: the sample as bytes, if the neuron may be that, else no values."""
    count(n, j, new, s, step, statistics, rules)
    if new and raw.shape[0]:
        become_bytes(own, j, raw)
    elif new:
        become(row(own, j), own.known[j], sample, measure)
    else:
        average_into(row(own, j), sample.x, sample.seen, own.known[j], statistics.c[n, j])
    derive(own, j, statistics.c[n, j] > 0, measure)


@compiled
def derive(own, j, living, measure):
    """Compute what is derived from the prototype of neuron j of a node (`Prototypes`)."""
    square = squared(prototype(own, j), measure.centre)
    own.square[j], own.inverse[j], own.candidate[j] = square, 1.0, 0.0
    if not living:
        own.candidate[j] = NEVER
    elif measure.euclidean:
        if not complete(own.known[j]):
            own.candidate[j] = ALWAYS
    elif square < SHORT * SHORT:
        own.inverse[j] = 0.0
        if square > 0:
            own.candidate[j] = ALWAYS
    else:
        own.inverse[j] = 1.0 / np.sqrt(square)


@compiled
def complete(known):
    """Whether all values of a neuron are known."""
    many = 0
    for i in range(known.shape[0]):
        many += known[i] > 0
    return many == known.shape[0]


@kernel
def derive_at(lo, hi, nodes, neurons, prototypes, c, measure, decoded):
    """Compute what is derived from the prototypes of some neurons, each at its node."""
    measure = Measure(*measure)
    for i in range(lo, hi):
        n, j = nodes[i], neurons[i]
        derive(of_node(prototypes, n, decoded), j, c[n, j] > 0, measure)


@kernel
def hold(lo, hi, x, seen, k, wrote, prototypes, statistics, step, measure, decoded):
    """Average each sample into the neuron k of its node, where `wrote` says so; step: of the first of them."""
    statistics, measure = Statistics(*statistics), Measure(*measure)
    for n in range(lo, hi):
        own = of_node(prototypes, n, decoded)
        for t in range(x.shape[1]):
            if wrote[n, t]:
                j = np.int64(k[n, t])
                statistics.c[n, j] += 1
                note(n, j, step + t, statistics)
                average_into(row(own, j), x[n, t], seen[n, t], own.known[j], statistics.c[n, j])
                derive(own, j, statistics.c[n, j] > 0, measure)


@kernel
def activity(lo, hi, x, seen, prototypes, grown, measure, s, decoded):
    """s (nodes, batch, room) of every neuron; minus infinity in free slots and beyond the grown ones.

    A node without neurons is like a node with one that is silent.
    """
    measure = Measure(*measure)
    for n in range(lo, hi):
        own, G = of_node(prototypes, n, decoded), grown[n]
        for t in range(x.shape[1]):
            sample = regard(x[n, t], seen[n, t], measure.centre)
            for j in range(G):
                s[n, t, j] = similarity(sample, own, j, measure)
                if sample.many == 0 and own.candidate[j] != NEVER:
                    s[n, t, j] = 0.0
            s[n, t, G:] = -np.inf
            if G == 0:
                s[n, t, 0] = 0.0


@kernel
def at(lo, hi, x, seen, start, neuron, prototypes, grown, measure, s, decoded):
    """s of the neurons start[n, t] .. start[n, t + 1] of each node and sample; none is a free slot."""
    batch = x.shape[1]
    measure = Measure(*measure)
    for n in range(lo, hi):
        own = of_node(prototypes, n, decoded)
        for t in range(batch):
            sample = regard(x[n, t], seen[n, t], measure.centre)
            silent = sample.many == 0 or grown[n] == 0
            for i in range(start[n * batch + t], start[n * batch + t + 1]):
                s[i] = 0.0 if silent else similarity(sample, own, np.int64(neuron[i]), measure)
