"""Memories in files: safetensors with a versioned JSON header.

A file is written beside its final place and moved there when it is complete, so a crash or a full disk leaves an old
file as it was. The header carries a digest of everything, so a damaged file is an error and never a wrong memory. It
also lists the features that a reader must know to make sense of the rest: what is added to the format later is named
there by the files that use it, and a version that does not know it says so.

A memory that is in several places has a file for each of them besides (`pieces`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load as deserialize
from safetensors.numpy import save as serialize

from sqhn.banks import devices
from sqhn.banks.interface import Bank, ShardedBank
from sqhn.checks import as_shape
from sqhn.level import Level, Options, as_levels
from sqhn.model.calibration import Calibration
from sqhn.model.model import Model
from sqhn.protocol import MemoryFileError
from sqhn.storage.atomic import check_writable, write_whole
from sqhn.storage.sharded_files import Rows, folder_of, keep_only, one_at_a_time, open_pieces, write_pieces

__all__ = [
    "FORMAT",
    "Header",
    "Tensors",
    "decode",
    "describe",
    "encode",
    "header_of",
    "load",
    "save",
    "save_sharded",
]

FORMAT = 2
FIRST = 1  # without features, and without the steps of last writes, which count as 0
FEATURES = frozenset({"values", "holes", "forgotten", "pieces"})  # that this version knows
"""values: what was said about samples. holes: values of samples that were not seen, so neurons know how often each of
theirs was. forgotten: neurons of the memory node that were, and count 0. pieces: the prototypes of level 1 are in other
files."""
DROPPED = {"hidden_similarity": "cosine", "update_order": "layerwise"}  # options that there were, and their default
Header = dict[str, Any]
Tensors = dict[str, Any]
"""NumPy's arrays, or `Rows` of them that are still in files."""


def save(path: str | os.PathLike[str], header: Header, tensors: Tensors) -> None:
    """Write a memory to `path`, atomically."""
    _write(path, header, tensors)
    if folder_of(path).exists():
        with suppress(OSError), one_at_a_time(path) as folder:  # what is saved is saved
            keep_only(folder, header_of(path).get("pieces", ()))  # of one that was saved since


def _write(path: str | os.PathLike[str], header: Header, tensors: Tensors) -> None:
    text = json.dumps(header, sort_keys=True, allow_nan=False)
    write_whole(Path(path), serialize(tensors, {"sqhn": text, "sha256": _digest(text, tensors)}))


def save_sharded(path: str | os.PathLike[str], model: Model, more: Header) -> None:
    """Write a memory on shards, atomically; no two shards are in this process at a time.

    more: further entries of the header.
    """
    check_writable(Path(path))
    header, tensors = encode(model, whole=False)
    with one_at_a_time(path) as folder:
        try:
            entries = write_pieces(folder, cast("ShardedBank", model.tree.patterns).shard_states())
            features = [*header["features"], "pieces"]
            header |= {"pieces": entries, "shards": model.tree.device.shards, "features": features, **more}
            _write(path, header, tensors)
        except BaseException:
            keep_only(folder, header_of(path).get("pieces", ()))
            raise
        keep_only(folder, entries)


def encode(model: Model, whole: bool = True) -> tuple[Header, Tensors]:
    """What a memory is: a header, and copies of its arrays; whole: with those that are on shards."""
    tree, labels = model.tree, model.labels
    features = {
        "values": bool(labels),
        "holes": any(bank.holes for bank in tree.banks),
        "forgotten": len(tree) < int(tree.root.grown[0]),
    }
    header: Header = {
        "format": FORMAT,
        "features": [name for name, used in features.items() if used],
        "input_shape": list(tree.input_shape),
        "levels": [_finite(asdict(level)) for level in tree.levels],
        "options": asdict(model.options),
        "steps": [bank.neurons.step for bank in tree.banks],
    }
    tensors: Tensors = {}
    for number, bank in enumerate(tree.banks, start=1):
        state = bank.neurons.state() | (bank.state() if whole or number > 1 else {})
        tensors |= {f"level{number}.{name}": np.ascontiguousarray(array) for name, array in state.items()}
    if labels:
        tensors["values"] = labels.state()
    for name, calibration in (("calibration", model.calibration), ("evidence", model.evidence_calibration)):
        if calibration:
            header[name] = calibration._asdict()
    return header, tensors


def decode(header: Header, tensors: Tensors, device: str, shards: int | None = None) -> Model:
    """The memory that a header and arrays describe."""
    levels = [Level(**_infinite(level)) for level in header["levels"]]
    at = devices.device_of(device, shards)
    with at.stream():
        model = Model(as_shape(header["input_shape"]), as_levels(levels), Options(**_options(header)), at)
        _fill(model.tree.banks, header, tensors)
        if (labels := tensors.get("values")) is not None:
            model.labels.restore(labels, model.tree.neurons("c"))
    if calibration := header.get("calibration"):
        model.calibration = Calibration(**calibration)
    if calibration := header.get("evidence"):
        model.evidence_calibration = Calibration(**calibration)
    return model


def _options(header: Header) -> dict[str, Any]:
    """The options of a header, less those that there are no more; another value than their default is refused."""
    options = dict(header["options"])
    for name, default in DROPPED.items():
        if (value := options.pop(name, default)) != default:
            raise ValueError(f"{name}={value!r}, which this version of sqhn does not have; only {default!r} is left")
    return options


def _fill(banks: Sequence[Bank], header: Header, tensors: Tensors) -> None:
    """Put the arrays of a memory into new banks."""
    values = 0
    for number, (bank, step) in enumerate(zip(banks, header["steps"], strict=True), start=1):
        prefix = f"level{number}."
        state = {
            name.removeprefix(prefix): array if bank.device.shards else np.asarray(array)
            for name, array in tensors.items()
            if name.startswith(prefix)
        }
        if header["format"] == FIRST:
            state["written"] = np.zeros_like(state["c"])
        if not isinstance(step, int) or step < 0:
            raise ValueError(f"{step!r} steps")
        if (number < len(banks) or "forgotten" not in header.get("features", ())) and state["c"].min(initial=1) < 1:
            raise ValueError("counts below 1")
        if "known" in state and "holes" not in header.get("features", ()):
            raise ValueError("counts of values without holes")
        bank.neurons.restore(state, step)
        bank.restore(state, values)
        values = bank.neurons.room


def load(path: str | os.PathLike[str], device: str = "cpu", shards: int | None = None) -> tuple[Header, Model]:
    """Read a memory; whatever is wrong with it is a `MemoryFileError` that names the file."""
    if Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder, not a memory", str(path))
    header, tensors = _read(path)
    try:
        if "pieces" in header:
            rows = _pieces(path, header)
            if rows is None:  # another memory has replaced this one
                return load(path, device, shards)
            tensors |= {f"level1.{name}": array for name, array in rows.items()}
        return header, decode(header, tensors, device, shards)
    except MemoryFileError:
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise MemoryFileError(f"{path} does not hold a consistent memory: {error}") from error


def _read(path: str | os.PathLike[str]) -> tuple[Header, Tensors]:
    """A file whose digest is right."""
    content = Path(path).read_bytes()  # not mapped: a file that is cut short meanwhile would end the process
    try:
        tensors = deserialize(content)
    except (SafetensorError, KeyError, ValueError) as error:
        raise MemoryFileError(f"{path} is not a memory, or is truncated: {error}") from error
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
    _check_version(path, metadata)
    text = metadata["sqhn"]
    if metadata.get("sha256") != _digest(text, tensors):
        raise MemoryFileError(f"{path} is damaged: its content does not match its digest")
    return json.loads(text), tensors


def header_of(path: str | os.PathLike[str]) -> Header:
    """What a file says of itself, unchecked; nothing, if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            metadata = json.loads(file.read(min(length, 1 << 26)))["__metadata__"]
        header: Header = json.loads(metadata["sqhn"])
        header.get("pieces")
        return header
    except (AttributeError, LookupError, OSError, TypeError, ValueError):
        return {}


def _pieces(path: str | os.PathLike[str], header: Header) -> dict[str, Rows] | None:
    """What is in the pieces that a header names; None if the file does not name them any more."""
    try:
        return open_pieces(path, header["pieces"])
    except FileNotFoundError as error:
        if header_of(path).get("pieces") != header["pieces"]:
            return None
        missing = Path(error.filename)
        raise MemoryFileError(f"{path} has a piece that is not there: {missing} belongs to it") from error


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the header of a file says, and how far its nodes have grown or were forgotten; the rest is not read."""
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            _check_version(path, metadata)
            header = json.loads(metadata["sqhn"])
            levels = []
            for number, level in enumerate(header["levels"], start=1):
                Level(**_infinite(level))  # checks it
                grown = file.get_tensor(f"level{number}.grown")
                reached = {"min": int(grown.min()), "mean": float(grown.mean()), "max": int(grown.max())}
                levels.append({**level, "nodes": len(grown), "grown": reached})
            features = header.get("features", ())
            gone = file.get_tensor(f"level{len(levels)}.c") == 0 if "forgotten" in features else ()
        return {
            "memory": str(path),
            "bytes": Path(path).stat().st_size + _bytes_of_pieces(path, header),
            "format": header["format"],
            "input_shape": as_shape(header["input_shape"]),
            "step": int(header["steps"][-1]),
            "levels": levels,
            "options": asdict(Options(**_options(header))),
            "calibration": header.get("calibration"),
            "values": "values" in features,
            "holes": "holes" in features,
            "forgotten": int(np.sum(gone)),
        }
    except SafetensorError as error:
        raise MemoryFileError(f"{path} is not a memory, or is truncated: {error}") from error
    except MemoryFileError:
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise MemoryFileError(f"{path} has a damaged header: {error}") from error


def _bytes_of_pieces(path: str | os.PathLike[str], header: Header) -> int:
    try:
        return sum((folder_of(path) / entry["name"]).stat().st_size for entry in header.get("pieces", ()))
    except FileNotFoundError as error:
        raise MemoryFileError(f"{path} has a piece that is not there: {error.filename} belongs to it") from error


def _check_version(path: str | os.PathLike[str], metadata: dict[str, str]) -> None:
    try:
        version = json.loads(metadata["sqhn"])["format"]
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFileError(f"{path} is a safetensors file, but not a memory of this package") from error
    if version not in (FIRST, FORMAT):
        raise MemoryFileError(f"{path} has format {version}; this version of sqhn reads {FORMAT}: upgrade sqhn")
    unknown = set(json.loads(metadata["sqhn"]).get("features", ())) - FEATURES
    if unknown:
        listed = ", ".join(sorted(unknown))
        raise MemoryFileError(f"{path} uses what this version of sqhn does not know ({listed}): upgrade sqhn")


def _digest(header: str, tensors: Tensors) -> str:
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _finite(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: alpha may be one."""
    return {name: "inf" if value == math.inf else value for name, value in fields.items()}


def _infinite(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: math.inf if value == "inf" else value for name, value in fields.items()}
