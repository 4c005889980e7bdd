"""Photographs of a folder that are there twice: half as large, and saved again as JPEG at a poor quality.

Every photograph is seen as 16 x 16 pixels. How near two must be to be the same is found by `calibrate`, from
photographs that are not: at most five in a hundred of them may be taken for one that was there before.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sqhn import SQHN
from sqhn.data.builtin import photos as crops


def seen(picture: Image.Image) -> NDArray[np.float32]:
    """What is left of a picture without its brightness and contrast, around one half: else all skies are alike."""
    x = np.asarray(picture.convert("RGB").resize((16, 16), Image.Resampling.BOX), np.float32)
    return np.asarray(0.5 + (x - x.mean()) / (4 * x.std() + 1), np.float32)


def duplicates(folder: Path, memory: SQHN) -> dict[str, str]:
    """Which file shows what an earlier one shows, in the order of their names."""
    found = {}
    for path in sorted(folder.iterdir()):
        x = seen(Image.open(path))
        if len(memory) and memory.recognize(x).old:
            found[path.name] = memory.recall(x).value
        else:
            memory.learn(x, value=path.name)
    return found


def main() -> tuple[dict[str, str], dict[str, str]]:
    """Print and return the duplicates that were found, and those that there are."""
    rng = np.random.default_rng(0)
    photos = [Image.fromarray(x) for x in crops(128)]
    trial = SQHN((16, 16, 3), capacity=1000)
    trial.learn(np.stack([seen(photo) for photo in photos[:25]]))
    trial.calibrate(new=np.stack([seen(photo) for photo in photos[25:50]]), error=0.05)
    memory = SQHN((16, 16, 3), capacity=1000, rho=trial.rho)

    there = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for n, photo in enumerate(photos[50:]):
            photo.save(folder / f"{n:03}.png")
            if n % 2 == 0:
                copy = photo.resize((photo.width // 2, photo.height // 2))
                copy.save(folder / f"{n:03}-again.jpg", quality=int(rng.integers(20, 90)))
                there[f"{n:03}.png"] = f"{n:03}-again.jpg"
        found = duplicates(folder, memory)
    right = sum(there.get(name) == first for name, first in found.items())
    print(f"{right} of {len(there)} duplicates found, and {len(found) - right} that are none")
    return found, there


if __name__ == "__main__":
    main()
