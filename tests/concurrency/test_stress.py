"""Many threads use one memory at once; a replay in the reference gives the same memory (`tests/stress.py`)."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import pytest

RUNS = [*product(["one", "large", "tree", "overwrite"], ["cpu"]), *product(["one", "tree"], ["plain", "moving"])]


@pytest.mark.parametrize(("tree", "device"), RUNS)
def test_threads_share_a_memory(tree: str, device: str) -> None:
    program = [sys.executable, "-m", "tests.stress", tree, device, "5"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
