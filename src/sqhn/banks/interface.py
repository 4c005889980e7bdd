"""Banks, the one page to read: what passes between levels, and what a bank can do, on any device.

A level of the tree is a bank, and a bank holds the neurons of all nodes of its level. Level 1 is a `PatternBank`, whose
neurons are prototypes of patches; the levels above are `CodeBank`s, whose neurons count the values of their children.
The network knows nothing else of them. Arrays are those of a `Device`: NumPy's, or torch's on a GPU.

Everywhere: `k` is the number of a neuron, `v` how strongly it won, `h` an activity; arrays of a level have nodes first,
then samples; an activity is float64, a tie is decided for the lowest number (`TIE`). Who only asks changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sqhn.level import Level, Options
from sqhn.patches import Tiling

__all__ = [
    "Array",
    "Bank",
    "BlockEvidence",
    "CodeBank",
    "Codes",
    "Device",
    "Learned",
    "Limits",
    "Neurons",
    "Patches",
    "PatternBank",
    "ShardedBank",
    "State",
    "Support",
]

Array = Any
"""Of NumPy, or of torch on a device: indexing and arithmetic mean the same."""

State = dict[str, NDArray[Any]]
"""What is saved of a bank: arrays by name, of the grown neurons of all nodes, one node after another."""


# -- messages --------------------------------------------------------------------------------------------------------


class Patches(NamedTuple):
    """What level 1 looks at: values, and which of them were observed (None: all); both (nodes, batch, size)."""

    x: Array
    seen: Array = None


class Codes(NamedTuple):
    """What a level above looks at: its children's values and strengths; both (child nodes, batch).

    heard: whether anything was seen of what is below a child (None: of all of them). One that was not is neither
    counted nor in the length of a column.
    """

    k: Array
    v: Array
    heard: Array = None


class Learned(NamedTuple):
    """What a chunk of learning did at every node, all (nodes, batch).

    k and v are what the parents hear; score is the best match before the update; kind is what became of the sample
    (`rule`); heard as in `Codes`.
    """

    k: Array
    v: Array
    score: Array
    kind: Array
    heard: Array = None

    @property
    def fields(self) -> tuple[Array, ...]:
        """Those that are always there."""
        return self[:4]


class BlockEvidence(NamedTuple):
    """The evidence (`sqhn.evidence`) for the neurons of a level: A (nodes, batch, neurons), in nats.

    Minus infinity where there is no neuron; 0 for the one that a node without any has. question, stored: the sums over
    the blocks of nodes, of what was asked and of what their neurons most likely have stored; masked: not all was
    observed.
    """

    A: Array
    question: tuple[Array, ...]
    stored: tuple[Array, ...]
    masked: bool


class Support(NamedTuple):
    """What parents expect of their children.

    The values that a parent gives to a (node, sample) of the level below are the entries from start[node * batch + t]
    up to the next start: which values, and with which probability.
    """

    start: Array
    value: Array
    probability: Array


# -- banks -----------------------------------------------------------------------------------------------------------


class Neurons(Protocol):
    """What is kept of every neuron, (nodes, room): counts, mean activities, steps of the last writes.

    grown: up to where each node has neurons; free: how many of these places were forgotten, and count 0; step: how many
    samples were learned; most: no node has grown further.
    """

    c: Array
    mu: Array
    written: Array
    grown: Array
    free: Array

    @property
    def step(self) -> int: ...
    @property
    def room(self) -> int: ...
    @property
    def most(self) -> int: ...

    def state(self) -> State:
        """Copies of all of it."""

    def restore(self, state: State, step: int) -> None:
        """Take over a saved state, into new neurons."""


class Bank(Protocol):
    """What banks of both kinds have in common."""

    nodes: int
    level: Level

    @property
    def device(self) -> Device: ...
    @property
    def neurons(self) -> Neurons: ...
    @property
    def grown(self) -> Array: ...

    def chunk_size(self, limit: int) -> int:
        """How many samples to learn at once."""

    @property
    def holes(self) -> bool:
        """Whether samples were learned of which not all was seen."""

    def settle(self) -> None:
        """Put in order what those want who only ask; after the last chunk of a call that learns."""

    def resize(self, level: Level) -> None:
        """Let a memory node grow further: its level, but for a larger capacity."""

    def forget(self, j: NDArray[np.int64]) -> None:
        """Free the places of different neurons of a memory node: none of them wins until it is learned anew."""

    def state(self) -> State:
        """What must be saved besides the neurons' own, as copies."""

    def restore(self, state: State, values: int) -> None:
        """Take over a saved state, with child values below `values`; the neurons' own must be in place."""


class PatternBank(Bank, Protocol):
    """Level 1: neurons are prototypes, and an activity is the similarity of a patch and a prototype.

    tiling: how patches are cut out of samples; top: nobody is above it.
    """

    tiling: Tiling
    top: bool

    def reserve(self, more: int) -> None:
        """Make room for what `more` samples may grow; where learning may run out of memory."""

    def learn(self, evidence: Patches) -> Learned:
        """Online steps, one sample after another; room must have been reserved."""

    def hold(self, evidence: Patches, k: Array, wrote: Array) -> None:
        """Average further samples of one thing into the neurons k (nodes,) that its first sample wrote."""

    def known_values(self, k: Array) -> Array:
        """Which values of the neurons k (nodes, batch) were ever seen: (nodes, batch, size)."""

    def store(self, evidence: Patches) -> None:
        """Make every sample a new neuron at every node; room must have been reserved."""

    def best(self, evidence: Patches) -> tuple[Array, Array]:
        """The winner and its similarity at every node, for every sample."""

    def top_k(self, evidence: Patches, count: int) -> tuple[Array, Array]:
        """So many of the best and their similarities, (nodes, batch, count): the winner, then that of the rest ..."""

    def activity(self, evidence: Patches) -> Array:
        """The similarity of every neuron: (nodes, batch, most grown), minus infinity where a node has fewer.

        A node that has none is as one that has one, and that is silent.
        """

    def block_evidence(self, evidence: Patches) -> BlockEvidence:
        """The evidence for neurons, each node's patch being a block."""

    def pyramid_evidence(self, evidence: Patches, scales: Sequence[Tiling]) -> Array:
        """The evidence for the neurons of one level over blocks of all scales: (1, batch, neurons)."""

    def at(self, evidence: Patches, support: Support) -> Array:
        """The similarities of the neurons that a parent expects."""

    def similarity(self, evidence: Patches, k: Array) -> Array:
        """The similarity of neurons k (nodes, batch), one for each sample."""

    def vectors(self, k: Array) -> Array:
        """The prototypes of neurons k (nodes, batch): (nodes, batch, size)."""


class ShardedBank(PatternBank, Protocol):
    """Level 1 of a memory on shards."""

    def shard_states(self) -> Iterator[State]:
        """What must be saved besides the neurons' own, place by place: which neurons (`number`), and a row of each."""


class CodeBank(Bank, Protocol):
    """A level above: neurons count their children's values, and an activity compares those with what is sent up."""

    def reserve(self, more: int, values: int) -> None:
        """Make room for what `more` samples may grow and count, with child values below `values`."""

    def learn(self, evidence: Codes) -> Learned:
        """Online steps, one sample after another; room must have been reserved."""

    def hears(self, evidence: Codes) -> Array:
        """Whether anything was seen of what is below each node, (nodes, batch); None: of all of them."""

    def hold(self, evidence: Codes, times: int, k: Array, wrote: Array) -> None:
        """Count the children's values (child nodes, 1) again for the neurons k (nodes,) that the first sample wrote."""

    def store(self, evidence: Codes) -> None:
        """Make every sample's values a new neuron at every node; room must have been reserved."""

    def best(self, evidence: Codes) -> tuple[Array, Array]:
        """The winner and its activity at every node, for every sample."""

    def top_k(self, evidence: Codes, count: int) -> tuple[Array, Array]:
        """So many of the best and their activities, (nodes, batch, count): the winner, then that of the rest ..."""

    def at(self, evidence: Codes, support: Support) -> Array:
        """The activities of the neurons that a parent expects."""

    def block_evidence(self, below: BlockEvidence, weight: float) -> BlockEvidence:
        """The evidence for neurons from that of their children, and of their own blocks, so many times."""

    def max_sum(self, u: Array) -> Array:
        """The best sum that each neuron can reach with its children; u (child nodes, batch, values)."""

    def support(self, j: Array) -> Support:
        """What the neurons j (nodes, batch) expect of every child."""

    def expects(self, j: Array, known: Array) -> Array:
        """Whether they expect anything of a child at all, (child nodes, batch); those that are not known do not."""

    def probability(self, j: Array, k: Array) -> Array:
        """The probability that the neurons j (nodes, batch) give to their children's values k (child nodes, batch)."""


# -- devices ---------------------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    """How much a device handles at once.

    chunk: samples to learn, if there is memory for them. breadth: how many times as many samples as on a CPU to answer.
    memory: how many times as much memory as on a CPU for what a rule keeps of each of those.
    """

    chunk: int = 256
    breadth: int = 1
    memory: int = 1


class Device(Protocol):
    """Where a memory lives: its arrays, its banks, and choices among the scores of neurons.

    xp: the array namespace, NumPy or torch; only functions that both have, with arguments by position.
    place: the `device` that arrays are created on.
    shards: in how many places level 1 is, if it is a `ShardedBank`; else None.
    keeps_tensors: whether samples that come as torch tensors stay tensors.
    atomic: whether a bank learns a chunk in one call that no signal interrupts.
    """

    @property
    def name(self) -> str: ...
    @property
    def xp(self) -> Any: ...
    @property
    def place(self) -> Any: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def shards(self) -> int | None: ...
    @property
    def keeps_tensors(self) -> bool: ...
    @property
    def atomic(self) -> bool: ...

    def patterns(self, tiling: Tiling, level: Level, options: Options, top: bool) -> PatternBank:
        """A bank for level 1, whose nodes see the patches of a tiling; top: it is the only level."""

    def codes(self, children: NDArray[np.int32], level: Level, options: Options, top: bool, values: int) -> CodeBank:
        """A bank for a level above; children (nodes, children each) below its nodes, which may have `values` each."""

    def choose(self, k: Array, h: Array, support: Support, value: Array, blend: float) -> Array:
        """The value of every node on the way down.

        It is the best of what the parent expects, by blend * value + (1 - blend) * probability, and of the node's own
        winner k with its activity h, which stands for all that the parent does not expect.
        """

    def first_best(self, u: Array) -> tuple[Array, Array]:
        """The first neuron whose value is the maximum, rounding apart, and its value; u (nodes, batch, neurons)."""

    def top_k(self, u: Array, count: int) -> tuple[Array, Array]:
        """The first_best, then the first_best of the others, and so on: (nodes, batch, count)."""

    def pick(self, u: Array, support: Support) -> Array:
        """The values of the neurons that a parent expects."""

    def asarray(self, array: Any) -> Array:
        """An array of this device that its kernels accept."""

    def floats(self, samples: Array) -> Array:
        """Samples as float32 on this device; uint8 is read as /255."""

    def to_user(self, array: Array, x: object) -> Any:
        """An answer in the form of the question x: NumPy for NumPy, a tensor on its device for a tensor."""

    def stream(self) -> AbstractContextManager[None]:
        """The queue of the device: all work of one memory happens within."""
