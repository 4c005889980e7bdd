"""Recall per byte, beyond what a model returns of samples that it never saw: beyond the paper."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sqhn.data.corruptions import CORRUPTIONS
from sqhn.data.streams import unit
from sqhn.paper.experiments.case import (
    Case,
    Experiment,
    Images,
    Reading,
    generator,
    has_split,
    load_split,
    without_width,
)
from sqhn.paper.experiments.claims import Measured, above, at_most, below
from sqhn.paper.experiments.damage import SHARED_2
from sqhn.paper.experiments.family import Family
from sqhn.paper.experiments.models import (
    AskedTree,
    ByteStore,
    DownscaledStore,
    JpegStore,
    QuantizedStore,
    SharedTree,
    Spec,
    Tree,
)
from sqhn.paper.experiments.plots import by_model, legend_above, panels, plain_numbers, style_of, title
from sqhn.paper.experiments.results import Results
from sqhn.paper.metrics import recall_accuracy, recall_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FAMILY = Family()
CUES = (("noise", 0.0), ("noise", 0.2), ("black", 0.5))
NAMES = {("noise", 0.0): "clean", ("noise", 0.2): "noise .2", ("black", 0.5): "half covered"}
SHARED_4 = "shared 4 x 4"
JPEG, JPEG_BARE = "JPEG", "JPEG, no headers"
PLAIN = ("bytes", "bytes, evidence", "reservoir", "reservoir, evidence")
UNSHARED = ("SQHN L3", "SQHN L3, evidence")
NEURON_BYTES, ROOT_BYTES = 1, 12
"""Bytes of a file for a neuron of the levels between the first and the last, and for one of the last, beside codes."""
TIMED = 3
"""How many single questions are timed; the fastest counts."""


# -- experiments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PerByte(Case):
    """Learn a stream; recall some of its samples, and as many that were never learned, from every cue.

    size: the budget in bytes. The stream goes through its data sets one after another, an equal part of each.

    Results: stored, the samples in the stream; resident and file, the bytes of the memory in main memory and as a file;
    seconds, the time of a single question. Per cue: recalled, the share of questions about samples of the stream that
    are answered with an error below `threshold`; unseen, that of samples that were never learned; beyond, the
    difference.
    """

    length: int
    questions: int = 100
    cues: tuple[tuple[str, float], ...] = CUES
    threshold: float = 0.01

    def run(self, seed: int, device: str) -> dict[str, Any]:
        parts = [self.draw(name, generator(seed, "data", name)) for name in self.data]
        stream, unseen = (np.concatenate(some) for some in zip(*parts))
        memory = self.build(without_width(stream).shape[1:], seed, device)
        memory.learn(without_width(stream))
        asked = generator(seed, "asked").permutation(len(stream))[: self.questions]
        others = generator(seed, "others").permutation(len(unseen))[: self.questions]
        old, new = unit(stream[asked]), unit(unseen[others])
        groups = [(cue, which, x) for cue in self.cues for which, x in (("recalled", old), ("unseen", new))]
        given = [CORRUPTIONS[cue[0]](x, cue[1], generator(seed, which, *cue))[0] for cue, which, x in groups]
        # All at once, because a store decodes its codes for every call.
        answers = np.split(memory.recall(without_width(np.concatenate(given))).x, np.cumsum([len(x) for x in given]))
        shares: dict[tuple[str, float], dict[str, float]] = {cue: {} for cue in self.cues}
        for (cue, which, x), found in zip(groups, answers):
            shares[cue][which] = recall_accuracy(recall_error(found, without_width(x)), self.threshold)
        rows = [
            {"kind": kind, "level": level, **some, "beyond": some["recalled"] - some["unseen"]}
            for (kind, level), some in shares.items()
        ]
        seconds = seconds_of(memory, without_width(given[0][:TIMED]))
        return {"stored": len(stream), **bytes_of(memory), "seconds": seconds, "rows": rows}

    def draw(self, name: str, rng: np.random.Generator) -> tuple[Any, Any]:
        """The part of the stream from one data set, and samples that are never learned: of its test split, if any."""
        x, _ = load_split(name, "train+val")
        order, has_tests = rng.permutation(len(x)), has_split(name, "test")
        most = len(x) if has_tests else max(1, len(x) - self.questions)
        learned, rest = np.split(order, [min(self.length // len(self.data), most)])
        unseen = load_split(name, "test")[0] if has_tests else x[rest]
        return x[learned], unseen[rng.permutation(len(unseen))[: self.questions]]


def bytes_of(memory: Any) -> dict[str, int]:
    """The bytes of a memory: those it holds in main memory between questions, and those of its file.

    The file of a store has its codes and nothing else.
    """
    kept = getattr(memory, "memory", memory)
    if not hasattr(kept, "save"):
        return {"resident": kept.nbytes, "file": kept.nbytes}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sqhn"
        kept.save(path)
        return {"resident": kept.nbytes, "file": path.stat().st_size}


def seconds_of(memory: Any, x: Images) -> float:
    """The time of a single question; a first one, which may prepare things, does not count."""
    memory.recall(x[0])
    times = []
    for one in x:
        start = time.perf_counter()
        memory.recall(one)
        times.append(time.perf_counter() - start)
    return min(times)


@dataclass(frozen=True)
class Kind:
    """A data set or a stream of several: the shape of a sample, the sizes of streams, and the kernels of trees.

    kernels: below the memory node, of unshared trees, and of trees whose shared patches have sides of 2 and of 4.
    """

    data: tuple[str, ...]
    shape: tuple[int, ...]
    lengths: tuple[int, ...]
    kernels: tuple[tuple[Any, ...], ...]


SMALL = ((2, 4), (2, 4), (4, 2))
KINDS = {
    "cifar10": Kind(("cifar10",), (32, 32, 3), (2000, 20_000), SMALL),
    "fashion_mnist": Kind(("fashion_mnist",), (28, 28), (2000, 20_000), ((2, 7), (2, 7), (4,))),
    "tiny_imagenet": Kind(("tiny_imagenet",), (64, 64, 3), (2000,), ((4, 4), (2, 8), (4, 4))),
    "watch": Kind(("watch",), (200, 6), (1000,), (((5,), (8,)), ((2,), (10,)), ((4,), (10,)))),
    "svhn, cifar10": Kind(("svhn", "cifar10"), (32, 32, 3), (2000,), SMALL),
}
SHARES = (1 / 40, 1 / 10, 1 / 4)
"""Budgets, as shares of the bytes of the samples of a stream."""
WHOLE = ("a quarter of the side", JPEG_BARE)
"""Models that keep whole streams in the second of these budgets."""
CODEWORDS = {SHARED_2: 256, SHARED_4: 1024}


def models_of(kind: Kind, length: int, budget: int) -> dict[str, Spec]:
    """The models within a budget; those that could store nothing are left out."""
    values = int(np.prod(kind.shape))
    unshared, two, four = kind.kernels
    places = max(1, budget // (4 * values))
    group = 4 * kind.shape[-1] if len(kind.shape) == 3 else 4
    models: dict[str, Spec] = {
        "bytes": ByteStore(budget, ask="nearest"),
        "bytes, evidence": ByteStore(budget),
        "reservoir": ByteStore(budget, keep="reservoir", ask="nearest"),
        "reservoir, evidence": ByteStore(budget, keep="reservoir"),
        "half the side": DownscaledStore(budget, 2),
        "a quarter of the side": DownscaledStore(budget, 4),
        JPEG: JpegStore(budget),
        JPEG_BARE: JpegStore(budget, header=False),
        "SQHN L3": Tree(places, unshared),
        "SQHN L3, evidence": AskedTree(places, unshared),
    }
    for model, width, bits in (("PQ, 4 bits", group, 4), ("PQ, 8 bits", 4 * group, 8)):
        if budget > 2 * 4 * values * 2**bits:
            models[model] = QuantizedStore(budget, width, bits)
    for model, kernels in ((SHARED_2, two), (SHARED_4, four)):
        neurons = shared_neurons(kind, kernels, CODEWORDS[model], length, budget)
        if neurons:
            models[model] = SharedTree(kernels, CODEWORDS[model], neurons)
    return models


def shared_neurons(kind: Kind, kernels: tuple[Any, ...], codewords: int, length: int, budget: int) -> int:
    """How many samples a shared tree keeps in a file of this size, at most the stream."""
    nodes = [bank.nodes for bank in Tree(1, kernels).network(kind.shape).banks]
    codebook = codewords * (4 * int(np.prod(kind.shape)) // nodes[0] + 4)
    bits = nodes[0] * (codewords - 1).bit_length() + sum(nodes[1:-1]) * (length - 1).bit_length()
    sample = bits / 8 + NEURON_BYTES * sum(nodes[1:-1]) + ROOT_BYTES
    return max(0, min(length, int((budget - codebook) // sample)))


def x_byt(reading: Reading) -> Iterator[Case]:  # noqa: ARG001
    for name, kind in KINDS.items():
        for length in kind.lengths:
            whole: set[Spec] = set()
            for share in SHARES:
                budget = int(share * length * np.prod(kind.shape))
                for model, memory in models_of(kind, length, budget).items():
                    if memory in whole or (share > SHARES[1] and model in WHOLE):
                        continue
                    whole |= {memory} if isinstance(memory, SharedTree) else set()
                    quick = share == SHARES[1] and length <= 2000 and name in ("cifar10", "watch")
                    yield PerByte(
                        set=name, data=kind.data, model=model, size=budget, memory=memory, length=length,
                        quick=quick and not model.startswith("PQ"),  # its codebook is too large for short runs
                    )  # fmt: skip


FAMILY.experiments.append(
    Experiment(
        "X-BYT", "Recall per byte", "How much of a stream is recalled in how many bytes?", x_byt,
        {"length": 10, "size": 10, "budget": 10, "capacity": 10, "neurons": 10, "questions": 4},
    )
)  # fmt: skip


# -- claims ------------------------------------------------------------------------------------------------------------


def streams(results: Results) -> Iterator[tuple[str, Results]]:
    """The runs of each stream, by its name."""
    for name, of_set in results.of("X-BYT").each("set"):
        for length, runs in of_set.each("length"):
            yield f"{name} {length}", runs


def beyond(runs: Results, cue: tuple[str, float]) -> float:
    """The share recalled beyond what is returned of unseen samples, over seeds."""
    return float(runs.row(cue[0], "beyond", cue[1]).mean())


@FAMILY.claim(
    "XB.1", "X-BYT", "in the same bytes, a shared tree recalls more than stores of plain bytes and unshared trees", "-",
    {"ahead of the best of them": above(0), "its file, as a share of the budget": at_most(1.05).on_paper_data},
    beyond=True,
    explanation=(
        "It fails in one place, in the smallest budget of the watch, of which the bank takes nearly half. Its segments "
        "are so alike that little can be recalled beyond those never seen."
    ),
)  # fmt: skip
def ahead_per_byte(results: Results) -> Measured:
    ahead, part = {}, {}
    for name, runs in streams(results):
        for size, some in runs.each("size"):
            if not len(shared := some.where(model=SHARED_2)):
                continue
            part[f"{name} {size} bytes"] = float(shared.result("file").mean()) / size
            for cue in CUES:
                best = max(beyond(some.of(model=model), cue) for model in (*PLAIN, *UNSHARED))
                ahead[f"{name} {size} bytes {NAMES[cue]}"] = beyond(shared, cue) - best
    return {"ahead of the best of them": ahead, "its file, as a share of the budget": part}


def bytes_each(runs: Results, cue: tuple[str, float] = CUES[0]) -> float:
    """The bytes of the file for each sample recalled, of the budget with the fewest."""
    costs = [
        float((some.result("file") / some.result("stored")).mean()) / max(beyond(some, cue), 1e-9)
        for _, some in runs.each("size")
    ]
    return min(costs)


@FAMILY.claim(
    "XB.2", "X-BYT", "a store of JPEGs without headers needs the fewest bytes for each sample recalled", "-",
    {"its bytes, as a share of the fewest of all others": below(1), "bytes of a shared tree": None,
     "its seconds for a question": None, "seconds of a shared tree": None},
    beyond=True,
)  # fmt: skip
def fewest_bytes(results: Results) -> Measured:
    shares, size, slow, fast = {}, {}, {}, {}
    for name, runs in streams(results):
        costs = {model: bytes_each(runs.of(model=model)) for model in (JPEG_BARE, SHARED_2, *runs.settings("model"))}
        shares[name] = costs.pop(JPEG_BARE) / min(costs.values())
        size[name] = min(costs[model] for model in (SHARED_2, SHARED_4) if model in costs)
        slow[name], fast[name] = (
            float(runs.of(model=model).result("seconds").max()) for model in (JPEG_BARE, SHARED_2)
        )
    return {
        "its bytes, as a share of the fewest of all others": shares, "bytes of a shared tree": size,
        "its seconds for a question": slow, "seconds of a shared tree": fast,
    }  # fmt: skip


@FAMILY.claim(
    "XB.3", "X-BYT", "a shared tree returns no more unseen samples than a store does, where samples are alike", "-",
    {"unseen samples returned, beyond those of stores": at_most(0.05), "by shared trees": None,
     "by unshared trees": None},
    beyond=True,
    explanation=(
        "Segments of the watch are so alike that a model returns the more of those never seen, the more it keeps; the "
        "shared tree keeps all of the stream."
    ),
)  # fmt: skip
def unseen_samples(results: Results) -> Measured:
    more, shared, unshared = {}, {}, {}
    for name, runs in streams(results):
        returned = {
            model: max(float(run.row("noise", "unseen", 0.0).mean()) for _, run in some.each("size"))
            for model, some in by_model(runs)
        }
        shared[name] = max(returned.get(model, 0.0) for model in (SHARED_2, SHARED_4))
        unshared[name] = max(returned.get(model, 0.0) for model in UNSHARED)
        stores = [share for model, share in returned.items() if model not in (SHARED_2, SHARED_4, *UNSHARED)]
        more[name] = shared[name] - max(stores, default=0.0)
    return {
        "unseen samples returned, beyond those of stores": more,
        "by shared trees": shared,
        "by unshared trees": unshared,
    }


# -- figures -----------------------------------------------------------------------------------------------------------


def against_bytes(results: Results, measure: str, names: tuple[str, ...] = ()) -> Figure:
    """A row of panels for each stream, a column for each cue; names: of some streams."""
    rows = [(name, runs) for name, runs in streams(results) if not names or name in names]
    figure, axes = panels(len(rows), len(CUES), width=3.0, height=2.2 if len(rows) > 1 else 3.2)
    for row, (name, runs) in enumerate(rows):
        for column, cue in enumerate(CUES):
            axis = axes[row, column]
            for model, some in by_model(runs):
                points = sorted(
                    (float(run.result(measure).mean()) / 1e6, beyond(run, cue)) for _, run in some.each("size")
                )
                axis.plot(*zip(*points), label=model, markersize=5, linewidth=1.2, **style_of(model))
            axis.set_xscale("log")
            plain_numbers(axis.xaxis)
            axis.set_ylim(-0.03, 1.03)
            if row == 0:
                axis.set_title(NAMES[cue])
            if row == len(rows) - 1:
                axis.set_xlabel("megabytes")
        what, length = name.rsplit(" ", 1)
        heading = ", then ".join(title(one) for one in what.split(", "))
        axes[row, 0].set_ylabel(f"{heading}, {int(length):,}\nshare recalled")
    legend_above(figure, axes[0, 0])
    return figure


@FAMILY.figure(
    "x-byt", "X-BYT",
    "Recall per byte: the share of a stream that is recalled, less the share of images never seen that is returned, "
    "against the bytes of the file. Shared: trees with one bank of 256 patches of 2 x 2 pixels (sensors: 2 steps), or "
    "of 1,024 patches of 4 x 4 (4 steps), by evidence. Half and a quarter of the side, JPEG and PQ (product "
    "quantization, trained offline with the whole stream) are decoded for each question, and asked by evidence.",
)  # fmt: skip
def against_file(results: Results) -> Figure:
    return against_bytes(results, "file")


@FAMILY.figure("x-byt-resident", "X-BYT", "The same against the bytes in main memory between questions.")
def against_resident(results: Results) -> Figure:
    return against_bytes(results, "resident")


@FAMILY.figure("x-byt-short", "X-BYT", "The same for the longest stream of CIFAR-10, against the bytes of the file.")
def longest_of_cifar10(results: Results) -> Figure:
    length = max(results.of("X-BYT", set="cifar10").settings("length"))
    return against_bytes(results, "file", (f"cifar10 {length}",))
