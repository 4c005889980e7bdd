"""How fast on shards, against one bank in the same run: everything on the cores of this machine.

And how fast on more machines than are here: `Costs`.
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
from sqhn.banks.ray.neighbours import NAME
from sqhn.banks.ray.prototypes import PART
from sqhn.bench.cpu import COLOUR, TREE, Result, pictures
from sqhn.memory import SQHN

__all__ = ["CASES", "Costs"]

Phases = dict[str, Callable[[SQHN], int]]
NEURONS, MORE = 20_000, 3072
MILLION, EDGE = 1_000_000, 28
LARGE, MACHINES = 10_000_000, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Costs:
    """What a sample costs: seconds of a core in all shards together, and in the program; bytes to and from each shard.

    On one machine all share its cores, and a thread of a shard has one. On several, the shards of one look at samples
    while the program learns the last ones and sends the next: the slowest of the three sets the pace. Of every part of
    samples an answer is waited for. `messages` to each shard for a part keep the program busy too.
    """

    shards: float
    program: float
    bytes: float
    message: float
    messages: float = 3.0

    def here(self, shards: int, cores: int) -> float:
        """Samples a second on one machine."""
        look, program = self.shards / shards, self._program(shards)
        threads = max(1, cores // shards)
        return 1 / max(look / threads, program, (self.shards + program) / cores)

    def there(self, shards: int, cores: int, latency: float, bandwidth: float) -> float:
        """Samples a second on machines of their own, which have so many cores each; seconds, and bytes a second."""
        look = self.shards / shards / cores + 2 * latency / PART
        return 1 / max(look, self._program(shards), shards * self.bytes / bandwidth)

    def _program(self, shards: int) -> float:
        """The costs are those of one shard; each other one takes as many messages again."""
        return self.program + (shards - 1) * self.messages * self.message / PART


def used(shards: Any) -> float:
    """For how long shards have kept cores busy."""
    import ray

    return float(sum(ray.get([shard.seconds.remote() for shard in shards.shards]))) if shards else 0.0


def rates(memory: SQHN, phases: Phases) -> dict[str, Result]:
    """How many samples a second in each phase; on shards also what was sent and received, and the share of waiting."""
    shards: Any = getattr(memory.banks[0], "shards", None)
    found: dict[str, Result] = {}
    for name, phase in phases.items():
        sent, received, waited = (shards.sent, shards.received, shards.waited) if shards else (0, 0, 0.0)
        busy, start, own = used(shards), time.perf_counter(), time.process_time()
        count = phase(memory)
        seconds, own = time.perf_counter() - start, time.process_time() - own
        found[name] = {"samples_per_second": count / seconds}
        if shards:
            found[name] |= {
                "bytes_sent_per_sample": (shards.sent - sent) / count,
                "bytes_received_per_sample": (shards.received - received) / count,
                "share_of_time_waiting": (shards.waited - waited) / seconds,
                "core_seconds_per_sample": {"program": own / count, "shards": (used(shards) - busy) / count},
            }
    return found


def message() -> float:
    """Seconds of the program for a message to a shard."""
    shards: Any = SQHN((2, 2), capacity=1, device="ray", shards=1).banks[0].shards  # type: ignore[attr-defined]
    start, many = time.process_time(), 300
    for _ in range(many):
        shards.query({0: (NAME, "fetch", np.zeros(0, np.int64))})
    return (time.process_time() - start) / many


def formula() -> Result:
    """What one shard costs, what follows from that for 2 and 4 on this machine, and what was measured; and beyond.

    Beyond: machines of four cores at 10 Gbit/s and half a millisecond, one shard each, and ten million neurons.
    """
    found: Result = {}
    measured = {many: beside(COLOUR, NEURONS, many, crops()) for many in (1, 2, 4)}
    cores, one = os.cpu_count() or 1, message()
    for phase in ("grow", "full", "recall"):
        told = {many: result["shards"][phase] for many, result in measured.items()}
        busy = told[1]["core_seconds_per_sample"]
        sent = told[1]["bytes_sent_per_sample"] + told[1]["bytes_received_per_sample"]
        costs = Costs(busy["shards"], busy["program"], sent, one)
        large = replace(costs, shards=costs.shards * LARGE / NEURONS)
        found[phase] = {
            "costs": asdict(costs),
            "here": {
                many: {"expected": costs.here(many, cores), "measured": result["samples_per_second"]}
                for many, result in told.items()
            },
            f"{LARGE:,} neurons": {many: large.there(many, 4, 5e-4, 1.25e9) for many in MACHINES},
        }
    return found


def beside(shape: tuple[int, ...], capacity: int, many: int, phases: Phases) -> Result:
    """One bank and so many shards, one after the other, phase by phase; the second time counts, of both."""
    memory = partial(SQHN, shape, capacity=capacity)
    ways = {"one bank": memory, "shards": partial(memory, device="ray", shards=many)}
    _, found = ({name: rates(make(), phases) for name, make in ways.items()} for _ in range(2))
    ratios = {
        phase: one["samples_per_second"] / found["one bank"][phase]["samples_per_second"]
        for phase, one in found["shards"].items()
    }
    return {**found, "ratio": ratios}


def tree() -> Result:
    """Three levels (2, 4, 4), 600 neurons per node: 4,096 pictures learned, 1,024 recalled from noise, four times.

    In one place and on shards, and the same on GPUs where there are any.
    """
    x, ways = pictures(4096), {"cpu": ("cpu", None), "ray, one shard": ("ray", 1), "ray, two": ("ray", 2)}
    noisy = np.clip(x[:1024] + np.random.default_rng(0).normal(0, 0.1, (1024, *COLOUR)), 0, 1).astype(np.float32)
    with suppress(ImportError, RuntimeError):
        device_of("cuda")
        ways |= {"cuda": ("cuda", None), "ray:cuda, one shard": ("ray:cuda", 1), "ray:cuda, two": ("ray:cuda", 2)}
    phases: Phases = {
        "learn": lambda memory: len(memory.learn(x).grew),
        "recall": lambda memory: sum(len(memory.recall(noisy).x) for _ in range(4)),
    }

    def ready(device: str, shards: int | None) -> SQHN:
        """With all kernels compiled, wherever it is."""
        memory = SQHN(COLOUR, TREE, device=device, shards=shards)
        for phase in phases.values():
            phase(memory)
        memory.reset()
        return memory

    return {name: rates(ready(*way), phases) for name, way in ways.items()}


def crops() -> Phases:
    """20,000 neurons x 3,072 values: the second half grows, then averaging, then recall from noise."""
    x = pictures(NEURONS + MORE)
    noise = np.random.default_rng(0).normal(0, 0.1, (MORE, *COLOUR))
    noisy = np.clip(x[:MORE] + noise, 0, 1).astype(np.float32)
    first = NEURONS // 2

    def memorize(memory: SQHN) -> int:
        memory.memorize(x[:first])
        return first

    return {
        "memorize": memorize,
        "grow": lambda memory: len(memory.learn(x[first:NEURONS]).grew),
        "full": lambda memory: len(memory.learn(x[NEURONS:]).grew),
        "recall": lambda memory: len(memory.recall(noisy).x),
    }


def shards(many: int) -> Result:
    """So many beside one bank."""
    return beside(COLOUR, NEURONS, many, crops())


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
    "tree": tree,
    "million": million,
    "formula": formula,
}
