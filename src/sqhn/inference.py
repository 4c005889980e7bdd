"""What travels through the tree when something is recalled.

A rule says what a level sends up, how good each neuron looks from there, and how that is weighed against what the
parent expects on the way down. The sweeps themselves (`network`) know nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from sqhn.banks.neurons import Array, Codes, Patches, Support
from sqhn.checks import check_word

__all__ = ["INFERENCES", "Exact", "Inference", "Message", "Paper", "by_name"]

Bank = Any  # of either kind, of any device


class Message(NamedTuple):
    """What a level found on the way up: each node's best neuron, its value, and what the rule wants to keep."""

    k: Array
    value: Array
    evidence: Any


@runtime_checkable
class Inference(Protocol):
    """One way to recall: an upward message, the values it leaves for the way down, and their weight there."""

    @property
    def samples(self) -> int:
        """How many samples to handle at once."""

    def look(self, bank: Bank, patches: Patches) -> Message:
        """The message of level 1."""

    def up(self, bank: Bank, below: Message) -> Message:
        """The message of a level from that of the level below."""

    def score(self, root: Message, terms: int) -> Array:
        """The score of what was recalled; terms is the number of terms of the energy."""

    def at(self, bank: Bank, message: Message, support: Support) -> Array:
        """The values of the neurons that a parent expects."""

    def blend(self, blend: float) -> float:
        """The weight of those values against the parent's probabilities."""


@dataclass(frozen=True)
class Paper:
    """The paper's rule: each child sends its winner with its strength; one sweep up, one down.

    feedback: whether the way down listens to the parents; without it every node keeps its bottom-up winner.
    """

    feedback: bool = True
    samples: int = 256

    def look(self, bank: Bank, patches: Patches) -> Message:
        k, h = bank.best(patches)
        return Message(k, h, patches)

    def up(self, bank: Bank, below: Message) -> Message:
        codes = Codes(below.k, below.value)
        k, h = bank.best(codes)
        return Message(k, h, codes)

    def score(self, root: Message, terms: int) -> Array:  # noqa: ARG002
        return root.value[0]

    def at(self, bank: Bank, message: Message, support: Support) -> Array:
        return bank.at(message.evidence, support)

    def blend(self, blend: float) -> float:
        return blend if self.feedback else 1.0


@dataclass(frozen=True)
class Exact:
    """Max-sum: each neuron sends the best energy reachable below it, so the result is the maximum of the energy."""

    samples: int = 16

    def look(self, bank: Bank, patches: Patches) -> Message:
        return self.message(bank, bank.activity(patches))

    def up(self, bank: Bank, below: Message) -> Message:
        return self.message(bank, bank.max_sum(below.evidence))

    @staticmethod
    def message(bank: Bank, u: Array) -> Message:
        """u (nodes, batch, neurons)."""
        k, value = bank.first_best(u)
        return Message(k, value, u)

    def score(self, root: Message, terms: int) -> Array:
        return root.value[0] / terms

    def at(self, bank: Bank, message: Message, support: Support) -> Array:
        return bank.pick(message.evidence, support)

    def blend(self, blend: float) -> float:  # noqa: ARG002
        return 0.5


INFERENCES: dict[str, Inference] = {"paper": Paper(), "feedforward": Paper(feedback=False), "exact": Exact()}


def by_name(inference: str | Inference) -> Inference:
    """A rule from its word; a rule of one's own is taken as it is."""
    if not isinstance(inference, str) and isinstance(inference, Inference):  # the second takes its time
        return inference
    check_word("inference", inference, tuple(INFERENCES))
    return INFERENCES[inference]
