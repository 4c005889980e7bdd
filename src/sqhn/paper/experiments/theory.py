"""The supplement: learning without feedback, growth, the theorems, and the cost of learning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sqhn.data.streams import iid
from sqhn.paper.experiments.case import Case, Experiment, Reading, generator, learn_in_steps, load_split
from sqhn.paper.experiments.claims import Measured, above, at_most
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.hyperparameters import MHNS, TREE_KERNELS, online_mhns
from sqhn.paper.experiments.models import MapTree, Spec, Tree
from sqhn.paper.experiments.plots import LEARNED, line, panels
from sqhn.paper.experiments.results import Results
from sqhn.paper.experiments.streams import Stream
from sqhn.paper.metrics import recall_error, singletons
from sqhn.sizes import array_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FAMILY = Family()


# -- learning without feedback -----------------------------------------------------------------------------------------


def s_map(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    models: dict[str, Spec] = {"SQHN": Tree(50, TREE_KERNELS), "MAP": MapTree(50, TREE_KERNELS)}
    for model, memory in models.items():
        yield Stream(
            set="cifar100", data=("cifar100",), model=model, size=50, memory=memory, order="iid", length=250, every=50,
            sigma=0, alike=False,
        )  # fmt: skip


FAMILY.experiments.append(
    Experiment(
        "S-MAP", "Learning without feedback", "Is learning better without feedback from parents?",
        s_map, {"length": 4, "size": 4, "capacity": 4, "every": 4},
    )
)  # fmt: skip


@FAMILY.claim(
    "SP.1", "S-MAP", "learning without feedback recalls more than MAP learning", "works better",
    {"recall at the end, ahead by": above(0), "error at the end, ahead by": above(0)},
)  # fmt: skip
def recall_without_feedback(results: Results) -> Measured:
    ours, other = (results.of("S-MAP", model=model) for model in ("SQHN", "MAP"))
    return {
        "recall at the end, ahead by": {"": float(ours.mean("accuracy")[-1] - other.mean("accuracy")[-1])},
        "error at the end, ahead by": {"": float(other.mean("mse")[-1] - ours.mean("mse")[-1])},
    }


# -- growth ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Growth(Case):
    """Learn online; the number of neurons that each level has grown, and the size of their steps."""

    length: int
    every: int = 100

    def run(self, seed: int, device: str) -> dict[str, Any]:
        x = iid(load_split(self.data[0], "train+val")[0], self.length, generator(seed, "data"))
        memory = self.build(x.shape[1:], seed, device)
        curves: dict[str, list[Any]] = {"learned": [], "neurons": [], "step": []}
        for done in learn_in_steps(memory, x, self.every):
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
        "Does the memory node grow for longer, and stay more plastic, than the nodes below?",
        s_emg, {"length": 4, "every": 2},
    )
)  # fmt: skip


@FAMILY.claim(
    "SM.1", "S-EMG", "the memory node grows more neurons than nodes below", "more rapidly",
    {"more than either level below, from a tenth of the stream on, by": above(0)},
)  # fmt: skip
def growth_of_the_memory_node(results: Results) -> Measured:
    run = results.of("S-EMG")
    neurons = run.mean("neurons")[run.t >= run.result("length")[0] / 10]
    gap = neurons[:, 2] - neurons[:, :2].max(axis=1)
    return {"more than either level below, from a tenth of the stream on, by": {"": float(gap.min())}}


@FAMILY.claim(
    "SM.2", "S-EMG", "the memory node grows longest", "for longer periods",
    {"images until 95% of its neurons have grown, more than for either level below by": above(0)},
)  # fmt: skip
def length_of_growth(results: Results) -> Measured:
    run = results.of("S-EMG")
    neurons = run.mean("neurons")
    reached = [int(run.t[int((of_level >= 0.95 * of_level[-1]).argmax())]) for of_level in neurons.T]
    name = "images until 95% of its neurons have grown, more than for either level below by"
    return {name: {"levels 1 2 3 at " + " ".join(map(str, reached)): float(reached[2] - max(reached[:2]))}}


@FAMILY.claim(
    "SM.3", "S-EMG", "the memory node stays most plastic", "larger step sizes on average",
    {"mean step above either level below, from a quarter of the stream on, by": above(0)},
)  # fmt: skip
def plasticity(results: Results) -> Measured:
    run = results.of("S-EMG")
    step = run.mean("step")[run.t >= run.result("length")[0] / 4]
    gap = step[:, 2] - step[:, :2].max(axis=1)
    return {"mean step above either level below, from a quarter of the stream on, by": {"": float(gap.min())}}


@FAMILY.figure(
    "s-emg", "S-EMG",
    "Growth and plasticity: neurons grown, and the mean step size for a neuron's next sample, by level (3 is the "
    "memory node; means over the nodes of a level).",
)  # fmt: skip
def growth_and_plasticity(results: Results) -> Figure:
    run = results.of("S-EMG")
    figure, axes = panels(1, 2, width=3.8, height=2.7)
    for axis, curve, label in zip(axes[0], ("neurons", "step"), ("neurons grown", "mean step size")):
        values = run.curve(curve)
        for level in range(values.shape[2]):
            line(axis, run.t, values[:, :, level], f"level {level + 1}", level)
        axis.set_ylabel(label)
        axis.set_xlabel(LEARNED)
    axes[0, 0].legend()
    return figure


# -- theorems 1 and 2 --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Capacity(Case):
    """Learn as many distinct images as there are neurons; the largest error of recalling one of them."""

    def run(self, seed: int, device: str) -> dict[str, Any]:
        x = iid(load_split(self.data[0], "train")[0], self.size, generator(seed, "data"))
        memory = self.build(x.shape[1:], seed, device)
        memory.learn(x)
        return {"stored": len(x), "grown": len(memory), "worst": float(recall_error(memory.recall(x).x, x).max())}


def th_1(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    for name in ("mnist", "cifar10"):
        yield Capacity(set=name, data=(name,), model="SQHN L1", size=1000, memory=Tree(1000, alpha=np.inf))


@dataclass(frozen=True, kw_only=True)
class Urn(Case):
    """Every step hits one of `size` slots at random; the number of slots never hit, averaged over trials."""

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
        "TH1", "Theorem 1", "Are as many distinct images as there are neurons recalled without error?",
        th_1, {"size": 2, "capacity": 2},
    ),
    Experiment("TH2", "Theorem 2", "How many neurons hold a single image after a number of steps past capacity?", th_2),
]  # fmt: skip


@FAMILY.claim(
    "TH1", "TH1", "as many distinct images as neurons are recalled without error", "proved",
    {"largest error": at_most(0)},
)  # fmt: skip
def recall_at_capacity(results: Results) -> Measured:
    return {"largest error": {name: float(run.result("worst").max()) for name, run in results.of("TH1").each("set")}}


@FAMILY.claim(
    "TH2", "TH2", "in the urn model of the proof, J (1 - 1/J)^t slots are never hit (for recall: ACD.3)", "proved",
    {"simulated over expected, farthest from 1 until 1/20 is left": None},
)  # fmt: skip
def urn_over_expectation(results: Results) -> Measured:
    run = results.of("TH2")
    expected, left = run.curve("expected")[0], run.mean("left")
    ratio = (left / expected)[expected >= expected[0] / 20]
    farthest = float(ratio[np.abs(ratio - 1).argmax()])
    return {"simulated over expected, farthest from 1 until 1/20 is left": {"": farthest}}


@FAMILY.figure(
    "th2", "TH2",
    "Theorem 2 as an urn: slots never hit, that is neurons into which no later image was averaged, simulated; and the "
    "differences of the simulation and of the limit J exp(-t/J), which the paper draws, from the expectation "
    "J (1 - 1/J)^t.",
)  # fmt: skip
def urn_simulation(results: Results) -> Figure:
    run = results.of("TH2")
    figure, axes = panels(1, 2, width=3.8, height=2.7)
    J, expected = run.setting("size"), run.curve("expected")[0]
    line(axes[0, 0], run.t, run.curve("left"), "simulated", 0)
    line(axes[0, 1], run.t, run.curve("left") - expected, "simulated", 0)
    line(axes[0, 1], run.t, (J * np.exp(-run.t / J) - expected)[None], "limit", 1)
    axes[0, 0].set_ylabel("slots never hit")
    axes[0, 1].set_ylabel("minus the expectation")
    for axis in axes[0]:
        axis.set_xlabel("images past capacity")
    axes[0, 1].legend()
    return figure


# -- the cost of learning ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cost(Case):
    """Learn a stream one image at a time; the state besides the weights, the share written by a step, and its time."""

    length: int

    def run(self, seed: int, device: str) -> dict[str, Any]:
        x = iid(load_split(self.data[0], "train")[0], self.length, generator(seed, "data"))
        memory = self.build(x.shape[1:], seed, device)
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
    """A copy of the weights of a model of one level."""
    if hasattr(memory, "banks"):
        return memory.prototypes.copy()
    return np.concatenate([parameter.detach().cpu().numpy().ravel() for parameter in memory.network.parameters])


def extra_bytes(memory: Any) -> int:
    """The bytes that a model keeps from one step to the next besides its weights."""
    if hasattr(memory, "banks"):
        neurons = memory.banks[0].neurons
        return int(sum(array[:, : len(memory)].nbytes for array in (neurons.c, neurons.mu, neurons.written)))
    weights = sum(parameter.numel() * parameter.element_size() for parameter in memory.network.parameters)
    return array_bytes(memory) - int(weights)


def s_cost(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    models: dict[str, Spec] = {"SQHN L1": Tree(1300), **dict(online_mhns("ON-E", 1300))}
    for model, memory in models.items():
        yield Cost(set="emnist", data=("emnist",), model=model, size=1300, memory=memory, length=1500, seeds=3)


FAMILY.experiments.append(
    Experiment("S-CST", "The cost of learning", "How much memory and work does a step take?", s_cost, None)
)


@FAMILY.claim(
    "SC.1", "S-CST", "SQHN uses little extra memory", "little extra memory, no buffer",
    {"kept besides the weights, as a share of them": at_most(0.05),
     "less than the MHNs that keep more than weights, by": above(0)},
)  # fmt: skip
def extra_memory(results: Results) -> Measured:
    runs = results.of("S-CST")
    share = {m: runs.of(model=m).result("extra") / runs.of(model=m).result("weights") for m in ("SQHN L1", *MHNS)}
    ours = share.pop("SQHN L1")
    kept = {mhn: float(values.mean() - ours.mean()) for mhn, values in share.items() if mhn != "MHN-SGD"}
    return {
        "kept besides the weights, as a share of them": {"": ours},
        "less than the MHNs that keep more than weights, by": kept,
    }


@FAMILY.claim(
    "SC.2", "S-CST", "SQHN uses little compute: a step changes one column", "little compute; computationally cheap",
    {"share of the weights that a step changes": at_most(0.002), "of the MHNs": None, "milliseconds for a step": None},
)  # fmt: skip
def work_per_step(results: Results) -> Measured:
    runs = {model: results.of("S-CST", model=model) for model in ("SQHN L1", *MHNS)}
    changed = {model: run.result("changed") for model, run in runs.items()}
    return {
        "share of the weights that a step changes": {"": changed.pop("SQHN L1")},
        "of the MHNs": changed,
        "milliseconds for a step": {model: 1000 * run.result("seconds") for model, run in runs.items()},
    }
