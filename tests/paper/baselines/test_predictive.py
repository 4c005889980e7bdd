"""Predictive coding against mathematics: autograd, closed forms and identities."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import EmptyMemoryError
from sqhn.paper.baselines.bayes import BayesPCN
from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.predictive import GPCN, LOOK, Chain, Layer, PredictiveMemory, cooled, descend

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = pytest.importorskip("torch")

SIZES = (6, 5, 4)  # pixels and two hidden layers
VARIANCE = 0.3
EACH = pytest.mark.parametrize("memory_type", [GPCN, BayesPCN])
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")),
]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def chain(activation: Any = "gelu", uncertain: bool = True, seed: int = 0) -> Chain:
    layers = []
    for depth, (size, parents) in enumerate(zip(SIZES, (*SIZES[1:], 1))):
        root = numbers(parents, parents, seed=seed + 10 + depth)
        covariance = root @ root.T / parents + 0.1 * torch.eye(parents)
        layers.append(Layer(numbers(parents, size, seed=seed + depth), covariance if uncertain else None))
    return Chain(layers, activation, VARIANCE)


def values(samples: int = 3, seed: int = 5) -> list[Tensor]:
    return [numbers(samples, size, seed=seed + depth) for depth, size in enumerate(SIZES)]


def parents(model: Chain, x: list[Tensor], depth: int) -> Tensor:
    f = {"gelu": torch.nn.GELU(), "relu": torch.nn.ReLU()}[model.activation]
    z: Tensor = f(x[depth + 1]) if depth + 1 < len(x) else torch.ones(len(x[0]), 1, dtype=torch.float64)
    return z


def energy(model: Chain, x: list[Tensor]) -> Tensor:
    """Minus the log-density, each child a Gaussian whose weights are integrated out, by torch's own distributions."""
    total = torch.zeros(len(x[0]), dtype=torch.float64)
    for depth, layer in enumerate(model.layers):
        z = parents(model, x, depth)
        uncertain = 0 if layer.covariance is None else torch.einsum("bi,ij,bj->b", z, layer.covariance, z)
        spread = torch.as_tensor(model.variance + uncertain, dtype=torch.float64).expand(len(z))
        normal = torch.distributions.Normal(z @ layer.mean, spread.sqrt()[:, None])
        total = total - normal.log_prob(x[depth]).sum(1)  # type: ignore[no-untyped-call]
    return total


def close(actual: Any, expected: Any, rtol: float = 1e-12, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def random_pictures(n: int = 4) -> NDArray[np.float32]:
    return np.random.default_rng(0).random((n, 8, 8), np.float32)


def small(memory_type: type[PredictiveMemory], **settings: Any) -> Any:
    if memory_type is GPCN:
        settings = {"epochs": 2, **settings}
    return memory_type((8, 8), **{"width": 16, "hidden": 2, "steps": 20, **settings})


def state(memory: PredictiveMemory) -> list[Tensor]:
    found = [memory._log_weights]
    for one in memory._chains:
        for layer in one.layers:
            found += [layer.mean] if layer.covariance is None else [layer.mean, layer.covariance]
    return found


# -- the chain -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uncertain", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_energy_and_gradient_are_those_of_autograd(activation: str, uncertain: bool) -> None:
    model = chain(activation, uncertain)
    x = [value.requires_grad_() for value in values()]
    expected = energy(model, x)
    gradients = torch.autograd.grad(expected.sum(), x)
    found, by_hand = model.energy([value.detach() for value in x])
    close(found, expected.detach())
    for one, other in zip(by_hand, gradients, strict=True):
        close(one, other)


@pytest.mark.parametrize("uncertain", [False, True])
def test_gradient_is_that_of_finite_differences(uncertain: bool) -> None:
    model, x, h = chain("gelu", uncertain), values(), 1e-5
    _, gradients = model.energy(x)
    for depth, gradient in enumerate(gradients):
        direction = numbers(*x[depth].shape, seed=99)
        ends = []
        for sign in (1, -1):
            moved = list(x)
            moved[depth] = x[depth] + sign * h * direction
            ends.append(model.energy(moved)[0])
        close((ends[0] - ends[1]) / (2 * h), (gradient * direction).sum(1), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("missing", ["none", "the same of all", "each its own", "all"])
@pytest.mark.parametrize("pixels", [3, 9, 40])
@pytest.mark.parametrize("uncertain", [False, True])
def test_clamped_pixels_in_few_coordinates_change_no_energy(uncertain: bool, pixels: int, missing: str) -> None:
    """Fewer pixels than parents, about as many, and many more; a quarter of the weights' rows repeat another."""
    widths, x = (pixels, 8, 8, 1), [numbers(5, width, seed=width) for width in (pixels, 8, 8)]
    layers = []
    for seed, (children, parents) in enumerate(pairwise(widths)):
        mean = numbers(parents, children, seed=seed)
        mean[: parents // 4] = mean[parents // 4 : parents // 4 * 2]
        root = numbers(parents, parents, seed=10 + seed)
        layers.append(Layer(mean, root @ root.T if uncertain else None))
    model = Chain(layers, "gelu", 0.3)
    seen = {
        "none": None,
        "the same of all": (torch.arange(pixels) % 4 > 0).expand(5, -1),
        "each its own": numbers(5, pixels, seed=77) > -0.5,
        "all": torch.zeros(5, pixels, dtype=torch.bool),
    }[missing]
    clamped, given = model.clamp(x[0], seen)
    if missing == "none":
        assert given.shape[1] == min(pixels, 16)
    if seen is not None:  # what is missing is where the energy is least
        x[0] = torch.where(seen, x[0], model.predict(x[1:])[0])
    expected, gradients = model.energy(x)
    found, fast = clamped.energy([given, *x[1:]])
    close(found, expected, rtol=1e-10)
    close(fast[1:], gradients[1:], rtol=1e-10, atol=1e-10)
    if seen is not None:
        assert (gradients[0][~seen].abs() < 1e-12).all()


def test_gradient_of_several_particles_is_that_of_autograd() -> None:
    memory = small(BayesPCN, particles=3)
    memory._chains = [chain(seed=seed) for seed in (0, 100, 200)]
    memory._log_weights = torch.log_softmax(numbers(3), 0)
    x = [value.requires_grad_() for value in values()]
    density = sum(w.exp() * (-energy(one, x)).exp() for w, one in zip(memory._log_weights, memory._chains))
    expected = -torch.as_tensor(density).log()
    gradients = torch.autograd.grad(expected.sum(), x)
    found, by_hand = memory._mixed([one.energy([value.detach() for value in x]) for one in memory._chains])
    close(found, expected.detach())
    for one, other in zip(by_hand, gradients, strict=True):
        close(one, other)


def test_prediction_of_several_particles_is_the_minimum_over_the_pixels() -> None:
    memory = small(BayesPCN, particles=2)
    memory._chains = [chain(seed=seed) for seed in (0, 100)]
    memory._log_weights = torch.tensor([0.0, -1e4], dtype=torch.float64)  # as after a few writes
    x = values()
    x[0] = memory._predict([(one, x[0]) for one in memory._chains], x[1:])
    assert memory._mixed([one.energy(x) for one in memory._chains])[1][0].abs().max() < 1e-9


def test_weight_step_is_that_of_autograd() -> None:
    model, x, rate = chain(uncertain=False), values(), 1e-3
    means = [layer.mean.clone() for layer in model.layers]
    for layer in model.layers:
        layer.mean.requires_grad_()
    gradients = torch.autograd.grad(energy(model, x).mean(), [layer.mean for layer in model.layers])
    for layer in model.layers:
        layer.mean = layer.mean.detach().clone()
    model.step(x, rate / VARIANCE)
    for layer, before, gradient in zip(model.layers, means, gradients, strict=True):
        close(layer.mean, before - rate * gradient)


def test_writes_are_bayesian_linear_regression() -> None:
    model, x = chain(), values(samples=7)
    before = model.copy(torch.float64)
    for sample in range(7):
        model.write([value[sample : sample + 1] for value in x])
    for depth, (layer, prior) in enumerate(zip(model.layers, before.layers, strict=True)):
        assert prior.covariance is not None
        z = parents(model, x, depth)
        precision = torch.linalg.inv(prior.covariance)
        covariance = torch.linalg.inv(precision + z.T @ z / VARIANCE)
        close(layer.covariance, covariance, rtol=1e-9)
        close(layer.mean, covariance @ (precision @ prior.mean + z.T @ x[depth] / VARIANCE), rtol=1e-9, atol=1e-10)


def test_a_write_shrinks_the_error_by_the_share_of_noise() -> None:
    model, x = chain(), values(samples=1)
    before, spread = model.predict(x[1:])
    model.write(x)
    after, _ = model.predict(x[1:])
    close(x[0] - after, (x[0] - before) * VARIANCE / spread)


def test_forgetting_everything_nothing_and_in_parts() -> None:
    prior, model = chain(), chain()
    for sample in range(3):
        model.write(values(1, seed=20 + sample))
    often = model
    for _ in range(4):
        often = often.drifted(prior, 0.1)
    for one, other in zip(often.layers, model.drifted(prior, 1 - 0.9**4).layers, strict=True):
        close(one.mean, other.mean)
        close(one.covariance, other.covariance)
    for expected, found in ((model, model.drifted(prior, 0.0)), (prior, model.drifted(prior, 1.0))):
        for one, other in zip(expected.layers, found.layers, strict=True):
            close(one.mean, other.mean, rtol=0, atol=0)
            close(one.covariance, other.covariance, rtol=0, atol=0)


# -- descent -------------------------------------------------------------------------------------------------------


def quadratic(x: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    return 50 * x[0].square().sum(1), [100 * x[0]]


def test_descent_stops_when_all_are_still() -> None:
    _, taken = descend(quadratic, [torch.zeros(3, 2)], np.full(500, 0.01))
    assert taken == LOOK
    restless = torch.zeros(3, 2)
    restless[1] = 1
    found, taken = descend(quadratic, [restless], np.full(2000, 0.01))
    assert 100 < taken < 2000  # it moves about 0.01 in a step, from 1 to 0
    assert found.max() < 0.1  # it swings out around 0, and started at 100
    assert descend(quadratic, [torch.ones(1, 2)], np.full(7, 0.01))[1] == 7


def test_the_first_step_of_descent_is_the_rate() -> None:
    x = [torch.tensor([[1.0, -2.0]], dtype=torch.float64)]
    descend(quadratic, x, np.array([0.01]))
    close(x[0], torch.tensor([[0.99, -1.99]], dtype=torch.float64), rtol=1e-9)


def test_smaller_steps_come_to_rest() -> None:
    """In a valley with a sharp ground, descent at one rate jumps across it."""

    def sharp(x: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        return x[0].abs().sum(1), [x[0].sign()]

    start = numbers(50, 4) / 4
    hovers, _ = descend(sharp, [start.clone()], np.full(600, 0.01))
    rests, _ = descend(sharp, [start.clone()], cooled(600, 0.01))
    assert rests.mean() < hovers.mean() / 3


def test_samples_descend_independently() -> None:
    model, together = chain(), values()
    alone = [[value[row : row + 1].clone() for value in together] for row in range(3)]
    _, taken = descend(model.energy, together, np.full(40, 0.01))
    assert taken == 40  # else the batch would have waited for others
    for row, x in enumerate(alone):
        descend(model.energy, x, np.full(40, 0.01))
        for one, other in zip(x, together):
            close(one[0], other[row])


@pytest.mark.parametrize("uncertain", [False, True])
def test_descending_in_the_pixels_ends_at_the_prediction(uncertain: bool) -> None:
    model, x = chain(uncertain=uncertain), values()
    model.variance = 1e-4  # as published: where the energy is still, the pixels are there
    for layer in model.layers:
        layer.covariance = None if layer.covariance is None else layer.covariance * 1e-5  # as after a write
    expected, _ = model.predict(x[1:])
    pixels = [expected + 0.5 * numbers(*expected.shape, seed=7).clamp(-1, 1)]

    def energy(pixels: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        total, gradients = model.energy([*pixels, *x[1:]])
        return total, gradients[:1]

    descend(energy, pixels, np.full(1000, 0.01))
    assert (pixels[0] - expected).square().mean() < 1e-6


# -- the memories --------------------------------------------------------------------------------------------------


def test_belief_after_writes() -> None:
    memory, n = small(BayesPCN), 5
    traces = [math.inf] * 3
    for number, picture in enumerate(random_pictures(n), start=1):
        memory.learn(picture)
        layers = memory._beliefs[0].layers
        assert layers[-1].covariance.item() == pytest.approx(1 / (1 + number / 1e-4), rel=1e-9)
        for depth, layer in enumerate(layers):
            U = layer.covariance
            assert torch.equal(U, U.T)
            assert torch.linalg.eigvalsh(U)[0] > 0
            assert U.trace() <= traces[depth]
            traces[depth] = float(U.trace())
            lost = torch.linalg.svdvals(torch.eye(len(U), dtype=torch.float64) - U)
            assert (lost[number:] < 1e-9).all()
    assert memory.step == n


@pytest.mark.parametrize("particles", [1, 2])
def test_a_batch_is_a_loop(particles: int) -> None:
    x = random_pictures(5)
    settings = {"particles": particles, "forget": 0.1, "forget_every": 2}
    batch, loop = small(BayesPCN, **settings), small(BayesPCN, **settings)
    scores = batch.learn(x).score
    assert [loop.learn(one).score for one in x] == scores.tolist()
    assert all(map(torch.equal, state(batch), state(loop)))


def test_forgetting_comes_before_every_so_many_images() -> None:
    x = random_pictures(5)
    scheduled, by_hand = small(BayesPCN, forget=0.25, forget_every=2), small(BayesPCN)
    scheduled.learn(x)
    for number, one in enumerate(x):
        if number in (2, 4):
            by_hand.forget(0.25)
        by_hand.learn(one)
    assert all(map(torch.equal, state(scheduled), state(by_hand)))


def test_a_memory_that_forgets_all_has_its_prior() -> None:
    memory, new = small(BayesPCN), small(BayesPCN)
    memory.learn(random_pictures())
    assert not any(map(torch.equal, state(memory)[1:], state(new)[1:]))
    memory.forget(1)
    assert all(map(torch.equal, state(memory), state(new)))


def test_weights_of_particles_are_a_softmax_of_what_they_predicted() -> None:
    memory, again = small(BayesPCN, particles=3), small(BayesPCN, particles=3)
    picture = random_pictures(1)
    score = memory.learn(picture[0]).score
    predicted = []
    for one in again._chains:
        x = [again._inside(picture), *again._hidden(1, again._random)]
        again._settle([(one, x[0])], x[1:], np.full(again.steps, again.rate))
        predicted.append(-energy(one.copy(torch.float64), [value.double() for value in x]))
    joint = torch.cat(predicted) - math.log(3)
    assert score == pytest.approx(joint.logsumexp(0).item(), rel=1e-5)
    close(memory._log_weights.double(), joint.log_softmax(0), rtol=1e-4, atol=1e-2)


def test_an_interrupted_write_leaves_the_memory_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = small(BayesPCN, forget=0.5, forget_every=1)
    memory.learn(random_pictures(2))
    before = [value.clone() for value in state(memory)]

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sqhn.paper.baselines.predictive.descend", interrupted)
    with pytest.raises(KeyboardInterrupt):
        memory.learn(random_pictures())
    assert memory.step == 2
    assert all(map(torch.equal, state(memory), before))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "build",
    [
        lambda device: small(BayesPCN, width=32, steps=200, rate=0.03, device=device),
        lambda device: small(BayesPCN, width=32, steps=200, rate=0.03, particles=2, activation="relu", device=device),
        lambda device: small(GPCN, width=32, epochs=30, steps=60, rate=0.05, device=device),
    ],
    ids=["bayes", "bayes, 2 particles, relu", "gpcn"],
)
def test_pictures_come_back(build: Callable[[str], Any], device: str) -> None:
    x = random_pictures()
    memory = build(device)
    memory.learn(x)
    seen = np.random.default_rng(1).random(x.shape) >= 0.25
    filled = np.where(seen, x, 0)
    fill = np.square(filled - x)[~seen].mean()
    completed = memory.recall(np.where(seen, x, np.nan), observed=seen).x
    np.testing.assert_array_equal(completed[seen], x[seen])
    assert np.square(completed - x)[~seen].mean() < fill / 100
    noisy = (x + np.random.default_rng(2).normal(0, 0.2, x.shape)).astype(np.float32)
    assert np.square(memory.recall(noisy).x - x).mean() < np.square(noisy - x).mean() / 2


@EACH
def test_what_is_missing_plays_no_part(memory_type: type[PredictiveMemory]) -> None:
    """Whatever stands there, whether the same pixels of all samples are missing or each its own."""
    memory, x = small(memory_type), random_pictures()
    memory.learn(x)
    same = np.broadcast_to(np.arange(64).reshape(8, 8) % 2 == 0, x.shape)
    own = np.random.default_rng(1).random(x.shape) > 0.5
    for seen in (same, own):
        first, second = (memory.recall(np.where(seen, x, fill), seen) for fill in (0, np.nan))
        np.testing.assert_array_equal(first.x, second.x)
        np.testing.assert_array_equal(first.score, second.score)
        np.testing.assert_array_equal(first.x[seen], x[seen])


@pytest.mark.parametrize("memory_type", [GPCN, BayesPCN])
def test_recall_has_steps_of_its_own(memory_type: type[PredictiveMemory], monkeypatch: pytest.MonkeyPatch) -> None:
    x, seen = random_pictures(), np.broadcast_to(np.arange(8) < 4, (8, 8))
    memory = small(memory_type, steps=7, recall_steps=13)
    asked = []

    def look(energy: Any, x: Any, rates: NDArray[np.float64]) -> Any:
        asked.append(rates.tolist())
        return descend(energy, x, rates)

    monkeypatch.setattr("sqhn.paper.baselines.predictive.descend", look)
    memory.learn(x)
    assert all(rates == [memory.rate] * 7 for rates in asked)
    asked.clear()
    memory.recall(x)
    memory.recall(x, seen)
    for rates in asked:  # the same for as long as it comes down, then less and less
        assert len(rates) == 13
        assert rates[:7] == [memory.rate] * 7
        assert (np.diff(rates[6:]) < 0).all()
        assert 0 < rates[-1] < memory.rate / 5
    assert len(asked) == 2


def test_progress_and_stopping() -> None:
    memory = small(GPCN, epochs=5)
    heard: list[tuple[int, float]] = []
    score = memory.learn(random_pictures(), progress=lambda epoch, mean: heard.append((epoch, mean))).score
    assert [epoch for epoch, _ in heard] == [1, 2, 3, 4, 5]
    assert heard[-1][1] == pytest.approx(-score.mean(), rel=1e-6)
    assert heard[-1][1] < heard[0][1]
    stopped = small(GPCN, epochs=5)
    stopped.learn(random_pictures(), progress=lambda epoch, _: epoch == 2)
    fewer = small(GPCN, epochs=2)
    fewer.learn(random_pictures())
    assert all(map(torch.equal, state(stopped), state(fewer)))


# -- the door ------------------------------------------------------------------------------------------------------


@EACH
def test_results_of_one_sample_and_of_a_batch(memory_type: type[PredictiveMemory]) -> None:
    memory, x = small(memory_type), random_pictures()
    written = memory.learn(x)
    assert written.index.tolist() == [-1] * 4
    assert written.grew.tolist() == [False] * 4
    assert written.score.shape == (4,)
    recalled = memory.recall(x)
    assert (recalled.x.shape, recalled.x.dtype, recalled.score.shape) == (x.shape, np.float32, (4,))
    one = memory.recall(x[0], np.ones((8, 8), bool))
    np.testing.assert_array_equal(one.x, x[0])
    assert (one.index, type(one.score)) == (-1, float)
    one = memory.learn(x[0])
    assert (one.index, one.grew, type(one.score)) == (-1, False, float)
    assert memory.step == 5


@EACH
def test_bytes_are_read_as_fractions(memory_type: type[PredictiveMemory]) -> None:
    x = (random_pictures() * 255).astype(np.uint8)
    first, second = small(memory_type), small(memory_type)
    first.learn(x)
    second.learn(x / np.float32(255))
    np.testing.assert_array_equal(first.recall(x).x, second.recall(x / np.float32(255)).x)


@EACH
def test_recall_changes_nothing_and_reset_all(memory_type: type[PredictiveMemory]) -> None:
    x, known = random_pictures(), torch.random.get_rng_state()
    memory, other = small(memory_type), small(memory_type)
    memory.learn(x[:2])
    other.learn(x[:2])
    first = memory.recall(x).x
    np.testing.assert_array_equal(memory.recall(x).x, first)
    memory.learn(x[2:])
    other.learn(x[2:])
    assert all(map(torch.equal, state(memory), state(other)))
    memory.reset()
    memory.learn(x[:2])
    np.testing.assert_array_equal(memory.recall(x).x, first)
    assert not np.array_equal(small(memory_type, seed=1)._chains[0].layers[0].mean, memory._chains[0].layers[0].mean)
    assert torch.equal(torch.random.get_rng_state(), known)  # the user's random numbers are the user's


@EACH
def test_what_is_refused(memory_type: type[PredictiveMemory]) -> None:
    memory, x = small(memory_type), random_pictures()
    with pytest.raises(EmptyMemoryError):
        memory.recall(x)
    with pytest.raises(UnsupportedError, match=memory_type.__name__):
        memory.recognize(x)
    with pytest.raises(ValueError, match="not finite"):
        memory.learn(np.full((8, 8), np.nan))
    with pytest.raises(ValueError, match=r"\(8, 8\)"):
        memory.learn(np.zeros((3, 3)))
    with pytest.raises(EmptyMemoryError):
        memory.recall(x)
    for bad in (
        {"steps": 0},
        {"rate": 0.0},
        {"sigma": -1.0},
        {"recall_steps": 0},
        {"hidden": 0},
        {"activation": "tanh"},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            small(memory_type, **bad)


@pytest.mark.parametrize(
    ("memory_type", "bad"),
    [
        (GPCN, {"epochs": 0}),
        (GPCN, {"weight_rate": 0.0}),
        (BayesPCN, {"particles": 0}),
        (BayesPCN, {"forget": 1.5}),
        (BayesPCN, {"forget_every": 0}),
        (BayesPCN, {"sigma_prior": math.inf}),
    ],
)
def test_settings_of_its_own(memory_type: type[PredictiveMemory], bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        small(memory_type, **bad)


def test_without_torch_only_building_a_model_fails() -> None:
    code = """
import sys
sys.modules["torch"] = None
from sqhn.paper.baselines.bayes import BayesPCN
from sqhn.paper.baselines.predictive import GPCN
for memory_type in (GPCN, BayesPCN):
    try:
        memory_type((8, 8))
    except ImportError as error:
        assert "pip install 'sqhn[torch]'" in str(error)
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@EACH
def test_descending_again_and_again_takes_no_more_of_the_gpu(memory_type: Any) -> None:
    x = np.random.default_rng(0).random((20, 16), np.float32)
    memory = memory_type((16,), 64, steps=20, device="cuda", **({"epochs": 20} if memory_type is GPCN else {}))
    memory.learn(x)
    before = torch.cuda.memory_reserved()
    for _ in range(5):
        memory.learn(x)
        memory.recall(x)
    assert torch.cuda.memory_reserved() <= before + 2**25
