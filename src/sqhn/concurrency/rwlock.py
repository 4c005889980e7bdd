"""Who may use a memory: any number of readers, or one writer.

Every thread that reads has a lock of its own and holds it while it reads. A writer holds the locks of all of them for
the length of a chunk, and the gate, where readers wait their turn; between two chunks it lets them in. A second writer
waits for the first one's call to end.

Nothing but locks of the interpreter says who holds what, and nothing but `with` takes them: it takes and leaves such a
lock in one step, so whatever a signal's function raises, and wherever, no lock stays behind.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from sqhn.concurrency.signals import deferred

__all__ = ["ReadWriteLock"]

Answer = TypeVar("Answer")

ARMFUL = 8  # locks taken by one call
COURTESY = 0.1  # seconds to wait at most for a reader that said it would come: it may have been interrupted
GLANCE = 2e-5


class Reader:
    """A thread that reads: its lock, and whether it is waiting for it."""

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()  # Any: `_is_owned`, which every such lock has, is not in its type
        self.waits = False


class ReadWriteLock:
    """The turns of one memory.

    >>> turns = ReadWriteLock()
    >>> turns.write(lambda: turns.exclusive(max, 1, 2)), turns.read(max, 1, 2)
    (2, 2)
    """

    def __init__(self) -> None:
        self.begin()
        with _known:
            EVERY.add(self)

    def begin(self) -> None:
        """Nobody reads, nobody writes."""
        self._writer: Any = threading.RLock()  # held for a whole call that writes
        self._gate: Any = threading.RLock()  # held for a chunk, and for a moment by each reader
        self._thread = threading.local()
        self._readers: list[weakref.ref[Reader]] = []  # of all threads; a thread that ends takes its own along
        self._names = threading.RLock()  # held while that list grows
        self._halfway = False

    def read(self, action: Callable[..., Answer], *args: Any) -> Answer:
        """Call `action` while nothing changes."""
        if self._halfway and self._gate._is_owned():
            raise RuntimeError("a memory was asked in the middle of a change that the same thread makes" + WHO)
        me = self._me()
        if not me.lock._is_owned():  # else a question within a question, which must not wait
            me.waits = True
            with self._gate:  # a writer that comes after this knows of this reader
                pass
        with me.lock:
            me.waits = False
            return action(*args)

    def write(self, action: Callable[..., Answer], *args: Any) -> Answer:
        """Call `action`, the only one that writes; it changes things only in calls of `alone`."""
        me = self._me()
        if self._writer._is_owned() or me.lock._is_owned():
            raise RuntimeError("a memory was to be changed in the middle of another call by the same thread" + WHO)
        me.waits = False
        with self._writer:
            return action(*args)

    def exclusive(self, action: Callable[..., Answer], *args: Any) -> Answer:
        """Call `action` while nobody reads; those who wait to read go first. It must be right wherever it stops."""
        readers = self._readers
        if len(readers) > 1:
            self._let_in([reader for one in readers if (reader := one()) is not None and reader.waits])
        with self._gate:
            return self._hold(self._readers, 0, action, args)

    def _hold(
        self, readers: list[weakref.ref[Reader]], first: int, action: Callable[..., Answer], args: tuple[Any, ...]
    ) -> Answer:
        """Call `action` with the locks of all readers from a first one on."""
        if len(readers) - first >= ARMFUL:  # there may be more of them than calls within calls
            a, b, c, d, e, f, g, h = ((one() or Reader()).lock for one in readers[first : first + ARMFUL])
            with a, b, c, d, e, f, g, h:
                return self._hold(readers, first + ARMFUL, action, args)
        if first < len(readers):
            with (readers[first]() or Reader()).lock:
                return self._hold(readers, first + 1, action, args)
        return action(*args)

    def atomic(self, action: Callable[..., Answer], *args: Any) -> Answer:
        """As `alone`, for an action in several steps that must all be taken: signals wait until they are."""
        answer: Answer = self.exclusive(self._all_of, action, args)
        return answer

    def _all_of(self, action: Callable[..., Answer], args: tuple[Any, ...]) -> Answer:
        with deferred():
            self._halfway = True
            try:
                return action(*args)
            finally:
                self._halfway = False

    @staticmethod
    def _let_in(waiting: list[Reader]) -> None:
        """Wait until those who wait have got in."""
        last = time.monotonic() + COURTESY
        for reader in waiting:
            while reader.waits and time.monotonic() < last:
                time.sleep(GLANCE)
            reader.waits = False

    def _me(self) -> Reader:
        """The reader that this thread is."""
        try:
            reader: Reader = self._thread.reader
        except AttributeError:
            reader = Reader()
            with self._names:
                self._readers = [*(one for one in self._readers if one() is not None), weakref.ref(reader)]
                self._thread.reader = reader
        return reader


WHO = ": by a signal handler, a finalizer or a rule of inference of your own?"

EVERY: weakref.WeakSet[ReadWriteLock] = weakref.WeakSet()
_known = threading.RLock()  # held while it changes
_shut: list[Any] = []


def _before_fork() -> None:
    """A child gets every memory between two samples: what happens in the middle of a chunk would not go on there."""
    _known.acquire()
    _shut.append(_known)
    for turns in list(EVERY):
        turns._gate.acquire()
        _shut.append(turns._gate)


def _after_fork() -> None:
    while _shut:
        _shut.pop().release()


def _in_child() -> None:
    """Of the threads only one lives on: nobody will ever release what the others hold."""
    global _known
    _known = threading.RLock()
    _shut.clear()
    for turns in list(EVERY):
        turns.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
