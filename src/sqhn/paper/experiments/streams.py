"""Streams of images learned one at a time: the case, the streams of the paper, and their measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sqhn.data.corruptions import white_noise
from sqhn.data.streams import Domains, class_incremental, domain_incremental, iid, mixed_domains, unit
from sqhn.paper.experiments.case import Case, Images, encode_images, generator, learn_in_steps, load_split
from sqhn.paper.experiments.claims import Measured
from sqhn.paper.experiments.models import Spec
from sqhn.paper.experiments.results import Results
from sqhn.paper.metrics import forgetting_bound, recall_accuracy, recall_error
from sqhn.sizes import array_bytes

Order = Literal["class", "domain", "iid", "mixed"]


@dataclass(frozen=True, kw_only=True)
class Stream(Case):
    """Learn a stream; at every test point recall all images so far, unchanged and with noise.

    order: by class, by domain, or shuffled (iid: one set; mixed: all domains). control: a name that an ordered stream
    shares with its shuffled control. transforms: the domains of each set. every: images between test points. sigma: of
    the noise, 0 for none. noise_first: noise is added before an image is transformed into its domain. threshold: the
    largest error at which an image counts as recalled. alike: also recall unseen images of the same kind, as many or
    as there are. tests: the number of other unseen images to recall at every test point, without noise. show: the
    number of images to record.
    """

    order: Order
    length: int
    control: str = ""
    transforms: tuple[str, ...] = ()
    every: int = 100
    sigma: float = 0.2
    noise_first: bool = False
    threshold: float = 0.01
    alike: bool = True
    tests: int = 0
    show: int = 0

    def run(self, seed: int, device: str) -> dict[str, Any]:
        x = self.draw("train", generator(seed, "data"))
        unseen = self.draw("test", generator(seed, "unseen")) if self.alike else None
        tests = unit(load_split(self.data[0], "test")[0][: self.tests]) if self.tests else None
        memory = self.build(x.transformed(x.x[:1]).shape[1:], seed, device)
        noise, seen = generator(seed, "noise"), x.transformed(x.x)
        curves: dict[str, list[float]] = {}

        def record(prefix: str, recalled: Images, expected: Images) -> None:
            error = recall_error(recalled, expected)
            curves.setdefault(f"{prefix}accuracy", []).append(recall_accuracy(error, self.threshold))
            curves.setdefault(f"{prefix}mse", []).append(float(error.mean()))

        for done in learn_in_steps(memory, seen, self.every):
            curves.setdefault("learned", []).append(done)
            record("", memory.recall(seen[:done]).x, seen[:done])
            if self.sigma:
                record("noisy_", memory.recall(self.noisy(x, done, noise)).x, seen[:done])
            if unseen is not None:
                count = max(1, done * len(unseen.x) // len(seen))
                given = self.noisy(unseen, count, noise) if self.sigma else unseen.transformed(unseen.x[:count])
                record("unseen_", memory.recall(given).x, unseen.transformed(unseen.x[:count]))
            if tests is not None:
                record("test_", memory.recall(tests).x, tests)
        results: dict[str, Any] = {"length": len(seen), "curves": curves}
        results["bytes"] = array_bytes(memory)
        if self.show and seed == 0:
            some = seen[np.linspace(0, done - 1, self.show).astype(int)]
            noisy = white_noise(some, self.sigma, generator(seed, "show"))[0]
            results["pictures"] = encode_images(learned=some, given=noisy, found=memory.recall(noisy).x)
        return results

    def draw(self, split: str, rng: np.random.Generator) -> Domains:
        """The images of a split in order of arrival; unseen ones follow the same arrangement."""
        sources = [load_split(name, split) for name in self.data]
        if self.order in ("iid", "class"):
            (x, y), *_ = sources
            drawn = iid(x, self.length, rng) if self.order == "iid" else class_incremental(x, y, self.length, rng)
            return Domains(drawn, np.zeros(len(drawn), np.int64), ("plain",))
        arrange = domain_incremental if self.order == "domain" else mixed_domains
        return arrange([x for x, _ in sources], self.transforms, self.length, rng)

    def noisy(self, x: Domains, count: int, rng: np.random.Generator) -> Images:
        """The first images with noise, in their domains."""
        if self.noise_first:
            return x.transformed(white_noise(x.x[:count], self.sigma, rng)[0])
        return white_noise(x.transformed(x.x[:count]), self.sigma, rng)[0]


@dataclass(frozen=True)
class StreamSettings:
    """A stream of the paper; alphas: of the published code, for each size."""

    data: tuple[str, ...]
    order: Order
    control: str
    length: int
    alphas: tuple[float, float, float]
    transforms: tuple[str, ...] = ()
    threshold: float = 0.01

    def case(self, name: str, model: str, size: int, memory: Spec, **more: Any) -> Stream:
        return Stream(
            set=name, data=self.data, model=model, size=size, memory=memory, order=self.order, control=self.control,
            length=self.length, transforms=self.transforms, threshold=self.threshold, **more,
        )  # fmt: skip


FLIPPED, DARKENED = ("plain", "flipped"), ("dark", "bright_flipped")
GRAY_SETS, COLOR_SETS = ("mnist", "fashion_mnist"), ("cifar10", "svhn")
ONE_LEVEL_STREAMS = {
    "OCI-E": StreamSettings(("emnist",), "class", "E", 3000, (5000, 22000, 50000)),
    "OCI-C": StreamSettings(("cifar100",), "class", "C", 5000, (20000, 55000, 65000)),
    "ODI-M": StreamSettings(GRAY_SETS, "domain", "M", 3000, (8000, 50000, 90000), FLIPPED),
    "ON-E": StreamSettings(("emnist",), "iid", "E", 3000, (5000, 25000, 45000)),
    "ON-C": StreamSettings(("cifar100",), "iid", "C", 5000, (25000, 90000, 100000)),
    "ON-M": StreamSettings(GRAY_SETS, "mixed", "M", 3000, (15000, 50000, 120000), FLIPPED),
}
THREE_LEVEL_STREAMS = {
    "OCI-C3": StreamSettings(("cifar100",), "class", "C3", 2000, (10000, 30000, 62000)),
    "ODI-CS": StreamSettings(COLOR_SETS, "domain", "CS", 2000, (15000, 45000, 88000), DARKENED, 0.005),
    "ON-C3": StreamSettings(("cifar100",), "iid", "C3", 2000, (8000, 22000, 50000)),
    "ON-CS": StreamSettings(COLOR_SETS, "mixed", "CS", 2000, (16000, 35000, 88000), DARKENED, 0.005),
}


# -- measures ----------------------------------------------------------------------------------------------------------


def capacity_of(run: Results) -> int:
    """The number of neurons of the models of a run."""
    J: int = run.setting("size")
    return J


def lowest_until_full(runs: Mapping[str, Results], curve: str) -> dict[str, float]:
    """The lowest value of a curve over all seeds and the test points up to capacity."""
    return {where: float(run.curve(curve)[:, run.t <= capacity_of(run)].min()) for where, run in runs.items()}


def past_capacity(runs: Mapping[str, Results]) -> Measured:
    """The least distance of clean recall above the curve of Theorem 2, and its largest rise between test points."""
    gaps, rises = {}, {}
    for where, run in runs.items():
        after = run.t > capacity_of(run)
        if after.any():
            accuracy = run.mean("accuracy")[after]
            gaps[where] = float((accuracy - forgetting_bound(capacity_of(run), run.t[after])).min())
            rises[where] = float(np.diff(accuracy).max(initial=0))
    return {"above the curve of Theorem 2": gaps, "rise between test points": rises}
