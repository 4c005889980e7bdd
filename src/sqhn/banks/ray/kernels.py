"""Compiled search for the best neurons of a shard and an upper bound for all others, built from the CPU's kernels."""

from __future__ import annotations

import numpy as np

from sqhn.banks.bounds import SHORT
from sqhn.banks.cpu.compiled import borrowed, compiled, inlined
from sqhn.banks.cpu.kernels.decision import (
    NEVER,
    NONE,
    Measure,
    Prototypes,
    evaluate,
    featureless,
    highest,
    of_node,
    reaching,
    regard,
    scratch,
    shift,
    similarity,
    winner,
)
from sqhn.banks.cpu.kernels.steps import begin, bound, first_look, padded, refine
from sqhn.level import TIE

TOP_ROUNDING = 1e-6
"""More than the rounding error of a cosine in a float32 sum of three terms."""


@compiled
def nearest(lo, hi, x, products, prototypes, measure, bar, k, v, rest):
    """The best neurons of the only node for samples lo..hi without missing values, by cosines.

    k, v (batch, count + 1): the winner, the winner of the rest, and so on; the last is another neuron, if one was
    evaluated. Where there is none, k is NONE and v minus infinity. rest: an upper bound for all others. If the count is
    0, only the neuron with the highest upper bound is evaluated. bar: similarities that neurons must reach, if any;
    none are evaluated for samples of which none can.
    """
    room = first_look(products, prototypes[0]), scratch(products[0][0].shape[2]), padded(x.shape[1])
    nearest_in(room, lo, hi, (x, bar, k, v, rest), prototypes, measure)


@inlined
def nearest_in(room, lo, hi, question, prototypes, measure):
    """The same, with room for intermediate results."""
    (look, work, y), (x, bar, k, v, rest) = borrowed(room), borrowed(question)
    own, measure = of_node(Prototypes(*borrowed(prototypes)), 0), Measure(*measure)
    (upper, index, value), count, G = work, k.shape[1] - 1, look.products.P.shape[2]
    begin(look, 0, own, G, measure)
    for t in range(lo, hi):
        sample, done = regard(x[t], None, measure.centre), 0
        k[t], v[t], rest[t] = NONE, -np.inf, -np.inf
        if sample.square == 0 and count < 2:
            k[t, 0], v[t, 0] = featureless(own.square, own.candidate, G, measure.centre)
            rest[t] = v[t, 0]
            continue
        shift(sample, measure.centre, y)
        bound(look, 0, t, sample, y, own, G, measure, upper)
        if len(bar):
            rest[t] = at_most(sample, upper, G, measure)
            if rest[t] < bar[t] - TIE:
                continue
        limit = np.inf
        if count == 0:
            j = highest(upper, G)
            index[0], value[0], upper[j], done = j, similarity(sample, own, j, measure), NEVER, 1
        for i in range(count):
            refine(look, 0, t, sample, y, own, G, measure, work, done)
            done = evaluate(sample, own, G, measure, work, done)
            i_th = winner(index, value, done)
            k[t, i], v[t, i], limit = index[i_th], value[i_th], value[i_th]
            value[i_th] = -np.inf
        other = value[:done].argmax()
        if value[other] > -np.inf:
            k[t, count], v[t, count] = index[other], value[other]
            value[other] = -np.inf
        rest[t] = max(value[:done].max(), min(limit, at_most(sample, upper, G, measure)))


@compiled
def at_most(sample, upper, G, measure):
    """An upper bound of similarities, from those of products; infinite where products cannot be trusted."""
    if reaching(upper[:G], np.float32(np.inf)):
        return np.inf
    top, length = np.float64(upper[highest(upper, G)]), np.sqrt(sample.square)
    if length < SHORT and top > NEVER:
        return np.inf
    return measure.centre + (1 - measure.centre) * (top / length + TOP_ROUNDING) if top > NEVER else -np.inf
