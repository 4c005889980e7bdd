"""How fast on shards, against one bank in the same run: everything on the cores of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.bench import COLOUR, Result, pictures
from sqhn.network import SQHN

__all__ = ["CASES"]

Phases = dict[str, Callable[[SQHN], int]]
NEURONS, MORE = 20_000, 3072
MILLION, EDGE = 1_000_000, 28


def rates(memory: SQHN, phases: Phases) -> dict[str, Result]:
    """How many samples a second in each phase; on shards also what was sent and received, and the share of waiting."""
    shards: Any = getattr(memory._patterns, "shards", None)
    found = {}
    for name, phase in phases.items():
        sent, received, waited = (shards.sent, shards.received, shards.waited) if shards else (0, 0, 0.0)
        start = time.perf_counter()
        count = phase(memory)
        seconds = time.perf_counter() - start
        found[name] = {"samples_per_second": count / seconds}
        if shards:
            found[name] |= {
                "bytes_sent_per_sample": (shards.sent - sent) / count,
                "bytes_received_per_sample": (shards.received - received) / count,
                "share_of_time_waiting": (shards.waited - waited) / seconds,
            }
    return found


def beside(shape: tuple[int, ...], capacity: int, many: int, phases: Phases) -> Result:
    """One bank and so many shards, one after the other, phase by phase; the second time counts, of both."""
    best: dict[str, dict[str, Result]] = {"one bank": {}, "shards": {}}
    for turn in range(2):
        for name, how in (("one bank", {}), ("shards", {"device": "ray", "shards": many})):
            found = rates(SQHN(shape, capacity=capacity, **how), phases)  # type: ignore[arg-type]
            if turn:
                best[name] = found
    ratios = {
        phase: one["samples_per_second"] / best["one bank"][phase]["samples_per_second"]
        for phase, one in best["shards"].items()
    }
    return {**best, "ratio": ratios}


def shards(many: int) -> Result:
    """20,000 neurons x 3,072 values: the second half grows, then averaging, then recall from noise."""
    x = pictures(NEURONS + MORE)
    noise = np.random.default_rng(0).normal(0, 0.1, (MORE, *COLOUR))
    noisy = np.clip(x[:MORE] + noise, 0, 1).astype(np.float32)
    first = NEURONS // 2

    def memorize(memory: SQHN) -> int:
        memory.memorize(x[:first])
        return first

    phases: Phases = {
        "memorize": memorize,
        "grow": lambda memory: len(memory.learn(x[first:NEURONS]).grew),
        "full": lambda memory: len(memory.learn(x[NEURONS:]).grew),
        "recall": lambda memory: len(memory.recall(noisy).x),
    }
    return beside(COLOUR, NEURONS, many, phases)


def smooth(count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Random pictures of 28 x 28 in which neighbours resemble each other."""
    small = rng.random((count, 8, 8), np.float32)
    rows = np.linspace(0, 6.999, EDGE)
    low, part = rows.astype(int), (rows % 1).astype(np.float32)
    wide = small[:, low] * (1 - part)[:, None] + small[:, low + 1] * part[:, None]
    return np.asarray(wide[:, :, low] * (1 - part) + wide[:, :, low + 1] * part, np.float32)


def holding(x: NDArray[np.float32], capacity: int, how: dict[str, Any]) -> SQHN:
    """A memory that has these samples, each in a neuron: as it would be after learning all of them, in no time."""
    memory = SQHN(x.shape[1:], capacity=capacity)
    state, count = memory.__getstate__(), len(x)
    state["header"]["steps"] = [count]
    state["tensors"] = {
        "level1.grown": np.array([count]),
        "level1.c": np.ones(count, np.int64),
        "level1.mu": np.ones(count),
        "level1.written": np.arange(count) + 1,
        "level1.prototypes": x.reshape(count, -1),
    }
    memory.__setstate__({**state, **how})
    return memory


def million() -> Result:
    """A million neurons x 784 values on four shards: the last few thousand are learned, a few thousand recalled."""
    rng = np.random.default_rng(0)
    more = 4096
    x, last = smooth(MILLION - more, rng), smooth(more, rng)
    noisy = np.clip(x[:more] + rng.normal(0, 0.1, (more, EDGE, EDGE)), 0, 1).astype(np.float32)
    right = []

    def recall(memory: SQHN) -> int:
        right.append(float((memory.recall(noisy).index == np.arange(more)).mean()))
        return more

    phases: Phases = {"grow": lambda memory: len(memory.learn(last).grew), "recall": recall}
    found = {
        name: rates(holding(x, MILLION, how), phases)
        for name, how in (("one bank", {}), ("shards", {"device": "ray", "shards": 4}))
    }
    return {**found, "recalled": right}


CASES: dict[str, Callable[[], Result]] = {
    **{f"shards-{many}": partial(shards, many) for many in (1, 2, 4)},
    "million": million,
}
