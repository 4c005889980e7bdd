"""`sqhn learn`: signals that stop it, checkpoints, and the same command after an interruption."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from sqhn import SQHN
from tests.cli.commands import (
    GRAY,
    SLOWLY,
    error_of,
    files_in,
    hook,
    image_folder,
    interrupt,
    json_of,
    npy,
    output_of,
    posix,
    put,
    read_line,
    saved_memory,
    sqhn,
    start_process,
)
from tests.helpers import fingerprint

pytestmark = pytest.mark.usefixtures("small_chunks", "handlers")
each_signal = pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
Words = tuple[object, ...]
SMALL_CHUNKS = "from sqhn.cli.samples import files\nfiles.CHUNK_SAMPLES = 7\n"


@pytest.fixture
def note(file: Path) -> Path:
    """The file that remembers an interrupted run."""
    return file.with_name("m.sqhn.progress")


def learn_words(source: object, file: Path) -> Words:
    return ("learn", source, "--memory", file, "--capacity", 20)


@pytest.fixture
def words(tmp_path: Path, file: Path) -> Words:
    """A command that learns an array of 30 samples."""
    return learn_words(put(tmp_path / "x.npy", GRAY), file)


def stop(monkeypatch: pytest.MonkeyPatch, chunk: int, *words: object, stdin: bytes = b"") -> Result:
    """Run a command that is interrupted before it learns the chunk with this number."""
    with monkeypatch.context() as patch:
        hook(patch, "learn", before={chunk: interrupt})
        result = sqhn(*words, stdin=stdin)
    assert result.exit_code == 130
    return result


# -- signals -----------------------------------------------------------------------------------------------------------


def test_what_was_learned_is_saved(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = saved_memory(tmp_path / "expected", GRAY[:14])
    result = stop(monkeypatch, 3, *learn_words(image_folder(tmp_path / "in", GRAY), file), "--json")
    assert json.loads(result.stdout)["learned"] == 14
    assert json.loads(result.stdout)["interrupted"] is True
    assert f"14 of 30 samples are saved in {file}" in result.stderr
    assert fingerprint(SQHN.load(file)) == fingerprint(expected)


def test_nothing_learned_nothing_saved(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = stop(monkeypatch, 1, *learn_words(image_folder(tmp_path / "in", GRAY), file))
    assert result.stdout == ""
    assert "0 of 30 samples were learned: nothing is saved" in result.stderr
    assert not file.exists()


@posix
@each_signal
def test_a_signal_to_another_process(number: int, status: int, tmp_path: Path, file: Path) -> None:
    x = np.random.default_rng(0).random((10_000, 64), np.float32)
    words = ["learn", put(tmp_path / "x.npy", x), "--memory", file, "--capacity", 1000, "--json"]
    with start_process(SLOWLY, *words) as learning:
        for _ in range(4):
            read_line(learning, "learning")
        learning.send_signal(number)
        out, errors = learning.communicate(timeout=120)
    assert learning.returncode == status
    learned = SQHN.load(file).step
    assert 0 < learned < len(x)
    assert (json.loads(out)["step"], json.loads(out)["learned"]) == (learned, learned)
    assert errors.endswith(
        f"stopped: {learned:,} of 10,000 samples are saved in {file}; the same command continues after them\n"
    )
    expected = SQHN((64,), capacity=1000)
    expected.learn(x[:learned])
    assert fingerprint(SQHN.load(file)) == fingerprint(expected)
    output_of("learn", put(tmp_path / "rest.npy", x[learned:]), "--memory", file)
    expected.learn(x[learned:])
    assert fingerprint(SQHN.load(file)) == fingerprint(expected)
    assert files_in(tmp_path) == ["m.sqhn", "rest.npy", "x.npy"]


def test_a_lost_interrupt(words: Words, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ignores exceptions that are raised while an object is deleted."""

    def lose_interrupt() -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    hook(monkeypatch, "learn", before={2: lose_interrupt})
    result = sqhn(*words)
    assert result.exit_code == 130
    assert f"stopped: 14 of 30 samples are saved in {file}" in result.stderr
    assert SQHN.load(file).step == 14


@posix
@pytest.mark.parametrize("learned", [14, 30])
@each_signal
def test_no_signal_interrupts_saving(
    learned: int, number: int, status: int, words: Words, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the first signal, after all samples were learned, nor any later one."""

    def raise_several() -> None:
        for other in (number, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(other)

    if learned < 30:
        hook(monkeypatch, "learn", after={2: partial(signal.raise_signal, number)})
    hook(monkeypatch, "save", before={1: raise_several}, after={1: partial(signal.raise_signal, number)})
    result = sqhn(*words, "--json")
    monkeypatch.undo()
    assert result.exit_code == status
    assert json.loads(result.stdout)["learned"] == learned
    assert f"stopped: {learned} of 30 samples are saved in {file}" in result.stderr
    assert fingerprint(SQHN.load(file)) == fingerprint(saved_memory(tmp_path / "expected", GRAY[:learned]))


@posix
@each_signal
def test_a_signal_before_learning(
    number: int, status: int, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_memory(file, GRAY)
    before = file.read_bytes()
    monkeypatch.setattr(SQHN, "load", lambda path: signal.raise_signal(number))
    result = sqhn("learn", put(tmp_path / "x.npy", GRAY), "--memory", file)
    assert result.exit_code == status
    assert result.stdout == ""
    assert result.stderr == f"stopped before anything was learned: {file} is unchanged\n"
    assert file.read_bytes() == before
    assert files_in(tmp_path) == ["m.sqhn", "x.npy"]


@posix
def test_an_ignored_signal_stays_ignored(words: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under nohup."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hook(monkeypatch, "learn", before={1: partial(signal.raise_signal, signal.SIGTERM)})
    output_of(*words)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_signal_handlers_are_restored(words: Words, tmp_path: Path, file: Path) -> None:
    calls: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    output_of(*words)
    error_of("learn", tmp_path / "nowhere", "--memory", file)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_learning_in_another_thread(words: Words) -> None:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(sqhn(*words)))
    thread.start()
    thread.join()
    assert results[0].exit_code == 0


# -- checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "expected"), [(0, [7, 14, 21, 28, 30, 30]), (1000, [30]), (None, [30])])
def test_when_it_saves(
    seconds: int | None, expected: list[int], words: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = hook(monkeypatch, "save")
    options = () if seconds is None else ("--checkpoint", seconds)
    output_of(*words, *options)
    assert steps == expected
    assert files_in(tmp_path) == ["m.sqhn", "x.npy"]


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
def test_invalid_intervals(seconds: str, words: Words, file: Path) -> None:
    assert "--checkpoint" in error_of(*words, "--checkpoint", seconds, status=2)
    assert not file.exists()


@posix
def test_no_signal_interrupts_a_checkpoint(words: Words, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook(monkeypatch, "save", before={1: partial(signal.raise_signal, signal.SIGTERM)})
    result = sqhn(*words, "--checkpoint", 0)
    assert result.exit_code == 143
    assert f"stopped: 7 of 30 samples are saved in {file}" in result.stderr
    assert SQHN.load(file).step == 7


def test_an_error_keeps_the_last_checkpoint(tmp_path: Path, file: Path) -> None:
    x = GRAY / 255
    x[15, 2, 3] = np.nan
    result = sqhn(*learn_words(put(tmp_path / "x.npy", x), file), "--checkpoint", 0)
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert first == f"14 of 30 samples are saved in {file}"
    assert "counting from sample 14: the value at (1, 2, 3)" in second
    assert fingerprint(SQHN.load(file)) == fingerprint(saved_memory(tmp_path / "expected", x[:14]))


# -- the same command again --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("arrays", [0, 10, 30])
def test_nothing_is_learned_twice(
    arrays: int, old: bool, tmp_path: Path, file: Path, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder, from an array and a folder, and from an array."""
    sources = [put(tmp_path / "x.npy", GRAY[:arrays])] if arrays else []
    sources += [image_folder(tmp_path / "in", GRAY[arrays:])] if arrays < 30 else []
    expected = saved_memory(tmp_path / "expected", GRAY[:5] if old else GRAY[:0])
    if old:
        expected.save(file)
    words = ("learn", *sources, "--memory", file, "--capacity", 20)
    stop(monkeypatch, 2, *words)
    first = SQHN.load(file).step - 5 * old
    assert 0 < first <= 7
    result = stop(monkeypatch, 2, *words)
    second = SQHN.load(file).step - 5 * old
    assert first < second <= 14
    assert f"continuing after {first} of 30 samples" in result.stderr
    assert f"stopped: {second} of 30 samples are saved" in result.stderr
    found = json_of(*words)
    assert (found["continued_after"], found["learned"]) == (second, 30 - second)
    expected.learn(GRAY)
    assert fingerprint(SQHN.load(file)) == fingerprint(expected)
    assert not note.exists()
    assert json_of(*words)["learned"] == 30  # a run after a complete one learns all samples again


@pytest.mark.parametrize(
    ("number", "when", "reached"),
    [(1, "before", 0), (1, "after", 7), (3, "before", 14), (3, "after", 21), (6, "before", 30), (6, "after", 30)],
)
def test_a_process_that_dies_while_it_saves(
    number: int, when: str, reached: int, words: Words, tmp_path: Path, file: Path, note: Path
) -> None:
    """Before the memory is written, or after; the sixth save follows the last chunk."""
    program = f"""{SMALL_CHUNKS}
save, calls = SQHN.save, []
def save_and_die(self, path):
    calls.append(1)
    if len(calls) == {number} and {when == "before"}:
        os._exit(9)
    save(self, path)
    if len(calls) == {number}:
        os._exit(9)
SQHN.save = save_and_die
"""
    with start_process(program, *words, "--checkpoint", 0) as dying:
        dying.communicate(timeout=120)
    assert dying.returncode == 9
    assert json_of(*words)["continued_after"] == reached
    assert fingerprint(SQHN.load(file)) == fingerprint(saved_memory(tmp_path / "expected", GRAY))
    assert not note.exists()


@posix
def test_a_killed_process(tmp_path: Path, file: Path) -> None:
    words = learn_words(image_folder(tmp_path / "in", GRAY), file)
    with start_process(SMALL_CHUNKS + SLOWLY, *words, "--checkpoint", 0) as learning:
        for _ in range(3):
            read_line(learning, "learning")
        learning.kill()
    assert json_of(*words)["continued_after"] == 14
    assert fingerprint(SQHN.load(file)) == fingerprint(saved_memory(tmp_path / "expected", GRAY))


def test_changes_of_later_files_do_not_matter(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file is damaged and skipped, and another is new."""
    images = image_folder(tmp_path / "in", GRAY[:29])
    cut = images / "027.png"
    cut.write_bytes(cut.read_bytes()[:-40])
    words = learn_words(images, file)
    stop(monkeypatch, 2, *words)
    put(images / "029.png", GRAY[29])
    found = json_of(*words, "--skip-bad")
    assert (found["continued_after"], found["learned"]) == (7, 22)
    assert fingerprint(SQHN.load(file)) == fingerprint(saved_memory(tmp_path / "expected", np.delete(GRAY, 27, axis=0)))


@pytest.mark.parametrize(
    ("change", "count"), [("removed", 19), ("written again", 20), ("added", 21), ("fewer", 5), ("memory", 20)]
)
def test_changes_of_learned_files_or_of_the_memory(
    change: str, count: int, tmp_path: Path, file: Path, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = image_folder(tmp_path / "in", GRAY[:20])
    words = learn_words(images, file)
    stop(monkeypatch, 3, *words)
    step, reason = 14, "their files are not the first ones now, or have changed"
    match change:
        case "removed":
            (images / "003.png").unlink()
        case "written again":
            os.utime(images / "003.png", ns=(0, 0))
        case "added":
            put(images / "000a.png", GRAY[20])
        case "fewer":
            for n in range(5, 20):
                (images / f"{n:03}.png").unlink()
        case "memory":
            memory = SQHN.load(file)
            memory.learn(GRAY[0])
            memory.save(file)
            step, reason = 15, f"{file} has changed since"
    result = sqhn(*words)
    assert result.exit_code == 0
    assert f"had learned 14 samples, but {reason}: learning all samples from the first" in result.stderr
    assert SQHN.load(file).step == step + count
    assert not note.exists()


def test_a_deleted_memory(words: Words, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop(monkeypatch, 3, *words)
    file.unlink()
    assert json_of(*words)["learned"] == 30


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1, 2]", b'[{"step": 14}]', b"\xff", b'[{"step": 14, "samples": "x", "files": ""}]']
)
def test_a_damaged_note(content: bytes, words: Words, file: Path, note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop(monkeypatch, 3, *words)
    note.write_bytes(content)
    result = sqhn(*words)
    assert result.exit_code == 0
    assert f"{note} cannot be read: learning all samples from the first" in result.stderr
    assert SQHN.load(file).step == 14 + 30
    assert not note.exists()


def test_standard_input_cannot_be_read_again(file: Path, note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = stop(monkeypatch, 3, *learn_words("-", file), stdin=npy(GRAY))
    assert f"14 of 30 samples are saved in {file}; the same command starts from the first" in result.stderr
    assert not note.exists()
