"""Table 1: pictures are stored all at once and recalled from noise, and from a part of their pixels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sqhn.data.corruptions import CORRUPTIONS
from sqhn.data.streams import iid
from sqhn.paper.experiments.case import DEFAULT, Case, Experiment, Pictures, Reading, generator, pool
from sqhn.paper.experiments.claims import Measured, above, at_least, at_most, below, between
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.memories import GPCN, MHN, BayesPCN, GradInfMHN, ManhattanMHN, Nearest, Spec, Tree
from sqhn.paper.experiments.plots import panels, title
from sqhn.paper.experiments.results import Results, Values
from sqhn.paper.metrics import recall_accuracy, recall_error
from sqhn.protocol import Memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLUMNS", "DEPTHS", "FAMILY", "GPC", "PRINTED", "Loaded", "kernels_of", "loaded"]

FAMILY = Family()
DEPTHS = {"L1": "SQHN L1", "L2": "SQHN L2", "L3": "SQHN L3"}
SIDE = {"cifar10": 32, "cifar100": 32, "tiny_imagenet": 64, "caltech256": 128}


# -- what is run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Loaded(Case):
    """Store pictures all at once; recall every one of them from every corruption.

    corruptions: kinds and levels. threshold: of the error of a picture that counts as recalled. shared: what is random
    about the shape of a corruption is drawn once for all pictures.
    """

    split: str
    length: int
    corruptions: tuple[tuple[str, float], ...]
    threshold: float = 0.01
    shared: bool = True

    def run(self, seed: int, device: str) -> dict[str, Any]:
        stored = iid(pool(self.data[0], self.split)[0], self.length, generator(seed, "data"))
        training = Training(math.prod(stored.shape[1:])) if isinstance(self.memory, GPCN) else None
        memory = loaded(self, stored, seed, device, **({"progress": training} if training else {}))
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
        trained = {"epochs": len(training.energy), "energy": training.energy[::EACH]} if training else {}
        return {"stored": len(stored), "rows": rows, **trained}


EACH = 20
"""Every so many epochs the energy of training is kept."""
FLAT, OVER = 0.01, 100
"""Energy is flat where so many nats for each pixel are not gained over so many epochs."""


@dataclass
class Training:
    """Watches the energy of a memory in training, and ends it when that is flat."""

    pixels: int
    energy: list[float] = field(default_factory=list)

    def __call__(self, epoch: int, energy: float) -> bool:
        self.energy.append(round(energy, 1))
        if epoch < 2 * OVER:
            return False
        before, now = np.mean(self.energy[-2 * OVER : -OVER]), np.mean(self.energy[-OVER:])
        return bool(before - now < FLAT * self.pixels)


def loaded(case: Case, stored: Pictures, seed: int, device: str = "cpu", **how: Any) -> Memory:
    """A memory with all of a batch in it: an SQHN with room for exactly that, or one that stores what it is shown."""
    if isinstance(case.memory, Tree):
        network = replace(case.memory, capacity=len(stored)).network(stored.shape[1:])
        network.memorize(stored)
        return network
    memory: Memory = case.built(stored.shape[1:], seed, device)
    memory.learn(stored, **how)
    return memory


def kernels_of(name: str, wide: bool = False) -> dict[str, tuple[int, ...]]:
    """The kernels below the memory node, by depth: on 32 x 32, (4) or if wide (8), and (2, 4)."""
    side = SIDE[name]
    return {"SQHN L1": (), "SQHN L2": (side // (4 if wide else 8),), "SQHN L3": (side // 16, 4)}


BAYES = BayesPCN(width=1024, recall_steps=8_000)
GPC = "GPCN (offline)"
SIGMA = 0.01
"""The standard deviation of all values of predictive coding."""
PREDICTIVE: dict[str, dict[str, Spec]] = {
    "T1-MOD": {
        GPC: GPCN(width=1024, epochs=4000, recall_steps=8_000),
        "BayesPCN": BAYES,
        "BayesPCN (forget)": replace(BAYES, forget=0.001, forget_every=64),
    },
    "T1-HIGH": {"BayesPCN": BAYES},
}
"""Recall takes up to 16 times the published 500 steps, which do not converge where so much is stored."""


def _cases(experiment: str, length: int, sigma: float, share: float, reading: Reading) -> Iterator[Case]:
    corruptions = (("noise", sigma), ("dropout", share), ("mask", share))
    for name, split in (("cifar10", "train"), ("tiny_imagenet", "val")):
        memories: dict[str, Spec] = {model: Tree(length, kernels) for model, kernels in kernels_of(name).items()}
        memories["MHN"] = MHN(range="signed" if reading == DEFAULT else "unit")
        memories |= {"MHN-Manhtn": ManhattanMHN(), "MHN-GradInf": GradInfMHN(), "NN": Nearest(length)}
        for model, memory in (memories | PREDICTIVE[experiment]).items():
            heavy = model in PREDICTIVE[experiment]
            yield Loaded(
                set=name, data=(name,), model=model, size=length, memory=memory, split=split, length=length,
                corruptions=corruptions, seeds=2 if heavy else 5, heavy=heavy, quick=model in DEPTHS.values(),
            )  # fmt: skip


FAMILY.experiments += [
    Experiment(
        "T1-MOD", "Table 1, moderate corruption",
        "Can SQHNs recall stored pictures from noisy or partial ones as well as the best memories?",
        lambda reading: _cases("T1-MOD", 1024, 0.2, 0.25, reading), {"length": 8, "size": 8, "capacity": 8},
    ),
    Experiment(
        "T1-HIGH", "Table 1, high corruption", "The same with most of the picture lost.",
        lambda reading: _cases("T1-HIGH", 128, 0.8, 0.75, reading), {"length": 2, "size": 2, "capacity": 2},
    ),
]  # fmt: skip


# -- what the paper prints -------------------------------------------------------------------------------------------

KINDS = ("noise", "dropout", "mask")
SETS = ("cifar10", "tiny_imagenet")
COLUMNS = [(kind, name) for kind in KINDS for name in SETS]
"""Corruption and data set of every column."""

PRINTED: dict[str, dict[str, list[str]]] = {
    "T1-MOD": {
        GPC: [".0121", ".0067", ".0001", ".0000", ".0009", ".0001"],
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
"""Mean squared errors in the range [-1, 1]."""


def printed(experiment: str, model: str, kind: str, name: str) -> tuple[float, float]:
    """The number of a cell and its standard deviation, half a digit where none is printed."""
    mean, _, deviation = PRINTED[experiment][model][COLUMNS.index((kind, name))].partition("±")
    return float(mean), float(deviation or 0.00005)


# -- what is claimed -------------------------------------------------------------------------------------------------

T1 = "T1-MOD T1-HIGH"
NOTHING = 5e-5
"""What prints as .0000."""


def cell(results: Results, experiment: str, model: str, name: str, kind: str, measure: str = "mse") -> Values:
    """Errors in the range [-1, 1], for each seed; of missing pixels only, where there are any."""
    return 4 * results.of(experiment, model=model, set=name).row(kind, measure)


def cells(results: Results, model: str, kinds: tuple[str, ...], experiments: str = T1) -> dict[str, Values]:
    return {
        f"{e} {name} {kind}": cell(results, e, model, name, kind)
        for e in experiments.split()
        for name in SETS
        for kind in kinds
    }


def published(results: Results, experiment: str, model: str, name: str, kind: str) -> Values:
    """The error as the published code measures it.

    With missing pixels it is that of the visible ones: for dropout divided by the number of all pixels, for the mask by
    their own. The row MHN, which was not made by that code, fits the error over all pixels.
    """
    if kind == "noise" or model == "MHN":
        return cell(results, experiment, model, name, kind, "mse_all")
    visible = cell(results, experiment, model, name, kind, "mse_visible")
    share = results.of(experiment, model=model, set=name).row(kind, "visible")
    return visible * share if kind == "dropout" else visible


def apart(results: Results, experiment: str, model: str, kinds: tuple[str, ...]) -> dict[str, float]:
    """How many printed standard deviations cells are from the print, under the published metric."""
    found = {}
    for kind in kinds:
        for name in SETS:
            mean, deviation = printed(experiment, model, kind, name)
            ours = float(published(results, experiment, model, name, kind).mean())
            found[f"{experiment} {name} {kind} {ours:.4f}"] = abs(ours - mean) / deviation
    return found


@FAMILY.claim("T1.1", T1, "SQHN L1 recalls without error in all 12 cells", ".0000", {"error": below(NOTHING)})
def _(results: Results) -> Measured:
    return {"error": cells(results, "SQHN L1", KINDS)}


@FAMILY.claim(
    "T1.2", T1, "three levels fill in missing pixels without error, two nearly so", "L3 .0000, L2 at most .0008",
    {"error of L3": at_most(5e-4), "error of L2": at_most(1.5e-3)},
)  # fmt: skip
def _(results: Results) -> Measured:
    return {f"error of {d}": cells(results, DEPTHS[d], ("dropout", "mask")) for d in ("L3", "L2")}


def deeper(results: Results, name: str) -> dict[str, float]:
    """How much each depth adds to the error under noise."""
    found: dict[str, float] = {}
    for e in T1.split():
        means = {depth: float(cell(results, e, model, name, "noise").mean()) for depth, model in DEPTHS.items()}
        found |= {f"{e} {b} - {a}": means[b] - means[a] for a, b in itertools.pairwise(means)}
    return found


@FAMILY.claim(
    "T1.3", T1, "CIFAR-10, noise: the deeper, the worse; L2 and L3 as printed", "L2 .0002 / .0904, L3 .1076 / .3324",
    {
        "each depth adds": above(0),
        "L2 moderate": at_most(0.001).on_paper_data,
        "L3 moderate": between(0.09, 0.13).on_paper_data,
        "L2 high": between(0.07, 0.12).on_paper_data,
        "L3 high": between(0.29, 0.38).on_paper_data,
    },
)  # fmt: skip
def _(results: Results) -> Measured:
    return {"each depth adds": deeper(results, "cifar10"), **_noise_cells(results, "cifar10")}


def _noise_cells(results: Results, name: str) -> dict[str, dict[str, Values]]:
    return {
        f"{depth} {level}": {"": cell(results, e, DEPTHS[depth], name, "noise")}
        for e, level in (("T1-MOD", "moderate"), ("T1-HIGH", "high"))
        for depth in ("L2", "L3")
    }


@FAMILY.claim(
    "T1.4", T1, "Tiny ImageNet, noise: smaller errors than on CIFAR-10 for L2 and L3, as printed",
    "L2 .0000 / .0002, L3 .0000 / .0240",
    {
        "less than CIFAR-10": below(0),
        "L2 moderate": at_most(5e-4).on_paper_data,
        "L3 moderate": at_most(5e-4).on_paper_data,
        "L2 high": at_most(0.001).on_paper_data,
        "L3 high": between(0.01, 0.05).on_paper_data,
    },
)  # fmt: skip
def _(results: Results) -> Measured:
    small = {
        f"{e} {depth}": cell(results, e, DEPTHS[depth], "tiny_imagenet", "noise").mean()
        - cell(results, e, DEPTHS[depth], "cifar10", "noise").mean()
        for e in T1.split()
        for depth in ("L2", "L3")
    }
    return {"less than CIFAR-10": small, **_noise_cells(results, "tiny_imagenet")}


@FAMILY.claim(
    "T1.5", T1, "MHN-Manhtn: perfect under noise; with many pixels missing it fails, as printed",
    "noise .0000; high: dropout .1840 .1248, mask .7644 .7588",
    {
        "noise": below(NOTHING),
        "high, missing pixels": above(0.05),
        "standard deviations from the print": at_most(2).on_paper_data,
    },
    quick=False,
)  # fmt: skip
def _(results: Results) -> Measured:
    lost = ("dropout", "mask")
    return {
        "noise": cells(results, "MHN-Manhtn", ("noise",)),
        "high, missing pixels": cells(results, "MHN-Manhtn", lost, "T1-HIGH"),
        "standard deviations from the print": apart(results, "T1-HIGH", "MHN-Manhtn", lost),
    }


@FAMILY.claim(
    "T1.6", "T1-MOD", "MHN fails in every moderate cell, as printed", ".0955 to .6101",
    {"error": above(0.05), "standard deviations from the print": at_most(2).on_paper_data}, quick=False,
)  # fmt: skip
def _(results: Results) -> Measured:
    return {
        "error": cells(results, "MHN", KINDS, "T1-MOD"),
        "standard deviations from the print": apart(results, "T1-MOD", "MHN", KINDS),
    }


@FAMILY.claim(
    "T1.7", T1, "no other memory is without error in all cells of both tables", "only SQHN L1",
    {"largest error of a memory": above(NOTHING)}, quick=False,
)  # fmt: skip
def _(results: Results) -> Measured:
    worst = {}
    for model in [model for model in PRINTED["T1-MOD"] if model not in DEPTHS.values()]:
        both = [e for e in T1.split() if model in PRINTED[e]]
        found = cells(results, model, KINDS, " ".join(both))
        where = max(found, key=lambda key: float(found[key].mean()))
        worst[f"{model}, {where}"] = found[where]
    return {"largest error of a memory": worst}


@FAMILY.claim(
    "T1.8", "T1-MOD", "predictive coding struggles with noise", "GPCN .0121 .0067, BayesPCN .0337 .6606",
    {"error under noise": above(0.005)}, quick=False,
)  # fmt: skip
def _(results: Results) -> Measured:
    models = PREDICTIVE["T1-MOD"]
    return {
        "error under noise": {
            f"{model} {name}": cell(results, "T1-MOD", model, name, "noise") for model in models for name in SETS
        }
    }


@FAMILY.claim(
    "T1.9", "T1-MOD", "GPCN and BayesPCN fill in missing pixels with a very low error in most cells",
    ".0000 to .0019 in 8 of 8", {"share of cells with an error of at most .005": above(0.5)}, quick=False,
    seen="Only where recall comes to rest: 500 steps from black pixels, as published, leave half of a mask black.",
)  # fmt: skip
def _(results: Results) -> Measured:
    found: dict[str, float] = {}
    for model in (GPC, "BayesPCN"):
        errors = cells(results, model, ("dropout", "mask"), "T1-MOD")
        found[model] = float(np.mean([values.mean() <= 0.005 for values in errors.values()]))
    return {"share of cells with an error of at most .005": found}


@FAMILY.claim(
    "T1.10", T1, "MHN-GradInf: perfect under noise, good with a quarter of the pixels missing, fails with most",
    ".0000 to .0052; .0000 to .0001; .3840 to .6378",
    {"noise": at_most(0.0055), "moderate, missing pixels": at_most(0.005), "high, missing pixels": at_least(0.1)},
    quick=False,
    seen=(
        "The row was made by others, who did not cut noisy pictures to the range of pixels: without the cut, strong "
        "noise leaves .021 instead of .1, and the same for any pictures, since it is what is left of the noise itself. "
        "The moderate mask is another thing: the public code gives .11 with 1,024 pictures, too, and .0000 with 16."
    ),
)  # fmt: skip
def _(results: Results) -> Measured:
    lost = ("dropout", "mask")
    return {
        "noise": cells(results, "MHN-GradInf", ("noise",)),
        "moderate, missing pixels": cells(results, "MHN-GradInf", lost, "T1-MOD"),
        "high, missing pixels": cells(results, "MHN-GradInf", lost, "T1-HIGH"),
    }


# -- what is drawn ---------------------------------------------------------------------------------------------------


@FAMILY.figure(
    "t1-energy", "T1-MOD",
    "GPCN in training: the energy that the hidden values come down to, for each pixel, epoch by epoch and for each "
    "seed. Black dashes: the least there can be, with no error anywhere.",
)  # fmt: skip
def _(results: Results) -> Figure:
    runs = results.of("T1-MOD", model=GPC)
    sets = runs.settings("set")
    figure, axes = panels(1, len(sets), width=4.2, height=2.8)
    for axis, name in zip(axes[0], sets):
        for record in runs.of("T1-MOD", set=name).records:
            side, hidden = SIDE[name], 3 * record["settings"]["memory"]["width"]
            pixels = 3 * side**2
            energy = np.array(record["results"]["energy"]) / pixels
            least = (pixels + hidden) / pixels * math.log(2 * math.pi * SIGMA**2) / 2
            axis.plot(1 + EACH * np.arange(len(energy)), energy, lw=1.2)
            axis.axhline(least, color="black", ls="--", lw=1)
        axis.set(xscale="log", title=title(name), xlabel="epochs", ylabel="energy / pixel")
        axis.set_yscale("symlog", linthresh=10)
    return figure
