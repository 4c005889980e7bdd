"""The pattern bank on a CPU: the prototypes of level 1.

Nodes with few values compare one sample after another with prototypes that fit into the processor's cache; nodes with
many values compare a whole chunk at once (`large`). Both end in the same two-step decision (`kernels.decision`), so the
result depends neither on this choice nor on the chunk size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.cpu.evidence import EvidenceCache, of_patches, of_pyramid
from sqhn.banks.cpu.kernels import prototypes as kernels
from sqhn.banks.cpu.kernels import steps
from sqhn.banks.cpu.kernels.decision import as_mask
from sqhn.banks.cpu.kernels.large import NOTHING
from sqhn.banks.cpu.kernels.rows import decode_rows
from sqhn.banks.cpu.large import LargeNodes
from sqhn.banks.cpu.threads import split_range
from sqhn.banks.interface import BlockEvidence, Device, Learned, Patches, State, Support
from sqhn.banks.neurons import Neurons, enlarge, outcomes
from sqhn.banks.rows import Rows
from sqhn.banks.rule import rules
from sqhn.banks.saved import check_prototypes
from sqhn.level import Level, Options, evidence_centre
from sqhn.patches import Tiling

SMALL = 64
"""Values per node up to which samples are compared with its prototypes one at a time."""


class Prototypes:
    """Prototype vectors of nodes that each see a patch of a tiling.

    evidence_cache: sums over the prototypes for recall by evidence, or None. It is the only thing that readers change:
    the first reader that needs it computes it. Two readers that do so at once compute the same, and one result stays.
    Every write drops it.
    """

    def __init__(self, device: Device, tiling: Tiling, level: Level, options: Options, top: bool) -> None:
        nodes = tiling.nodes
        self.device, self.nodes, self.size, self.level = device, nodes, tiling.size, level
        self.tiling, self.top = tiling, top
        self.evidence_centre = evidence_centre(level, options)
        self.node = np.arange(nodes)[:, None]  # to index arrays of neurons
        self.centre, self.rules = options.centre, tuple(rules(level, options, top))
        self.measure = options.centre, options.euclidean
        self.neurons = Neurons(nodes, level, top)
        self.rows = Rows(nodes, self.size)
        self.square = np.zeros((nodes, 0))
        self.inverse, self.candidate = np.zeros((2, nodes, 0), np.float32)
        self.known: NDArray[np.int32] | None = None  # how often each value was observed; None while all were
        self.evidence_cache: EvidenceCache | None = None
        self.large = LargeNodes(nodes, tiling.patch) if self.size > SMALL else None
        self.keeps_bytes = top and self.large is not None

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    @property
    def prototypes(self) -> tuple[NDArray[Any], ...]:
        """The prototypes as the kernels that write expect them."""
        known = np.empty((*self.square.shape, 0), np.int32) if self.known is None else self.known
        return *self.rows.arrays, self.square, self.inverse, self.candidate, known

    def of_nodes(self, nodes: slice = slice(None)) -> tuple[NDArray[Any], ...]:
        """The prototypes as the kernels that read expect them; only "euclidean" needs the known values."""
        *parts, known = self.prototypes
        return *(part[nodes] for part in parts), known[nodes] if self.measure[1] else known[nodes, :, :0]

    def scratch(self) -> tuple[Any, ...]:
        """Room for the intermediate results of a thread."""
        return steps.room_for(self.size, self.neurons.room, self.large is not None, self.decoded())

    def decoded(self) -> NDArray[np.float32]:
        """Room for a prototype that is bytes, for a thread."""
        return np.empty(self.rows.raw.shape[2], np.float32)

    def floats(self, neurons: slice) -> NDArray[np.float32]:
        """The prototypes of some neurons of every node: (nodes, neurons, size), a copy if any are bytes."""
        m, raw, place, *_ = self.rows.arrays
        if not self.rows.has_bytes:
            return m[:, neurons]
        out = np.empty((1, neurons.stop - neurons.start, self.size), np.float32)
        split_range(decode_rows, out.shape[1], out.size / 4, neurons.start, m[0], raw[0], place[0], out[0])
        return out

    @property
    def holes(self) -> bool:
        """Whether a sample with missing values was learned."""
        return self.known is not None

    def chunk_size(self, limit: int) -> int:
        return limit if self.large is None else self.large.chunk_size(self, limit)

    def reserve(self, more: int) -> None:
        room = self.neurons.wanted(more)
        if room != self.neurons.room:
            self.enlarge(room)
        self.rows.reserve(room, more)

    def enlarge(self, room: int) -> None:
        self.evidence_cache = None
        if self.large is not None:
            self.large.reserve(room)
        self.rows.reserve(room)
        self.square = enlarge(self.square, 1, room)
        self.inverse, self.candidate = enlarge(self.inverse, 1, room), enlarge(self.candidate, 1, room)
        if self.known is not None:
            self.known = enlarge(self.known, 1, room)
        self.neurons.reserve(room)  # last, so that after an interruption no array is smaller than `room`

    def resize(self, level: Level) -> None:
        self.level = self.neurons.level = level
        self.rules = (level.capacity, *self.rules[1:])

    def settle(self) -> None:
        self.rows.trim()

    # -- learning ------------------------------------------------------------------------------------------------

    def learn(self, evidence: Patches) -> Learned:
        found, self.evidence_cache = outcomes(self.nodes, evidence.x.shape[1]), None
        (x, seen, raw), neurons = self.masked(evidence), self.neurons
        first_look = NOTHING if self.large is None else self.large.first_look_of_chunk(self, x, seen)
        split_range(
            steps.learn, self.nodes, float(x.size) * max(1, neurons.most), x, as_mask(x, seen), raw, first_look,
            self.prototypes, neurons.statistics, self.rules, neurons.times(x.shape[1]), self.measure, found,
            scratch=self.scratch,
        )  # fmt: skip
        if self.large is not None:
            self.large.learned(self, first_look)
        return Learned(*found)

    def masked(self, evidence: Patches) -> Patches:
        """Samples to learn, with a mask once any learned sample had missing values, and as bytes if they may stay so.

        Bytes have no values if they may not.
        """
        (x, seen, raw), rows = evidence, self.rows
        if seen is not None:
            self.count_values()
        elif self.holes:
            seen = np.ones(x.shape, bool)
        if raw is not None and self.keeps_bytes and not (self.neurons.most or rows.has_bytes or self.holes):
            rows.keep_bytes()
        return Patches(x, seen, raw if raw is not None and rows.has_bytes else np.empty((*x.shape[:2], 0), np.uint8))

    def count_values(self) -> None:
        """From now on count how often each value was observed; so far, as often as its neuron was written."""
        if self.known is None:
            self.rows.as_floats(self.neurons.c, self.centre)
            self.known = np.repeat(self.neurons.c[:, :, None], self.size, axis=2).astype(np.int32)

    def forget(self, j: NDArray[np.int64]) -> None:
        self.neurons.forget(j)
        self.rows.forget(j, self.centre)
        if self.known is not None:
            self.known[0, j] = 0
        self.rewritten(np.zeros_like(j), j)

    def hold(self, evidence: Patches, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        self.evidence_cache = None
        x, seen, _ = self.masked(evidence)
        split_range(
            kernels.hold, self.nodes, x.size, x, as_mask(x, seen), k, wrote, self.prototypes, self.neurons.statistics,
            self.neurons.step + 1, self.measure, scratch=self.decoded,
        )  # fmt: skip
        if self.large is not None:
            n, t = np.nonzero(wrote)
            self.large.rewritten(self, *np.unique([n, k[n, t]], axis=1))
        self.neurons.steps += x.shape[1]

    def store(self, evidence: Patches) -> None:
        raw, new = self.masked(evidence).raw, self.neurons.append(evidence.x.shape[1])
        if raw.size:
            self.rows.write_bytes(new[0], raw[0])
        else:
            self.rows.write(self.node, new, evidence.x)
        if self.known is not None:
            self.known[self.node, new] = 1
        self.rewritten(np.repeat(self.node, new.shape[1]), new.ravel())

    def put(self, j: NDArray[np.int64], c: NDArray[np.int64], m: NDArray[np.float32], known: Any) -> None:
        """Write copies of neurons from another bank into the only node; indices beyond its last neuron are new ones."""
        self.neurons.grown[0] = max(int(self.grown[0]), int(j.max(initial=-1)) + 1)
        self.neurons.c[0, j] = c
        self.rows.write(0, j, m)
        if known is not None:
            self.count_values()
        if self.known is not None:
            self.known[0, j] = c[:, None] if known is None else known
        self.rewritten(np.zeros_like(j), j)

    def rewritten(self, n: NDArray[np.intp], j: NDArray[np.int64]) -> None:
        """Compute the derived values (lengths, features) of the prototypes j, each at its node n."""
        self.evidence_cache = None
        at = np.ascontiguousarray(n), np.ascontiguousarray(j)
        split_range(
            kernels.derive_at, len(j), float(len(j)) * self.size, *at, self.prototypes, self.neurons.c, self.measure,
            scratch=self.decoded,
        )  # fmt: skip
        if self.large is not None:
            self.large.rewritten(self, n, j)

    # -- questions -----------------------------------------------------------------------------------------------

    def top_k(self, evidence: Patches, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        x, seen, _ = evidence
        shape = (*x.shape[:2], count)
        k, v = np.empty(shape, np.int32), np.empty(shape)
        if self.large is not None:
            self.large.best(self, evidence, k, v)
        else:
            split_range(
                steps.best, shape[0] * shape[1], float(x.size) * self.neurons.most, x, as_mask(x, seen), NOTHING,
                self.of_nodes(), self.grown, self.measure, k, v, scratch=self.scratch,
            )  # fmt: skip
        return k, v

    def activity(self, evidence: Patches) -> NDArray[np.float64]:
        s = np.empty((*evidence.x.shape[:2], self.neurons.most))
        split_range(
            kernels.activity, self.nodes, float(s.size) * self.size, evidence.x, as_mask(evidence.x, evidence.seen),
            self.of_nodes(), self.grown, self.measure, s, scratch=self.decoded,
        )  # fmt: skip
        return s

    def block_evidence(self, evidence: Patches) -> BlockEvidence:
        return of_patches(self, evidence)

    def pyramid_evidence(
        self, evidence: Patches, scales: Sequence[Tiling], many: int | None = None, totals: Any = None
    ) -> NDArray[np.float64]:
        return of_pyramid(self, evidence, scales, many, totals)

    def at(self, evidence: Patches, support: Support) -> NDArray[np.float64]:
        s = np.empty(len(support.value))
        split_range(
            kernels.at, self.nodes, float(len(s)) * self.size, evidence.x, as_mask(evidence.x, evidence.seen),
            support.start, support.value, self.of_nodes(), self.grown, self.measure, s, scratch=self.decoded,
        )  # fmt: skip
        return s

    def vectors(self, k: NDArray[np.int32]) -> NDArray[np.float32]:
        return self.rows.of(self.node, k)

    def known_values(self, k: NDArray[np.int32]) -> NDArray[np.bool_]:
        if self.known is None:
            return np.repeat(self.neurons.c[self.node, k, None] > 0, self.size, 2)
        return np.asarray(self.known[self.node, k] > 0)

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self) -> State:
        found = self.rows.state(self.grown)
        if self.known is not None:
            found["known"] = np.concatenate([own[:G] for own, G in zip(self.known, self.grown)])
        return found

    def restore(self, state: State, values: int) -> None:  # noqa: ARG002
        check_prototypes(state, self.size, self.centre)
        there = np.arange(self.neurons.room) < self.grown[:, None]
        self.rows.restore(state, there, self.centre, self.keeps_bytes)
        self.enlarge(self.neurons.room)
        if "known" in state:
            self.known = np.zeros((*there.shape, self.size), np.int32)
            self.known[there] = state["known"]
        self.rewritten(*np.nonzero(there))
