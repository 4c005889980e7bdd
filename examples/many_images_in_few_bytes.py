"""20,000 images in 6 MB: level 1 of a tree has one bank of 256 patches for all places.

python examples/many_images_in_few_bytes.py [COUNT]

The images are those of CIFAR-10 if they are on this machine (`sqhn data get cifar10`), otherwise crops of seven
photographs, without smooth ones, which are alike.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.data import MissingDataError, load, random_crops
from sqhn.data.corruptions import CORRUPTIONS

ASKED = 100
SMOOTH = 40  # the standard deviation of the values of a crop, of 255
CUES = (("clean", "noise", 0.0), ("noise .2", "noise", 0.2), ("half covered", "black", 0.5))


def images(count: int) -> NDArray[np.uint8]:
    """`(count, 32, 32, 3)` images."""
    try:
        x = load("cifar10").splits["train"].x
    except MissingDataError:
        x = random_crops(3 * count)
        x = x[x.std(axis=(1, 2, 3)) > SMOOTH]
    return x[:count]


def main(count: int = 20_000) -> dict[str, float]:
    """Print and return the megabytes of the file, and the share of images recalled from each cue."""
    every = images(count + ASKED)
    x, unseen = every[:count], every[count:]
    memory = SQHN(
        (32, 32, 3),
        [Level(2, 256, shared=True, stops=True), Level(None, count, when_full="freeze")],
    )
    memory.learn(x)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.sqhn"
        memory.save(path)
        found = {"megabytes": path.stat().st_size / 1e6}
    asked = x[np.random.default_rng(0).permutation(count)[:ASKED]]
    for name, kind, level in CUES:
        shares = []
        for originals in (asked, unseen):
            given, _ = CORRUPTIONS[kind](
                originals.astype(np.float32) / np.float32(255), level, np.random.default_rng(1)
            )
            recalled = memory.recall(given, inference="evidence").x
            error = np.square(recalled - originals / 255).mean(axis=(1, 2, 3))
            shares.append(np.mean(error < 0.01))
        found[name] = float(shares[0] - shares[1])
        print(f"{name}: {shares[0]:.2f} recalled; of images never seen, {shares[1]:.2f} are returned")
    print(
        f"{count:,} images, of which bytes would take {x.nbytes / 1e6:.1f} MB: {found['megabytes']:.1f} MB, "
        f"{1e6 * found['megabytes'] / count:.0f} bytes an image"
    )
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
