"""A robot that keeps the last day: a memory that is full forgets what it has not met for longest.

Every hour the robot sees a few places, noisily, and moves on to other rooms. What it meets again is averaged, and
counts as written anew; what is new takes the place of what was written longest ago.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sqhn import SQHN, Level

HOURS, PLACES, VIEWS = 72, 10, 3


def view(place: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """A place as the robot sees it this time."""
    return np.asarray(place + rng.normal(0, 0.05, place.shape), np.float32)


def main() -> tuple[float, float, bool]:
    """Print and return the share of places that are known, of the last day and of the day before, and of home."""
    rng = np.random.default_rng(0)
    home, *places = rng.random((1 + HOURS * PLACES, 16, 16)).astype(np.float32)
    day = [Level(capacity=24 * PLACES + 1, gamma=0.95, when_full="oldest")]  # a match of .95 is the same place
    memory = SQHN((16, 16), day, rho=0.97)
    gone = 0
    for hour in range(HOURS):
        here = places[hour * PLACES : (hour + 1) * PLACES]
        for place in (home, *here):  # it comes home every hour
            written = memory.learn(np.stack([view(place, rng) for _ in range(VIEWS)]))
            gone += int(written.replaced.sum())
    last, before = (
        float(np.mean([memory.recognize(view(place, rng)).old for place in places[start : start + 24 * PLACES]]))
        for start in (48 * PLACES, 24 * PLACES)
    )
    at_home = memory.recognize(view(home, rng)).old
    print(f"{memory}: {gone} places forgotten; {last:.0%} of the last day's are known, {before:.0%} of the day before")
    print(f"home, seen every hour for {HOURS} hours, is {'known' if at_home else 'not known'}")
    return last, before, at_home


if __name__ == "__main__":
    main()
