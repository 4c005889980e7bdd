"""One process at a time: an advisory lock for a file that is replaced whenever it is saved.

Such a file cannot be locked itself, because another file takes its name. A hidden file beside it is locked instead. It
says who holds the lock, and is removed with it. The lock of a process that dies ends with the process.
"""

from __future__ import annotations

import errno
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

PATIENCE = 0.1  # seconds before others are told: a new holder may not have signed yet
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of file systems without locks."""


@contextmanager
def held(path: Path, waiting: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock of a file for the length of a block, which runs without one, with a warning, if there are no locks.

    path: need not exist; a link has the lock of the file that it leads to.
    waiting: called with a text that says which other process holds the lock, before this one waits for it; None: if
        another process holds it, that is a BlockingIOError.
    """
    real = Path(os.path.realpath(path))
    place = real.with_name(f".{real.name}.lock")
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder of this file does not exist", str(place))
    own: list[os.stat_result] = []

    def sign(descriptor: int) -> None:
        """Write down who holds the lock, for people only: where it cannot be written, the lock holds all the same."""
        own.append(os.fstat(descriptor))
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"\nprocess {os.getpid()} on {socket.gethostname()} since {since}\n".encode())

    # mode: other users can take over a lock file that was left behind. thread_local: any thread can end the lock.
    lock = FileLock(place, mode=0o666, thread_local=False, fallback_to_soft=False, on_acquired=sign)
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        problem = f"{path} is in use by {_holder(place)}"
        if waiting is None:
            raise BlockingIOError(problem) from None
        waiting(f"{problem}: waiting for it to finish")
        lock.acquire()
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        with suppress(OSError):
            place.unlink()  # no lock came of it
        problem = f"there are no locks on the file system of {path}: let nothing else write to it meanwhile"
        warnings.warn(problem, stacklevel=3)
    try:
        yield
    finally:
        if lock.is_locked:  # not in a child that was forked meanwhile
            with suppress(OSError):  # removed while it is held: a process that has opened it already tries again
                if os.path.samestat(own[0], place.lstat()):
                    place.unlink()
            lock.release()


def _holder(place: Path) -> str:
    """The text that a lock file has for people; Windows does not let others read its first byte."""
    with suppress(OSError), place.open("rb") as file:
        file.seek(1)
        return " ".join(file.read().decode(errors="replace").split()) or "another process"
    return "another process"
