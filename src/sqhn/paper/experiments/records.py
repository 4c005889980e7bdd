"""Records of jobs: one line of JSON each, with the settings, the results and their provenance."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import sqhn
from sqhn.storage.atomic import write_whole

Record = dict[str, Any]
FILE = "records.jsonl"


def key_of(experiment: str, settings: dict[str, Any], seed: int, data: dict[str, str]) -> str:
    """The identity of a run: two runs with the same key are the same."""
    return json.dumps([experiment, settings, seed, data], sort_keys=True)


def read(folder: Path) -> dict[str, Record]:
    """The records of a folder by their key; lines cut short by a crash are skipped."""
    records: dict[str, Record] = {}
    path = folder / FILE
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
            records[key_of(record["experiment"], record["settings"], record["seed"], record["data"])] = record
        except (json.JSONDecodeError, KeyError, TypeError):
            continue
    return records


def append(folder: Path, record: Record) -> None:
    """Add a record; it is on disk when this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a crash cut the last line short
                file.write(b"\n")
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def write(folder: Path, records: Iterable[Record]) -> None:
    """Replace all records, atomically."""
    write_whole(folder / FILE, "".join(json.dumps(record) + "\n" for record in records).encode())


@cache
def provenance() -> dict[str, Any]:
    """The provenance of a record: versions, commit and machine."""
    return {
        "versions": {"sqhn": sqhn.__version__, "python": platform.python_version(), **_installed()},
        "commit": _commit(),
        "machine": _machine(),
    }


def _installed() -> dict[str, str]:
    versions = {}
    for name in ("numpy", "numba", "scipy", "scikit-learn", "scikit-image", "torch"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _commit() -> str | None:
    """The commit of a checkout, marked if files have changed since; None for an installed package."""
    here = Path(__file__).parent
    try:
        git = ["git", "-C", str(here)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "--", "."], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + (" (changed)" if changed.stdout.strip() else "")


def _machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"
