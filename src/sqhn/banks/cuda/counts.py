"""The code bank on a GPU: counts as sorted lists of entries (`entries.Entries`).

In a list sorted by value, the entries of a sample are next to each other, so a chunk's overlaps with all neurons are
read without following pointers. In a list sorted by neuron, the values that a neuron expects are next to each other.
Recent entries have a list of their own, which is sorted again with every chunk. It is merged into the large list when
it has reached a certain share of it, and at the end of a call. Readers in between see both lists merged.

Memory: 8 bytes per entry and order, or 12 where more than 2^31 entries are possible; some 80 more for a moment while
lists are merged. An entry is one child of a sample, or of several samples that agree; memory never grows with children
times values times neurons. For a chunk, its overlaps with all neurons and among its samples.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sqhn.banks.cuda.arrays import LARGEST_BLOCK, enlarge_all, owners, power_of_two, reserve_memory, split, together
from sqhn.banks.cuda.entries import Entries
from sqhn.banks.cuda.evidence import above
from sqhn.banks.cuda.kernels import counts as kernels
from sqhn.banks.cuda.kernels.common import NONE
from sqhn.banks.cuda.neurons import Neurons
from sqhn.banks.interface import Codes, Learned, State, Support
from sqhn.banks.rule import OVERWRITE, rules
from sqhn.banks.saved import KINDS, all_entries, check_columns, saved_columns
from sqhn.level import TIE, Level, Options

if TYPE_CHECKING:
    from sqhn.banks.cuda.gpu import Cuda


OVERLAPS_AT_ONCE = 1 << 26
COUNT_WARPS = 16  # of the program that learns a chunk, sample by sample, at one node
MERGE_AFTER = 8  # recent entries are merged after at least so many chunks, once they are one in so many of all entries


class Counts:
    """A `CodeBank`: the counts of a level; children (nodes, children per node) are rows of the level below.

    heard_only: the lengths of columns run over only the children that are heard.
    """

    def __init__(
        self, device: Cuda, children: NDArray[np.int32], level: Level, options: Options, top: bool, values: int
    ) -> None:
        self.device, self.place, self.level, self.top = device, device.place, level, top
        self.children = torch.from_numpy(children).to(self.place).long()
        self.order = self.children.reshape(-1).argsort()  # from the children of each node to the level below
        self.nodes, self.family = (int(side) for side in children.shape)
        self.neurons = Neurons(self.nodes, level, top, self.place)
        self.heard_only = options.norm == "heard"
        self.holes = False
        self.rules = rules(level, options, top)
        self.S = torch.zeros((self.nodes, 0), dtype=torch.int64, device=self.place)
        self.node = torch.arange(self.nodes, device=self.place)[:, None, None]  # to index (nodes, children, batch)
        self.child = torch.arange(self.family, device=self.place)[None, :, None]
        self.large = self.recent = self.empty = self.no_entries(values, level.capacity)

    def no_entries(self, values: int, capacity: int) -> Entries:
        """An empty list for this number of values of the children and this number of neurons."""
        limits = (self.nodes, self.family, values, capacity)
        if math.prod(limits) >= 2**63:
            raise ValueError(
                f"{self.nodes} nodes of {self.family} children with {values} values each and {capacity} neurons "
                "have more possible entries than a GPU can number: choose smaller capacities"
            )
        number = torch.int32 if math.prod(limits) < 2**31 else torch.int64  # sorting the short ones takes half as long
        key, count = (torch.empty(0, dtype=dtype, device=self.place) for dtype in (number, torch.int32))
        return Entries(limits, key, count)

    @property
    def grown(self) -> Tensor:
        return self.neurons.grown

    @property
    def entries(self) -> Entries:
        """All entries in one list."""
        return self.large.merged(self.recent.key, self.recent.count) if len(self.recent.key) else self.large

    def settle(self) -> None:
        self.large, self.recent = self.entries, self.empty
        _ = self.large.by_neuron  # sorted now, and kept

    def resize(self, level: Level) -> None:
        entries = self.entries
        self.recent = self.empty = self.no_entries(entries.limits[2], level.capacity)
        self.large = Entries(self.empty.limits, self.empty.pack(*entries.fields), entries.count)
        self.settle()
        self.level = self.neurons.level = level
        self.rules = self.rules._replace(capacity=level.capacity)

    def add(self, key: Tensor, count: Tensor) -> None:
        """Count entries."""
        self.large, self.recent = self.entries.merged(key, count), self.empty

    def chunk_size(self, limit: int) -> int:
        width = self.nodes * (min(self.rules.capacity, self.neurons.most + limit) + limit)
        return max(1, min(limit, OVERLAPS_AT_ONCE // width))

    def reserve(self, more: int, values: int) -> None:  # noqa: ARG002
        room = self.neurons.wanted(more)
        batch = min(more, self.chunk_size(more))
        overlaps = 12 * self.nodes * batch * (min(room, self.neurons.most + batch) + batch)
        merging = 80 * (len(self.large.key) + len(self.recent.key) + 2 * self.nodes * self.family * batch)
        with reserve_memory(self.place, overlaps + merging):
            enlarge_all(room, (self, ["S"]), (self.neurons, KINDS))

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, evidence: Codes) -> Learned:
        k, v, heard = self.family_of(evidence)
        single = np.zeros(v.shape[2], bool)  # which are learned one at a time: their squares miss some children
        if heard is not None:
            single = (~heard).any(1).any(0).cpu().numpy()
            self.holes = self.holes or bool(single.any())
        if self.heard_only:
            single |= (v == 0).any(1).any(0).cpu().numpy()
            heard = torch.ones_like(v, dtype=torch.bool) if heard is None else heard
        done = []
        for begin, end in pairwise(np.flatnonzero(np.r_[True, single[1:] | single[:-1], True])):
            part = slice(begin, end)
            some = heard[..., part].contiguous() if heard is not None and single[begin] else None
            done.append(self.learn_chunk(k[..., part].contiguous(), v[..., part].contiguous(), some))
        return Learned(*together(done))

    def forget(self, j: NDArray[np.int64]) -> None:
        which = torch.from_numpy(j).to(self.place)
        self.neurons.forget(which)
        self.S[0, which] = 0
        entries = self.entries
        left = ~torch.isin(entries.fields[3], which)
        self.large, self.recent = Entries(entries.limits, entries.key[left], entries.count[left]), self.empty

    def family_of(self, evidence: Codes) -> tuple[Tensor, Tensor, Tensor | None]:
        """The children's values, strengths (0 up to TIE), and whether any value below was observed (None: of all).

        All (nodes, children, batch).
        """
        k, v, heard = evidence
        strengths = torch.nn.functional.hardshrink(v, TIE)[self.children]
        return k[self.children], strengths, None if heard is None else heard[self.children]

    def learn_chunk(self, k: Tensor, v: Tensor, heard: Tensor | None) -> tuple[Tensor, ...]:
        """The first fields of `Learned`.

        heard (nodes, children, 1): which children count, of a single sample; None: all children, of many samples. The
        strengths v of the others are 0.
        """
        batch, neurons = k.shape[2], self.neurons
        width = min(neurons.room, neurons.most + batch)
        overlap, shared = self.overlaps(k, v, width)
        shape = (self.nodes, batch)
        M = torch.empty((*shape, batch), dtype=torch.float64, device=self.place)
        same = torch.empty((*shape, batch), dtype=torch.int32, device=self.place)
        winner, kind = torch.empty((2, *shape), dtype=torch.int32, device=self.place)
        length, sent, a = torch.empty((3, *shape), dtype=torch.float64, device=self.place)
        B, J = power_of_two(batch, 16, 1 << 20), power_of_two(width, 16, LARGEST_BLOCK)
        kernels.agreements[(batch, self.nodes)](k, v, M, same, length, self.family, batch, B=min(B, 1024))
        squares, partly = self.S[:, None], None
        if heard is not None:
            shared = self.overlaps(k, heard.double(), width)[0].int()
            loud = torch.where(self.partial_norm(v, heard)[:, None], v != 0, heard).double()
            squares = self.squares_of(v, heard, neurons.room)
            partly = squares, self.overlaps(k, loud, width)[0], loud.sum(1), heard.sum(1)
        born = torch.full((self.nodes, neurons.room), NONE.value, dtype=torch.int32, device=self.place)
        kernels.walk[(self.nodes,)](
            overlap, shared, M, same, length, neurons.thresholds(batch), self.sides(squares), partly,
            (self.S, neurons.c, neurons.mu, neurons.written, neurons.grown, neurons.free), born,
            (winner, sent, a, kind), (self.family, batch, width, neurons.room), self.rules.capacity,
            self.rules.pseudo, neurons.step + 1, when_full=self.rules.when_full, top=self.rules.top,
            strengths=self.rules.strengths, any_free=neurons.any_free, ONE=width <= J, J=J, B=B, num_warps=COUNT_WARPS,
        )  # fmt: skip
        self.write(k, winner, kind, born, heard)
        neurons.learned(batch)
        return winner, sent, a, kind

    def sides(self, squares: Tensor) -> Tensor:
        """The roots of sums of squared counts (nodes, ..., width) for the kernels; FREE where there is no neuron."""
        roots = squares.double().sqrt()
        if self.neurons.any_free:
            roots = torch.where(self.neurons.living(squares.shape[2]), roots, kernels.FREE.value)
        return roots.contiguous()

    def overlaps(self, k: Tensor, v: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """The overlaps of samples with neurons, by strengths and without them; both (nodes, batch, width)."""
        batch, large, recent = k.shape[2], self.large, self.recent
        _, _, values, neurons = large.limits
        overlap = torch.empty((self.nodes, batch, width), dtype=torch.float64, device=self.place)
        shared = torch.empty((self.nodes, batch, width), dtype=torch.int32, device=self.place)
        where = tuple(torch.empty((4, *k.shape), dtype=torch.int32, device=self.place))
        keys, counts = (large.key, recent.key), (large.count, recent.count)
        kernels.ranges[(-(-k.numel() // 256),)](
            keys, (len(large.key), len(recent.key)), k, where, k.numel(), batch, values, neurons, E=256
        )
        kernels.overlaps[(batch, self.nodes)](
            keys, counts, where, k, v, overlap, shared, self.family, batch, width, values, neurons, E=64, num_warps=2
        )
        return overlap, shared

    def write(self, k: Tensor, winner: Tensor, kind: Tensor, born: Tensor, heard: Tensor | None) -> None:
        """Count the entries that the samples of a chunk wrote, and drop those of neurons that were replaced."""
        batch, room = k.shape[2], self.neurons.room
        number, (_, _, values, neurons) = self.large.key.dtype, self.large.limits
        never = torch.iinfo(number).max  # a key that sorts after all others
        if self.rules.when_full >= OVERWRITE:
            for part in (self.large, self.recent):
                if length := len(part.key):
                    kernels.forget[(-(-length // 256),)](
                        part.key, part.count, born, length, room, self.family * values * neurons, neurons,
                        recent=part is self.recent, NEVER=never, E=256,
                    )  # fmt: skip
        key = torch.empty(k.shape, dtype=number, device=self.place)
        B = power_of_two(batch, 16, 1024)
        kernels.enter[(self.family, self.nodes)](
            k, winner, kind, born, key, self.family, batch, values, neurons, room, NEVER=never, B=B
        )
        if heard is not None:
            key = torch.where(heard, key, never)
        keys = torch.cat([self.recent.key, key.reshape(-1)]).sort().values
        count = torch.empty(len(keys), dtype=torch.int32, device=self.place)
        kernels.repeats[(-(-len(keys) // 256),)](keys, count, len(keys), NEVER=never, E=256)
        self.recent = Entries(self.large.limits, keys, count)
        if len(keys) >= max(MERGE_AFTER * key.numel(), len(self.large.key) // MERGE_AFTER):
            self.large, self.recent = self.entries, self.empty

    def hold(self, evidence: Codes, times: int, k: Tensor, wrote: Tensor) -> None:
        every, _, heard = self.family_of(evidence)
        self.neurons.step += (times - 1) * k.shape[1]
        for t in range(k.shape[1]):
            here = wrote[:, t]
            n, j, below = self.node[here], k[here, t].long(), every[:, :, t : t + 1][here].long()
            counts = self.entries.lookup(n, self.child, below, j[:, None, None])
            counted = torch.ones_like(below, dtype=torch.bool) if heard is None else heard[:, :, t : t + 1][here]
            self.S[n[:, 0, 0], j] += (times * (2 * counts.long() + times) * counted).sum((1, 2))
            self.neurons.c[n[:, 0, 0], j] += times
            key = self.entries.pack(n, self.child, below, j[:, None, None])[counted]
            self.add(key, torch.full_like(key, times, dtype=torch.int32))
            self.neurons.step += 1
            self.neurons.written[n[:, 0, 0], j] = self.neurons.step

    def store(self, evidence: Codes) -> None:
        k = self.family_of(evidence)[0].long()
        new = self.neurons.append(k.shape[2])
        self.S.scatter_(1, new, self.family)
        key = self.entries.pack(self.node, self.child, k, new[:, None, :]).reshape(-1)
        self.add(key, torch.ones_like(key, dtype=torch.int32))

    # -- questions -----------------------------------------------------------------------------------------------

    def partial_norm(self, v: Tensor, heard: Tensor | None) -> Tensor:
        """The samples whose squares are summed over only the children that are heard, (nodes, batch)."""
        silent = (v == 0).any(1)
        return silent if self.heard_only or heard is None else silent & ~heard.all(1)

    def squares_of(self, v: Tensor, heard: Tensor | None, width: int) -> Tensor:
        """The sums of squared counts that samples are compared by: (nodes, batch or 1, width)."""
        whole = self.S[:, None, :width].double()
        if heard is None and not self.heard_only:
            return whole
        entries = self.entries
        n, q, _, j = entries.fields
        squares = torch.zeros((self.nodes, self.family, width), dtype=torch.float64, device=self.place)
        squares.index_put_((n, q, j), entries.count.double().square(), accumulate=True)
        over_heard = (v != 0).double().mT @ squares
        return torch.where(self.partial_norm(v, heard)[..., None], over_heard, whole)

    @staticmethod
    def normalize(overlap: Tensor, squares: Tensor, length: Tensor) -> Tensor:
        """h from overlaps, sums of squared counts, and the length of the strengths."""
        both = length * squares.double().sqrt()
        return torch.where(both > 0, overlap / torch.where(both > 0, both, 1.0), 0.0)

    def top_k(self, evidence: Codes, count: int) -> tuple[Tensor, Tensor]:
        width = self.neurons.most
        if count > 1:
            return self.device.top_k_of(self.activity, evidence, count, self.nodes * width)
        rows = OVERLAPS_AT_ONCE // (self.nodes * width)
        k, h = together([self.best_of(part, width) for part in split(evidence, rows)])
        return k[..., None], h[..., None]

    def best_of(self, evidence: Codes, width: int) -> tuple[Tensor, Tensor]:
        k, v, heard = self.family_of(evidence)
        batch = k.shape[2]
        with reserve_memory(self.place):
            overlap, _ = self.overlaps(k, v, width)
            sides = self.sides(self.squares_of(v, heard, width))
        winner = torch.empty((self.nodes, batch), dtype=torch.int32, device=self.place)
        h = torch.empty((self.nodes, batch), dtype=torch.float64, device=self.place)
        kernels.best[(batch, self.nodes)](
            overlap, sides, v.square().sum(1).sqrt(), self.grown, winner, h, batch, width, each=sides.shape[1] > 1,
            J=power_of_two(width, 16, 1024),
        )  # fmt: skip
        return winner, h

    def activity(self, evidence: Codes) -> Tensor:
        """The activity of every neuron: (nodes, batch, most grown), minus infinity where there is none."""
        (k, v, heard), most = self.family_of(evidence), int(self.grown.max())
        overlap, _ = self.overlaps(k, v, most)
        h = self.normalize(overlap, self.squares_of(v, heard, most), v.square().sum(1).sqrt()[..., None])
        return torch.where(self.neurons.living(most), h, -torch.inf)

    def at(self, evidence: Codes, support: Support) -> Tensor:
        k, v, _ = self.family_of(evidence)
        place = owners(support)
        n, t, j = place // k.shape[2], place % k.shape[2], support.value.long()
        strengths, values = v[n, :, t], k[n, :, t].long()  # (entries, children)
        counts = self.entries.lookup(n[:, None], self.child[..., 0], values, j[:, None])
        overlap = (strengths * counts).sum(1)
        squares = self.squares_of(v, None, self.neurons.most)[n, t, j] if self.heard_only else self.S[n, j]
        return self.normalize(overlap, squares, strengths.square().sum(1).sqrt())

    block_evidence = above

    def max_sum(self, u: Tensor) -> Tensor:
        most, batch = int(self.grown.max()), u.shape[1]
        entries = self.entries
        n, q, k, j = entries.fields
        reach = u.amax(2)[self.children][:, :, None, :].expand(-1, -1, most, -1).reshape(-1, batch).clone()
        gain = entries.count[:, None] / self.often()[n, j, q, None].double() + u[self.children[n, q], :, k]
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

    def support(self, j: Tensor) -> Support:
        entries = self.entries
        key, count = entries.by_neuron
        begin, end = entries.of_child(self.node, self.child, j.long()[:, None, :])
        often = self.often()[self.node[:, 0], j.long()].mT  # (nodes, children, batch)
        parts = (part.reshape(-1, j.shape[1])[self.order] for part in (begin, end - begin, often))
        begin, sizes, often = (part.reshape(-1) for part in parts)
        start = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
        which = torch.repeat_interleave(sizes)
        entry = torch.arange(len(which), device=self.place) - start[which] + begin[which]
        value = (key[entry] % entries.limits[2]).to(torch.int32)
        return Support(start, value, count[entry] / often[which].double())

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        counts = torch.stack(self.entries.rows(), 1).to(torch.int32).cpu().numpy()
        return saved_columns(counts, self.neurons.state(), self.family, self.holes)

    def restore(self, state: State, values: int) -> None:
        state = check_columns(state, (self.nodes, self.neurons.room, self.family, values))
        self.holes = "known" in state
        n, j, q, k, count = torch.from_numpy(all_entries(state).astype(np.int64)).to(self.place).T
        self.add(self.empty.pack(n, q, k, j), count.to(torch.int32))
        self.S = torch.zeros((self.nodes, self.neurons.room), dtype=torch.int64, device=self.place)
        self.S.index_put_((n, j), count * count, accumulate=True)
        self.settle()
