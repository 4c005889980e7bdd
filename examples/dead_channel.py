"""Fill in the values of a dead sensor from the five sensors that still work.

The memory learns windows of six correlated sensors. Five of them are enough to find a similar window, which has the
values of the sixth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sqhn import SQHN

WINDOW = 20


def machine(steps: int, seed: int) -> NDArray[np.float32]:
    """Six sensors of a machine that rotates at varying speed, with values between 0 and 1."""
    rng = np.random.default_rng(seed)
    speed = 0.15 + 0.1 * np.abs(np.sin(np.cumsum(rng.normal(0, 0.01, steps))))
    angle = np.cumsum(speed)
    rows = [np.sin(angle + phase) * (0.5 + speed) for phase in (0, 0.7, 1.4, 2.1)] + [
        4 * speed - 0.8,
        np.cos(2 * angle),
    ]
    return (0.5 + 0.25 * np.array(rows).T + rng.normal(0, 0.01, (steps, 6))).astype(np.float32)


def windows(signal: NDArray[np.float32]) -> NDArray[np.float32]:
    """Overlapping windows of a signal."""
    return np.stack([signal[t : t + WINDOW] for t in range(0, len(signal) - WINDOW, 5)])


def main() -> tuple[float, float]:
    """Print and return the error of the values filled in from memory, and of the sensor's mean in their place."""
    learned, later = windows(machine(20_000, 0)), windows(machine(2_000, 1))
    memory = SQHN((WINDOW, 6), capacity=4000)
    memory.learn_stream(learned, progress=False)

    observed = np.ones((WINDOW, 6), bool)
    observed[:, 2] = False  # this sensor is dead
    broken = np.where(observed, later, np.float32(np.nan))
    filled = memory.recall(broken, observed=observed, keep=True).x
    error = float(np.sqrt(np.mean((filled - later)[:, :, 2] ** 2)))
    mean = float(np.sqrt(np.mean((learned[:, :, 2].mean() - later[:, :, 2]) ** 2)))
    print(f"error of the dead sensor's values: {error:.4f} from memory, {mean:.4f} with the sensor's mean")
    return error, mean


if __name__ == "__main__":
    main()
