"""The evidence of blocks for neurons (`sqhn.reference.evidence`) in plain NumPy, for all blocks of a level at once.

It is computed from sums over the values of a block, and those of a block are the sums of those of its parts. The sums
of the question: n, x (blocks, batch, channels), how many values and their sum, and xx (blocks, batch), of their
squares. Of what is stored: m (blocks, samples, channels, neurons), mm (blocks, samples, neurons), the same, and
xm (blocks, batch, neurons), the products. samples: as many as the batch has if values are missing, else 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import BlockEvidence, Patches
from sqhn.evidence import FLOOR, LENGTH, ODDS, STRUCTURE, WHOLE
from sqhn.inputs import batches
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from sqhn.banks.plain.counts import Counts
    from sqhn.banks.plain.prototypes import Prototypes

MOST_SCORES = 1_000_000
"""The largest number of scores to compute at once; there are ten arrays of so many."""

Floats = NDArray[np.float64]
Sums = tuple[Floats, ...]


def of_pyramid(
    bank: Prototypes, patches: Patches, scales: Sequence[Tiling], many: int | None = None, totals: Floats | None = None
) -> Floats:
    """The evidence for the neurons of one level, over blocks of all scales: (1, batch, neurons).

    many, totals: as in `PartOfLevel.pyramid_evidence`.
    """
    finest, most, (x, seen, _) = scales[0], bank.neurons.most, patches
    living = bank.neurons.c[:, :most] > 0
    stored = finest.split(bank.rows.of(0, np.arange(most)).reshape(-1, *finest.shape))
    A = np.empty((1, x.shape[1], most))
    for part in batches(x.shape[1], max(1, MOST_SCORES // (finest.nodes * most))):
        asked, there = (
            None if array is None else finest.split(array[0, part].reshape(-1, *finest.shape)) for array in (x, seen)
        )
        sums = sums_of(asked, stored, there, finest.channels, bank.centre)
        rest = None if totals is None else totals[part].swapaxes(0, 1)
        A[0, part] = looks(*sums, living, many, rest).sum(axis=0) * (WHOLE if finest.nodes == 1 else 1.0)
        for finer, coarser in pairwise(scales):
            children = finer.within(coarser)
            question, known = (tuple(array[children].sum(axis=1) for array in of) for of in sums)
            sums = question, known
            rest = None if rest is None else rest[finer.nodes :]
            A[0, part] += looks(*sums, living, many, rest).sum(axis=0) * (WHOLE if coarser.nodes == 1 else 1.0)
    return A


def of_patches(bank: Prototypes, patches: Patches) -> BlockEvidence:
    """The evidence for the neurons of level 1 of a tree, and the sums that the levels above need."""
    most = max(1, bank.neurons.most)
    centre, m = bank.evidence_centre, bank.rows.m[:, :most]
    if bank.known is not None:
        m = np.where(bank.known[:, :most] > 0, m, np.float32(centre))
    question, stored = sums_of(patches.x, m, patches.seen, bank.tiling.channels, centre)
    return BlockEvidence(looks(question, stored, bank.neurons.c[:, :most] > 0), question, stored)


def above(bank: Counts, below: BlockEvidence, weight: float) -> BlockEvidence:
    """The evidence for the neurons of a level above.

    The block of a neuron is made of the values that it most likely gives to its children. To the evidence of the block
    it adds that of its children: the logarithm of the mean odds of their values.
    """
    most, columns = max(1, bank.neurons.most), bank.columns()
    likeliest = bank.likeliest(columns)[:, :most]

    def gathered(array: Floats) -> Floats:
        """(child nodes, samples, ..., values) to (nodes, samples, ..., neurons)."""
        padded = np.concatenate([array, np.zeros((*array.shape[:-1], 1))], axis=-1)  # a value of -1 adds nothing
        places = likeliest.reshape(len(likeliest), *[1] * (array.ndim - 2), most)
        each = (np.take_along_axis(padded[of], places[of], -1) for of in bank.children.T)
        return np.asarray(sum(each))

    question = tuple(array[bank.children].sum(axis=1) for array in below.question)
    stored = tuple(map(gathered, below.stored))
    A = weight * looks(question, stored, bank.neurons.c[:, :most] > 0)
    for t in range(A.shape[1]):
        own = below.A[columns.child[columns.pair], t, columns.value]
        top = columns.highest(own)
        mean = columns.total(columns.probability * np.exp(own - top[columns.pair]))
        A[:, t] += bank.sum_of_pairs(columns, np.log(mean) + top)[:, :most]
    return BlockEvidence(A, question, stored)


def sums_of(x: Any, m: NDArray[np.float32], seen: Any, channels: int, centre: float) -> tuple[Sums, Sums]:
    """The sums of the questions x (blocks, batch, size) and of the stored blocks m (blocks, neurons, size)."""

    def by_channel(rows: Floats) -> Floats:
        """From (blocks, rows, size) to (blocks, channels, rows, values)."""
        return np.moveaxis(rows.reshape(*rows.shape[:2], -1, channels), 3, 1)

    x, stored = np.subtract(x, centre, dtype=np.float64), np.subtract(m, centre, dtype=np.float64)
    there = np.ones((1, 1, x.shape[2])) if seen is None else seen.astype(np.float64)
    x = x * there
    n = np.broadcast_to(by_channel(there).sum(axis=3).swapaxes(1, 2), (*x.shape[:2], channels))
    of_m = (by_channel(there) @ by_channel(stored).swapaxes(2, 3)).swapaxes(1, 2)
    of_mm = there @ np.square(stored).swapaxes(1, 2)
    question = n, by_channel(x).sum(axis=3).swapaxes(1, 2), np.square(x).sum(axis=2)
    return question, (of_m, of_mm, x @ stored.swapaxes(1, 2))


def looks(
    question: Sums, stored: Sums, living: NDArray[np.bool_], many: int | None = None, totals: Floats | None = None
) -> Floats:
    """The evidence of both looks at a block, (blocks, batch, neurons); living (blocks or 1, neurons).

    Minus infinity where there is no neuron; but 0 for the first slot of a node without neurons. many, totals: as in
    `of_pyramid`, but totals are (blocks or more, batch, 2).
    """
    A: Floats = np.empty(stored[2].shape)
    for part in batches(A.shape[1], max(1, MOST_SCORES // (A.shape[0] * A.shape[2]))):
        asked, there = ([array if array.shape[1] == 1 else array[:, part] for array in of] for of in (question, stored))
        own = (None, None) if totals is None else totals[: len(A), part, :, None].transpose(2, 0, 1, 3)
        A[:, part] = np.where(living[:, None], _both_looks(asked, there, living[:, None], many, own), -np.inf)
    A[np.flatnonzero(~living.any(axis=1)), :, 0] = 0.0
    return A


def _both_looks(
    question: Sequence[Floats], stored: Sequence[Floats], living: NDArray[np.bool_], many: int | None, totals: Any
) -> Floats:
    """The formulas of `sqhn.reference.evidence.evidence`."""
    (n, x, xx), (m, mm, xm) = question, stored
    d, channels = n.sum(axis=2)[..., None], (n > 0).sum(axis=2)[..., None]
    xx, each = xx[..., None], 1 / np.maximum(n, 1)
    left = np.maximum(xx - (x**2 * each).sum(axis=2)[..., None], 0.0)
    lefts = mm - (each[:, :, None] @ m**2)[:, :, 0]
    across = xm - ((x * each)[:, :, None] @ m)[:, :, 0]
    share = np.where(xx > 0, left / np.where(xx > 0, xx, 1), 1.0)
    flat = -d / 2 * np.log(share + FLOOR) - np.log(np.maximum(n, 1)).sum(axis=2)[..., None] / 2
    first = _posterior(_likelihood(xm, mm * xx, d), flat, living, many, totals[0])
    some = (left > STRUCTURE * xx) & (lefts > STRUCTURE * mm)
    both = np.where(some, np.maximum(lefts, 0.0) * left, 0.0)
    likelihood = _likelihood(np.where(some, across, 0.0), both, d - channels)
    second = _posterior(likelihood, np.full(d.shape, -np.inf), living, many, totals[1])
    return np.where(d > 0, first, 0.0) + np.where(d > channels, second, 0.0)


def _likelihood(products: Floats, energies: Floats, d: Floats) -> Floats:
    """log L of neurons, from their products with x and the products of both energies."""
    r = np.clip(products / (np.sqrt(energies) + LENGTH), 0.0, 1.0)
    return np.asarray(-d / 2 * np.log(1 - r**2 + FLOOR))


def _posterior(
    likelihood: Floats, flat: Floats, living: NDArray[np.bool_], many: int | None, total: Floats | None
) -> Floats:
    """The evidence from log L of all neurons and of a flat patch; total (blocks, batch, 1): of a look."""
    number = np.maximum(living.sum(axis=2, keepdims=True), 1) if many is None else many
    likelihood = np.where(living, likelihood, -np.inf)
    top = np.maximum(np.maximum(likelihood.max(axis=2, keepdims=True), flat), 0.0)
    if total is not None and (new := total == -np.inf).any():
        total[new] = np.logaddexp.reduce(likelihood, axis=2, keepdims=True)[new]
        return np.zeros(likelihood.shape)
    top = top if total is None else np.maximum(top, total)
    shares = np.exp(likelihood - top)
    every = shares.sum(axis=2, keepdims=True) if total is None else np.exp(total - top)
    rivals = number * (np.exp(flat - top) + np.exp(-top))
    return np.asarray(np.log1p(number * shares / (every + rivals) / ODDS))
