"""Nodes with few values: every sample is compared with prototypes that are in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.kernels import steps
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import Learned, Patches

if TYPE_CHECKING:
    from sqhn.banks.cpu.prototypes import Prototypes


class SmallNodes:
    """How a bank of small nodes learns and answers; it does not refer to the bank, which would keep itself alive."""

    @staticmethod
    def chunk_size(bank: Prototypes, limit: int) -> int:  # noqa: ARG004
        return limit

    def reserve(self, room: int) -> None:
        """Nothing is stored here."""

    def changed(self, n: Any, j: Any) -> None:
        """Nothing is derived here from the prototypes j of the nodes n."""

    def settle(self, bank: Prototypes) -> None:
        """Nothing waits here."""

    @staticmethod
    def learn(bank: Prototypes, evidence: Patches, sent: Learned) -> None:
        neurons, (x, seen) = bank.neurons, evidence
        split_range(
            steps.learn, bank.nodes, float(x.size) * max(1, neurons.most), x, seen, None, bank.prototypes,
            neurons.statistics, bank.rules, neurons.times(x.shape[1]), bank.measure, sent.fields,
        )  # fmt: skip

    @staticmethod
    def best(bank: Prototypes, evidence: Patches, k: NDArray[np.int32], v: NDArray[np.float64]) -> None:
        x, seen = evidence
        split_range(
            steps.best, k.shape[0] * k.shape[1], float(x.size) * bank.neurons.most, x, seen, None, bank.of_nodes(),
            bank.grown, bank.measure, k, v,
        )  # fmt: skip
