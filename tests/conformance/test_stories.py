"""Samples with missing values, forgotten neurons, every similarity, in one stream, against the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.reference import ReferenceSQHN
from tests.helpers import (
    ON_HOSTS,
    assert_same_answers,
    assert_same_ranking,
    assert_same_state,
    fingerprint,
    set_chunk,
    without_projection,
)

SHAPES: dict[str, tuple[tuple[int, ...], list[int | None]]] = {
    "small": ((6, 6), [None]),
    "large": ((8, 12), [None]),
    "two levels": ((8, 8), [4, None]),
    "large nodes below": ((18, 9), [9, None]),
    "three levels": ((8, 8), [2, 2, None]),
    "shared": ((8, 8), [2, 2, None]),
    "two shared": ((8, 12), [2, 2, None]),
    "large nodes shared": ((18, 9), [9, None]),
}
SHARED = {"shared": 1, "two shared": 2, "large nodes shared": 1}
SIMILARITIES = ("shifted_cosine", "cosine", "euclidean")


def tree(name: str, capacity: int, when_full: Any, below: int = 9) -> list[Level]:
    """All levels but those of the unshared tree of three stop once the memory node is full and frozen."""
    *kernels, last = SHAPES[name][1]
    stops, shared = when_full == "freeze" and name != "three levels", SHARED.get(name, 0)
    lower = [Level(kernel, below, shared=number < shared, stops=stops) for number, kernel in enumerate(kernels)]
    return [*lower, Level(last, capacity, when_full=when_full)]


def samples(shape: tuple[int, ...], count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Some that come again, as they are or nearly so, some flat, some that tie."""
    things = rng.random((max(2, count // 3), *shape)).astype(np.float32)
    things[rng.random(len(things)) < 0.2] = rng.choice([0.0, 0.5, 0.25])
    x = things[rng.integers(len(things), size=count)]
    near = rng.random(count) < 0.3
    x[near] += rng.normal(0, 0.1, x[near].shape).astype(np.float32)
    coarse = rng.random(count) < 0.2
    x[coarse] = np.round(2 * x[coarse]) / 2
    return x


def masks(x: NDArray[np.float32], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Masks: some samples are complete, some miss whole regions."""
    seen = rng.random(x.shape) < share
    seen[:, : x.shape[1] // 2] &= (rng.random(len(x)) < 0.6).reshape(-1, *[1] * (x.ndim - 1))
    seen[rng.random(len(x)) < 0.4] = True
    blank = ~seen.any(axis=tuple(range(1, x.ndim)))
    seen[blank, ..., -1] = True
    return seen


def tell(memory: SQHN, reference: ReferenceSQHN, rng: np.random.Generator, calls: int) -> None:
    """Learn, with missing values or without, and forget, the same in both."""
    shape = memory.input_shape
    for _ in range(calls):
        count = int(rng.choice([1, 5, 20]))
        x = samples(shape, count, rng)
        observed = masks(x, float(rng.choice([0.3, 0.8, 0.95])), rng) if rng.random() < 0.6 else None
        verb = rng.random()
        if verb < 0.15 and len(memory):
            living = np.flatnonzero(memory.counts)
            gone = rng.choice(living, min(len(living), int(rng.choice([1, 3, len(living)]))), replace=False)
            memory.forget(gone)
            for j in gone:
                reference.forget(int(j))
        elif verb < 0.25:
            memory.learn(x, observed=observed, hold=True)
            reference.learn_samples(x, observed)
        else:
            root_only = bool(verb < 0.3 and memory.banks[0].grown.any())
            written = memory.learn(x, observed=observed, root_only=root_only)
            for t, sample in enumerate(x):
                mask = None if observed is None else observed[t]
                expected = reference.learn(sample, root_only=root_only, observed=mask)
                got = [field[t] for field in written]
                assert got[2] == pytest.approx(expected.score, abs=1e-9)
                assert [got[0], got[1], *got[3:]] == [expected.index, expected.grew, *expected[3:5]]


def story(
    name: str, similarity: Any, when_full: str, device: str = "cpu"
) -> tuple[SQHN, ReferenceSQHN, np.random.Generator]:
    """A memory, a reference that gets the same calls, and the generator that chooses them."""
    rng = np.random.default_rng(sum(map(ord, name + similarity + when_full)))
    shape, levels = SHAPES[name][0], tree(name, 12, when_full)
    memory = SQHN(shape, levels, similarity=similarity, device=device)
    set_chunk(memory, int(rng.choice([3, 256])))
    return memory, ReferenceSQHN(shape, levels, memory.options), rng


def same_in_all(memory: SQHN, reference: ReferenceSQHN, rng: np.random.Generator) -> None:
    """The stored state and the labels."""
    assert_same_state(memory, reference)
    if len(memory):
        x = samples(memory.input_shape, 5, rng)
        assert_same_answers(memory, reference, x)
        assert_same_ranking(memory, reference, x[:2], masks(x[:2], 0.6, rng), min(4, len(memory)), "exact")


def told_and_saved(name: str, similarity: Any, when_full: str, device: str, path: Path) -> None:
    """A story on a device, which goes on there and on a CPU after it was saved."""
    memory, reference, rng = story(name, similarity, when_full, device)
    tell(memory, reference, rng, 6)
    same_in_all(memory, reference, rng)
    memory.save(path)
    for other in (SQHN.load(path, device), SQHN.load(path)):
        assert fingerprint(other) == fingerprint(memory)
        tell(other, ReferenceSQHN.of(memory), np.random.default_rng(1), 2)


@ON_HOSTS
@pytest.mark.parametrize("when_full", ["average", "overwrite", "oldest", "freeze"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("name", SHAPES)
def test_one_story(device: str, name: str, similarity: Any, when_full: str) -> None:
    memory, reference, rng = story(name, similarity, when_full, device)
    if device == "cpu" and "large" in name:
        without_projection(memory, 0 if rng.random() < 0.5 else np.inf)
    for _ in range(3):
        tell(memory, reference, rng, 3)
        same_in_all(memory, reference, rng)


@ON_HOSTS
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_any_story(device: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SHAPES)))
    policy: Any = data.draw(st.sampled_from(["average", "overwrite", "oldest", "freeze"]))
    alpha = data.draw(st.sampled_from([1e7, 30.0]))
    levels = [replace(level, capacity=data.draw(st.integers(1, 8)), alpha=alpha) for level in tree(name, 5, policy)]
    options: Any = {
        "similarity": data.draw(st.sampled_from(SIMILARITIES)),
        "norm": data.draw(st.sampled_from(["all", "heard"])),
        "propagation": data.draw(st.sampled_from(["argmax", "max"])),
        "mu": data.draw(st.sampled_from(["mean", "pseudocount"])),
    }
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    memory = SQHN(SHAPES[name][0], levels, **options, device=device)
    set_chunk(memory, data.draw(st.sampled_from([1, 4, 256])))
    reference = ReferenceSQHN(memory.input_shape, levels, memory.options)
    tell(memory, reference, rng, 4)
    assert_same_state(memory, reference)
    if len(memory):
        assert_same_answers(memory, reference, samples(memory.input_shape, 3, rng))
