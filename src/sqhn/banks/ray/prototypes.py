"""A memory node whose neurons are on several shards, each a `Piece`; the driver takes all decisions.

A part of a chunk of samples goes to all pieces, which answer with their best neurons. The driver builds a small bank of
the candidates and of all other neurons that a step can change, and this bank learns the part as one bank of all neurons
would, provided that no neuron outside it can win. Upper bounds from the pieces verify that afterwards; neurons that
could have won are added, and the part is learned again. Then the written neurons go to the pieces.

Meanwhile the pieces evaluate the next part with their old neurons: the neurons just written are in the next small bank.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, wraps
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from sqhn.banks.cpu.device import Cpu
from sqhn.banks.cpu.evidence import Elsewhere
from sqhn.banks.cpu.kernels.decision import NONE
from sqhn.banks.cpu.neurons import Neurons
from sqhn.banks.cpu.prototypes import Prototypes
from sqhn.banks.interface import Device, Learned, Patches, State
from sqhn.banks.ray.neighbours import NAME, Neighbours, Question
from sqhn.banks.ray.piece import Indices, Piece, Vectors
from sqhn.banks.ray.shards import BUILD, Call, Shards, Shared
from sqhn.banks.rule import GREW, OVERWRITE, SKIPPED, rules
from sqhn.banks.saved import KINDS, check_prototypes, joined
from sqhn.inputs import batches
from sqhn.level import TIE, Level, Options
from sqhn.patches import Tiling

Answer = TypeVar("Answer")
NOBODY = 2**62
MESSAGE = 1 << 26
"""Bytes of prototypes in a message, where all of them travel."""
PART = 384
"""Samples that pieces look at together."""
AHEAD = 2
"""Parts that the pieces have received ahead; they need not know what the last part wrote."""
QUICK = 1 << 28
"""Values of all neurons up to which a chunk of several thousand samples is still short."""


LIMITING = threading.Lock()
"""Held by the thread that limits BLAS threads: a second thread would restore the limit as the previous setting."""


@cache
def controller() -> ThreadpoolController:
    """The controller of the BLAS threads of this process."""
    return ThreadpoolController()


def quietly(method: Callable[..., Answer]) -> Callable[..., Answer]:
    """Limit BLAS to one thread meanwhile: waiting threads spin, and pieces may need the same cores."""

    @wraps(method)
    def quiet(*args: Any) -> Answer:
        if not LIMITING.acquire(blocking=False):
            return method(*args)
        try:
            with controller().limit(limits=1, user_api="blas"):
                return method(*args)
        finally:
            LIMITING.release()

    return quiet


class Known(NamedTuple):
    """Neurons whose current vectors the driver has, by index."""

    number: Indices
    vectors: Vectors | None = None


NOBODY_FRESH = Known(np.zeros(0, np.int64))


class SplitPrototypes:
    """The prototypes of one node, in pieces; the driver keeps the statistics of all neurons."""

    nodes, top = 1, True

    def __init__(self, device: Device, shards: Shards, tiling: Tiling, level: Level, options: Options) -> None:
        self.device, self.shards, self.tiling, self.level, self.options = device, shards, tiling, level, options
        self.neurons = Neurons(1, level)
        self.rules = rules(level, options, top=True)
        self.owner = np.zeros(0, np.int16)  # the shard of every neuron
        self.holes = False
        self.fresh = NOBODY_FRESH  # written by the last part; pieces may not have these yet
        self.replaced: list[tuple[Any, ...]] = []  # old statistics, to undo the parts of a chunk
        self.rounds = 0  # how often a part of a chunk was rehearsed
        self.room = 0  # of every piece
        self.questions = count()  # their numbers
        shards.write_all(BUILD, NAME, Piece, tiling, level, options)

    @property
    def grown(self) -> NDArray[np.int64]:
        return self.neurons.grown

    def chunk_size(self, limit: int) -> int:
        """Longer where learning is quick, because pieces are idle during the last part of a chunk."""
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
        """Pieces grow as far as they are told."""
        self.level = self.neurons.level = level
        self.rules = self.rules._replace(capacity=level.capacity)

    def settle(self) -> None:
        """All writes have arrived: those who only ask need not wait for any."""
        self.shards.wait_for_writes(range(len(self.shards)))

    # -- learning ------------------------------------------------------------------------------------------------

    @quietly
    def learn(self, evidence: Patches) -> Learned:
        cut, done = _cut(evidence), []
        asked, before = deque(self._look(part, 1) for part in cut[:AHEAD]), self.shards.set_savepoint()
        try:
            for i, now in enumerate(cut):
                question = asked.popleft()
                everybody = Neighbours(self.shards, question, self.shards.gather(question.asked), self.fresh.number)
                done.append(self._learn_part(now, everybody))
                if i + AHEAD < len(cut):
                    asked.append(self._look(cut[i + AHEAD], 1))
        except BaseException:
            self._take_back()
            self.shards.roll_back(before)
            raise
        finally:
            self.shards.savepoint, self.replaced, self.fresh = None, [], NOBODY_FRESH
        sent = Learned(*(np.concatenate(field, 1) for field in zip(*(sent.fields for sent in done))))
        return sent._replace(heard=None if evidence.seen is None else evidence.seen.any(axis=2))

    def _look(self, evidence: Patches, count: int) -> Question:
        """Show samples to all pieces, and let them look for their best."""
        shared, number = self.shards.share(evidence), next(self.questions)
        asked = self.shards.submit(dict.fromkeys(range(len(self.shards)), (NAME, "near", shared, count, number)))
        blank = () if evidence.seen is None else np.flatnonzero(~evidence.seen[0].any(axis=1))
        return Question(number, shared, count, np.array(blank, np.int64), asked)

    def _learn_part(self, evidence: Patches, everybody: Neighbours) -> Learned:
        batch, (best, value) = evidence.x.shape[1], everybody.winner()
        aloof = self._aloof(everybody, best)
        chosen = np.union1d(self._changeable(batch), everybody.known(_repeated(best, ~aloof)))
        chosen = np.union1d(chosen, everybody.reaching(everybody.top, ~aloof))
        chosen, here = np.union1d(chosen, self.fresh.number), self.fresh
        while True:
            here = Known(chosen, self._fetch(chosen, here))
            local = self._rehearsal(here, batch)
            sent = local.learn(evidence)
            self.rounds += 1
            score, before = sent.score[0], len(chosen)
            known = np.append(chosen, NOBODY)[np.minimum(sent.k[0], before)]
            aloof &= ~np.isin(best, known[sent.kind[0] != SKIPPED])  # who is their best was not written
            settled = aloof & (score < everybody.top - 2 * TIE)
            aloof &= settled | (score > everybody.top + 2 * TIE)
            winner = np.where(sent.kind[0] < GREW, known, NOBODY)  # of those that became neurons, it is not told
            further = True
            while further and len(chosen) == before:
                further = everybody.query_further(score, winner, ~settled)
                chosen = np.union1d(chosen, everybody.reaching(score, ~settled))
            if len(chosen) == before:
                break
        score[settled] = value[settled]
        return self._commit(local, chosen, sent, batch, everybody.question.shared, everybody.blank)

    def _aloof(self, everybody: Neighbours, best: Indices) -> NDArray[np.bool_]:
        """Samples that resemble nothing so far: whatever happens, the neurons that are there stay as they are."""
        batch = len(everybody.k)
        if int(self.grown[0]) - int(self.neurons.free[0]) + batch > self.level.capacity:
            return np.zeros(batch, bool)
        eps = self.level.threshold(np.arange(self.neurons.step, self.neurons.step + batch))
        aloof = (everybody.top < eps - 2 * TIE) & ~everybody.open(everybody.top, best).any(axis=0)
        aloof[everybody.blank] = False
        return np.asarray(aloof)

    def _changeable(self, batch: int) -> Indices:
        """Neurons that steps may change though they do not win: free places, those to be replaced."""
        neurons, grown = self.neurons, int(self.grown[0])
        c, written = neurons.c[0, :grown], neurons.written[0, :grown]
        found = [np.zeros(0, np.int64)]
        if neurons.free[0]:
            found.append(np.flatnonzero(c == 0)[:batch])
        if self.rules.when_full >= OVERWRITE and grown + batch > self.level.capacity:
            living = np.flatnonzero(c > 0)
            order = (written[living], c[living]) if self.rules.when_full == OVERWRITE else (written[living],)
            found.append(living[np.lexsort((living, *order))[:batch]])
        return np.unique(np.concatenate(found))

    def _rehearsal(self, here: Known, batch: int) -> Prototypes:
        """A bank of some neurons alone, in their order, with as much room to grow as there is."""
        (chosen, vectors), own = here, self.neurons
        assert vectors is not None
        n = len(chosen)
        level = replace(self.level, capacity=max(1, n + self.level.capacity - int(self.grown[0])))
        local = Prototypes(Cpu(), self.tiling, level, self.options, top=True)
        local.reserve(n + batch)
        local.neurons.steps[0] = own.step
        living = own.c[0, chosen] > 0
        local.put(np.flatnonzero(living), *(vectors if living.all() else vectors.some(np.flatnonzero(living))))
        local.neurons.grown[0] = n
        if not living.all():
            local.forget(np.flatnonzero(~living))
        for name in ("mu", "written"):
            getattr(local.neurons, name)[0, :n] = getattr(own, name)[0, chosen]
        return local

    def _fetch(self, j: Indices, here: Known | None = None) -> Vectors:
        """Neurons, from wherever they are.

        here: some that are known, among them all that pieces may be told of just now: then they are asked aside.
        """
        m = np.full((len(j), self.tiling.size), self.options.centre, np.float32)
        c, known = self.neurons.c[0, j], None
        there, at = _among(here.number if here else NOBODY_FRESH.number, j)
        own = [np.flatnonzero((self.owner[j] == s) & ~there & (c > 0)) for s in range(len(self.shards))]
        asked = {s: (NAME, "fetch", j[mine]) for s, mine in enumerate(own) if len(mine)}
        found = [(own[s], part) for s, part in self.shards.query(asked, bypass=here is not None).items()]
        if here and here.vectors is not None:
            found.append((np.flatnonzero(there), here.vectors.some(at[there])))
        for where, part in found:
            m[where] = part.m
            if part.known is not None:
                known = np.repeat(c[:, None], m.shape[1], 1).astype(np.int32) if known is None else known
                known[where] = part.known
        return Vectors(c, m, known)

    def _commit(
        self,
        local: Prototypes,
        chosen: Indices,
        sent: Learned,
        batch: int,
        shared: Shared | None = None,
        blank: Indices = NOBODY_FRESH.number,
    ) -> Learned:
        """Apply the results of the rehearsal; shared: the samples, if they have no missing values."""
        grown, n = int(self.grown[0]), len(chosen)
        number = np.concatenate([chosen, np.arange(grown, grown + int(local.grown[0]) - n)])
        wrote = np.unique(sent.k[0][sent.kind[0] != SKIPPED])
        known = None if local.known is None else local.known[0, wrote]
        vectors = Vectors(local.neurons.c[0, wrote], local.m[0, wrote], known)
        if shared is None or known is not None:
            self._put(number[wrote], vectors)
        else:  # neurons that were written once are their samples
            last = np.full(int(local.grown[0]), NONE)
            last[sent.k[0]] = np.arange(batch)
            new = (vectors.c == 1) & (sent.kind[0, last[wrote]] >= GREW)
            self._put(number[wrote], vectors, shared, np.where(new, last[wrote], NONE))
        self.fresh = Known(number[wrote], vectors)
        neurons = self.neurons
        kept = tuple(getattr(neurons, name)[0, number] for name in KINDS)
        self.replaced.append((number, kept, grown, int(neurons.free[0]), neurons.step, self.holes))
        neurons.free[0] += int(local.neurons.free[0]) - int((neurons.c[0, chosen] == 0).sum())
        for name in KINDS:
            getattr(neurons, name)[0, number] = getattr(local.neurons, name)[0, : len(number)]
        neurons.grown[0] = grown + len(number) - n
        neurons.steps[0] += batch
        self.holes = self.holes or sent.heard is not None
        k = np.append(number, NOBODY)[sent.k[0]]
        k[blank] = 0
        return sent._replace(k=k.astype(np.int32)[None])

    def _take_back(self) -> None:
        """Restore the statistics from before the learned parts of a chunk."""
        neurons = self.neurons
        for number, kept, grown, free, step, holes in reversed(self.replaced):
            for name, values in zip(KINDS, kept):
                getattr(neurons, name)[0, number] = values
            neurons.grown[0], neurons.free[0], neurons.steps[0], self.holes = grown, free, step, holes
        self.owner = self.owner[: int(neurons.grown[0])]

    def _put(self, j: Indices, vectors: Vectors, shared: Shared | None = None, rows: Indices | None = None) -> None:
        """Write neurons; new ones go to the shards with most room. rows: of which samples they are copies, or NONE."""
        new = j[j >= len(self.owner)]
        owner = np.concatenate([self.owner, _emptiest(self._loads(), len(new))])
        told: dict[int, Call] = {}
        for s in range(len(self.shards)):
            own = np.flatnonzero(owner[j] == s)
            if not len(own):
                continue
            if rows is None:
                told[s] = (NAME, "put", j[own], vectors.some(own))
            else:
                told[s] = (NAME, "put_copies", j[own], vectors.some(own[rows[own] == NONE]), shared, rows[own])
        self.shards.post(told)
        self.owner = owner

    def forget(self, j: NDArray[np.int64]) -> None:
        own = {s: j[self.owner[j] == s] for s in range(len(self.shards))}
        self.shards.write({s: (NAME, "forget", mine) for s, mine in own.items() if len(mine)})
        self.neurons.forget(j)

    def hold(self, evidence: Patches, k: NDArray[np.int32], wrote: NDArray[np.bool_]) -> None:
        chosen = k.astype(np.int64)
        local = self._rehearsal(Known(chosen, self._fetch(chosen)), 0)
        local.hold(evidence, np.zeros(1, np.int32), wrote)
        kind = np.full((1, 1), SKIPPED + bool(wrote[0]), np.int32)
        heard = None if evidence.seen is None else evidence.seen
        self._commit(local, chosen, Learned(np.zeros((1, 1), np.int32), None, None, kind, heard), evidence.x.shape[1])
        self.replaced, self.fresh = [], NOBODY_FRESH

    def store(self, evidence: Patches) -> None:
        batch = evidence.x.shape[1]
        new = np.arange(batch) + int(self.grown[0])
        vectors = Vectors(np.ones(batch, np.int64), evidence.x[0], None)
        self._put(new, vectors, self.shards.share(evidence), np.arange(batch))
        self.neurons.append(batch)

    # -- questions -----------------------------------------------------------------------------------------------

    def best(self, evidence: Patches) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        k, v = self.top_k(evidence, 1)
        return k[:, :, 0], v[:, :, 0]

    @quietly
    def top_k(self, evidence: Patches, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        cut = _cut(evidence)
        first = 0 if count == 1 else count  # one that is likely to be the best is enough, mostly
        done = [self._ranking(question, count) for question in [self._look(part, first) for part in cut]]
        return np.concatenate([k for k, _ in done], 1), np.concatenate([v for _, v in done], 1)

    def _ranking(self, question: Question, count: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        everybody = Neighbours(self.shards, question, self.shards.gather(question.asked))
        while True:
            k, v, top = everybody.top_k(count)
            winner = k[:, 0] if count == 1 else np.full(len(k), NOBODY)
            if not everybody.query_further(top[:, -1], winner, np.ones(len(k), bool)):
                return k.astype(np.int32)[None], v[None]

    def activity(self, evidence: Patches) -> NDArray[np.float64]:
        return self._everywhere(evidence, self.shards.query_all(NAME, "activity", self.shards.share(evidence)))

    def similarity(self, evidence: Patches, k: NDArray[np.int32]) -> NDArray[np.float64]:
        chosen, at = np.unique(k.astype(np.int64), return_inverse=True)
        local = self._rehearsal(Known(chosen, self._fetch(chosen)), 0)
        return local.similarity(evidence, at.reshape(k.shape).astype(np.int32))

    def vectors(self, k: NDArray[np.int32]) -> NDArray[np.float32]:
        return self._of(k).m[None]

    def known_values(self, k: NDArray[np.int32]) -> NDArray[np.bool_]:
        c, m, known = self._of(k)
        return (np.repeat(c[:, None] > 0, m.shape[1], 1) if known is None else known > 0)[None]

    def _of(self, k: NDArray[np.int32]) -> Vectors:
        """The neurons k (1, batch)."""
        chosen, at = np.unique(k[0].astype(np.int64), return_inverse=True)
        c, m, known = self._fetch(chosen)
        return Vectors(c, m, known).some(at)

    def pyramid_evidence(self, evidence: Patches, scales: Sequence[Tiling]) -> NDArray[np.float64]:
        """In two rounds: what a block shows is weighed against what it shows of all others."""
        many, shared = int(self.grown[0]) - int(self.neurons.free[0]), self.shards.share(evidence)
        weights = np.stack(self.shards.query_all(NAME, "weights", shared, scales, many))
        asked = {}
        for s in range(len(self.shards)):
            others = np.logaddexp.reduce(np.delete(weights, s, 0), axis=0, initial=-np.inf)
            asked[s] = (NAME, "block_evidence", shared, scales, Elsewhere(many, others))
        return self._everywhere(evidence, self.shards.query(asked).values())

    def _everywhere(
        self, evidence: Patches, found: Iterable[tuple[Indices, NDArray[np.float64]]]
    ) -> NDArray[np.float64]:
        """The answers of all pieces, in the order of neurons: (1, batch, neurons)."""
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
            vectors = Vectors(np.maximum(c[now], 1), some["prototypes"], some.get("known"))
            self._put(np.arange(now.start, now.stop), vectors)
        gone = np.flatnonzero(c[:total] == 0)
        own = {s: gone[self.owner[gone] == s] for s in range(len(self.shards))}
        self.shards.write({s: (NAME, "forget", mine) for s, mine in own.items() if len(mine)})


def _emptiest(loads: NDArray[np.int64], new: int) -> NDArray[np.int16]:
    """Where to put so many new neurons, one after another."""
    owner = np.empty(new, np.int16)
    for i in range(new):
        owner[i] = loads.argmin()
        loads[owner[i]] += 1
    return owner


def _repeated(best: Indices, samples: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of some samples, those whose best is that of another one too: it may have changed when they come."""
    _, at, many = np.unique(np.where(samples, best, NONE), return_inverse=True, return_counts=True)
    return np.asarray((many[at] > 1) & samples)


def _among(numbers: Indices, j: Indices) -> tuple[NDArray[np.bool_], Indices]:
    """Which of j are among sorted numbers, and where."""
    if not len(numbers):
        return np.zeros(len(j), bool), np.zeros(len(j), np.int64)
    at = np.minimum(np.searchsorted(numbers, j), len(numbers) - 1)
    return numbers[at] == j, at


def _cut(evidence: Patches) -> list[Patches]:
    """Parts of a chunk."""
    x, seen = evidence
    return [Patches(x[:, part], None if seen is None else seen[:, part]) for part in batches(x.shape[1], PART)]
