"""Memories that outlive their process: a folder has what a memory was, and every change since.

A change is on disk before it is made, and taken back if it fails: what a call has returned from is there, whatever
happens next. Made again in their order, changes give the same memory. From time to time the memory itself is saved, and
a new journal begun, which the saved file names: at any moment there is one that goes with it.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import secrets
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as deserialize
from safetensors.numpy import save as serialize

from sqhn.concurrency.signals import deferred
from sqhn.inputs import as_numpy
from sqhn.level import Options
from sqhn.model.calibration import Calibration
from sqhn.protocol import MemoryFileError
from sqhn.storage.atomic import sync_folder
from sqhn.storage.files import header_of
from sqhn.storage.lockfile import held
from sqhn.storage.sharded_files import folder_of

if TYPE_CHECKING:
    from sqhn.memory import SQHN

__all__ = ["MEMORY", "Journal"]

Answer = TypeVar("Answer")
MEMORY = "memory.sqhn"
PREFIX = "journal-"
NAME = f"{PREFIX}[0-9a-f]{{16}}"
OWN = re.compile(rf"{NAME}|\.{re.escape(MEMORY)}\.[0-9a-f]+\.tmp")
HEAD = 16  # bytes before each change: how long it is, a checksum of it, and one of these
BLOCK = 1 << 20
ENOUGH = 1 << 26
"""Bytes of changes after which the memory is saved, if it is not larger than that itself."""


class Journal:
    """The journal of one memory; nobody else has it open."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.realpath(folder))  # wherever the process goes
        self.path, self.process = self.folder / MEMORY, os.getpid()
        self.file: Any = None
        self.lock = ExitStack()
        try:
            self._take()
        except BlockingIOError:
            gc.collect()  # a memory of this process that nobody uses may still be there
            self._take()
        self.end = self.next = 0  # bytes of changes: there are, and to save the memory after

    def _take(self) -> None:
        self.lock.enter_context(held(self.path, _refuse, warnings.warn))

    def close(self) -> None:
        """Let others have it."""
        if self.file is not None:
            self.file.close()
        self.lock.close()

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()

    # -- changes -------------------------------------------------------------------------------------------------

    def change(self, action: Callable[..., Answer], args: tuple[Any, ...]) -> Answer:
        """Make a change that is on disk."""
        if os.getpid() != self.process:
            raise RuntimeError(
                f"{self.folder} belongs to a memory of process {self.process}: this one has a copy of it"
            )
        record = _record(action.__name__, args)
        _, noted = _change(self.path, self.end, record[HEAD:])  # a sample may change while it is learned
        try:
            self._write(record)
            answer = action(*noted)
        except BaseException:
            with suppress(OSError):  # what went wrong first is what counts, and who writes next truncates too
                self.file.truncate(self.end)
            raise
        self.end += len(record)
        return answer

    def _write(self, record: bytes) -> None:
        try:
            if os.fstat(self.file.fileno()).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, "the journal was removed: changes cannot be kept")
            self.file.truncate(self.end)
            self.file.seek(self.end)
            if self.file.write(record) < len(record):
                raise OSError(errno.ENOSPC, "no room for a change")
            os.fsync(self.file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.file.name) from error

    # -- the memory itself ---------------------------------------------------------------------------------------

    def relieve(self, memory: SQHN) -> None:
        """Save the memory if there were many changes."""
        if self.end >= self.next:
            try:
                self.begin(memory)
            except Exception as error:  # what was to be learned is learned
                self.next = 2 * self.end
                warnings.warn(
                    f"{self.path} cannot be saved now, and changes are kept for longer: {error}", stacklevel=2
                )

    def begin(self, memory: SQHN) -> None:
        """Save the memory, and begin a new journal."""
        name = f"{PREFIX}{secrets.token_hex(8)}"
        with deferred():
            file = (self.folder / name).open("xb", buffering=0)
            sync_folder(self.folder)
            try:
                memory._save(self.path, {"journal": name})
            except BaseException:
                if header_of(self.path).get("journal") != name:
                    file.close()
                    (self.folder / name).unlink()
                    raise
            self._go_on_with(file, 0)
            for other in self.folder.iterdir():  # drafts of one that died, too
                if OWN.fullmatch(other.name) and other.name != name:
                    with suppress(OSError):
                        other.unlink()

    def _go_on_with(self, file: Any, end: int) -> None:
        if self.file is not None:
            self.file.close()
        saved = [self.path, *folder_of(self.path).glob("*")]
        self.file, self.end = file, end
        self.next = max(ENOUGH, sum(path.stat().st_size for path in saved))

    def follow(self, memory: SQHN, header: dict[str, Any]) -> None:
        """Make all changes again that a memory, as it was saved with a header, has not seen."""
        name = header.get("journal")
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            raise MemoryFileError(f"{self.path} was not kept in a folder, and has no journal: load it by its own name")
        path, end = self.folder / name, 0
        if path.is_symlink() or not path.is_file():
            raise MemoryFileError(f"{path} belongs to {self.path}, and is not there")
        size = path.stat().st_size
        for after, action, args in _records(path, size):
            try:
                _check(memory, action, args)
                getattr(memory, action)(*args)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                if after < size:
                    raise MemoryFileError(f"{path}: the change at byte {end:,} cannot be made: {error}") from error
                break  # nor could it when it was noted, and the process ended before it was taken back
            end = after
        self._go_on_with(path.open("r+b", buffering=0), end)  # what is beyond goes when there is something to write


def _refuse(text: str) -> None:
    raise BlockingIOError(text.removesuffix(": waiting for it to finish"))


def _record(name: str, args: tuple[Any, ...]) -> bytes:
    """A change as bytes."""
    arrays: dict[str, NDArray[Any]] = {}
    change = json.dumps([name, [_plain(arg, arrays) for arg in args]])
    body = serialize(arrays, {"change": change})
    head = len(body).to_bytes(8, "little") + zlib.crc32(body).to_bytes(4, "little")
    return head + zlib.crc32(head).to_bytes(4, "little") + body


def _records(path: Path, size: int) -> Iterator[tuple[int, str, list[Any]]]:
    """The changes of a journal of so many bytes, and where each ends; the last may not have been written to its end."""
    end = 0
    with path.open("rb") as file:
        while size - end >= HEAD:
            head = file.read(HEAD)
            if zlib.crc32(head[:12]) != int.from_bytes(head[12:], "little"):
                if any(head) or any(map(any, iter(lambda: file.read(BLOCK), b""))):  # else nothing came to be written
                    raise MemoryFileError(f"{path} is damaged, at byte {end:,} of {size:,}")
                return
            length = int.from_bytes(head[:8], "little")
            body = file.read(min(length, size - end))
            if len(body) < length or zlib.crc32(body) != int.from_bytes(head[8:12], "little"):
                if end + HEAD + length < size:
                    raise MemoryFileError(f"{path} is damaged, at byte {end:,} of {size:,}")
                return
            end += HEAD + length
            yield end, *_change(path, end, body)


def _change(path: Path, end: int, body: bytes) -> tuple[str, list[Any]]:
    """What a record says that ends at some byte."""
    from sqhn.memory import CHANGES

    try:
        arrays = deserialize(body)
        head = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
        name, args = json.loads(head["__metadata__"]["change"])
        if name not in CHANGES:
            raise ValueError(f"{name!r}, which this version of sqhn does not know")
        return name, [_meant(arg, arrays) for arg in args]
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        raise MemoryFileError(f"{path}: the change before byte {end:,} cannot be read: {error}") from error


def _check(memory: SQHN, action: str, args: list[Any]) -> None:
    """Raise unless a change can have been noted by a memory like this one."""
    first: Any = args[0] if args else None
    wrong = TypeError(f"{action} with {first!r}")
    if action == "_set_options" and (
        not isinstance(first, Options) or replace(first, rho=memory.options.rho) != memory.options
    ):
        raise wrong
    if action == "_set_shown" and not isinstance(first, Calibration):
        raise wrong
    if action == "_forget" and len(set(first)) < len(first):
        raise wrong
    if action in ("_learn_chunk", "_learn_held", "_memorize"):
        samples, single, _ = memory._samples(args[0])
        seen, texts = args[1] if len(args) > 1 else None, args[-1] if action != "_memorize" else None
        if single or (seen is not None and (seen.shape != samples.shape or seen.dtype != bool)):
            raise ValueError(f"{action} with samples of shape {samples.shape} of which {seen!r} was seen")
        for text in texts if isinstance(texts, list) else ():
            json.loads(text or "null")


def _plain(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """An argument of a change as JSON; arrays go to a place of their own."""
    if isinstance(value, Options):
        return {"options": asdict(value)}
    if isinstance(value, Calibration):
        return {"calibration": value._asdict()}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list):
        return value  # of numbers or texts
    array = as_numpy(value)
    arrays[str(len(arrays))] = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return {"array": str(len(arrays) - 1)}


def _meant(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array":
        return arrays[content]
    return Options(**content) if kind == "options" else Calibration(**content)
