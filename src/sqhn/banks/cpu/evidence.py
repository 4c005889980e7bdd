"""The evidence of blocks for neurons, on a CPU: the inputs and outputs of the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.kernels import evidence as kernels
from sqhn.banks.cpu.kernels import trees
from sqhn.banks.cpu.kernels.decision import as_mask
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import BlockEvidence, Patches
from sqhn.evidence import WHOLE
from sqhn.inputs import batches
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from sqhn.banks.cpu.counts import Counts
    from sqhn.banks.cpu.prototypes import Prototypes


Floats = NDArray[np.float64]
NEURONS_AT_ONCE = 512
"""How many neurons that are kept as bytes become float32 at once."""


class EvidenceCache(NamedTuple):
    """The stored blocks in the layout of the kernels, which has the neurons next to each other.

    scales: how samples are cut, the finest first. values: (finest blocks, size, neurons). m (blocks, channels, neurons)
    and mm (blocks, neurons): sums over the blocks of all scales, less the centre; lengths: (blocks, 2, neurons). order:
    as in `kernels.pyramid`.
    """

    scales: Sequence[Tiling]
    values: NDArray[np.float32]
    m: Floats
    mm: Floats
    lengths: Floats
    order: NDArray[np.int64]


def cached(bank: Prototypes, scales: Sequence[Tiling]) -> EvidenceCache:
    """The cache of a bank. Every change drops it; two readers that fill it at the same time store equal caches."""
    cache = bank.evidence_cache
    if cache is not None and cache.scales == scales:
        return cache
    finest, count, centre = scales[0], bank.neurons.room, bank.evidence_centre
    own = np.arange(finest.size, dtype=np.int32) + np.zeros((finest.nodes, 1), np.int32)
    index = finest.children() if bank.top else own
    values = np.empty((*index.shape, count), np.float32)
    first = np.empty((len(index), finest.channels, count)), np.empty((len(index), count))
    for rows in batches(count, NEURONS_AT_ONCE if bank.rows.has_bytes else max(1, count)):
        prototypes = bank.floats(rows)
        if bank.known is not None and centre != bank.centre:
            prototypes = np.where(bank.known[:, rows] > 0, prototypes, np.float32(centre))
        split_range(kernels.beside, len(index), 2.0 * values.size, prototypes, rows.start, index, values)
    each = np.arange(index.shape[1])
    split_range(kernels.stored_sums, len(index), 2.0 * values.size, values, centre, *first, each)
    m, mm = ([part] for part in first)
    order = [np.stack([np.arange(finest.nodes), np.zeros(finest.nodes, np.int64)], 1)[:, None]]
    for scale, (finer, coarser) in enumerate(pairwise(scales), start=1):
        children = finer.within(coarser)
        before = sum(map(len, m))
        m.append(m[-1][children].sum(axis=1))
        mm.append(mm[-1][children].sum(axis=1))
        parts = order[-1][children].reshape(len(children), -1, 2)
        last = np.stack([before + np.arange(len(children)), np.full(len(children), scale)], 1)[:, None]
        order.append(np.concatenate([parts, last], axis=1))
    pixels = np.repeat([one.size // one.channels for one in scales], [one.nodes for one in scales])
    sums, squares = np.concatenate(m), np.concatenate(mm)
    lengths, n = np.empty((len(sums), 2, count)), np.repeat(pixels[:, None], finest.channels, axis=1)
    split_range(kernels.all_lengths, len(sums), 8.0 * sums.size, n, sums, squares, lengths)
    cache = EvidenceCache(scales, values, sums, squares, lengths, np.ascontiguousarray(order[-1][0]))
    bank.evidence_cache = cache
    return cache


def of_pyramid(
    bank: Prototypes, patches: Patches, scales: Sequence[Tiling], many: int | None = None, totals: Floats | None = None
) -> Floats:
    """The evidence for the neurons of one level, over blocks of all scales: (1, batch, most grown).

    many, totals: as in `PartOfLevel.pyramid_evidence`.
    """
    finest, cache = scales[0], cached(bank, scales)
    x = finest.split(patches.x[0].reshape(-1, *finest.shape)).astype(np.float64) - bank.centre
    seen = as_mask(x, None if patches.seen is None else finest.split(patches.seen[0].reshape(-1, *finest.shape)))
    living, blocks = bank.neurons.c[0] > 0, len(cache.order)
    out = np.empty((x.shape[1], len(living)))
    if totals is None:
        totals = np.empty((len(out), blocks, 0))
    scratch = partial(kernels.pyramid_room, len(out), len(scales), finest.channels, finest.size, len(living), seen.size)
    split_range(
        kernels.pyramid, len(out), 16.0 * out.size * blocks, x, seen, cache.values, bank.centre,
        (cache.m, cache.lengths), cache.order, WHOLE, (living, many or int(living.sum())), totals, out,
        scratch=scratch,
    )  # fmt: skip
    return np.ascontiguousarray(out[None, :, : bank.neurons.most])


def of_patches(bank: Prototypes, patches: Patches) -> BlockEvidence:
    """The evidence for the neurons of level 1 of a tree, and the sums that the levels above need."""
    cache, shape = cached(bank, [bank.tiling]), patches.x.shape[:2]
    (nodes, channels, room), x = cache.m.shape, patches.x.astype(np.float64) - bank.evidence_centre
    question = np.empty((*shape, channels), np.int64), np.empty((*shape, channels)), np.empty(shape)
    A, xm = np.empty((*shape, max(1, room))), np.empty((*shape, room))
    if patches.seen is None:
        stored = cache.m[:, None], cache.mm[:, None], xm
    else:
        stored = np.empty((*shape, channels, room)), np.empty((*shape, room)), xm
    split_range(
        trees.patches, nodes * shape[1], 16.0 * A.size, x, as_mask(x, patches.seen), cache.values,
        bank.evidence_centre, question, stored, cache.lengths, bank.neurons.statistics, A,
        scratch=partial(trees.tree_room, channels, bank.size, room),
    )  # fmt: skip
    return BlockEvidence(A, question, stored)


def above(bank: Counts, below: BlockEvidence, weight: float) -> BlockEvidence:
    """The evidence for the neurons of a level above."""
    children, room = bank.children, max(1, bank.neurons.room)
    question: tuple[Any, ...] = tuple(part[children].sum(axis=1) for part in below.question)
    (nodes, batch, channels), samples = question[0].shape, below.stored[0].shape[1]
    A, xm = np.empty((2, nodes, batch, room))
    stored = np.empty((nodes, samples, channels, room)), np.empty((nodes, samples, room)), xm
    split_range(
        trees.above, nodes, 16.0 * A.size * bank.family, children, below.A, question, below.stored, bank.columns,
        bank.neurons.statistics, bank.holes, stored, weight, A,
        scratch=partial(trees.tree_room, channels, bank.family, room, below.stored[2].shape[2]),
    )  # fmt: skip
    return BlockEvidence(A, question, stored)
