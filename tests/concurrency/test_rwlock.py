"""Readers and writers of a memory: threads, signals and forks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN, Level, concurrency
from sqhn.concurrency import ReadWriteLock
from tests.helpers import set_chunk

POSIX = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals to a thread are of POSIX")
LONG = 20.0


def started(*works: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()


def test_readers_read_at_the_same_time() -> None:
    lock, inside = ReadWriteLock(), threading.Barrier(3, timeout=LONG)
    join(started(*[lambda: lock.read(inside.wait)] * 3))
    assert not inside.broken


def test_a_reader_waits_for_one_chunk_only() -> None:
    lock = ReadWriteLock()
    log: list[object] = []
    reading, chunk = threading.Event(), threading.Event()

    def write() -> None:
        for number in range(3):
            lock.exclusive(work, number)

    def work(number: int) -> None:
        log.append(number)
        chunk.set()
        reading.wait(LONG)
        time.sleep(0.02)

    def read() -> None:
        chunk.wait(LONG)
        reading.set()
        lock.read(log.append, "read")

    join(started(lambda: lock.write(write), read, read))
    assert log == [0, "read", "read", 1, 2]


def order_of_calls(pause: float) -> list[str]:
    """The order in which a reader, a writer that comes during its read, and a later reader finish."""
    lock, inside, go = ReadWriteLock(), threading.Event(), threading.Event()
    log: list[str] = []

    def stay() -> None:
        inside.set()
        go.wait(LONG)
        log.append("first")

    threads = started(lambda: lock.read(stay))
    assert inside.wait(LONG)
    threads += started(lambda: lock.write(lock.exclusive, log.append, "write"))
    time.sleep(pause)  # by now the writer waits, unless the machine is busy
    threads += started(lambda: lock.read(log.append, "later"))
    time.sleep(pause)
    go.set()
    join(threads)
    return log


def test_a_writer_waits_for_readers_and_later_readers_wait_for_it() -> None:
    assert any(order_of_calls(pause) == ["first", "write", "later"] for pause in (0.02, 0.1, 0.5, 2.5))


def test_calls_that_write_follow_each_other() -> None:
    lock = ReadWriteLock()
    log: list[str] = []

    def write(name: str) -> None:
        for _ in range(20):
            lock.exclusive(log.append, name)
            time.sleep(1e-4)

    join(started(*[lambda name=name: lock.write(write, name) for name in "abc"]))
    assert ["".join(log[i : i + 20]) for i in range(0, 60, 20)] == [c * 20 for c in dict.fromkeys(log)]


def test_constant_reading_does_not_starve_a_writer() -> None:
    lock, done = ReadWriteLock(), threading.Event()

    def read() -> None:
        while not done.is_set():
            lock.read(time.sleep, 1e-4)

    threads = started(*[read] * 4)
    for _ in range(50):
        lock.write(lock.exclusive, time.sleep, 1e-4)
    done.set()
    join(threads)


def test_more_readers_than_the_recursion_limit() -> None:
    lock = ReadWriteLock()
    many = sys.getrecursionlimit() + 200
    done = threading.Barrier(many + 1, timeout=LONG)

    def read() -> None:
        lock.read(int)
        done.wait()
        done.wait()

    size = threading.stack_size(1 << 16)
    try:
        threads = started(*[read] * many)
    finally:
        threading.stack_size(size)
    done.wait()
    assert lock.write(lock.exclusive, max, 1, 2) == 2
    done.wait()
    join(threads)


def test_thousands_of_threads_that_end_leave_nothing_behind() -> None:
    lock, made = ReadWriteLock(), tracemalloc.Filter(True, concurrency.__file__)
    tracemalloc.start()
    try:
        for _ in range(1500):
            join(started(lambda: lock.read(int), lambda: lock.write(lock.exclusive, int)))
        left = tracemalloc.take_snapshot().filter_traces([made])
    finally:
        tracemalloc.stop()
    assert sum(trace.size for trace in left.traces) < 20_000


def test_a_read_within_a_read_does_not_wait_for_a_writer() -> None:
    lock = ReadWriteLock()
    writer: list[threading.Thread] = []

    def ask() -> list[int]:
        writer.extend(started(lambda: lock.write(lock.exclusive, int)))
        time.sleep(0.1)  # by now the writer waits for this read
        return [lock.read(int, "2") for _ in range(100)]

    assert lock.read(ask) == [2] * 100
    join(writer)


def test_a_thread_does_not_wait_for_itself() -> None:
    lock = ReadWriteLock()
    attempts: list[Callable[[], object]] = [
        lambda: lock.read(lock.write, int),
        lambda: lock.write(lock.write, int),
        lambda: lock.write(lock.atomic, lock.read, int),
        lambda: lock.write(lock.exclusive, lock.write, int),
    ]
    for attempt in attempts:
        with pytest.raises(RuntimeError, match=r"this thread (asked|tried to change) a memory in the middle"):
            attempt()
    assert lock.write(lock.exclusive, lock.read, max, 1, 2) == 2  # an exclusive action is valid wherever it is read
    assert lock.write(lock.atomic, max, 1, 2) == 2  # no lock stayed held


class InterruptError(Exception):
    pass


@POSIX
@pytest.mark.parametrize("waits_for", ["reader", "writer", "chunk"])
def test_waiting_can_be_interrupted(waits_for: str) -> None:
    """By Ctrl-C or any other signal, and no lock stays held."""
    lock, inside, go = ReadWriteLock(), threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        go.wait(LONG)

    other: Any = {
        "reader": lambda: lock.read(stay),
        "writer": lambda: lock.write(stay),
        "chunk": lambda: lock.write(lock.exclusive, stay),
    }[waits_for]
    mine: Any = (lambda: lock.read(int)) if waits_for == "chunk" else (lambda: lock.write(lock.exclusive, int))
    threads = started(other)
    assert inside.wait(LONG)
    me = threading.get_ident()
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(me, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        mine()
    go.set()
    join(threads)
    answers: list[int] = []
    join(started(lambda: lock.write(lock.exclusive, answers.append, 1), lambda: lock.read(answers.append, 2)))
    assert sorted(answers) == [1, 2]


@POSIX
@pytest.mark.parametrize("levels", [[Level(capacity=9)], [Level(2, 5), Level(capacity=9)]])
def test_signals_at_any_moment_leave_no_lock_and_no_half_learned_sample(levels: list[Level]) -> None:
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
        raise InterruptError

    old = signal.signal(signal.SIGALRM, interrupt)
    threads = started(work)
    raised = 0
    try:
        for i in range(1000):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + i % 50 * 1e-5)
                memory.learn(x) if i % 2 else memory.recall(x)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except InterruptError:
                raised += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        done.set()
    join(threads)
    assert raised > 100
    assert len({bank.neurons.step for bank in memory.banks}) == 1
    memory.learn(x)
    assert memory.banks[0].neurons.step == memory.step


@POSIX
@pytest.mark.parametrize("levels", [[Level(capacity=9)], [Level(2, 5), Level(capacity=9)]])
def test_a_signal_handler_may_save(levels: list[Level], tmp_path: Path) -> None:
    """A program that is told to end may save its memory, whatever it is doing."""
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


FORK = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
QUIET = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def ask_and_learn(memory: SQHN, x: Any, answers: Any) -> None:
    memory.recall(x)
    memory.learn(x)
    answers.put((memory.step, [bank.neurons.step for bank in memory.banks]))


@FORK
@QUIET
def test_a_fork_gets_a_new_lock_and_a_consistent_memory() -> None:
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
    join(threads)


@FORK
@QUIET
def test_a_fork_inside_a_read_does_not_wait_for_a_writer() -> None:
    memory = SQHN((4,), capacity=3)
    memory.learn(np.ones(4))
    codes: list[int] = []

    def fork(model: object) -> list[threading.Thread]:
        writer = started(lambda: memory.learn(np.ones(4)))
        time.sleep(0.1)  # by now the writer waits for this read
        child = multiprocessing.get_context("fork").Process(target=memory.recall, args=(np.ones(4),))
        child.start()
        child.join(LONG)
        codes.append(-1 if child.exitcode is None else child.exitcode)
        return writer

    reader = started(lambda: join(memory.inspect(fork)))
    join(reader)
    assert codes == [0]


SIGNALS_DURING_FORKS = """
import os, random, signal, threading, time
import numpy as np
from sqhn import SQHN

class Alarm(Exception):
    pass

def handler(number, frame):
    raise Alarm

def ask():
    while True:
        memory.recall(np.ones(4))
        answers.append(1)

memory, answers = SQHN((4,), capacity=3), []
memory.learn(np.ones(4))
memory.recall(np.ones(4))  # all is compiled by now: a child cannot compile if the fork interrupts the compiler
signal.signal(signal.SIGALRM, handler)
threading.Thread(target=ask, daemon=True).start()
until = time.monotonic() + 4
while time.monotonic() < until:
    child = None
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 3e-3))
        child = os.fork()
        if child == 0:
            memory.recall(np.ones(4))
            os._exit(signal.getsignal(signal.SIGALRM) is not handler)
        time.sleep(0.005)
    except Alarm:  # Python prints those that are raised within the hooks of a fork, and goes on
        pass
    try:
        while True:
            _, status = os.wait()
            assert status == 0, status
    except ChildProcessError:
        pass
before, deadline = len(answers), time.monotonic() + 20
while len(answers) == before and time.monotonic() < deadline:
    time.sleep(0.01)
print(len(answers) > before)
"""


@FORK
@POSIX
def test_a_handler_that_raises_during_a_fork_leaves_no_lock_behind() -> None:
    done = subprocess.run([sys.executable, "-c", SIGNALS_DURING_FORKS], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "True", done.stderr[-2000:]


SIGNAL_IN_A_FORK = """
import os, signal
armed, noted = [], []
os.register_at_fork(before=lambda: [signal.raise_signal(number) for number in armed])
from sqhn import SQHN  # its hook runs before the one above, and defers signals

class Alarm(Exception):
    pass

def handler(number, frame):
    raise Alarm

memory = SQHN((4,), capacity=3)
signal.signal(signal.SIGALRM, handler)
signal.signal(signal.SIGUSR1, lambda number, frame: noted.append(number))
for armed in ([signal.SIGALRM], [signal.SIGUSR1, signal.SIGALRM]):
    try:
        if os.fork() == 0:
            os._exit(0)
        print("nothing was raised")
    except Alarm:
        print("raised", len(noted), os.wait()[1])
armed = []
if os.fork() == 0:
    os._exit(0)
print("done", len(noted), os.wait()[1])
"""


@FORK
@POSIX
def test_a_signal_during_a_fork_is_handled_after_it() -> None:
    done = subprocess.run([sys.executable, "-c", SIGNAL_IN_A_FORK], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("raised 0 0\nraised 1 0\ndone 1 0\n", "")


SIGNAL_IN_A_FORK_WITH_A_FOLDER = """
import os, signal, sys, threading
armed = []
os.register_at_fork(before=lambda: [signal.raise_signal(signal.SIGALRM) for _ in armed])
from sqhn import SQHN

class Alarm(Exception):
    pass

def handler(number, frame):
    raise Alarm

signal.signal(signal.SIGALRM, handler)
memory, armed = SQHN((4,), capacity=3, folder=sys.argv[1]), [True]
try:
    if os.fork() == 0:
        os._exit(0)
except Alarm:
    print("raised", os.wait()[1])
other = threading.Thread(target=SQHN, args=[(4,)], kwargs={"capacity": 3, "folder": sys.argv[2]}, daemon=True)
other.start()
other.join(20)
print("waits" if other.is_alive() else "done")
"""


@FORK
@POSIX
def test_a_signal_during_a_fork_leaves_folders_usable(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SIGNAL_IN_A_FORK_WITH_A_FOLDER, f"{tmp_path}/a", f"{tmp_path}/b"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("raised 0\ndone\n", "")


RAISED_BEFORE_A_FORK = """
import os, signal
deferred = []
os.register_at_fork(before=lambda: deferred.append(signal.getsignal(signal.SIGALRM) is not handler))
from sqhn import SQHN, concurrency

def handler(number, frame):
    pass

def interrupted(number):
    if number == signal.SIGALRM and not raised:
        raised.append(number)
        raise InterruptedError
    return get_handler(number)

memory, raised, get_handler = SQHN((4,), capacity=3), [], concurrency.get_handler
signal.signal(signal.SIGALRM, handler)
concurrency.get_handler = interrupted
if os.fork() == 0:
    os._exit(0)
print(raised == [signal.SIGALRM], deferred, os.wait()[1], signal.getsignal(signal.SIGALRM) is handler)
"""


@FORK
@POSIX
def test_a_handler_that_raises_before_signals_are_deferred() -> None:
    """Python prints what is raised in a hook, and forks: signals are deferred all the same."""
    done = subprocess.run([sys.executable, "-c", RAISED_BEFORE_A_FORK], capture_output=True, text=True, timeout=100)
    assert done.stdout == "True [True] 0 True\n", done.stderr
    assert done.stderr.count("InterruptedError") == 1
