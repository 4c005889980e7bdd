"""Several processes that learn into one file."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sqhn import SQHN, Level
from tests.cli.commands import GRAY, files_in, posix, put, read_line, saved_memory, start_process

pytestmark = posix


WAITING = """
learn = SQHN.learn
def learn_when_told(self, x, **labels):
    print("learning", file=sys.stderr, flush=True)
    while not Path(os.environ["GO"]).exists():
        time.sleep(0.01)
    return learn(self, x, **labels)
SQHN.learn = learn_when_told
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that learning processes wait for."""
    (tmp_path / "signs").mkdir()
    go = tmp_path / "signs" / "go"
    monkeypatch.setenv("GO", str(go))
    return go


@pytest.fixture
def start(tmp_path: Path, file: Path) -> Iterator[Start]:
    """A function that starts a process that learns ten samples; all processes are ended."""
    with ExitStack() as stack:

        def start(number: int, *options: object) -> subprocess.Popen[str]:
            source = put(tmp_path / "signs" / f"{number}.npy", GRAY[10 * number : 10 * number + 10])
            words = options or ("--memory", file, "--capacity", 30)
            learning = stack.enter_context(start_process(WAITING, "learn", source, *words))
            stack.callback(learning.kill)
            return learning

        yield start


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("old", [True, False])
def test_nothing_is_lost(count: int, old: bool, tmp_path: Path, file: Path, go: Path, start: Start) -> None:
    if old:
        saved_memory(file, GRAY[:5], Level(capacity=30))
    first = start(0)
    read_line(first, "learning")
    others = [start(number) for number in range(1, count)]
    for other in others:
        assert read_line(other, f"{file} is in use by process {first.pid} on ")
    go.touch()
    for learning in (first, *others):
        _, errors = learning.communicate(timeout=120)
        assert learning.returncode == 0, errors
        assert "in use" not in errors
    memory = SQHN.load(file)
    assert memory.step == 10 * count + 5 * old
    assert memory.recognize(GRAY[: 10 * count]).old.all()
    assert files_in(tmp_path) == ["m.sqhn", "signs"]


def test_a_link_to_the_same_file(tmp_path: Path, file: Path, go: Path, start: Start) -> None:
    saved_memory(file, GRAY[:0], Level(capacity=30))
    link = tmp_path / "signs" / "link.sqhn"
    link.symlink_to(file)
    first = start(0)
    read_line(first, "learning")
    second = start(1, "--memory", link)
    read_line(second, f"{link} is in use by process {first.pid} on ")
    go.touch()
    assert [learning.wait(120) for learning in (first, second)] == [0, 0]
    assert SQHN.load(file).step == SQHN.load(link).step == 20


def test_a_killed_process_does_not_block_others(tmp_path: Path, file: Path, go: Path, start: Start) -> None:
    first = start(0)
    read_line(first, "learning")
    second = start(1)
    read_line(second, f"process {first.pid} on ")
    first.kill()
    read_line(second, "learning")
    go.touch()
    assert second.wait(120) == 0
    assert SQHN.load(file).step == 10
    assert files_in(tmp_path) == ["m.sqhn", "signs"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_wait(number: int, status: int, tmp_path: Path, file: Path, go: Path, start: Start) -> None:
    saved_memory(file, GRAY[:5], Level(capacity=30))
    before = file.read_bytes()
    first = start(0)
    read_line(first, "learning")
    second = start(1)
    read_line(second, f"process {first.pid} on ")
    second.send_signal(number)
    out, errors = second.communicate(timeout=60)
    assert second.returncode == status
    assert out == ""
    assert errors == f"stopped before anything was learned: {file} is unchanged\n"
    assert file.read_bytes() == before
    go.touch()
    assert first.wait(120) == 0
    assert SQHN.load(file).step == 15
    assert files_in(tmp_path) == ["m.sqhn", "signs"]
