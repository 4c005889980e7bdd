from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from sqhn import SQHN, set_num_threads
from sqhn.banks.cpu import threads
from tests.helpers import levels, noisy


def test_a_range_is_divided_without_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_threads", 3)
    monkeypatch.setattr(threads, "_pool", None)
    for count in (1, 2, 3, 10):
        seen: list[int] = []
        threads.split_range(lambda lo, hi, seen=seen: seen.extend(range(lo, hi)), count, 1e9)
        assert sorted(seen) == list(range(count))


def test_an_error_in_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_threads", 2)
    monkeypatch.setattr(threads, "_pool", None)

    def fail(lo: int, hi: int) -> None:
        if lo > 0:
            raise RuntimeError("second half")

    with pytest.raises(RuntimeError, match="second half"):
        threads.split_range(fail, 10, 1e9)


def test_the_caller_does_all_where_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a process, for example."""
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    monkeypatch.setattr(threads, "_threads", 3)
    monkeypatch.setattr(threads, "_pool", pool)
    seen: list[int] = []
    threads.split_range(lambda lo, hi: seen.extend(range(lo, hi)), 10, 1e9)
    assert sorted(seen) == list(range(10))


def test_several_threads_may_ask_one_memory(images: NDArray[np.float32]) -> None:
    memory = SQHN((32, 32, 3), levels("L2 (4,8)", 50))
    memory.learn(images[:100])
    query = noisy(images[:60])
    expected = memory.recall(query).x
    answers: list[NDArray[np.float32]] = []
    askers = [threading.Thread(target=lambda: answers.append(memory.recall(query).x)) for _ in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(answers) == 4
    for answer in answers:
        np.testing.assert_array_equal(answer, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_can_go_on(images: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LITTLE", 0)
    before = threads.get_num_threads()
    set_num_threads(2)
    try:
        memory = SQHN((32, 32, 3), levels("L2 (4,8)", 20))
        memory.learn(images[:30])
        child = os.fork()
        if child == 0:
            memory.learn(images[30:40])
            os._exit(0 if memory.step == 40 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        set_num_threads(before)
