"""What a sweep through the tree carries.

Every sweep goes from level 1 up to the memory node: each level does something with what it sees and tells the next one.
Learning carries what became of samples, memorizing carries their neurons. A rule of recall carries messages, and says
how they are weighed against what parents expect when a second sweep comes down. The sweeps themselves (`network`) know
nothing of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from sqhn.banks.interface import Array, Bank, BlockEvidence, CodeBank, Codes, Learned, Patches, PatternBank, Support
from sqhn.checks import check_word, is_whole
from sqhn.evidence import WHOLE, chance, pyramid
from sqhn.level import TIE
from sqhn.patches import Tiling

__all__ = [
    "INFERENCES",
    "KNOWING",
    "LEARNING",
    "MEMORIZING",
    "RECOGNITION",
    "Evidence",
    "Exact",
    "Inference",
    "Message",
    "Paper",
    "UpwardPass",
    "by_name",
]

Found = TypeVar("Found")

MOST, ROOM = 256, 8_000_000
"""So many samples at once, and so many neurons in all of them where a rule keeps something for each."""


def at_once(neurons: int) -> int:
    """How many samples meet so many neurons at once."""
    return max(1, min(MOST, ROOM // max(1, neurons)))


class UpwardPass(Protocol[Found]):
    """What happens at each level on the way up."""

    def look(self, bank: PatternBank, patches: Patches) -> Found:
        """At level 1."""

    def up(self, bank: CodeBank, below: Found) -> Found:
        """At a level above, from what the level below found."""


class Learning:
    """Every level learns, and tells the next what became of the samples."""

    def look(self, bank: PatternBank, patches: Patches) -> Learned:
        return bank.learn(patches)

    def up(self, bank: CodeBank, below: Learned) -> Learned:
        return bank.learn(Codes(below.k, below.v, below.heard))


class Memorizing:
    """Every level gives each sample a neuron; the next one hears which it resembles most, at full strength."""

    def look(self, bank: PatternBank, patches: Patches) -> Codes:
        bank.store(patches)
        return self.loud(bank, bank.best(patches)[0])

    def up(self, bank: CodeBank, below: Codes) -> Codes:
        bank.store(below)
        return self.loud(bank, bank.best(below)[0])

    @staticmethod
    def loud(bank: Bank, k: Array) -> Codes:
        at = bank.device
        return Codes(k, at.xp.ones(k.shape, dtype=at.xp.float64, device=at.place))


class Message(NamedTuple):
    """What a level found: each node's best neuron, its value, and what the rule wants to keep.

    heard: whether anything was seen of what is below each node, if the rule asks (None: of all of them).
    """

    k: Array
    value: Array
    evidence: Any
    heard: Array = None


@runtime_checkable
class Inference(Protocol):
    """One way to recall: a carrier of messages, what they leave for the way down, and their weight there."""

    def samples(self, neurons: int, channels: int) -> int:
        """How many samples to handle at once, on a CPU, in a memory of so many neurons.

        channels: of a sample, if not all of it was observed; 1 otherwise.
        """

    def look(self, bank: PatternBank, patches: Patches, count: int | None = None) -> Message:
        """The message of level 1.

        count: of so many of the best neurons, best first, and not of the best alone: k and value have one more axis.
        """

    def up(self, bank: CodeBank, below: Message, count: int | None = None) -> Message:
        """The message of a level from that of the level below; count as in `look`."""

    def score(self, root: Message, terms: int) -> Array:
        """The score of what was recalled; terms is the number of terms of the energy."""

    def at(self, bank: Any, message: Message, support: Support) -> Array:
        """The values, at a bank of either kind, of the neurons that a parent expects."""

    def blend(self, blend: float) -> float | None:
        """The weight of those values against the parent's probabilities; None: no node listens to its parent."""


@dataclass(frozen=True)
class Paper:
    """The paper's rule: each child sends its winner with its strength; one sweep up, one down.

    feedback: whether the way down listens to the parents; without it every node keeps its bottom-up winner.
    propagation: what travels up: "max", a winner's strength, or "argmax", 1 for each that is not silent.
    aware: children of which nothing was seen are not in the length of a column, as in learning.
    """

    feedback: bool = True
    propagation: Literal["max", "argmax"] = "max"
    aware: bool = False

    def samples(self, neurons: int, channels: int) -> int:  # noqa: ARG002
        return MOST

    def look(self, bank: PatternBank, patches: Patches, count: int | None = None) -> Message:
        heard = patches.seen.any(axis=2) if self.aware and patches.seen is not None else None
        return Message(*(bank.best(patches) if count is None else bank.top_k(patches, count)), patches, heard)

    def up(self, bank: CodeBank, below: Message, count: int | None = None) -> Message:
        strength = below.value if self.propagation == "max" else (abs(below.value) > TIE) + 0 * below.value
        codes = Codes(below.k, strength, below.heard)
        found = bank.best(codes) if count is None else bank.top_k(codes, count)
        return Message(*found, codes, bank.hears(codes))

    def score(self, root: Message, terms: int) -> Array:  # noqa: ARG002
        return root.value[0]

    def at(self, bank: Any, message: Message, support: Support) -> Array:
        return bank.at(message.evidence, support)

    def blend(self, blend: float) -> float | None:
        return blend if self.feedback and blend < 1 else None


@dataclass(frozen=True)
class Exact:
    """Max-sum: each neuron sends the best energy reachable below it, so the result is the maximum of the energy."""

    def samples(self, neurons: int, channels: int) -> int:  # noqa: ARG002
        return at_once(neurons)

    def look(self, bank: PatternBank, patches: Patches, count: int | None = None) -> Message:
        return self.message(bank, bank.activity(patches), count)

    def up(self, bank: CodeBank, below: Message, count: int | None = None) -> Message:
        return self.message(bank, bank.max_sum(below.evidence), count)

    @staticmethod
    def message(bank: Bank, u: Array, count: int | None) -> Message:
        """From the energies that all neurons can reach."""
        return Message(*(bank.device.first_best(u) if count is None else bank.device.top_k(u, count)), u)

    def score(self, root: Message, terms: int) -> Array:
        return root.value[0] / terms

    def at(self, bank: Any, message: Message, support: Support) -> Array:
        return bank.device.pick(message.evidence, support)

    def blend(self, blend: float) -> float:  # noqa: ARG002
        return 0.5


@dataclass(frozen=True)
class Evidence:
    """Which stored thing each block shows, if it shows any (`sqhn.evidence`); the memory node adds it all up.

    blocks: for one level, the sides of the blocks of every scale along the leading axes, from the finest up; each must
        divide the next. None: as `sqhn.evidence.pyramid` has them for the shape of a sample. In a tree the blocks are
        what its nodes see, and none can be given.

    Scores are nats. In one level an average that matches the whole sample best has a start (`sqhn.evidence.chance`).
    """

    blocks: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.blocks is None:
            return
        wrong = (
            f"blocks must be the sides of every scale, as in ((2, 2), (8, 8), (32, 32)), or None; got {self.blocks!r}"
        )
        try:
            sides = [tuple(scale) for scale in self.blocks]
        except TypeError:
            raise TypeError(wrong) from None
        if not sides or not all(scale and all(is_whole(side) and side >= 1 for side in scale) for scale in sides):
            raise ValueError(wrong)
        object.__setattr__(self, "blocks", tuple(tuple(map(int, scale)) for scale in sides))

    def samples(self, neurons: int, channels: int) -> int:
        return at_once(neurons * (1 + channels) // 2)

    def look(self, bank: PatternBank, patches: Patches, count: int | None = None) -> Message:
        if not bank.top:
            if self.blocks is not None:
                raise ValueError(f"blocks={self.blocks} are for one level: in a tree, they are what its nodes see")
            return self.message(bank, bank.block_evidence(patches))
        scales, at = self.scales(bank.tiling.shape), bank.device
        t = at.xp.arange(patches.x.shape[1], device=at.place)
        A, match = bank.pyramid_evidence(patches, scales), bank.best(patches)[0][0]
        looks = 2 * sum(WHOLE if one.nodes == 1 else one.nodes for one in scales)
        start = A + 0.0
        start[0, t, match] += (bank.neurons.c[0, match] > 1) * chance(looks)
        k, _ = bank.device.first_best(start) if count is None else bank.device.top_k(start, count)
        return Message(k, A[0, t if count is None else t[:, None], k[0]][None], A)

    @staticmethod
    def message(bank: Bank, found: BlockEvidence) -> Message:
        """Below the memory node: only what a parent expects counts on the way down, if it expects anything."""
        k, _ = bank.device.first_best(found.A)
        at = bank.device
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
                f"blocks={self.blocks} do not fit samples of shape {shape}: each must divide the next, a larger one, "
                f"and the last must be {whole}, the whole"
            )
        return [Tiling(shape, one) for one in sides]

    def up(self, bank: CodeBank, below: Message, count: int | None = None) -> Message:
        found = bank.block_evidence(below.evidence, WHOLE if bank.nodes == 1 else 1.0)
        if bank.nodes > 1:
            return self.message(bank, found)
        best = bank.device.first_best(found.A) if count is None else bank.device.top_k(found.A, count)
        return Message(*best, found)

    def score(self, root: Message, terms: int) -> Array:  # noqa: ARG002
        return root.value[0]

    def at(self, bank: Any, message: Message, support: Support) -> Array:
        return bank.device.pick(message.evidence.A, support) + bank.device.xp.log(support.probability)

    def blend(self, blend: float) -> float:  # noqa: ARG002
        return 1.0


LEARNING, MEMORIZING, KNOWING = Learning(), Memorizing(), Paper(aware=True)
RECOGNITION: dict[str, Inference] = {
    "argmax": Paper(propagation="argmax", aware=True),
    "max": Paper(aware=True),
}
INFERENCES: dict[str, Inference] = {
    "paper": Paper(),
    "feedforward": Paper(feedback=False),
    "exact": Exact(),
    "evidence": Evidence(),
}


def by_name(inference: str | Inference) -> Inference:
    """A rule from its word; a rule of one's own is taken as it is."""
    if isinstance(inference, type):
        raise TypeError(f"inference must be a word or a rule, not its class: say {inference.__name__}()")
    if not isinstance(inference, str) and isinstance(inference, Inference):  # the second takes its time
        return inference
    check_word("inference", inference, tuple(INFERENCES))
    return INFERENCES[inference]
