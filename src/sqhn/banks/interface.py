"""The interface of banks, on any device: their messages to each other, and their methods.

Each level of the tree is a bank that holds the neurons of all its nodes. Level 1 is a `PatternBank`, whose neurons are
prototypes of patches; the levels above are `CodeBank`s, whose neurons count the values of their children. The tree uses
nothing else of them. Arrays are those of a `Device`: NumPy arrays, or torch tensors on a GPU.

Conventions: `k` is the index of a neuron, `v` the strength of a winner, `h` an activity. Arrays of a level have the
axes (nodes, samples). Activities are float64, and ties (`TIE`) go to the lowest index. Queries change no state; a bank
may cache what it derives from its state, and drops the cache with every change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sqhn.level import Level, Options
from sqhn.patches import Tiling

Array = Any
"""A NumPy array or a torch tensor; indexing and arithmetic work in the same way on both."""

State = dict[str, NDArray[Any]]
"""The saved arrays of a bank by name; they list the grown neurons of one node after another."""


# -- messages --------------------------------------------------------------------------------------------------------


class Patches(NamedTuple):
    """The input of level 1: values, and which of them were observed (None: all); both (nodes, batch, size).

    raw: the same values as uint8, to learn on a device that keeps bytes; None if they did not come so.
    """

    x: Array
    seen: Array = None
    raw: Array = None

    @property
    def heard(self) -> Array:
        """Whether any value of a patch was observed, (nodes, batch); None: true of all."""
        return None if self.seen is None else self.seen.any(axis=2)


class Codes(NamedTuple):
    """The input of a level above: its children's values and strengths; both (child nodes, batch).

    heard: whether any value below a child was observed (None: true of all). A child that is not heard is not counted,
    and does not add to the length of a column.
    """

    k: Array
    v: Array
    heard: Array = None


class Learned(NamedTuple):
    """The results of learning a chunk, all (nodes, batch).

    k and v go to the parents; score is the best match before the update; kind is the outcome (`rule`).
    """

    k: Array
    v: Array
    score: Array
    kind: Array


class BlockEvidence(NamedTuple):
    """The evidence (`sqhn.evidence`) for the neurons of a level: A (nodes, batch, neurons), in nats.

    A is minus infinity where there is no neuron; a node without neurons counts as one with a neuron of evidence 0.
    question, stored: sums over the block of each node, of the sample and of the most likely stored values.
    """

    A: Array
    question: tuple[Array, ...]
    stored: tuple[Array, ...]


class Support(NamedTuple):
    """The values that parents expect of their children.

    For sample t of a node of the level below they are the entries from start[node * batch + t] to the next start: the
    values and their probabilities.
    """

    start: Array
    value: Array
    probability: Array


# -- banks -----------------------------------------------------------------------------------------------------------


class Growth(Protocol):
    """How far the nodes of a level have grown, and the saved statistics of their neurons.

    grown: the number of slots that each node has used. free: how many of these are free because their neurons were
    forgotten; a free slot has the count 0. step: the number of samples learned. room: the number of slots with memory
    reserved. most: an upper bound of `grown`. Nodes that share a bank are one node here, and a step is one of theirs.
    """

    grown: Array
    free: Array

    @property
    def step(self) -> int: ...
    @property
    def room(self) -> int: ...
    @property
    def most(self) -> int: ...

    def skip(self, steps: int) -> None:
        """Count so many steps of every node in which nothing was written."""

    def state(self) -> State:
        """Copies of all statistics."""

    def restore(self, state: State, step: int) -> None:
        """Load a saved state into new statistics."""


class Neurons(Growth, Protocol):
    """Statistics of every neuron, (nodes, room): counts, mean activities and the steps of the last writes."""

    c: Array
    mu: Array
    written: Array


Input = Any
"""The input of a bank: `Patches` at level 1, `Codes` at the levels above."""


class Bank(Protocol):
    """The methods of all banks."""

    nodes: int
    level: Level

    @property
    def device(self) -> Device: ...
    @property
    def neurons(self) -> Growth: ...
    @property
    def grown(self) -> Array: ...

    def chunk_size(self, limit: int) -> int:
        """How many samples to learn at once."""

    @property
    def holes(self) -> bool:
        """Whether any learned sample had missing values."""

    def learn(self, evidence: Input) -> Learned:
        """Online steps, one sample after another; room must have been reserved."""

    def store(self, evidence: Input) -> None:
        """Make every sample a new neuron at every node; room must have been reserved."""

    def settle(self) -> None:
        """Finish delayed work after the last chunk of a call, so that queries change nothing."""

    def top_k(self, evidence: Input, count: int) -> tuple[Array, Array]:
        """The `count` best neurons and their activities, (nodes, batch, count): the winner, then the runner-up ..."""

    def at(self, evidence: Input, support: Support) -> Array:
        """The activities of the neurons that a parent expects."""

    def state(self) -> State:
        """Copies of everything to save besides the statistics."""

    def restore(self, state: State, values: int) -> None:
        """Load a saved state, with child values below `values`; the statistics must be loaded before."""


class MemoryNode(Bank, Protocol):
    """The bank of the last level."""

    @property
    def neurons(self) -> Neurons: ...

    def resize(self, level: Level) -> None:
        """Enlarge the capacity; level: the same level with a larger capacity."""

    def forget(self, j: NDArray[np.int64]) -> None:
        """Free the slots of distinct neurons."""


class PatternBank(Bank, Protocol):
    """Level 1: neurons are prototypes, and an activity is the similarity of a patch and a prototype.

    tiling: how samples are cut into patches; top: whether this is the only level.
    """

    tiling: Tiling
    top: bool

    def reserve(self, more: int) -> None:
        """Make room for the neurons that `more` samples may grow; only here can learning run out of memory."""

    def hold(self, evidence: Patches, k: Array, wrote: Array) -> None:
        """Average each sample into the neuron k of its node, where `wrote` says so; both (nodes, batch)."""

    def activity(self, evidence: Patches) -> Array:
        """The similarity of every neuron: (nodes, batch, most grown), minus infinity where a node has fewer.

        A node without neurons counts as one with a silent neuron.
        """

    def vectors(self, k: Array) -> Array:
        """The prototypes of neurons k (nodes, batch): (nodes, batch, size)."""

    def known_values(self, k: Array) -> Array:
        """Which values of the neurons k (nodes, batch) were ever observed: (nodes, batch, size)."""


class OnlyLevel(PatternBank, Protocol):
    """Level 1, if it is the memory node."""

    @property
    def neurons(self) -> Neurons: ...

    def pyramid_evidence(self, evidence: Patches, scales: Sequence[Tiling]) -> Array:
        """The evidence for the neurons, over blocks of all scales: (1, batch, neurons)."""


class PartOfLevel(PatternBank, Protocol):
    """Some neurons of level 1, if it is the memory node."""

    @property
    def neurons(self) -> Neurons: ...

    def pyramid_evidence(
        self, evidence: Patches, scales: Sequence[Tiling], many: int | None = None, totals: Array = None
    ) -> Array:
        """As for the whole level, of which other banks have the other neurons.

        many: the number of neurons in all; totals (batch, blocks, 2): for each look at a block, the logarithm of the
        sum of their likelihoods. Where a total is minus infinity, that of the neurons of this bank is written there,
        and the look adds no evidence.
        """


class LowestLevel(PatternBank, Protocol):
    """Level 1 of a tree."""

    def block_evidence(self, evidence: Patches) -> BlockEvidence:
        """The evidence for neurons, each node's patch being a block."""


class ShardedBank(PatternBank, Protocol):
    """Level 1 of a memory on shards."""

    def shard_states(self) -> Iterator[State]:
        """The saved arrays of each shard without statistics: the indices of its neurons (`number`), a row for each."""


class CodeBank(Bank, Protocol):
    """A level above: neurons count their children's values, and an activity compares these counts with a code.

    children: the nodes of the level below that belong to each node, (nodes, children each). top: whether this is the
    last level.
    """

    children: Array
    top: bool

    def reserve(self, more: int, values: int) -> None:
        """Make room for the neurons and counts that `more` samples may add, with child values below `values`."""

    def hold(self, evidence: Codes, times: int, k: Array, wrote: Array) -> None:
        """Count the samples so many times more, each for the neuron k of its node, where `wrote` says so.

        k, wrote (nodes, batch). The batch as a whole is repeated, so steps are those of `times` batches.
        """

    def block_evidence(self, below: BlockEvidence, weight: float) -> BlockEvidence:
        """The evidence for neurons: from their children, and from their own blocks with a weight."""

    def max_sum(self, u: Array) -> Array:
        """The best sum that each neuron can reach with its children; u (child nodes, batch, values)."""

    def support(self, j: Array) -> Support:
        """The values that the neurons j (nodes, batch) expect of every child."""


# -- devices ---------------------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    """How much a device handles at once.

    chunk: the number of samples to learn, if there is memory for them. breadth: how many times as many queries as on a
    CPU to answer at once. memory: how many times as much memory as on a CPU a rule may use for its scores.
    """

    chunk: int = 256
    breadth: int = 1
    memory: int = 1


class Device(Protocol):
    """Where a memory lives: its arrays, its banks, and choices among the scores of neurons.

    xp: the array namespace, NumPy or torch; only functions that both have, with arguments by position.
    place: the `device` that arrays are created on.
    shards: the number of shards that hold the memory; None on other devices.
    keeps_tensors: whether samples that come as torch tensors stay tensors.
    keeps_bytes: whether the only level of a memory stores samples of uint8 as such (`banks.rows`).
    atomic: whether a bank learns a chunk in one call that no signal interrupts.
    """

    name: str
    place: Any
    limits: Limits
    keeps_tensors: bool
    keeps_bytes: bool
    atomic: bool

    @property
    def xp(self) -> Any: ...
    @property
    def shards(self) -> int | None: ...

    def patterns(self, tiling: Tiling, level: Level, options: Options, top: bool) -> PatternBank:
        """A bank for level 1, whose nodes see the patches of a tiling; top: it is the only level."""

    def codes(self, children: NDArray[np.int32], level: Level, options: Options, top: bool, values: int) -> CodeBank:
        """A bank for a level above; children (nodes, children each) below its nodes, which may have `values` each."""

    def choose(self, k: Array, h: Array, support: Support, value: Array, blend: float) -> Array:
        """The value of every node on the way down.

        The candidates are the values that the parent expects, each with the score blend * value + (1 - blend) *
        probability, and the node's own winner k with its activity h, which stands for all values that the parent does
        not expect.
        """

    def top_k(self, u: Array, count: int) -> tuple[Array, Array]:
        """The best neurons and their values, (nodes, batch, count), from u (nodes, batch, neurons).

        The best one is the first whose value is the maximum, up to rounding; the next is that of the others, and so on.
        """

    def asarray(self, array: Any) -> Array:
        """An array of this device that its kernels accept."""

    def floats(self, samples: Array) -> Array:
        """Samples as float32 on this device; uint8 is read as /255."""

    def to_user(self, array: Array, x: object) -> Any:
        """An answer in the form of the question x: NumPy for NumPy, a tensor on its device for a tensor."""

    def nbytes(self, banks: Sequence[Bank]) -> int:
        """The bytes of all arrays of the banks of a memory."""

    def stream(self) -> AbstractContextManager[None]:
        """The queue of the device: all work of one memory happens within."""
