"""Find near-duplicates among photographs: half as large and saved as JPEG of poor quality.

`sqhn duplicates FOLDER` does this for files. Here the images are arrays of any origin, reduced to 32 x 32 pixels.
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sqhn.data.builtin import photos
from sqhn.duplicates import find_duplicates


def reduced(photo: Image.Image) -> NDArray[np.uint8]:
    """The pixels that are compared."""
    return np.asarray(photo.convert("RGB").resize((32, 32)))


def poor_copy(photo: Image.Image, quality: int) -> Image.Image:
    """A copy of half the size, after JPEG compression."""
    file = io.BytesIO()
    photo.resize((photo.width // 2, photo.height // 2)).save(file, "JPEG", quality=quality)
    return Image.open(file)


def main() -> tuple[int, int]:
    """Print and return how many copies are found, and how many images are wrongly joined."""
    rng = np.random.default_rng(0)
    originals = [Image.fromarray(x) for x in photos(128)]
    copies = [poor_copy(photo, int(rng.integers(20, 90))) for photo in originals[:22]]
    found = find_duplicates(np.stack([reduced(photo) for photo in [*originals, *copies]]), error=0.01)
    groups = found.groups()
    right = sum(any({i, len(originals) + i} <= set(group) for group in groups) for i in range(len(copies)))
    wrong = sum(len({i % len(originals) for i in group}) - 1 for group in groups)
    print(f"{right} of {len(copies)} copies found; {wrong} images wrongly joined")
    return right, wrong


if __name__ == "__main__":
    main()
