"""The first look at nodes with few values: their prototypes fit the cache, and each sample is compared with all."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks import bounds
from sqhn.banks.bounds import SHORT
from sqhn.banks.cpu.compiled import compiled, inlined, summing
from sqhn.banks.cpu.kernels.decision import ALWAYS, has_holes, is_seen, product, rounded

masked_product, difference = compiled(bounds.masked_product), compiled(bounds.difference)


class Small(NamedTuple):
    """ut: the prototypes of a node less the centre, with neurons side by side; squares: scratch, one per neuron.

    An upper bound is a product times the inverse length of the neuron, plus its offset, plus the error of the product,
    which is relative to `length`: 1 for cosines, or by differences that of the neuron (`bounds.half_square`).
    """

    ut: Any
    squares: Any
    length: Any
    offset: Any


def scratch(size: int, room: int) -> tuple[Any, ...]:
    """For samples of this size and `room` neurons."""
    return np.zeros((size + -size % 4, room), np.float32), *np.empty((3, room), np.float32)


@compiled
def begin(look, own, G, measure):
    """Put the prototypes of a node side by side, so that products run over neurons; rows beyond the values are 0."""
    for j in range(G):
        renew(look, own, j, measure)


@compiled
def renew(look, own, j, measure):
    """Take over neuron j as it is."""
    for i in range(own.m.shape[1]):
        look.ut[i, j] = own.m[j, i] - np.float32(measure.centre)
    look.length[j], look.offset[j] = 1.0, own.candidate[j]
    if measure.euclidean:
        look.length[j] = np.sqrt(own.square[j])
        look.offset[j] += (product(own.m.shape[1]) - 0.5) * own.square[j]


@inlined
def bound(look, sample, own, G, measure, work):
    """Upper bounds for the neurons of a node, as tight as float32 allows."""
    size, length, y, upper = own.m.shape[1], np.sqrt(sample.square), work.y, work.upper
    if not has_holes(sample):
        products(look.ut, y, own.inverse, look.length, look.offset, product(size) * length, G, upper)
    elif measure.euclidean:
        differences(look.ut, y, sample.seen, size, G, upper)
        exact, error = 1 - difference(size), rounded(sample.square, 0.0)
        for j in range(G):
            upper[j] = (sample.square - upper[j] * exact) / 2 + error + own.candidate[j]
    else:
        error = masked_product(size) * length
        cosines_observed(look, y, sample.seen, own.candidate, error, size, G, upper)


@summing
def products(ut, y, inverse, length, offset, error, G, upper):
    """upper[j] = <y, u_j> inverse[j] + error length[j] + offset[j]; the length of y is a multiple of 4."""
    last, error = y.shape[0] - 4, np.float32(error)
    for j in range(G):
        upper[j] = 0
    i = 0
    while i + 8 <= last:
        a, b, c, e = y[i], y[i + 1], y[i + 2], y[i + 3]
        f, g, h, o = y[i + 4], y[i + 5], y[i + 6], y[i + 7]
        ua, ub, uc, ue = ut[i], ut[i + 1], ut[i + 2], ut[i + 3]
        uf, ug, uh, uo = ut[i + 4], ut[i + 5], ut[i + 6], ut[i + 7]
        for j in range(G):
            upper[j] += (a * ua[j] + b * ub[j] + c * uc[j] + e * ue[j]) + (
                f * uf[j] + g * ug[j] + h * uh[j] + o * uo[j]
            )
        i += 8
    while i < last:
        a, b, c, e = y[i], y[i + 1], y[i + 2], y[i + 3]
        ua, ub, uc, ue = ut[i], ut[i + 1], ut[i + 2], ut[i + 3]
        for j in range(G):
            upper[j] += a * ua[j] + b * ub[j] + c * uc[j] + e * ue[j]
        i += 4
    a, b, c, e = y[i], y[i + 1], y[i + 2], y[i + 3]
    ua, ub, uc, ue = ut[i], ut[i + 1], ut[i + 2], ut[i + 3]
    for j in range(G):
        total = upper[j] + a * ua[j] + b * ub[j] + c * uc[j] + e * ue[j]
        upper[j] = total * inverse[j] + (error * length[j] + offset[j])


@summing
def cosines_observed(look, y, seen, candidate, error, size, G, upper):
    """Upper bounds by cosines, with both lengths over the observed values."""
    ut, squares = look.ut, look.squares
    for j in range(G):
        upper[j] = 0
        squares[j] = 0
    for i in range(size):
        if seen[i]:
            a, u = y[i], ut[i]
            for j in range(G):
                upper[j] += a * u[j]
                squares[j] += u[j] * u[j]
    for j in range(G):
        trusted = upper[j] / np.sqrt(squares[j]) + error if squares[j] >= np.float32(SHORT * SHORT) else ALWAYS
        upper[j] = trusted if candidate[j] == 0 else candidate[j]


@compiled
def differences(ut, y, seen, size, G, upper):
    """upper[j] = |y - u_j|^2 over the observed values."""
    for j in range(G):
        upper[j] = 0
    for i in range(size):
        if is_seen(seen, i):
            a, u = y[i], ut[i]
            for j in range(G):
                d = a - u[j]
                upper[j] += d * d
