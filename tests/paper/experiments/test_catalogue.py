"""The declared experiments: complete, recorded in full, and with the paper's settings."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from sqhn.data import NAMES
from sqhn.paper.experiments.case import BUILTIN, CODE, DEFAULT, READINGS, Case, Reading, jobs_of, plain
from sqhn.paper.experiments.catalogue import CLAIMS, EXPERIMENTS, FAMILIES, FIGURES
from sqhn.paper.experiments.hyperparameters import MHNS
from sqhn.paper.experiments.models import Tree
from sqhn.paper.experiments.table_1 import PUBLISHED, SIDE

IDS = [
    *("T1-MOD", "T1-HIGH", "OC-L1", "OC-L3", "AC-D", "S-ABL", "NE-L1", "NE-L3", "RC", "AC-E", "X-RECN"),
    *("AC-B", "AC-C", "S-EXM", "S-EXH", "X-DMG", "X-DMGP", "X-BYT"),
    *("S-EN", "S-JNT", "S-MAP", "S-EMG", "TH1", "TH2", "S-CST"),
]


def cases(name: str, reading: Reading = DEFAULT) -> list[Any]:
    return list(EXPERIMENTS[name].cases(reading))


def test_every_experiment_of_the_paper_is_declared() -> None:
    assert list(EXPERIMENTS) == IDS


def test_names_and_cases_are_unique() -> None:
    for declared, by_name in (("experiments", EXPERIMENTS), ("claims", CLAIMS), ("figures", FIGURES)):
        assert sum(len(getattr(family, declared)) for family in FAMILIES.values()) == len(by_name)
    for name in IDS:
        for reading in READINGS:
            assert len(set(cases(name, reading))) == len(cases(name, reading))


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("name", IDS)
def test_records_hold_all_settings(name: str, reading: Reading) -> None:
    """Cases are plain data in a record, and different cases have different records."""
    seen = set()
    for case in cases(name, reading):
        written = json.dumps(plain(case))
        assert json.loads(written) == plain(case)
        assert set(case.data) <= set(NAMES)
        unrecorded = {"seeds", "heavy", "quick"}
        assert set(plain(case)) == {one.name for one in fields(case)} - unrecorded
        seen.add(written)
    assert len(seen) == len(cases(name, reading))


def test_infinity_is_a_word_in_a_record() -> None:
    assert plain(Tree(3, alpha=float("inf"))) == {
        "kind": "Tree", "capacity": 3, "kernels": [], "alpha": "inf", "gamma": 1.0, "when_full": "average",
        "similarity": "shifted_cosine", "rho": None, "propagation": "argmax", "mu": "mean",
    }  # fmt: skip


def test_every_data_set_of_the_paper_has_a_built_in_replacement() -> None:
    wanted = {name for experiment in IDS for case in cases(experiment) for name in case.data}
    assert wanted == set(BUILTIN)
    assert set(BUILTIN.values()) <= set(NAMES)


def count(name: str, readings: tuple[Reading, ...] = (DEFAULT,), **options: Any) -> int:
    """The number of SQHN jobs."""
    return sum("SQHN" in job.case.model for job in jobs_of(EXPERIMENTS[name], readings, **options))


def test_the_number_of_jobs() -> None:
    assert count("T1-MOD") == 2 * 3 * 5  # data sets, depths, seeds
    assert count("OC-L1") == 6 * 3 * 5  # streams, sizes, seeds
    assert count("OC-L3") == (4 + 2) * 3 * 5  # and two streams with noise first
    assert count("AC-E") == 2 * 4 * 5  # two pairs of data sets, three depths and one that overwrites
    assert count("T1-MOD", seeds=1) == 6
    assert count("AC-B", seeds=12) == 9 * 12
    assert count("S-EXM", seeds=3) == 3  # an illustration has one seed


def test_cases_shared_by_both_readings_run_once() -> None:
    assert count("T1-MOD", READINGS) == count("T1-MOD") == count("T1-MOD", (CODE,))
    assert count("OC-L1", READINGS) == 2 * count("OC-L1")
    jobs = list(jobs_of(EXPERIMENTS["OC-L1"]))
    of = {job.case.model: job.readings for job in jobs if job.case.model != "SQHN L1"}
    assert set(of.values()) == {READINGS}  # the networks of one layer are the same
    assert {job.readings for job in jobs if job.case.model == "SQHN L1"} == {(DEFAULT,), (CODE,)}
    # also when only one reading is run
    assert {job.readings for job in jobs_of(EXPERIMENTS["TH1"], (CODE,))} == {READINGS}
    with pytest.raises(ValueError, match="reading must be one of 'default', 'code'; got 'poem'"):
        list(jobs_of(EXPERIMENTS["TH1"], ("poem",)))  # type: ignore[arg-type]


def test_built_in_data_and_short_runs() -> None:
    full, short = (next(iter(jobs_of(EXPERIMENTS["AC-E"], data="paper", quick=quick))).case for quick in (False, True))
    assert full.data == ("cifar10", "cifar100")
    assert (full.length, full.memory.capacity, full.size) == (3000, 500, 500)  # type: ignore[attr-defined,union-attr]
    assert (short.length, short.memory.capacity, short.size) == (750, 125, 125)  # type: ignore[attr-defined,union-attr]
    deep = next(
        job for job in jobs_of(EXPERIMENTS["AC-E"], (CODE,), quick=True)
        if job.case.model == "SQHN L3" and job.readings == (CODE,)
    )  # fmt: skip
    assert deep.case.memory.capacity == (10, 50, 125)  # type: ignore[union-attr]
    assert deep.case.data == ("photos32", "photos32")
    assert deep.label == "AC-E cifar10 SQHN L3 125 seed 0"
    assert not list(jobs_of(EXPERIMENTS["S-CST"], quick=True))
    assert {job.case.model for job in jobs_of(EXPERIMENTS["T1-MOD"], quick=True)} == {"SQHN L1", "SQHN L2", "SQHN L3"}


@pytest.mark.parametrize("name", ["T1-MOD", "AC-B", "AC-D", "AC-E", "OC-L3"])
def test_kernels_reach_a_single_memory_node(name: str) -> None:
    for case in cases(name):
        if isinstance(case.memory, Tree):
            side = SIDE.get(case.set, 32)
            memory = case.memory.network((side, side, 3))
            assert memory.banks[-1].nodes == 1
            assert f"L{len(memory.banks)}" in case.model


def by(name: str, reading: Reading, **where: Any) -> Any:
    """The only case of these settings."""
    (found,) = [case for case in cases(name, reading) if all(getattr(case, k) == v for k, v in where.items())]
    return found


def test_the_code_reading_is_the_published_scripts() -> None:
    level = by("OC-L1", CODE, set="OCI-C", size=2000, model="SQHN L1").memory
    assert (level.alpha, level.similarity) == (55000, "cosine")
    assert by("NE-L1", CODE, model="SQHN", noise="white", samples=5).ema
    assert by("RC", CODE, model="SQHN").memory.when_full == "overwrite"
    deep = by("AC-E", CODE, model="SQHN L3")
    assert (deep.memory.capacity, deep.memory.propagation, deep.transform) == ((40, 200, 500), "argmax", "plain")
    assert by("OC-L3", CODE, set="ODI-CS", size=600, model="MHN-ER").memory.variant == "code"
    assert "noise_fill" in dict(by("AC-B", CODE, set="cifar10", model="SQHN L1").corruptions)
    step = by("S-ABL", CODE, model="-lrDecay").memory
    assert (step.ablation.step, step.ablation.growth_step, step.gamma) == (0.5, True, 0.5)


def test_the_default_reading_is_the_text() -> None:
    deep = by("AC-E", DEFAULT, model="SQHN L3", set="cifar10")
    assert (deep.memory.capacity, deep.memory.propagation, deep.transform) == (500, "max", "flipped")
    assert "normal_fill" in dict(by("AC-B", DEFAULT, set="cifar10", model="SQHN L1").corruptions)
    assert by("OC-L3", DEFAULT, set="ODI-CS", size=600, model="MHN-ER").memory.variant == "linear"
    assert by("S-ABL", DEFAULT, model="-lrDecay .9").memory.ablation.step == 0.9


def test_every_baseline_of_the_paper_is_declared() -> None:
    models = {name: {case.model for case in cases(name)} for name in IDS}
    assert set(PUBLISHED["T1-MOD"]) <= models["T1-MOD"]
    assert set(PUBLISHED["T1-HIGH"]) <= models["T1-HIGH"]
    for name in ("OC-L1", "OC-L3", "S-CST"):
        assert set(MHNS) <= models[name]
    for name in ("NE-L1", "NE-L3"):
        assert set(MHNS[:2]) <= models[name]
    assert {"MHN (rec-act)", "MHN (rec-mse)"} <= models["RC"]
    for name in ("T1-MOD", "OC-L1", "OC-L3", "NE-L1", "NE-L3", "RC", "AC-B", "AC-D", "AC-E", "X-RECN"):
        assert any(model.startswith("NN") for model in models[name])


@pytest.mark.parametrize("heavy", [False, True])
def test_heavy_cases_are_optional(heavy: bool) -> None:
    models = {job.case.model for job in jobs_of(EXPERIMENTS["T1-MOD"], heavy=heavy)}
    assert ("BayesPCN" in models) == heavy
    assert "MHN" in models


def test_an_abstract_case_cannot_run() -> None:
    with pytest.raises(NotImplementedError):
        Case(set="x", data=(), model="m", size=1).run(0, "cpu")
    with pytest.raises(TypeError, match="declares no model"):
        Case(set="x", data=(), model="m", size=1).build((2,), 0)
