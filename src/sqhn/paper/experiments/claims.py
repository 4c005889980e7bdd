"""Claims: what the paper says, what is measured for it, and the bounds that it is held to.

A bound is data: the text beside a claim and the test of it are one thing. Measures are relative to the run (its
capacity, its length), so that a short run is held to the same bounds; those that belong to one data set are asked for
only on that data set.
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

__all__ = [
    "Bound",
    "Claim",
    "Finding",
    "Measured",
    "Part",
    "Word",
    "above",
    "at_least",
    "at_most",
    "below",
    "between",
    "number",
    "pairs",
]

Word = Literal["PASS", "FAIL", "REPORTED", "NOT RUN", "TOO SMALL", "ERROR"]
ROUNDING = 1e-12
Measured = Mapping[str, Mapping[str, Any]]  # what is measured: where: a number, or one for each seed


def number(value: float) -> str:
    """Four digits after the point, as the paper prints them; more only where they matter."""
    if not math.isfinite(value):
        return f"{value}"
    if value != 0 and abs(value) < 5e-5:
        return f"{value:.0e}"
    if value == int(value) and abs(value) >= 1:
        return f"{int(value)}"
    return f"{value:.4f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def short(value: float) -> str:
    """A bound as one would write it."""
    return f"{value:g}".replace("0.", ".", 1) if 1e-4 <= abs(value) < 1 else f"{value:g}"


@dataclass(frozen=True)
class Bound:
    """Where a measure must lie. open: not on the edge. paper_data: only asked for on the paper's own data sets."""

    low: float = -math.inf
    high: float = math.inf
    open: bool = False
    paper_data: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value keeps it; NaN never does. What is on the edge may be beyond it by rounding."""
        return self.low < value < self.high if self.open else self.beyond(value) <= ROUNDING

    def beyond(self, value: float) -> float:
        """How far a value is outside, negative inside; what is not a number is farthest."""
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
        """The same, asked for only on the paper's own data sets."""
        return replace(self, paper_data=True)


def at_least(low: float) -> Bound:
    """This or more."""
    return Bound(low=low)


def at_most(high: float) -> Bound:
    """This or less."""
    return Bound(high=high)


def above(low: float) -> Bound:
    """More than this."""
    return Bound(low=low, open=True)


def below(high: float) -> Bound:
    """Less than this."""
    return Bound(high=high, open=True)


def between(low: float, high: float) -> Bound:
    """From one to the other."""
    return Bound(low, high)


Bounds = Bound | Mapping[Reading, Bound] | None  # for both readings, for each, or none: only reported


@dataclass(frozen=True)
class Part:
    """One measure of a claim in all places it was taken."""

    name: str
    bound: Bound | None
    cells: Mapping[str, Any]

    @property
    def means(self) -> dict[str, float]:
        return {where: float(np.mean(values)) for where, values in self.cells.items()}

    @property
    def worst(self) -> str:
        """Where the bound is kept least."""
        bound = self.bound or Bound(low=0)
        return max(self.means, key=lambda where: bound.beyond(self.means[where]))

    @property
    def outside(self) -> int:
        """In how many places the bound is not kept."""
        return 0 if self.bound is None else sum(not self.bound.holds(value) for value in self.means.values())

    def __str__(self) -> str:
        means = self.means
        if len(means) <= 4 or (self.bound is None and len(means) <= 8):
            text = ", ".join(f"{where} {self._value(where)}".strip() for where in means)
        elif self.bound is None:
            text = f"{number(min(means.values()))} to {number(max(means.values()))}"
        else:
            text = f"{self._value(self.worst)} at worst ({self.worst})"
            if self.outside:
                text += f"; {self.outside} of {len(means)} do not hold"
        return f"{self.name}: {text}"

    def _value(self, where: str) -> str:
        values = np.atleast_1d(self.cells[where])
        text = number(float(values.mean()))
        return text if len(values) == 1 else f"{text} ± {number(float(spread(values)))}"


@dataclass(frozen=True)
class Finding:
    """What became of a claim: the word, what was measured, or why nothing was."""

    word: Word
    parts: tuple[Part, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return "; ".join(map(str, self.parts)) or self.why


@dataclass(frozen=True)
class Claim:
    """One claim: what it says, what the paper has for it, what is measured and the bounds for that.

    seen: why it does not hold where it does not, as far as we know. beyond: the paper does not say it. quick: a short
    run on built-in data can decide it. readings: under which it makes sense.
    """

    id: str
    experiments: tuple[str, ...]
    says: str
    paper: str
    bounds: Mapping[str, Bounds]
    measure: Callable[[Results], Measured]
    seen: str = ""
    beyond: bool = False
    quick: bool = True
    readings: tuple[Reading, ...] = READINGS

    def bound(self, name: str, reading: Reading) -> Bound | None:
        """What a measure is held to."""
        bounds = self.bounds[name]
        return bounds if bounds is None or isinstance(bounds, Bound) else bounds[reading]

    @property
    def tolerance(self) -> str:
        """The bounds, for people."""
        texts = []
        for name in self.bounds:
            found = {reading: self.bound(name, reading) for reading in READINGS}
            first, second = found.values()
            if first is None:
                texts.append(f"{name}: reported")
            elif first == second:
                texts.append(f"{name} {first}")
            else:
                texts.append(f"{name} {first} (code: {second})")
        return "; ".join(texts)

    def judge(self, results: Results, reading: Reading) -> Finding:
        """Whether it holds by the records of a reading; what is not there is no failure, a bug is an error."""
        try:
            if results.quick and not self.quick:
                return Finding("TOO SMALL", why="a short run cannot decide this")
            of = results.under(reading)
            parts = [Part(name, self.bound(name, reading), cells) for name, cells in self.measure(of).items()]
        except NotRunError as error:
            return Finding("NOT RUN", why=str(error))
        except Exception as error:
            return Finding("ERROR", why=f"{type(error).__name__}: {error}")
        if {part.name for part in parts} != set(self.bounds):
            return Finding("ERROR", tuple(parts), f"measured {[part.name for part in parts]}, not {list(self.bounds)}")
        if empty := [part.name for part in parts if not part.cells]:
            return Finding("NOT RUN", why=f"{', '.join(empty)}: nothing to measure")
        held = [part for part in parts if part.bound and (of.paper_data or not part.bound.paper_data)]
        if not held:
            return Finding("REPORTED", tuple(parts))
        return Finding("FAIL" if any(part.outside for part in held) else "PASS", tuple(parts))


def pairs(names: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """How much each is above the one after it."""
    return {f"{a} - {b}": np.mean(values[a]) - np.mean(values[b]) for a, b in itertools.pairwise(names)}
