"""The public behavior of a memory."""

from __future__ import annotations

import gc
import pickle
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, EmptyMemoryError, Level, Written
from tests.helpers import ARCHITECTURES, fingerprint, levels, noisy, stored_prototypes

SHAPE = (32, 32, 3)


class Robot(SQHN):
    def __init__(self, name: str) -> None:
        super().__init__(SHAPE, capacity=20)
        self.name = name


class TestPublicFace:
    def test_single_samples_give_plain_values(self, images: NDArray[np.float32]) -> None:
        memory = SQHN(SHAPE, capacity=5)
        written = memory.learn(images[0])
        assert (type(written.index), type(written.grew), type(written.score)) == (int, bool, float)
        assert written == Written(0, True, -np.inf, 1, False)
        recalled = memory.recall(images[0])
        assert recalled.x.shape == SHAPE
        assert type(recalled.index) is int
        recognized = memory.recognize(images[0])
        assert recognized.old is True
        assert type(memory.energy(images[0])) is float

    def test_batches_give_arrays(self, images: NDArray[np.float32]) -> None:
        memory = SQHN(SHAPE, capacity=5)
        written = memory.learn(images[:3])
        assert [np.shape(field) for field in written] == [(3,)] * 5
        assert list(written.step) == [1, 2, 3]
        assert [np.shape(field) for field in memory.recall(images[:1])[:3]] == [(1, *SHAPE), (1,), (1,)]
        assert [np.shape(field) for field in memory.recognize(images[:2])[:3]] == [(2,)] * 3
        assert np.shape(memory.energy(images[:2])) == (2,)

    def test_len_capacity_step_reset(self, images: NDArray[np.float32]) -> None:
        memory = SQHN(SHAPE, levels("L2 (4,8)", 3))
        empty = fingerprint(memory)
        assert (len(memory), memory.capacity, memory.step) == (0, 3, 0)
        memory.learn(images[:5])
        assert (len(memory), memory.capacity, memory.step) == (3, 3, 5)
        memory.reset()
        assert (len(memory), memory.capacity, memory.step) == (0, 3, 0)
        assert fingerprint(memory) == empty

    def test_uint8_is_read_as_fractions_of_255(self, images: NDArray[np.float32]) -> None:
        bytes_ = np.round(images[:10] * 255).astype(np.uint8)
        one, other = SQHN(SHAPE, capacity=5), SQHN(SHAPE, capacity=5)
        one.learn(bytes_)
        other.learn(bytes_.astype(np.float32) / np.float32(255))
        assert fingerprint(one) == fingerprint(other)

    def test_float64_lists_and_read_only_views_are_taken(self) -> None:
        x = np.random.default_rng(0).random((4, 6, 5))
        memories = []
        for form in (x, x.astype(np.float32), x.tolist(), np.asfortranarray(x), np.broadcast_to(x, x.shape)):
            memory = SQHN((6, 5), capacity=3)
            memory.learn(form)
            memories.append(fingerprint(memory))
        assert len(set(memories)) == 1

    def test_an_empty_memory_recognizes_nothing_and_recalls_nothing(self, images: NDArray[np.float32]) -> None:
        memory = SQHN(SHAPE, capacity=5)
        judged = memory.recognize(images[:2])
        assert not np.any(judged.old)
        assert np.all(judged.score < judged.threshold)
        for ask in (memory.recall, memory.energy):
            with pytest.raises(EmptyMemoryError, match="empty"):
                ask(images[0])

    def test_rho_by_default_depends_on_depth(self) -> None:
        assert SQHN(SHAPE, capacity=5).rho == 0.99999
        assert SQHN(SHAPE, levels("L2 (4,8)", 5)).rho == 0.999
        assert SQHN(SHAPE, capacity=5, rho=0.5).rho == 0.5

    def test_copies_are_independent(self, images: NDArray[np.float32]) -> None:
        memory = SQHN(SHAPE, levels("L3 (4,4,2)", 10))
        memory.learn(images[:15])
        for other in (copy(memory), deepcopy(memory), pickle.loads(pickle.dumps(memory))):
            before = fingerprint(memory)
            assert fingerprint(other) == before
            other.learn(images[15:20])
            assert fingerprint(memory) == before

    def test_a_memory_that_joblib_maps_read_only_can_learn(self, tmp_path: Path, images: NDArray[np.float32]) -> None:
        joblib = pytest.importorskip("joblib")
        for architecture in ("L1", "L2 (4,8)"):
            memory = SQHN(SHAPE, levels(architecture, 10))
            memory.learn(images[:15])
            joblib.dump(memory, tmp_path / "m.joblib")
            again = joblib.load(tmp_path / "m.joblib", mmap_mode="r")
            again.learn(images[15:20])
            memory.learn(images[15:20])
            assert fingerprint(again) == fingerprint(memory)

    def test_subclasses_may_have_their_own_init(self, tmp_path: Path, images: NDArray[np.float32]) -> None:
        memory = Robot("r2")
        memory.learn(images[:5])
        memory.save(tmp_path / "m.sqhn")
        loaded = Robot.load(tmp_path / "m.sqhn")
        assert type(loaded) is Robot
        for other in (loaded, pickle.loads(pickle.dumps(memory)), deepcopy(memory)):
            assert fingerprint(other) == fingerprint(memory)
        assert deepcopy(memory).name == "r2"

    def test_learn_takes_options_by_name_only(self, images: NDArray[np.float32]) -> None:
        memory: Any = SQHN(SHAPE, capacity=10)
        for more in ((7,), (images[:3],), (True, False)):
            with pytest.raises(TypeError, match=r"learn takes one positional argument.*learn\(x, hold=True\)"):
                memory.learn(images[:3], *more)
        assert memory.step == 0

    @pytest.mark.parametrize("name", ["input_shape", "levels", "options", "capacity", "step", "device", "banks"])
    def test_attributes_are_read_only(self, name: str) -> None:
        memory = SQHN(SHAPE, capacity=10)
        before = getattr(memory, name)
        with pytest.raises(AttributeError):
            setattr(memory, name, 3)
        assert getattr(memory, name) == before

    def test_rho_can_be_set_and_is_saved(self, tmp_path: Path, images: NDArray[np.float32]) -> None:
        memory = SQHN(SHAPE, capacity=10)
        memory.learn(images[:5])
        memory.rho = 0.9
        assert memory.rho == memory.options.rho == 0.9
        assert memory.recognize(images[0]).threshold == 0.9
        memory.save(tmp_path / "m.sqhn")
        for other in (SQHN.load(tmp_path / "m.sqhn"), deepcopy(memory)):
            assert other.rho == 0.9
        for bad in (-1, np.nan, np.inf, "high", True):
            with pytest.raises(ValueError, match="rho must be a number of at least 0"):
                memory.rho = bad  # type: ignore[assignment]
        assert memory.rho == 0.9
        memory.rho = None
        assert memory.rho == 0.99999

    def test_holding_a_single_sample_equals_learning_it(self, images: NDArray[np.float32]) -> None:
        one, other = SQHN(SHAPE, levels("L2 (4,8)", 5)), SQHN(SHAPE, levels("L2 (4,8)", 5))
        one.learn(images[0])
        other.learn(images[:1], hold=True)
        assert fingerprint(one) == fingerprint(other)

    def test_repr_says_how_full_it_is(self) -> None:
        memory = SQHN((8,), capacity=4)
        assert repr(memory) == f"SQHN((8,), 1 level, 0 of 4 neurons, step 0, {memory.nbytes} B)"


@pytest.mark.parametrize(
    ("shape", "kernels"),
    [
        ((784,), (28, None)),
        ((28, 28), (4, 7)),
        ((32, 32, 3), (2, 4, None)),
        ((12, 20), ((3, 5), (2, 2), None)),
        ((48, 2), ((8,), (3,), None)),
        ((8, 4, 6, 2), ((4, 4, 3), None)),
        ((7,), (None,)),
        ((5, 3), ((5, 1), None)),
    ],
)
def test_any_shape(shape: tuple[int, ...], kernels: tuple[Any, ...]) -> None:
    """Below capacity every distinct sample comes back exactly."""
    x = np.random.default_rng(0).random((10, *shape)).astype(np.float32)
    memory = SQHN(shape, [Level(kernel, 10) for kernel in kernels])
    memory.learn(x)
    recalled = memory.recall(x)
    np.testing.assert_array_equal(recalled.index, np.arange(10))
    np.testing.assert_array_equal(recalled.x, x)


class TestMathematics:
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_below_capacity_every_image_is_recalled_exactly(
        self, architecture: str, distinct: NDArray[np.float32]
    ) -> None:
        x = distinct[:200]
        memory = SQHN(SHAPE, levels(architecture, len(x)))
        assert np.all(memory.learn(x).grew)
        recalled = memory.recall(x)
        np.testing.assert_array_equal(recalled.index, np.arange(len(x)))
        exact = np.all(recalled.x == x, axis=(1, 2, 3))
        assert np.all(exact) if architecture == "L1" else np.mean(exact) > 0.5  # small flat patches may be merged
        assert np.abs(recalled.x - x).max() < 0.05

    def test_a_column_is_the_mean_of_its_targets(self, images: NDArray[np.float32]) -> None:
        memory = SQHN(SHAPE, capacity=40)
        index = memory.learn(images[:400]).index
        for j in range(40):
            mean = images[:400][index == j].astype(np.float64).mean(axis=0)
            np.testing.assert_allclose(stored_prototypes(memory)[0, j], mean.ravel(), atol=1e-5)

    def test_one_level_recalls_the_nearest_neighbour(self, images: NDArray[np.float32]) -> None:
        memory = SQHN(SHAPE, capacity=300)
        memory.learn(images[:900])
        query = noisy(images[900:1000], 0.3)
        stored = stored_prototypes(memory)[0].astype(np.float64) - 0.5
        y = query.reshape(100, -1).astype(np.float64) - 0.5
        cosine = y @ stored.T / (np.linalg.norm(y, axis=1)[:, None] * np.linalg.norm(stored, axis=1) + 1e-7)
        recalled = memory.recall(query)
        np.testing.assert_array_equal(recalled.index, cosine.argmax(axis=1))
        np.testing.assert_allclose(recalled.score, 0.5 + 0.5 * cosine.max(axis=1), atol=1e-12)

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_exact_inference_has_the_highest_energy(self, architecture: str, images: NDArray[np.float32]) -> None:
        memory = SQHN(SHAPE, levels(architecture, 40))
        memory.learn(images[:120])
        for x in (images[:40], images[200:240], noisy(images[:40])):
            exact, paper = memory.energy(x, inference="exact"), memory.energy(x)
            assert np.all(exact >= paper - 1e-12)
            np.testing.assert_allclose(memory.recall(x, inference="exact").score, exact, atol=1e-12)

    def test_a_stored_sample_has_energy_one(self) -> None:
        x = np.random.default_rng(0).random((30, *SHAPE))
        for architecture in ARCHITECTURES:
            memory = SQHN(SHAPE, levels(architecture, 30))
            memory.learn(x)
            for inference in ("paper", "exact"):
                np.testing.assert_allclose(memory.energy(x, inference=inference), 1.0, atol=1e-5)

    def test_singletons_follow_the_urn_of_theorem_2(self) -> None:
        """J slots, each hit at random: J (1 - 1/J)^t are expected to be left with one item."""
        J, t, runs = 50, 70, 40
        rng = np.random.default_rng(0)
        patterns = 0.5 + 0.4 * np.eye(J, dtype=np.float32)
        left = []
        for _ in range(runs):
            memory = SQHN((J,), capacity=J)
            memory.learn(patterns)
            memory.learn(patterns[rng.integers(0, J, t)])
            left.append(int((memory.counts == 1).sum()))
        expected = J * (1 - 1 / J) ** t
        variance = expected + J * (J - 1) * (1 - 2 / J) ** t - expected**2
        assert abs(np.mean(left) - expected) < 4 * np.sqrt(variance / runs)

    def test_below_capacity_learned_samples_are_recognized(self, distinct: NDArray[np.float32]) -> None:
        old, new = distinct[:200], distinct[200:400]
        for architecture in ("L1", "L3 (4,4,2)"):
            memory = SQHN(SHAPE, levels(architecture, 200))
            memory.learn(old)
            assert np.all(memory.recognize(old).old)
            if architecture == "L1":  # in a tree, all parts of a new image may be nearest to those of one old image
                assert not np.any(memory.recognize(new).old)
                assert not np.any(memory.recognize(1 - old).old)


class TestMissingValues:
    def test_missing_values_do_not_matter(self, images: NDArray[np.float32]) -> None:
        observed = np.random.default_rng(0).random(SHAPE) < 0.3
        for architecture in ("L1", "L3 (2,4,4)"):
            memory = SQHN(SHAPE, levels(architecture, 20))
            memory.learn(images[:60])
            expected = memory.recall(images[:20], observed)
            for filler in (np.nan, np.inf, -7.0, 1e30):
                recalled = memory.recall(np.where(observed, images[:20], np.float32(filler)), observed)
                np.testing.assert_array_equal(recalled.x, expected.x)

    def test_one_mask_may_serve_for_all_samples(self, images: NDArray[np.float32]) -> None:
        memory = SQHN(SHAPE, capacity=20)
        memory.learn(images[:60])
        observed = np.random.default_rng(0).random(SHAPE) < 0.3
        one = memory.recall(images[:9], observed)
        each = memory.recall(images[:9], np.broadcast_to(observed, (9, *SHAPE)))
        np.testing.assert_array_equal(one.x, each.x)

    def test_samples_without_observed_values_recall_something_stored(self, images: NDArray[np.float32]) -> None:
        for architecture in ARCHITECTURES:
            memory = SQHN(SHAPE, levels(architecture, 20))
            memory.learn(images[:20])
            with pytest.warns(UserWarning, match="1 of 1 samples have no observed value"):
                recalled = memory.recall(images[5], np.zeros(SHAPE, bool))
            assert (recalled.index, recalled.score) == (0, 0.0)
            np.testing.assert_array_equal(recalled.x, memory.recall(images[0]).x)


def test_memory_use_grows_with_the_number_of_stored_samples() -> None:
    """Capacity costs nothing until it is used."""
    memory = SQHN(SHAPE, [Level(2, 100_000), Level(4, 100_000), Level(capacity=100_000)])

    def held() -> int:
        arrays = [value for bank in memory.banks for value in vars(bank).values() if isinstance(value, np.ndarray)]
        arrays += [
            value for bank in memory.banks for value in vars(bank.neurons).values() if isinstance(value, np.ndarray)
        ]
        return sum(array.nbytes for array in arrays)

    assert held() < 100_000
    memory.learn(np.random.default_rng(0).random((10, *SHAPE)))
    assert held() < 10_000_000


def test_pretraining_needs_levels_below_and_comes_first() -> None:
    x = np.random.default_rng(0).random((3, 4, 4))
    with pytest.raises(ValueError, match="needs levels below the memory node"):
        SQHN((4, 4), capacity=3).pretrain(x)
    tree = SQHN((4, 4), [Level(2, 3), Level(capacity=3)])
    with pytest.raises(EmptyMemoryError, match="pretrain them first"):
        tree.learn(x, root_only=True)
    with pytest.raises(ValueError, match="root_only"):
        tree.learn(x, hold=True, root_only=True)
    tree.pretrain(x)
    assert (len(tree), tree.step) == (0, 0)
    tree.learn(x, root_only=True)
    assert (len(tree), tree.step, tree.banks[0].neurons.step) == (3, 3, 3)


@pytest.mark.parametrize("levels", [[Level(capacity=5)], [Level(4, 5), Level(capacity=5)]])
def test_an_unused_memory_is_freed_without_the_garbage_collector(levels: list[Level]) -> None:
    """Its arrays may take most of the machine's memory, so there must be no reference cycle."""
    memory = SQHN((32, 32), levels)
    memory.learn(np.random.default_rng(0).random((8, 32, 32)))
    memory.recall(np.zeros((32, 32)))
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        del memory
        gc.collect()
        assert [one for one in gc.garbage if type(one).__module__.startswith("sqhn")] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("levels", [[Level(capacity=9)], [Level(4, 9), Level(capacity=9)]])
def test_keep_returns_observed_values_as_given(levels: list[Level]) -> None:
    rng = np.random.default_rng(0)
    stored = rng.random((9, 8, 8), dtype=np.float32)
    memory = SQHN((8, 8), levels)
    memory.learn(stored)
    given, observed = noisy(stored, 0.01), rng.random((9, 8, 8)) < 0.6
    found = memory.recall(np.where(observed, given, np.nan), observed, keep=True)
    np.testing.assert_array_equal(found.x, np.where(observed, given, stored))
    np.testing.assert_array_equal(memory.recall(given[2], observed[2], keep=True).x, found.x[2])
    np.testing.assert_array_equal(memory.recall(np.ma.array(given, mask=~observed), keep=True).x, found.x)
    np.testing.assert_array_equal(memory.recall(given, observed).x, stored)
    np.testing.assert_array_equal(memory.recall(given, keep=True).x, given)  # nothing is missing
    bytes_ = (given * 255).round().astype(np.uint8)
    np.testing.assert_array_equal(
        memory.recall(bytes_, observed, keep=True).x[observed], (bytes_ / np.float32(255))[observed]
    )


@pytest.mark.parametrize("policy", ["average", "overwrite", "freeze"])
@pytest.mark.parametrize("below", [[], [Level(4, 6)]])
def test_resize_changes_no_stored_neuron(below: list[Level], policy: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((40, 8, 8), dtype=np.float32)
    memory, larger = (SQHN((8, 8), [*below, Level(capacity=J, when_full=policy)]) for J in (10, 25))
    for one in (memory, larger):
        one.learn(x[:10], value=range(10))
    before = fingerprint(memory)
    memory.resize(25)
    assert (fingerprint(memory), memory.capacity, memory.levels[-1].capacity) == (before, 25, 25)
    for one in (memory, larger):
        one.learn(x[10:])
    assert fingerprint(memory) == fingerprint(larger)
    assert memory.recall(x).values == larger.recall(x).values
    memory.save(tmp_path / "m")
    assert fingerprint(SQHN.load(tmp_path / "m")) == fingerprint(larger)
    memory.resize(25)
    for capacity in (24, 0, 2.5, True):
        with pytest.raises(ValueError, match=r"can only enlarge|capacity must be"):
            memory.resize(capacity)  # type: ignore[arg-type]
    assert fingerprint(memory) == fingerprint(larger)


@pytest.mark.parametrize("kernels", [[2], [2, 2]])
def test_pretrained_trees_recognize_what_they_stored(kernels: list[int]) -> None:
    """With propagation="max", nodes choose the same values in recognition as in learning."""
    rng = np.random.default_rng(3)
    x = rng.random((60, 8, 8))
    levels = [*(Level(k, 15) for k in kernels), Level(capacity=30)]
    memory = SQHN((8, 8), levels, propagation="max")
    memory.pretrain(x[30:])
    assert memory.learn(x[:30], root_only=True).grew.all()
    judged = memory.recognize(x[:30])
    np.testing.assert_allclose(judged.score, judged.threshold / memory.rho, rtol=1e-12)
    assert judged.old.all()


class TestOptionsOfTheOnlyLevel:
    def test_they_are_those_of_its_level(self) -> None:
        memory = SQHN((4,), capacity=5, alpha=10, gamma=0.9, when_full="oldest")
        assert memory.levels == (Level(None, 5, 10, 0.9, "oldest"),)
        with pytest.raises(ValueError, match="when_full must be one of"):
            SQHN((4,), capacity=5, when_full="newest")  # type: ignore[arg-type]

    def test_levels_have_their_own(self) -> None:
        with pytest.raises(ValueError, match=r"gamma=0.5 is for one level; .* Level\(gamma=0.5, ...\)"):
            SQHN((4,), [Level(capacity=5)], gamma=0.5)


class TestOpen:
    def test_it_begins_and_continues(self, tmp_path: Path) -> None:
        x = np.random.default_rng(0).random((6, 8))
        for n in range(3):
            memory = SQHN.open(tmp_path / "a" / "robot", (8,), capacity=4, gamma=0.5, rho=0.9)
            memory.learn(x[2 * n : 2 * n + 2])
            assert memory.step == 2 * n + 2
            memory.rho = 0.8
            del memory
        memory = SQHN.open(tmp_path / "a" / "robot", (8,), capacity=4, gamma=0.5, rho=0.9)
        assert memory.rho == 0.8
        memory.resize(9)
        del memory
        assert SQHN.open(tmp_path / "a" / "robot", (8,), capacity=4, gamma=0.5).capacity == 9

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"capacity": 5}, "levels"),
            ({"gamma": 0.25}, "levels"),
            ({"similarity": "cosine"}, "options"),
            ({"input_shape": (4, 2)}, r"input_shape \(8,\), not \(4, 2\)"),
            ({"capacity": None, "levels": [Level(4, 3), Level(capacity=4)]}, "levels"),
        ],
    )
    def test_another_kind_is_refused(self, change: dict[str, Any], message: str, tmp_path: Path) -> None:
        like: dict[str, Any] = {"input_shape": (8,), "capacity": 4}
        memory = SQHN.open(tmp_path, **like)
        memory.learn(np.ones(8) / 3)
        before = fingerprint(memory)
        del memory
        with pytest.raises(ValueError, match=f"{tmp_path} has another kind of memory: .*{message}"):
            SQHN.open(tmp_path, **like | change)
        assert fingerprint(SQHN.open(tmp_path, **like)) == before
