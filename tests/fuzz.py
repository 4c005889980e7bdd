"""`make fuzz`: thousands of stories of `properties/test_machine.py`, in processes of their own.

A process that dies is a failure like any other, and the next one goes on. `python -m tests.fuzz PROCESSES STORIES`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time


def main(processes: int, stories: int) -> int:
    failed = 0
    for seed in range(processes):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/properties/test_machine.py", f"--hypothesis-seed={seed}"],
            env={**os.environ, "SQHN_FUZZ": str(stories), "CI": ""},  # chance decides, by the seed
            capture_output=True,
            text=True,
        )
        word = "ok" if done.returncode == 0 else f"FAILED with status {done.returncode}"
        print(f"seed {seed}: {stories} stories, {time.monotonic() - began:.0f} s: {word}", flush=True)
        if done.returncode:
            failed += 1
            print(done.stdout[-4000:], done.stderr[-2000:], flush=True)
    print(f"{processes - failed} passed, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
