"""Records of all experiments, in the smallest sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sqhn.paper.experiments import records
from sqhn.paper.experiments.case import DEFAULT, Job, _shrunk, jobs_of
from sqhn.paper.experiments.catalogue import EXPERIMENTS
from sqhn.paper.experiments.results import Results
from sqhn.paper.experiments.runner import run

SETS = ("cifar10", "watch")
"""Of all that recall from damage is tried on."""
TINY = {"length": 20, "capacity": 20, "size": 20, "tests": 200, "pretrain": 10, "every": 10, "trials": 20, "asked": 4}
HEAVY = {"length": 500, "width": 128, "epochs": 2000, "recall_steps": 64}


def _more(job: Job) -> dict[str, int]:
    if job.experiment == "S-EN":
        return {"length": 200}
    return HEAVY if job.case.heavy else {}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    jobs = [
        replace(job, case=_shrunk(job.case, TINY | _more(job)))
        for experiment in EXPERIMENTS.values()
        for job in jobs_of(experiment, (DEFAULT,), heavy=True, seeds=2 if experiment.id in ("T1-MOD", "AC-B") else 1)
        if (job.seed == 0 or not job.case.heavy) and (experiment.id != "X-DMG" or job.case.set in SETS)
    ]
    outcome = run(jobs, folder, 2, "loky", Console(quiet=True))
    assert not outcome.failed, outcome.failed
    return folder


@pytest.fixture(scope="session")
def tiny_results(tiny: Path) -> Results:
    return Results(records.read(tiny).values())
