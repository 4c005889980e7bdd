"""The SQHN: a tree of banks and the sweeps through it. Read it beside the paper.

Learning goes up once: level l at a step needs only level l - 1 at that step, so a chunk of samples is learned level by
level. Recall goes up and down once. Every node sends up its winner and how strongly it won.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Literal, Self

from numpy.typing import ArrayLike

from sqhn import io
from sqhn.banks.home import home
from sqhn.banks.neurons import Array, Codes, Patches, Sent
from sqhn.inference import Inference, Message, by_name
from sqhn.interrupt import deferred
from sqhn.level import TIE, Level, Options, check_word
from sqhn.memory import EmptyMemoryError, Recalled, Recognized, Score, Written
from sqhn.patches import plan
from sqhn.validate import as_levels, as_samples, as_shape

__all__ = ["SQHN"]


class SQHN:
    """An associative memory for arrays of shape `input_shape`.

    With `capacity` it has one level, the memory node; with `levels` it is a tree from the input up to the memory node.
    The other arguments are described in `Options`; their defaults are the paper's model.

    device: "cpu", or "cuda" for a GPU (extra `torch`; see `to`). Decisions and files are the same. Samples may be NumPy
        arrays or torch tensors, wherever they are; answers come as the question did.

    learn: O(capacity * values) per sample at each node; recall the same. Memory grows with what is stored.

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
        self.input_shape = as_shape(input_shape)
        self.levels = as_levels(levels, capacity)
        self.options = Options(similarity, hidden_similarity, blend, rho, propagation, mu, norm, update_order)
        by_depth = 0.99999 if len(self.levels) == 1 else 0.999
        self.rho = by_depth if self.options.rho is None else self.options.rho
        self._tilings = plan(self.input_shape, self.levels)
        self._home = home(device)
        self._chunk = self._home.chunk
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        first, *above = self._tilings
        seen = first.kernel + first.shape[len(first.kernel) :]
        self._patterns = self._home.patterns(first.nodes, seen, self.levels[0], self.options, top=not above)
        self._codes = [
            self._home.codes(tiling.children(), level, self.options, tiling is above[-1], below.capacity)
            for tiling, level, below in zip(above, self.levels[1:], self.levels)
        ]

    @property
    def device(self) -> str:
        """Where the memory lives."""
        return self._home.name

    def to(self, device: str) -> Self:
        """The same memory on a device, "cpu" or "cuda": a copy, or the memory itself if it lives there already."""
        return self if device == self.device else io.copy(self, device)

    @property
    def banks(self) -> tuple[Any, ...]:
        """The banks of neurons, from level 1 up."""
        return (self._patterns, *self._codes)

    @property
    def _root(self) -> Any:
        return self.banks[-1]

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

    def learn(self, x: ArrayLike, hold: bool = False, root_only: bool = False) -> Written:
        """Learn one sample, or a batch as if one after another.

        hold: the batch is samples of ONE thing: the first is learned, the others are averaged into what it wrote
            (the paper's SQHN+).
        root_only: only the memory node learns; the levels below it answer with what they know (see `pretrain`).
        """
        samples, single, _ = self._samples(x)
        if hold and single:
            raise ValueError(f"hold=True needs a batch of samples of one thing, of shape (n, {self._shape_text()})")
        if hold and root_only:
            raise ValueError("hold=True averages samples at level 1, and root_only=True leaves that as it is")
        if root_only and not all(bank.grown.all() for bank in self.banks[:-1]):
            raise EmptyMemoryError("the levels below the memory node are empty: pretrain them first")
        sent = self._learn_held(samples) if hold else self._learn_each(samples, below=not root_only, root=True)
        return Written(*self._results(x, single, sent.k[0], sent.grew[0], sent.score[0]))

    def pretrain(self, x: ArrayLike) -> None:
        """Learn with every level but the memory node, which can then be taught alone: `learn(x, root_only=True)`."""
        samples, _, _ = self._samples(x)
        if not self._codes:
            raise ValueError("a memory of one level has nothing below its memory node to pretrain")
        self._learn_each(samples, below=True, root=False)

    def _learn_each(self, samples: Array, below: bool, root: bool) -> Sent:
        whole = nullcontext if self._home.at_once and not self._codes else deferred  # one call has no halfway
        done: list[Sent] = []
        start = 0
        while start < len(samples):
            chunk = samples[start : start + min(bank.chunk_size(self._chunk) for bank in self.banks)]
            with whole():
                done.append(self._learn_chunk(chunk, below, root)[-1])
            start += len(chunk)
        return done[0] if len(done) == 1 else Sent(*(self._home.concatenate(field, 1) for field in zip(*done)))

    def _learn_chunk(self, samples: Array, below: bool = True, root: bool = True) -> list[Sent]:
        """One chunk, level by level; all that can fail comes before the first change."""
        patches = self._split(samples)
        if not below and self._codes:
            codes = self._look(patches)
            self._codes[-1].reserve(len(samples), self.banks[-2].neurons.room)
            return [self._codes[-1].learn(codes)]
        self._reserve(len(samples))
        sent = [self._patterns.learn(patches)]
        for bank in self._codes if root else self._codes[:-1]:
            sent.append(bank.learn(Codes(sent[-1].k, sent[-1].v)))
        return sent

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
        with deferred():
            others = self._split(samples[1:])
            sent = self._learn_chunk(samples[:1])
            more = len(samples) - 1
            self._patterns.hold(others, sent[0].k[:, 0], sent[0].wrote[:, 0])
            for below, bank, own in zip(sent, self._codes, sent[1:]):
                bank.hold(Codes(below.k, below.v), more, own.k[:, 0], own.wrote[:, 0])
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
        for number, bank in enumerate(self.banks, start=1):
            free = bank.level.capacity - int(bank.grown.max())
            if len(samples) > free:
                raise ValueError(f"level {number} has room for {free} more neurons; got {len(samples)} samples")
        with deferred():
            patches = self._split(samples)
            self._reserve(len(samples))
            self._patterns.store(patches)
            k, _ = self._patterns.best(patches)
            for bank in self._codes:
                codes = Codes(k, self._home.full(k.shape, 1.0))
                bank.store(codes)
                k, _ = bank.best(codes)

    def _split(self, samples: Array, seen: Array = None) -> Patches:
        at, split = self._home, self._tilings[0].split
        return Patches(at.own(split(at.values(samples))), None if seen is None else at.own(split(at.bring(seen))))

    # -- recall --------------------------------------------------------------------------------------------------

    def recall(
        self, x: ArrayLike, observed: ArrayLike | None = None, *, inference: str | Inference = "paper"
    ) -> Recalled:
        """The stored sample that x reminds of, with missing and corrupted values filled in.

        observed: True where a value was seen; of x's shape, or of one sample's shape for all. Values elsewhere are
            ignored, whatever they are.
        inference: "paper" (score: activity of the memory node's winner), "feedforward" (the same without the way
            down) or "exact", the true maximum of the energy (score: that energy).
        """
        rule = by_name(inference)
        samples, single, seen = self._question(x, observed)
        parts = []
        for patches in self._parts(samples, seen, rule.samples * self._home.breadth):
            messages = self._up(patches, rule)
            k = self._down(messages, rule)
            found = self._tilings[0].join(self._patterns.vectors(k[0]))
            parts.append((found, k[-1][0], rule.score(messages[-1], self._terms)))
        found, index, score = self._together(parts)
        picture = self._home.give(found[0] if single else found, x)
        return Recalled(picture, *self._results(x, single, index, score))

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
        samples, single, _ = self._question(x, None)
        parts = []
        for patches in self._parts(samples, None, rule.samples * self._home.breadth):
            k = self._down(self._up(patches, rule), rule)
            parts.append((self._energy(patches, k, visible),))
        energy: Score = self._results(x, single, *self._together(parts))[0]
        return energy

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
        parts = []
        for patches in self._parts(samples, None, self._chunk) if len(self) else ():
            k, h = self._patterns.best(patches)
            for bank in self._codes:
                strength = (abs(h) > TIE) + 0 * h if self.options.propagation == "argmax" else h
                k, h = bank.best(Codes(k, strength))
            parts.append((h[0], self.rho * self._root.neurons.mu[0, k[0]]))
        never = (self._home.full((len(samples),), -math.inf), self._home.full((len(samples),), self.rho))
        score, threshold = self._together(parts) if parts else never
        return Recognized(*self._results(x, single, score >= threshold - TIE, score, threshold))

    # -- doors ---------------------------------------------------------------------------------------------------

    def _samples(self, x: ArrayLike, observed: ArrayLike | None = None) -> tuple[Array, bool, Array]:
        """Checked samples, whether there is just one, and which values were seen."""
        return as_samples(x, self.input_shape, observed, self._home.tensors)

    def _question(self, x: ArrayLike, observed: ArrayLike | None) -> tuple[Array, bool, Array]:
        """The same for a question that an empty memory cannot answer."""
        question = self._samples(x, observed)
        if not len(self):
            raise EmptyMemoryError("this memory is empty: learn something before asking it")
        return question

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
        io.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "cpu") -> Self:
        """Read a memory, whatever device it was saved from; it continues exactly where the saved one stopped."""
        return io.load(cls, path, device)
