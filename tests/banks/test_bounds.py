"""Errors against their bounds: never above, and the inequalities come close.

Every test measures how much of a bound is used, the largest error over the bound, and notes it (`used`). Rounding uses
a part of its bound, so a bound of 0 fails; an inequality is met by vectors for which it is almost an equation, so half
of it fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn.banks import bounds
from sqhn.banks.cpu.kernels import small
from sqhn.banks.cpu.kernels.decision import Measure, Prototypes
from sqhn.banks.cpu.kernels.large import move
from sqhn.banks.cpu.kernels.prototypes import average_into
from sqhn.banks.cpu.projection import Projection
from sqhn.banks.rows import Rows

Use = Callable[[Any, Any], float]
SIZES = [3, 48, 784, 3072]
ALL_SEEN, ALL_KNOWN = np.empty(0, bool), np.empty(0, np.int32)
SHAPES = [(32, 32, 3), (28, 28), (784,), (64, 2), (100,), (30, 50), (16, 16, 16), (67, 3), (8, 4, 6, 2), (9,)]


@pytest.fixture
def used(record_property: Callable[[str, object], None]) -> Use:
    """How much of a bound is used at most."""

    def most(error: Any, bound: Any) -> float:
        share = float(np.max(np.abs(error) / bound))
        record_property("used", share)
        assert 0 < share <= 1, f"{share:.3g} of the bound"
        return share

    return most


def pairs(d: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Samples and neurons in [0, 1]: of any kind, all on one side of the centre, and almost the centre."""
    rng = np.random.default_rng(seed)
    x = rng.random((30, d))
    x[10:20] = 0.75 + x[10:20] / 4
    x[20:] = 0.5 + (x[20:] - 0.5) * 1e-3
    return x.astype(np.float32), rng.permutation(x.astype(np.float32))


def exact(x: NDArray[np.float32], centre: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    y = x.astype(np.float64) - centre
    return y, np.linalg.norm(y, axis=1)


def one_by_one(terms: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums in float32, one term after another: the order that loses most."""
    return np.asarray(np.cumsum(terms, axis=1, dtype=np.float32)[:, -1])


@pytest.mark.parametrize("centre", [0.0, 0.5])
@pytest.mark.parametrize("d", SIZES)
def test_product(d: int, centre: float, used: Use) -> None:
    x, m = pairs(d, d)
    (y, length), (u, lengths) = exact(x, centre), exact(m, centre)
    inverse = (1 / lengths).astype(np.float32)
    found = one_by_one((x - np.float32(centre)) * (m - np.float32(centre))) * inverse
    used(found.astype(np.float64) - (y * u).sum(1) / lengths, bounds.product(d) * length)


@pytest.mark.parametrize("d", SIZES)
def test_masked_product(d: int, used: Use) -> None:
    x, m = pairs(d, d)
    seen = np.random.default_rng(1).random(x.shape) < 0.6
    seen[:, 0] = True
    (y, _), (u, _) = exact(x, 0.5), exact(m, 0.5)
    yf, uf = (x - np.float32(0.5)) * seen, (m - np.float32(0.5)) * seen
    found = one_by_one(yf * uf) / np.sqrt(one_by_one(uf * uf))
    wanted = (y * u * seen).sum(1) / np.linalg.norm(u * seen, axis=1)
    used(found.astype(np.float64) - wanted, bounds.masked_product(d) * np.linalg.norm(y * seen, axis=1))


@pytest.mark.parametrize("d", SIZES)
def test_half_square(d: int, used: Use) -> None:
    """Products less half the squares of neurons, with masks and without; some samples are tiny beside the neurons."""
    x, m = pairs(d, d)
    x[::3] *= np.float32(1e-9)
    for seen in (np.ones(x.shape, bool), np.random.default_rng(1).random(x.shape) < 0.6):
        xf, mf = x * seen, m * seen
        found = (one_by_one(xf * mf) - one_by_one(mf * mf) / np.float32(2)).astype(np.float64)
        y, u = xf.astype(np.float64), mf.astype(np.float64)
        squares = (u * u).sum(1)
        error = bounds.masked_product(d) if not seen.all() else bounds.product(d)
        bound = [bounds.half_square(error, *each) for each in zip(np.linalg.norm(y, axis=1), squares)]
        used(found - ((y * u).sum(1) - squares / 2), np.maximum(bound, 1e-30))


@pytest.mark.parametrize("euclidean", [False, True])
@pytest.mark.parametrize("d", [3, 12, 48])
def test_small_nodes_look_from_above(d: int, euclidean: bool, used: Use) -> None:
    """Upper bounds exceed the exact terms by the error that they allow for, up to rounding of less than half of it."""
    x, m = pairs(d, 0)
    measure = Measure(0.0 if euclidean else 0.5, euclidean)
    (y, long), (u, length) = exact(x, measure.centre), exact(m, measure.centre)
    inverse = np.ones(len(m), np.float32) if euclidean else (1 / length).astype(np.float32)
    none = np.zeros(len(m), np.float32)
    rows = Rows(1, d)
    rows.m = m[None]
    m0, raw, place, owner, in_use = (array[0] for array in rows.arrays)
    own = Prototypes(m0, raw, place, owner, in_use, length**2, inverse, none, ALL_KNOWN, np.empty(0, np.float32))
    look = small.Small(*small.scratch(d, len(m)))
    small.begin(look, own, len(m), measure)
    upper, padded, error = np.empty(len(m), np.float32), np.zeros(d + -d % 4, np.float32), bounds.product(d)
    for i in range(len(x)):
        padded[:d] = x[i] - np.float32(measure.centre)
        small.products(look.ut, padded, inverse, look.length, look.offset, error * long[i], len(m), upper)
        right = u @ y[i] - length**2 / 2 if euclidean else (u @ y[i]) / length
        allowed = error * (long[i] * length + length**2 if euclidean else long[i])
        used(upper - right - allowed, allowed / 2)


@pytest.mark.parametrize("d", SIZES)
def test_difference(d: int, used: Use) -> None:
    x, m = pairs(d, d)
    found = one_by_one((x - m) ** 2).astype(np.float64)
    wanted = ((x.astype(np.float64) - m) ** 2).sum(1)
    used(found - wanted, bounds.difference(d) * np.maximum(wanted, 1e-30))


def test_rounded(used: Use) -> None:
    rng = np.random.default_rng(0)
    square, most = rng.random(1000) * 10.0 ** rng.integers(-9, 9, 1000), rng.random(1000)
    half = (square - most) / 2
    used(half.astype(np.float32) - half, [bounds.rounded(*each) / 2 for each in zip(square, most)])


@pytest.mark.parametrize("d", SIZES)
def test_uncentred_product(d: int, used: Use) -> None:
    x, m = pairs(d, d)
    (y, length), (u, lengths) = exact(x, 0.5), exact(m, 0.5)
    yf = x - np.float32(0.5)
    taken = (0.5 * yf.sum(axis=1, dtype=np.float64)).astype(np.float32)
    found = (one_by_one(yf * m) - taken).astype(np.float64)
    bound = np.array([bounds.uncentred_product(d, 0.5, 1 / one) for one in lengths])
    used(found - (y * u).sum(1), bound * length * lengths)


def in_view(view: Projection, y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The features of vectors less the centre, in float64."""
    z = y.reshape(len(y), view.height, view.width)
    if view.paired:
        z = (z[:, ::2] + z[:, 1::2]) * np.sqrt(0.5)
    return view.transform(z, view.exact)


@pytest.mark.parametrize("shape", SHAPES)
def test_features_and_their_products(shape: tuple[int, ...], used: Use) -> None:
    view, d = Projection(shape), int(np.prod(shape))
    x, m = pairs(d, 0)
    (y, length), (u, lengths) = exact(x, 0.5), exact(m, 0.5)
    wrong = view(x, 0.5).astype(np.float64) - in_view(view, y)
    used(np.linalg.norm(wrong, axis=1), bounds.features([len(f) for f in view.factors]) * length)
    found = one_by_one(view(x, 0.5) * view(m, 0.5)).astype(np.float64)
    used(found - (in_view(view, y) * in_view(view, u)).sum(1), view.error * length * lengths)
    square = np.square(view(x, 0.5), dtype=np.float64).sum(1)
    used(square - np.square(in_view(view, y)).sum(1), view.error * length**2)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if Projection(shape).size < np.prod(shape)])
def test_parts_outside_the_projection(shape: tuple[int, ...], used: Use) -> None:
    """Vectors whose parts outside point the same way: Cauchy and Schwarz leave nothing over."""
    view, d = Projection(shape), int(np.prod(shape))
    rng = np.random.default_rng(0)
    inside = in_view(view, np.eye(d))  # (d, features)
    beyond = rng.normal(size=d)
    beyond -= inside @ (inside.T @ beyond)
    y, u = (0.3 * (inside @ rng.normal(size=view.size)) + scale * beyond for scale in (1.0, 2.0))
    missed = y @ u - (inside.T @ y) @ (inside.T @ u)
    parts = [
        bounds.outside(v @ v, float(np.sum((inside.T @ v) ** 2)), float(np.linalg.norm(v)), view.error) for v in (y, u)
    ]
    assert used(missed, parts[0] * parts[1]) > 0.95


@pytest.mark.parametrize("kind", ["alike", "opposite", "growing"])
@pytest.mark.parametrize("d", [12, 784])
def test_drift(d: int, kind: str, used: Use) -> None:
    """A neuron that samples are averaged into, with products and features that follow it, as in the kernels."""
    rng = np.random.default_rng(d)
    moves, asked = 63, 8
    noise = rng.normal(0, 0.05 if kind == "alike" else 0.3, (moves + 1, d))
    scale = {"alike": np.ones(moves + 1), "opposite": (-1.0) ** np.arange(moves + 1), "growing": np.arange(moves + 1)}
    x = (0.5 + scale[kind][:, None] * rng.normal(0, 0.2, d) + noise).astype(np.float32)
    y = (rng.random((asked, d)) - 0.5).astype(np.float32)
    m, steps = x[0].copy(), 1 / np.arange(2, moves + 2)
    shifted = x - np.float32(0.5)
    features = shifted[0].copy()
    gram = (y.astype(np.float64) @ shifted.astype(np.float64).T).astype(np.float32)
    P = gram[:, 0].copy()
    mean = float(np.linalg.norm(shifted[0]))
    for number, step in enumerate(steps, start=1):
        average_into(m, x[number], ALL_SEEN, ALL_KNOWN, number + 1)
        move(features, shifted[number], np.float32(step))
        move(P, gram[:, number], np.float32(step))
        mean = (1 - step) * mean + step * float(np.linalg.norm(shifted[number]))
    u = m.astype(np.float64) - 0.5
    inverse = 1 / float(np.linalg.norm(u))
    bound = bounds.drift(moves, mean, np.sqrt(d), inverse, 0.5) / inverse
    used(P - y.astype(np.float64) @ u, (bound + bounds.U * mean) * np.linalg.norm(y, axis=1))
    used(np.linalg.norm(features - u), bound)


@pytest.mark.parametrize("kind", ["alike", "opposite"])
@pytest.mark.parametrize("error", [0.0, 1e-3])
def test_cosines_that_are_followed(kind: str, error: float, used: Use) -> None:
    """A neuron of which only cosines and a length are followed, in float32, as in a walk on a GPU.

    Without errors at first, all that is wrong was lost on the way; with large ones, hardly anything was.
    """
    rng = np.random.default_rng(0)
    d, moves, f = 48, 40, np.float32
    sign = np.ones(moves + 1) if kind == "alike" else np.where(np.arange(moves + 1) % 3 == 2, -0.5, 1)
    x = (0.5 + sign[:, None] * rng.normal(0, 0.2, d) + rng.normal(0, 0.1, (moves + 1, d))).astype(f)
    z, lengths = exact(x, 0.5)
    cosines = (z @ z.T / np.outer(lengths, lengths)) + error * rng.choice([-1, 1], (moves + 1, moves + 1))
    gram = cosines.astype(f)
    A, norm, wide, m, spread = gram[0].copy(), f(lengths[0]), f(lengths[0]), x[0].copy(), 1.0
    for t in range(1, moves + 1):
        r = f(1) / f(t + 1)
        keep, add = (f(1) - r) * norm, r * f(lengths[t])
        wide = (f(1) - r) * wide + add
        square = keep * keep + f(2) * keep * add * A[t] + add * add
        unit = f(1) / np.sqrt(square)
        A = keep * unit * A + add * unit * gram[t]
        norm = square * unit
        average_into(m, x[t], ALL_SEEN, ALL_KNOWN, t + 1)
        spread = max(spread, float(wide * unit))
    u, own = exact(m[None], 0.5)
    worn = bounds.lost(moves, spread, 1 / float(own[0]), np.sqrt(d), 0.5, bounds.U)
    bound = bounds.rough(error, spread) if error else worn
    used(A[1:] - z[1:] @ u[0] / lengths[1:] / own, bound)


def test_gamma() -> None:
    """n u / (1 - n u), from below 2 n u."""
    n = 2.0 ** np.arange(24)
    assert np.all(n * bounds.U / (1 - n * bounds.U) <= [bounds.gamma(k) for k in n])
