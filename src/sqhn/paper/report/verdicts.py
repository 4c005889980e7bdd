"""What became of every claim, under both readings of the paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, get_args

from sqhn.paper.experiments.case import READINGS, Reading
from sqhn.paper.experiments.catalogue import CLAIMS
from sqhn.paper.experiments.claims import Claim, Finding, Word
from sqhn.paper.experiments.results import Results

__all__ = ["Verdict", "agreement", "counts", "judge", "plain_verdicts", "published"]


@dataclass(frozen=True)
class Verdict:
    """A claim with what was found under each reading for which it makes sense."""

    claim: Claim
    findings: dict[Reading, Finding]

    def word(self, reading: Reading) -> str:
        return self.findings[reading].word if reading in self.findings else "-"


def judge(results: Results) -> list[Verdict]:
    """A verdict on every claim that has to do with what was run."""
    run = {record["experiment"] for record in results.records}
    return [
        Verdict(claim, {r: claim.judge(results, r) for r in results.readings if r in claim.readings})
        for claim in CLAIMS.values()
        if run & set(claim.experiments)
    ]


def counts(verdicts: Sequence[Verdict], reading: Reading) -> str:
    """How many claims of the paper came out how."""
    words = [verdict.word(reading) for verdict in verdicts if not verdict.claim.beyond]
    return ", ".join(f"{many} {word}" for word in get_args(Word) if (many := words.count(word)))


def plain_verdicts(verdicts: Sequence[Verdict]) -> dict[str, dict[str, str]]:
    """The words alone, by claim and reading."""
    return {v.claim.id: {reading: v.word(reading) for reading in READINGS} for v in verdicts}


def published() -> dict[str, dict[str, str]]:
    """The words of the published run at full size on the paper's data."""
    found: dict[str, Any] = json.loads(files("sqhn.paper.report").joinpath("published.json").read_text())
    return found


def agreement(verdicts: Sequence[Verdict], reading: Reading) -> tuple[int, int]:
    """How many verdicts that were reached are those of the published run, and how many there are of both."""
    known = published()
    pairs = [(verdict.word(reading), known.get(verdict.claim.id, {}).get(reading, "")) for verdict in verdicts]
    decided = [(ours, theirs) for ours, theirs in pairs if {ours, theirs} <= {"PASS", "FAIL"}]
    return sum(ours == theirs for ours, theirs in decided), len(decided)
