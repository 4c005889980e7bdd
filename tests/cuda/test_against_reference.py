"""A GPU takes the decisions of the reference. (The CPU is no comparison here: it would need Numba.)"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.level import Options
from sqhn.reference import ReferenceSQHN
from tests.helpers import (
    assert_same_answers,
    assert_same_state,
    fingerprint,
    model_of,
    scaled_copies,
    set_chunk,
    ties_in_a_row,
)

TREES: dict[str, tuple[tuple[int, ...], list[Level]]] = {
    "one level": ((6, 7), [Level(capacity=9)]),
    "long vectors": ((20, 20, 14), [Level(capacity=6)]),
    "two levels": ((8, 8), [Level(4, 5, alpha=20.0), Level(capacity=7, alpha=30.0)]),
    "three levels": ((8, 8, 2), [Level(2, 5), Level(2, 6), Level(capacity=8)]),
    "in time": ((12, 2), [Level((3,), 6, alpha=50.0), Level(capacity=9)]),
    "overwrite": ((8, 8), [Level(4, 5), Level(capacity=6, when_full="overwrite")]),
    "freeze": ((8, 8), [Level(4, 5, when_full="freeze"), Level(capacity=6, when_full="freeze")]),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "paper": {},
    "cosine": {"similarity": "cosine"},
    "max": {"propagation": "max"},
    "heard": {"norm": "heard", "similarity": "cosine"},
    "blend": {"mu": "pseudocount", "blend": 0.3},
}


def stream(shape: tuple[int, ...], kind: str, count: int, seed: int = 0) -> NDArray[np.float32]:
    """Samples that differ, repeat, almost repeat, have few values, or are close to the centre."""
    rng = np.random.default_rng(seed)
    some = rng.random((5, *shape))[rng.integers(0, 5, count)]
    x = {
        "different": rng.random((count, *shape)),
        "repeated": some,
        "almost repeated": some + rng.normal(0, 1e-6, some.shape),
        "of few values": rng.integers(0, 3, (count, *shape)) / 2,
        "close to the centre": 0.5 + rng.integers(-1, 2, (count, *shape)) * 2e-4,
    }[kind]
    if kind == "of few values":
        x[::4, : shape[0] // 2] = 0  # patches without length, for cosines
    return x.astype(np.float32)


KINDS = ("different", "repeated", "almost repeated", "of few values", "close to the centre")


def learned_by_both(
    shape: tuple[int, ...], levels: list[Level], x: NDArray[np.float32], device: str, chunk: int = 256, **options: Any
) -> tuple[SQHN, ReferenceSQHN]:
    """A memory and a reference that learned the same samples, with the same results."""
    memory, reference = SQHN(shape, levels, device=device, **options), ReferenceSQHN(shape, levels, Options(**options))
    set_chunk(memory, chunk)
    written = memory.learn(x)
    expected = [reference.learn(sample) for sample in x]
    np.testing.assert_array_equal(written.index, [one.index for one in expected])
    np.testing.assert_array_equal(written.grew, [one.grew for one in expected])
    np.testing.assert_allclose(written.score, [one.score for one in expected], atol=1e-9)
    assert_same_state(memory, reference)
    return memory, reference


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("tree", TREES)
def test_learns_and_answers_as_the_reference(tree: str, options: str, device: str) -> None:
    shape, levels = TREES[tree]
    for seed, kind in enumerate(KINDS):
        x = stream(shape, kind, 30, seed)
        memory, reference = learned_by_both(shape, levels, x, device, chunk=12, **OPTIONS[options])
        assert_same_answers(memory, reference, np.concatenate([x[:3], stream(shape, "different", 3, 9)]))


@pytest.mark.parametrize("tree", ["three levels", "overwrite"])
@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_the_chunk_size_changes_nothing(tree: str, chunk: int, device: str) -> None:
    shape, levels = TREES[tree]
    learned_by_both(shape, levels, np.concatenate([stream(shape, kind, 15) for kind in KINDS]), device, chunk)


@pytest.mark.parametrize("shape", [(12,), (16, 20), (20, 10, 3)])
@pytest.mark.parametrize("alpha", [np.inf, 1e7])
def test_near_ties(shape: tuple[int, ...], alpha: float, device: str) -> None:
    x = scaled_copies(shape, 0)
    memory, reference = learned_by_both(shape, [Level(capacity=50, alpha=alpha)], x, device)
    rng = np.random.default_rng(1)
    queries = x[:20] + rng.normal(0, 1e-4, (20, *shape)).astype(np.float32)
    observed = rng.random(queries.shape) < 0.6
    assert list(memory.recall(queries).index) == [reference.recall(q).index for q in queries]
    masked = memory.recall(queries, observed)
    assert list(masked.index) == [reference.recall(q, o).index for q, o in zip(queries, observed)]


def test_rounding_errors_of_float32_decide_nothing(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neurons move in steps as small as their rounding errors: products alone would put them elsewhere."""
    from sqhn.banks.cuda import prototypes

    monkeypatch.setattr(prototypes, "exact_products", lambda _: True)
    monkeypatch.setattr(prototypes, "FLOAT32_SIZE", 0)
    first = (0.6 + 0.3 * np.random.default_rng(0).random((2, 12))).astype(np.float32)
    memory, reference = learned_by_both((12,), [Level(capacity=2)], first, device)
    node = reference.levels[0][0]
    model_of(memory).tree.root.neurons.c[:] = node.c[:] = node.known[:] = 1 << 20
    x = [first[0] + np.float32(0.4) * (first[1] - first[0])] * 450
    expected = [reference.learn(sample).index for sample in x]
    u, v = ((m.astype(np.float64) - 0.5) / np.linalg.norm(m.astype(np.float64) - 0.5) for m in node.m)
    x += [np.float32(0.5 + 0.4 * (u + v + tilt * (v - u))) for tilt in np.linspace(5e-5, -5e-5, 40)]
    expected += [reference.learn(sample).index for sample in x[450:]]
    set_chunk(memory, len(x))
    assert list(memory.learn(np.stack(x)).index) == expected
    assert_same_state(memory, reference)


def test_tiny_and_huge_values(device: str) -> None:
    rng = np.random.default_rng(0)
    for scale in (1e-44, 1e-38, 1e-20, 1e14):
        x = (rng.random((14, 5)) * scale).astype(np.float32)
        x[::3], x[1::4] = 0, rng.random((len(x[1::4]), 5))
        learned_by_both((5,), [Level(capacity=6)], x, device, chunk=7, similarity="cosine")


@pytest.mark.parametrize("block", [16, 4096])
def test_more_neurons_than_a_program_or_a_cache_holds(block: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqhn.banks.cuda import counts, prototypes

    for module in (prototypes, counts):
        monkeypatch.setattr(module, "LARGEST_BLOCK", block)
    monkeypatch.setattr(prototypes, "CACHED_PRODUCTS", 0)
    shape = (4, 6)
    for levels in ([Level(capacity=45)], [Level(2, 40), Level(capacity=45, when_full="overwrite")]):
        x = np.concatenate([stream(shape, "different", 60), stream(shape, "of few values", 20)])
        memory, reference = learned_by_both(shape, levels, x, device, chunk=32)
        assert_same_answers(memory, reference, x[-3:])


def test_entries_of_many_possible_values_are_int64(device: str) -> None:
    x = np.concatenate([stream((8, 8), "of few values", 30), stream((8, 8), "different", 20)])
    few, many = (
        SQHN((8, 8), [Level(4, values), Level(capacity=9, when_full="overwrite")], device=device)
        for values in (100, 10**9)
    )
    for memory in (few, many):
        set_chunk(memory, 16)
        memory.learn(x)
    banks: list[Any] = [few.banks[1], many.banks[1]]
    assert [bank.large.key.dtype.itemsize for bank in banks] == [4, 8]
    assert fingerprint(few) == fingerprint(many)
    np.testing.assert_array_equal(few.recall(x).x, many.recall(x).x)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_tree_any_stream(data: st.DataObject, device: str) -> None:
    policy: Any = st.sampled_from(["average", "overwrite", "oldest", "freeze"])
    alpha = st.sampled_from([2.0, 20.0, 1e7, np.inf])
    lower: Any = st.sampled_from(["average", "freeze"])
    level = st.builds(Level, kernel=st.just(2), capacity=st.integers(1, 8), alpha=alpha, when_full=lower)
    below = data.draw(st.lists(level, max_size=2))
    top = Level(capacity=data.draw(st.integers(1, 8)), alpha=data.draw(alpha), when_full=data.draw(policy))
    words = data.draw(st.sampled_from(list(OPTIONS.values())))
    x = stream((8, 8), data.draw(st.sampled_from(KINDS)), data.draw(st.integers(1, 16)), data.draw(st.integers(0, 99)))
    learned_by_both((8, 8), [*below, top], x, device, data.draw(st.sampled_from([1, 4, 256])), **words)


def test_hold_memorize_and_root_only(device: str) -> None:
    shape, levels = TREES["three levels"]
    x = stream(shape, "different", 8)
    memory, reference = SQHN(shape, levels, device=device), ReferenceSQHN(shape, levels)
    for group in (x[:1], x[1:4], x[4:]):
        memory.learn(group, hold=True)
        reference.learn_samples(group)
    assert_same_state(memory, reference)
    memory, reference = SQHN(shape, levels, device=device), ReferenceSQHN(shape, levels)
    memory.memorize(x[:5])
    reference.memorize(x[:5])
    assert_same_state(memory, reference)
    memory.learn(x[5:], root_only=True)
    for sample in x[5:]:
        reference.learn(sample, root_only=True)
    assert_same_state(memory, reference)


@pytest.mark.parametrize("tree", ["one level", "two levels"])
def test_an_interrupt_waits_for_the_end_of_a_chunk(tree: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqhn.banks.cuda import prototypes
    from sqhn.banks.cuda.arrays import full_precision

    shape, levels = TREES[tree]
    x = stream(shape, "different", 12)
    memory, reference = SQHN(shape, levels, device=device), ReferenceSQHN(shape, levels)

    def interrupted() -> Any:
        signal.raise_signal(signal.SIGINT)
        return full_precision()

    monkeypatch.setattr(prototypes, "full_precision", interrupted)
    with pytest.raises(KeyboardInterrupt):
        memory.learn(x)
    for sample in x:
        reference.learn(sample)
    assert_same_state(memory, reference)


def test_saved_here_and_loaded_there(device: str, tmp_path: Path) -> None:
    pytest.importorskip("numba")
    shape, levels = TREES["three levels"]
    x = stream(shape, "different", 30)
    here, there = SQHN(shape, levels), SQHN(shape, levels, device=device)
    here.learn(x[:20])
    there.learn(x[:20])
    assert there.device == "cuda:0"
    assert here.device == here.to("cpu").device == "cpu"
    assert there.to("cuda:0") is there
    here.save(tmp_path / "here")
    there.save(tmp_path / "there")
    copies = [
        there.to("cpu"), here.to(device), SQHN.load(tmp_path / "there"), SQHN.load(tmp_path / "here", device=device),
    ]  # fmt: skip
    for memory in (there, *copies):
        memory.learn(x[20:])
    here.learn(x[20:])
    reference = ReferenceSQHN.of(here)
    for memory in (there, *copies):
        assert_same_state(memory, reference)


def test_tensors_return_tensors_and_arrays_return_arrays(device: str) -> None:
    import torch

    shape, levels = TREES["two levels"]
    x = (stream(shape, "different", 6) * 255).astype(np.uint8)
    by_array, by_tensor = (SQHN(shape, levels, device=device) for _ in range(2))
    written = by_tensor.learn(torch.from_numpy(x))
    assert all(isinstance(field, torch.Tensor) for field in written)
    by_array.learn(x)
    assert fingerprint(by_array) == fingerprint(by_tensor)
    place = model_of(by_array).tree.device.place
    for value in (torch.from_numpy(x), torch.from_numpy(x).to(place)):
        found: Any = by_array.recall(value)
        assert found.x.device == value.device
        assert found.x.dtype == torch.float32
        np.testing.assert_array_equal(found.x.cpu().numpy(), by_array.recall(x).x)
    assert isinstance(by_array.recall(x).x, np.ndarray)
    assert isinstance(by_array.recall(x[0]).score, float)
    bad: Any = torch.zeros(2, 8, 8, device=place)
    bad[1, 2, 3] = torch.nan
    with pytest.raises(ValueError, match=r"the value at \(1, 2, 3\) of an array of shape \(2, 8, 8\) is nan"):
        by_array.learn(bad)
    seen = ~torch.isnan(bad)
    found = by_array.recall(bad, seen)
    np.testing.assert_array_equal(found.x.cpu().numpy(), by_array.recall(np.zeros((2, 8, 8)), seen.cpu().numpy()).x)


@pytest.mark.parametrize("similarity", ["shifted_cosine", "cosine"])
@pytest.mark.parametrize("levels", [[Level(capacity=9)], [Level(capacity=2)], [Level(3, 6), Level(capacity=9)]])
def test_vectors_without_length(levels: list[Level], similarity: str, device: str) -> None:
    """Flat samples, flat neurons, and neurons that averaging has left without length."""
    rng = np.random.default_rng(4)
    x = rng.random((40, 6, 6)).astype(np.float32)
    x[rng.random(40) < 0.4] = 0.5 if similarity == "shifted_cosine" else 0.0
    x[::5, :3] = 0.5 if similarity == "shifted_cosine" else 0.0
    x[7::9] = np.sign(x[7::9] - 0.3)
    x[8::9] = (1 if similarity == "shifted_cosine" else 0) - x[7::9]
    memory, reference = learned_by_both((6, 6), levels, x, device, chunk=16, similarity=similarity)
    assert_same_answers(memory, reference, x[:8])


def test_repeated_flat_and_faint_samples_use_one_neuron(device: str) -> None:
    for x in (np.full((60, 8, 8), 0.5), 0.5 + 1e-3 * (np.random.default_rng(0).random((1, 8, 8)) - 0.5).repeat(60, 0)):
        memory, _ = learned_by_both((8, 8), [Level(capacity=20)], x.astype(np.float32), device, chunk=16)
        assert len(memory) == 1
        assert memory.recognize(x).old.all()


def test_overwriting_replaces_the_oldest(device: str) -> None:
    memory = SQHN((6, 6), [Level(capacity=4, when_full="overwrite")], device=device)
    assert list(memory.learn(stream((6, 6), "different", 10)).index) == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("rule", ["paper", "feedforward", "exact"])
def test_a_tie_of_a_tie_is_no_tie(rule: str, device: str) -> None:
    stored, question = ties_in_a_row()
    levels = [Level(4, 3), Level(capacity=3)]
    memory = SQHN((8,), levels, similarity="cosine", device=device)
    memory.memorize(stored)
    index = 1 if rule == "feedforward" else 0
    np.testing.assert_array_equal(memory.recall(question, inference=rule).x[:4], stored[index, :4])
