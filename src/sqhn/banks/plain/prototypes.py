"""Level 1 in plain NumPy: prototypes of patches.

Similarities are computed in float64 from the stored vectors (`compare`). To find winners, float32 products with all
neurons rule out most of them first (`candidates`). A step is taken by all nodes at once, one sample after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import BlockEvidence, Device, Learned, Patches, State, Support
from sqhn.banks.neurons import enlarge, outcomes
from sqhn.banks.plain.candidates import Candidates, squares
from sqhn.banks.plain.evidence import of_patches, of_pyramid
from sqhn.banks.plain.neurons import LearningNeurons, first_best
from sqhn.banks.rows import Rows
from sqhn.banks.rule import SKIPPED
from sqhn.banks.saved import check_prototypes
from sqhn.inputs import batches
from sqhn.level import Level, Options, evidence_centre
from sqhn.patches import Tiling

MOST_PRODUCTS = 8_000_000
"""The largest number of float32 products in memory at once."""
MOST_VALUES = 1_000_000
"""The largest number of values that are compared in float64 at once."""

Floats = NDArray[np.float64]


class Prototypes:
    """The prototypes of all nodes (`rows`), in slots of which `grown` are used.

    known (nodes, room, size) counts how often each value was observed; None while all were. look (nodes, room, size):
    the vectors that samples are multiplied with to find candidates. By cosines, they are the prototypes less the
    centre, divided by their lengths; by differences, the prototypes themselves, with half of their squared lengths in
    `half` (nodes, room). Those of free slots, and of neurons that float32 products say nothing about, are NaN.
    """

    def __init__(self, device: Device, tiling: Tiling, level: Level, options: Options, top: bool) -> None:
        self.device, self.tiling, self.top = device, tiling, top
        self.evidence_centre = evidence_centre(level, options)
        self.nodes, self.size, self.level = tiling.nodes, tiling.size, level
        self.centre, self.euclidean = options.centre, options.euclidean
        self.node = np.arange(self.nodes)
        self.neurons = LearningNeurons(self.nodes, level, options, top)
        self.rows = Rows(self.nodes, self.size)
        self.look = np.zeros((self.nodes, 0, self.size), np.float32)
        self.half = np.zeros((self.nodes, 0), np.float32)
        self.known: NDArray[np.int32] | None = None

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    @property
    def holes(self) -> bool:
        return self.known is not None

    def chunk_size(self, limit: int) -> int:
        width = min(self.level.capacity, self.neurons.most + limit)
        return min(limit, max(1, MOST_PRODUCTS // (self.nodes * width)))

    def reserve(self, more: int) -> None:
        self.enlarge(self.neurons.wanted(more), more)

    def enlarge(self, room: int, more: int = 0) -> None:
        self.rows.reserve(room, more)
        self.look = enlarge(self.look, 1, room, np.nan)
        self.half = enlarge(self.half, 1, room)
        if self.known is not None:
            self.known = enlarge(self.known, 1, room)
        self.neurons.reserve(room)  # last, so that after an interruption no array is smaller than `room`

    def resize(self, level: Level) -> None:
        self.level = self.neurons.level = level

    def settle(self) -> None:
        self.rows.trim()

    # -- similarities ----------------------------------------------------------------------------------------------

    def similarity_of(self, x: NDArray[np.float32], seen: Any, m: NDArray[np.float32], known: Any) -> Floats:
        """The similarities of samples and prototypes, both (..., size); known: which values of these are known."""
        if self.euclidean:
            there = np.ones(1, bool) if seen is None else seen
            there = there if known is None else there & (known > 0)
            d = np.subtract(x, m, dtype=np.float64) * there
            many = np.broadcast_to(there, d.shape).sum(axis=-1)
            mean = squares(d) / np.maximum(many, 1)
            return np.where(many > 0, 1 / (1 + np.sqrt(mean)), 0.0)
        y, u = np.subtract(x, self.centre, dtype=np.float64), np.subtract(m, self.centre, dtype=np.float64)
        if seen is not None:
            y, u = y * seen, u * seen
        yu, yy, uu = (np.einsum("...i,...i", a, b) for a, b in ((y, u), (y, y), (u, u)))
        both = np.sqrt(yy) * np.sqrt(uu)
        cosine = np.where(both > 0, yu / np.where(both > 0, both, 1), yy == uu)
        found = self.centre + (1 - self.centre) * cosine
        return found if seen is None else np.where(seen.any(axis=-1), found, 0.0)

    def compare(self, evidence: Patches, n: NDArray[Any], t: NDArray[Any], j: NDArray[Any]) -> Floats:
        """The similarities of samples t of nodes n to their neurons j; all (pairs,)."""
        (x, seen, _), found = evidence, np.empty(len(j))
        for part in batches(len(j), max(1, MOST_VALUES // self.size)):
            of, own = (n[part], t[part]), (n[part], j[part])
            known = None if self.known is None else self.known[own]
            found[part] = self.similarity_of(x[of], None if seen is None else seen[of], self.rows.of(*own), known)
        return found

    def at(self, evidence: Patches, support: Support) -> Floats:
        n, t = np.divmod(np.repeat(np.arange(len(support.start) - 1), np.diff(support.start)), evidence.x.shape[1])
        return np.where(self.grown[n] > 0, self.compare(evidence, n, t, support.value), 0.0)

    def activity(self, evidence: Patches) -> Floats:
        batch, most = evidence.x.shape[1], self.neurons.most
        found = np.full((self.nodes, batch, max(1, most)), -np.inf)
        found[self.grown == 0, :, 0] = 0.0
        n, j = np.nonzero(self.neurons.c[:, :most] > 0)
        for t in range(batch):
            found[n, t, j] = self.compare(evidence, n, np.full_like(n, t), j)
        return found

    # -- learning --------------------------------------------------------------------------------------------------

    def learn(self, evidence: Patches) -> Learned:
        (x, seen, raw), neurons = self.noted(evidence), self.neurons
        found = k, v, score, kind = outcomes(self.nodes, x.shape[1])
        heard = np.ones(k.shape, bool) if seen is None else seen.any(axis=2)
        step, threshold = neurons.times(x.shape[1])
        candidates = Candidates(self, evidence, min(neurons.room, neurons.most + x.shape[1]))
        for t in range(x.shape[1]):
            j, s = first_best(candidates.scores(t))
            s[(self.grown == 0) & heard[:, t]] = -np.inf
            j, kind[:, t] = neurons.place(j, s, threshold[t], heard[:, t])
            neurons.count(j, kind[:, t], s, step + t)
            n = self.node[kind[:, t] != SKIPPED]
            own = (None if array is None else array[n, t] for array in (seen, raw))
            self.average(n, j[n], x[n, t], *own)
            candidates.follow(t, j)
            k[:, t], score[:, t] = j, s
            v[:, t] = self.compare(evidence, self.node, np.full(self.nodes, t), j)
        neurons.steps += x.shape[1]
        return Learned(*found)

    def noted(self, evidence: Patches) -> Patches:
        """Samples to learn, as bytes too if they may stay so, once the bank is ready for them."""
        x, seen, raw = evidence
        if seen is not None:
            self.count_values()
        if raw is not None and self.top and not (self.neurons.most or self.rows.has_bytes or self.holes):
            self.rows.keep_bytes()
        return Patches(x, seen, raw if self.rows.has_bytes else None)

    def count_values(self) -> None:
        """From now on count how often each value was observed; so far, as often as its neuron was written."""
        if self.known is None:
            self.rows.as_floats(self.neurons.c, self.centre)
            self.known = np.repeat(self.neurons.c[:, :, None], self.size, axis=2).astype(np.int32)

    def average(self, n: NDArray[Any], j: NDArray[Any], x: NDArray[np.float32], seen: Any, raw: Any = None) -> None:
        """Average samples (pairs, size) into the neurons j of nodes n, which have counted them already.

        The pairs of n and j are distinct. raw: the samples as bytes, if neurons of one sample may be such.
        """
        m, c = self.rows.of(n, j), self.neurons.c[n, j, None]
        if self.known is None:
            new = np.zeros(len(j), bool) if raw is None else c[:, 0] == 1
            self.rows.write(n[~new], j[~new], np.where(c == 1, x, m + (x - m) / c.astype(np.float32))[~new])
            if raw is not None:
                self.rows.write_bytes(j[new], raw[new])
        else:
            seen = np.ones(x.shape, bool) if seen is None else seen
            known = np.where(c == 1, 0, self.known[n, j]) + seen
            mean = np.where(known == 1, x, m + (x - m) / np.maximum(known, 1).astype(np.float32))
            self.rows.write(n, j, np.where(seen, mean, np.where(c == 1, self.centre, m)))
            self.known[n, j] = known
        self.derive(n, j)

    def derive(self, n: NDArray[Any], j: NDArray[Any]) -> None:
        """Compute the vectors for products (`look`) of the neurons j of nodes n."""
        for part in batches(len(n), max(1, MOST_VALUES // self.size)):
            own = n[part], j[part]
            u = np.subtract(self.rows.of(*own), self.centre, dtype=np.float64)
            square, usable = squares(u), self.neurons.c[own] > 0
            if self.euclidean:
                self.half[own] = square / 2
                if self.known is not None:
                    usable &= (self.known[own] > 0).all(axis=1)
            else:
                usable &= square > 0
                u /= np.sqrt(np.where(usable, square, 1))[:, None]
            self.look[own] = np.where(usable[:, None], u, np.nan)

    def hold(self, evidence: Patches, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        x, seen, _ = self.noted(evidence)
        for t in range(x.shape[1]):
            self.neurons.steps += 1
            n = self.node[wrote[:, t]]
            j = k[n, t]
            self.neurons.c[n, j] += 1
            self.neurons.note(n, j, self.neurons.step)
            self.average(n, j, x[n, t], None if seen is None else seen[n, t])

    def store(self, evidence: Patches) -> None:
        x, _, raw = self.noted(evidence)
        new = self.neurons.append(x.shape[1])
        n = np.repeat(self.node, new.shape[1])
        self.average(n, new.ravel(), x.reshape(-1, self.size), None, None if raw is None else raw[0])

    def forget(self, j: NDArray[np.int64]) -> None:
        self.neurons.forget(j)
        self.rows.forget(j, self.centre)
        if self.known is not None:
            self.known[0, j] = 0
        self.derive(np.zeros_like(j), j)

    # -- questions -------------------------------------------------------------------------------------------------

    def top_k(self, evidence: Patches, count: int) -> tuple[NDArray[np.int32], Floats]:
        (x, seen, _), most = evidence, max(1, self.neurons.most)
        k, v = np.empty((*x.shape[:2], count), np.int32), np.empty((*x.shape[:2], count))
        for part in batches(x.shape[1], max(1, MOST_PRODUCTS // (self.nodes * most))):
            asked = Patches(x[:, part], None if seen is None else seen[:, part])
            candidates = Candidates(self, asked, most)
            for t in range(part.start, part.stop):
                s = candidates.scores(t - part.start, count)
                k[:, t : t + 1], v[:, t : t + 1] = self.device.top_k(s[:, None], count)
        return k, v

    def block_evidence(self, evidence: Patches) -> BlockEvidence:
        return of_patches(self, evidence)

    def pyramid_evidence(
        self, evidence: Patches, scales: Sequence[Tiling], many: int | None = None, totals: Floats | None = None
    ) -> Floats:
        return of_pyramid(self, evidence, scales, many, totals)

    def vectors(self, k: NDArray[np.int32]) -> NDArray[np.float32]:
        return self.rows.of(self.node[:, None], k)

    def known_values(self, k: NDArray[np.int32]) -> NDArray[np.bool_]:
        if self.known is None:
            return np.repeat(self.neurons.c[self.node[:, None], k, None] > 0, self.size, 2)
        return np.asarray(self.known[self.node[:, None], k] > 0)

    # -- persistence -----------------------------------------------------------------------------------------------

    def state(self) -> State:
        found = self.rows.state(self.grown)
        if self.known is not None:
            there = np.arange(self.neurons.room) < self.grown[:, None]
            found["known"] = self.known[:, : self.neurons.room][there]
        return found

    def restore(self, state: State, values: int) -> None:  # noqa: ARG002
        check_prototypes(state, self.size, self.centre)
        there = np.arange(self.neurons.room) < self.grown[:, None]
        self.rows.restore(state, there, self.centre, self.top)
        self.enlarge(self.neurons.room)
        if "known" in state:
            self.known = np.zeros(self.look.shape, np.int32)
            self.known[there] = state["known"]
        self.derive(*np.nonzero(there))
