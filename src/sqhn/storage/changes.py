"""Changes as data: everything that can happen to a memory, as values that can be applied, checked and stored.

Applied in the same order to equal memories, changes give equal memories. A change is applied whole or not at all. Its
encoded form is part of the file format: a field that is added later needs a new `version`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from sqhn.banks.interface import Array, Learned
from sqhn.checks import check_count, is_whole
from sqhn.inputs import as_numpy, as_samples
from sqhn.level import Options
from sqhn.model.calibration import Calibration
from sqhn.model.labels import Texts, check_text
from sqhn.model.model import Model
from sqhn.model.tree import PARTS, Part
from sqhn.protocol import EmptyMemoryError
from sqhn.storage.headers import INCONSISTENT, read_all


@dataclass(frozen=True)
class Change:
    """One change of a memory; its fields are JSON values or arrays."""

    name: ClassVar[str]
    version: ClassVar[int] = 1

    def apply(self, model: Model) -> Any:
        """Make the change."""
        raise NotImplementedError

    def in_one_step(self, model: Model) -> bool:  # noqa: ARG002
        """Whether no signal can interrupt it."""
        return False

    def check(self, model: Model) -> None:
        """Raise unless this is a change that a memory like this one can have made."""


@dataclass(frozen=True)
class Learn(Change):
    """Learn a chunk of samples. last: the last chunk of a call. texts: labels as JSON, None where there is none."""

    name = "learn"
    samples: Array
    observed: Array = None
    part: Part = "all"
    last: bool = True
    texts: Texts | None = None

    def apply(self, model: Model) -> Learned:
        learned = model.tree.learn(self.samples, self.observed, self.part, self.last)[-1]
        _note(model, learned, self.texts)
        return learned

    def in_one_step(self, model: Model) -> bool:
        return self.texts is None and len(model.tree.levels) == 1 and model.tree.device.atomic

    def check(self, model: Model) -> None:
        _check_samples(model, self.samples, self.observed)
        _check_texts(self.texts, len(self.samples))
        if self.part not in PARTS or (self.part != "all" and len(model.tree.levels) == 1):
            raise ValueError(f"part={self.part!r} in a memory of {len(model.tree.levels)} levels")
        if not isinstance(self.last, bool):
            raise TypeError(f"last={self.last!r} is neither true nor false")


@dataclass(frozen=True)
class Hold(Change):
    """Learn samples of one thing: the first, and the others averaged into the neurons that it wrote."""

    name = "hold"
    samples: Array
    observed: Array = None
    texts: Texts | None = None

    def apply(self, model: Model) -> Learned:
        held = model.tree.hold(self.samples, self.observed)
        _note(model, held, self.texts)
        return held

    def check(self, model: Model) -> None:
        _check_samples(model, self.samples, self.observed)
        _check_texts(self.texts, len(self.samples))


def learning(
    model: Model, samples: Array, observed: Array, part: Part, texts: Texts | None, hold: bool
) -> Iterator[Learn | Hold]:
    """The changes that learn a batch; how many samples one takes is decided after the one before is made.

    texts: a label for each sample, or one for all that are held; None: no labels.
    """
    if part == "root" and not all(bank.grown.any() for bank in model.tree.banks[:-1]):
        raise EmptyMemoryError("the levels below the memory node are empty: pretrain them first")
    if texts is not None or (model.labels and part != "below"):  # samples without labels replace others' too
        texts = (texts or [None]) * (len(samples) if hold or texts is None else 1)
    if hold:
        yield Hold(samples, observed, texts)
        return
    start = 0
    while start < len(samples):
        now = slice(start, start + model.tree.chunk_size())
        chunk, mask = samples[now], None if observed is None else observed[now]
        start += len(chunk)
        mask = None if mask is None or mask.all() else mask
        yield Learn(chunk, mask, part, start >= len(samples), texts and texts[now])


@dataclass(frozen=True)
class Memorize(Change):
    """Make every sample a new neuron in every node."""

    name = "memorize"
    samples: Array

    def apply(self, model: Model) -> None:
        model.tree.memorize(self.samples)

    def check(self, model: Model) -> None:
        _check_samples(model, self.samples, None)


@dataclass(frozen=True)
class Forget(Change):
    """Forget neurons of the memory node; returns the step at which it took effect."""

    name = "forget"
    index: list[int]

    def apply(self, model: Model) -> int:
        return model.forget(self.index)

    def check(self, model: Model) -> None:  # noqa: ARG002
        if not isinstance(self.index, list) or not all(map(is_whole, self.index)):
            raise TypeError(f"index must be a list of neurons; got {self.index!r}")
        if len(set(self.index)) < len(self.index):
            raise ValueError(f"index has a neuron twice: {self.index!r}")


@dataclass(frozen=True)
class Resize(Change):
    """Let the memory node grow up to `capacity` neurons."""

    name = "resize"
    capacity: int

    def apply(self, model: Model) -> None:
        model.tree.resize(self.capacity)

    def check(self, model: Model) -> None:  # noqa: ARG002
        check_count("capacity", self.capacity)


@dataclass(frozen=True)
class Reset(Change):
    """Forget everything."""

    name = "reset"

    def apply(self, model: Model) -> None:
        model.reset()


@dataclass(frozen=True)
class SetRho(Change):
    """Set the tolerance of recognition; None: the default."""

    name = "set-rho"
    rho: float | None

    def apply(self, model: Model) -> None:
        model.set_rho(self.rho)

    def check(self, model: Model) -> None:  # noqa: ARG002
        Options(rho=self.rho)  # checks it


@dataclass(frozen=True)
class Calibrate(Change):
    """Set a calibrated threshold: rho, or that of recognition by evidence, which `calibration` then holds."""

    name = "calibrate"
    version = 2  # 1: without ratios
    calibration: Calibration
    rho: float | None = None

    def apply(self, model: Model) -> float | None:
        return model.calibrate(self.calibration, self.rho)

    def check(self, model: Model) -> None:  # noqa: ARG002
        if not isinstance(self.calibration, Calibration):
            raise TypeError(f"calibration must be that of new or old samples; got {self.calibration!r}")
        self.calibration.check(evidence=self.rho is None)
        Options(rho=self.rho)  # checks it


CHANGES: dict[str, type[Change]] = {
    change.name: change for change in (Learn, Hold, Memorize, Forget, Resize, Reset, SetRho, Calibrate)
}


def encode(change: Change) -> bytes:
    """A change as bytes: a safetensors document whose metadata holds everything but arrays."""
    arrays: dict[str, NDArray[Any]] = {}
    values: dict[str, Any] = {}
    for field in fields(change):
        value = getattr(change, field.name)
        if hasattr(value, "shape"):
            array = as_numpy(value)
            arrays[field.name] = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        else:
            values[field.name] = value._asdict() if isinstance(value, Calibration) else value
    return save(arrays, {"change": json.dumps({"change": change.name, "version": change.version, "values": values})})


def decode(content: bytes) -> Change:
    """The change that was encoded; ValueError if these bytes are none."""
    try:
        metadata, arrays = read_all(io.BytesIO(content))
        head = json.loads(metadata["change"])
        kind, values = CHANGES.get(head["change"]), head["values"]
        if kind is None or not 1 <= head["version"] <= kind.version:
            raise ValueError(f"this version of sqhn does not know {head['change']!r} of version {head['version']!r}")
        if isinstance(values.get("calibration"), dict):
            values["calibration"] = Calibration(**values["calibration"])
        return kind(**arrays, **values)
    except INCONSISTENT as error:
        raise ValueError(f"not a change: {error}") from error


def _note(model: Model, learned: Learned, texts: Texts | None) -> None:
    """Attach the labels of samples, if there are any, to the neurons that the samples ended in."""
    if texts is not None:
        to_user = model.tree.device.to_user
        model.labels.note(to_user(learned.k[0], None).tolist(), to_user(learned.kind[0], None).tolist(), texts)


def _check_samples(model: Model, samples: Any, observed: Any) -> None:
    """Raise unless samples are a batch for the memory, and `observed` is a mask of the same shape."""
    batch, single, _ = as_samples(samples, model.tree.input_shape, observed)
    if single:
        raise ValueError(f"a change has a batch of samples; got one, of shape {batch.shape[1:]}")
    if observed is not None and observed.shape != batch.shape:
        raise ValueError(f"observed must have the shape of the samples, {batch.shape}; got {observed.shape}")


def _check_texts(texts: Any, samples: int) -> None:
    """Raise unless there is a label, or None, for every sample."""
    if texts is None:
        return
    if not isinstance(texts, list) or len(texts) != samples:
        raise ValueError(f"a batch of {samples} samples needs as many labels; got {texts!r}")
    for text in texts:
        if text is not None:
            check_text(text)
