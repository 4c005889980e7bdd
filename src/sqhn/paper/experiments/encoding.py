"""Noisy encoding: pictures are learned from noisy samples only, and shown clean at the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sqhn.data.streams import iid, noisy_samples
from sqhn.paper.experiments.case import (
    CODE,
    Case,
    Experiment,
    Pictures,
    Reading,
    generator,
    picture,
    pictures_of,
    pool,
)
from sqhn.paper.experiments.claims import Measured, above, at_least, at_most, below, between
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.memories import Spec, Tree
from sqhn.paper.experiments.plots import ERROR, RECALLED, by_model, grid, line, outside, panels
from sqhn.paper.experiments.results import Results, spread
from sqhn.paper.experiments.rivals import TREE_KERNELS, encoders, nearest
from sqhn.paper.metrics import encoding_floor, recall_accuracy, recall_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FAMILY", "Encoding"]

FAMILY = Family()
Noise = Literal["white", "binary"]
NOISES: tuple[Noise, ...] = ("white", "binary")


# -- what is run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Encoding(Case):
    """Learn pictures from noisy samples, one picture after another; then show the clean ones.

    noise, samples: of each picture, sigma: if it is white. squeeze: pictures are mapped to scale * x + shift. ema: each
    sample is averaged with the one before. hold: the samples of a picture are held together (SQHN+). paired: one sample
    is the input, another the target. show: numbers of samples after which to keep what is recalled.
    """

    length: int
    noise: Noise
    samples: int
    sigma: float = 0.2
    squeeze: tuple[float, float] = (1.0, 0.0)
    threshold: float = 0.01
    ema: bool = False
    hold: bool = False
    paired: bool = False
    show: tuple[int, ...] = ()

    def run(self, seed: int, device: str) -> dict[str, Any]:
        scale, shift = map(np.float32, self.squeeze)
        x = scale * iid(pool(self.data[0], "train")[0], self.length, generator(seed, "data")) + shift
        unseen = scale * iid(pool(self.data[0], "test")[0], self.length, generator(seed, "unseen")) + shift
        memory, went = self._taught(x, self.samples, seed, device)
        error = recall_error(memory.recall(x).x, x)
        results: dict[str, Any] = {
            "accuracy": recall_accuracy(error, self.threshold),
            "mse": float(error.mean()),
            "unseen_accuracy": recall_accuracy(recall_error(memory.recall(unseen).x, unseen), self.threshold),
            "floor": encoding_floor(x, self.samples, self.noise, self.sigma),
        }
        if isinstance(self.memory, Tree):
            stored = memory.prototypes[went[:, 0]]
            results["stored_mse"] = float(recall_error(stored, x).mean())
            results["stable"] = float((went == went[:, :1]).mean())
            results["grown"] = len(memory)
        if self.show and seed == 0:
            rows = [x[:4], self._samples(x[:4], 1, generator(seed, "show"))[:, 0]]
            rows += [self._taught(x, count, seed, device)[0].recall(x[:4]).x for count in self.show]
            results["pictures"] = {"rows": picture(np.stack(rows)), "counts": list(self.show)}
        return results

    def _samples(self, x: Pictures, count: int, rng: np.random.Generator, ema: bool = False) -> Pictures:
        return noisy_samples(x, count, self.noise, self.sigma, rng, ema)

    def _taught(self, x: Pictures, count: int, seed: int, device: str) -> tuple[Any, Any]:
        """The memory after so many samples of each picture, and to which neuron each of them went."""
        memory, rng = self.built(x.shape[1:], seed, device), generator(seed, "samples", self.noise)
        went = []
        for one in x:
            samples = self._samples(one[None], count, rng, self.ema)[0]
            if self.paired:
                written = memory.learn(self._samples(one[None], count, rng)[0], target=samples)
            else:
                written = memory.learn(samples, **({"hold": True} if self.hold else {}))
            went.append(np.asarray(written.index))
        return memory, np.stack(went)


@dataclass(frozen=True)
class Setup:
    """One depth: the data, the tree, and the growth thresholds of plain SQHN for each number of samples."""

    set: str
    length: int
    kernels: tuple[int, ...]
    squeeze: tuple[float, float]
    counts: tuple[int, ...]
    gammas: dict[Noise, tuple[float, ...]]
    pictured: str


SETUPS = {
    "NE-L1": Setup(
        "emnist", 300, (), (0.96, 0.02), (1, 5, 20, 50),
        {"white": (0.92, 0.92, 0.92, 0.94), "binary": (0.90, 0.85, 0.85, 0.86)}, "SQHN+",
    ),
    "NE-L3": Setup(
        "cifar100", 150, TREE_KERNELS, (1.0, 0.0), (1, 10, 20),
        {"white": (0.98, 0.85, 0.80), "binary": (0.98, 0.60, 0.60)}, "SQHN",
    ),
}  # fmt: skip


def noisy(experiment: str, reading: Reading) -> Iterator[Case]:
    setup = SETUPS[experiment]
    J = setup.length

    def case(model: str, memory: Spec, noise: Noise, count: int, **more: Any) -> Encoding:
        return Encoding(
            set=setup.set, data=(setup.set,), model=model, size=J, memory=memory, length=J, noise=noise, samples=count,
            squeeze=setup.squeeze, ema=reading == CODE, **more,
        )  # fmt: skip

    for noise in NOISES:
        for place, (count, gamma) in enumerate(zip(setup.counts, setup.gammas[noise], strict=True)):
            plain, plus = (Tree(J, setup.kernels, 1e6, g) for g in (gamma, 1.0))
            shown = (1, 6, 12) if noise == "binary" and count == max(setup.counts) else ()
            yield case("SQHN", plain, noise, count, show=shown if setup.pictured == "SQHN" else ())
            yield case("SQHN+", plus, noise, count, hold=True, show=shown if setup.pictured == "SQHN+" else ())
            for model, rival in encoders(experiment, noise, place, J, reading):
                yield case(model, rival, noise, count, paired=True)
            for name, store in nearest(J).items():
                yield case(name, store, noise, count)


FAMILY.experiments += [
    Experiment(
        "NE-L1", "Noisy encoding, one level",
        "Can a clean picture be stored when only noisy samples of it are ever seen?",
        lambda reading: noisy("NE-L1", reading), {"length": 3, "capacity": 3, "size": 3},
    ),
    Experiment(
        "NE-L3", "Noisy encoding, three levels", "The same for trees on natural pictures.",
        lambda reading: noisy("NE-L3", reading), {"length": 5, "capacity": 5, "size": 5},
    ),
]  # fmt: skip


# -- what is claimed -------------------------------------------------------------------------------------------------

NE = "NE-L1 NE-L3"
DEPTH = {"NE-L1": "L1", "NE-L3": "L3"}
RIVALS = ("MHN-SGD", "MHN-Adam")


def encodings(results: Results, model: str, noises: tuple[Noise, ...] = NOISES) -> dict[str, dict[int, Results]]:
    """For both depths and all noises: the runs by number of samples."""
    return {
        f"{DEPTH[e]} {noise}": dict(results.of(e, model=model, noise=noise).each("samples"))
        for e in NE.split()
        for noise in noises
    }


def most(runs: dict[int, Results]) -> Results:
    """With the most samples."""
    return runs[max(runs)]


@FAMILY.claim(
    "NE.1", NE, "SQHN+: with more samples accuracy does not fall and error does not rise", "removes noise",
    {"gain of recall": at_least(0), "gain of error": at_most(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    found: dict[str, dict[str, float]] = {"gain of recall": {}, "gain of error": {}}
    for name, runs in encodings(results, "SQHN+").items():
        for result, gains in zip(("accuracy", "mse"), found.values()):
            means = {count: float(run.result(result).mean()) for count, run in runs.items()}
            counts = sorted(means)
            gains |= {f"{name} {a} to {b} samples": means[b] - means[a] for a, b in itertools.pairwise(counts)}
    return found


@FAMILY.claim(
    "NE.2", NE, "with the most samples both SQHN and SQHN+ beat the MHNs", "significantly",
    {"SQHN+: recall, ahead by": above(0), "SQHN+: error, ahead by": above(0),
     "SQHN: recall, ahead by": above(0), "SQHN: error, ahead by": above(0)},
    seen=(
        "SQHN+ is ahead everywhere. Plain SQHN with three levels is not: where noise is strong, the codes of two "
        "samples of a picture differ as much as those of two pictures. Whatever the growth thresholds, either most "
        "samples of the first pictures grow a neuron each and the memory is full a small part into the stream, or "
        "samples of different pictures are averaged. Samples that are smoothed over time, as the published code has "
        "them, help with white noise only. Trees of MHNs that take pixels as they are learn to reconstruct some of the "
        "pictures."
    ),
)  # fmt: skip
def _(results: Results) -> Measured:
    found: dict[str, dict[str, float]] = {}
    rivals = {mhn: encodings(results, mhn) for mhn in RIVALS}
    for model in ("SQHN+", "SQHN"):
        recall, error = (
            found.setdefault(f"{model}: recall, ahead by", {}),
            found.setdefault(f"{model}: error, ahead by", {}),
        )
        for name, runs in encodings(results, model).items():
            for mhn, other in rivals.items():
                ours, theirs = most(runs), most(other[name])
                recall[f"{name} {mhn}"] = float(ours.result("accuracy").mean() - theirs.result("accuracy").mean())
                error[f"{name} {mhn}"] = float(theirs.result("mse").mean() - ours.result("mse").mean())
    return found


@FAMILY.claim(
    "NE.3", NE, "SQHN+ comes to what averaging can give", "bias² + variance / n",
    {"what is stored, over the floor": between(0.75, 1.25), "what is recalled, over the floor": None}, beyond=True,
)  # fmt: skip
def _(results: Results) -> Measured:
    found: dict[str, dict[str, float]] = {"what is stored, over the floor": {}, "what is recalled, over the floor": {}}
    for name, runs in encodings(results, "SQHN+").items():
        for count, run in runs.items():
            for result, ratios in zip(("stored_mse", "mse"), found.values()):
                ratios[f"{name} n={count}"] = float((run.result(result) / run.result("floor")).mean())
    return found


@FAMILY.claim(
    "NE.4", NE, "SQHN+ recalls nearly all pictures after many samples with white noise", "highly effective",
    {"recall": at_least(0.95)},
)  # fmt: skip
def _(results: Results) -> Measured:
    runs = encodings(results, "SQHN+", ("white",))
    return {"recall": {name: most(run).result("accuracy") for name, run in runs.items()}}


@FAMILY.claim(
    "NE.5", NE, "the MHNs recall nothing beyond what they make of unseen pictures", "not in the paper",
    {"recall beyond unseen": below(0.1)}, beyond=True,
)  # fmt: skip
def _(results: Results) -> Measured:
    found = {}
    for mhn in RIVALS:
        for name, runs in encodings(results, mhn).items():
            for count, run in runs.items():
                found[f"{name} {mhn} n={count}"] = run.result("accuracy") - run.result("unseen_accuracy")
    return {"recall beyond unseen": found}


TOGETHER: dict[Noise, str] = {
    "white": "samples in the neuron of the picture's first, white noise",
    "binary": "samples in the neuron of the picture's first, binary",
}


@FAMILY.claim(
    "NE.6", NE, "codes of plain SQHN are largely stable over noisy samples", "largely stable",
    {TOGETHER["white"]: at_least(0.5), TOGETHER["binary"]: None},
    seen=(
        "One level keeps nearly all samples of a picture together. Three levels do not: a node of 4 x 4 pixels takes "
        "another value for many samples of the same patch, and the memory node sees the values alone."
    ),
)  # fmt: skip
def _(results: Results) -> Measured:
    return {
        label: {name: most(runs).result("stable") for name, runs in encodings(results, "SQHN", (noise,)).items()}
        for noise, label in TOGETHER.items()
    }


@FAMILY.claim(
    "NE.7", NE, "holding the code helps most with binary samples", "in these cases, SQHN+ performed better",
    {"error saved, binary less white": above(0)},
    seen="It does with one level. With three, plain SQHN loses about as much with white noise.",
)  # fmt: skip
def _(results: Results) -> Measured:
    plus, plain = encodings(results, "SQHN+"), encodings(results, "SQHN")
    saved = {n: float(most(plain[n]).result("mse").mean() - most(plus[n]).result("mse").mean()) for n in plus}
    return {"error saved, binary less white": {d: saved[f"{d} binary"] - saved[f"{d} white"] for d in DEPTH.values()}}


# -- what is drawn ---------------------------------------------------------------------------------------------------


def encoding_figures(experiment: str, levels: str, pictured: str) -> None:
    @FAMILY.figure(
        experiment.lower(), experiment,
        f"Noisy encoding with {levels}: pictures are learned from noisy samples only, then shown clean. Black dashes: "
        "what averaging the samples can give at best.",
    )  # fmt: skip
    def _(results: Results) -> Figure:
        runs = results.of(experiment)
        figure, axes = panels(2, 2)
        for column, noise in enumerate(NOISES):
            for model, some in by_model(runs.of(noise=noise)):
                counts = some.settings("samples")
                for row, result in enumerate(("accuracy", "mse")):
                    values = [run.result(result) for _, run in some.each("samples")]
                    mean, band = np.array([[v.mean() for v in values]]), np.array([float(spread(v)) for v in values])
                    line(axes[row, column], counts, mean, model, band=band)
            floor = [run.result("floor").mean() for _, run in some.each("samples")]
            axes[1, column].plot(counts, floor, color="black", linestyle=(0, (2, 2)), label="best possible")
            axes[0, column].set_title(f"{noise} noise")
            axes[0, column].set_ylim(-0.03, 1.03)
            axes[1, column].set_yscale("log")
            axes[1, column].set_xlabel("samples of each picture")
        axes[0, 0].set_ylabel(RECALLED)
        axes[1, 0].set_ylabel(ERROR)
        outside(figure, axes[1, 0])
        return figure

    @FAMILY.figure(
        f"{experiment}-pictures".lower(), experiment,
        f"{levels.capitalize()}, {pictured}, in a memory of full size: pictures, one binary sample of each, and what "
        "they remind of after 1, 6 and 12 of them.",
    )  # fmt: skip
    def _(results: Results) -> Figure:
        run = results.of(experiment, model=pictured, noise="binary")
        rows = pictures_of(run.pictures("rows"))
        counts = run.pictures("counts")
        return grid(list(rows), ["picture", "a sample", *(f"after {count}" for count in counts)])


encoding_figures("NE-L1", "one level", SETUPS["NE-L1"].pictured)
encoding_figures("NE-L3", "three levels", SETUPS["NE-L3"].pictured)
