"""Recall by evidence in plain NumPy: which stored sample each block of values shows, if it shows any.

A block is the input of a node, or a part of a sample. It is compared with the stored block of each of N neurons,
both as it is and less its own means (one for each channel), so neither contrast nor brightness matters.

1. The likelihood of a neuron, with any gain and any noise, is that of a regression: L_j = (1 - r_j^2 + e)^(-d/2), where
   r_j is the cosine, or 0 if that is negative, and d is the number of free values.
2. Two alternatives are each as likely beforehand as all neurons together: a flat patch of any color, whose error is
   the rest after subtracting the block's means, at a price for each mean; and anything else, with L = 1.
3. p_j = L_j / (sum of all L_j + N L_flat + N L_else).
4. The evidence is log(1 + N p_j / 10) nats: the prior odds that a block shows any stored sample are 1:10.

A covered block, or noise, gives almost no evidence; and no block gives more than log(1 + N / 10) for each comparison.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from sqhn.evidence import FLOOR, LENGTH, ODDS, STRUCTURE, WHOLE, chance, pyramid
from sqhn.level import evidence_centre
from sqhn.patches import Tiling
from sqhn.reference.model import Codes, Mask, Messages, Network, Node, Vector, winner, winners

__all__ = ["down", "evidence", "preferred", "up"]


def evidence(x: Vector, m: Vector, seen: Mask) -> Vector:
    """The evidence of a block for each neuron, in nats: (neurons,).

    x (pixels, channels), m (neurons, pixels, channels): less the center of the similarity. seen: which values of x were
    observed; sums run over these.
    """
    if not seen.any() or not len(m):
        return np.zeros(len(m))
    n = seen.sum(axis=0)[seen.any(axis=0)]  # pixels of each channel
    x, m = np.where(seen, x, 0.0)[:, seen.any(axis=0)], np.where(seen, m, 0.0)[:, :, seen.any(axis=0)]
    energy, energies = float((x**2).sum()), (m**2).sum(axis=(1, 2))
    left, lefts = energy - float((x.sum(axis=0) ** 2 / n).sum()), energies - (m.sum(axis=1) ** 2 / n).sum(axis=1)
    along = (x * m).sum(axis=(1, 2))
    across = along - (x.sum(axis=0) * m.sum(axis=1) / n).sum(axis=1)
    d = int(n.sum())
    share = max(left, 0.0) / energy if energy > 0 else 1.0
    flat = -d / 2 * math.log(share + FLOOR) - float(np.log(n).sum()) / 2
    found = _posterior(_likelihood(along, energies * energy, d), flat)
    if d > len(n):
        some = (left > STRUCTURE * energy) & (lefts > STRUCTURE * energies)
        both = np.where(some, np.maximum(lefts, 0.0) * max(left, 0.0), 0.0)
        found += _posterior(_likelihood(np.where(some, across, 0.0), both, d - len(n)), -math.inf)
    return found


def _likelihood(products: Vector, energies: Vector, d: int) -> Vector:
    """log L of neurons, from their products with x and the products of both energies."""
    r = np.clip(products / (np.sqrt(energies) + LENGTH), 0.0, 1.0)
    return np.asarray(-d / 2 * np.log(1 - r**2 + FLOOR))


def _posterior(likelihood: Vector, flat: float) -> Vector:
    """The evidence from log L of all neurons and of a flat patch."""
    many = len(likelihood)
    top = max(float(likelihood.max()), flat, 0.0)
    shares = np.exp(likelihood - top)
    rivals = many * (math.exp(flat - top) + math.exp(-top))
    return np.asarray(np.log1p(many * shares / (shares.sum() + rivals) / ODDS))


# -- in a network ------------------------------------------------------------------------------------------------------


def up(network: Network, x: ArrayLike, observed: ArrayLike | None = None) -> Messages:
    """A of every node: the evidence, in nats, that its block shows the stored block of each of its neurons.

    One level: summed over the blocks of a pyramid. A tree: its nodes are the blocks, and a neuron has stored the
    likeliest block of each child. A node adds to the evidence of its own block that of its children, averaged over the
    values that it expects of them. Forgotten neurons have minus infinity.
    """
    centre = evidence_centre(network.levels[0][0].level, network.options)
    given = np.asarray(x).astype(np.float64) - centre
    seen = np.ones(network.input_shape, bool) if observed is None else np.asarray(observed)
    if len(network.levels) == 1:
        return [[_of_scales(network, given, seen)]]
    pixels = (-1, network.tilings[0].channels)  # the shape of a patch
    xs, masks = ([one.reshape(pixels) for one in network.patches(array)] for array in (given, seen))
    stored = [
        np.where(node.known > 0, node.m.astype(np.float64) - centre, 0.0)[: node.grown].reshape(-1, *xs[0].shape)
        for node in network.levels[0]
    ]
    A = [[_of_block(*each) for each in zip(network.levels[0], xs, stored, masks)]]
    blank = np.zeros(xs[0].shape)
    for number, level in enumerate(network.levels[1:], start=1):
        A.append([np.where(node.free[: max(1, node.grown)], -np.inf, 0.0) for node in level])
        parts: list[list[list[Vector]]] = [[[] for _ in range(node.grown)] for node in level]
        for n, child, expected in network.families(number):
            for j, p in enumerate(expected[: level[n].grown]):
                if p.any():
                    own = A[number - 1][child][p > 0]
                    A[number][n][j] += own.max() + np.log(p[p > 0] @ np.exp(own - own.max()))
                parts[n][j].append(stored[child][winner(p)] if p.any() else blank)
        stored = [np.array([np.concatenate(blocks) for blocks in neurons]) for neurons in parts]
        children = network.children[number]
        xs, masks = ([np.concatenate([one[c] for c in below]) for below in children] for one in (xs, masks))
        blank = np.zeros(xs[0].shape)
        weight = WHOLE if number == len(network.levels) - 1 else 1.0
        for n, node in enumerate(level):
            if node.grown:
                A[number][n] += weight * _of_block(node, xs[n], stored[n], masks[n])
    return A


def down(network: Network, A: Messages, root: int) -> Codes:
    """The value of every node: the one with the most evidence, from below and from its parent; root: the first one."""
    k = [winners(level)[0] for level in A]
    k[-1][0] = root
    for number, _, child, p in network.expectations(k):
        if p.any():
            with np.errstate(divide="ignore"):
                k[number - 1][child] = winner(np.log(p) + A[number - 1][child])
    return k


def preferred(network: Network, x: ArrayLike, observed: ArrayLike | None, A: Vector) -> Vector:
    """The scores by which the memory node's neurons are chosen: the evidence for them.

    In one level, an average that matches the whole sample best also gets the evidence that blocks give by chance.
    """
    j = winner(network.up(x, observed)[-1][0])
    if len(network.levels) > 1 or network.root.c[j] <= 1:
        return A
    looks = 2 * sum(weight * tiling.nodes for tiling, weight in _scales(network))
    return A + np.where(np.arange(len(A)) == j, chance(looks), 0.0)


def _of_block(node: Node, x: Vector, m: Vector, seen: Mask) -> Vector:
    """The evidence of a block for a node's neurons; minus infinity for forgotten ones."""
    if not node.grown:
        return np.zeros(1)
    living = ~node.free[: node.grown]
    found = np.full(node.grown, -np.inf)
    found[living] = evidence(x, m[living], seen)
    return found


def _of_scales(network: Network, x: Vector, seen: Mask) -> Vector:
    """The evidence for the neurons of one level, summed over the blocks of all scales."""
    node, total = network.root, np.zeros(network.root.grown)
    m = (node.m[: node.grown].astype(np.float64) - network.options.centre).reshape(-1, *network.input_shape)
    for tiling, weight in _scales(network):
        pixels = (-1, tiling.channels)
        for one, stored, mask in zip(*(tiling.split(array) for array in (x[None], m, seen[None]))):
            block = one.reshape(pixels), stored.reshape(len(m), *pixels), mask.reshape(pixels)
            total += weight * _of_block(node, *block)
    return total


def _scales(network: Network) -> list[tuple[Tiling, float]]:
    """The blocks of every scale, for one level, and the weight of each."""
    tilings = [Tiling(network.input_shape, sides) for sides in pyramid(network.input_shape)]
    return [(tiling, WHOLE if tiling.nodes == 1 else 1.0) for tiling in tilings]
