"""The experiments of the paper, one table of settings each.

`default` is the paper as its equations read; `code` takes the settings of the authors' published scripts where they
differ. `set` names the paper's data set or stream, `data` the sets actually loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqhn.checks import check_word
from sqhn.experiments import protocols, rivals
from sqhn.experiments.protocols import Protocol

__all__ = ["BUILTIN", "EXPERIMENTS", "PRESETS", "Experiment", "Job", "jobs_of"]

Settings = dict[str, Any]
PRESETS = ("default", "code")

BUILTIN = {
    "mnist": "digits",
    "emnist": "digits",
    "fashion_mnist": "grey_photos",
    "cifar10": "photos32",
    "cifar100": "photos32",
    "svhn": "painted_digits",
    "tiny_imagenet": "photos64",
    "caltech256": "photos128",
}
"""What stands in for the paper's data where nothing may be downloaded."""


@dataclass(frozen=True)
class Experiment:
    """One experiment: what is done (`protocol`) with which settings (`cases`, for a preset), and how often.

    quick: for a short run, what to divide sizes by.
    """

    id: str
    title: str
    question: str
    protocol: Protocol
    seeds: int
    cases: Callable[[str], Iterator[Settings]]
    quick: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One run of one case with one seed."""

    experiment: str
    settings: Settings
    seed: int

    @property
    def label(self) -> str:
        """For people."""
        named = [str(self.settings[key]) for key in ("set", "model", "size") if key in self.settings]
        return " ".join([self.experiment, *named, f"seed {self.seed}"])


def jobs_of(
    experiment: Experiment,
    preset: str,
    seeds: int | None = None,
    builtin: bool = True,
    quick: bool = False,
    heavy: bool = False,
) -> Iterator[Job]:
    """Every job of an experiment; an illustration has one seed, whatever is asked for.

    A case may have its own number of `seeds`; one that is heavy, hours for a CPU, is left out unless asked for.
    """
    check_word("preset", preset, PRESETS)
    for case in experiment.cases(preset):
        settings = _shrink(case, experiment.quick) if quick else dict(case)
        many = settings.pop("seeds", experiment.seeds)
        if settings.pop("heavy", False) and not heavy:
            continue
        if builtin:
            settings["data"] = [BUILTIN[name] for name in settings["data"]]
        for seed in range(seeds if seeds and many > 1 else many):
            yield Job(experiment.id, {"preset": preset, **settings}, seed)


def _shrink(settings: Settings, quick: Mapping[str, int]) -> Settings:
    """Divide sizes, in nested settings too."""
    small: Settings = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            small[name] = _shrink(value, quick)
        elif name in quick and isinstance(value, list):
            small[name] = [max(1, number // quick[name]) for number in value]
        elif name in quick:
            small[name] = value and max(1, value // quick[name])
        else:
            small[name] = value
    return small


def sqhn(
    capacity: int | list[int], kernels: list[int] | None = None, alpha: float | str = 1e7, **more: Any
) -> Settings:
    """The settings of an SQHN; `kernels` are those below the memory node."""
    return {"kind": "sqhn", "kernels": kernels or [], "capacity": capacity, "alpha": alpha, **more}


# -- Table 1, robustness by depth, examples --------------------------------------------------------------------------

SIDE = {"cifar10": 32, "cifar100": 32, "tiny_imagenet": 64, "caltech256": 128}


def l2a(name: str) -> list[int]:
    """(4,8), (8,8), (16,8)."""
    return [SIDE[name] // 8]


def l2b(name: str) -> list[int]:
    """(8,4), (16,4), (32,4)."""
    return [SIDE[name] // 4]


def l3a(name: str) -> list[int]:
    """(2,4,4), (4,4,4), (8,4,4)."""
    return [SIDE[name] // 16, 4]


def loads(name: str, length: int, depths: dict[str, list[int]], **more: Any) -> Iterator[Settings]:
    """Memorize `length` pictures of a set with every depth."""
    for model, kernels in depths.items():
        memory = {"kind": "sqhn", "kernels": kernels}
        yield {"set": name, "data": [name], "model": model, "size": length, "memory": memory, "length": length, **more}


def rivals_loaded(name: str, length: int, memories: dict[str, Settings], **more: Any) -> Iterator[Settings]:
    """Show `length` pictures of a set to memories that store what they are shown."""
    for model, memory in memories.items():
        yield {"set": name, "data": [name], "model": model, "size": length, "memory": memory, "length": length, **more}


def nearest(capacity: int) -> dict[str, Settings]:
    """The yardstick: keep pictures, return the nearest."""
    return {model: {**memory, "capacity": capacity} for model, memory in rivals.NEAREST.items()}


def table_1(length: int, sigma: float, share: float) -> Callable[[str], Iterator[Settings]]:
    corruptions = [["noise", sigma], ["dropout", share], ["mask", share]]

    def cases(preset: str) -> Iterator[Settings]:  # noqa: ARG001
        for name, split in (("cifar10", "train"), ("tiny_imagenet", "val")):
            depths = {"SQHN L1": [], "SQHN L2": l2a(name), "SQHN L3": l3a(name)}
            more = {"split": split, "corruptions": corruptions, "threshold": 0.01, "shared": True}
            yield from loads(name, length, depths, **more)
            yield from rivals_loaded(name, length, {**rivals.ONE_SHOT, "NN": nearest(length)[rivals.FIRST_OUT]}, **more)
            predictive = rivals.PREDICTIVE["T1-MOD" if length == 1024 else "T1-HIGH"]
            yield from rivals_loaded(name, length, predictive, **more, seeds=3, heavy=True)

    return cases


NOISES = [0.0, 0.05, 0.15, 0.25, 0.4, 0.5, 0.75, 1.0, 1.25, 1.5]
SHARES = [0.0, 0.1, 0.25, 0.5, 0.75, 0.875, 0.9375]
FILLS = ["black", "color", "noise_fill"]


def ac_b(preset: str) -> Iterator[Settings]:
    corruptions: list[list[Any]] = [["noise", sigma] for sigma in NOISES]
    corruptions += [[fill, share] for fill in FILLS for share in SHARES]
    for name, split in (("cifar10", "train"), ("tiny_imagenet", "val"), ("caltech256", "train")):
        depths = {"SQHN L1": [], "SQHN L2": l2b(name), "SQHN L3": l3a(name)}
        more = {"split": split, "corruptions": corruptions, "threshold": 0.01, "shared": preset == "code"}
        yield from loads(name, 1000, depths, **more)
        yield from rivals_loaded(name, 1000, {"NN": nearest(1000)[rivals.FIRST_OUT]}, **more)


def ac_c(preset: str) -> Iterator[Settings]:  # noqa: ARG001
    yield {"set": "cifar10", "data": ["cifar10"], "split": "train", "fills": FILLS, "level": 0.4}


def shown(length: int, sigma: float, share: float) -> Callable[[str], Iterator[Settings]]:
    kinds = ["noise", *FILLS, "dropout", "mask"]
    corruptions = [["noise", 0.0], *([kind, sigma if kind == "noise" else share] for kind in kinds)]

    def cases(preset: str) -> Iterator[Settings]:  # noqa: ARG001
        depths = {"SQHN L1": [], "SQHN L2": l2a("cifar10"), "SQHN L3": l3a("cifar10")}
        more = {"split": "train", "corruptions": corruptions, "threshold": 0.01, "draws": 20}
        yield from loads("cifar10", length, depths, **more)

    return cases


# -- online-continual learning ---------------------------------------------------------------------------------------

FLIP = ["plain", "flipped"]
LIGHT = ["dark", "bright_flipped"]
STREAMS_L1: dict[str, Settings] = {
    "OCI-E": {"data": ["emnist"], "order": "class", "length": 3000, "alphas": [5000, 22000, 50000]},
    "OCI-C": {"data": ["cifar100"], "order": "class", "length": 5000, "alphas": [20000, 55000, 65000]},
    "ODI-M": {"data": ["mnist", "fashion_mnist"], "order": "domain", "length": 3000, "transforms": FLIP,
              "alphas": [8000, 50000, 90000]},
    "ON-E": {"data": ["emnist"], "order": "iid", "length": 3000, "alphas": [5000, 25000, 45000]},
    "ON-C": {"data": ["cifar100"], "order": "iid", "length": 5000, "alphas": [25000, 90000, 100000]},
    "ON-M": {"data": ["mnist", "fashion_mnist"], "order": "mixed", "length": 3000, "transforms": FLIP,
             "alphas": [15000, 50000, 120000]},
}  # fmt: skip
STREAMS_L3: dict[str, Settings] = {
    "OCI-C3": {"data": ["cifar100"], "order": "class", "length": 2000, "alphas": [10000, 30000, 62000]},
    "ODI-CS": {"data": ["cifar10", "svhn"], "order": "domain", "length": 2000, "transforms": LIGHT,
               "alphas": [15000, 45000, 88000]},
    "ON-C3": {"data": ["cifar100"], "order": "iid", "length": 2000, "alphas": [8000, 22000, 50000]},
    "ON-CS": {"data": ["cifar10", "svhn"], "order": "mixed", "length": 2000, "transforms": LIGHT,
              "alphas": [16000, 35000, 88000]},
}  # fmt: skip


def oc_l1(preset: str) -> Iterator[Settings]:
    for name, arrival in STREAMS_L1.items():
        colour = arrival["data"] == ["cifar100"]
        for J, alpha in zip((700, 2000, 3300) if colour else (300, 1300, 2300), arrival["alphas"], strict=True):
            code: Settings = {"similarity": "cosine"} if preset == "code" else {}
            memory = sqhn(J, alpha=alpha if preset == "code" else 1e7, **code)
            shown = 8 if (name, J) == ("OCI-C", 2000) else 0
            every = 200 if colour else 100
            yield streamed(name, arrival, "SQHN L1", J, memory, every=every, show=shown)
            for model, rival in (*rivals.online(name, J), *nearest(J).items()):
                yield streamed(name, arrival, model, J, rival, every=every)


def oc_l3(preset: str) -> Iterator[Settings]:
    for name, arrival in STREAMS_L3.items():
        for J, alpha in zip((200, 600, 1000), arrival["alphas"], strict=True):
            memory = sqhn(J, [4, 4], alpha if preset == "code" else 1e7)
            threshold = 0.005 if name.endswith("CS") else 0.01
            shown = 8 if (name, J) == ("OCI-C3", 600) else 0
            yield streamed(name, arrival, "SQHN L3", J, memory, threshold=threshold, show=shown)
            for model, rival in (*rivals.online_tree(name, J, preset), *nearest(J).items()):
                yield streamed(name, arrival, model, J, rival, threshold=threshold)


def streamed(name: str, arrival: Settings, model: str, size: int, memory: Settings, **more: Any) -> Settings:
    arrival = {key: value for key, value in arrival.items() if key != "alphas"}
    test = {"every": 100, "sigma": 0.2, "threshold": 0.01, "tests": 0, "show": 0}
    return {"set": name, **arrival, "model": model, "size": size, "memory": memory, **test, **more}


def ac_d(preset: str) -> Iterator[Settings]:
    for J, length in ((200, 2500), (600, 3000), (1000, 3500)):
        arrival = {"data": ["cifar100"], "order": "iid", "length": length}
        for model, kernels in {"SQHN L1": [], "SQHN L2": l2a("cifar100"), "SQHN L3": l3a("cifar100")}.items():
            alpha = (100000 if model == "SQHN L3" else 50000) if preset == "code" else 1e7
            yield streamed("cifar100", arrival, model, J, sqhn(J, kernels, alpha), sigma=0, tests=10000)
        for model, rival in nearest(J).items():
            yield streamed("cifar100", arrival, model, J, rival, sigma=0, tests=10000)


ABLATIONS: dict[str, Settings] = {
    "SQHN": {"kind": "sqhn"},
    "-Dir": {"kind": "sqhn", "alpha": "inf", "gamma": 0.9},
    "-lrDecay": {"kind": "sqhn_ablated", "ablation": "constant_step"},
    "-Grw": {"kind": "sqhn_ablated", "ablation": "no_growth"},
    "-Avg": {"kind": "sqhn_ablated", "ablation": "no_averaging", "when_full": "freeze"},
    "+OvWr": {"kind": "sqhn", "when_full": "overwrite"},
}
ABLATIONS_CODE: dict[str, Settings] = {
    "SQHN": {"kind": "sqhn", "alpha": 14000},
    "-Dir": {"kind": "sqhn", "alpha": "inf", "gamma": 0.9, "when_full": "overwrite"},
    "-lrDecay": {"kind": "sqhn_ablated", "ablation": "constant_step_and_growth", "alpha": 22000, "gamma": 0.5,
                 "when_full": "overwrite"},
    "-Grw": {"kind": "sqhn_ablated", "ablation": "no_growth"},
    "-Avg": {"kind": "sqhn_ablated", "ablation": "no_averaging", "alpha": 14000, "when_full": "overwrite"},
    "+OvWr": {"kind": "sqhn", "alpha": 12000, "when_full": "overwrite"},
}  # fmt: skip


def s_abl(preset: str) -> Iterator[Settings]:
    arrival = STREAMS_L1["OCI-C"]
    for row, changes in (ABLATIONS_CODE if preset == "code" else ABLATIONS).items():
        code: Settings = {"similarity": "cosine"} if preset == "code" else {}
        yield streamed("OCI-C", arrival, row, 700, {**sqhn(700), **code, **changes}, sigma=0)


# -- noisy encoding --------------------------------------------------------------------------------------------------

SAMPLES: dict[str, Settings] = {
    "NE-L1": {"set": "emnist", "length": 300, "kernels": [], "squeeze": [0.96, 0.02], "counts": [1, 5, 20, 50],
              "white": [0.92, 0.92, 0.92, 0.94], "binary": [0.90, 0.85, 0.85, 0.86]},
    "NE-L3": {"set": "cifar100", "length": 150, "kernels": [4, 4], "squeeze": [1.0, 0.0], "counts": [1, 10, 20],
              "white": [0.98, 0.85, 0.80], "binary": [0.98, 0.60, 0.60]},
}  # fmt: skip


def noisy(which: str) -> Callable[[str], Iterator[Settings]]:
    table = SAMPLES[which]
    J = table["length"]

    def case(model: str, memory: Settings, noise: str, count: int, **more: Any) -> Settings:
        how = {"noise": noise, "samples": count, "sigma": 0.2, "squeeze": table["squeeze"], "threshold": 0.01}
        test = {"hold": False, "paired": False, "show": []}
        common = {"set": table["set"], "data": [table["set"]], "size": J, "length": J}
        return {**common, "model": model, "memory": memory, **how, **test, **more}

    def cases(preset: str) -> Iterator[Settings]:
        ema = {"ema": preset == "code"}
        for noise in ("white", "binary"):
            for place, (count, gamma) in enumerate(zip(table["counts"], table[noise], strict=True)):
                plain, plus = (sqhn(J, table["kernels"], 1e6, gamma=g) for g in (gamma, 1.0))
                yield case("SQHN", plain, noise, count, **ema)
                show = [1, 6, 12] if noise == "binary" and count == max(table["counts"]) else []
                yield case("SQHN+", plus, noise, count, **ema, hold=True, show=show)
                for model, rival in rivals.encoders(which, noise, place, J, preset):
                    yield case(model, rival, noise, count, **ema, paired=True)
                for model, rival in nearest(J).items():
                    yield case(model, rival, noise, count, **ema)

    return cases


# -- recognition -----------------------------------------------------------------------------------------------------


def judged(name: str, other: str, model: str, memory: Settings, size: int, **more: Any) -> Settings:
    test = {"length": 3000, "every": 100, "pretrain": 0, "sigma": 0, "transform": "plain"}
    return {"set": name, "data": [name, other], "model": model, "size": size, "memory": memory, **test, **more}


def rc(preset: str) -> Iterator[Settings]:
    code: Settings = {"when_full": "overwrite", "mu": "pseudocount"} if preset == "code" else {}
    transform = "flipped" if preset == "code" else "plain"
    memory = sqhn(300, alpha=50000, rho=0.99999, **code)
    yield judged("mnist", "fashion_mnist", "SQHN", memory, 300, transform=transform)
    by_error = {**memory, "kind": "sqhn_by_error", "rho_error": 0.5}
    yield judged("mnist", "fashion_mnist", "SQHN(mse)", by_error, 300, transform=transform)
    for model, rival in (*rivals.RECOGNIZERS.items(), *nearest(300).items()):
        yield judged("mnist", "fashion_mnist", model, rival, 300, transform=transform)


def by_depth(sigma: float, rho: tuple[float, float, float]) -> Callable[[str], Iterator[Settings]]:
    def cases(preset: str) -> Iterator[Settings]:
        code = preset == "code"
        l1: Settings = {"when_full": "overwrite", "mu": "pseudocount"} if code else {}
        l1_memory = sqhn(500, alpha=500000, rho=rho[0], **l1)
        yield judged("cifar10", "cifar100", "SQHN L1", l1_memory, 500, transform="flipped", sigma=sigma)
        trees = {"SQHN L2": ([40, 500], [4], rho[1]), "SQHN L3": ([40, 200, 500], [2, 4], rho[2])}
        for model, (capacity, kernels, tolerance) in trees.items():
            memory = sqhn(capacity, kernels, 100000, rho=tolerance, **({"mu": "pseudocount"} if code else {}))
            more = {"pretrain": 1000, "transform": "plain" if code else "flipped", "sigma": sigma, "seeds": 5}
            yield judged("cifar10", "cifar100", model, memory, 500, **more)
        for model, rival in nearest(500).items():
            within: Settings = {"tolerance": 2 * sigma**2} if sigma else {}
            yield judged("cifar10", "cifar100", model, {**rival, **within}, 500, transform="flipped", sigma=sigma)

    return cases


# -- energy, growth, theorems ----------------------------------------------------------------------------------------


def s_en(preset: str) -> Iterator[Settings]:  # noqa: ARG001
    common = {"set": "tiny_imagenet", "data": ["tiny_imagenet"], "split": "train", "test_split": "val", "sweeps": 3}
    for model, length, tests, seeds in (("small", 200, 0, 5), ("large", 1000, 1000, 3)):
        asked = {"length": length, "tests": tests, "seeds": seeds}
        yield {**common, "model": model, "size": 200, "memory": sqhn(200, [4, 4]), **asked}


def s_emg(preset: str) -> Iterator[Settings]:  # noqa: ARG001
    common = {"set": "tiny_imagenet", "data": ["tiny_imagenet"], "split": "train+val", "length": 2000, "every": 100}
    yield {**common, "model": "SQHN L3", "size": 1000, "memory": sqhn(1000, [4, 4], 200.0)}


def th_1(preset: str) -> Iterator[Settings]:  # noqa: ARG001
    for name in ("mnist", "cifar10"):
        yield {"set": name, "data": [name], "model": "SQHN L1", "size": 1000, "memory": sqhn(1000, alpha="inf")}


def th_2(preset: str) -> Iterator[Settings]:  # noqa: ARG001
    yield {"set": "urn", "data": [], "model": "urn", "size": 1000, "capacity": 1000, "length": 4000, "every": 100,
           "trials": 200}  # fmt: skip


EXPERIMENTS: dict[str, Experiment] = {
    experiment.id: experiment
    for experiment in (
        Experiment(
            "T1-MOD", "Table 1, moderate corruption",
            "Can SQHNs recall stored pictures from noisy or partial ones as well as the best memories?",
            protocols.memorize, 5, table_1(1024, 0.2, 0.25), {"length": 8, "size": 8, "capacity": 8},
        ),
        Experiment(
            "T1-HIGH", "Table 1, high corruption", "The same with most of the picture lost.",
            protocols.memorize, 7, table_1(128, 0.8, 0.75), {"length": 2, "size": 2, "capacity": 2},
        ),
        Experiment(
            "OC-L1", "Online-continual learning, one level",
            "Does one level learn ordered streams one picture at a time without forgetting, whatever the order?",
            protocols.online, 7, oc_l1, {"length": 16, "capacity": 16, "size": 16, "every": 8},
        ),
        Experiment(
            "OC-L3", "Online-continual learning, three levels", "The same for trees on natural pictures.",
            protocols.online, 5, oc_l3, {"length": 16, "capacity": 16, "size": 16, "every": 8},
        ),
        Experiment(
            "NE-L1", "Noisy encoding, one level",
            "Can a clean picture be stored when only noisy samples of it are ever seen?",
            protocols.noisy_encoding, 7, noisy("NE-L1"), {"length": 3, "capacity": 3, "size": 3},
        ),
        Experiment(
            "NE-L3", "Noisy encoding, three levels", "The same for trees on natural pictures.",
            protocols.noisy_encoding, 5, noisy("NE-L3"), {"length": 5, "capacity": 5, "size": 5},
        ),
        Experiment(
            "RC", "Recognition", "Can the memory tell pictures it has learned from new ones?",
            protocols.recognition, 7, rc, {"length": 2, "capacity": 2, "size": 2},
        ),
        Experiment(
            "AC-B", "Robustness by depth", "How does depth affect robustness to noise and to occlusion?",
            protocols.memorize, 10, ac_b, {"length": 10, "size": 10, "capacity": 10},
        ),
        Experiment(
            "AC-C", "The occlusions", "What the three fills look like.", protocols.occlusions, 1, ac_c,
        ),
        Experiment(
            "AC-D", "Recall and generalization by depth",
            "How do recall and generalization evolve past capacity, for one, two and three levels?",
            protocols.online, 5, ac_d, {"length": 6, "capacity": 6, "size": 6, "every": 3, "tests": 20},
        ),
        Experiment(
            "AC-E", "Recognition by depth", "Does depth cost the ability to tell old from new?",
            protocols.recognition, 7, by_depth(0, (0.99999, 0.999, 0.999)),
            {"length": 4, "capacity": 4, "size": 4, "pretrain": 4},
        ),
        Experiment(
            "X-RECN", "Recognition by depth, with noise", "The same when every picture to judge is noisy.",
            protocols.recognition, 5, by_depth(0.2, (0.85, 0.45, 0.25)),
            {"length": 4, "capacity": 4, "size": 4, "pretrain": 4},
        ),
        Experiment(
            "S-EN", "Energy during inference", "Does one sweep up and down raise the energy, and how near its maximum?",
            protocols.energies, 5, s_en, {"length": 8, "capacity": 8, "size": 8, "tests": 20},
        ),
        Experiment(
            "S-ABL", "Ablations", "Which parts of the learning rule matter?",
            protocols.online, 7, s_abl, {"length": 6, "capacity": 6, "size": 6},
        ),
        Experiment(
            "S-EMG", "Emergent properties",
            "Do neurons of the memory node grow longer, and stay more plastic, than those below?",
            protocols.emergence, 3, s_emg,
        ),
        Experiment(
            "S-EXM", "Examples, moderate corruption", "What recalled pictures look like.",
            protocols.examples, 1, shown(1024, 0.2, 0.25),
        ),
        Experiment(
            "S-EXH", "Examples, high corruption", "The same with most of the picture lost.",
            protocols.examples, 1, shown(128, 0.8, 0.75),
        ),
        Experiment(
            "TH1", "Theorem 1", "Are as many distinct pictures as there are neurons recalled without error?",
            protocols.theorem_1, 3, th_1,
        ),
        Experiment(
            "TH2", "Theorem 2", "How many memories are untouched after so many steps past capacity?",
            protocols.theorem_2, 3, th_2,
        ),
    )
}  # fmt: skip
