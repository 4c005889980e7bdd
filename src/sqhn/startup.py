"""Prepares compiled kernels in the background, while memories on "cpu" answer from plain NumPy.

A thread loads the kernels from the cache. Where the cache lacks some, a process of low priority compiles them first: it
takes no time from the program, and may be ended at any moment. Then all memories of that kind move to the kernels, each
in its next turn to write.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # it and logging have hooks of forks, which must come before ours
import hashlib
import logging  # noqa: F401
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import numpy as np

from sqhn.banks.compilation import READY, VARIABLE, Kind, compiled
from sqhn.level import Level, Options
from sqhn.model.inference import INFERENCES
from sqhn.model.tree import Tree

if TYPE_CHECKING:
    from sqhn.memory import SQHN

PATIENCE = 0.2
"""Seconds that a process must live before kernels are loaded: short programs never load the compiler."""
POLL = 0.1
"""Seconds between two looks at the process that compiles."""
NOTICE = "sqhn: compiling in the background, once for this machine (under a minute); until then, NumPy answers"


class Preparation:
    """The thread that prepares the kernels of one kind, and the memories that wait for it.

    The interpreter waits for it at its end, because no thread may be inside the compiler by then; so the thread stops
    at the next occasion once the main thread has ended.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.waiting: list[WeakMethod[Callable[[], None]]] = []
        self.calls = count()  # of `start`
        self.thread = threading.Thread(target=self.run, name=f"sqhn {kind}")

    def start(self) -> None:
        """Start the thread in the first call."""
        if next(self.calls) == 0:
            with suppress(RuntimeError):  # the program ends, or has no more threads: NumPy goes on
                self.thread.start()

    def run(self) -> None:
        """Prepare the kernels; nothing else depends on it."""
        try:
            if not over(PATIENCE):
                self.prepare()
        except ImportError as error:
            warnings.warn(f"Numba cannot be used, so nothing is compiled: {error}", stacklevel=1)
        except Exception:
            if not over():  # at its end, an interpreter refuses new threads and imports
                raise

    def prepare(self) -> None:
        """Load the kernels, if necessary after compiling them, and move the memories that wait."""
        with _busy:
            marker = marker_of(self.kind)
        if not marker.exists():
            if sys.stderr is not None and sys.stderr.isatty():
                print(NOTICE, file=sys.stderr)
            self.compile()
        if over() or not marker.exists():
            return
        steps, more = loading(self.kind), True
        while more and not over():
            with _busy:
                more = next(steps, False)
        if not more:
            finish(self.kind)

    def compile(self) -> None:
        """Compile in another process, which ends when this one does."""
        command, environment = [sys.executable, "-m", "sqhn.warmup", str(self.kind)], os.environ | {VARIABLE: "1"}
        quiet = subprocess.DEVNULL
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, env=environment, start_new_session=True
            )
        except OSError:  # no other process can be started: NumPy goes on
            return
        with process:
            while process.poll() is None:
                if over(POLL):
                    process.kill()

    def in_child(self) -> Preparation:
        """The same in a forked process, which has no thread yet."""
        again = Preparation(self.kind)
        again.waiting = self.waiting
        return again


def over(seconds: float = 0.0) -> bool:
    """Whether the main thread ends within so many seconds."""
    main = threading.main_thread()
    main.join(seconds)
    return not main.is_alive()


_preparations: dict[Kind, Preparation] = {}
_busy = threading.Lock()  # held while a thread of ours imports or loads, which a fork must not interrupt


def begin(memory: SQHN, upgrade: Callable[[], None]) -> None:
    """Prepare the kernels of a memory if they are not ready; `upgrade`, a method of it, is called once they are."""
    kind = Kind.of(memory.levels, memory.options)
    work = _preparations.get(kind) or _preparations.setdefault(kind, Preparation(kind))
    work.waiting.append(WeakMethod(upgrade))
    work.start()
    if kind in READY:  # since just now
        upgrade()


def resume() -> None:
    """Go on in a forked process."""
    for work in list(_preparations.values()):
        work.start()


def finish(kind: Kind) -> None:
    """The kernels of a kind are loaded: memories that wait for them move."""
    READY.add(kind)
    work = _preparations.pop(kind, None)
    for method in work.waiting if work else ():
        if upgrade := method():
            upgrade()


def loading(kind: Kind) -> Iterator[bool]:
    """Make the most frequent calls, one by one: each loads its kernels; others are loaded when they are used."""
    levels = [Level(2, 4), Level(None, 4)] if kind.tree else [Level(None, 4)]
    options = Options("euclidean" if kind.euclidean else "shifted_cosine")
    for side in (4,) if kind.tree else (4, 16):
        tree = Tree((side, side), levels, options, compiled())
        x = np.random.default_rng(0).random((3, side, side), np.float32)
        for some in (x[:1], x):
            tree.learn(some, None)
            yield True
            tree.recall(some, None, INFERENCES["paper"])
            yield True
            tree.familiarity(some, None, by_evidence=False)
            yield True


def marker_of(kind: Kind) -> Path:
    """A file in the cache that exists once all kernels for a kind are there, for this processor and this Numba."""
    from numba.core.registry import cpu_target

    from sqhn.banks.cpu.compiled import FOLDER

    machine: Any = cpu_target.target_context.codegen().magic_tuple()
    return Path(FOLDER) / f"{kind}-{hashlib.sha256(repr(machine).encode()).hexdigest()[:16]}.complete"


def _in_child() -> None:
    for kind, work in _preparations.items():
        _preparations[kind] = work.in_child()
    _busy.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_busy.acquire, after_in_parent=_busy.release, after_in_child=_in_child)
