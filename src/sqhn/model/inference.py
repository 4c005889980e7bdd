"""The rules of recall.

A rule defines the message that every level sends up, and how the sweep down weighs the messages against the parents'
expectations. The sweeps themselves are in `sqhn.model.tree`, and are the same for all rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol, cast

from sqhn.banks.interface import (
    Array,
    Bank,
    BlockEvidence,
    CodeBank,
    Codes,
    Device,
    LowestLevel,
    OnlyLevel,
    Patches,
    PatternBank,
    Support,
)
from sqhn.checks import check_word, is_whole
from sqhn.evidence import WHOLE, chance, pyramid
from sqhn.level import TIE
from sqhn.patches import Tiling

MOST_SAMPLES = 256
"""The largest number of samples to handle at once."""
MOST_SCORES = 8_000_000
"""The largest number of scores in memory at once, for rules that keep one for every sample and neuron."""


def batch_size(neurons: int) -> int:
    """How many samples to handle at once, if a rule keeps a score for every sample and neuron."""
    return max(1, min(MOST_SAMPLES, MOST_SCORES // max(1, neurons)))


def best_of(top_k: Callable[[Any, int], tuple[Array, Array]], asked: Any, count: int | None) -> tuple[Array, Array]:
    """The `count` best neurons and their scores; None: the winners alone, without an axis for the count."""
    k, v = top_k(asked, count or 1)
    return (k[..., 0], v[..., 0]) if count is None else (k, v)


def any_heard(bank: CodeBank, heard: Array) -> Array:
    """Whether any value below each node of a bank was observed, from the same of its children; None: true of all."""
    return None if heard is None else heard[bank.children].any(axis=1)


def owners(support: Support, device: Device) -> Array:
    """The node and sample that each entry belongs to, as node * batch + sample."""
    entries = device.xp.arange(len(support.value), device=device.place)
    return device.xp.searchsorted(support.start, entries, side="right") - 1


def pick(u: Array, support: Support, device: Device) -> Array:
    """The values u (nodes, batch, neurons) of the neurons that a parent expects."""
    return u.reshape(-1, u.shape[2])[owners(support, device), support.value]


class Message(NamedTuple):
    """The result of a level: each node's best neuron, its score, and evidence that the rule uses in the sweep down.

    heard: whether any value below each node was observed, if the rule uses it (None: true of all).
    """

    k: Array
    value: Array
    evidence: Any
    heard: Array = None


class Inference(Protocol):
    """A rule of recall: the messages of the sweep up, and how the sweep down weighs them."""

    def samples(self, neurons: int, channels: int) -> int:
        """How many samples to handle at once on a CPU.

        neurons: in the whole memory; channels: of a sample if it has missing values, otherwise 1.
        """

    def look(self, bank: PatternBank, patches: Patches, count: int | None = None) -> Message:
        """The message of level 1.

        count: how many of the best neurons to send, best first, along one more axis of k and value; None: the best.
        """

    def up(self, bank: CodeBank, below: Message, count: int | None = None) -> Message:
        """The message of a level from that of the level below; count as in `look`."""

    def score(self, root: Message, terms: int) -> Array:
        """The scores of the recalled samples; terms is the number of terms of the energy."""

    def at(self, bank: Any, message: Message, support: Support) -> Array:
        """The scores, in a bank of either kind, of the neurons that a parent expects."""

    def blend(self, blend: float) -> float | None:
        """The weight of these scores against the parent's probabilities; None: there is no sweep down."""


@dataclass(frozen=True)
class Paper:
    """The paper's rule: each child sends its winner with its strength; one sweep up, one down.

    feedback: whether there is a sweep down; without it every node keeps its bottom-up winner.
    propagation: the strength of a winner: its activity ("max"), or 1 unless it is silent ("argmax").
    aware: children without observed values do not count in the length of a column, as in learning.
    """

    feedback: bool = True
    propagation: Literal["max", "argmax"] = "max"
    aware: bool = False

    def samples(self, neurons: int, channels: int) -> int:  # noqa: ARG002
        return MOST_SAMPLES

    def look(self, bank: PatternBank, patches: Patches, count: int | None = None) -> Message:
        return Message(*best_of(bank.top_k, patches, count), patches, patches.heard if self.aware else None)

    def up(self, bank: CodeBank, below: Message, count: int | None = None) -> Message:
        strength = below.value if self.propagation == "max" else (abs(below.value) > TIE) + 0 * below.value
        codes = Codes(below.k, strength, below.heard)
        return Message(*best_of(bank.top_k, codes, count), codes, any_heard(bank, below.heard))

    def score(self, root: Message, terms: int) -> Array:  # noqa: ARG002
        return root.value[0]

    def at(self, bank: Any, message: Message, support: Support) -> Array:
        return bank.at(message.evidence, support)

    def blend(self, blend: float) -> float | None:
        return blend if self.feedback and blend < 1 else None


@dataclass(frozen=True)
class Exact:
    """Max-sum: each neuron sends the best energy that its subtree can reach, so the result has maximal energy."""

    def samples(self, neurons: int, channels: int) -> int:  # noqa: ARG002
        return batch_size(neurons)

    def look(self, bank: PatternBank, patches: Patches, count: int | None = None) -> Message:
        u = bank.activity(patches)
        return Message(*best_of(bank.device.top_k, u, count), u)

    def up(self, bank: CodeBank, below: Message, count: int | None = None) -> Message:
        u = bank.max_sum(below.evidence)
        return Message(*best_of(bank.device.top_k, u, count), u)

    def score(self, root: Message, terms: int) -> Array:
        return root.value[0] / terms

    def at(self, bank: Any, message: Message, support: Support) -> Array:
        return pick(message.evidence, support, bank.device)

    def blend(self, blend: float) -> float:  # noqa: ARG002
        return 0.5


@dataclass(frozen=True)
class Evidence:
    """The evidence that each block shows each stored sample (`sqhn.reference.evidence`), summed in the memory node.

    blocks: for one level, the sides of the blocks of every scale along the leading axes, from the finest up; each must
        divide the next. None: those of `sqhn.evidence.pyramid`. In a tree the blocks are the patches of its nodes, and
        `blocks` must be None.

    Scores are in nats. In one level an average that matches the whole sample best is preferred
    (`sqhn.evidence.chance`).
    """

    blocks: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.blocks is None:
            return
        wrong = (
            f"blocks must be the sides of every scale, such as ((2, 2), (8, 8), (32, 32)), or None; got {self.blocks!r}"
        )
        try:
            sides = [tuple(scale) for scale in self.blocks]
        except TypeError:
            raise TypeError(wrong) from None
        if not sides or not all(scale and all(is_whole(side) and side >= 1 for side in scale) for scale in sides):
            raise ValueError(wrong)
        object.__setattr__(self, "blocks", tuple(tuple(map(int, scale)) for scale in sides))

    def samples(self, neurons: int, channels: int) -> int:
        return batch_size(neurons * (1 + channels) // 2)

    def look(self, bank: PatternBank, patches: Patches, count: int | None = None) -> Message:
        if bank.top:
            return self.pyramid_message(cast("OnlyLevel", bank), patches, count)
        if self.blocks is not None:
            raise ValueError(f"blocks={self.blocks} are for one level; in a tree the blocks are its nodes' patches")
        return self.message(bank, cast("LowestLevel", bank).block_evidence(patches))

    def pyramid_message(self, bank: OnlyLevel, patches: Patches, count: int | None) -> Message:
        """The message of the only level."""
        scales, at = self.scales(bank.tiling.shape), bank.device
        t = at.xp.arange(patches.x.shape[1], device=at.place)
        A, match = bank.pyramid_evidence(patches, scales), bank.top_k(patches, 1)[0][0, :, 0]
        looks = 2 * sum(WHOLE if one.nodes == 1 else one.nodes for one in scales)
        start = A + 0.0
        start[0, t, match] += (bank.neurons.c[0, match] > 1) * chance(looks)
        k, _ = best_of(at.top_k, start, count)
        return Message(k, A[0, t if count is None else t[:, None], k[0]][None], A)

    @staticmethod
    def message(bank: Bank, found: BlockEvidence) -> Message:
        """The message of a level below the memory node.

        Its winners have the score minus infinity, so a parent that expects any values decides among these alone.
        """
        at = bank.device
        k, _ = best_of(at.top_k, found.A, None)
        return Message(k, at.xp.full(k.shape, -math.inf, dtype=at.xp.float64, device=at.place), found)

    def scales(self, shape: tuple[int, ...]) -> list[Tiling]:
        """The blocks of a sample, scale by scale."""
        sides = self.blocks or pyramid(shape)
        whole = shape[: len(sides[-1])]
        if sides[-1] != whole or not all(
            len(finer) == len(whole) and finer != coarser and not any(b % a for a, b in zip(finer, coarser))
            for finer, coarser in pairwise(sides)
        ):
            raise ValueError(
                f"blocks={self.blocks} do not fit samples of shape {shape}: the sides of each scale must divide those "
                f"of the next, larger one, and the last must be the whole sample, {whole}"
            )
        return [Tiling(shape, one) for one in sides]

    def up(self, bank: CodeBank, below: Message, count: int | None = None) -> Message:
        found = bank.block_evidence(below.evidence, WHOLE if bank.top else 1.0)
        if not bank.top:
            return self.message(bank, found)
        return Message(*best_of(bank.device.top_k, found.A, count), found)

    def score(self, root: Message, terms: int) -> Array:  # noqa: ARG002
        return root.value[0]

    def at(self, bank: Any, message: Message, support: Support) -> Array:
        return pick(message.evidence.A, support, bank.device) + bank.device.xp.log(support.probability)

    def blend(self, blend: float) -> float:  # noqa: ARG002
        return 1.0


KNOWING = Paper(aware=True)
"""The rule by which the levels below the memory node recall while it learns alone."""
RECOGNITION: dict[str, Inference] = {"argmax": Paper(propagation="argmax", aware=True), "max": KNOWING}
INFERENCES: dict[str, Inference] = {
    "paper": Paper(),
    "feedforward": Paper(feedback=False),
    "exact": Exact(),
    "evidence": Evidence(),
}


def by_name(inference: str | Inference) -> Inference:
    """A rule by its name; an `Inference` object is returned as it is."""
    if isinstance(inference, type):
        raise TypeError(f"inference must be a name or an object, not a class; use {inference.__name__}()")
    if not isinstance(inference, str):
        methods = [name for name in vars(Inference) if not name.startswith("_")]
        if missing := [name for name in methods if not hasattr(inference, name)]:
            raise TypeError(
                f"inference must be one of {', '.join(map(repr, INFERENCES))}, or an object with the methods "
                f"{', '.join(methods)}; {type(inference).__name__} lacks {', '.join(missing)}"
            )
        return inference
    check_word("inference", inference, tuple(INFERENCES))
    return INFERENCES[inference]
