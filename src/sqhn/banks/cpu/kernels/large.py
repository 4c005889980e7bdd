"""The first look at nodes with many values: matrix products for a whole chunk, corrected as neurons change.

A step moves one neuron, so it changes one column of the products, by a combination of what is already known. The
products may be those of a projection; then a bound on the rest is added (`bounds.outside`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core.types import NoneType

from sqhn.banks import bounds
from sqhn.banks.cpu.compiled import by_type, compiled, fused, inlined, summing
from sqhn.banks.cpu.kernels import observed
from sqhn.banks.cpu.kernels.decision import ALWAYS, has_holes, part, squared, tighten
from sqhn.banks.cpu.kernels.observed import Observed

STALE = 64
"""Moves after which the features of a neuron are computed anew."""

outside = compiled(bounds.outside)
drift = compiled(bounds.drift)


class Products(NamedTuple):
    """P (nodes, batch, room), float32 products of samples z (nodes, batch, size) and neurons.

    All of it is in the projection, or z is the `whole` samples less the centre. error: a bound of the relative error of
    products. gram (nodes, batch, batch), to learn: the products among samples; else None.
    """

    P: Any
    z: Any
    error: Any
    whole: Any
    gram: Any = None

    def rows(self, which: Any) -> Products:
        """The same of some samples, for a question."""
        return Products(self.P[:, which], self.z[:, which], self.error, self.whole)


class Features(NamedTuple):
    """The neurons of a level in the projection: features (nodes, room, size), and their squares.

    moves: how often averaging has moved a neuron since its features were computed. scale: the mean length of the
    vectors that its features were added up from, which their errors are relative to.
    """

    features: Any
    square: Any
    moves: Any
    scale: Any


class Columns(NamedTuple):
    """How a column of the products, with one entry per neuron, gives upper bounds.

    A bound is p inverse + offset, and `ratio` times the length of the sample outside the projection, and `loose` times
    its whole length, for rounding. scale, moves: as in `Features`, or of whole products. changed: the neuron was
    written in this chunk. lost: its products did not follow.
    """

    ratio: Any
    loose: Any
    offset: Any
    scale: Any
    moves: Any
    changed: Any
    lost: Any


class Large(NamedTuple):
    """evaluated (nodes, batch): how many neurons the products could not rule out."""

    products: Any
    projected: Any
    observed: Any
    evaluated: Any
    columns: Any


@compiled
def columns(room):
    """For `room` neurons."""
    floats, flags = np.empty((3, room), np.float32), np.empty((2, room), np.bool_)
    return Columns(floats[0], floats[1], floats[2], np.empty(room), np.empty(room, np.int64), flags[0], flags[1])


def first_look(products, m):
    """See `steps.first_look`; products: the fields of `Large`, in plain tuples."""
    products, projected, missing, evaluated = products
    return Large(Products(*products), Features(*projected), with_missing(missing), evaluated, columns(m.shape[1]))


@by_type
def with_missing(products):
    """Of samples with missing values, where there can be any."""
    return (lambda products: None) if isinstance(products, NoneType) else (lambda products: Observed(*products))


def begin(look, n, own, G, measure):
    """Take the products of a node for those of its neurons as they are."""
    whole, projected, columns = look.products.whole, look.projected, look.columns
    columns.changed[:], columns.lost[:] = False, False
    for j in range(G):
        columns.scale[j] = np.sqrt(own.square[j]) if whole else projected.scale[n, j]
        columns.moves[j] = 0 if whole else projected.moves[n, j]
    for j in range(G):
        loosen(look, n, j, own, measure)


@inlined
def loosen(look, n, j, own, measure):
    """How far the products of neuron j may be wrong (`Columns`)."""
    ratio, loose, offset, scale, moves, _, lost = look.columns
    error, square, length = look.products.error, own.square[j], scale[j]
    inverse = 1 / length if length > 0 else 0.0
    lost_in_moves = drift(moves[j], length, np.sqrt(np.float64(own.m.shape[1])), inverse, measure.centre)
    far = outside(square, look.projected.square[n, j], length, error + 2 * lost_in_moves)
    ratio[j] = 0.0 if look.products.whole else far * own.inverse[j]
    loose[j] = (lost_in_moves + error) * length * own.inverse[j]
    offset[j] = ALWAYS if lost[j] else own.candidate[j]
    if measure.euclidean is not None:  # `half_square`
        offset[j] += error * length * length - square / 2


def bound(look, n, t, sample, y, own, G, measure, upper):
    """Upper bounds from products."""
    if has_holes(sample):
        bound_observed(look.observed, n, t, sample, y, own, G, measure, upper)
        for j in range(G):
            if look.columns.changed[j]:
                upper[j] = ALWAYS
    else:
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


@by_type
def bound_observed(look, *_):
    """Upper bounds for a sample with missing values, where there can be any."""
    return unbounded if isinstance(look, NoneType) else observed.bound


def unbounded(look, n, t, sample, y, own, G, measure, upper):
    """No sample has missing values."""


def refine(look, n, t, sample, y, own, G, measure, scratch, done):
    """Tight bounds for the neurons that may be best."""
    if not has_holes(sample):
        look.evaluated[n, t] = tighten(sample, y, own, G, measure, scratch, done)


def follow(look, n, t, sample, j, own, c, measure):
    """Correct the products of neuron j, which sample t was written to.

    They do not follow a sample with missing values, nor a neuron whose values were not seen equally often.
    """
    (P, z, _, whole, gram), (features, square, moved, scaled) = look.products, look.projected
    _, _, _, scale, moves, changed, lost = look.columns
    known = part(own.known, j)
    count = seen_first(known, c)
    lost[j] = has_holes(sample) or not evenly(known) or (lost[j] and count > 1)
    changed[j] = True
    if not lost[j]:
        step = 1.0 / count
        moves[j] = moves[j] + 1 if count > 1 else 0
        scale[j] = (1 - step) * scale[j] + step * np.sqrt(sample.square) if count > 1 else np.sqrt(sample.square)
        correct(P[n], gram[n, t], t, j, np.float32(step))
    if whole or lost[j]:
        moved[n, j] = STALE
    else:
        move(features[n, j], z[n, t], np.float32(1.0 / count))
        square[n, j] = squared(features[n, j], 0.0)
        moved[n, j], scaled[n, j] = moves[j], scale[j]
    loosen(look, n, j, own, measure)


@inlined
def seen_first(known, c):
    """How often the first value of a neuron of count c was seen."""
    return c if known is None else np.int64(known[0])


@inlined
def evenly(known):
    """Whether all values of a neuron were seen equally often, so that it moves as a whole."""
    return True if known is None else same(known)


@compiled
def same(known):
    """Whether all numbers are the first."""
    others = 0
    for i in range(known.shape[0]):
        others += known[i] != known[0]
    return others == 0


@compiled
def correct(P, gram, t, j, step):
    """The products of the samples after t with neuron j, once sample t has moved it by `step`."""
    if step == 1:
        for s in range(t + 1, P.shape[0]):
            P[s, j] = gram[s]
    else:
        for s in range(t + 1, P.shape[0]):
            P[s, j] += step * (gram[s] - P[s, j])


@compiled
def move(features, z, step):
    """The features of a neuron that a sample has moved by `step`."""
    if step == 1:
        features[:] = z
    else:
        for i in range(z.shape[0]):
            features[i] += step * (z[i] - features[i])


@summing
def multiply_one(y, u, out):
    """Products of one sample y and neurons u (neurons, size), into out."""
    for j in range(u.shape[0]):
        total = np.float32(0)
        for i in range(y.shape[0]):
            total += y[i] * u[j, i]
        out[j] = total


@compiled
def pair_rows(x, centre, out):
    """Sums of x - centre over pairs of rows, scaled to keep lengths; x (count, 2 * rows, width), out half as high."""
    shift, scale = np.float32(centre), np.float32(np.sqrt(0.5))
    for t in range(out.shape[0]):
        for i in range(out.shape[1]):
            above, below, target = x[t, 2 * i], x[t, 2 * i + 1], out[t, i]
            for k in range(target.shape[0]):
                target[k] = ((above[k] - shift) + (below[k] - shift)) * scale
