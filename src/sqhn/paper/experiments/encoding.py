"""Noisy encoding: images are learned from noisy samples only, and recalled from clean ones."""

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
    Images,
    Reading,
    decode_images,
    encode_images,
    generator,
    load_split,
)
from sqhn.paper.experiments.claims import Measured, above, at_least, at_most, below, between
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.hyperparameters import TREE_KERNELS, encoding_mhns, nearest_neighbors
from sqhn.paper.experiments.models import Spec, Tree
from sqhn.paper.experiments.plots import ERROR, RECALLED, by_model, image_grid, legend_above, line, panels
from sqhn.paper.experiments.results import Results, spread
from sqhn.paper.metrics import encoding_floor, recall_accuracy, recall_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FAMILY = Family()
Noise = Literal["white", "binary"]
NOISE_KINDS: tuple[Noise, ...] = ("white", "binary")


# -- experiments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Encoding(Case):
    """Learn images from noisy samples, one image after another; then recall them from the clean images.

    noise, samples: the kind of noise and the number of samples per image. sigma: of white noise. squeeze: images are
    mapped to scale * x + shift. ema: each sample is averaged with the one before. hold: the code of an image's first
    sample is held for all its samples (SQHN+). paired: one sample is the input, another the target. show: the numbers
    of samples after which to record recalled images.
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
        x = scale * iid(load_split(self.data[0], "train")[0], self.length, generator(seed, "data")) + shift
        unseen = scale * iid(load_split(self.data[0], "test")[0], self.length, generator(seed, "unseen")) + shift
        memory, winners = self._learn(x, self.samples, seed, device)
        error = recall_error(memory.recall(x).x, x)
        results: dict[str, Any] = {
            "accuracy": recall_accuracy(error, self.threshold),
            "mse": float(error.mean()),
            "unseen_accuracy": recall_accuracy(recall_error(memory.recall(unseen).x, unseen), self.threshold),
            "floor": encoding_floor(x, self.samples, self.noise, self.sigma),
        }
        if isinstance(self.memory, Tree):
            stored = memory.prototypes[winners[:, 0]]
            results["stored_mse"] = float(recall_error(stored, x).mean())
            results["stable"] = float((winners == winners[:, :1]).mean())
            results["grown"] = len(memory)
        if self.show and seed == 0:
            rows = [x[:4], self._samples(x[:4], 1, generator(seed, "show"))[:, 0]]
            rows += [self._learn(x, count, seed, device)[0].recall(x[:4]).x for count in self.show]
            results["pictures"] = {**encode_images(rows=rows), "counts": list(self.show)}
        return results

    def _samples(self, x: Images, count: int, rng: np.random.Generator, ema: bool = False) -> Images:
        return noisy_samples(x, count, self.noise, self.sigma, rng, ema)

    def _learn(self, x: Images, count: int, seed: int, device: str) -> tuple[Any, Any]:
        """A model that has learned `count` samples of each image, and the winners, (images, samples)."""
        memory, rng = self.build(x.shape[1:], seed, device), generator(seed, "samples", self.noise)
        winners = []
        for one in x:
            samples = self._samples(one[None], count, rng, self.ema)[0]
            if self.paired:
                written = memory.learn(self._samples(one[None], count, rng)[0], target=samples)
            else:
                written = memory.learn(samples, **({"hold": True} if self.hold else {}))
            winners.append(np.asarray(written.index))
        return memory, np.stack(winners)


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

    for noise in NOISE_KINDS:
        for column, (count, gamma) in enumerate(zip(setup.counts, setup.gammas[noise], strict=True)):
            plain, plus = (Tree(J, setup.kernels, 1e6, g) for g in (gamma, 1.0))
            show = (1, 6, 12) if noise == "binary" and count == max(setup.counts) else ()
            yield case("SQHN", plain, noise, count, show=show if setup.pictured == "SQHN" else ())
            yield case("SQHN+", plus, noise, count, hold=True, show=show if setup.pictured == "SQHN+" else ())
            for model, mhn in encoding_mhns(experiment, noise, column, J, reading):
                yield case(model, mhn, noise, count, paired=True)
            for name, store in nearest_neighbors(J).items():
                yield case(name, store, noise, count)


FAMILY.experiments += [
    Experiment(
        "NE-L1", "Noisy encoding, one level",
        "Can a clean image be stored from noisy samples alone?",
        lambda reading: noisy("NE-L1", reading), {"length": 3, "capacity": 3, "size": 3},
    ),
    Experiment(
        "NE-L3", "Noisy encoding, three levels", "The same for trees on natural images.",
        lambda reading: noisy("NE-L3", reading), {"length": 5, "capacity": 5, "size": 5},
    ),
]  # fmt: skip


# -- claims ------------------------------------------------------------------------------------------------------------

BOTH_DEPTHS = "NE-L1 NE-L3"
LEVELS = {"NE-L1": "L1", "NE-L3": "L3"}
ENCODING_MHNS = ("MHN-SGD", "MHN-Adam")


def encodings(results: Results, model: str, noises: tuple[Noise, ...] = NOISE_KINDS) -> dict[str, dict[int, Results]]:
    """The runs by depth and noise, and there by number of samples."""
    return {
        f"{LEVELS[e]} {noise}": dict(results.of(e, model=model, noise=noise).each("samples"))
        for e in BOTH_DEPTHS.split()
        for noise in noises
    }


def most_samples(runs: dict[int, Results]) -> Results:
    """The run with the most samples."""
    return runs[max(runs)]


@FAMILY.claim(
    "NE.1", BOTH_DEPTHS, "SQHN+: with more samples accuracy does not fall and error does not rise", "removes noise",
    {"gain of recall": at_least(0), "gain of error": at_most(0)},
)  # fmt: skip
def more_samples(results: Results) -> Measured:
    found: dict[str, dict[str, float]] = {"gain of recall": {}, "gain of error": {}}
    for name, runs in encodings(results, "SQHN+").items():
        for result, gains in zip(("accuracy", "mse"), found.values()):
            means = {count: float(run.result(result).mean()) for count, run in runs.items()}
            counts = sorted(means)
            gains |= {f"{name} {a} to {b} samples": means[b] - means[a] for a, b in itertools.pairwise(counts)}
    return found


@FAMILY.claim(
    "NE.2", BOTH_DEPTHS, "with the most samples both SQHN and SQHN+ beat the MHNs", "significantly",
    {"SQHN+: recall, ahead by": above(0), "SQHN+: error, ahead by": above(0),
     "SQHN: recall, ahead by": above(0), "SQHN: error, ahead by": above(0)},
    explanation=(
        "SQHN+ is ahead everywhere. Plain SQHN with three levels is not: under strong noise, the codes of two samples "
        "of one image differ as much as those of two images. With any growth thresholds, either most samples of the "
        "first images grow a neuron each and the memory is full early in the stream, or samples of different images "
        "are averaged. Samples that are smoothed over time, as in the published code, help with white noise only. "
        "Trees of MHNs whose pixels are not transformed learn to reconstruct some of the images."
    ),
)  # fmt: skip
def ahead_of_mhns(results: Results) -> Measured:
    found: dict[str, dict[str, float]] = {}
    theirs_by_mhn = {mhn: encodings(results, mhn) for mhn in ENCODING_MHNS}
    for model in ("SQHN+", "SQHN"):
        recall, error = (
            found.setdefault(f"{model}: recall, ahead by", {}),
            found.setdefault(f"{model}: error, ahead by", {}),
        )
        for name, runs in encodings(results, model).items():
            for mhn, other in theirs_by_mhn.items():
                ours, theirs = most_samples(runs), most_samples(other[name])
                recall[f"{name} {mhn}"] = float(ours.result("accuracy").mean() - theirs.result("accuracy").mean())
                error[f"{name} {mhn}"] = float(theirs.result("mse").mean() - ours.result("mse").mean())
    return found


@FAMILY.claim(
    "NE.3", BOTH_DEPTHS, "SQHN+ reaches the error of averaging the samples", "bias² + variance / n",
    {"stored, over the floor": between(0.75, 1.25), "recalled, over the floor": None}, beyond=True,
)  # fmt: skip
def error_over_floor(results: Results) -> Measured:
    found: dict[str, dict[str, float]] = {"stored, over the floor": {}, "recalled, over the floor": {}}
    for name, runs in encodings(results, "SQHN+").items():
        for count, run in runs.items():
            for result, ratios in zip(("stored_mse", "mse"), found.values()):
                ratios[f"{name} n={count}"] = float((run.result(result) / run.result("floor")).mean())
    return found


@FAMILY.claim(
    "NE.4", BOTH_DEPTHS, "SQHN+ recalls nearly all images after many samples with white noise", "highly effective",
    {"recall": at_least(0.95)},
)  # fmt: skip
def recall_from_many_samples(results: Results) -> Measured:
    runs = encodings(results, "SQHN+", ("white",))
    return {"recall": {name: most_samples(run).result("accuracy") for name, run in runs.items()}}


@FAMILY.claim(
    "NE.5", BOTH_DEPTHS, "the MHNs recall no more learned images than unseen ones", "not in the paper",
    {"recall beyond unseen": below(0.1)}, beyond=True,
)  # fmt: skip
def mhns_beyond_unseen(results: Results) -> Measured:
    found = {}
    for mhn in ENCODING_MHNS:
        for name, runs in encodings(results, mhn).items():
            for count, run in runs.items():
                found[f"{name} {mhn} n={count}"] = run.result("accuracy") - run.result("unseen_accuracy")
    return {"recall beyond unseen": found}


STABLE: dict[Noise, str] = {
    "white": "samples with the winner of the image's first sample, white noise",
    "binary": "samples with the winner of the image's first sample, binary noise",
}


@FAMILY.claim(
    "NE.6", BOTH_DEPTHS, "codes of plain SQHN are largely stable over noisy samples", "largely stable",
    {STABLE["white"]: at_least(0.5), STABLE["binary"]: None},
    explanation=(
        "One level assigns nearly all samples of an image to one neuron. Three levels do not: a node of 4 x 4 pixels "
        "takes different values for many samples of the same patch, and the memory node sees the values only."
    ),
)  # fmt: skip
def stable_codes(results: Results) -> Measured:
    return {
        label: {
            name: most_samples(runs).result("stable") for name, runs in encodings(results, "SQHN", (noise,)).items()
        }
        for noise, label in STABLE.items()
    }


@FAMILY.claim(
    "NE.7", BOTH_DEPTHS, "holding the code helps most with binary samples", "in these cases, SQHN+ performed better",
    {"error saved, binary minus white": above(0)},
    explanation="With one level it does. With three, plain SQHN loses about as much with white noise.",
)  # fmt: skip
def gain_from_holding(results: Results) -> Measured:
    plain, plus = (
        {name: float(most_samples(runs).result("mse").mean()) for name, runs in encodings(results, model).items()}
        for model in ("SQHN", "SQHN+")
    )
    saved = {name: plain[name] - plus[name] for name in plain}
    return {"error saved, binary minus white": {d: saved[f"{d} binary"] - saved[f"{d} white"] for d in LEVELS.values()}}


# -- figures -----------------------------------------------------------------------------------------------------------


def encoding_figures(experiment: str, levels: str, pictured: str) -> None:
    @FAMILY.figure(
        experiment.lower(), experiment,
        f"Noisy encoding with {levels}: images are learned from noisy samples only, then recalled from clean images. "
        "Black dashes: the least error that averaging the samples can give.",
    )  # fmt: skip
    def curves(results: Results) -> Figure:
        runs = results.of(experiment)
        figure, axes = panels(2, 2)
        for column, noise in enumerate(NOISE_KINDS):
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
            axes[1, column].set_xlabel("samples per image")
        axes[0, 0].set_ylabel(RECALLED)
        axes[1, 0].set_ylabel(ERROR)
        legend_above(figure, axes[1, 0])
        return figure

    @FAMILY.figure(
        f"{experiment}-pictures".lower(), experiment,
        f"{levels.capitalize()}, {pictured}, in a memory of full size: images, one binary sample of each, and the "
        "recalled images after 1, 6 and 12 samples.",
    )  # fmt: skip
    def recalled_images(results: Results) -> Figure:
        run = results.of(experiment, model=pictured, noise="binary")
        rows = decode_images(run.images("rows"))
        counts = run.images("counts")
        return image_grid(list(rows), ["image", "a sample", *(f"after {count}" for count in counts)])


encoding_figures("NE-L1", "one level", SETUPS["NE-L1"].pictured)
encoding_figures("NE-L3", "three levels", SETUPS["NE-L3"].pictured)
