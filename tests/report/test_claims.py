"""Verdicts on records made by hand: what must pass, what must fail, what was not run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sqhn.metrics import forgetting_bound, singletons
from sqhn.report.claims import CLAIMS, MHNS, judge
from sqhn.report.results import NotRunError, Results

IDS = (
    [f"T1.{i}" for i in range(1, 8)]
    + [f"OC{level}.{i}" for level in (1, 3) for i in range(1, 8)]
    + [f"NE.{i}" for i in range(1, 6)]
    + [f"RC.{i}" for i in range(1, 6)]
    + [f"ACB.{i}" for i in range(1, 5)]
    + ["ACC.1", "ACD.1", "ACD.2", "ACD.3", "ACD.4", "ACE.1", "ACE.2", "ACE.3", "XR.1", "XR.2"]
    + ["SE.1", "SE.2", "SE.3", "SA.1", "SA.2", "SA.3", "SA.4", "SM.1", "SM.2", "SM.3", "EX.1", "EX.2", "TH1", "TH2"]
)


def record(experiment: str, results: dict[str, Any], seed: int = 0, **settings: Any) -> dict[str, Any]:
    return {"experiment": experiment, "settings": {"data": ["cifar10"], **settings}, "seed": seed, "results": results}


def verdict(claim: str, records: list[dict[str, Any]]) -> str:
    return next(v.word for v in judge(Results(records)) if v.claim.id == claim)


def finding(claim: str, records: list[dict[str, Any]]) -> Any:
    return CLAIMS[claim].check(Results(records))


def test_every_claim_of_the_paper_is_judged() -> None:
    assert list(CLAIMS) == IDS


def test_without_records_nothing_was_run() -> None:
    verdicts = judge(Results([]))
    assert {v.word for v in verdicts} == {"NOT RUN"}
    assert all(v.finding.missing for v in verdicts)


def test_tiny_runs_of_everything_are_judged(tiny_results: Results) -> None:
    """Only what needs the heavy memories of the paper is not run."""
    verdicts = {v.claim.id: v for v in judge(tiny_results)}
    assert {id_ for id_, one in verdicts.items() if one.word == "NOT RUN"} <= {"T1.7"}
    assert "PCN" in verdicts["T1.7"].finding.missing
    assert verdicts["TH1"].word == "PASS"
    assert verdicts["SE.1"].word == "PASS"


# -- Table 1 ---------------------------------------------------------------------------------------------------------

PRINTED = {  # raw errors: a quarter of the table's
    ("T1-MOD", "cifar10"): {"L1": 0.0, "L2": 0.0002, "L3": 0.1076},
    ("T1-HIGH", "cifar10"): {"L1": 0.0, "L2": 0.0904, "L3": 0.3324},
    ("T1-MOD", "tiny_imagenet"): {"L1": 0.0, "L2": 0.0, "L3": 0.0},
    ("T1-HIGH", "tiny_imagenet"): {"L1": 0.0, "L2": 0.0002, "L3": 0.0240},
}


def table(data: str = "cifar10", hetero: float = 0.0, **noise: float) -> list[dict[str, Any]]:
    """The printed table as records of two seeds; `noise` adds to the error of a depth under noise."""
    made = []
    for (experiment, name), depths in PRINTED.items():
        for depth, printed in depths.items():
            for seed in (0, 1):
                rows = [{"kind": "noise", "level": 0.2, "mse": (printed + noise.get(depth, 0)) / 4}]
                rows += [
                    {"kind": kind, "level": 0.2, "mse": hetero / 4, "mse_visible": 9.0} for kind in ("dropout", "mask")
                ]
                settings = {"set": name, "model": f"SQHN {depth}", "data": [data]}
                made.append(record(experiment, {"rows": rows}, seed, **settings))
    return made


def test_little_corruption_is_a_claim_about_the_sqhn_alone(tiny_results: Results) -> None:
    assert "NN" in tiny_results.of("AC-B").settings("model")
    verdict = next(one for one in judge(tiny_results) if one.claim.id == "ACB.1")
    assert "of 72 below" in verdict.finding.ours  # 3 sets, 3 depths, 8 corruptions


def test_the_printed_table_passes_but_for_ties() -> None:
    assert verdict("T1.1", table()) == "PASS"
    assert verdict("T1.2", table()) == "PASS"
    assert verdict("T1.3", table()) == "PASS"
    assert verdict("T1.4", table()) == "PASS"


def test_only_the_sqhn_is_without_error() -> None:
    others = ["MHN", "MHN-Manhtn", "MHN-GradInf", "GPCN (offline)", "BayesPCN", "BayesPCN (forget)"]
    l1 = [one for one in table() if one["settings"]["model"] == "SQHN L1"]

    def like(l1: dict[str, Any], model: str, mse: float) -> dict[str, Any]:
        rows = [{**row, "mse": mse} for row in l1["results"]["rows"]]
        return {**l1, "results": {"rows": rows}, "settings": {**l1["settings"], "model": model}}

    rest = [like(one, model, 0.01) for one in l1 for model in others]
    assert verdict("T1.7", table() + rest) == "PASS"
    some = [one for one in rest if one["settings"]["model"] != others[-1]]
    assert verdict("T1.7", table() + some) == "NOT RUN"
    assert verdict("T1.7", table() + rest + [like(one, "NN", 0.0) for one in l1]) == "PASS"  # not the paper's
    assert verdict("T1.7", table() + [like(one, model, 0.0) for one in l1 for model in others]) == "FAIL"


def test_errors_beyond_the_tolerance_fail() -> None:
    assert verdict("T1.1", table(L1=1e-4)) == "FAIL"
    assert verdict("T1.2", table(hetero=6e-4)) == "FAIL"  # of L3
    assert verdict("T1.3", table(L2=0.05)) == "FAIL"
    assert verdict("T1.4", table(L3=0.03)) == "FAIL"


def test_numbers_of_a_data_set_are_not_asked_of_another() -> None:
    assert verdict("T1.3", table("photos32", L3=0.2)) == "PASS"
    assert verdict("T1.3", table("photos32", L2=0.5)) == "FAIL"  # the order is


# -- online ----------------------------------------------------------------------------------------------------------


def stream(model: str = "SQHN L1", name: str = "ODI-M", J: int = 100, accuracy: Any = None, mse: float = 0.01,
           seed: int = 0, experiment: str = "OC-L1") -> dict[str, Any]:  # fmt: skip
    t = np.arange(0, 400, 50)
    line = forgetting_bound(J, t + 1) + 0.05 * (t >= J)
    values = (line if accuracy is None else np.full(len(t), accuracy)).tolist()
    curves = {"t": t.tolist(), "accuracy": values, "mse": [mse] * 8, "noisy_accuracy": values, "noisy_mse": [mse] * 8}
    settings = {"set": name, "model": model, "size": J, "preset": "default"}
    return record(experiment, {"length": 400, "curves": curves}, seed, **settings)


def test_until_full_and_the_line() -> None:
    assert verdict("OC1.1", [stream()]) == "PASS"
    assert verdict("OC1.2", [stream()]) == "PASS"
    assert verdict("OC1.1", [stream(), stream(accuracy=0.98, seed=1)]) == "FAIL"  # every seed
    assert verdict("OC1.2", [stream(accuracy=0.0)]) == "FAIL"


def test_a_claim_about_memories_not_yet_here_can_only_be_refuted() -> None:
    pair = [stream(), stream(name="ON-M")]
    found = finding("OC1.5", pair)
    assert found.holds is None
    assert found.missing == f"{', '.join(MHNS)}: not yet"
    assert verdict("OC1.5", [stream(mse=0.05), stream(name="ON-M")]) == "FAIL"


def test_with_the_others_it_is_judged() -> None:
    ours = [stream(), stream(name="ON-M", mse=0.011)]
    others = [
        stream(model, name, accuracy=0.01, mse=mse) for model in MHNS for name, mse in (("ODI-M", 0.2), ("ON-M", 0.1))
    ]
    for claim in ("OC1.3", "OC1.4", "OC1.5"):
        assert verdict(claim, ours + others) == "PASS"
    worse = [stream(model, name, accuracy=0.99, mse=0.001) for model in MHNS for name in ("ODI-M", "ON-M")]
    for claim in ("OC1.3", "OC1.4", "OC1.5"):
        assert verdict(claim, ours + worse) == "FAIL"


def test_sizes_must_help() -> None:
    small, large = stream(J=100, accuracy=0.4, mse=0.02), stream(J=200, accuracy=0.6, mse=0.01)
    assert verdict("OC1.6", [small, large]) == "PASS"
    assert verdict("OC1.6", [small, stream(J=200, accuracy=0.3, mse=0.01)]) == "FAIL"


# -- the rest --------------------------------------------------------------------------------------------------------


def encoded(model: str, count: int, accuracy: float, mse: float, floor: float = 0.01) -> list[dict[str, Any]]:
    return [
        record(e, {"accuracy": accuracy, "mse": mse, "floor": floor}, model=model, samples=count, noise=noise)
        for e in ("NE-L1", "NE-L3")
        for noise in ("white", "binary")
    ]


def test_noisy_encoding() -> None:
    plus = encoded("SQHN+", 1, 0.0, 0.04, 0.04) + encoded("SQHN+", 20, 1.0, 0.012)
    plain = encoded("SQHN", 1, 0.0, 0.05) + encoded("SQHN", 20, 0.8, 0.02)
    for claim in ("NE.1", "NE.3", "NE.4"):
        assert verdict(claim, plus + plain) == "PASS"
    assert verdict("NE.2", plus + plain) == "NOT RUN"
    assert verdict("NE.3", encoded("SQHN+", 1, 0.0, 0.013)) == "FAIL"
    assert verdict("NE.1", encoded("SQHN+", 1, 0.5, 0.04) + encoded("SQHN+", 20, 0.4, 0.01)) == "FAIL"


def recognized(accuracy: list[float], old: float = 0.0, model: str = "SQHN", experiment: str = "RC") -> dict[str, Any]:
    n = len(accuracy)
    curves = {"t": list(range(0, 50 * n, 50)), "accuracy": accuracy, "old_mse": [0.0, *[old] * (n - 1)],
              "new_mse": [0.03] * n, "other_mse": [0.1] * n}  # fmt: skip
    return record(experiment, {"curves": curves}, model=model, size=50)


def test_recognition() -> None:
    good = recognized([1.0, 0.9, 0.8, 0.75], old=0.02)
    for claim in ("RC.1", "RC.2", "RC.4"):
        assert verdict(claim, [good]) == "PASS"
    assert verdict("RC.1", [recognized([0.99, 0.9])]) == "FAIL"
    assert verdict("RC.2", [recognized([1.0, 0.69])]) == "FAIL"
    assert verdict("RC.2", [recognized([1.0, 0.8, 0.9])]) == "FAIL"
    assert verdict("RC.4", [recognized([1.0, 0.9], old=0.05)]) == "FAIL"


def test_recognition_by_depth() -> None:
    def runs(l3: float) -> list[dict[str, Any]]:
        return [recognized([1.0, last], model=f"SQHN {d}", experiment="AC-E") for d, last in
                (("L1", 0.8), ("L2", 0.75), ("L3", l3))]  # fmt: skip

    for claim in ("ACE.1", "ACE.2", "ACE.3"):
        assert verdict(claim, runs(0.78)) == "PASS"
    assert verdict("ACE.2", runs(0.69)) == "FAIL"
    assert verdict("ACE.3", runs(0.69)) == "FAIL"


def test_energy() -> None:
    def cell(paper: float, exact: float = 1.0, repeated: float = 0.5, least: float = 0.0) -> dict[str, float]:
        return {"random": 0.2, "feedforward": 0.5, "paper": paper, "repeated": repeated, "exact": exact,
                "least_gain": least, "ratio": paper / exact}  # fmt: skip

    def runs(one: dict[str, float], other: dict[str, float]) -> list[dict[str, Any]]:
        return [
            record("S-EN", {"cells": {"train": one}}, model="small"),
            record("S-EN", {"cells": {"train": other, "test": other}}, model="large"),
        ]

    good = runs(cell(1.0), cell(0.6))
    for claim in ("SE.1", "SE.2", "SE.3"):
        assert verdict(claim, good) == "PASS"
    assert verdict("SE.1", runs(cell(1.0), cell(0.4))) == "FAIL"
    assert verdict("SE.2", runs(cell(1.0), cell(0.6, repeated=0.7))) == "FAIL"
    assert verdict("SE.3", runs(cell(0.8), cell(0.6))) == "FAIL"
    assert verdict("SE.3", runs(cell(1.0), cell(0.6, least=-0.1))) == "FAIL"


def test_the_urn() -> None:
    t = np.arange(0, 300, 50)
    depth = [
        record(
            "AC-D",
            {"curves": {"t": [0, 100], "accuracy": [1.0, 0.9], "test_mse": [0.1, 0.1]}},
            model=f"SQHN {d}",
            size=50,
        )
        for d in ("L1", "L2", "L3")
    ]
    expected = singletons(100, t)
    urn = {"t": t.tolist(), "left": (expected * 1.005).tolist(), "expected": expected.tolist()}
    assert verdict("TH2", [record("TH2", {"curves": urn}), *depth]) == "PASS"
    urn["left"] = (expected * 1.02).tolist()
    assert verdict("TH2", [record("TH2", {"curves": urn}), *depth]) == "FAIL"


def test_asking_for_what_is_not_there() -> None:
    with pytest.raises(NotRunError, match="T1-MOD SQHN L9: not run"):
        Results([]).of("T1-MOD", model="SQHN L9")
    with pytest.raises(NotRunError, match="MHN: not yet"):
        Results([]).baseline("T1-MOD", "MHN")
