"""The paper in plain NumPy, one sample at a time, with no tricks: what every fast path is compared with.

Read it beside the paper. Prototypes are kept in float32, as they are in a file; all arithmetic on them is float64.
A node keeps one row per grown neuron, so a column m[j] of the paper is the row `m[j]` here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.banks.rule import AVERAGED, GREW, REPLACED, SKIPPED
from sqhn.checks import check_words
from sqhn.evidence import WHOLE as WHOLE_SAMPLE
from sqhn.evidence import chance, pyramid
from sqhn.evidence import evidence as block_evidence
from sqhn.level import TIE, Level, Options
from sqhn.patches import Tiling, plan
from sqhn.protocol import Recalled, Recognized, Written

if TYPE_CHECKING:
    from sqhn.memory import SQHN
    from sqhn.model.model import Model

__all__ = ["Ablation", "Node", "Reading", "ReferenceSQHN", "learn_by_map", "winner"]

Vector = NDArray[np.float64]
Codes = list[NDArray[np.int64]]


@dataclass(frozen=True)
class Ablation:
    """What is left out of the learning rule (2.11); a constant growth threshold is an infinite alpha.

    step: averaging takes a step of this size (-lrDecay); None: of one over the count.
    growth_step: growth too takes such a step, from 0, as in the authors' code.
    grows: False: all neurons are there from the start, with random weights (-Grw).
    averages: False: what grows no neuron changes nothing (-Avg).
    """

    step: float | None = None
    growth_step: bool = False
    grows: bool = True
    averages: bool = True


WHOLE = Ablation()


@dataclass(frozen=True)
class Reading:
    """Where the paper can be read in another way, which only this reference follows.

    hidden_similarity: how a node compares its children's values with a column: cosine, or the mean of the column's
        probabilities weighted by the children's strengths.
    update_order: what a node sends up while learning: its match after the update ("layerwise") or before it, and 1
        when it grew ("after").
    """

    hidden_similarity: Literal["cosine", "weighted_mean"] = "cosine"
    update_order: Literal["layerwise", "after"] = "layerwise"

    def __post_init__(self) -> None:
        check_words(self)


USUAL = Reading()


def winner(h: Vector) -> int:
    """The lowest index whose value is the maximum, rounding apart."""
    return int(np.flatnonzero(h >= h.max() - TIE)[0])


def top_k(h: Vector, count: int) -> list[int]:
    """The winner, then the winner of those that are left, and so on."""
    left, found = h.copy(), []
    for _ in range(count):
        found.append(winner(left))
        left[found[-1]] = -np.inf
    return found


def choice(h: Vector, p: Vector, blend: float) -> int:
    """The value of a node on the way down, from its own activity and what its parent expects.

    It is the best of those that the parent expects and of the node's own winner, which stands for all others: no
    tolerance reaches beyond it to a neuron that both find worse.
    """
    heard = (p > 0) | (np.arange(len(h)) == winner(h))
    return winner(np.where(heard, blend * h + (1 - blend) * p, -np.inf))


def cosine(products: Vector, lengths: Vector, length: float) -> Vector:
    """Of vectors with a vector, from products and lengths: 1 where both have no length, 0 where one has none."""
    both = lengths * length
    return np.where(both > 0, products / np.where(both > 0, both, 1), lengths == length)


class Step(NamedTuple):
    """What a node did with a sample: the neuron, its strength, its activity before, and what became of the sample."""

    k: int
    v: float
    score: float
    kind: int


class Node:
    """The neurons of one node: rows m[j], counts c[j], mean activities mu[j], last writes written[j] for j < grown.

    known[j] counts how often each entry of row j was seen: c[j], but for samples with holes. free[j]: j was forgotten.
    """

    def __init__(
        self, level: Level, sections: Sequence[int], visible: bool, options: Options, reading: Reading = USUAL
    ) -> None:
        self.level, self.options, self.visible, self.reading = level, options, visible, reading
        self.edges = np.cumsum([0, *sections])  # child q owns entries edges[q]:edges[q + 1] of a row
        self.m: NDArray[Any] = np.zeros((level.capacity, self.edges[-1]), np.float32 if visible else np.float64)
        self.c = np.zeros(level.capacity, np.int64)
        self.mu = np.zeros(level.capacity)
        self.written = np.zeros(level.capacity, np.int64)  # the step, counted from 1, that wrote the neuron last
        self.known = np.zeros(self.m.shape, np.int64)
        self.free = np.zeros(level.capacity, bool)
        self.holes = False  # whether anything that was learned had some
        self.blank = options.centre if visible else 0.0  # what stands for an entry that is not known
        self.grown = self.step = 0

    # -- bottom-up activity (2.2, 2.5) ---------------------------------------------------------------------------

    def activity(self, x: NDArray[Any], observed: NDArray[np.bool_] | None = None, only: int | None = None) -> Vector:
        """h over the grown neurons, for a patch (level 1) or the children's one-hots times their strengths.

        observed: which entries of x were seen; of a section for a child, all or none. only: over this one neuron.
        What was forgotten is minus infinity. A node without neurons is silent, as if it had one that is.
        """
        rows = slice(self.grown) if only is None else slice(only, only + 1)
        if not self.grown:
            return np.zeros(1)
        h = (self.patch_activity if self.visible else self.code_activity)(rows, x, observed)
        return np.where(self.free[rows], -np.inf, h)

    def patch_activity(self, rows: slice, x: NDArray[Any], observed: NDArray[np.bool_] | None) -> Vector:
        m = self.m[rows]
        seen = np.ones(len(x), bool) if observed is None else observed
        if not seen.any():
            return np.zeros(len(m))  # silent
        if self.options.euclidean:
            both = seen & (self.known[rows] > 0)
            square = np.where(both, x.astype(np.float64) - m, 0.0) ** 2
            many = both.sum(axis=1)
            return np.where(many > 0, 1 / (1 + np.sqrt(square.sum(axis=1) / np.maximum(many, 1))), 0.0)
        centre = self.options.centre
        y = x[seen].astype(np.float64) - centre
        u = m[:, seen].astype(np.float64) - centre
        return centre + (1 - centre) * cosine(u @ y, np.linalg.norm(u, axis=1), float(np.linalg.norm(y)))

    def code_activity(self, rows: slice, y: Vector, observed: NDArray[np.bool_] | None) -> Vector:
        """Of counts, in which a child weighs as much as it was heard."""
        m = self.m[rows] * (self.known[rows] / np.maximum(self.c[rows, None], 1)) if self.holes else self.m[rows]
        y = np.where(np.abs(y) > TIE, y, 0.0)
        if not y.any():
            return np.zeros(len(m))  # silent
        if self.reading.hidden_similarity == "weighted_mean":
            return np.asarray(m @ y / y.sum()) if abs(y.sum()) > TIE else np.zeros(len(m))
        if self.options.norm == "heard" or (observed is not None and not observed.all()):
            heard = np.repeat(
                [(np.abs(y[a:b]) > TIE).any() for a, b in zip(self.edges, self.edges[1:])], np.diff(self.edges)
            )
            lengths = np.linalg.norm(m[:, heard], axis=1)
        else:
            lengths = np.linalg.norm(m, axis=1)
        return cosine(m @ y, lengths, float(np.linalg.norm(y)))

    # -- learning (2.3, 2.4, 2.9, 2.11) --------------------------------------------------------------------------

    def learn(
        self, x: NDArray[Any], target: NDArray[Any], ablation: Ablation, observed: NDArray[np.bool_] | None = None
    ) -> Step:
        """One step; where nothing was observed, nothing is done."""
        if observed is not None and not observed.any():
            self.step += 1
            return Step(0, 0.0, 0.0, SKIPPED)
        living = ~self.free[: self.grown]
        h = self.activity(x, observed)
        j = winner(h) if living.any() else -1
        a = float(h[j]) if living.any() else -np.inf
        full = self.grown == self.level.capacity and living.all()
        below = a < self.level.threshold(self.step) - TIE
        if below and not full:
            j, kind = self.grown if living.all() else int(self.free.argmax()), GREW
            self.grown = max(self.grown, j + 1)
            self.assign(j, target, ablation, observed)
        elif below and self.level.when_full in ("overwrite", "oldest"):
            used = self.c if self.level.when_full == "overwrite" else np.zeros_like(self.c)
            j, kind = min(range(self.grown), key=lambda i: (used[i], self.written[i])), REPLACED  # the first of equals
            self.assign(j, target, ablation, observed)
        elif (full and self.level.when_full == "freeze") or not ablation.averages:
            kind = SKIPPED
        else:
            kind = AVERAGED
            self.average(j, target, ablation, observed)
            self.mu[j] += (a - self.mu[j]) / (self.c[j] + (self.options.mu == "pseudocount"))
        if kind >= GREW and not self.visible and self.options.propagation == "max":
            self.mu[j] = float(self.activity(x, observed, only=j)[0])
        self.step += 1
        before = 1.0 if kind >= GREW else a
        after = self.reading.update_order == "after"
        return Step(j, before if after else float(self.activity(x, observed, only=j)[0]), a, kind)

    def assign(
        self, j: int, target: NDArray[Any], ablation: Ablation = WHOLE, observed: NDArray[np.bool_] | None = None
    ) -> None:
        seen = self.seen(target, observed)
        self.m[j], self.known[j], self.free[j] = np.where(seen, target, self.blank), seen, False
        self.c[j], self.mu[j], self.written[j] = 1, 1.0, self.step + 1
        if ablation.step is not None and ablation.growth_step:
            self.m[j] *= ablation.step

    def average(
        self, j: int, target: NDArray[Any], ablation: Ablation, observed: NDArray[np.bool_] | None = None
    ) -> None:
        """Each entry becomes the mean of all that were seen."""
        seen = self.seen(target, observed)
        m, known, exact = self.m[j][seen], self.known[j][seen] + 1, self.m.dtype.type
        self.c[j], self.written[j], self.known[j, seen] = self.c[j] + 1, self.step + 1, known
        if ablation.step is not None and self.c[j] > 1:
            self.m[j, seen] = m + exact(ablation.step) * (target[seen] - m)
        else:
            self.m[j, seen] = np.where(known == 1, target[seen], m + (target[seen] - m) / known.astype(exact))

    def seen(self, target: NDArray[Any], observed: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Which entries of what is learned now were seen."""
        self.holes = self.holes or (observed is not None and not observed.all())
        return np.ones(len(target), bool) if observed is None else observed

    def known_values(self, j: int) -> NDArray[np.bool_]:
        """Which entries of a neuron mean something; random weights are taken as if they did."""
        return np.asarray((self.known[j] > 0) | ((self.c[j] == 0) & ~self.free[j]))

    def forget(self, j: int) -> None:
        """Free the place of a neuron."""
        self.m[j], self.known[j], self.free[j] = self.blank, 0, True
        self.c[j], self.mu[j], self.written[j] = 0, 0.0, 0


class ReferenceSQHN:
    """The tree of section 2, for samples of shape `input_shape`.

    ablation: what is left out; random weights are drawn with `seed`.
    reading: of the paper, where there are several.
    keep_error: recall each sample before learning it and keep the mean error, for `recognize_by_error`.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        levels: Sequence[Level],
        options: Options | None = None,
        ablation: Ablation = WHOLE,
        seed: int = 0,
        keep_error: bool = False,
        reading: Reading = USUAL,
    ) -> None:
        self.input_shape = tuple(input_shape)
        self.options = options or Options()
        self.ablation = ablation
        self.keep_error, self.errors, self.error = keep_error, 0, 0.0
        self.tilings = plan(self.input_shape, levels)
        self.rho = self.options.rho if self.options.rho is not None else (0.99999 if len(levels) == 1 else 0.999)
        self.levels: list[list[Node]] = []
        self.children: list[NDArray[np.int32]] = []  # self.children[l][n]: nodes of level l - 1 below node n
        for number, (level, tiling) in enumerate(zip(levels, self.tilings)):
            sections = [tiling.size] if number == 0 else [levels[number - 1].capacity] * tiling.size
            self.levels.append([Node(level, sections, number == 0, self.options, reading) for _ in range(tiling.nodes)])
            self.children.append(tiling.children())
        if not ablation.grows:
            rng = np.random.default_rng(seed)
            for node in self.nodes():
                bound = node.level.capacity**-0.5
                node.m[:] = rng.uniform(-bound, bound, node.m.shape)
                node.grown = node.level.capacity

    @classmethod
    def of(cls, memory: SQHN) -> ReferenceSQHN:
        """The same memory, in plain NumPy."""
        return memory.inspect(cls._of)

    @classmethod
    def _of(cls, model: Model) -> ReferenceSQHN:
        tree = model.tree
        reference = cls(tree.input_shape, tree.levels, model.options)
        for bank, level in zip(tree.banks, reference.levels):
            state = bank.neurons.state() | bank.state()
            ends = np.cumsum(state["grown"])
            for n, node in enumerate(level):
                node.grown, node.step = int(state["grown"][n]), bank.neurons.step
                own = slice(ends[n] - node.grown, ends[n])
                for name in ("c", "mu", "written"):
                    getattr(node, name)[: node.grown] = state[name][own]
                node.free[: node.grown] = node.c[: node.grown] == 0
                if node.visible:
                    node.m[: node.grown] = state["prototypes"][own]
                    node.known[: node.grown] = state["known"][own] if "known" in state else node.c[: node.grown, None]
                else:
                    _, j, q, k, count = state["counts"][state["counts"][:, 0] == n].T
                    often = np.zeros((len(node.c), len(node.edges) - 1), np.int64)
                    np.add.at(often, (j, q), count)
                    node.known[:] = np.repeat(often, np.diff(node.edges), axis=1)
                    node.holes = "known" in state
                    node.m[j, node.edges[q] + k] = count / often[j, q]
        return reference

    def nodes(self) -> Iterable[Node]:
        return (node for level in self.levels for node in level)

    @property
    def root(self) -> Node:
        return self.levels[-1][0]

    def patches(self, x: ArrayLike) -> NDArray[Any]:
        """`(nodes of level 1, size)`."""
        patches: NDArray[Any] = self.tilings[0].split(np.asarray(x)[None])[:, 0, :]
        return patches

    def concatenate(self, number: int, n: int, k: NDArray[np.int64], v: Vector) -> Vector:
        """The children's values as one vector: v[q] at position k[q] of child q's section, 0 elsewhere."""
        y = np.zeros(self.levels[number][n].edges[-1])
        below = self.children[number][n]
        y[self.levels[number][n].edges[:-1] + k[below]] = v[below]
        return y

    def heard(self, observed: ArrayLike | None) -> list[Any]:
        """Of every node, level by level, whether any of the values below it was observed; None: all of them."""
        if observed is None:
            return [None] * len(self.levels)
        found: list[Any] = [self.patches(observed).any(axis=1)]
        for below in self.children[1:]:
            found.append(found[-1][below].any(axis=1))
        return found

    def sections(self, number: int, n: int, heard: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
        """Which entries of a row of node n of a level belong to children that were heard; None: all."""
        if heard is None:
            return None
        return np.repeat(heard[self.children[number][n]], np.diff(self.levels[number][n].edges))

    # -- learn ---------------------------------------------------------------------------------------------------

    def learn(self, x: ArrayLike, root_only: bool = False, observed: ArrayLike | None = None) -> Written:
        """One online step on one sample (2.3), of the whole tree or of the memory node alone."""
        if root_only and len(self.levels) > 1:
            h = self.up(x, observed, aware=True)[-2]
            k = np.array([winner(hn) for hn in h])
            v = np.array([hn[kn] for hn, kn in zip(h, k)])
            number = len(self.levels) - 1
            y, target = self.concatenate(number, 0, k, v), self.concatenate(number, 0, k, np.ones(len(k)))
            heard = np.array([node.grown > 0 for node in self.levels[-2]])
            if observed is not None:
                heard &= self.heard(observed)[-2]
            step = self.root.learn(y, target, self.ablation, self.sections(number, 0, heard))
            return Written(step.k, step.kind >= GREW, step.score, self.root.step, step.kind == REPLACED)
        return self.learn_samples(np.asarray(x)[None], None if observed is None else np.asarray(observed)[None])

    def learn_samples(self, samples: ArrayLike, observed: ArrayLike | None = None) -> Written:
        """Samples of one thing (2.9): the first is learned, the others are averaged into the neurons it wrote."""
        masks: list[Any] = [None] * len(np.asarray(samples)) if observed is None else list(np.asarray(observed))
        first, *others = np.asarray(samples)
        if self.keep_error and self.root.grown:
            self.errors += 1
            self.error += (self.recall_error(first) - self.error) / self.errors
        k: list[Any] = []  # what each level sends up, and what became of the sample
        v: list[Any] = []
        kind: list[Any] = []
        heard = self.heard(masks[0])
        for number, level in enumerate(self.levels):
            if number == 0:
                inputs = targets = list(self.patches(first))
                seen = self.seen(masks[0])
            else:
                inputs = [self.concatenate(number, n, k[-1], v[-1]) for n in range(len(level))]
                targets = [self.concatenate(number, n, k[-1], np.ones_like(v[-1])) for n in range(len(level))]
                seen = [self.sections(number, n, heard[number - 1]) for n in range(len(level))]
            steps = [node.learn(x, y, self.ablation, o) for node, x, y, o in zip(level, inputs, targets, seen)]
            k.append(np.array([step.k for step in steps]))
            v.append(np.array([step.v for step in steps]))
            kind.append([step.kind for step in steps])
        for sample, mask in zip(others, masks[1:]):
            for number, level in enumerate(self.levels):
                for n, node in enumerate(level):
                    if number == 0:
                        y, o = self.patches(sample)[n], self.seen(mask)[n]
                    else:
                        y = self.concatenate(number, n, k[number - 1], np.ones(len(k[number - 1])))
                        o = self.sections(number, n, heard[number - 1])
                    if kind[number][n] != SKIPPED:
                        node.average(k[number][n], y, self.ablation, o)
                    node.step += 1
        root = steps[0]
        step = self.root.step - len(others)
        return Written(root.k, root.kind >= GREW, root.score, step, root.kind == REPLACED)

    def seen(self, observed: ArrayLike | None) -> list[Any]:
        """Which values each node of level 1 saw; None: all."""
        return [None] * len(self.levels[0]) if observed is None else list(self.patches(observed))

    def forget(self, index: int) -> None:
        """Free a neuron of the memory node."""
        self.root.forget(index)

    def memorize(self, samples: ArrayLike) -> None:
        """Batch memorization of as many samples as there are neurons (2.10); the net must be empty."""
        below: list[list[tuple[int, float]]] = []  # below[i][n]: value and strength of node n for sample i
        for number, level in enumerate(self.levels):
            targets = [
                self.patches(x)
                if number == 0
                else [
                    self.concatenate(number, n, np.array([k for k, _ in below[i]]), np.array([v for _, v in below[i]]))
                    for n in range(len(level))
                ]
                for i, x in enumerate(np.asarray(samples))
            ]
            for target in targets:
                for node, y in zip(level, target):
                    node.assign(node.grown, y)
                    node.grown += 1
                    node.step += 1
            below = [[(winner(node.activity(y)), 1.0) for node, y in zip(level, target)] for target in targets]

    # -- inference -----------------------------------------------------------------------------------------------

    def up(
        self, x: ArrayLike, observed: ArrayLike | None, propagation: str = "max", aware: bool = False
    ) -> list[list[Vector]]:
        """The feed-forward sweep: h of every node. aware: lengths run over the children of which anything was seen."""
        h = [[node.activity(p, o) for node, p, o in zip(self.levels[0], self.patches(x), self.seen(observed))]]
        heard = self.heard(observed if aware else None)
        for number in range(1, len(self.levels)):
            h.append(self.above(number, h[-1], propagation, heard[number - 1]))
        return h

    def above(self, number: int, h: list[Vector], propagation: str = "max", heard: Any = None) -> list[Vector]:
        """h of a level from the h of the level below it."""
        k = np.array([winner(hn) for hn in h])
        v = np.array([hn[kn] for hn, kn in zip(h, k)])
        if propagation == "argmax":
            v = (np.abs(v) > TIE).astype(np.float64)
        return [
            node.activity(self.concatenate(number, n, k, v), self.sections(number, n, heard))
            for n, node in enumerate(self.levels[number])
        ]

    def expectation(self, number: int, n: int, q: int, j: int) -> Vector:
        """M_q[:, j] of node n of a level: the distribution it expects of its q-th child when its own value is j."""
        node = self.levels[number][n]
        child = self.levels[number - 1][self.children[number][n][q]]
        return node.m[j, node.edges[q] : node.edges[q] + max(1, child.grown)]

    def families(self, number: int) -> Iterable[tuple[int, int, int]]:
        """(parent, which child, node of the level below) over a level."""
        for n, below in enumerate(self.children[number]):
            for q, child in enumerate(below):
                yield n, q, int(child)

    def infer(
        self,
        x: ArrayLike,
        observed: ArrayLike | None = None,
        rule: str = "paper",
        sweeps: int = 1,
        root: int | None = None,
    ) -> Codes:
        """The value of every node, level by level; that of the memory node may be given as `root`.

        rule: "feedforward" (argmax of every h), "paper" (up and down, `sweeps` times: 2.5, 2.7), "exact" (2.8) or
            "evidence". With blend 1 no node listens to its parent, and the first two are the same.
        """
        if rule == "exact":
            return self.exact(x, observed, root)[0]
        if rule == "evidence":
            return self.infer_by_evidence(x, observed, root)[0]
        u, seen = self.up(x, observed), self.seen(observed)
        k = [np.array([winner(un) for un in level]) for level in u]
        k[-1][0] = k[-1][0] if root is None else root
        blend = self.options.blend
        for sweep in range(sweeps if rule == "paper" and blend < 1 else 0):
            if sweep:
                for number, level in enumerate(self.levels):
                    if number == 0:
                        h = [node.activity(p, o) for node, p, o in zip(level, self.patches(x), seen)]
                    else:
                        h = self.above(number, u[number - 1])
                    u[number] = [blend * un + (1 - blend) * hn for un, hn in zip(u[number], h)]
            k[-1][0] = winner(u[-1][0]) if root is None else root
            for number in range(len(self.levels) - 1, 0, -1):
                for n, q, child in self.families(number):
                    own, p = u[number - 1][child], self.expectation(number, n, q, k[number][n])
                    k[number - 1][child] = choice(own, p, blend)
                    u[number - 1][child] = blend * own + (1 - blend) * p
        return k

    def exact(self, x: ArrayLike, observed: ArrayLike | None = None, root: int | None = None) -> tuple[Codes, float]:
        """Max-sum (2.8): the assignment of maximal energy, and that energy; the memory node's value may be given."""
        u = self.max_sum(x, observed)
        k = [np.zeros(len(level), np.int64) for level in self.levels]
        k[-1][0] = winner(u[-1][0]) if root is None else root
        for number in range(len(self.levels) - 1, 0, -1):
            for n, q, child in self.families(number):
                p = self.expectation(number, n, q, k[number][n])
                k[number - 1][child] = choice(u[number - 1][child], p, 0.5)
        return k, float(u[-1][0].max() if root is None else u[-1][0][root]) / self.terms

    def max_sum(self, x: ArrayLike, observed: ArrayLike | None) -> list[list[Vector]]:
        """The best energy that each neuron can reach with all that is below it."""
        u = [self.up(x, observed)[0]]
        for number, level in enumerate(self.levels[1:], start=1):
            u.append([np.where(node.free[: max(1, node.grown)], -np.inf, 0.0) for node in level])
            for n, q, child in self.families(number):
                for j in range(level[n].grown):
                    u[number][n][j] += (self.expectation(number, n, q, j) + u[number - 1][child]).max()
        return u

    # -- evidence ------------------------------------------------------------------------------------------------

    def evidence(self, x: ArrayLike, observed: ArrayLike | None = None) -> list[list[Vector]]:
        """A of every node: the evidence, in nats, that its block shows what each of its neurons has stored.

        One level: over the blocks of a pyramid. A tree: its nodes are the blocks; a node hears its children, of whom it
        expects values with the probabilities of its columns, and adds what its own block says for what each neuron
        most likely has stored there. Only of living neurons; others are minus infinity.
        """
        centre = self.options.centre
        given = np.asarray(x).astype(np.float64) - centre
        seen = np.ones(self.input_shape, bool) if observed is None else np.asarray(observed)
        if len(self.levels) == 1:
            return [[self.pyramid_evidence(given, seen)]]
        pixels = (-1, self.tilings[0].channels)  # of a patch
        xs = [one.reshape(pixels) for one in self.patches(given)]
        masks = [one.reshape(pixels) for one in self.patches(seen)]
        stored = [
            (node.m[: node.grown].astype(np.float64) - centre).reshape(node.grown, *xs[0].shape)
            for node in self.levels[0]
        ]
        A = [[self.of_living(node, one, m, mask) for node, one, m, mask in zip(self.levels[0], xs, stored, masks)]]
        for number, level in enumerate(self.levels[1:], start=1):
            A.append([np.where(node.free[: max(1, node.grown)], -np.inf, 0.0) for node in level])
            for n, q, child in self.families(number):
                for v in range(level[n].grown):
                    p = self.expectation(number, n, q, v)
                    if p.any():  # it has heard of this child
                        own = A[number - 1][child][p > 0]
                        A[number][n][v] += own.max() + np.log(p[p > 0] @ np.exp(own - own.max()))
            blank = np.zeros(xs[0].shape)
            xs, masks = (
                [np.concatenate([one[c] for c in below]) for below in self.children[number]] for one in (xs, masks)
            )
            stored = [
                np.array([self.column(number, n, v, stored, blank) for v in range(node.grown)])
                for n, node in enumerate(level)
            ]
            weight = WHOLE_SAMPLE if number == len(self.levels) - 1 else 1.0
            for n, node in enumerate(level):
                if len(stored[n]):
                    A[number][n] += weight * self.of_living(node, xs[n], stored[n], masks[n])
        return A

    @staticmethod
    def of_living(node: Node, x: Vector, m: Vector, seen: NDArray[np.bool_]) -> Vector:
        """The evidence of a block for a node's neurons; minus infinity for those that were forgotten."""
        if not node.grown:
            return np.zeros(1)
        living = ~node.free[: node.grown]
        found = np.full(node.grown, -np.inf)
        found[living] = block_evidence(x, m[living], seen)
        return found

    def column(self, number: int, n: int, v: int, below: list[Vector], blank: Vector) -> Vector:
        """What a neuron most likely has stored in its node's block, less the centre."""
        parts = []
        for q, child in enumerate(self.children[number][n]):
            p = self.expectation(number, n, q, v)
            parts.append(below[child][winner(p)] if p.any() else blank)
        return np.concatenate(parts)

    def pyramid_evidence(self, x: Vector, seen: NDArray[np.bool_]) -> Vector:
        """Of one level: the sum over the blocks of all scales; the whole sample counts more."""
        node, shape, total = self.root, self.input_shape, np.zeros(self.root.grown)
        m = (node.m[: node.grown].astype(np.float64) - self.options.centre).reshape(-1, *shape)
        for tiling in self.scales():
            pixels = (-1, tiling.channels)
            for one, stored, mask in zip(*(tiling.split(array) for array in (x[None], m, seen[None]))):
                found = self.of_living(node, one.reshape(pixels), stored.reshape(len(m), *pixels), mask.reshape(pixels))
                total += (WHOLE_SAMPLE if tiling.nodes == 1 else 1.0) * found
        return total

    def scales(self) -> list[Tiling]:
        """Of one level: the blocks of every scale."""
        return [Tiling(self.input_shape, kernel) for kernel in pyramid(self.input_shape)]

    def preferred(self, x: ArrayLike, observed: ArrayLike | None, A: Vector) -> Vector:
        """The evidence for the memory node's neurons by which they are chosen.

        In one level, an average that matches the whole sample best has a start: what blocks give by chance.
        """
        j = winner(self.up(x, observed)[-1][0])
        if len(self.levels) > 1 or self.root.c[j] <= 1:
            return A
        looks = 2 * sum(WHOLE_SAMPLE if tiling.nodes == 1 else tiling.nodes for tiling in self.scales())
        return A + np.where(np.arange(len(A)) == j, chance(looks), 0.0)

    def infer_by_evidence(
        self, x: ArrayLike, observed: ArrayLike | None = None, root: int | None = None
    ) -> tuple[Codes, float]:
        """The values of all nodes by evidence, and the evidence for the memory node's, whose value may be given.

        On the way down a child takes the value for which there is most, from below and from its parent.
        """
        A = self.evidence(x, observed)
        k = [np.array([winner(one) for one in level]) for level in A]
        k[-1][0] = winner(self.preferred(x, observed, A[-1][0])) if root is None else root
        for number in range(len(self.levels) - 1, 0, -1):
            for n, q, child in self.families(number):
                p = self.expectation(number, n, q, k[number][n])
                if p.any():
                    with np.errstate(divide="ignore"):
                        k[number - 1][child] = winner(np.log(p) + A[number - 1][child])
        return k, float(A[-1][0][k[-1][0]])

    def random(self, rng: np.random.Generator) -> Codes:
        """A value for every node, uniform over its grown neurons."""
        return [np.array([rng.integers(node.grown) for node in level]) for level in self.levels]

    # -- energy (2.7) --------------------------------------------------------------------------------------------

    @property
    def terms(self) -> int:
        """K: nodes of level 1, plus hidden nodes other than the root."""
        return len(self.levels[0]) + sum(map(len, self.levels)) - 1

    def energy(
        self, x: ArrayLike, codes: Codes | None = None, visible: str = "similarity", observed: ArrayLike | None = None
    ) -> float:
        """E of an assignment, by default of the recalled one, over the nodes of which anything was observed.

        visible: the term of an input patch: its "similarity" to the prototype, or "bernoulli_mean", the mean
            likelihood of its values as those of binary pixels.
        """
        k = self.infer(x, observed) if codes is None else codes
        heard = self.heard(np.ones(self.input_shape, bool) if observed is None else observed)
        heard[0] = heard[0] & np.array([node.grown > 0 for node in self.levels[0]])
        for number, below in enumerate(self.children[1:], start=1):
            heard[number] = heard[number - 1][below].any(axis=1)
        seen = [
            node.activity(p, o)[kn] if visible == "similarity" else np.mean(p * node.m[kn] + (1 - p) * (1 - node.m[kn]))
            for node, p, o, kn, there in zip(self.levels[0], self.patches(x), self.seen(observed), k[0], heard[0])
            if there
        ]
        hidden = [
            self.expectation(number, n, q, k[number][n])[k[number - 1][child]]
            for number in range(1, len(self.levels))
            for n, q, child in self.families(number)
            if heard[number - 1][child]
        ]
        return float(sum(seen) + sum(hidden)) / (len(seen) + len(hidden))

    # -- recall and recognize ------------------------------------------------------------------------------------

    def recall(
        self, x: ArrayLike, observed: ArrayLike | None = None, inference: str = "paper", root: int | None = None
    ) -> Recalled:
        """The completed sample (2.5), the memory node's value and its activity ("exact": energy; "evidence": nats)."""
        if inference in ("exact", "evidence"):
            k, score = (self.exact if inference == "exact" else self.infer_by_evidence)(x, observed, root)
        else:
            k = self.infer(x, observed, inference, root=root)
            score = float(self.up(x, observed)[-1][0][int(k[-1][0])])
        index = int(k[-1][0])
        picture, known = self.picture(k, np.ones(self.input_shape, bool) if observed is None else np.asarray(observed))
        return Recalled(picture, index, score, known=known)

    def picture(self, k: Codes, observed: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """What the values of all nodes look like, and which of it is known.

        A node of which nothing was observed, and of which its parent never heard, is not known, nor is what it holds.
        """
        known = [np.array([node.grown > 0 for node in level]) for level in self.levels]
        heard = self.heard(observed)
        for number in range(len(self.levels) - 1, 0, -1):
            for n, q, child in self.families(number):
                expected = known[number][n] and self.expectation(number, n, q, k[number][n]).any()
                known[number - 1][child] &= heard[number - 1][child] or bool(expected)
        patches, there = [], []
        for node, j, known_n in zip(self.levels[0], k[0], known[0]):
            there.append(node.known_values(j) & known_n)
            patches.append(np.where(there[-1], node.m[j], node.m.dtype.type(node.blank)))
        join = self.tilings[0].join
        return join(np.stack(patches)[:, None, :])[0], join(np.stack(there)[:, None, :])[0]

    def recall_best(
        self, x: ArrayLike, count: int, observed: ArrayLike | None = None, inference: str = "paper"
    ) -> list[Recalled]:
        """What the memory node's best values recall, each with its own way down, best first."""
        rules = {"exact": self.max_sum, "evidence": self.evidence}
        u = rules.get(inference, self.up)(x, observed)[-1][0]
        if inference == "evidence":
            u = self.preferred(x, observed, u)
        return [self.recall(x, observed, inference, j) for j in top_k(u, count)]

    def prototypes(self) -> NDArray[Any]:
        """What each neuron of the memory node recalls by itself: each child's most expected value, all the way down."""
        found, nothing = [], np.zeros(self.input_shape, bool)
        for j in range(self.root.grown):
            k = [np.zeros(len(level), np.int64) for level in self.levels]
            k[-1][0] = j
            for number in range(len(self.levels) - 1, 0, -1):
                for n, q, child in self.families(number):
                    k[number - 1][child] = winner(self.expectation(number, n, q, k[number][n]))
            found.append(self.picture(k, nothing)[0])
        return np.array(found).reshape(-1, *self.input_shape)

    def recognize(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recognized:
        """Old or new (2.6)."""
        if self.root.free[: self.root.grown].all():
            return Recognized(False, -np.inf, self.rho)
        h = self.up(x, observed, self.options.propagation, aware=True)[-1][0]
        j = winner(h)
        threshold = self.rho * float(self.root.mu[j])
        return Recognized(bool(h[j] >= threshold - TIE), float(h[j]), threshold)

    def recall_error(self, x: ArrayLike) -> float:
        """The mean squared error of what x recalls, as if x were what should be recalled."""
        return float(np.mean(np.square(self.recall(x).x.astype(np.float64) - np.asarray(x))))

    def recognize_by_error(self, x: ArrayLike, rho: float = 0.5) -> Recognized:
        """Old or new by the error of recall against its mean before learning (2.6, the variant SQHN(mse))."""
        error = self.recall_error(x) if self.root.grown else np.inf
        return Recognized(error <= rho * self.error, -error, -rho * self.error)


def learn_by_map(tree: ReferenceSQHN, x: ArrayLike) -> Written:
    """One step of MAP learning, which the paper tried and left: parents have a say in the values that are learned.

    First all nodes take values on the way up, with a new neuron where no match reaches the threshold; on the way down
    a node may change its mind for what its parent expects, where the parent has known its own value before. A new
    neuron counts as the threshold. Only then the neurons of these values learn.
    """
    patches = tree.patches(x)
    h: list[list[Vector]] = []  # of all neurons, and of a new one where there is room
    k: list[NDArray[np.int64]] = []
    v = np.ones(0)
    for number, level in enumerate(tree.levels):
        seen = [patches[n] if number == 0 else tree.concatenate(number, n, k[-1], v) for n in range(len(level))]
        h.append([_with_new(node, y) for node, y in zip(level, seen)])
        k.append(np.array([winner(hn) for hn in h[-1]]))
        new = np.array([kn == node.grown for kn, node in zip(k[-1], level)])
        v = np.where(new, 1.0, [hn[kn] for hn, kn in zip(h[-1], k[-1])])
    score = float(h[-1][0][: tree.root.grown].max(initial=-np.inf))
    for number in range(len(tree.levels) - 1, 0, -1):
        for n, q, child in tree.families(number):
            if k[number][n] < tree.levels[number][n].grown:
                below = h[number - 1][child]
                expected = np.zeros(len(below))
                known = tree.expectation(number, n, q, k[number][n])
                expected[: len(known)] = known[: len(below)]
                k[number - 1][child] = winner(tree.options.blend * below + (1 - tree.options.blend) * expected)
    for number, level in enumerate(tree.levels):
        for n, node in enumerate(level):
            one = np.ones(len(k[number - 1]))
            target = patches[n] if number == 0 else tree.concatenate(number, n, k[number - 1], one)
            if k[number][n] == node.grown:
                node.assign(node.grown, target)
                node.grown += 1
            else:
                node.average(int(k[number][n]), target, WHOLE)
            node.step += 1
    root = int(k[-1][0])
    return Written(root, bool(tree.root.c[root] == 1), score, tree.root.step, False)


def _with_new(node: Node, y: NDArray[Any]) -> Vector:
    """The activities of a node's neurons, and the threshold as that of a new one if there is room for it."""
    h = node.activity(y) if node.grown else np.zeros(0)
    if node.grown == node.level.capacity:
        return h
    return np.append(h, node.level.threshold(node.step))
