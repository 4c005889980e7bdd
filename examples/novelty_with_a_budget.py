"""Report new places in a stream so that at most a tenth of the reports are wrong: prints the tables of docs/novelty.md.

A camera sees places that it knows, with noise; one image in ten shows a new place. `recognize` gives every image a
p-value, and a procedure of the package online-fdr decides which images to report. With drift, the noise grows. A table
cell has the share of wrong reports, its largest value in a single stream, and the share of new places that are found.

python examples/novelty_with_a_budget.py [FIGURE]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from online_fdr.p_values import BatchBH, LordPlusPlus, Saffron

from sqhn import SQHN
from sqhn.data import photos

Images = NDArray[np.float32]
Flags = NDArray[np.bool_]
Runs = list[tuple[Flags, Flags]]  # for every seed: which images show a new place, and which were reported

SEEDS, STEPS, BATCH, KNOWN = 20, 5000, 100, 300
NEW, BUDGET = 0.1, 0.1  # the share of new places, and the largest acceptable share of wrong reports
NOISE, LATER = 0.05, 0.06  # the standard deviation of the noise, and its value at the end of a stream with drift

PROCEDURES: dict[str, Callable[[], Callable[[list[float]], list[bool]]]] = {
    "p at most 0.1": lambda: lambda p: [one <= BUDGET for one in p],
    "BatchBH": lambda: BatchBH(BUDGET).test_batch,
    "SAFFRON": lambda: one_by_one(Saffron(BUDGET, wealth=BUDGET / 2, lambda_=0.5)),
    "LORD++": lambda: one_by_one(LordPlusPlus(BUDGET, wealth=BUDGET / 2)),
}
REMEDIES = ("calibrated once", "all images", "not reported", "reviewed")


def one_by_one(procedure: Any) -> Callable[[list[float]], list[bool]]:
    """A procedure for single p-values, called with batches."""
    return lambda p: [procedure.test_one(one) for one in p]


def stream(
    seed: int, samples: int, names: Iterable[str], later: float = NOISE, remedy: str = "calibrated once"
) -> tuple[Flags, dict[str, Flags]]:
    """Which images show a new place, and which of them each procedure reports.

    samples: the number of old images to calibrate with; after every batch again, unless remedy is "calibrated once".
    remedy: which images to calibrate with: the latest "all images", or those that were "not reported", or "reviewed",
        those that were not reported or whose report turned out to be wrong.
    """
    rng = np.random.default_rng(seed)
    x = photos(32).astype(np.float32) / np.float32(255)
    x = rng.permutation(x[x.std(axis=(1, 2, 3)) > 0.15])
    known, unknown = x[:KNOWN], x[KNOWN:]

    def seen(places: Images, count: int, noise: float) -> Images:
        views = places[rng.integers(0, len(places), count)]
        return np.asarray(views + np.float32(noise) * rng.standard_normal(views.shape, np.float32))

    memory = SQHN((32, 32, 3), capacity=KNOWN)
    memory.learn(known)
    window = seen(known, samples, NOISE)
    memory.calibrate(old=window, error=BUDGET)
    new = rng.random(STEPS) < NEW
    tests = {name: PROCEDURES[name]() for name in names}
    reported: dict[str, list[bool]] = {name: [] for name in names}
    for start in range(0, STEPS, BATCH):
        noise, here = NOISE + (later - NOISE) * start / STEPS, new[start : start + BATCH]
        batch = seen(known, BATCH, noise)
        batch[here] = seen(unknown, int(here.sum()), noise)
        p = memory.recognize(batch).p.tolist()
        for name, test in tests.items():
            reported[name] += test(p)
        if remedy != "calibrated once":
            (mine,) = reported.values()
            report = np.array(mine[start:])
            good = {"all images": report | True, "not reported": ~report, "reviewed": ~(report & here)}[remedy]
            window = np.concatenate([window, batch[good]])[-samples:]
            memory.calibrate(old=window, error=BUDGET)
    return new, {name: np.array(flags, bool) for name, flags in reported.items()}


def cell(runs: Runs) -> tuple[float, float, float]:
    """The mean and the largest share of wrong reports, and the mean share of new places that were found."""
    wrong = [(reported & ~new).sum() / max(1, reported.sum()) for new, reported in runs]
    return float(np.mean(wrong)), float(np.max(wrong)), float(np.mean([reported[new].mean() for new, reported in runs]))


def table(title: str, columns: Iterable[str], rows: dict[str, list[Runs]]) -> str:
    """A table of cells in Markdown."""
    columns = [title, *columns]
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for name, cells in rows.items():
        lines.append(f"| {name} | {' | '.join('{:.2f} ({:.2f}), {:.2f}'.format(*cell(runs)) for runs in cells)} |")
    return "\n".join(lines) + "\n"


def draw(path: str, runs: dict[str, Runs]) -> None:
    """Draw the share of wrong reports along the stream, over all seeds, in windows of 1,000 images."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    steps = np.arange(1000, STEPS + 1, BATCH)
    for name, streams in runs.items():
        new, reported = (np.array(flags) for flags in zip(*streams))
        totals = np.cumsum([(reported & ~new).sum(axis=0), reported.sum(axis=0)], axis=1)
        totals = np.pad(totals, ((0, 0), (1, 0)))
        wrong, every = totals[:, steps] - totals[:, steps - 1000]
        axes.plot(steps, wrong / np.maximum(1, every), label=name)
    axes.axhline(BUDGET, color="0.5", ls=":", label="budget")
    axes.set(xlabel="image", ylabel="share of wrong reports", ylim=(0, None))
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=100)


def main(figure: str | None = None, seeds: int = SEEDS) -> dict[str, tuple[float, float, float]]:
    """Print both tables; return the cells of the second."""
    sizes = (300, 1000, 5000)
    first: dict[str, list[Runs]] = {name: [[] for _ in sizes] for name in PROCEDURES}
    for column, samples in enumerate(sizes):
        for seed in range(seeds):
            new, reported = stream(seed, samples, PROCEDURES)
            for name, flags in reported.items():
                first[name][column].append((new, flags))
    print(table("no drift", [f"{samples:,} samples" for samples in sizes], first), flush=True)
    second: dict[str, list[Runs]] = {remedy: [] for remedy in REMEDIES}
    for remedy in REMEDIES:
        for samples in (1000, 2000):
            runs = [stream(seed, samples, ["BatchBH"], LATER, remedy) for seed in range(seeds)]
            second[remedy].append([(new, reported["BatchBH"]) for new, reported in runs])
    print(table("drift", ["1,000 samples", "2,000 samples"], second), flush=True)
    if figure:
        lines = {"no drift": first["BatchBH"][1]} | {f"drift, {remedy}": runs[0] for remedy, runs in second.items()}
        draw(figure, lines)
    return {remedy: cell(runs[0]) for remedy, runs in second.items()}


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else None)
