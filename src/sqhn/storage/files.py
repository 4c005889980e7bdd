"""Memories in files: safetensors with a versioned JSON header.

A file is written beside its final place and moved there when it is complete, so a crash or a full disk leaves an old
file as it was. The header carries a digest of everything, so a damaged file is an error and never a wrong memory. It
also lists the features of the format that the file uses: a version that does not know one of them refuses the file.

A memory on shards has a file for each of them besides (`sharded_files`).
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as deserialize
from safetensors.numpy import save as serialize

from sqhn.banks import devices
from sqhn.banks.interface import Bank, ShardedBank
from sqhn.checks import as_shape
from sqhn.level import Level, Options, as_levels
from sqhn.model.calibration import Calibration
from sqhn.model.model import Model
from sqhn.protocol import MemoryFileError
from sqhn.storage.atomic import check_writable, regular, write_whole
from sqhn.storage.headers import read_header, read_rows
from sqhn.storage.sharded_files import Rows, folder_of, keep_only, one_at_a_time, open_shard_files, write_shard_files

FORMAT = 2
FORMAT_1 = 1  # without features, and without the steps of last writes, which count as 0
FEATURES = frozenset({"values", "holes", "forgotten", "pieces", "ratios"})
"""The features that this version knows. values: labels. holes: samples with missing values were learned, so neurons
know how often each of their values was observed. forgotten: neurons of the memory node are forgotten: their count is 0.
pieces: the prototypes of level 1 are in shard files. ratios: calibrations keep those of their samples."""
DROPPED = {"hidden_similarity": "cosine", "update_order": "layerwise"}
"""Options of earlier versions, with their defaults."""
INCONSISTENT = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of a file whose digest is right and whose content contradicts itself."""
Header = dict[str, Any]
Tensors = dict[str, Any]
"""NumPy arrays, or `Rows` of arrays that are still in files."""


def save(path: str | os.PathLike[str], header: Header, tensors: Tensors) -> None:
    """Write a memory to `path`, atomically."""
    _write(path, header, tensors)
    if folder_of(path).exists():
        with suppress(OSError), one_at_a_time(path) as folder:  # the memory is saved, with or without this
            keep_only(folder, header_of(path).get("pieces", ()))  # another process may have saved shards since


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise if a memory must not be saved to a file with this name."""
    if os.fspath(path).endswith(os.sep):
        raise IsADirectoryError(f"{path} is a folder, not a file")
    place = regular(path)
    if "journal" in header_of(place):
        raise ValueError(
            f"{path} belongs to the memory that is kept in {place.parent}, with the changes in its journal: save under "
            f"another name, or load {place.parent} to continue that memory"
        )


def _write(path: str | os.PathLike[str], header: Header, tensors: Tensors) -> None:
    text = json.dumps(header, sort_keys=True, allow_nan=False)
    write_whole(Path(path), serialize(tensors, {"sqhn": text, "sha256": _digest(text, tensors)}))


def save_sharded(path: str | os.PathLike[str], model: Model, more: Header) -> None:
    """Write a memory on shards, atomically; never more than one shard is in this process.

    more: further entries of the header.
    """
    check_writable(Path(path))
    header, tensors = encode(model, whole=False)
    with one_at_a_time(path) as folder:
        try:
            entries = write_shard_files(folder, cast("ShardedBank", model.tree.patterns).shard_states())
            features = [*header["features"], "pieces"]
            header |= {"pieces": entries, "shards": model.tree.device.shards, "features": features, **more}
            _write(path, header, tensors)
        except BaseException:
            keep_only(folder, header_of(path).get("pieces", ()))
            raise
        keep_only(folder, entries)


def encode(model: Model, whole: bool = True) -> tuple[Header, Tensors]:
    """A memory as a header and copies of its arrays; whole: with the arrays that are on shards."""
    tree, labels = model.tree, model.labels
    pairs = (("calibration", model.calibration), ("evidence", model.evidence_calibration))
    calibrations = {
        name: {field: value for field, value in made._asdict().items() if value is not None}
        for name, made in pairs
        if made
    }
    features = {
        "values": bool(labels),
        "holes": any(bank.holes for bank in tree.banks),
        "forgotten": len(tree) < int(tree.root.grown[0]),
        "ratios": any("ratios" in made for made in calibrations.values()),
    }
    header: Header = {
        "format": FORMAT,
        "features": [name for name, used in features.items() if used],
        "input_shape": list(tree.input_shape),
        "levels": [_finite(asdict(level)) for level in tree.levels],
        "options": asdict(model.options),
        "steps": [bank.neurons.step for bank in tree.banks],
        **calibrations,
    }
    tensors: Tensors = {}
    for number, bank in enumerate(tree.banks, start=1):
        state = bank.neurons.state() | (bank.state() if whole or number > 1 else {})
        tensors |= {f"level{number}.{name}": np.ascontiguousarray(array) for name, array in state.items()}
    if labels:
        tensors["values"] = labels.state()
    return header, tensors


def decode(header: Header, tensors: Tensors, device: str, shards: int | None = None) -> Model:
    """The memory with this header and these arrays."""
    levels = [Level(**_infinite(level)) for level in header["levels"]]
    shape, nodes = as_shape(header["input_shape"]), len(tensors["level1.grown"])
    size = tensors["level1.prototypes"].shape[1]
    if math.prod(shape) != nodes * size:  # before arrays of that size are made
        raise ValueError(f"{nodes} nodes with prototypes of {size} values, for samples of shape {shape}")
    at = devices.device_of(device, shards)
    with at.stream():
        model = Model(shape, as_levels(levels), Options(**_options(header)), at)
        _fill(model.tree.banks, header, tensors)
        if (labels := tensors.get("values")) is not None:
            model.labels.restore(labels, model.tree.neurons("c"))
    if calibration := header.get("calibration"):
        model.calibration = Calibration(**calibration)
    if calibration := header.get("evidence"):
        model.evidence_calibration = Calibration(**calibration)
    return model


def _options(header: Header) -> dict[str, Any]:
    """The options in a header, without those of earlier versions, which must have their defaults."""
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
        if header["format"] == FORMAT_1:
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
            rows = _rows(path, header)
            if rows is None:  # another memory was saved there meanwhile
                return load(path, device, shards)
            tensors |= {f"level1.{name}": array for name, array in rows.items()}
        return header, decode(header, tensors, device, shards)
    except MemoryFileError:
        raise
    except INCONSISTENT as error:
        raise MemoryFileError(f"{path} does not hold a consistent memory: {error}") from error


def _read(path: str | os.PathLike[str]) -> tuple[Header, Tensors]:
    """The content of a file, if its digest is right."""
    content = Path(path).read_bytes()
    try:
        tensors = deserialize(content)
        metadata, _ = read_header(io.BytesIO(content))
    except (SafetensorError, KeyError, ValueError) as error:
        raise MemoryFileError(f"{path} is not a memory, or is truncated: {error}") from error
    header = _header(path, metadata)
    if metadata.get("sha256") != _digest(metadata["sqhn"], tensors):
        raise MemoryFileError(f"{path} is damaged: its content does not match its digest")
    return header, tensors


def header_of(path: str | os.PathLike[str]) -> Header:
    """The header of a file, unchecked; empty if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            header: Any = json.loads(read_header(file)[0]["sqhn"])
        return header if isinstance(header, dict) else {}
    except (LookupError, OSError, TypeError, ValueError):
        return {}


def _rows(path: str | os.PathLike[str], header: Header) -> dict[str, Rows] | None:
    """The arrays in the shard files that a header names; None if the file does not name them any more."""
    try:
        return open_shard_files(path, header["pieces"])
    except FileNotFoundError as error:
        if header_of(path).get("pieces") != header["pieces"]:
            return None
        raise _missing(path, error) from error


def _missing(path: str | os.PathLike[str], error: FileNotFoundError) -> MemoryFileError:
    return MemoryFileError(f"{path} has a shard file that is not there: {Path(error.filename)} belongs to it")


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header of a file, and how many neurons its nodes have grown and forgotten; no more of it is read."""
    try:
        with Path(path).open("rb") as file:
            metadata, arrays = read_header(file)
            header = _header(path, metadata)
            about = outline(header, lambda name: read_rows(file, arrays[name]))
        shard_files = [folder_of(path) / entry["name"] for entry in header.get("pieces", ())]
        return {"memory": str(path), "bytes": sum(file.stat().st_size for file in (Path(path), *shard_files)), **about}
    except FileNotFoundError as error:
        if error.filename == str(path):
            raise
        raise _missing(path, error) from error
    except MemoryFileError:
        raise
    except INCONSISTENT as error:
        raise MemoryFileError(f"{path} is not a memory, or is damaged: {error}") from error


def outline(header: Header, array: Callable[[str], NDArray[Any]]) -> dict[str, Any]:
    """The settings of a memory, and how far it has grown, from its header and some of its arrays."""
    levels = []
    for number, level in enumerate(header["levels"], start=1):
        Level(**_infinite(level))  # checks it
        grown = array(f"level{number}.grown")
        reached = {"min": int(grown.min()), "mean": float(grown.mean()), "max": int(grown.max())}
        levels.append({**level, "nodes": len(grown), "grown": reached})
    features = header.get("features", ())
    gone = array(f"level{len(levels)}.c") == 0 if "forgotten" in features else ()
    return {
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


def _header(path: str | os.PathLike[str], metadata: dict[str, Any]) -> Header:
    """The header in the metadata of a file, if this version can read such a file."""
    try:
        header: Header = json.loads(metadata["sqhn"])
        version, features = header["format"], set(header.get("features", ()))
    except INCONSISTENT as error:
        raise MemoryFileError(f"{path} is a safetensors file, but not a memory of this package") from error
    if version not in (FORMAT_1, FORMAT):
        raise MemoryFileError(f"{path} has format {version}; this version of sqhn reads {FORMAT}: upgrade sqhn")
    if unknown := features - FEATURES:
        listed = ", ".join(sorted(map(str, unknown)))
        raise MemoryFileError(f"{path} uses features that this version of sqhn does not know ({listed}): upgrade sqhn")
    return header


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
