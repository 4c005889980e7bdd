"""Benchmarks: speed and size in the standard cases, with comparisons in the same run.

Ratios are the result; seconds are not. The images are crops of photographs and handwritten digits (built-in data). Each
time is the shortest of several runs, which alternate with those of the comparison in groups of a few. The first run of
a group is not timed, because the threads of the previous call keep waiting for work for a while.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable

import numpy as np

from sqhn.banks.compilation import at_once
from sqhn.banks.cpu.threads import get_num_threads
from sqhn.banks.devices import device_of
from sqhn.bench.cpu import Result

__all__ = ["cases", "run"]


def cases(device: str) -> dict[str, Callable[[], Result]]:
    """The cases of a device."""
    if device == "cpu":
        from sqhn.bench import cpu

        return cpu.CASES
    if device == "ray":
        from sqhn.bench import shards

        return shards.CASES
    device_of(device)  # raises an error if it is missing
    from sqhn.bench import cuda

    return cuda.CASES


def run(names: list[str], report: Callable[[str], None], device: str = "cpu") -> str:
    """The results of the named cases as one JSON document; `report` gets a line as each case starts."""
    results = {}
    table = cases(device)
    for name in names:
        about = (table[name].__doc__ or "").strip()
        report(f"{name}: {about}")
        with at_once():
            results[name] = {"case": about} | table[name]()
    machine = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": get_num_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    if device.startswith("cuda"):
        from sqhn.bench import cuda

        machine |= cuda.machine()
    return json.dumps({"machine": machine, "cases": results}, indent=2, default=float)
