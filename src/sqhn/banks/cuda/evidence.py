"""The evidence of blocks for neurons (`sqhn.evidence`) on a GPU: the sums that kernels need, of all nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sqhn.banks.cuda.arrays import power_of_two, reserve_memory, split
from sqhn.banks.cuda.kernels import evidence as kernels
from sqhn.banks.cuda.kernels.common import NONE
from sqhn.banks.interface import BlockEvidence, Patches
from sqhn.evidence import WHOLE
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from sqhn.banks.cuda.counts import Counts
    from sqhn.banks.cuda.prototypes import Prototypes


PRODUCTS_AT_ONCE = 1 << 26
NEURONS_PER_LOOK = 128  # how many neurons one program handles at once
NEURONS_PER_GATHER = 256  # the same, where it gathers values of children


Sums = tuple[Tensor, ...]
"""Sums over blocks for the kernels: n, x and xx of the queries, or m, mm and xm of the neurons."""


def sums(x: Tensor, m: Tensor, seen: Tensor | None, channels: int, centre: float) -> tuple[Sums, Sums]:
    """The sums of the queries x (blocks, batch, size) and of the neurons m (blocks, neurons, size)."""

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
    return (n, by_channel(own).sum(2), own.square().sum(2)), (*of_stored, own @ stored.mT)


def looks(question: Sums, stored: Sums, living: Tensor, weight: float = 1.0) -> Tensor:
    """The evidence of both looks, (blocks, batch, neurons), times a weight; living (blocks or 1, 1, neurons).

    Minus infinity where there is no neuron; but 0 for the first slot of a node without neurons.
    """
    question, stored = (tuple(part.contiguous() for part in of) for of in (question, stored))
    (blocks, batch, width), channels = stored[2].shape, question[0].shape[2]
    A, scratch = torch.empty_like(stored[2]), torch.empty_like(stored[2])
    kernels.looks[(batch, blocks)](
        question, stored, living.byte().contiguous(), living.sum(2), scratch, A, batch, width, channels, weight,
        masked=stored[1].shape[1] == batch, alike=len(living) == 1, J=power_of_two(width, 16, NEURONS_PER_LOOK),
        num_warps=1,
    )  # fmt: skip
    return A


def of_pyramid(bank: Prototypes, patches: Patches, scales: Sequence[Tiling]) -> Tensor:
    """The evidence for the neurons of one level, over blocks of all scales: (1, batch, most grown)."""
    finest, most = scales[0], int(bank.grown.max())
    prototypes = finest.split(bank.m[0, :most].reshape(-1, *finest.shape))
    living = bank.neurons.living(most)
    below = [torch.as_tensor(one.within(coarser), device=bank.place).long() for one, coarser in pairwise(scales)]
    weights = [WHOLE if one.nodes == 1 else 1.0 for one in scales]
    rows = PRODUCTS_AT_ONCE // (finest.nodes * max(1, most) * (1 if patches.seen is None else 1 + finest.channels))
    answers = []
    with reserve_memory(bank.place):
        for part in split(patches, rows):
            x = finest.split(part.x[0].reshape(-1, *finest.shape))
            seen = None if part.seen is None else finest.split(part.seen[0].reshape(-1, *finest.shape))
            question, stored = sums(x, prototypes, seen, finest.channels, bank.centre)
            A = looks(question, stored, living, weights[0]).sum(0)
            for children, weight in zip(below, weights[1:]):
                question, stored = (tuple(part[children].sum(1) for part in of) for of in (question, stored))
                A += looks(question, stored, living, weight).sum(0)
            answers.append(A)
    return torch.cat(answers)[None]


def of_patches(bank: Prototypes, patches: Patches) -> BlockEvidence:
    """The evidence for the neurons of level 1 of a tree, and the sums that the levels above need."""
    most = max(1, int(bank.grown.max()))
    living = bank.neurons.living(most)
    centre, m = bank.evidence_centre, bank.m[:, :most]
    with reserve_memory(bank.place):
        if bank.known is not None:
            m = torch.where(bank.known[:, :most] > 0, m, centre)
        question, stored = sums(patches.x, m, patches.seen, bank.tiling.channels, centre)
        return BlockEvidence(looks(question, stored, living), question, stored)


def above(bank: Counts, below: BlockEvidence, weight: float) -> BlockEvidence:
    """The evidence for the neurons of a level above."""
    most, (nodes, family), batch = max(1, int(bank.grown.max())), bank.children.shape, below.A.shape[1]
    living, blocks = bank.neurons.living(most), -(-most // NEURONS_PER_GATHER)
    with reserve_memory(bank.place):
        begin, end, value, probability, likeliest = expected(bank, most)

        def gathered(part: Tensor) -> Tensor:
            """(child nodes, ..., values) to (nodes, ..., neurons)."""
            rows = part.shape[1:-1].numel()
            out = torch.empty((nodes, *part.shape[1:-1], most), dtype=torch.float64, device=bank.place)
            kernels.gather[(rows, nodes, blocks)](
                part.contiguous(), bank.children, likeliest, out, rows, family, part.shape[-1], most,
                J=NEURONS_PER_GATHER,
            )  # fmt: skip
            return out

        question = tuple(part[bank.children].sum(1) for part in below.question)
        stored = tuple(map(gathered, below.stored))
        A = looks(question, stored, living, weight)
        kernels.heard[(batch, nodes, blocks)](
            below.A, bank.children, begin, end, value, probability, A, batch, family, below.A.shape[2], most,
            J=NEURONS_PER_GATHER,
        )  # fmt: skip
        return BlockEvidence(A, question, stored)


def expected(bank: Counts, most: int) -> tuple[Tensor, ...]:
    """The values that neurons expect of children: begin, end, value, probability, likeliest.

    begin, end (nodes, family, neurons): where the entries of a neuron and a child are in value and probability.
    likeliest (nodes, family, neurons): the lowest of the likeliest values, NONE if no value is known.
    """
    entries = bank.entries
    n, j, q, value, count = entries.rows()
    begin, end = entries.of_child(bank.node, bank.child, torch.arange(most, device=bank.place))
    cell = (n * entries.limits[1] + q) * most + j
    weighed = count * 2**31 - value  # larger for larger counts, then for lower values
    best = torch.full((begin.numel(),), NONE.value, device=bank.place).scatter_reduce_(0, cell, weighed, "amax")
    likeliest = torch.where(best == NONE.value, NONE.value, -best % 2**31).view(begin.shape)
    return begin, end, value, count / bank.often()[n, j, q].double(), likeliest
