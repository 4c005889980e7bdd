"""Every memory keeps what the three verbs promise, or names what it cannot do; and the suite that says so catches
those that do not.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

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
    """How a memory is made, the shape of its samples, and what it cannot do besides what its class says."""

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
def test_a_memory_keeps_what_it_promises(name: str, check: Check) -> None:
    if name in BASELINES and not name.startswith("NearestNeighbor"):
        pytest.importorskip("torch")
    make, shape, cannot = case = EVERY[name]
    reason = check(make, shape, cannot)
    assert reason is None or reason in case.named.values()


@pytest.mark.parametrize("name", TREES)
def test_a_memory_on_a_gpu_keeps_what_it_promises(name: str, request: pytest.FixtureRequest) -> None:
    make, shape, _ = sqhn(name, request.getfixturevalue("device"))
    assert not check_memory(make, shape).excused


def test_the_sqhn_needs_no_excuse() -> None:
    assert all(not sqhn(name, "cpu").named for name in TREES)


# -- the suite: memories that are broken in one way each ---------------------------------------------------------------


class Plain(NearestNeighbor):
    """A memory that is right."""

    def __init__(self) -> None:
        super().__init__(SHAPE, capacity=20)


class Moody(Plain):
    """No two are alike."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Moody.made += 1
        self.mood = Moody.made

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        return written._replace(score=written.score + self.mood)


class ArraysForOne(Plain):
    def recognize(self, x: ArrayLike) -> Recognized:
        return Recognized(*(np.asarray(field) for field in super().recognize(x)))


class ListsForMany(Plain):
    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        return found if isinstance(found.index, int) else found._replace(index=found.index.tolist())


class Wide(Plain):
    """Recalls float64."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        return found._replace(x=found.x.astype(np.float64))


class Tuples(Plain):
    def learn(self, x: ArrayLike) -> Any:
        return tuple(super().learn(x))


class Mute(Plain):
    def recognize(self, x: ArrayLike) -> Recognized:
        raise NotImplementedError("cannot recognize")


class Contradictory(Plain):
    def recognize(self, x: ArrayLike) -> Recognized:
        judged = super().recognize(x)
        return judged._replace(threshold=judged.threshold + 1)


class Curious(Plain):
    """Looks at what was not observed."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        return found._replace(score=found.score + float(np.isnan(x).sum()))


class Backwards(Plain):
    """Learns a batch from its end, and says nothing of where."""

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x if np.shape(x) == SHAPE else np.asarray(x)[::-1])
        return written._replace(index=-1 + 0 * written.index)


class Relative(Plain):
    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        return found._replace(score=found.score / np.size(found.score))


class FromZero(Plain):
    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        return written._replace(step=written.step - 1)


class Forgetful(Plain):
    """Forgets the second sample."""

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        self.store.rows[1:2] = 0.5
        return written


class Misnaming(Plain):
    """Names another neuron than the one written."""

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        return written._replace(index=written.index + 1)


class Helpless(Plain):
    """Cannot do with a part."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        return found if observed is None else found._replace(x=np.full_like(found.x, 0.5))


class MaskForEach(Plain):
    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        if observed is not None and np.shape(observed) != np.shape(x):
            raise ValueError(f"observed must have shape {np.shape(x)}; got {np.shape(observed)}")
        return super().recall(x, observed)


class Gullible(Plain):
    """Calls everything old once it knows something."""

    def recognize(self, x: ArrayLike) -> Recognized:
        judged = super().recognize(x)
        return judged._replace(old=judged.old | True, score=judged.score * 0) if len(self) else judged


class Inventive(Plain):
    """Recalls something before it has learned."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        try:
            return super().recall(x, observed)
        except EmptyMemoryError:
            return Recalled(np.zeros(np.shape(x), np.float32), 0, 0.0)


class BornKnowing(Plain):
    def recognize(self, x: ArrayLike) -> Recognized:
        judged = super().recognize(x)
        return judged if len(self) else judged._replace(old=judged.old | True)


class RawBytes(Plain):
    def learn(self, x: ArrayLike) -> Written:
        return super().learn(np.asarray(x, np.float32) if np.asarray(x).dtype == np.uint8 else x)


class SinglePrecision(Plain):
    def learn(self, x: ArrayLike) -> Written:
        if isinstance(x, np.ndarray) and x.dtype == np.float64:
            raise TypeError("float64 is not taken")
        return super().learn(x)


class Orderly(Plain):
    def learn(self, x: ArrayLike) -> Written:
        flags = np.asarray(x).flags
        if flags.f_contiguous and not flags.c_contiguous:
            raise ValueError("arrays must be in C order")
        return super().learn(x)


class Native(Plain):
    def learn(self, x: ArrayLike) -> Written:
        if not np.asarray(x).dtype.isnative:
            raise ValueError("the other byte order is not supported")
        return super().learn(x)


class Forward(Plain):
    def learn(self, x: ArrayLike) -> Written:
        if min(np.asarray(x).strides, default=0) < 0:
            raise ValueError("negative strides are not supported")
        return super().learn(x)


class Scribbler(Plain):
    """Fills in missing values in the caller's array."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        if isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.flags.writeable:
            np.nan_to_num(x, copy=False)
        return found


class Borrower(Plain):
    """Keeps the caller's array for a row."""

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        if isinstance(x, np.ndarray) and x.dtype == np.float32 and x.shape == SHAPE and x.flags.c_contiguous:
            self.last = written.index, x
        return written

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        index, row = getattr(self, "last", (0, None))
        if row is not None:
            self.store.rows[index] = row.ravel()
        return super().recall(x, observed)


class Lender(Plain):
    """Hands out its own rows."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        one = isinstance(found.index, int)
        return found._replace(x=self.store.rows[found.index].reshape(SHAPE)) if one else found


class AnyShape(Plain):
    def learn(self, x: ArrayLike) -> Written:
        return super().learn(np.resize(np.asarray(x), SHAPE) if np.shape(x) == (4, 5) else x)


class Terse(Plain):
    """Does not say what is wrong."""

    def recognize(self, x: ArrayLike) -> Recognized:
        try:
            return super().recognize(x)
        except ValueError as error:
            raise ValueError("bad samples") from error


class AnyDtype(Plain):
    def learn(self, x: ArrayLike) -> Written:
        return super().learn(np.asarray(x, np.float32) if np.asarray(x).dtype == np.int64 else x)


class TakesNaN(Plain):
    def learn(self, x: ArrayLike) -> Written:
        return super().learn(np.nan_to_num(x) if np.asarray(x).dtype.kind == "f" else x)


class AnyMask(Plain):
    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        return super().recall(x, None if observed is None else np.asarray(observed, bool))


class Halfway(Plain):
    """Learns the samples of a batch up to the first that is bad."""

    def learn(self, x: ArrayLike) -> Written:
        if np.shape(x) == SHAPE or np.shape(x)[1:] != SHAPE or not len(np.asarray(x)):
            return super().learn(x)
        done = [super(Halfway, self).learn(sample) for sample in np.asarray(x)]
        return Written(*map(np.array, zip(*done)))


class CountsFirst(Plain):
    """Counts a sample before it looks at it."""

    refused = 0

    def learn(self, x: ArrayLike) -> Written:
        self.refused += 1
        written = super().learn(x)
        self.refused -= 1
        return written._replace(step=written.step + self.refused)


class Impressionable(Plain):
    """Learns what it is asked."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        super().learn(found.x)
        return found


class Remembering(Plain):
    """Goes on counting after `reset`."""

    past = 0

    def reset(self) -> None:
        self.past = self.store.count
        super().reset()

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        return written._replace(step=written.step + self.past)


class CountsTwice(Plain):
    def __len__(self) -> int:
        return 2 * super().__len__()


class Lossy(Plain):
    """Is empty when it comes out of a pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Lossy, ()

    def __deepcopy__(self, memo: object) -> Lossy:
        other = Lossy()
        other.learn(self.store.rows.reshape(-1, *SHAPE))
        return other


class Inseparable(Plain):
    """Is its own copy."""

    def __deepcopy__(self, memo: object) -> Inseparable:
        return self


class Modest(Plain):
    cannot: ClassVar[Mapping[str, str]] = {"one shot": "I am not that good"}


class Shy(Plain):
    cannot: ClassVar[Mapping[str, str]] = {"recognize": "I never know"}


CAUGHT: dict[type[Plain], set[str]] = {
    ArraysForOne: {"single samples"},
    ListsForMany: {"batches"},
    Wide: {"single samples", "batches"},
    Contradictory: {"recognize"},
    Curious: {"missing values"},
    Backwards: {"batch equals loop"},
    Relative: {"answers one by one"},
    FromZero: {"steps from 1"},
    Forgetful: {"batch equals loop", "one shot", "from half", "old and new"},
    Misnaming: {"one shot"},
    Helpless: {"from half"},
    MaskForEach: {"one mask for all"},
    Gullible: {"old and new"},
    Inventive: {"empty recall", "refusal changes nothing", "reset"},
    BornKnowing: {"empty recognize", "reset"},
    RawBytes: {"bytes"},
    SinglePrecision: {"float64", "input unchanged"},
    Orderly: {"layouts"},
    Native: {"byte order"},
    Forward: {"negative strides"},
    Scribbler: {"input unchanged"},
    Borrower: {"shared arrays"},
    Lender: {"shared arrays"},
    AnyShape: {"wrong shapes"},
    Terse: {"wrong shapes", "not finite"},
    AnyDtype: {"wrong dtypes"},
    TakesNaN: {"not finite"},
    AnyMask: {"bad masks"},
    Halfway: {"refusal changes nothing"},
    CountsFirst: {"refusal changes nothing"},
    Remembering: {"reset"},
    CountsTwice: {"len"},
    Lossy: {"pickle"},
    Inseparable: {"deepcopy"},
    Modest: {"one shot"},
    Shy: {"recognize"},
}
"""All that each of them fails."""

CAUGHT_AMONG_OTHERS: dict[type[Plain], str] = {
    Moody: "made alike",
    Impressionable: "asking changes nothing",
    Mute: "recognize",
    Tuples: "batches",
}


def failures(make: Callable[[], Memory], cannot: Mapping[str, str] | None = None) -> dict[str, str]:
    """The messages of check_memory, by check."""
    failed = {}
    for check in checks():
        try:
            check(make, SHAPE, cannot)
        except AssertionError as error:
            failed[check.__name__] = str(error)
    return failed


@pytest.mark.parametrize("broken", CAUGHT)
def test_a_broken_memory_is_caught_by_the_right_check(broken: type[Plain]) -> None:
    assert set(failures(broken)) == CAUGHT[broken]


@pytest.mark.parametrize("broken", CAUGHT_AMONG_OTHERS)
def test_a_badly_broken_memory_is_caught(broken: type[Plain]) -> None:
    assert CAUGHT_AMONG_OTHERS[broken] in failures(broken)


def test_every_check_can_fail() -> None:
    caught = set().union(*CAUGHT.values(), CAUGHT_AMONG_OTHERS.values())
    assert caught == {check.__name__ for check in checks()}


def test_a_memory_that_is_right_passes_all() -> None:
    report = check_memory(Plain, SHAPE)
    assert report.passed == tuple(check.__name__ for check in checks())
    assert report.excused == {}


def test_a_failure_names_the_check_the_question_and_the_answer() -> None:
    with pytest.raises(AssertionError) as caught:
        check_memory(FromZero, SHAPE)
    assert str(caught.value) == (
        f"1 of {len(checks())} checks failed:\n- steps from 1: learn(float32 array of shape (1, 4, 4)) after 0 other "
        "samples: expected the steps [1]; got [0]"
    )
    with pytest.raises(
        AssertionError, match=r"recognize\(float32 array of shape \(12, 4, 4\)\) raised NotImpl.*: cannot"
    ):
        check_memory(Mute, SHAPE)
    with pytest.raises(
        AssertionError, match="one shot: the memory passes this check, but its `cannot` says 'I am not that good'"
    ):
        check_memory(Modest, SHAPE)


def test_a_failure_is_excused_by_its_name() -> None:
    reason = {"steps from 1": "it counts as its programmers do"}
    assert check_memory(FromZero, SHAPE, reason).excused == reason
    assert set(failures(Forgetful, reason | {"one shot": "it forgets"})) == CAUGHT[Forgetful] - {"one shot"} | {
        "steps from 1"
    }


# -- the suite: memories that can do less ------------------------------------------------------------------------------


class Shelf:
    """Somebody's memory that takes whole samples, in batches, and cannot recognize."""

    def __init__(self) -> None:
        self.rows: list[NDArray[np.float32]] = []

    def _batch(self, x: Any) -> NDArray[np.float32]:
        x = np.asarray(x)
        if x.dtype.kind != "f" and x.dtype != np.uint8:
            raise TypeError(f"floats or bytes, not {x.dtype} {x.shape}")
        if x.ndim != 3 or x.shape[1:] != SHAPE or not len(x):
            raise ValueError(f"not a batch: {x.shape}")
        floats = np.array(x / 255 if x.dtype == np.uint8 else x, np.float32)
        if not np.isfinite(floats).all():
            raise ValueError(f"{floats[~np.isfinite(floats)][0]} is not finite")
        return floats

    def _off(self, x: NDArray[np.float32]) -> NDArray[np.float64]:
        rows = np.array(self.rows, np.float64)
        off: NDArray[np.float64] = np.abs(x[:, None] - rows[None]).sum(axis=(2, 3))
        return off

    def learn(self, x: ArrayLike) -> Written:
        done = []
        for sample in self._batch(x):
            score = -self._off(sample[None]).min() if self.rows else -np.inf
            self.rows.append(sample)
            done.append((len(self.rows) - 1, True, score, len(self.rows)))
        return Written(*map(np.array, zip(*done)))

    def recall(self, x: ArrayLike) -> Recalled:
        x = self._batch(x)
        if not self.rows:
            raise EmptyMemoryError("empty")
        off = self._off(x)
        index = off.argmin(axis=1)
        return Recalled(np.array(self.rows)[index], index, -off.min(axis=1))


class Drawer:
    """Somebody's memory that takes one sample at a time."""

    cannot: ClassVar[Mapping[str, str]] = {"batches": "one at a time"}

    def __init__(self) -> None:
        self.inside = Plain()

    def _one(self, x: ArrayLike) -> ArrayLike:
        if np.ndim(x) == 3:
            raise ValueError(f"one at a time: {np.shape(x)}")
        return x

    def learn(self, x: ArrayLike) -> Written:
        return self.inside.learn(self._one(x))

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        return self.inside.recall(self._one(x), observed)

    def recognize(self, x: ArrayLike) -> Recognized:
        return self.inside.recognize(self._one(x))


LESS = {
    "single samples": "batches only",
    "recognize": "nobody has needed it",
    "missing values": "it compares whole samples",
}


def test_what_needs_an_ability_is_excused_with_it() -> None:
    report = check_memory(Shelf, SHAPE, LESS)  # type: ignore[arg-type]
    assert report.excused == LESS | {
        "from half": LESS["missing values"],
        "one mask for all": LESS["missing values"],
        "bad masks": LESS["missing values"],
        "old and new": LESS["recognize"],
        "empty recognize": LESS["recognize"],
        "reset": "it has no reset()",
        "len": "it has no len()",
    }
    assert set(check_memory(Drawer, SHAPE).excused) == {
        "batches",
        "batch equals loop",
        "answers one by one",
        "one mask for all",
        "reset",
        "len",
    }


@pytest.mark.parametrize("name", LESS)
def test_a_memory_that_can_do_less_must_say_so(name: str) -> None:
    less = {other: reason for other, reason in LESS.items() if other != name}
    assert name in failures(Shelf, less)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["single samples", "batches", "recognize", "missing values", "pickle", "len", "bytes"])
def test_an_excuse_for_what_a_memory_can_do_is_a_failure(name: str) -> None:
    failed = failures(Plain, {name: "too hard"})
    assert list(failed) == [name]
    assert failed[name] == f"{name}: the memory passes this check, but its `cannot` says 'too hard'"


@pytest.mark.parametrize(
    ("cannot", "message"),
    [
        ({"one-shot": "no"}, "`cannot` names 'one-shot', which is no check; the checks are 'made alike'"),
        ({"one shot": " "}, "`cannot` must give a reason for 'one shot'; got ' '"),
        ({"one shot": None}, "`cannot` must give a reason for 'one shot'; got None"),
        ({"single samples": "no", "batches": "no"}, "so the memory takes no samples at all"),
    ],
)
def test_excuses_are_checked(cannot: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_memory(Plain, SHAPE, cannot)


def test_samples_need_some_values() -> None:
    with pytest.raises(ValueError, match=r"at least 8 values; got shape \(2, 3\)"):
        check_memory(lambda: SQHN((2, 3), capacity=9), (2, 3))


def test_checks_have_names_and_say_what_they_ask() -> None:
    names = [check.__name__ for check in checks()]
    assert len(set(names)) == len(names) > 25
    assert all(check.__doc__ and check.__doc__.endswith(".") for check in checks())


def test_the_suite_needs_only_numpy() -> None:
    """Not pytest either."""
    program = (
        "import sys\n"
        "for name in ('torch', 'numba', 'pytest', 'scipy'): sys.modules[name] = None\n"
        "from sqhn.paper.baselines.store import NearestNeighbor\n"
        "from sqhn.testing import check_memory\n"
        "check_memory(lambda: NearestNeighbor((3, 3), 9), [3, 3])"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
