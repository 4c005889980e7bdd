"""Memories in several places: banks whose neurons or nodes are on shards; the rest is here, in main memory."""

from __future__ import annotations

from sqhn.banks.cpu.device import Cpu
from sqhn.banks.interface import SplitBank
from sqhn.banks.shards.actors import Actors
from sqhn.banks.shards.nodes import SplitNodes
from sqhn.banks.shards.prototypes import SplitPrototypes
from sqhn.banks.shards.shards import Shards
from sqhn.level import Level, Options
from sqhn.patches import Tiling

__all__ = ["Sharded"]


class Sharded(Cpu):
    """Level 1 is on shards: of one level the neurons, of a tree the nodes; `word`: on which device of theirs."""

    split = True
    breadth = 4  # parts of a question follow each other without a pause

    def __init__(self, name: str, word: str, many: int) -> None:
        self.name, self.word, self.many = name, word, many
        self.carrier = Actors(word, many)

    def patterns(self, tiling: Tiling, level: Level, options: Options, top: bool) -> SplitBank:  # type: ignore[override]
        if top and self.word != "cpu":
            raise ValueError(f"device={self.name!r} is for trees: the neurons of one level are on CPUs, device='ray'")
        shards = Shards(self.many, self.carrier)
        if top:
            return SplitPrototypes(self, shards, tiling, level, options)
        return SplitNodes(self, shards, self.word, tiling, level, options)
