"""Prepares compiled kernels in the background, while memories on "cpu" answer from plain NumPy.

A thread loads the kernels from the cache. Where the cache lacks some, processes of low priority compile them first:
they take no time from the program, and may be ended at any moment. Then all memories move to the kernels, each in its
next turn to write.
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
from typing import Any
from weakref import WeakMethod

import numpy as np

from sqhn.banks.compilation import VARIABLE, State, compiled
from sqhn.level import Level, Options
from sqhn.model.inference import INFERENCES
from sqhn.model.tree import Tree

PATIENCE = 0.2
"""Seconds that a process must live before kernels are loaded: short programs never load the compiler."""
POLL = 0.1
"""Seconds between two looks at the process that compiles."""
NOTICE = "sqhn: compiling in the background, once for this machine (under a minute); until then, NumPy answers"


class Preparation:
    """The thread that prepares the kernels, and the memories that wait for it.

    The interpreter waits for it at its end, because no thread may be inside the compiler by then; so the thread stops
    at the next occasion once the main thread has ended.
    """

    def __init__(self, waiting: list[WeakMethod[Callable[[], None]]]) -> None:
        self.waiting = waiting
        self.calls = count()  # of `start`
        self.thread = threading.Thread(target=self.run, name="sqhn kernels")

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
            complete = marker()
        if not complete.exists():
            if sys.stderr is not None and sys.stderr.isatty():
                print(NOTICE, file=sys.stderr)
            self.compile()
        if over() or not complete.exists():
            return
        steps, more = loading(), True
        while more and not over():
            with _busy:
                more = next(steps, False)
        if not more:
            finish()

    def compile(self) -> None:
        """Compile in another process, which ends when this one does."""
        if getattr(sys, "frozen", False) or not sys.executable:  # the program is no interpreter: NumPy goes on
            return
        try:
            process = compiler(start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError:  # no other process can be started
            return
        with process:
            while process.poll() is None:
                if over(POLL):
                    process.kill()


def compiler(*part: str, **how: Any) -> subprocess.Popen[bytes]:
    """A process that runs `sqhn.warmup.main`; it imports nothing from the working directory."""
    program = "import sys; sys.path.append(sys.argv[1]); from sqhn.warmup import main; main(*sys.argv[2:])"
    command = [sys.executable, "-P", "-c", program, str(Path(__file__).parents[1]), *part]
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {VARIABLE: "1"}, **how)


def over(seconds: float = 0.0) -> bool:
    """Whether the main thread ends within so many seconds."""
    main = threading.main_thread()
    main.join(seconds)
    return not main.is_alive()


class Current:
    """The preparation that goes on, or None once the kernels are ready."""

    work: Preparation | None = Preparation([])


_busy = threading.Lock()  # held while a thread of ours imports or loads, which a fork must not interrupt


def begin(upgrade: Callable[[], None]) -> None:
    """Prepare the kernels if they are not ready; `upgrade`, a method of a memory, is called once they are."""
    if work := Current.work:
        work.waiting.append(WeakMethod(upgrade))
        work.start()
    if State.ready:  # since just now
        upgrade()


def resume() -> None:
    """Go on in a forked process, which begins without the thread."""
    if work := Current.work:
        work.start()


def finish() -> None:
    """The kernels are loaded: memories that wait for them move."""
    State.ready = True
    work, Current.work = Current.work, None
    for method in work.waiting if work else ():
        if upgrade := method():
            upgrade()


def loading() -> Iterator[bool]:
    """Make the most frequent calls, one by one: each loads its kernels; others are loaded when they are used."""
    shape, above = (16, 16), Level(None, 4)
    for levels in ([above], [Level(4, 4), above]):
        tree = Tree(shape, levels, Options(), compiled())
        x = np.random.default_rng(0).random((3, *shape), np.float32)
        for some in (x[:1], x):
            tree.learn(some, None)
            yield True
            tree.recall(some, None, INFERENCES["paper"])
            yield True
            tree.familiarity(some, None, by_evidence=False)
            yield True


def marker() -> Path:
    """A file in the cache that exists once all kernels are there, for this processor and this Numba."""
    from numba.core.registry import cpu_target

    from sqhn.banks.cpu.compiled import FOLDER

    machine: Any = cpu_target.target_context.codegen().magic_tuple()
    return Path(FOLDER) / f"{hashlib.sha256(repr(machine).encode()).hexdigest()[:16]}.complete"


def _in_child() -> None:
    if work := Current.work:
        Current.work = Preparation(work.waiting)  # whose thread is not started yet
    _busy.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_busy.acquire, after_in_parent=_busy.release, after_in_child=_in_child)
