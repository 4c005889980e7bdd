"""A read changes nothing that a memory holds, except the evidence cache, which never shows in an answer."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sqhn import SQHN, Level
from sqhn.banks.cpu import prototypes
from sqhn.banks.cpu.counts import Counts
from sqhn.banks.cpu.prototypes import Prototypes
from sqhn.model.inference import INFERENCES
from tests.properties.test_properties import SHAPE, options, streams, trees

CACHE = "evidence_cache"
"""The attribute of a CPU bank that holds its evidence cache: the one thing that a read may change."""
SKIPPED = (CACHE, "device", "shards")  # the latter hold no neurons themselves
SHORT_RUN = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
CACHING = [("cpu", 64), ("cpu", 0), ("ray", 64), ("ray", 0)]
SEQUENCES = (tuple, list, deque)
CONTAINERS = (*SEQUENCES, dict)
Contents = dict[str, tuple[Any, Any]]
"""By its path, an object that must stay the same one, and a value that must stay equal."""


def ours(value: Any) -> bool:
    """Whether a value is an object of the package."""
    return type(value).__module__.startswith("sqhn") and hasattr(value, "__dict__")


def banks(memory: SQHN) -> list[Any]:
    """The banks of a memory, and those on its shards."""
    found: list[Any] = list(memory.banks)
    visited: set[int] = set()

    def search(value: Any) -> None:
        if id(value) in visited or not (isinstance(value, CONTAINERS) or ours(value)):
            return
        visited.add(id(value))
        if isinstance(value, Prototypes | Counts):
            found.append(value)
            return
        for _, part in inside(value, ()):
            search(part)

    search(getattr(memory.banks[0], "shards", None))
    return found


def contents(*parts: Any) -> Contents:
    """All arrays, numbers and other objects that some objects of the package hold."""
    found: Contents = {}
    visited: set[int] = set()

    def walk(path: str, value: Any) -> None:
        if isinstance(value, np.ndarray):
            found[path] = (value, (value.shape, value.dtype, value.tobytes()))
        elif value is None or isinstance(value, str | int | float | np.generic):
            found[path] = (None, repr(value))
        elif not isinstance(value, CONTAINERS) and not ours(value):
            found[path] = (value, None)
        elif id(value) not in visited:
            visited.add(id(value))
            for name, part in inside(value, SKIPPED):
                walk(f"{path}.{name}", part)

    for number, part in enumerate(parts):
        walk(str(number), part)
    return found


def inside(value: Any, skipped: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, SEQUENCES):
        yield from enumerate((len(value), *value))
    elif dataclasses.is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    else:
        yield from ((name, part) for name, part in vars(value).items() if name not in skipped)


def everything(memory: SQHN) -> Contents:
    return memory.inspect(lambda model: contents(model, *banks(memory)))


def assert_unchanged(before: Contents, after: Contents) -> None:
    assert before.keys() == after.keys()
    for path, (one, value) in before.items():
        assert after[path][0] is one, f"{path} is another object"
        assert after[path][1] == value, f"{path} has another value"


def read_everything(memory: SQHN, x: NDArray[np.float32], observed: NDArray[np.bool_]) -> None:
    """Every verb that reads, with every rule of inference, mask and option."""
    for rule in INFERENCES:
        for mask in (None, observed, observed[0]):
            for how in ({}, {"keep": True}, {"k": min(2, len(memory))}, {"k": 1, "keep": True}):
                memory.recall(x, mask, inference=rule, **how)
            memory.energy(x, mask, inference=rule)
        memory.recall(np.ma.array(x, mask=~observed), inference=rule)
        memory.recall(x[0], inference=rule)
    for judging in ("paper", "evidence"):
        for mask in (None, observed):
            memory.recognize(x, mask, inference=judging)
    for read in ("prototypes", "known", "counts", "written", "rho", "step", "capacity", "levels", "calibration"):
        getattr(memory, read)
    memory.values([0])
    (repr(memory), len(memory), copy.copy(memory), copy.deepcopy(memory), pickle.dumps(memory))
    with tempfile.TemporaryDirectory() as folder:
        memory.save(Path(folder) / "m.sqhn")


def observed_part(x: NDArray[np.float32], seed: int) -> NDArray[np.bool_]:
    observed = np.random.default_rng(seed).random(x.shape) < 0.6
    observed[:, :2] &= observed[:, :1, :1]  # of some samples, whole nodes observe nothing
    observed[:, -1, -1] = True
    return observed


@pytest.fixture
def small_nodes(small: int, device: str, local: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of more than `small` values are large; shards are in this process."""
    monkeypatch.setattr(prototypes, "SMALL", small)
    if device == "ray":
        local(3)


@pytest.mark.parametrize(("device", "small"), [*CACHING, ("plain", 64)])
@pytest.mark.usefixtures("small_nodes")
@given(tree=trees(), choices=options(), x=streams(), seed=st.integers(0, 99), holes=st.booleans())
@SHORT_RUN
def test_reading_changes_nothing(
    device: str,
    small: int,
    tree: list[Level],
    choices: dict[str, Any],
    x: NDArray[np.float32],
    seed: int,
    holes: bool,
) -> None:
    memory = SQHN(SHAPE, tree, device=device, shards=3 if device == "ray" else None, **choices)
    observed = observed_part(x, seed)
    memory.learn(x, observed=observed if holes else None, value=list(range(len(x))))
    memory.calibrate(new=x, error=0.5, inference="evidence")
    before, given = everything(memory), x.copy()
    read_everything(memory, x[:5], observed[:5])
    assert_unchanged(before, everything(memory))
    np.testing.assert_array_equal(x, given)


def saved(bank: Any) -> list[bytes]:
    """The saved arrays of a bank, which an evidence cache depends on."""
    return [array.tobytes() for array in (bank.neurons.state() | bank.state()).values()]


def memorize_again(memory: SQHN, x: NDArray[np.float32]) -> None:
    memory.reset()
    memory.memorize(x[:1])


CHANGES: dict[str, Callable[[SQHN, NDArray[np.float32]], object]] = {
    "learn": lambda memory, x: memory.learn(x),
    "learn with missing values": lambda memory, x: memory.learn(x, observed=observed_part(x, 3)),
    "hold": lambda memory, x: memory.learn(x, hold=True),
    "learn below the root": lambda memory, x: memory.pretrain(x) if len(memory.levels) > 1 else None,
    "learn at the root": lambda memory, x: memory.learn(x, root_only=True),
    "forget": lambda memory, x: memory.forget(np.flatnonzero(memory.counts)[:1]),
    "resize": lambda memory, x: memory.resize(memory.capacity + 3),
    "reset": lambda memory, x: memory.reset(),
    "memorize": memorize_again,
    "set rho": lambda memory, x: setattr(memory, "rho", 0.5),
    "calibrate": lambda memory, x: memory.calibrate(new=x, error=0.5, inference="evidence"),
}


@pytest.mark.parametrize(("device", "small"), CACHING)
@pytest.mark.usefixtures("small_nodes")
@given(
    tree=trees(),
    changes=st.lists(st.sampled_from(list(CHANGES)), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
@SHORT_RUN
def test_the_evidence_cache_is_dropped_by_changes_and_never_shows_in_answers(
    device: str,
    small: int,
    tree: list[Level],
    changes: list[str],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    memory = SQHN(SHAPE, tree, device=device, shards=3 if device == "ray" else None)
    memory.learn(rng.random((9, *SHAPE), np.float32))
    for change in changes:
        x = rng.random((4, *SHAPE), np.float32)
        memory.recall(x, inference="evidence")
        cached = [bank for bank in banks(memory) if getattr(bank, CACHE, None) is not None]
        assert cached
        before = [(bank, getattr(bank, CACHE), saved(bank)) for bank in cached]
        CHANGES[change](memory, x)
        for bank, cache, held in before:
            assert getattr(bank, CACHE) is not cache or saved(bank) == held
        if not len(memory):
            memory.learn(x[:1])
        for mask in (None, observed_part(x, seed)):
            found, again, fresh = (
                one.recall(x, mask, inference="evidence") for one in (memory, memory, copy.copy(memory))
            )
            np.testing.assert_array_equal(found.score, again.score)
            # Arrays of the copy have another room, and its counts may have another order: sums are rounded otherwise.
            np.testing.assert_allclose(found.score, fresh.score, rtol=1e-9, atol=1e-9)
            if len(tree) == 1:
                np.testing.assert_array_equal(found.x, fresh.x)


@pytest.mark.parametrize("tree", [[Level(capacity=60)], [Level(2, 40), Level(2, 40), Level(capacity=40)]], ids=len)
def test_threads_that_fill_the_evidence_cache_at_once(tree: list[Level]) -> None:
    memory, x = SQHN((8, 8, 3), tree), np.random.default_rng(0).random((40, 8, 8, 3), np.float32)
    with ThreadPoolExecutor(4) as pool:
        for i in range(0, 40, 2):
            memory.learn(x[i : i + 2])
            expected, together = copy.copy(memory).recall(x[:6], inference="evidence"), threading.Barrier(4)

            def ask(together: threading.Barrier = together) -> Any:
                together.wait(60)
                return memory.recall(x[:6], inference="evidence")

            for future in [pool.submit(ask) for _ in range(4)]:
                found = future.result()
                np.testing.assert_array_equal(found.index, expected.index)
                np.testing.assert_allclose(found.score, expected.score, rtol=1e-9)
