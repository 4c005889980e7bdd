"""Benchmarks on shards, against one bank in the same run, with all processes on the cores of this machine.

`Costs` extrapolates to more machines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.devices import device_of
from sqhn.banks.ray.prototypes import PART
from sqhn.banks.ray.search import NAME
from sqhn.bench.cpu import COLOR, TREE, Result, described, images, noisy
from sqhn.memory import SQHN

Phases = dict[str, Callable[[SQHN], int]]  # each returns how many samples it processed
NEURONS, SAMPLES = 20_000, 3072
MILLION = 1_000_000
MANY_NEURONS, MACHINES = 10_000_000, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Costs:
    """The costs of a sample: core seconds in all shards together and in the program, and bytes to and from each shard.

    On one machine all processes share its cores, and each shard runs one thread per core that it gets. On several
    machines, the shards search for some samples while the program learns the previous ones and sends the next; the
    slowest of the three sets the pace. The program waits for one answer per part of a batch, and sends `messages`
    messages to each shard for it, which cost it `message` seconds each.
    """

    shards: float
    program: float
    bytes: float
    message: float
    messages: float = 3.0

    def here(self, shards: int, cores: int) -> float:
        """Samples per second on one machine."""
        search, program = self.shards / shards, self._program(shards)
        threads = max(1, cores // shards)
        return 1 / max(search / threads, program, (self.shards + program) / cores)

    def there(self, shards: int, cores: int, latency: float, bandwidth: float) -> float:
        """Samples per second with one machine of `cores` cores per shard; in seconds and bytes per second."""
        search = self.shards / shards / cores + 2 * latency / PART
        return 1 / max(search, self._program(shards), shards * self.bytes / bandwidth)

    def _program(self, shards: int) -> float:
        """Measured with one shard; each further shard takes as many messages again."""
        return self.program + (shards - 1) * self.messages * self.message / PART


def used(shards: Any) -> NDArray[np.float64]:
    """Bytes to and from all shards so far, the time spent waiting for them, and their processor time."""
    if shards is None:
        return np.zeros(4)
    import ray

    busy = sum(seconds for _, seconds in ray.get([shard.process.remote() for shard in shards.shards]))
    return np.array([shards.sent, shards.received, shards.waited, busy])


def rates(memory: SQHN, phases: Phases) -> dict[str, Result]:
    """Samples per second in each phase; on shards also the bytes per sample, and the share of time spent waiting."""
    shards: Any = getattr(memory.banks[0], "shards", None)
    results: dict[str, Result] = {}
    for name, phase in phases.items():
        before, start, own = used(shards), time.perf_counter(), time.process_time()
        count = phase(memory)
        seconds, own = time.perf_counter() - start, time.process_time() - own
        results[name] = {"samples_per_second": count / seconds}
        if shards:
            sent, received, waited, busy = (used(shards) - before).tolist()
            results[name] |= {
                "bytes_sent_per_sample": sent / count,
                "bytes_received_per_sample": received / count,
                "share_of_time_waiting": waited / seconds,
                "core_seconds_per_sample": {"program": own / count, "shards": busy / count},
            }
    return results


def seconds_per_message() -> float:
    """Processor time of the program for a message to a shard."""
    memory = SQHN((2, 2), capacity=1, device="ray", shards=1)
    shards: Any = memory.banks[0].shards  # type: ignore[attr-defined]
    start, count = time.process_time(), 300
    for _ in range(count):
        shards.query({0: (NAME, "fetch", np.zeros(0, np.int64))})
    return (time.process_time() - start) / count


def formula() -> Result:
    """The costs of one shard, the rates that they predict for 2 and 4 shards here, the measured rates, and beyond.

    Beyond: ten million neurons on machines of four cores, one shard each, with 10 Gbit/s and half a millisecond.
    """
    measured = {count: compare(count) for count in (1, 2, 4)}
    cores, message = os.cpu_count() or 1, seconds_per_message()
    results: Result = {}
    for phase in ("grow", "full", "recall"):
        by_count = {count: result["shards"][phase] for count, result in measured.items()}
        one = by_count[1]
        busy, traffic = one["core_seconds_per_sample"], one["bytes_sent_per_sample"] + one["bytes_received_per_sample"]
        costs = Costs(busy["shards"], busy["program"], traffic, message)
        large = replace(costs, shards=costs.shards * MANY_NEURONS / NEURONS)
        results[phase] = {
            "costs": asdict(costs),
            "here": {
                count: {"expected": costs.here(count, cores), "measured": result["samples_per_second"]}
                for count, result in by_count.items()
            },
            f"{MANY_NEURONS:,} neurons": {count: large.there(count, 4, 5e-4, 1.25e9) for count in MACHINES},
        }
    return results


def compare(shards: int) -> Result:
    """One bank and some shards, 20,000 neurons x 3,072 values; all phases run twice, and the second time counts."""
    memory, phases = partial(SQHN, COLOR, capacity=NEURONS), crops()
    makers = {"one bank": memory, "shards": partial(memory, device="ray", shards=shards)}
    _, results = ({name: rates(make(), phases) for name, make in makers.items()} for _ in range(2))
    ratios = {
        phase: result["samples_per_second"] / results["one bank"][phase]["samples_per_second"]
        for phase, result in results["shards"].items()
    }
    return {**results, "ratio": ratios}


def crops() -> Phases:
    """The second half of the neurons grows, then samples are averaged, then they are recalled from noise."""
    x = images(NEURONS + SAMPLES)
    damaged, half = noisy(x[:SAMPLES], 0.1), NEURONS // 2

    def memorize(memory: SQHN) -> int:
        memory.memorize(x[:half])
        return half

    return {
        "memorize": memorize,
        "grow": lambda memory: len(memory.learn(x[half:NEURONS]).grew),
        "full": lambda memory: len(memory.learn(x[NEURONS:]).grew),
        "recall": lambda memory: len(memory.recall(damaged).x),
    }


def tree() -> Result:
    """Three levels (2, 4, 4), 600 neurons per node: 4,096 images learned, 1,024 recalled from noise, four times.

    In one place and on shards, and the same on GPUs where there are any.
    """
    x = images(4096)
    damaged = noisy(x[:1024], 0.1)
    places = {"cpu": ("cpu", None), "ray, one shard": ("ray", 1), "ray, two": ("ray", 2)}
    with suppress(ImportError, RuntimeError):
        device_of("cuda")
        places |= {"cuda": ("cuda", None), "ray:cuda, one shard": ("ray:cuda", 1), "ray:cuda, two": ("ray:cuda", 2)}
    phases: Phases = {
        "learn": lambda memory: len(memory.learn(x).grew),
        "recall": lambda memory: sum(len(memory.recall(damaged).x) for _ in range(4)),
    }

    def compiled(device: str, shards: int | None) -> SQHN:
        """A new memory, with all kernels compiled wherever it is."""
        memory = SQHN(COLOR, TREE, device=device, shards=shards)
        for phase in phases.values():
            phase(memory)
        memory.reset()
        return memory

    return {name: rates(compiled(*place), phases) for name, place in places.items()}


def smooth(count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Random images of 28 x 28 in which neighboring pixels resemble each other."""
    small = rng.random((count, 8, 8), np.float32)
    weight = np.maximum(0, 1 - np.abs(np.linspace(0, 7, 28)[:, None] - np.arange(8))).astype(np.float32)
    return np.asarray(weight @ small @ weight.T)


def million() -> Result:
    """A million neurons x 784 values on four shards: the last 4,096 are learned, and as many recalled from noise."""
    rng = np.random.default_rng(0)
    new = 4096
    x, last = smooth(MILLION - new, rng), smooth(new, rng)
    damaged = noisy(x[:new], 0.1)
    right = []

    def recall(memory: SQHN) -> int:
        right.append(float((memory.recall(damaged).index == np.arange(new)).mean()))
        return new

    def full(**place: Any) -> SQHN:
        memory = SQHN(x.shape[1:], capacity=MILLION, **place)
        memory.memorize(x)
        return memory

    phases: Phases = {"grow": lambda memory: len(memory.learn(last).grew), "recall": recall}
    places: dict[str, dict[str, Any]] = {"one bank": {}, "shards": {"device": "ray", "shards": 4}}
    results = {name: rates(full(**place), phases) for name, place in places.items()}
    return {**results, "recalled": right}


CASES: dict[str, Callable[[], Result]] = {
    **{f"shards-{count}": described(f"{compare.__doc__}", compare, count) for count in (1, 2, 4)},
    "tree": tree,
    "million": million,
    "formula": formula,
}
