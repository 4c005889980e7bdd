"""Recall from damage without a mask, and recognition of damaged samples: beyond the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sqhn.data.corruptions import CORRUPTIONS, DAMAGES
from sqhn.data.streams import unit
from sqhn.paper.experiments.case import (
    DEFAULT,
    Case,
    Experiment,
    Images,
    Job,
    Reading,
    decode_images,
    encode_images,
    generator,
    jobs_of,
    load_split,
    without_width,
)
from sqhn.paper.experiments.claims import Measured, above, at_least
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.models import MHN, AskedTree, ManhattanMHN, Nearest, SharedTree, Spec, Tree
from sqhn.paper.experiments.own import Own
from sqhn.paper.experiments.plots import (
    bars,
    by_model,
    corruption_panels,
    image_grid,
    is_own_label,
    legend_above,
    panels,
    style_of,
    title,
)
from sqhn.paper.experiments.results import Results, Values
from sqhn.paper.metrics import recall_accuracy, recall_error
from sqhn.protocol import Recalled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FAMILY = Family()
EVIDENCE_L1, EVIDENCE_L3 = "SQHN L1, evidence", "SQHN L3, evidence"
SHARED_2 = "shared 2 x 2"
PAPER_MODELS = ("SQHN L1", "SQHN L2", "SQHN L3", "SQHN L3, exact")
KERNELS: dict[str, tuple[Any, Any]] = {
    "cifar10": ((8,), (2, 4)),
    "tiny_imagenet": ((16,), (4, 4)),
    "caltech256": ((32,), (8, 4)),
    "mnist": ((7,), (2, 7)),
    "fashion_mnist": ((7,), (2, 7)),
    "watch": (((25,),), ((5,), (8,))),
}
"""The kernels below the memory node, for two levels and for three."""
RECORDED_RUN = ("cifar10", 0)
"""The set and the seed of which images are recorded."""
RECORDED_DAMAGES = (
    ("noise", 0.8), ("black", 0.75), ("color", 0.875), ("normal_fill", 0.75), ("salt_and_pepper", 0.6),
    ("rectangles", 1.5), ("blurred", 2.0), ("darker", 0.5),
)  # fmt: skip


# -- experiments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Damaged(Case):
    """Learn a stream; recall some of its samples, and as many new ones, from every kind of damage.

    Results per damage: found, the share of samples whose winner is the one of the paper's rule for the undamaged
    sample (for a memory of the user: whose recalled sample is nearer to the original than to other stored ones);
    accuracy, the share recalled with an error of at most `threshold`; auc, the probability that the score of an old
    sample is higher than that of a new one.
    """

    length: int
    questions: int = 100
    damages: tuple[tuple[str, float], ...] = DAMAGES
    threshold: float = 0.01

    def run(self, seed: int, device: str) -> dict[str, Any]:
        every = load_split(self.data[0], "train")[0]
        if len(every) <= self.length:
            raise ValueError(f"{self.data[0]} has {len(every)} samples; more than {self.length} are needed")
        chosen = generator(seed, "data").permutation(len(every))[: self.length + self.questions]
        stored, new = np.split(unit(every[chosen]), [self.length])
        memory = self.build(without_width(stored).shape[1:], seed, device)
        memory.learn(without_width(stored))
        tested = stored[np.sort(generator(seed, "asked").permutation(len(stored))[: self.questions])]
        is_found = self.judge(memory, without_width(stored), without_width(tested))
        rows, given, found = [], [], []
        for kind, level in (("noise", 0.0), *self.damages):
            old, _ = CORRUPTIONS[kind](tested, level, generator(seed, "old", kind, level))
            other, _ = CORRUPTIONS[kind](new, level, generator(seed, "new", kind, level))
            recalled, unknown = memory.recall(without_width(old)), memory.recall(without_width(other))
            error = recall_error(recalled.x, without_width(tested))
            rows.append({
                "kind": kind, "level": level, "found": float(np.mean(is_found(recalled))),
                "accuracy": recall_accuracy(error, self.threshold), "mse": float(error.mean()),
                "auc": auc(recalled.score, unknown.score),
            })  # fmt: skip
            if (kind, level) in RECORDED_DAMAGES and (self.set, seed) == RECORDED_RUN:
                given.append(old[0])
                found.append(recalled.x[0].reshape(old[0].shape))
        images = {"pictures": encode_images(given=given, found=found)} if given else {}
        return {"stored": len(stored), "rows": rows, **images}

    def judge(self, memory: Any, stored: Images, tested: Images) -> Callable[[Recalled], NDArray[np.bool_]]:
        """A function that tells which of the tested samples were found."""
        if isinstance(self.memory, Own):
            return lambda recalled: is_nearest(recalled.x, tested, stored)
        clean = getattr(memory, "memory", memory).recall(tested).index
        return lambda recalled: np.asarray(recalled.index == clean)


def is_nearest(x: Images, originals: Images, stored: Images) -> NDArray[np.bool_]:
    """Whether no stored sample is nearer to each recalled one than its original; a copy of the original is as near."""
    rows, own, others = (part.reshape(len(part), -1).astype(np.float64) for part in (x, originals, stored))
    least = (np.square(others).sum(axis=1) - 2 * rows @ others.T).min(axis=1) + np.square(rows).sum(axis=1)
    return np.asarray(np.square(rows - own).sum(axis=1) <= least + 1e-9 * rows.shape[1])


def auc(old: NDArray[Any], new: NDArray[Any]) -> float:
    """The probability that an old score is above a new one; ties count half."""
    gap = np.asarray(old, np.float64)[:, None] - np.asarray(new, np.float64)
    return float((gap > 0).mean() + (gap == 0).mean() / 2)


def models_of(name: str, size: int) -> dict[str, Spec]:
    two, three = KERNELS[name]
    return {
        "SQHN L1": Tree(size),
        "SQHN L2": Tree(size, two),
        "SQHN L3": Tree(size, three),
        "SQHN L3, exact": AskedTree(size, three, inference="exact"),
        EVIDENCE_L1: AskedTree(size),
        EVIDENCE_L3: AskedTree(size, three),
        "MHN": MHN(),
        "MHN-Manhtn": ManhattanMHN(),
        "NN": Nearest(size),
    }


def x_dmg(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    for name in KERNELS:
        models = models_of(name, 1000)
        if name == RECORDED_RUN[0]:
            models[SHARED_2] = SharedTree((2, 4), 256, 1000)
        for model, memory in models.items():
            yield Damaged(
                set=name, data=(name,), model=model, size=1000, memory=memory, length=1000,
                quick=name in ("cifar10", "watch") and not model.startswith("MHN"),
            )  # fmt: skip


def x_dmgp(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    for models, size, length in (
        (("SQHN L1", EVIDENCE_L1), 1000, 3000),
        (("SQHN L3", "SQHN L3, exact", EVIDENCE_L3), 600, 2000),
    ):
        for model in models:
            memory = models_of("cifar10", size)[model]
            yield Damaged(
                set="cifar10", data=("cifar10",), model=model, size=size, memory=memory, length=length, questions=150
            )


SMALLER = {"length": 10, "size": 10, "capacity": 10, "questions": 5}
FAMILY.experiments += [
    Experiment(
        "X-DMG", "Recall from damage",
        "How much is recalled from damage without a mask, and is old told from new?", x_dmg, SMALLER,
    ),
    Experiment(
        "X-DMGP", "The same past capacity", "How much does recall by evidence lose where neurons are averages?",
        x_dmgp, SMALLER,
    ),
]  # fmt: skip


# -- the benchmark for other memories ----------------------------------------------------------------------------------

COMPARED = ("SQHN L1", EVIDENCE_L1, EVIDENCE_L3, "NN")
"""The models beside which a memory of the user is shown."""


def benchmark_jobs(
    memories: Sequence[Own],
    data: str = "builtin",
    sets: Sequence[str] = ("cifar10",),
    seeds: int = 1,
    quick: bool = False,
) -> list[Job]:
    """The runs of X-DMG with these memories and those beside them; sets: of the paper, unless the data are a file."""
    models = {*COMPARED, *(one.source for one in memories)}
    jobs = jobs_of(FAMILY.experiments[0], (DEFAULT,), seeds=seeds, data=data, quick=quick, memories=memories)
    return [job for job in jobs if job.case.model in models and (data.endswith(".npz") or job.case.set in sets)]


def shares(results: Results, measure: str = "found") -> dict[tuple[str, float], dict[str, float]]:
    """A measure of every model, for each kind and level of damage: the mean over seeds and data sets."""
    runs = results.of("X-DMG")
    models = {model: run for some in (runs.own, runs.declared) for model, run in by_model(some)}
    return {
        (kind, level): {model: float(run.row(kind, measure, level).mean()) for model, run in models.items()}
        for kind, level in runs.records[0]["settings"]["damages"]
    }


def by_kind(found: Mapping[tuple[str, float], Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """The means of the shares over the levels of each kind of damage, and over all of them ("all")."""
    kinds: dict[str, list[Mapping[str, float]]] = {}
    for (kind, _), models in found.items():
        kinds.setdefault(kind, []).append(models)
    kinds["all"] = list(found.values())
    return {kind: {m: float(np.mean([of[m] for of in some])) for m in some[0]} for kind, some in kinds.items()}


def benchmark_figure(results: Results) -> Figure:
    """The share found under every kind and level of damage, one row each."""
    found = shares(results)
    figure, axes = panels(1, 1, width=7, height=8)
    axis, rows = axes[0, 0], np.arange(len(found))[::-1]
    for model in next(iter(found.values())):
        style = style_of(model) | {"linestyle": "none"}
        style |= {"zorder": 3} if is_own_label(model) else {"markerfacecolor": "none"}
        axis.plot([of[model] for of in found.values()], rows, label=model, markersize=7, **style)
    axis.set_yticks(rows, [f"{kind.replace('_', ' ')} {level:g}" for kind, level in found])
    axis.set_xlabel("share of stored samples found")
    axis.set_xlim(-0.02, 1.02)
    legend_above(figure, axis)
    return figure


# -- claims ------------------------------------------------------------------------------------------------------------


def over_damages(runs: Results, measure: str) -> Values:
    """The mean over all damages, for each seed."""
    damages = runs.records[0]["settings"]["damages"]
    return np.asarray(np.mean([runs.row(kind, measure, level) for kind, level in damages], axis=0))


def by_set(results: Results) -> Iterator[tuple[str, Results]]:
    yield from results.of("X-DMG").each("set")


@FAMILY.claim(
    "XD.1", "X-DMG", "recall by evidence finds more than every other model, over all kinds of damage", "-",
    {"ahead of the best other": above(0), "share found": None}, beyond=True,
)  # fmt: skip
def ahead_of_all(results: Results) -> Measured:
    ahead, level = {}, {}
    for name, runs in by_set(results):
        means = {model: over_damages(runs.of(model=model), "found") for model in (*PAPER_MODELS, "NN", EVIDENCE_L1)}
        means |= {m: over_damages(run, "found") for m in ("MHN", "MHN-Manhtn") if (run := runs.where(model=m))}
        others = [float(values.mean()) for model, values in means.items() if model != EVIDENCE_L1]
        level[name] = means[EVIDENCE_L1]
        ahead[name] = float(means[EVIDENCE_L1].mean()) - max(others)
    return {"ahead of the best other": ahead, "share found": level}


@FAMILY.claim(
    "XD.2", "X-DMG", "under no kind of damage does it find less than the paper's trees, one level and exact inference",
    "-",     {"ahead of the best of four": at_least(-0.02)}, beyond=True,
    explanation=(
        "By chance, single samples fit some of many small blocks. Where little else is left (15/16 of a large image "
        "replaced by noise, salt and pepper on nine pixels of ten, strong noise on digits), these chance matches "
        "outweigh the match of the whole image."
    ),
)  # fmt: skip
def ahead_under_every_damage(results: Results) -> Measured:
    found = {}
    for name, runs in by_set(results):
        for kind, level in runs.records[0]["settings"]["damages"]:
            rows = {m: float(runs.of(model=m).row(kind, "found", level).mean()) for m in (*PAPER_MODELS, EVIDENCE_L1)}
            found[f"{name} {kind} {level}"] = rows[EVIDENCE_L1] - max(rows[model] for model in PAPER_MODELS)
    return {"ahead of the best of four": found}


@FAMILY.claim(
    "XD.3", "X-DMG", "its score tells old from new better than theirs", "-",
    {"AUC ahead of the best of four": above(0), "AUC": None}, beyond=True,
)  # fmt: skip
def old_against_new(results: Results) -> Measured:
    ahead, level = {}, {}
    for name, runs in by_set(results):
        means = {model: over_damages(runs.of(model=model), "auc") for model in (*PAPER_MODELS, EVIDENCE_L1)}
        level[name] = means[EVIDENCE_L1]
        ahead[name] = float(means[EVIDENCE_L1].mean()) - max(float(means[model].mean()) for model in PAPER_MODELS)
    return {"AUC ahead of the best of four": ahead, "AUC": level}


WHOLE_IMAGE = (("noise", 0.0), ("blurred", 2.0), ("shifted", 1.0))


@FAMILY.claim(
    "XD.4", "X-DMGP", "past capacity, one level: it recalls as much from whole images as the paper's rule",
    "-", {"ahead on clean, blurred, shifted": at_least(-0.02), "ahead over all damage": above(0)}, beyond=True,
)  # fmt: skip
def whole_images_past_capacity(results: Results) -> Measured:
    paper, own = (results.of("X-DMGP", model=model) for model in ("SQHN L1", EVIDENCE_L1))
    return {
        "ahead on clean, blurred, shifted": {
            kind: float(own.row(kind, "found", level).mean() - paper.row(kind, "found", level).mean())
            for kind, level in WHOLE_IMAGE
        },
        "ahead over all damage": {"": float(over_damages(own, "found").mean() - over_damages(paper, "found").mean())},
    }


@FAMILY.claim(
    "XD.5", "X-DMGP", "past capacity, three levels: it recalls as much as the paper's rule", "-",
    {"ahead on clean": at_least(-0.01), "ahead over all damage": at_least(0)}, beyond=True,
)  # fmt: skip
def trees_past_capacity(results: Results) -> Measured:
    paper, own = (results.of("X-DMGP", model=model) for model in ("SQHN L3", EVIDENCE_L3))
    clean, damaged = (
        float(np.mean(measure(own)) - np.mean(measure(paper)))
        for measure in (lambda run: run.row("noise", "accuracy", 0.0), lambda run: over_damages(run, "accuracy"))
    )
    return {"ahead on clean": {"": clean}, "ahead over all damage": {"": damaged}}


# -- figures -----------------------------------------------------------------------------------------------------------

CURVES = {"noise": "noise", "black rectangle": "black", "color rectangle": "color", "noise rectangle": "normal_fill"}


@FAMILY.figure(
    "x-dmg", "X-DMG",
    "Share of stored samples found, from noise and from behind rectangles without a mask: the comparison of depths, "
    "with recall by evidence and other models.",
)  # fmt: skip
def share_found(results: Results) -> Figure:
    def points(run: Results, kind: str) -> tuple[list[float], Values]:
        levels = [level for which, level in run.records[0]["settings"]["damages"] if which == kind]
        clean = run.row("noise", "found", 0.0)
        return [0.0, *levels], np.array([clean, *(run.row(kind, "found", level) for level in levels)]).T

    return corruption_panels(results.of("X-DMG"), CURVES, points, "share found")


@FAMILY.figure(
    "x-dmg-mean", "X-DMG",
    "Over all kinds of damage: the share of stored samples found, and the probability that an old sample has a higher "
    "score than a new one (chance: one half).",
)  # fmt: skip
def found_and_auc(results: Results) -> Figure:
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
    legend_above(figure, axes[0, 0])
    return figure


def recalled_images(results: Results, models: Mapping[str, str]) -> Figure:
    """The damaged images and those that some models recalled."""
    runs = {label: results.of("X-DMG", set=RECORDED_RUN[0], model=model) for label, model in models.items()}
    rows = [decode_images(next(iter(runs.values())).images("given"))]
    rows += [decode_images(run.images("found")) for run in runs.values()]
    return image_grid(rows, ["given", *runs], [kind.replace("_", " ") for kind, _ in RECORDED_DAMAGES])


@FAMILY.figure(
    "x-dmg-wall", "X-DMG",
    "One stored image with every kind of damage, and what each model recalled. Shared: three levels, the first with "
    "one bank of 256 neurons for all patches of 2 x 2 pixels.",
)  # fmt: skip
def recalled_by_all(results: Results) -> Figure:
    return recalled_images(results, {model: model for model, _ in by_model(results.of("X-DMG", set=RECORDED_RUN[0]))})


@FAMILY.figure("x-dmg-short", "X-DMG", "The same for three models.")
def recalled_by_three(results: Results) -> Figure:
    return recalled_images(results, {"one level": "SQHN L1", "three levels": "SQHN L3", "evidence": EVIDENCE_L1})
