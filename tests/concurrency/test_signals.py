"""Ctrl-C takes effect between chunks, when every level has learned the same samples."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN
from sqhn.banks.cpu.counts import Counts
from sqhn.concurrency import deferred
from tests.helpers import fingerprint, levels, set_chunk


def test_ctrl_c_in_the_middle_of_a_chunk(images: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch) -> None:
    memory, whole = (SQHN((32, 32, 3), levels("L2 (4,8)", 12)) for _ in range(2))
    set_chunk(memory, 10)
    learn, calls = Counts.learn, []

    def learn_with_ctrl_c(self: Counts, *args: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)  # level 1 has learned this chunk, level 2 has not
        return learn(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Counts, "learn", learn_with_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        memory.learn(images[:40])
    monkeypatch.undo()
    whole.learn(images[:20])
    assert fingerprint(memory) == fingerprint(whole)


def test_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with deferred():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_other_threads_have_nothing_to_defer() -> None:
    ran = []

    def work() -> None:
        with deferred():
            ran.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran == [1]


def test_running_out_of_memory_changes_nothing(images: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SQHN((32, 32, 3), levels("L3 (2,4,4)", 500))
    memory.learn(images[:10])
    before = fingerprint(memory)

    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(memory.banks[-1], "reserve", refuse)
    with pytest.raises(MemoryError):
        memory.learn(images[10:20])
    monkeypatch.undo()
    assert fingerprint(memory) == before
    memory.learn(images[10:20])
    assert memory.step == 20
