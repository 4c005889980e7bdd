"""The prototypes of level 1: how a step writes them, and what they are asked besides who wins."""

from __future__ import annotations

import numpy as np

from sqhn.banks.bounds import BRIEF
from sqhn.banks.cpu.compiled import compiled, inlined
from sqhn.banks.cpu.kernels.decision import NOTHING, Prototypes, Sample, observed, of_node, similarity, squared
from sqhn.banks.cpu.kernels.neurons import Kept, count


@compiled
def average_into(m, x, count):
    """m += (x - m) / count, in float32 and in this order, whatever the chunk or the device."""
    step = np.float32(count)
    for i in range(m.shape[0]):
        m[i] += (x[i] - m[i]) / step


@inlined
def write(n, j, new, s, x, step, prototypes, kept, rules, centre):
    """Grow or average neuron j of node n."""
    count(n, j, new, s, step, kept, rules)
    if new:
        prototypes.m[n, j] = x
    else:
        average_into(prototypes.m[n, j], x, kept.c[n, j])
    refresh(of_node(prototypes, n), j, centre)


@inlined
def refresh(own, j, centre):
    """What is derived from the prototype of neuron j of a node."""
    own.m2[j] = squared(own.m[j], centre)
    own.inv[j] = inverse(own.m2[j])


@compiled
def inverse(mm):
    """1 / sqrt(mm) in float32; 0 for a neuron without length, and not a number where products say nothing."""
    if mm < BRIEF * BRIEF:
        return np.float32(np.nan) if mm > 0 else np.float32(0.0)
    return np.float32(1.0 / np.sqrt(mm))


@inlined
def strength(sample, own, j, new, before, centre, rules):
    """What a node sends up: its match after the update; if nobody hears it, the one before."""
    if rules.top:
        return 1.0 if new else before
    return similarity(sample, own, j, centre)


@compiled
def refresh_all(lo, hi, prototypes, grown, centre):
    """What is derived from every prototype."""
    own = Prototypes(*prototypes)
    for n in range(lo, hi):
        for j in range(grown[n]):
            refresh(of_node(own, n), j, centre)


@compiled
def hold(lo, hi, x, k, wrote, prototypes, kept, step, centre):
    """Average further samples of one thing into the neurons that its first sample wrote; step: the last of them."""
    own, kept = Prototypes(*prototypes), Kept(*kept)
    for n in range(lo, hi):
        if wrote[n]:
            j = k[n]
            for t in range(x.shape[1]):
                kept.c[n, j] += 1
                average_into(own.m[n, j], x[n, t], kept.c[n, j])
            kept.written[n, j] = step
            refresh(of_node(own, n), j, centre)


@inlined
def regard(x, seen, masked, centre):
    """A patch as it was seen, and whether nothing of it was."""
    if masked and not seen.all():
        return Sample(x, observed(x, x, seen, centre)[1], seen, True), not seen.any()
    return Sample(x, squared(x, centre), seen, False), False


@compiled
def activity(lo, hi, x, seen, masked, prototypes, grown, centre, s):
    """s (nodes, batch, room) of every neuron; minus infinity beyond the grown ones."""
    prototypes = Prototypes(*prototypes)
    for n in range(lo, hi):
        own = of_node(prototypes, n)
        for t in range(x.shape[1]):
            sample, silent = regard(x[n, t], seen[n, t] if masked else NOTHING, masked, centre)
            for j in range(grown[n]):
                s[n, t, j] = 0.0 if silent else similarity(sample, own, j, centre)
            for j in range(grown[n], s.shape[2]):
                s[n, t, j] = -np.inf


@compiled
def at(lo, hi, x, seen, masked, start, candidate, prototypes, centre, s):
    """s of the candidates start[n, t] .. start[n, t + 1] of each node and sample."""
    batch = x.shape[1]
    prototypes = Prototypes(*prototypes)
    for n in range(lo, hi):
        own = of_node(prototypes, n)
        for t in range(batch):
            sample, silent = regard(x[n, t], seen[n, t] if masked else NOTHING, masked, centre)
            for i in range(start[n * batch + t], start[n * batch + t + 1]):
                s[i] = 0.0 if silent else similarity(sample, own, candidate[i], centre)


@compiled
def gather(lo, hi, k, m, out):
    """out[n, t] = m[n, k[n, t]]."""
    for n in range(lo, hi):
        for t in range(out.shape[1]):
            out[n, t] = m[n, k[n, t]]
