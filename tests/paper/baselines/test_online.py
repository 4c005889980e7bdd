"""Modern Hopfield networks trained online: gradients, forward passes and verbs against their definitions."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import EmptyMemoryError, Level
from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.networks import OneLayer, Tree
from sqhn.paper.baselines.online import OnlineMHN, OnlineMHNTree, Trainer, Training
from sqhn.paper.baselines.training import EWC, dense
from sqhn.patches import Tiling, plan

if TYPE_CHECKING:
    from torch import Tensor

torch = pytest.importorskip("torch")

SHAPE = (4, 4, 2)
ONE: dict[str, Any] = {"capacity": 6, "beta": 0.5, "rate": 0.1}
TREE: dict[str, Any] = {"kernels": [2], "capacity": 5, "beta": 0.5, "rate": 0.1}
TRAININGS: list[dict[str, Any]] = [
    {},
    {"optimizer": "adam", "rate": 0.01},
    {"consolidation": 2.0},
    {"replay": 3},
    {"consolidation": 2.0, "replay": 3, "optimizer": "adam", "rate": 0.01},
]


def samples(count: int, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).random((count, *shape), np.float32)


def tensor(*shape: int, seed: int) -> Tensor:
    drawn: Tensor = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return drawn


def one_layer_gradient(W: Tensor, x: Tensor, target: Tensor, beta: float) -> Tensor:
    """By autograd."""
    leaf = W.clone().requires_grad_()
    loss = ((torch.softmax(beta * x @ leaf, 1) @ leaf.T - target) ** 2).sum(1).mean()
    gradient: Tensor = torch.autograd.grad(loss, leaf)[0]
    return gradient


def softmax(x: NDArray[Any]) -> NDArray[Any]:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    result: NDArray[Any] = e / e.sum(axis=-1, keepdims=True)
    return result


def weights(memory: OnlineMHN | OnlineMHNTree) -> list[Tensor]:
    return memory.network.parameters


def same(one: OnlineMHN | OnlineMHNTree, other: OnlineMHN | OnlineMHNTree) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


# -- networks


@pytest.mark.parametrize("batch", [1, 7])
def test_the_gradient_of_one_layer_matches_autograd(batch: int) -> None:
    W, x, target = tensor(12, 5, seed=0), tensor(batch, 12, seed=1), tensor(batch, 12, seed=2)
    found = OneLayer(W, 1.7).backward(x, target)
    expected = one_layer_gradient(W, x, target, 1.7)
    torch.testing.assert_close(dense(found.gradients, W.clone()), expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found.activity, torch.softmax(1.7 * x @ W, 1))


def test_a_sharp_layer_returns_the_stored_sample_of_largest_product() -> None:
    stored, x = tensor(9, 30, seed=0), tensor(20, 30, seed=1)
    recalled = OneLayer(stored.T.contiguous(), 1e6).forward(x)
    best = (x @ stored.T).argmax(1)
    torch.testing.assert_close(recalled.x, stored[best])
    assert torch.equal(recalled.activity.argmax(1), best)


def test_initial_weights_are_uniform_by_the_number_of_neurons() -> None:
    W = weights(OnlineMHN((40, 50), 100, beta=1, rate=1))[0]
    assert W.shape == (2000, 100)
    assert 0.0999 < W.abs().max() <= 0.1
    assert abs(W.mean()) < 4 * 0.1 / math.sqrt(3 * W.numel())


def tree_by_hand(
    x: NDArray[Any], tilings: list[Tiling], matrices: list[NDArray[Any]], beta: float, variant: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The tree for one sample, node by node and child by child."""
    values = [[np.array([pixel]) for pixel in x.ravel()]]
    for level, (tiling, W) in enumerate(zip(tilings, matrices)):
        sent = []
        for node, children in enumerate(tiling.children()):
            below = [values[-1][child] for child in children]
            if variant == "linear":
                entering = np.concatenate([softmax(beta * value) if level else value for value in below])
            else:
                entering = softmax(beta * np.concatenate(below))
            sent.append(entering @ W[node])
        values.append(sent)
    down = values[-1]
    for level in reversed(range(len(tilings))):
        predicted: dict[int, NDArray[Any]] = {}
        for node, children in enumerate(tilings[level].children()):
            received = softmax(beta * down[node]) @ matrices[level][node].T
            predicted.update(zip(children.tolist(), np.split(received, len(children))))
        own = values[level]
        down = [(own[i] + predicted[i]) / 2 if level else predicted[i] for i in range(len(own))]
    return np.concatenate(down).reshape(x.shape), softmax(beta * values[-1][0])


@pytest.mark.parametrize("variant", ["linear", "code"])
def test_a_tree_equals_its_nodes_one_by_one(variant: Any) -> None:
    tilings = plan((8, 4, 2), [Level((2, 2), 3), Level((2, 1), 3), Level(capacity=3)])
    assert [tiling.nodes for tiling in tilings] == [8, 4, 1]
    sizes = [8, 2 * 3, 4 * 3]
    matrices = [tensor(t.nodes, n, 3, seed=i) - 0.5 for i, (t, n) in enumerate(zip(tilings, sizes))]
    model = Tree(tilings, matrices, 1.3, variant)
    x = tensor(5, 64, seed=9)
    recalled = model.forward(x)
    for row, answer, activity in zip(x.numpy(), recalled.x.numpy(), recalled.activity.numpy()):
        arrays = [matrix.numpy() for matrix in matrices]
        expected, top = tree_by_hand(row.reshape(8, 4, 2), list(tilings), arrays, 1.3, variant)
        np.testing.assert_allclose(answer.reshape(8, 4, 2), expected, rtol=1e-12)
        np.testing.assert_allclose(activity, top, rtol=1e-12)


def small_tree(variant: Any) -> tuple[Tree, list[Tiling]]:
    tilings = plan(SHAPE, [Level(2, 3), Level(capacity=3)])
    return Tree(tilings, [tensor(4, 8, 3, seed=0), tensor(1, 12, 3, seed=1)], 2.0, variant), list(tilings)


@pytest.mark.parametrize("variant", ["linear", "code"])
def test_tree_gradients_match_finite_differences(variant: Any) -> None:
    """Variant "code" does not differentiate the way up, so a second copy of the model holds it fixed here."""
    model, tilings = small_tree(variant)
    x, target = tensor(2, 32, seed=2), tensor(2, 32, seed=3)

    def loss(matrices: list[Tensor]) -> float:
        up = model if variant == "code" else Tree(tilings, matrices, 2.0, variant)
        sent = up.up(x)
        value = sent[-1]
        top = torch.softmax(2 * value, 2) @ matrices[1].mT
        value = (sent[0] + model.scatter(1, top)) / 2
        out = model.scatter(0, torch.softmax(2 * value, 2) @ matrices[0].mT)[:, :, 0].T
        return float(((out - target) ** 2).sum() / (2 * 16))  # two samples of 16 pixels

    for number, product in enumerate(model.backward(x, target).gradients):
        gradient = dense([product], model.parameters[number].clone())
        for place in [(0, 0, 0), (-1, 5, 2), (0, 7, 1)]:
            sides = []
            for step in (1e-6, -1e-6):
                moved = [matrix.clone() for matrix in model.parameters]
                moved[number][place] += step
                sides.append(loss(moved))
            assert float(gradient[place]) == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-5, abs=1e-9)


def test_the_published_variant_differentiates_only_the_way_down() -> None:
    model, _ = small_tree("code")
    x, target = tensor(3, 32, seed=4), tensor(3, 32, seed=5)
    leaves = [matrix.clone().requires_grad_() for matrix in model.parameters]
    first, top = model.up(x)
    received = model.scatter(1, torch.softmax(2 * top, 2) @ leaves[1].mT)
    out = model.scatter(0, torch.softmax(first + received, 2) @ leaves[0].mT)[:, :, 0].T
    expected = torch.autograd.grad(((out - target) ** 2).sum() / (16 * 3), leaves)
    for gradient, other in zip(model.backward(x, target).gradients, expected, strict=True):
        torch.testing.assert_close(dense([gradient], other.clone()), other, rtol=1e-12, atol=1e-15)


# -- training


@pytest.mark.parametrize("build", [lambda: OnlineMHN(SHAPE, **ONE), lambda: OnlineMHNTree(SHAPE, **TREE)])
def test_replay_starts_as_plain_descent(build: Any) -> None:
    """The buffer is empty when the first sample is learned."""
    plain, x = build(), samples(1)
    replaying = type(plain)(SHAPE, **(ONE if isinstance(plain, OnlineMHN) else TREE), replay=64)
    plain.learn(x)
    replaying.learn(x)
    assert same(plain, replaying)


def test_replay_learns_the_mean_loss_of_the_buffer() -> None:
    memory, x = OnlineMHN(SHAPE, **ONE, replay=64, squeeze=(1.0, 0.0)), samples(3)
    memory.learn(x[:2])
    W = weights(memory)[0].clone()
    rows = torch.from_numpy(x.reshape(3, -1))
    memory.learn(x[2])
    torch.testing.assert_close(weights(memory)[0], W - 0.1 * one_layer_gradient(W, rows, rows, 0.5))


def test_consolidation_of_strength_zero_changes_nothing() -> None:
    """Bit for bit."""
    trainers = []
    for _ in range(2):
        model = OneLayer(torch.rand(8, 4, generator=torch.Generator().manual_seed(0)), 0.5)
        trainers.append(Trainer(model, Training(0.1), torch.empty(8), 0))
    trainers[1].consolidation = EWC(trainers[1].network.parameters, 0.0)
    for x in torch.rand(10, 1, 8):
        for trainer in trainers:
            trainer.step(x, x)
    assert torch.equal(*(trainer.network.parameters[0] for trainer in trainers))


def test_importance_is_the_squared_plain_gradient_after_the_step() -> None:
    memory, x = OnlineMHN(SHAPE, **ONE, consolidation=3.0, squeeze=(1.0, 0.0)), samples(2)
    start = weights(memory)[0].clone()
    rows = torch.from_numpy(x.reshape(2, -1))

    def gradient(W: Tensor, row: Tensor) -> Tensor:
        return one_layer_gradient(W, row, row, 0.5)

    first = start - 0.1 * gradient(start, rows[:1])
    anchor, importance = (start + first) / 2, gradient(first, rows[:1]) ** 2
    second = first - 0.1 * (gradient(first, rows[1:]) + 2 * 3.0 * importance * (first - anchor))
    memory.learn(x)
    torch.testing.assert_close(weights(memory)[0], second)


# -- verbs


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize(("kind", "base"), [(OnlineMHN, ONE), (OnlineMHNTree, TREE)])
def test_learning_a_batch_equals_the_loop(
    kind: type[Any], base: dict[str, Any], training: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqhn.paper.baselines.online.BATCH_SIZE", 5)
    x, target = samples(12), samples(12, seed=1)
    together, alone = (kind(SHAPE, **{**base, **training}) for _ in range(2))
    written = together.learn(x, target)
    for i, (one, goal) in enumerate(zip(x, target)):
        index, grew, score, step, _ = alone.learn(one, goal)
        assert (index, grew, score, step) == (written.index[i], False, written.score[i], i + 1)
        assert (type(index), type(grew), type(score)) == (int, bool, float)
    assert same(together, alone)
    assert together.step == alone.step == 12
    recalled = together.recall(x)
    assert recalled.x.dtype == np.float32
    assert recalled.index.dtype == written.index.dtype == np.int32
    for i, one in enumerate(x):
        np.testing.assert_allclose(alone.recall(one).x, recalled.x[i], rtol=1e-5, atol=1e-6)
    if kind is OnlineMHN:
        for a, b in zip(together.recognize(x)[:3], zip(*map(alone.recognize, x))):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_one_layer_by_hand() -> None:
    """One step with a target, its result, and the recall after it, in the range of values of the caller."""
    memory = OnlineMHN((3,), 2, beta=2.0, rate=0.25, squeeze=(0.5, 0.25))
    W = weights(memory)[0].double().numpy().copy()
    x, target = np.array([0.0, 1.0, 0.5]), np.array([1.0, 0.0, 0.5])
    u, goal = 0.5 * x + 0.25, 0.5 * target + 0.25
    z = softmax(2 * u @ W)
    slope = 2 * (W @ z - goal)
    through = 2 * z * (W.T @ slope - z @ (W.T @ slope))
    moved = W - 0.25 * (np.outer(slope, z) + np.outer(u, through))
    written = memory.learn(x, target)
    assert (written.index, written.grew) == (z.argmax(), False)
    assert written.score == pytest.approx(z.max())
    np.testing.assert_allclose(weights(memory)[0], moved, rtol=1e-5)
    after = softmax(2 * u @ moved)
    recalled = memory.recall(x)
    np.testing.assert_allclose(recalled.x, (moved @ after - 0.25) / 0.5, rtol=1e-4)
    assert recalled.index == after.argmax()
    assert recalled.score == pytest.approx(after.max())


def test_the_error_of_a_repeated_sample_falls() -> None:
    x = samples(1)
    for memory in (OnlineMHN(SHAPE, **ONE), OnlineMHNTree(SHAPE, **TREE), OnlineMHNTree(SHAPE, **TREE, variant="code")):
        errors = []
        for _ in range(4):
            memory.learn(np.repeat(x, 25, axis=0))
            errors.append(float(np.square(memory.recall(x).x - x).mean()))
        assert all(later < earlier for earlier, later in pairwise(errors))


def test_missing_values_are_taken_as_black() -> None:
    x, seen = samples(6), np.random.default_rng(2).random(SHAPE) < 0.5
    for memory in (OnlineMHN(SHAPE, **ONE), OnlineMHNTree(SHAPE, **TREE)):
        memory.learn(x)
        black = memory.recall(np.where(seen, x, np.float32(0)))
        np.testing.assert_array_equal(memory.recall(np.where(seen, x, np.nan), seen).x, black.x)
        assert x.min() > 0  # the samples were not changed


def test_bytes_are_read_as_fractions() -> None:
    bytes_ = (samples(4) * 255).astype(np.uint8)
    one, other = OnlineMHN(SHAPE, **ONE), OnlineMHN(SHAPE, **ONE)
    one.learn(bytes_)
    other.learn(bytes_.astype(np.float32) / np.float32(255))
    assert same(one, other)


def test_seeds_and_reset() -> None:
    x = samples(8)
    for kind, base in ((OnlineMHN, ONE), (OnlineMHNTree, TREE)):
        first, second, other = (kind(SHAPE, **base, replay=2, seed=seed) for seed in (3, 3, 4))
        torch.manual_seed(5)
        state = torch.get_rng_state()
        for memory in (first, second, other):
            memory.learn(x)
        assert torch.equal(torch.get_rng_state(), state)  # the global random state is not touched
        assert same(first, second)
        assert not same(first, other)
        first.reset()
        assert first.step == 0
        first.learn(x)
        assert same(first, second)
        assert (len(first), first.step) == (base["capacity"], 8)
        assert repr(first).startswith(f"{kind.__name__}((4, 4, 2), {base['capacity']} neurons, step 8")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize(("kind", "base"), [(OnlineMHN, ONE), (OnlineMHNTree, TREE)])
def test_a_cuda_device_computes_the_same(kind: type[Any], base: dict[str, Any], training: dict[str, Any]) -> None:
    x = samples(20)
    here, there = (kind(SHAPE, **{**base, **training}, device=device) for device in ("cpu", "cuda"))
    np.testing.assert_allclose(there.learn(x).score, here.learn(x).score, rtol=1e-3)
    np.testing.assert_allclose(there.recall(x).x, here.recall(x).x, rtol=1e-2, atol=1e-3)
    if kind is OnlineMHN:
        np.testing.assert_allclose(there.recognize(x).threshold, here.recognize(x).threshold, rtol=1e-3)


# -- recognition


def test_recognition_by_activity_on_two_samples() -> None:
    memory, x = OnlineMHN(SHAPE, **ONE, rho=1.0, squeeze=(1.0, 0.0)), samples(2)
    activities = []
    for one in x:
        W = weights(memory)[0].numpy()
        activities.append(softmax(0.5 * one.ravel() @ W))
        memory.learn(one)
    mean = (activities[0] + activities[1]) / 2
    z = softmax(0.5 * samples(1, seed=7).reshape(-1) @ weights(memory)[0].numpy())
    judged = memory.recognize(samples(1, seed=7)[0])
    assert judged.score == pytest.approx(z.max(), rel=1e-5)
    assert judged.threshold == pytest.approx(mean[z.argmax()], rel=1e-5)
    assert judged.old is bool(z.max() >= mean[z.argmax()])


def test_recognition_by_error_on_two_samples() -> None:
    memory, x = OnlineMHN(SHAPE, **ONE, recognition="error", rho=0.8), samples(2)
    errors = []
    for one in x:
        memory.learn(one)
        errors.append(float(np.square(memory.recall(one).x - one).mean()))  # after the step
    judged = memory.recognize(x)
    now = np.square(memory.recall(x).x - x).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(judged.score, -now, rtol=1e-5)
    np.testing.assert_allclose(judged.threshold, -0.8 * np.mean(errors), rtol=1e-5)
    np.testing.assert_array_equal(judged.old, now <= 0.8 * np.mean(errors))


def test_default_tolerances_and_an_empty_memory() -> None:
    assert OnlineMHN(SHAPE, **ONE).rho == 70
    empty = OnlineMHN(SHAPE, **ONE, recognition="error")
    assert empty.rho == 0.5
    assert not empty.recognize(samples(3)).old.any()
    for memory in (empty, OnlineMHNTree(SHAPE, **TREE)):
        with pytest.raises(EmptyMemoryError):
            memory.recall(samples(1))


def test_a_tree_does_not_recognize() -> None:
    with pytest.raises(UnsupportedError, match="OnlineMHNTree cannot recognize"):
        OnlineMHNTree(SHAPE, **TREE).recognize(samples(1))


# -- errors


def test_torch_is_imported_when_a_model_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, sqhn.paper.baselines.online; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'sqhn\[torch\]'"):
        OnlineMHN(SHAPE, **ONE)


def test_bad_samples_change_nothing() -> None:
    memory, fresh = OnlineMHN(SHAPE, **ONE), OnlineMHN(SHAPE, **ONE)
    bad = samples(3)
    bad[1, 0, 0, 0] = np.nan
    for x, target, message in [
        (bad, None, "not finite"),
        (samples(3, (4, 4)), None, "shape"),
        (samples(3), samples(2), "3 samples and 2 targets"),
        (samples(3), bad, "not finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            memory.learn(x, target)
    assert same(memory, fresh)
    assert memory.step == 0


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"optimizer": "lion"}, "optimizer must be one of 'sgd', 'adam'; got 'lion'"),
        ({"recognition": "luck"}, "recognition must be one of 'activity', 'error'; got 'luck'"),
        ({"rate": 0}, "rate must be a finite number above 0; got 0"),
        ({"beta": -1.0}, "beta must be a finite number above 0; got -1.0"),
        ({"beta": math.inf}, "beta must be a finite number above 0; got inf"),
        ({"beta": "big"}, "beta must be a finite number above 0; got 'big'"),
        ({"consolidation": -0.5}, "consolidation must be a finite number of at least 0; got -0.5"),
        ({"replay": -1}, "replay must be an int of at least 0; got -1"),
        ({"replay": 2.5}, "replay must be an int of at least 0; got 2.5"),
        ({"rho": 0}, "rho must be a finite number above 0; got 0"),
        ({"squeeze": (0.0, 0.5)}, "the scale of squeeze must be a finite number above 0; got 0.0"),
        ({"capacity": 0}, "capacity must be given, an int from 1 to 2,147,483,647; got 0"),
    ],
)
def test_bad_options_are_named(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OnlineMHN(SHAPE, **{**ONE, **option})


def test_bad_options_of_a_tree() -> None:
    with pytest.raises(ValueError, match="variant must be one of 'linear', 'code'; got 'paper'"):
        OnlineMHNTree(SHAPE, **TREE, variant="paper")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not divide"):
        OnlineMHNTree(SHAPE, **{**TREE, "kernels": [3]})
