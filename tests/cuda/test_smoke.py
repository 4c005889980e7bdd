"""Every kernel at least once, against the reference, on memories small enough for Triton's interpreter."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.level import Options
from sqhn.reference import ReferenceSQHN
from tests.by_evidence import assert_as_the_reference
from tests.helpers import assert_same_answers, assert_same_state, fingerprint, scaled_copies, set_chunk

pytest.importorskip("torch")
pytest.importorskip("triton")

from sqhn.banks.cuda import counts, evidence, gpu, prototypes
from sqhn.banks.cuda.kernels import common as common_kernels
from sqhn.banks.cuda.kernels import counts as counts_kernels
from sqhn.banks.cuda.kernels import direct as direct_kernels
from sqhn.banks.cuda.kernels import evidence as evidence_kernels
from sqhn.banks.cuda.kernels import prototypes as prototype_kernels

SHAPE = (4, 2)
MODULES = (common_kernels, counts_kernels, direct_kernels, evidence_kernels, prototype_kernels)
KERNELS = {  # the functions that ask which program they are
    f"{module.__name__.rpartition('.')[2]}.{name}": (module, name)
    for module in MODULES
    for name, function in vars(module).items()
    if hasattr(function, "run") and "tl.program_id" in inspect.getsource(function.fn)
}
PRODUCTS = {f"prototypes.{name}" for name in ("measure", "arrange", "walk", "replay", "best")}
DIRECT = {"direct.activity", "direct.at", "direct.walk"}
CODES = {f"counts.{name}" for name in ("ranges", "overlaps", "agreements", "walk", "enter", "repeats", "best")}
ANSWERS = {"common.first_best", "evidence.looks"}
TREE = ANSWERS | CODES | {"evidence.gather", "evidence.heard"}
SMALL = {  # so that everything is split into parts
    gpu: {"ACTIVITIES_AT_ONCE": 100},
    counts: {"LARGEST_BLOCK": 16, "OVERLAPS_AT_ONCE": 400, "MERGE_AFTER": 2},
    evidence: {"PRODUCTS_AT_ONCE": 320, "NEURONS_PER_LOOK": 16, "NEURONS_PER_GATHER": 16},
    prototypes: {"LARGEST_BLOCK": 16, "PRODUCTS_PER_CHUNK": 3000, "VALUES_AT_ONCE": 400, "CACHED_PRODUCTS": 0},
}


class Case(NamedTuple):
    """A memory, the kernels that it must launch, and how many samples it learns; small: with the SMALL constants."""

    levels: list[Level]
    kernels: set[str]
    options: Mapping[str, Any] = MappingProxyType({})
    total: int = 9
    small: bool = False


CASES = {
    "one level": Case([Level(capacity=4, alpha=8.0, when_full="overwrite")], PRODUCTS | DIRECT | ANSWERS),
    "two levels": Case(
        [Level(2, 3), Level(capacity=4, when_full="oldest")],
        PRODUCTS | {"counts.forget"} | DIRECT | TREE,
    ),
    "heard": Case(
        [Level(2, 3, when_full="freeze"), Level(capacity=4, when_full="freeze")],
        PRODUCTS | DIRECT | TREE,
        {"similarity": "cosine", "norm": "heard", "propagation": "max", "mu": "pseudocount"},
    ),
    "euclidean": Case([Level(2, 3), Level(capacity=4)], DIRECT | TREE, {"similarity": "euclidean"}),
    "shared": Case(
        [Level(1, 8, shared=True), Level(2, 4, shared=True, stops=True), Level(capacity=4, when_full="freeze")],
        PRODUCTS | DIRECT | TREE,
        {"similarity": "shifted_cosine"},
    ),
    "in parts": Case(
        [Level(2, 20), Level(capacity=20, when_full="overwrite")],
        PRODUCTS | {"prototypes.tops", "counts.forget"} | DIRECT | TREE,
        total=24,
        small=True,
    ),
}


def samples(count: int, centre: float) -> NDArray[np.float32]:
    """Some that come again, or almost, and some that are flat in one patch."""
    rng = np.random.default_rng(0)
    x = rng.random((count // 2, *SHAPE))[rng.integers(0, count // 2, count)]
    x[1::3] = rng.random(x[1::3].shape)
    x[2::4] += 1e-6 * rng.random(x[2::4].shape)
    x[3::4, :2] = x[4::4, :2] = centre
    return x.astype(np.float32)


def learn(memory: SQHN, reference: ReferenceSQHN, x: NDArray[np.float32], observed: Any = None) -> None:
    written = memory.learn(x, observed=observed)
    expected = [
        reference.learn(sample, observed=None if observed is None else observed[t]) for t, sample in enumerate(x)
    ]
    np.testing.assert_array_equal(written.index, [one.index for one in expected])
    np.testing.assert_array_equal(written.grew, [one.grew for one in expected])
    np.testing.assert_allclose(written.score, [one.score for one in expected], atol=1e-9)
    assert_same_state(memory, reference)


@pytest.mark.parametrize("name", CASES)
def test_as_the_reference(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learn, forget, learn with missing values, and answer in between."""
    levels, kernels, options, total, small = CASES[name]
    launched = record_launches(monkeypatch)
    for module, constants in SMALL.items() if small else ():
        for constant, value in constants.items():
            monkeypatch.setattr(module, constant, value)
    memory = SQHN(SHAPE, levels, device=device, **options)
    reference = ReferenceSQHN(SHAPE, levels, Options(**options))
    set_chunk(memory, 5)
    x = samples(total + 7, memory.options.centre)
    x[total : total + 2], x[total + 2] = memory.options.centre, x[total - 2]
    observed = np.random.default_rng(1).random((3, *SHAPE)) < 0.5
    observed[:, -1], observed[1, :2] = True, False
    learn(memory, reference, x[:total])
    assert_same_answers(memory, reference, x[-1:])
    memory.forget(0)
    reference.forget(0)
    learn(memory, reference, x[total : total + 3])
    memory.forget(1)
    reference.forget(1)
    assert_same_answers(memory, reference, x[total : total + 1])
    learn(memory, reference, x[total + 3 : total + 6], observed)
    for mask in (None, observed[:1]):
        assert_as_the_reference(memory, x[-1:], mask)
    assert launched == kernels


def test_near_ties(device: str) -> None:
    """Copies that float32 cannot tell apart: at the growth threshold, and among neurons, some of which are equal."""
    x = scaled_copies((12,), 0)
    levels = [Level(capacity=24, alpha=np.inf)]
    memory, reference = SQHN((12,), levels, device=device), ReferenceSQHN((12,), levels)
    noise = np.random.default_rng(1).normal(0, 1e-4, (6, 12)).astype(np.float32)
    learn(memory, reference, np.concatenate([x[:20], x[:2] + noise[:2]]))
    more = x[20 : 20 + (memory.capacity - len(memory)) // 2]
    for one in (memory, reference) * 2:
        one.memorize(more)
    learn(memory, reference, more[:3])
    questions = x[20:24] + noise[2:]
    observed = np.random.default_rng(2).random(questions.shape) < 0.6
    assert memory.recall(questions).index.tolist() == [reference.recall(q).index for q in questions]
    expected = [reference.recall(q, mask).index for q, mask in zip(questions, observed)]
    assert memory.recall(questions, observed).index.tolist() == expected


@pytest.mark.parametrize("size", [3, 784, 1300, 5000])
def test_a_power_of_two_of_warps_for_every_size(size: int, device: str) -> None:
    memory = SQHN((size,), [Level(capacity=2)], device=device)
    x = np.random.default_rng(0).random((2, size)).astype(np.float32)
    memory.learn(x)
    assert memory.recall(x).index.tolist() == [0, 1]
    bank: Any = memory.inspect(lambda model: model.tree.patterns)
    assert bank.warps in (1, 2, 4, 8)  # a GPU refuses others, the interpreter does not


def test_no_kernel_is_left_out() -> None:
    assert set.union(*(case.kernels for case in CASES.values())) == set(KERNELS)


def record_launches(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The kernels that are launched from now on."""
    launched = set()

    class Recorded:
        def __init__(self, name: str, kernel: Any) -> None:
            self.name, self.kernel = name, kernel

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            launched.add(self.name)
            return self.kernel[grid]

    for name, (module, kernel) in KERNELS.items():
        monkeypatch.setattr(module, kernel, Recorded(name, getattr(module, kernel)))
    return launched


def test_prototypes_that_are_bytes_become_floats(device: str) -> None:
    x = np.random.default_rng(4).integers(0, 256, (6, *SHAPE), np.uint8)
    one, other = SQHN(SHAPE, capacity=4, device="plain"), SQHN(SHAPE, capacity=4, device="plain")
    one.learn(x[:5])
    other.learn(x[:5].astype(np.float32) / np.float32(255))
    one.forget(1)
    other.forget(1)
    moved, floats = one.to(device), other.to(device)
    assert fingerprint(moved) == fingerprint(floats)
    moved.learn(x[5:])
    floats.learn(x[5:])
    assert fingerprint(moved) == fingerprint(floats)
