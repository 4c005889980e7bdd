"""Records of all experiments, in the smallest sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from sqhn.experiments import records
from sqhn.experiments.catalogue import EXPERIMENTS, Job, _shrink, jobs_of
from sqhn.experiments.runner import run
from sqhn.report.results import Results

TINY = {"length": 20, "capacity": 20, "size": 20, "tests": 200, "pretrain": 10, "every": 10, "trials": 20}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    jobs = [
        Job(job.experiment, _shrink(job.settings, TINY), job.seed)
        for experiment in EXPERIMENTS.values()
        for job in jobs_of(experiment, "default", 2 if experiment.id in ("T1-MOD", "AC-B") else 1)
    ]
    outcome = run(jobs, folder, 2, "loky", Console(quiet=True))
    assert not outcome.failed, outcome.failed
    return folder


@pytest.fixture(scope="session")
def tiny_results(tiny: Path) -> Results:
    return Results(records.read(tiny).values())
