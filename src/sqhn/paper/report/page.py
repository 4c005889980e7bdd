"""The report of a folder of records: one self-contained HTML page, the figures as PNG files, a Markdown summary."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from rich.console import Console
from rich.progress import track

from sqhn.paper.experiments.case import READINGS
from sqhn.paper.experiments.catalogue import EXPERIMENTS, FAMILIES, FIGURES
from sqhn.paper.experiments.claims import Verdict
from sqhn.paper.experiments.family import FigureSpec
from sqhn.paper.experiments.panels import panels_table
from sqhn.paper.experiments.results import NotRunError, Results
from sqhn.paper.experiments.table_1 import GPCN_OFFLINE
from sqhn.paper.report.tables import (
    Table,
    cases_of,
    comparison,
    data_sets,
    experiments_run,
    experiments_table,
    provenance,
    table_1,
    verdict_table,
)
from sqhn.paper.report.verdicts import JudgedClaim, counts, judge

TEMPLATES = Environment(
    loader=PackageLoader("sqhn.paper.report", "templates"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)

READINGS_NOTE = (
    "Every claim is judged twice: under the paper's text, and under the settings of the code that its authors "
    "published; where both are the same, one run serves both. A claim without a criterion is REPORTED. Where the paper "
    "gives no number, the bounds are ours; most of them are one-sided."
)
TABLE_NOTE = (
    "Mean squared error times 4 (that is, in the range [-1, 1]), ± its standard deviation over seeds, also times 4, "
    "where there are several seeds; the paper gives the standard deviation times 2, so half of ours is comparable. "
    "Errors of dropout and mask are over the missing pixels, as in the text. The rows with the published metric use "
    "the metric of the published code: with missing pixels the error of the visible ones, for dropout divided by the "
    "number of all pixels; and for the row MHN, which that code did not produce, the error over all pixels, which fits "
    "the published numbers. Noisy images are clipped to [0, 1], and images are drawn at random, for every model; the "
    "paper took its rows of MHN-GradInf, GPCN and BayesPCN from others, who did not clip and who stored the first "
    "images of the file."
)
OWN_NOTE = (
    "Means over seeds. For corruptions, the share recalled, averaged over the levels of each kind; for streams, means "
    "over all test points. Claims are judged without these memories; the figures show them."
)
PREDICTIVE_NOTE = (
    "GPCN was trained until its energy was flat, for at most 4,000 epochs, and recall of GPCN and BayesPCN descends "
    "until it is at rest. With missing pixels the results equal the published numbers or come close. Under noise they "
    "do not. For GPCN this is explained neither by the length of training (the least error up to 4,000 epochs is "
    ".0196 on CIFAR-10, after 50, and .0111 on Tiny ImageNet, after 1,000), nor by the width (256: .0187), nor by "
    "noise that is not clipped (.0180 and .0087), nor by the number of recall steps. BayesPCN has as many hidden "
    "values as there are images here, and amplifies noise by a different factor for each seed: .073 and .038, on Tiny "
    "ImageNet 1.8 and 1.4; float64 gives the same."
)


@dataclass(frozen=True)
class Section:
    """A section of the page: tables, figures and paragraphs under a heading."""

    heading: str
    parts: list[Table | str | FigureSpec]

    @property
    def anchor(self) -> str:
        return "".join(c if c.isalnum() else "-" for c in self.heading.lower())


def publish(results: Results, folder: Path, console: Console) -> tuple[list[JudgedClaim], Path]:
    """Write `index.html`, `README.md` and `figures/` to the folder; returns the judged claims and the page's path."""
    judged = judge(results)
    figures = _draw(results, folder / "figures", console)
    content = {
        "summary": _summary(judged),
        "about": _about(results),
        "sections": _sections(results, judged, figures),
        "figures": {name: base64.b64encode(png).decode() for name, png in figures.items()},
        "settings": {name: cases_of(results, name) for name in experiments_run(results)},
        "experiments": EXPERIMENTS,
        "verdicts": get_args(Verdict),
    }
    page = folder / "index.html"
    page.write_text(TEMPLATES.get_template("page.html").render(content))
    (folder / "README.md").write_text(TEMPLATES.get_template("summary.md").render(content))
    return judged, page


def _draw(results: Results, folder: Path, console: Console) -> dict[str, bytes]:
    """Every figure with records as a PNG, in memory and in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for one in track(list(FIGURES.values()), "figures", console=console, transient=True):
        file = io.BytesIO()
        try:
            one.draw(results.under(results.readings[0])).savefig(file, format="png", dpi=100)
        except NotRunError:
            continue
        drawn[one.name] = file.getvalue()
        (folder / f"{one.name}.png").write_bytes(drawn[one.name])
    return drawn


def _sections(results: Results, judged: Sequence[JudgedClaim], drawn: dict[str, bytes]) -> list[Section]:
    paper = [one for one in judged if not one.claim.beyond]
    beyond = [one for one in judged if one.claim.beyond]
    sections = [Section("Claims of the paper", [READINGS_NOTE, verdict_table(paper)])]
    if beyond:
        note = "Not counted, because the paper does not make these claims."
        sections.append(Section("Beyond the paper", [note, verdict_table(beyond)]))
    if own := results.own:
        parts: list[Table | str | FigureSpec] = [OWN_NOTE]
        for name in experiments_run(own):
            parts += [f"{name}: {EXPERIMENTS[name].title}", comparison(results, name)]
        sections.append(Section("Memories of your own", parts))
    if failed := _explanations(judged):
        sections.append(Section("Explanations of failed claims", [[["claim", "explanation"], *failed]]))
    for name, family in FAMILIES.items():
        parts = []
        for experiment in family.experiments:
            if experiment.id.startswith("T1-") and len(results.where(experiment.id)):
                parts += [experiment.title + ":", table_1(results, experiment.id)]
        parts += [TABLE_NOTE] if parts else []
        parts += [PREDICTIVE_NOTE] if parts and len(results.where("T1-MOD", model=GPCN_OFFLINE)) else []
        parts += [one for one in family.figures if one.name in drawn]
        if parts:
            sections.append(Section(name, parts))
    sections.append(Section("From the paper's figures to ours", [panels_table()]))
    sections.append(Section("The experiments", [experiments_table(results)]))
    sections.append(Section("Data and machines", [data_sets(results), provenance(results)]))
    return sections


def _explanations(judged: Sequence[JudgedClaim]) -> Table:
    return [
        [one.claim.id, one.claim.explanation]
        for one in judged
        if one.claim.explanation and any(found.verdict == "FAIL" for found in one.findings.values())
    ]


def _about(results: Results) -> str:
    if results.quick:
        return "A short run on other data than the paper's: a claim is judged only where such a run can decide it."
    if results.paper_data:
        return (
            "Every claim of the paper with our measurements, on the data named below; a file that replaces an official "
            "data set is a part of that set or a close relative."
        )
    files = sorted({name for record in results.records for name in record["data"] if name.endswith(".npz")})
    if files:
        return (
            f"Every claim with our measurements on {', '.join(files)}, in place of the paper's data sets, whose names "
            "stand for their settings: where a claim is about a number on one data set, only its direction is judged."
        )
    return (
        "Every claim of the paper with our measurements on built-in data, which replace the paper's data sets: where a "
        "claim is about a number on one data set, only its direction is judged."
    )


def _summary(judged: Sequence[JudgedClaim]) -> list[str]:
    names = dict(zip(READINGS, ("the paper's text", "its published code")))
    return [f"{names[r]}: {text}" for r in READINGS if (text := counts(judged, r))]
