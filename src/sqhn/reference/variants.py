"""Variants of the paper's network: other readings, ablations, other ways to learn and to recall.

Tests and experiments use `ReferenceSQHN`, the network of `model` with all of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.banks.rule import AVERAGED, GREW, REPLACED, SKIPPED
from sqhn.banks.saved import all_entries, prototypes_of
from sqhn.checks import check_words
from sqhn.level import REPLACING, TIE, Level, Options, default_similarity
from sqhn.protocol import Recalled, Written
from sqhn.reference import evidence
from sqhn.reference.model import Codes, Mask, Messages, Network, Node, Step, Vector, winner, winners

if TYPE_CHECKING:
    from sqhn.memory import SQHN
    from sqhn.model.model import Model


@dataclass(frozen=True)
class Ablation:
    """Which parts of the learning rule are left out; a constant growth threshold is an infinite alpha.

    step: averaging takes a step of this size (-lrDecay); None: of one over the count.
    growth_step: growth takes such a step too, from 0, as in the authors' code.
    grows: False: all neurons are there from the start, with random weights (-Grw).
    averages: False: a sample that grows no neuron changes nothing (-Avg).
    """

    step: float | None = None
    growth_step: bool = False
    grows: bool = True
    averages: bool = True


@dataclass(frozen=True)
class Reading:
    """Readings of the paper, where its text allows several; only this reference has them.

    hidden_similarity: how a node compares its children's values with a column: by the cosine, or by the mean of the
        column's probabilities weighted with the children's strengths.
    update_order: the strength that a node sends up while learning: its match after the update ("layerwise"), or its
        match before it, and 1 if it grew ("after").
    """

    hidden_similarity: Literal["cosine", "weighted_mean"] = "cosine"
    update_order: Literal["layerwise", "after"] = "layerwise"

    def __post_init__(self) -> None:
        check_words(self)


class VariedNode(Node):
    """A node with an ablation, a reading of the paper, or the Euclidean similarity."""

    ablation, reading = Ablation(), Reading()
    stopped = False  # whether it learns nothing, because the memory node is full

    def patch_activity(self, rows: slice, x: NDArray[Any], seen: Mask) -> Vector:
        if not self.options.euclidean:
            return super().patch_activity(rows, x, seen)
        both = seen & (self.known[rows] > 0)
        square, many = np.where(both, x.astype(np.float64) - self.m[rows], 0.0) ** 2, both.sum(axis=1)
        return np.where(many > 0, 1 / (1 + np.sqrt(square.sum(axis=1) / np.maximum(many, 1))), 0.0)

    def code_activity(self, rows: slice, y: Vector, seen: Mask) -> Vector:
        if self.reading.hidden_similarity == "cosine":
            return super().code_activity(rows, y, seen)
        m = self.m[rows]
        return np.asarray(m @ y / y.sum()) if abs(y.sum()) > TIE else np.zeros(len(m))

    def learn(self, x: NDArray[Any], target: NDArray[Any], seen: Mask) -> Step:
        step = super().learn(x, target, seen)
        if self.reading.update_order == "after":
            return step._replace(v=1.0 if step.kind >= GREW else step.score)
        return step

    def place(self, j: int, below: bool) -> tuple[int, int]:
        """The table of `banks.rule`: neurons grow in the first free slot; a full node may freeze or replace neurons."""
        if self.stopped:
            return j, SKIPPED
        slot = int(self.free.argmax()) if self.free.any() else self.grown
        full = slot == self.level.capacity
        if below and not full:
            return slot, GREW
        if below and self.level.when_full in REPLACING:
            least_used = self.level.when_full == "overwrite"
            return min(range(self.grown), key=lambda i: (least_used * self.c[i], self.written[i])), REPLACED
        skipped = not self.ablation.averages or (full and self.level.when_full == "freeze")
        return j, SKIPPED if skipped else AVERAGED

    def assign(self, j: int, target: NDArray[Any], seen: Mask) -> None:
        super().assign(j, target, seen)
        if self.ablation.step is not None and self.ablation.growth_step:
            self.m[j] *= self.ablation.step

    def average(self, j: int, target: NDArray[Any], seen: Mask) -> None:
        before = self.m[j, seen]
        super().average(j, target, seen)
        if self.ablation.step is not None and self.c[j] > 1:
            self.m[j, seen] = before + self.m.dtype.type(self.ablation.step) * (target[seen] - before)


class ReferenceSQHN(Network):
    """The network with all variants, for samples of shape `input_shape`.

    ablation: the parts left out of the learning rule; random weights are drawn with `seed`.
    reading: of the paper, where there are several.
    """

    node_type = VariedNode

    def __init__(
        self,
        input_shape: Sequence[int],
        levels: Sequence[Level],
        options: Options | None = None,
        ablation: Ablation | None = None,
        seed: int = 0,
        reading: Reading | None = None,
    ) -> None:
        super().__init__(input_shape, levels, options or Options(default_similarity(levels)))
        rng = np.random.default_rng(seed)
        for node in self.nodes():
            node.ablation, node.reading = ablation or node.ablation, reading or node.reading
            if not node.ablation.grows:
                bound = node.level.capacity**-0.5
                node.m[:] = rng.uniform(-bound, bound, node.m.shape)
                node.grown = node.level.capacity

    def nodes(self) -> Iterator[Any]:
        """All nodes, level by level; a shared one comes once."""
        return (node for level in self.levels for node in dict.fromkeys(level))

    @classmethod
    def of(cls, memory: SQHN) -> ReferenceSQHN:
        """A copy of a memory."""
        return memory.inspect(cls._of)

    @classmethod
    def _of(cls, model: Model) -> ReferenceSQHN:
        tree = model.tree
        reference = cls(tree.input_shape, tree.levels, model.options)
        for bank, level in zip(tree.banks, reference.levels):
            state = bank.neurons.state() | bank.state()
            ends = np.cumsum(state["grown"])
            entries = all_entries(state) if "counts" in state else np.zeros((0, 5), np.int32)
            for n, node in enumerate(dict.fromkeys(level)):
                node.grown, node.step = int(state["grown"][n]), bank.neurons.step
                own = slice(ends[n] - node.grown, ends[n])
                for name in state.keys() & {"c", "mu", "written"}:
                    getattr(node, name)[: node.grown] = state[name][own]
                node.free[: node.grown] = node.c[: node.grown] == 0
                if node.visible:
                    node.m[: node.grown] = prototypes_of(state, model.options.centre)[own]
                    node.known[: node.grown] = state["known"][own] if "known" in state else node.c[: node.grown, None]
                else:
                    _, j, q, k, count = entries[entries[:, 0] == n].T
                    often = np.zeros((len(node.c), len(node.edges) - 1), np.int64)
                    np.add.at(often, (j, q), count)
                    node.known[:] = np.repeat(often, np.diff(node.edges), axis=1)
                    node.holes = "known" in state
                    node.m[j, node.edges[q] + k] = count / often[j, q]
        return reference

    # -- learning --------------------------------------------------------------------------------------------------

    def learn(self, x: ArrayLike, observed: ArrayLike | None = None, root_only: bool = False) -> Written:
        """One online step on one sample. root_only: the levels below only recall what they know."""
        if not root_only or len(self.levels) == 1:
            return super().learn(x, observed)
        number, (k, v) = len(self.levels) - 1, winners(self.up(x, observed, aware=True)[-2])
        grown = np.array([node.grown > 0 for node in self.levels[-2]])
        seen = self.masks(observed)[-1][0] & np.repeat(grown, np.diff(self.root.edges))
        (y,), (target,) = self.inputs(number, x, k, v), self.inputs(number, x, k)
        return self.written(self.root.learn(y, target, seen))

    def learn_nodes(self, x: ArrayLike, observed: ArrayLike | None) -> list[list[Step]]:
        full = self.root.grown == self.root.level.capacity and not self.root.free.any()
        for node in self.nodes():
            node.stopped = full and node.level.stops
        return super().learn_nodes(x, observed)

    def learn_samples(self, samples: ArrayLike, observed: ArrayLike | None = None) -> Written:
        """Samples of one thing (SQHN+): the first is learned, the others are averaged into the neurons it wrote."""
        first, *others = np.asarray(samples)
        observed, *masks = [None] * (1 + len(others)) if observed is None else list(np.asarray(observed))
        steps = self.learn_nodes(first, observed)
        written = self.written(steps[-1][0])
        k = [np.array([step.k for step in level]) for level in steps]
        for sample, mask in zip(others, masks):
            seen = [self.masks(mask)[0], *self.masks(observed)[1:]]
            for number, level in enumerate(self.levels):
                targets = self.inputs(number, sample, k[number - 1])
                for node, step, target, those in zip(level, steps[number], targets, seen[number]):
                    if step.kind != SKIPPED:
                        node.average(step.k, target, those)
                    node.step += 1
        return written

    def memorize(self, samples: ArrayLike) -> None:
        """Make every sample a new neuron of every node, level by level; no slot may be free."""
        x = np.asarray(samples)
        k = [np.zeros(0, np.int64)] * len(x)
        for number, level in enumerate(self.levels):
            targets = [self.inputs(number, one, values) for one, values in zip(x, k)]
            for node, y in (pair for each in targets for pair in zip(level, each)):
                node.assign(node.grown, y, np.ones(len(y), bool))
                node.step += 1
            k = [np.array([winner(node.activity(y)) for node, y in zip(level, each)]) for each in targets]

    def forget(self, index: int) -> None:
        """Free the slot of a neuron of the memory node."""
        root = self.root
        root.m[index], root.known[index], root.free[index] = root.blank, 0, True
        root.c[index], root.mu[index], root.written[index] = 0, 0.0, 0

    # -- recall ----------------------------------------------------------------------------------------------------

    def messages(self, x: ArrayLike, observed: ArrayLike | None, rule: str) -> Messages:
        """The message of every node: activities, the best energies below ("exact"), or evidence."""
        if rule == "evidence":
            return evidence.up(self, x, observed)
        return self.max_sum(x, observed) if rule == "exact" else self.up(x, observed)

    def values(self, u: Messages, rule: str, root: int) -> Codes:
        """The values of all nodes, from the messages and the value of the memory node."""
        if rule == "evidence":
            return evidence.down(self, u, root)
        return self.down(u, {"paper": self.options.blend, "feedforward": 1.0, "exact": 0.5}[rule], root)

    def infer(self, x: ArrayLike, observed: ArrayLike | None = None, rule: str = "paper", sweeps: int = 1) -> Codes:
        """The value of every node.

        rule: "feedforward" (the winners on the way up), "paper" (up and down, `sweeps` times) or "exact" (max-sum).
        """
        u, blend = self.messages(x, observed, rule), self.options.blend
        k = self.values(u, rule, winner(u[-1][0]))
        for _ in range(sweeps - 1):
            for number, _, child, p in self.expectations(k):
                u[number - 1][child] = blend * u[number - 1][child] + (1 - blend) * p
            for number, level in enumerate(self.levels):
                inputs = self.inputs(number, x, *winners(u[number - 1]))
                masks = self.masks(observed)[0] if number == 0 else repeat(None)
                h = [node.activity(y, mask) for node, y, mask in zip(level, inputs, masks)]
                u[number] = [blend * one + (1 - blend) * own for one, own in zip(u[number], h)]
            k = self.values(u, rule, winner(u[-1][0]))
        return k

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None, inference: str = "paper") -> Recalled:
        """The completed sample, the memory node's value and its activity ("exact": energy; "evidence": nats)."""
        return self.recall_best(x, 1, observed, inference)[0]

    def recall_best(
        self, x: ArrayLike, count: int, observed: ArrayLike | None = None, inference: str = "paper"
    ) -> list[Recalled]:
        """The samples that the best values of the memory node recall, each with its own sweep down, best first."""
        u, found = self.messages(x, observed, inference), []
        terms = len(self.levels[0]) + sum(map(len, self.levels)) - 1  # of the energy: patches, and nodes with a parent
        left = evidence.preferred(self, x, observed, u[-1][0]) if inference == "evidence" else u[-1][0]
        for _ in range(count):
            index = winner(left)
            left = np.where(np.arange(len(left)) == index, -np.inf, left)
            image, known = self.image(self.values(u, inference, index), observed)
            score = float(u[-1][0][index]) / (terms if inference == "exact" else 1)
            found.append(Recalled(image, index, score, known=known))
        return found

    def image(self, k: Codes, observed: ArrayLike | None) -> tuple[NDArray[Any], Mask]:
        """The values of all nodes as one sample, and which of it is known.

        A node is unknown if it observes nothing and its parent is unknown or expects nothing of it. Random weights
        count as if they were observed.
        """
        masks, known = self.masks(observed), [np.array([node.grown > 0 for node in level]) for level in self.levels]
        for number, n, child, p in self.expectations(k):
            known[number - 1][child] &= masks[number - 1][child].any() or (known[number][n] and p.any())
        each = zip(self.levels[0], k[0], known[0])
        there = [one & ((node.known[j] > 0) | (node.c[j] == 0) & ~node.free[j]) for node, j, one in each]
        values = self.tilings[0].join(np.stack(there)[:, None])[0]
        return np.where(values, self.decode(k), np.float32(self.levels[0][0].blank)), values

    def prototypes(self) -> NDArray[Any]:
        """The sample that each neuron of the memory node recalls by itself: the most expected values, all the way."""
        silent = [[np.zeros(max(1, node.grown)) for node in level] for level in self.levels]
        values = [self.down(silent, 0.0, j) for j in range(self.root.grown)]
        images = [self.image(k, np.zeros(self.input_shape, bool))[0] for k in values]
        return np.array(images).reshape(-1, *self.input_shape)

    def random(self, rng: np.random.Generator) -> Codes:
        """A value for every node, uniform over its grown neurons."""
        return [np.array([rng.integers(node.grown) for node in level]) for level in self.levels]

    # -- energy ----------------------------------------------------------------------------------------------------

    def energy(self, x: ArrayLike, codes: Codes | None = None, observed: ArrayLike | None = None) -> float:
        """E of an assignment, by default the recalled one: the mean probability of values given their parents'.

        The probability of a patch is its similarity to the prototype. Nodes that observe nothing are left out.
        """
        k, masks = self.infer(x, observed) if codes is None else codes, self.masks(observed)[0]
        h = [node.activity(*given) for node, *given in zip(self.levels[0], self.patches(x), masks)]
        there = np.array([node.grown > 0 and mask.any() for node, mask in zip(self.levels[0], masks)])
        terms = [h[n][k[0][n]] for n in np.flatnonzero(there)]
        for number in range(1, len(self.levels)):
            pairs = self.families(number)
            terms += [p[k[number][n], k[number - 1][child]] for n, child, p in pairs if there[child]]
            there = np.any(there[self.children[number]], axis=1)
        return float(np.mean(terms))

    def max_sum(self, x: ArrayLike, observed: ArrayLike | None) -> Messages:
        """The best sum of terms of the energy that each neuron can reach with all nodes below it."""
        u = [self.up(x, observed)[0]]
        for number, level in enumerate(self.levels[1:], start=1):
            u.append([np.where(node.free[: max(1, node.grown)], -np.inf, 0.0) for node in level])
            for n, child, p in self.families(number):
                if level[n].grown:
                    u[number][n] += (p[: level[n].grown] + u[number - 1][child]).max(axis=1)
        return u


def learn_by_map(tree: ReferenceSQHN, x: ArrayLike) -> Written:
    """One step of MAP learning, which the paper discusses and does not use: parents influence their children's values.

    On the way up every node takes a value, a new neuron where no match reaches the threshold. On the way down a node
    takes the value its parent expects, if that is better together with its own match; a new neuron counts as the
    threshold. Then the neurons of these values learn.
    """
    h: Messages = []  # of all neurons, and of a new one where there is room
    k: Codes = []
    below, v = winners([])
    for number, level in enumerate(tree.levels):
        h.append([])
        for node, y in zip(level, tree.inputs(number, x, below, v)):
            known = node.activity(y)[: node.grown]
            new = [node.level.threshold(node.step)] if node.grown < node.level.capacity else []
            h[-1].append(np.append(known, new))
        below, v = winners(h[-1])
        v[below == [node.grown for node in level]] = 1.0
        k.append(below)
    score = float(h[-1][0][: tree.root.grown].max(initial=-np.inf))
    for number, n, child, p in tree.expectations(k):
        if k[number][n] < tree.levels[number][n].grown:
            own = h[number - 1][child]
            expected = np.zeros(len(own))
            expected[: len(p)] = p[: len(own)]
            k[number - 1][child] = winner(tree.options.blend * own + (1 - tree.options.blend) * expected)
    for number, level in enumerate(tree.levels):
        targets = tree.inputs(number, x, k[number - 1])
        for node, j, target in zip(level, k[number], targets):
            (node.assign if j == node.grown else node.average)(int(j), target, np.ones(len(target), bool))
            node.step += 1
    root = int(k[-1][0])
    return Written(root, bool(tree.root.c[root] == 1), score, tree.root.step, False)
