"""A family of experiments in one module: the experiments, the claims about them, and the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqhn.paper.experiments.case import Experiment
from sqhn.paper.experiments.claims import Bounds, Claim, Measured
from sqhn.paper.experiments.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Measure = Callable[[Results], Measured]
Draw = Callable[[Results], "Figure"]


@dataclass(frozen=True)
class FigureSpec:
    """One figure: its name, the experiments it shows, its caption, and the function that draws it."""

    name: str
    experiments: tuple[str, ...]
    caption: str
    draw: Draw


@dataclass
class Family:
    """Experiments, claims and figures, in the order of their declaration."""

    experiments: list[Experiment] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    figures: list[FigureSpec] = field(default_factory=list)

    def claim(
        self,
        id: str,  # noqa: A002
        experiments: str,
        statement: str,
        paper: str,
        bounds: Mapping[str, Bounds],
        **more: Any,
    ) -> Callable[[Measure], Measure]:
        """Register the function that measures a claim."""

        def register(measure: Measure) -> Measure:
            self.claims.append(Claim(id, tuple(experiments.split()), statement, paper, bounds, measure, **more))
            return measure

        return register

    def figure(self, name: str, experiments: str, caption: str) -> Callable[[Draw], Draw]:
        """Register the function that draws a figure."""

        def register(draw: Draw) -> Draw:
            self.figures.append(FigureSpec(name, tuple(experiments.split()), caption, draw))
            return draw

        return register
