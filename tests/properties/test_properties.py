"""Properties that hold for any data, on generated data full of ties, flat patches and repetitions."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.banks.cpu import prototypes
from sqhn.level import Options
from sqhn.reference import ReferenceSQHN
from tests.helpers import ON_HOSTS, assert_same_state, fingerprint, lower, set_chunk, stored_prototypes

SHAPE = (4, 8)
VALUES: list[list[float]] = [
    [0, 1],
    [0, 0.25, 0.5, 1],
    [0.5, 0.500001, 0.6],
    [0.5, np.nextafter(np.float32(0.5), np.float32(1)), np.nextafter(np.float32(0.5), np.float32(0))],
    list(np.linspace(0, 1, 9)),
    [-3e12, 5e11, 1e12],
    [1e-9, -2e-9, 3e-9],
    [1e-30, 1e15, -1e15],
]
KERNELS = st.sampled_from([(None,), ((2, 2), None), ((4, 2), None), ((2, 2), (2, 2), None), ((1, 8), (2, 1), None)])
SOME = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def streams(draw: st.DrawFn, most: int = 30) -> NDArray[np.float32]:
    """Images from few values, some repeated, some scaled around one half: full of exact and near ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = np.array(draw(st.sampled_from(VALUES)))
    x = rng.choice(values, (draw(st.integers(1, most)), *SHAPE)).astype(np.float32)
    for i in range(len(x)):
        kind = rng.integers(4)
        if kind == 0:
            x[i] = x[rng.integers(len(x))]
        elif kind == 1:
            x[i] = 0.5 + (x[rng.integers(len(x))] - 0.5) * np.float32(rng.choice([0.5, 0.3, 0.999999]))
        elif kind == 2:
            x[i, :, 4:] = rng.choice(values)
    return x


@st.composite
def trees(draw: st.DrawFn) -> list[Level]:
    when_full: Any = draw(st.sampled_from(["average", "overwrite", "oldest", "freeze"]))
    alpha = draw(st.sampled_from([5.0, 1000.0, 1e7]))
    *below, last = [Level(kernel, draw(st.integers(1, 12)), alpha, 1.0, when_full) for kernel in draw(KERNELS)]
    return [*map(lower, below), last]


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "similarity": draw(st.sampled_from(["shifted_cosine", "cosine", "euclidean"])),
        "norm": draw(st.sampled_from(["all", "heard"])),
        "mu": draw(st.sampled_from(["mean", "pseudocount"])),
        "propagation": draw(st.sampled_from(["argmax", "max"])),
        "blend": draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
    }


@pytest.mark.parametrize(("device", "small"), [("cpu", 0), ("cpu", 64), ("plain", 64)])
@given(tree=trees(), choices=options(), x=streams(), seed=st.integers(0, 99))
@SOME
def test_equals_the_reference(
    device: str, small: int, tree: list[Level], choices: dict[str, Any], x: NDArray[np.float32], seed: int
) -> None:
    """Decisions, states and answers, with small and with large nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prototypes, "SMALL", small)
        memory = SQHN(SHAPE, tree, **choices, device=device)
    reference = ReferenceSQHN(SHAPE, tree, Options(**choices))
    expected = [reference.learn(sample) for sample in x]
    written = memory.learn(x)
    np.testing.assert_array_equal(written.index, [w.index for w in expected])
    assert_same_state(memory, reference)
    observed = np.random.default_rng(seed).random(x[:4].shape) < 0.5
    for inference in ("paper", "exact"):
        recalled, partial = (
            memory.recall(x[:4], inference=inference),
            memory.recall(x[:4], observed, inference=inference),
        )
        for i, sample in enumerate(x[:4]):
            np.testing.assert_array_equal(recalled.x[i], reference.recall(sample, None, inference).x)
            np.testing.assert_array_equal(partial.x[i], reference.recall(sample, observed[i], inference).x)
    judged = memory.recognize(x[:4])
    assert list(judged.old) == [reference.recognize(sample).old for sample in x[:4]]


@ON_HOSTS
@given(tree=trees(), x=streams(), chunk=st.integers(1, 9))
@SOME
def test_a_batch_is_the_loop_over_it(device: str, tree: list[Level], x: NDArray[np.float32], chunk: int) -> None:
    loop, batch, chunked = (SQHN(SHAPE, tree, device=device) for _ in range(3))
    set_chunk(chunked, chunk)
    written = batch.learn(x)
    chunked.learn(x)
    one_by_one = [loop.learn(sample) for sample in x]
    for field, values in zip(written, zip(*one_by_one)):
        np.testing.assert_array_equal(field, values)
    assert fingerprint(loop) == fingerprint(batch) == fingerprint(chunked)
    recalled = batch.recall(x)
    for field, values in zip(recalled, zip(*(loop.recall(sample) for sample in x))):
        np.testing.assert_array_equal(field, values)


@given(tree=trees(), x=streams())
@SOME
def test_a_full_mask_is_no_mask(tree: list[Level], x: NDArray[np.float32]) -> None:
    memory = SQHN(SHAPE, tree)
    memory.learn(x)
    for inference in ("paper", "exact"):
        with_mask = memory.recall(x, np.ones(SHAPE, bool), inference=inference)
        for a, b in zip(with_mask, memory.recall(x, inference=inference)):
            np.testing.assert_array_equal(a, b)


@given(seed=st.integers(0, 10**6), count=st.integers(2, 20))
@SOME
def test_permuting_the_stream_permutes_the_prototypes(seed: int, count: int) -> None:
    """Below capacity, for distinct samples."""
    rng = np.random.default_rng(seed)
    x = rng.random((count, *SHAPE)).astype(np.float32)
    order = rng.permutation(count)
    one, other = SQHN(SHAPE, capacity=count), SQHN(SHAPE, capacity=count)
    one.learn(x)
    other.learn(x[order])
    np.testing.assert_array_equal(stored_prototypes(one)[0, order], stored_prototypes(other)[0])


@given(seed=st.integers(0, 10**6))
@SOME
def test_permuting_the_values_of_a_sample_permutes_the_prototypes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.random((30, 24)).astype(np.float32)
    order = rng.permutation(24)
    one, other = SQHN((24,), capacity=8), SQHN((24,), capacity=8)
    one.learn(x)
    other.learn(x[:, order])
    np.testing.assert_array_equal(stored_prototypes(one)[0][:, order], stored_prototypes(other)[0])


@given(tree=trees(), x=streams())
@SOME
def test_never_beyond_capacity(tree: list[Level], x: NDArray[np.float32]) -> None:
    memory = SQHN(SHAPE, tree)
    for start in range(0, len(x), 3):
        memory.learn(x[start : start + 3])
        assert 1 <= len(memory) <= memory.capacity
        assert all(bank.grown.max() <= level.capacity for bank, level in zip(memory.banks, tree))
        assert memory.step == min(start + 3, len(x))


@given(tree=trees(), choices=options(), x=streams(), cut=st.integers(0, 30))
@SOME
def test_save_load_continue(tree: list[Level], choices: dict[str, Any], x: NDArray[np.float32], cut: int) -> None:
    memory = SQHN(SHAPE, tree, **choices)
    if cut:
        memory.learn(x[:cut])
    with tempfile.TemporaryDirectory() as folder:
        memory.save(Path(folder) / "m.sqhn")
        again = SQHN.load(Path(folder) / "m.sqhn")
    if cut < len(x):
        memory.learn(x[cut:])
        again.learn(x[cut:])
    assert fingerprint(memory) == fingerprint(again)
    assert again.options == memory.options
