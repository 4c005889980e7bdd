"""What blocks say for neurons, on a GPU: the sums that kernels want, all nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from sqhn.banks.cuda.arrays import power, spare
from sqhn.banks.cuda.kernels import evidence as kernels
from sqhn.banks.interface import BlockEvidence, Patches
from sqhn.evidence import WHOLE
from sqhn.inputs import batches
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from sqhn.banks.cuda.counts import Counts
    from sqhn.banks.cuda.prototypes import Prototypes

__all__ = ["above", "of_patches", "of_pyramid"]

SCRATCH = 1 << 26  # products held at once
TILE = 128  # neurons that one program looks at at once
FEW = 256  # and one that gathers from children


class Sums(NamedTuple):
    """Of blocks, as kernels have them: those of the questions, n, x and xx, and those of neurons, m, mm and xm."""

    n: Tensor
    x: Tensor
    xx: Tensor
    m: Tensor
    mm: Tensor
    xm: Tensor

    def together(self, children: Tensor) -> Sums:
        """Of blocks that are made of these: children (blocks, parts)."""
        return Sums(*(part[children].sum(1) for part in self))


def sums(x: Tensor, m: Tensor, seen: Tensor | None, channels: int, centre: float) -> Sums:
    """From x (blocks, batch, size) and m (blocks, neurons, size)."""

    def by_channel(rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:2], -1, channels)

    own, stored = x.double() - centre, m.double() - centre
    if seen is None:
        n = torch.full((*x.shape[:2], channels), x.shape[2] // channels, dtype=own.dtype, device=x.device)
        of_stored = by_channel(stored).sum(2).mT[:, None], stored.square().sum(2)[:, None]
    else:
        there = seen.double()
        own, n = own * there, by_channel(there).sum(2)
        of_stored = torch.einsum("btpc,bjpc->btcj", by_channel(there), by_channel(stored)), there @ stored.square().mT
    return Sums(n, by_channel(own).sum(2), own.square().sum(2), *of_stored, own @ stored.mT)


def looks(s: Sums, living: Tensor, weight: float = 1.0) -> Tensor:
    """The evidence of both looks, (blocks, batch, neurons), times a weight; living (blocks or 1, 1, neurons).

    Minus infinity where there is no neuron; a node without any has one for which nothing speaks.
    """
    question, stored = (tuple(part.contiguous() for part in of) for of in (s[:3], s[3:]))
    (blocks, batch, width), channels = s.xm.shape, s.n.shape[2]
    A, scratch = torch.empty_like(stored[2]), torch.empty_like(stored[2])
    kernels.looks[(batch, blocks)](
        question, stored, living.byte().contiguous(), living.sum(2), scratch, A, batch, width, channels, weight,
        masked=s.mm.shape[1] == batch, alike=len(living) == 1, J=power(width, 16, TILE), num_warps=1,
    )  # fmt: skip
    return A


def of_pyramid(bank: Prototypes, patches: Patches, scales: Sequence[Tiling]) -> Tensor:
    """The evidence for the neurons of one level, over blocks of all scales: (1, batch, most grown)."""
    finest, most, batch = scales[0], int(bank.grown.max()), patches.x.shape[1]
    stored = finest.split(bank.m[0, :most].reshape(-1, *finest.shape))
    living = bank.neurons.living(most)
    below = [torch.as_tensor(one.within(coarser), device=bank.place).long() for one, coarser in pairwise(scales)]
    weights = [WHOLE if one.nodes == 1 else 1.0 for one in scales]
    A = torch.empty((1, batch, most), dtype=torch.float64, device=bank.place)
    with spare(bank.place):
        sums_each = finest.nodes * max(1, most) * (1 if patches.seen is None else 1 + finest.channels)
        for part in batches(batch, max(1, SCRATCH // sums_each)):
            x = finest.split(patches.x[0, part].reshape(-1, *finest.shape))
            seen = None if patches.seen is None else finest.split(patches.seen[0, part].reshape(-1, *finest.shape))
            found = sums(x, stored, seen, finest.channels, bank.centre)
            A[0, part] = looks(found, living, weights[0]).sum(0)
            for children, weight in zip(below, weights[1:]):
                found = found.together(children)
                A[0, part] += looks(found, living, weight).sum(0)
    return A


def of_patches(bank: Prototypes, patches: Patches) -> BlockEvidence:
    """The evidence for the neurons of level 1 of a tree, and the sums that the levels above want."""
    most = max(1, int(bank.grown.max()))
    living = bank.neurons.living(most)
    with spare(bank.place):
        found = sums(patches.x, bank.m[:, :most], patches.seen, bank.tiling.channels, bank.centre)
        return BlockEvidence(looks(found, living), found[:3], found[3:], patches.seen is not None)


def above(bank: Counts, below: BlockEvidence, weight: float) -> BlockEvidence:
    """The evidence for the neurons of a level above."""
    most, (nodes, family), batch = max(1, int(bank.grown.max())), bank.children.shape, below.A.shape[1]
    living, tiles = bank.neurons.living(most), -(-most // FEW)
    with spare(bank.place):
        begin, end, value, probability, main = expected(bank, most)

        def gathered(part: Tensor) -> Tensor:
            """(child nodes, ..., values) to (nodes, ..., neurons)."""
            rows = part.shape[1:-1].numel()
            out = torch.empty((nodes, *part.shape[1:-1], most), dtype=torch.float64, device=bank.place)
            kernels.gather[(rows, nodes, tiles)](
                part.contiguous(), bank.children, main, out, rows, family, part.shape[-1], most, J=FEW
            )
            return out

        question = tuple(part[bank.children].sum(1) for part in below.question)
        stored = tuple(map(gathered, below.stored))
        A = looks(Sums(*question, *stored), living, weight)
        kernels.heard[(batch, nodes, tiles)](
            below.A, bank.children, begin, end, value, probability, A, batch, family, below.A.shape[2], most, J=FEW
        )
        return BlockEvidence(A, question, stored, below.masked)


def expected(bank: Counts, most: int) -> tuple[Tensor, ...]:
    """Which values neurons expect of children.

    begin, end (nodes, family, neurons): their entries, of which value and probability tell; main, like these: the value
    that is likeliest, the lowest of those that are as likely; -1 if none is known.
    """
    entries = bank.entries
    key, count = entries.by_neuron()
    _, family, values, neurons = entries.limits
    low = entries.pack_by_neuron(bank._n, bank._q, 0, torch.arange(most, device=bank.place))
    begin, end = (torch.searchsorted(key, edge) for edge in (low, low + values))
    value, of = key.long() % values, key.long() // values
    n, j, q = of // family // neurons, of // family % neurons, of % family
    cell = (n * family + q) * most + j
    weighed = count.long() * 2**31 - value
    best = torch.full((low.numel(),), -1, device=bank.place).scatter_reduce_(0, cell, weighed, "amax")
    main = torch.where(best < 0, -1, -best % 2**31).view(low.shape)
    return begin, end, value, count / bank.often()[n, j, q].double(), main
