"""A level's nodes, or a batch's samples, divided among threads.

Kernels release the GIL and work on a range, so plain Python threads do, without a threading layer and its hazards.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

from threadpoolctl import threadpool_limits

from sqhn.concurrency import deferred

LITTLE = 200_000

_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
_pool: ThreadPoolExecutor | None = None


def get_num_threads() -> int:
    """How many threads this process uses; for matrix products (BLAS), only once `set_num_threads` was called."""
    return _threads


def set_num_threads(n: int) -> None:
    """Use n threads, for matrix products (BLAS) too; results never depend on n."""
    global _threads
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(f"the number of threads must be an int of at least 1; got {n!r}")
    _threads = n
    threadpool_limits(n, user_api="blas")
    _forget_pool()


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _workers() -> ThreadPoolExecutor:
    global _pool
    pool = _pool
    if pool is None:
        pool = _pool = ThreadPoolExecutor(max_workers=max(1, _threads - 1), thread_name_prefix="sqhn")
    return pool


def split_range(
    kernel: Callable[..., None], count: int, work: float, *args: Any, scratch: Callable[[], Any] | None = None
) -> None:
    """Run `kernel(lo, hi, *args)` over a partition of range(count); on return no thread works on it any more.

    work: rough number of elementary operations in all; little work stays on the calling thread. scratch: makes the last
    argument of each thread.
    """

    def run(lo: int, hi: int) -> None:
        kernel(lo, hi, *args, *(() if scratch is None else (scratch(),)))

    parts = min(_threads, count) if work > LITTLE else 1
    if parts <= 1:
        run(0, count)
        return
    edges = [count * i // parts for i in range(parts + 1)]
    with deferred():  # an exception here would leave the other threads running
        others = [future for lo, hi in pairwise(edges[1:]) if (future := _submit(run, lo, hi))]
        try:
            run(edges[0], edges[1])
        finally:
            wait(others)
        for future in others:
            future.result()


def _submit(run: Callable[[int, int], None], lo: int, hi: int) -> Future[None] | None:
    """Work on a range on another thread, or here if no thread can be started, as at the end of a process."""
    try:
        return _workers().submit(run, lo, hi)
    except RuntimeError:
        run(lo, hi)
        return None
