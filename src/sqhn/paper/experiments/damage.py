"""Recall from damage that nobody announced, and whether old is told from new: beyond the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.data.corruptions import CORRUPTIONS, DAMAGES
from sqhn.data.streams import unit
from sqhn.paper.experiments.case import Case, Experiment, Pictures, Reading, generator, picture, pictures_of, pool
from sqhn.paper.experiments.claims import Measured, above, at_least
from sqhn.paper.experiments.depth import by_corruption
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.memories import MHN, AskedTree, ManhattanMHN, Nearest, Spec, Tree
from sqhn.paper.experiments.plots import bars, by_model, grid, outside, panels, title
from sqhn.paper.experiments.results import Results, Values
from sqhn.paper.metrics import recall_accuracy, recall_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FAMILY", "Damaged"]

FAMILY = Family()
FLAT, DEEP = "SQHN L1, evidence", "SQHN L3, evidence"
PAPER = ("SQHN L1", "SQHN L2", "SQHN L3", "SQHN L3, exact")
KERNELS: dict[str, tuple[Any, Any]] = {
    "cifar10": ((8,), (2, 4)),
    "tiny_imagenet": ((16,), (4, 4)),
    "caltech256": ((32,), (8, 4)),
    "mnist": ((7,), (2, 7)),
    "fashion_mnist": ((7,), (2, 7)),
    "watch": (((25,),), ((5,), (8,))),
}
"""Below the memory node, of two levels and of three."""
SHOWN = (("noise", 0.8), ("black", 0.75), ("color", 0.875), ("normal_fill", 0.75), ("salt_and_pepper", 0.6),
         ("rectangles", 1.5), ("blurred", 2.0), ("darker", 0.5))  # fmt: skip
WALL = ("cifar10", 0)
"""What the wall of pictures shows, and of which set and seed."""


# -- what is run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Damaged(Case):
    """Learn a stream; ask for some of it, and for as much that was never seen, from every damage.

    found: the neuron is the one that the paper's rule finds from the picture itself. accuracy: what comes back differs
    from the picture by at most `threshold`. auc: how often something old has a higher score than something new.
    """

    length: int
    questions: int = 100
    damages: tuple[tuple[str, float], ...] = DAMAGES
    threshold: float = 0.01

    def run(self, seed: int, device: str) -> dict[str, Any]:
        every = pool(self.data[0], "train")[0]
        chosen = generator(seed, "data").permutation(len(every))[: self.length + self.questions]
        stored, new = np.split(unit(every[chosen]), [self.length])
        memory = self.built(self.shaped(stored).shape[1:], seed, device)
        memory.learn(self.shaped(stored))
        asked = stored[np.sort(generator(seed, "asked").permutation(len(stored))[: self.questions])]
        clean = getattr(memory, "memory", memory).recall(self.shaped(asked)).index
        rows, given, found = [], [], []
        for kind, level in (("noise", 0.0), *self.damages):
            old, _ = CORRUPTIONS[kind](asked, level, generator(seed, "old", kind, level))
            other, _ = CORRUPTIONS[kind](new, level, generator(seed, "new", kind, level))
            recalled, unknown = memory.recall(self.shaped(old)), memory.recall(self.shaped(other))
            error = recall_error(recalled.x, self.shaped(asked))
            rows.append({
                "kind": kind, "level": level, "found": float(np.mean(recalled.index == clean)),
                "accuracy": recall_accuracy(error, self.threshold), "mse": float(error.mean()),
                "auc": auc(recalled.score, unknown.score),
            })  # fmt: skip
            if (kind, level) in SHOWN and (self.set, seed) == WALL:
                given.append(old[0])
                found.append(recalled.x[0].reshape(old[0].shape))
        kept = {"pictures": {"given": picture(np.stack(given)), "found": picture(np.stack(found))}} if given else {}
        return {"stored": len(stored), "rows": rows, **kept}

    @staticmethod
    def shaped(x: Pictures) -> Pictures:
        """As a memory takes them: signals have no width."""
        return x.reshape(len(x), *(n for n in x.shape[1:] if n > 1))


def auc(old: NDArray[Any], new: NDArray[Any]) -> float:
    """How often an old score is above a new one; ties count half."""
    gap = np.asarray(old, np.float64)[:, None] - np.asarray(new, np.float64)
    return float((gap > 0).mean() + (gap == 0).mean() / 2)


def memories_of(name: str, size: int) -> dict[str, Spec]:
    two, three = KERNELS[name]
    return {
        "SQHN L1": Tree(size),
        "SQHN L2": Tree(size, two),
        "SQHN L3": Tree(size, three),
        "SQHN L3, exact": AskedTree(size, three, inference="exact"),
        FLAT: AskedTree(size),
        DEEP: AskedTree(size, three),
        "MHN": MHN(),
        "MHN-Manhtn": ManhattanMHN(),
        "NN": Nearest(size),
    }


def x_dmg(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    for name in KERNELS:
        for model, memory in memories_of(name, 1000).items():
            yield Damaged(
                set=name, data=(name,), model=model, size=1000, memory=memory, length=1000,
                quick=name in ("cifar10", "watch") and not model.startswith("MHN"),
            )  # fmt: skip


def x_dmgp(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    for models, size, length in (
        (("SQHN L1", FLAT), 1000, 3000),
        (("SQHN L3", "SQHN L3, exact", DEEP), 600, 2000),
    ):
        for model in models:
            memory = memories_of("cifar10", size)[model]
            yield Damaged(
                set="cifar10", data=("cifar10",), model=model, size=size, memory=memory, length=length, questions=150
            )


SMALLER = {"length": 10, "size": 10, "capacity": 10, "questions": 5}
FAMILY.experiments += [
    Experiment(
        "X-DMG", "Recall from damage",
        "How much is recalled from damage that nobody announced, and is old told from new?", x_dmg, SMALLER,
    ),
    Experiment("X-DMGP", "The same past capacity", "What is lost by it where neurons are averages?", x_dmgp, SMALLER),
]  # fmt: skip


# -- what is claimed -------------------------------------------------------------------------------------------------


def over_damages(runs: Results, measure: str) -> Values:
    """The mean over all damages, for each seed."""
    damages = runs.records[0]["settings"]["damages"]
    return np.asarray(np.mean([runs.row(kind, measure, level) for kind, level in damages], axis=0))


def by_set(results: Results) -> Iterator[tuple[str, Results]]:
    yield from results.of("X-DMG").each("set")


@FAMILY.claim(
    "XD.1", "X-DMG", "evidence finds more, over all kinds of damage, than every other memory", "-",
    {"ahead of the best other": above(0), "share found": None}, beyond=True,
)  # fmt: skip
def _(results: Results) -> Measured:
    ahead, level = {}, {}
    for name, runs in by_set(results):
        means = {model: over_damages(runs.of(model=model), "found") for model in (*PAPER, "NN", FLAT)}
        means |= {m: over_damages(run, "found") for m in ("MHN", "MHN-Manhtn") if (run := runs.where(model=m))}
        others = [float(values.mean()) for model, values in means.items() if model != FLAT]
        level[name] = means[FLAT]
        ahead[name] = float(means[FLAT].mean()) - max(others)
    return {"ahead of the best other": ahead, "share found": level}


@FAMILY.claim(
    "XD.2", "X-DMG", "and under no kind of damage less than the paper's trees, one level and exact inference", "-",
    {"ahead of the best of four": at_least(-0.02)}, beyond=True,
    seen=(
        "By chance single samples fit some of many small blocks. Where little else is left (noise in place of 15 of 16 "
        "parts of a large picture, salt and pepper on nine pixels of ten, strong noise on digits) that is more than "
        "the whole picture has to say."
    ),
)  # fmt: skip
def _(results: Results) -> Measured:
    found = {}
    for name, runs in by_set(results):
        for kind, level in runs.records[0]["settings"]["damages"]:
            rows = {m: float(runs.of(model=m).row(kind, "found", level).mean()) for m in (*PAPER, FLAT)}
            found[f"{name} {kind} {level}"] = rows[FLAT] - max(rows[model] for model in PAPER)
    return {"ahead of the best of four": found}


@FAMILY.claim(
    "XD.3", "X-DMG", "its score tells old from new better than theirs do", "-",
    {"AUC ahead of the best of four": above(0), "AUC": None}, beyond=True,
)  # fmt: skip
def _(results: Results) -> Measured:
    ahead, level = {}, {}
    for name, runs in by_set(results):
        means = {model: over_damages(runs.of(model=model), "auc") for model in (*PAPER, FLAT)}
        level[name] = means[FLAT]
        ahead[name] = float(means[FLAT].mean()) - max(float(means[model].mean()) for model in PAPER)
    return {"AUC ahead of the best of four": ahead, "AUC": level}


WHOLE_PICTURE = (("noise", 0.0), ("blurred", 2.0), ("shifted", 1.0))


@FAMILY.claim(
    "XD.4", "X-DMGP", "past capacity, one level: what the paper's rule recalls from the whole picture it recalls too",
    "-", {"ahead, clean, blurred, shifted": at_least(-0.02), "ahead over all damages": above(0)}, beyond=True,
)  # fmt: skip
def _(results: Results) -> Measured:
    paper, own = (results.of("X-DMGP", model=model) for model in ("SQHN L1", FLAT))
    return {
        "ahead, clean, blurred, shifted": {
            kind: float(own.row(kind, "found", level).mean() - paper.row(kind, "found", level).mean())
            for kind, level in WHOLE_PICTURE
        },
        "ahead over all damages": {"": float(over_damages(own, "found").mean() - over_damages(paper, "found").mean())},
    }


@FAMILY.claim(
    "XD.5", "X-DMGP", "past capacity, three levels: as much as the paper's rule", "-",
    {"ahead, clean": at_least(-0.01), "ahead over all damages": at_least(0)}, beyond=True,
)  # fmt: skip
def _(results: Results) -> Measured:
    paper, own = (results.of("X-DMGP", model=model) for model in ("SQHN L3", DEEP))
    clean, damaged = (
        float(np.mean(measure(own)) - np.mean(measure(paper)))
        for measure in (lambda run: run.row("noise", "accuracy", 0.0), lambda run: over_damages(run, "accuracy"))
    )
    return {"ahead, clean": {"": clean}, "ahead over all damages": {"": damaged}}


# -- what is drawn ---------------------------------------------------------------------------------------------------

LINES = {"noise": "noise", "black rectangle": "black", "color rectangle": "color", "noise rectangle": "normal_fill"}


@FAMILY.figure(
    "x-dmg", "X-DMG",
    "Share of stored samples found, from noise and from behind rectangles that nobody announced: the comparison of "
    "depths with recall by evidence added, and other memories.",
)  # fmt: skip
def _(results: Results) -> Figure:
    def points(run: Results, kind: str) -> tuple[list[float], Values]:
        levels = [level for which, level in run.records[0]["settings"]["damages"] if which == kind]
        clean = run.row("noise", "found", 0.0)
        return [0.0, *levels], np.array([clean, *(run.row(kind, "found", level) for level in levels)]).T

    return by_corruption(results.of("X-DMG"), LINES, points, "share found")


@FAMILY.figure(
    "x-dmg-mean", "X-DMG",
    "Over all kinds of damage: the share of stored samples found, and how often something old has a higher score "
    "than something new (a half: by chance).",
)  # fmt: skip
def _(results: Results) -> Figure:
    runs = results.of("X-DMG")
    sets = runs.settings("set")
    figure, axes = panels(2, 1, width=9, height=2.6)
    for axis, measure, heading in zip(axes[:, 0], ("found", "auc"), ("share found", "AUC, old against new")):
        series = {
            model: [over_damages(of, measure) if (of := run.where(set=name)).records else np.zeros(0) for name in sets]
            for model, run in by_model(runs)
        }
        bars(axis, [title(name) for name in sets], series)
        axis.set_ylabel(heading)
        axis.set_ylim(0, 1)
    outside(figure, axes[0, 0])
    return figure


def wall(results: Results, models: Mapping[str, str]) -> Figure:
    """What was given, and what some memories recalled."""
    runs = {label: results.of("X-DMG", set=WALL[0], model=model) for label, model in models.items()}
    rows = [pictures_of(next(iter(runs.values())).pictures("given"))]
    rows += [pictures_of(run.pictures("found")) for run in runs.values()]
    return grid(rows, ["given", *runs], [kind.replace("_", " ") for kind, _ in SHOWN])


@FAMILY.figure("x-dmg-wall", "X-DMG", "What was given, and what each memory recalled: one of the stored pictures.")
def _(results: Results) -> Figure:
    return wall(results, {model: model for model, _ in by_model(results.of("X-DMG", set=WALL[0]))})


@FAMILY.figure("x-dmg-short", "X-DMG", "The same of three memories.")
def _(results: Results) -> Figure:
    return wall(results, {"one level": "SQHN L1", "three levels": "SQHN L3", "evidence": FLAT})
