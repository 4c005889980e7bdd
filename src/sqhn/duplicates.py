"""Near-duplicates among images: pairs that show the same, and a threshold with a bounded rate of false alarms.

Images are compared by evidence (docs/evidence.md). An image that is stored itself would explain every block of its
copies better than they explain each other, so no image is compared with a memory that holds it: in round b, the images
whose number has bit b are compared with a memory of those whose number has not. Two numbers differ in at least one bit,
so every pair is compared, always among half of the images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import is_real
from sqhn.memory import SQHN

DEFAULT_ERROR = 0.01
BEST = 8  # matches of each image that are considered in each round
DECOYS = 1000  # images that are also compared upside down
COPIED = 1.5  # a pair with so many times as much evidence upright as upside down is a copy


class Duplicates(NamedTuple):
    """Pairs of near-duplicates, best first, as (first, second, evidence in nats).

    threshold: the lowest evidence of a pair. error: the probability that an image without a duplicate finds one.
    """

    pairs: list[tuple[int, int, float]]
    threshold: float
    error: float

    def groups(self) -> list[list[int]]:
        """Images that are connected by pairs, the largest groups first."""
        group: dict[int, list[int]] = {}
        for first, second, _ in self.pairs:
            one, other = group.setdefault(first, [first]), group.setdefault(second, [second])
            if one is not other:
                one += other
                group.update(dict.fromkeys(other, one))
        distinct = {id(members): sorted(members) for members in group.values()}
        return sorted(distinct.values(), key=lambda members: (-len(members), members))


def find_duplicates(images: NDArray[np.uint8], error: float | None = None) -> Duplicates:
    """Find the pairs of images (n, height, width) or (n, height, width, 3) that show the same.

    error: the probability that an image without a duplicate finds one; by default 0.01, or the lowest that so few
        images allow. The threshold is the evidence that images find upside down with that probability, as in conformal
        prediction: hardly anybody keeps copies upside down, but they have the colors, edges and textures of the
        others. Copies of symmetric images are found upside down as well, but far better upright, and are not counted.
        Few images are also turned by half a turn.

    Cost: about n² / 4 comparisons of two images for each of log2(n) rounds.

    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 256, (100, 16, 16), np.uint8)
    >>> images[7] = images[60] // 2
    >>> find_duplicates(images).groups()
    [[7, 60]]
    """
    images = np.asarray(images)
    n = len(images)
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or n < 2:
        raise ValueError(
            "images must be at least two, as uint8 of shape (n, height, width) or (n, height, width, channels); got "
            f"{images.dtype} of shape {images.shape}"
        )
    if error is not None and (not is_real(error) or not 0 < error < 1):
        raise ValueError(f"error must be a probability, between 0 and 1; got {error!r}")
    turned = [images[:, ::-1], images[:, ::-1, ::-1]]
    lowest = 1 / (len(turned) * n + 1)
    if error is not None and error < lowest:
        raise ValueError(f"an error of {error:g} needs more than {n:,} images; these allow {lowest:.2g}")
    error = error or max(DEFAULT_ERROR, lowest)
    if error * (n + 1) >= 1:
        turned = turned[:1]
    number = np.random.default_rng(0).permutation(n)
    sources = np.flatnonzero(number < max(DECOYS, math.ceil(1 / error)))
    best: dict[tuple[int, int], float] = {}
    upside_down: list[tuple[int, int, int, float]] = []
    for bit in range((n - 1).bit_length()):
        asked = number >> bit & 1 == 1
        stored = np.flatnonzero(~asked)
        memory = SQHN(images.shape[1:], capacity=len(stored))
        memory.memorize(images[stored])
        for i, j, score in _matches(memory, images, np.flatnonzero(asked), stored):
            pair = (min(i, j), max(i, j))
            best[pair] = max(score, best.get(pair, score))
        for turn, x in enumerate(turned):
            upside_down += [(turn, *match) for match in _matches(memory, x, sources[asked[sources]], stored)]
    decoys = np.full((len(turned), n), -math.inf)
    for turn, i, j, score in upside_down:
        if best.get((min(i, j), max(i, j)), -math.inf) < COPIED * score:
            decoys[turn, i] = max(score, decoys[turn, i])
    threshold = _threshold(decoys[:, sources].ravel(), error)
    pairs = [(i, j, score) for (i, j), score in best.items() if score >= threshold]
    return Duplicates(sorted(pairs, key=lambda pair: (-pair[2], pair[:2])), threshold, error)


def _matches(
    memory: SQHN, images: NDArray[np.uint8], asked: NDArray[np.intp], stored: NDArray[np.intp]
) -> Iterator[tuple[int, int, float]]:
    """The best matches of some images among those in a memory, as (image, stored image, evidence)."""
    if len(asked):
        found = memory.recall(images[asked], k=min(BEST, len(stored)), inference="evidence")
        for i, matches, scores in zip(asked.tolist(), stored[found.index].tolist(), found.score.tolist()):
            yield from ((i, j, score) for j, score in zip(matches, scores))


def _threshold(scores: NDArray[np.float64], error: float) -> float:
    """Just above the k-th largest of n scores; another one like them reaches it with a probability of k / (n + 1)."""
    k = math.floor(error * (len(scores) + 1) * (1 + 1e-12))
    return math.nextafter(float(np.sort(scores)[-k]), math.inf)
