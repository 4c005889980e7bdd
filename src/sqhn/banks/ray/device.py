"""The device "ray": level 1 of a memory, or all levels below the memory node, on shards; the rest in this process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.device import Cpu
from sqhn.banks.interface import Bank, CodeBank, Limits, ShardedBank
from sqhn.banks.ray.actors import Actors
from sqhn.banks.ray.nodes import LONGEST_CHUNK, SplitCodes, SplitPatterns
from sqhn.banks.ray.prototypes import SplitPrototypes
from sqhn.banks.ray.shards import Shards
from sqhn.level import Level, Options
from sqhn.patches import Tiling
from sqhn.sizes import array_bytes


class Sharded(Cpu):
    """Shards hold the neurons of a single level, or the nodes of a tree below the memory node.

    shard_device: where each shard has its banks, "cpu" or "cuda"; count: the number of shards.
    """

    limits = Limits(chunk=LONGEST_CHUNK, breadth=4)  # shards get the next samples while they answer
    keeps_bytes = False
    atomic = False
    shards: int

    def __init__(self, name: str, shard_device: str, count: int) -> None:
        self.name, self.shard_device, self.shards = name, shard_device, count
        self.transport = Actors(shard_device, count)
        self.group: Shards | None = None

    def start(self) -> Shards:
        """The shards; the first call starts them, and they are used again after a reset."""
        if self.group is None:
            self.group = Shards(self.shards, self.transport)
        return self.group

    def patterns(self, tiling: Tiling, level: Level, options: Options, top: bool) -> ShardedBank:  # type: ignore[override]
        if top and self.shard_device != "cpu":
            raise ValueError(f"device={self.name!r} is for trees; use device='ray' for a memory of one level")
        self.split_levels = 0  # of code banks
        return SplitPrototypes(self, tiling, level, options) if top else SplitPatterns(self, tiling, level, options)

    def codes(  # type: ignore[override]
        self, children: NDArray[np.int32], level: Level, options: Options, top: bool, values: int
    ) -> CodeBank:
        """A level of the same memory as the last `patterns`."""
        if top:
            return super().codes(children, level, options, top, values)
        self.split_levels += 1
        return SplitCodes(self, f"codes {self.split_levels}", children, level, options, values)

    def nbytes(self, banks: Sequence[Bank]) -> int:  # type: ignore[override]
        return array_bytes(banks) + self.start().nbytes()
