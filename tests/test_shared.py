"""Levels whose nodes share one bank, and levels that stop once the memory node is full.

Against the reference, call by call: the stories of tests/conformance, tests/ray and tests/properties.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.banks.cpu import threads
from sqhn.data import photos
from sqhn.level import Options, evidence_centre
from sqhn.reference import ReferenceSQHN
from sqhn.storage.files import describe, encode, header_of
from tests.by_evidence import assert_as_the_reference
from tests.conformance.test_stories import samples
from tests.helpers import (
    ON_HOSTS,
    assert_same_answers,
    assert_same_state,
    fingerprint,
    levels,
    noisy,
    set_chunk,
    using_threads,
)

SIGNAL = [Level(2, 4, shared=True), Level(capacity=3)]
TREE = [Level(2, 30, shared=True), Level(2, 20), Level(capacity=12)]
ALL = [Level(2, 30, shared=True), Level(2, 40, shared=True), Level(capacity=12)]
STOPPING = [replace(level, stops=True) for level in ALL[:-1]] + [Level(capacity=12, when_full="freeze")]
TREES = pytest.mark.parametrize("tree", [TREE, ALL, STOPPING], ids=["level 1", "all", "stopping"])


def images(count: int, side: int = 16) -> NDArray[np.float32]:
    return photos(32)[:count, :side, :side].astype(np.float32) / np.float32(255)


# -- the rule, by hand -------------------------------------------------------------------------------------------------


def test_all_places_are_one_node() -> None:
    first, second, root = ReferenceSQHN((8, 8), ALL).levels
    assert (len(first), len(second), len(root)) == (16, 4, 1)
    assert (len(set(map(id, first))), len(set(map(id, second)))) == (1, 1)


@ON_HOSTS
def test_a_flat_sample_grows_one_neuron(device: str) -> None:
    memory = SQHN((8, 8), TREE, device=device)
    memory.learn(np.full((8, 8), 0.75))
    bank = memory.banks[0]
    assert bank.grown.tolist() == [1] * 16
    assert bank.neurons.step == 16
    assert bank.neurons.state()["c"].tolist() == [16]
    assert memory.step == 1


@ON_HOSTS
def test_each_patch_sees_the_one_before(device: str) -> None:
    """Patches .0, .08, .16: the second is near the first and moves it to .04, from which the third is too far."""
    memory = SQHN((6,), SIGNAL, device=device)
    memory.learn(np.repeat([0.0, 0.08, 0.16], 2))
    state = memory.banks[0].state() | memory.banks[0].neurons.state()
    np.testing.assert_allclose(state["prototypes"], np.array([[0.04] * 2, [0.16] * 2]), atol=1e-7)
    assert state["c"].tolist() == [2, 1]
    assert memory.banks[1].state()["codes"].tolist() == [[0, 0, 1]]


@ON_HOSTS
@pytest.mark.parametrize(("distance", "grown"), [(0.0999, 1), (0.1001, 2)])
def test_a_difference_of_more_than_a_tenth_grows_a_neuron(device: str, distance: float, grown: int) -> None:
    """The root mean square: one of two values differs by the square root of two times as much."""
    memory = SQHN((4,), SIGNAL, device=device)
    memory.learn([0.5, 0.5, 0.5, 0.5 + math.sqrt(2) * distance])
    assert memory.banks[0].grown.tolist() == [grown] * 2


@ON_HOSTS
def test_a_code_drifts_with_its_neuron(device: str) -> None:
    """A stored sample is recalled as the means that its neurons have become."""
    memory = SQHN((4,), SIGNAL, device=device)
    memory.learn([0.5, 0.5, 0.9, 0.9])
    memory.learn([0.56, 0.56, 0.1, 0.1])
    np.testing.assert_allclose(memory.prototypes, [[0.53, 0.53, 0.9, 0.9], [0.53, 0.53, 0.1, 0.1]], atol=1e-7)


@ON_HOSTS
def test_other_similarities_and_thresholds_are_taken(device: str) -> None:
    """By cosines with a threshold of 1, every direction grows a neuron, and amplitudes do not matter."""
    tree = [Level(2, 4, 1e7, 1.0, shared=True), Level(capacity=3)]
    memory = SQHN((4,), tree, similarity="cosine", device=device)
    memory.learn([[1.0, 0.0, 0.0, 1.0], [0.5, 0.0, 0.0, 0.25]])
    assert memory.banks[0].grown.tolist() == [2, 2]
    assert memory.options.similarity == "cosine"


def test_defaults_depend_on_sharing() -> None:
    assert (Level(2, 4).gamma, Level(2, 4).alpha) == (1.0, 1e7)
    shared = Level(2, 4, shared=True)
    assert (shared.gamma, shared.alpha, shared.threshold(10**9)) == (1 / 1.1, math.inf, 1 / 1.1)
    assert Level(2, 4, 100.0, 0.5, shared=True).threshold(0) == 0.5
    assert Level(**asdict(shared)) == replace(shared) == shared
    assert SQHN((4,), SIGNAL).options == ReferenceSQHN((4,), SIGNAL).options == Options(similarity="euclidean")
    assert SQHN((4,), capacity=3).options == Options()
    for level in (Level(2, 4), shared):
        centers = [evidence_centre(level, Options(one)) for one in ("shifted_cosine", "cosine", "euclidean")]
        assert centers == [0.5, 0.0, 0.5 if level.shared else 0.0]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([Level(capacity=4, shared=True)], "shared=True at level 1 of 1: the memory node is a single node"),
        ([Level(2, 4), Level(capacity=4, shared=True)], "shared=True at level 2 of 2: the memory node"),
        ([Level(2, 4), Level(2, 4, shared=True), Level(capacity=4)], "level 2 needs shared=True at level 1: otherwise"),
        ([Level(2, 4, stops=True), Level(capacity=4)], "stops=True at level 1 of 2 .* when_full='average'"),
        ([Level(capacity=4, when_full="freeze", stops=True)], "stops=True at level 1 of 1"),
    ],
)
def test_trees_that_cannot_be(tree: list[Level], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SQHN((8, 8), tree)


@pytest.mark.parametrize("name", ["shared", "stops"])
def test_flags_are_true_or_false(name: str) -> None:
    settings: Any = {name: 1}
    with pytest.raises(TypeError, match=f"{name} must be True or False; got 1"):
        Level(2, 4, **settings)


# -- against the reference ---------------------------------------------------------------------------------------------


def learned(tree: list[Level], device: str, count: int = 20) -> tuple[SQHN, ReferenceSQHN]:
    memory, reference = SQHN((16, 16, 3), tree, device=device), ReferenceSQHN((16, 16, 3), tree)
    x = images(count)
    written = memory.learn(x)
    assert written.index.tolist() == [reference.learn(one).index for one in x]
    return memory, reference


@ON_HOSTS
@TREES
def test_photographs(device: str, tree: list[Level]) -> None:
    tree = [*tree[:2], Level(2, 20), tree[-1]] if tree is TREE else tree
    memory, reference = learned(tree, device)
    assert_same_state(memory, reference)
    x = np.concatenate([images(2), noisy(images(4)[2:])])
    assert_same_answers(memory, reference, x)
    assert_as_the_reference(memory, x)
    observed = np.ones(x.shape, bool)
    observed[:, 4:12, 3:9] = False
    assert_as_the_reference(memory, x, observed)


@ON_HOSTS
def test_evidence_with_values_that_were_never_observed(device: str) -> None:
    """They are the center of evidence, which for shared levels is not that of the similarity."""
    memory = SQHN((8, 8), ALL, device=device)
    rng = np.random.default_rng(0)
    x = samples((8, 8), 20, rng)
    memory.learn(x, observed=rng.random(x.shape) < 0.6)
    assert_as_the_reference(memory, x[:5])
    assert_as_the_reference(memory, x[:5], rng.random((5, 8, 8)) < 0.7)


@ON_HOSTS
@pytest.mark.parametrize("chunk", [1, 4, 256])
def test_levels_stop_at_the_sample_that_fills_the_memory_node(device: str, chunk: int) -> None:
    """And go on once a neuron was forgotten."""
    memory, reference = SQHN((16, 16, 3), STOPPING, device=device), ReferenceSQHN((16, 16, 3), STOPPING)
    set_chunk(memory, chunk)
    x = images(40)
    for part in (x[:9], x[9:20], x[20:]):
        written = memory.learn(part)
        assert written.index.tolist() == [reference.learn(one).index for one in part]
        assert_same_state(memory, reference)
        if len(memory) == 12:
            memory.forget([3, 7])
            reference.forget(3)
            reference.forget(7)
    assert_same_answers(memory, reference, x[:3])


@pytest.mark.parametrize("count", [2, 3, 7])
def test_threads_share_the_samples_of_a_node(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LITTLE", 0)
    x = images(24)
    observed = np.random.default_rng(0).random(x.shape) < 0.7
    answers = []
    for many in (1, count):
        with using_threads(many):
            memory = SQHN((16, 16, 3), STOPPING)
            memory.learn(x)
            found = [memory.recall(x[:5], mask, inference="evidence") for mask in (None, observed[:5])]
            answers.append([fingerprint(memory), *(one.score.tobytes() + one.x.tobytes() for one in found)])
    assert answers[0] == answers[1]


@ON_HOSTS
def test_a_stopped_level_changes_only_its_step(device: str) -> None:
    memory = SQHN((8, 8), [Level(4, 9, stops=True), Level(capacity=3, when_full="freeze")], device=device)
    x = np.random.default_rng(0).random((9, 8, 8), np.float32)
    written = memory.learn(x)
    assert written.index[:3].tolist() == [0, 1, 2]
    assert not written.grew[3:].any()
    bank = memory.banks[0]
    assert (bank.grown.tolist(), bank.neurons.step) == ([3] * 4, 9)
    assert (bank.neurons.state()["c"] == 1).all()


@ON_HOSTS
@TREES
def test_memorize_needs_room_for_all_patches(device: str, tree: list[Level]) -> None:
    larger = [replace(tree[0], capacity=64), replace(tree[1], capacity=16), tree[2]]
    memory, reference = SQHN((8, 8), larger, device=device), ReferenceSQHN((8, 8), larger)
    x = samples((8, 8), 4, np.random.default_rng(0))
    memory.memorize(x)
    reference.memorize(x)
    assert_same_state(memory, reference)
    before = fingerprint(memory)
    with pytest.raises(ValueError, match="level 1 has room for 0 more neurons; got 1 samples of 16 patches"):
        memory.memorize(x[:1])
    assert fingerprint(memory) == before


# -- files, copies and folders -----------------------------------------------------------------------------------------


@ON_HOSTS
@TREES
def test_files_and_copies_continue(device: str, tree: list[Level], tmp_path: Path) -> None:
    memory = SQHN((8, 8), tree, device=device)
    rng = np.random.default_rng(0)
    x = samples((8, 8), 60, rng)
    memory.learn(x[:30], value=list(range(30)))
    memory.learn(x[30:33], observed=rng.random((3, 8, 8)) < 0.7)
    memory.save(tmp_path / "m")
    other = "plain" if device == "cpu" else "cpu"
    copies = [SQHN.load(tmp_path / "m", one) for one in (device, other)]
    copies += [copy.copy(memory), copy.deepcopy(memory), pickle.loads(pickle.dumps(memory)), memory.to(other)]
    memory.learn(x[33:])
    for one in copies:
        assert one.levels == tuple(tree)
        one.learn(x[33:])
        if one.device == device:
            assert fingerprint(one) == fingerprint(memory)
        assert_same_state(one, ReferenceSQHN.of(memory))  # on another device means are rounded in another way
        np.testing.assert_array_equal(one.recall(x).x, memory.recall(x).x)


def test_files_say_what_earlier_versions_do_not_know(tmp_path: Path) -> None:
    for tree, features in ((TREE, {"shared"}), (STOPPING, {"shared", "stops"}), (levels("L2 (4,8)", 4), set[str]())):
        memory = SQHN((8, 8), tree)
        memory.save(tmp_path / "m")
        header = header_of(tmp_path / "m")
        assert set(header["features"]) == features | {"compact"}
        for number, (level, own) in enumerate(zip(header["levels"], tree), start=1):
            flags = {name for name in ("shared", "stops") if getattr(own, name)}
            assert {name: level[name] for name in ("shared", "stops") if name in level} == dict.fromkeys(flags, True)
            about = describe(tmp_path / "m")["levels"][number - 1]
            assert about["nodes"] == memory.banks[number - 1].nodes


def test_the_arrays_of_a_shared_level_are_those_of_one_node() -> None:
    memory = SQHN((8, 8), ALL)
    memory.learn(samples((8, 8), 20, np.random.default_rng(0)))
    header, tensors = memory.inspect(encode)
    assert header["steps"] == [20 * 16, 20 * 4, 20]
    assert [len(tensors[f"level{number}.grown"]) for number in (1, 2, 3)] == [1, 1, 1]
    json.dumps(header, allow_nan=False)


@TREES
def test_a_memory_in_a_folder(tree: list[Level], tmp_path: Path) -> None:
    durable, free = SQHN((8, 8), tree, folder=tmp_path), SQHN((8, 8), tree)
    x = samples((8, 8), 80, np.random.default_rng(0))
    calls: list[Callable[[SQHN], object]] = [
        lambda memory: memory.learn(x[:30]),
        lambda memory: memory.learn(x[30:33], hold=True),
        lambda memory: memory.forget([0, 2]),
        lambda memory: memory.learn(x[33:60]),
        lambda memory: memory.pretrain(x[60:70]),
        lambda memory: memory.learn(x[70:], root_only=True),
    ]
    for call in calls:
        call(durable)
        call(free)
        del durable
        durable = SQHN.open(tmp_path, (8, 8), tree)
        assert fingerprint(durable) == fingerprint(free)
