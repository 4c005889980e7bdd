"""Compiling ahead: everything that a memory can be asked, so that no later call waits for the compiler."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numba.core import event
from numpy.typing import NDArray

from sqhn.level import Level
from sqhn.memory import SQHN
from sqhn.model.inference import INFERENCES

__all__ = ["compiling", "warm"]

FEW = 8
"""The capacity of the memories that are asked: the compiler sees types, not numbers."""


def warm(memory: SQHN | None = None) -> int:
    """Compile all that a memory like this one can be asked on a CPU; returns the number of compiled functions.

    memory: one of the same shape, levels and options is made, and asked everything; this one does not change. Without
        it: memories of one level, with few and with many values, and a tree, with the default similarity.

    Compiled code is cached on disk, so this is done once for a machine. Cost with an empty cache: 17 to 23 s of a
    core for a memory, 30 s without one.

    >>> compiled = warm(SQHN((6,), capacity=10))
    >>> warm(SQHN((6,), capacity=20))  # all is compiled by now
    0
    """
    if memory is None:
        kinds = [
            SQHN((8,), capacity=FEW),
            SQHN((16, 16), capacity=FEW),
            SQHN((8, 8), [Level(4, FEW), Level(None, FEW)]),
        ]
    elif memory.device == "cpu":
        kinds = [_like(memory)]
    else:
        raise ValueError(f'warm compiles for device "cpu"; this memory is on {memory.device!r}')
    compiled = itertools.count()
    with compiling(lambda: next(compiled)):
        for kind in kinds:
            _ask_everything(kind)
    return next(compiled)


class _Listener(event.Listener):
    """Calls a function at the start of every event."""

    def __init__(self, tell: Callable[[], object]) -> None:
        self.tell = tell

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        self.tell()

    def on_end(self, event: Any) -> None:
        """Only starts are told."""


@contextmanager
def compiling(tell: Callable[[], object]) -> Iterator[None]:
    """Within, call a function whenever another one must be compiled, since the cache does not have it."""
    with event.install_listener("numba:compile", _Listener(tell)):
        yield


def _like(memory: SQHN) -> SQHN:
    """A small and empty memory that needs the same kernels."""
    levels = [replace(level, capacity=FEW, alpha=1e7, gamma=1.0) for level in memory.levels]
    return SQHN(memory.input_shape, levels, **asdict(memory.options))


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
