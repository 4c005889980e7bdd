"""Memories in files: safetensors with a versioned JSON header.

A file is written beside its final place and moved there when it is complete, so a crash or a full disk leaves an old
file as it was. The header carries a digest of everything, so a damaged file is an error and never a wrong memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialize

from sqhn.banks.home import home
from sqhn.level import Level, Options
from sqhn.memory import MemoryFileError
from sqhn.validate import as_shape

if TYPE_CHECKING:
    from sqhn.network import SQHN

__all__ = ["FORMAT", "copy", "describe", "load", "save", "write_whole"]

FORMAT = 1
Tensors = dict[str, NDArray[Any]]
Network = TypeVar("Network", bound="SQHN")


def save(memory: SQHN, path: str | os.PathLike[str]) -> None:
    """Write a memory to `path`, atomically."""
    header, tensors = _parts(memory)
    text = json.dumps(header, sort_keys=True, allow_nan=False)
    write_whole(Path(path), serialize(tensors, {"sqhn": text, "sha256": _digest(text, tensors)}))


def copy(memory: Network, device: str) -> Network:
    """The same memory on a device."""
    header, tensors = _parts(memory)
    return _build(type(memory), header, tensors, device)


def _parts(memory: SQHN) -> tuple[dict[str, Any], Tensors]:
    """What a memory is: its header and its arrays."""
    header = {
        "format": FORMAT,
        "input_shape": list(memory.input_shape),
        "levels": [_finite(asdict(level)) for level in memory.levels],
        "options": asdict(memory.options),
        "steps": [bank.neurons.step for bank in memory.banks],
    }
    tensors: Tensors = {}
    for number, bank in enumerate(memory.banks, start=1):
        parts = bank.neurons.state() | bank.state()
        tensors |= {f"level{number}.{name}": np.ascontiguousarray(array) for name, array in parts.items()}
    return header, tensors


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place, then move it there: an old file of that name is replaced or as it was."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # new each time: a crash may have left one
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def load(kind: type[Network], path: str | os.PathLike[str], device: str = "cpu") -> Network:
    """Read a memory of class `kind`, onto a device."""
    home(device)  # a device that cannot be used is no fault of the file
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            _check_version(path, metadata)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise MemoryFileError(f"{path} is not a memory, or is truncated: {error}") from error
    text = metadata["sqhn"]
    if metadata.get("sha256") != _digest(text, tensors):
        raise MemoryFileError(f"{path} is damaged: its content does not match its digest")
    try:
        return _build(kind, json.loads(text), tensors, device)
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFileError(f"{path} does not hold a consistent memory: {error}") from error


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the header of a file says, and how far its nodes have grown; the rest is neither read nor checked."""
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
        return {
            "memory": str(path),
            "bytes": Path(path).stat().st_size,
            "format": header["format"],
            "input_shape": as_shape(header["input_shape"]),
            "step": int(header["steps"][-1]),
            "levels": levels,
            "options": asdict(Options(**header["options"])),
        }
    except SafetensorError as error:
        raise MemoryFileError(f"{path} is not a memory, or is truncated: {error}") from error
    except MemoryFileError:
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise MemoryFileError(f"{path} has a damaged header: {error}") from error


def _check_version(path: str | os.PathLike[str], metadata: dict[str, str]) -> None:
    try:
        version = json.loads(metadata["sqhn"])["format"]
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryFileError(f"{path} is a safetensors file, but not a memory of this package") from error
    if version != FORMAT:
        raise MemoryFileError(f"{path} has format {version}; this version of sqhn reads format {FORMAT}: upgrade sqhn")


def _build(kind: type[Network], header: dict[str, Any], tensors: Tensors, device: str) -> Network:
    levels = [Level(**_infinite(level)) for level in header["levels"]]
    memory = kind(header["input_shape"], levels, **header["options"], device=device)
    values = 0
    for number, (bank, step) in enumerate(zip(memory.banks, header["steps"], strict=True), start=1):
        prefix = f"level{number}."
        state = {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
        bank.neurons.restore(state, int(step))
        bank.restore(state, values)
        values = bank.neurons.room
    return memory


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
