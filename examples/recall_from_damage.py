"""Compare rules of recall on damaged photographs: noisy, covered, blurred, darker, brighter or shifted.

The memory does not know how an image was damaged. With `inference="evidence"`, every block of the image votes for the
stored images that it may show. The paper's rule compares whole images in one level, and patches in three levels.

python examples/recall_from_damage.py [FIGURE]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.data import photos
from sqhn.data.corruptions import CORRUPTIONS

Images = NDArray[np.float32]
STORED, ASKED = 300, 60


def images() -> Images:
    """Crops of photographs that are not nearly uniform."""
    x = photos(32).astype(np.float32) / np.float32(255)
    some: Images = np.random.default_rng(0).permutation(x[x.std(axis=(1, 2, 3)) > 0.15])[:STORED]
    return some


def damages(x: Images) -> Iterator[tuple[str, Images]]:
    """Yield kinds of damage, and the damaged images."""
    rng = np.random.default_rng(1)
    for kind, levels in {
        "noise": (0.2, 0.8),
        "black": (0.5, 0.75),
        "color": (0.5, 0.75),
        "noise_fill": (0.5, 0.75),
    }.items():
        for level in levels:
            yield f"{kind.replace('_fill', ' rectangle')} {level}", CORRUPTIONS[kind](x, level, rng)[0]
    salted, where = x.copy(), rng.random(x.shape[:3]) < 0.5
    salted[where] = rng.integers(0, 2, (int(where.sum()), 1))
    yield "salt and pepper 0.5", salted
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    around = [wide[:, i : i + 32, j : j + 32] for i in range(3) for j in range(3)]
    yield "blurred", np.asarray(np.mean(around, axis=0), np.float32)
    yield "half as bright", x / np.float32(2)
    yield "brighter", np.clip(np.float32(1.5) * x, 0, 1)
    yield "shifted by one", np.roll(x, 1, axis=2)


def draw(path: str, x: Images, rules: dict[str, tuple[SQHN, str]]) -> None:
    """Draw one image for each damage: given, recalled by each rule, and stored; mistakes have a red frame."""
    from matplotlib.figure import Figure

    given = {name: one[column] for column, (name, one) in enumerate(damages(x))}
    figure = Figure(figsize=(len(given), 1.15 * (len(rules) + 2)), layout="constrained")
    axes = figure.subplots(len(rules) + 2, len(given))
    for column, (name, one) in enumerate(given.items()):
        column_images = [one, *(memory.recall(one, inference=rule).x for memory, rule in rules.values()), x[column]]
        for row, (label, image) in enumerate(zip(["given", *rules, "stored"], column_images)):
            axis = axes[row, column]
            axis.imshow(np.clip(image, 0, 1), interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            if row and row <= len(rules) and np.mean((image - x[column]) ** 2) > 0.001:
                axis.spines[:].set(color="red", linewidth=3)
            if column == 0:
                axis.set_ylabel(label.replace(", ", "\n"), rotation=0, ha="right", va="center", fontsize=8)
        axes[0, column].set_title(name.replace(" ", "\n", 1), fontsize=7)
    figure.savefig(path, dpi=90)


def main(figure: str | None = None) -> dict[str, dict[str, float]]:
    """Print and return the share of images found, for each damage and each rule."""
    x = images()
    one, three = (
        SQHN(x.shape[1:], capacity=STORED),
        SQHN(x.shape[1:], [Level(2, 300), Level(4, 300), Level(capacity=300)]),
    )
    for memory in (one, three):
        memory.learn(x)
    rules = {
        "one level": (one, "paper"),
        "three levels": (three, "paper"),
        "three levels, exact": (three, "exact"),
        "one level, evidence": (one, "evidence"),
        "three levels, evidence": (three, "evidence"),
    }
    found: dict[str, dict[str, float]] = {}
    for name, given in damages(x[:ASKED]):
        found[name] = {
            label: float(np.mean(memory.recall(given, inference=rule).index == np.arange(ASKED)))
            for label, (memory, rule) in rules.items()
        }
    found["mean"] = {label: float(np.mean([row[label] for row in found.values()])) for label in rules}
    print(f"| | {' | '.join(rules)} |\n|{' --- |' * (len(rules) + 1)}")
    for name, row in found.items():
        print(f"| {name} | {' | '.join(f'{share:.2f}' for share in row.values())} |")
    if figure:
        draw(figure, x, rules)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
