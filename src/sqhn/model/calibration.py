"""A threshold of `recognize` with a guaranteed error rate, from samples.

A sample is called old if the ratio of its match to the mean match of its neuron is at least rho. If n samples and a
further one come from the same source, the ratio of the further one is equally likely to have any rank among all of
them. So the probability that it is among the k largest is k / (n + 1), and rho is the k-th largest ratio of the n
samples, as in conformal prediction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_count, check_share, check_word, is_real
from sqhn.level import TIE, Options

Kind = Literal["new", "old"]
"""Whether the samples of a calibration were learned ("old") or not ("new")."""


class Calibration(NamedTuple):
    """How a threshold was found: the kind of samples, the error rate, the number of samples, and the step.

    before: the rho that the user had set. threshold: of evidence; None if rho was calibrated. ratios: the sorted ratios
    of all samples, or their evidence; None in files of earlier versions.
    """

    kind: Kind
    error: float
    samples: int
    step: int
    before: float | None = None
    threshold: float | None = None
    ratios: Sequence[float] | None = None

    def __repr__(self) -> str:
        settings = {**self._asdict(), "ratios": self.ratios and f"{len(self.ratios):,} ratios"}
        return f"Calibration({', '.join(f'{name}={value!r}' for name, value in settings.items())})"

    def __str__(self) -> str:
        what = "rho" if self.threshold is None else "the threshold of evidence"
        wrong = "old" if self.kind == "new" else "new"
        return (
            f"{what} was calibrated at step {self.step:,} so that at most {self.error:g} of {self.kind} samples are "
            f"called {wrong}, for the memory"
        )

    def check(self, evidence: bool) -> None:
        """Raise unless a memory can have made this calibration: of its threshold of evidence, or of rho."""
        check_word("kind", self.kind, ("new", "old"))
        check_share("error", self.error)
        check_count("samples", self.samples)
        check_count("step", self.step, 0)
        Options(rho=self.before)  # checks it
        ratios: Any = [] if self.ratios is None else self.ratios
        numbers: list[Any] = [*ratios, self.threshold if evidence else 0.0]
        if isinstance(ratios, str | dict) or not all(is_real(n) and math.isfinite(n) for n in numbers):
            raise TypeError(f"ratios and a threshold of evidence must be numbers; got {numbers!r}")
        if not evidence and self.threshold is not None:
            raise ValueError(f"a threshold of evidence beside rho: {self.threshold!r}")

    def p(self, score: Any, mean: Any, xp: Any) -> Any:
        """The p-values of samples, of being like the samples of the calibration; xp: the namespace of the arrays.

        p is the share of ratios, with the sample's own, that are at least as extreme: as small among those of old
        samples, as large among those of new ones. Scores within `TIE` are equal.
        """
        assert self.ratios is not None
        mean = mean.clip(min=TIE)
        known = xp.asarray(self.ratios, dtype=xp.float64, device=mean.device)
        if self.kind == "old":
            extreme = xp.searchsorted(known, (score + TIE) / mean, side="right")
        else:
            extreme = len(known) - xp.searchsorted(known, (score - TIE) / mean, side="left")
        return (extreme + 1.0) / (len(known) + 1)


def tolerance(score: NDArray[np.float64], mean: NDArray[np.float64], kind: Kind, error: float) -> float:
    """The rho that calls at most a share `error` of samples like these wrongly old or new.

    score, mean (samples,): their matches, and the mean matches of their neurons.
    """
    if not is_real(error) or not 0 < error < 1:
        raise ValueError(f"error must be a share of samples, between 0 and 1; got {error!r}")
    n = len(score)
    k = math.floor(error * (n + 1) * (1 + 1e-12))
    if k < 1:
        raise ValueError(f"an error of {error:g} needs at least {math.ceil(1 / error) - 1:g} samples; got {n}")
    if (mean <= TIE).any():
        raise ValueError(
            f"the best neuron of sample {int((mean <= TIE).argmax())} has a mean match of {mean.min():g}; rho is a "
            "share of the mean match and can be calibrated only if that is above 0"
        )
    ratio = np.sort(score / mean)
    if kind == "old":
        if ratio[k - 1] < 0:
            raise ValueError(
                f"{int((ratio < 0).sum())} of {n} samples have a match below 0, the lowest {score.min():g}, and rho "
                f"cannot be negative: an error of at most {error:g} is impossible"
            )
        return float(ratio[k - 1])  # k - 1 ratios are below it
    return max(0.0, float(ratio[n - k]) + 2 * TIE / float(mean.min()))  # k - 1 ratios are above ratio[n - k]
