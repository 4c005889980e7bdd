"""The supplement: energy, growth, the theorems, and what learning costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sqhn.data.streams import iid
from sqhn.paper.experiments.case import Case, Experiment, Reading, generator, pool, taught
from sqhn.paper.experiments.claims import Measured, above, at_least, at_most
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.memories import MapTree, Spec, Tree, resident_bytes
from sqhn.paper.experiments.plots import bars, line, panels
from sqhn.paper.experiments.results import Results, Values
from sqhn.paper.experiments.rivals import MHNS, TREE_KERNELS, online
from sqhn.paper.experiments.streams import Stream
from sqhn.paper.metrics import recall_error, singletons
from sqhn.reference import ReferenceSQHN, winner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FAMILY", "Capacity", "Cost", "Energies", "Growth", "Joint", "Urn"]

FAMILY = Family()


# -- energy ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Energies(Case):
    """Learn online; the energy of random states, of each way to infer, and of its maximum; `tests`: on unseen too."""

    length: int
    tests: int
    sweeps: int = 3

    def run(self, seed: int, device: str) -> dict[str, Any]:
        rng = generator(seed, "data")
        learned = iid(pool(self.data[0], "train")[0], self.length, rng)
        memory = self.built(learned.shape[1:], seed, device)
        memory.learn(learned)
        cells = {"train": learned}
        if self.tests:
            cells["test"] = iid(pool(self.data[0], "val")[0], self.tests, rng)
        reference = ReferenceSQHN.of(memory)
        results: dict[str, Any] = {}
        for cell, x in cells.items():
            states = generator(seed, "states", cell)
            exact, paper = memory.energy(x, inference="exact"), memory.energy(x)
            again = [reference.energy(one, reference.infer(one, sweeps=self.sweeps)) for one in x]
            results[cell] = {
                "random": float(np.mean([reference.energy(one, reference.random(states)) for one in x])),
                "feedforward": float(memory.energy(x, inference="feedforward").mean()),
                "paper": float(paper.mean()),
                "repeated": float(np.mean(again)),
                "exact": float(exact.mean()),
                "least_gain": float((exact - paper).min()),
                "ratio": float((paper / exact).mean()),
            }
        return {"grown": len(memory), "cells": results}


def s_en(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    for model, length, tests in (("small", 200, 0), ("large", 1000, 1000)):
        yield Energies(
            set="tiny_imagenet", data=("tiny_imagenet",), model=model, size=200, memory=Tree(200, TREE_KERNELS),
            length=length, tests=tests,
        )  # fmt: skip


FAMILY.experiments.append(
    Experiment(
        "S-EN", "Energy during inference", "Does one sweep up and down raise the energy, and how near its maximum?",
        s_en, {"length": 8, "capacity": 8, "size": 8, "tests": 20},
    )
)  # fmt: skip
CELLS = {"small": ("small", "train"), "large": ("large", "train"), "test": ("large", "test")}


def energy_cells(results: Results) -> dict[str, dict[str, Values]]:
    """At capacity, past it, and on unseen pictures: each measure for each seed."""
    cells = {}
    for name, (model, which) in CELLS.items():
        found = [record["results"]["cells"][which] for record in results.of("S-EN", model=model).records]
        cells[name] = {measure: np.array([one[measure] for one in found]) for measure in found[0]}
    return cells


@FAMILY.claim(
    "SE.1", "S-EN", "energy: random < bottom-up <= one sweep up and down", "in this order",
    {"bottom-up above random by": above(0), "the sweep above bottom-up by": at_least(-1e-12),
     "the same, past capacity and on unseen": above(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    cells = energy_cells(results)
    gains = {name: float((cell["paper"] - cell["feedforward"]).mean()) for name, cell in cells.items()}
    return {
        "bottom-up above random by": {n: float((c["feedforward"] - c["random"]).mean()) for n, c in cells.items()},
        "the sweep above bottom-up by": gains,
        "the same, past capacity and on unseen": {name: gains[name] for name in ("large", "test")},
    }


@FAMILY.claim(
    "SE.2", "S-EN", "sweeping three times does not help", "not better", {"above one sweep by": at_most(0.005)}
)
def _(results: Results) -> Measured:
    return {"above one sweep by": {n: cell["repeated"] - cell["paper"] for n, cell in energy_cells(results).items()}}


@FAMILY.claim(
    "SE.3", "S-EN", "one sweep comes near the maximum of the energy", "a good approximate solution",
    {"over the maximum": at_least(0.9), "maximum above the sweep, any picture": at_least(-1e-9)},
    seen=(
        "At capacity the sweep finds the maximum. Past it, and on unseen pictures, the memory node takes a value that "
        "is far from the best one: it sees which values its children have, not how well others would do."
    ),
)  # fmt: skip
def _(results: Results) -> Measured:
    cells = energy_cells(results)
    return {
        "over the maximum": {name: cell["ratio"] for name, cell in cells.items()},
        "maximum above the sweep, any picture": {n: float(cell["least_gain"].min()) for n, cell in cells.items()},
    }


@FAMILY.figure(
    "s-en", "S-EN",
    "Energy of random states, of bottom-up states, after one sweep up and down, after three, and the true maximum: "
    "learned pictures at capacity, five times past it, and unseen pictures.",
)  # fmt: skip
def _(results: Results) -> Figure:
    cells = energy_cells(results)
    figure, axes = panels(1, 1, width=6.0, height=2.9)
    names = {"random": "random", "feedforward": "up", "paper": "up and down", "repeated": "three times",
             "exact": "maximum"}  # fmt: skip
    series = {label: [cell[measure] for cell in cells.values()] for measure, label in names.items()}
    bars(axes[0, 0], ["at capacity", "5 x past capacity", "unseen"], series)
    axes[0, 0].set_ylabel("energy")
    axes[0, 0].set_ylim(0, 1.25)
    axes[0, 0].legend(ncols=5, loc="upper center")
    return figure


# -- the energy and the joint probability ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Joint(Case):
    """Learn online; compare the maximum of the energy with that of the joint probability under the Dirichlet prior.

    priors: weights of the prior, the paper's epsilon; besides, the one that the tree's own alpha gives.
    """

    length: int
    asked: int
    priors: tuple[float, ...]

    def run(self, seed: int, device: str) -> dict[str, Any]:
        x = iid(pool(self.data[0], "train")[0], self.length, generator(seed, "data"))
        unseen = iid(pool(self.data[0], "test")[0], self.asked, generator(seed, "unseen"))
        memory = self.built(x.shape[1:], seed, device)
        memory.learn(x)
        tree = ReferenceSQHN.of(memory)
        own = float(memory.levels[-1].threshold(memory.step))
        rows = []
        for cell, some in (("learned", x[: self.asked]), ("unseen", unseen)):
            by_energy = [int(value) for value in memory.recall(some, inference="exact").index]
            for prior in (own, *self.priors):
                by_joint = [most_probable(tree, one, prior) for one in some]
                rows.append({"cell": cell, "prior": prior, "same": float(np.mean(np.equal(by_energy, by_joint)))})
        least = [least_change(tree, one) for one in x[: self.asked]]
        return {"rows": rows, "own": own, "least": np.mean(least, axis=0).tolist()}


def most_probable(tree: ReferenceSQHN, x: Any, prior: float) -> int:
    """The memory node's value in the state of the greatest joint probability; as max-sum, of logarithms."""

    def smoothed(p: Any, capacity: int) -> Any:
        return np.log(prior / capacity + (1 - prior) * p)

    best = [smoothed(h, node.level.capacity) for h, node in zip(tree.up(x, None)[0], tree.levels[0])]
    for number, level in enumerate(tree.levels[1:], start=1):
        above = [np.zeros(node.grown) for node in level]
        for n, q, child in tree.families(number):
            for j in range(level[n].grown):
                p = tree.expectation(number, n, q, j)
                above[n][j] += (smoothed(p, tree.levels[number - 1][child].level.capacity) + best[child]).max()
        best = above
    return winner(best[0])


def least_change(tree: ReferenceSQHN, x: Any) -> list[float]:
    """For every level above the first, the share of nodes whose value is the one that changes its column least."""
    h = tree.up(x, None)
    found = []
    for number, level in enumerate(tree.levels[1:], start=1):
        k = np.array([winner(one) for one in h[number - 1]])
        same = []
        for n, node in enumerate(level):
            agreed = node.m[: node.grown] @ tree.concatenate(number, n, k, np.ones(len(k)))
            same.append(agreed[winner(h[number][n])] >= agreed.max() - 1e-9)
        found.append(float(np.mean(same)))
    return found


def s_jnt(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    for model, length in (("at capacity", 40), ("5 x past capacity", 200)):
        yield Joint(
            set="cifar100", data=("cifar100",), model=model, size=40, memory=Tree(40, TREE_KERNELS), length=length,
            asked=40, priors=(0.9, 0.5, 0.1),
        )  # fmt: skip


FAMILY.experiments.append(
    Experiment(
        "S-JNT", "The energy and the joint probability",
        "Does the maximum of the sum find what the maximum of the product under the Dirichlet prior would?",
        s_jnt, {"length": 4, "size": 4, "capacity": 4, "asked": 4},
    )
)  # fmt: skip


@FAMILY.claim(
    "SJ.1", "S-JNT", "the sum of probabilities approximates the joint with the Dirichlet prior over parameters",
    "a decent approximation",
    {"same memory found, with the tree's own alpha": at_least(0.9), "same memory found, with weaker priors": None},
)  # fmt: skip
def _(results: Results) -> Measured:
    own, weaker = {}, {}
    for model, run in results.of("S-JNT").each("model"):
        for place, row in enumerate(run.records[0]["results"]["rows"]):
            same = run.values(lambda record, place=place: record["results"]["rows"][place]["same"])  # type: ignore[misc]
            if row["prior"] == run.records[0]["results"]["own"]:
                own[f"{model}, {row['cell']}"] = same
            else:
                weaker[f"{model}, {row['cell']}, prior {row['prior']:g}"] = same
    return {"same memory found, with the tree's own alpha": own, "same memory found, with weaker priors": weaker}


@FAMILY.claim(
    "TH3", "S-JNT", "nodes take the value whose column changes least", "proved, for equal steps",
    {"share of nodes for which it is so": at_least(0.99)},
    seen=(
        "At level 1, whose match is the energy itself, it is so by definition. Above it a node compares by the cosine, "
        "which divides by the length of a column: where columns are averages, a column that expects fewer different "
        "values can win although another one expects these values more."
    ),
)  # fmt: skip
def _(results: Results) -> Measured:
    found = {}
    for model, run in results.of("S-JNT").each("model"):
        for place in range(len(run.records[0]["results"]["least"])):
            name = f"{model}, level {place + 2}"
            found[name] = run.values(lambda record, place=place: record["results"]["least"][place])  # type: ignore[misc]
    return {"share of nodes for which it is so": found}


# -- learning without feedback ---------------------------------------------------------------------------------------


def s_map(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    memories: dict[str, Spec] = {"SQHN": Tree(50, TREE_KERNELS), "MAP": MapTree(50, TREE_KERNELS)}
    for model, memory in memories.items():
        yield Stream(
            set="cifar100", data=("cifar100",), model=model, size=50, memory=memory, order="iid", length=250, every=50,
            sigma=0, alike=False,
        )  # fmt: skip


FAMILY.experiments.append(
    Experiment(
        "S-MAP", "Learning without feedback", "Is it better when parents have no say in what is learned?",
        s_map, {"length": 4, "size": 4, "capacity": 4, "every": 4},
    )
)  # fmt: skip


@FAMILY.claim(
    "SP.1", "S-MAP", "learning without feedback recalls more than MAP learning", "works better",
    {"recall at the end, ahead by": above(0), "error at the end, ahead by": above(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    ours, other = (results.of("S-MAP", model=model) for model in ("SQHN", "MAP"))
    return {
        "recall at the end, ahead by": {"": float(ours.mean("accuracy")[-1] - other.mean("accuracy")[-1])},
        "error at the end, ahead by": {"": float(other.mean("mse")[-1] - ours.mean("mse")[-1])},
    }


# -- growth ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Growth(Case):
    """Learn online; how many neurons each level has grown, and how large a step they take."""

    length: int
    every: int = 100

    def run(self, seed: int, device: str) -> dict[str, Any]:
        x = iid(pool(self.data[0], "train+val")[0], self.length, generator(seed, "data"))
        memory = self.built(x.shape[1:], seed, device)
        curves: dict[str, list[Any]] = {"learned": [], "neurons": [], "step": []}
        for done in taught(memory, x, self.every):
            curves["learned"].append(done)
            curves["neurons"].append([float(bank.grown.mean()) for bank in memory.banks])
            steps = [[np.mean(1 / c[:G]) for c, G in zip(bank.neurons.c, bank.grown)] for bank in memory.banks]
            curves["step"].append([float(np.mean(of_nodes)) for of_nodes in steps])
        return {"length": len(x), "curves": curves}


def s_emg(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    yield Growth(
        set="tiny_imagenet", data=("tiny_imagenet",), model="SQHN L3", size=1000,
        memory=Tree(1000, TREE_KERNELS, 200.0), length=2000,
    )  # fmt: skip


FAMILY.experiments.append(
    Experiment(
        "S-EMG", "Emergent properties",
        "Do neurons of the memory node grow longer, and stay more plastic, than those below?",
        s_emg, {"length": 4, "every": 2},
    )
)  # fmt: skip


@FAMILY.claim(
    "SM.1", "S-EMG", "the memory node grows more neurons than nodes below", "more rapidly",
    {"more than either level below, from a tenth of the stream on, by": above(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    run = results.of("S-EMG")
    neurons = run.mean("neurons")[run.t >= run.result("length")[0] / 10]
    gap = neurons[:, 2] - neurons[:, :2].max(axis=1)
    return {"more than either level below, from a tenth of the stream on, by": {"": float(gap.min())}}


@FAMILY.claim(
    "SM.2", "S-EMG", "it grows longest", "for longer periods",
    {"pictures until 95% of its neurons are there, more than for either level below by": above(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    run = results.of("S-EMG")
    neurons = run.mean("neurons")
    reached = [int(run.t[int((of_level >= 0.95 * of_level[-1]).argmax())]) for of_level in neurons.T]
    name = "pictures until 95% of its neurons are there, more than for either level below by"
    return {name: {"levels 1 2 3 at " + " ".join(map(str, reached)): float(reached[2] - max(reached[:2]))}}


@FAMILY.claim(
    "SM.3", "S-EMG", "it stays most plastic", "larger step sizes on average",
    {"mean step above either level below, from a quarter of the stream on, by": above(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    run = results.of("S-EMG")
    step = run.mean("step")[run.t >= run.result("length")[0] / 4]
    gap = step[:, 2] - step[:, :2].max(axis=1)
    return {"mean step above either level below, from a quarter of the stream on, by": {"": float(gap.min())}}


@FAMILY.figure(
    "s-emg", "S-EMG",
    "Growth and plasticity: neurons grown, and the mean step that a neuron's next sample would take, level by level "
    "(3 is the memory node; means over the nodes of a level).",
)  # fmt: skip
def _(results: Results) -> Figure:
    run = results.of("S-EMG")
    figure, axes = panels(1, 2, width=3.8, height=2.7)
    for axis, curve, label in zip(axes[0], ("neurons", "step"), ("neurons grown", "mean step size")):
        values = run.curve(curve)
        for level in range(values.shape[2]):
            line(axis, run.t, values[:, :, level], f"level {level + 1}", level)
        axis.set_ylabel(label)
        axis.set_xlabel("pictures learned")
    axes[0, 0].legend()
    return figure


# -- theorems 1 and 2 ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Capacity(Case):
    """Learn as many distinct pictures as there are neurons; the largest error of recalling one of them."""

    def run(self, seed: int, device: str) -> dict[str, Any]:
        x = iid(pool(self.data[0], "train")[0], self.size, generator(seed, "data"))
        memory = self.built(x.shape[1:], seed, device)
        memory.learn(x)
        return {"stored": len(x), "grown": len(memory), "worst": float(recall_error(memory.recall(x).x, x).max())}


def th_1(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    for name in ("mnist", "cifar10"):
        yield Capacity(set=name, data=(name,), model="SQHN L1", size=1000, memory=Tree(1000, alpha=np.inf))


@dataclass(frozen=True, kw_only=True)
class Urn(Case):
    """Every step hits one of `size` slots at random; how many were never hit, on average over trials."""

    length: int
    every: int = 100
    trials: int = 200

    def run(self, seed: int, device: str) -> dict[str, Any]:  # noqa: ARG002
        rng = generator(seed, "urn")
        t = np.arange(0, self.length + 1, self.every)
        left = np.zeros(len(t))
        for _ in range(self.trials):
            hits = rng.integers(self.size, size=self.length)
            first = np.full(self.size, self.length + 1)
            np.minimum.at(first, hits, np.arange(1, self.length + 1))
            left += (first[None, :] > t[:, None]).sum(axis=1) / self.trials
        expected = singletons(self.size, t)
        return {"curves": {"learned": t.tolist(), "left": left.tolist(), "expected": expected.tolist()}}


def th_2(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    yield Urn(set="urn", data=(), model="urn", size=1000, length=4000)


FAMILY.experiments += [
    Experiment(
        "TH1", "Theorem 1", "Are as many distinct pictures as there are neurons recalled without error?",
        th_1, {"size": 2, "capacity": 2},
    ),
    Experiment("TH2", "Theorem 2", "How many memories are untouched after so many steps past capacity?", th_2),
]  # fmt: skip


@FAMILY.claim(
    "TH1", "TH1", "as many distinct pictures as neurons are recalled without error", "proved",
    {"largest error": at_most(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    return {"largest error": {name: float(run.result("worst").max()) for name, run in results.of("TH1").each("set")}}


@FAMILY.claim(
    "TH2", "TH2", "of an urn as the proof has it, J (1 - 1/J)^t memories are left (of real memories: ACD.3)", "proved",
    {"simulated over expected, farthest while a twentieth is left": None},
)  # fmt: skip
def _(results: Results) -> Measured:
    run = results.of("TH2")
    expected, left = run.curve("expected")[0], run.mean("left")
    ratio = (left / expected)[expected >= expected[0] / 20]
    return {
        "simulated over expected, farthest while a twentieth is left": {"": float(ratio[np.abs(ratio - 1).argmax()])}
    }


@FAMILY.figure(
    "th2", "TH2",
    "Theorem 2 as an urn: memories that no later picture was averaged into, simulated, and how far that and the limit "
    "J exp(-t/J), which the paper draws, are from the expectation J (1 - 1/J)^t.",
)  # fmt: skip
def _(results: Results) -> Figure:
    run = results.of("TH2")
    figure, axes = panels(1, 2, width=3.8, height=2.7)
    J, expected = run.setting("size"), run.curve("expected")[0]
    line(axes[0, 0], run.t, run.curve("left"), "simulated", 0)
    line(axes[0, 1], run.t, run.curve("left") - expected, "simulated", 0)
    line(axes[0, 1], run.t, (J * np.exp(-run.t / J) - expected)[None], "limit", 1)
    axes[0, 0].set_ylabel("memories untouched")
    axes[0, 1].set_ylabel("less the expectation")
    for axis in axes[0]:
        axis.set_xlabel("pictures past capacity")
    axes[0, 1].legend()
    return figure


# -- what learning costs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cost(Case):
    """Learn a stream one picture at a time; what is kept besides the weights, what a step writes, how long it takes."""

    length: int

    def run(self, seed: int, device: str) -> dict[str, Any]:
        x = iid(pool(self.data[0], "train")[0], self.length, generator(seed, "data"))
        memory = self.built(x.shape[1:], seed, device)
        memory.learn(x[:-20])
        before = weights_of(memory)
        memory.learn(x[-20:-19])
        after = weights_of(memory)
        changed = float((after[: len(before)] != before).sum() + after.size - before.size)
        start = time.perf_counter()
        for one in x[-19:]:
            memory.learn(one[None])
        seconds = (time.perf_counter() - start) / 19
        return {"weights": after.nbytes, "extra": extra_bytes(memory), "changed": changed / after.size,
                "seconds": seconds}  # fmt: skip


def weights_of(memory: Any) -> Any:
    """A copy of the weights of a memory of one level."""
    if hasattr(memory, "banks"):
        return memory.prototypes.copy()
    return np.concatenate([parameter.detach().cpu().numpy().ravel() for parameter in memory.model.parameters])


def extra_bytes(memory: Any) -> int:
    """What a memory keeps from one step to the next besides its weights."""
    if hasattr(memory, "banks"):
        neurons = memory.banks[0].neurons
        return int(sum(array[:, : len(memory)].nbytes for array in (neurons.c, neurons.mu, neurons.written)))
    weights = sum(parameter.numel() * parameter.element_size() for parameter in memory.model.parameters)
    return resident_bytes(memory) - int(weights)


def s_cost(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    memories: dict[str, Spec] = {"SQHN L1": Tree(1300), **dict(online("ON-E", 1300))}
    for model, memory in memories.items():
        yield Cost(set="emnist", data=("emnist",), model=model, size=1300, memory=memory, length=1500, seeds=3)


FAMILY.experiments.append(
    Experiment("S-CST", "What learning costs", "How much memory and work does a step take?", s_cost, None)
)


@FAMILY.claim(
    "SC.1", "S-CST", "SQHN uses little extra memory", "little extra memory, no buffer",
    {"kept besides the weights, as a share of them": at_most(0.05),
     "less than the MHN that keeps something by": above(0)},
)  # fmt: skip
def _(results: Results) -> Measured:
    runs = results.of("S-CST")
    share = {m: runs.of(model=m).result("extra") / runs.of(model=m).result("weights") for m in ("SQHN L1", *MHNS)}
    ours = share.pop("SQHN L1")
    kept = {mhn: float(values.mean() - ours.mean()) for mhn, values in share.items() if mhn != "MHN-SGD"}
    return {
        "kept besides the weights, as a share of them": {"": ours},
        "less than the MHN that keeps something by": kept,
    }


@FAMILY.claim(
    "SC.2", "S-CST", "SQHN uses little compute: a step changes one column", "little compute; computationally cheap",
    {"share of the weights that a step changes": at_most(0.002), "of the MHNs": None, "milliseconds for a step": None},
)  # fmt: skip
def _(results: Results) -> Measured:
    runs = {model: results.of("S-CST", model=model) for model in ("SQHN L1", *MHNS)}
    changed = {model: run.result("changed") for model, run in runs.items()}
    return {
        "share of the weights that a step changes": {"": changed.pop("SQHN L1")},
        "of the MHNs": changed,
        "milliseconds for a step": {model: 1000 * run.result("seconds") for model, run in runs.items()},
    }
