"""The supplement: the energy during inference, and the joint probability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sqhn.data.streams import iid
from sqhn.paper.experiments.case import Case, Experiment, Reading, generator, load_split
from sqhn.paper.experiments.claims import Measured, above, at_least, at_most
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.hyperparameters import TREE_KERNELS
from sqhn.paper.experiments.models import Tree
from sqhn.paper.experiments.plots import bars, panels
from sqhn.paper.experiments.results import Results, Values
from sqhn.reference import ReferenceSQHN, winner

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FAMILY = Family()


# -- energy during inference -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Energies(Case):
    """Learn online; measure the energy of random states, of the states of every inference rule, and its maximum.

    tests: the number of unseen images to measure too.
    """

    length: int
    tests: int
    sweeps: int = 3

    def run(self, seed: int, device: str) -> dict[str, Any]:
        rng = generator(seed, "data")
        learned = iid(load_split(self.data[0], "train")[0], self.length, rng)
        memory = self.build(learned.shape[1:], seed, device)
        memory.learn(learned)
        cells = {"train": learned}
        if self.tests:
            cells["test"] = iid(load_split(self.data[0], "val")[0], self.tests, rng)
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
        "S-EN", "Energy during inference", "Does one sweep up and down raise the energy, and how close to its maximum?",
        s_en, {"length": 8, "capacity": 8, "size": 8, "tests": 20},
    )
)  # fmt: skip
STATES = {"small": ("small", "train"), "large": ("large", "train"), "test": ("large", "test")}


def energy_cells(results: Results) -> dict[str, dict[str, Values]]:
    """Each measure for each seed: at capacity, past it, and on unseen images."""
    cells = {}
    for name, (model, which) in STATES.items():
        found = [record["results"]["cells"][which] for record in results.of("S-EN", model=model).records]
        cells[name] = {measure: np.array([one[measure] for one in found]) for measure in found[0]}
    return cells


@FAMILY.claim(
    "SE.1", "S-EN", "energy: random < bottom-up <= one sweep up and down", "in this order",
    {"bottom-up above random by": above(0), "the sweep above bottom-up by": at_least(-1e-12),
     "the same, past capacity and on unseen images": above(0)},
)  # fmt: skip
def order_of_energies(results: Results) -> Measured:
    cells = energy_cells(results)
    gains = {name: float((cell["paper"] - cell["feedforward"]).mean()) for name, cell in cells.items()}
    return {
        "bottom-up above random by": {n: float((c["feedforward"] - c["random"]).mean()) for n, c in cells.items()},
        "the sweep above bottom-up by": gains,
        "the same, past capacity and on unseen images": {name: gains[name] for name in ("large", "test")},
    }


@FAMILY.claim(
    "SE.2", "S-EN", "sweeping three times does not help", "not better", {"above one sweep by": at_most(0.005)}
)
def repeated_sweeps(results: Results) -> Measured:
    return {"above one sweep by": {n: cell["repeated"] - cell["paper"] for n, cell in energy_cells(results).items()}}


@FAMILY.claim(
    "SE.3", "S-EN", "one sweep comes near the maximum of the energy", "a good approximate solution",
    {"over the maximum": at_least(0.9), "maximum above the sweep, any image": at_least(-1e-9)},
    explanation=(
        "At capacity the sweep finds the maximum. Past it, and on unseen images, the value of the memory node is far "
        "from the best one: the node sees only the values of its children, not how well other values would fit."
    ),
)  # fmt: skip
def distance_from_the_maximum(results: Results) -> Measured:
    cells = energy_cells(results)
    return {
        "over the maximum": {name: cell["ratio"] for name, cell in cells.items()},
        "maximum above the sweep, any image": {n: float(cell["least_gain"].min()) for n, cell in cells.items()},
    }


@FAMILY.figure(
    "s-en", "S-EN",
    "Energy of random states, of bottom-up states, after one sweep up and down, after three, and the true maximum: "
    "learned images at capacity, five times past it, and unseen images.",
)  # fmt: skip
def energies(results: Results) -> Figure:
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


# -- the energy and the joint probability ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Joint(Case):
    """Learn online; compare the maximum of the energy with that of the joint probability under the Dirichlet prior.

    priors: weights of the prior, the paper's epsilon, in addition to the weight from the tree's own alpha.
    """

    length: int
    asked: int
    priors: tuple[float, ...]

    def run(self, seed: int, device: str) -> dict[str, Any]:
        x = iid(load_split(self.data[0], "train")[0], self.length, generator(seed, "data"))
        unseen = iid(load_split(self.data[0], "test")[0], self.asked, generator(seed, "unseen"))
        memory = self.build(x.shape[1:], seed, device)
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
    """The memory node's value in the state of the highest joint probability, by max-sum over logarithms."""

    def smoothed(p: Any, capacity: int) -> Any:
        return np.log(prior / capacity + (1 - prior) * p)

    best = [smoothed(h, node.level.capacity) for h, node in zip(tree.up(x, None)[0], tree.levels[0])]
    for number, level in enumerate(tree.levels[1:], start=1):
        above = [np.zeros(node.grown) for node in level]
        for n, child, expected in tree.families(number):
            p = smoothed(expected[: level[n].grown], tree.levels[number - 1][child].level.capacity)
            above[n] += (p + best[child]).max(axis=1)
        best = above
    return winner(best[0])


def least_change(tree: ReferenceSQHN, x: Any) -> list[float]:
    """For every level above the first, the share of nodes whose value changes its column least."""
    h = tree.up(x, None)
    found = []
    for number, level in enumerate(tree.levels[1:], start=1):
        k = np.array([winner(one) for one in h[number - 1]])
        same = []
        for n, (node, y) in enumerate(zip(level, tree.inputs(number, x, k))):
            agreed = node.m[: node.grown] @ y
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
        "Do the maxima of the sum and of the product under the Dirichlet prior agree?",
        s_jnt, {"length": 4, "size": 4, "capacity": 4, "asked": 4},
    )
)  # fmt: skip


@FAMILY.claim(
    "SJ.1", "S-JNT", "the sum of probabilities approximates the joint with the Dirichlet prior over parameters",
    "a decent approximation",
    {"same memory found, with the tree's own alpha": at_least(0.9), "same memory found, with weaker priors": None},
)  # fmt: skip
def agreement_with_joint(results: Results) -> Measured:
    own, weaker = {}, {}
    for model, run in results.of("S-JNT").each("model"):
        for number, row in enumerate(run.records[0]["results"]["rows"]):
            same = run.values(lambda record, number=number: record["results"]["rows"][number]["same"])  # type: ignore[misc]
            if row["prior"] == run.records[0]["results"]["own"]:
                own[f"{model}, {row['cell']}"] = same
            else:
                weaker[f"{model}, {row['cell']}, prior {row['prior']:g}"] = same
    return {"same memory found, with the tree's own alpha": own, "same memory found, with weaker priors": weaker}


@FAMILY.claim(
    "TH3", "S-JNT", "nodes take the value whose column changes least", "proved, for equal steps",
    {"share of nodes for which this holds": at_least(0.99)},
    explanation=(
        "At level 1, where the match is the energy itself, the claim holds by definition. Above it a node compares by "
        "the cosine, which divides by the length of a column: where columns are averages, a column that expects fewer "
        "different values can win although another column expects the present values more."
    ),
)  # fmt: skip
def least_change_wins(results: Results) -> Measured:
    found = {}
    for model, run in results.of("S-JNT").each("model"):
        for number in range(len(run.records[0]["results"]["least"])):
            name = f"{model}, level {number + 2}"
            found[name] = run.values(lambda record, number=number: record["results"]["least"][number])  # type: ignore[misc]
    return {"share of nodes for which this holds": found}
