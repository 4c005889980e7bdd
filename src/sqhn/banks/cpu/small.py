"""Nodes with few values: every sample meets their prototypes in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqhn.banks.cpu.kernels import small as kernels
from sqhn.banks.cpu.neurons import Best
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Learned, Patches

if TYPE_CHECKING:
    from sqhn.banks.cpu.prototypes import Prototypes

__all__ = ["SmallNodes"]


class SmallNodes:
    """How a bank of small nodes learns and answers; it holds no bank, which would keep itself alive."""

    @staticmethod
    def chunk_size(bank: Prototypes, limit: int) -> int:  # noqa: ARG004
        return limit

    def reserve(self, room: int) -> None:
        """Nothing is kept here."""

    def changed(self, n: Any, j: Any) -> None:
        """Nothing is derived here from the prototypes j of the nodes n."""

    def settle(self, bank: Prototypes) -> None:
        """Nothing waits here to be put in order."""

    @staticmethod
    def learn(bank: Prototypes, evidence: Patches, sent: Learned) -> None:
        neurons, x = bank.neurons, evidence.x
        split_range(
            kernels.learn, bank.nodes, float(x.size) * max(1, neurons.most), x, *bank.learning_mask(evidence),
            bank.prototypes, neurons.kept, bank.rules, neurons.times(x.shape[1]), bank.measure, sent.fields,
        )  # fmt: skip

    @staticmethod
    def best(bank: Prototypes, evidence: Patches, found: Best) -> None:
        split_range(
            kernels.best, bank.nodes, float(evidence.x.size) * bank.neurons.most, evidence.x, *bank.mask(evidence),
            bank.asked, bank.neurons.kept, bank.measure, *found,
        )  # fmt: skip
