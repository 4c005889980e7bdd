"""What blocks say for neurons, on a GPU: the same sums as on a CPU (`cpu/kernels/evidence`), all nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from sqhn.banks.interface import Patches, Shown
from sqhn.evidence import FLOOR, LENGTH, ODDS, STRUCTURE, WHOLE
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from sqhn.banks.cuda.counts import Counts
    from sqhn.banks.cuda.prototypes import Prototypes

__all__ = ["above", "of_patches", "of_pyramid"]


class Sums(NamedTuple):
    """Of blocks: n, x and xx (blocks, batch, channels); m, mm (blocks, 1 or batch, channels, neurons) and xm."""

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

    def by_channel(rows: Tensor) -> Tensor:  # (blocks, channels, rows, pixels)
        return rows.reshape(*rows.shape[:2], -1, channels).permute(0, 3, 1, 2)

    own, stored = by_channel(x.double() - centre), by_channel(m.double() - centre)
    there = torch.ones_like(own) if seen is None else by_channel(seen.double())
    own = own * there
    alike = there if seen is not None else there[:, :, :1]

    def with_stored(rows: Tensor, values: Tensor) -> Tensor:  # (blocks, rows, channels, neurons)
        return (rows @ values.mT).transpose(1, 2)

    n, sx, sxx = (part.sum(3).mT for part in (there, own, own.square()))
    return Sums(n, sx, sxx, with_stored(alike, stored), with_stored(alike, stored.square()), with_stored(own, stored))


def looks(s: Sums, living: Tensor) -> Tensor:
    """The evidence of both looks, (blocks, batch, neurons); living (blocks, 1, neurons)."""
    n = s.n.clamp(min=1)
    d, channels = s.n.sum(2), (s.n > 0).sum(2)
    energy, energies = s.xx.sum(2), s.mm.sum(2)
    left = (energy - (s.x.square() / n).sum(2)).clamp(min=0)
    lefts = energies - (s.m.square() / n[:, : s.m.shape[1], :, None]).sum(2)
    along = s.xm.sum(2)
    share = torch.where(energy > 0, left / energy.clamp(min=1e-300), 1.0)
    flat = -d / 2 * (share + FLOOR).log() - n.log().sum(2) / 2
    A = _posterior(_likelihood(along, energies, energy, d), flat, living)
    across = along - ((s.x / n)[..., None] * s.m).sum(2)
    some = (left > STRUCTURE * energy)[..., None] & (lefts > STRUCTURE * energies)
    second = _likelihood(torch.where(some, across, 0.0), lefts.clamp(min=0), left, d - channels)
    A = A + torch.where((d > channels)[..., None], _posterior(second, torch.full_like(flat, -torch.inf), living), 0.0)
    return torch.where((d > 0)[..., None], A, 0.0)


def _likelihood(products: Tensor, energies: Tensor, energy: Tensor, d: Tensor) -> Tensor:
    r = (products / (energies.sqrt() * energy.sqrt()[..., None] + LENGTH)).clamp(0, 1)
    return -d[..., None] / 2 * (1 - r.square() + FLOOR).log()


def _posterior(likelihood: Tensor, flat: Tensor, living: Tensor) -> Tensor:
    likelihood = torch.where(living, likelihood, -torch.inf)
    many = living.sum(2, keepdim=True)
    top = torch.maximum(likelihood.amax(2), flat).clamp(min=0)[..., None]
    shares = (likelihood - top).exp()
    rivals = many * ((flat[..., None] - top).exp() + (-top).exp())
    return (many * shares / (shares.sum(2, keepdim=True) + rivals) / ODDS).log1p()


def _told(A: Tensor, living: Tensor, grown: Tensor) -> Tensor:
    """Minus infinity where there is no neuron; a node without any has one for which nothing speaks."""
    A = torch.where(living, A, -torch.inf)
    A[grown == 0, :, 0] = 0.0
    return A


def of_pyramid(bank: Prototypes, patches: Patches, scales: Sequence[Tiling]) -> Tensor:
    """The evidence for the neurons of one level, over blocks of all scales: (1, batch, most grown)."""
    finest, most = scales[0], int(bank.grown.max())
    x, m = (finest.split(rows.reshape(-1, *finest.shape)) for rows in (patches.x[0], bank.m[0, :most]))
    seen = None if patches.seen is None else finest.split(patches.seen[0].reshape(-1, *finest.shape))
    found = sums(x, m, seen, finest.channels, bank.centre)
    living = bank.neurons.living(most)
    A = looks(found, living).sum(0, keepdim=True) * (WHOLE if finest.nodes == 1 else 1.0)
    for finer, coarser in pairwise(scales):
        grid = Tiling(finer.grid, tuple(b // a for a, b in zip(finer.kernel, coarser.kernel)))
        found = found.together(torch.as_tensor(grid.children(), device=bank.place).long())
        A = A + looks(found, living).sum(0, keepdim=True) * (WHOLE if coarser.nodes == 1 else 1.0)
    return torch.where(living, A, -torch.inf)


def of_patches(bank: Prototypes, patches: Patches) -> Shown:
    """The evidence for the neurons of level 1 of a tree, and the sums that the levels above want."""
    most = max(1, int(bank.grown.max()))
    found = sums(patches.x, bank.m[:, :most], patches.seen, bank.tiling.channels, bank.centre)
    living = bank.neurons.living(most)
    A = _told(looks(found, living), living, bank.grown)
    return Shown(A, found[:3], found[3:], patches.seen is not None)


def above(bank: Counts, below: Shown, weight: float) -> Shown:
    """The evidence for the neurons of a level above."""
    most, (nodes, family), batch = max(1, int(bank.grown.max())), bank.children.shape, below.A.shape[1]
    living = bank.neurons.living(most)
    entries = bank.entries
    n, q, k, j = entries.fields
    child, cell = bank.children[n, q], (n * family + q) * most + j
    top = below.A.amax(2)
    share = entries.count[:, None] / bank.often()[n, j, q, None].double()
    gain = share * (below.A[child, :, k] - top[child]).exp()
    total = torch.zeros((nodes * family * most, batch), dtype=torch.float64, device=bank.place)
    total.index_add_(0, cell, gain)
    total = total.view(nodes, family, most, batch)
    heard = torch.where(total > 0, total.log() + top[bank.children][:, :, None], 0.0).sum(1).mT
    question = tuple(part[bank.children].sum(1) for part in below.question)
    channels = question[0].shape[2]
    weight_of = entries.count.long() * 2**31 - k  # the likeliest value is the main one, the lowest of those as likely
    best = torch.zeros(nodes * family * most, dtype=torch.int64, device=bank.place)
    main = weight_of == best.scatter_reduce_(0, cell, weight_of, "amax")[cell]

    def gathered(part: Tensor) -> Tensor:
        """(child nodes, rows, channels, values) to (nodes, rows, channels, neurons)."""
        out = torch.zeros((nodes * most, part.shape[1], channels), dtype=torch.float64, device=bank.place)
        out.index_add_(0, (n * most + j)[main], part[child[main], :, :, k[main]])
        return out.view(nodes, most, part.shape[1], channels).permute(0, 2, 3, 1)

    stored = tuple(map(gathered, below.stored))
    heard = heard + weight * looks(Sums(*question, *stored), living)
    return Shown(_told(heard, living, bank.grown), question, stored, below.masked)
