"""The runner: records, resuming, failures, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sqhn.data import MissingDataError
from sqhn.paper.experiments import records, runner
from sqhn.paper.experiments.case import DEFAULT, Case, Job, jobs_of, plain
from sqhn.paper.experiments.catalogue import EXPERIMENTS
from sqhn.paper.experiments.models import OnlineMHN
from sqhn.paper.experiments.runner import run
from sqhn.paper.experiments.theory import Urn

QUIET = Console(quiet=True)


URN = Urn(set="urn", data=(), model="urn", size=20, length=40, every=10, trials=3)


def jobs(count: int = 3) -> list[Job]:
    return [Job("TH2", URN, seed) for seed in range(count)]


def without_times(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / records.FILE).read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("seconds", "date")} for line in lines]


@pytest.mark.parametrize("workers", [1, 2])
def test_records_describe_the_jobs(workers: int, tmp_path: Path) -> None:
    outcome = run(jobs(), tmp_path / "new", workers, "loky", QUIET)
    assert (outcome.ran, outcome.before, outcome.failed) == (3, 0, {})
    written = without_times(tmp_path / "new")
    assert [record["seed"] for record in written] == [0, 1, 2]
    assert written[0]["settings"] == plain(URN)
    assert (written[0]["readings"], written[0]["quick"]) == (["default", "code"], False)
    assert written[0]["device"] == "cpu"
    assert set(written[0]["versions"]) >= {"sqhn", "numpy", "numba", "python"}
    assert "commit" in written[0]


def test_records_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    todo = [job for name in ("TH1", "S-EXH") for job in jobs_of(EXPERIMENTS[name], seeds=1, quick=True)]
    for workers in (1, 2):
        run(todo, tmp_path / str(workers), workers, "loky", QUIET)
    assert without_times(tmp_path / "1") == without_times(tmp_path / "2")


def test_a_second_run_does_only_the_missing_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(jobs(2), tmp_path, 1, "loky", QUIET)
    before = without_times(tmp_path)
    outcome = run(jobs(3), tmp_path, 1, "loky", QUIET)
    assert (outcome.ran, outcome.before) == (1, 2)
    assert without_times(tmp_path)[:2] == before
    monkeypatch.setattr(runner, "work", None)  # no job may run
    assert run(jobs(3), tmp_path, 1, "loky", QUIET).before == 3


def test_other_settings_or_other_data_are_other_jobs(tmp_path: Path) -> None:
    run(jobs(1), tmp_path, 1, "loky", QUIET)
    changed = [Job("TH2", replace(URN, trials=4), 0)]
    assert run(changed, tmp_path, 1, "loky", QUIET).ran == 1
    assert len(records.read(tmp_path)) == 2
    assert records.key_of("A", {}, 0, {"x": "built-in"}) != records.key_of("A", {}, 0, {"x": "x.npz"})


def test_a_record_cut_short_by_a_crash_is_run_again(tmp_path: Path) -> None:
    run(jobs(2), tmp_path, 1, "loky", QUIET)
    whole = without_times(tmp_path)
    file = tmp_path / records.FILE
    file.write_text(file.read_text()[:-40])
    outcome = run(jobs(2), tmp_path, 1, "loky", QUIET)
    assert (outcome.ran, outcome.before) == (1, 1)
    assert without_times(tmp_path) == whole


def test_a_failed_job_is_reported_and_the_others_run(tmp_path: Path) -> None:
    bad = Job("TH2", replace(URN, size=-1), 9)
    outcome = run([bad, *jobs(2)], tmp_path, 2, "loky", QUIET)
    assert outcome.ran == 2
    assert list(outcome.failed) == ["TH2 urn urn -1 seed 9"]
    assert "ValueError" in outcome.failed["TH2 urn urn -1 seed 9"]
    assert run([bad, *jobs(2)], tmp_path, 1, "loky", QUIET).failed  # it is tried again


def dies(key: str, job: Job, sources: dict[str, str], device: str) -> tuple[str, Any]:
    """A job that kills its process."""
    if job.seed == 1:
        os._exit(7)
    return key, {"experiment": job.experiment, "settings": plain(job.case), "seed": job.seed, "data": sources,
                 "results": {}, "seconds": 0.0}  # fmt: skip


def test_a_dead_worker_process_costs_only_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "work", dies)
    outcome = run(jobs(6), tmp_path, 2, "loky", QUIET)
    assert sorted(record["seed"] for record in records.read(tmp_path).values()) == [0, 2, 3, 4, 5]
    assert list(outcome.failed) == ["TH2 urn urn 20 seed 1"]
    assert "died" in outcome.failed["TH2 urn urn 20 seed 1"]


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="pipes end without a signal here")
def test_a_worker_without_a_reader_ends_silently() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code = f"import os\nfrom sqhn.paper.experiments.runner import in_worker\nin_worker(os.write, {writer}, b'x')"
    ended = subprocess.run([sys.executable, "-c", code], pass_fds=[writer], capture_output=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (-signal.SIGPIPE, b"")


REPORT_SIGNALS = """
import signal
from sqhn.paper.experiments import runner

def report_signals(*_):
    return "", f"{signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())} {signal.getsignal(signal.SIGINT).name}"

runner.work = report_signals
print(list(runner.run_parallel({"0": (None, {}), "1": (None, {})}, 2, "loky", "cpu")))
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked here")
def test_workers_never_receive_an_interrupt() -> None:
    """It is blocked while they start, and ignored while they work."""
    printed = subprocess.run([sys.executable, "-c", REPORT_SIGNALS], capture_output=True, text=True, check=True).stdout
    assert printed == f"{[('', 'True SIG_IGN')] * 2}\n"


def test_jobs_without_data_are_listed_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise MissingDataError(f"{name} is not here: run `sqhn data get {name}`")

    monkeypatch.setattr(runner, "load", missing)
    needs = Job("TH1", Case(set="mnist", data=("mnist",), model="SQHN", size=1), 0)
    outcome = run([needs, needs, *jobs(1)], tmp_path, 1, "loky", QUIET)
    assert outcome.missing == {"mnist is not here: run `sqhn data get mnist`": ["TH1"]}
    assert outcome.ran == 1


def test_jobs_without_torch_are_listed_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "find_spec", lambda name: None)
    needs = Job("OC-L1", Case(set="x", data=(), model="MHN-SGD", size=1, memory=OnlineMHN(1, 1, 1)), 0)
    outcome = run([needs, *jobs(1)], tmp_path, 1, "loky", QUIET)
    assert outcome.ran == 1
    assert outcome.missing == {"MHN-SGD and others need torch: pip install 'sqhn[torch]'": ["OC-L1"]}


def test_an_unknown_backend_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="backend must be one of 'loky', 'ray', 'dask'"):
        run(jobs(), tmp_path, 1, "threads", QUIET)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_a_missing_backend_names_its_extra(backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ray", "ray.util.joblib", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"pip install 'sqhn\[{backend}\]'"):
        run(jobs(), tmp_path, 1, backend, QUIET)


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C reaches a process group by signal")
def test_an_interrupted_and_resumed_run_gives_the_same_records(tmp_path: Path) -> None:
    names = ["TH2", "TH1", "S-EXH", "S-EXM", "AC-C"]
    command = [sys.executable, "-m", "sqhn.cli", "reproduce", *names, "--quick", "--seeds", "1", "--jobs", "2", "--out"]
    folder = tmp_path / "stopped"
    process = subprocess.Popen([*command, str(folder)], start_new_session=True, stderr=subprocess.PIPE, text=True)
    file = folder / records.FILE
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and not (file.exists() and file.read_text().count("\n") >= 2):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, messages = process.communicate(timeout=600)
    assert process.returncode == 130, messages
    assert "the same command continues from here" in messages
    assert "Traceback" not in messages, messages
    todo = [job for name in names for job in jobs_of(EXPERIMENTS[name], (DEFAULT,), seeds=1, quick=True)]
    done = len(records.read(folder))
    assert 2 <= done < len(todo)
    outcome = run(todo, folder, 2, "loky", QUIET, quick=True)
    assert (outcome.before, outcome.ran) == (done, len(todo) - done)
    run(todo, tmp_path / "whole", 1, "loky", QUIET, quick=True)
    assert without_times(folder) == without_times(tmp_path / "whole")
