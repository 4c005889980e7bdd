"""A demonstration on built-in data: memorize pictures online, recall them from spoiled ones, tell old from new."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from sqhn.data import digits, photos
from sqhn.data.corruptions import Spoiled, black_occlusion, pixel_dropout, right_mask, white_noise
from sqhn.level import Level
from sqhn.network import SQHN

__all__ = ["demonstrate"]

STORED = 1000
GOOD = 0.01  # a picture counts as recalled if its mean squared error is at most this
Pictures = NDArray[np.float32]

CORRUPTIONS: dict[str, tuple[Callable[[Pictures, float, np.random.Generator], Spoiled], float]] = {
    "noise, std 0.2": (white_noise, 0.2),
    "black square, 25%": (black_occlusion, 0.25),
    "right half missing": (right_mask, 0.5),
    "75% pixels missing": (pixel_dropout, 0.75),
}

MEMORIES: dict[str, tuple[str, Callable[[], SQHN]]] = {
    "digits L1": ("digits", lambda: SQHN((28, 28), capacity=STORED)),
    "digits L2": ("digits", lambda: SQHN((28, 28), [Level(4, STORED), Level(capacity=STORED)])),
    "photos L1": ("photos", lambda: SQHN((32, 32, 3), capacity=STORED)),
    "photos L3": (
        "photos",
        lambda: SQHN((32, 32, 3), [Level(2, STORED), Level(4, STORED), Level(capacity=STORED)]),
    ),
}


def demonstrate(out: Path, console: Console) -> None:
    """Run it all; figures go to the console, a grid of pictures for each kind of data to the folder `out`."""
    data = {"digits": _unit(digits()[0]), "photos": _unit(photos(32))}
    columns: list[list[str]] = [["learned per second", "clean", *CORRUPTIONS, "old called old", "new called new"]]
    shown: dict[str, list[Pictures]] = {}
    for kind, build in track(MEMORIES.values(), "memories", console=console, transient=True):
        old, new = data[kind][:STORED], data[kind][STORED : STORED + 500]
        build().learn(old[:2])  # compile
        memory = build()
        start = time.perf_counter()
        memory.learn(old)
        rate = len(old) / (time.perf_counter() - start)
        cells, shown[kind] = _recall_all(memory, old)  # the deeper memory of each kind is shown
        called_old, called_new = np.mean(memory.recognize(old).old), 1 - np.mean(memory.recognize(new).old)
        columns.append([f"{rate:,.0f}", *cells, f"{called_old:.1%}", f"{called_new:.1%}"])
    table = Table(
        title=f"{STORED:,} pictures learned one at a time: share recalled, mean squared error",
        caption=f"L1 to L3: levels. Recalled: mean squared error at most {GOOD}.",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for heading in ("", *MEMORIES):
        table.add_column(heading, justify="right" if heading else "left")
    for row in zip(*columns):
        table.add_row(*row)
    out.mkdir(parents=True, exist_ok=True)
    labels = ["stored", *(label for name in CORRUPTIONS for label in (name, "recalled"))]
    paths = [_grid(out / f"recall_{kind}.png", labels, pictures) for kind, pictures in shown.items()]
    glance = [row for pictures in shown.values() for row in _at_a_glance(pictures)]
    paths.append(_grid(out / "recall.png", ["stored", "given", "recalled"] * len(shown), glance))
    Console().print(table)
    print("\n".join(f"pictures: {path}" for path in paths))


def _unit(x: NDArray[np.uint8]) -> Pictures:
    return x.astype(np.float32) / np.float32(255)


def _recall_all(memory: SQHN, stored: Pictures) -> tuple[list[str], list[Pictures]]:
    """A table cell for clean recall and each corruption, and rows of pictures: stored, then spoiled and recalled."""
    rng = np.random.default_rng(0)
    cells, rows = [], [stored[:10]]
    spoiled: list[Spoiled] = [(stored, None)]
    spoiled += [spoil(stored, level, rng) for spoil, level in CORRUPTIONS.values()]
    for x, observed in spoiled:
        recalled = memory.recall(x, observed).x
        error = np.square(recalled - stored).reshape(len(stored), -1).mean(axis=1)
        cells.append(f"{np.mean(error <= GOOD):.1%} {error.mean():.4f}".replace(" 0.", " ."))
        if x is not stored:
            rows += [x[:10] if observed is None else np.where(observed, x, np.float32(0.5))[:10], recalled[:10]]
    return cells, rows


def _at_a_glance(rows: list[Pictures]) -> list[Pictures]:
    """Three rows, stored, given and recalled, with three pictures for each corruption."""
    parts = [slice(first % 9, first % 9 + 3) for first in range(1, 1 + 3 * len(CORRUPTIONS), 3)]
    given, recalled = rows[1::2], rows[2::2]
    return [
        np.concatenate([rows[0][part] for part in parts]),
        np.concatenate([row[part] for row, part in zip(given, parts)]),
        np.concatenate([row[part] for row, part in zip(recalled, parts)]),
    ]


def _grid(path: Path, labels: list[str], rows: list[Pictures]) -> Path:
    """Pictures in rows, a label before each; returns the path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    columns = len(rows[0])
    figure, axes = plt.subplots(len(rows), columns, figsize=(1 + columns, len(rows) + 0.1))
    for r, (label, row) in enumerate(zip(labels, rows)):
        for c, picture in enumerate(row):
            axis: Any = axes[r][c]
            axis.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            for spine in axis.spines.values():
                spine.set_visible(False)
        axes[r][0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=11)
    left = 0.17 if max(map(len, labels)) > 10 else 0.08
    figure.subplots_adjust(left=left, right=0.995, top=0.995, bottom=0.005, wspace=0.04, hspace=0.06)
    figure.savefig(path, dpi=80 if columns > 10 else 110)
    plt.close(figure)
    return path
