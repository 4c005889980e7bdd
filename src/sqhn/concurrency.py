"""Threads and signals: a lock for any number of readers or one writer, and signals that wait for the end of a change.

Every thread that reads has a lock of its own and holds it while it reads. A writer holds the locks of all readers
during a chunk, and the gate, where new readers wait; between two chunks it lets them in. A second writer waits until
the first one's call ends.

All state is in the interpreter's own locks, taken by `with` alone. `with` takes or releases such a lock in one step, so
no lock stays held when a signal handler raises, wherever it interrupts.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` without its enums, which are slow
import ctypes
import logging  # noqa: F401  # its hooks of forks, which are Python code, must come before ours
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import filelock  # noqa: F401  # as `logging`: a handler that raises within its hooks would leave its locks closed

Answer = TypeVar("Answer")

SIGNALS = tuple(int(number) for number in signal.valid_signals() if number < 32)  # beyond: real-time signals
get_handler, set_handler = _signal.getsignal, _signal.signal

LOCKS_PER_CALL = 8
PATIENCE = 0.1  # seconds to wait at most for a reader that announced itself: it may have been interrupted
POLL = 2e-5  # seconds


# -- signals -----------------------------------------------------------------------------------------------------------


class deferred:  # noqa: N801
    """Defer signals during a block that must not stop halfway (a chunk takes well under a second).

    This concerns Ctrl-C and every other signal with a Python handler; it is called when the block ends. Python calls
    signal handlers in the main thread alone, so other threads have nothing to defer.
    """

    def __enter__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.pending: list[int] = []
        if threading.get_ident() != threading.main_thread().ident:
            return
        try:
            for number in SIGNALS:
                handler = get_handler(number)
                if callable(handler):
                    self.handlers[number] = handler
                    set_handler(number, self._note)
        except BaseException:  # a handler that was not replaced yet has raised
            self.restore()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.pending.append(number)

    def restore(self) -> None:
        """Set the handlers of before."""
        try:
            for number, handler in self.handlers.items():
                set_handler(number, handler)
        except BaseException:  # a handler that was restored already has raised
            self.restore()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self.restore()
        finally:
            _deliver(list(dict.fromkeys(self.pending)))  # each once, as the operating system does


def _deliver(numbers: list[int]) -> None:
    """Call the handlers of signals, all of them even if the first raises."""
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            _deliver(numbers[1:])


# -- readers and writers -----------------------------------------------------------------------------------------------


class Reader:
    """A thread that reads: its lock, and whether it is waiting at the gate."""

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()  # Any: the type lacks `_is_owned`, which every such lock has
        self.waits = False


class ReadWriteLock:
    """The lock of one memory.

    >>> lock = ReadWriteLock()
    >>> lock.write(lambda: lock.exclusive(max, 1, 2)), lock.read(max, 1, 2)
    (2, 2)
    """

    def __init__(self) -> None:
        self.begin()
        with _adding:
            EVERY.add(self)

    def begin(self) -> None:
        """Forget all readers and writers: a new lock, or that of a forked process."""
        self._writer: Any = threading.RLock()  # held during a whole call that writes
        self._gate: Any = threading.RLock()  # held during a chunk, and for a moment by each reader
        self._thread = threading.local()
        self._readers: list[weakref.ref[Reader]] = []  # of all threads; each thread keeps its own reader alive
        self._registering = threading.RLock()  # held while that list changes
        self._in_change = False

    def read(self, action: Callable[..., Answer], *args: Any) -> Answer:
        """Call `action` while nothing changes."""
        if self._in_change and self._gate._is_owned():
            raise RuntimeError("this thread asked a memory in the middle of a change that it makes itself" + CAUSES)
        me = self._reader()
        if not me.lock._is_owned():  # a read within a read must not wait
            me.waits = True
            with self._gate:  # a writer that comes after this sees this reader
                pass
        with me.lock:
            me.waits = False
            return action(*args)

    def write(self, action: Callable[..., Answer], *args: Any) -> Answer:
        """Call `action` as the only writer; it makes its changes in calls of `exclusive` and `atomic`."""
        me = self._reader()
        if self._writer._is_owned() or me.lock._is_owned():
            raise RuntimeError("this thread tried to change a memory in the middle of another call to it" + CAUSES)
        me.waits = False
        with self._writer:
            return action(*args)

    def exclusive(self, action: Callable[..., Answer], *args: Any) -> Answer:
        """Call `action` while nobody reads, after the readers that wait. It must leave a valid state if interrupted."""
        readers = self._readers
        if len(readers) > 1:
            waiting = [reader for one in readers if (reader := one()) is not None and reader.waits]
            last = time.monotonic() + PATIENCE
            for reader in waiting:
                while reader.waits and time.monotonic() < last:
                    time.sleep(POLL)
                reader.waits = False
        with self._gate:
            return self._hold(self._readers, 0, action, args)

    def atomic(self, action: Callable[..., Answer], *args: Any) -> Answer:
        """As `exclusive`, for an action of several steps that must not be interrupted: signals are deferred."""
        answer: Answer = self.exclusive(self._uninterrupted, action, args)
        return answer

    def _hold(
        self, readers: list[weakref.ref[Reader]], first: int, action: Callable[..., Answer], args: tuple[Any, ...]
    ) -> Answer:
        """Call `action` with the locks of all readers from `first` on."""
        if len(readers) - first >= LOCKS_PER_CALL:  # one call for each would exceed the recursion limit
            a, b, c, d, e, f, g, h = ((one() or Reader()).lock for one in readers[first : first + LOCKS_PER_CALL])
            with a, b, c, d, e, f, g, h:
                return self._hold(readers, first + LOCKS_PER_CALL, action, args)
        if first < len(readers):
            with (readers[first]() or Reader()).lock:
                return self._hold(readers, first + 1, action, args)
        return action(*args)

    def _uninterrupted(self, action: Callable[..., Answer], args: tuple[Any, ...]) -> Answer:
        with deferred():
            self._in_change = True
            try:
                return action(*args)
            finally:
                self._in_change = False

    def reading(self) -> bool:
        """Whether the current thread is inside `read`, or `exclusive`."""
        reader: Reader | None = getattr(self._thread, "reader", None)
        return reader is not None and bool(reader.lock._is_owned())

    def _reader(self) -> Reader:
        """The reader of the current thread."""
        try:
            reader: Reader = self._thread.reader
        except AttributeError:
            reader = Reader()
            with self._registering:
                self._readers = [*(one for one in self._readers if one() is not None), weakref.ref(reader)]
                self._thread.reader = reader
        return reader


CAUSES = ": from a signal handler, a finalizer, `where=` or a custom rule of inference?"

EVERY: weakref.WeakSet[ReadWriteLock] = weakref.WeakSet()
_adding = threading.RLock()  # held while EVERY changes
_deferred_in_fork: list[int] = []  # signals to deliver after the fork
_forks: dict[int, tuple[deferred, ExitStack]] = {}  # of threads that fork: deferred signals, and everything they hold


def _before_fork() -> None:
    """Wait until no chunk is being learned: the child process could not finish it."""
    if threading.get_ident() in _forks:
        return
    signals, held = deferred(), ExitStack()
    signals.__enter__()  # a handler that raises would leave locks behind
    held.callback(signals.restore)
    held.enter_context(_adding)
    for lock in list(EVERY):
        if not lock.reading():  # else a writer may hold the gate, and wait for this thread
            held.enter_context(lock._gate)
    _forks[threading.get_ident()] = signals, held


def _after_fork() -> None:
    if fork := _forks.pop(threading.get_ident(), None):  # None: handlers raised before signals were deferred
        signals, held = fork
        try:
            held.close()
        finally:
            _deferred_in_fork[:] = dict.fromkeys(signals.pending)


def _in_child() -> None:
    """Only the forking thread exists in the child, so nobody would release the locks of the others."""
    global _adding
    _adding = threading.RLock()
    for lock in list(EVERY):
        lock.begin()
    if fork := _forks.get(threading.get_ident()):
        signals, _ = fork
        signals.pending.clear()  # they are the parent's
    _after_fork()
    _forks.clear()


if hasattr(os, "register_at_fork"):
    for _ in range(3):  # a handler that raises as the hook begins ends it; Python prints that, and forks all the same
        os.register_at_fork(before=_before_fork)
    os.register_at_fork(after_in_parent=_after_fork, after_in_child=_in_child)
    # Errors within hooks are printed and dropped, so handlers must be called after them. This hook tells Python that
    # signals have arrived; it has no Python code, in which their handlers would be called at once.
    set_arrived = ctypes.pythonapi.PyErr_SetInterruptEx
    os.register_at_fork(after_in_parent=partial(sorted, _deferred_in_fork, key=set_arrived))
