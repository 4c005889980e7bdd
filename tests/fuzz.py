"""`make fuzz`: thousands of random sequences of `properties/test_machine.py`, in processes of their own.

`python -m tests.fuzz PROCESSES SEQUENCES`. A process that dies counts as a failure, and the next one starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time


def main(processes: int, sequences: int) -> int:
    failed = 0
    for seed in range(processes):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/properties/test_machine.py", f"--hypothesis-seed={seed}"],
            env={**os.environ, "SQHN_FUZZ": str(sequences), "CI": ""},  # CI would derandomize: the seed decides
            capture_output=True,
            text=True,
        )
        word = "ok" if done.returncode == 0 else f"FAILED with status {done.returncode}"
        print(f"seed {seed}: {sequences} sequences, {time.monotonic() - began:.0f} s: {word}", flush=True)
        if done.returncode:
            failed += 1
            print(done.stdout[-4000:], done.stderr[-2000:], flush=True)
    print(f"{processes - failed} passed, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
