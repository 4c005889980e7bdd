"""SQHN, the object that users hold: it checks inputs, coordinates threads, and makes changes durable.

The mathematics is in `sqhn.model`. Every verb checks its arguments first, then takes the reader-writer lock.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Never, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn import inputs, startup
from sqhn.banks import devices
from sqhn.banks.interface import Array, Bank, Learned
from sqhn.banks.rule import GREW, REPLACED
from sqhn.checks import StrPath, as_shape, check_count, check_word
from sqhn.concurrency import ReadWriteLock
from sqhn.display import html
from sqhn.level import Level, Options, as_levels, default_similarity
from sqhn.model.calibration import Calibration, kind_of
from sqhn.model.inference import Inference, by_name
from sqhn.model.labels import Texts, as_texts
from sqhn.model.model import Model
from sqhn.model.tree import Part
from sqhn.protocol import Recalled, Recognized, Score, Written
from sqhn.sizes import spell_bytes
from sqhn.storage import files
from sqhn.storage.changes import Calibrate, Change, Forget, Memorize, Reset, Resize, SetRho, learning
from sqhn.storage.journal import Journal, begin_or_continue, load
from sqhn.stream import Streamed, learn_stream

__all__ = ["SQHN"]

Answer = TypeVar("Answer")


class SQHN:
    """An associative memory for arrays of shape `input_shape`.

    With `capacity` it has one level, the memory node; with `levels` it is a tree from the input up to the memory node.
    `alpha`, `gamma` and `when_full` are settings of the only level, as in `Level`. `Options` describes the other
    arguments; their defaults are the paper's model. `similarity` is "euclidean" by default if level 1 is shared.

    device: "cpu"; "plain", which is NumPy alone and compiles nothing; or "cuda" for a GPU (extra `torch`; see `to`).
        Decisions and files do not depend on it. Samples may be NumPy arrays or torch tensors on any device; results
        have the form of the input.
    shards: with device "ray" (extra `ray`): the number of processes that hold the memory, on one machine or several.
    folder: keep the memory there durably: once a call returns, its changes survive any crash, and `load(folder)`
        continues. The folder must not hold a memory yet; `open` continues one that is there.

    Cost of learn and recall: O(capacity * values) per sample at each node. Memory use grows with what is stored.
    Threads may share a memory: see docs/guarantees.md.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((10, 8, 8))
    >>> memory = SQHN((8, 8), capacity=100)
    >>> memory.learn(images).grew.all()
    np.True_
    >>> half = np.broadcast_to(np.arange(8) < 4, (8, 8))
    >>> np.abs(memory.recall(images * half, observed=half).x - images).max() < 1e-6
    np.True_
    >>> memory.recognize(images[3]).old, memory.recognize(1 - images[3]).old
    (True, False)
    """

    __slots__ = ("__weakref__", "_journal", "_lock", "_model")

    def __init__(
        self,
        input_shape: Sequence[int],
        levels: Sequence[Level] | None = None,
        *,
        capacity: int | None = None,
        alpha: float | None = None,
        gamma: float | None = None,
        when_full: Literal["average", "overwrite", "oldest", "freeze"] | None = None,
        similarity: Literal["shifted_cosine", "cosine", "euclidean"] | None = None,
        blend: float = 0.5,
        rho: float | None = None,
        propagation: Literal["argmax", "max"] = "argmax",
        mu: Literal["mean", "pseudocount"] = "mean",
        norm: Literal["all", "heard"] = "all",
        device: str = "cpu",
        shards: int | None = None,
        folder: StrPath | None = None,
    ) -> None:
        checked = as_levels(levels, capacity, alpha=alpha, gamma=gamma, when_full=when_full)
        compared = default_similarity(checked) if similarity is None else similarity
        options = Options(compared, blend, rho, propagation, mu, norm)
        model = Model(as_shape(input_shape), checked, options, devices.device_of(device, shards))
        self._begin(model, None if folder is None else Journal.create(Path(folder), model))

    def _begin(self, model: Model, journal: Journal | None = None) -> None:
        self._model, self._journal, self._lock = model, journal, ReadWriteLock()
        if model.pending or (model.refusal and model.tree.device.name == "cpu"):
            startup.begin(self._upgrade)

    def __len__(self) -> int:
        return len(self._model.tree)

    def __repr__(self) -> str:
        levels = "1 level" if len(self.levels) == 1 else f"{len(self.levels)} levels"
        grown = f"{len(self)} of {self.capacity} neurons, step {self.step}, {spell_bytes(self.nbytes)}"
        return f"SQHN({self.input_shape}, {levels}, {grown}{'' if self.device == 'cpu' else f', {self.device}'})"

    def _repr_html_(self) -> str:
        """In a notebook: the repr, and images of the stored samples."""
        return html(self)

    # -- settings ------------------------------------------------------------------------------------------------

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self._model.tree.input_shape

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels, from the input up."""
        return self._model.tree.levels

    @property
    def options(self) -> Options:
        """The choices that concern the whole network."""
        return self._model.options

    @property
    def rho(self) -> float:
        """The tolerance of `recognize`; it can be set, and None restores the default (see `Options`)."""
        return self._model.tolerance

    @rho.setter
    def rho(self, rho: float | None) -> None:
        self._write(self._apply, SetRho(Options(rho=rho).rho))

    @property
    def calibration(self) -> Calibration | None:
        """How `calibrate` found `rho`; None if it did not."""
        return self._model.calibration

    @property
    def device(self) -> str:
        """The name of the device that holds the memory."""
        return self._model.tree.device.name

    @property
    def shards(self) -> int | None:
        """The number of shards on device "ray"; else None."""
        return self._model.tree.device.shards

    @property
    def folder(self) -> Path | None:
        """The folder that keeps the memory durably; None if there is none."""
        return None if self._journal is None else self._journal.folder

    @property
    def banks(self) -> tuple[Bank, ...]:
        """The banks of neurons, from level 1 up."""
        return self._model.tree.banks

    @property
    def capacity(self) -> int:
        """The largest number of neurons that the memory node can grow."""
        return self.levels[-1].capacity

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays of the memory, on its device, with space reserved for growth."""
        return self._read(lambda: self._model.tree.nbytes)

    @property
    def step(self) -> int:
        """How many samples were learned."""
        return self._model.tree.step

    # -- learning ------------------------------------------------------------------------------------------------

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

        observed: True where a value was observed, as in `recall`; masked values of a masked array were not. Each stored
            value is the mean of the observed ones, so a missing value changes nothing. In a tree, a node learns nothing
            where all its values are missing, and its parent does not count it.
        value: a label for `recall` to return: any JSON value or small array; for a batch a sequence of labels, one for
            each sample. A label is stored with the neuron that its sample ends in, and deleted with it.
        hold: the samples of the batch show one thing: the first is learned, and the others are averaged into
            the neurons that it wrote (the paper's SQHN+). The batch has one label.
        root_only: only the memory node learns; the levels below recall what they know (see `pretrain`).
        """
        inputs.check_one_positional(others)
        samples, single, mask = self._samples(x, observed)
        if hold:
            inputs.check_batch("hold=True needs samples of one thing,", single, self.input_shape)
        if hold and root_only:
            raise ValueError("hold=True averages samples at level 1, which root_only=True does not change")
        texts = None if value is None else as_texts(value, len(samples), single or hold)
        part: Part = "root" if root_only and len(self.levels) > 1 else "all"
        learned, first = self._write(self._learn, samples, mask, texts, part, hold)
        index, kind, score = self._answers(x, single, learned.k[0], learned.kind[0], learned.score[0])
        step: Any = first + 1 if single else self._model.tree.steps(first + 1, len(samples), x)
        return Written(index, kind >= GREW, score, step, kind == REPLACED)

    def pretrain(self, x: ArrayLike) -> None:
        """Train all levels but the memory node, which can then be trained alone: `learn(x, root_only=True)`."""
        samples, _, _ = self._samples(x, holes=False)
        if len(self.levels) == 1:
            raise ValueError("pretrain needs levels below the memory node; this memory has one level")
        self._write(self._learn, samples, None, None, "below")

    def _learn(
        self, samples: Array, mask: Array, texts: Texts | None, part: Part, hold: bool = False
    ) -> tuple[Learned, int]:
        """Learn chunk by chunk, with readers in between: the outcome at the memory node, and its step before."""
        first, changes = self.step, learning(self._model, samples, mask, part, texts, hold)
        done: list[Learned] = [self._apply(change) for change in changes]
        if len(done) == 1:
            return done[0], first
        return Learned(*(self._model.tree.device.xp.concat(field, 1) for field in zip(*done))), first

    def learn_stream(
        self, samples: Iterable[Any], *, progress: bool = True, checkpoint: tuple[StrPath, float] | None = None
    ) -> Streamed:
        """Learn samples or batches from an iterable as they come; other threads may use the memory in between.

        samples: a generator, an array or memory map of samples, a DataFrame (a row is a sample), or a DataLoader (its
            first element, if it yields tuples or lists). An invalid item raises an error with its position.
        progress: show a progress bar on a terminal.
        checkpoint: a file and a number of seconds: save the memory there at that interval, and at the end.
        """
        return learn_stream(self, samples, progress, checkpoint)

    def memorize(self, x: ArrayLike) -> None:
        """Store every sample of a batch as a new neuron of every node, without a test for novelty.

        For comparisons with models that store all samples at once; for a stream, use `learn`.
        """
        samples, single, _ = self._samples(x, holes=False)
        inputs.check_batch("memorize needs", single, self.input_shape)
        self._write(self._apply, Memorize(samples))

    def resize(self, capacity: int) -> None:
        """Let the memory node grow up to `capacity` neurons, more than before; stored neurons do not change.

        A neuron takes about `nbytes / len(memory)` bytes (docs/settings.md has a table).
        """
        self._write(self._apply, Resize(check_count("capacity", capacity)))

    def forget(self, index: inputs.Indices | None = None, *, where: Callable[[Any], bool] | None = None) -> int:
        """Forget one or several neurons of the memory node; their slots are free, and the lowest is filled first.

        index: as returned by `recall` and `learn`. The labels of these neurons are deleted too. A sample that was
            averaged with others stays in their mean, and in a tree the levels below keep the patches that they learned.
        where: instead, a function: forget the neurons for whose latest label it returns True. If samples are learned
            with `value=time.time()`, `where=lambda t: t < time.time() - 86400` forgets everything not seen for a
            day. The function may read the memory, but not change it.

        Returns the step at which it took effect; with the steps that `learn` returns, the history can be replayed.
        """
        if (index is None) == (where is None):
            raise TypeError("forget takes either the neurons, or where=, a function of a label")
        which = [] if where else inputs.as_indices(index)
        return int(self._write(lambda: self._apply(Forget(self._model.labels.where(where) if where else which))))

    def reset(self) -> None:
        """Forget everything; a calibrated rho returns to its earlier value."""
        self._write(self._apply, Reset())

    # -- recall and recognition ----------------------------------------------------------------------------------

    def recall(
        self,
        x: ArrayLike,
        observed: ArrayLike | None = None,
        *,
        k: int | None = None,
        keep: bool = False,
        inference: str | Inference = "paper",
    ) -> Recalled:
        """Recall the stored sample that matches x best, with missing and corrupted values filled in.

        observed: True where a value was observed; it is broadcast to x. Other values, and masked values of a masked
            array, are ignored, whatever they are.
        k: return the k best neurons, best first; results get one more axis, before the axes of a sample. In a tree
            these are the best of the memory node, each with its own sweep down.
        keep: return observed values as given, and only the others from memory.
        inference: "paper", the paper's rule; the score is the activity of the memory node's winner.
            "evidence", our rule for damaged samples (docs/evidence.md); the score is in nats.
            "feedforward", the paper's rule without the sweep down. "exact", the maximum of the energy, and its score.

        Where samples with missing values were learned, `known` of the result marks values that were ever observed.
        """
        rule = by_name(inference)
        samples, single, mask = self._samples(x, observed, blank=True)
        if blank := inputs.unobserved(mask):
            warnings.warn(f"{blank}: their recalled values are arbitrary", stacklevel=2)
        if k is not None:
            check_count("k", k)
        fields, labels = self._read(self._model.recall, samples, mask, rule, k, keep)
        recalled, index, score, *known = self._answers(x, single, *fields)
        return Recalled(recalled, index, score, labels[0] if single and labels else labels, known[0] if known else None)

    def energy(self, x: ArrayLike, observed: ArrayLike | None = None, *, inference: str | Inference = "paper") -> Score:
        """The energy of the recalled state, in [0, 1]: how well the tree explains the observed values of x."""
        rule = by_name(inference)
        samples, single, mask = self._samples(x, observed)
        return self._answers(x, single, self._read(self._model.tree.energy, samples, mask, rule))[0]

    def recognize(
        self, x: ArrayLike, observed: ArrayLike | None = None, *, inference: Literal["paper", "evidence"] = "paper"
    ) -> Recognized:
        """Tell whether a sample was learned before.

        It is old if the best match at the memory node is at least rho times the mean match of the neuron that won.

        observed: as in `recall`; unobserved values do not count.
        inference: "evidence" is for damaged samples: old if the evidence that x shows something stored, in nats,
            is at least the threshold that `calibrate(new=x, inference="evidence")` found.
        """
        check_word("inference", inference, ("paper", "evidence"))
        samples, single, mask = self._samples(x, observed)
        by_evidence = inference == "evidence"
        if outdated := self._model.outdated(by_evidence):
            warnings.warn(outdated, stacklevel=2)
        return Recognized(*self._answers(x, single, *self._read(self._model.recognize, samples, mask, by_evidence)))

    def calibrate(
        self,
        *,
        new: ArrayLike | None = None,
        old: ArrayLike | None = None,
        error: float = 0.01,
        observed: ArrayLike | None = None,
        inference: Literal["paper", "evidence"] = "paper",
    ) -> float:
        """Set `rho` so that recognition has a guaranteed error rate, and return it; `calibration` describes it.

        new: samples that were not learned: at most a share `error` of other samples like them will be called old.
        old: samples that were learned, as they will be seen again, noisy or not: at most a share `error` of other
            samples like them will be called new.
        observed: as in `recognize`.
        inference: "evidence" sets the threshold of `recognize(x, inference="evidence")`, in nats, instead of rho.

        The guarantee is for the memory as it is; `recognize` warns once as many samples again were learned.
        """
        kind, x = kind_of(new, old)
        check_word("inference", inference, ("paper", "evidence"))
        samples, single, mask = self._samples(x, observed)
        inputs.check_batch("calibrate needs", single, self.input_shape)
        asked = samples, mask, kind, error, inference == "evidence"
        return float(self._write(lambda: self._apply(Calibrate(*self._model.calibrated(*asked)))))

    # -- looking inside ------------------------------------------------------------------------------------------

    @property
    def prototypes(self) -> NDArray[np.float32]:
        """The sample that each neuron of the memory node recalls by itself, (neurons, *input_shape), as a copy.

        In a tree every node below takes the value that its parent expects most. Unknown values, and all values of a
        forgotten neuron, are the center of the similarity.
        """
        return self._read(self._model.tree.prototypes)[0]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which values of `prototypes` were ever observed, as a copy."""
        return self._read(self._model.tree.prototypes)[1]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many samples each neuron of the memory node was learned from, as a copy; 0 for a forgotten neuron."""
        return self._read(self._model.tree.neurons, "c")

    @property
    def written(self) -> NDArray[np.int64]:
        """The step at which each neuron of the memory node was last written, as a copy."""
        return self._read(self._model.tree.neurons, "written")

    def values(self, index: Any) -> Any:
        """The labels of a neuron with their counts, or of several neurons, as in `recall(x).values`."""
        return self._read(self._model.values, index)

    def inspect(self, look: Callable[[Model], Answer]) -> Answer:
        """Call a function with the model behind this memory, while nothing changes; it must not change anything."""
        return self._read(look, self._model)

    # -- persistence ---------------------------------------------------------------------------------------------

    def save(self, path: StrPath) -> None:
        """Write the memory to a file, atomically: if it fails, an existing file is unchanged.

        On shards, the file `path` lists one file for each shard, in the folder `path`.pieces; nothing is learned while
        these are written.
        """
        files.check_place(path)
        files.save(path, self._model, self._read)

    @classmethod
    def load(
        cls,
        path: StrPath,
        device: str = "cpu",
        shards: int | None = None,
        *,
        read_only: bool = False,
        mmap: bool = False,
    ) -> Self:
        """Read a memory saved from any device; it continues exactly where the saved one stopped.

        path: a file, or the folder of a memory that is kept durably (see `folder`), which then continues there.
        shards: with device "ray"; by default as many as the memory was saved from.
        read_only: load a copy of the memory in a folder, as it is now, even if another process uses the folder or
            nothing can be written there. Changes of the copy are not kept.
        mmap: answer from the file, which may be larger than main memory: prototypes are read block by block for every
            question, and the statistics and labels alone are loaded. For one level, on "cpu" or "plain". The memory
            cannot be changed, saved or copied. The file must stay as it is; another one may take its place.
        """
        memory = cls.__new__(cls)
        memory._begin(*load(path, device, shards, read_only, mmap))
        return memory

    @classmethod
    def open(
        cls,
        folder: StrPath,
        input_shape: Sequence[int],
        levels: Sequence[Level] | None = None,
        **more: Any,
    ) -> Self:
        """Continue the memory that is kept in a folder, or begin one there.

        The arguments are those of `SQHN`. A memory that is there must have been made with the same, but for its rho,
        which it keeps, and its capacity, which may have been enlarged.
        """
        memory = cls(input_shape, levels, **more)
        memory._begin(*begin_or_continue(Path(folder), memory._model))
        return memory

    def to(self, device: str, shards: int | None = None) -> Self:
        """The same memory on the device of this name: a copy, or the memory itself if it is there already."""
        if device == self.device and shards in (None, self.shards):
            return self
        devices.device_of(device, shards)  # before anything is copied
        other = type(self).__new__(type(self))
        other.__setstate__({**self.__getstate__(), "device": device, "shards": shards})
        return other

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and copies: one consistent state, and the attributes of a subclass."""
        header, tensors = self._read(files.encode, self._model)
        more = dict(getattr(self, "__dict__", {}))
        return {"device": self.device, "shards": self.shards, "header": header, "tensors": tensors, "more": more}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._begin(files.decode(state["header"], state["tensors"], state["device"], state.get("shards")))
        for name, value in state["more"].items():
            setattr(self, name, value)

    # -- locks and inputs ----------------------------------------------------------------------------------------

    def _read(self, question: Callable[..., Answer], *args: Any) -> Answer:
        """Ask while nothing changes."""
        if self._model.pending:
            startup.resume()
        with self._model.tree.device.stream():
            return self._lock.read(question, *args)

    def _write(self, action: Callable[..., Answer], *args: Any) -> Answer:
        """Call the only function that may apply changes now."""
        if refusal := self._model.refusal:
            raise RuntimeError(refusal)
        with self._model.tree.device.stream():
            return self._lock.write(action, *args)

    def _upgrade(self) -> None:
        """Move to compiled kernels, which are ready."""
        if self._model.pending:
            self._write(self._lock.atomic, self._model.upgrade)

    def _apply(self, change: Change) -> Any:
        """Apply a change while nobody reads; if the memory has a folder, the change is on disk first."""
        if self._model.pending:
            startup.resume()
            self._lock.atomic(self._model.upgrade)
        if self._journal is None:
            alone = self._lock.exclusive if change.in_one_step(self._model) else self._lock.atomic
            return alone(change.apply, self._model)
        answer = self._lock.atomic(self._journal.apply, change, self._model)
        self._journal.checkpoint_if_due(self._model)
        return answer

    def _samples(
        self, x: ArrayLike, observed: ArrayLike | None = None, *, holes: bool = True, blank: bool = False
    ) -> tuple[Array, bool, Array]:
        """Checked samples, whether x was a single one, and the mask.

        holes: values may be missing; blank: even all values of a sample.
        """
        tensors = self._model.tree.device.keeps_tensors
        samples, single, mask = inputs.as_samples(x, self.input_shape, observed, tensors=tensors, holes=holes)
        return samples, single, mask if blank else inputs.check_observed(mask, x)

    def _answers(self, x: object, single: bool, *fields: Array) -> tuple[Any, ...]:
        """Results in the form of the input x."""
        return inputs.as_answers(single, *fields, to_user=self._model.tree.device.to_user, asked=x)
