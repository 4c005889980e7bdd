"""Many threads, each with its own stream, share one memory on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("tree", ["one", "tree", "overwrite"])
def test_threads_share_a_memory(tree: str, device: str) -> None:
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("the interpreter has no streams")
    program = [sys.executable, "-m", "tests.stress", tree, device, "6"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
