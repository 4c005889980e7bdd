"""Ablations: the learning rule without one of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sqhn.paper.experiments.case import CODE, DEFAULT, Case, Experiment, Reading
from sqhn.paper.experiments.claims import Measured, above, at_least, below
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.models import AblatedTree, Spec, Tree
from sqhn.paper.experiments.plots import ERROR, LEARNED, RECALLED, bars, by_model, legend_above, line, mark, panels
from sqhn.paper.experiments.results import Results
from sqhn.paper.experiments.streams import ONE_LEVEL_STREAMS, capacity_of
from sqhn.reference import Ablation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FAMILY = Family()


# -- experiments -------------------------------------------------------------------------------------------------------


def ablations(reading: Reading) -> dict[str, Spec]:
    """The models by row; the published code makes several changes at once, all with the plain cosine."""
    whole = Tree(700) if reading == DEFAULT else Tree(700, alpha=14000, similarity="cosine")
    parts = AblatedTree(700, alpha=whole.alpha, similarity=whole.similarity)
    half = Ablation(step=0.5)
    if reading == DEFAULT:
        return {
            "SQHN": whole,
            "-Dir": replace(whole, alpha=np.inf, gamma=0.9),
            "-lrDecay": replace(parts, ablation=half),
            "-lrDecay .1": replace(parts, ablation=Ablation(step=0.1)),
            "-lrDecay .9": replace(parts, ablation=Ablation(step=0.9)),
            "-Grw": replace(parts, ablation=Ablation(grows=False)),
            "-Avg": replace(parts, ablation=Ablation(averages=False), when_full="freeze"),
            "+OvWr": replace(whole, when_full="overwrite"),
        }
    return {
        "SQHN": whole,
        "-Dir": replace(whole, alpha=np.inf, gamma=0.9, when_full="overwrite"),
        "-lrDecay": replace(
            parts, ablation=replace(half, growth_step=True), alpha=22000, gamma=0.5, when_full="overwrite"
        ),
        "-Grw": replace(parts, ablation=Ablation(grows=False)),
        "-Avg": replace(parts, ablation=Ablation(averages=False), when_full="overwrite"),
        "+OvWr": replace(whole, alpha=12000, when_full="overwrite"),
    }


def s_abl(reading: Reading) -> Iterator[Case]:
    for row, memory in ablations(reading).items():
        yield ONE_LEVEL_STREAMS["OCI-C"].case("OCI-C", row, 700, memory, sigma=0, alike=False)


FAMILY.experiments.append(
    Experiment(
        "S-ABL", "Ablations", "Which parts of the learning rule matter?",
        s_abl, {"length": 6, "capacity": 6, "size": 6},
    )
)  # fmt: skip


# -- claims ------------------------------------------------------------------------------------------------------------

DECAYS = ("-lrDecay", "-lrDecay .1", "-lrDecay .9")
REQUIRED = ("SQHN", "-Dir", "-lrDecay", "-Grw", "-Avg")


def ablation_runs(results: Results) -> dict[str, Results]:
    some = results.of("S-ABL")
    for name in REQUIRED:
        some.of(model=name)
    return {name: some.where(model=name) for name in some.settings("model")}


def when_full(run: Results) -> float:
    return float(run.mean("accuracy")[run.t <= capacity_of(run)][-1])


@FAMILY.claim(
    "SA.1", "S-ABL", "a falling threshold, steps that decay and growth are essential before capacity",
    "SQHN high; -Dir, -lrDecay, -Grw low",
    {
        "SQHN when full": {DEFAULT: at_least(0.99), CODE: at_least(0.85)},
        "-Grw when full": below(0.1),
        "-Dir when full": {DEFAULT: below(0.99), CODE: below(0.5)},
        "-lrDecay when full": below(0.1),
    },
    explanation=(
        "With nothing else changed, a constant step costs nothing before capacity: until then every image grows a "
        "neuron, and nothing is averaged. In the published code, -lrDecay also halves the growth threshold and the "
        "vector that growth writes, and then fails."
    ),
)  # fmt: skip
def before_capacity(results: Results) -> Measured:
    runs = ablation_runs(results)
    return {
        **{f"{name} when full": {"": when_full(runs[name])} for name in ("SQHN", "-Grw", "-Dir")},
        "-lrDecay when full": {name: when_full(runs[name]) for name in DECAYS if name in runs},
    }


@FAMILY.claim(
    "SA.2", "S-ABL", "at the end -Avg recalls at least as many, with a much larger error",
    "slightly more; significantly worse",
    {"recall, ahead of SQHN by": at_least(0), "error over SQHN's": above(1.3)},
)  # fmt: skip
def without_averaging(results: Results) -> Measured:
    runs = ablation_runs(results)
    (a, e), (b, f) = (
        (float(runs[name].mean("accuracy")[-1]), float(runs[name].mean("mse")[-1])) for name in ("-Avg", "SQHN")
    )
    return {"recall, ahead of SQHN by": {"": a - b}, "error over SQHN's": {"": e / f}}


@FAMILY.claim(
    "SA.3", "S-ABL", "over the whole stream SQHN has the smallest error, and recalls more than -Dir, -lrDecay, -Grw",
    "necessary under both measures",
    {"cumulative error, below the others by": above(0), "cumulative recall, above the others by": above(0)},
    explanation=(
        "With nothing else changed, a constant step keeps the latest image of each neuron nearly unchanged, so a few "
        "more of the recent images count as recalled; its error is larger throughout."
    ),
)  # fmt: skip
def over_the_stream(results: Results) -> Measured:
    runs = ablation_runs(results)
    error = {name: float(run.average("mse").mean()) for name, run in runs.items()}
    accuracy = {name: float(run.average("accuracy").mean()) for name, run in runs.items()}
    others = [name for name in runs if name not in ("SQHN", "+OvWr")]
    return {
        "cumulative error, below the others by": {name: error[name] - error["SQHN"] for name in others},
        "cumulative recall, above the others by": {
            name: accuracy["SQHN"] - accuracy[name] for name in others if name != "-Avg"
        },
    }


@FAMILY.claim(
    "SA.4", "S-ABL", "growth, steps that decay and averaging are essential after capacity", "worse without each",
    {"error past capacity, below the others by": above(0)},
)  # fmt: skip
def after_capacity(results: Results) -> Measured:
    runs = ablation_runs(results)

    def late(run: Results) -> float:
        return float(run.mean("mse")[run.late(capacity_of(run) + 1)].mean())

    others = [name for name in runs if name not in ("SQHN", "+OvWr", "-Dir")]
    return {
        "error past capacity, below the others by": {name: late(runs[name]) - late(runs["SQHN"]) for name in others}
    }


# -- figures -----------------------------------------------------------------------------------------------------------


@FAMILY.figure(
    "s-abl", "S-ABL",
    "Ablations on a stream of classes: recall of all images so far and its error, and their means over the stream. "
    "-Dir: constant growth threshold; -lrDecay: constant step of one half, or of the given size; -Grw: no growth; "
    "-Avg: no averaging; +OvWr: overwrite. Dotted: capacity.",
)  # fmt: skip
def recall_and_error(results: Results) -> Figure:
    runs = results.of("S-ABL")
    figure, axes = panels(2, 2, width=4.0, height=2.6)
    for row, (curve, label) in enumerate((("accuracy", RECALLED), ("mse", ERROR))):
        means = {}
        for model, run in by_model(runs):
            line(axes[row, 0], run.t, run.curve(curve), model)
            means[model] = run.curve(curve).mean(axis=1)
        mark(axes[row, 0], x=runs.setting("size"))
        axes[row, 0].set_ylabel(label)
        bars(axes[row, 1], list(means), {"": list(means.values())})
        axes[row, 1].tick_params(axis="x", rotation=40)
        axes[row, 1].set_ylabel(f"cumulative {'error' if row else 'recall'}")
    axes[1, 0].set_xlabel(LEARNED)
    legend_above(figure, axes[0, 0])
    return figure
