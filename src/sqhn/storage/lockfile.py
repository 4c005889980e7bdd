"""One process at a time: an advisory lock for a file that is replaced whenever it is saved.

Such a file cannot be locked itself, for another file has its name afterwards. A hidden file beside it is locked
instead: it says who holds the lock, and goes with it. The kernel ends the lock of a process that dies, so a lock file
that was left behind is simply taken over.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["held"]

POLL = 0.05  # seconds; a signal ends a sleep everywhere, but not everywhere a wait for a lock
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
TRIES = 3  # to open what others remove and make
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
HELD: set[int] = set()
"""Lock files that are open here."""
OUTSIDE = 1 << 30  # a place in the lock file that nothing is written to


@contextmanager
def held(path: Path, waiting: Callable[[str], None], without: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock of a file for the length of a block; as long as somebody else holds it, wait.

    path: need not exist; a link has the lock of what it leads to.
    waiting: is told once who holds the lock; if it raises, nobody waits.
    without: is told that the block runs without a lock, where the file system has none; if not given, `waiting` is.
    """
    process = os.getpid()
    real = Path(os.path.realpath(path))
    place = real.with_name(f".{real.name}.lock")
    descriptor = None
    try:
        descriptor = _acquire(path, place, waiting)
        HELD.add(descriptor)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        tell = without or waiting
        tell(f"there are no locks on the file system of {path}: let nothing else write to it at the same time")
    try:
        yield
    finally:
        if descriptor is not None and os.getpid() == process:  # a child that was forked leaves it to its parent
            HELD.discard(descriptor)
            _release(descriptor, place)


def _acquire(path: Path, place: Path, waiting: Callable[[str], None]) -> int:
    """The lock file, open and locked."""
    told = False
    while (descriptor := _try(place)) is None:
        time.sleep(POLL)  # also gives who took the lock just now the time to sign
        holder = None if told else _holder(place)
        if holder is not None:
            waiting(f"{path} is in use by {holder}: waiting for it to finish")
            told = True
    try:
        _sign(descriptor)
    except BaseException:
        _release(descriptor, place)
        raise
    return descriptor


def _try(place: Path) -> int | None:
    """The lock file, open and locked; None if somebody else has locked it.

    Its last holder may have removed it after it was opened here: then another one has its name, or will have.
    """
    while True:
        descriptor = _open(place)
        locked = named = False
        try:
            locked = _lock(descriptor)
            named = locked and _has_name(descriptor, place)
        except OSError:
            if os.fstat(descriptor).st_size == 0:  # made here, to no avail
                place.unlink(missing_ok=True)
            raise
        finally:
            if locked and not named:
                _release(descriptor, place)
            elif not locked:
                os.close(descriptor)
        if named:
            return descriptor
        if not locked:
            return None


def _open(place: Path) -> int:
    """The lock file, made if there is none; never what a link of that name leads to.

    Another user's can be locked, though not signed; it may go while it is opened, and then one can be made.
    """
    for _ in range(TRIES):
        try:
            return os.open(place, os.O_RDWR | os.O_CREAT | NO_LINKS, 0o666)
        except PermissionError as error:
            refused = error
        with suppress(FileNotFoundError):
            return os.open(place, os.O_RDONLY | NO_LINKS)
    raise refused


def _lock(descriptor: int) -> bool:
    """Lock an open file, unless somebody else has: False."""
    busy = PermissionError if sys.platform == "win32" else BlockingIOError
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, OUTSIDE, os.SEEK_SET)  # what is locked cannot be read: not what says who holds it
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except busy:
        return False
    return True


def _release(descriptor: int, place: Path) -> None:
    """Remove the lock file and unlock it, in this order: nobody then takes a lock that others no longer find.

    Windows does not remove what is open; so the other way round there, and whoever has it open by then removes it.
    """
    removable = _has_name(descriptor, place)
    if sys.platform == "win32":
        os.close(descriptor)
    if removable:
        with suppress(OSError):
            place.unlink()
    if sys.platform != "win32":
        os.close(descriptor)


def _has_name(descriptor: int, place: Path) -> bool:
    """Whether an open file is the one that a name leads to."""
    try:
        return os.path.samestat(os.fstat(descriptor), place.lstat())
    except FileNotFoundError:
        return False


def _sign(descriptor: int) -> None:
    """Write down who holds the lock. It is news for people: where it cannot be written, the lock holds all the same."""
    text = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, text.encode())


def _holder(place: Path) -> str | None:
    """Who holds the lock; None if nobody does any more."""
    try:
        text = place.read_text(errors="replace")
    except FileNotFoundError:
        return None
    except OSError:
        text = ""
    return " ".join(text.split()) or "another process"


def _in_child() -> None:
    """A lock is its parent's alone: it ends when that one ends."""
    while HELD:
        os.close(HELD.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
