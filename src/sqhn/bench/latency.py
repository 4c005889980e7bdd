"""The time of single calls, idle and beside a busy process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.memory import SQHN

NEURONS = 500, 5000, 20_000
WINDOW = (200, 6)
"""Samples of six sensors."""
CALLS, FIRST = 1000, 100
"""How many calls are made, and how many of them are not timed, as the first ones."""
BUSY = "import numpy as np\nx = np.ones((1000, 1000))\nprint(flush=True)\nwhile True:\n    x @ x"
"""A program of matrix products on all cores."""


def single_calls() -> dict[str, Any]:
    """The median and 99th percentile of calls with one window of 200 x 6 values, idle and beside a busy process."""
    return {f"{neurons}_neurons": _with_neurons(neurons) for neurons in NEURONS}


def _with_neurons(neurons: int) -> dict[str, Any]:
    """In a full memory; compared with the product of the sample and as many vectors in NumPy."""
    rng = np.random.default_rng(0)
    W, samples = rng.random((neurons, *WINDOW), np.float32), rng.random((CALLS, *WINDOW), np.float32)
    memory = SQHN(WINDOW, capacity=neurons, similarity="euclidean")
    memory.learn(W)
    rows = W.reshape(neurons, -1)

    def product(sample: NDArray[np.float32]) -> object:
        return rows @ sample.ravel()

    calls: dict[str, Callable[[NDArray[np.float32]], object]]
    calls = {"learn": memory.learn, "recall": memory.recall, "recognize": memory.recognize, "bare_product": product}
    idle = {name: milliseconds(call, samples) for name, call in calls.items()}
    with busy_process():
        return {"idle": idle, "busy": {name: milliseconds(call, samples) for name, call in calls.items()}}


def milliseconds(call: Callable[[NDArray[np.float32]], object], samples: NDArray[np.float32]) -> dict[str, float]:
    """The median and the 99th percentile of calls with one sample each."""
    seconds = []
    for sample in samples:
        start = time.perf_counter()
        call(sample)
        seconds.append(time.perf_counter() - start)
    p50, p99 = np.percentile(seconds[FIRST:], [50, 99]) * 1e3
    return {"p50_ms": float(p50), "p99_ms": float(p99)}


@contextmanager
def busy_process() -> Iterator[None]:
    """Another process that uses all cores meanwhile."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()  # it has begun
        try:
            yield
        finally:
            other.kill()
