"""The code bank on a GPU: counts as sorted lists of entries.

An entry is one (node, child, value, neuron) that was seen, as one number, and how often. Sorted by value, the entries
that a sample touches lie side by side, so a chunk's overlaps with all neurons are read off with no list to follow;
sorted by neuron, so do the values that a neuron expects. What was learned lately is a list of its own, sorted again
with every chunk and merged into the large one when it has grown to a share of it, and at the end of a call. Whoever
asks in between merges for himself.

Memory: 8 bytes per entry and order, or 12 where there are more than 2^31 that could be; some 80 more for a moment while
lists are merged. An entry is a child of a sample, or several that agree; it never takes children x values x neurons.
For a chunk, its overlaps with all neurons and among its samples.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sqhn.banks.cuda.arrays import enlarge, power, spare, together
from sqhn.banks.cuda.device import Cuda, owners
from sqhn.banks.cuda.evidence import above
from sqhn.banks.cuda.kernels import counts as kernels
from sqhn.banks.cuda.neurons import Neurons
from sqhn.banks.interface import BlockEvidence, Codes, Learned, State, Support
from sqhn.banks.rule import OVERWRITE, rules
from sqhn.banks.saved import check_counts, heard_of
from sqhn.level import TIE, Level, Options

__all__ = ["Counts"]

SCRATCH = 1 << 26  # overlaps held at once
WIDEST = 4096  # neurons that one program looks at at once
WALKERS = 16  # warps of a program that takes a chunk's decisions
LATELY = 8  # chunks that wait at least before they are merged; and the share of what is stored that may wait


class Entries:
    """Counts of (node, child, value, neuron); `limits` are the numbers of each."""

    def __init__(
        self,
        limits: tuple[int, int, int, int],
        key: Tensor,
        count: Tensor,
        other: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.limits, self.key, self.count, self.other = limits, key, count, other

    def pack(self, n: Any, q: Any, k: Any, j: Any) -> Tensor:
        """The keys of entries; sorted, they are in the order (node, child, value, neuron)."""
        _, children, values, neurons = self.limits
        packed: Tensor = ((n * children + q) * values + k) * neurons + j
        return packed.to(self.key.dtype)

    @property
    def never(self) -> int:
        """A key that sorts after all others."""
        return torch.iinfo(self.key.dtype).max

    @property
    def fields(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Node, child, value and neuron of every entry."""
        _, children, values, neurons = self.limits
        key = self.key.long()
        rest = key // neurons
        first = rest // values
        return first // children, first % children, rest % values, key % neurons

    def by_neuron(self) -> tuple[Tensor, Tensor]:
        """Keys in the order (node, neuron, child, value), and counts."""
        if self.other is not None:
            return self.other
        key, order = self.pack_by_neuron(*self.fields).sort()
        return key, self.count[order]

    def in_both_orders(self) -> Entries:
        """The same, with the order by neuron at hand."""
        return Entries(self.limits, self.key, self.count, self.by_neuron())

    def pack_by_neuron(self, n: Any, q: Any, k: Any, j: Any) -> Tensor:
        _, children, values, neurons = self.limits
        packed: Tensor = ((n * neurons + j) * children + q) * values + k
        return packed.to(self.key.dtype)

    def lookup(self, n: Any, q: Any, k: Any, j: Any) -> Tensor:
        """The counts of entries, 0 where there is none."""
        wanted = self.pack(n, q, k, j)
        if not len(self.key):
            return torch.zeros(wanted.shape, dtype=torch.int32, device=wanted.device)
        at = torch.searchsorted(self.key, wanted).clamp(max=len(self.key) - 1)
        return torch.where(self.key[at] == wanted, self.count[at], 0)

    def merged(self, key: Tensor, count: Tensor) -> Entries:
        """These and more of them, without those that count nothing."""
        keys, order = torch.cat([self.key, key]).sort()
        counts = torch.cat([self.count, count])[order]
        unique, group = torch.unique_consecutive(keys, return_inverse=True)
        total = torch.zeros(len(unique), dtype=torch.int32, device=key.device).index_add_(0, group, counts)
        counted = total > 0
        return Entries(self.limits, unique[counted], total[counted])


class Counts:
    """Counts of `children.shape[0]` nodes; children (nodes, children per node) are rows of the level below."""

    def __init__(
        self, device: Cuda, children: NDArray[np.int32], level: Level, options: Options, top: bool, values: int
    ) -> None:
        self.device, self.place, self.level = device, device.place, level
        self.children = torch.from_numpy(children).to(self.place).long()
        self.nodes, self.family = (int(side) for side in children.shape)
        self.neurons = Neurons(self.nodes, level, self.place)
        self.heard_only = options.norm == "heard"
        self.holes = False  # whether a sample was learned that a node did not hear all children of
        self.rules = rules(level, options, top)
        self.S = torch.zeros((self.nodes, 0), dtype=torch.int64, device=self.place)
        self._n = torch.arange(self.nodes, device=self.place)[:, None, None]  # for what is (nodes, children, batch)
        self._q = torch.arange(self.family, device=self.place)[None, :, None]
        self.old = self.lately = self.none = self._nobody(values, level.capacity)

    def _nobody(self, values: int, capacity: int) -> Entries:
        """No entries yet, of so many neurons and values of their children."""
        limits = (self.nodes, self.family, values, capacity)
        if math.prod(limits) >= 2**63:
            raise ValueError(
                f"{self.nodes} nodes of {self.family} children with {values} values each and {capacity} neurons "
                "are more than can be numbered on a GPU: take smaller capacities"
            )
        number = torch.int32 if math.prod(limits) < 2**31 else torch.int64  # half of the work of sorting
        return Entries(limits, self._ints(0, number), self._ints(0, torch.int32))

    @property
    def grown(self) -> Tensor:
        return self.neurons.grown

    @property
    def entries(self) -> Entries:
        """All that was learned, in one list."""
        return self.old.merged(self.lately.key, self.lately.count) if len(self.lately.key) else self.old

    def settle(self) -> None:
        """Put in order what those want who only read: one list, in both orders."""
        if len(self.lately.key) or self.old.other is None:
            self.old, self.lately = self.entries.in_both_orders(), self.none

    def resize(self, level: Level) -> None:
        """Entries are numbered anew, in the same order."""
        entries = self.entries
        none = self._nobody(entries.limits[2], level.capacity)
        key = none.pack(*entries.fields)
        self.old, self.lately = Entries(none.limits, key, entries.count).in_both_orders(), none
        self.none, self.level, self.neurons.level = none, level, level
        self.rules = self.rules._replace(capacity=level.capacity)

    def add(self, key: Tensor, count: Tensor) -> None:
        """Count entries."""
        self.old, self.lately = self.entries.merged(key, count), self.none

    def _ints(self, length: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(length, dtype=dtype, device=self.place)

    def chunk_size(self, limit: int) -> int:
        """How many samples to learn at once."""
        width = self.nodes * (min(self.rules.capacity, self.neurons.most + limit) + limit)
        return max(1, min(limit, SCRATCH // width))

    def reserve(self, more: int, values: int) -> None:  # noqa: ARG002
        """Make room for what `more` samples may grow."""
        room = self.neurons.wanted(more)
        batch = min(more, self.chunk_size(more))
        overlaps = 12 * self.nodes * batch * (min(room, self.neurons.most + batch) + batch)
        merging = 80 * (len(self.old.key) + len(self.lately.key) + 2 * self.nodes * self.family * batch)
        with spare(self.place, overlaps + merging):
            self.S = enlarge(self.S, 1, room)
            self.neurons.reserve(room)

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, evidence: Codes) -> Learned:
        """Online steps, one after another; room must have been reserved."""
        k, v = self.family_of(evidence)
        there = self.heard_family(evidence)
        alone = self.depending(v, there)
        if not alone.any():
            return self._learn(k, v, None)._replace(heard=self.hears(evidence))
        self.holes = self.holes or not bool(there is None or there.all())
        if there is None:
            there = torch.ones_like(v, dtype=torch.bool)
        edges = np.flatnonzero(np.r_[True, alone[1:] | alone[:-1], True])
        done = []
        for lo, hi in pairwise(edges):
            some = [array[..., lo:hi].contiguous() for array in (k, v, there)]
            done.append(self._learn(some[0], some[1], some[2] if alone[lo] else None))
        sent = Learned(*together([part.fields for part in done]))
        return sent._replace(heard=self.hears(evidence))

    def depending(self, v: Tensor, there: Tensor | None) -> NDArray[np.bool_]:
        """Which samples (batch,) are learned one by one, since the squares they are compared by depend on them."""
        alone = np.zeros(v.shape[2], bool)
        if there is not None:
            alone |= (~there).any(1).any(0).cpu().numpy()
        if self.heard_only:
            alone |= (v.abs() <= TIE).any(1).any(0).cpu().numpy()
        return alone

    def heard_family(self, evidence: Codes) -> Tensor | None:
        """Whether anything was seen of each child, (nodes, children, batch); None: of all of them."""
        return None if evidence.heard is None else evidence.heard[self.children]

    def hears(self, evidence: Codes) -> Tensor | None:
        """Whether anything was seen of what is below each node, (nodes, batch); None: of all of them."""
        there = self.heard_family(evidence)
        return None if there is None else there.any(1)

    def forget(self, j: NDArray[np.int64]) -> None:
        """Free the places of different neurons of the only node."""
        which = torch.from_numpy(j).to(self.place)
        self.neurons.forget(which)
        self.S[0, which] = 0
        entries = self.entries
        left = ~torch.isin(entries.fields[3], which)
        self.old, self.lately = Entries(entries.limits, entries.key[left], entries.count[left]), self.none

    def family_of(self, evidence: Codes) -> tuple[Tensor, Tensor]:
        """The children's values and strengths, (nodes, children, batch)."""
        k = evidence.k
        v = evidence.v
        return k[self.children], torch.nn.functional.hardshrink(v, TIE)[self.children]

    def _learn(self, k: Tensor, v: Tensor, there: Tensor | None) -> Learned:
        """there (nodes, children, 1): which children are to be counted, of one sample; None: all, of many."""
        batch, neurons, partial = k.shape[2], self.neurons, there is not None
        width = min(neurons.room, neurons.most + batch)
        overlap, shared = self.overlaps(k, v, width, there)
        shape = (self.nodes, batch)
        M = torch.empty((*shape, batch), dtype=torch.float64, device=self.place)
        same = torch.empty((*shape, batch), dtype=torch.int32, device=self.place)
        winner, kind = torch.empty((2, *shape), dtype=torch.int32, device=self.place)
        length, total, sent, a = torch.empty((4, *shape), dtype=torch.float64, device=self.place)
        B, J = power(batch, 16, 1 << 20), power(width, 16, WIDEST)
        kernels.agreements[(batch, self.nodes)](k, v, M, same, length, total, self.family, batch, B=min(B, 1024))
        heard = heard_shared = hearing = many = overlap
        sides = self.S.double().sqrt()
        if there is not None:
            many = there.sum(1)
            loud = torch.where(self.partly(v, there)[:, None], v.abs() > TIE, there).double()
            heard = self.squares_of(v, there, neurons.room)
            heard_shared, hearing, sides = self.overlaps(k, loud, width)[0], loud.sum(1), heard.sqrt()
        if neurons.gaps:
            sides = torch.where((neurons.c == 0) & neurons.there(), -1.0, sides.view(neurons.c.shape))
        born = torch.full((self.nodes, neurons.room), -1, dtype=torch.int32, device=self.place)
        kernels.walk[(self.nodes,)](
            (overlap, shared), (M, same), (length, total, neurons.thresholds(batch)), sides,
            (heard, heard_shared, hearing, many),
            (self.S, neurons.c, neurons.mu, neurons.written, neurons.grown, neurons.free), born,
            (winner, sent, a, kind), (self.family, batch, width, neurons.room), self.rules.capacity,
            self.rules.pseudo, neurons.step + 1, when_full=self.rules.when_full, top=self.rules.top,
            strengths=self.rules.strengths, partial=partial, gaps=neurons.gaps, ONE=width <= J, J=J, B=B,
            num_warps=WALKERS,
        )  # fmt: skip
        self.write(k, winner, kind, born, there)
        neurons.learned(batch)
        return Learned(winner, sent, a, kind)

    def overlaps(self, k: Tensor, v: Tensor, width: int, there: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What samples share with neurons, weighed by strengths and plainly; both (nodes, batch, width).

        there (nodes, children, batch): of which children.
        """
        batch, old, lately = k.shape[2], self.old, self.lately
        _, _, values, neurons = old.limits
        overlap = torch.empty((self.nodes, batch, width), dtype=torch.float64, device=self.place)
        shared = torch.empty((self.nodes, batch, width), dtype=torch.int32, device=self.place)
        where = tuple(torch.empty((4, *k.shape), dtype=torch.int32, device=self.place))
        keys, counts = (old.key, lately.key), (old.count, lately.count)
        kernels.ranges[(-(-k.numel() // 256),)](
            keys, (len(old.key), len(lately.key)), k, where, k.numel(), batch, values, neurons, E=256
        )
        if there is not None:
            low, high, recent_low, recent_high = where
            where = low, torch.where(there, high, low), recent_low, torch.where(there, recent_high, recent_low)
        kernels.overlaps[(batch, self.nodes)](
            keys, counts, where, k, v, overlap, shared, self.family, batch, width, values, neurons, E=64, num_warps=2
        )
        return overlap, shared

    def write(self, k: Tensor, winner: Tensor, kind: Tensor, born: Tensor, there: Tensor | None) -> None:
        """Count what the samples of a chunk wrote, and forget what neurons that began anew knew before."""
        batch, room = k.shape[2], self.neurons.room
        _, _, values, neurons = self.old.limits
        if self.rules.when_full >= OVERWRITE:
            for part in (self.old, self.lately):
                if some := len(part.key):
                    kernels.forget[(-(-some // 256),)](
                        part.key, part.count, born, some, room, self.family * values * neurons, neurons,
                        lately=part is self.lately, NEVER=part.never, E=256,
                    )  # fmt: skip
        key = torch.empty(k.shape, dtype=self.old.key.dtype, device=self.place)
        B = power(batch, 16, 1024)
        kernels.enter[(self.family, self.nodes)](
            k, winner, kind, born, key, self.family, batch, values, neurons, room, NEVER=self.old.never, B=B
        )
        if there is not None:
            key = torch.where(there, key, self.old.never)
        keys = torch.cat([self.lately.key, key.reshape(-1)]).sort().values
        count = self._ints(len(keys), torch.int32)
        kernels.repeats[(-(-len(keys) // 256),)](keys, count, len(keys), NEVER=self.old.never, E=256)
        self.lately = Entries(self.old.limits, keys, count)
        if len(keys) >= max(LATELY * key.numel(), len(self.old.key) // LATELY):
            self.old, self.lately = self.entries, self.none

    def hold(self, evidence: Codes, times: int, k: Tensor, wrote: Tensor) -> None:
        """Count the children's values (child nodes, 1) again for the neurons k (nodes,) that the first sample wrote."""
        below = self.family_of(evidence)[0][wrote].long()
        n, j = self._n[wrote], k[wrote].long()
        counts = self.entries.lookup(n, self._q, below, j[:, None, None])
        there = self.heard_family(evidence)
        there = torch.ones_like(below, dtype=torch.bool) if there is None else there[wrote]
        self.S[n[:, 0, 0], j] += (times * (2 * counts.long() + times) * there).sum((1, 2))
        self.neurons.c[n[:, 0, 0], j] += times
        key = self.entries.pack(n, self._q, below, j[:, None, None])[there]
        self.add(key, torch.full_like(key, times, dtype=torch.int32))
        self.neurons.step += times
        self.neurons.written[n[:, 0, 0], j] = self.neurons.step

    def store(self, evidence: Codes) -> None:
        """Make every sample's values a new neuron at every node; room must have been reserved."""
        k = self.family_of(evidence)[0].long()
        new = self.neurons.append(k.shape[2])
        self.S.scatter_(1, new, self.family)
        key = self.entries.pack(self._n, self._q, k, new[:, None, :]).reshape(-1)
        self.add(key, torch.ones_like(key, dtype=torch.int32))

    # -- questions -----------------------------------------------------------------------------------------------

    def heard_squares(self, v: Tensor, width: int) -> Tensor:
        """Sums of squared counts over the children that are heard: (nodes, batch, width)."""
        entries = self.entries
        n, q, _, j = entries.fields
        squares = torch.zeros((self.nodes, self.family, width), dtype=torch.float64, device=self.place)
        squares.index_put_((n, q, j), entries.count.double().square(), accumulate=True)
        return (v.abs() > TIE).double().mT @ squares

    def partly(self, v: Tensor, there: Tensor | None) -> Tensor:
        """Of which samples the squares run over the children that are heard, (nodes, batch)."""
        silent = (v.abs() <= TIE).any(1)
        if self.heard_only:
            return silent
        return torch.zeros_like(silent) if there is None else silent & ~there.all(1)

    def squares_of(self, v: Tensor, there: Tensor | None, width: int) -> Tensor:
        """The sums of squared counts that samples are compared by: (nodes, batch or 1, width)."""
        all_ = self.S[:, None, :width].double()
        if there is None and not self.heard_only:
            return all_
        return torch.where(self.partly(v, there)[..., None], self.heard_squares(v, width), all_)

    @staticmethod
    def normalize(overlap: Tensor, squares: Tensor, length: Tensor) -> Tensor:
        """h from overlaps, sums of squared counts, and the length of the strengths."""
        both = length * squares.double().sqrt()
        return torch.where(both > 0, overlap / torch.where(both > 0, both, 1.0), 0.0)

    def best(self, evidence: Codes) -> tuple[Tensor, Tensor]:
        """The winner and its activity at every node, for every sample; both (nodes, batch)."""
        k, v = self.family_of(evidence)
        there = self.heard_family(evidence)
        width, batch = self.neurons.most, k.shape[2]
        rows = max(1, SCRATCH // (self.nodes * width))
        parts = []
        for t in range(0, batch, rows):
            part = slice(t, t + rows)
            parts.append(self.best_of(k[..., part], v[..., part], None if there is None else there[..., part], width))
        return together(parts)

    def best_of(self, k: Tensor, v: Tensor, there: Tensor | None, width: int) -> tuple[Tensor, Tensor]:
        k, v = k.contiguous(), v.contiguous()
        batch, each = k.shape[2], self.heard_only or there is not None
        with spare(self.place):
            overlap, _ = self.overlaps(k, v, width)
            sides = (self.squares_of(v, there, width) if each else self.S.double()).sqrt()
            if self.neurons.gaps:
                gone = (self.neurons.c == 0) & self.neurons.there()
                sides = torch.where(gone[:, None, :width] if each else gone, -1.0, sides).contiguous()
        winner = torch.empty((self.nodes, batch), dtype=torch.int32, device=self.place)
        h = torch.empty((self.nodes, batch), dtype=torch.float64, device=self.place)
        kernels.best[(batch, self.nodes)](
            overlap, sides, v.square().sum(1).sqrt(), self.grown, winner, h, batch, width, self.neurons.room,
            heard=each, J=power(width, 16, 1024),
        )  # fmt: skip
        return winner, h

    def top_k(self, evidence: Codes, count: int) -> tuple[Tensor, Tensor]:
        """The best, the winner first; see `CodeBank.top_k`."""
        k, v = self.family_of(evidence)
        most = int(self.grown.max())
        overlap, _ = self.overlaps(k, v, most)
        squares = self.squares_of(v, self.heard_family(evidence), most)
        h = self.normalize(overlap, squares, v.square().sum(1).sqrt()[..., None])
        return self.device.top_k(torch.where(self.neurons.living(most), h, -torch.inf), count)

    def at(self, evidence: Codes, support: Support) -> Tensor:
        """The activity of the neurons that a parent expects."""
        k, v = self.family_of(evidence)
        batch = k.shape[2]
        value = support.value
        place = owners(support)
        n, t, j = place // batch, place % batch, value.long()
        strengths, values = v[n, :, t], k[n, :, t].long()  # (entries, children)
        counts = self.entries.lookup(n[:, None], self._q[..., 0], values, j[:, None])
        overlap = (strengths * counts).sum(1)
        squares = self.squares_of(v, None, self.neurons.most)[n, t, j] if self.heard_only else self.S[n, j]
        return self.normalize(overlap, squares, strengths.square().sum(1).sqrt())

    def block_evidence(self, below: BlockEvidence, weight: float) -> BlockEvidence:
        """The evidence for neurons from that of their children, and of their own blocks."""
        return above(self, below, weight)

    def max_sum(self, u: Tensor) -> Tensor:
        """The best sum each neuron can reach with its children; u (child nodes, batch, values)."""
        most = int(self.grown.max())
        batch = u.shape[1]
        entries = self.entries
        n, q, k, j = entries.fields
        child = self.children[n, q]
        reach = u.amax(2)[self.children][:, :, None, :].expand(-1, -1, most, -1).reshape(-1, batch).clone()
        gain = entries.count[:, None] / self.often()[n, j, q, None].double() + u[child, :, k]
        place = (n * self.family + q) * most + j
        reach.scatter_reduce_(0, place[:, None].expand_as(gain), gain, "amax")
        total = reach.view(self.nodes, self.family, most, batch).sum(1).mT
        total = torch.where(self.neurons.living(most), total, -torch.inf)
        if self.holes:
            total[self.grown == 0, :, 0] = 0.0
        return total

    def often(self) -> Tensor:
        """How often each neuron heard each child, (nodes, room, children): as often as it was written, or less."""
        c = self.neurons.c[:, :, None].expand(-1, -1, self.family)
        if not self.holes:
            return c
        n, q, _, j = self.entries.fields
        return torch.zeros_like(c).index_put_((n, j, q), self.entries.count.long(), accumulate=True)

    def expects(self, j: Tensor, known: Tensor) -> Tensor:
        """Whether the neurons j (nodes, batch) expect anything of a child, (child nodes, batch); see `CodeBank`."""
        heard = (self.often()[self._n[:, 0], j.long()] > 0) & known[:, :, None]  # (nodes, batch, children)
        found = torch.empty((self.children.numel(), j.shape[1]), dtype=torch.bool, device=self.place)
        found[self.children.reshape(-1)] = heard.mT.reshape(-1, j.shape[1])
        return found

    def support(self, j: Tensor) -> Support:
        """What the neurons j (nodes, batch) expect of every child."""
        batch = j.shape[1]
        entries = self.entries
        key, count = entries.by_neuron()
        values = entries.limits[2]
        low = entries.pack_by_neuron(self._n, self._q, 0, j.long()[:, None, :])
        begin, end = (torch.searchsorted(key, edge) for edge in (low, low + values))
        order = self.children.reshape(-1).argsort()  # rows of children, in the order of the level below
        begin, sizes = (part.reshape(-1, batch)[order].reshape(-1) for part in (begin, end - begin))
        start = torch.zeros(len(sizes) + 1, dtype=torch.int64, device=self.place)
        torch.cumsum(sizes, 0, out=start[1:])
        which = torch.repeat_interleave(torch.arange(len(sizes), device=self.place), sizes)
        entry = torch.arange(len(which), device=self.place) - start[which] + begin[which]
        c = self.often()[self._n[:, 0], j.long()].mT.reshape(-1, batch)[order]
        value = (key[entry] % values).to(torch.int32)
        return Support(start, value, count[entry] / c.reshape(-1)[which].double())

    def probability(self, j: Tensor, k: Tensor) -> Tensor:
        """The probability that the neurons j (nodes, batch) give to their children's values k (child nodes, batch)."""
        counts = self.entries.lookup(self._n, self._q, k[self.children].long(), j.long()[:, None, :])
        c = self.often()[self._n[:, 0], j.long()].mT.clamp(min=1)
        p = torch.empty(k.shape, dtype=torch.float64, device=self.place)
        p[self.children.reshape(-1)] = (counts / c.double()).reshape(-1, k.shape[1])
        return p

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        """What must be saved: rows (node, neuron, child, value, count), sorted."""
        entries = self.entries
        n, q, k, j = entries.fields
        order = entries.pack_by_neuron(n, q, k, j).argsort()
        rows = torch.stack([n, j, q, k, entries.count.long()], 1)[order]
        counts = rows.to(torch.int32).cpu().numpy()
        known = {"known": heard_of(counts, self.grown.cpu().numpy(), self.family)} if self.holes else {}
        return {"counts": counts, **known}

    def restore(self, state: State, values: int) -> None:
        """Take over a saved state with child values below `values`; the neurons' own must be in place."""
        rows = check_counts(state, (self.nodes, self.neurons.room, self.family, values))
        self.holes = "known" in state
        n, j, q, k, count = torch.from_numpy(rows.astype(np.int64)).to(self.place).T
        self.add(self.old.pack(n, q, k, j), count.to(torch.int32))
        self.S = torch.zeros((self.nodes, self.neurons.room), dtype=torch.int64, device=self.place)
        self.S.index_put_((n, j), count * count, accumulate=True)
        self.settle()
