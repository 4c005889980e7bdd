"""The verdicts on all claims, under both readings of the paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, get_args

from sqhn.paper.experiments.case import Reading
from sqhn.paper.experiments.catalogue import CLAIMS
from sqhn.paper.experiments.claims import Claim, Finding, Verdict
from sqhn.paper.experiments.results import Results


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with its findings under each reading that applies to it."""

    claim: Claim
    findings: dict[Reading, Finding]

    def verdict(self, reading: Reading) -> str:
        return self.findings[reading].verdict if reading in self.findings else "-"


def judge(results: Results) -> list[JudgedClaim]:
    """Every claim about the experiments that were run, with its findings; memories of the user have no part in them."""
    results = results.declared
    run = {record["experiment"] for record in results.records}
    return [
        JudgedClaim(claim, {r: claim.judge(results, r) for r in results.readings if r in claim.readings})
        for claim in CLAIMS.values()
        if run & set(claim.experiments)
    ]


def counts(judged: Sequence[JudgedClaim], reading: Reading) -> str:
    """The number of claims of the paper with each verdict."""
    verdicts = [one.verdict(reading) for one in judged if not one.claim.beyond]
    return ", ".join(f"{count} {verdict}" for verdict in get_args(Verdict) if (count := verdicts.count(verdict)))


def published() -> dict[str, dict[str, str]]:
    """The verdicts of the published run, at full size on the paper's data, by claim and reading."""
    found: dict[str, Any] = json.loads(files("sqhn.paper.report").joinpath("published.json").read_text())
    return found


def agreement(judged: Sequence[JudgedClaim], reading: Reading) -> tuple[int, int]:
    """The number of claims that this run and the published one decide alike, and the number that both decide."""
    known = published()
    pairs = [(one.verdict(reading), known.get(one.claim.id, {}).get(reading, "")) for one in judged]
    decided = [(ours, theirs) for ours, theirs in pairs if {ours, theirs} <= {"PASS", "FAIL"}]
    return sum(ours == theirs for ours, theirs in decided), len(decided)
