from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from sqhn import SQHN, set_num_threads
from sqhn.banks.cpu import threads
from tests.helpers import levels, noisy, using_threads


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
    with using_threads(2):
        memory = SQHN((32, 32, 3), levels("L2 (4,8)", 20))
        memory.learn(images[:30])
        child = os.fork()
        if child == 0:
            memory.learn(images[30:40])
            os._exit(0 if memory.step == 40 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="BLAS has one thread")
def test_matrix_products_use_as_many_threads() -> None:
    with using_threads(2):
        assert blas_threads() == {2}
        set_num_threads(1)
        assert blas_threads() == {1}


SINGLE_CALLS = """
import os, time
from pathlib import Path
import numpy as np
from threadpoolctl import threadpool_limits
from sqhn import SQHN, Level, set_num_threads

def others():
    me = os.getpid()
    return [task for task in Path("/proc/self/task").iterdir() if int(task.name) != me]

def turns():  # how often each other thread ran, once all of them sleep
    while any(task.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "S" for task in others()):
        time.sleep(0.01)
    return {task.name: task.joinpath("schedstat").read_text().split()[2] for task in others()}

set_num_threads(1)  # of the package, so that all others are of BLAS
threadpool_limits(2, user_api="blas")
for shape, levels, similarity, neurons in (
    ((200, 6), [Level(capacity=4000)], "euclidean", 3000),
    ((200, 6), [Level((100, 6), 3000), Level(capacity=3000)], "shifted_cosine", 2000),
    ((256, 300), [Level(capacity=40)], "shifted_cosine", 20),
):
    rng = np.random.default_rng(0)
    x, mask = rng.random((neurons, *shape), np.float32), rng.random(shape) < 0.7
    memory = SQHN(shape, levels, similarity=similarity)
    memory.memorize(x)
    calls = {
        "learn": lambda: memory.learn(rng.random(shape)),
        "recall": lambda: memory.recall(x[7]),
        "recall, masked": lambda: memory.recall(x[7], mask),
        "recall, the best": lambda: memory.recall(x[7], k=3),
        "recognize": lambda: memory.recognize(x[7]),
        "learn, masked": lambda: memory.learn(rng.random(shape), observed=mask),
        "a batch": lambda: memory.recall(rng.random((256, *shape), np.float32)),
    }
    for name, call in calls.items():
        call()
        before = turns()
        call()
        assert (turns() == before) == (name != "a batch"), (shape, name)
"""


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not count turns of threads")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="BLAS has one thread")
def test_single_samples_use_no_other_thread() -> None:
    """Threads of matrix products: waiting for them takes long on a busy machine."""
    subprocess.run([sys.executable, "-c", SINGLE_CALLS], check=True, env=os.environ | {"OMP_NUM_THREADS": "2"})
