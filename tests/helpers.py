"""Helpers of several test files."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from sqhn import SQHN, Level, get_num_threads, set_num_threads
from sqhn.banks.saved import prototypes_of
from sqhn.level import REPLACING
from sqhn.model.model import Model
from sqhn.reference import ReferenceSQHN

ARCHITECTURES = {
    "L1": (None,),
    "L2 (4,8)": (4, None),
    "L3 (2,4,4)": (2, 4, None),
    "L3 (4,4,2)": (4, 4, None),
}


ON_HOSTS = pytest.mark.parametrize("device", ["cpu", "plain"])
"""For tests of memories in main memory, with compiled banks and without."""


def device_of_path(path: str) -> str:
    """The device of a way to compare samples with prototypes: a name, or one of those of compiled banks."""
    return "plain" if path == "plain" else "cpu"


def levels(name: str, capacity: int, **settings: Any) -> list[Level]:
    *below, last = [Level(kernel=kernel, capacity=capacity, **settings) for kernel in ARCHITECTURES[name]]
    return [*map(lower, below), last]


def lower(level: Level) -> Level:
    """A level as it may be below the memory node, which alone replaces neurons."""
    return replace(level, when_full="average") if level.when_full in REPLACING else level


@contextmanager
def cluster() -> Iterator[Any]:
    """Ray on this machine, and no trace of it afterwards."""
    ray = pytest.importorskip("ray")
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    ray.init(include_dashboard=False, log_to_driver=False, num_cpus=2)
    try:
        yield ray
    finally:
        ray.shutdown()
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def using_threads(n: int) -> Iterator[None]:
    """With so many threads, and afterwards with as many as before, in BLAS too."""
    before = get_num_threads()
    with threadpool_limits(limits=None):
        set_num_threads(n)
        try:
            yield
        finally:
            set_num_threads(before)


def fingerprint(memory: SQHN) -> str:
    """A digest of everything that makes up a memory; prototypes that are bytes count as their values."""
    digest = hashlib.sha256()
    for bank in memory.banks:
        digest.update(str(bank.neurons.step).encode())
        state = bank.neurons.state() | bank.state()
        if "bytes" in state:
            state["prototypes"] = prototypes_of(state, bank.centre)  # type: ignore[attr-defined]
            del state["bytes"], state["is_bytes"]
        for array in state.values():
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def assert_same_state(memory: SQHN, reference: ReferenceSQHN) -> None:
    """Compare all neurons: every decision ever taken shows in them."""
    for bank, copies, nodes in zip(memory.banks, ReferenceSQHN.of(memory).levels, reference.levels):
        assert ("known" in bank.state()) == bank.holes
        for copy, node in zip(copies, nodes):
            assert (copy.grown, copy.step) == (node.grown, node.step)
            np.testing.assert_array_equal(copy.c, node.c)
            np.testing.assert_array_equal(copy.known, node.known)
            np.testing.assert_allclose(copy.m, node.m, rtol=0, atol=0 if node.visible else 1e-9)
    G = reference.root.grown
    assert len(memory) == G - reference.root.free.sum()
    np.testing.assert_array_equal(memory.prototypes, reference.prototypes())
    np.testing.assert_allclose(ReferenceSQHN.of(memory).root.mu, reference.root.mu, atol=1e-9)
    np.testing.assert_array_equal(memory.counts, reference.root.c[:G])
    np.testing.assert_array_equal(memory.written, reference.root.written[:G])


def assert_same_answers(memory: SQHN, reference: ReferenceSQHN, x: NDArray[np.float32]) -> None:
    """Recall with and without missing values, by all rules, recognition and energy."""
    rng = np.random.default_rng(5)
    some = rng.random(x.shape) < 0.5
    some[:, : x.shape[1] // 2] &= rng.random((len(x), *[1] * (x.ndim - 1))) < 0.5  # whole nodes see nothing
    some[:, -1] = True
    for rule in ("paper", "exact", "feedforward"):
        for observed in (None, some):
            recalled = memory.recall(x, observed, inference=rule)
            for i, sample in enumerate(x):
                expected = reference.recall(sample, None if observed is None else observed[i], rule)
                np.testing.assert_array_equal(recalled.x[i], expected.x)
                assert expected.known.all() if recalled.known is None else (recalled.known[i] == expected.known).all()
                assert recalled.index[i] == expected.index
                assert recalled.score[i] == pytest.approx(expected.score, abs=1e-9)
            if rule == "paper":  # the others: test_ranking
                first = None if observed is None else observed[:1]
                assert_same_ranking(memory, reference, x[:1], first, min(3, len(memory)), rule)
    for observed in (None, some):
        recognized, energy = memory.recognize(x, observed), memory.energy(x, observed)
        for i, sample in enumerate(x):
            mask = None if observed is None else observed[i]
            judged = reference.recognize(sample, mask)
            assert recognized.old[i] == judged.old
            assert recognized.score[i] == pytest.approx(judged.score, abs=1e-9)
            assert recognized.threshold[i] == pytest.approx(judged.threshold, abs=1e-9)
            assert energy[i] == pytest.approx(reference.energy(sample, observed=mask), abs=1e-9)


def assert_same_ranking(
    memory: SQHN, reference: ReferenceSQHN, x: NDArray[np.float32], observed: NDArray[Any] | None, k: int, rule: str
) -> None:
    """The k best, each with its own way down."""
    found = memory.recall(x, observed, k=k, inference=rule)
    for i, sample in enumerate(x):
        expected = reference.recall_best(sample, k, None if observed is None else observed[i], rule)
        assert found.index[i].tolist() == [one.index for one in expected]
        np.testing.assert_array_equal(found.x[i], [one.x for one in expected])
        np.testing.assert_allclose(found.score[i], [one.score for one in expected], atol=1e-9)


def without_projection(memory: SQHN, chunks: float = np.inf) -> None:
    """Let a memory of large nodes compare whole vectors, for some chunks."""
    bank: Any = memory.banks[0]
    large = (bank.inner if memory.levels[0].shared else bank).large
    large.blind = chunks


def stored_prototypes(memory: SQHN) -> NDArray[np.float32]:
    """Of level 1, (nodes, neurons, values); all nodes have grown as many."""
    grown = memory.banks[0].grown
    prototypes: NDArray[np.float32] = memory.banks[0].state()["prototypes"].reshape(len(grown), int(grown[0]), -1)
    return prototypes


def noisy(x: NDArray[Any], sigma: float = 0.2, seed: int = 1) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return np.clip(x + rng.normal(0, sigma, x.shape), 0, 1).astype(np.float32)


COPIES, DIRECTIONS = 12, 6


def scaled_copies(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Prototypes that float32 cannot tell apart, around one half, equal but for their own rounding."""
    rng = np.random.default_rng(seed)
    directions = rng.uniform(-0.4, 0.4, (DIRECTIONS, *shape))
    which = rng.permutation(np.repeat(np.arange(DIRECTIONS), COPIES))
    scales = rng.uniform(0.2, 1.0, (len(which), *[1] * len(shape)))
    return np.asarray(0.5 + scales * directions[which], np.float32)


def ties_in_a_row() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Three things to memorize at two nodes of four values by plain cosines, and a question.

    At its first node neuron 2 is best, 1 is within rounding of 2 and so the first of the best, and 0, which the memory
    node expects, is within rounding of 1 but not of 2.
    """
    near = np.zeros((3, 4))
    near[:, 0], near[0, 1], near[1, 2] = 1, np.sqrt(3.0e-12), np.sqrt(1.6e-12)
    stored = np.concatenate([near, np.eye(4)[:3]], axis=1)
    return stored.astype(np.float32), np.concatenate([near[2], stored[0, 4:]]).astype(np.float32)


def model_of(memory: SQHN) -> Model:
    """The model behind a memory."""
    return memory.inspect(lambda model: model)


def set_small(monkeypatch: pytest.MonkeyPatch, values: int) -> None:
    """Set how many values the small nodes of compiled banks have at most."""
    if find_spec("numba"):
        monkeypatch.setattr("sqhn.banks.cpu.prototypes.SMALL", values)


def set_chunk(memory: SQHN, chunk: int) -> None:
    """Set how many samples a memory learns at once."""
    model_of(memory).tree.chunk = chunk
