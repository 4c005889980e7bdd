"""After `warm`, no call of any kind compiles anything."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from sqhn import SQHN, Level, warm
from sqhn.model.inference import INFERENCES, Evidence
from tests.helpers import fingerprint

MEMORIES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "one level": ((20, 17), {"capacity": 60}),
    "few values": ((6,), {"capacity": 60}),
    "windows of sensors": ((40, 6), {"capacity": 60, "similarity": "euclidean"}),
    "a tree": ((8, 8, 3), {"levels": [Level(2, 50), Level(2, 50), Level(capacity=60, when_full="overwrite")]}),
    "a tree of large nodes": ((24, 10), {"levels": [Level((12, 10), 50), Level(capacity=60)]}),
    "a tree with other options": (
        (16, 2),
        {
            "levels": [Level((4, 1), 50), Level(capacity=60)],
            "similarity": "euclidean",
            "norm": "heard",
            "propagation": "max",
        },
    ),
}


def machine_code() -> set[Any]:
    """All that is in machine code in this process: compiled, or read from the cache."""
    modules = [module for name, module in [*sys.modules.items()] if name.startswith("sqhn.banks.")]
    functions = {one for module in modules for one in vars(module).values() if isinstance(one, Dispatcher)}
    return {(one.py_func, types) for one in functions for types in one.overloads}


def check_types() -> None:
    """In a new process: all kinds of memories use the same machine code, whatever they know and are asked."""
    for shape, settings in MEMORIES.values():
        warm(SQHN(shape, **settings))
    functions = Counter(function for function, _ in machine_code())
    assert len(functions) > 20
    assert set(functions.values()) == {1}, functions


def use(memory: SQHN, folder: Path) -> None:
    """As users do: samples of every kind, one at a time and in batches, before and after neurons are full."""
    rng, shape = np.random.default_rng(1), memory.input_shape
    x = rng.random((90, *shape))
    x.flags.writeable = False
    mask = rng.random(x.shape) < 0.7
    mask[..., 0] = True
    column = np.asfortranarray(x[:30].astype(np.float32))
    memory.learn(x[0])
    memory.save(folder / "one")
    one = SQHN.load(folder / "one")
    one.memorize(x[:1])
    one.memorize(x[1:25])
    for holes in (False, True):
        if holes:
            memory.learn(x[7], observed=mask[7])
            memory.learn(np.ma.masked_array(x[8:40], ~mask[8:40]))
        memory.learn((x[1:40] * 255).astype(np.uint8), value=list(range(39)))
        memory.learn(column, hold=True)
        memory.learn(column[:1], hold=True, observed=mask[:1])
        memory.learn_stream(iter(x[40:44]), progress=False)
        memory.forget([0, 2])
        memory.calibrate(new=column, error=0.1)
        memory.calibrate(old=column, error=0.1, observed=mask[:30], inference="evidence")
        if len(memory.levels) > 1:
            memory.pretrain(x[:9])
            memory.learn(x[3], root_only=True)
            memory.learn(x[:9], root_only=True, observed=mask[:9])
        for y, seen in ((x[5], mask[5]), (column, mask[:30]), (x[:40].astype(np.float32), mask[5]), (x[:1], mask[:1])):
            for observed in (None, seen, np.ones_like(seen)):
                for rule in INFERENCES:
                    for k in (None, 1, 5):
                        memory.recall(y, observed, inference=rule, k=k, keep=k == 1)
                    memory.energy(y, observed, inference=rule)
                memory.recognize(y, observed)
                memory.recognize(y, observed, inference="evidence")
        if len(memory.levels) == 1:
            memory.recall(x[3], inference=Evidence((memory.input_shape,)))
        memory.save(folder / "many")
        SQHN.load(folder / "many").learn(x[80])
        _ = memory.prototypes, memory.known, memory.counts, memory._repr_html_()
        memory.learn(x)  # full
        memory.learn(x[4], observed=mask[4] if holes else None)
        memory.recall(x[4], k=5)
        copy.deepcopy(memory).resize(100)


def check(name: str, folder: str) -> None:
    """In a new process: after `warm`, using the memory needs no other machine code."""
    shape, settings = MEMORIES[name]
    warm(SQHN(shape, **settings))
    before = machine_code()
    use(SQHN(shape, **settings), Path(folder))
    assert machine_code() <= before, machine_code() - before
    assert warm(SQHN(shape, **settings)) == 0


def in_a_new_process(call: str, **environment: str) -> None:
    program = f"from tests.test_warmup import *; {call}"
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | environment)


@pytest.mark.parametrize("name", MEMORIES)
def test_nothing_is_compiled_afterwards(name: str, tmp_path: Path) -> None:
    in_a_new_process(f"check({name!r}, {str(tmp_path)!r})")


def test_a_kernel_is_compiled_once() -> None:
    in_a_new_process("check_types()")


@pytest.mark.parametrize("name", MEMORIES)
def test_the_memory_does_not_change(name: str) -> None:
    shape, settings = MEMORIES[name]
    memory = SQHN(shape, **settings)
    memory.learn(np.random.default_rng(0).random((20, *shape)), value=list(range(20)))
    before, rho = fingerprint(memory), memory.rho
    warm(memory)
    assert (fingerprint(memory), memory.rho, memory.calibration) == (before, rho, None)


def test_memories_elsewhere_are_refused(local: Any) -> None:
    local(2)
    with pytest.raises(ValueError, match=r'device "cpu".*ray'):
        warm(SQHN((8,), capacity=3, device="ray"))
