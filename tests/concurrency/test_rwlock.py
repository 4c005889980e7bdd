"""Who may use a memory when."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN, Level
from sqhn.concurrency.rwlock import ReadWriteLock
from tests.helpers import fingerprint, set_chunk

POSIX = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals to a thread are of POSIX")
LONG = 20.0


def started(*works: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def soon(condition: Callable[[], object]) -> bool:
    """Whether something becomes true."""
    last = time.monotonic() + LONG
    while not condition() and time.monotonic() < last:
        time.sleep(1e-3)
    return bool(condition())


def test_readers_read_side_by_side() -> None:
    turns, together = ReadWriteLock(), threading.Barrier(3, timeout=LONG)
    for thread in started(*[lambda: turns.read(together.wait)] * 3):
        thread.join(LONG)
        assert not thread.is_alive()
    assert not together.broken


def test_a_reader_waits_for_the_chunk_and_goes_before_the_next() -> None:
    turns = ReadWriteLock()
    log: list[object] = []
    reading, chunk = threading.Event(), threading.Event()

    def write() -> None:
        for number in range(3):
            turns.exclusive(work, number)

    def work(number: int) -> None:
        log.append(number)
        chunk.set()
        reading.wait(LONG)
        time.sleep(0.02)

    def read() -> None:
        chunk.wait(LONG)
        reading.set()
        turns.read(log.append, "read")

    for thread in started(lambda: turns.write(write), read, read):
        thread.join(LONG)
    assert log == [0, "read", "read", 1, 2]


def test_a_writer_waits_for_readers_and_readers_that_come_later_wait_for_it() -> None:
    turns = ReadWriteLock()
    log: list[str] = []
    inside, go = threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        go.wait(LONG)
        log.append("first")

    first = started(lambda: turns.read(stay))
    assert inside.wait(LONG)
    writer = started(lambda: turns.write(turns.exclusive, log.append, "write"))
    assert soon(lambda: not turns._gate.acquire(blocking=False) or turns._gate.release())  # the writer is at the gate
    later = started(lambda: turns.read(log.append, "later"))
    time.sleep(0.02)
    assert log == []
    go.set()
    for thread in (*first, *writer, *later):
        thread.join(LONG)
    assert log == ["first", "write", "later"]


def test_a_call_that_writes_is_one_turn() -> None:
    turns = ReadWriteLock()
    log: list[str] = []

    def write(name: str) -> None:
        for _ in range(20):
            turns.exclusive(log.append, name)
            time.sleep(1e-4)

    for thread in started(*[lambda name=name: turns.write(write, name) for name in "abc"]):
        thread.join(LONG)
    assert ["".join(log[i : i + 20]) for i in range(0, 60, 20)] == [c * 20 for c in dict.fromkeys(log)]


def test_readers_that_never_stop_do_not_keep_a_writer_out() -> None:
    turns, done = ReadWriteLock(), threading.Event()

    def read() -> None:
        while not done.is_set():
            turns.read(time.sleep, 1e-4)

    threads = started(*[read] * 4)
    for _ in range(50):
        turns.write(turns.exclusive, time.sleep, 1e-4)
    done.set()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()


def test_more_threads_than_calls_within_calls() -> None:
    turns = ReadWriteLock()
    many = sys.getrecursionlimit() + 200
    done = threading.Barrier(many + 1, timeout=LONG)

    def read() -> None:
        turns.read(int)
        done.wait()
        done.wait()

    size = threading.stack_size(1 << 16)
    try:
        threads = started(*[read] * many)
    finally:
        threading.stack_size(size)
    done.wait()
    assert turns.write(turns.exclusive, max, 1, 2) == 2
    done.wait()
    for thread in threads:
        thread.join(LONG)
    turns.read(int)
    assert len(turns._readers) <= many + 1
    started(lambda: turns.read(int))[0].join()
    assert len(turns._readers) <= 2  # those that ended are forgotten


def test_a_question_within_a_question_is_answered() -> None:
    turns = ReadWriteLock()
    waiting: list[threading.Thread] = []

    def ask() -> int:
        waiting.extend(started(lambda: turns.write(turns.exclusive, int)))
        assert soon(lambda: not turns._gate.acquire(blocking=False) or turns._gate.release())
        return turns.read(int, "2")  # a writer is at the gate, and waits for the outer question

    assert turns.read(ask) == 2
    waiting[0].join(LONG)
    assert not waiting[0].is_alive()


def test_a_thread_does_not_wait_for_itself() -> None:
    turns = ReadWriteLock()
    attempts: list[Callable[[], object]] = [
        lambda: turns.read(turns.write, int),
        lambda: turns.write(turns.write, int),
        lambda: turns.write(turns.atomic, turns.read, int),
        lambda: turns.write(turns.exclusive, turns.write, int),
    ]
    for what in attempts:
        with pytest.raises(RuntimeError, match=r"by the same thread|the same thread makes"):
            what()
    assert turns.write(turns.exclusive, turns.read, max, 1, 2) == 2  # what may stop anywhere may be looked at anywhere
    assert turns.write(turns.atomic, max, 1, 2) == 2  # and nothing is left behind


class Late(Exception):  # noqa: N818
    pass


@POSIX
@pytest.mark.parametrize("waits_for", ["reader", "writer", "chunk"])
def test_whoever_waits_can_be_stopped(waits_for: str) -> None:
    """By Ctrl-C or any other signal; and nothing is held afterwards."""
    turns, inside, go = ReadWriteLock(), threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        go.wait(LONG)

    other: Any = {
        "reader": lambda: turns.read(stay),
        "writer": lambda: turns.write(stay),
        "chunk": lambda: turns.write(turns.exclusive, stay),
    }[waits_for]
    mine: Any = (lambda: turns.read(int)) if waits_for == "chunk" else (lambda: turns.write(turns.exclusive, int))
    threads = started(other)
    assert inside.wait(LONG)
    me = threading.get_ident()
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(me, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        mine()
    go.set()
    threads[0].join(LONG)
    answers: list[int] = []
    for thread in started(
        lambda: turns.write(turns.exclusive, answers.append, 1), lambda: turns.read(answers.append, 2)
    ):
        thread.join(LONG)
    assert sorted(answers) == [1, 2]


@POSIX
@pytest.mark.parametrize("levels", [[Level(capacity=9)], [Level(2, 5), Level(capacity=9)]])
def test_signals_anywhere_leave_no_lock_and_no_half_sample(levels: list[Level]) -> None:
    """A handler raises at a thousand moments of reading and writing, while others read and write."""
    x = np.random.default_rng(0).random((64, 4, 6)).astype(np.float32)
    memory = SQHN((4, 6), levels)
    set_chunk(memory, 8)
    memory.learn(x)
    memory.recall(x)
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            memory.learn(x[:9])
            memory.recall(x[:9])

    def interrupt(number: int, frame: object) -> None:
        raise Late

    old = signal.signal(signal.SIGALRM, interrupt)
    threads = started(work)
    raised = 0
    try:
        for i in range(1000):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + i % 50 * 1e-5)
                memory.learn(x) if i % 2 else memory.recall(x)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Late:
                raised += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        done.set()
    threads[0].join(LONG)
    assert not threads[0].is_alive()
    assert raised > 100
    assert len({bank.neurons.step for bank in memory.banks}) == 1
    memory.learn(x)
    assert memory.banks[0].neurons.step == memory.step


@POSIX
@pytest.mark.parametrize("levels", [[Level(capacity=9)], [Level(2, 5), Level(capacity=9)]])
def test_a_signal_handler_may_save(levels: list[Level], tmp_path: Path) -> None:
    """What a program does when it is told to end: whatever it is in the middle of."""
    x = np.random.default_rng(0).random((300, 4, 6)).astype(np.float32)
    memory = SQHN((4, 6), levels)
    set_chunk(memory, 16)
    steps: list[int] = []

    def save(number: int, frame: object) -> None:
        memory.save(tmp_path / "m.sqhn")
        steps.append(SQHN.load(tmp_path / "m.sqhn").step)

    memory.learn(x[:1])
    old = signal.signal(signal.SIGALRM, save)
    try:
        for i in range(60):
            signal.setitimer(signal.ITIMER_REAL, 2e-5 * (i + 1))
            memory.learn(x) if i % 2 else memory.recall(x)
            while len(steps) <= i:
                time.sleep(1e-3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert all(step >= 1 for step in steps)


def ask_and_learn(memory: SQHN, x: Any, answers: Any) -> None:
    memory.recall(x)
    memory.learn(x)
    answers.put((memory.step, [bank.neurons.step for bank in memory.banks]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_gets_a_fresh_lock_and_a_whole_memory() -> None:
    x = np.random.default_rng(0).random((200, 8, 8)).astype(np.float32)
    memory = SQHN((8, 8), [Level(2, 30), Level(capacity=40)])
    set_chunk(memory, 20)
    memory.learn(x)
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            memory.learn(x)
            memory.recall(x[:50])

    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    threads = started(work, work)
    for _ in range(10):
        child = context.Process(target=ask_and_learn, args=(memory, x[:30], answers))
        child.start()
        step, levels = answers.get(timeout=LONG)
        child.join(LONG)
        assert child.exitcode == 0
        assert levels == [step, step]
    done.set()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()


def test_reading_changes_nothing_at_all() -> None:
    """Not even what is derived: every array and number of every bank is the same, bit for bit."""
    rng = np.random.default_rng(0)
    x = rng.random((90, 16, 16, 3)).astype(np.float32)

    def everything(memory: SQHN) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for level, bank in enumerate(memory.banks):
            for name, value in (vars(bank) | vars(bank.neurons)).items():
                if isinstance(value, np.ndarray):
                    found[f"{level} {name}"] = (id(value), value.tobytes())
                elif isinstance(value, int | float):
                    found[f"{level} {name}"] = (0, value)
        return found

    for levels in ([Level(capacity=60)], [Level(8, 9), Level(capacity=9)]):
        memory = SQHN((16, 16, 3), levels)
        memory.learn(x)
        memory.learn(x[:5], hold=True)
        before = everything(memory)
        for _ in range(3):
            for query in (x, rng.random(x.shape), x[0]):
                memory.recall(query)
                memory.recall(query, np.broadcast_to(np.arange(16)[:, None] < 9, (16, 16))[..., None].repeat(3, 2))
                memory.recall(query, inference="exact")
                memory.recognize(query)
                memory.energy(query)
        fingerprint(memory)
        repr(memory)
        assert everything(memory) == before
