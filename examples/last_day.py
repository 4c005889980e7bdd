"""A robot that remembers the last day: a full memory replaces the places that it saw longest ago.

Every hour the robot sees a few new places, with noise. Views of a known place are averaged into its neuron, which then
counts as recently written. A new place replaces the neuron that was written longest ago.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sqhn import SQHN, Level

HOURS, PLACES, VIEWS = 72, 10, 3


def view(place: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """A noisy view of a place."""
    return np.asarray(place + rng.normal(0, 0.05, place.shape), np.float32)


def main() -> tuple[float, float, bool]:
    """Print and return the share of known places of the last day and of the day before, and whether home is known."""
    rng = np.random.default_rng(0)
    home, *places = rng.random((1 + HOURS * PLACES, 16, 16)).astype(np.float32)
    day = [Level(capacity=24 * PLACES + 1, gamma=0.95, when_full="oldest")]  # a match of .95 or more is the same place
    memory = SQHN((16, 16), day, rho=0.97)
    forgotten = 0
    for hour in range(HOURS):
        here = places[hour * PLACES : (hour + 1) * PLACES]
        for place in (home, *here):  # it comes home every hour
            written = memory.learn(np.stack([view(place, rng) for _ in range(VIEWS)]))
            forgotten += int(written.replaced.sum())
    last, before = (
        float(np.mean([memory.recognize(view(place, rng)).old for place in places[start : start + 24 * PLACES]]))
        for start in (48 * PLACES, 24 * PLACES)
    )
    at_home = memory.recognize(view(home, rng)).old
    print(f"{memory}: {forgotten} places forgotten")
    print(f"known places of the last day: {last:.0%}, of the day before: {before:.0%}")
    print(f"home, seen every hour for {HOURS} hours, is {'known' if at_home else 'not known'}")
    return last, before, at_home


if __name__ == "__main__":
    main()
