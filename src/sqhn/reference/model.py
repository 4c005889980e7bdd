"""The Sparse Quantized Hopfield Network in plain NumPy, one sample at a time: read it beside the paper.

This is the definition of the model: every fast path must make the same decisions. Where this file and the paper have
different symbols: a column j of a matrix M of the paper is the row `m[j]` here, so that only grown neurons count, and a
node's value h* is the index `k` of its winner. Prototypes are float32, as in files; all other arithmetic is float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.banks.rule import AVERAGED, GREW, REPLACED, SKIPPED
from sqhn.level import TIE, Level, Options
from sqhn.patches import plan
from sqhn.protocol import Recalled, Recognized, Written

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]
Values = NDArray[np.int64]
Codes = list[Values]
"""The value of every node, level by level."""
Messages = list[list[Vector]]
"""The message of every node, level by level: h, or that of another rule of recall."""


def winner(h: Vector) -> int:
    """The lowest index of a maximum; values within TIE of it are equal to it."""
    return int(np.flatnonzero(h >= h.max() - TIE)[0])


def winners(h: list[Vector]) -> tuple[Values, Vector]:
    """The winner of every node, and its strength."""
    k = np.array([winner(one) for one in h], np.int64)
    return k, np.array([one[j] for one, j in zip(h, k)])


def cosine(products: Vector, lengths: Vector, length: float) -> Vector:
    """Cosines of vectors with one vector: 1 where both lengths are zero, 0 where one of them is."""
    both = lengths * length
    return np.where(both > 0, products / np.where(both > 0, both, 1), lengths == length)


class Step(NamedTuple):
    """The result of learning at one node: its value, its strength, the best match before, and the outcome."""

    k: int
    v: float
    score: float
    kind: int


class Node:
    """The neurons of one node: rows m[j], counts c[j], mean activities mu[j], and written[j], the step last written.

    known[j] counts how often each entry of m[j] was observed, which is c[j] unless samples had missing values. free[j]
    is True if neuron j was forgotten; its slot is free until it grows again.
    """

    def __init__(self, level: Level, sections: Sequence[int], visible: bool, options: Options) -> None:
        self.level, self.options, self.visible = level, options, visible
        self.edges = np.cumsum([0, *sections])  # child q owns entries edges[q]:edges[q + 1] of a row
        self.m: NDArray[Any] = np.zeros((level.capacity, self.edges[-1]), np.float32 if visible else np.float64)
        self.known = np.zeros(self.m.shape, np.int64)
        self.c, self.written = np.zeros((2, level.capacity), np.int64)
        self.mu, self.free = np.zeros(level.capacity), np.zeros(level.capacity, bool)
        self.blank = options.centre if visible else 0.0  # stands for an entry that was never observed
        self.holes = False  # whether any learned sample had missing values
        self.grown = self.step = 0

    def activity(self, x: NDArray[Any], observed: Mask | None = None, only: int | None = None) -> Vector:
        """h, how well each neuron matches a patch, or the children's one-hot values times their strengths.

        observed: which entries of x to compare; None: all. only: one neuron, instead of all grown ones. A node that
        observes nothing is silent, h = 0; a node without neurons counts as one with a silent neuron.
        """
        if not self.grown:
            return np.zeros(1)
        rows = slice(self.grown) if only is None else slice(only, only + 1)
        seen = np.ones(len(x), bool) if observed is None else observed
        h = (self.patch_activity if self.visible else self.code_activity)(rows, x, seen)
        return np.where(self.free[rows], -np.inf, h)

    def patch_activity(self, rows: slice, x: NDArray[Any], seen: Mask) -> Vector:
        """The shifted cosine, 1/2 + 1/2 cos(m - 1/2, x - 1/2)."""
        m, centre = self.m[rows], self.options.centre
        if not seen.any():
            return np.zeros(len(m))
        y, u = x[seen].astype(np.float64) - centre, m[:, seen].astype(np.float64) - centre
        return centre + (1 - centre) * cosine(u @ y, np.linalg.norm(u, axis=1), float(np.linalg.norm(y)))

    def code_activity(self, rows: slice, y: Vector, seen: Mask) -> Vector:
        """The cosine of a column and the children's strengths; an entry weighs as much as it was observed."""
        m = self.m[rows] * (self.known[rows] / np.maximum(self.c[rows, None], 1)) if self.holes else self.m[rows]
        y = np.where(np.abs(y) > TIE, y, 0.0)
        if not y.any():
            return np.zeros(len(m))
        columns = m
        if self.options.norm == "heard" or not seen.all():
            columns = m[:, np.repeat([y[a:b].any() for a, b in pairwise(self.edges)], np.diff(self.edges))]
        return cosine(m @ y, np.linalg.norm(columns, axis=1), float(np.linalg.norm(y)))

    def learn(self, x: NDArray[Any], target: NDArray[Any], seen: Mask) -> Step:
        """Grow a neuron for the target if no neuron matches x well enough; else average it into the winner."""
        if not seen.any():
            self.step += 1
            return Step(0, 0.0, 0.0, SKIPPED)
        h = self.activity(x, seen)
        j = winner(h)
        score = float(h[j]) if self.grown else -np.inf
        j, kind = self.place(j, below=score < self.level.threshold(self.step) - TIE)
        if kind >= GREW:
            self.assign(j, target, seen)
        elif kind == AVERAGED:
            self.average(j, target, seen)
            self.mu[j] += (score - self.mu[j]) / (self.c[j] + (self.options.mu == "pseudocount"))
        v = float(self.activity(x, seen, only=j)[0])  # the strength that the parent hears: the match after the update
        if kind >= GREW and not self.visible and self.options.propagation == "max":
            self.mu[j] = v
        self.step += 1
        return Step(j, v, score, kind)

    def place(self, j: int, below: bool) -> tuple[int, int]:
        """The neuron that a sample is written to, and the outcome; j: the winner, below the growth threshold or not."""
        return (self.grown, GREW) if below and self.grown < self.level.capacity else (j, AVERAGED)

    def assign(self, j: int, target: NDArray[Any], seen: Mask) -> None:
        """Make neuron j one that has learned only the target."""
        self.m[j], self.known[j], self.c[j], self.mu[j], self.free[j] = self.blank, 0, 0, 1.0, False
        self.grown = max(self.grown, j + 1)
        self.average(j, target, seen)

    def average(self, j: int, target: NDArray[Any], seen: Mask) -> None:
        """Make each observed entry of m[j] the mean of its targets."""
        self.holes = self.holes or not seen.all()
        m, known = self.m[j, seen], self.known[j, seen] + 1
        self.m[j, seen] = np.where(known == 1, target[seen], m + (target[seen] - m) / known.astype(m.dtype))
        self.c[j], self.written[j], self.known[j, seen] = self.c[j] + 1, self.step + 1, known


class Network:
    """A tree of nodes for samples of shape `input_shape`; the last level is one node, the memory node (`root`).

    A shared level is the same node at all places: it learns one patch of a sample after another, each in a step.
    """

    node_type: type[Node] = Node

    def __init__(self, input_shape: Sequence[int], levels: Sequence[Level], options: Options | None = None) -> None:
        self.input_shape, self.options = tuple(input_shape), options or Options()
        self.rho = self.options.rho if self.options.rho is not None else (0.99999 if len(levels) == 1 else 0.999)
        self.tilings = plan(self.input_shape, levels)
        self.levels: list[list[Node]] = []
        for number, (level, tiling) in enumerate(zip(levels, self.tilings)):
            visible = number == 0
            sections = [tiling.size] if visible else [levels[number - 1].capacity] * tiling.size
            nodes = [self.node_type(level, sections, visible, self.options) for _ in range(tiling.nodes)]
            self.levels.append([nodes[0]] * tiling.nodes if level.shared else nodes)
        self.children = [tiling.children() for tiling in self.tilings]  # [l][n]: nodes of level l - 1 below node n

    @property
    def root(self) -> Node:
        """The memory node."""
        return self.levels[-1][0]

    def patches(self, x: ArrayLike) -> NDArray[Any]:
        """The patches of a sample, (nodes of level 1, size)."""
        return np.asarray(self.tilings[0].split(np.asarray(x)[None])[:, 0])

    def masks(self, observed: ArrayLike | None) -> list[list[Mask]]:
        """Which entries every node observes: pixels, or the sections of children that observe anything."""
        masks = [list(self.patches(np.ones(self.input_shape, bool) if observed is None else observed))]
        for level, children in zip(self.levels[1:], self.children[1:]):
            heard = np.array([mask.any() for mask in masks[-1]])
            masks.append([np.repeat(heard[below], np.diff(node.edges)) for node, below in zip(level, children)])
        return masks

    def inputs(self, number: int, x: ArrayLike, k: Values, v: Vector | None = None) -> list[NDArray[Any]]:
        """The input of every node of a level: its patch, or its children's values k as one-hot vectors, times v."""
        if number == 0:
            return list(self.patches(x))
        inputs = [np.zeros(node.edges[-1]) for node in self.levels[number]]
        for y, node, below in zip(inputs, self.levels[number], self.children[number]):
            y[node.edges[:-1] + k[below]] = 1.0 if v is None else v[below]
        return inputs

    def families(self, number: int) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
        """All nodes of a level with each of their children: the places of both, and the expectations of the parent.

        Row j is the distribution of the child's values that the parent expects if its own value is j.
        """
        for n, node in enumerate(self.levels[number]):
            for child, start in zip(self.children[number][n], node.edges):
                yield n, int(child), node.m[:, start : start + max(1, self.levels[number - 1][child].grown)]

    def expectations(self, k: Codes) -> Iterator[tuple[int, int, int, Vector]]:
        """From the top down, the level and place of a parent, its child's place, and its expectation; k may change."""
        for number in range(len(self.levels) - 1, 0, -1):
            for n, child, expected in self.families(number):
                yield number, n, child, expected[k[number][n]]

    # -- learning: one sweep up ------------------------------------------------------------------------------------

    def learn(self, x: ArrayLike, observed: ArrayLike | None = None) -> Written:
        """One online step on one sample."""
        return self.written(self.learn_nodes(x, observed)[-1][0])

    def learn_nodes(self, x: ArrayLike, observed: ArrayLike | None) -> list[list[Step]]:
        """Each level learns its children's values, which it hears with their strengths."""
        steps: list[list[Step]] = []
        k, v = winners([])
        for number, (level, masks) in enumerate(zip(self.levels, self.masks(observed))):
            inputs, targets = self.inputs(number, x, k, v), self.inputs(number, x, k)
            steps.append([node.learn(*given) for node, *given in zip(level, inputs, targets, masks)])
            k, v = np.array([step.k for step in steps[-1]]), np.array([step.v for step in steps[-1]])
        return steps

    def written(self, step: Step) -> Written:
        """The answer to `learn` from the memory node's step."""
        return Written(step.k, step.kind >= GREW, step.score, self.root.step, step.kind == REPLACED)

    # -- recall: one sweep up, one sweep down; recognition: one sweep up -------------------------------------------

    def up(
        self, x: ArrayLike, observed: ArrayLike | None = None, propagation: str = "max", aware: bool = False
    ) -> Messages:
        """The bottom-up sweep: h of every node. aware: nodes disregard children that observe nothing."""
        h: Messages = []
        for number, (level, masks) in enumerate(zip(self.levels, self.masks(observed))):
            k, v = winners(h[-1] if h else [])  # each child sends its winner, with its strength
            if propagation == "argmax":
                v = (np.abs(v) > TIE).astype(np.float64)
            inputs, seen = self.inputs(number, x, k, v), masks if aware or number == 0 else repeat(None)
            h.append([node.activity(y, mask) for node, y, mask in zip(level, inputs, seen)])
        return h

    def down(self, h: Messages, blend: float, root: int) -> Codes:
        """The top-down sweep: each node takes the best value by blend * h + (1 - blend) * its parent's expectation.

        root: the value of the memory node. A node chooses among the values that its parent expects and its own winner,
        so no tie can reach beyond the winner to a neuron that both find worse.
        """
        k = [winners(level)[0] for level in h]
        k[-1][0] = root
        for number, _, child, p in self.expectations(k) if blend < 1 else ():
            own = h[number - 1][child]
            among = (p > 0) | (np.arange(len(own)) == winner(own))
            k[number - 1][child] = winner(np.where(among, blend * own + (1 - blend) * p, -np.inf))
        return k

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        """The completed sample, the memory node's value and its activity."""
        h = self.up(x, observed)
        index = winner(h[-1][0])
        return Recalled(self.decode(self.down(h, self.options.blend, index)), index, float(h[-1][0][index]))

    def decode(self, k: Codes) -> NDArray[Any]:
        """The prototypes of the values of level 1 as one sample."""
        patches = np.stack([node.m[j] for node, j in zip(self.levels[0], k[0])])
        return np.asarray(self.tilings[0].join(patches[:, None])[0])

    def recognize(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recognized:
        """Old if the memory node's best match reaches its neuron's mean activity, by a share of rho."""
        if self.root.free[: self.root.grown].all():
            return Recognized(False, -np.inf, self.rho)
        h = self.up(x, observed, self.options.propagation, aware=True)[-1][0]
        j = winner(h)
        threshold = self.rho * float(self.root.mu[j])
        return Recognized(bool(h[j] >= threshold - TIE), float(h[j]), threshold)
