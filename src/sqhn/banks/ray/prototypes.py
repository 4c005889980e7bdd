"""A memory node whose neurons are on several shards, each with a `Piece` of it; the driver takes all decisions.

A part of a chunk of samples goes to all shards, which answer with their best neurons. The driver builds a small bank of
the candidates and of all other neurons that a step can change. It learns the part as one bank of all neurons would,
provided that no neuron outside it can win. Upper bounds from the shards verify that afterwards; neurons that could have
won are added, and the part is learned again. Then the written neurons go to the shards.

Meanwhile the shards evaluate the next part with their old neurons: the neurons just written are in the next small bank.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from sqhn.banks.cpu.device import Cpu
from sqhn.banks.cpu.kernels.decision import NONE
from sqhn.banks.cpu.prototypes import Prototypes
from sqhn.banks.interface import Learned, Patches, State
from sqhn.banks.neurons import Neurons
from sqhn.banks.ray.neighbours import NAME, Neighbours
from sqhn.banks.ray.piece import Indices, Piece, Vectors
from sqhn.banks.ray.shards import BUILD, Call, Shared, each_array
from sqhn.banks.rule import GREW, SKIPPED
from sqhn.banks.saved import KINDS, check_prototypes, joined
from sqhn.inputs import batches
from sqhn.level import REPLACING, TIE, Level, Options
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from sqhn.banks.ray.device import Sharded

NOBODY = 2**62
"""Stands for no neuron; larger than any index."""
NO_NEURONS = Vectors(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 1), np.float32), None)
MESSAGE = 1 << 26
"""The most bytes of prototypes in one message, when all prototypes are sent."""
PART = 384
"""How many samples shards compare at once."""
AHEAD = 2
"""How many parts are sent to the shards ahead; these need not know the neurons that the last part wrote."""
QUICK = 1 << 28
"""Values of all neurons up to which a chunk of several thousand samples is still short."""


LIMITING = threading.Lock()
"""Held by the thread that limits BLAS threads: a second thread would restore the limit as the previous setting."""


CONTROLLER = ThreadpoolController()
"""Controls the BLAS threads of this process."""


@contextmanager
def quietly() -> Iterator[None]:
    """Limit BLAS to one thread meanwhile: waiting threads spin, and shards may need the same cores."""
    if not LIMITING.acquire(blocking=False):
        yield
        return
    try:
        with CONTROLLER.limit(limits=1, user_api="blas"):
            yield
    finally:
        LIMITING.release()


class SplitPrototypes:
    """The prototypes of one node, on shards; the driver keeps the statistics of all neurons."""

    nodes, top = 1, True

    def __init__(self, device: Sharded, tiling: Tiling, level: Level, options: Options) -> None:
        self.device, self.shards, self.tiling, self.level, self.options = device, device.group, tiling, level, options
        self.neurons = Neurons(1, level)
        self.owner = np.zeros(0, np.int16)  # the shard of every neuron
        self.holes = False
        self.fresh = NO_NEURONS  # written by the last part; shards may not have these yet
        self.replaced: list[tuple[Any, ...]] = []  # old statistics, to undo the parts of a chunk
        self.room = 0  # of every shard
        self.shards.write_all(BUILD, NAME, Piece, tiling, level, options)

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    def chunk_size(self, limit: int) -> int:
        """Longer where learning is quick, because shards are idle during the last part of a chunk."""
        return limit * max(1, min(4, QUICK // max(1, int(self.grown[0]) * self.tiling.size)))

    def reserve(self, more: int) -> None:
        need = -(-min(int(self.grown[0]) + more, self.level.capacity) // len(self.shards))
        need = max(need, int(self._loads().max()))
        if need > self.room:
            self.room = min(self.shards.write_all(NAME, "reserve", need))
        self.neurons.reserve(self.neurons.wanted(more))

    def _loads(self) -> Indices:
        """How many neurons every shard has."""
        return np.bincount(self.owner, minlength=len(self.shards))

    def resize(self, level: Level) -> None:
        """Shards grow as far as they are told."""
        self.level = self.neurons.level = level

    def settle(self) -> None:
        """Wait for all writes, so that queries need not."""
        self.shards.wait_for_writes(range(len(self.shards)))

    # -- learning ------------------------------------------------------------------------------------------------

    @quietly()
    def learn(self, evidence: Patches) -> Learned:
        cut, done = _cut(evidence), []
        asking = (Neighbours(self.shards, part, 1) for part in cut)
        asked = deque(islice(asking, AHEAD))
        try:
            with self.shards.all_or_none():
                for part in cut:
                    done.append(self._learn_part(part, asked.popleft()))
                    asked.extend(islice(asking, 1))
        except BaseException:
            self._take_back()
            raise
        finally:
            self.replaced, self.fresh = [], NO_NEURONS
        return Learned(*(np.concatenate(field, 1) for field in zip(*(sent.fields for sent in done))))

    def _learn_part(self, evidence: Patches, everybody: Neighbours) -> Learned:
        everybody.gather(self.fresh.j)
        batch, here = evidence.x.shape[1], self.fresh
        k, v = everybody.top_k(1)
        best, value = k[:, 0], v[:, 0]
        aloof = self._aloof(everybody, best)
        candidates = everybody.reaching(_repeated(best, ~aloof)), everybody.reaching(~aloof, everybody.top)
        chosen = np.unique(np.concatenate([self._changeable(batch), *candidates, here.j]))
        while True:
            here = self._fetch(chosen, here)
            local = self._rehearsal(here, batch)
            sent = local.learn(evidence)
            score, before = sent.score[0], len(chosen)
            known = np.append(chosen, NOBODY)[np.minimum(sent.k[0], before)]
            aloof &= ~np.isin(best, known[sent.kind[0] != SKIPPED])  # their best was not written
            settled = aloof & (score < everybody.top - 2 * TIE)
            aloof &= settled | (score > everybody.top + 2 * TIE)
            winner = np.where(sent.kind[0] < GREW, known, NOBODY)  # not of those that became neurons
            further = True
            while further and len(chosen) == before:
                further = everybody.query_further(score, winner, ~settled)
                chosen = np.union1d(chosen, everybody.reaching(~settled, score))
            if len(chosen) == before:
                break
        score[settled] = value[settled]
        return self._commit(local, chosen, sent, everybody.samples)

    def _aloof(self, everybody: Neighbours, best: Indices) -> NDArray[np.bool_]:
        """Samples that resemble nothing so far: whatever happens, the neurons that are there stay as they are."""
        batch = len(everybody.k)
        if int(self.grown[0]) - int(self.neurons.free[0]) + batch > self.level.capacity:
            return np.zeros(batch, bool)
        eps = self.level.threshold(np.arange(self.neurons.step, self.neurons.step + batch))
        return np.asarray((everybody.top < eps - 2 * TIE) & ~everybody.open(everybody.top, best).any(axis=0))

    def _changeable(self, batch: int) -> Indices:
        """Neurons that steps may change though they do not win: free places, those to be replaced."""
        neurons, grown = self.neurons, int(self.grown[0])
        c, written = neurons.c[0, :grown], neurons.written[0, :grown]
        found = [np.zeros(0, np.int64)]
        if neurons.free[0]:
            found.append(np.flatnonzero(c == 0)[:batch])
        if self.level.when_full in REPLACING and grown + batch > self.level.capacity:
            living = np.flatnonzero(c > 0)
            order = (written[living], c[living]) if self.level.when_full == "overwrite" else (written[living],)
            found.append(living[np.lexsort((living, *order))[:batch]])
        return np.concatenate(found)

    def _rehearsal(self, here: Vectors, batch: int) -> Prototypes:
        """A bank of some neurons alone, in their order, with as much room to grow as there is."""
        own, n = self.neurons, len(here.j)
        level = replace(self.level, capacity=max(1, n + self.level.capacity - int(self.grown[0])))
        local = Prototypes(Cpu(), self.tiling, level, self.options, top=True)
        local.reserve(n + batch)
        local.put(np.arange(n), *here[1:])
        local.neurons.steps[0], local.neurons.free[0] = own.step, (here.c == 0).sum()
        for name in ("mu", "written"):
            getattr(local.neurons, name)[0, :n] = getattr(own, name)[0, here.j]
        return local

    def _fetch(self, j: Indices, here: Vectors | None = None) -> Vectors:
        """Neurons, from wherever they are.

        here: some that are known, among them all that shards may be told of just now: so the query can bypass writes.
        """
        m = np.full((len(j), self.tiling.size), self.options.centre, np.float32)
        c, known, bypass = self.neurons.c[0, j], None, here is not None
        here = here or NO_NEURONS
        at = np.searchsorted(here.j, j)
        there = np.append(here.j, NOBODY)[at] == j
        missing = np.flatnonzero(~there & (c > 0))
        asked = {s: missing[own] for s, own in _by_shard(self.owner[j[missing]]).items()}
        query = {s: (NAME, "fetch", j[own]) for s, own in asked.items()}
        found = [(asked[s], part) for s, part in self.shards.query(query, bypass).items()]
        for where, part in [*found, (np.flatnonzero(there), here.some(at[there]))]:
            m[where] = part.m
            if part.known is not None:
                known = np.repeat(c[:, None], m.shape[1], 1).astype(np.int32) if known is None else known
                known[where] = part.known
        return Vectors(j, c, m, known)

    def _commit(self, local: Prototypes, chosen: Indices, sent: Learned, samples: Shared | None = None) -> Learned:
        """Apply the results of the rehearsal; samples: its samples, if shards have them without missing values."""
        grown, n = int(self.grown[0]), len(chosen)
        number = np.concatenate([chosen, np.arange(grown, grown + int(local.grown[0]) - n)])
        wrote = np.unique(sent.k[0][sent.kind[0] != SKIPPED])
        known = None if local.known is None else local.known[0, wrote]
        vectors = Vectors(number[wrote], local.neurons.c[0, wrote], local.m[0, wrote], known)
        if samples is None or known is not None:
            self._put(vectors)
        else:  # neurons that were written once are their samples
            last = np.full(int(local.grown[0]), NONE)
            last[sent.k[0]] = np.arange(sent.k.shape[1])
            new = (vectors.c == 1) & (sent.kind[0, last[wrote]] >= GREW)
            self._put(vectors, samples, np.where(new, last[wrote], NONE))
        self.fresh = vectors
        neurons = self.neurons
        kept = tuple(getattr(neurons, name)[0, number] for name in KINDS)
        self.replaced.append((number, kept, grown, int(neurons.free[0]), neurons.step, self.holes))
        neurons.free[0] += int(local.neurons.free[0]) - int((neurons.c[0, chosen] == 0).sum())
        for name in KINDS:
            getattr(neurons, name)[0, number] = getattr(local.neurons, name)[0, : len(number)]
        neurons.grown[0] = grown + len(number) - n
        neurons.steps[0] = local.neurons.step
        self.holes = self.holes or local.holes
        return sent._replace(k=number[sent.k].astype(np.int32))

    def _take_back(self) -> None:
        """Restore the statistics from before the learned parts of a chunk."""
        neurons = self.neurons
        for number, kept, grown, free, step, holes in reversed(self.replaced):
            for name, values in zip(KINDS, kept):
                getattr(neurons, name)[0, number] = values
            neurons.grown[0], neurons.free[0], neurons.steps[0], self.holes = grown, free, step, holes
        self.owner = self.owner[: int(neurons.grown[0])]

    def _put(self, vectors: Vectors, samples: Shared | None = None, rows: Indices = NO_NEURONS.j) -> None:
        """Write neurons; new ones go to the shards with most room. rows: of which samples they are copies, or NONE."""
        j, loads, new = vectors.j, self._loads(), list[int]()
        for _ in range(int((j >= len(self.owner)).sum())):
            new.append(int(loads.argmin()))
            loads[new[-1]] += 1
        owner = np.concatenate([self.owner, np.array(new, np.int16)])
        told: dict[int, Call] = {}
        for s, own in _by_shard(owner[j]).items():
            if samples is None:
                told[s] = NAME, "put", vectors.some(own)
            else:
                told[s] = NAME, "put_copies", j[own], vectors.some(own[rows[own] == NONE]), samples, rows[own]
        self.shards.post(told)
        self.owner = owner

    def forget(self, j: NDArray[np.int64]) -> None:
        self.shards.write({s: (NAME, "forget", j[own]) for s, own in _by_shard(self.owner[j]).items()})
        self.neurons.forget(j)

    def hold(self, evidence: Patches, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        chosen = k.astype(np.int64)
        local = self._rehearsal(self._fetch(chosen), 0)
        local.hold(evidence, np.zeros(1, np.int32), wrote)
        kind = np.full((1, 1), SKIPPED + bool(wrote[0]), np.int32)
        self._commit(local, chosen, Learned(np.zeros((1, 1), np.int32), None, None, kind))
        self.replaced, self.fresh = [], NO_NEURONS

    def store(self, evidence: Patches) -> None:
        batch = evidence.x.shape[1]
        new = np.arange(batch) + int(self.grown[0])
        vectors = Vectors(new, np.ones(batch, np.int64), evidence.x[0], None)
        self._put(vectors, self.shards.share(evidence), np.arange(batch))
        self.neurons.append(batch)

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, evidence: Patches) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = self.top_k(evidence, 1)
        return k[:, :, 0], v[:, :, 0]

    @quietly()
    def top_k(self, evidence: Patches, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        first = 0 if count == 1 else count  # one that is likely to be the best is enough, mostly
        asked = [Neighbours(self.shards, part, first) for part in _cut(evidence)]
        k, v = (np.concatenate(field, 1) for field in zip(*(self._ranking(one, count) for one in asked)))
        return k, v

    @staticmethod
    def _ranking(everybody: Neighbours, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        everybody.gather(NO_NEURONS.j)
        while True:
            k, v = everybody.top_k(count)
            score, winner = (everybody.top, k[:, 0]) if count == 1 else (v[:, -1], np.full(len(k), NOBODY))
            if not everybody.query_further(score, winner, np.ones(len(k), bool)):
                return k.astype(np.int32)[None], v[None]

    def activity(self, evidence: Patches) -> NDArray[np.float64]:
        return self._everywhere(evidence, self.shards.query_all(NAME, "activity", self.shards.share(evidence)))

    def similarity(self, evidence: Patches, k: NDArray[np.int32]) -> NDArray[np.float64]:
        local = self._rehearsal(self._of(k), 0)
        return local.similarity(evidence, np.arange(k.size, dtype=np.int32)[None])

    def vectors(self, k: NDArray[np.int32]) -> NDArray[np.float32]:
        return self._of(k).m[None]

    def known_values(self, k: NDArray[np.int32]) -> NDArray[np.bool_]:
        _, c, m, known = self._of(k)
        return (np.repeat(c[:, None] > 0, m.shape[1], 1) if known is None else known > 0)[None]

    def _of(self, k: NDArray[np.int32]) -> Vectors:
        """The neurons k (1, batch)."""
        chosen, at = np.unique(k[0].astype(np.int64), return_inverse=True)
        return self._fetch(chosen).some(at)

    def pyramid_evidence(self, evidence: Patches, scales: Sequence[Tiling]) -> NDArray[np.float64]:
        """In two rounds: first the weights of all neurons, then the evidence that they are compared with."""
        many, shared = int(self.grown[0]) - int(self.neurons.free[0]), self.shards.share(evidence)
        weights = np.stack(self.shards.query_all(NAME, "weights", shared, scales, many))
        asked = {}
        for s in range(len(self.shards)):
            others = np.logaddexp.reduce(np.delete(weights, s, 0), axis=0, initial=-np.inf)
            asked[s] = (NAME, "block_evidence", shared, scales, many, others)
        return self._everywhere(evidence, self.shards.query(asked).values())

    def _everywhere(
        self, evidence: Patches, found: Iterable[tuple[Indices, NDArray[np.float64]]]
    ) -> NDArray[np.float64]:
        """The answers of all shards, in the order of neurons: (1, batch, neurons)."""
        every = np.full((1, evidence.x.shape[1], self.neurons.most), -np.inf)
        for number, part in found:
            every[0, :, number] = part.T
        return every

    # -- persistence ---------------------------------------------------------------------------------------------

    def shard_states(self) -> Iterator[State]:
        for s in range(len(self.shards)):
            found: State = self.shards.query({s: (NAME, "state")})[s]
            c = found.pop("c")
            if self.holes and "known" not in found:
                found["known"] = np.repeat(c[:, None], self.tiling.size, 1).astype(np.int32)
            yield found

    def state(self) -> State:
        return joined(self.shard_states(), int(self.grown[0]), self.tiling.size, self.holes)

    def restore(self, state: State, values: int) -> None:  # noqa: ARG002
        self.holes, total = "known" in state, int(self.grown[0])
        if len(state["prototypes"]) != total:
            raise ValueError(f"prototypes of shape {state['prototypes'].shape} for {total} neurons")
        c = self.neurons.c[0]
        for now in batches(total, max(1, MESSAGE // (4 * self.tiling.size))):
            some: State = {name: array[now] for name, array in state.items() if name in ("prototypes", "known")}
            check_prototypes({**some, "c": c[now]}, self.tiling.size, self.options.centre)
            self._put(Vectors(np.arange(now.start, now.stop), c[now], some["prototypes"], some.get("known")))


def _by_shard(owner: NDArray[np.int16]) -> dict[int, Indices]:
    """Where each of the owners is."""
    return {s: np.flatnonzero(owner == s) for s in np.unique(owner).tolist()}


def _repeated(best: Indices, samples: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of some samples share their best neuron with another one, so that it may have changed when they come."""
    _, at, many = np.unique(np.where(samples, best, NONE), return_inverse=True, return_counts=True)
    return np.asarray((many[at] > 1) & samples)


def _cut(evidence: Patches) -> list[Patches]:
    """Parts of a chunk."""
    return [each_array(evidence, itemgetter((slice(None), part))) for part in batches(evidence.x.shape[1], PART)]
