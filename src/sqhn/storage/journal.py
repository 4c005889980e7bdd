"""Memories that outlive their process: a folder has what a memory was, and every change since.

A change is on disk before it is made, and taken back if it fails: what a call has returned from is there, whatever
happens next. Made again in their order, changes give the same memory. From time to time the memory itself is saved, and
a new journal begun, which the saved file names: at any moment there is one that goes with it.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import secrets
import warnings
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from sqhn.concurrency.signals import deferred
from sqhn.model.model import Model
from sqhn.protocol import MemoryFileError
from sqhn.storage import changes
from sqhn.storage.atomic import sync_folder
from sqhn.storage.changes import Change, decode
from sqhn.storage.files import encode, header_of, load, save, save_sharded
from sqhn.storage.lockfile import held
from sqhn.storage.sharded_files import folder_of

__all__ = ["MEMORY", "Journal"]

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
        self.log: Any = None
        self.lock = ExitStack()
        try:
            self._take()
        except BlockingIOError:
            gc.collect()  # a memory of this process that nobody uses may still be there
            self._take()
        self.end = self.next = 0  # bytes of changes: there are, and to save the memory after

    @staticmethod
    def file(folder: Path) -> Path:
        """The checkpoint in a folder."""
        return folder / MEMORY

    @classmethod
    def exists(cls, folder: Path) -> bool:
        """Whether a folder holds a memory."""
        return cls.file(folder).exists()

    @classmethod
    def create(cls, folder: Path, model: Model) -> Self:
        """Begin to keep a memory in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        journal = cls(folder)
        try:
            if journal.path.exists():
                raise FileExistsError(f"{folder} has a memory already: SQHN.load({str(folder)!r}) continues it")
            journal.begin(model)
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def open(cls, folder: Path, device: str, shards: int | None) -> tuple[Model, Self]:
        """The memory in a folder, with all its changes."""
        journal = cls(folder)
        try:
            header, model = load(journal.path, device, shards)
            with model.tree.device.stream():
                journal.follow(model, header)
                model.tree.settle()
        except BaseException:
            journal.close()
            raise
        return model, journal

    def _take(self) -> None:
        self.lock.enter_context(held(self.path, _refuse, warnings.warn))

    def close(self) -> None:
        """Let others have it."""
        if self.log is not None:
            self.log.close()
        self.lock.close()

    def __del__(self) -> None:
        if self.log is not None:
            self.log.close()

    # -- changes -------------------------------------------------------------------------------------------------

    def apply(self, change: Change, model: Model) -> Any:
        """Make a change that is on disk."""
        if os.getpid() != self.process:
            raise RuntimeError(
                f"{self.folder} belongs to a memory of process {self.process}: this one has a copy of it"
            )
        record = _record(change)
        noted = decode(record[HEAD:])  # a sample may change while it is learned
        try:
            self._write(record)
            answer = noted.apply(model)
        except BaseException:
            with suppress(OSError):  # what went wrong first is what counts, and who writes next truncates too
                self.log.truncate(self.end)
            raise
        self.end += len(record)
        return answer

    def _write(self, record: bytes) -> None:
        try:
            if os.fstat(self.log.fileno()).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, "the journal was removed: changes cannot be kept")
            self.log.truncate(self.end)
            self.log.seek(self.end)
            if self.log.write(record) < len(record):
                raise OSError(errno.ENOSPC, "no room for a change")
            os.fsync(self.log.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.log.name) from error

    # -- the memory itself ---------------------------------------------------------------------------------------

    def checkpoint_if_due(self, memory: Model) -> None:
        """Save the memory if there were many changes."""
        if self.end >= self.next:
            try:
                self.begin(memory)
            except Exception as error:  # what was to be learned is learned
                self.next = 2 * self.end
                warnings.warn(
                    f"{self.path} cannot be saved now, and changes are kept for longer: {error}", stacklevel=2
                )

    def begin(self, memory: Model) -> None:
        """Save the memory, and begin a new journal."""
        name = f"{PREFIX}{secrets.token_hex(8)}"
        with deferred():
            file = (self.folder / name).open("xb", buffering=0)
            sync_folder(self.folder)
            try:
                if memory.tree.device.shards is not None:
                    save_sharded(self.path, memory, {"journal": name})
                else:
                    header, tensors = encode(memory)
                    save(self.path, header | {"journal": name}, tensors)
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
        if self.log is not None:
            self.log.close()
        saved = [self.path, *folder_of(self.path).glob("*")]
        self.log, self.end = file, end
        self.next = max(ENOUGH, sum(path.stat().st_size for path in saved))

    def follow(self, memory: Model, header: dict[str, Any]) -> None:
        """Make all changes again that a memory, as it was saved with a header, has not seen."""
        name = header.get("journal")
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            raise MemoryFileError(f"{self.path} was not kept in a folder, and has no journal: load it by its own name")
        path, end = self.folder / name, 0
        if path.is_symlink() or not path.is_file():
            raise MemoryFileError(f"{path} belongs to {self.path}, and is not there")
        size = path.stat().st_size
        for after, change in _records(path, size):
            try:
                change.check(memory)
                change.apply(memory)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                if after < size:
                    raise MemoryFileError(f"{path}: the change at byte {end:,} cannot be made: {error}") from error
                break  # nor could it when it was noted, and the process ended before it was taken back
            end = after
        self._go_on_with(path.open("r+b", buffering=0), end)  # what is beyond goes when there is something to write


def _refuse(text: str) -> None:
    raise BlockingIOError(text.removesuffix(": waiting for it to finish"))


def _record(change: Change) -> bytes:
    """A change as bytes."""
    body = changes.encode(change)
    head = len(body).to_bytes(8, "little") + zlib.crc32(body).to_bytes(4, "little")
    return head + zlib.crc32(head).to_bytes(4, "little") + body


def _records(path: Path, size: int) -> Iterator[tuple[int, Change]]:
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
            yield end, _change(path, end, body)


def _change(path: Path, end: int, body: bytes) -> Change:
    """What a record says that ends at some byte."""
    try:
        return decode(body)
    except ValueError as error:
        raise MemoryFileError(f"{path}: the change before byte {end:,} cannot be read: {error}") from error
