"""Code banks on a CPU, whose neurons are rows of bytes or lists of counts, against those in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqhn.banks.compilation import compiled
from sqhn.banks.cpu.counts import Counts
from sqhn.banks.cpu.kernels.columns import USED
from sqhn.banks.interface import Codes, Support
from sqhn.banks.plain import counts as plain
from sqhn.banks.plain.device import Plain
from sqhn.level import Level, Options

STRENGTHS: dict[str, Any] = {
    "equal": lambda rng, shape: np.ones(shape),
    "alike": lambda rng, shape: rng.uniform(0.9, 1, shape),
    "apart": lambda rng, shape: rng.uniform(0, 1, shape) ** 4,
    "silent": lambda rng, shape: rng.uniform(0.5, 1, shape) * (rng.random(shape) < 0.7),
    "faint": lambda rng, shape: rng.choice([1e-13, 3e-12, 1.0], shape),
    "negative": lambda rng, shape: rng.uniform(-1, 1, shape),
}


def both(nodes: int, family: int, values: int, level: Level, top: bool, **options: Any) -> list[Any]:
    """An empty bank of each kind."""
    children = np.random.default_rng(0).permutation(nodes * family).reshape(nodes, family).astype(np.int32)
    settings = children, level, Options(**options), top
    return [Counts(compiled(), *settings), plain.Counts(Plain(), *settings)]


def samples(rng: Any, children: int, batch: int, values: int, kind: str, holes: bool) -> Codes:
    """Codes of which some are repeated, whole or in part."""
    k = rng.integers(values, size=(children, batch)).astype(np.int32)
    same = rng.random((children, batch)) < rng.choice([0.0, 0.8, 1.0], batch)
    k = np.where(same, k[:, rng.integers(batch, size=batch)], k)
    heard = None
    if holes:
        heard = rng.random(k.shape) < rng.choice([0.0, 0.5, 1.0], batch)
    v = STRENGTHS[kind](rng, k.shape)
    return Codes(k, v if heard is None else v * heard, heard)


def assert_alike(mine: Any, theirs: Any) -> None:
    """Arrays of the same dtype; numbers up to rounding."""
    for a, b in zip(mine, theirs):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def assert_same_bank(banks: list[Any], asked: Codes, values: int, rng: Any) -> None:
    """Saved states and the answers to all questions."""
    mine, theirs = (bank.neurons.state() | bank.state() for bank in banks)
    assert mine.keys() == theirs.keys()
    assert_alike(mine.values(), theirs.values())
    one, other = banks
    most, batch = one.neurons.most, asked.k.shape[1]
    for count in {1, min(2, len(one.neurons.c[0])), most} - {0}:
        if (one.neurons.c > 0).sum(axis=1).min() >= count:
            assert_alike(one.top_k(asked, count), other.top_k(asked, count))
    if not (one.neurons.c > 0).any(axis=1).all():
        return
    j = np.array([rng.choice(np.flatnonzero(c), batch) for c in one.neurons.c], np.int32)
    start, value, probability = one.support(j)
    expected = other.support(j)
    np.testing.assert_array_equal(start, expected.start)
    order = [np.lexsort((part.value, np.repeat(np.arange(len(start) - 1), np.diff(start)))) for part in
             (Support(start, value, probability), expected)]  # fmt: skip
    np.testing.assert_array_equal(value[order[0]], expected.value[order[1]])
    np.testing.assert_allclose(probability[order[0]], expected.probability[order[1]], atol=1e-15)
    neurons = Support(np.arange(j.size + 1), j.ravel(), None)
    assert_alike([one.at(asked, neurons)], [other.at(asked, neurons)])
    if values < 1000:
        u = rng.random((one.children.size, 2, values))
        np.testing.assert_allclose(one.max_sum(u), other.max_sum(u), atol=1e-12)


@pytest.mark.parametrize("kind", STRENGTHS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_rows_and_lists_are_the_same_counts(kind: str, data: Any) -> None:
    top = data.draw(st.booleans(), "top")
    nodes, family = (1 if top else data.draw(st.integers(1, 3))), data.draw(st.sampled_from([1, 2, 5, 16, 300]))
    values = data.draw(st.sampled_from([1, 3, 256, 257, 70_000]), "values")
    level = Level(
        capacity=data.draw(st.integers(1, 12)),
        gamma=data.draw(st.sampled_from([1.0, 0.5])),
        when_full=data.draw(st.sampled_from(["average", "overwrite", "oldest", "freeze"] if top else ["average"])),
    )
    norm = data.draw(st.sampled_from(["all", "heard"]))
    banks = both(
        nodes, family, values, level, top, norm=norm, propagation=data.draw(st.sampled_from(["max", "argmax"]))
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    for step in data.draw(
        st.lists(st.sampled_from(["learn", "holes", "hold", "forget", "resize"]), max_size=5), "steps"
    ):
        asked = samples(rng, nodes * family, 9, values, kind, step == "holes")
        for bank in banks:
            bank.reserve(9, values)
        if step in ("learn", "holes"):
            mine, theirs = (bank.learn(asked) for bank in banks)
            assert_alike(*((found.k, found.score, found.kind) for found in (mine, theirs)))
            assert top or np.allclose(mine.v, theirs.v, rtol=0, atol=1e-12)  # nobody hears the memory node
        elif step == "hold" and banks[0].grown.min():
            j = np.array([np.flatnonzero(c)[:1] for c in banks[0].neurons.c if c.any()], np.int32)
            if len(j) == nodes:
                one = Codes(asked.k[:, :1], asked.v[:, :1], None)
                for bank in banks:
                    bank.hold(one, 3, j, np.ones(j.shape, bool))
        elif step == "forget" and top and banks[0].neurons.c.any():
            gone = np.flatnonzero(banks[0].neurons.c[0])[:2]
            for bank in banks:
                bank.forget(gone)
        elif step == "resize" and top:
            for bank in banks:
                bank.resize(Level(capacity=bank.level.capacity + 2, gamma=level.gamma, when_full=level.when_full))
        for bank in banks:
            bank.settle()
        assert_same_bank(banks, samples(rng, nodes * family, 6, values, kind, holes=False), values, rng)


def test_a_row_takes_a_byte_for_each_child() -> None:
    rng = np.random.default_rng(0)
    for values, size in ((256, 1), (257, 2), (65536, 2), (65537, 3)):
        bank, _ = both(2, 16, values, Level(capacity=500), top=False)
        bank.reserve(500, values)
        bank.learn(samples(rng, 32, 500, values, "equal", holes=False)._replace(k=rng.integers(values, size=(32, 500))))
        bank.settle()
        assert bank.rows.nbytes == 2 * 500 * 16 * size
        assert bank.pool.nbytes == bank.by_neuron.nbytes == 0


def test_few_strong_children_may_outweigh_many_weak_ones() -> None:
    for bank in both(1, 5, 2, Level(capacity=2), top=True):
        bank.reserve(2, 2)
        bank.learn(Codes(np.array([[0, 1], [0, 1], [1, 0], [1, 0], [1, 0]], np.int32), np.ones((5, 2))))
        strengths = np.array([0.9, 0.9, 0.1, 0.1, 0.1])
        k, v = bank.top_k(Codes(np.zeros((5, 1), np.int32), strengths[:, None].copy()), 1)
        assert k.item() == 0
        assert v.item() == pytest.approx(1.8 / np.sqrt(5) / np.linalg.norm(strengths))


def test_there_is_room_for_the_entries_of_all_rows_that_a_chunk_averages() -> None:
    """Nine neurons that are rows each get a sample that agrees with them in one of five children."""
    bank, _ = both(1, 5, 100, Level(capacity=9), top=False)
    each = np.tile(np.arange(9, dtype=np.int32), (5, 1))
    for k in (each, each + np.array([[0], [10], [20], [30], [40]], np.int32)):
        bank.reserve(9, 100)
        assert bank.learn(Codes(k, np.ones(k.shape))).k.tolist() == [list(range(9))]
        assert bank.heads[0, USED] <= bank.pool.shape[1]
        bank.settle()
    assert bank.heads[0, USED] == 9 * (1 + 4 * 2)


def test_slots_of_forgotten_neurons_are_used_again() -> None:
    """Samples with missing children are in lists, each in a slot of its own."""
    bank, _ = both(1, 4, 100, Level(capacity=3), top=True)
    heard = np.array([[True], [True], [True], [False]]).repeat(3, axis=1)
    for start in (0, 10, 20):
        k = start + np.tile(np.arange(3, dtype=np.int32), (4, 1))
        bank.reserve(3, 100)
        assert bank.learn(Codes(k, heard.astype(np.float64), heard)).k.tolist() == [[0, 1, 2]]
        assert sorted(bank.slot[0, :3]) == [0, 1, 2]
        bank.forget(np.array([0, 2, 1]))


def test_a_loaded_bank_knows_which_neurons_are_rows() -> None:
    bank, _ = both(1, 4, 9, Level(capacity=9), top=True)
    loaded, _ = both(1, 4, 9, Level(capacity=9), top=True)
    asked = Codes(np.tile(np.arange(9, dtype=np.int32), (4, 1)), np.ones((4, 9)))
    bank.reserve(9, 9)
    bank.learn(asked)
    state = bank.neurons.state() | bank.state()
    loaded.neurons.restore(state, bank.neurons.step)
    loaded.restore(state, 9)
    assert loaded.top_k(asked, 1)[0][0, :, 0].tolist() == list(range(9))
