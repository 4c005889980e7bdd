"""Memories from plain settings, so that an experiment can be declared, written down and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.level import Level
from sqhn.memory import Memory, Recalled, Recognized, Written
from sqhn.metrics import recall_error
from sqhn.reference import ReferenceSQHN

if TYPE_CHECKING:
    from sqhn.network import SQHN

__all__ = ["KINDS", "TORCH", "Ablated", "ByError", "build", "tree"]

Shape = tuple[int, ...]
Settings = Mapping[str, Any]


def tree(shape: Shape, memory: Settings) -> SQHN:
    """An SQHN with the `kernels` below its memory node; `capacity` for every node, or a list for the levels."""
    from sqhn.network import SQHN  # compiled code is imported on first use

    settings = {name: value for name, value in memory.items() if name not in ("kind", "rho_error")}
    kernels = [*settings.pop("kernels", []), None]
    capacity = settings.pop("capacity")
    capacities = capacity if isinstance(capacity, list) else [capacity] * len(kernels)
    growth = {name: settings.pop(name) for name in ("alpha", "gamma", "when_full") if name in settings}
    if "alpha" in growth:
        growth["alpha"] = float(growth["alpha"])  # "inf" is a word in a record
    return SQHN(shape, [Level(k, J, **growth) for k, J in zip(kernels, capacities, strict=True)], **settings)


class ByError:
    """A memory that judges by the error of recall: old if it is at most rho_error times the mean before learning."""

    def __init__(self, memory: SQHN, rho_error: float) -> None:
        self.memory, self.rho_error = memory, rho_error
        self.count, self.error = 0, 0.0

    def learn(self, x: ArrayLike) -> Written:
        """Samples one by one: each is recalled before it is learned."""
        written = []
        for sample in np.asarray(x)[:, None]:
            if len(self.memory):
                self.count += 1
                self.error += (float(self._error(sample)[0]) - self.error) / self.count
            written.append(self.memory.learn(sample))
        return Written(*(np.concatenate(field) for field in zip(*written)))

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        return self.memory.recall(x, observed)

    def recognize(self, x: ArrayLike) -> Recognized:
        error = self._error(np.asarray(x))
        threshold = np.full(len(error), self.rho_error * self.error)
        return Recognized(error <= threshold, -error, -threshold)

    def _error(self, x: NDArray[Any]) -> NDArray[np.float64]:
        return recall_error(self.memory.recall(x).x, x)


class Ablated:
    """One level with a part of the learning rule left out: the reference learns, and a copy of it answers."""

    def __init__(self, shape: Shape, memory: Settings, seed: int) -> None:
        full = tree(shape, {name: value for name, value in memory.items() if name != "ablation"})
        self.shape, self.options = shape, full.options
        self.reference = ReferenceSQHN(shape, full.levels, full.options, memory["ablation"], seed)

    def learn(self, x: ArrayLike) -> Written:
        return Written(*(np.array(field) for field in zip(*map(self.reference.learn, np.asarray(x)))))

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        return self._answers().recall(x, observed)

    def recognize(self, x: ArrayLike) -> Recognized:
        return self._answers().recognize(x)

    def _answers(self) -> SQHN:
        from sqhn.network import SQHN

        root = self.reference.root
        copy = SQHN(self.shape, capacity=root.grown, similarity=self.options.similarity)
        copy.memorize(root.m[: root.grown].reshape(-1, *self.shape))
        return copy


def _rival(name: str, *extras: str) -> Callable[[Shape, Settings, int, str], Memory]:
    """A memory of `sqhn.baselines`; extras: which of seed and device it takes."""

    def make(shape: Shape, memory: Settings, seed: int, device: str) -> Memory:
        from sqhn import baselines

        given = {"seed": seed, "device": device}
        settings = {key: value for key, value in memory.items() if key != "kind"}
        made: Memory = getattr(baselines, name)(shape, **settings, **{extra: given[extra] for extra in extras})
        return made

    return make


KINDS: dict[str, Callable[[Shape, Settings, int, str], Memory]] = {
    "sqhn": lambda shape, memory, *_: tree(shape, memory),
    "sqhn_by_error": lambda shape, memory, *_: ByError(tree(shape, memory), memory["rho_error"]),
    "sqhn_ablated": lambda shape, memory, seed, _: Ablated(shape, memory, seed),
    "mhn": _rival("MHN", "device"),
    "mhn_manhattan": _rival("ManhattanMHN", "device"),
    "mhn_gradinf": _rival("GradInfMHN", "device"),
    "mhn_online": _rival("OnlineMHN", "seed", "device"),
    "mhn_online_tree": _rival("OnlineMHNTree", "seed", "device"),
    "gpcn": _rival("GPCN", "seed", "device"),
    "bayes_pcn": _rival("BayesPCN", "seed", "device"),
    "nearest": _rival("NearestNeighbor", "seed"),
}
"""Every kind of memory an experiment can name."""

TORCH = {kind for kind in KINDS if kind.startswith(("mhn", "gpcn", "bayes"))}
"""The kinds that need torch."""


def build(shape: Shape, memory: Settings, seed: int, device: str = "cpu") -> Memory:
    """The memory that the settings describe, for samples of one shape."""
    return KINDS[memory["kind"]](shape, memory, seed, device)
