"""The first look at nodes with many values: matrix products for a whole chunk, corrected as neurons change.

A step moves one neuron, so it changes one column of the products, by a combination of what is already known. The
products may be those of a projection; then a bound on the rest is added (`bounds.outside`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks import bounds
from sqhn.banks.bounds import SHORT
from sqhn.banks.cpu.compiled import compiled, fused, inlined, kernel
from sqhn.banks.cpu.kernels.decision import ALWAYS, NONE, half_square, has_holes, inner_single, squared, tighten

STALE = 64
"""Moves after which the features of a neuron are computed anew."""

NO_PRODUCTS = np.empty((0, 0, 0), np.float32)

outside = compiled(bounds.outside)
drift = compiled(bounds.drift)


class Products(NamedTuple):
    """P (nodes, batch, room), float32 products of samples z (nodes, batch, size) and neurons.

    All of it is in the projection, or z is the `whole` samples less the centre. error: a bound of the relative error of
    products. gram (nodes, batch, batch), to learn: the products among samples.
    """

    P: Any
    z: Any
    error: Any
    whole: Any
    gram: Any = NO_PRODUCTS

    def rows(self, which: Any) -> Products:
        """The same of some samples, for a question."""
        return Products(self.P[:, which], self.z[:, which], self.error, self.whole)


class Features(NamedTuple):
    """The neurons of a level in the projection: features (nodes, room, size), and their squares.

    moves: how often averaging has moved a neuron since its features, or whole products, were computed. scale: the mean
    length of the vectors that these were added up from, which their errors are relative to.
    """

    features: Any
    square: Any
    moves: Any
    scale: Any


class Columns(NamedTuple):
    """How a column of the products, with one entry per neuron, gives upper bounds.

    A bound is p inverse + offset, and `ratio` times the length of the sample outside the projection, and `loose` times
    its whole length, for rounding. changed: the neuron was written in this chunk. lost: its products did not follow.
    """

    ratio: Any
    loose: Any
    offset: Any
    changed: Any
    lost: Any


class Observed(NamedTuple):
    """For samples with missing values: products over the observed values; without any, all is empty.

    P (nodes, rows, neurons), products of samples and neurons, and the squares of the neurons over the same values, both
    as the chunk finds them. row (nodes, batch): the row of a sample, or NONE. error: a bound of P's relative error.
    """

    P: Any
    squares: Any
    row: Any
    error: Any


class Large(NamedTuple):
    """evaluated (nodes, batch): how many neurons the products could not rule out."""

    products: Any
    projected: Any
    observed: Any
    evaluated: Any
    columns: Any


NO_OBSERVED = NO_PRODUCTS, NO_PRODUCTS, np.empty((0, 0), np.int64), 0.0
NOTHING = (
    tuple(Products(NO_PRODUCTS, NO_PRODUCTS, 0.0, True)),
    (NO_PRODUCTS, np.empty((0, 0)), np.empty((0, 0), np.int64), np.empty((0, 0))),
    NO_OBSERVED,
    np.empty((0, 0), np.int64),
)
"""In the place of products, for nodes with few values."""


def scratch(room: int) -> tuple[Any, ...]:
    """For `room` neurons."""
    return np.empty((3, room), np.float32), np.empty((2, room), bool)


@inlined
def first_look(products, columns):
    """From plain tuples: the first fields of `Large`, and scratch."""
    products, projected, observed, evaluated = products
    floats, flags = columns
    columns = Columns(floats[0], floats[1], floats[2], flags[0], flags[1])
    return Large(Products(*products), Features(*projected), Observed(*observed), evaluated, columns)


@inlined
def begin(look, n, own, G, measure):
    """Take the products of a node for those of its neurons as they are."""
    for j in range(own.square.shape[0]):
        look.columns.changed[j] = look.columns.lost[j] = False
    for j in range(G):
        loosen(look, n, j, own, measure)


@compiled
def loosen(look, n, j, own, measure):
    """How far the products of neuron j may be wrong (`Columns`)."""
    ratio, loose, offset, _, lost = look.columns
    _, inside, moves, scale = look.projected
    error, square, length = look.products.error, own.square[j], scale[n, j]
    inverse = 1 / length if length > 0 else 0.0
    lost_in_moves = drift(moves[n, j], length, np.sqrt(np.float64(own.m.shape[1])), inverse, measure.centre)
    far = outside(square, inside[n, j], length, error + 2 * lost_in_moves)
    ratio[j] = 0.0 if look.products.whole else far * own.inverse[j]
    loose[j] = (lost_in_moves + error) * length * own.inverse[j]
    offset[j] = ALWAYS if lost[j] else own.candidate[j]
    if measure.euclidean:  # `half_square`
        offset[j] += error * length * length - square / 2


@inlined
def bound(look, n, t, sample, own, G, measure, upper):
    """Upper bounds from products."""
    if not bound_observed(look.observed, look.columns.changed, n, t, sample, own, G, measure, upper):
        P, z, error, whole, _ = look.products
        length = np.sqrt(sample.square)
        beyond = 0.0 if whole else outside(sample.square, squared(z[n, t], 0.0), length, error)
        add_up(P[n, t], own.inverse, look.columns, np.float32(beyond), np.float32(length), G, upper)


@fused
def add_up(p, inverse, columns, beyond, length, G, upper):
    """Upper bounds for a sample that has this length, and beyond the projection that one."""
    ratio, loose, offset = columns.ratio, columns.loose, columns.offset
    for j in range(G):
        upper[j] = p[j] * inverse[j] + (beyond * ratio[j] + length * loose[j]) + offset[j]


@inlined
def bound_observed(observed, changed, n, t, sample, own, G, measure, upper):
    """Upper bounds from products over the observed values; returns whether the sample has such products."""
    row, error, length = NONE, observed.error, np.sqrt(sample.square)
    if observed.row.shape[0]:
        row = observed.row[n, t]
    if row == NONE:
        return False
    P, squares = observed.P[n, row], observed.squares[n, row]
    for j in range(P.shape[0], G):
        upper[j] = ALWAYS
    for j in range(min(G, P.shape[0])):
        if changed[j]:
            trusted = ALWAYS
        elif measure.euclidean:
            trusted = P[j] - squares[j] / 2 + half_square(error, length, np.float64(squares[j]))
        elif squares[j] >= np.float32(SHORT * SHORT):
            trusted = P[j] / np.sqrt(squares[j]) + error * length
        else:
            trusted = ALWAYS
        upper[j] = trusted if own.candidate[j] == 0 else own.candidate[j]
    return True


@inlined
def refine(look, n, t, sample, own, G, measure, work, done):
    """Tight bounds for the neurons that may be best, where `done` were evaluated before."""
    if not has_holes(sample):
        look.evaluated[n, t] = tighten(sample, own, G, measure, work, done)


@inlined
def follow(look, n, t, sample, j, own, c, measure):
    """Correct the products of neuron j, which sample t was written to.

    They do not follow a sample with missing values, nor a neuron whose values were not seen equally often.
    """
    (P, z, _, whole, gram), (features, square, moves, scale) = look.products, look.projected
    lost, count = look.columns.lost, seen_evenly(own.known[j], c)
    lost[j] = has_holes(sample) or count == 0 or (lost[j] and count > 1)
    look.columns.changed[j] = True
    if lost[j]:
        moves[n, j] = STALE
    else:
        step = 1.0 / count
        moves[n, j] = moves[n, j] + 1 if count > 1 else 0
        scale[n, j] = (1 - step) * scale[n, j] + step * np.sqrt(sample.square)
        move(P[n, t + 1 :, j], gram[n, t, t + 1 :], np.float32(step))
        if not whole:
            move(features[n, j], z[n, t], np.float32(step))
            square[n, j] = squared(features[n, j], 0.0)
    loosen(look, n, j, own, measure)


@compiled
def seen_evenly(known, c):
    """How often each value of a neuron of count c was seen; 0 if not equally often: then it did not move as a whole."""
    for i in range(1, known.shape[0]):
        if known[i] != known[0]:
            return 0
    return np.int64(known[0]) if known.shape[0] else c


@compiled
def move(features, z, step):
    """The features of a neuron, or its products with samples, once a sample that has z has moved it by `step`."""
    for i in range(z.shape[0]):
        features[i] = z[i] if step == 1 else features[i] + step * (z[i] - features[i])


@kernel
def multiply_one(y, u, out):
    """Products of one sample y and neurons u (neurons, size), into out."""
    for j in range(u.shape[0]):
        out[j] = inner_single(y, u[j], 0.0)


@kernel
def pair_rows(x, centre, out):
    """Sums of x - centre over pairs of rows, scaled to keep lengths; x (count, 2 * rows, width), out half as high."""
    shift, scale = np.float32(centre), np.float32(np.sqrt(0.5))
    for t in range(out.shape[0]):
        for i in range(out.shape[1]):
            above, below, target = x[t, 2 * i], x[t, 2 * i + 1], out[t, i]
            for k in range(target.shape[0]):
                target[k] = ((above[k] - shift) + (below[k] - shift)) * scale
