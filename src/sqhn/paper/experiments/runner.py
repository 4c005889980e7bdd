"""Runs jobs in parallel, one record each; a second run does only the missing ones."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sqhn.banks.compilation import at_once
from sqhn.banks.cpu.threads import set_num_threads
from sqhn.checks import check_word
from sqhn.data import MissingDataError, load
from sqhn.paper.experiments import records
from sqhn.paper.experiments.case import Job, plain
from sqhn.paper.experiments.records import Record
from sqhn.paper.experiments.results import is_own

Backend = Literal["loky", "ray", "dask"]
Answer = TypeVar("Answer")
Sources = dict[str, str]
Todo = dict[str, tuple[Job, Sources]]  # jobs by the key of their record

SPEED_PERIOD = 3600
"""Seconds of past jobs from which the remaining time is estimated: single jobs can take many minutes."""


@dataclass
class Outcome:
    """The number of jobs run and of those recorded before, failed jobs, and jobs that lack data or packages."""

    ran: int = 0
    before: int = 0
    interrupted: bool = False
    failed: dict[str, str] = field(default_factory=dict)  # label of a job: traceback
    missing: dict[str, list[str]] = field(default_factory=dict)  # message with the remedy: experiments that wait


def run(
    jobs: Sequence[Job],
    folder: Path,
    workers: int,
    backend: Backend,
    console: Console,
    device: str = "cpu",
    quick: bool = False,
) -> Outcome:
    """Run the jobs that have no record in the folder yet. Ctrl-C keeps all finished records.

    device: where models that use torch run. quick: recorded as the mark of a short run.
    """
    check_word("backend", backend, get_args(Backend))
    outcome, done = Outcome(), records.read(folder)
    order: list[str] = []
    todo: Todo = {}
    for job in jobs:
        try:
            sources = {name: load(name).source for name in job.case.data}
            _check_needs(job)
        except (MissingDataError, MissingPackageError) as error:
            waiting = outcome.missing.setdefault(str(error), [])
            if job.experiment not in waiting:
                waiting.append(job.experiment)
            continue
        order.append(records.key_of(job.experiment, plain(job.case), job.seed, sources))
        if order[-1] in done:
            outcome.before += 1
        else:
            todo[order[-1]] = (job, sources)
    if not todo:
        return outcome
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    label = TextColumn("{task.description}", markup=False)
    with Progress(*columns, label, console=console, speed_estimate_period=SPEED_PERIOD) as bar:
        task = bar.add_task("", total=len(order), completed=outcome.before)
        try:
            for key, result in _results(todo, workers, backend, device):
                job = todo[key][0]
                if isinstance(result, str):
                    outcome.failed[job.label] = result
                    bar.console.print(f"failed: {job.label}: {result.strip().splitlines()[-1]}", markup=False)
                else:
                    result["quick"] = quick
                    records.append(folder, result)
                    done[key] = result
                    outcome.ran += 1
                bar.update(task, advance=1, description=job.label)
        except KeyboardInterrupt:
            outcome.interrupted = True
    if outcome.ran:  # records came in the order in which jobs ended; write them in the order of the jobs
        others = [record for key, record in done.items() if key not in set(order)]
        records.write(folder, [*(done[key] for key in order if key in done), *others])
    return outcome


def other_runs(folder: Path, declared: Mapping[str, Sequence[Job]]) -> str | None:
    """An experiment with a record whose settings or file of data are not declared now; None if there is none."""
    for record in records.read(folder).values():
        jobs, own = declared.get(record["experiment"], ()), is_own(record)
        if not any(_settings(plain(job.case), own) == _settings(record["settings"], own) for job in jobs):
            return str(record["experiment"])
        if any(name.endswith(".npz") and load(name).source != source for name, source in record["data"].items()):
            return str(record["experiment"])
    return None


def _settings(settings: dict[str, Any], own: bool) -> dict[str, Any]:
    """The settings of a record; those of a memory of the user without the model, which is not declared."""
    return {name: value for name, value in settings.items() if not own or name not in ("model", "memory")}


class MissingPackageError(ImportError):
    """A job needs a package that is not installed."""


def _check_needs(job: Job) -> None:
    if job.case.memory is not None:
        package, where = job.case.memory.needs
        if find_spec(package) is None:
            raise MissingPackageError(f"{job.case.model} and others need {package}: pip install '{where}'")


def work(key: str, job: Job, sources: Sources, device: str) -> tuple[str, Record | str]:
    """Run one job on one thread; returns its record, or the traceback of its error."""
    from threadpoolctl import threadpool_limits

    set_num_threads(1)  # jobs run in parallel, and the order of sums must not depend on their number
    start = time.perf_counter()
    try:
        with threadpool_limits(1), at_once():  # records do not depend on when kernels are ready
            results = job.case.run(job.seed, device)
    except Exception:
        return key, traceback.format_exc()
    record: Record = {"experiment": job.experiment, "settings": plain(job.case), "seed": job.seed, "data": sources}
    sizes = {name: {split: len(part.x) for split, part in load(name).splits.items()} for name in job.case.data}
    record |= {"sizes": sizes, "readings": list(job.readings), "device": _used(job, device)}
    seconds = round(time.perf_counter() - start, 3)
    return key, {**record, "results": results, **records.provenance(), "date": _now(), "seconds": seconds}


def in_worker(work: Callable[..., Answer], *args: Any) -> Answer:
    """Call a function in a worker process, which ignores Ctrl-C: the main process receives it and stops all workers.

    A worker whose main process is gone ends silently.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    return work(*args)


def _used(job: Job, device: str) -> str:
    """The device on which a job ran: only models that use torch run on a GPU."""
    if job.case.memory is None or not job.case.memory.torch or device == "cpu":
        return "cpu"
    import torch

    return str(torch.cuda.get_device_name(device))


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())


def _results(todo: Todo, workers: int, backend: Backend, device: str) -> Iterator[tuple[str, Record | str]]:
    """The results in the order in which jobs end. After a worker process dies, the next jobs are run one by one."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    pending = dict(todo)
    while pending:
        try:
            for key, result in run_parallel(pending, workers, backend, device):
                del pending[key]
                yield key, result
        except TerminatedWorkerError:
            for key in list(pending)[: 2 * workers]:
                single = {key: pending.pop(key)}
                try:
                    yield from run_parallel(
                        single, 2, backend, device
                    )  # with 2 workers, even one job runs in another process
                except TerminatedWorkerError:
                    yield key, "the process of this job died: out of memory?"


def run_parallel(todo: Todo, workers: int, backend: Backend, device: str) -> Iterator[tuple[str, Record | str]]:
    from joblib import Parallel, delayed, parallel_config

    call = (in_worker, work) if backend == "loky" and workers > 1 else (work,)
    calls = [delayed(call[0])(*call[1:], key, job, sources, device) for key, (job, sources) in todo.items()]
    with _backend_context(backend, workers), parallel_config(backend=backend, n_jobs=workers):
        if backend == "ray":  # which returns the results of a call all at once
            for start in range(0, len(calls), 4 * workers):
                yield from Parallel(batch_size=1)(calls[start : start + 4 * workers])
        else:
            with _interrupts_blocked():
                results = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch=2 * workers)(calls)
            yield from results


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started in this context never receive Ctrl-C, not even while they start."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as own_tracker

    for tracker in (resource_tracker, own_tracker):
        tracker.ensure_running()  # it unblocks the signal when it starts, so start it before
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _backend_context(backend: Backend, workers: int) -> Iterator[None]:
    """Registers ray, or connects to dask; a running cluster is found in the usual way of ray and dask."""
    client: Any = nullcontext()
    try:
        if backend == "ray":
            from ray.util.joblib import register_ray

            register_ray()  # type: ignore[no-untyped-call]
        elif backend == "dask":
            from distributed import Client

            running = bool(os.environ.get("DASK_SCHEDULER_ADDRESS"))
            client = Client() if running else Client(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    except ImportError as error:
        raise ImportError(f"backend {backend!r} needs an extra package: pip install 'sqhn[{backend}]'") from error
    with client:
        yield
