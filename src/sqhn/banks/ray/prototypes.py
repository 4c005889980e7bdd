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
from collections.abc import Iterator, Sequence
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
from sqhn.banks.interface import Learned, Patches, State, Support
from sqhn.banks.neurons import Neurons
from sqhn.banks.ray.piece import Indices, Piece, Vectors
from sqhn.banks.ray.search import NAME, Search
from sqhn.banks.ray.shards import BUILD, Call, Shared, each_array
from sqhn.banks.rule import GREW, SKIPPED
from sqhn.banks.saved import KINDS, check_prototypes, joined, known_of, part_of, prototypes_of
from sqhn.inputs import batches
from sqhn.level import REPLACING, TIE, Level, Options
from sqhn.patches import Tiling

if TYPE_CHECKING:
    from sqhn.banks.ray.device import Sharded

NO_INDEX = 2**62
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
def single_blas_thread() -> Iterator[None]:
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
        self.device, self.shards, self.tiling, self.level, self.options = device, device.start(), tiling, level, options
        self.neurons = Neurons(1, level, top=True)
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
        return limit * max(1, min(4, QUICK // max(1, self.neurons.most * self.tiling.size)))

    def reserve(self, more: int) -> None:
        need = -(-min(self.neurons.most + more, self.level.capacity) // len(self.shards))
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

    @single_blas_thread()
    def learn(self, evidence: Patches) -> Learned:
        parts, done = _parts(evidence), []
        searches = (Search(self.shards, part, 1) for part in parts)
        begun = deque(islice(searches, AHEAD))
        try:
            with self.shards.all_or_none():
                for part in parts:
                    done.append(self._learn_part(part, begun.popleft()))
                    begun.extend(islice(searches, 1))
        except BaseException:
            self._undo()
            raise
        finally:
            self.replaced, self.fresh = [], NO_NEURONS
        return Learned(*(np.concatenate(field, 1) for field in zip(*done)))

    def _learn_part(self, evidence: Patches, search: Search) -> Learned:
        """Learn some samples in a local bank; again with more neurons, while one that it lacks may have won."""
        search.wait(self.fresh.j)
        batch, vectors = evidence.x.shape[1], self.fresh
        k, v = search.top_k(1)
        best, match = k[:, 0], v[:, 0]
        novel = self._novel(search, best)
        candidates = search.reaching(_repeated(best, ~novel)), search.reaching(~novel, search.top)
        chosen = np.unique(np.concatenate([self._changeable(batch), *candidates, vectors.j]))
        while True:
            vectors = self._fetch(chosen, vectors)
            local = self._local_bank(vectors, batch)
            learned = local.learn(evidence)
            score, count = learned.score[0], len(chosen)
            index = np.append(chosen, NO_INDEX)[np.minimum(learned.k[0], count)]  # none of neurons that grew here
            # A novel sample matches its best neuron as before, unless that was written or a local one is better.
            novel &= ~np.isin(best, index[learned.kind[0] != SKIPPED])
            settled = novel & (score < search.top - 2 * TIE)
            novel &= settled | (score > search.top + 2 * TIE)
            winner = np.where(learned.kind[0] < GREW, index, NO_INDEX)
            further = True
            while further and len(chosen) == count:
                further = search.extend(score, winner, ~settled)
                chosen = np.union1d(chosen, search.reaching(~settled, score))
            if len(chosen) == count:
                break
        score[settled] = match[settled]
        return self._commit(local, chosen, learned, search.samples)

    def _novel(self, search: Search, best: Indices) -> NDArray[np.bool_]:
        """Samples that are like no neuron, so that they grow new ones and leave the others as they are."""
        batch = len(search.k)
        if self._living + batch > self.level.capacity:
            return np.zeros(batch, bool)
        eps = self.level.threshold(np.arange(self.neurons.step, self.neurons.step + batch))
        return np.asarray((search.top < eps - 2 * TIE) & ~search.open(search.top, best).any(axis=0))

    def _changeable(self, batch: int) -> Indices:
        """Neurons that steps may change though they do not win: free places, those to be replaced."""
        neurons, grown = self.neurons, self.neurons.most
        c, written = neurons.c[0, :grown], neurons.written[0, :grown]
        found = [np.zeros(0, np.int64)]
        if neurons.free[0]:
            found.append(np.flatnonzero(c == 0)[:batch])
        if self.level.when_full in REPLACING and grown + batch > self.level.capacity:
            living = np.flatnonzero(c > 0)
            order = (written[living], c[living]) if self.level.when_full == "overwrite" else (written[living],)
            found.append(living[np.lexsort((living, *order))[:batch]])
        return np.concatenate(found)

    def _local_bank(self, vectors: Vectors, batch: int) -> Prototypes:
        """A bank of some neurons alone, in their order, with as much room to grow as there is."""
        own, n = self.neurons, len(vectors.j)
        level = replace(self.level, capacity=max(1, n + self.level.capacity - own.most))
        local = Prototypes(Cpu(), self.tiling, level, self.options, top=True)
        local.reserve(n + batch)
        local.put(np.arange(n), *vectors[1:])
        local.neurons.steps[0], local.neurons.free[0] = own.step, (vectors.c == 0).sum()
        for name in ("mu", "written"):
            getattr(local.neurons, name)[0, :n] = getattr(own, name)[0, vectors.j]
        return local

    def _fetch(self, j: Indices, here: Vectors | None = None) -> Vectors:
        """Neurons, from the shards.

        here: some that the driver has, among them all that it may just be writing, so that queries can bypass writes.
        """
        m = np.full((len(j), self.tiling.size), self.options.centre, np.float32)
        c, known, bypass = self.neurons.c[0, j], None, here is not None
        here = here or NO_NEURONS
        at = np.searchsorted(here.j, j)
        there = np.append(here.j, NO_INDEX)[at] == j
        missing = np.flatnonzero(~there & (c > 0))
        asked = {s: missing[own] for s, own in _by_shard(self.owner[j[missing]]).items()}
        query = {s: (NAME, "fetch", j[own]) for s, own in asked.items()}
        found = [(asked[s], part) for s, part in self.shards.query(query, bypass).items()]
        for where, (its_m, its_known) in [*found, (np.flatnonzero(there), here.some(at[there])[2:])]:
            m[where] = its_m
            if its_known is not None:
                known = np.repeat(c[:, None], m.shape[1], 1).astype(np.int32) if known is None else known
                known[where] = its_known
        return Vectors(j, c, m, known)

    def _commit(self, local: Prototypes, chosen: Indices, learned: Learned, samples: Shared | None = None) -> Learned:
        """Apply the results of a local bank; samples: of the search, if shards may take prototypes from them."""
        grown, n = int(self.grown[0]), len(chosen)
        number = np.concatenate([chosen, np.arange(grown, grown + int(local.grown[0]) - n)])
        wrote = np.unique(learned.k[0][learned.kind[0] != SKIPPED])
        known = None if local.known is None else local.known[0, wrote]
        vectors = Vectors(number[wrote], local.neurons.c[0, wrote], local.rows.of(0, wrote), known)
        if samples is None or known is not None:
            self._put(vectors)
        else:  # neurons that were written once are their samples
            last = np.full(int(local.grown[0]), NONE)
            last[learned.k[0]] = np.arange(learned.k.shape[1])
            new = (vectors.c == 1) & (learned.kind[0, last[wrote]] >= GREW)
            self._put(vectors, samples, np.where(new, last[wrote], NONE))
        self.fresh = vectors
        neurons = self.neurons
        before = tuple(getattr(neurons, name)[0, number] for name in KINDS)
        self.replaced.append((number, before, grown, int(neurons.free[0]), neurons.step, self.holes))
        neurons.free[0] += int(local.neurons.free[0]) - int((neurons.c[0, chosen] == 0).sum())
        for name in KINDS:
            getattr(neurons, name)[0, number] = getattr(local.neurons, name)[0, : len(number)]
        neurons.grown[0] = grown + len(number) - n
        neurons.steps[0] = local.neurons.step
        self.holes = self.holes or local.holes
        return learned._replace(k=number[learned.k].astype(np.int32))

    def _undo(self) -> None:
        """Restore the statistics from before the learned parts of a chunk."""
        neurons = self.neurons
        for number, before, grown, free, step, holes in reversed(self.replaced):
            for name, values in zip(KINDS, before):
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
        writes: dict[int, Call] = {}
        for s, own in _by_shard(owner[j]).items():
            if samples is None:
                writes[s] = NAME, "put", vectors.some(own)
            else:
                writes[s] = NAME, "put_copies", j[own], vectors.some(own[rows[own] == NONE]), samples, rows[own]
        self.shards.post(writes)
        self.owner = owner

    def forget(self, j: NDArray[np.int64]) -> None:
        self.shards.write({s: (NAME, "forget", j[own]) for s, own in _by_shard(self.owner[j]).items()})
        self.neurons.forget(j)

    def hold(self, evidence: Patches, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        chosen = k[0, :1].astype(np.int64)  # the same for all samples
        local = self._local_bank(self._fetch(chosen), 0)
        local.hold(evidence, np.zeros_like(k), wrote)
        kind = np.full((1, 1), SKIPPED + bool(wrote[0, 0]), np.int32)
        self._commit(local, chosen, Learned(np.zeros((1, 1), np.int32), None, None, kind))
        self.replaced, self.fresh = [], NO_NEURONS

    def store(self, evidence: Patches) -> None:
        batch = evidence.x.shape[1]
        new = np.arange(batch) + self.neurons.most
        vectors = Vectors(new, np.ones(batch, np.int64), evidence.x[0], None)
        self._put(vectors, self.shards.share(evidence), np.arange(batch))
        self.neurons.append(batch)

    # -- questions -----------------------------------------------------------------------------------------------

    @single_blas_thread()
    def top_k(self, evidence: Patches, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        first = 0 if count == 1 else count  # one that is likely to be the best is enough, mostly
        searches = [Search(self.shards, part, first) for part in _parts(evidence)]
        k, v = (np.concatenate(field) for field in zip(*(self._ranking(search, count) for search in searches)))
        return k.astype(np.int32)[None], v[None]

    @staticmethod
    def _ranking(search: Search, count: int) -> tuple[Indices, NDArray[np.float64]]:
        """The best neurons and their similarities, (batch, count), once no shard can have a better one."""
        search.wait(NO_NEURONS.j)
        while True:
            k, v = search.top_k(count)
            score, winner = (search.top, k[:, 0]) if count == 1 else (v[:, -1], np.full(len(k), NO_INDEX))
            if not search.extend(score, winner, np.ones(len(k), bool)):
                return k, v

    def activity(self, evidence: Patches) -> NDArray[np.float64]:
        return self._everywhere(evidence, self._inhabited(NAME, "activity", self.shards.share(evidence)))

    def at(self, evidence: Patches, support: Support) -> NDArray[np.float64]:
        chosen, value = np.unique(support.value, return_inverse=True)
        local = self._local_bank(self._fetch(chosen.astype(np.int64)), 0)
        return local.at(evidence, Support(support.start, value.astype(np.int32), None))

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
        """In two rounds: first the totals of all neurons, then the evidence, which is relative to them."""
        query = self.shards.share(evidence), scales, self._living
        found = self.shards.query(self._inhabited(NAME, "totals", *query))
        totals = np.logaddexp.reduce([*found.values()], axis=0)
        return self._everywhere(evidence, self._inhabited(NAME, "block_evidence", *query, self.shards.share(totals)))

    def _everywhere(self, evidence: Patches, queries: dict[int, Call]) -> NDArray[np.float64]:
        """The answers of shards for each of their neurons, in the order of all neurons: (1, batch, neurons)."""
        every = np.full((1, evidence.x.shape[1], self.neurons.most), -np.inf)
        for number, part in self.shards.query(queries).values():
            every[0, :, number] = part.T
        return every

    @property
    def _living(self) -> int:
        """How many neurons there are, without forgotten ones."""
        return self.neurons.most - int(self.neurons.free[0])

    def _inhabited(self, *call: Any) -> dict[int, Call]:
        """A call for every shard that has neurons other than forgotten ones."""
        return dict.fromkeys(np.unique(self.owner[self.neurons.c[0, : self.neurons.most] > 0]).tolist(), call)

    # -- persistence ---------------------------------------------------------------------------------------------

    def shard_states(self) -> Iterator[State]:
        for s in range(len(self.shards)):
            found: State = self.shards.query({s: (NAME, "state")})[s]
            if self.holes:
                found["known"] = known_of(found, self.tiling.size).astype(np.int32)
            del found["c"]
            yield found

    def state(self) -> State:
        return joined(self.shard_states(), self.neurons.most, self.tiling.size, self.holes)

    def restore(self, state: State, values: int) -> None:  # noqa: ARG002
        self.holes, total = "known" in state, self.neurons.most
        c = self.neurons.c[0]
        for now in batches(total, max(1, MESSAGE // (4 * self.tiling.size))):
            some = {**part_of(state, now), "c": c[now]}
            check_prototypes(some, self.tiling.size, self.options.centre)
            m = prototypes_of(some, self.options.centre)
            self._put(Vectors(np.arange(now.start, now.stop), c[now], m, some.get("known")))


def _by_shard(owner: NDArray[np.int16]) -> dict[int, Indices]:
    """Where each of the owners is."""
    return {s: np.flatnonzero(owner == s) for s in np.unique(owner).tolist()}


def _repeated(best: Indices, samples: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of some samples share their best neuron with another one, so that it may have changed when they come."""
    _, at, many = np.unique(np.where(samples, best, NONE), return_inverse=True, return_counts=True)
    return np.asarray((many[at] > 1) & samples)


def _parts(evidence: Patches) -> list[Patches]:
    """Parts of a batch, which shards compare at once."""
    return [each_array(evidence, itemgetter((slice(None), part))) for part in batches(evidence.x.shape[1], PART)]
