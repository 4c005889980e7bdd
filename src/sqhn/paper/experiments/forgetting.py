"""Recall and generalization past capacity, by depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sqhn.paper.experiments.case import CODE, DEFAULT, Case, Experiment, Reading
from sqhn.paper.experiments.claims import Measured, above, at_least
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.hyperparameters import FIRST_OUT, RESERVOIR, nearest_neighbors
from sqhn.paper.experiments.models import Tree
from sqhn.paper.experiments.plots import (
    ERROR,
    LEARNED,
    RECALLED,
    by_model,
    legend_above,
    line,
    log_log,
    mark,
    panels,
    style_of,
)
from sqhn.paper.experiments.results import Results
from sqhn.paper.experiments.streams import StreamSettings, lowest_until_full, past_capacity
from sqhn.paper.experiments.table_1 import DEPTHS, kernels_of
from sqhn.paper.metrics import forgetting_bound

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FAMILY = Family()


# -- experiments -------------------------------------------------------------------------------------------------------


def ac_d(reading: Reading) -> Iterator[Case]:
    for J, length in ((200, 2500), (600, 3000), (1000, 3500)):
        stream = StreamSettings(("cifar100",), "iid", "", length, (0, 0, 0))
        more: dict[str, Any] = {"sigma": 0, "alike": False, "tests": 10000}
        for model, kernels in kernels_of("cifar100").items():
            alpha = 1e7 if reading == DEFAULT else 1e5 if model == "SQHN L3" else 5e4
            yield stream.case("cifar100", model, J, Tree(J, kernels, alpha), **more)
        for model, store in nearest_neighbors(J).items():
            yield stream.case("cifar100", model, J, store, **more)


FAMILY.experiments.append(
    Experiment(
        "AC-D", "Recall and generalization by depth",
        "How do recall and generalization evolve past capacity, for one, two and three levels?",
        ac_d, {"length": 6, "capacity": 6, "size": 6, "every": 3, "tests": 20},
    )
)  # fmt: skip


# -- claims ------------------------------------------------------------------------------------------------------------


def depth_runs(results: Results) -> dict[int, dict[str, Results]]:
    """The runs by size and depth."""
    some = results.of("AC-D")
    return {
        J: {depth: some.of("AC-D", model=model, size=J) for depth, model in DEPTHS.items()}
        for J in some.settings("size")
    }


@FAMILY.claim(
    "ACD.1", "AC-D", "all images are recalled until the memory is full, at any depth", "1.0",
    {"lowest recall up to J": {DEFAULT: at_least(0.99), CODE: at_least(0.95)}},
)  # fmt: skip
def recall_until_full(results: Results) -> Measured:
    runs = {f"J={J} {depth}": run for J, by_depth in depth_runs(results).items() for depth, run in by_depth.items()}
    return {"lowest recall up to J": lowest_until_full(runs, "accuracy")}


@FAMILY.claim(
    "ACD.2", "AC-D", "past capacity deeper trees decay more slowly than one level", "much slower",
    {"ahead of L1 at every test point from 1.5 J on": above(0), "L3 ahead of L2": at_least(-0.02)},
)  # fmt: skip
def decay_by_depth(results: Results) -> Measured:
    ahead: dict[str, float] = {}
    deeper: dict[str, float] = {}
    for J, runs in depth_runs(results).items():
        late = runs["L1"].late(1.5 * J)
        l1, l2, l3 = (run.mean("accuracy")[late] for run in runs.values())
        ahead |= {f"J={J} L2": float((l2 - l1).min()), f"J={J} L3": float((l3 - l1).min())}
        deeper[f"J={J}"] = float((l3 - l2).min())
    return {"ahead of L1 at every test point from 1.5 J on": ahead, "L3 ahead of L2": deeper}


@FAMILY.claim(
    "ACD.3", "AC-D", "one level stays above the curve of Theorem 2", "above",
    {"above the curve of Theorem 2": at_least(-0.02)},
)  # fmt: skip
def theorem_2_for_one_level(results: Results) -> Measured:
    runs = {f"J={J}": by_depth["L1"] for J, by_depth in depth_runs(results).items()}
    return {"above the curve of Theorem 2": past_capacity(runs)["above the curve of Theorem 2"]}


@FAMILY.claim(
    "ACD.4", "AC-D", "trees generalize better: lower error on unseen images, at the end and over the stream",
    "below L1",
    {"below L1 at the end by": above(0), "below L1 over the stream by": above(0), "cross L1 for good at, in J": None},
    explanation=(
        "At the end the claim holds at every size. Until the memory is full, and for a while after, trees are far "
        "worse than one level on unseen images, because all patches are taken from the same image. They cross one "
        "level at about twice the capacity, which is too late for a mean over a stream of five times the capacity or "
        "less."
    ),
)  # fmt: skip
def generalization(results: Results) -> Measured:
    end, whole, cross = {}, {}, {}
    for J, runs in depth_runs(results).items():
        l1 = runs["L1"].mean("test_mse")
        for depth in ("L2", "L3"):
            ahead = l1 - runs[depth].mean("test_mse")
            end[f"J={J} {depth}"], whole[f"J={J} {depth}"] = float(ahead[-1]), float(ahead.mean())
            behind = np.flatnonzero(ahead <= 0)
            cross[f"J={J} {depth}"] = float(runs[depth].t[behind[-1]] / J) if len(behind) else 0.0
    return {"below L1 at the end by": end, "below L1 over the stream by": whole, "cross L1 for good at, in J": cross}


@FAMILY.claim(
    "X.NN", "AC-D", "past capacity three levels recall more than a store of as many images; one level does not",
    "not in the paper",
    {"L3 recalls more than the store at the end by": above(0), "L1 recalls more than the store at the end by": None},
    beyond=True,
)  # fmt: skip
def ahead_of_stores(results: Results) -> Measured:
    ends: dict[str, dict[str, float]] = {"L3": {}, "L1": {}}
    for J, runs in depth_runs(results).items():
        store = max(float(results.of("AC-D", model=m, size=J).mean("accuracy")[-1]) for m in (FIRST_OUT, RESERVOIR))
        for depth, found in ends.items():
            found[f"J={J}"] = float(runs[depth].mean("accuracy")[-1]) - store
    return {f"{depth} recalls more than the store at the end by": found for depth, found in ends.items()}


# -- figures -----------------------------------------------------------------------------------------------------------


@FAMILY.figure(
    "ac-d", "AC-D",
    "Recall of all images so far (top; gray: the curve of Theorem 2), the share of unseen images that are returned as "
    "well as a recalled one, though they were never learned (middle), and the error on unseen images (bottom), by "
    "depth, with stores of as many images. Trees recall far more past capacity, and rebuild a few of the images that "
    "they never saw; their error on these is larger than that of one level until about twice the capacity, and smaller "
    "after that.",
)  # fmt: skip
def recall_and_generalization(results: Results) -> Figure:
    runs = results.of("AC-D")
    sizes = runs.settings("size")
    rows = {"accuracy": RECALLED, "test_accuracy": "share returned, unseen", "test_mse": f"{ERROR}, unseen"}
    figure, axes = panels(len(rows), len(sizes))
    for column, J in enumerate(sizes):
        for model, run in by_model(runs.where(size=J)):
            for axis, curve in zip(axes[:, column], rows):
                line(axis, run.t, run.curve(curve), model)
        t = np.arange(1, run.t[-1] + 1)
        axes[0, column].plot(t, forgetting_bound(J, t), color="0.6", linewidth=3, zorder=0, label="Theorem 2")
        axes[0, column].set_title(f"J = {J}")
        axes[-1, column].set_xlabel(LEARNED)
        for axis in axes[:, column]:
            axis.set_ylim(0, None)
            mark(axis, x=J)
    for axis, label in zip(axes[:, 0], rows.values()):
        axis.set_ylabel(label)
    legend_above(figure, axes[0, -1])
    return figure


@FAMILY.figure(
    "bytes", "AC-D",
    "Recall per byte: images recalled at the end of the stream against the size of the memory, for three sizes, and "
    "for stores of as many images as float32 and as bytes. Right: the bytes per image recalled.",
)  # fmt: skip
def recall_per_byte(results: Results) -> Figure:
    runs = results.of("AC-D")
    figure, axes = panels(1, 2, width=4.4, height=3.0)
    rows: dict[str, list[tuple[float, float]]] = {}
    for model, some in by_model(runs):
        for _, run in some.each("size"):
            count = float(run.mean("accuracy")[-1] * run.t[-1])
            size = float(run.result("bytes").mean())
            rows.setdefault(model, []).append((size, count))
            if model in (FIRST_OUT, RESERVOIR):
                rows.setdefault(f"{model}, uint8", []).append((size / 4, count))
    for model, points in rows.items():
        size, count = np.array([(b, n or np.nan) for b, n in sorted(points)]).T  # a memory may recall nothing
        style = style_of(model.removesuffix(", uint8"))
        if model.endswith("uint8"):
            style |= {"fillstyle": "none"}
        axes[0, 0].plot(size / 2**20, count, label=model, markersize=5, **style)
        axes[0, 1].plot(size / 2**20, size / count / 1024, label=model, markersize=5, **style)
    for axis, label in zip(axes[0], ("images recalled", "kilobytes per image")):
        log_log(axis)
        axis.set_xlabel("megabytes")
        axis.set_ylabel(label)
    legend_above(figure, axes[0, 0])
    return figure
