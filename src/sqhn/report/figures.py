"""The figures: each a function of the records alone, with the panels of the paper.

Colors are told apart without color vision (Okabe and Ito), and every line has a marker and a dash of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sqhn.experiments.protocols import pictures_of
from sqhn.metrics import forgetting_bound
from sqhn.report.claims import CHANCE, DEPTHS, FILLS, MHNS, energy_cells, sensitivities
from sqhn.report.results import INCOMPLETE, NotRunError, Results, spread

__all__ = ["FIGURES", "Drawing", "draw", "title"]

matplotlib.rcParams.update(
    {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "figure.constrained_layout.use": True,
    }
)

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (1, 1)), (0, (6, 2)))
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")
TITLES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tiny_imagenet": "Tiny ImageNet",
    "caltech256": "Caltech",
    "mnist": "MNIST",
    "emnist": "EMNIST",
}
RECALLED = "share recalled"
ERROR = "mean squared error"


@dataclass(frozen=True)
class Drawing:
    """One figure: its name, the experiments it shows, what it says, and how it is drawn."""

    name: str
    experiments: tuple[str, ...]
    caption: str
    make: Callable[[Results], Figure]


FIGURES: list[Drawing] = []


def drawing(name: str, experiments: str, caption: str) -> Callable[[Callable[[Results], Figure]], None]:
    """Register a figure."""

    def register(make: Callable[[Results], Figure]) -> None:
        FIGURES.append(Drawing(name, tuple(experiments.split()), caption, make))

    return register


def draw(results: Results) -> Iterator[tuple[Drawing, Figure]]:
    """Every figure that the records allow."""
    for figure in FIGURES:
        try:
            drawn = figure.make(results)
        except INCOMPLETE:
            continue
        yield figure, drawn


# -- parts -----------------------------------------------------------------------------------------------------------


def panels(rows: int, columns: int, width: float = 3.0, height: float = 2.4) -> tuple[Figure, NDArray[Any]]:
    figure = Figure(figsize=(columns * width, rows * height))
    return figure, np.asarray(figure.subplots(rows, columns, squeeze=False))


def style(number: int) -> dict[str, Any]:
    return {"color": COLORS[number % 7], "marker": MARKERS[number % 7], "linestyle": DASHES[number % 7]}


def line(axis: Axes, x: Any, values: NDArray[Any], label: str, number: int, band: NDArray[Any] | None = None) -> None:
    """The mean of curves (seeds, points) with a band of one standard deviation over seeds, or the band given."""
    mean = values.mean(axis=0)
    deviation = spread(values) if band is None else band
    every = max(1, len(mean) // 8)
    axis.plot(x, mean, label=label, markersize=4, linewidth=1.4, markevery=(number % every, every), **style(number))
    axis.fill_between(x, mean - deviation, mean + deviation, color=COLORS[number % 7], alpha=0.2, linewidth=0)


def bars(axis: Axes, groups: Sequence[str], series: dict[str, list[NDArray[Any]]]) -> None:
    """Means over seeds side by side, with their standard deviation."""
    width = 0.8 / len(series)
    for number, (label, values) in enumerate(series.items()):
        x = np.arange(len(groups)) + (number - (len(series) - 1) / 2) * width
        means = [value.mean() if len(value) else np.nan for value in values]
        errors = [float(spread(value)) if len(value) else np.nan for value in values]
        axis.bar(
            x, means, width * 0.92, yerr=errors, label=label, color=COLORS[number % 7], hatch=HATCHES[number % 7],
            edgecolor="white", linewidth=0.5, error_kw={"linewidth": 1},
        )  # fmt: skip
    axis.set_xticks(np.arange(len(groups)), groups)
    axis.grid(axis="x", visible=False)


def mark(axis: Axes, x: float | None = None, y: float | None = None, label: str | None = None) -> None:
    """A gray line at a place that matters."""
    if x is not None:
        axis.axvline(x, color="0.5", linewidth=1, linestyle=":", label=label)
    if y is not None:
        axis.axhline(y, color="0.5", linewidth=1, linestyle="--", label=label)


def outside(figure: Figure, axis: Axes) -> None:
    """One legend for all panels, above them."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(5, len(labels)))


def not_yet(axis: Axes, results: Results, experiment: str, models: Iterable[str]) -> None:
    """Legend entries for memories of the paper that were not run."""
    missing = [model for model in models if not results.where(experiment, model=model)]
    if missing:
        axis.plot([], [], " ", label=fill(f"{', '.join(missing)}: not yet", 24))


def grid(rows: Sequence[NDArray[np.uint8]], labels: Sequence[str], headings: Sequence[str] = ()) -> Figure:
    """Pictures in rows, with a label before each row."""
    columns = len(rows[0])
    figure = Figure(figsize=(1.0 * columns + 1.2, 1.0 * len(rows) + (0.3 if headings else 0)))
    axes = np.asarray(figure.subplots(len(rows), columns, squeeze=False))
    for r, row in enumerate(rows):
        for c, picture in enumerate(row):
            axis = axes[r, c]
            axis.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.grid(visible=False)
            for spine in axis.spines.values():
                spine.set_visible(False)
            if r == 0 and headings:
                axis.set_title(headings[c], fontsize=8)
        axes[r, 0].set_ylabel(labels[r], rotation=0, ha="right", va="center")
    return figure


ORDER = ("SQHN", "SQHN+", "SQHN(mse)", *DEPTHS, *MHNS, "MHN (rec-act)", "MHN (rec-mse)")


def by_model(runs: Results) -> Iterator[tuple[int, str, Results]]:
    """The runs of every memory with its number: the SQHN first, the yardsticks last, so that styles stay the same."""
    known = [model for model in ORDER if model in runs.settings("model")]
    others = [model for model in runs.settings("model") if model not in ORDER]
    for number, model in enumerate([*known, *others]):
        yield number, model, runs.where(model=model)


def title(name: str) -> str:
    """The name of a data set for people."""
    return TITLES.get(name, name)


def of_size(runs: Results, model: str, stream: str, place: int) -> Results:
    """The runs of a memory on a stream with its small, medium or large size."""
    some = runs.where(set=stream)
    sizes = sorted(some.settings("size"))
    return some.where(model=model, size=sizes[place] if place < len(sizes) else None)


def order_of(results: Results, experiment: str, model: str) -> list[tuple[str, int, float]]:
    """The order sensitivities of a memory, none if there is nothing to compare."""
    try:
        return sensitivities(results, experiment, model)
    except NotRunError:
        return []


# -- online-continual learning ---------------------------------------------------------------------------------------


def online_figures(experiment: str, levels: str) -> None:
    online_curves(experiment, levels)
    online_cumulative(experiment, levels)
    online_pictures(experiment, levels)


def online_curves(experiment: str, levels: str) -> None:
    @drawing(
        f"{experiment}-curves".lower(), experiment,
        f"Online-continual learning with {levels}, medium size: recall of all pictures so far from noise "
        "(standard deviation 0.2) against pictures learned. Dotted: capacity. Bands: standard deviation over seeds.",
    )  # fmt: skip
    def curves(results: Results) -> Figure:
        runs = results.of(experiment)
        streams = [name for name in runs.settings("set") if not name.startswith("ON-")]
        figure, axes = panels(2, len(streams))
        for column, name in enumerate(streams):
            some = runs.where(set=name)
            size = some.settings("size")[len(some.settings("size")) // 2]
            for number, model, run in by_model(some.where(size=size)):
                for row, curve in enumerate(("noisy_accuracy", "noisy_mse")):
                    line(axes[row, column], run.t + 1, run.curve(curve), model, number)
            axes[0, column].set_title(f"{name}, J = {size}")
            axes[0, column].set_ylim(-0.03, 1.03)
            axes[1, column].set_xlabel("pictures learned")
            for row in (0, 1):
                mark(axes[row, column], x=size)
        axes[0, 0].set_ylabel(RECALLED)
        axes[1, 0].set_ylabel(ERROR)
        not_yet(axes[0, 0], results, experiment, MHNS)
        outside(figure, axes[0, 0])
        return figure


def online_cumulative(experiment: str, levels: str) -> None:
    @drawing(
        f"{experiment}-cumulative".lower(), experiment,
        f"{levels.capitalize()}: recall from noise and its error, averaged over the test points of every stream (ON: "
        "shuffled), for three sizes; and sensitivity to order, the difference of mean errors from the shuffled stream.",
    )  # fmt: skip
    def cumulative(results: Results) -> Figure:
        runs = results.of(experiment)
        streams, models = runs.settings("set"), [model for _, model, _ in by_model(runs)]
        figure, axes = panels(3, 3, width=3.9, height=2.3)
        for column, size in enumerate(("small", "medium", "large")):
            for row, (curve, label) in enumerate((("noisy_accuracy", "recall"), ("noisy_mse", "error"))):
                series = {model: [of_size(runs, model, s, column).average(curve) for s in streams] for model in models}
                bars(axes[row, column], streams, series)
                axes[row, 0].set_ylabel(f"cumulative {label}")
            found = {model: order_of(results, experiment, model) for model in models}
            ordered = [stream for stream in streams if not stream.startswith("ON-")]
            sizes = {s: runs.where(set=s).settings("size")[column] for s in ordered}
            orders = {
                model: [
                    np.array([value for s, J, value in rows if (s, J) == (stream, sizes[stream])]) for stream in ordered
                ]
                for model, rows in found.items()
            }
            bars(axes[2, column], ordered, orders)
            axes[0, column].set_title(size)
            axes[0, column].set_ylim(0, 1.05)
        axes[2, 0].set_ylabel("order sensitivity")
        not_yet(axes[2, 0], results, experiment, MHNS)
        outside(figure, axes[2, 0])
        return figure


def online_pictures(experiment: str, levels: str) -> None:
    @drawing(
        f"{experiment}-pictures".lower(), experiment,
        f"{levels.capitalize()}, medium size, at the end of a stream of classes: some of the pictures learned, first "
        "to last; what was given; what was recalled.",
    )  # fmt: skip
    def shown(results: Results) -> Figure:
        name = "OCI-C" if experiment == "OC-L1" else "OCI-C3"
        runs = results.of(experiment, set=name)
        run = runs.where(size=runs.settings("size")[1])
        return grid(
            [pictures_of(run.pictures(row)) for row in ("learned", "given", "found")], ["learned", "given", "recalled"]
        )


online_figures("OC-L1", "one level")
online_figures("OC-L3", "three levels")


# -- noisy encoding --------------------------------------------------------------------------------------------------


def encoding_figures(experiment: str, levels: str) -> None:
    @drawing(
        experiment.lower(), experiment,
        f"Noisy encoding with {levels}: pictures are learned from noisy samples only, then shown clean. Black dashes: "
        "what averaging the samples can give at best.",
    )  # fmt: skip
    def curves(results: Results) -> Figure:
        runs = results.of(experiment)
        figure, axes = panels(2, 2)
        for column, noise in enumerate(("white", "binary")):
            for number, model, some in by_model(runs.where(noise=noise)):
                counts = some.settings("samples")
                for row, result in enumerate(("accuracy", "mse")):
                    values = [run.result(result) for _, run in some.each("samples")]
                    mean, band = np.array([[v.mean() for v in values]]), np.array([float(spread(v)) for v in values])
                    line(axes[row, column], counts, mean, model, number, band)
            floor = [run.result("floor").mean() for _, run in some.each("samples")]
            axes[1, column].plot(counts, floor, color="black", linestyle=(0, (2, 2)), label="best possible")
            axes[0, column].set_title(f"{noise} noise")
            axes[0, column].set_ylim(-0.03, 1.03)
            axes[1, column].set_yscale("log")
            axes[1, column].set_xlabel("samples of each picture")
        axes[0, 0].set_ylabel(RECALLED)
        axes[1, 0].set_ylabel(ERROR)
        not_yet(axes[1, 0], results, experiment, MHNS[:2])
        outside(figure, axes[1, 0])
        return figure

    @drawing(
        f"{experiment}-pictures".lower(), experiment,
        f"{levels.capitalize()}, SQHN+: the picture, one binary sample of it, and what is stored after 1, 6 "
        "and 12 of them.",
    )  # fmt: skip
    def shown(results: Results) -> Figure:
        run = results.of(experiment, model="SQHN+", noise="binary")
        rows = pictures_of(run.pictures("rows"))
        counts = next(r["results"]["pictures"]["counts"] for r in run.records if "pictures" in r["results"])
        return grid(list(rows), ["picture", "a sample", *(f"after {count}" for count in counts)])


encoding_figures("NE-L1", "one level")
encoding_figures("NE-L3", "three levels")


# -- recognition -----------------------------------------------------------------------------------------------------

KINDS = {"old": "learned", "new": "new, same kind", "other": "new, another kind"}


@drawing(
    "rc", "RC",
    "Recognition. A: accuracy over learned pictures, new ones of the same kind and of another kind; dashes: always "
    "saying new. B: errors of recall of the three groups (bands: spread within a group). C: the same for the MHN.",
)  # fmt: skip
def recognition(results: Results) -> Figure:
    runs = results.of("RC")
    figure, axes = panels(1, 3, width=3.4, height=2.9)
    size = runs.settings("size")[0]
    for number, model, run in by_model(runs):
        line(axes[0, 0], run.t + 1, run.curve("accuracy"), model, number)
    mark(axes[0, 0], x=size, y=CHANCE)
    not_yet(axes[0, 0], results, "RC", ("MHN (rec-act)", "MHN (rec-mse)"))
    axes[0, 0].set_ylabel("recognition accuracy")
    axes[0, 0].set_ylim(0.6, 1.02)
    axes[0, 0].set_title("A")
    for axis, model in ((axes[0, 1], "SQHN"), (axes[0, 2], "MHN (rec-mse)")):
        chosen = runs.where(model=model)
        axis.set_title(("B: " if model == "SQHN" else "C: ") + model)
        if not chosen:
            axis.text(0.5, 0.5, "not yet", ha="center", va="center", transform=axis.transAxes, color="0.4")
            continue
        for number, (kind, label) in enumerate(KINDS.items()):
            band = chosen.mean(f"{kind}_mse_std")
            line(axis, chosen.t + 1, chosen.curve(f"{kind}_mse"), label, number, band)
        mark(axis, x=size)
        axis.set_ylabel(ERROR)
        axis.legend()
    for axis in axes[0]:
        axis.set_xlabel("pictures learned")
    axes[0, 0].legend()
    return figure


@drawing(
    "ac-e", "AC-E X-RECN",
    "Recognition by depth, from clean pictures and (not in the paper) from noisy ones. Dotted: capacity; dashes: "
    "always saying new.",
)  # fmt: skip
def recognition_by_depth(results: Results) -> Figure:
    figure, axes = panels(1, 2, width=3.8, height=2.9)
    for axis, experiment, heading in zip(axes[0], ("AC-E", "X-RECN"), ("clean", "noise 0.2")):
        runs = results.of(experiment)
        for number, model, run in by_model(runs):
            line(axis, run.t + 1, run.curve("accuracy"), model, number)
        mark(axis, x=runs.settings("size")[0], y=CHANCE)
        axis.set_title(heading)
        axis.set_xlabel("pictures learned")
    axes[0, 0].set_ylabel("recognition accuracy")
    outside(figure, axes[0, 0])
    return figure


# -- depth -----------------------------------------------------------------------------------------------------------


@drawing(
    "ac-a", "AC-B",
    "The trees that are compared, on CIFAR-10: the patches that the nodes of level 1 see, and the nodes of every "
    "level up to the memory node.",
)  # fmt: skip
def architectures(results: Results) -> Figure:
    runs = results.of("AC-B", set="cifar10")
    figure, axes = panels(1, len(DEPTHS), width=3.2, height=1.9)
    for axis, model in zip(axes[0], DEPTHS):
        below, corner = 32, 0.0
        for kernel in (*runs.of("AC-B", model=model).records[0]["settings"]["memory"]["kernels"], None):
            nodes = below // (kernel or below)
            edges = np.linspace(0, 1, nodes + 1)
            axis.hlines(edges, corner, corner + 1, color="black", linewidth=0.6)
            axis.vlines(corner + edges, 0, 1, color="black", linewidth=0.6)
            axis.text(corner + 0.5, -0.06, f"{nodes * nodes} node{'s' if nodes > 1 else ''}", ha="center", va="top")
            below, corner = nodes, corner + 1.3
        axis.set_title(model)
        axis.set_xlim(-0.1, 3.8)
        axis.set_ylim(-0.3, 1.05)
        axis.set_aspect("equal")
        axis.axis("off")
    return figure


@drawing(
    "ac-b", "AC-B",
    "Robustness by depth: share of memorized pictures recalled from noise and from behind rectangles of three fills.",
)  # fmt: skip
def robustness(results: Results) -> Figure:
    runs = results.of("AC-B")
    sets = runs.settings("set")
    kinds = ("noise", *FILLS)
    figure, axes = panels(len(sets), 4, width=2.7, height=2.2)
    for row, name in enumerate(sets):
        for column, kind in enumerate(kinds):
            axis = axes[row, column]
            for number, model, run in by_model(runs.where(set=name)):
                levels = [level for which, level in run.records[0]["settings"]["corruptions"] if which == kind]
                values = np.array([run.row(kind, "accuracy", level) for level in levels]).T
                line(axis, levels, values, model, number)
            axis.set_ylim(-0.03, 1.03)
            if row == 0:
                axis.set_title({"noise": "noise", "noise_fill": "noise rectangle"}.get(kind, f"{kind} rectangle"))
            if row == len(sets) - 1:
                axis.set_xlabel("standard deviation" if kind == "noise" else "share covered")
        axes[row, 0].set_ylabel(f"{title(name)}\n{RECALLED}")
    outside(figure, axes[0, 0])
    return figure


@drawing("ac-c", "AC-C", "The occlusions: a picture, and behind one rectangle in black, one color, and noise.")
def occlusions(results: Results) -> Figure:
    return grid([pictures_of(results.of("AC-C").pictures("given"))], [""], ["picture", "black", "color", "noise"])


@drawing(
    "ac-d", "AC-D",
    "Recall of all pictures so far (top; gray: the line of Theorem 2) and error on unseen pictures (bottom), by depth.",
)  # fmt: skip
def by_depth(results: Results) -> Figure:
    runs = results.of("AC-D")
    sizes = runs.settings("size")
    figure, axes = panels(2, len(sizes))
    for column, J in enumerate(sizes):
        for number, model, run in by_model(runs.where(size=J)):
            line(axes[0, column], run.t + 1, run.curve("accuracy"), model, number)
            line(axes[1, column], run.t + 1, run.curve("test_mse"), model, number)
        t = np.arange(1, run.t[-1] + 2)
        axes[0, column].plot(t, forgetting_bound(J, t), color="0.6", linewidth=3, zorder=0, label="Theorem 2")
        axes[0, column].set_title(f"J = {J}")
        axes[1, column].set_xlabel("pictures learned")
        axes[1, column].set_ylim(0, None)
        for row in (0, 1):
            mark(axes[row, column], x=J)
    axes[0, 0].set_ylabel(RECALLED)
    axes[1, 0].set_ylabel(f"{ERROR}, unseen")
    outside(figure, axes[0, -1])
    return figure


# -- energy, ablations, growth, theorem ------------------------------------------------------------------------------


@drawing(
    "s-en", "S-EN",
    "Energy of random states, of bottom-up states, after one sweep up and down, after three, and the true maximum: "
    "learned pictures at capacity, five times past it, and unseen pictures.",
)  # fmt: skip
def energy(results: Results) -> Figure:
    cells = energy_cells(results)
    figure, axes = panels(1, 1, width=6.0, height=2.9)
    names = {
        "random": "random",
        "feedforward": "up",
        "paper": "up and down",
        "repeated": "three times",
        "exact": "maximum",
    }
    bars(
        axes[0, 0],
        ["at capacity", "5 x past capacity", "unseen"],
        {label: [cell[measure] for cell in cells.values()] for measure, label in names.items()},
    )
    axes[0, 0].set_ylabel("energy")
    axes[0, 0].set_ylim(0, 1.25)
    axes[0, 0].legend(ncols=5, loc="upper center")
    return figure


@drawing(
    "s-abl", "S-ABL",
    "Ablations on a stream of classes: recall of all pictures so far and its error, and their means over the stream. "
    "-Dir: constant growth threshold; -lrDecay: constant step; -Grw: no growth; -Avg: no averaging; +OvWr: overwrite.",
)  # fmt: skip
def ablations(results: Results) -> Figure:
    runs = results.of("S-ABL")
    figure, axes = panels(2, 2, width=3.8, height=2.5)
    for row, (curve, label) in enumerate((("accuracy", RECALLED), ("mse", ERROR))):
        means = {}
        for number, model, run in by_model(runs):
            line(axes[row, 0], run.t + 1, run.curve(curve), model, number)
            means[model] = [run.curve(curve).mean(axis=1)]
        mark(axes[row, 0], x=runs.settings("size")[0])
        axes[row, 0].set_ylabel(label)
        bars(axes[row, 1], [""], means)
        axes[row, 1].set_ylabel(f"cumulative {'error' if row else 'recall'}")
    axes[1, 0].set_xlabel("pictures learned")
    axes[0, 0].legend(ncols=2)
    axes[0, 1].legend(ncols=2)
    axes[0, 1].set_ylim(0, 0.75)
    return figure


@drawing(
    "s-emg", "S-EMG",
    "Growth and plasticity: neurons grown, and the mean step that a neuron's next sample would take, level by level "
    "(3 is the memory node; means over the nodes of a level).",
)  # fmt: skip
def emergence(results: Results) -> Figure:
    run = results.of("S-EMG")
    figure, axes = panels(1, 2, width=3.8, height=2.7)
    for axis, curve, label in zip(axes[0], ("neurons", "step"), ("neurons grown", "mean step size")):
        values = run.curve(curve)
        for level in range(values.shape[2]):
            line(axis, run.t + 1, values[:, :, level], f"level {level + 1}", level)
        axis.set_ylabel(label)
        axis.set_xlabel("pictures learned")
    axes[0, 0].legend()
    return figure


COLUMNS = ["clean", "noise", "black", "color", "noise fill", "dropout", "right mask"]


def example_figure(experiment: str, caption: str) -> None:
    @drawing(experiment.lower(), experiment, caption)
    def shown(results: Results) -> Figure:
        runs = {model: results.of(experiment, model=model) for model in DEPTHS}
        rows = [pictures_of(runs[DEPTHS[0]].pictures("given"))]
        rows += [pictures_of(run.pictures("found")) for run in runs.values()]
        return grid(rows, ["given", *DEPTHS], COLUMNS)


example_figure("S-EXM", "Moderate corruption: what is given (gray: missing) and what each memory recalls.")
example_figure("S-EXH", "High corruption: what is given (gray: missing) and what each memory recalls.")


@drawing(
    "th2", "TH2",
    "Theorem 2 as an urn: memories that no later picture was averaged into, simulated and expected, J (1 - 1/J)^t, and "
    "the limit J exp(-t/J) that the paper draws.",
)  # fmt: skip
def urn(results: Results) -> Figure:
    run = results.of("TH2")
    figure, axes = panels(1, 1, width=4.6, height=2.7)
    J = run.settings("size")[0]
    line(axes[0, 0], run.t, run.curve("left"), "simulated", 0)
    line(axes[0, 0], run.t, run.curve("expected")[:1], "expected", 1)
    axes[0, 0].plot(run.t, J * np.exp(-run.t / J), color="0.6", linewidth=3, zorder=0, label="limit")
    axes[0, 0].set_xlabel("pictures past capacity")
    axes[0, 0].set_ylabel("memories untouched")
    axes[0, 0].legend()
    return figure
