"""The first look for samples with missing values at nodes with many values: products over the observed values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sqhn.banks.bounds import SHORT
from sqhn.banks.cpu.kernels.decision import ALWAYS, half_square


class Observed(NamedTuple):
    """P (nodes, rows, room), products of samples and neurons, and the squares of the neurons over the same values,
    both as the chunk finds them. row (batch,): the row of a sample. error: a bound of the relative error of P.
    """

    P: Any
    squares: Any
    row: Any
    error: Any


def first_look(products, m):
    """See `steps.first_look`."""
    return Observed(*products)


def begin(look, n, own, G, measure):
    """The products are those of the neurons as they are."""


def bound(look, n, t, sample, y, own, G, measure, upper):
    """Upper bounds for a sample with missing values."""
    row, error, length = look.row[t], look.error, np.sqrt(sample.square)
    P, squares = look.P[n, row], look.squares[n, row]
    upper[P.shape[0] : G] = ALWAYS
    for j in range(min(G, P.shape[0])):
        if measure.euclidean is not None:
            trusted = P[j] - squares[j] / 2 + half_square(error, length, np.float64(squares[j]))
        elif squares[j] >= np.float32(SHORT * SHORT):
            trusted = P[j] / np.sqrt(squares[j]) + error * length
        else:
            trusted = ALWAYS
        upper[j] = trusted if own.candidate[j] == 0 else own.candidate[j]


def refine(look, n, t, sample, y, own, G, measure, scratch, done):
    """The bounds are as tight as float32 allows."""
