"""Robustness by depth: noise and occlusions, and examples of what is recalled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sqhn.data.corruptions import CORRUPTIONS
from sqhn.data.streams import iid, unit
from sqhn.paper.experiments.case import DEFAULT, Case, Experiment, Reading, generator, picture, pictures_of, pool
from sqhn.paper.experiments.claims import Measured, above, at_least, at_most, below, pairs
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.memories import Nearest, Spec, Tree
from sqhn.paper.experiments.plots import RECALLED, by_model, grid, line, outside, panels, title
from sqhn.paper.experiments.results import Results, Values, spread
from sqhn.paper.experiments.table_1 import DEPTHS, SIDE, Loaded, kernels_of, loaded
from sqhn.paper.metrics import recall_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FAMILY", "Examples", "Occlusions", "by_corruption"]

FAMILY = Family()
NOISES = (0.0, 0.05, 0.15, 0.25, 0.4, 0.5, 0.75, 1.0, 1.25, 1.5)
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.875, 0.9375)
FILLS = {"black": "black", "color": "color", "noise": "normal_fill"}
"""The text's fills; the published code has uniform noise."""


COVERS = {*FILLS.values(), "noise_fill"}


def fills_of(reading: Reading) -> dict[str, str]:
    return FILLS if reading == DEFAULT else {**FILLS, "noise": "noise_fill"}


# -- what is run -----------------------------------------------------------------------------------------------------


def ac_b(reading: Reading) -> Iterator[Case]:
    fills = fills_of(reading).values()
    corruptions = (*(("noise", sigma) for sigma in NOISES), *((fill, share) for fill in fills for share in SHARES))
    for name, split in (("cifar10", "train"), ("tiny_imagenet", "val"), ("caltech256", "train")):
        memories: dict[str, Spec] = {m: Tree(1000, kernels) for m, kernels in kernels_of(name, wide=True).items()}
        memories["NN"] = Nearest(1000)
        for model, memory in memories.items():
            yield Loaded(
                set=name, data=(name,), model=model, size=1000, memory=memory, split=split, length=1000,
                corruptions=corruptions, shared=reading != DEFAULT,
            )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Occlusions(Case):
    """One picture behind one rectangle in all fills."""

    fills: tuple[str, ...]
    level: float

    def run(self, seed: int, device: str) -> dict[str, Any]:  # noqa: ARG002
        x = iid(pool(self.data[0], "train")[0], 1, generator(seed, "data"))
        shown = [x[0]]
        for fill in self.fills:  # the rectangle is drawn first: the same for all
            shown.append(CORRUPTIONS[fill](x, self.level, generator(seed, "rectangle"))[0][0])
        return {"pictures": {"given": picture(np.stack(shown))}}


def ac_c(reading: Reading) -> Iterator[Case]:
    fills = tuple(fills_of(reading).values())
    yield Occlusions(set="tiny_imagenet", data=("tiny_imagenet",), model="", size=0, fills=fills, level=0.4, seeds=1)


@dataclass(frozen=True, kw_only=True)
class Examples(Case):
    """Store the first pictures of a set and look at what is recalled of some of them; the first is kept to show."""

    length: int
    corruptions: tuple[tuple[str, float], ...]
    draws: int = 20
    threshold: float = 0.01

    def run(self, seed: int, device: str) -> dict[str, Any]:
        stored = unit(pool(self.data[0], "train")[0][: self.length])
        memory = loaded(self, stored, seed, device)
        asked = stored[: self.draws]
        given, found, rows = [], [], []
        for kind, level in self.corruptions:
            x, observed = CORRUPTIONS[kind](asked, level, generator(seed, kind, level))
            recalled = memory.recall(x, observed).x
            good = recall_error(recalled, asked) <= self.threshold
            rows.append({"kind": kind, "level": level, "recalled": good.tolist()})
            given.append(x[0] if observed is None else np.where(observed[0], x[0], np.float32(0.5)))
            found.append(recalled[0])
        return {"rows": rows, "pictures": {"given": picture(np.stack(given)), "found": picture(np.stack(found))}}


def shown(length: int, sigma: float, share: float, reading: Reading) -> Iterator[Case]:
    others = (*fills_of(reading).values(), "dropout", "mask")
    corruptions = (("noise", 0.0), ("noise", sigma), *((kind, share) for kind in others))
    for model, kernels in kernels_of("cifar10").items():
        yield Examples(
            set="cifar10", data=("cifar10",), model=model, size=length, memory=Tree(length, kernels), length=length,
            corruptions=corruptions, seeds=1,
        )  # fmt: skip


FAMILY.experiments += [
    Experiment(
        "AC-B", "Robustness by depth", "How does depth affect robustness to noise and to occlusion?",
        ac_b, {"length": 10, "size": 10, "capacity": 10},
    ),
    Experiment("AC-C", "The occlusions", "What the three fills look like.", ac_c),
    Experiment(
        "S-EXM", "Examples, moderate corruption", "What recalled pictures look like.",
        lambda reading: shown(1024, 0.2, 0.25, reading),
    ),
    Experiment(
        "S-EXH", "Examples, high corruption", "The same with most of the picture lost.",
        lambda reading: shown(128, 0.8, 0.75, reading),
    ),
]  # fmt: skip


# -- what is claimed -------------------------------------------------------------------------------------------------


def by_depth(results: Results, name: str) -> dict[str, Results]:
    return {depth: results.of("AC-B", set=name, model=model) for depth, model in DEPTHS.items()}


def fills_run(results: Results) -> dict[str, str]:
    """The fills of a reading, as they are called in its records."""
    kinds = {kind for kind, _ in results.of("AC-B").records[0]["settings"]["corruptions"]}
    return {name: kind for name, kind in (*FILLS.items(), ("noise", "noise_fill")) if kind in kinds}


@FAMILY.claim(
    "ACB.1", "AC-B", "little corruption costs nothing: noise up to .05, a tenth of the picture covered", "1.0",
    {"recall": at_least(0.95)},
)  # fmt: skip
def _(results: Results) -> Measured:
    found: dict[str, Values] = {}
    rows = [("noise", 0.0), ("noise", 0.05), *((k, s) for k in fills_run(results).values() for s in (0.0, 0.1))]
    for name in results.of("AC-B").settings("set"):
        for depth, run in by_depth(results, name).items():
            found |= {f"{name} {depth} {kind} {level}": run.row(kind, "accuracy", level) for kind, level in rows}
    return {"recall": found}


def noise_order(results: Results, name: str) -> Measured:
    """How much each depth is ahead of the next, and the first of the last."""
    each: dict[str, float] = {}
    ends: dict[str, float] = {}
    for sigma in (0.25, 0.4, 0.5):
        means = {depth: run.row("noise", "accuracy", sigma) for depth, run in by_depth(results, name).items()}
        each |= {f"{pair} at {sigma}": float(gap) for pair, gap in pairs(list(means), means).items()}
        ends[f"at {sigma}"] = float(means["L1"].mean() - means["L3"].mean())
    return {"each depth ahead of the next": each, "L1 ahead of L3": ends}


@FAMILY.claim(
    "ACB.2", "AC-B", "CIFAR-10, noise: the deeper, the worse", "L1 >= L2 >= L3",
    {"each depth ahead of the next": at_least(0), "L1 ahead of L3": above(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    return noise_order(results, "cifar10")


@FAMILY.claim(
    "ACB.5", "AC-B", "Tiny ImageNet, noise: larger receptive fields do better", "L1 >= L2 >= L3",
    {"each depth ahead of the next": at_least(0), "L1 ahead of L3": at_least(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    return noise_order(results, "tiny_imagenet")


@FAMILY.claim(
    "ACB.3", "AC-B", "Caltech, large pictures, noise: all depths perform similarly", "similar",
    {"largest difference": below(0.1)},
    seen=(
        "Up to a standard deviation of .75 the depths do not differ. Beyond, three levels fall behind: their patches "
        "of 8 x 8 pixels are then mistaken too."
    ),
)  # fmt: skip
def _(results: Results) -> Measured:
    found = {}
    for sigma in NOISES:
        row = [float(run.row("noise", "accuracy", sigma).mean()) for run in by_depth(results, "caltech256").values()]
        found[f"at {sigma}"] = max(row) - min(row)
    return {"largest difference": found}


@FAMILY.claim(
    "ACB.4", "AC-B", "occlusion of half a picture and more: the deeper, the better", "L3 >= L2 >= L1",
    {"L3 ahead of L2": at_least(-0.02), "L2 ahead of L1": at_least(-0.02),
     "L3 ahead of L1, black and color, in standard deviations": above(1)},
    seen=(
        "It holds in all sets and fills but one: of Caltech pictures covered in black, three levels recall .14 less "
        "than two, and more than one."
    ),
)  # fmt: skip
def _(results: Results) -> Measured:
    found: dict[str, dict[str, float]] = {"L3 ahead of L2": {}, "L2 ahead of L1": {}}
    clear = {}
    for name in results.of("AC-B").settings("set"):
        for fill, kind in fills_run(results).items():
            means: dict[str, Values] = {
                depth: np.mean([run.row(kind, "accuracy", share) for share in (0.5, 0.75, 0.875)], axis=0)
                for depth, run in by_depth(results, name).items()
            }
            for deep, flat in (("L3", "L2"), ("L2", "L1")):
                found[f"{deep} ahead of {flat}"][f"{name} {fill}"] = float(means[deep].mean() - means[flat].mean())
            if fill != "noise":
                deviation = max(float(spread(means["L1"])), float(spread(means["L3"])), 1e-6)
                clear[f"{name} {fill}"] = float(means["L3"].mean() - means["L1"].mean()) / deviation
    return {**found, "L3 ahead of L1, black and color, in standard deviations": clear}


@FAMILY.claim(
    "ACC.1", "AC-C", "the three occlusions over one picture, behind one rectangle", "shown", {"fills shown": None}
)
def _(results: Results) -> Measured:
    return {"fills shown": {"": float(results.of("AC-C").pictures("given")["shape"][0] - 1)}}


Recalled = dict[tuple[str, bool], list[bool]]


def example_runs(results: Results, experiment: str) -> dict[str, Recalled]:
    """For each depth and corruption (and whether it corrupts at all), which of the asked pictures were recalled."""
    runs = {d: results.of(experiment, model=m).records[0]["results"]["rows"] for d, m in DEPTHS.items()}
    return {d: {(row["kind"], row["level"] > 0): row["recalled"] for row in rows} for d, rows in runs.items()}


def occluded(rows: Recalled) -> list[bool]:
    """Over all fills."""
    return [one for (kind, _), recalled in rows.items() if kind in COVERS for one in recalled]


@FAMILY.claim(
    "EX.1", "S-EXM", "moderate: the picture shown comes back; under occlusion trees do as well as one level",
    "shown",
    {"of the picture shown, without occlusion, not back": at_most(0),
     "ahead of L1 under occlusion, pictures": at_least(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    runs = example_runs(results, "S-EXM")
    missed = {
        d: sum(not found[0] for (kind, _), found in rows.items() if kind not in COVERS) for d, rows in runs.items()
    }
    counts = {depth: sum(occluded(rows)) for depth, rows in runs.items()}
    return {
        "of the picture shown, without occlusion, not back": missed,
        "ahead of L1 under occlusion, pictures": {d: counts[d] - counts["L1"] for d in ("L2", "L3")},
    }


@FAMILY.claim(
    "EX.2", "S-EXH", "high: three levels recall under occlusion where one fails; under noise, the other way round",
    "shown", {"share of what L1 loses to occlusion that L3 recalls": above(0.5), "more failures under noise": above(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    runs = example_runs(results, "S-EXH")
    lost = [b for a, b in zip(occluded(runs["L1"]), occluded(runs["L3"])) if not a]
    l1, l3 = (len(runs[d]["noise", True]) - sum(runs[d]["noise", True]) for d in ("L1", "L3"))
    saved = float(np.mean(lost)) if lost else 0.0
    return {
        "share of what L1 loses to occlusion that L3 recalls": {f"of {len(lost)}": saved},
        "more failures under noise": {"": float(l3 - l1)},
    }


# -- what is drawn ---------------------------------------------------------------------------------------------------


@FAMILY.figure(
    "ac-a", "AC-B",
    "The trees that are compared, on CIFAR-10: the patches that the nodes of level 1 see, and the nodes of every "
    "level up to the memory node.",
)  # fmt: skip
def _(results: Results) -> Figure:
    runs = results.of("AC-B", set="cifar10")
    figure, axes = panels(1, len(DEPTHS), width=3.6, height=2.4)
    for axis, model in zip(axes[0], DEPTHS.values()):
        below, corner = SIDE["cifar10"], 0.0
        for kernel in (*runs.of("AC-B", model=model).records[0]["settings"]["memory"]["kernels"], None):
            nodes = below // (kernel or below)
            edges = np.linspace(0, 1, nodes + 1)
            axis.hlines(edges, corner, corner + 1, color="black", linewidth=0.6)
            axis.vlines(corner + edges, 0, 1, color="black", linewidth=0.6)
            axis.text(corner + 0.5, -0.06, f"{nodes * nodes} node{'s' if nodes > 1 else ''}", ha="center", va="top")
            below, corner = nodes, corner + 1.25
        axis.set_title(model)
        axis.set_xlim(-0.1, max(2.3, corner - 0.15))
        axis.set_ylim(-0.3, 1.05)
        axis.set_aspect("equal")
        axis.axis("off")
    return figure


@FAMILY.figure(
    "ac-b", "AC-B",
    "Robustness by depth: share of stored pictures recalled from noise and from behind rectangles of three fills. One "
    "level and the nearest neighbor are together under noise. Under black rectangles a single dark picture in the set "
    "can draw most of the others to itself, which is why seeds differ so much there.",
)  # fmt: skip
def _(results: Results) -> Figure:
    def points(run: Results, kind: str) -> tuple[list[float], Values]:
        levels = [level for which, level in run.records[0]["settings"]["corruptions"] if which == kind]
        return levels, np.array([run.row(kind, "accuracy", level) for level in levels]).T

    kinds = {"noise": "noise", **{f"{name} rectangle": kind for name, kind in fills_run(results).items()}}
    return by_corruption(results.of("AC-B"), kinds, points, RECALLED)


def by_corruption(
    runs: Results,
    kinds: Mapping[str, str],
    points: Callable[[Results, str], tuple[list[float], Values]],
    label: str,
) -> Figure:
    """A row of panels for every data set, one for each kind (by its heading): levels, and values (seeds, levels)."""
    sets = runs.settings("set")
    figure, axes = panels(len(sets), len(kinds), width=2.7, height=2.1)
    for row, name in enumerate(sets):
        for column, (heading, kind) in enumerate(kinds.items()):
            axis = axes[row, column]
            for model, run in by_model(runs.where(set=name)):
                line(axis, *points(run, kind), model)
            axis.set_ylim(-0.03, 1.03)
            if row == 0:
                axis.set_title(heading)
            if row == len(sets) - 1:
                axis.set_xlabel("standard deviation" if kind == "noise" else "share covered")
        axes[row, 0].set_ylabel(f"{title(name)}\n{label}")
    outside(figure, axes[0, 0])
    return figure


@FAMILY.figure("ac-c", "AC-C", "The occlusions: a picture, and behind one rectangle in black, one color, and noise.")
def _(results: Results) -> Figure:
    rows = [pictures_of(results.of("AC-C").pictures("given"))]
    return grid(rows, [""], ["picture", "black", "color", "noise"], size=1.8)


def example_figure(experiment: str, caption: str) -> None:
    @FAMILY.figure(experiment.lower(), experiment, caption)
    def _(results: Results) -> Figure:
        runs = [results.of(experiment, model=model) for model in DEPTHS.values()]
        rows = [pictures_of(runs[0].pictures("given"))]
        rows += [pictures_of(run.pictures("found")) for run in runs]
        return grid(
            rows,
            ["given", *DEPTHS.values()],
            ["clean", "noise", "black", "color", "noise fill", "dropout", "right mask"],
        )


example_figure("S-EXM", "Moderate corruption: what is given (gray: missing) and what each memory recalls.")
example_figure("S-EXH", "High corruption: what is given (gray: missing) and what each memory recalls.")
