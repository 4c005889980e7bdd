"""Table 1: images are stored all at once and recalled from noise, or from a part of their pixels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sqhn.data.corruptions import CORRUPTIONS
from sqhn.data.streams import iid
from sqhn.paper.experiments.case import DEFAULT, Case, Experiment, Images, Reading, generator, load_split
from sqhn.paper.experiments.claims import Measured, above, at_least, at_most, below, between
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.models import GPCN, MHN, BayesPCN, GradInfMHN, ManhattanMHN, Nearest, Spec, Tree
from sqhn.paper.experiments.plots import panels, title
from sqhn.paper.experiments.results import Results, Values
from sqhn.paper.metrics import recall_accuracy, recall_error
from sqhn.protocol import Memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FAMILY = Family()
DEPTHS = {"L1": "SQHN L1", "L2": "SQHN L2", "L3": "SQHN L3"}
SIDE = {"cifar10": 32, "cifar100": 32, "tiny_imagenet": 64, "caltech256": 128}


# -- experiments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Loaded(Case):
    """Store images all at once, and recall every one of them from every corruption.

    corruptions: kinds and levels. threshold: the largest error at which an image counts as recalled. shared: the shape
    of a corruption is drawn once for all images.
    """

    split: str
    length: int
    corruptions: tuple[tuple[str, float], ...]
    threshold: float = 0.01
    shared: bool = True

    def run(self, seed: int, device: str) -> dict[str, Any]:
        stored = iid(load_split(self.data[0], self.split)[0], self.length, generator(seed, "data"))
        training = Training(math.prod(stored.shape[1:])) if isinstance(self.memory, GPCN) else None
        memory = store_all(self, stored, seed, device, **({"progress": training} if training else {}))
        rows = []
        for kind, level in self.corruptions:
            x, observed = CORRUPTIONS[kind](stored, level, generator(seed, kind, level), shared=self.shared)
            recalled = memory.recall(x, observed).x
            error = recall_error(recalled, stored)
            row = {"kind": kind, "level": level, "accuracy": recall_accuracy(error, self.threshold)}
            row["mse"] = row["mse_all"] = float(error.mean())
            if observed is not None:
                row["mse"] = float(recall_error(recalled, stored, ~observed).mean())
                row["mse_visible"] = float(recall_error(recalled, stored, observed).mean())
                row["visible"] = float(observed.mean())
            rows.append(row)
        trained = {"epochs": len(training.energy), "energy": training.energy[::RECORDED_EPOCHS]} if training else {}
        return {"stored": len(stored), "rows": rows, **trained}


RECORDED_EPOCHS = 20
"""The energy of training is recorded at every epoch that is a multiple of this."""
LEAST_GAIN, GAIN_EPOCHS = 0.01, 100
"""Training stops when the energy falls by less than this many nats per pixel over this many epochs."""


@dataclass
class Training:
    """Records the energy of a model in training, and stops the training when the energy is flat."""

    pixels: int
    energy: list[float] = field(default_factory=list)

    def __call__(self, epoch: int, energy: float) -> bool:
        self.energy.append(round(energy, 1))
        if epoch < 2 * GAIN_EPOCHS:
            return False
        before, now = np.mean(self.energy[-2 * GAIN_EPOCHS : -GAIN_EPOCHS]), np.mean(self.energy[-GAIN_EPOCHS:])
        return bool(before - now < LEAST_GAIN * self.pixels)


def store_all(case: Case, stored: Images, seed: int, device: str = "cpu", **options: Any) -> Memory:
    """A model that has stored a batch: an SQHN of exactly that capacity, or a baseline that has learned it."""
    if isinstance(case.memory, Tree):
        network = replace(case.memory, capacity=len(stored)).network(stored.shape[1:])
        network.memorize(stored)
        return network
    memory: Memory = case.build(stored.shape[1:], seed, device)
    memory.learn(stored, **options)
    return memory


def kernels_of(name: str, wide: bool = False) -> dict[str, tuple[int, ...]]:
    """The kernels below the memory node by depth: for 32 x 32 pixels (), (4) or if wide (8), and (2, 4)."""
    side = SIDE[name]
    return {"SQHN L1": (), "SQHN L2": (side // (4 if wide else 8),), "SQHN L3": (side // 16, 4)}


BAYES = BayesPCN(width=1024, recall_steps=8_000)
GPCN_OFFLINE = "GPCN (offline)"
SIGMA = 0.01  # the standard deviation of all values of predictive coding
PREDICTIVE: dict[str, dict[str, Spec]] = {
    "T1-MOD": {
        GPCN_OFFLINE: GPCN(width=1024, epochs=4000, recall_steps=8_000),
        "BayesPCN": BAYES,
        "BayesPCN (forget)": replace(BAYES, forget=0.001, forget_every=64),
    },
    "T1-HIGH": {"BayesPCN": BAYES},
}
"""Recall takes up to 16 times the published 500 steps, which do not converge with so many images stored."""


def storage_cases(experiment: str, length: int, sigma: float, share: float, reading: Reading) -> Iterator[Case]:
    corruptions = (("noise", sigma), ("dropout", share), ("mask", share))
    for name, split in (("cifar10", "train"), ("tiny_imagenet", "val")):
        models: dict[str, Spec] = {model: Tree(length, kernels) for model, kernels in kernels_of(name).items()}
        models["MHN"] = MHN(range="signed" if reading == DEFAULT else "unit")
        models |= {"MHN-Manhtn": ManhattanMHN(), "MHN-GradInf": GradInfMHN(), "NN": Nearest(length)}
        for model, memory in (models | PREDICTIVE[experiment]).items():
            heavy = model in PREDICTIVE[experiment]
            yield Loaded(
                set=name, data=(name,), model=model, size=length, memory=memory, split=split, length=length,
                corruptions=corruptions, seeds=2 if heavy else 5, heavy=heavy, quick=model in DEPTHS.values(),
            )  # fmt: skip


FAMILY.experiments += [
    Experiment(
        "T1-MOD", "Table 1, moderate corruption",
        "Do SQHNs recall stored images from noisy or partial ones as well as the best models?",
        lambda reading: storage_cases("T1-MOD", 1024, 0.2, 0.25, reading), {"length": 8, "size": 8, "capacity": 8},
    ),
    Experiment(
        "T1-HIGH", "Table 1, high corruption", "The same with most of each image lost.",
        lambda reading: storage_cases("T1-HIGH", 128, 0.8, 0.75, reading), {"length": 2, "size": 2, "capacity": 2},
    ),
]  # fmt: skip


# -- published numbers -------------------------------------------------------------------------------------------------

CORRUPTED = ("noise", "dropout", "mask")
DATA_SETS = ("cifar10", "tiny_imagenet")
COLUMNS = [(kind, name) for kind in CORRUPTED for name in DATA_SETS]
"""The corruption and the data set of every column."""

PUBLISHED: dict[str, dict[str, list[str]]] = {
    "T1-MOD": {
        GPCN_OFFLINE: [".0121", ".0067", ".0001", ".0000", ".0009", ".0001"],
        "BayesPCN": [".0337", ".6606", ".0001", ".0000", ".0019", ".0000"],
        "BayesPCN (forget)": [".0188", ".0176", ".0019", ".0008", ".0465", ".0235"],
        "MHN": [".1457±.0097", ".0955±.0073", ".4512±.0558", ".4545±.0456", ".5538±.0149", ".6101±.0091"],
        "MHN-Manhtn": [".0000", ".0000", ".0000", ".0000", ".0020±.0028", ".0016±.0012"],
        "MHN-GradInf": [".0000", ".0000", ".0000", ".0000", ".0000", ".0001"],
        "SQHN L1": [".0000", ".0000", ".0000", ".0000", ".0000", ".0000"],
        "SQHN L2": [".0002±.0001", ".0000", ".0000", ".0002±.0002", ".0001", ".0008±.0002"],
        "SQHN L3": [".1076±.0022", ".0000", ".0000", ".0000", ".0000", ".0000"],
    },
    "T1-HIGH": {
        "BayesPCN": [".0755", ".0242", ".0000", ".0000", ".0006", ".0001"],
        "MHN-Manhtn": [".0000", ".0000", ".1840±.0368", ".1248±.0884", ".7644±.2844", ".7588±.2188"],
        "MHN-GradInf": [".0052", ".0000", ".3840", ".5630", ".3957", ".6378"],
        "SQHN L1": [".0000", ".0000", ".0000", ".0000", ".0000", ".0000"],
        "SQHN L2": [".0904±.0078", ".0002±.0004", ".0000", ".0000", ".0000", ".0008±.0006"],
        "SQHN L3": [".3324±.0056", ".0240±.0032", ".0000", ".0000", ".0000", ".0000"],
    },
}
"""The paper's table: mean squared errors in the range [-1, 1]."""


def published_number(experiment: str, model: str, kind: str, name: str) -> tuple[float, float]:
    """The number of a cell and its standard deviation; half a unit of the last digit where the paper gives none."""
    mean, _, deviation = PUBLISHED[experiment][model][COLUMNS.index((kind, name))].partition("±")
    return float(mean), float(deviation or 0.00005)


# -- claims ------------------------------------------------------------------------------------------------------------

TABLES = "T1-MOD T1-HIGH"
ZERO = 5e-5  # smaller errors are printed as .0000


def cell(results: Results, experiment: str, model: str, name: str, kind: str, measure: str = "mse") -> Values:
    """Errors in the range [-1, 1], for each seed; over the missing pixels only, where there are any."""
    return 4 * results.of(experiment, model=model, set=name).row(kind, measure)


def cells(results: Results, model: str, kinds: tuple[str, ...], experiments: str = TABLES) -> dict[str, Values]:
    return {
        f"{e} {name} {kind}": cell(results, e, model, name, kind)
        for e in experiments.split()
        for name in DATA_SETS
        for kind in kinds
    }


def published_metric(results: Results, experiment: str, model: str, name: str, kind: str) -> Values:
    """The error by the metric of the published code.

    With missing pixels it is the error of the visible ones: for dropout divided by the number of all pixels, for the
    mask by the number of visible ones. The row MHN, which that code did not produce, fits the error over all pixels.
    """
    if kind == "noise" or model == "MHN":
        return cell(results, experiment, model, name, kind, "mse_all")
    visible = cell(results, experiment, model, name, kind, "mse_visible")
    share = results.of(experiment, model=model, set=name).row(kind, "visible")
    return visible * share if kind == "dropout" else visible


def deviations(results: Results, experiment: str, model: str, kinds: tuple[str, ...]) -> dict[str, float]:
    """Distances from the published numbers in their standard deviations, by the published metric."""
    found = {}
    for kind in kinds:
        for name in DATA_SETS:
            mean, deviation = published_number(experiment, model, kind, name)
            ours = float(published_metric(results, experiment, model, name, kind).mean())
            found[f"{experiment} {name} {kind} {ours:.4f}"] = abs(ours - mean) / deviation
    return found


@FAMILY.claim("T1.1", TABLES, "SQHN L1 recalls without error in all 12 cells", ".0000", {"error": below(ZERO)})
def one_level_is_exact(results: Results) -> Measured:
    return {"error": cells(results, "SQHN L1", CORRUPTED)}


@FAMILY.claim(
    "T1.2", TABLES, "three levels fill in missing pixels without error, two nearly so", "L3 .0000, L2 at most .0008",
    {"error of L3": at_most(5e-4), "error of L2": at_most(1.5e-3)},
)  # fmt: skip
def missing_pixels_are_filled_in(results: Results) -> Measured:
    return {f"error of {d}": cells(results, DEPTHS[d], ("dropout", "mask")) for d in ("L3", "L2")}


def added_by_depth(results: Results, name: str) -> dict[str, float]:
    """The error under noise that each depth adds."""
    found: dict[str, float] = {}
    for e in TABLES.split():
        means = {depth: float(cell(results, e, model, name, "noise").mean()) for depth, model in DEPTHS.items()}
        found |= {f"{e} {b} - {a}": means[b] - means[a] for a, b in itertools.pairwise(means)}
    return found


@FAMILY.claim(
    "T1.3", TABLES, "CIFAR-10, noise: the deeper, the worse; L2 and L3 as published",
    "L2 .0002 / .0904, L3 .1076 / .3324",
    {
        "each depth adds": above(0),
        "L2 moderate": at_most(0.001).on_paper_data,
        "L3 moderate": between(0.09, 0.13).on_paper_data,
        "L2 high": between(0.07, 0.12).on_paper_data,
        "L3 high": between(0.29, 0.38).on_paper_data,
    },
)  # fmt: skip
def noise_hurts_deeper_trees(results: Results) -> Measured:
    return {"each depth adds": added_by_depth(results, "cifar10"), **noise_cells(results, "cifar10")}


def noise_cells(results: Results, name: str) -> dict[str, dict[str, Values]]:
    return {
        f"{depth} {level}": {"": cell(results, e, DEPTHS[depth], name, "noise")}
        for e, level in (("T1-MOD", "moderate"), ("T1-HIGH", "high"))
        for depth in ("L2", "L3")
    }


@FAMILY.claim(
    "T1.4", TABLES, "Tiny ImageNet, noise: smaller errors than on CIFAR-10 for L2 and L3, as published",
    "L2 .0000 / .0002, L3 .0000 / .0240",
    {
        "less than CIFAR-10": below(0),
        "L2 moderate": at_most(5e-4).on_paper_data,
        "L3 moderate": at_most(5e-4).on_paper_data,
        "L2 high": at_most(0.001).on_paper_data,
        "L3 high": between(0.01, 0.05).on_paper_data,
    },
)  # fmt: skip
def noise_hurts_less_on_large_images(results: Results) -> Measured:
    small = {
        f"{e} {depth}": cell(results, e, DEPTHS[depth], "tiny_imagenet", "noise").mean()
        - cell(results, e, DEPTHS[depth], "cifar10", "noise").mean()
        for e in TABLES.split()
        for depth in ("L2", "L3")
    }
    return {"less than CIFAR-10": small, **noise_cells(results, "tiny_imagenet")}


@FAMILY.claim(
    "T1.5", TABLES, "MHN-Manhtn: perfect under noise; with many pixels missing it fails, as published",
    "noise .0000; high: dropout .1840 .1248, mask .7644 .7588",
    {
        "noise": below(ZERO),
        "high, missing pixels": above(0.05),
        "standard deviations from the published number": at_most(2).on_paper_data,
    },
    quick=False,
)  # fmt: skip
def manhattan_mhn(results: Results) -> Measured:
    lost = ("dropout", "mask")
    return {
        "noise": cells(results, "MHN-Manhtn", ("noise",)),
        "high, missing pixels": cells(results, "MHN-Manhtn", lost, "T1-HIGH"),
        "standard deviations from the published number": deviations(results, "T1-HIGH", "MHN-Manhtn", lost),
    }


@FAMILY.claim(
    "T1.6", "T1-MOD", "MHN fails in every moderate cell, as published", ".0955 to .6101",
    {"error": above(0.05), "standard deviations from the published number": at_most(2).on_paper_data}, quick=False,
)  # fmt: skip
def mhn_fails(results: Results) -> Measured:
    return {
        "error": cells(results, "MHN", CORRUPTED, "T1-MOD"),
        "standard deviations from the published number": deviations(results, "T1-MOD", "MHN", CORRUPTED),
    }


@FAMILY.claim(
    "T1.7", TABLES, "no other model is without error in all cells of both tables", "only SQHN L1",
    {"largest error of a model": above(ZERO)}, quick=False,
)  # fmt: skip
def no_other_model_is_exact(results: Results) -> Measured:
    worst = {}
    for model in [model for model in PUBLISHED["T1-MOD"] if model not in DEPTHS.values()]:
        both = [e for e in TABLES.split() if model in PUBLISHED[e]]
        found = cells(results, model, CORRUPTED, " ".join(both))
        where = max(found, key=lambda key: float(found[key].mean()))
        worst[f"{model}, {where}"] = found[where]
    return {"largest error of a model": worst}


@FAMILY.claim(
    "T1.8", "T1-MOD", "predictive coding struggles with noise", "GPCN .0121 .0067, BayesPCN .0337 .6606",
    {"error under noise": above(0.005)}, quick=False,
)  # fmt: skip
def predictive_coding_under_noise(results: Results) -> Measured:
    models = PREDICTIVE["T1-MOD"]
    return {
        "error under noise": {
            f"{model} {name}": cell(results, "T1-MOD", model, name, "noise") for model in models for name in DATA_SETS
        }
    }


@FAMILY.claim(
    "T1.9", "T1-MOD", "GPCN and BayesPCN fill in missing pixels with a very low error in most cells",
    ".0000 to .0019 in 8 of 8", {"share of cells with an error of at most .005": above(0.5)}, quick=False,
    explanation=(
        "Only with enough steps for recall to converge: 500 steps from black pixels, as published, leave half of a "
        "mask black."
    ),
)  # fmt: skip
def predictive_coding_with_missing_pixels(results: Results) -> Measured:
    found: dict[str, float] = {}
    for model in (GPCN_OFFLINE, "BayesPCN"):
        errors = cells(results, model, ("dropout", "mask"), "T1-MOD")
        found[model] = float(np.mean([values.mean() <= 0.005 for values in errors.values()]))
    return {"share of cells with an error of at most .005": found}


@FAMILY.claim(
    "T1.10", TABLES, "MHN-GradInf: perfect under noise, good with a quarter of the pixels missing, fails with most",
    ".0000 to .0052; .0000 to .0001; .3840 to .6378",
    {"noise": at_most(0.0055), "moderate, missing pixels": at_most(0.005), "high, missing pixels": at_least(0.1)},
    quick=False,
    explanation=(
        "The row was produced by others, who did not clip noisy images to the range of pixels. Without clipping, "
        "strong noise leaves an error of .021 instead of .1, the same for any images, because it is the remainder of "
        "the noise itself. The moderate mask differs for another reason: the public code too gives .11 with 1,024 "
        "images, and .0000 with 16."
    ),
)  # fmt: skip
def grad_inf_mhn(results: Results) -> Measured:
    lost = ("dropout", "mask")
    return {
        "noise": cells(results, "MHN-GradInf", ("noise",)),
        "moderate, missing pixels": cells(results, "MHN-GradInf", lost, "T1-MOD"),
        "high, missing pixels": cells(results, "MHN-GradInf", lost, "T1-HIGH"),
    }


# -- figures -----------------------------------------------------------------------------------------------------------


@FAMILY.figure(
    "t1-energy", "T1-MOD",
    "GPCN in training: the energy per pixel after the descent of the hidden values, epoch by epoch and for each seed. "
    "Black dashes: the least possible energy, with no error anywhere.",
)  # fmt: skip
def training_energy(results: Results) -> Figure:
    runs = results.of("T1-MOD", model=GPCN_OFFLINE)
    sets = runs.settings("set")
    figure, axes = panels(1, len(sets), width=4.2, height=2.8)
    for axis, name in zip(axes[0], sets):
        for record in runs.of("T1-MOD", set=name).records:
            side, hidden = SIDE[name], 3 * record["settings"]["memory"]["width"]
            pixels = 3 * side**2
            energy = np.array(record["results"]["energy"]) / pixels
            least = (pixels + hidden) / pixels * math.log(2 * math.pi * SIGMA**2) / 2
            axis.plot(1 + RECORDED_EPOCHS * np.arange(len(energy)), energy, lw=1.2)
            axis.axhline(least, color="black", ls="--", lw=1)
        axis.set(xscale="log", title=title(name), xlabel="epochs", ylabel="energy / pixel")
        axis.set_yscale("symlog", linthresh=10)
    return figure
