"""Verdicts on handmade records: every claim passes on some, and fails on others with one change."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from sqhn.paper.experiments.case import DEFAULT, READINGS
from sqhn.paper.experiments.catalogue import CLAIMS, EXPERIMENTS
from sqhn.paper.experiments.claims import Bound, Claim, Measurement, above, at_least, at_most, below, between, number
from sqhn.paper.experiments.results import NotRunError, Results
from tests.paper.experiments.handmade import Record, all_records, record

Change = Callable[[Record], Any]


def set_curve(name: str, value: Any) -> Change:
    def change(one: Record) -> None:
        curve = one["results"]["curves"][name]
        one["results"]["curves"][name] = [value(point) for point in curve] if callable(value) else value

    return change


def set_result(name: str, value: Any) -> Change:
    return lambda one: one["results"].update({name: value})


def set_row(kind: str, **values: Any) -> Change:
    def change(one: Record) -> None:
        for row in one["results"]["rows"]:
            if row["kind"] == kind:
                row.update(values)

    return change


def each_row(**values: Any) -> Change:
    return lambda one: [row.update(values) for row in one["results"]["rows"]]


def set_cell(cell: str, **values: Any) -> Change:
    return lambda one: one["results"]["cells"].update({cell: {**one["results"]["cells"][cell], **values}})


def at(place: int, value: float) -> Change:
    """Change one point of the recall curves."""

    def change(one: Record) -> None:
        for name, curve in one["results"]["curves"].items():
            if name.endswith("accuracy") and not name.startswith("unseen"):
                one["results"]["curves"][name] = [value if i == place else old for i, old in enumerate(curve)]

    return change


L1, L2, L3 = ({"model": f"SQHN L{depth}"} for depth in (1, 2, 3))
FAILING: dict[str, tuple[str, dict[str, Any], Change]] = {
    # claim: experiment, settings of the records to change, change
    "T1.1": ("T1-HIGH", L1, set_row("noise", mse=0.01)),
    "T1.2": ("T1-MOD", L3, set_row("mask", mse=0.01)),
    "T1.3": ("T1-MOD", {**L3, "set": "cifar10"}, set_row("noise", mse=0.2)),
    "T1.4": ("T1-HIGH", {**L2, "set": "tiny_imagenet"}, set_row("noise", mse=0.1)),
    "T1.5": ("T1-HIGH", {"model": "MHN-Manhtn"}, set_row("dropout", mse_visible=0.5)),
    "T1.6": ("T1-MOD", {"model": "MHN"}, set_row("mask", mse_all=0.3)),
    "T1.7": (
        "T1-MOD",
        {"model": "BayesPCN (forget)"},
        lambda one: [row.update(mse=0.0) for row in one["results"]["rows"]],
    ),
    "T1.8": ("T1-MOD", {"model": "GPCN (offline)"}, set_row("noise", mse=0.0)),
    "T1.9": ("T1-MOD", {"model": "BayesPCN"}, set_row("mask", mse=0.1)),
    "T1.10": ("T1-HIGH", {"model": "MHN-GradInf"}, set_row("mask", mse=0.0)),
    "OC1.1": ("OC-L1", {**L1, "set": "ON-E", "size": 100}, at(1, 0.99)),
    "OC1.2": ("OC-L1", {**L1, "set": "ON-E", "size": 100}, at(4, 0.1)),
    "OC1.3": ("OC-L1", {"model": "MHN-Adam", "set": "ODI-M"}, set_curve("unseen_accuracy", [0.5] * 6)),
    "OC1.4": ("OC-L1", {"model": "MHN-ER", "set": "OCI-E"}, set_curve("noisy_mse", [0.0] * 6)),
    "OC1.5": ("OC-L1", {"model": "MHN-ER", "set": "OCI-E"}, set_curve("noisy_mse", [0.051] * 6)),
    "OC1.6": ("OC-L1", {**L1, "size": 150}, set_curve("noisy_accuracy", [0.1] * 6)),
    "OC1.9": ("OC-L1", {"model": "MHN-SGD", "set": "ODI-M"}, set_curve("noisy_mse", [0.05] * 6)),
    "OC3.1": ("OC-L3", {**L3, "set": "OCI-C3", "size": 150}, at(2, 0.9)),
    "OC3.1b": ("OC-L3", {**L3, "set": "ODI-CS", "size": 150}, at(2, 0.9)),
    "OC3.2": ("OC-L3", {**L3, "set": "ON-CS", "size": 100}, at(5, 0.9)),
    "OC3.3": ("OC-L3", {"model": "MHN-SGD", "set": "ODI-CS"}, set_curve("unseen_accuracy", [0.5] * 6)),
    "OC3.4": ("OC-L3", {"model": "MHN-Adam", "set": "OCI-C3"}, set_curve("unseen_accuracy", [0.0] * 6)),
    "OC3.5": ("OC-L3", {**L3, "set": "OCI-C3"}, set_curve("noisy_mse", [0.03] * 6)),
    "OC3.6": ("OC-L3", {**L3, "size": 150}, set_curve("noisy_mse", [0.5] * 6)),
    "OC3.9": ("OC-L3", {"model": "MHN-SGD", "set": "ODI-CS"}, set_curve("noisy_mse", [0.05] * 6)),
    "ACD.1": ("AC-D", L2, at(1, 0.9)),
    "ACD.2": ("AC-D", L3, at(5, 0.1)),
    "ACD.3": ("AC-D", L1, at(3, 0.1)),
    "ACD.4": ("AC-D", L3, set_curve("test_mse", [0.9, 0.9, 0.9, 0.9, 0.04, 0.04])),
    "X.NN": ("AC-D", L3, at(5, 0.0)),
    "SA.1": ("S-ABL", {"model": "-lrDecay"}, at(2, 1.0)),
    "SA.2": ("S-ABL", {"model": "-Avg"}, set_curve("mse", [0.011] * 6)),
    "SA.3": ("S-ABL", {"model": "-Dir"}, set_curve("accuracy", [1.0] * 6)),
    "SA.4": ("S-ABL", {"model": "-Avg"}, set_curve("mse", [0.5, 0.5, 0.5, 0.0, 0.0, 0.0])),
    "NE.1": ("NE-L1", {"model": "SQHN+", "noise": "binary", "samples": 10}, set_result("mse", 0.5)),
    "NE.2": ("NE-L3", {"model": "MHN-Adam", "noise": "binary", "samples": 10}, set_result("accuracy", 0.9)),
    "NE.3": ("NE-L3", {"model": "SQHN+", "noise": "binary", "samples": 10}, set_result("stored_mse", 0.02)),
    "NE.4": ("NE-L3", {"model": "SQHN+", "noise": "white", "samples": 10}, set_result("accuracy", 0.9)),
    "NE.5": ("NE-L3", {"model": "MHN-SGD", "noise": "white", "samples": 10}, set_result("unseen_accuracy", 0.1)),
    "NE.6": ("NE-L3", {"model": "SQHN", "noise": "white", "samples": 10}, set_result("stable", 0.4)),
    "NE.7": ("NE-L3", {"model": "SQHN", "noise": "binary", "samples": 10}, set_result("mse", 0.01)),
    "RC.1": ("RC", {"model": "SQHN"}, at(2, 0.999)),
    "RC.2": ("RC", {"model": "SQHN"}, at(5, 0.68)),
    "RC.3": ("RC", {"model": "MHN (rec-act)"}, set_curve("searched", [[0.5, 0.6, 0.75]] * 6)),
    "RC.4": ("RC", {"model": "SQHN"}, set_curve("other_mse", [0.02] * 6)),
    "RC.5": ("RC", {"model": "MHN (rec-mse)"}, set_curve("old_mse", [0.01] * 6)),
    "RC.6": ("RC", {"model": "MHN (rec-act)"}, set_curve("new_mse", [0.05] * 6)),
    "ACE.1": ("AC-E", {**L3, "set": "cifar10"}, at(1, 0.9)),
    "ACE.2": ("AC-E", {**L1, "set": "cifar10"}, at(5, 0.69)),
    "ACE.3": ("AC-E", {**L2, "set": "cifar10"}, at(5, 0.75)),
    "ACEb.1": ("AC-E", {**L3, "set": "cifar100"}, at(1, 0.9)),
    "ACEb.2": ("AC-E", {**L1, "set": "cifar100"}, at(5, 0.69)),
    "ACEb.3": ("AC-E", {**L2, "set": "cifar100"}, at(5, 0.75)),
    "XR.1": ("X-RECN", L3, at(2, 0.6)),
    "XR.2": ("X-RECN", L1, at(2, 0.9)),
    "ACB.1": ("AC-B", {**L1, "set": "cifar10"}, set_row("black", accuracy=0.5)),
    "ACB.2": ("AC-B", {**L3, "set": "cifar10"}, set_row("noise", accuracy=1.0)),
    "ACB.3": ("AC-B", {**L3, "set": "caltech256"}, set_row("noise", accuracy=0.8)),
    "ACB.4": ("AC-B", {**L3, "set": "caltech256"}, set_row("normal_fill", accuracy=0.3)),
    "ACB.5": ("AC-B", {**L3, "set": "tiny_imagenet"}, set_row("noise", accuracy=1.0)),
    "EX.1": ("S-EXM", L3, set_row("mask", recalled=[False, True, True])),
    "EX.2": ("S-EXH", L3, set_row("noise", recalled=[True] * 3)),
    "XD.1": ("X-DMG", {"model": "NN", "set": "watch"}, each_row(found=0.95)),
    "XD.2": ("X-DMG", {"model": "SQHN L3, exact", "set": "cifar10"}, set_row("black", found=0.95)),
    "XD.3": ("X-DMG", {**L2, "set": "cifar10"}, each_row(auc=0.95)),
    "XD.4": ("X-DMGP", {"model": "SQHN L1, evidence"}, set_row("shifted", found=0.4)),
    "XD.5": ("X-DMGP", {"model": "SQHN L3, evidence"}, set_row("noise", accuracy=0.5)),
    "XB.1": ("X-BYT", {"model": "SQHN L3, evidence", "size": 40_000}, each_row(beyond=0.9)),
    "XB.2": ("X-BYT", {"model": "shared 2 x 2"}, set_result("file", 1000)),
    "XB.3": ("X-BYT", {"model": "shared 4 x 4", "size": 10_000}, set_row("noise", unseen=0.1)),
    "SE.1": ("S-EN", {"model": "large"}, set_cell("test", paper=0.7)),
    "SE.2": ("S-EN", {"model": "large"}, set_cell("test", repeated=0.81)),
    "SE.3": ("S-EN", {"model": "large"}, set_cell("train", ratio=0.8)),
    "SJ.1": ("S-JNT", {}, lambda one: one["results"]["rows"][0].update(same=0.5)),
    "TH3": ("S-JNT", {}, set_result("least", [1.0, 0.9])),
    "SP.1": ("S-MAP", {"model": "MAP"}, set_curve("accuracy", [1.0, 0.9])),
    "SM.1": ("S-EMG", {}, set_curve("neurons", lambda point: [point[2], point[1], point[2]])),
    "SM.2": ("S-EMG", {}, set_curve("neurons", lambda point: [point[0], point[2], point[2]])),
    "SM.3": ("S-EMG", {}, set_curve("step", lambda point: [point[0], point[2], point[2]])),
    "TH1": ("TH1", {}, set_result("worst", 1e-9)),
    "SC.1": ("S-CST", L1, set_result("extra", 600)),
    "SC.2": ("S-CST", L1, set_result("changed", 0.1)),
}
REPORTED = {"OC1.7", "OC3.8", "ACC.1", "TH2"}
"""Claims without a criterion."""


def verdict(claim: str, records: list[Record], reading: Any = DEFAULT) -> str:
    return CLAIMS[claim].judge(Results(records), reading).verdict


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("claim", CLAIMS)
def test_every_claim_can_hold(claim: str, reading: Any) -> None:
    finding = CLAIMS[claim].judge(Results(all_records()), reading)
    assert finding.verdict == ("REPORTED" if claim in REPORTED else "PASS"), finding


def test_every_claim_with_a_criterion_can_fail() -> None:
    assert set(FAILING) | REPORTED == set(CLAIMS)


@pytest.mark.parametrize("claim", FAILING)
def test_every_claim_fails_after_one_change(claim: str) -> None:
    experiment, where, change = FAILING[claim]
    records = all_records()
    changed = Results(records).of(experiment, **where).records
    for one in changed:
        change(one)
    assert verdict(claim, records) == "FAIL"


@pytest.mark.parametrize("claim", CLAIMS)
def test_missing_records_are_no_failure(claim: str) -> None:
    assert verdict(claim, []) == "NOT RUN"
    others = [one for one in all_records() if one["experiment"] not in CLAIMS[claim].experiments]
    assert verdict(claim, others) == "NOT RUN"
    if DEFAULT in CLAIMS[claim].readings:
        as_code = [{**one, "readings": ["code"]} for one in all_records()]
        assert verdict(claim, as_code) == "NOT RUN"


@pytest.mark.parametrize("seed", range(40))
def test_random_missing_records_are_no_error(seed: int) -> None:
    rng = random.Random(seed)
    some = Results(one for one in all_records() if rng.random() < (0.2, 0.5, 0.9, 0.98)[seed % 4])
    for claim in CLAIMS.values():
        finding = claim.judge(some, DEFAULT)
        assert finding.verdict != "ERROR", (claim.id, finding)
        assert str(finding)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_records_does_not_matter(seed: int) -> None:
    records = all_records()
    before = {(claim.id, r): claim.judge(Results(records), r).verdict for claim in CLAIMS.values() for r in READINGS}
    random.Random(seed).shuffle(records)
    some = Results(records)
    assert {(claim.id, r): claim.judge(some, r).verdict for claim in CLAIMS.values() for r in READINGS} == before


@pytest.mark.parametrize("claim", CLAIMS)
def test_streams_that_end_early_are_no_error(claim: str) -> None:
    """Of few samples, as a file of a user may have, a claim about a full memory cannot be judged."""
    records = all_records()
    for one in records:
        one["settings"]["size"] *= 1000
    assert CLAIMS[claim].judge(Results(records), DEFAULT).verdict != "ERROR"


def test_an_exception_in_a_measure_is_an_error() -> None:
    def bug(results: Results) -> Any:
        return {"share": {"": results.records[0]["no such thing"]}}

    claim = Claim("X", ("TH1",), "says", "paper", {"share": above(0)}, bug)
    finding = claim.judge(Results([record("TH1", {})]), DEFAULT)
    assert (finding.verdict, finding.reason) == ("ERROR", "KeyError: 'no such thing'")
    other = Claim("X", ("TH1",), "says", "paper", {"share": above(0)}, lambda results: {"another": {"": 1.0}})
    assert other.judge(Results([record("TH1", {})]), DEFAULT).verdict == "ERROR"


def test_readings_are_judged_by_their_own_records() -> None:
    records = all_records()
    for one in records:
        if one["experiment"] == "TH1":
            one["readings"] = ["default"]
    records.append(record("TH1", {"worst": 0.5}, model="SQHN L1", set="mnist", size=10) | {"readings": ["code"]})
    assert [verdict("TH1", records, reading) for reading in READINGS] == ["PASS", "FAIL"]


def test_bounds_for_the_papers_data_are_tested_only_there() -> None:
    records = all_records()
    for one in Results(records).of("T1-MOD", model="SQHN L3", set="cifar10").records:
        set_row("noise", mse=0.2)(one)
    assert verdict("T1.3", records) == "FAIL"
    for one in records:
        one["settings"]["data"] = ["photos32"]
    assert verdict("T1.3", records) == "PASS"


def test_short_runs_skip_claims_that_they_cannot_decide() -> None:
    records = all_records()
    for one in records:
        one["quick"] = True
    assert verdict("T1.5", records) == "TOO SMALL"
    assert verdict("T1.1", records) == "PASS"


def test_claims_are_complete() -> None:
    for claim in CLAIMS.values():
        assert set(claim.experiments) <= set(EXPERIMENTS), claim.id
        assert claim.paper
        assert claim.criteria


def test_every_claim_is_in_one_table() -> None:
    assert len(CLAIMS) == len(FAILING) + len(REPORTED)


@pytest.mark.parametrize(
    ("bound", "text", "inside", "outside"),
    [
        (at_least(0.95), ">= .95", [0.95, 2], [0.9499, math.nan]),
        (at_least(-0.02), ">= -.02", [0.88 - 0.9], [-0.0201]),  # which is -.020000000000000018
        (at_most(2), "<= 2", [2, -5], [2.001, math.nan]),
        (above(0), "> 0", [1e-12], [0, -1, math.nan]),
        (below(5e-5), "< 5e-05", [0], [5e-5, 1]),
        (between(0.09, 0.13), ".09 to .13", [0.09, 0.13], [0.08, 0.14, math.nan]),
        (Bound(1, 1), "= 1", [1], [0.999, 1.001]),
        (at_most(1).on_paper_data, "<= 1 (on the paper's data)", [1], [2]),
    ],
)
def test_bounds_and_their_texts(bound: Bound, text: str, inside: list[float], outside: list[float]) -> None:
    assert str(bound) == text
    assert all(bound.holds(value) for value in inside)
    assert not any(bound.holds(value) for value in outside)
    assert all(bound.excess(value) < 1e-15 for value in inside)
    assert all(bound.excess(value) >= 0 for value in outside)


def test_measurements_as_text() -> None:
    many = {f"cell {i}": [0.1 * i, 0.1 * i + 0.02] for i in range(6)}
    measurement = Measurement("recall", at_least(0.25), many)
    assert str(measurement) == "recall: .0100 ± .0141 at worst (cell 0); 3 of 6 out of bounds"
    assert str(Measurement("recall", at_least(0.25), {"": 1.0})) == "recall: 1"
    assert str(Measurement("recall", None, many)) == (
        "recall: cell 0 .0100 ± .0141, cell 1 .1100 ± .0141, cell 2 .2100 ± .0141, cell 3 .3100 ± .0141, "
        "cell 4 .4100 ± .0141, cell 5 .5100 ± .0141"
    )
    assert [number(value) for value in (0.0, 1.0, 12.5, 0.25, -0.5, 1e-6, math.nan)] == [
        ".0000", "1", "12.500", ".2500", "-.5000", "1e-06", "nan",
    ]  # fmt: skip


def test_missing_records_are_named() -> None:
    with pytest.raises(NotRunError, match="TH1 SQHN L9: not run"):
        Results(all_records()).of("TH1", model="SQHN L9")
