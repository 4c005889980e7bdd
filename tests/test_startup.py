"""Memories on "cpu" answer at once: plain NumPy until compiled kernels are ready, in the background."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN, Level, warm
from sqhn.banks.compilation import Pending, State, at_once
from sqhn.banks.devices import device_of
from sqhn.reference import ReferenceSQHN
from sqhn.startup import NOTICE, Current, Preparation, compiler
from sqhn.warmup import main
from tests.helpers import assert_same_answers, assert_same_state, fingerprint, model_of

SETTINGS: dict[str, dict[str, Any]] = {
    "one level": {"capacity": 12},
    "differences": {"capacity": 12, "similarity": "euclidean"},
    "a tree": {"levels": [Level(4, 9), Level(None, 12, when_full="oldest")]},
}
SHAPE = (8, 12)


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device "cpu" as users have it, but no thread that prepares kernels."""
    monkeypatch.delenv("SQHN_COMPILE")
    monkeypatch.setattr("sqhn.startup.Preparation.start", lambda self: None)
    monkeypatch.setattr(State, "ready", False)
    monkeypatch.setattr(Current, "work", Preparation([]))


def samples(count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    rng = np.random.default_rng(3)
    return rng.random((9, *SHAPE), np.float32)[rng.integers(9, size=count)] + rng.normal(
        0, 0.05, (count, *SHAPE)
    ).astype(np.float32)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_memory_moves_at_the_next_change(settings: dict[str, Any], background: None) -> None:
    """Its state stays the same, to the last bit, and its decisions are those of the reference."""
    memory, x = SQHN(SHAPE, **settings), samples(40)
    holes = np.random.default_rng(4).random(x.shape) < 0.8
    memory.learn(x[:10], value=list(range(10)))
    memory.learn(x[10:20], observed=holes[10:20])
    memory.forget([1, 3])
    before = fingerprint(memory)
    assert isinstance(model_of(memory).tree.device, Pending)
    State.ready = True
    memory.rho = None  # a change that leaves all arrays as they are
    assert not isinstance(model_of(memory).tree.device, Pending)
    assert fingerprint(memory) == before
    assert memory.device == "cpu"
    memory.learn(x[20:])
    reference = ReferenceSQHN(SHAPE, memory.levels, memory.options)
    for i, one in enumerate(x):
        if i == 20:
            reference.forget(1)
            reference.forget(3)
        reference.learn(one, holes[i] if 10 <= i < 20 else None)
    assert_same_state(memory, reference)
    assert_same_answers(memory, reference, x[:6])


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_memory_moves_within_a_long_call(
    settings: dict[str, Any], background: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, x = SQHN(SHAPE, **settings), samples(40)
    model_of(memory).tree.chunk = 7
    learn = type(model_of(memory).tree).learn

    def ready_meanwhile(*args: Any) -> Any:
        State.ready = True
        return learn(*args)

    monkeypatch.setattr("sqhn.model.tree.Tree.learn", ready_meanwhile)
    memory.learn(x)
    assert not model_of(memory).pending
    reference = ReferenceSQHN(SHAPE, memory.levels, memory.options)
    for one in x:
        reference.learn(one)
    assert_same_state(memory, reference)


def test_memories_are_compiled_from_the_start_once_kernels_are_ready(background: None) -> None:
    assert model_of(SQHN((8,), capacity=3)).pending
    with at_once():
        assert not model_of(SQHN((8,), capacity=3)).pending
    State.ready = True
    assert not model_of(SQHN((8,), capacity=3)).pending


def test_too_little_memory_for_two_copies(background: None, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SQHN((8,), capacity=3)

    def fail(*args: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("sqhn.model.tree.Tree.on", fail)
    State.ready = True
    memory.learn(np.arange(8.0))
    assert model_of(memory).pending
    assert memory.step == 1


@pytest.mark.parametrize("reason", ["switched off", "no Numba"])
def test_plain_for_good(reason: str, background: None, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == "no Numba":
        monkeypatch.setitem(sys.modules, "numba", None)
    else:
        monkeypatch.setenv("SQHN_COMPILE", "0")
    memory = SQHN((8,), capacity=3)
    assert memory.device == "plain"
    assert "plain" in repr(memory)
    assert device_of("cpu").name == "plain"
    with pytest.raises(ValueError, match=r"nothing can be compiled: (SQHN_COMPILE is 0|Numba is not installed)"):
        warm()


def prepare() -> None:
    """As in the background, but wait for it."""
    work = Preparation([])
    work.start()
    work.thread.join()


def test_compiling_is_announced_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    errors = io.StringIO()
    monkeypatch.setattr("sqhn.startup.marker", lambda: tmp_path / "missing")
    monkeypatch.setattr("sqhn.startup.Preparation.compile", lambda self: None)
    monkeypatch.setattr("sys.stderr", errors)
    for terminal in (False, True):
        monkeypatch.setattr(errors, "isatty", lambda terminal=terminal: terminal, raising=False)
        prepare()
        assert errors.getvalue() == terminal * f"{NOTICE}\n"


def test_frozen_programs_start_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their executable is the program itself."""
    monkeypatch.setattr("sys.frozen", True, raising=False)
    monkeypatch.setattr("sqhn.startup.compiler", lambda **how: pytest.fail("a process was started"))
    Preparation([]).compile()


def test_numba_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise ImportError("Numba needs NumPy 9 or less")

    monkeypatch.setattr("sqhn.startup.marker", fail)
    with pytest.warns(UserWarning, match="nothing is compiled: Numba needs NumPy 9"):
        prepare()


# -- processes ------------------------------------------------------------------------------------------------------

PROGRAM = """
import sys, time
import numpy as np
from sqhn import SQHN, Level
x = np.random.default_rng(0).random((20, 8, 8))
def begin():
    return SQHN((8, 8), capacity=10), SQHN((8, 8), [Level(4, 10), Level(None, 10)])
def compiled(memory):
    return "cpu" in type(memory.banks[0]).__module__
def wait(*memories):
    end = time.monotonic() + 300
    while not all(map(compiled, memories)) and time.monotonic() < end:
        time.sleep(0.01)
    return all(map(compiled, memories))
"""


def program(body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a user would, without the settings of the tests."""
    own = {name: value for name, value in os.environ.items() if name != "SQHN_COMPILE"} | environment
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM + body], capture_output=True, text=True, timeout=600, env=own
    )


@pytest.fixture(scope="module")
def cache() -> None:
    """The cache has all kernels."""
    with compiler() as process:
        assert process.wait() == 0  # before its standard input ends


def test_a_program_answers_before_it_loads_the_compiler(cache: None) -> None:
    done = program("""
from sqhn import startup
startup.PATIENCE = 60.0  # this machine may be busy
for memory in begin():
    memory.learn(x)
    memory.recall(x)
assert "numba" not in sys.modules, "the compiler was loaded"
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_memories_that_only_read_move_too(cache: None) -> None:
    done = program("""
one, tree = begin()
one.learn(x), tree.learn(x)
found = [memory.recall(x).index.tolist() for memory in (one, tree)]
assert wait(one, tree), "they did not move"
assert found == [memory.recall(x).index.tolist() for memory in (one, tree)]
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("delay", [0.0, 0.25, 0.4, 0.6])
def test_a_program_may_end_at_any_time(delay: float, cache: None) -> None:
    done = program(f"one, tree = begin(); one.learn(x); time.sleep({delay})")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_process_that_compiles_ends_with_the_program(tmp_path: Path) -> None:
    """It is killed at the end, and ends by itself if the program was killed."""
    for end in ("", "import os; os.kill(os.getpid(), 9)"):
        body = f"""
from sqhn import startup
import subprocess
real, children = subprocess.Popen, []
class Popen(real):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        children.append(self.pid)
subprocess.Popen = Popen
one, tree = begin()
while not children:
    time.sleep(0.01)
print(children[0], flush=True)
{end}
"""
        done = program(body, NUMBA_CACHE_DIR=str(tmp_path))
        assert done.stderr == ""
        limit = time.monotonic() + 60
        while Path(f"/proc/{done.stdout.strip()}").exists():
            assert time.monotonic() < limit, "it goes on"
            time.sleep(0.05)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize(("delay", "verb"), [(0.0, "learn"), (0.3, "recall"), (0.5, "learn")])
def test_a_forked_process_moves_too(delay: float, verb: str, cache: None) -> None:
    done = program(f"""
import os
one, tree = begin()
one.learn(x), tree.learn(x)
time.sleep({delay})
child = os.fork()
tree.{verb}(x), one.{verb}(x)
assert wait(one, tree), "they did not move"
if child:
    assert os.waitpid(child, 0)[1] == 0
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_second_process_has_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "complete").touch()
    calls: list[object] = []
    monkeypatch.setattr("sqhn.warmup.call_everything", calls.append)
    monkeypatch.setattr("sqhn.warmup.os.nice", lambda more: None)
    monkeypatch.setattr("sqhn.warmup.threading.Thread.start", lambda self: None)
    monkeypatch.setattr("sqhn.warmup.marker", lambda: tmp_path / "complete")
    main()
    assert not calls
