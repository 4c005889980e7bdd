"""Changes as data: calls of the methods of `Model` that change it, which can be made, checked and stored.

Made in the same order with equal memories, changes give equal memories. A change is made whole or not at all. Its
encoded form is part of the file format: an argument that is added later needs a new VERSION.
"""

from __future__ import annotations

import io
import json
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from sqhn.checks import check_count, is_real, is_whole
from sqhn.inputs import as_numpy, as_samples
from sqhn.level import Options
from sqhn.model.calibration import Calibration
from sqhn.model.labels import check_text
from sqhn.model.model import Model
from sqhn.model.tree import PARTS
from sqhn.storage.headers import INCONSISTENT, read_all

CHANGES = ("learn", "hold", "memorize", "forget", "resize", "reset", "set-rho", "calibrate")
VERSION = 1


class Change:
    """A change: one of CHANGES, and the arguments of the method by name: JSON values, arrays or a calibration."""

    def __init__(self, name: str, **values: Any) -> None:
        self.name, self.values = name, values

    def apply(self, model: Model) -> Any:
        """Make the change."""
        return getattr(model, self.name.replace("-", "_"))(**self.values)

    def check(self, model: Model) -> None:
        """Raise unless this is a change that a memory like this one can have made."""
        bound = signature(getattr(model, self.name.replace("-", "_"))).bind(**self.values)
        bound.apply_defaults()
        match bound.arguments:
            case {"samples": samples, **more}:
                _check_samples(model, samples, **more)
            case {"index": index}:
                if not isinstance(index, list) or not all(map(is_whole, index)):
                    raise TypeError(f"index must be a list of neurons; got {index!r}")
                if len(set(index)) < len(index):
                    raise ValueError(f"index has a neuron twice: {index!r}")
            case {"capacity": capacity}:
                check_count("capacity", capacity)
            case {"calibration": made, "rho": rho}:
                if not isinstance(made, Calibration) or made.kind not in ("new", "old"):
                    raise TypeError(f"calibration must be that of new or old samples; got {made!r}")
                if is_real(rho) == is_real(made.threshold):
                    raise ValueError(f"either rho or a threshold of evidence; got {rho!r} and {made.threshold!r}")
            case {"rho": rho}:
                Options(rho=rho)


def _check_samples(
    model: Model, samples: Any, observed: Any = None, part: Any = "all", last: Any = True, texts: Any = None
) -> None:
    """Raise unless samples are a batch for the memory, with a mask of the same shape and a label, or None, for each."""
    batch, single, _ = as_samples(samples, model.tree.input_shape, observed)
    if single:
        raise ValueError(f"a change has a batch of samples; got one, of shape {batch.shape[1:]}")
    if observed is not None and observed.shape != batch.shape:
        raise ValueError(f"observed must have the shape of the samples, {batch.shape}; got {observed.shape}")
    if part not in PARTS or (part != "all" and len(model.tree.levels) == 1):
        raise ValueError(f"part={part!r} in a memory of {len(model.tree.levels)} levels")
    if not isinstance(last, bool):
        raise TypeError(f"last={last!r} is neither true nor false")
    if texts is not None and (not isinstance(texts, list) or len(texts) != len(batch)):
        raise ValueError(f"a batch of {len(batch)} samples needs as many labels; got {texts!r}")
    for text in texts or ():
        if text is not None:
            check_text(text)


def encode(change: Change) -> bytes:
    """A change as bytes: a safetensors document whose metadata holds everything but arrays."""
    arrays: dict[str, NDArray[Any]] = {}
    values: dict[str, Any] = {}
    for name, value in change.values.items():
        if hasattr(value, "shape"):
            array = as_numpy(value)
            arrays[name] = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        else:
            values[name] = value._asdict() if isinstance(value, Calibration) else value
    return save(arrays, {"change": json.dumps({"change": change.name, "version": VERSION, "values": values})})


def decode(content: bytes) -> Change:
    """The change that was encoded; ValueError if these bytes are none."""
    try:
        metadata, arrays = read_all(io.BytesIO(content))
        head = json.loads(metadata["change"])
        if head["change"] not in CHANGES or head["version"] != VERSION:
            raise ValueError(f"this version of sqhn does not know {head['change']!r} of version {head['version']!r}")
        values = head["values"]
        if isinstance(values.get("calibration"), dict):
            values["calibration"] = Calibration(**values["calibration"])
        return Change(head["change"], **arrays, **values)
    except INCONSISTENT as error:
        raise ValueError(f"not a change: {error}") from error
