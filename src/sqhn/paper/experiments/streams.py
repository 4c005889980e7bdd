"""Online-continual learning: streams of pictures, learned one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sqhn.data.corruptions import white_noise
from sqhn.data.streams import Domains, class_incremental, domain_incremental, iid, mixed_domains, unit
from sqhn.paper.experiments.case import (
    CODE,
    DEFAULT,
    Case,
    Experiment,
    Pictures,
    Reading,
    generator,
    picture,
    pictures_of,
    pool,
    taught,
)
from sqhn.paper.experiments.claims import Measured, above, at_least, at_most, below
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.memories import Spec, Tree, resident_bytes
from sqhn.paper.experiments.plots import (
    ERROR,
    RECALLED,
    bars,
    by_model,
    grid,
    line,
    mark,
    outside,
    panels,
)
from sqhn.paper.experiments.results import Found, NotRunError, Results, Values
from sqhn.paper.experiments.rivals import MHNS, TREE_KERNELS, nearest, online, online_tree
from sqhn.paper.metrics import forgetting_bound, recall_accuracy, recall_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FAMILY",
    "ONE_LEVEL",
    "Arrival",
    "Stream",
    "capacity_of",
    "lowest_until_full",
    "past_capacity",
]

FAMILY = Family()
Order = Literal["class", "domain", "iid", "mixed"]
ORDERED: tuple[Order, ...] = ("class", "domain")


# -- what is run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Stream(Case):
    """Learn a stream; at every test point recall all pictures so far, as they were and with noise.

    order: of classes, of domains, or shuffled (iid: of one set; mixed: of all domains). control: what an ordered stream
    and its shuffled control have in common. transforms: the domains of each set. every: pictures between test points.
    sigma: of the noise, 0 for none. noise_first: it is added before a picture is turned into its domain. threshold: of
    the error of a picture that counts as recalled. alike: also recall unseen pictures of the same kind, as many or as
    there are. tests: and so many unseen pictures at every test point, without noise. show: how many to keep to show.
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
        x = self._pictures("train", generator(seed, "data"))
        unseen = self._pictures("test", generator(seed, "unseen")) if self.alike else None
        tests = unit(pool(self.data[0], "test")[0][: self.tests]) if self.tests else None
        memory = self.built(x.transformed(x.x[:1]).shape[1:], seed, device)
        noise, seen = generator(seed, "noise"), x.transformed(x.x)
        curves: dict[str, list[float]] = {}

        def note(prefix: str, recalled: Pictures, right: Pictures) -> None:
            error = recall_error(recalled, right)
            curves.setdefault(f"{prefix}accuracy", []).append(recall_accuracy(error, self.threshold))
            curves.setdefault(f"{prefix}mse", []).append(float(error.mean()))

        for done in taught(memory, seen, self.every):
            curves.setdefault("learned", []).append(done)
            note("", memory.recall(seen[:done]).x, seen[:done])
            if self.sigma:
                note("noisy_", memory.recall(self._noisy(x, done, noise)).x, seen[:done])
            if unseen is not None:
                many = max(1, done * len(unseen.x) // len(seen))
                given = self._noisy(unseen, many, noise) if self.sigma else unseen.transformed(unseen.x[:many])
                note("unseen_", memory.recall(given).x, unseen.transformed(unseen.x[:many]))
            if tests is not None:
                note("test_", memory.recall(tests).x, tests)
        results: dict[str, Any] = {"length": len(seen), "curves": curves}
        results["bytes"] = resident_bytes(memory)
        if self.show and seed == 0:
            some = seen[np.linspace(0, done - 1, self.show).astype(int)]
            spoiled = white_noise(some, self.sigma, generator(seed, "show"))[0]
            found = memory.recall(spoiled).x
            results["pictures"] = {"learned": picture(some), "given": picture(spoiled), "found": picture(found)}
        return results

    def _pictures(self, split: str, rng: np.random.Generator) -> Domains:
        """In the order of their arrival; of the test split, as many as there are in the same arrangement."""
        sources = [pool(name, split) for name in self.data]
        if self.order in ("iid", "class"):
            (x, y), *_ = sources
            drawn = iid(x, self.length, rng) if self.order == "iid" else class_incremental(x, y, self.length, rng)
            return Domains(drawn, np.zeros(len(drawn), np.int64), ("plain",))
        arrange = domain_incremental if self.order == "domain" else mixed_domains
        return arrange([x for x, _ in sources], self.transforms, self.length, rng)

    def _noisy(self, x: Domains, many: int, rng: np.random.Generator) -> Pictures:
        if self.noise_first:
            return x.transformed(white_noise(x.x[:many], self.sigma, rng)[0])
        return white_noise(x.transformed(x.x[:many]), self.sigma, rng)[0]


@dataclass(frozen=True)
class Arrival:
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


FLIP, LIGHT = ("plain", "flipped"), ("dark", "bright_flipped")
DIGITS, CLOTHES = ("mnist", "fashion_mnist"), ("cifar10", "svhn")
ONE_LEVEL = {
    "OCI-E": Arrival(("emnist",), "class", "E", 3000, (5000, 22000, 50000)),
    "OCI-C": Arrival(("cifar100",), "class", "C", 5000, (20000, 55000, 65000)),
    "ODI-M": Arrival(DIGITS, "domain", "M", 3000, (8000, 50000, 90000), FLIP),
    "ON-E": Arrival(("emnist",), "iid", "E", 3000, (5000, 25000, 45000)),
    "ON-C": Arrival(("cifar100",), "iid", "C", 5000, (25000, 90000, 100000)),
    "ON-M": Arrival(DIGITS, "mixed", "M", 3000, (15000, 50000, 120000), FLIP),
}
THREE_LEVELS = {
    "OCI-C3": Arrival(("cifar100",), "class", "C3", 2000, (10000, 30000, 62000)),
    "ODI-CS": Arrival(CLOTHES, "domain", "CS", 2000, (15000, 45000, 88000), LIGHT, 0.005),
    "ON-C3": Arrival(("cifar100",), "iid", "C3", 2000, (8000, 22000, 50000)),
    "ON-CS": Arrival(CLOTHES, "mixed", "CS", 2000, (16000, 35000, 88000), LIGHT, 0.005),
}
NOISE_FIRST = "SQHN L3, noise first"


def oc_l1(reading: Reading) -> Iterator[Case]:
    for name, arrival in ONE_LEVEL.items():
        colour = arrival.data == ("cifar100",)
        sizes, every = ((700, 2000, 3300), 200) if colour else ((300, 1300, 2300), 100)
        for J, alpha in zip(sizes, arrival.alphas, strict=True):
            memory = Tree(J) if reading == DEFAULT else Tree(J, alpha=alpha, similarity="cosine")
            shown = 8 if (name, J) == ("OCI-C", 2000) else 0
            yield arrival.case(name, "SQHN L1", J, memory, every=every, show=shown)
            for model, rival in (*online(name, J), *nearest(J).items()):
                yield arrival.case(name, model, J, rival, every=every)


def oc_l3(reading: Reading) -> Iterator[Case]:
    for name, arrival in THREE_LEVELS.items():
        for J, alpha in zip((200, 600, 1000), arrival.alphas, strict=True):
            memory = Tree(J, TREE_KERNELS, 1e7 if reading == DEFAULT else alpha)
            shown = 8 if (name, J) == ("OCI-C3", 600) else 0
            yield arrival.case(name, "SQHN L3", J, memory, show=shown)
            if arrival.transforms:
                yield arrival.case(name, NOISE_FIRST, J, memory, noise_first=True)
            for model, rival in online_tree(name, J, reading):
                yield arrival.case(name, model, J, rival, seeds=3)  # an hour and more of computing for each row
            for model, store in nearest(J).items():
                yield arrival.case(name, model, J, store)


SMALL = {"length": 16, "capacity": 16, "size": 16, "every": 8}
FAMILY.experiments += [
    Experiment(
        "OC-L1", "Online-continual learning, one level",
        "Does one level learn ordered streams one picture at a time without forgetting, whatever the order?",
        oc_l1, SMALL,
    ),
    Experiment(
        "OC-L3", "Online-continual learning, three levels", "The same for trees on natural pictures.", oc_l3, SMALL,
    ),
]  # fmt: skip


# -- what is claimed ----------------------------------------------------------------------------------


def runs_of(results: Results, experiment: str, model: str) -> Found[Results]:
    """Of every stream and size."""
    found = results.of(experiment, model=model)
    return Found({f"{name} J={J}": one for name, some in found.each("set") for J, one in some.each("size")})


def capacity_of(run: Results) -> int:
    """Number of neurons of the memories of a run."""
    J: int = run.setting("size")
    return J


def lowest_until_full(runs: Mapping[str, Results], curve: str) -> dict[str, float]:
    """The lowest value of any seed at test points up to capacity."""
    return {where: float(run.curve(curve)[:, run.t <= capacity_of(run)].min()) for where, run in runs.items()}


def past_capacity(runs: Mapping[str, Results]) -> Measured:
    """How far clean recall is above the line of Theorem 2 at least, and how much it rises between test points."""
    gaps, rises = {}, {}
    for where, run in runs.items():
        after = run.t > capacity_of(run)
        if after.any():
            accuracy = run.mean("accuracy")[after]
            gaps[where] = float((accuracy - forgetting_bound(capacity_of(run), run.t[after])).min())
            rises[where] = float(np.diff(accuracy).max(initial=0))
    return {"above the line of Theorem 2": gaps, "rise between test points": rises}


def recalled_beyond_unseen(run: Results) -> Values:
    """The share of pictures recalled, less that of unseen pictures that count as recalled; (seeds, points)."""
    return run.curve("noisy_accuracy") - run.curve("unseen_accuracy")


def sensitivities(results: Results, experiment: str, model: str, order: Order) -> dict[str, float]:
    """Of ordered streams and sizes: the mean over test points of |error less that of the shuffled control|.

    Of means over seeds; without the first test point, at which nothing is learned yet.
    """
    found = {}
    runs = results.of(experiment, model=model)
    for name, some in runs.of(order=order).each("set"):
        control = runs.where(control=some.setting("control"), order="iid" if order == "class" else "mixed")
        for J, one in some.each("size"):
            pair = [run.mean("noisy_mse")[1:] for run in (one, control.of(size=J))]
            points = min(map(len, pair))  # a stream of whole classes may be a little shorter
            found[f"{name} J={J}"] = float(np.abs(pair[0][:points] - pair[1][:points]).mean())
    return found


def both_orders(results: Results, experiment: str, model: str) -> Found[float]:
    classes, domains = (sensitivities(results, experiment, model, order) for order in ORDERED)
    return Found({**classes, **domains})


def stream_claims(prefix: str, experiment: str, model: str, deep: bool) -> None:
    """The same claims for one level and for three."""
    claim_recall(prefix, experiment, model, deep)
    claim_rivals(prefix, experiment, model)
    claim_order(prefix, experiment, model)

    @FAMILY.claim(
        f"{prefix}.6", experiment, "more neurons recall more, with less error", "more",
        {"gain of cumulative recall": above(0), "gain of cumulative error": below(0)},
    )  # fmt: skip
    def _(results: Results) -> Measured:
        gains: dict[str, dict[str, float]] = {"gain of cumulative recall": {}, "gain of cumulative error": {}}
        for name, some in results.of(experiment, model=model).each("set"):
            sizes = dict(some.each("size"))
            for curve, gain in zip(("noisy_accuracy", "noisy_mse"), gains.values()):
                means = {J: float(run.average(curve).mean()) for J, run in sizes.items()}
                gain |= {f"{name} J={a} to {b}": means[b] - means[a] for a, b in zip(means, list(means)[1:])}
        return gains


def claim_recall(prefix: str, experiment: str, model: str, deep: bool) -> None:
    name = "lowest recall from noise, any seed and test point up to J"
    bound = {DEFAULT: at_least(0.99), CODE: at_least(0.95)} if deep else at_least(0.995)

    @FAMILY.claim(
        f"{prefix}.1", experiment, "all pictures are recalled from noise until the memory is full"
        + (": streams of CIFAR-100" if deep else ""), "1.0", {name: bound},
        seen=(
            "With the alphas of the published code and the plain cosine pictures that are alike are averaged before "
            "the memory is full."
        ),
    )  # fmt: skip
    def _(results: Results) -> Measured:
        found = results.of(experiment)
        some = Results([*found.where(order="class").records, *found.where(order="iid").records]) if deep else found
        return {name: lowest_until_full(runs_of(some, experiment, model), "noisy_accuracy")}

    if deep:
        domain_claims(prefix, experiment, model, name, bound)

    @FAMILY.claim(
        f"{prefix}.2", experiment, "past capacity recall decays smoothly, above the line of Theorem 2", "above",
        {"above the line of Theorem 2": at_least(-0.02), "rise between test points": at_most(0.02)},
        seen=(
            "With the alphas of the published code not every picture grows a neuron while there is room: the memory is "
            "not full when the line begins to fall, and pictures that were averaged are not recalled."
        ),
    )  # fmt: skip
    def _(results: Results) -> Measured:
        return past_capacity(runs_of(results, experiment, model))


def domain_claims(prefix: str, experiment: str, model: str, name: str, bound: Any) -> None:
    @FAMILY.claim(
        f"{prefix}.1b", experiment, "the same for darkened and flipped domains", "1.0", {name: bound},
        seen=(
            "Without noise these streams too are recalled until the memory is full. Halving the brightness puts every "
            "value on one side of one half, so that all patches point nearly the same way after the shift, and noise "
            "of 0.2 decides which stored patch is nearest. The alphas of the published code, the plain cosine and "
            "smaller growth thresholds do not help. With noise that is added before the brightness is halved it holds "
            f"nearly (see {prefix}.8); nothing says that the authors did so."
        ),
    )  # fmt: skip
    def _(results: Results) -> Measured:
        found = results.of(experiment)
        some = Results([*found.where(order="domain").records, *found.where(order="mixed").records])
        return {name: lowest_until_full(runs_of(some, experiment, model), "noisy_accuracy")}

    @FAMILY.claim(
        f"{prefix}.8", experiment, "the same with noise that is added before pictures are darkened", "not in the paper",
        {name: None}, beyond=True,
    )  # fmt: skip
    def _(results: Results) -> Measured:
        return {name: lowest_until_full(runs_of(results, experiment, NOISE_FIRST), "noisy_accuracy")}


def claim_rivals(prefix: str, experiment: str, model: str) -> None:
    most = "most recalled beyond unseen pictures"

    @FAMILY.claim(
        f"{prefix}.3", experiment, "no MHN trained online recalls anything: no more pictures of the stream than unseen "
        "ones of the same kind come out within tolerance", "0", {most: below(0.05)},
        seen="A tree trained with Adam brings back a few more of the pictures it has met than of others.",
    )  # fmt: skip
    def _(results: Results) -> Measured:
        found = {}
        for mhn in MHNS:
            runs = runs_of(results, experiment, mhn)
            tops = {where: float(recalled_beyond_unseen(run).mean(axis=0)[1:].max()) for where, run in runs.items()}
            where = max(tops, key=lambda key: tops[key])
            found[f"{mhn} {where}"] = tops[where]
        return {most: found}

    @FAMILY.claim(
        f"{prefix}.4", experiment, "over every stream and size SQHN recalls more than every MHN, with less error",
        "ahead", {"cumulative recall beyond unseen, ahead by": above(0), "cumulative error, ahead by": above(0)},
        seen=(
            "It recalls far more everywhere. The error of the tree trained with Adam, which learns to code patches in "
            "general, is lower where the SQHN is small against its stream of darkened and flipped pictures, which it "
            "confuses under noise. Where EWC++ diverges, there is nothing to compare."
        ),
    )  # fmt: skip
    def _(results: Results) -> Measured:
        recall, error = {}, {}
        for where, one in runs_of(results, experiment, model).items():
            for mhn in MHNS:
                other = runs_of(results, experiment, mhn)[where]
                ours, theirs = (float(recalled_beyond_unseen(run)[:, 1:].mean()) for run in (one, other))
                recall[f"{where} {mhn}"] = ours - theirs
                ours, theirs = (float(run.curve("noisy_mse")[:, 1:].mean()) for run in (one, other))
                error[f"{where} {mhn}"] = theirs - ours
        return {"cumulative recall beyond unseen, ahead by": recall, "cumulative error, ahead by": error}


def claim_order(prefix: str, experiment: str, model: str) -> None:
    @FAMILY.claim(
        f"{prefix}.5", experiment, "SQHN is highly insensitive to order, every MHN more sensitive",
        "near 0; much larger", {"order sensitivity over that of the MHN": below(1), "order sensitivity": None},
    )  # fmt: skip
    def _(results: Results) -> Measured:
        ours = both_orders(results, experiment, model)
        theirs = {mhn: both_orders(results, experiment, mhn) for mhn in MHNS}
        ratios = {f"{where} {mhn}": ours[where] / theirs[mhn][where] for mhn in MHNS for where in ours}
        return {"order sensitivity over that of the MHN": ratios, "order sensitivity": ours}

    @FAMILY.claim(
        f"{prefix}.9", experiment, "MHNs are most sensitive to the order of domains", "especially in the ODI setting",
        {"order sensitivity, domains less classes": above(0)},
    )  # fmt: skip
    def _(results: Results) -> Measured:
        found = {}
        for mhn in MHNS:
            classes, domains = (sensitivities(results, experiment, mhn, order) for order in ORDERED)
            found[mhn] = float(np.mean(list(domains.values())) - np.mean(list(classes.values())))
        return {"order sensitivity, domains less classes": found}


stream_claims("OC1", "OC-L1", "SQHN L1", deep=False)
stream_claims("OC3", "OC-L3", "SQHN L3", deep=True)


@FAMILY.claim(
    "OC1.7", "OC-L1 OC-L3", "EWC++ differs little from SGD", "little",
    {"median cumulative error, EWC++ over SGD": None},
)  # fmt: skip
def _(results: Results) -> Measured:
    found = {}
    for experiment in ("OC-L1", "OC-L3"):
        sgd, ewc = (runs_of(results, experiment, mhn) for mhn in ("MHN-SGD", "MHN-EWC++"))
        for where, one in sgd.items():
            pair = [float(np.median(run.average("noisy_mse"))) for run in (ewc[where], one)]
            found[f"{experiment} {where}"] = pair[0] / pair[1]
    return {"median cumulative error, EWC++ over SGD": found}


# -- what is drawn ---------------------------------------------------------------------------------------------------


def stream_figures(experiment: str, levels: str, pictured: str) -> None:
    draw_curves(experiment, levels)
    draw_cumulative(experiment, levels)

    @FAMILY.figure(
        f"{experiment}-pictures".lower(), experiment,
        f"{levels.capitalize()}, medium size, at the end of a stream of classes: some of the pictures learned, first "
        "to last; what was given; what was recalled.",
    )  # fmt: skip
    def _(results: Results) -> Figure:
        run = results.of(experiment, set=pictured)  # of the only size of which pictures are kept
        rows = [pictures_of(run.pictures(row)) for row in ("learned", "given", "found")]
        return grid(rows, ["learned", "given", "recalled"])


def draw_curves(experiment: str, levels: str) -> None:
    @FAMILY.figure(
        f"{experiment}-curves".lower(), experiment,
        f"Online-continual learning with {levels}, medium size: recall of all pictures so far from noise (standard "
        "deviation 0.2) against pictures learned; below it what counts as recalled of unseen pictures of the same "
        "kind, and the error. Dotted: capacity. Bands: standard deviation over seeds.",
    )  # fmt: skip
    def _(results: Results) -> Figure:
        runs = results.of(experiment)
        streams = [name for name, some in runs.each("set") if some.setting("order") in ORDERED]
        figure, axes = panels(3, len(streams))
        for column, name in enumerate(streams):
            some = runs.where(set=name)
            sizes = sorted(some.settings("size"))
            size = sizes[len(sizes) // 2]
            for model, run in by_model(some.where(size=size)):
                for row, curve in enumerate(("noisy_accuracy", "unseen_accuracy", "noisy_mse")):
                    line(axes[row, column], run.t, run.curve(curve), model)
            axes[0, column].set_title(f"{name}, J = {size}")
            for row in (0, 1):
                axes[row, column].set_ylim(-0.03, 1.03)
            axes[2, column].set_ylim(0, 0.2)
            axes[2, column].set_xlabel("pictures learned")
            for row in range(3):
                mark(axes[row, column], x=size)
        for row, label in enumerate((RECALLED, "unseen, counted\nas recalled", ERROR)):
            axes[row, 0].set_ylabel(label)
        outside(figure, axes[0, 0])
        return figure


def draw_cumulative(experiment: str, levels: str) -> None:
    @FAMILY.figure(
        f"{experiment}-cumulative".lower(), experiment,
        f"{levels.capitalize()}, three sizes: recall from noise less what counts as recalled of unseen pictures, and "
        "the error, both means over the test points of every stream (ON: shuffled; medians over seeds, whiskers from "
        "the least to the most); and sensitivity to order, the mean distance of the error from that of the shuffled "
        "stream.",
    )  # fmt: skip
    def _(results: Results) -> Figure:
        runs = results.of(experiment)
        streams = runs.settings("set")
        models = [model for model, _ in by_model(runs)]
        figure, axes = panels(3, 3, width=3.9, height=2.3)
        for column, size in enumerate(("small", "medium", "large")):
            beyond: dict[str, list[Any]] = {model: [] for model in models}
            error: dict[str, list[Any]] = {model: [] for model in models}
            for model in models:
                for stream in streams:
                    run = of_size(runs, model, stream, column)
                    both = len(run) and "unseen_accuracy" in run.records[0]["results"]["curves"]
                    beyond[model].append(recalled_beyond_unseen(run)[:, 1:].mean(axis=1) if both else np.zeros(0))
                    error[model].append(run.curve("noisy_mse")[:, 1:].mean(axis=1) if len(run) else np.zeros(0))
            bars(axes[0, column], streams, beyond, medians=True)
            bars(axes[1, column], streams, error, medians=True)
            ordered = [name for name, some in runs.each("set") if some.setting("order") in ORDERED]
            orders: dict[str, list[Any]] = {}
            for model in models:
                try:
                    found = both_orders(results, experiment, model)
                except NotRunError:
                    continue
                places = [f"{stream} J={size_of(runs, stream, column)}" for stream in ordered]
                orders[model] = [np.array([found[place]]) if place in found else np.zeros(0) for place in places]
            bars(axes[2, column], ordered, orders)
            axes[0, column].set_title(size)
            axes[0, column].set_ylim(-0.08, 1.05)
            axes[1, column].set_ylim(0, 0.17)
            axes[2, column].set_ylim(0, 0.1)
        for row, label in enumerate(("cumulative recall\nbeyond unseen", "cumulative error", "order sensitivity")):
            axes[row, 0].set_ylabel(label)
        outside(figure, axes[0, 0])
        return figure


def size_of(runs: Results, stream: str, place: int) -> int | None:
    """The small, medium or large size on a stream, if there is one."""
    sizes = sorted(runs.where(set=stream).settings("size"))
    return sizes[place] if place < len(sizes) else None


def of_size(runs: Results, model: str, stream: str, place: int) -> Results:
    """The runs of a memory on a stream with that size."""
    return runs.where(set=stream, model=model, size=size_of(runs, stream, place))


stream_figures("OC-L1", "one level", "OCI-C")
stream_figures("OC-L3", "three levels", "OCI-C3")
