"""Every memory of the package passes the conformance suite, or names the checks that it cannot pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import ArrayLike

from sqhn import SQHN, EmptyMemoryError, Level, Memory, Recalled, Recognized, Written
from sqhn.inputs import as_answers, as_floats, as_samples
from sqhn.paper.baselines import (
    GPCN,
    MHN,
    BayesPCN,
    GradInfMHN,
    ManhattanMHN,
    NearestNeighbor,
    OnlineMHN,
    OnlineMHNTree,
)
from sqhn.reference import ReferenceSQHN
from sqhn.testing import Check, check_memory, checks
from tests.cuda.conftest import device  # noqa: F401

SHAPE = (4, 4)


class Case(NamedTuple):
    """How a memory is made, the shape of its samples, and checks that it cannot pass besides those of its class."""

    make: Callable[[], Memory]
    shape: tuple[int, ...] = SHAPE
    cannot: Mapping[str, str] | None = None

    @property
    def named(self) -> Mapping[str, str]:
        return {**getattr(self.make(), "cannot", {}), **(self.cannot or {})}


# -- the SQHN --------------------------------------------------------------------------------------------------------

TREES: dict[str, tuple[tuple[int, ...], tuple[Any, ...], dict[str, Any]]] = {
    "one level of few values": ((8, 8), (None,), {}),
    "one level of many": ((12, 12), (None,), {}),
    "one level of a row": ((24,), (None,), {}),
    "two levels, small patches": ((8, 8), (4, None), {}),
    "two levels, large patches": ((20, 20), (10, None), {}),
    "three levels, small patches": ((8, 8, 3), (2, 2, None), {}),
    "three levels, large patches": ((36, 36), (9, 2, None), {}),
    "one level, other options": ((12, 12), (None,), {"similarity": "cosine", "mu": "pseudocount"}),
    "two levels, other options": ((8, 8), (4, None), {"propagation": "max", "norm": "heard", "blend": 0.3}),
}


def sqhn(name: str, where: str) -> Case:
    shape, kernels, options = TREES[name]
    levels = [Level(kernel, 20) for kernel in kernels]
    return Case(lambda: SQHN(shape, levels, **options, device=where), shape)


# -- the reference ---------------------------------------------------------------------------------------------------


class Reference:
    """The reference, with the checks of inputs that all memories share."""

    def __init__(self, shape: tuple[int, ...], kernels: Sequence[Any]) -> None:
        self.shape, self.levels = shape, [Level(kernel, 20) for kernel in kernels]
        self.reset()

    def reset(self) -> None:
        self.memory = ReferenceSQHN(self.shape, self.levels)

    def __len__(self) -> int:
        return self.memory.root.grown

    def learn(self, x: ArrayLike) -> Written:
        samples, single, _ = as_samples(x, self.shape)
        done = [self.memory.learn(sample) for sample in as_floats(samples)]
        return Written(*as_answers(single, *map(np.stack, zip(*done))))

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        samples, single, seen = as_samples(x, self.shape, observed, holes=True)
        if not len(self):
            raise EmptyMemoryError("this memory is empty")
        masks = [None] * len(samples) if seen is None else seen
        done = [self.memory.recall(sample, mask)[:3] for sample, mask in zip(as_floats(samples), masks)]
        return Recalled(*as_answers(single, *map(np.stack, zip(*done))))

    def recognize(self, x: ArrayLike) -> Recognized:
        samples, single, _ = as_samples(x, self.shape)
        done = [self.memory.recognize(sample)[:3] for sample in as_floats(samples)]
        return Recognized(*as_answers(single, *map(np.stack, zip(*done))))


UNCHECKED = "the reference does not check samples: they must be floats of the right shape"
BARE = {
    "batches": "the reference is one sample at a time",
    "empty recall": "the reference trusts that something was learned",
    "bytes": UNCHECKED,
    "wrong shapes": UNCHECKED,
    "wrong dtypes": UNCHECKED,
    "not finite": UNCHECKED,
    "bad masks": UNCHECKED,
    "reset": "the reference is made anew instead",
    "len": "the reference is read, not asked, for what it has grown",
}
REFERENCES = {
    "reference, one level": Case(lambda: Reference((4, 4), [None])),
    "reference, two levels": Case(lambda: Reference((4, 4), [2, None])),
    "reference, three levels": Case(lambda: Reference((4, 4, 2), [2, (1, 2), None]), (4, 4, 2)),
    "reference, bare": Case(lambda: ReferenceSQHN(SHAPE, [Level(None, 20)]), SHAPE, BARE),
}

# -- the baselines ---------------------------------------------------------------------------------------------------

BLACK = {"from half": "missing values are black by default, and rows that are dark there win"}

BASELINES = {
    "NearestNeighbor": Case(lambda: NearestNeighbor(SHAPE, 20)),
    "NearestNeighbor, reservoir": Case(lambda: NearestNeighbor(SHAPE, 20, keep="reservoir", seed=3)),
    "MHN": Case(lambda: MHN(SHAPE), SHAPE, BLACK),
    "MHN, missing values ignored": Case(lambda: MHN(SHAPE, missing="ignore")),
    "ManhattanMHN": Case(lambda: ManhattanMHN(SHAPE)),
    "ManhattanMHN, missing values ignored": Case(lambda: ManhattanMHN(SHAPE, missing="ignore")),
    "GradInfMHN": Case(lambda: GradInfMHN(SHAPE, steps=80, rate=0.05)),  # some are calm before that
    "OnlineMHN": Case(lambda: OnlineMHN(SHAPE, 6, beta=0.5, rate=0.1)),
    "OnlineMHN, all that can be added": Case(
        lambda: OnlineMHN(
            SHAPE, 6, beta=0.5, rate=0.01, optimizer="adam", consolidation=2.0, replay=3, recognition="error"
        ),
    ),
    "OnlineMHNTree": Case(lambda: OnlineMHNTree(SHAPE, [2], 5, beta=0.5, rate=0.1)),
    "GPCN": Case(lambda: GPCN(SHAPE, 6, hidden=1, epochs=2, steps=3)),
    "BayesPCN": Case(lambda: BayesPCN(SHAPE, 6, hidden=2, steps=3)),
    "BayesPCN, two particles that forget": Case(
        lambda: BayesPCN(SHAPE, 6, hidden=1, steps=2, particles=2, forget=0.1, forget_every=3)
    ),
}

SQHNS = {f"sqhn, {name}, {where}": sqhn(name, where) for name in TREES for where in ("cpu", "plain")}
EVERY = SQHNS | REFERENCES | BASELINES


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """These memories are too small to share among threads."""
    try:
        import torch
    except ImportError:
        yield
    else:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("check", checks())
@pytest.mark.parametrize("name", EVERY)
def test_a_memory_passes_every_check(name: str, check: Check) -> None:
    if name in BASELINES and not name.startswith("NearestNeighbor"):
        pytest.importorskip("torch")
    make, shape, cannot = case = EVERY[name]
    reason = check(make, shape, cannot)
    assert reason is None or reason in case.named.values()


@pytest.mark.parametrize("name", TREES)
def test_a_memory_on_a_gpu_passes_every_check(name: str, request: pytest.FixtureRequest) -> None:
    make, shape, _ = sqhn(name, request.getfixturevalue("device"))
    assert not check_memory(make, shape).excused


def test_the_sqhn_needs_no_excuse() -> None:
    assert all(not sqhn(name, "cpu").named for name in TREES)
