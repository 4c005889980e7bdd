"""The fast paths against the reference: decision for decision, value for value."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN
from sqhn.banks.cpu import threads
from sqhn.level import Options
from sqhn.reference import ReferenceSQHN
from tests.conftest import color_photographs
from tests.helpers import (
    ARCHITECTURES,
    ON_HOSTS,
    assert_same_answers,
    assert_same_state,
    device_of_path,
    levels,
    noisy,
    set_chunk,
    set_small,
    using_threads,
    without_projection,
)

CAPACITY = 24
LOADS = {"below": CAPACITY // 2, "at": CAPACITY, "five times over": 5 * CAPACITY}
SHAPE = (32, 32, 3)


@cache
def taught_reference(architecture: str, load: str) -> tuple[ReferenceSQHN, list[Any]]:
    reference = ReferenceSQHN(SHAPE, levels(architecture, CAPACITY))
    return reference, [reference.learn(x) for x in color_photographs()[: LOADS[load]]]


@ON_HOSTS
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_learns_and_answers_as_the_reference(
    device: str, architecture: str, load: str, images: NDArray[np.float32]
) -> None:
    reference, expected = taught_reference(architecture, load)
    memory = SQHN(SHAPE, levels(architecture, CAPACITY), device=device)
    written = memory.learn(images[: LOADS[load]])
    assert_same_state(memory, reference)
    np.testing.assert_array_equal(written.index, [w.index for w in expected])
    np.testing.assert_array_equal(written.grew, [w.grew for w in expected])
    np.testing.assert_allclose(written.score, [w.score for w in expected], atol=1e-9)
    questions = np.concatenate([images[:2], noisy(images[2:5]), images[500:502]])
    assert_same_answers(memory, reference, questions)


@ON_HOSTS
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("chunk", [1, 7, 64, 256])
@pytest.mark.parametrize("architecture", ["L1", "L3 (2,4,4)"])
def test_neither_chunks_nor_threads_show(
    device: str,
    architecture: str,
    chunk: int,
    workers: int,
    images: NDArray[np.float32],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reference, _ = taught_reference(architecture, "five times over")
    monkeypatch.setattr(threads, "LITTLE", 0)
    with using_threads(workers):
        memory = SQHN(SHAPE, levels(architecture, CAPACITY), device=device)
        set_chunk(memory, chunk)
        memory.learn(images[: LOADS["five times over"]])
        assert_same_state(memory, reference)
        assert_same_answers(memory, reference, noisy(images[:3]))


@pytest.mark.parametrize("path", ["small", "large", "large without projection", "plain"])
@pytest.mark.parametrize("architecture", ["L1", "L2 (4,8)"])
def test_every_path_of_the_pattern_bank(
    architecture: str, path: str, images: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, _ = taught_reference(architecture, "five times over")
    set_small(monkeypatch, 10**9 if path == "small" else 0)
    memory = SQHN(SHAPE, levels(architecture, CAPACITY), device=device_of_path(path))
    if path == "large without projection":
        without_projection(memory)
    memory.learn(images[: LOADS["five times over"]])
    assert_same_state(memory, reference)
    assert_same_answers(memory, reference, noisy(images[:3]))


OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cosine": ({"similarity": "cosine"}, {}),
    "blend": ({"blend": 0.3}, {}),
    "rho": ({"rho": 0.9}, {}),
    "max in recognition": ({"propagation": "max"}, {}),
    "pseudocount": ({"mu": "pseudocount"}, {}),
    "norm over the heard": ({"norm": "heard"}, {}),
    "overwrite": ({}, {"when_full": "overwrite"}),
    "freeze": ({}, {"when_full": "freeze"}),
    "small alpha": ({}, {"alpha": 300.0}),
    "small gamma": ({}, {"gamma": 0.9}),
    "infinite alpha": ({}, {"alpha": np.inf}),
}


@ON_HOSTS
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("architecture", ["L1", "L3 (4,4,2)"])
def test_every_option(device: str, architecture: str, option: str, images: NDArray[np.float32]) -> None:
    choices, settings = OPTIONS[option]
    tree = levels(architecture, 12, **settings)
    reference = ReferenceSQHN(SHAPE, tree, Options(**choices))
    memory = SQHN(SHAPE, tree, **choices, device=device)
    stream = images[np.random.default_rng(2).integers(0, 30, 60)]  # with repetitions
    expected = [reference.learn(x) for x in stream]
    written = memory.learn(stream)
    np.testing.assert_array_equal(written.index, [w.index for w in expected])
    assert_same_state(memory, reference)
    assert_same_answers(memory, reference, np.concatenate([noisy(stream[:3]), images[600:601]]))


@ON_HOSTS
@pytest.mark.parametrize("when_full", ["average", "overwrite", "freeze"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_hold(device: str, architecture: str, when_full: str, images: NDArray[np.float32]) -> None:
    tree = levels(architecture, 6, when_full=when_full)
    reference, memory = ReferenceSQHN(SHAPE, tree), SQHN(SHAPE, tree, device=device)
    for seed, image in enumerate(images[:9]):
        samples = noisy(np.broadcast_to(image, (4, *SHAPE)), seed=seed)
        expected, written = reference.learn_samples(samples), memory.learn(samples, hold=True)
        assert list(written.index) == [expected.index] * 4
        assert list(written.grew) == [expected.grew, False, False, False]
    assert_same_state(memory, reference)
    assert_same_answers(memory, reference, images[:2])


@ON_HOSTS
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_memorize(device: str, architecture: str, images: NDArray[np.float32]) -> None:
    reference, memory = (
        ReferenceSQHN(SHAPE, levels(architecture, 12)),
        SQHN(SHAPE, levels(architecture, 12), device=device),
    )
    stored = images[[0, 1, 2, 3, 1, 4, 5, 6, 0, 7, 8, 9]]  # with duplicates
    reference.memorize(stored)
    memory.memorize(stored)
    assert_same_state(memory, reference)
    assert_same_answers(memory, reference, noisy(images[:3]))


@ON_HOSTS
def test_digits_with_their_many_exact_ties(device: str, grey: NDArray[np.float32]) -> None:
    """Flat black patches match each other exactly, whatever is stored: ties go to the lowest index."""
    from sqhn import Level

    tree = [Level(kernel=4, capacity=30), Level(capacity=30)]
    reference, memory = ReferenceSQHN((28, 28), tree), SQHN((28, 28), tree, device=device)
    for x in grey[:100]:
        reference.learn(x)
    memory.learn(grey[:100])
    assert_same_state(memory, reference)
    for x in grey[:10]:
        np.testing.assert_array_equal(memory.recall(x).x, reference.recall(x).x)


def test_the_reference_of_a_memory_is_that_memory(images: NDArray[np.float32]) -> None:
    tree = levels("L3 (4,4,2)", 12)
    memory = SQHN(SHAPE, tree)
    memory.learn(images[:40])
    copy = ReferenceSQHN.of(memory)
    assert_same_state(memory, copy)
    copy.learn(images[40])
    memory.learn(images[40])
    assert_same_state(memory, copy)


@ON_HOSTS
@pytest.mark.parametrize("when_full", ["average", "overwrite", "freeze"])
@pytest.mark.parametrize("architecture", ["L1", "L2 (4,8)", "L3 (2,4,4)"])
def test_the_memory_node_learns_alone(
    device: str, architecture: str, when_full: str, images: NDArray[np.float32]
) -> None:
    tree = levels(architecture, 12, when_full=when_full)
    reference, memory = ReferenceSQHN(SHAPE, tree), SQHN(SHAPE, tree, device=device)
    if architecture != "L1":
        for x in images[:30]:  # what a whole tree learns below its memory node is what pretraining teaches
            reference.learn(x)
        reference.levels[-1] = ReferenceSQHN(SHAPE, tree).levels[-1]
        memory.pretrain(images[:30])
    expected = [reference.learn(x, root_only=True) for x in images[30:60]]
    written = memory.learn(images[30:60], root_only=True)
    np.testing.assert_array_equal(written.index, [w.index for w in expected])
    np.testing.assert_array_equal(written.grew, [w.grew for w in expected])
    np.testing.assert_allclose(written.score, [w.score for w in expected], atol=1e-9)
    assert_same_state(memory, reference)
    assert_same_answers(memory, reference, noisy(images[30:33]))


@ON_HOSTS
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_feedforward_states(device: str, architecture: str, images: NDArray[np.float32]) -> None:
    reference, _ = taught_reference(architecture, "five times over")
    memory = SQHN(SHAPE, levels(architecture, CAPACITY), device=device)
    memory.learn(images[: LOADS["five times over"]])
    questions = noisy(images[:4])
    energy = memory.energy(questions, inference="feedforward")
    recalled = memory.recall(questions, inference="feedforward")
    for i, x in enumerate(questions):
        assert energy[i] == pytest.approx(reference.energy(x, reference.infer(x, rule="feedforward")), abs=1e-9)
        np.testing.assert_array_equal(recalled.x[i], reference.recall(x, inference="feedforward").x)
