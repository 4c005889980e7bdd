"""Models that store the samples: against plain loops, autograd and probability."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.mhn import MHN, GradInfMHN, ManhattanMHN
from sqhn.paper.baselines.store import NearestNeighbor, StoredSamples
from sqhn.paper.metrics import recall_error
from sqhn.protocol import EmptyMemoryError, Memory

if TYPE_CHECKING:
    from torch import Tensor

torch = pytest.importorskip("torch")

Floats = NDArray[np.float32]

SHAPE = (6, 5, 3)
MODELS: list[Callable[[], StoredSamples]] = [
    lambda: MHN(SHAPE),
    lambda: ManhattanMHN(SHAPE),
    lambda: GradInfMHN(SHAPE, steps=30),
    lambda: NearestNeighbor(SHAPE, capacity=7),
    lambda: NearestNeighbor(SHAPE, capacity=7, keep="reservoir", seed=3),
]


def images(n: int, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).random((n, *shape), np.float32)


def masks(n: int, shape: tuple[int, ...] = SHAPE, share: float = 0.5, seed: int = 1) -> NDArray[np.bool_]:
    return np.random.default_rng(seed).random((n, *shape)) < share


def noisy(x: Floats, std: float, seed: int = 2) -> Floats:
    return x + np.float32(std) * np.random.default_rng(seed).standard_normal(x.shape, np.float32)


# -- the verbs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MODELS)
def test_learning_a_batch_equals_the_loop(make: Callable[[], StoredSamples]) -> None:
    x = images(20)
    batch, loop = make(), make()
    written = batch.learn(x[:9]), batch.learn(x[9:])
    index, grew, score, step = (np.concatenate(field) for field in zip(*(one[:4] for one in written)))
    for one, i, g, s, t in zip(x, index, grew, score, step):
        single = loop.learn(one)
        assert (single.index, single.grew, single.step) == (i, g, t)
        assert single.score == pytest.approx(s, rel=1e-5, abs=1e-7)
    assert len(batch) == len(loop)
    np.testing.assert_array_equal(batch.store.rows, loop.store.rows)
    assert score[0] == -math.inf


@pytest.mark.parametrize("make", MODELS)
def test_one_sample_and_a_batch(make: Callable[[], StoredSamples]) -> None:
    memory = make()
    as_any_other: Memory = memory  # for the type checker
    x = images(5)
    as_any_other.learn(x)
    one, many = memory.recall(x[2]), memory.recall(x)
    assert one.x.shape == SHAPE
    assert many.x.shape == x.shape
    assert one.x.dtype == many.x.dtype == np.float32
    assert isinstance(one.index, int)
    assert isinstance(one.score, float)
    np.testing.assert_array_equal(many.index, np.arange(5))
    np.testing.assert_allclose(many.x, x, atol=1e-2)  # MHN-GradInf has taken 30 steps only
    memory.reset()
    assert len(memory) == 0
    with pytest.raises(EmptyMemoryError):
        memory.recall(x)


@pytest.mark.parametrize("make", MODELS)
def test_missing_values_do_not_matter(make: Callable[[], StoredSamples]) -> None:
    memory = make()
    x, seen = images(6), masks(6)
    memory.learn(x)
    anything = np.where(seen, x, np.float32(np.nan))
    one, other = memory.recall(np.where(seen, x, np.float32(0.3)), seen), memory.recall(anything, seen)
    for a, b in zip(one, other):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("make", MODELS)
def test_bytes_and_bad_input(make: Callable[[], StoredSamples]) -> None:
    x = np.random.default_rng(0).integers(0, 256, (4, *SHAPE), np.uint8)
    a, b = make(), make()
    a.learn(x)
    b.learn(x.astype(np.float32) / np.float32(255))
    np.testing.assert_array_equal(a.store.rows, b.store.rows)
    with pytest.raises(ValueError, match="not finite"):
        a.learn(np.full(SHAPE, np.nan))
    assert len(a) == 4


@pytest.mark.parametrize("make", MODELS[:3])
def test_an_unsupported_verb_is_named(make: Callable[[], StoredSamples]) -> None:
    memory = make()
    with pytest.raises(UnsupportedError, match=f"{type(memory).__name__} cannot recognize"):
        memory.recognize(images(1))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: MHN(SHAPE, beta=0), "beta"),
        (lambda: MHN(SHAPE, missing="black"), "missing"),  # type: ignore[arg-type]
        (lambda: MHN(SHAPE, range="bytes"), "range"),  # type: ignore[arg-type]
        (lambda: ManhattanMHN(SHAPE, missing="no"), "missing"),  # type: ignore[arg-type]
        (lambda: GradInfMHN(SHAPE, sigma=-1), "sigma"),
        (lambda: GradInfMHN(SHAPE, steps=0), "steps"),
        (lambda: GradInfMHN(SHAPE, rate=math.inf), "rate"),
        (lambda: GradInfMHN(SHAPE, metric="cosine"), "metric"),  # type: ignore[arg-type]
        (lambda: NearestNeighbor(SHAPE, capacity=0), "capacity"),
        (lambda: NearestNeighbor(SHAPE, 3, keep="all"), "keep"),  # type: ignore[arg-type]
        (lambda: NearestNeighbor(SHAPE, 3, tolerance=0), "tolerance"),
    ],
)
def test_settings_are_checked(make: Callable[[], Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named} must be"):
        make()


def test_the_nearest_neighbor_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from sqhn.paper.baselines.store import NearestNeighbor\n"
        "memory = NearestNeighbor((2,), 3)\n"
        "memory.learn(np.eye(2)); memory.recall(np.eye(2), np.eye(2) > 0); memory.recognize(np.eye(2))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- MHN -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.5, 10_000.0])
@pytest.mark.parametrize(("inside", "low"), [("signed", -1), ("unit", 0)])  # black is the low end of the range
@pytest.mark.parametrize("missing", ["fill", "ignore"])
def test_mhn_matches_its_formula(beta: float, inside: Any, low: int, missing: Any) -> None:
    x, seen = images(9), masks(9)
    query = noisy(x, 0.2)
    memory = MHN(SHAPE, beta=beta, missing=missing, range=inside)
    memory.learn(x)
    recalled = memory.recall(query, seen)
    wide = 1 - low
    rows = [[wide * float(v) + low for v in one.ravel()] for one in x]
    for n in range(9):
        products = []
        for row in rows:
            total = 0.0
            for value, visible, m in zip(query[n].ravel(), seen[n].ravel(), row):
                if visible:
                    total += (wide * float(value) + low) * m
                elif missing == "fill":
                    total += low * m
            products.append(total)
        weights = [math.exp(beta * (p - max(products))) for p in products]
        mean = [sum(w * row[j] for w, row in zip(weights, rows)) / sum(weights) for j in range(x[0].size)]
        np.testing.assert_allclose(recalled.x[n].ravel(), (np.array(mean) - low) / wide, atol=1e-5)
        assert recalled.index[n] == np.argmax(products)
        assert recalled.score[n] == pytest.approx(max(products), abs=1e-4)


def test_a_large_beta_selects_the_largest_inner_product() -> None:
    x = images(50)
    query = noisy(images(20, seed=5), 0.3)
    memory = MHN(SHAPE, beta=1e9)
    memory.learn(x)
    best = ((2.0 * query - 1).reshape(20, -1) @ (2.0 * x - 1).reshape(50, -1).T).argmax(axis=1)
    recalled = memory.recall(query)
    np.testing.assert_array_equal(recalled.index, best)
    np.testing.assert_allclose(recalled.x, x[best], atol=1e-6)


def test_mhn_equals_a_layer_with_the_samples_as_weights() -> None:
    """One step of a layer with tied weights: z = softmax(beta x W), out = z W^T."""
    x = images(12)
    query = noisy(x, 0.1)
    memory = MHN(SHAPE, beta=30.0, range="unit")
    memory.learn(x)
    layer = torch.nn.Linear(x[0].size, 12, bias=False)
    with torch.no_grad():
        layer.weight[:] = torch.tensor(x.reshape(12, -1))
        expected = torch.softmax(30 * layer(torch.tensor(query.reshape(12, -1))), dim=1) @ layer.weight
    np.testing.assert_allclose(memory.recall(query).x.reshape(12, -1), expected.numpy(), atol=1e-4)


# -- Manhattan -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["fill", "ignore"])
def test_manhattan_matches_brute_force(missing: Any) -> None:
    x, seen = images(30), masks(30, share=0.2)
    query = noisy(x, 0.3)
    memory = ManhattanMHN(SHAPE, missing=missing)
    memory.learn(x)
    recalled = memory.recall(query, seen)
    for n in range(30):
        filled = np.where(seen[n], query[n], np.float32(0)).astype(np.float64)
        counted = seen[n] if missing == "ignore" else np.ones(SHAPE, bool)
        distances = [np.abs(filled - one)[counted].sum() for one in x]
        assert recalled.index[n] == np.argmin(distances)
        assert recalled.score[n] == pytest.approx(-min(distances))
        np.testing.assert_array_equal(recalled.x[n], x[recalled.index[n]])


def test_the_first_of_rows_that_tie_on_observed_values_wins() -> None:
    x = np.repeat(images(1, (40, 40)), 5, axis=0)
    x[:, 20:] = images(5, (20, 40), seed=8)
    seen = np.arange(40)[:, None].repeat(40, axis=1) < 20
    for memory in (ManhattanMHN((40, 40), missing="ignore"), NearestNeighbor((40, 40), 5)):
        memory.learn(x)
        np.testing.assert_array_equal(memory.recall(x, seen).index, 0)


@pytest.mark.parametrize("cell", ["noise .2", "noise .8", "dropout .25", "dropout .75", "mask .25", "mask .75"])
def test_manhattan_makes_no_mistake_where_missing_values_are_ignored(cell: str) -> None:
    shape = (16, 16, 3)
    x = images(64, shape)
    kind, share = cell.split()
    seen = None
    query = x
    if kind == "noise":
        query = np.clip(noisy(x, float(share)), 0, 1)
    elif kind == "dropout":
        seen = masks(64, (16, 16, 1), 1 - float(share)).repeat(3, axis=3)
    else:
        seen = np.broadcast_to((np.arange(16) < 16 * (1 - float(share)))[:, None], shape)
    memory = ManhattanMHN(shape, missing="ignore")
    memory.learn(x)
    np.testing.assert_array_equal(memory.recall(query, seen).x, x)


# -- MHN-GradInf -----------------------------------------------------------------------------------------------------


def energy(x: Tensor, rows: Tensor, sigma: float, metric: str) -> Tensor:
    """The energy by its definition."""
    s, d = sigma**2, rows.shape[1]
    weight = rows.square().sum(1) / math.sqrt(s) if metric == "dot" else torch.zeros(len(rows))
    square = (x[:, None] - rows[None]).square().sum(2)
    result: Tensor = -torch.logsumexp(weight - square / (2 * s) - d / 2 * math.log(2 * math.pi * s), dim=1)
    return result


def plain_descent(
    query: Floats, seen: NDArray[np.bool_] | None, x: Floats, sigma: float, metric: str, steps: int
) -> tuple[Floats, int]:
    """torch's own Adam on autograd's gradient, in float64; the result in [0, 1], and the steps taken."""
    rows = torch.tensor(2.0 * x.reshape(len(x), -1).astype(np.float64) - 1)
    flat = query.reshape(len(query), -1).astype(np.float64)
    known = None if seen is None else torch.tensor(np.broadcast_to(seen, query.shape).reshape(flat.shape).copy())
    start = torch.tensor(2 * flat - 1)
    if known is not None:
        start[~known] = -1
    pixels = start.clone().requires_grad_()
    adam = torch.optim.Adam([pixels], lr=0.01)
    before = energy(pixels, rows, sigma, metric).detach()
    taken = 0
    for _ in range(steps):
        adam.zero_grad()
        energy(pixels, rows, sigma, metric).sum().backward()  # type: ignore[no-untyped-call]
        adam.step()
        if known is not None:
            with torch.no_grad():
                pixels[known] = start[known]
        taken += 1
        now = energy(pixels, rows, sigma, metric).detach()
        if bool(((now - before).abs() <= 1e-3).all()):
            break
        before = now
    return ((pixels.detach().numpy() + 1) / 2).reshape(query.shape).astype(np.float32), taken


@pytest.mark.parametrize("metric", ["dot", "euclidean"])
@pytest.mark.parametrize("sigma", [0.01, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("partial", [False, True])
def test_gradinf_matches_plain_descent(sigma: float, metric: Any, partial: bool) -> None:
    """With narrow components, where one row attracts a query, and wide ones, where all rows do."""
    x = images(12)
    query, seen = noisy(x, 0.3), masks(12, share=0.3) if partial else None
    memory = GradInfMHN(SHAPE, sigma=sigma, metric=metric, steps=80)
    memory.learn(x)
    expected, _ = plain_descent(query, seen, x, sigma, metric, 80)
    recalled = memory.recall(query, seen)
    np.testing.assert_allclose(recalled.x, expected, atol=2e-4)
    if seen is not None:
        np.testing.assert_array_equal(recalled.x[seen], query[seen])


def test_gradinf_follows_a_query_to_another_row() -> None:
    """Once missing values are filled in, the observed ones can make another row the nearest."""
    x = images(60, (4, 4))
    seen = np.zeros((4, 4), bool)
    seen[:2] = True
    memory = GradInfMHN((4, 4))
    memory.learn(x)
    expected, _ = plain_descent(x, seen, x, 0.01, "dot", 500)
    black = 2 * np.where(seen, x, 0).reshape(60, -1).astype(np.float64) - 1
    rows = 2 * x.reshape(60, -1).astype(np.float64) - 1
    exponents = 100 * (rows**2).sum(1) - ((black[:, None] - rows) ** 2).sum(2) / 2e-4
    recalled = memory.recall(x, seen)
    assert (exponents.argmax(axis=1) != recalled.index).sum() > 5
    np.testing.assert_allclose(recalled.x, expected, atol=2e-4)


def test_a_gradinf_batch_stops_together_and_early() -> None:
    x = images(8)
    memory = GradInfMHN(SHAPE)
    memory.learn(x)
    close, far = noisy(x, 0.01), noisy(x, 0.1)
    together, taken = plain_descent(np.concatenate([close, far]), None, x, 0.01, "dot", 500)
    alone, sooner = plain_descent(close, None, x, 0.01, "dot", 500)
    assert sooner < taken < 500
    np.testing.assert_allclose(memory.recall(np.concatenate([close, far])).x, together, atol=2e-5)
    np.testing.assert_allclose(memory.recall(close).x, alone, atol=2e-5)


def test_gradinf_gradient_matches_autograd() -> None:
    """(x - sum_i p_i m_i) / S, in float64."""
    generator = torch.Generator().manual_seed(0)
    rows, x = torch.rand(5, 7, generator=generator).double(), torch.rand(4, 7, generator=generator).double()
    x.requires_grad_()
    for sigma, metric in itertools.product([0.3, 1.0], ["dot", "euclidean"]):
        (gradient,) = torch.autograd.grad(energy(x, rows, sigma, metric).sum(), x)
        memory = GradInfMHN((7,), sigma=sigma, metric=metric)  # type: ignore[arg-type]
        exponents = memory.rule.exponents(x.detach(), rows, rows.square().sum(1))  # type: ignore[attr-defined]
        torch.testing.assert_close(gradient, (x.detach() - exponents.softmax(1) @ rows) / sigma**2)


def test_gradinf_ends_at_the_nearest_row() -> None:
    """With narrow components, and values that start within 1.5 of it (in [-1, 1])."""
    x = images(40, (8, 8))
    query = np.clip(noisy(x, 0.3), x - 0.75, x + 0.75)
    memory = GradInfMHN((8, 8), metric="euclidean")
    memory.learn(x)
    recalled = memory.recall(query)
    nearest = np.square(query[:, None].astype(np.float64) - x).sum((2, 3)).argmin(axis=1)
    np.testing.assert_array_equal(recalled.index, nearest)
    assert recall_error(recalled.x, x[nearest]).max() < 1e-5


def test_gradinf_travels_a_limited_distance() -> None:
    """A value that starts 2, 3, 4 or 5 away (in [-1, 1]) is still .011, .19, .65 or 1.30 away after 500 steps."""
    memory = GradInfMHN((4,))
    memory.learn(np.full(4, 0.5))
    left = 2 * (memory.recall(np.array([1.5, 2.0, 2.5, 3.0])).x - 0.5)
    np.testing.assert_allclose(left, [0.011, 0.19, 0.65, 1.30], atol=0.005)


def test_gradinf_with_a_row_stored_twice() -> None:
    x = images(5)
    memory = GradInfMHN(SHAPE)
    memory.learn(np.concatenate([x, x]))
    np.testing.assert_allclose(memory.recall(noisy(x, 0.1)).x, x, atol=1e-3)


# -- the nearest neighbor --------------------------------------------------------------------------------------------


def test_nearest_neighbor_matches_brute_force() -> None:
    x, seen = images(40), masks(40, share=0.3)
    query = noisy(x, 0.4)
    memory = NearestNeighbor(SHAPE, capacity=40)
    memory.learn(x)
    for mask in (None, seen):
        recalled = memory.recall(query, mask)
        for n in range(40):
            counted = np.ones(SHAPE, bool) if mask is None else mask[n]
            errors = [np.square(query[n].astype(np.float64) - one)[counted].mean() for one in x]
            assert recalled.index[n] == np.argmin(errors)
            assert recalled.score[n] == pytest.approx(-min(errors))
            np.testing.assert_array_equal(recalled.x[n], x[recalled.index[n]])


def test_first_in_first_out() -> None:
    x = images(11)
    memory = NearestNeighbor(SHAPE, capacity=4)
    written = memory.learn(x)
    assert written.index.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert written.grew.all()
    assert len(memory) == 4
    np.testing.assert_array_equal(memory.recognize(x).old, np.arange(11) >= 7)
    for n in range(1, 11):  # the best match among the samples stored at the time
        errors = [np.square(x[n].astype(np.float64) - one).mean() for one in x[max(0, n - 4) : n]]
        assert written.score[n] == pytest.approx(-min(errors), rel=1e-4)


def test_a_reservoir_keeps_each_sample_with_the_same_probability() -> None:
    """5 of 20, 2,000 times: each count is within 4 standard deviations, and so is their chi-square."""
    capacity, n, repeats = 5, 20, 2000
    x = np.arange(n, dtype=np.float32)[:, None] / n
    counts = np.zeros(n)
    for seed in range(repeats):
        memory = NearestNeighbor((1,), capacity, keep="reservoir", seed=seed)
        written = memory.learn(x)
        kept = np.rint(memory.store.rows[:, 0] * n).astype(int)
        assert len(set(kept.tolist())) == capacity
        np.testing.assert_array_equal(written.grew, written.index >= 0)
        counts[kept] += 1
    p = capacity / n
    deviation = (counts - repeats * p) / math.sqrt(repeats * p * (1 - p))
    assert np.abs(deviation).max() < 4
    chi_square = (np.square(deviation) * (n - 1) / n).sum()  # a fixed number is stored: n - 1 degrees of freedom
    assert abs(chi_square - (n - 1)) < 4 * math.sqrt(2 * (n - 1))


def test_a_reset_reservoir_starts_again() -> None:
    x = images(30)
    memory = NearestNeighbor(SHAPE, 5, keep="reservoir", seed=1)
    first = memory.learn(x).index
    memory.reset()
    np.testing.assert_array_equal(memory.learn(x).index, first)


def test_recognition_by_distance() -> None:
    x = images(10)
    memory = NearestNeighbor(SHAPE, capacity=10, tolerance=1e-4)
    nothing = memory.recognize(x[0])
    assert (nothing.old, nothing.score) == (False, -math.inf)
    memory.learn(x)
    for shift, old in ((0.0, True), (0.009, True), (0.011, False)):  # an error of shift squared
        judged = memory.recognize(x + np.float32(shift))
        assert (judged.old == old).all()
        np.testing.assert_allclose(judged.score, -(shift**2), atol=1e-8)
        np.testing.assert_array_equal(judged.threshold, -1e-4)
    assert memory.recognize(x[3]).old is True
