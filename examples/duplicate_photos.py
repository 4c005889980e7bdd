"""Find duplicate photographs in a folder. The duplicates are half as large and saved as JPEG of poor quality.

Every photograph is reduced to 16 x 16 pixels. `calibrate` finds the threshold from photographs without duplicates, so
that at most five in a hundred of them are called duplicates.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sqhn import SQHN
from sqhn.data.builtin import photos as crops


def reduced(photo: Image.Image) -> NDArray[np.float32]:
    """A photograph as 16 x 16 pixels of mean 0.5 and equal contrast, so that nearly uniform photographs differ too."""
    x = np.asarray(photo.convert("RGB").resize((16, 16), Image.Resampling.BOX), np.float32)
    return np.asarray(0.5 + (x - x.mean()) / (4 * x.std() + 1), np.float32)


def duplicates(folder: Path, memory: SQHN) -> dict[str, str]:
    """Files that show the same as an earlier file, in the order of their names."""
    found = {}
    for path in sorted(folder.iterdir()):
        x = reduced(Image.open(path))
        if len(memory) and memory.recognize(x).old:
            found[path.name] = memory.recall(x).value
        else:
            memory.learn(x, value=path.name)
    return found


def main() -> tuple[dict[str, str], dict[str, str]]:
    """Print and return the duplicates that were found, and the true ones."""
    rng = np.random.default_rng(0)
    photos = [Image.fromarray(x) for x in crops(128)]
    trial = SQHN((16, 16, 3), capacity=1000)
    trial.learn(np.stack([reduced(photo) for photo in photos[:25]]))
    trial.calibrate(new=np.stack([reduced(photo) for photo in photos[25:50]]), error=0.05)
    memory = SQHN((16, 16, 3), capacity=1000, rho=trial.rho)

    duplicate_of = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n, photo in enumerate(photos[50:]):
            photo.save(folder / f"{n:03}.png")
            if n % 2 == 0:
                copy = photo.resize((photo.width // 2, photo.height // 2))
                copy.save(folder / f"{n:03}-again.jpg", quality=int(rng.integers(20, 90)))
                duplicate_of[f"{n:03}.png"] = f"{n:03}-again.jpg"
        found = duplicates(folder, memory)
    right = sum(duplicate_of.get(name) == first for name, first in found.items())
    print(f"{right} of {len(duplicate_of)} duplicates found, and {len(found) - right} false alarms")
    return found, duplicate_of


if __name__ == "__main__":
    main()
