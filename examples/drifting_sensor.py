"""Detect faults of a machine whose sensors drift, so that normal values change over time.

Four channels follow a load that rises and falls, and all of them drift slowly. About one sample in a hundred is a
fault: one channel deviates from the others. Each sample is scored, then learned (river's progressive validation).

python examples/drifting_sensor.py [FIGURE]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from river import anomaly, compose, evaluate, metrics, preprocessing

from sqhn.river import SQHNDetector

STEPS, CHANNELS, DRIFT = 6000, 4, 12.0
Sample = tuple[dict[Hashable, Any], bool]


def machine(seed: int = 0) -> Iterator[Sample]:
    """Yield samples, and whether each is a fault."""
    rng = np.random.default_rng(seed)
    gain, drift = rng.uniform(0.5, 1.5, CHANNELS), rng.choice([-1, 1], CHANNELS) * DRIFT / STEPS
    for t in range(STEPS):
        load = math.sin(t / 40) + 0.3 * math.sin(t / 7)
        values = gain * load + drift * t + rng.normal(0, 0.1, CHANNELS)
        fault = t > 200 and rng.random() < 0.01
        if fault:
            values[rng.integers(CHANNELS)] += rng.choice([-1, 1]) * rng.uniform(1, 2)
        yield {f"channel {i + 1}": value for i, value in enumerate(values.tolist())}, fault


def detectors() -> dict[str, Any]:
    """Memories that keep the latest samples, averages of all samples, or the first samples; and a detector of river."""
    return {
        "SQHNDetector, oldest": SQHNDetector(capacity=500, when_full="oldest"),
        "SQHNDetector, average": SQHNDetector(capacity=500),
        "SQHNDetector, freeze": SQHNDetector(capacity=500, when_full="freeze"),
        "HalfSpaceTrees": compose.Pipeline(preprocessing.MinMaxScaler(), anomaly.HalfSpaceTrees(seed=0)),
    }


def draw(path: str) -> None:
    """Draw the channels, and the scores of two detectors."""
    from matplotlib.figure import Figure

    stream = list(machine())
    x, fault = np.array([list(x.values()) for x, _ in stream]), np.array([y for _, y in stream])
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.subplots(3, 1, sharex=True)
    axes[0].plot(x, lw=0.4)
    axes[0].set_ylabel("channels")
    for axis, name in zip(axes[1:], ("SQHNDetector, oldest", "SQHNDetector, freeze")):
        detector, scores = detectors()[name], []
        for sample, _ in stream:
            scores.append(detector.score_one(sample))
            detector.learn_one(sample)
        t = np.arange(STEPS)
        axis.plot(t[~fault], np.array(scores)[~fault], ",", color="0.5")
        axis.plot(t[fault], np.array(scores)[fault], ".", color="tab:red", label="faults")
        axis.set(ylabel="score", ylim=(0, 1), title=name)
    axes[1].legend(loc="upper left")
    axes[2].set_xlabel("step")
    figure.savefig(path, dpi=100)


def main(figure: str | None = None) -> dict[str, float]:
    """Print and return the area under the ROC curve of every detector."""
    found = {}
    for name, detector in detectors().items():
        found[name] = float(evaluate.progressive_val_score(machine(), detector, metrics.ROCAUC()).get())  # type: ignore[no-untyped-call]
        print(f"{name}: {found[name]:.3f}", flush=True)
    if figure:
        draw(figure)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
