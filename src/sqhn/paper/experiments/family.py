"""A family of experiments: what is run, what is claimed of it, and what is drawn, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqhn.paper.experiments.case import Experiment
from sqhn.paper.experiments.claims import Bounds, Claim, Measured
from sqhn.paper.experiments.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Drawing", "Family"]

Measure = Callable[[Results], Measured]
Make = Callable[[Results], "Figure"]


@dataclass(frozen=True)
class Drawing:
    """One figure: its name, the experiments it shows, what it says, and how it is drawn."""

    name: str
    experiments: tuple[str, ...]
    caption: str
    make: Make


@dataclass
class Family:
    """Experiments, claims and figures, in the order in which they are declared."""

    experiments: list[Experiment] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    figures: list[Drawing] = field(default_factory=list)

    def claim(
        self,
        id: str,  # noqa: A002
        experiments: str,
        says: str,
        paper: str,
        bounds: Mapping[str, Bounds],
        **more: Any,
    ) -> Callable[[Measure], Measure]:
        """Register what measures a claim."""

        def register(measure: Measure) -> Measure:
            self.claims.append(Claim(id, tuple(experiments.split()), says, paper, bounds, measure, **more))
            return measure

        return register

    def figure(self, name: str, experiments: str, caption: str) -> Callable[[Make], Make]:
        """Register what draws a figure."""

        def register(make: Make) -> Make:
            self.figures.append(Drawing(name, tuple(experiments.split()), caption, make))
            return make

        return register
