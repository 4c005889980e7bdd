"""Claims: a statement of the paper, the measures taken for it, and the bounds that the measures must keep.

Bounds are data: the text printed beside a claim and the test of it come from the same values. Measures are relative to
the run (its capacity, its length), so that a short run is held to the same bounds; bounds that concern one data set are
only tested on that data set.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from sqhn.paper.experiments.case import READINGS, Reading
from sqhn.paper.experiments.results import NotRunError, Results, spread

Verdict = Literal["PASS", "FAIL", "REPORTED", "NOT RUN", "TOO SMALL", "ERROR"]
ROUNDING = 1e-12  # how far beyond a closed bound a value may be
Measured = Mapping[str, Mapping[str, Any]]  # measure: place: one number, or one per seed


def number(value: float) -> str:
    """Four decimals without a leading zero, as the paper prints numbers; exponents for tiny ones."""
    if not math.isfinite(value):
        return f"{value}"
    if value != 0 and abs(value) < 5e-5:
        return f"{value:.0e}"
    if value == int(value) and abs(value) >= 1:
        return f"{int(value)}"
    return f"{value:.4f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def short(value: float) -> str:
    """A bound with as few digits as possible."""
    return f"{value:g}".replace("0.", ".", 1) if 1e-4 <= abs(value) < 1 else f"{value:g}"


@dataclass(frozen=True)
class Bound:
    """The interval for a measure. open: without its end points. paper_data: only tested on the paper's data sets."""

    low: float = -math.inf
    high: float = math.inf
    open: bool = False
    paper_data: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value lies in the interval, up to rounding; NaN never does."""
        return self.low < value < self.high if self.open else self.excess(value) <= ROUNDING

    def excess(self, value: float) -> float:
        """How far a value is outside the interval, negative inside; infinite for NaN."""
        return math.inf if math.isnan(value) else max(self.low - value, value - self.high)

    def __str__(self) -> str:
        if math.isinf(self.high):
            text = f"{'>' if self.open else '>='} {short(self.low)}"
        elif math.isinf(self.low):
            text = f"{'<' if self.open else '<='} {short(self.high)}"
        elif self.low == self.high:
            text = f"= {short(self.low)}"
        else:
            text = f"{short(self.low)} to {short(self.high)}"
        return text + (" (on the paper's data)" if self.paper_data else "")

    @property
    def on_paper_data(self) -> Bound:
        """This bound, tested on the paper's data sets only."""
        return replace(self, paper_data=True)


def at_least(low: float) -> Bound:
    """A value >= low."""
    return Bound(low=low)


def at_most(high: float) -> Bound:
    """A value <= high."""
    return Bound(high=high)


def above(low: float) -> Bound:
    """A value > low."""
    return Bound(low=low, open=True)


def below(high: float) -> Bound:
    """A value < high."""
    return Bound(high=high, open=True)


def between(low: float, high: float) -> Bound:
    """A value from low to high."""
    return Bound(low, high)


Bounds = Bound | Mapping[Reading, Bound] | None  # for both readings, for each of them, or none: only reported


@dataclass(frozen=True)
class Measurement:
    """One measure of a claim at all places where it was taken."""

    name: str
    bound: Bound | None
    values: Mapping[str, Any]

    @property
    def means(self) -> dict[str, float]:
        return {place: float(np.mean(values)) for place, values in self.values.items()}

    @property
    def worst(self) -> str:
        """The place whose value exceeds the bound most, or comes closest to it."""
        bound = self.bound or Bound(low=0)
        return max(self.means, key=lambda place: bound.excess(self.means[place]))

    @property
    def violations(self) -> int:
        """The number of places where the bound does not hold."""
        return 0 if self.bound is None else sum(not self.bound.holds(value) for value in self.means.values())

    def __str__(self) -> str:
        means = self.means
        if len(means) <= 4 or (self.bound is None and len(means) <= 8):
            text = ", ".join(f"{place} {self._at(place)}".strip() for place in means)
        elif self.bound is None:
            text = f"{number(min(means.values()))} to {number(max(means.values()))}"
        else:
            text = f"{self._at(self.worst)} at worst ({self.worst})"
            if self.violations:
                text += f"; {self.violations} of {len(means)} out of bounds"
        return f"{self.name}: {text}"

    def _at(self, place: str) -> str:
        values = np.atleast_1d(self.values[place])
        text = number(float(values.mean()))
        return text if len(values) == 1 else f"{text} ± {number(float(spread(values)))}"


@dataclass(frozen=True)
class Finding:
    """The verdict on a claim, with the measurements, or the reason why there are none."""

    verdict: Verdict
    measurements: tuple[Measurement, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        return "; ".join(map(str, self.measurements)) or self.reason


@dataclass(frozen=True)
class Claim:
    """One claim: its statement, the paper's numbers or words for it, its measures and their bounds.

    explanation: why the claim fails where it fails, as far as known. beyond: the paper does not make this claim. quick:
    a short run on built-in data can decide it. readings: those under which it makes sense.
    """

    id: str
    experiments: tuple[str, ...]
    statement: str
    paper: str
    bounds: Mapping[str, Bounds]
    measure: Callable[[Results], Measured]
    explanation: str = ""
    beyond: bool = False
    quick: bool = True
    readings: tuple[Reading, ...] = READINGS

    def bound(self, name: str, reading: Reading) -> Bound | None:
        """The bound of a measure."""
        bounds = self.bounds[name]
        return bounds if bounds is None or isinstance(bounds, Bound) else bounds[reading]

    @property
    def criteria(self) -> str:
        """All bounds as text."""
        texts = []
        for name in self.bounds:
            text, code = (self.bound(name, reading) for reading in READINGS)
            if text is None:
                texts.append(f"{name}: reported")
            elif text == code:
                texts.append(f"{name} {text}")
            else:
                texts.append(f"{name} {text} (code: {code})")
        return "; ".join(texts)

    def judge(self, results: Results, reading: Reading) -> Finding:
        """The finding from the records of a reading; missing records are no failure, a bug is an error."""
        try:
            if results.quick and not self.quick:
                return Finding("TOO SMALL", reason="a short run cannot decide this")
            of = results.under(reading)
            found = [Measurement(name, self.bound(name, reading), values) for name, values in self.measure(of).items()]
        except NotRunError as error:
            return Finding("NOT RUN", reason=str(error))
        except Exception as error:
            return Finding("ERROR", reason=f"{type(error).__name__}: {error}")
        if {one.name for one in found} != set(self.bounds):
            return Finding("ERROR", tuple(found), f"measured {[one.name for one in found]}, not {list(self.bounds)}")
        if empty := [one.name for one in found if not one.values]:
            return Finding("NOT RUN", reason=f"{', '.join(empty)}: nothing to measure")
        tested = [one for one in found if one.bound and (of.paper_data or not one.bound.paper_data)]
        if not tested:
            return Finding("REPORTED", tuple(found))
        return Finding("FAIL" if any(one.violations for one in tested) else "PASS", tuple(found))


def differences(names: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The differences between the means of successive names, "a - b"."""
    return {f"{a} - {b}": np.mean(values[a]) - np.mean(values[b]) for a, b in itertools.pairwise(names)}
