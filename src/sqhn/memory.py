"""The SQHN: a tree of banks and the sweeps through it. Read it beside the paper.

Learning goes up once: level l at a step needs only level l - 1 at that step, so a chunk of samples is learned level by
level. Recall goes up and down once. Recognition goes up. What a sweep carries is in `inference`.

Whoever calls, from whatever thread: samples are checked first, then a reader or a writer takes its turn (`turns`).
"""

from __future__ import annotations

import errno
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Never, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.banks.devices import device_of
from sqhn.banks.interface import Array, Bank, CodeBank, Codes, Patches, Sent
from sqhn.banks.rule import AVERAGED, BECAME, KEPT, REPLACED
from sqhn.checks import as_shape, check_count, check_word, is_whole
from sqhn.concurrency.rwlock import Turns
from sqhn.inputs import answers, as_samples, parts, together
from sqhn.level import TIE, Level, Options, as_levels
from sqhn.model.calibration import Calibration, tolerance
from sqhn.model.inference import (
    INFERENCES,
    KNOWING,
    LEARNING,
    MEMORIZING,
    RECOGNITION,
    Carrier,
    Inference,
    Message,
    by_name,
)
from sqhn.model.labels import Values, as_texts
from sqhn.patches import plan
from sqhn.protocol import EmptyMemoryError, Recalled, Recognized, Score, Written
from sqhn.storage import files as io
from sqhn.storage.journal import MEMORY, Journal
from sqhn.stream import Fed, feed

__all__ = ["SQHN"]

Answer = TypeVar("Answer")
Found = TypeVar("Found")
Texts = list[str | None]  # what was said about samples (`values`)
Part = Literal["all", "below", "root"]
"""Which levels learn: all, those below the memory node, or it alone."""

JUDGING = ("paper", "evidence")
"""Rules by which old is told from new."""

OWN = {
    "_input_shape",
    "_levels",
    "_options",
    "_tilings",
    "_terms",
    "_device",
    "_journal",
    "_chunk",
    "_turns",
    "_patterns",
    "_codes",
    "_values",
    "_calibration",
    "_shown",
}
"""The attributes of a memory; others are a subclass's."""

CHANGES = {
    "_learn_chunk",
    "_learn_held",
    "_memorize",
    "_forget",
    "_resize",
    "_reset",
    "_set_options",
    "_set_shown",
}
"""What changes a memory: methods that do it whole or not at all, and the same whenever they are called again."""


class SQHN:
    """An associative memory for arrays of shape `input_shape`.

    With `capacity` it has one level, the memory node; with `levels` it is a tree from the input up to the memory node.
    The other arguments are described in `Options`; their defaults are the paper's model.

    device: "cpu", or "cuda" for a GPU (extra `torch`; see `to`). Decisions and files are the same. Samples may be NumPy
        arrays or torch tensors, wherever they are; answers come as the question did.
    shards: with device "ray" (extra `ray`): in how many processes it lives, on one machine or several.
    folder: keep it there too, change by change: whatever ends this process, what a call has returned from is not lost,
        and `load(folder)` continues. The folder must not have a memory yet.

    learn: O(capacity * values) per sample at each node; recall the same. Memory grows with what is stored.

    Threads may share a memory: see docs/guarantees.md.

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
        similarity: Literal["shifted_cosine", "cosine", "euclidean"] = "shifted_cosine",
        blend: float = 0.5,
        rho: float | None = None,
        propagation: Literal["argmax", "max"] = "argmax",
        mu: Literal["mean", "pseudocount"] = "mean",
        norm: Literal["all", "heard"] = "all",
        device: str = "cpu",
        shards: int | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._input_shape = as_shape(input_shape)
        self._levels = as_levels(levels, capacity)
        self._options = Options(similarity, blend, rho, propagation, mu, norm)
        self._tilings = plan(self._input_shape, self._levels)
        # The number of terms of the energy: nodes of level 1, plus hidden nodes other than the root.
        self._terms = self._tilings[0].nodes + sum(tiling.nodes for tiling in self._tilings) - 1
        self._device = device_of(device, shards)
        self._chunk = self._device.chunk
        self._turns = Turns()
        self._journal: Journal | None = None
        self._begin()
        if folder is not None:
            self._journal = self._keep_in(Path(folder))

    def _keep_in(self, folder: Path) -> Journal:
        folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(folder)
        try:
            if journal.path.exists():
                raise FileExistsError(f"{folder} has a memory already: SQHN.load({str(folder)!r}) continues it")
            journal.begin(self)
        except BaseException:
            journal.close()
            raise
        return journal

    def __setattr__(self, name: str, value: object) -> None:
        if type(self) is SQHN and name not in OWN and not hasattr(SQHN, name):
            raise AttributeError(f"an SQHN has no {name!r} to set: rho can be, all else is what it was made with")
        super().__setattr__(name, value)

    def _begin(self) -> None:
        first, *above = self._tilings
        self._patterns = self._device.patterns(first, self.levels[0], self.options, top=not above)
        self._codes = [
            self._device.codes(tiling.children(), level, self.options, tiling is above[-1], below.capacity)
            for tiling, level, below in zip(above, self.levels[1:], self.levels)
        ]
        self._values = Values()
        self._calibration: Calibration | None = None
        self._shown: Calibration | None = None  # the same for recognition by evidence

    def reset(self) -> None:
        """Forget everything; a tolerance that was calibrated goes as well, and the one before is back."""
        self._write(self._change, self._reset)

    def _reset(self) -> None:
        if self._calibration:
            self._options = replace(self._options, rho=self._calibration.before)
        self._begin()

    def _read(self, question: Callable[..., Answer], *args: Any) -> Answer:
        """Ask while nothing changes."""
        with self._device.stream():
            return self._turns.read(question, *args)

    def _write(self, change: Callable[..., Answer], *args: Any) -> Answer:
        """Change something while nobody else does."""
        with self._device.stream():
            return self._turns.write(change, *args)

    def _change(self, action: Callable[..., Answer], *args: Any) -> Answer:
        """Make one of the CHANGES; where the memory is kept in a folder, it is noted there first."""
        if self._journal is None:
            return self._turns.whole(action, *args)
        answer: Answer = self._turns.whole(self._journal.change, action, args)
        self._journal.relieve(self)
        return answer

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
        self._write(self._change, self._set_options, replace(self._options, rho=rho))

    def _set_options(self, options: Options, calibration: Calibration | None = None) -> None:
        self._options, self._calibration = options, calibration

    @property
    def device(self) -> str:
        """Where the memory lives."""
        return self._device.name

    @property
    def shards(self) -> int | None:
        """In how many places it lives, if on "ray"."""
        return getattr(self._device, "many", None)

    def to(self, device: str, shards: int | None = None) -> Self:
        """The same memory on a device ("cpu", "cuda", "ray"): a copy, or the memory itself if it lives there."""
        if device == self.device and shards in (None, self.shards):
            return self
        device_of(device, shards)  # before anything is copied
        other = type(self).__new__(type(self))
        other.__setstate__({**self.__getstate__(), "device": device, "shards": shards})
        return other

    @property
    def banks(self) -> tuple[Bank, ...]:
        """The banks of neurons, from level 1 up."""
        return (self._patterns, *self._codes)

    @property
    def _root(self) -> Bank:
        return self._codes[-1] if self._codes else self._patterns

    def __len__(self) -> int:
        """How many neurons the memory node has, less those that were forgotten."""
        root = self._root
        return int(root.grown[0]) - int(root.neurons.free[0])

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

    def learn(
        self,
        x: ArrayLike,
        *others: Never,
        observed: ArrayLike | None = None,
        value: Any = None,
        hold: bool = False,
        root_only: bool = False,
    ) -> Written:
        """Learn one sample, or a batch as if one after another.

        observed: True where a value was seen, as in `recall`; masked values of a masked array were not. A value that
            was not seen changes nothing: each value that is stored is the mean of those that were. In a tree, nodes of
            which nothing was seen learn nothing, and their parents neither hear nor count them.
        value: what `recall` is to tell beside the sample: a label, any JSON value, a small array; for a batch a
            sequence of them, one for each sample. It stays with the neuron that the sample ends in, and goes with it.
        hold: the batch is samples of ONE thing: the first is learned, the others are averaged into what it wrote
            (the paper's SQHN+). It has one value.
        root_only: only the memory node learns; the levels below it answer with what they know (see `pretrain`).
        """
        if others:
            raise TypeError(
                f"learn takes samples and nothing beside them, but got {len(others) + 1} arguments; labels and "
                "options go by name: learn(x, observed=mask), learn(x, value=y), learn(x, hold=True)"
            )
        samples, single, seen = self._part_samples(x, observed)
        if hold and single:
            raise ValueError(f"hold=True needs a batch of samples of one thing, of shape (n, {self._shape_text()})")
        if hold and root_only:
            raise ValueError("hold=True averages samples at level 1, and root_only=True leaves that as it is")
        texts = None if value is None else as_texts(value, len(samples), single or hold)
        sent, first = self._write(self._learn, samples, seen, hold, root_only, texts)
        step = first + 1 if single else self._device.give(self._device.count(first + 1, len(samples)), x)
        index, kind, score = self._answers(x, single, sent.k[0], sent.kind[0], sent.score[0])
        return Written(index, kind >= BECAME, score, step, kind == REPLACED)

    def pretrain(self, x: ArrayLike) -> None:
        """Learn with every level but the memory node, which can then be taught alone: `learn(x, root_only=True)`."""
        samples, _, _ = self._samples(x)
        if not self._codes:
            raise ValueError("a memory of one level has nothing below its memory node to pretrain")
        self._write(self._learn_each, samples, None, "below")

    def _learn(self, samples: Array, seen: Array, hold: bool, root_only: bool, texts: Texts | None) -> tuple[Sent, int]:
        """What the memory node did, and its step before that."""
        if root_only and not all(bank.grown.any() for bank in self.banks[:-1]):
            raise EmptyMemoryError("the levels below the memory node are empty: pretrain them first")
        first = self._root.neurons.step
        if hold:
            return self._change(self._learn_held, samples, seen, texts), first
        return self._learn_each(samples, seen, "root" if root_only and self._codes else "all", texts), first

    def _learn_each(self, samples: Array, seen: Array, part: Part, texts: Texts | None = None) -> Sent:
        if texts is None and self._values and part != "below":  # what is written now has none, but may replace some
            texts = [None] * len(samples)
        at_once = self._device.at_once and not self._codes and texts is None and self._journal is None
        turn = self._turns.alone if at_once else self._change
        done: list[Sent] = []
        start = 0
        while start < len(samples):
            now = slice(start, start + min(bank.chunk_size(self._chunk) for bank in self.banks))
            chunk, mask, said = samples[now], None if seen is None else seen[now], texts and texts[now]
            start += len(chunk)
            if mask is not None and mask.all():
                mask = None
            done.append(turn(self._learn_chunk, chunk, mask, part, start == len(samples), said)[-1])
        if len(done) == 1:
            return done[0]
        return Sent(*(self._device.concatenate(field, 1) for field in zip(*(sent.fields for sent in done))))

    def _learn_chunk(
        self, samples: Array, seen: Array, part: Part = "all", last: bool = True, texts: Texts | None = None
    ) -> list[Sent]:
        """One chunk, level by level; all that can fail comes before the first change. last: of a call."""
        patches = self._split(samples, seen)
        if part == "root":
            root, known = self._codes[-1], self._sweep(KNOWING, patches, self._codes[:-1])[-1]
            root.reserve(len(samples), self.banks[-2].neurons.room)
            sent = [root.learn(Codes(known.k, known.value, self._there(known.heard)))]
        else:
            self._reserve(len(samples))
            sent = self._sweep(LEARNING, patches, self._codes if part == "all" else self._codes[:-1])
        if texts:
            self._note(sent[-1], texts)
        if last:
            self._settle()
        return sent

    def _there(self, heard: Array) -> Array:
        """Which nodes below the memory node hear anything (nodes, batch): those that have neurons to hear with."""
        grown = self.banks[-2].grown > 0
        if grown.all():
            return heard
        return grown[:, None] if heard is None else heard & grown[:, None]

    def _note(self, root: Sent, texts: Texts) -> None:
        """Keep what was said about samples with the neurons that they ended in."""
        index, kind = (self._device.give(field[0], None).tolist() for field in (root.k, root.kind))
        self._values.note(index, kind, texts)

    def _settle(self) -> None:
        """Leave everything as those want it who only read."""
        for bank in self.banks:
            bank.settle()

    def _reserve(self, more: int) -> None:
        self._patterns.reserve(more)
        values = self._patterns.neurons.room
        for bank in self._codes:
            bank.reserve(more, values)
            values = bank.neurons.room

    def _learn_held(self, samples: Array, seen: Array, texts: Texts | None) -> Sent:
        others = self._split(samples[1:], None if seen is None else seen[1:])
        sent = self._learn_chunk(samples[:1], None if seen is None else seen[:1], last=False)
        more = len(samples) - 1
        self._patterns.hold(others, sent[0].k[:, 0], sent[0].kind[:, 0] != KEPT)
        for below, bank, own in zip(sent, self._codes, sent[1:]):
            bank.hold(Codes(below.k, below.v, below.heard), more, own.k[:, 0], own.kind[:, 0] != KEPT)
        self._settle()
        held = Sent(*(field[:, [0] * len(samples)] for field in sent[-1].fields))
        held.kind[:, 1:] = held.kind[:, 1:].clip(max=AVERAGED)  # none of these became another neuron
        if texts or self._values:
            self._note(held, (texts or [None]) * len(samples))
        return held

    def learn_stream(
        self,
        samples: Iterable[Any],
        *,
        progress: bool = True,
        checkpoint: tuple[str | os.PathLike[str], float] | None = None,
    ) -> Fed:
        """Learn whatever an iterable gives, samples or batches, as they come; the memory is free between them.

        samples: a generator, an array or a memory map of samples, a DataFrame (a row is a sample), a DataLoader (of
            what it gives in a tuple or list, the first). What cannot be learned stops it, and is named by its place;
            all that came before is learned.
        progress: show it on a terminal.
        checkpoint: a file and a number of seconds: save the memory there so often, and at the end, whatever ends it.
        """
        return feed(self, samples, progress, checkpoint)

    def resize(self, capacity: int) -> None:
        """Let the memory node grow more neurons than it could so far; nothing that is stored changes."""
        check_count("capacity", capacity)
        self._write(self._change, self._resize, int(capacity))

    def _resize(self, capacity: int) -> None:
        if capacity < self.capacity:
            raise ValueError(f"a memory can only be made larger: it has room for {self.capacity}, not for {capacity}")
        *below, last = self._levels
        self._root.resize(replace(last, capacity=capacity))
        self._levels = (*below, self._root.level)

    def forget(self, index: int | np.integer[Any] | Sequence[int] | NDArray[np.integer[Any]]) -> int:
        """Forget a neuron of the memory node, or several: their places are free, and the lowest is used next.

        index: as `recall` and `learn` tell it. What was said about it goes with it. A sample that was averaged with
            others stays in their mean, and in a tree the patches that the levels below have learned stay there.

        Returns the step after which it was; with those that `learn` tells, all can be done again in the same order.
        """
        given: Any = index.tolist() if hasattr(index, "tolist") else index
        which = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        if not all(map(is_whole, which)):
            raise TypeError(f"index must be the number of a neuron, or a sequence of them; got {index!r}")
        step: int = self._write(self._change, self._forget, sorted({int(j) for j in which}))
        return step

    def _forget(self, which: list[int]) -> int:
        counts = self._of_neurons("c")
        for j in which:
            if not 0 <= j < len(counts) or not counts[j]:
                was = "was forgotten before" if 0 <= j < len(counts) else f"is not one of {len(counts)}"
                raise IndexError(f"neuron {j} {was}; nothing was changed")
        if which:
            self._root.forget(np.array(which, np.int64))
            self._values.forget(which)
            self._settle()
        return self.step

    def memorize(self, x: ArrayLike) -> None:
        """Give every sample of a batch a neuron of its own in every node, at once, without asking whether it is new.

        For comparisons with memories that are loaded, not taught; a stream is for `learn`.
        """
        samples, single, _ = self._samples(x)
        if single:
            raise ValueError(f"memorize needs a batch of shape (n, {self._shape_text()}); got {self.input_shape}")
        self._write(self._change, self._memorize, samples)

    def _memorize(self, samples: Array) -> None:
        if len(self) < int(self._root.grown[0]):
            raise ValueError("memorize puts samples one after another, but neurons were forgotten: use learn, or reset")
        for number, bank in enumerate(self.banks, start=1):
            free = bank.level.capacity - int(bank.grown.max())
            if len(samples) > free:
                raise ValueError(f"level {number} has room for {free} more neurons; got {len(samples)} samples")
        patches = self._split(samples)
        self._reserve(len(samples))
        self._sweep(MEMORIZING, patches, self._codes)
        self._settle()

    # -- sweeps --------------------------------------------------------------------------------------------------

    def _sweep(self, carrier: Carrier[Found], patches: Patches, codes: Sequence[CodeBank]) -> list[Found]:
        """Up from level 1 through the levels of `codes`: what each of them found."""
        found = [carrier.look(self._patterns, patches)]
        for bank in codes:
            found.append(carrier.up(bank, found[-1]))
        return found

    def _down(self, messages: list[Message], rule: Inference) -> list[Array]:
        """Down from the memory node: the value of every node, level by level."""
        blend = rule.blend(self.options.blend)
        if blend is None:
            return [message.k for message in messages]
        k = [messages[-1].k]
        for parent, bank, message in zip(reversed(self._codes), self.banks[-2::-1], messages[-2::-1]):
            support = parent.support(k[0])
            value = rule.at(bank, message, support)
            k.insert(0, self._device.choose(message.k, message.value, support, value, blend))
        return k

    def _parts(self, count: int, rule: Inference, masked: bool) -> Iterator[slice]:
        """So many samples in parts that a rule can handle; masked: not all of them was observed."""
        neurons = sum(bank.nodes * bank.neurons.room for bank in self.banks)
        channels = self._patterns.tiling.channels if masked else 1
        return parts(count, rule.samples(neurons // self._device.room, channels) * self._device.breadth)

    def _ask(
        self, samples: Array, seen: Array, rule: Inference, count: int | None = None
    ) -> Iterator[tuple[Patches, list[Message]]]:
        """Sweep up with the parts of a question that an empty memory cannot answer.

        count: what to ask the memory node for (`Inference.look`).
        """
        if not len(self):
            raise EmptyMemoryError("this memory is empty: learn something before asking it")
        for part in self._parts(len(samples), rule, seen is not None):
            patches = self._split(samples[part], None if seen is None else seen[part])
            if count is None:
                yield patches, self._sweep(rule, patches, self._codes)
            elif not self._codes:
                yield patches, [rule.look(self._patterns, patches, count)]
            else:
                below = self._sweep(rule, patches, self._codes[:-1])
                yield patches, [*below, rule.up(self._codes[-1], below[-1], count)]

    # -- recall --------------------------------------------------------------------------------------------------

    def recall(
        self,
        x: ArrayLike,
        observed: ArrayLike | None = None,
        *,
        k: int | None = None,
        keep: bool = False,
        inference: str | Inference = "paper",
    ) -> Recalled:
        """The stored sample that x reminds of, with missing and corrupted values filled in.

        observed: True where a value was seen; of x's shape, or of one sample's shape for all. Values elsewhere are
            ignored, whatever they are, and so are masked values of a masked array.
        k: so many of the best, best first, and not the best alone: results have one more axis, the first of a sample's.
            In a tree they are the memory node's best, each with its own way down.
        keep: return observed values as they were given, and only the others from memory.

        Where samples with missing values were learned, `known` of the answer says which values were ever seen.
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
        if k is not None:
            check_count("k", k)
        (picture, index, score, *known), values = self._read(self._recall, samples, seen, rule, k, keep)
        fields = self._answers(x, single, picture, index, score, *known)
        said = values[0] if single and values else values
        return Recalled(fields[0], fields[1], fields[2], said, fields[3] if known else None)

    def _recall(
        self, samples: Array, seen: Array, rule: Inference, k: int | None = None, keep: bool = False
    ) -> tuple[tuple[Array, ...], Any]:
        if k is not None and 0 < len(self) < k:
            raise ValueError(f"k={k}, but no more than {len(self)} are stored")
        done = []
        for patches, messages in self._ask(samples, seen, rule, k):
            found = self._found if k is None else self._found_each
            done.append(found(patches, messages, rule))
        answer = together(done, self._device.concatenate)
        if keep:
            there = slice(None) if seen is None else self._device.bring(seen)
            picture, *known = (field if k is None else field.swapaxes(0, 1) for field in (answer[0], *answer[3:]))
            picture[..., there] = self._device.values(samples)[there]
            for field in known:
                field[..., there] = True
        if not self._values:
            return answer, None
        return answer, self._values.of_all(self._device.give(answer[1], None).tolist())

    def _found(self, patches: Patches, messages: list[Message], rule: Inference) -> tuple[Array, ...]:
        """What messages come down to: samples, the memory node's values, scores, and which values are known."""
        k = self._down(messages, rule)
        join, score = self._tilings[0].join, rule.score(messages[-1], self._terms)
        if not self._holes:
            return join(self._patterns.vectors(k[0])), k[-1][0], score
        picture, known = self._known(k, patches.seen)
        return join(picture), k[-1][0], score, join(known)

    @property
    def _holes(self) -> bool:
        """Whether samples were learned of which not all was seen."""
        return self._patterns.holes or any(bank.holes for bank in self._codes)

    def _known(self, k: list[Array], seen: Array) -> tuple[Array, Array]:
        """Patches of the values of all nodes, and which of them are known; seen: what was observed (None: all).

        A node of which nothing was observed, and of which its parent never heard, is not known, nor is what it holds.
        """
        heard: list[Array] = [None if seen is None else seen.any(axis=2)]
        for bank in self._codes:
            heard.append(bank.hears(Codes(None, None, heard[-1])))
        known = (self._root.grown > 0)[:, None]
        for parent, lower, own, below in zip(reversed(self._codes), self.banks[-2::-1], k[:0:-1], heard[-2::-1]):
            there = lower.grown[:, None] > 0
            if below is not None:
                there = there & (below | parent.expects(own, known))
            known = there
        found, values = self._patterns.vectors(k[0]), self._patterns.knows(k[0]) & known[:, :, None]
        found[~values] = self.options.centre
        return found, values

    def _found_each(self, patches: Patches, messages: list[Message], rule: Inference) -> tuple[Array, ...]:
        """The same where the memory node has a message for each of its best, along a second axis."""
        *below, (k, value, evidence, _) = messages
        _, batch, count = k.shape
        if not below:  # all at once
            every = Message(k.reshape(1, -1), value.reshape(1, -1), evidence)
            found = self._found(Patches(None), [every], rule)
            return tuple(field.reshape(batch, count, *field.shape[1:]) for field in found)
        each = [
            self._found(patches, [*below, Message(self._device.own(k[..., i]), value[..., i], evidence)], rule)
            for i in range(count)
        ]
        return tuple(self._device.stack(field, 1) for field in zip(*each))

    # -- energy and recognition ----------------------------------------------------------------------------------

    def energy(self, x: ArrayLike, observed: ArrayLike | None = None, *, inference: str | Inference = "paper") -> Score:
        """The energy of the recalled state, in [0, 1]: how well the tree explains x, or what was observed of it."""
        rule = by_name(inference)
        samples, single, seen = self._part_samples(x, observed)
        energy: Score = self._answers(x, single, *self._read(self._energies, samples, seen, rule))[0]
        return energy

    def _energies(self, samples: Array, seen: Array, rule: Inference) -> tuple[Array, ...]:
        """The mean of the terms of nodes of which anything was observed, and that have neurons."""
        done = []
        for patches, messages in self._ask(samples, seen, rule):
            k = self._down(messages, rule)
            part = None if patches.seen is None else patches.seen.any(axis=2)
            if self._holes or part is not None:
                grown = (self._patterns.grown > 0)[:, None]
                part = grown & (True if part is None else part)
            terms = [(self._patterns.similarity(patches, k[0]), part)]
            for bank, own, below in zip(self._codes, k[1:], k):
                terms.append((bank.probability(own, below), part))
                part = bank.hears(Codes(None, None, part))
            total = sum((term if there is None else term * there).sum(axis=0) for term, there in terms)
            many = sum(len(term) if there is None else there.sum(axis=0) for term, there in terms)
            done.append((total / many,))
        return together(done, self._device.concatenate)

    def recognize(
        self, x: ArrayLike, observed: ArrayLike | None = None, *, inference: Literal["paper", "evidence"] = "paper"
    ) -> Recognized:
        """Was this sample learned before? Old iff the memory node's best match reaches rho times its mean activity.

        observed: as in `recall`: whether what was seen of it was learned.
        inference: "evidence": old iff what it shows of something stored, in nats, reaches what `calibrate` has found:
            for samples that are damaged.
        """
        check_word("inference", inference, JUDGING)
        samples, single, seen = self._part_samples(x, observed)
        made, judge = (
            (self._calibration, self._recognize) if inference == "paper" else (self._shown, self._recognize_shown)
        )
        if made and made.long_past(self.step):
            late = f"{made} as it was: {self.step:,} samples are learned by now, calibrate again"
            warnings.warn(late, stacklevel=2)
        return Recognized(*self._answers(x, single, *self._read(judge, samples, seen)))

    def _recognize(self, samples: Array, seen: Array) -> tuple[Array, Array, Array]:
        if len(self):
            score, mean = self._matches(samples, seen)
            threshold = self.rho * mean
        else:
            score, threshold = (self._device.full((len(samples),), value) for value in (-math.inf, self.rho))
        return score >= threshold - TIE, score, threshold

    def _recognize_shown(self, samples: Array, seen: Array) -> tuple[Array, Array, Array]:
        if self._shown is None or self._shown.threshold is None:
            raise ValueError(
                'recognize(x, inference="evidence") needs a threshold: calibrate(new=x, inference="evidence") finds '
                "one, from samples that were not learned, damaged as those will be that are to be judged"
            )
        score = self._evidence(samples, seen) if len(self) else self._device.full((len(samples),), -math.inf)
        threshold = self._device.full((len(samples),), self._shown.threshold)
        return score >= threshold - TIE, score, threshold

    def _evidence(self, samples: Array, seen: Array) -> Array:
        """How much what samples show speaks for something stored."""
        rule = INFERENCES["evidence"]
        done = [(rule.score(messages[-1], self._terms),) for _, messages in self._ask(samples, seen, rule)]
        return together(done, self._device.concatenate)[0]

    def _matches(self, samples: Array, seen: Array = None) -> tuple[Array, ...]:
        """How well the memory node's winners match, and how well they do on the mean."""
        done = [
            (root.value[0], self._root.neurons.mu[0, root.k[0]])
            for _, (*_, root) in self._ask(samples, seen, RECOGNITION[self.options.propagation])
        ]
        return together(done, self._device.concatenate)

    def calibrate(
        self,
        *,
        new: ArrayLike | None = None,
        old: ArrayLike | None = None,
        error: float = 0.01,
        observed: ArrayLike | None = None,
        inference: Literal["paper", "evidence"] = "paper",
    ) -> float:
        """Set `rho` by samples, and return it; it is saved, and `calibration` says how it was made.

        new: samples that were not learned: at most a share `error` of others like them will be called old.
        old: samples that were learned, as they are met again, noisy or not: at most a share `error` of others like them
            will be called new.
        observed: as in `recognize`.
        inference: "evidence": not rho, but the threshold of `recognize(x, inference="evidence")`, in nats.

        Either promise is for the memory as it is; `recognize` warns when it has learned as many samples again.
        """
        kind: Literal["new", "old"] = "old" if new is None else "new"
        x = old if new is None else new
        if x is None or (kind == "new" and old is not None):
            raise ValueError("calibrate takes samples that were not learned, new=x, or samples that were, old=x")
        check_word("inference", inference, JUDGING)
        samples, single, seen = self._part_samples(x, observed)
        if single:
            raise ValueError(f"calibrate needs many samples, of shape (n, {self._shape_text()}); got one")
        find = self._calibrate if inference == "paper" else self._calibrate_shown
        return self._write(find, samples, seen, kind, error)

    def _calibrate(self, samples: Array, seen: Array, kind: Literal["new", "old"], error: float) -> float:
        score, mean = (self._device.give(field, None) for field in self._matches(samples, seen))
        rho = tolerance(score, mean, kind, error)
        before = self._calibration.before if self._calibration else self._options.rho
        made = Calibration(kind, float(error), len(samples), self.step, before)
        self._change(self._set_options, replace(self._options, rho=rho), made)
        return rho

    def _calibrate_shown(self, samples: Array, seen: Array, kind: Literal["new", "old"], error: float) -> float:
        score = self._device.give(self._evidence(samples, seen), None)
        threshold = tolerance(score, np.ones(len(score)), kind, error)
        self._change(self._set_shown, Calibration(kind, float(error), len(samples), self.step, threshold=threshold))
        return threshold

    def _set_shown(self, calibration: Calibration) -> None:
        self._shown = calibration

    @property
    def calibration(self) -> Calibration | None:
        """How `rho` was found by `calibrate`; None if it was not."""
        return self._calibration

    # -- looking inside ------------------------------------------------------------------------------------------

    @property
    def prototypes(self) -> NDArray[np.float32]:
        """What each neuron of the memory node recalls by itself, (neurons, *input_shape), as a copy.

        In a tree every node below takes the value that its parent expects most, all the way down. What is not known,
        and all of a neuron that was forgotten, is the centre of the similarity.
        """
        return self._read(self._prototypes)[0]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which values of `prototypes` were ever seen, as a copy."""
        return self._read(self._prototypes)[1]

    def _prototypes(self, most: int | None = None) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Of the first neurons, if not of all: what they recall, and which of it is known."""
        grown = int(self._root.grown[0])
        found = np.empty((min(grown, most or grown), *self.input_shape), np.float32)
        known = np.ones(found.shape, bool)
        partly, size = self._holes or grown > len(self), self._tilings[0].size
        for part in self._parts(len(found), INFERENCES["paper"], masked=False):
            k = [self._device.indices(part.start, part.stop - part.start)[None]]
            for parent, bank in zip(reversed(self._codes), self.banks[-2::-1]):
                support = parent.support(k[0])
                own = self._device.unheard((bank.nodes, k[0].shape[1]))
                k.insert(0, self._device.choose(*own, support, 0 * support.probability, 0.0))
            if partly:
                blind = self._device.full((self._patterns.nodes, k[0].shape[1], size), 0.0) > 0
                patches, there = self._known(k, blind)
                known[part] = self._device.give(self._tilings[0].join(there), None)
            else:
                patches = self._patterns.vectors(k[0])
            found[part] = self._device.give(self._tilings[0].join(patches), None)
        return found, known

    def said(self, index: int | list[int]) -> Any:
        """What was said about the samples of a neuron, or of several: as `recall(x).values` has it."""
        return self._read(self._values.of_all, index)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many samples each neuron of the memory node was learned from, as a copy; 0: it was forgotten."""
        return self._read(self._of_neurons, "c")

    @property
    def written(self) -> NDArray[np.int64]:
        """The step at which each neuron of the memory node was last written, as a copy."""
        return self._read(self._of_neurons, "written")

    def _of_neurons(self, name: str) -> NDArray[np.int64]:
        return np.array(self._device.give(getattr(self._root.neurons, name)[0, : int(self._root.grown[0])], None))

    def _repr_html_(self) -> str:
        """In a notebook: what it is, and pictures of what is stored."""
        from sqhn.display import html

        return html(self)

    # -- doors ---------------------------------------------------------------------------------------------------

    def _part_samples(self, x: ArrayLike, observed: ArrayLike | None) -> tuple[Array, bool, Array]:
        """Checked samples that may have holes, but not be holes; which values were seen is None if all were."""
        samples, single, seen = self._samples(x, observed, holes=True)
        if seen is None or seen.all():
            return samples, single, None
        if len(blank := (~seen.any(axis=tuple(range(1, seen.ndim)))).nonzero()[0]):
            raise ValueError(
                f"nothing at all was observed of {len(blank)} of {len(seen)} samples (the first is {blank[0]}), "
                f"in an array of shape {tuple(np.shape(x))}"
            )
        return samples, single, seen

    def _samples(
        self, x: ArrayLike, observed: ArrayLike | None = None, holes: bool = False
    ) -> tuple[Array, bool, Array]:
        """Checked samples (holes: values may be masked)."""
        return as_samples(x, self.input_shape, observed, tensors=self._device.tensors, holes=holes)

    def _split(self, samples: Array, seen: Array = None) -> Patches:
        """Samples cut into patches, on the device."""
        at, split = self._device, self._tilings[0].split
        return Patches(at.own(split(at.values(samples))), None if seen is None else at.own(split(at.bring(seen))))

    def _answers(self, x: object, single: bool, *fields: Array) -> tuple[Any, ...]:
        """Answers for the one who asked with x."""
        return answers(single, *fields, give=self._device.give, asked=x)

    def _shape_text(self) -> str:
        return ", ".join(map(str, self.input_shape))

    # -- persistence ---------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the memory to a file, atomically: on any failure an old file of that name is as it was.

        On shards it names other files, one for each of them, in the folder `path`.pieces; while these are written,
        nothing is learned.
        """
        if os.fspath(path).endswith(os.sep):
            raise IsADirectoryError(errno.EISDIR, "a folder, not a file", os.fspath(path))
        if self._journal is not None and Path(os.path.realpath(path)) == self._journal.path:
            raise ValueError(f"{path} is where this memory is kept, change by change: it need not be saved there")
        if self._device.split:
            self._read(self._save, path, {})
        else:
            io.save(path, *self._parts_of_state())

    def _save(self, path: str | os.PathLike[str], more: io.Header) -> None:
        """Write the memory, as long as it does not change; more: what else to say in the header."""
        if self._device.split:
            io.save_in_pieces(path, self, more)
        else:
            header, tensors = io.parts(self)
            io.save(path, header | more, tensors)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "cpu", shards: int | None = None) -> Self:
        """Read a memory, whatever device it was saved from; it continues exactly where the saved one stopped.

        path: a file; or a folder that a memory is kept in (see `folder`): it is kept there again.
        shards: with "ray"; as many as the memory was saved from, if none are named.

        Of a subclass its own `__init__` is not called.
        """
        kept = (Path(path) / MEMORY).exists()
        if shards is None and str(device).partition(":")[0] == "ray":
            shards = io.header_of(Path(path) / MEMORY if kept else path).get("shards")
        device_of(device, shards)  # one that cannot be used is no fault of the file
        memory = cls.__new__(cls)
        journal = Journal(Path(path)) if kept else None

        def build(header: io.Header, tensors: io.Tensors) -> None:
            memory._become(header, tensors, device, shards)
            if journal is not None:
                with memory._device.stream():
                    journal.follow(memory, header)
                    memory._settle()
            elif "journal" in header:
                warnings.warn(f"{path} is as it was last saved; its folder has all since then: load that", stacklevel=5)

        try:
            io.load(path if journal is None else journal.path, build)
        except BaseException:
            if journal is not None:
                journal.close()
            raise
        memory._journal = journal
        return memory

    @property
    def folder(self) -> Path | None:
        """Where it is kept, change by change; None if it is not."""
        return None if self._journal is None else self._journal.folder

    def _parts_of_state(self) -> tuple[io.Header, io.Tensors]:
        """Copies of all that a memory is, in one state."""
        return self._read(io.parts, self)

    def _become(self, header: io.Header, tensors: io.Tensors, device: str, shards: int | None = None) -> None:
        """Be the memory that a header and arrays describe."""
        input_shape, levels, options = io.settings(header)
        SQHN.__init__(self, input_shape, levels, **options, device=device, shards=shards)
        with self._device.stream():
            io.fill(self.banks, header, tensors)
        if (values := tensors.get("values")) is not None:
            self._values.restore(values, self._of_neurons("c"))
        if calibration := header.get("calibration"):
            self._calibration = Calibration(**calibration)
        if shown := header.get("evidence"):
            self._shown = Calibration(**shown)

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and copies: the memory in one state, and what a subclass has besides."""
        header, tensors = self._parts_of_state()
        more = {name: value for name, value in vars(self).items() if name not in OWN}
        return {"device": self.device, "shards": self.shards, "header": header, "tensors": tensors, "more": more}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._become(state["header"], state["tensors"], state["device"], state.get("shards"))
        vars(self).update(state["more"])
