"""Recognition: telling learned images from new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sqhn.data.corruptions import white_noise
from sqhn.data.streams import TRANSFORMS, iid, unit
from sqhn.paper.experiments.case import CODE, DEFAULT, Case, Experiment, Reading, generator, learn_in_steps, load_split
from sqhn.paper.experiments.claims import Measured, above, at_least, at_most, below
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.hyperparameters import RECOGNIZERS, nearest_neighbors
from sqhn.paper.experiments.models import ByErrorTree, Spec, Tree
from sqhn.paper.experiments.plots import CHANCE, ERROR, LEARNED, by_model, legend_above, line, mark, panels, title
from sqhn.paper.experiments.results import Results, Values
from sqhn.paper.experiments.table_1 import DEPTHS, kernels_of
from sqhn.paper.metrics import recall_error, recognition_accuracy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FAMILY = Family()
GROUPS = {"old": "learned", "new": "new, same kind", "other": "new, another kind"}
TOLERANCES = tuple(float(factor) for factor in np.geomspace(1e-3, 1e3, 61))


# -- experiments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Recognition(Case):
    """Learn a stream; at every test point recognize all images so far, and as many new ones of two kinds.

    data: the set that is learned, and the set of another kind, to which `transform` is applied. pretrain: the number of
    other images on which the levels below the memory node are trained; the memory node then learns alone. sigma: of
    noise on all test images. search: also test other tolerances, many factors of the model's own.
    """

    length: int = 3000
    every: int = 100
    pretrain: int = 0
    sigma: float = 0.0
    transform: str = "plain"
    search: bool = False

    def run(self, seed: int, device: str) -> dict[str, Any]:
        name, other = self.data
        drawn = iid(load_split(name, "train")[0], self.pretrain + self.length, generator(seed, "data"))
        before, x = drawn[: self.pretrain], drawn[self.pretrain :]
        memory = self.build(x.shape[1:], seed, device)
        if len(before):
            memory.pretrain(before)
        groups = {
            "old": x,
            "new": unit(load_split(name, "test")[0][: len(x)]),
            "other": TRANSFORMS[self.transform](unit(load_split(other, "test")[0][: len(x)])),
        }
        given = groups
        if self.sigma:
            given = {
                kind: white_noise(group, self.sigma, generator(seed, "noise", kind))[0]
                for kind, group in groups.items()
            }
        curves: dict[str, list[Any]] = {"learned": [], "accuracy": [], **({"searched": []} if self.search else {})}
        for done in learn_in_steps(memory, x, self.every, **({"root_only": True} if len(before) else {})):
            curves["learned"].append(done)
            shares, searched = {}, {}
            for kind, group in groups.items():
                judged = memory.recognize(given[kind][:done])
                old = float(np.mean(judged.old))
                shares[kind] = old if kind == "old" else 1 - old
                error = recall_error(memory.recall(group[:done]).x, group[:done])
                measured = {"share": shares[kind], "mse": float(error.mean()), "mse_std": float(error.std())}
                for measure, value in measured.items():
                    curves.setdefault(f"{kind}_{measure}", []).append(value)
                if self.search:
                    olds = (judged.score[:, None] >= judged.threshold[:, None] * np.array(TOLERANCES)).mean(axis=0)
                    searched[kind] = olds if kind == "old" else 1 - olds
            curves["accuracy"].append(recognition_accuracy(shares["old"], shares["new"], shares["other"]))
            if self.search:
                curves["searched"].append(np.mean(list(searched.values()), axis=0).tolist())
        return {"length": len(x), "new": len(groups["new"]), "other": len(groups["other"]), "curves": curves}


def rc(reading: Reading) -> Iterator[Case]:
    code = reading == CODE
    data = ("mnist", "fashion_mnist")
    memory = Tree(300, alpha=50000, rho=0.99999)
    if code:
        memory = replace(memory, when_full="overwrite", mu="pseudocount")
    by_error = ByErrorTree(300, alpha=50000, rho=0.99999, when_full=memory.when_full, mu=memory.mu)
    models: dict[str, Spec] = {"SQHN": memory, "SQHN(mse)": by_error, **RECOGNIZERS, **nearest_neighbors(300)}
    for model, one in models.items():
        flipped = code and isinstance(one, Tree)  # the script of the MHNs does not flip images
        yield Recognition(
            set="mnist", data=data, model=model, size=300, memory=one, transform="flipped" if flipped else "plain",
            search=model in RECOGNIZERS,
        )  # fmt: skip


@dataclass(frozen=True)
class DataSets:
    """The learned and the foreign data set in the comparison of depths, on which the paper contradicts itself."""

    data: tuple[str, str]
    transform: str


IN_METHODS = DataSets(("cifar10", "cifar100"), "flipped")
IN_CAPTION = DataSets(("cifar100", "svhn"), "flipped")


def by_depth(
    reading: Reading, sigma: float = 0.0, rho: tuple[float, float, float] = (0.99999, 0.999, 0.999)
) -> Iterator[Case]:
    """Text: 500 neurons in every node and propagation "max"; code: 40 and 200 below the memory node and "argmax"."""
    for sets in (IN_METHODS,) if reading == CODE or sigma else (IN_METHODS, IN_CAPTION):
        whole = Recognition(set=sets.data[0], data=sets.data, model="", size=500, sigma=sigma, transform=sets.transform)
        for model, memory in one_level(reading, rho[0]).items():
            yield replace(whole, model=model, memory=memory)
        for model, tolerance in zip(PUBLISHED_CAPACITIES, rho[1:]):
            tree = Tree(500, kernels_of("cifar10")[model], 100000, rho=tolerance, propagation="max")
            case = replace(whole, model=model, memory=tree, pretrain=1000)
            if reading == CODE:
                below = replace(tree, capacity=PUBLISHED_CAPACITIES[model], propagation="argmax", mu="pseudocount")
                case = replace(case, memory=below, transform="plain")
            yield case
        for model, store in nearest_neighbors(500).items():
            yield replace(whole, model=model, memory=replace(store, tolerance=2 * sigma**2) if sigma else store)


PUBLISHED_CAPACITIES = {"SQHN L2": (40, 500), "SQHN L3": (40, 200, 500)}


def one_level(reading: Reading, rho: float) -> dict[str, Tree]:
    """The code overwrites and the text averages; under the text both are run."""
    one = Tree(500, alpha=500000, rho=rho)
    if reading == CODE:
        return {"SQHN L1": replace(one, when_full="overwrite", mu="pseudocount")}
    return {"SQHN L1": one, "SQHN L1, overwrite": replace(one, when_full="overwrite")}


QUARTER = {"length": 4, "capacity": 4, "size": 4, "pretrain": 4}
FAMILY.experiments += [
    Experiment(
        "RC", "Recognition", "Can the memory tell learned images from new ones?",
        rc, {"length": 2, "capacity": 2, "size": 2},
    ),
    Experiment(
        "AC-E", "Recognition by depth", "Does depth cost the ability to tell old from new?", by_depth, QUARTER,
    ),
    Experiment(
        "X-RECN", "Recognition by depth, with noise", "The same with noisy test images.",
        lambda reading: by_depth(reading, 0.2, (0.85, 0.45, 0.25)), QUARTER,
    ),
]  # fmt: skip


# -- claims ------------------------------------------------------------------------------------------------------------


def until_full(run: Results) -> Any:
    """A mask of the test points until the memory is full."""
    return run.t <= run.setting("size")


@FAMILY.claim(
    "RC.1", "RC", "until it is full SQHN tells all old images from all new ones", "1.0",
    {"lowest accuracy, any seed": at_least(1)},
)  # fmt: skip
def accuracy_until_full(results: Results) -> Measured:
    run = results.of("RC", model="SQHN")
    return {"lowest accuracy, any seed": {"": float(run.curve("accuracy")[:, until_full(run)].min())}}


@FAMILY.claim(
    "RC.2", "RC", "later it stays above chance and falls gradually", "above 2/3",
    {"lowest accuracy above chance by": above(0.03), "largest rise between test points": at_most(0.02)},
)  # fmt: skip
def accuracy_past_capacity(results: Results) -> Measured:
    run = results.of("RC", model="SQHN")
    accuracy = run.mean("accuracy")
    rise = float(np.diff(accuracy[~until_full(run)]).max(initial=0))
    return {
        "lowest accuracy above chance by": {"": float(accuracy.min()) - CHANCE},
        "largest rise between test points": {"": rise},
    }


def best_tolerance(run: Results) -> Values:
    """The accuracy with the tolerance that is best over the whole stream; (seeds, points)."""
    searched = run.curve("searched")
    return np.asarray(searched[:, :, int(searched.mean(axis=(0, 1)).argmax())])


@FAMILY.claim(
    "RC.3", "RC", "the MHNs do no better than chance, with the best of 61 tolerances", "about 2/3",
    {"accuracy above chance from t = J on": at_most(0.03)},
)  # fmt: skip
def mhns_against_chance(results: Results) -> Measured:
    tops = {}
    for mhn in RECOGNIZERS:
        run = results.of("RC", model=mhn)
        tops[mhn] = float(best_tolerance(run).mean(axis=0)[run.late(run.setting("size"))].max()) - CHANCE
    return {"accuracy above chance from t = J on": tops}


@FAMILY.claim(
    "RC.4", "RC", "errors order old, new and foreign images", "old ~0 until full, lowest after; foreign highest",
    {"error of old until full": below(1e-6), "new above old, later, by": above(0),
     "foreign above new, later, by": above(0)},
)  # fmt: skip
def order_of_errors(results: Results) -> Measured:
    run = results.of("RC", model="SQHN")
    old, new, other = (run.mean(f"{kind}_mse") for kind in GROUPS)
    early, late = until_full(run), run.late(run.setting("size") + 1)
    return {
        "error of old until full": {"": float(old[early].max())},
        "new above old, later, by": {"": float((new - old)[late].min())},
        "foreign above new, later, by": {"": float((other - new)[late].min())},
    }


@FAMILY.claim(
    "RC.5", "RC", "the MHN's errors do not tell old from new", "identical",
    {"relative difference for t >= 5 J / 3": below(0.1)},
)  # fmt: skip
def errors_of_the_mhn(results: Results) -> Measured:
    run = results.of("RC", model="MHN (rec-mse)")
    late = run.late(5 * run.setting("size") / 3)
    old, new = (run.mean(f"{kind}_mse")[late] for kind in ("old", "new"))
    return {"relative difference for t >= 5 J / 3": {"": float(np.max(np.abs(old - new) / old))}}


@FAMILY.claim(
    "RC.6", "RC", "MHNs generalize better early: until SQHN is full their error on new images is lower",
    "generalize better earlier", {"error on new images, below SQHN's by": above(0)},
    explanation=(
        "One gradient step for each of 300 images is not enough: until then the network's error on new images is "
        "larger than that of the nearest stored image, which one level recalls."
    ),
)  # fmt: skip
def early_generalization(results: Results) -> Measured:
    ours = results.of("RC", model="SQHN")
    early = until_full(ours)
    early[0] = False  # nothing is learned yet
    found = {}
    for mhn in RECOGNIZERS:
        theirs = results.of("RC", model=mhn).mean("new_mse")
        found[mhn] = float((ours.mean("new_mse") - theirs)[early].mean())
    return {"error on new images, below SQHN's by": found}


def by_depths(results: Results, experiment: str, name: str) -> dict[str, Results]:
    some = results.of(experiment, set=name)
    found = {depth: some.of(model=model) for depth, model in DEPTHS.items()}
    other = some.where(model="SQHN L1, overwrite")
    return found | ({"L1, overwrite": other} if len(other) else {})


def ends(runs: Mapping[str, Results]) -> dict[str, Values]:
    return {depth: run.curve("accuracy")[:, -1] for depth, run in runs.items()}


def depth_claims(prefix: str, name: str, sets: str, **more: Any) -> None:
    """Figure 5 E, for the learned set `name`."""

    @FAMILY.claim(
        f"{prefix}.1", "AC-E", f"{sets}: until full, all depths tell old from new", "1.0",
        {"lowest accuracy": at_least(0.98)}, **more,
    )  # fmt: skip
    def accuracy_by_depth_until_full(results: Results) -> Measured:
        runs = by_depths(results, "AC-E", name)
        return {"lowest accuracy": {d: float(run.mean("accuracy")[until_full(run)].min()) for d, run in runs.items()}}

    @FAMILY.claim(
        f"{prefix}.2", "AC-E", f"{sets}: six times past capacity all depths are well above chance", "well above 2/3",
        {"above chance by, at the end": above(0.03)},
        explanation=(
            "Past capacity the threshold of a neuron is the mean match of all images that were averaged into it. With "
            "six images per neuron this mean is low, new images pass it, and the accuracy of one level falls to little "
            "more than that of always answering new. Trees, whose memory node compares codes, stay well above."
        ),
        **more,
    )  # fmt: skip
    def accuracy_by_depth_at_the_end(results: Results) -> Measured:
        last = ends(by_depths(results, "AC-E", name))
        return {"above chance by, at the end": {depth: values - CHANCE for depth, values in last.items()}}

    @FAMILY.claim(
        f"{prefix}.3", "AC-E", f"{sets}: depth costs no recognition", "no significant loss",
        {"behind L1 at the end by": at_most(0.1)}, **more,
    )  # fmt: skip
    def loss_by_depth(results: Results) -> Measured:
        last = ends(by_depths(results, "AC-E", name))
        return {"behind L1 at the end by": {d: float(last["L1"].mean() - last[d].mean()) for d in ("L2", "L3")}}


depth_claims("ACE", "cifar10", "CIFAR-10, flipped CIFAR-100")
depth_claims("ACEb", "cifar100", "CIFAR-100, flipped SVHN", readings=(DEFAULT,))


@FAMILY.claim(
    "XR.1", "X-RECN", "with noise, until full, all depths are above chance", "not in the paper",
    {"lowest accuracy above chance by": above(0)}, beyond=True,
    explanation=(
        "Three levels take most noisy old images for new under both readings, and two levels do so with the tolerances "
        "of the text: small patches are easily confused under noise."
    ),
)  # fmt: skip
def noisy_accuracy_until_full(results: Results) -> Measured:
    runs = by_depths(results, "X-RECN", "cifar10")
    lows = {depth: float(run.mean("accuracy")[until_full(run)].min()) - CHANCE for depth, run in runs.items()}
    return {"lowest accuracy above chance by": lows}


@FAMILY.claim(
    "XR.2", "X-RECN", "with noise, small patches hurt: L1 >= L2 >= L3 when full", "not in the paper",
    {"L1 - L2": at_least(0), "L2 - L3": at_least(-0.02)}, beyond=True,
)  # fmt: skip
def noisy_accuracy_by_depth(results: Results) -> Measured:
    runs = by_depths(results, "X-RECN", "cifar10")
    full = {depth: float(run.mean("accuracy")[until_full(run)][-1]) for depth, run in runs.items()}
    return {"L1 - L2": {"": full["L1"] - full["L2"]}, "L2 - L3": {"": full["L2"] - full["L3"]}}


# -- figures -----------------------------------------------------------------------------------------------------------


@FAMILY.figure(
    "rc", "RC",
    "Recognition. A: accuracy over learned images, new ones of the same kind and of another kind (the MHNs with the "
    "best of 61 tolerances); dashes: always answering new. B: errors of recall of the three groups (bands: spread "
    "within a group). C: the same for the MHN.",
)  # fmt: skip
def accuracy_and_errors(results: Results) -> Figure:
    runs = results.of("RC")
    figure, axes = panels(1, 3, width=3.4, height=2.9)
    size = runs.setting("size")
    for model, run in by_model(runs):
        line(axes[0, 0], run.t, best_tolerance(run) if model in RECOGNIZERS else run.curve("accuracy"), model)
    mark(axes[0, 0], x=size, y=CHANCE)
    axes[0, 0].set_ylabel("recognition accuracy")
    axes[0, 0].set_ylim(0.6, 1.02)
    axes[0, 0].set_title("A")
    for axis, model, letter in ((axes[0, 1], "SQHN", "B"), (axes[0, 2], "MHN (rec-mse)", "C")):
        chosen = runs.of(model=model)
        axis.set_title(f"{letter}: {model}")
        for number, (group, label) in enumerate(GROUPS.items()):
            line(axis, chosen.t, chosen.curve(f"{group}_mse"), label, number, chosen.mean(f"{group}_mse_std"))
        mark(axis, x=size)
        axis.set_ylabel(ERROR)
        axis.legend()
    for axis in axes[0]:
        axis.set_xlabel(LEARNED)
    axes[0, 0].legend()
    return figure


@FAMILY.figure(
    "ac-e", "AC-E",
    "Recognition by depth, for the data sets named in the paper's methods (left) and in its caption (right). Dotted: "
    "capacity; dashes: always answering new. The paper's axis runs from .6 to 1.1.",
)  # fmt: skip
def by_data_sets(results: Results) -> Figure:
    return depth_panels(results.of("AC-E"))


@FAMILY.figure("x-recn", "X-RECN", "The same with noise of 0.2 on the test images; not in the paper.")
def with_noise(results: Results) -> Figure:
    return depth_panels(results.of("X-RECN"), lowest=0.3)


def depth_panels(runs: Results, lowest: float = 0.6) -> Figure:
    shown = [(sets, some) for sets in (IN_METHODS, IN_CAPTION) if (some := runs.where(set=sets.data[0]))]
    figure, axes = panels(1, len(shown), width=4.2, height=2.9)
    for axis, (sets, some) in zip(axes[0], shown):
        for model, run in by_model(some):
            line(axis, run.t, run.curve("accuracy"), model)
        mark(axis, x=some.settings("size")[0], y=CHANCE)
        axis.set_title("learned {}, foreign {}".format(*map(title, sets.data)))
        axis.set_xlabel(LEARNED)
        axis.set_ylim(lowest, 1.03)
    axes[0, 0].set_ylabel("recognition accuracy")
    legend_above(figure, axes[0, 0])
    return figure
