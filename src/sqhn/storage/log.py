"""Numbered records on disk, in an SQLite database that one process has open: each is durable once `append` returns.

SQLite has a write-ahead log of its own, and synchronizes it once for each record. Where a byte of that log is damaged,
or the whole file is missing, SQLite takes the part before for all there was, and says nothing. So every record has a
number and a digest that continues that of the record before, and a small file has the number of the last confirmed
record: a record that is missing is noticed.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import sqlite3
import sys
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from sqhn.concurrency import deferred
from sqhn.protocol import MemoryFileError
from sqhn.storage.locks import NO_LOCKS

VFS = "win32" if sys.platform == "win32" else "unix-none"
"""How SQLite uses files: on Unix without locks of its own. Some file systems lack them, and a forked child could never
open the log again. Our locks are `held` for the folder, and `_keep_others_out` for the database."""
ROW = 1 << 28  # bytes; SQLite limits a value to a billion of them, so a large record has several rows
SMALLEST = 512  # bytes of a database; SQLite would take a smaller file for a new one, and remove its log
NEXT = "SELECT number, more, sha256, content FROM record WHERE number > ? ORDER BY number LIMIT 1"
SCHEMA = "number INTEGER PRIMARY KEY, more INTEGER, sha256 TEXT, content BLOB"
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_NOTADB)
ERRNO = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_READONLY: errno.EROFS}
SETUP = """
PRAGMA locking_mode = EXCLUSIVE; -- no index in shared memory, which would be mapped
PRAGMA mmap_size = 0; -- a mapped file that another process truncates ends this one
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
"""


class Log:
    """The records in a database.

    number: of the last row. digest: of that row. size: bytes of all records. Records are read once, with `records`,
    before others are appended.
    """

    def __init__(self, path: Path, number: int, digest: str, new: bool = False) -> None:
        """Open the log after a row with this number and digest, or begin a new one, without records."""
        self.path, self.number, self.digest, self.size = path, number, digest, 0
        self.appended, self.abandoned, self.opened = (number, digest, 0), False, ExitStack()
        self.wal, hot, confirmed = (Path(f"{path}{end}") for end in ("-wal", "-journal", ".confirmed"))
        for file in (path, self.wal, hot, confirmed):
            if file.is_symlink() or (file.exists() and not file.is_file()):
                raise MemoryFileError(f"{file} is a link or a folder, not a file of a journal")
        if not new and (not path.exists() or path.stat().st_size < SMALLEST):
            raise MemoryFileError(f"{path} has the latest changes of a memory, and is missing or truncated")
        self._keep_others_out()
        with self._errors():
            uri = f"{path.as_uri()}?vfs={VFS}"
            self.connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        OPEN.add(self)
        try:
            with self._errors():
                self.connection.text_factory = bytes  # damaged text cannot be decoded
                self.connection.executescript(SETUP)
                if new:
                    self.connection.executescript(f"CREATE TABLE IF NOT EXISTS record ({SCHEMA}); DELETE FROM record")
                self.connection.execute("SELECT max(number) FROM record").fetchall()  # opens SQLite's log
            self.files = self._files()
            mode = "r+b" if confirmed.exists() and not new else "w+b"
            self.confirmed = self.opened.enter_context(confirmed.open(mode, buffering=0))
            os.fsync(self.confirmed.fileno())
        except BaseException:
            self.abandon()
            raise

    def _keep_others_out(self) -> None:
        """Lock the bytes that every program with SQLite locks: one that only reads would end by removing the `-wal`."""
        if sys.platform != "win32":
            import fcntl

            file = self.opened.enter_context(self.path.open("ab"))  # the lock ends when it is closed
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 512, 1 << 30)
            except (BlockingIOError, PermissionError) as error:
                self.opened.close()
                raise BlockingIOError(errno.EAGAIN, "another program has the journal open", str(self.path)) from error
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise

    def records(self) -> Iterator[tuple[int, bytes | str]]:
        """All records in order: the number of the last row of each, and its content, or a sentence about its damage."""
        number, digest, size = self.number, self.digest, self.size
        parts: list[bytes] = []
        whole = True  # so far, the record of the current row
        for row, more, stored, content in self._rows(number):
            if row != number + 1:
                yield row, _missing(number + 1, row - 1)
                digest, whole = "", False
            if isinstance(content, bytes) and stored == _digest(digest, content).encode():
                parts.append(content)
                size += len(content)
            else:
                yield row, f"change {row:,} is damaged, of another memory, or follows a missing one"
                whole = False
            number, digest = row, stored.decode(errors="replace") if isinstance(stored, bytes) else ""
            if not more:
                if whole:
                    yield number, b"".join(parts)
                    self.number, self.digest, self.size = number, digest, size
                parts, whole = [], True
        last = max(number, self._last_confirmed())
        if parts or number < last:
            yield last, f"{_missing(number + 1 - len(parts), last)}, or damaged in {self.wal.name}"

    def unconfirmed(self, number: int) -> bool:
        """Whether a record is the last one, and was not confirmed: it may be left out."""
        return number > self._last_confirmed() and not any(self._rows(number))

    def _rows(self, number: int) -> Iterator[tuple[int, int, Any, Any]]:
        """Number, whether more rows belong to the record, digest and content of each row after a number, unchecked."""
        with self._errors():
            while found := self.connection.execute(NEXT, (number,)).fetchall():
                (row,) = found
                if row[0] <= number:
                    raise MemoryFileError(f"{self.path} is damaged: change {row[0]:,} follows change {number:,}")
                number = row[0]
                yield row

    def _last_confirmed(self) -> int:
        """The number in the file of confirmed records; 0 if it is damaged."""
        self.confirmed.seek(0)
        last = self.confirmed.read(50).split()
        return int(last[0]) if len(last) == 2 and last[0] == last[1] and last[0].isdigit() else 0

    def append(self, content: bytes) -> None:
        """Write a record; the next one takes its place, unless `confirm` is called."""
        rows = []
        number, digest, size = self.number, self.digest, self.size
        for start in range(0, len(content), ROW):
            part = content[start : start + ROW]
            number, digest, size = number + 1, _digest(digest, part), size + len(part)
            rows.append((number, start + ROW < len(content), digest, part))
        with self._errors():
            try:
                self.connection.execute("BEGIN")
                self.connection.execute("DELETE FROM record WHERE number > ?", (self.number,))
                self.connection.executemany("INSERT INTO record VALUES (?, ?, ?, ?)", rows)
                self.connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # it may have rolled back by itself
                    self.connection.execute("ROLLBACK")
                raise
        self.appended = (number, digest, size)

    def confirm(self) -> None:
        """Keep the record that was appended."""
        self.number, self.digest, self.size = self.appended
        with suppress(OSError):  # a number that is too low is no harm
            self.confirmed.seek(0)
            self.confirmed.write(b"%20d %20d\n" % (self.number, self.number))  # twice: a number that is damaged is none

    def take_back(self) -> None:
        """Remove the record that was appended."""
        with suppress(sqlite3.Error):  # it was not confirmed, and the next `append` removes it
            self.connection.execute("DELETE FROM record WHERE number > ?", (self.number,))

    def clear(self) -> None:
        """Remove all records; numbers continue."""
        with self._errors():
            self.connection.execute("DELETE FROM record")
            self.connection.execute("VACUUM")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.size = 0

    def close(self) -> None:
        """Close the log, unless others have put another one in its place: SQLite would remove that one's files."""
        if self.abandoned:
            return
        if self.in_place():
            self.connection.close()
            self.opened.close()
        else:
            self.abandon()

    def leave(self) -> None:
        """Close a log that was not read to its end; a damaged one is abandoned."""
        with deferred():
            try:
                whole = not any(isinstance(found, str) for _, found in self.records())
            except (MemoryFileError, OSError):
                whole = False
            (self.close if whole else self.abandon)()

    def abandon(self) -> None:
        """Leave the files as they are, for good: the connection is never closed, because SQLite would write to them."""
        self.abandoned = True
        self.opened.close()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.connection))

    def in_place(self) -> bool:
        """Whether the files that have records are those that were opened, and none was removed."""
        return self._files() == self.files

    def _files(self) -> list[tuple[int, int]]:
        """The devices and numbers of the files that have records; shorter if one was removed."""
        with suppress(OSError):
            return [(found.st_dev, found.st_ino) for found in (self.path.stat(), self.wal.stat())]
        return []

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of SQLite as errors that name the file."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
            if code in DAMAGED:
                raise MemoryFileError(f"{self.path} is damaged: {error}") from error
            raise OSError(ERRNO.get(code, errno.EIO), str(error), str(self.path)) from error


def _digest(before: str, content: bytes) -> str:
    """The digest of a row with this content, after a row with a digest."""
    digest = hashlib.sha256(before.encode())
    digest.update(content)
    return digest.hexdigest()


def _missing(first: int, last: int) -> str:
    return f"change {first:,} is missing" if first == last else f"changes {first:,} to {last:,} are missing"


OPEN: weakref.WeakSet[Log] = weakref.WeakSet()


def _in_child() -> None:
    """The files are the parent's."""
    for log in OPEN:
        log.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
