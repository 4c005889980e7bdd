"""Measure the effect of the settings: prints the tables of docs/settings.md.

Images are crops of photographs; embeddings and signals are synthetic. A share of 1 means all samples. Everything is
seeded, so the numbers are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.data import digits, photos
from sqhn.data.corruptions import occlusion, right_mask, white_noise
from sqhn.paper.metrics import recall_accuracy, recall_error

Samples = NDArray[np.float32]
Rows = list[list[str]]

NEAR = 0.01  # an image with a mean squared error up to this counts as recalled


def images() -> Samples:
    """Crops of photographs that are not nearly uniform."""
    x: Samples = photos(32).astype(np.float32) / np.float32(255)
    varied: Samples = x[x.std(axis=(1, 2, 3)) > 0.1]
    return varied


def share(memory: SQHN, x: Samples, given: Samples, observed: Any = None, **options: Any) -> str:
    """The share of images x that are recalled from the queries `given`."""
    recalled = memory.recall(given, observed, **options).x
    return f"{recall_accuracy(recall_error(recalled, x), NEAR):.2f}"


def noisy(x: Samples, level: float, seed: int = 0) -> Samples:
    """Images with Gaussian noise, clipped to [0, 1]."""
    return white_noise(x, level, np.random.default_rng(seed))[0]


# -- capacity ----------------------------------------------------------------------------------------------------------


def capacity() -> Rows:
    """Learn 800 images once each; recall every image from itself."""
    x = images()[:800]
    rows = [["capacity", "capacity / samples", "one level", "three levels"]]
    for neurons in (100, 200, 400, 800):
        one, tree = SQHN(x.shape[1:], capacity=neurons), SQHN(x.shape[1:], three(neurons))
        for memory in (one, tree):
            memory.learn(x)
        rows.append([f"{neurons}", f"{neurons / len(x):.3g}", *(share(memory, x, x) for memory in (one, tree))])
    return rows


def three(neurons: int) -> list[Level]:
    """The levels of the paper's tree for 32 x 32 pixels."""
    return [Level(2, neurons), Level(4, neurons), Level(capacity=neurons)]


# -- full memories -----------------------------------------------------------------------------------------------------


def when_full() -> Rows:
    """Learn 1,000 images with 250 neurons."""
    x = images()[:1000]
    regulars, others = x[:50], x[50:]  # regulars return five times
    visits = [np.concatenate([regulars, part]) for part in np.array_split(others[:450], 5)]
    rows = [["`when_full`", "first 100", "last 100", "all 1,000", "50 that returned five times, long ago"]]
    for policy in ("average", "overwrite", "oldest", "freeze"):
        once = SQHN(x.shape[1:], [Level(capacity=250, when_full=policy)])
        once.learn(x)
        often = SQHN(x.shape[1:], [Level(capacity=250, when_full=policy, gamma=0.999)])
        often.learn(np.concatenate([*visits, others[450:]]))
        rows.append(
            [
                f'"{policy}"',
                *(share(once, part, part) for part in (x[:100], x[-100:], x)),
                share(often, regulars, regulars),
            ]
        )
    return rows


# -- one level or a tree -----------------------------------------------------------------------------------------------


def depth() -> Rows:
    """Learn 500 images once each; recall them from damaged images."""
    x = images()[:500]
    rng = np.random.default_rng(0)
    queries: dict[str, tuple[Samples, Any]] = {
        "noise .2": (noisy(x, 0.2), None),
        "noise .4": (noisy(x, 0.4), None),
        "half missing": right_mask(x, 0.5, rng),
        "half black": (occlusion(x, 0.5, rng)[0], None),
    }
    rows = [["", *queries]]
    for name, levels, rule in (
        ("one level", [Level(capacity=500)], "paper"),
        ('one level, `inference="evidence"`', [Level(capacity=500)], "evidence"),
        ("two levels, 8 x 8 pixels", [Level(8, 500), Level(capacity=500)], "paper"),
        ("two levels, 4 x 4 pixels", [Level(4, 500), Level(capacity=500)], "paper"),
        ("three levels, 2 x 2 pixels", three(500), "paper"),
        ('three levels, `inference="exact"`', three(500), "exact"),
        ('three levels, `inference="evidence"`', three(500), "evidence"),
    ):
        memory = SQHN(x.shape[1:], levels)
        memory.learn(x)
        rows.append([name, *(share(memory, x, *given, inference=rule) for given in queries.values())])
    return rows


# -- similarity --------------------------------------------------------------------------------------------------------


def similarity() -> Rows:
    """Find 500 samples from noisy ones.

    "new called old" is the share of new samples called old when 1% of the noisy old ones may be called new.
    """
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(1000, 384))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    wave = np.outer(np.linspace(0.1, 1, 50), np.sin(np.linspace(0, 20, 100)))
    kinds = ("images", "new called old", "embeddings", "new called old", "amplitudes around 0", "around .5")
    rows = [["`similarity`", *kinds]]
    for name in ("shifted_cosine", "cosine", "euclidean"):
        row = [f'"{name}"']
        for x, noise in ((images()[:1000], 0.2), (embeddings, 0.1), (wave, 0.02), (wave + 0.5, 0.02)):
            stored, new = x[:500], x[500:]
            memory = SQHN(x.shape[1:], capacity=500, similarity=name)
            memory.memorize(stored)
            again = stored + rng.normal(0, noise, stored.shape)
            row.append(f"{np.mean(memory.recall(again).index == np.arange(len(stored))):.2f}")
            if len(new):
                memory.calibrate(old=again, error=0.01)
                row.append(f"{memory.recognize(new + rng.normal(0, noise, new.shape)).old.mean():.2f}")
        rows.append(row)
    return rows


# -- growth threshold --------------------------------------------------------------------------------------------------


def sameness() -> Rows:
    """Learn 1,000 noisy views of 100 images, ten of each, in rounds."""
    originals = images()[:100]
    views = np.concatenate([noisy(originals, 0.1, seed) for seed in range(10)])
    rows = [["`gamma`", "neurons for 100 images", "error of recalled images"]]
    for gamma in (1.0, 0.99, 0.95, 0.9, 0.8):
        memory = SQHN(originals.shape[1:], [Level(capacity=1000, gamma=gamma)])
        memory.learn(views)
        error = recall_error(memory.recall(noisy(originals, 0.1, 99)).x, originals)
        rows.append([f"{gamma:g}", f"{len(memory)}", f"{error.mean():.4f}"])
    return rows


def together() -> Rows:
    """Learn the same views with `hold=True`: the views of one image together."""
    originals = images()[:100]
    rows = [["views of an image", "error of recalled images"]]
    for count in (1, 3, 10):
        memory = SQHN(originals.shape[1:], capacity=100)
        for views in np.stack([noisy(originals, 0.1, seed) for seed in range(count)], axis=1):
            memory.learn(views, hold=True)
        error = recall_error(memory.recall(noisy(originals, 0.1, 99)).x, originals)
        rows.append([f"{count}", f"{error.mean():.4f}"])
    return rows


# -- old or new --------------------------------------------------------------------------------------------------------


def tolerance() -> Rows:
    """Learn 1,000 digits; test with noisy copies and with other digits."""
    x = digits()[0].astype(np.float32) / np.float32(255)
    stored, trial, fresh = x[:1000], x[1000:2000], x[2000:4000]
    again = noisy(stored, 0.1, 1)
    rows = [["", "new digits called old", "stored digits with noise .1 called new"]]
    memory = SQHN(x.shape[1:], capacity=1000)
    memory.learn(stored)
    settings: dict[str, Callable[[], object]] = {
        "default": lambda: None,
        "`calibrate(new=..., error=.01)`": lambda: memory.calibrate(new=trial, error=0.01),
        "`calibrate(old=..., error=.01)`": lambda: memory.calibrate(old=noisy(stored[:500], 0.1, 2), error=0.01),
    }
    for name, setting in settings.items():
        setting()
        wrong = memory.recognize(fresh).old.mean(), 1 - memory.recognize(again[500:]).old.mean()
        rows.append([name, *(f"{rate:.3f}" for rate in wrong)])
    return rows


TABLES = (capacity, when_full, depth, similarity, sameness, together, tolerance)


def table(rows: Rows) -> str:
    """Rows as a Markdown table; the first row is the header."""
    first, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([first, "|" + " --- |" * len(rows[0]), *others])


def main() -> list[str]:
    """Print the tables and return them."""
    tables = []
    for measure in TABLES:
        tables.append(table(measure()))
        print(f"{measure.__name__}\n\n{tables[-1]}\n")
    return tables


if __name__ == "__main__":
    main()
