"""An ablation of `inference="evidence"`: the share of damaged images found with each part of the rule left out.

python examples/why_evidence.py [DATA] [STORED] [QUERIES]

The rule is written here in plain NumPy; `sqhn.reference.evidence` explains it. DATA is photos32, which is built in, or
another set of images (`sqhn data list`).
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from sqhn.data import load
from sqhn.data.corruptions import CORRUPTIONS, DAMAGES
from sqhn.evidence import FLOOR, LENGTH, ODDS, STRUCTURE, WHOLE, leading, pyramid

Floats = NDArray[np.float64]
VARIANTS = ("as it is", "no flat rival", "no other rival", "one look", "whole counts once", "finest blocks alone",
            "whole alone")  # fmt: skip


def blocks(x: Floats, sides: tuple[int, ...]) -> Floats:
    """(samples, *shape) as (blocks, samples, pixels, channels)."""
    height, width = sides
    n, rows, columns = x.shape[:3]
    cut = x.reshape(n, rows // height, height, columns // width, width, -1).transpose(1, 3, 0, 2, 4, 5)
    return cut.reshape(-1, n, height * width, cut.shape[-1])


class Scale:
    """The blocks of one size in all stored images, and their evidence for a query."""

    def __init__(self, stored: Floats, sides: tuple[int, ...]) -> None:
        self.sides, self.m = sides, blocks(stored, sides)
        self.pixels, self.channels = self.m.shape[2:]
        self.sums, self.energy = self.m.sum(axis=2), (self.m**2).sum(axis=(2, 3))
        self.left = self.energy - (self.sums**2).sum(axis=2) / self.pixels

    def evidence(self, x: Floats) -> dict[str, Floats]:
        """The evidence for each stored image: of both comparisons, and of the first without each of its rivals."""
        own = blocks(x[None], self.sides)[:, 0]
        sums, energy = own.sum(axis=1), (own**2).sum(axis=(1, 2))
        left = np.maximum(energy - (sums**2).sum(axis=1) / self.pixels, 0)
        products = np.einsum("bpc,bjpc->bj", own, self.m)
        centered = products - np.einsum("bc,bjc->bj", sums, self.sums) / self.pixels
        d = self.pixels * self.channels
        share = np.divide(left, energy, out=np.ones_like(left), where=energy > 0)
        flat = -d / 2 * np.log(share + FLOOR) - self.channels / 2 * np.log(self.pixels)
        first, nothing = self.log_likelihood(products, self.energy * energy[:, None], d), np.full(len(own), -np.inf)
        some = (left > STRUCTURE * energy)[:, None] & (self.left > STRUCTURE * self.energy)
        lengths = np.where(some, np.maximum(self.left, 0) * left[:, None], 0)
        second = self.log_likelihood(np.where(some, centered, 0), lengths, d - self.channels)
        return {
            "first": self.total(first, flat),
            "not flat": self.total(first, nothing),
            "nothing else": self.total(first, flat, other=0),
            "second": self.total(second, nothing) if d > self.channels else 0 * first.sum(axis=0),
        }

    @staticmethod
    def log_likelihood(products: Floats, energies: Floats, d: int) -> Floats:
        r = np.clip(products / (np.sqrt(energies) + LENGTH), 0, 1)
        return np.asarray(-d / 2 * np.log(1 - r**2 + FLOOR))

    @staticmethod
    def total(likelihood: Floats, flat: Floats, other: float = 1) -> Floats:
        """The evidence of all blocks together, from log-likelihoods of stored images and of a flat patch."""
        many = likelihood.shape[1]
        top = np.maximum(likelihood.max(axis=1), np.maximum(flat, 0))[:, None]
        shares = np.exp(likelihood - top)
        rivals = many * (np.exp(flat[:, None] - top) + other * np.exp(-top))
        return np.asarray(np.log1p(many * shares / (shares.sum(axis=1, keepdims=True) + rivals) / ODDS).sum(axis=0))


def variants(scales: list[Scale], x: Floats) -> dict[str, int]:
    """The stored image that each variant recalls."""
    found = [scale.evidence(x) for scale in scales]
    weight = [1.0] * (len(scales) - 1) + [WHOLE]

    def best(first: str, second: bool = True, weights: list[float] = weight) -> int:
        parts = [w * (one[first] + second * one["second"]) for w, one in zip(weights, found)]
        return int(np.sum(parts, axis=0).argmax())

    equal, finest, whole = [1.0] * len(scales), [1.0] + [0.0] * (len(scales) - 1), [0.0] * (len(scales) - 1) + [1.0]
    each = (best("first"), best("not flat"), best("nothing else"), best("first", second=False),
            best("first", weights=equal), best("first", weights=finest), best("first", weights=whole))  # fmt: skip
    return dict(zip(VARIANTS, each, strict=True))


def main(data: str = "photos32", stored: int = 300, queries: int = 20) -> dict[str, dict[str, float]]:
    """Print and return the share of images that each variant finds, by kind of damage and over all."""
    every = load(data).splits["train"].x
    chosen = np.random.default_rng(0).permutation(len(every))[:stored]
    x = every[chosen].astype(np.float32) / np.float32(255)
    if leading(x.shape[1:]) != 2:
        raise SystemExit(f"{data} has no images")
    scales = [Scale(x.astype(np.float64) - 0.5, sides) for sides in pyramid(x.shape[1:])]
    right: dict[str, list[list[bool]]] = {}
    for kind, level in DAMAGES:
        given, _ = CORRUPTIONS[kind](x[:queries], level, np.random.default_rng(1))
        for i, one in enumerate(given):
            recalled = variants(scales, one.astype(np.float64) - 0.5)
            right.setdefault(kind.replace("_", " "), []).append([index == i for index in recalled.values()])
    right["mean"] = [row for rows in right.values() for row in rows]
    table = {kind: dict(zip(VARIANTS, np.mean(rows, axis=0).tolist())) for kind, rows in right.items()}
    print(f"{data}: {stored} stored, {queries} queries\n\n| | {' | '.join(VARIANTS)} |")
    print("| --- |" + " --- |" * len(VARIANTS))
    for kind, row in table.items():
        print(f"| {kind} | {' | '.join(f'{share:.2f}' for share in row.values())} |")
    return table


if __name__ == "__main__":
    data, *sizes = sys.argv[1:] or ["photos32"]
    main(data, *map(int, sizes))
