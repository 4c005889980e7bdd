"""The declarations: complete, plain, and with the numbers of the paper."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sqhn.data import NAMES
from sqhn.experiments.catalogue import BUILTIN, EXPERIMENTS, PRESETS, jobs_of
from sqhn.experiments.memories import KINDS, tree
from sqhn.report.claims import CLAIMS, MHNS
from sqhn.report.paper import TABLE_1

IDS = [
    *("T1-MOD", "T1-HIGH", "OC-L1", "OC-L3", "NE-L1", "NE-L3", "RC", "AC-B", "AC-C", "AC-D", "AC-E", "X-RECN"),
    *("S-EN", "S-ABL", "S-EMG", "S-EXM", "S-EXH", "TH1", "TH2"),
]


def test_every_experiment_of_the_paper_is_declared() -> None:
    assert list(EXPERIMENTS) == IDS


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", IDS)
def test_settings_are_plain_and_complete(name: str, preset: str) -> None:
    for case in EXPERIMENTS[name].cases(preset):
        assert json.loads(json.dumps(case)) == case
        assert set(case["data"]) <= set(NAMES)
        assert {"set", "data"} <= set(case)
        if "memory" in case:
            assert case["memory"]["kind"] in KINDS


def test_every_data_set_of_the_paper_has_a_stand_in() -> None:
    wanted = {name for e in EXPERIMENTS.values() for case in e.cases("default") for name in case["data"]}
    assert wanted == set(BUILTIN)
    assert set(BUILTIN.values()) <= set(NAMES)


def count(name: str, **how: Any) -> int:
    """How many jobs of the SQHN."""
    return sum("SQHN" in job.settings.get("model", "SQHN") for job in jobs_of(EXPERIMENTS[name], "default", **how))


def test_the_number_of_jobs() -> None:
    assert count("T1-MOD") == 2 * 3 * 5  # data sets, depths, seeds
    assert count("T1-HIGH") == 2 * 3 * 7
    assert count("OC-L1") == 6 * 3 * 7  # streams, sizes, seeds
    assert count("AC-E") == 7 + 2 * 5  # one level with 7 seeds, two trees with 5
    assert len(list(jobs_of(EXPERIMENTS["S-EN"], "default"))) == 5 + 3
    assert count("T1-MOD", seeds=1) == 6
    assert count("AC-B", seeds=12) == 9 * 12
    assert count("S-EXM", seeds=3) == 3  # an illustration has one seed


def test_built_in_data_and_a_short_run() -> None:
    full, short = (
        next(iter(jobs_of(EXPERIMENTS["AC-E"], "default", builtin=False, quick=quick))) for quick in (False, True)
    )
    assert full.settings["data"] == ["cifar10", "cifar100"]
    assert (full.settings["length"], full.settings["memory"]["capacity"], full.settings["size"]) == (3000, 500, 500)
    assert (short.settings["length"], short.settings["memory"]["capacity"], short.settings["size"]) == (750, 125, 125)
    deep = next(
        job for job in jobs_of(EXPERIMENTS["AC-E"], "default", quick=True) if job.settings["model"] == "SQHN L3"
    )
    assert deep.settings["memory"]["capacity"] == [10, 50, 125]
    assert deep.settings["data"] == ["photos32", "photos32"]
    assert deep.label == "AC-E cifar10 SQHN L3 125 seed 0"


@pytest.mark.parametrize("name", ["T1-MOD", "AC-B", "AC-D", "AC-E", "OC-L3"])
def test_kernels_reach_a_single_memory_node(name: str) -> None:
    sides = {"cifar10": 32, "cifar100": 32, "tiny_imagenet": 64, "caltech256": 128}
    for case in EXPERIMENTS[name].cases("default"):
        side = sides.get(case["set"], 32)
        capacity = case["memory"].get("capacity", 10)
        if case["memory"]["kind"] != "sqhn":
            continue
        memory = tree((side, side, 3), {**case["memory"], "capacity": capacity})
        assert memory.banks[-1].nodes == 1
        assert len(memory.banks) == int(case["model"][-1])


def test_the_code_preset_is_the_published_scripts() -> None:
    oc = {(c["set"], c["size"]): c["memory"] for c in EXPERIMENTS["OC-L1"].cases("code") if c["model"] == "SQHN L1"}
    assert oc["OCI-C", 2000]["alpha"] == 55000
    assert oc["OCI-C", 2000]["similarity"] == "cosine"
    assert next(EXPERIMENTS["NE-L1"].cases("code"))["ema"] is True
    assert next(EXPERIMENTS["RC"].cases("code"))["memory"]["when_full"] == "overwrite"


def test_every_rival_of_the_paper_is_declared() -> None:
    models = {e.id: {case.get("model") for case in e.cases("default")} for e in EXPERIMENTS.values()}
    assert set(TABLE_1["T1-MOD"]) <= models["T1-MOD"]
    assert set(TABLE_1["T1-HIGH"]) <= models["T1-HIGH"]
    for name in ("OC-L1", "OC-L3"):
        assert set(MHNS) <= models[name]
    for name in ("NE-L1", "NE-L3"):
        assert set(MHNS[:2]) <= models[name]
    assert {"MHN (rec-act)", "MHN (rec-mse)"} <= models["RC"]
    for name in ("T1-MOD", "OC-L1", "OC-L3", "NE-L1", "NE-L3", "RC", "AC-B", "AC-D", "AC-E", "X-RECN"):
        assert any(str(model).startswith("NN") for model in models[name])


@pytest.mark.parametrize("heavy", [False, True])
def test_what_is_heavy_must_be_asked_for(heavy: bool) -> None:
    models = {job.settings["model"] for job in jobs_of(EXPERIMENTS["T1-MOD"], "default", heavy=heavy)}
    assert ("BayesPCN" in models) == heavy
    assert "MHN" in models


def test_claims_name_experiments() -> None:
    for claim in CLAIMS.values():
        assert set(claim.experiments) <= set(EXPERIMENTS), claim.id
