"""A tolerance for `recognize` that keeps a promise, found from samples.

A sample is called old if its match reaches rho times the mean of its neuron: if the ratio of the two reaches rho. Of n
samples and one more that comes like them, each is as likely as any other to have the k-th largest ratio. So the one to
come is among the k largest with probability k / (n + 1), and beyond the k-th of the n with no more than that.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import is_real
from sqhn.level import TIE

__all__ = ["Calibration", "Kind", "tolerance"]

Kind = Literal["new", "old"]
"""Samples that were not learned, or that were."""


class Calibration(NamedTuple):
    """How a tolerance was found: from new or old samples, for which share of errors, how many, and at which step.

    before: the tolerance that the user had set. threshold: of evidence, if that is what was found.
    """

    kind: Kind
    error: float
    samples: int
    step: int
    before: float | None = None
    threshold: float | None = None

    def __str__(self) -> str:
        what = "rho" if self.threshold is None else "the threshold of evidence"
        wrong = "old" if self.kind == "new" else "new"
        return (
            f"{what} was calibrated at step {self.step:,} so that at most {self.error:g} of {self.kind} samples are "
            f"called {wrong}, for the memory"
        )

    def outdated(self, step: int) -> bool:
        """Whether the memory has learned as many samples again since then."""
        return step >= 2 * self.step


def tolerance(score: NDArray[np.float64], mean: NDArray[np.float64], kind: Kind, error: float) -> float:
    """The rho with which at most a share `error` of samples like these is judged wrongly."""
    if not is_real(error) or not 0 < error < 1:
        raise ValueError(f"error must be a number between 0 and 1, a share of samples; got {error!r}")
    n = len(score)
    k = math.floor(error * (n + 1) * (1 + 1e-12))
    if k < 1:
        raise ValueError(f"an error of {error:g} needs at least {math.ceil(1 / error) - 1:g} samples; got {n}")
    if (mean <= TIE).any():
        raise ValueError(
            f"sample {int((mean <= TIE).argmax())} reminds of a neuron whose mean match is {mean.min():g}: "
            "rho is a share of that, so it cannot be calibrated"
        )
    ratio = np.sort(score / mean)
    if kind == "old":
        if ratio[k - 1] < 0:
            raise ValueError(
                f"{int((ratio < 0).sum())} of {n} samples are the opposite of what they remind of (a match below 0, "
                f"{score.min():g} at worst): no tolerance calls all but {error:g} of them old"
            )
        return float(ratio[k - 1])  # less than this have k - 1 of them
    return max(0.0, float(ratio[n - k]) + 2 * TIE / float(mean.min()))  # more than ratio[n - k] have k - 1 of them
