"""Compiled search for the best neurons of a shard and an upper bound for all others, built from the CPU's kernels."""

from __future__ import annotations

import numpy as np

from sqhn.banks.bounds import SHORT
from sqhn.banks.cpu.compiled import compiled, kernel
from sqhn.banks.cpu.kernels import large
from sqhn.banks.cpu.kernels.decision import (
    NEVER,
    NONE,
    Measure,
    Scratch,
    evaluate,
    featureless,
    highest,
    of_node,
    reaching,
    regard,
    shift,
    similarity,
    winner,
)
from sqhn.level import TIE

TOP_ROUNDING = 1e-6
"""More than the rounding error of a cosine in a float32 sum of three terms."""


@kernel
def nearest(lo, hi, x, seen, products, prototypes, measure, bar, k, v, rest, room):
    """The best neurons of the only node for samples lo..hi without missing values, by cosines.

    k, v (batch, count + 1): the winner, the winner of the rest, and so on; the last is another neuron, if one was
    evaluated. Where there is none, k is NONE and v minus infinity. rest: an upper bound for all others. If the count is
    0, only the neuron with the highest upper bound is evaluated. bar: similarities that neurons must reach, if any;
    none are evaluated for samples of which none can.
    """
    look, work = large.first_look(products, room[2]), Scratch(*room[0])
    own, measure = of_node(prototypes, 0, work.decoded), Measure(*measure)
    upper, index, value, count, G = work.upper, work.index, work.value, k.shape[1] - 1, look.products.P.shape[2]
    large.begin(look, 0, own, G, measure)
    for t in range(lo, hi):
        sample, done = regard(x[0, t], seen[0, t], measure.centre), 0
        rest[t] = -np.inf
        for i in range(count + 1):
            k[t, i], v[t, i] = NONE, -np.inf
        if sample.square == 0 and count < 2:
            k[t, 0], v[t, 0] = featureless(own.square, own.candidate, G, measure.centre)
            rest[t] = v[t, 0]
            continue
        shift(sample, measure.centre, work.y)
        large.bound(look, 0, t, sample, own, G, measure, upper)
        if len(bar):
            rest[t] = at_most(sample, work, G, measure)
            if rest[t] < bar[t] - TIE:
                continue
        limit = np.inf
        if count == 0:
            j = highest(work.bits, G)
            index[0], value[0], upper[j], done = j, similarity(sample, own, j, measure), NEVER, 1
        for i in range(count):
            large.refine(look, 0, t, sample, own, G, measure, work, done)
            done = evaluate(sample, own, G, measure, work, done)
            i_th = winner(index, value, done)
            k[t, i], v[t, i], limit = index[i_th], value[i_th], value[i_th]
            value[i_th] = -np.inf
        other = 0
        for i in range(1, done):
            other = i if value[i] > value[other] else other
        if value[other] > -np.inf:
            k[t, count], v[t, count] = index[other], value[other]
            value[other] = -np.inf
        rest[t] = min(limit, at_most(sample, work, G, measure))
        for i in range(done):
            rest[t] = max(rest[t], value[i])


@compiled
def at_most(sample, work, G, measure):
    """An upper bound of similarities, from those of products; infinite where products cannot be trusted."""
    if reaching(work.upper[:G], np.float32(np.inf)):
        return np.inf
    top, length = np.float64(work.upper[highest(work.bits, G)]), np.sqrt(sample.square)
    if length < SHORT and top > NEVER:
        return np.inf
    return measure.centre + (1 - measure.centre) * (top / length + TOP_ROUNDING) if top > NEVER else -np.inf
