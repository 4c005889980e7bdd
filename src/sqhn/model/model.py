"""The whole state of a memory, as its file holds it: the tree, labels, and thresholds of recognition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from sqhn.banks.compilation import Pending, State, compiled
from sqhn.banks.in_file import InFile
from sqhn.banks.interface import Array, Device
from sqhn.checks import is_whole
from sqhn.level import TIE, Level, Options
from sqhn.model.calibration import Calibration, Kind, tolerance
from sqhn.model.inference import Inference
from sqhn.model.labels import Labels
from sqhn.model.tree import Tree


class Model:
    """A tree, the labels of the memory node's neurons, and the thresholds of `recognize`.

    pending: whether compiled kernels are to replace plain NumPy once they are ready.
    calibration, evidence_calibration: how the thresholds of the two rules of recognition were found; None: they were
        not calibrated.
    """

    def __init__(self, input_shape: tuple[int, ...], levels: Sequence[Level], options: Options, device: Device) -> None:
        self.tree = Tree(input_shape, levels, options, device)
        self.pending = isinstance(device, Pending)
        self.labels = Labels()
        self.rho = options.rho
        self.calibration: Calibration | None = None
        self.evidence_calibration: Calibration | None = None

    def upgrade(self) -> None:
        """Move to compiled kernels if they are ready."""
        if self.pending and State.ready:
            with suppress(MemoryError):  # for two copies; plain NumPy goes on, and the next change tries again
                self.tree, self.pending = self.tree.on(compiled()), False

    @property
    def refusal(self) -> str | None:
        """Why nothing can be changed; None if it can."""
        return self.tree.device.refusal if isinstance(self.tree.device, InFile) else None

    @property
    def options(self) -> Options:
        """The options of the tree, with the current rho."""
        return replace(self.tree.options, rho=self.rho)

    @property
    def tolerance(self) -> float:
        """The rho in use: the given one or the default."""
        return self.options.tolerance(len(self.tree.levels))

    def differences(self, other: Model) -> str:
        """The settings in which another model differs, but for rho, and for a capacity that is smaller than here."""
        tree, wanted = self.tree, other.tree
        levels = wanted.levels
        if len(levels) == len(tree.levels) and levels[-1].capacity <= tree.levels[-1].capacity:
            levels = (*levels[:-1], replace(levels[-1], capacity=tree.levels[-1].capacity))
        pairs = {
            "input_shape": (tree.input_shape, wanted.input_shape),
            "levels": (tree.levels, levels),
            "options": (replace(tree.options, rho=None), replace(wanted.options, rho=None)),
        }
        return "; ".join(f"{name} {here}, not {there}" for name, (here, there) in pairs.items() if here != there)

    # -- changes, which `sqhn.storage.changes` can store -------------------------------------------------------------

    def forget(self, index: Sequence[int]) -> int:
        """Forget neurons of the memory node; returns the step at which it took effect."""
        self.tree.forget(index)
        self.labels.forget(index)
        return self.tree.step

    def reset(self) -> None:
        """Forget everything; a calibrated rho returns to its earlier value."""
        if self.calibration:
            self.rho = self.calibration.before
        self.calibration = self.evidence_calibration = None
        self.labels = Labels()
        self.tree.reset()

    def set_rho(self, rho: float | None) -> None:
        """Set the tolerance of recognition; None: the default."""
        self.rho, self.calibration = rho, None

    def calibrate(self, calibration: Calibration, rho: float | None = None) -> float | None:
        """Set and return a calibrated threshold: rho, or that of recognition by evidence, which `calibration` holds."""
        if calibration.threshold is None:
            self.rho, self.calibration = rho, calibration
        else:
            self.evidence_calibration = calibration
        return rho if calibration.threshold is None else calibration.threshold

    # -- questions ---------------------------------------------------------------------------------------------------

    def recall(
        self, samples: Array, observed: Array, rule: Inference, k: int | None, keep: bool
    ) -> tuple[tuple[Array, ...], Any]:
        """The fields of `Tree.recall`, and the labels of the recalled neurons, if there are any."""
        fields = self.tree.recall(samples, observed, rule, k, keep)
        if not self.labels:
            return fields, None
        return fields, self.labels.of_all(self.tree.device.to_user(fields[1], None).tolist())

    def values(self, index: Any) -> Any:
        """The labels of a neuron with their counts, or of each neuron of a sequence or array."""
        given = index.tolist() if hasattr(index, "tolist") else index
        if isinstance(given, Sequence) and not isinstance(given, str):
            return [self.values(one) for one in given]
        if not is_whole(given):
            raise TypeError(f"index must be the number of a neuron, or a sequence of them; got {index!r}")
        grown = int(self.tree.root.grown[0])
        if not 0 <= given < grown:
            raise IndexError(f"neuron {given} is not one of {grown}")
        return self.labels.of(int(given))

    def outdated(self, by_evidence: bool) -> str | None:
        """A message if the memory has learned at least as many samples since the calibration in use as before."""
        made, step = self.evidence_calibration if by_evidence else self.calibration, self.tree.step
        if made is None or step < 2 * made.step:
            return None
        return f"{made}, but {step:,} samples have been learned by now: calibrate again"

    def recognize(self, samples: Array, observed: Array, by_evidence: bool) -> tuple[Array, ...]:
        """Old or new, the score, the threshold and, once calibrated, p-values; scores by evidence are in nats."""
        tree, factor = self.tree, self.tolerance
        made = self.evidence_calibration if by_evidence else self.calibration
        if by_evidence:
            if made is None or made.threshold is None:
                raise ValueError(
                    'recognize(x, inference="evidence") needs a threshold: find one with '
                    'calibrate(new=x, inference="evidence"), from samples that were not learned and are damaged like '
                    "those to be judged"
                )
            factor = made.threshold
        if len(tree):
            score, mean = tree.familiarity(samples, observed, by_evidence)
        else:
            score, mean = (tree.full((len(samples),), value) for value in (-math.inf, 1.0))
        threshold = factor * mean
        found = score >= threshold - TIE, score, threshold
        if made is None or made.ratios is None:
            return found
        return *found, made.p(score, mean, tree.device.xp)

    def calibrated(
        self, samples: Array, observed: Array, kind: Kind, error: float, by_evidence: bool
    ) -> tuple[Calibration, float | None]:
        """The arguments of `calibrate` for a threshold that guarantees an error rate on samples like these."""
        tree, to_user = self.tree, self.tree.device.to_user
        score, mean = (to_user(field, None) for field in tree.familiarity(samples, observed, by_evidence))
        found, ratios = tolerance(score, mean, kind, error), np.sort(score / mean).tolist()
        made = Calibration(kind, float(error), len(samples), tree.step, ratios=ratios)
        if by_evidence:
            return made._replace(threshold=found), None
        return made._replace(before=self.calibration.before if self.calibration else self.rho), found
