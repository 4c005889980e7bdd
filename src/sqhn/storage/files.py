"""Memories in files: safetensors with a versioned JSON header.

A file is written beside its final place and moved there when it is complete, so a crash or a full disk leaves an old
file as it was. The header carries a digest of everything, so a damaged file is an error and never a wrong memory. It
also lists the features of the format that the file uses: a version that does not know one of them refuses the file.

A memory on shards has a file for each of them besides (`sharded_files`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast
from weakref import finalize

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as serialize

from sqhn.banks import devices
from sqhn.banks.in_file import InFile
from sqhn.banks.interface import Bank, CodeBank, Device, ShardedBank
from sqhn.checks import as_shape
from sqhn.level import Level, Options, as_levels
from sqhn.model.calibration import Calibration
from sqhn.model.model import Model
from sqhn.patches import plan
from sqhn.protocol import MemoryFileError
from sqhn.storage.atomic import regular, write_whole
from sqhn.storage.compact import compressed, expanded
from sqhn.storage.headers import INCONSISTENT, ArrayInFile, read_all, read_header, read_rows
from sqhn.storage.locks import held
from sqhn.storage.sharded_files import folder_of, keep_only, open_shard_files, write_shard_files

MEMORY = "memory.sqhn"
"""The checkpoint of a memory that is kept in a folder."""
FORMAT = 2
FORMAT_1 = 1  # without features, and without the steps of last writes, which count as 0
FEATURES = frozenset({"compact", "values", "holes", "forgotten", "pieces", "ratios", "bytes", "shared", "stops"})
"""The features that this version knows. compact: integers have the smallest type that holds them, neurons that are rows
have packed codes, and only the neurons of the memory node have all statistics. values: labels. holes: samples with
missing values were learned, so neurons know how often each of their values was observed. forgotten: neurons of the
memory node are forgotten: their count is 0. pieces: the prototypes of level 1 are in shard files. ratios: calibrations
keep those of their samples. bytes: prototypes that are single samples of uint8 are stored as such, the others as
float32. shared: the nodes of some levels share a bank, which is saved as one node. stops: some levels stop when the
memory node is full."""
NEWER = ("shared", "stops")
"""Settings of levels that are saved, as features too, only where they are used: earlier versions do not know them."""
DROPPED = {"hidden_similarity": "cosine", "update_order": "layerwise"}
"""Options of earlier versions, with their defaults."""
Header = dict[str, Any]
Tensors = dict[str, Any]
"""NumPy arrays, or `Rows` of arrays that are still in shard files."""


def save(
    path: str | os.PathLike[str],
    model: Model,
    ask: Callable[..., Any] = lambda question, *args: question(*args),
    **entries: Any,
) -> None:
    """Write a memory to a file, atomically; on shards also a file for each of them.

    ask: calls a function with arguments while the model does not change. entries: more of the header.
    """
    if model.tree.device.shards is not None:
        ask(_save_sharded, path, model, entries)
        return
    header, tensors = ask(encode, model)
    write(path, header | entries, tensors)
    if folder_of(path).exists():
        with suppress(OSError), _shard_folder(path):  # the memory is saved, with or without this
            pass


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise if a memory cannot or must not be saved to a file with this name: before an hour of work, not after."""
    if os.fspath(path).endswith(os.sep):
        raise IsADirectoryError(f"{path} is a folder, not a file")
    place = regular(path)
    if not os.access(place.parent, os.W_OK):
        number = errno.EACCES if place.parent.exists() else errno.ENOENT
        raise OSError(number, "cannot be written: its folder does not exist, or is write-protected", str(path))
    if place.name == MEMORY and "journal" in header_of(place) and any(place.parent.glob("journal*")):
        raise ValueError(
            f"{path} belongs to the memory that is kept in {place.parent}, with the changes in its journal: save under "
            f"another name, or load {place.parent} to continue that memory"
        )


def write(path: str | os.PathLike[str], header: Header, tensors: Tensors) -> None:
    """Write a file with this header and these arrays, atomically."""
    text = json.dumps(header, sort_keys=True, allow_nan=False)
    write_whole(Path(path), serialize(tensors, {"sqhn": text, "sha256": _digest(text, tensors)}))


def _save_sharded(path: str | os.PathLike[str], model: Model, entries: Header) -> None:
    """Write a memory on shards, atomically; never more than one shard is in this process."""
    header, tensors = encode(model, whole=False)
    header["features"].append("pieces")
    header |= {"shards": model.tree.device.shards, **entries}
    with _shard_folder(path) as folder:
        header["pieces"] = write_shard_files(folder, cast("ShardedBank", model.tree.patterns).shard_states())
        write(path, header, tensors)


@contextmanager
def _shard_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """The folder of the shard files of a memory, locked; in the end, files that the memory does not name are removed.

    Another process that saves the same memory would remove the files that this one has written.
    """
    folder = folder_of(path)
    with held(folder, lambda _: None):
        try:
            yield folder
        finally:
            header = header_of(path)
            if header or not Path(path).exists():  # a file that cannot be read now may name any of them
                keep_only(folder, header.get("pieces", ()))


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
        "compact": True,
        "values": bool(labels),
        "holes": any(bank.holes for bank in tree.banks),
        "forgotten": len(tree) < int(tree.root.grown[0]),
        "ratios": any("ratios" in made for made in calibrations.values()),
        **{name: any(getattr(level, name) for level in tree.levels) for name in NEWER},
    }
    header: Header = {
        "format": FORMAT,
        "features": [name for name, used in features.items() if used],
        "input_shape": list(tree.input_shape),
        "levels": [
            {name: value for name, value in asdict(level).items() if value or name not in NEWER}
            | ({"alpha": "inf"} if math.isinf(level.alpha) else {})  # JSON has no infinity
            for level in tree.levels
        ],
        "options": asdict(model.options),
        "steps": [bank.neurons.step for bank in tree.banks],
        "bits": [],
        **calibrations,
    }
    tensors: Tensors = {}
    for number, bank in enumerate(tree.banks, start=1):
        state = bank.neurons.state() | (bank.state() if whole or number > 1 else {})
        small, bits = compressed(state)
        header["bits"].append(bits)
        tensors |= {f"level{number}.{name}": np.ascontiguousarray(array) for name, array in small.items()}
    if "level1.bytes" in tensors:
        header["features"].append("bytes")
    if labels:
        tensors["values"] = labels.state()
    return header, tensors


def decode(header: Header, tensors: Tensors, device: str | Device, shards: int | None = None) -> Model:
    """The memory with this header and these arrays; device: or its name."""
    levels = as_levels([_level(fields) for fields in header["levels"]])
    shape, nodes = as_shape(header["input_shape"]), len(tensors["level1.grown"])
    size = tensors["level1.prototypes"].shape[1]
    if levels[0].shared:
        check_sizes(header, tensors, shape, levels)
    elif math.prod(shape) != nodes * size:  # before arrays of that size are made
        raise ValueError(f"{nodes} nodes with prototypes of {size} values, for samples of shape {shape}")
    at = devices.device_of(device, shards) if isinstance(device, str) else device
    with at.stream():
        model = Model(shape, levels, Options(**_options(header)), at)
        _fill(model.tree.banks, header, tensors)
        if (labels := tensors.get("values")) is not None:
            model.labels.restore(labels, model.tree.neurons("c"))
    made = {name: Calibration(**header[name]) for name in ("calibration", "evidence") if header.get(name) is not None}
    for name, one in made.items():
        one.check(evidence=name == "evidence")
    model.calibration, model.evidence_calibration = made.get("calibration"), made.get("evidence")
    return model


def check_sizes(header: Header, tensors: Tensors, shape: tuple[int, ...], levels: Sequence[Level]) -> None:
    """Raise unless the arrays of shared levels are for samples of this shape, of which level 1 alone tells nothing."""
    if plan(shape, levels)[0].size != tensors["level1.prototypes"].shape[1]:
        raise ValueError(f"prototypes of {tensors['level1.prototypes'].shape[1]} values, for samples of shape {shape}")
    for number, (tiling, level) in enumerate(zip(plan(shape, levels), levels), start=1):
        nodes, own = len(tensors[f"level{number}.grown"]), 1 if level.shared else tiling.nodes
        width = tensors[f"level{number}.codes"].shape[1] if number > 1 else 0
        if nodes != own or (number > 1 and width != -(-tiling.size * header["bits"][number - 1] // 8)):
            raise ValueError(
                f"{nodes} nodes with codes of {width} bytes at level {number}, for samples of shape {shape}"
            )


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
            name.removeprefix(prefix): array if bank.device.shards or isinstance(array, ArrayInFile) else array[:]
            for name, array in tensors.items()
            if name.startswith(prefix)
        }
        if "compact" in header.get("features", ()):
            children = 0 if number == 1 else cast("CodeBank", bank).children.shape[1]
            state = expanded(state, header["bits"][number - 1], children)
        if header["format"] == FORMAT_1:
            state["written"] = np.zeros_like(state["c"])
        if not isinstance(step, int) or step < 0:
            raise ValueError(f"{step!r} steps")
        if (number < len(banks) or "forgotten" not in header.get("features", ())) and state["c"].min(initial=1) < 1:
            raise ValueError("counts below 1")
        if "written" in state and state["written"].max(initial=0) > step:
            raise ValueError(f"neurons written after the last step, {step}")
        if "known" in state and "holes" not in header.get("features", ()):
            raise ValueError("counts of values without holes")
        if "bytes" in state and "bytes" not in header.get("features", ()):
            raise ValueError("bytes that the header does not announce")
        bank.neurons.restore(state, step)
        bank.restore(state, values)
        values = bank.neurons.room


@contextmanager
def _reading(path: str | os.PathLike[str], problem: str) -> Iterator[None]:
    """Raise errors of a file as a `MemoryFileError` that names it and the problem."""
    try:
        yield
    except MemoryFileError:
        raise
    except FileNotFoundError as error:
        if error.filename == str(path):
            raise
        raise MemoryFileError(f"{path} has a shard file that is not there: {error.filename} belongs to it") from error
    except INCONSISTENT as error:
        raise MemoryFileError(f"{path} {problem}: {error}") from error


def load(path: str | os.PathLike[str], device: str = "cpu", shards: int | None = None) -> tuple[Header, Model]:
    """Read a memory; whatever is wrong with it is a `MemoryFileError` that names the file."""
    if Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder, not a memory", str(path))
    with _reading(path, "is not a memory, or is truncated"), Path(path).open("rb") as file:
        metadata, tensors = read_all(file)
        header = _header(path, metadata)
        if metadata.get("sha256") != _digest(metadata["sqhn"], tensors):
            raise MemoryFileError(f"{path} is damaged: its content does not match its digest")
    with _reading(path, "does not hold a consistent memory"):
        if "pieces" in header:
            try:
                tensors |= open_shard_files(path, header["pieces"])
            except FileNotFoundError:
                if header_of(path).get("pieces") == header["pieces"]:
                    raise
                return load(path, device, shards)  # another memory was saved there meanwhile
        return header, decode(header, tensors, device, shards)


def load_in_file(path: str | os.PathLike[str], device: str) -> tuple[Header, Model]:
    """Open a memory of one level whose prototypes stay in the file; errors as in `load`.

    The whole file is read once, in blocks, for its digest.
    """
    at, stay = InFile(device, os.fspath(path)), {f"level1.{name}" for name in ("prototypes", "bytes", "known")}
    with ExitStack() as stack:
        with _reading(path, "is not a memory, or is truncated"):
            file = stack.enter_context(Path(path).open("rb"))
            metadata, arrays = read_header(file)
            header = _header(path, metadata)
            levels, pieces = len(header["levels"]), "pieces" in header
        if levels > 1 or pieces:
            kind = "is on shards" if pieces else f"has {levels} levels"
            raise ValueError(f"mmap=True is for memories of one level in one file; that in {path} {kind}")
        with _reading(path, "does not hold a consistent memory"):
            tensors: Tensors = {name: ArrayInFile(file, array) for name, array in arrays.items()}
            if metadata.get("sha256") != _digest(metadata["sqhn"], tensors):
                raise MemoryFileError(f"{path} is damaged: its content does not match its digest")
            tensors = {name: array if name in stay else array[:] for name, array in tensors.items()}
            model = decode(header, tensors, at)
        finalize(at, stack.pop_all().close)  # the file stays open as long as the memory is there
        return header, model


def header_of(path: str | os.PathLike[str]) -> Header:
    """The header of a file, unchecked; empty if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            header: Any = json.loads(read_header(file)[0]["sqhn"])
        return header if isinstance(header, dict) else {}
    except (LookupError, OSError, TypeError, ValueError):
        return {}


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header of a file, and how many neurons its nodes have grown and forgotten; no more of it is read."""
    with _reading(path, "is not a memory, or is damaged"):
        with Path(path).open("rb") as file:
            metadata, arrays = read_header(file)
            header = _header(path, metadata)
            about = outline(header, lambda name: read_rows(file, arrays[name]))
        shard_files = [folder_of(path) / entry["name"] for entry in header.get("pieces", ())]
        return {"memory": str(path), "bytes": sum(file.stat().st_size for file in (Path(path), *shard_files)), **about}


def outline(header: Header, array: Callable[[str], NDArray[Any]]) -> dict[str, Any]:
    """The settings of a memory, and how far it has grown, from its header and some of its arrays."""
    levels, shape = [], as_shape(header["input_shape"])
    tilings = plan(shape, [_level(level) for level in header["levels"]])  # which checks them
    for number, (level, tiling) in enumerate(zip(header["levels"], tilings), start=1):
        grown = array(f"level{number}.grown")
        reached = {"min": int(grown.min()), "mean": float(grown.mean()), "max": int(grown.max())}
        levels.append({**level, "nodes": tiling.nodes, "grown": reached})
    features = header.get("features", ())
    options = Options(**_options(header))
    gone = array(f"level{len(levels)}.c") == 0 if "forgotten" in features else ()
    return {
        "format": header["format"],
        "input_shape": shape,
        "step": int(header["steps"][-1]),
        "levels": levels,
        "options": asdict(options),
        "rho": options.tolerance(len(levels)),
        "calibration": header.get("calibration"),
        "evidence": header.get("evidence"),
        "values": "values" in features,
        "holes": "holes" in features,
        "forgotten": int(np.sum(gone)),
    }


def _header(path: str | os.PathLike[str], metadata: dict[str, Any]) -> Header:
    """The header in the metadata of a file, if this version can read such a file."""
    with _reading(path, "is a safetensors file, but not a memory of this package"):
        header: Header = json.loads(metadata["sqhn"])
        version, features = header["format"], set(header.get("features", ()))
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
        for rows in array.blocks() if isinstance(array, ArrayInFile) else [array]:
            digest.update(rows.data)
    return digest.hexdigest()


def _level(fields: dict[str, Any]) -> Level:
    """The level with these fields in a header."""
    return Level(**fields | ({"alpha": math.inf} if fields["alpha"] == "inf" else {}))
