"""Models built from declarations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn.level import Level
from sqhn.paper.experiments import models
from sqhn.paper.experiments.models import (
    Ablated,
    AblatedTree,
    ByErrorTree,
    ByteStore,
    DownscaledStore,
    ErrorRecognition,
    JpegStore,
    MapTree,
    Nearest,
    SharedTree,
    Tree,
)
from sqhn.reference import Ablation, ReferenceSQHN, learn_by_map


def test_a_tree() -> None:
    memory = Tree((5, 7), (2,), math.inf, 0.9, similarity="cosine", propagation="max").network((8, 8))
    assert memory.levels == (Level(2, 5, math.inf, 0.9), Level(None, 7, math.inf, 0.9))
    assert (memory.options.similarity, memory.options.propagation) == ("cosine", "max")


def test_recognition_by_error_is_by_the_mean_error_before_learning(images: NDArray[np.float32]) -> None:
    x = images[:20, :8, :8]
    memory: Any = ByErrorTree(6, rho_error=0.5).build((8, 8, 3))
    assert isinstance(memory, ErrorRecognition)
    memory.learn(x[:7])
    memory.learn(x[7:15])  # in two calls, as between test points
    reference = ReferenceSQHN((8, 8, 3), [Level(capacity=6)])

    def error(sample: NDArray[np.float32]) -> float:
        return float(np.mean(np.square(reference.recall(sample).x.astype(np.float64) - sample)))

    before = []
    for one in x[:15]:
        if reference.root.grown:
            before.append(error(one))
        reference.learn(one)
    assert memory.error == pytest.approx(np.mean(before), rel=1e-6)
    judged = memory.recognize(x)
    np.testing.assert_array_equal(judged.old, [error(one) <= 0.5 * np.mean(before) for one in x])
    np.testing.assert_allclose(judged.score, [-error(one) for one in x], atol=1e-7)
    np.testing.assert_allclose(judged.threshold, -0.5 * np.mean(before), rtol=1e-6)


ABLATIONS = {
    "whole": Ablation(),
    "step": Ablation(step=0.5),
    "step and growth": Ablation(step=0.5, growth_step=True),
    "no growth": Ablation(grows=False),
    "no averaging": Ablation(averages=False),
}


@pytest.mark.parametrize("ablation", ABLATIONS.values(), ids=ABLATIONS)
def test_an_ablated_memory_recalls_as_its_reference(ablation: Ablation, images: NDArray[np.float32]) -> None:
    x = images[:30, :8, :8]
    memory: Any = AblatedTree(6, ablation=ablation).build((8, 8, 3), seed=3)
    assert isinstance(memory, Ablated)
    memory.learn(x[:10])
    memory.learn(x[10:])
    recalled = memory.recall(x)
    for one, answer in zip(x, recalled.x):
        np.testing.assert_array_equal(answer, memory.reference.recall(one).x)


def test_each_ablation_by_hand() -> None:
    """The weights after two samples of one neuron."""
    a, b = np.array([[0.0, 1.0]], np.float32), np.array([[0.2, 0.9]], np.float32)

    def second(ablation: Ablation) -> list[float]:
        memory: Any = AblatedTree(1, gamma=0.5, ablation=ablation).build((1, 2))  # b is close enough to be averaged
        memory.learn(np.stack([a, b, b]))
        return [round(float(value), 5) for value in memory.reference.root.m[0]]

    assert second(Ablation()) == [round(0.4 / 3, 5), round(2.8 / 3, 5)]
    assert second(Ablation(step=0.5)) == [0.15, 0.925]
    assert second(Ablation(step=0.1)) == [0.038, 0.981]
    assert second(Ablation(averages=False)) == [0.0, 1.0]
    assert second(Ablation(step=0.5, growth_step=True)) == [0.15, 0.8]  # 1/8 of half a, then 1/2 and 1/4 of b


def test_map_learning_of_new_samples_is_plain_learning(images: NDArray[np.float32]) -> None:
    """Until the memory node repeats a value, it expects nothing of its children."""
    x = images[:12, :8, :8]
    levels = Tree(20, (2, 2)).levels
    one, other = ReferenceSQHN((8, 8, 3), levels), ReferenceSQHN((8, 8, 3), levels)
    for sample in x:
        assert learn_by_map(one, sample)[:2] == other.learn(sample)[:2]
    for ours, theirs in zip(one.nodes(), other.nodes()):
        np.testing.assert_array_equal(ours.m, theirs.m)


def test_map_learning_prefers_expected_values() -> None:
    """A child takes the value its parent expects where it fits nearly as well."""
    levels = [Level((1, 2), 2, math.inf, 0.9), Level(None, 1, math.inf, 0.5)]
    tree = ReferenceSQHN((2, 2), levels)
    a, b = np.array([[0.9, 0.1], [0.9, 0.1]], np.float32), np.array([[0.9, 0.1], [0.1, 0.9]], np.float32)
    learn_by_map(tree, a)
    learn_by_map(tree, b)  # the lower patch is new, but the memory node expects the known value
    assert [node.grown for node in tree.levels[0]] == [1, 1]
    plain = ReferenceSQHN((2, 2), levels)
    plain.learn(a)
    plain.learn(b)
    assert [node.grown for node in plain.levels[0]] == [1, 2]


def test_the_verbs_of_a_tree_with_feedback(images: NDArray[np.float32]) -> None:
    memory = MapTree(10, (4,)).build((8, 8, 3))
    x = images[:10, :8, :8]
    assert memory.learn(x).index.tolist() == list(range(10))
    np.testing.assert_array_equal(memory.recall(x).x, x)
    assert memory.recognize(x).old.all()


@pytest.mark.parametrize(
    "name",
    [name for name in models.__all__ if name[0].isupper() and name not in ("Ablated", "ErrorRecognition", "Spec")],
)
def test_every_model_declares_its_requirement(name: str) -> None:
    kind = getattr(models, name)
    assert kind.needs[0] in ("numba", "numpy", "PIL", "torch", "faiss")
    assert kind.needs[1].startswith("sqhn") or kind.needs == ("faiss", "faiss-cpu")


def test_a_store() -> None:
    memory = Nearest(3).build((2, 2), 0, "cpu")
    memory.learn(np.eye(4, dtype=np.float32).reshape(4, 2, 2))
    assert memory.recall(np.ones((1, 2, 2), np.float32)).index.shape == (1,)


def test_a_shared_tree() -> None:
    memory: Any = SharedTree((2, 4), 16, 30).build((32, 32, 3))
    first, second, root = memory.memory.levels
    assert (first.capacity, first.shared, first.stops) == (16, True, True)
    assert (second.capacity, second.shared, second.stops) == (30, False, True)
    assert (root.capacity, root.when_full) == (30, "freeze")
    assert memory.inference == "evidence"


def test_stores_of_bytes(images: NDArray[np.float32]) -> None:
    x = images[:8, :16, :16]
    for declared in (ByteStore(5000), DownscaledStore(5000, 2), JpegStore(9000, header=False)):
        memory: Any = declared.build((16, 16, 3), 0, "cpu")
        memory.learn(x)
        assert 0 < memory.nbytes <= declared.budget
        assert memory.recall(x[:2]).x.shape == (2, 16, 16, 3)
