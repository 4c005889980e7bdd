"""The conformance suite catches memories that are broken in one way each, and excuses those that can do less."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from sqhn import SQHN, EmptyMemoryError, Memory, Recalled, Recognized, Written
from sqhn.testing import check_memory, checks
from tests.testing.broken import CAUGHT, CAUGHT_AMONG_OTHERS, SHAPE, Forgetful, FromZero, Modest, Mute, Plain


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


def test_checks_that_need_an_ability_are_excused_with_it() -> None:
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
def test_an_excuse_for_a_check_that_passes_is_a_failure(name: str) -> None:
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


def test_checks_have_names_and_requirements() -> None:
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
