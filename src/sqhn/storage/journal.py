"""Memories kept in a folder: a checkpoint, which is the memory in a file, and a journal of every change since.

The journal is a write-ahead log. A change is on disk before it is made, and is removed if it fails: once a call
returns, its changes survive any crash, and a change that the disk has no room for is not made. (If it were made first,
it could not be undone then.) The same changes in the same order give the same memory. From time to time the memory is
saved: the checkpoint has the number of the last change that it includes, and the changes up to it are removed.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import secrets
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from sqhn.banks import devices
from sqhn.concurrency import deferred
from sqhn.model.model import Model
from sqhn.protocol import MemoryFileError
from sqhn.storage import files, old_journal
from sqhn.storage.atomic import make_folder
from sqhn.storage.changes import Change, Forget, decode, encode
from sqhn.storage.files import MEMORY, Header, save
from sqhn.storage.headers import INCONSISTENT
from sqhn.storage.locks import held
from sqhn.storage.log import Log
from sqhn.storage.sharded_files import folder_of

JOURNAL = "journal.sqlite"
LEFTOVER = re.compile(rf"{old_journal.JOURNAL_NAME}|\.{re.escape(MEMORY)}\.[0-9a-f]+\.tmp")
"""Files that a checkpoint replaces, or that a crash has left behind."""
FILES = (f"{JOURNAL}.confirmed", JOURNAL, f"{JOURNAL}-wal")
"""Files that hold the changes."""
ATTEMPTS, PAUSE = 10, 0.05  # to read a folder that is in use; seconds
ENOUGH = 1 << 26
"""Bytes of changes after which the memory is saved, unless the memory is larger."""


class Journal:
    """The journal of one memory, in a folder that no other memory uses."""

    log: Log
    next: int
    """Bytes of changes after which to save the memory."""
    saved: tuple[int, ...]
    """The identity of the checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.open_files = ExitStack()
        self.folder = Path(os.path.realpath(folder))  # wherever the process goes
        self.path, self.process = self.folder / MEMORY, os.getpid()
        with deferred():  # a signal in between would leave a lock behind
            try:
                self.open_files.enter_context(held(self.path))
            except BlockingIOError:
                gc.collect()  # a memory of this process that nobody uses may still be there
                self.open_files.enter_context(held(self.path))

    @classmethod
    def create(cls, folder: Path, model: Model) -> Self:
        """Begin to keep a memory in a folder."""
        make_folder(folder)
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
        try:
            journal = cls(folder)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            hint = "nothing can be written there; SQHN.load(folder, read_only=True) loads a copy of the memory"
            raise OSError(error.errno, hint, str(folder)) from error
        try:
            model, log = restored(journal.path, journal.folder, device, shards)
            if log is None:
                journal.begin(model)
            else:
                journal.log = log
                journal.open_files.callback(log.close)
                journal.saved = journal._identity()
                journal._plan()
        except BaseException:
            journal.close()
            raise
        return model, journal

    def close(self) -> None:
        """Let others use the folder."""
        self.open_files.close()

    def __del__(self) -> None:
        if hasattr(self, "open_files"):  # else a signal came before
            self.close()

    # -- changes -------------------------------------------------------------------------------------------------

    def apply(self, change: Change, model: Model) -> Any:
        """Make a change that is on disk."""
        if os.getpid() != self.process:
            raise RuntimeError(
                f"{self.folder} belongs to a memory of process {self.process}: this one has a copy of it"
            )
        if self._identity() != self.saved or not self.log.in_place():
            raise FileNotFoundError(
                errno.ENOENT, "the memory was removed or replaced: changes cannot be kept", str(self.path)
            )
        content = encode(change)
        stored = decode(content)  # the caller's arrays may change while they are learned
        try:
            self.log.append(content)
            answer = stored.apply(model)
        except BaseException:
            self.log.take_back()
            raise
        self.log.confirm()
        return answer

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def checkpoint_if_due(self, model: Model) -> None:
        """Save the memory if there were many changes."""
        if self.log.size >= self.next:
            try:
                self._checkpoint(model)
            except Exception as error:  # the changes are made and kept, whatever happens here
                self.next = 2 * self.log.size
                warnings.warn(
                    f"{self.path} cannot be saved now, and changes are kept for longer: {error}", stacklevel=2
                )

    def begin(self, model: Model) -> None:
        """Save a memory that has no journal yet; files of another journal are removed."""
        with deferred():
            for name in FILES:
                (self.folder / name).unlink(missing_ok=True)
            self.log = Log(self.folder / JOURNAL, 0, secrets.token_hex(32), new=True)
            self.open_files.callback(self.log.close)
        with model.tree.device.stream():
            self._checkpoint(model)

    def _checkpoint(self, model: Model) -> None:
        """Save the memory, and remove the changes that it includes."""
        with deferred():
            try:
                save(self.path, model, journal={"change": self.log.number, "sha256": self.log.digest})
            finally:  # a save that fails late has replaced the file all the same
                self.saved = self._identity()
            self.log.clear()
            self._plan()
            for file in self.folder.iterdir():
                if LEFTOVER.fullmatch(file.name):
                    with suppress(OSError):
                        file.unlink()

    def _identity(self) -> tuple[int, ...]:
        """Numbers that differ if another file took the place of the checkpoint; empty if it is not there."""
        with suppress(OSError):
            found = self.path.stat()
            return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
        return ()

    def _plan(self) -> None:
        """Decide when to save the memory next."""
        saved = [self.path, *folder_of(self.path).glob("*")]
        self.next = max(ENOUGH, sum(file.stat().st_size for file in saved))


def open_log(path: Path, header: Header, folder: Path) -> Log | None:
    """The changes since a checkpoint with this header, from the journal in a folder; None if there are none."""
    match header:
        case {"journal": {"change": int(number), "sha256": str(digest)}}:
            return Log(folder / JOURNAL, number, digest)
        case {"journal": None}:  # a repair was interrupted: the damaged journal is not read again
            return None
    raise MemoryFileError(f"{path} was not kept in a folder, and has no journal: load it by its name")


def replay(log: Log, model: Model) -> Iterator[str | None]:
    """Make all changes of a journal: None for each, and a sentence for each that is damaged or cannot be made.

    A change that forgets neurons by their numbers cannot be made after a damaged one, and neither can those that
    follow it: the numbers may be those of other neurons.
    """
    lost = False
    for number, found in log.records():
        if isinstance(found, str):
            lost = True
            yield found
            continue
        try:
            change = decode(found)
            if lost and isinstance(change, Forget):
                yield f"neurons {change.index} were forgotten then, which may be others now: left out"
                return
            change.check(model)
            change.apply(model)
        except INCONSISTENT as error:
            problem = f"change {number:,} cannot be made: {error}"
            if not log.unconfirmed(number):
                yield problem
            else:
                warnings.warn(f"{log.path}: {problem}. It was never confirmed, and is left out", stacklevel=6)
            return
        yield None


def restored(path: Path, folder: Path, device: str, shards: int | None) -> tuple[Model, Log | None]:
    """The memory of a checkpoint, with all changes in the journal in a folder; its log, None if it needs a new one."""
    header, model = files.load(path, device, shards)
    log = None
    with model.tree.device.stream():
        if isinstance(header.get("journal"), str):
            old_journal.replay(path.parent, header["journal"], model)
        else:
            try:
                with deferred():
                    log = open_log(path, header, folder)
                for problem in replay(log, model) if log else ():
                    if problem:
                        repair = f"`sqhn repair {path.parent}` lists all damage"
                        raise MemoryFileError(f"{path.parent / JOURNAL}: {problem}; {repair}")
            except BaseException:
                if log:
                    (
                        log.leave if folder == path.parent else log.close
                    )()  # a refused folder is not changed; a copy may be
                raise
        model.tree.settle()
    return model, log


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """A temporary copy of the journal in a folder, as it is now."""
    with tempfile.TemporaryDirectory() as copy:
        for name in FILES:  # the number of the last confirmed change first: so later ones are never missed
            with suppress(FileNotFoundError):
                shutil.copyfile(folder / name, Path(copy) / name)
        yield Path(copy)


def read(folder: Path, device: str = "cpu", shards: int | None = None) -> Model:
    """A copy of the memory in a folder as it is now: nothing there is locked or written, and it may be in use."""
    attempts = 0
    while True:
        try:
            with copied(folder) as copy:
                model, log = restored(folder / MEMORY, copy, device, shards)
                if log is not None:
                    log.close()
                return model
        except MemoryFileError:  # perhaps because the memory was saved meanwhile
            attempts += 1
            if attempts == ATTEMPTS:
                raise
            time.sleep(PAUSE)


def load(
    path: str | os.PathLike[str],
    device: str = "cpu",
    shards: int | None = None,
    read_only: bool = False,
    in_file: bool = False,
) -> tuple[Model, Journal | None]:
    """The memory in a file, or in a folder with its journal.

    shards: None for as many as it was saved from. in_file: its prototypes stay in the file.
    """
    place = Path(path)
    folder = place if (place / MEMORY).exists() else None
    if shards is None and str(device).partition(":")[0] == "ray":
        shards = files.header_of(place if folder is None else folder / MEMORY).get("shards")
    devices.device_of(device, shards)  # an unusable device is not the file's fault
    if in_file and (folder or shards is not None):
        problem = f"shards={shards!r}" if folder is None else f"{path} is the folder of a durable memory: save it first"
        raise ValueError(f"mmap=True is for a memory in one file, on one device; {problem}")
    if folder is not None:
        return (read(folder, device, shards), None) if read_only else Journal.open(folder, device, shards)
    header, model = files.load_in_file(path, device) if in_file else files.load(path, device, shards)
    if "journal" in header:
        warnings.warn(f"{path} is a checkpoint, without the latest changes: load its folder instead", stacklevel=3)
    return model, None


def begin_or_continue(folder: Path, model: Model) -> tuple[Model, Journal]:
    """The memory in a folder, which must be of the same kind as this one; or this one, kept there from now on."""
    if not (folder / MEMORY).exists():
        return model, Journal.create(folder, model)
    kept, journal = Journal.open(folder, model.tree.device.name, model.tree.device.shards)
    if differences := kept.differences(model):
        journal.close()
        raise ValueError(f"{folder} has another kind of memory: {differences}")
    return kept, journal
