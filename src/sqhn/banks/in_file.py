"""A memory of one level whose prototypes stay in a file: it answers questions, and learns nothing.

A question reads the file from beginning to end. Each block of neurons becomes a bank of its own while it is compared,
so answers are those of the same memory in main memory; the operating system keeps as much of the file in memory as it
can. The statistics of neurons are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Never, cast

import numpy as np
from numpy.typing import NDArray

from sqhn.banks import devices
from sqhn.banks.interface import PartOfLevel, Patches, PatternBank, State, Support
from sqhn.banks.neurons import Neurons
from sqhn.banks.plain.device import Plain
from sqhn.banks.saved import KINDS, check_split, part_of, prototypes_of
from sqhn.inputs import batches
from sqhn.level import TIE, Level, Options
from sqhn.patches import Tiling
from sqhn.protocol import MemoryFileError

BLOCK = 1 << 22
"""The most values of prototypes in memory at once."""
MOST_SCORES = 8_000_000
"""The largest number of scores in memory at once, if there are not more neurons."""

Floats = NDArray[np.float64]


class InFile(Plain):
    """A device for memories of one level in a file. Their questions are computed on the device of this name."""

    def __init__(self, name: str, path: str) -> None:
        if name not in ("cpu", "plain"):
            raise ValueError(f'mmap=True answers on device "cpu" or "plain"; got device={name!r}')
        self.name, self.path = devices.device_of(name).name, path  # "plain" where nothing can be compiled
        self.refusal = (
            f"this memory answers from the file {path} (mmap=True), and can neither be changed nor copied: "
            f"SQHN.load({path!r}) without mmap gives a memory that learns"
        )

    @property
    def now(self) -> Plain:
        """Where questions are computed now."""
        return cast("Plain", devices.device_of(self.name))

    def patterns(self, tiling: Tiling, level: Level, options: Options, top: bool) -> PatternBank:
        if not top:
            raise ValueError("mmap=True is for memories of one level; this one has more: load it without mmap")
        return cast("PatternBank", PrototypesInFile(self, tiling, level, options))


class PrototypesInFile:
    """The only level; source: its saved arrays, of which those of prototypes stay in the file."""

    nodes, top = 1, True

    def __init__(self, device: InFile, tiling: Tiling, level: Level, options: Options) -> None:
        self.device, self.tiling, self.level, self.options = device, tiling, level, options
        self.neurons = Neurons(1, level, top=True)
        self.source: State = {}

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    @property
    def holes(self) -> bool:
        return "known" in self.source

    def restore(self, state: State, values: int) -> None:  # noqa: ARG002
        if "bytes" in state:
            check_split(state, self.tiling.size)
        if "known" in state and state["known"].shape != (self.neurons.most, self.tiling.size):
            raise ValueError(f"known of shape {state['known'].shape} for {self.neurons.most} neurons")
        self.source = {**state, **{name: getattr(self.neurons, name)[0] for name in KINDS}}

    def state(self) -> Never:
        raise RuntimeError(self.device.refusal)

    # -- parts -------------------------------------------------------------------------------------------------------

    def bank(self, state: State) -> PartOfLevel:
        """Some neurons in main memory."""
        bank = self.device.now.passing(self.tiling, self.level, self.options)
        try:
            bank.neurons.restore({**state, "grown": np.array([len(state["c"])])}, self.neurons.step)
            bank.restore(state, 0)
        except ValueError as error:
            raise MemoryFileError(f"{self.device.path} does not hold a consistent memory: {error}") from error
        return bank

    def blocks(self) -> Iterator[tuple[slice, PartOfLevel]]:
        """All neurons, some at a time; without blocks in which all are forgotten."""
        for rows in batches(self.neurons.most, max(1, BLOCK // self.tiling.size)):
            if self.neurons.c[0, rows].any():
                yield rows, self.bank(part_of(self.source, rows))

    def some(self, j: NDArray[Any]) -> tuple[State, NDArray[np.intp]]:
        """The saved arrays of the neurons j, each once, and the places of all j among them."""
        distinct, place = np.unique(j, return_inverse=True)
        runs = np.split(distinct, np.flatnonzero(np.diff(distinct) != 1) + 1)
        parts = [part_of(self.source, slice(int(run[0]), int(run[-1]) + 1)) for run in runs]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, place.reshape(j.shape)

    # -- questions ---------------------------------------------------------------------------------------------------

    def top_k(self, evidence: Patches, count: int) -> tuple[NDArray[np.int32], Floats]:
        """The best of the winners of all blocks; by all similarities where rounding could decide among these."""
        batch = evidence.x.shape[1]
        k, v, unsure = np.empty((batch, 0), np.int32), np.empty((batch, 0)), np.zeros(batch, bool)
        for rows, bank in self.blocks():
            living = int((bank.neurons.c[0] > 0).sum())
            own_k, own_v = (part[0] for part in bank.top_k(evidence, min(count + 1, living)))
            k, v = np.concatenate([k, own_k + np.int32(rows.start)], 1), np.concatenate([v, own_v], 1)
            best = np.argsort(-v, axis=1, kind="stable")[:, : count + 1]
            k, v = np.take_along_axis(k, best, 1), np.take_along_axis(v, best, 1)
            if living > count + 1:  # the others are at most TIE better than the last
                unsure |= own_v[:, -1] + TIE >= v[:, count - 1] - 2 * TIE
        unsure |= (v[:, :-1] - v[:, 1:] <= 2 * TIE).any(axis=1)
        k, v = k[None, :, :count].copy(), v[None, :, :count].copy()
        again = np.flatnonzero(unsure)
        for part in batches(len(again), max(1, MOST_SCORES // self.neurons.most)):
            which = again[part]
            asked = Patches(evidence.x[:, which], None if evidence.seen is None else evidence.seen[:, which])
            k[:, which], v[:, which] = self.device.top_k(self.activity(asked), count)
        return k, v

    def activity(self, evidence: Patches) -> Floats:
        found = np.full((1, evidence.x.shape[1], self.neurons.most), -np.inf)
        for rows, bank in self.blocks():
            found[:, :, rows] = bank.activity(evidence)
        return found

    def pyramid_evidence(self, evidence: Patches, scales: Sequence[Tiling]) -> Floats:
        """In two rounds: first the totals of all neurons, then the evidence, which is relative to them."""
        batch, many = evidence.x.shape[1], self.neurons.most - int(self.neurons.free[0])
        shape = batch, sum(scale.nodes for scale in scales), 2
        totals, found = np.full(shape, -np.inf), np.full((1, batch, self.neurons.most), -np.inf)
        for _, bank in self.blocks():
            own = np.full(shape, -np.inf)
            bank.pyramid_evidence(evidence, scales, many, own)
            totals = np.logaddexp(totals, own)
        for rows, bank in self.blocks():
            found[:, :, rows] = bank.pyramid_evidence(evidence, scales, many, totals)
        return found

    def at(self, evidence: Patches, support: Support) -> Floats:
        state, place = self.some(support.value)
        return np.asarray(self.bank(state).at(evidence, Support(support.start, place.astype(np.int32), None)))

    def vectors(self, k: NDArray[np.int32]) -> NDArray[np.float32]:
        state, place = self.some(k)
        return prototypes_of(state, self.options.centre)[place]

    def known_values(self, k: NDArray[np.int32]) -> NDArray[np.bool_]:
        if not self.holes:
            return np.repeat(self.neurons.c[0, k, None] > 0, self.tiling.size, 2)
        state, place = self.some(k)
        return np.asarray(state["known"][place] > 0)
