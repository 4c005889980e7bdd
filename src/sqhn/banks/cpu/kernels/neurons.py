"""What is kept of the neurons of a node, and which of them a sample is written to."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqhn.banks import rule
from sqhn.banks.cpu.compiled import compiled, inlined
from sqhn.banks.rule import BECAME
from sqhn.level import TIE


class Kept(NamedTuple):
    """Counts, mean activities and last writes (nodes, room), growth (nodes,), and the number of steps (1,)."""

    c: Any
    mu: Any
    written: Any
    grown: Any
    steps: Any


class Times(NamedTuple):
    """The first step of a chunk, counted from 1, and the growth thresholds of all of its steps."""

    first: Any
    eps: Any


outcome = compiled(rule.outcome)


@compiled
def least_used(c, written, G):
    """The neuron with the smallest count; of equals the one written longest ago, then the lowest index."""
    least = 0
    for j in range(1, G):
        if c[j] < c[least] or (c[j] == c[least] and written[j] < written[least]):
            least = j
    return least


@inlined
def written_to(j, a, eps, n, G, kept, rules):
    """Which neuron of node n a sample goes to that matches j best, and what becomes of it there."""
    full = rules.capacity <= G
    what = outcome(a < eps - TIE, full, rules.when_full)
    if what == BECAME:
        return (least_used(kept.c[n], kept.written[n], G) if full else G), what
    return j, what


@inlined
def count(n, j, new, a, step, kept, rules):
    """Note that neuron j of node n was written, as a new one or by averaging a sample that matched with a."""
    kept.written[n, j] = step
    if new:
        kept.grown[n] = max(kept.grown[n], j + 1)
        kept.c[n, j] = 1
        kept.mu[n, j] = 1.0
    else:
        kept.c[n, j] += 1
        kept.mu[n, j] += (a - kept.mu[n, j]) / (kept.c[n, j] + rules.pseudo)
