"""What blocks say for neurons, on a CPU: the sums that kernels want, and where they go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.kernels import evidence as kernels
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Patches, Shown
from sqhn.evidence import WHOLE
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from sqhn.banks.cpu.counts import Counts
    from sqhn.banks.cpu.prototypes import Prototypes

__all__ = ["above", "of_patches", "of_pyramid"]

Floats = NDArray[np.float64]
EVERY = np.ones((1, 1, 1), bool)


def _stored(bank: Prototypes, m: NDArray[np.float32]) -> Floats:
    """What is stored, (nodes, size, neurons), less the centre: neurons side by side, so that loops vectorize."""
    return np.ascontiguousarray((m.astype(np.float64) - bank.centre).transpose(0, 2, 1))


def _less(bank: Prototypes, x: NDArray[np.float32]) -> Floats:
    return x.astype(np.float64) - bank.centre


def _by_channel(values: Floats, channels: int) -> tuple[Floats, Floats]:
    """Sums and sums of squares over the pixels of blocks, (blocks, channels, neurons)."""
    pixels = values.reshape(len(values), -1, channels, values.shape[2])
    return pixels.sum(axis=1), (pixels**2).sum(axis=1)


def of_pyramid(bank: Prototypes, patches: Patches, scales: Sequence[Tiling]) -> Floats:
    """The evidence for the neurons of one level, over blocks of all scales: (1, batch, most grown)."""
    finest, batch, G = scales[0], patches.x.shape[1], bank.neurons.most
    cut = [finest.split(rows.reshape(-1, *finest.shape)) for rows in (patches.x[0], bank.m[0, :G])]
    channels = finest.channels
    x, values = _less(bank, cut[0]), _stored(bank, cut[1])
    masked = patches.seen is not None
    seen = finest.split(patches.seen[0].reshape(-1, *finest.shape)) if masked else EVERY
    m, mm = ([part] for part in _by_channel(values, channels))
    order = [
        np.stack([np.arange(finest.nodes), np.zeros(finest.nodes, np.int64)], 1)[:, None]
    ]  # by finest, then coarser
    for scale, (finer, coarser) in enumerate(pairwise(scales), start=1):
        children = Tiling(finer.grid, tuple(b // a for a, b in zip(finer.kernel, coarser.kernel))).children()
        m.append(m[-1][children].sum(axis=1))
        mm.append(mm[-1][children].sum(axis=1))
        first = sum(map(len, m[:scale]))
        parts = order[-1][children].reshape(len(children), -1, 2)
        own = np.stack([first + np.arange(len(children)), np.full(len(children), scale)], 1)[:, None]
        order.append(np.concatenate([parts, own], axis=1))
    living = bank.neurons.c[0, :G] > 0
    out = np.empty((batch, G))
    every = np.ascontiguousarray(order[-1][0])
    split_range(
        kernels.pyramid, batch, 16.0 * batch * len(every) * G, x, seen, masked, values,
        (np.concatenate(m), np.concatenate(mm)), every, WHOLE, living, int(living.sum()), out,
    )  # fmt: skip
    return out[None]


def of_patches(bank: Prototypes, patches: Patches) -> Shown:
    """The evidence for the neurons of level 1 of a tree, and the sums that the levels above want."""
    channels = bank.tiling.channels
    x, values, masked = _less(bank, patches.x), _stored(bank, bank.m), patches.seen is not None
    nodes, batch, room = bank.nodes, x.shape[1], max(1, values.shape[2])
    question = np.zeros((nodes, batch, channels), np.int64), *np.zeros((2, nodes, batch, channels))
    if masked:
        m, mm = np.zeros((2, nodes, batch, channels, room))
    else:
        m, mm = (part[:, None] for part in _by_channel(values, channels))
    stored = m, mm, np.zeros((nodes, batch, channels, room))
    A = np.empty((nodes, batch, room))
    seen = patches.seen if masked else EVERY
    split_range(kernels.patches, nodes, 16.0 * A.size, x, seen, masked, values, question, stored, bank.neurons.kept, A)
    return Shown(A, question, stored, np.ones(nodes, bool), masked)


def above(bank: Counts, below: Shown, weight: float) -> Shown:
    """The evidence for the neurons of a level above."""
    children, room = bank.children, max(1, bank.neurons.room)
    question: tuple[Any, ...] = tuple(part[children].sum(axis=1) for part in below.question)
    nodes, batch, channels = question[0].shape
    there = np.arange(bank.neurons.room) < bank.grown[:, None]
    single = below.single[children].all(axis=1) & ((bank.neurons.c <= 1) | ~there).all(axis=1)
    shape = (nodes, batch, channels, room) if single.any() else (nodes, 0, channels, 0)
    own = (nodes, batch if below.masked else 1, channels, room) if single.any() else shape
    stored = np.empty(own), np.empty(own), np.empty(shape)
    A = np.empty((nodes, batch, room))
    split_range(
        kernels.above, nodes, 16.0 * A.size * bank.family, children, below.A, question, below.stored, below.masked,
        bank.lists, bank.neurons.kept, bank.holes, stored, single, weight, A,
    )  # fmt: skip
    return Shown(A, question, stored, single, below.masked)
