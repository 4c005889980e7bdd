"""The style of figures, and the plots that several of them are made of.

A model has the same color, marker and dash in all figures. The colors can be told apart without color vision (Okabe and
Ito).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.paper.experiments.results import Results, Values, spread

if TYPE_CHECKING:  # matplotlib is imported when a figure is drawn
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


RC_PARAMS: dict[Any, Any] = {
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

LEGEND_WIDTH = 1.5  # inches for one entry of a legend
CHANCE = 2 / 3  # the recognition accuracy of always answering "new"
LEARNED = "images learned"
RECALLED = "share recalled"
ERROR = "mean squared error"

BLUE, RED, GREEN, PINK, YELLOW, SKY, BLACK, GRAY = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#888888",
)  # fmt: skip
DOTS, LONG, MIXED = (0, (1, 1)), (0, (6, 2)), (0, (5, 1, 1, 1))

STYLES: dict[str, tuple[str, str, Any, str]] = {  # color, marker, dash, hatch
    "SQHN": (BLUE, "o", "-", ""),
    "SQHN L1": (BLUE, "o", "-", ""),
    "SQHN L1, overwrite": (BLUE, "v", ":", "--"),
    "SQHN L2": (GREEN, "s", "--", "//"),
    "SQHN L3": (RED, "D", "-.", ".."),
    "SQHN L3, noise first": (RED, "v", ":", "--"),
    "SQHN L3, exact": (YELLOW, "<", LONG, "||"),
    "SQHN L1, evidence": (BLACK, "o", "-", "OO"),
    "SQHN L3, evidence": (SKY, "D", "-", "++"),
    "MHN": (PINK, "X", ":", "oo"),
    "MHN-Manhtn": (PINK, "^", "--", "\\\\"),
    "SQHN+": (SKY, "P", "-", "xx"),
    "SQHN(mse)": (SKY, "P", "--", "xx"),
    "MHN-SGD": (PINK, "^", "-", "\\\\"),
    "MHN-Adam": (YELLOW, "v", "--", "++"),
    "MHN-EWC++": (BLACK, "X", ":", "oo"),
    "MHN-ER": (GREEN, "<", MIXED, "||"),
    "MHN (rec-act)": (PINK, "^", "-", "\\\\"),
    "MHN (rec-mse)": (YELLOW, "v", "--", "++"),
    "NN": (GRAY, "h", DOTS, "**"),
    "NN (first out)": (GRAY, "h", DOTS, "**"),
    "NN (reservoir)": (GRAY, "*", LONG, "OO"),
    "-Dir": (GREEN, "s", "--", "//"),
    "-lrDecay": (RED, "D", "-.", ".."),
    "-lrDecay .1": (RED, "<", ":", ".."),
    "-lrDecay .9": (RED, ">", DOTS, ".."),
    "-Grw": (PINK, "^", "-", "\\\\"),
    "-Avg": (YELLOW, "v", "--", "++"),
    "+OvWr": (BLACK, "X", ":", "oo"),
    "shared 2 x 2": (BLUE, "P", "-", "xx"),
    "shared 4 x 4": (GREEN, "P", "--", "//"),
    "bytes": (GRAY, "h", DOTS, "**"),
    "bytes, evidence": (BLACK, "h", DOTS, "**"),
    "reservoir": (GRAY, "*", LONG, "OO"),
    "reservoir, evidence": (BLACK, "*", LONG, "OO"),
    "half the side": (PINK, "s", "--", "//"),
    "a quarter of the side": (PINK, "v", ":", ".."),
    "JPEG": (YELLOW, "v", "--", "++"),
    "JPEG, no headers": (YELLOW, "X", "-", "oo"),
    "PQ, 4 bits": (SKY, "<", MIXED, "||"),
    "PQ, 8 bits": (SKY, ">", DOTS, ".."),
}
"""In drawing order. Models in one figure never share both color and marker."""

SERIES = [(BLUE, "o", "-", ""), (GREEN, "s", "--", "//"), (RED, "D", "-.", ".."), (PINK, "^", ":", "\\\\"),
          (YELLOW, "v", LONG, "++"), (SKY, "P", DOTS, "xx"), (BLACK, "X", MIXED, "oo")]  # fmt: skip
"""Styles of other series, by number."""

OWN_STYLES = [("#8C510A", "p", "-", ".."), ("#5E3C99", "H", "--", "xx"), ("#01665E", "d", "-.", "//"),
              ("#7F7F00", "8", LONG, "++"), ("#7A0177", "1", ":", "oo")]  # fmt: skip
"""Styles of memories of the user, whose labels are MODULE:NAME, in the order in which they are drawn first."""
_own: dict[str, int] = {}

TITLES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tiny_imagenet": "Tiny ImageNet",
    "caltech256": "Caltech",
    "mnist": "MNIST",
    "emnist": "EMNIST",
    "fashion_mnist": "Fashion-MNIST",
    "svhn": "SVHN",
    "watch": "watch sensors",
}


def title(name: str) -> str:
    """The display name of a data set."""
    return TITLES.get(name, name)


def is_own_label(label: str) -> bool:
    """Whether a label is that of a memory of the user, MODULE:NAME."""
    return ":" in label


def full_style(label: str, number: int = 0) -> tuple[str, str, Any, str]:
    if is_own_label(label):
        return OWN_STYLES[_own.setdefault(label, len(_own)) % len(OWN_STYLES)]
    return STYLES.get(label) or SERIES[number % len(SERIES)]


def style_of(label: str, number: int = 0) -> dict[str, Any]:
    """Color, marker and dash of a model, or of another series by its number."""
    color, marker, dash, _ = full_style(label, number)
    return {"color": color, "marker": marker, "linestyle": dash}


def by_model(runs: Results) -> Iterator[tuple[str, Results]]:
    """The runs of every model in drawing order: SQHNs first, nearest neighbors and memories of the user last."""
    order = list(STYLES)
    models = sorted(runs.settings("model"), key=lambda model: order.index(model) if model in order else len(order))
    for model in models:
        yield model, runs.where(model=model)


def panels(rows: int, columns: int, width: float = 3.0, height: float = 2.4) -> tuple[Figure, NDArray[Any]]:
    """A figure and its axes, (rows, columns)."""
    figure = _figure(columns * width, rows * height)
    return figure, np.asarray(figure.subplots(rows, columns, squeeze=False))


def _figure(width: float, height: float) -> Figure:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update(RC_PARAMS)
    return Figure(figsize=(width, height))


def line(
    axis: Axes, x: Any, values: NDArray[Any], label: str, number: int = 0, band: NDArray[Any] | None = None
) -> None:
    """The mean of curves (seeds, points) with a band of one standard deviation over seeds, or the given band."""
    mean = values.mean(axis=0)
    deviation = spread(values) if band is None else band
    every = max(1, len(mean) // 7)
    start = (list(STYLES).index(label) if label in STYLES else number) % every
    style = style_of(label, number)
    axis.plot(x, mean, label=label, markersize=4, linewidth=1.4, markevery=(start, every), **style)
    axis.fill_between(x, mean - deviation, mean + deviation, color=style["color"], alpha=0.2, linewidth=0)


def bars(
    axis: Axes, groups: Sequence[str], series: Mapping[str, Sequence[NDArray[Any]]], medians: bool = False
) -> None:
    """Means over seeds with their standard deviation, side by side; or medians with the range of values.

    Each bar of a series without a name has the style of its group.
    """
    width = 0.8 / max(1, len(series))
    for number, (label, values) in enumerate(series.items()):
        x = np.arange(len(groups)) + (number - (len(series) - 1) / 2) * width
        some = [np.asarray(value) if len(value) else np.array([np.nan]) for value in values]
        center = np.array([np.median(value) if medians else value.mean() for value in some])
        extremes = np.array([[value.min(), value.max()] for value in some]).T
        errors = np.abs(extremes - center) if medians else np.array([float(spread(value)) for value in some])
        styles = [full_style(label or group, number) for group in groups]
        color, hatch = [style[0] for style in styles], [style[3] for style in styles]
        axis.bar(
            x, center, width * 0.92, yerr=errors, label=label or None, color=color, hatch=hatch, edgecolor="white",
            linewidth=0.5, error_kw={"linewidth": 1},
        )  # fmt: skip
    axis.set_xticks(np.arange(len(groups)), groups)
    axis.grid(axis="x", visible=False)


def mark(axis: Axes, x: float | None = None, y: float | None = None, label: str | None = None) -> None:
    """A gray reference line."""
    if x is not None:
        axis.axvline(x, color="0.5", linewidth=1, linestyle=":", label=label)
    if y is not None:
        axis.axhline(y, color="0.5", linewidth=1, linestyle="--", label=label)


def legend_above(figure: Figure, axis: Axes) -> None:
    """One legend for all panels, above them."""
    found = dict(zip(*reversed(axis.get_legend_handles_labels())))
    fitting = max(1, int(figure.get_figwidth() / LEGEND_WIDTH))
    figure.legend(list(found.values()), list(found), loc="outside upper center", ncols=min(5, fitting, len(found)))


def log_log(axis: Axes) -> None:
    """Logarithmic scales with plain numbers."""
    axis.set_xscale("log")
    axis.set_yscale("log")
    for scale in (axis.xaxis, axis.yaxis):
        plain_numbers(scale)


def plain_numbers(scale: Axis) -> None:
    """Plain numbers along a logarithmic scale."""
    from matplotlib.ticker import LogLocator, NullFormatter

    scale.set_major_locator(LogLocator(subs=(1, 2, 5)))
    scale.set_major_formatter("{x:g}")
    scale.set_minor_formatter(NullFormatter())


def corruption_panels(
    runs: Results,
    kinds: Mapping[str, str],
    points: Callable[[Results, str], tuple[list[float], Values]],
    label: str,
) -> Figure:
    """A row of panels per data set, a column per kind of corruption; `kinds` maps headings to kinds.

    points: the levels of a kind, and the values (seeds, levels) of some runs there.
    """
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
    legend_above(figure, axes[0, 0])
    return figure


def image_grid(
    rows: Sequence[NDArray[np.uint8]], labels: Sequence[str], headings: Sequence[str] = (), size: float = 1.0
) -> Figure:
    """Rows of images with a label before each row; size: of an image in inches."""
    columns = len(rows[0])
    figure = _figure(size * columns + 1.2, size * len(rows) + (0.3 if headings else 0))
    axes = np.asarray(figure.subplots(len(rows), columns, squeeze=False))
    for r, row in enumerate(rows):
        for c, image in enumerate(row):
            axis = axes[r, c]
            axis.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.grid(visible=False)
            for spine in axis.spines.values():
                spine.set_visible(False)
            if r == 0 and headings:
                axis.set_title(headings[c], fontsize=8)
        axes[r, 0].set_ylabel(labels[r], rotation=0, ha="right", va="center")
    return figure
