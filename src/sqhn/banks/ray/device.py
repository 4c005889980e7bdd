"""Memories in several places: banks whose neurons or nodes are on shards; the rest is here, in main memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.device import Cpu
from sqhn.banks.interface import CodeBank, Limits, ShardedBank
from sqhn.banks.ray.actors import Actors
from sqhn.banks.ray.nodes import CHUNK, SplitCodes, SplitPatterns
from sqhn.banks.ray.prototypes import SplitPrototypes
from sqhn.banks.ray.shards import Shards
from sqhn.level import Level, Options
from sqhn.patches import Tiling

__all__ = ["Sharded"]


class Sharded(Cpu):
    """On shards: of one level the neurons, of a tree all nodes but the memory node; `word`: their device."""

    limits = Limits(chunk=CHUNK, breadth=4)  # parts of a question follow each other without a pause
    atomic = False
    shards: int

    def __init__(self, name: str, word: str, many: int) -> None:
        self.name, self.word, self.shards = name, word, many
        self.carrier = Actors(word, many)
        self.group: Shards | None = None

    def patterns(self, tiling: Tiling, level: Level, options: Options, top: bool) -> ShardedBank:  # type: ignore[override]
        if top and self.word != "cpu":
            raise ValueError(f"device={self.name!r} is for trees: the neurons of one level are on CPUs, device='ray'")
        self.group, self.above = self.group or Shards(self.shards, self.carrier), 0  # reused after a reset
        if top:
            return SplitPrototypes(self, self.group, tiling, level, options)
        return SplitPatterns(self, self.group, self.word, tiling, level, options)

    def codes(  # type: ignore[override]
        self, children: NDArray[np.int32], level: Level, options: Options, top: bool, values: int
    ) -> CodeBank:
        """Of the same memory as the last `patterns`."""
        if top:
            return super().codes(children, level, options, top, values)
        assert self.group is not None
        self.above += 1
        return SplitCodes(self, self.group, self.word, f"codes {self.above}", children, level, options, values)
