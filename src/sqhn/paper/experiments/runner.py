"""One runner for all experiments: jobs side by side, one record each; a second run does only what is missing."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sqhn.banks.cpu.threads import set_num_threads
from sqhn.checks import check_word
from sqhn.data import MissingDataError, load
from sqhn.paper.experiments import records
from sqhn.paper.experiments.case import Job, plain
from sqhn.paper.experiments.records import Record

__all__ = ["Backend", "Outcome", "other_runs", "run"]

Backend = Literal["loky", "ray", "dask"]
Answer = TypeVar("Answer")
Sources = dict[str, str]
Todo = dict[str, tuple[Job, Sources]]  # by the key of the record it will leave


@dataclass
class Outcome:
    """What became of the jobs: how many ran, were done before, or failed; and what data some lack."""

    ran: int = 0
    before: int = 0
    interrupted: bool = False
    failed: dict[str, str] = field(default_factory=dict)  # label of the job: traceback
    missing: dict[str, list[str]] = field(default_factory=dict)  # what to do about it: experiments that wait


def run(
    jobs: Sequence[Job],
    folder: Path,
    workers: int,
    backend: Backend,
    console: Console,
    device: str = "cpu",
    quick: bool = False,
) -> Outcome:
    """Run what is not yet recorded in the folder. Ctrl-C keeps all that is done.

    device: where memories that use torch live. quick: these are the jobs of a short run, and their records say so.
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
    left = Estimate([job for job, _ in todo.values()], workers)
    with _progress(console) as bar:
        task = bar.add_task("", total=len(order), completed=outcome.before, left="")
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
                    left.learn(job, result["seconds"])
                left.remove(job)
                bar.update(task, advance=1, description=job.label, left=left.text())
        except KeyboardInterrupt:
            outcome.interrupted = True
    if outcome.ran:  # in the order of the jobs, whichever came first
        others = [record for key, record in done.items() if key not in set(order)]
        records.write(folder, [*(done[key] for key in order if key in done), *others])
    return outcome


def other_runs(folder: Path, declared: Mapping[str, Sequence[Job]]) -> str | None:
    """An experiment of which the folder has a record with settings that are not declared now; None if there is none."""
    for record in records.read(folder).values():
        jobs = declared.get(record["experiment"], ())
        if not any(plain(job.case) == record["settings"] for job in jobs):
            return str(record["experiment"])
    return None


class MissingPackageError(ImportError):
    """A job needs a package that is not installed."""


def _check_needs(job: Job) -> None:
    if job.case.memory is not None:
        package, where = job.case.memory.needs
        if find_spec(package) is None:
            raise MissingPackageError(f"{job.case.model} and others need {package}: pip install '{where}'")


def work(key: str, job: Job, sources: Sources, device: str) -> tuple[str, Record | str]:
    """One job, on one thread; returns its record, or the traceback of what went wrong."""
    from threadpoolctl import threadpool_limits

    set_num_threads(1)  # jobs run side by side; and sums in one order, however many there are
    start = time.perf_counter()
    try:
        with threadpool_limits(1):
            results = job.case.run(job.seed, device)
    except Exception:
        return key, traceback.format_exc()
    record: Record = {"experiment": job.experiment, "settings": plain(job.case), "seed": job.seed, "data": sources}
    sizes = {name: {split: len(part.x) for split, part in load(name).splits.items()} for name in job.case.data}
    record |= {"sizes": sizes, "readings": list(job.readings), "device": _used(job, device)}
    seconds = round(time.perf_counter() - start, 3)
    return key, {**record, "results": results, **records.provenance(), "date": _now(), "seconds": seconds}


def apart(work: Callable[..., Answer], *args: Any) -> Answer:
    """Work in a process of its own, which Ctrl-C does not concern: we hear it, and end all of them.

    It ends without a word if nobody is left to take the result.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    return work(*args)


def _used(job: Job, device: str) -> str:
    """Where the job really ran: only what uses torch lives on a GPU."""
    if job.case.memory is None or not job.case.memory.torch or device == "cpu":
        return "cpu"
    import torch

    return str(torch.cuda.get_device_name(device))


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())


def _results(todo: Todo, workers: int, backend: Backend, device: str) -> Iterator[tuple[str, Record | str]]:
    """The result of every job as it comes. If a worker process dies, the jobs it may have had are run one by one."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    pending = dict(todo)
    while pending:
        try:
            for key, result in _parallel(pending, workers, backend, device):
                del pending[key]
                yield key, result
        except TerminatedWorkerError:
            for key in list(pending)[: 2 * workers]:
                alone = {key: pending.pop(key)}
                try:
                    yield from _parallel(alone, 2, backend, device)  # 2: in another process even for one job
                except TerminatedWorkerError:
                    yield key, "the process of this job died: out of memory?"


def _parallel(todo: Todo, workers: int, backend: Backend, device: str) -> Iterator[tuple[str, Record | str]]:
    from joblib import Parallel, delayed, parallel_config

    own = (apart, work) if backend == "loky" and workers > 1 else (work,)
    calls = [delayed(own[0])(*own[1:], key, job, sources, device) for key, (job, sources) in todo.items()]
    with _cluster(backend, workers), parallel_config(backend=backend, n_jobs=workers):
        if backend == "ray":  # gives the results of a call all together
            for start in range(0, len(calls), 4 * workers):
                yield from Parallel(batch_size=1)(calls[start : start + 4 * workers])
        else:
            with _deaf_to_interrupts():
                results = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch=2 * workers)(calls)
            yield from results


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started here never hear Ctrl-C, not even while they start: we do, and end them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as own_tracker

    for tracker in (resource_tracker, own_tracker):
        tracker.ensure_running()  # which lets the signal through again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _cluster(backend: Backend, workers: int) -> Iterator[None]:
    """What a backend needs around it; a cluster that runs already is found as ray and dask find theirs."""
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


class Estimate:
    """How long the jobs that are left will take: each as long as its like so far."""

    def __init__(self, jobs: Sequence[Job], workers: int) -> None:
        self.workers = workers
        self.left: dict[tuple[str, ...], int] = defaultdict(int)
        self.seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for job in jobs:
            self.left[job.kind] += 1

    def learn(self, job: Job, seconds: float) -> None:
        self.seconds[job.kind].append(seconds)

    def remove(self, job: Job) -> None:
        self.left[job.kind] -= 1

    def text(self) -> str:
        known = {kind: sum(times) / len(times) for kind, times in self.seconds.items()}
        if not known:
            return ""
        by_experiment: dict[str, list[float]] = defaultdict(list)
        for kind, mean in known.items():
            by_experiment[kind[0]].append(mean)
        overall = sum(known.values()) / len(known)
        total = 0.0
        for kind, count in self.left.items():
            alike = by_experiment.get(kind[0], [overall])
            total += count * known.get(kind, sum(alike) / len(alike))
        minutes, seconds = divmod(round(total / self.workers), 60)
        return f"about {minutes}:{seconds:02} left"


def _progress(console: Console) -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    return Progress(*columns, TextColumn("{task.description}", markup=False), console=console)
