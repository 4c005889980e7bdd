"""Journals of earlier versions: read once, when their folder is opened.

A record is a change, a method of the memory of that time with its arguments, after a head of 16 bytes: its length, its
checksum, and the checksum of these two.
"""

from __future__ import annotations

import io
import json
import re
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqhn.model.calibration import Calibration
from sqhn.model.model import Model
from sqhn.protocol import MemoryFileError
from sqhn.storage.changes import CHANGES, Calibrate, Change, Hold, SetRho
from sqhn.storage.headers import INCONSISTENT, read_all

JOURNAL_NAME = "journal-[0-9a-f]{16}"
RECORD_HEAD = 16  # bytes before the content of a record


def replay(folder: Path, name: str, model: Model) -> None:
    """Make all changes of the journal that a checkpoint names."""
    path = folder / name
    if not re.fullmatch(JOURNAL_NAME, name) or path.is_symlink() or not path.is_file():
        raise MemoryFileError(f"{path} is the journal of a memory, and is not there")
    size, done = path.stat().st_size, 0
    for end, content in _records(path, size):
        try:
            change = _change(content, model)
            change.check(model)
            change.apply(model)
        except INCONSISTENT as error:
            if end < size:
                raise MemoryFileError(f"{path}: the change at byte {done:,} cannot be made: {error}") from error
            break  # the process ended before it could remove a change that had failed
        done = end
    if done < size:
        warnings.warn(f"{path}: the last {size - done:,} bytes are a change that was never completed", stacklevel=6)


def _records(path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """The end and the content of every complete record; the last record may be incomplete."""
    with path.open("rb") as file:
        while size - (start := file.tell()) >= RECORD_HEAD:
            head = file.read(RECORD_HEAD)
            length = int.from_bytes(head[:8], "little")
            if zlib.crc32(head[:12]) == int.from_bytes(head[12:], "little"):
                content = file.read(min(length, size))
                if len(content) == length and zlib.crc32(content) == int.from_bytes(head[8:12], "little"):
                    yield file.tell(), content
                    continue
                if start + RECORD_HEAD + length >= size:
                    return
            elif not any(head) and not any(map(any, iter(lambda: file.read(1 << 20), b""))):
                return  # blocks that were never written
            raise MemoryFileError(f"{path} is damaged, at byte {start:,} of {size:,}")


def _change(content: bytes, model: Model) -> Change:
    """The change in a record."""
    metadata, arrays = read_all(io.BytesIO(content))
    name, values = json.loads(metadata["change"])
    args = [_value(value, arrays) for value in values]
    if name == "_learn_held":
        samples, observed, texts = args
        return Hold(samples, observed, (texts or [None]) * len(samples) if texts or model.labels else None)
    if name == "_set_options":
        options, calibration = args if len(args) == 2 else (*args, None)
        if options | {"rho": model.rho} != asdict(model.options):
            raise ValueError(f"other options than those of the memory: {options}")
        return Calibrate(calibration, options["rho"]) if calibration else SetRho(options["rho"])
    kind = CHANGES.get({"_learn_chunk": "learn", "_set_shown": "calibrate"}.get(name, name.removeprefix("_")))
    if kind is None:
        raise ValueError(f"an unknown change {name!r}")
    return kind(*args)


def _value(value: Any, arrays: dict[str, Any]) -> Any:
    """An argument: arrays, options and calibrations are objects with one key."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array":
        return arrays[content]
    return Calibration(**content) if kind == "calibration" else content
