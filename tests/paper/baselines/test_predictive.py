"""GPCN and BayesPCN: mixtures of chains, learning, recall, and errors."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import EmptyMemoryError
from sqhn.paper.baselines.bayes import BayesPCN
from sqhn.paper.baselines.descent import descend
from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.predictive import GPCN, PredictiveMemory
from tests.paper.baselines.chains import assert_close, chain, energy, numbers, values

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = pytest.importorskip("torch")

BOTH = pytest.mark.parametrize("memory_type", [GPCN, BayesPCN])
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")),
]


def random_images(n: int = 4) -> NDArray[np.float32]:
    return np.random.default_rng(0).random((n, 8, 8), np.float32)


def small(memory_type: type[PredictiveMemory], **settings: Any) -> Any:
    if memory_type is GPCN:
        settings = {"epochs": 2, **settings}
    return memory_type((8, 8), **{"width": 16, "hidden": 2, "steps": 20, **settings})


def state(memory: PredictiveMemory) -> list[Tensor]:
    found = [memory.log_weights]
    for one in memory.chains:
        for layer in one.layers:
            found += [layer.mean] if layer.covariance is None else [layer.mean, layer.covariance]
    return found


# -- mixtures of chains ----------------------------------------------------------------------------------------------


def test_gradient_of_several_particles_matches_autograd() -> None:
    memory = small(BayesPCN, particles=3)
    memory.chains = [chain(seed=seed) for seed in (0, 100, 200)]
    memory.log_weights = torch.log_softmax(numbers(3), 0)
    x = [value.requires_grad_() for value in values()]
    density = sum(w.exp() * (-energy(one, x)).exp() for w, one in zip(memory.log_weights, memory.chains))
    expected = -torch.as_tensor(density).log()
    gradients = torch.autograd.grad(expected.sum(), x)
    found, by_hand = memory.mix([one.energy([value.detach() for value in x]) for one in memory.chains])
    assert_close(found, expected.detach())
    for one, other in zip(by_hand, gradients, strict=True):
        assert_close(one, other)


def test_prediction_of_several_particles_minimizes_the_energy() -> None:
    memory = small(BayesPCN, particles=2)
    memory.chains = [chain(seed=seed) for seed in (0, 100)]
    memory.log_weights = torch.tensor([0.0, -1e4], dtype=torch.float64)  # as after a few writes
    x = values()
    x[0] = memory.predict([(one, x[0]) for one in memory.chains], x[1:])
    assert memory.mix([one.energy(x) for one in memory.chains])[1][0].abs().max() < 1e-9


# -- learning and recall ---------------------------------------------------------------------------------------------


def test_belief_after_writes() -> None:
    memory, n = small(BayesPCN), 5
    traces = [math.inf] * 3
    for number, image in enumerate(random_images(n), start=1):
        memory.learn(image)
        layers = memory.beliefs[0].layers
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
def test_learning_a_batch_equals_the_loop(particles: int) -> None:
    x = random_images(5)
    settings = {"particles": particles, "forget": 0.1, "forget_every": 2}
    batch, loop = small(BayesPCN, **settings), small(BayesPCN, **settings)
    scores = batch.learn(x).score
    assert [loop.learn(one).score for one in x] == scores.tolist()
    assert all(map(torch.equal, state(batch), state(loop)))


def test_forgetting_is_scheduled_before_every_second_image() -> None:
    x = random_images(5)
    scheduled, by_hand = small(BayesPCN, forget=0.25, forget_every=2), small(BayesPCN)
    scheduled.learn(x)
    for number, one in enumerate(x):
        if number in (2, 4):
            by_hand.forget(0.25)
        by_hand.learn(one)
    assert all(map(torch.equal, state(scheduled), state(by_hand)))


def test_forgetting_everything_restores_the_prior() -> None:
    memory, new = small(BayesPCN), small(BayesPCN)
    memory.learn(random_images())
    assert not any(map(torch.equal, state(memory)[1:], state(new)[1:]))
    memory.forget(1)
    assert all(map(torch.equal, state(memory), state(new)))


def test_particles_are_weighted_by_a_softmax_of_their_predictions() -> None:
    memory, again = small(BayesPCN, particles=3), small(BayesPCN, particles=3)
    image = random_images(1)
    score = memory.learn(image[0]).score
    predicted = []
    for one in again.chains:
        x = [again.inside(image), *again.hidden_values(1, again.random)]
        again.settle([(one, x[0])], x[1:], np.full(again.steps, again.rate))
        predicted.append(-energy(one.copy(torch.float64), [value.double() for value in x]))
    joint = torch.cat(predicted) - math.log(3)
    assert score == pytest.approx(joint.logsumexp(0).item(), rel=1e-5)
    assert_close(memory.log_weights.double(), joint.log_softmax(0), rtol=1e-4, atol=1e-2)


def test_an_interrupted_write_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = small(BayesPCN, forget=0.5, forget_every=1)
    memory.learn(random_images(2))
    before = [value.clone() for value in state(memory)]

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sqhn.paper.baselines.predictive.descend", interrupted)
    with pytest.raises(KeyboardInterrupt):
        memory.learn(random_images())
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
def test_images_are_recalled(build: Callable[[str], Any], device: str) -> None:
    x = random_images()
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


@BOTH
def test_missing_values_do_not_matter(memory_type: type[PredictiveMemory]) -> None:
    """Whether all samples have the same missing pixels or each has its own."""
    memory, x = small(memory_type), random_images()
    memory.learn(x)
    same = np.broadcast_to(np.arange(64).reshape(8, 8) % 2 == 0, x.shape)
    own = np.random.default_rng(1).random(x.shape) > 0.5
    for seen in (same, own):
        first, second = (memory.recall(np.where(seen, x, fill), seen) for fill in (0, np.nan))
        np.testing.assert_array_equal(first.x, second.x)
        np.testing.assert_array_equal(first.score, second.score)
        np.testing.assert_array_equal(first.x[seen], x[seen])


@BOTH
def test_recall_has_its_own_number_of_steps_and_cools(
    memory_type: type[PredictiveMemory], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, seen = random_images(), np.broadcast_to(np.arange(8) < 4, (8, 8))
    memory = small(memory_type, steps=7, recall_steps=13)
    calls = []

    def look(energy: Any, x: Any, rates: NDArray[np.float64]) -> Any:
        calls.append(rates.tolist())
        return descend(energy, x, rates)

    monkeypatch.setattr("sqhn.paper.baselines.predictive.descend", look)
    memory.learn(x)
    assert all(rates == [memory.rate] * 7 for rates in calls)
    calls.clear()
    memory.recall(x)
    memory.recall(x, seen)
    for rates in calls:  # constant, then falling
        assert len(rates) == 13
        assert rates[:7] == [memory.rate] * 7
        assert (np.diff(rates[6:]) < 0).all()
        assert 0 < rates[-1] < memory.rate / 5
    assert len(calls) == 2


def test_progress_is_called_after_every_epoch_and_can_stop_training() -> None:
    memory = small(GPCN, epochs=5)
    told: list[tuple[int, float]] = []
    score = memory.learn(random_images(), progress=lambda epoch, mean: told.append((epoch, mean))).score
    assert [epoch for epoch, _ in told] == [1, 2, 3, 4, 5]
    assert told[-1][1] == pytest.approx(-score.mean(), rel=1e-6)
    assert told[-1][1] < told[0][1]
    stopped = small(GPCN, epochs=5)
    stopped.learn(random_images(), progress=lambda epoch, _: epoch == 2)
    fewer = small(GPCN, epochs=2)
    fewer.learn(random_images())
    assert all(map(torch.equal, state(stopped), state(fewer)))


# -- results and errors-------------------------------------------------------------------------------------------------


@BOTH
def test_results_for_one_sample_and_for_a_batch(memory_type: type[PredictiveMemory]) -> None:
    memory, x = small(memory_type), random_images()
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


@BOTH
def test_bytes_are_read_as_fractions(memory_type: type[PredictiveMemory]) -> None:
    x = (random_images() * 255).astype(np.uint8)
    first, second = small(memory_type), small(memory_type)
    first.learn(x)
    second.learn(x / np.float32(255))
    np.testing.assert_array_equal(first.recall(x).x, second.recall(x / np.float32(255)).x)


@BOTH
def test_recall_changes_nothing_and_reset_restores_everything(memory_type: type[PredictiveMemory]) -> None:
    x, known = random_images(), torch.random.get_rng_state()
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
    assert not np.array_equal(small(memory_type, seed=1).chains[0].layers[0].mean, memory.chains[0].layers[0].mean)
    assert torch.equal(torch.random.get_rng_state(), known)  # the global random state is not touched


@BOTH
def test_errors(memory_type: type[PredictiveMemory]) -> None:
    memory, x = small(memory_type), random_images()
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
def test_bad_settings_are_named(memory_type: type[PredictiveMemory], bad: dict[str, Any]) -> None:
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
@BOTH
def test_repeated_descent_reuses_gpu_memory(memory_type: Any) -> None:
    x = np.random.default_rng(0).random((20, 16), np.float32)
    memory = memory_type((16,), 64, steps=20, device="cuda", **({"epochs": 20} if memory_type is GPCN else {}))
    memory.learn(x)
    before = torch.cuda.memory_reserved()
    for _ in range(5):
        memory.learn(x)
        memory.recall(x)
    assert torch.cuda.memory_reserved() <= before + 2**25
