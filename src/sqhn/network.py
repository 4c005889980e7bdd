"""The SQHN: a tree of banks and the sweeps through it. Read it beside the paper.

Learning goes up once: level l at a step needs only level l - 1 at that step, so a chunk of samples is learned level by
level. Recall goes up and down once. Every node sends up its winner and how strongly it won.

Whoever calls, from whatever thread: samples are checked first, then a reader or a writer takes its turn (`turns`).
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, Never, Self, TypeVar

from numpy.typing import ArrayLike

from sqhn import io
from sqhn.banks.home import home
from sqhn.banks.neurons import Array, Codes, Patches, Sent
from sqhn.checks import as_shape, check_word
from sqhn.door import Given, as_samples
from sqhn.inference import Inference, Message, by_name
from sqhn.level import TIE, Level, Options, as_levels
from sqhn.memory import EmptyMemoryError, Recalled, Recognized, Score, Written
from sqhn.patches import plan
from sqhn.turns import Turns

__all__ = ["SQHN"]

Answer = TypeVar("Answer")

OWN = {"_input_shape", "_levels", "_options", "_tilings", "_home", "_chunk", "_turns", "_patterns", "_codes"}
"""The attributes of a memory; others are a subclass's."""


class SQHN:
    """An associative memory for arrays of shape `input_shape`.

    With `capacity` it has one level, the memory node; with `levels` it is a tree from the input up to the memory node.
    The other arguments are described in `Options`; their defaults are the paper's model.

    device: "cpu", or "cuda" for a GPU (extra `torch`; see `to`). Decisions and files are the same. Samples may be NumPy
        arrays or torch tensors, wherever they are; answers come as the question did.

    learn: O(capacity * values) per sample at each node; recall the same. Memory grows with what is stored.

    Threads may share a memory: see "What you can rely on" in the README.

    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).random((10, 8, 8))
    >>> memory = SQHN((8, 8), capacity=100)
    >>> memory.learn(pictures).grew.all()
    np.True_
    >>> half = np.broadcast_to(np.arange(8) < 4, (8, 8))
    >>> np.abs(memory.recall(pictures * half, observed=half).x - pictures).max() < 1e-6
    np.True_
    >>> memory.recognize(pictures[3]).old, memory.recognize(1 - pictures[3]).old
    (True, False)
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        levels: Sequence[Level] | None = None,
        *,
        capacity: int | None = None,
        similarity: Literal["shifted_cosine", "cosine"] = "shifted_cosine",
        hidden_similarity: Literal["cosine", "weighted_mean"] = "cosine",
        blend: float = 0.5,
        rho: float | None = None,
        propagation: Literal["argmax", "max"] = "argmax",
        mu: Literal["mean", "pseudocount"] = "mean",
        norm: Literal["all", "heard"] = "all",
        update_order: Literal["layerwise", "after"] = "layerwise",
        device: str = "cpu",
    ) -> None:
        self._input_shape = as_shape(input_shape)
        self._levels = as_levels(levels, capacity)
        self._options = Options(similarity, hidden_similarity, blend, rho, propagation, mu, norm, update_order)
        self._tilings = plan(self._input_shape, self._levels)
        self._home = home(device)
        self._chunk = self._home.chunk
        self._turns = Turns()
        self._begin()

    def _begin(self) -> None:
        first, *above = self._tilings
        seen = first.kernel + first.shape[len(first.kernel) :]
        self._patterns = self._home.patterns(first.nodes, seen, self.levels[0], self.options, top=not above)
        self._codes = [
            self._home.codes(tiling.children(), level, self.options, tiling is above[-1], below.capacity)
            for tiling, level, below in zip(above, self.levels[1:], self.levels)
        ]

    def reset(self) -> None:
        """Forget everything."""
        self._write(self._turns.whole, self._begin)

    def _read(self, question: Callable[..., Answer], *args: Any) -> Answer:
        """Ask while nothing changes."""
        with self._home.stream():
            return self._turns.read(question, *args)

    def _write(self, change: Callable[..., Answer], *args: Any) -> Answer:
        """Change something while nobody else does."""
        with self._home.stream():
            return self._turns.write(change, *args)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self._input_shape

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels, from the input up."""
        return self._levels

    @property
    def options(self) -> Options:
        """The choices that concern the whole network."""
        return self._options

    @property
    def rho(self) -> float:
        """The tolerance of `recognize`, which may be changed; None puts back what it is by default (see `Options`)."""
        if self._options.rho is not None:
            return self._options.rho
        return 0.99999 if len(self._levels) == 1 else 0.999

    @rho.setter
    def rho(self, rho: float | None) -> None:
        self._write(self._set_options, replace(self._options, rho=rho))

    def _set_options(self, options: Options) -> None:
        self._options = options

    @property
    def device(self) -> str:
        """Where the memory lives."""
        return self._home.name

    def to(self, device: str) -> Self:
        """The same memory on a device, "cpu" or "cuda": a copy, or the memory itself if it lives there already."""
        if device == self.device:
            return self
        home(device)  # before anything is copied
        other = type(self).__new__(type(self))
        other.__setstate__({**self.__getstate__(), "device": device})
        return other

    @property
    def banks(self) -> tuple[Any, ...]:
        """The banks of neurons, from level 1 up."""
        return (self._patterns, *self._codes)

    @property
    def _root(self) -> Any:
        return self._codes[-1] if self._codes else self._patterns

    def __len__(self) -> int:
        """How many neurons the memory node has grown."""
        return int(self._root.grown[0])

    @property
    def capacity(self) -> int:
        """The most neurons the memory node can grow."""
        return self.levels[-1].capacity

    @property
    def step(self) -> int:
        """How many samples were learned."""
        return int(self._root.neurons.step)

    def __repr__(self) -> str:
        levels = "1 level" if len(self.levels) == 1 else f"{len(self.levels)} levels"
        return f"SQHN({self.input_shape}, {levels}, {len(self)} of {self.capacity} neurons, step {self.step})"

    # -- learn ---------------------------------------------------------------------------------------------------

    def learn(self, x: ArrayLike, *others: Never, hold: bool = False, root_only: bool = False) -> Written:
        """Learn one sample, or a batch as if one after another.

        hold: the batch is samples of ONE thing: the first is learned, the others are averaged into what it wrote
            (the paper's SQHN+).
        root_only: only the memory node learns; the levels below it answer with what they know (see `pretrain`).
        """
        if others:
            raise TypeError(
                f"learn takes samples and nothing beside them, not even labels, but got {len(others) + 1} arguments; "
                "options go by name: learn(x, hold=True), learn(x, root_only=True)"
            )
        samples, single, _ = self._samples(x)
        if hold and single:
            raise ValueError(f"hold=True needs a batch of samples of one thing, of shape (n, {self._shape_text()})")
        if hold and root_only:
            raise ValueError("hold=True averages samples at level 1, and root_only=True leaves that as it is")
        sent, first = self._write(self._learn, samples, hold, root_only)
        step = first + 1 if single else self._home.give(self._home.count(first + 1, len(samples)), x)
        index, grew, score = self._results(x, single, sent.k[0], sent.grew[0], sent.score[0])
        return Written(index, grew, score, step)

    def pretrain(self, x: ArrayLike) -> None:
        """Learn with every level but the memory node, which can then be taught alone: `learn(x, root_only=True)`."""
        samples, _, _ = self._samples(x)
        if not self._codes:
            raise ValueError("a memory of one level has nothing below its memory node to pretrain")
        self._write(self._learn_each, samples, True, False)

    def _learn(self, samples: Array, hold: bool, root_only: bool) -> tuple[Sent, int]:
        """What the memory node did, and its step before that."""
        if root_only and not all(bank.grown.all() for bank in self.banks[:-1]):
            raise EmptyMemoryError("the levels below the memory node are empty: pretrain them first")
        first: int = self._root.neurons.step
        if hold:
            return self._turns.whole(self._learn_held, samples), first
        return self._learn_each(samples, below=not root_only, root=True), first

    def _learn_each(self, samples: Array, below: bool, root: bool) -> Sent:
        turn = self._turns.alone if self._home.at_once and not self._codes else self._turns.whole
        done: list[Sent] = []
        start = 0
        while start < len(samples):
            chunk = samples[start : start + min(bank.chunk_size(self._chunk) for bank in self.banks)]
            start += len(chunk)
            done.append(turn(self._learn_chunk, chunk, below, root, start == len(samples))[-1])
        return done[0] if len(done) == 1 else Sent(*(self._home.concatenate(field, 1) for field in zip(*done)))

    def _learn_chunk(self, samples: Array, below: bool = True, root: bool = True, last: bool = True) -> list[Sent]:
        """One chunk, level by level; all that can fail comes before the first change. last: of a call."""
        patches = self._split(samples)
        if not below and self._codes:
            codes = self._look(patches)
            self._codes[-1].reserve(len(samples), self.banks[-2].neurons.room)
            sent = [self._codes[-1].learn(codes)]
        else:
            self._reserve(len(samples))
            sent = [self._patterns.learn(patches)]
            for bank in self._codes if root else self._codes[:-1]:
                sent.append(bank.learn(Codes(sent[-1].k, sent[-1].v)))
        if last:
            self._settle()
        return sent

    def _settle(self) -> None:
        """Leave everything as those want it who only read."""
        for bank in self._codes:
            bank.settle()

    def _look(self, patches: Patches) -> Codes:
        """What the levels below the memory node tell it while they do not learn."""
        codes = Codes(*self._patterns.best(patches))
        for bank in self._codes[:-1]:
            codes = Codes(*bank.best(codes))
        return codes

    def _reserve(self, more: int) -> None:
        self._patterns.reserve(more)
        values = self._patterns.neurons.room
        for bank in self._codes:
            bank.reserve(more, values)
            values = bank.neurons.room

    def _learn_held(self, samples: Array) -> Sent:
        others = self._split(samples[1:])
        sent = self._learn_chunk(samples[:1], last=False)
        more = len(samples) - 1
        self._patterns.hold(others, sent[0].k[:, 0], sent[0].wrote[:, 0])
        for below, bank, own in zip(sent, self._codes, sent[1:]):
            bank.hold(Codes(below.k, below.v), more, own.k[:, 0], own.wrote[:, 0])
        self._settle()
        held = Sent(*(field[:, [0] * len(samples)] for field in sent[-1]))
        held.grew[:, 1:] = False
        return held

    def memorize(self, x: ArrayLike) -> None:
        """Give every sample of a batch a neuron of its own in every node, at once, without asking whether it is new.

        For comparisons with memories that are loaded, not taught; a stream is for `learn`.
        """
        samples, single, _ = self._samples(x)
        if single:
            raise ValueError(f"memorize needs a batch of shape (n, {self._shape_text()}); got {self.input_shape}")
        self._write(self._turns.whole, self._memorize, samples)

    def _memorize(self, samples: Array) -> None:
        for number, bank in enumerate(self.banks, start=1):
            free = bank.level.capacity - int(bank.grown.max())
            if len(samples) > free:
                raise ValueError(f"level {number} has room for {free} more neurons; got {len(samples)} samples")
        patches = self._split(samples)
        self._reserve(len(samples))
        self._patterns.store(patches)
        k, _ = self._patterns.best(patches)
        for bank in self._codes:
            codes = Codes(k, self._home.full(k.shape, 1.0))
            bank.store(codes)
            k, _ = bank.best(codes)
        self._settle()

    def _split(self, samples: Array, seen: Array = None) -> Patches:
        at, split = self._home, self._tilings[0].split
        return Patches(at.own(split(at.values(samples))), None if seen is None else at.own(split(at.bring(seen))))

    # -- recall --------------------------------------------------------------------------------------------------

    def recall(
        self, x: ArrayLike, observed: ArrayLike | None = None, *, inference: str | Inference = "paper"
    ) -> Recalled:
        """The stored sample that x reminds of, with missing and corrupted values filled in.

        observed: True where a value was seen; of x's shape, or of one sample's shape for all. Values elsewhere are
            ignored, whatever they are, and so are masked values of a masked array.
        inference: "paper" (score: activity of the memory node's winner), "feedforward" (the same without the way
            down) or "exact", the true maximum of the energy (score: that energy).
        """
        rule = by_name(inference)
        samples, single, seen = self._samples(x, observed, holes=True)
        if seen is not None and len(blank := (~seen.any(axis=tuple(range(1, seen.ndim)))).nonzero()[0]):
            warnings.warn(
                f"nothing at all was observed of {len(blank)} of {len(seen)} samples (the first is {blank[0]}): "
                "they remind of nothing, and what is recalled for them means nothing",
                stacklevel=2,
            )
        found, index, score = self._read(self._recall, samples, seen, rule)
        picture = self._home.give(found[0] if single else found, x)
        return Recalled(picture, *self._results(x, single, index, score))

    def _recall(self, samples: Array, seen: Array, rule: Inference) -> list[Array]:
        parts = []
        for patches in self._questions(samples, seen, rule):
            messages = self._up(patches, rule)
            k = self._down(messages, rule)
            found = self._tilings[0].join(self._patterns.vectors(k[0]))
            parts.append((found, k[-1][0], rule.score(messages[-1], self._terms)))
        return self._together(parts)

    def _up(self, patches: Patches, rule: Inference) -> list[Message]:
        """The feed-forward sweep: what each level found."""
        messages = [rule.look(self._patterns, patches)]
        for bank in self._codes:
            messages.append(rule.up(bank, messages[-1]))
        return messages

    def _down(self, messages: list[Message], rule: Inference) -> list[Array]:
        """The feedback sweep: the value of every node, level by level."""
        k = [messages[-1].k]
        blend = rule.blend(self.options.blend)
        for parent, bank, message in zip(reversed(self._codes), self.banks[-2::-1], messages[-2::-1]):
            if blend == 1:
                k.insert(0, message.k)  # nobody listens to parents
                continue
            support = parent.support(k[0])
            k.insert(0, bank.choose(message.k, message.value, support, rule.at(bank, message, support), blend))
        return k

    # -- energy and recognition ----------------------------------------------------------------------------------

    @property
    def _terms(self) -> int:
        """The number of terms of the energy: nodes of level 1, plus hidden nodes other than the root."""
        return self._tilings[0].nodes + sum(tiling.nodes for tiling in self._tilings) - 1

    def energy(
        self,
        x: ArrayLike,
        *,
        inference: str | Inference = "paper",
        visible: Literal["similarity", "bernoulli_mean"] = "similarity",
    ) -> Score:
        """The energy of the recalled state, in [0, 1]: how well the tree explains x.

        visible: what an input patch adds: its "similarity" to the prototype, or "bernoulli_mean", the mean likelihood
            of its values as those of binary pixels.
        """
        rule = by_name(inference)
        check_word("visible", visible, ("similarity", "bernoulli_mean"))
        samples, single, _ = self._samples(x)
        energy: Score = self._results(x, single, *self._read(self._energies, samples, rule, visible))[0]
        return energy

    def _energies(self, samples: Array, rule: Inference, visible: str) -> list[Array]:
        parts = []
        for patches in self._questions(samples, None, rule):
            k = self._down(self._up(patches, rule), rule)
            parts.append((self._energy(patches, k, visible),))
        return self._together(parts)

    def _energy(self, patches: Patches, k: list[Array], visible: str) -> Array:
        """E of the values k, for every sample."""
        if visible == "similarity":
            seen = self._patterns.similarity(patches, k[0])
        else:
            seen = self._patterns.likelihood(patches, k[0])
        total = seen.sum(axis=0)
        for bank, own, below in zip(self._codes, k[1:], k):
            total += bank.probability(own, below).sum(axis=0)
        return total / self._terms

    def recognize(self, x: ArrayLike) -> Recognized:
        """Was this sample learned before? Old iff the memory node's best match reaches rho times its mean activity."""
        samples, single, _ = self._samples(x)
        return Recognized(*self._results(x, single, *self._read(self._recognize, samples)))

    def _recognize(self, samples: Array) -> tuple[Array, Array, Array]:
        parts = []
        for patches in self._parts(samples, None, self._chunk) if len(self) else ():
            k, h = self._patterns.best(patches)
            for bank in self._codes:
                strength = (abs(h) > TIE) + 0 * h if self.options.propagation == "argmax" else h
                k, h = bank.best(Codes(k, strength))
            parts.append((h[0], self.rho * self._root.neurons.mu[0, k[0]]))
        never = (self._home.full((len(samples),), -math.inf), self._home.full((len(samples),), self.rho))
        score, threshold = self._together(parts) if parts else never
        return score >= threshold - TIE, score, threshold

    # -- doors ---------------------------------------------------------------------------------------------------

    def _samples(self, x: ArrayLike, observed: ArrayLike | None = None, holes: bool = False) -> Given:
        """Checked samples (holes: values may be masked)."""
        return as_samples(x, self.input_shape, observed, tensors=self._home.tensors, holes=holes)

    def _questions(self, samples: Array, seen: Array, rule: Inference) -> Iterator[Patches]:
        """The parts of a question that an empty memory cannot answer."""
        if not len(self):
            raise EmptyMemoryError("this memory is empty: learn something before asking it")
        return self._parts(samples, seen, rule.samples * self._home.breadth)

    def _parts(self, samples: Array, seen: Array, size: int) -> Iterator[Patches]:
        """A batch in parts of `size` samples, cut into patches."""
        for start in range(0, len(samples), size):
            part = slice(start, start + size)
            yield self._split(samples[part], None if seen is None else seen[part])

    def _together(self, parts: list[tuple[Array, ...]]) -> list[Array]:
        """What the parts of a batch gave, each field for the whole batch."""
        if len(parts) == 1:
            return list(parts[0])
        return [self._home.concatenate(field, 0) for field in zip(*parts)]

    def _results(self, x: object, single: bool, *fields: Array) -> tuple[Any, ...]:
        """Arrays for a batch, as the one who asked with x expects them; plain Python values for one sample."""
        return tuple(field[0].item() if single else self._home.give(field, x) for field in fields)

    def _shape_text(self) -> str:
        return ", ".join(map(str, self.input_shape))

    # -- persistence ---------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the memory to a file, atomically: on any failure an old file of that name is as it was."""
        io.save(path, *self._parts_of_state())

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "cpu") -> Self:
        """Read a memory, whatever device it was saved from; it continues exactly where the saved one stopped.

        Of a subclass its own `__init__` is not called.
        """
        home(device)  # one that cannot be used is no fault of the file
        memory = cls.__new__(cls)
        io.load(path, lambda header, tensors: memory._become(header, tensors, device))
        return memory

    def _parts_of_state(self) -> tuple[io.Header, io.Tensors]:
        """Copies of all that a memory is, in one state."""
        return self._read(io.parts, self)

    def _become(self, header: io.Header, tensors: io.Tensors, device: str) -> None:
        """Be the memory that a header and arrays describe."""
        input_shape, levels, options = io.settings(header)
        SQHN.__init__(self, input_shape, levels, **options, device=device)
        with self._home.stream():
            io.fill(self.banks, header, tensors)

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and copies: the memory in one state, and what a subclass has besides."""
        header, tensors = self._parts_of_state()
        more = {name: value for name, value in vars(self).items() if name not in OWN}
        return {"device": self.device, "header": header, "tensors": tensors, "more": more}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._become(state["header"], state["tensors"], state["device"])
        vars(self).update(state["more"])
