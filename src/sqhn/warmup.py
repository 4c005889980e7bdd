"""Compiling ahead: everything that a memory can be asked, so that no later call waits for the compiler.

`python -m sqhn.warmup KIND` is the process that compiles for `sqhn.startup`. It ends when its standard input does.
"""

from __future__ import annotations

import copy
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from sqhn.banks.compilation import Kind, at_once
from sqhn.level import Level
from sqhn.memory import SQHN
from sqhn.model.inference import INFERENCES
from sqhn.startup import finish, marker_of

__all__ = ["compiling", "warm"]

CAPACITY = 8
"""The capacity of the memories that are called: the compiler sees types, not numbers."""
KINDS = {str(kind): kind for kind in itertools.starmap(Kind, product((False, True), repeat=2))}


def warm(memory: SQHN | None = None) -> int:
    """Compile all that a memory like this one can be asked on a CPU; returns the number of compiled functions.

    memory: it uses the compiled functions from now on; its answers do not change. Without it: memories of one level,
        and trees, with the default similarity.

    Compiled code is cached on disk, so this is done once for a machine. Cost with an empty cache: 17 to 23 s of a
    core for a memory, 30 s without one.

    >>> compiled = warm(SQHN((6,), capacity=10))
    >>> warm(SQHN((6,), capacity=20))  # all is compiled by now
    0
    """
    if memory is not None and memory.device != "cpu":
        raise ValueError(f'warm compiles for device "cpu"; this memory is on {memory.device!r}')
    kinds = [Kind(False, False), Kind(True, False)] if memory is None else [Kind.of(memory.levels, memory.options)]
    compiled = itertools.count()
    with compiling(lambda: next(compiled)):
        for kind in kinds:
            compile_kind(kind)
            finish(kind)
    return next(compiled)


def compile_kind(kind: Kind) -> None:
    """Ask memories of a kind everything, and note in the cache that all its kernels are there."""
    similarity: Any = "euclidean" if kind.euclidean else "shifted_cosine"
    few, many = (8,), (16, 16)  # values; nodes that see few and many have other kernels
    with at_once():
        if kind.tree:
            above = Level(None, CAPACITY)
            memories = [SQHN(many, [Level(side, CAPACITY), above], similarity=similarity) for side in (4, 16)]
        else:
            memories = [SQHN(shape, capacity=CAPACITY, similarity=similarity) for shape in (few, many)]
        for memory in memories:
            _ask_everything(memory)
    marker_of(kind).touch()


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


def _ask_everything(memory: SQHN) -> None:
    """Use every method in every way that has kernels of its own."""
    rng = np.random.default_rng(0)
    few = rng.random((3, *memory.input_shape), np.float32)
    holes = rng.random(memory.input_shape) < 0.5
    holes.flat[0] = True
    for observed in (None, holes):  # kernels differ once a sample with missing values was learned
        memory = copy.copy(memory)
        memory.reset()
        memory.learn(few[0], observed=observed)
        copy.copy(memory)  # of one neuron; then of several
        memory.memorize(few[:1])
        memory.memorize(few)
        copy.copy(memory)
        memory.learn(few, observed=observed)
        memory.learn(few)
        memory.learn(few, hold=True, observed=observed)
        if len(memory.levels) > 1:
            memory.pretrain(few)
            memory.learn(few, root_only=True, observed=observed)
        _ask(memory, few, holes)
        memory.forget(0)
        _ask(memory, few, holes)


def _ask(memory: SQHN, few: NDArray[np.float32], holes: NDArray[np.bool_]) -> None:
    """All questions, about one sample and several, with and without missing values."""
    for mask in (None, holes):
        for kind in ("paper", "evidence"):
            memory.calibrate(new=few, error=0.5, observed=mask, inference=kind)
        for x in (few[0], few):
            for rule in INFERENCES:
                memory.recall(x, mask, inference=rule)
                memory.recall(x, mask, inference=rule, k=2)
                memory.energy(x, mask, inference=rule)
            memory.recognize(x, mask)
            memory.recognize(x, mask, inference="evidence")
    _ = memory.prototypes, memory.known


def main(name: str) -> None:
    """Compile for one kind, unless another process does or has; end with the process at the other end of stdin."""

    def watch() -> None:
        os.read(0, 1)  # not by `sys.stdin`, whose lock Python needs when it ends
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(10)
    kind = KINDS[name]
    marker = marker_of(kind)
    Path(marker.parent).mkdir(parents=True, exist_ok=True)
    with FileLock(marker.with_suffix(".lock")):
        if not marker.exists():
            compile_kind(kind)


if __name__ == "__main__":
    main(sys.argv[1])
