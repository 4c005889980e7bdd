"""Signals that stop `sqhn learn`."""

from __future__ import annotations

import json
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
    output_of,
    posix,
    read_line,
    save_array,
    saved_memory,
    sqhn,
    start_process,
)
from tests.helpers import fingerprint

pytestmark = pytest.mark.usefixtures("small_chunks", "handlers")
each_signal = pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])


def test_what_was_learned_is_saved(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = saved_memory(tmp_path / "expected", GRAY[:14])
    hook(monkeypatch, "learn", before={3: interrupt})
    result = sqhn("learn", image_folder(tmp_path / "in", GRAY), "--memory", file, "--capacity", 20, "--json")
    assert result.exit_code == 130
    assert json.loads(result.stdout)["learned"] == 14
    assert json.loads(result.stdout)["interrupted"] is True
    assert f"14 of 30 samples are saved in {file}" in result.stderr
    assert fingerprint(SQHN.load(file)) == fingerprint(expected)


def test_nothing_learned_nothing_saved(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook(monkeypatch, "learn", before={1: interrupt})
    result = sqhn("learn", image_folder(tmp_path / "in", GRAY), "--memory", file, "--capacity", 20)
    assert result.exit_code == 130
    assert result.stdout == ""
    assert "0 of 30 samples were learned: nothing is saved" in result.stderr
    assert not file.exists()


@posix
@each_signal
def test_a_signal_to_another_process(number: int, status: int, tmp_path: Path, file: Path) -> None:
    x = np.random.default_rng(0).random((10_000, 64), np.float32)
    words = ["learn", save_array(tmp_path / "x.npy", x), "--memory", file, "--capacity", 1000, "--json"]
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
    output_of("learn", save_array(tmp_path / "rest.npy", x[learned:]), "--memory", file)
    expected.learn(x[learned:])
    assert fingerprint(SQHN.load(file)) == fingerprint(expected)
    assert files_in(tmp_path) == ["m.sqhn", "rest.npy", "x.npy"]


def test_a_lost_interrupt(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python ignores exceptions that are raised while an object is deleted."""

    def lose_interrupt() -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    hook(monkeypatch, "learn", before={2: lose_interrupt})
    result = sqhn("learn", save_array(tmp_path / "x.npy", GRAY), "--memory", file, "--capacity", 20)
    assert result.exit_code == 130
    assert f"stopped: 14 of 30 samples are saved in {file}" in result.stderr
    assert SQHN.load(file).step == 14


@posix
@pytest.mark.parametrize("learned", [14, 30])
@each_signal
def test_no_signal_interrupts_saving(
    learned: int, number: int, status: int, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the first signal, after all samples were learned, nor any later one."""

    def raise_several() -> None:
        for other in (number, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(other)

    if learned < 30:
        hook(monkeypatch, "learn", after={2: partial(signal.raise_signal, number)})
    hook(monkeypatch, "save", before={1: raise_several}, after={1: partial(signal.raise_signal, number)})
    result = sqhn("learn", save_array(tmp_path / "x.npy", GRAY), "--memory", file, "--capacity", 20, "--json")
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
    result = sqhn("learn", save_array(tmp_path / "x.npy", GRAY), "--memory", file)
    assert result.exit_code == status
    assert result.stdout == ""
    assert result.stderr == f"stopped before anything was learned: {file} is unchanged\n"
    assert file.read_bytes() == before
    assert files_in(tmp_path) == ["m.sqhn", "x.npy"]


@posix
def test_an_ignored_signal_stays_ignored(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under nohup."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hook(monkeypatch, "learn", before={1: partial(signal.raise_signal, signal.SIGTERM)})
    output_of("learn", save_array(tmp_path / "x.npy", GRAY), "--memory", file, "--capacity", 20)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_signal_handlers_are_restored(tmp_path: Path, file: Path) -> None:
    calls: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    source = save_array(tmp_path / "x.npy", GRAY)
    output_of("learn", source, "--memory", file, "--capacity", 20)
    error_of("learn", tmp_path / "nowhere", "--memory", file)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_learning_in_another_thread(tmp_path: Path, file: Path) -> None:
    results: list[Result] = []
    words = ("learn", save_array(tmp_path / "x.npy", GRAY), "--memory", file, "--capacity", 20)
    thread = threading.Thread(target=lambda: results.append(sqhn(*words)))
    thread.start()
    thread.join()
    assert results[0].exit_code == 0
