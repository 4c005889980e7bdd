"""Records of all experiments in the smallest sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sqhn.paper.experiments import records
from sqhn.paper.experiments.case import DEFAULT, Job, jobs_of, shrink
from sqhn.paper.experiments.catalogue import EXPERIMENTS
from sqhn.paper.experiments.results import Results
from sqhn.paper.experiments.runner import run

DAMAGED_SETS = ("cifar10", "watch")  # of the data sets of X-DMG
TINY_DIVISORS = {
    "length": 20,
    "capacity": 20,
    "size": 20,
    "tests": 200,
    "pretrain": 10,
    "every": 10,
    "trials": 20,
    "asked": 4,
    "budget": 20,
    "neurons": 20,
    "questions": 10,
}
HEAVY_DIVISORS = {"length": 500, "width": 128, "epochs": 2000, "recall_steps": 64}


def more_divisors(job: Job) -> dict[str, int]:
    if job.experiment == "S-EN":
        return {"length": 200}
    return HEAVY_DIVISORS if job.case.heavy else {}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    jobs = [
        replace(job, case=shrink(job.case, TINY_DIVISORS | more_divisors(job)))
        for experiment in EXPERIMENTS.values()
        for job in jobs_of(experiment, (DEFAULT,), heavy=True, seeds=2 if experiment.id in ("T1-MOD", "AC-B") else 1)
        if (job.seed == 0 or not job.case.heavy)
        and (experiment.id != "X-DMG" or job.case.set in DAMAGED_SETS)
        and (experiment.id != "X-BYT" or job.case.quick)
    ]
    outcome = run(jobs, folder, 2, "loky", Console(quiet=True))
    assert not outcome.failed, outcome.failed
    return folder


@pytest.fixture(scope="session")
def tiny_results(tiny: Path) -> Results:
    return Results(records.read(tiny).values())
