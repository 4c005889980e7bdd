"""Compiling ahead: everything that a memory can be asked, so that no later call waits for the compiler."""

from __future__ import annotations

import copy
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from sqhn.banks.compilation import at_once, why_plain
from sqhn.level import Level
from sqhn.memory import SQHN
from sqhn.model.inference import INFERENCES
from sqhn.startup import compiler, finish, marker

__all__ = ["compiling", "warm"]

CAPACITY = 8
"""The capacity of the memories that are called: the compiler sees types, not numbers."""


def warm(memory: SQHN | None = None) -> int:
    """Compile all that memories can be asked on a CPU, load it, and return the number of compiled functions.

    memory: checked to be on a CPU. It and all other memories use compiled functions from now on.

    Compiled code is cached on disk, so this is done once for a machine. Cost with an empty cache: 30 s of a core.

    >>> compiled = warm()
    >>> warm(SQHN((6,), capacity=20))  # all is compiled by now
    0
    """
    if reason := why_plain():
        raise ValueError(f"nothing can be compiled: {reason}")
    if memory is not None and memory.device != "cpu":
        raise ValueError(f'warm compiles for device "cpu"; this memory is on {memory.device!r}')
    compiled = itertools.count()
    with compiling(lambda: next(compiled)):
        call_everything()
    with suppress(OSError):  # the cache may be read-only
        marker().touch()
    finish()
    return next(compiled)


def call_everything(evidence: bool | None = None) -> None:
    """Call every function that has kernels; evidence: only for recall by evidence, or only the others."""
    shape, above = (16, 16), Level(None, CAPACITY)  # nodes that see many values need all kernels of those that see few
    with at_once():
        for levels in ([above], [Level(4, CAPACITY), above]):
            rng = np.random.default_rng(0)
            x, holes = rng.random((3, *shape), np.float32), rng.random(shape) < 0.5
            holes.flat[0] = True
            for observed in (None, holes):
                memory = SQHN(shape, levels, device="plain")
                memory.learn(x, observed=observed)
                if not evidence:
                    memory = _learn(memory, x, observed)
                memory = memory.to("cpu")
                _ask(memory, x, holes, evidence)
                memory.forget(0)
                _ask(copy.copy(memory), x, holes, evidence)


@contextmanager
def compiling(tell: Callable[[], object]) -> Iterator[None]:
    """Within, call a function whenever another one must be compiled, since the cache does not have it."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:  # noqa: ARG002
            tell()

        def on_end(self, event: Any) -> None:
            """Only starts are told."""

    with event.install_listener("numba:compile", Listener()):
        yield


def _learn(memory: SQHN, x: NDArray[np.float32], observed: NDArray[np.bool_] | None) -> SQHN:
    """Learn in every way; returns the memory, on a CPU."""
    memory = memory.to("cpu")
    memory.reset()
    memory.learn((255 * x).astype(np.uint8))
    memory.recall(x[0], k=2)  # decodes prototypes
    memory.reset()
    memory.learn(x[0], observed=observed)
    memory.memorize(x)
    memory.learn(x, observed=observed)
    memory.learn(x)
    memory.learn(x, hold=True, observed=observed)
    if len(memory.levels) > 1:
        memory.pretrain(x)
        memory.learn(x, root_only=True, observed=observed)
    return memory


def _ask(memory: SQHN, x: NDArray[np.float32], holes: NDArray[np.bool_], evidence: bool | None) -> None:
    """All questions, about one sample and several, with and without missing values."""
    for mask in (None, holes):
        rule: Any
        for rule in INFERENCES:
            if evidence is None or evidence == (rule == "evidence"):
                if rule in ("paper", "evidence"):
                    memory.calibrate(new=x, error=0.5, observed=mask, inference=rule)
                    memory.recognize(x, mask, inference=rule)
                for some in (x[0], x):
                    memory.recall(some, mask, inference=rule)
                    memory.recall(some, mask, inference=rule, k=2)
                    memory.energy(some, mask, inference=rule)
    _ = memory.prototypes, memory.known


EVIDENCE = "evidence"
"""The argument of the second process, which compiles for recall by evidence."""


def main(part: str | None = None) -> None:
    """Compile everything, unless another process does so or has; end with the process at the other end of stdin."""

    def watch() -> None:
        os.read(0, 1)  # not by `sys.stdin`, whose lock Python needs when it ends
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if part == EVIDENCE:
        call_everything(evidence=True)
        return
    if hasattr(os, "nice"):
        os.nice(10)
    complete = marker()
    complete.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(complete.with_suffix(".lock")):
        if complete.exists():
            return
        with compiler(EVIDENCE) as other:
            call_everything(evidence=False)
            if other.wait() == 0:
                complete.touch()
