"""The report of a folder of records: one self-contained HTML page, the figures as PNG files, a Markdown summary."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rich.console import Console
from rich.progress import track

from sqhn.paper.experiments.case import READINGS
from sqhn.paper.experiments.catalogue import EXPERIMENTS, FAMILIES, FIGURES
from sqhn.paper.experiments.family import Drawing
from sqhn.paper.experiments.results import NotRunError, Results
from sqhn.paper.experiments.table_1 import GPC
from sqhn.paper.report.tables import Table, cases_of, facts, glossary, ids, sets, table_1, verdict_table
from sqhn.paper.report.verdicts import Verdict, counts, judge

__all__ = ["publish"]

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid #ccc; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top; }
th { background: #f4f4f4; position: sticky; top: 0; }
.PASS, .FAIL, .ERROR { font-weight: 600; white-space: nowrap; }
.PASS { color: #00664d; } .FAIL, .ERROR { color: #fff; background: #b02a00; }
.REPORTED, .NOT, .TOO { color: #555; white-space: nowrap; }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; height: auto; }
figcaption, .small { font-size: 14px; color: #444; }
nav ul { columns: 2; padding-left: 1.2rem; }
pre { font-size: 12px; overflow-x: auto; background: #f7f7f7; padding: .6rem; }
"""
WORDS = ("PASS", "FAIL", "REPORTED", "NOT RUN", "TOO SMALL", "ERROR")

READINGS_NOTE = (
    "Every claim is judged twice: under the paper's text, and under the settings of the code that its authors "
    "published; where both are the same, one run serves both. A claim that has no criterion is REPORTED. The bounds "
    "are ours where the paper gives no number; most of them are one-sided."
)
TABLE_NOTE = (
    "Mean squared error times 4 (that is, in the range [-1, 1]), ± its standard deviation over seeds, also times 4, "
    "where there were several; the paper prints it times 2, so half of ours compares with it. Errors of dropout and "
    "mask are those of the missing pixels, as the text says. The rows of the published metric have what the published "
    "code measures: with missing pixels the error of the visible ones, for dropout divided by the number of all "
    "pixels; and for the row MHN, which that code did not make, the error over all pixels, which fits the print. Noisy "
    "pictures are cut to [0, 1], and pictures are drawn at random, for every memory; the paper took its rows of "
    "MHN-GradInf, GPCN and BayesPCN from others, who did not cut and who stored the first pictures of the file."
)
PREDICTIVE_NOTE = (
    "GPCN was trained until its energy was flat, for 4,000 epochs at most, and recall of GPCN and BayesPCN descends "
    "until it rests. Where pixels are missing, that comes to what is printed or near it. Under noise it does not. "
    "Of GPCN the length of training does not explain that (the least error on the way to 4,000 epochs is .0196 on "
    "CIFAR-10, after 50, and .0111 on Tiny ImageNet, after 1,000), nor does the width (256: .0187), nor noise that "
    "is not cut (.0180 and .0087), nor how long recall descends. BayesPCN has as many hidden values as there are "
    "pictures here, and amplifies noise by another factor for each seed: .073 and .038, on Tiny ImageNet 1.8 and "
    "1.4; it is the same in float64."
)


@dataclass(frozen=True)
class Section:
    """A part of the page: tables, pictures and paragraphs under a heading."""

    heading: str
    parts: list[Table | str | Drawing]

    @property
    def anchor(self) -> str:
        return "".join(c if c.isalnum() else "-" for c in self.heading.lower())


def publish(results: Results, folder: Path, console: Console) -> tuple[list[Verdict], Path]:
    """Write `index.html`, `README.md` and `figures/` into the folder; returns the verdicts and the page's path."""
    verdicts = judge(results)
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, bytes] = {}
    for one in track(list(FIGURES.values()), "figures", console=console, transient=True):
        try:
            drawn[one.name] = _png(one, results.under(results.readings[0]))
        except NotRunError:
            continue
        (figures / f"{one.name}.png").write_bytes(drawn[one.name])
    sections = _sections(results, verdicts, drawn)
    page = folder / "index.html"
    page.write_text(_html(results, verdicts, sections, drawn))
    (folder / "README.md").write_text(_markdown(results, verdicts, sections))
    return verdicts, page


def _png(one: Drawing, results: Results) -> bytes:
    file = io.BytesIO()
    one.make(results).savefig(file, format="png", dpi=100)
    return file.getvalue()


def _sections(results: Results, verdicts: Sequence[Verdict], drawn: dict[str, bytes]) -> list[Section]:
    paper = [verdict for verdict in verdicts if not verdict.claim.beyond]
    beyond = [verdict for verdict in verdicts if verdict.claim.beyond]
    sections = [Section("Claims of the paper", [READINGS_NOTE, verdict_table(paper)])]
    if beyond:
        sections.append(Section("Beyond the paper", ["Not counted: the paper does not say it.", verdict_table(beyond)]))
    if notes := _explained(verdicts):
        sections.append(Section("Where a claim fails, what was seen", [[["claim", "what was seen"], *notes]]))
    for name, family in FAMILIES.items():
        shown: list[Table | str | Drawing] = []
        for experiment in family.experiments:
            if experiment.id.startswith("T1-") and len(results.where(experiment.id)):
                shown += [experiment.title + ":", table_1(results, experiment.id)]
        shown += [TABLE_NOTE] if shown else []
        shown += [PREDICTIVE_NOTE] if shown and len(results.where("T1-MOD", model=GPC)) else []
        shown += [one for one in family.figures if one.name in drawn]
        if shown:
            sections.append(Section(name, shown))
    sections.append(Section("The experiments", [glossary(results)]))
    sections.append(Section("Data and machines", [sets(results), facts(results)]))
    return sections


def _explained(verdicts: Sequence[Verdict]) -> Table:
    """What was seen where a claim failed."""
    return [
        [verdict.claim.id, verdict.claim.seen]
        for verdict in verdicts
        if verdict.claim.seen and any(found.word == "FAIL" for found in verdict.findings.values())
    ]


def _about(results: Results) -> str:
    if results.quick:
        return (
            "A short run on built-in data, which stand in for the paper's data sets: a claim is judged only where that "
            "can decide it."
        )
    if results.paper_data:
        return (
            "Every claim of the paper with what was found, on the data named below; where a file stands in for a whole "
            "official set, it is a part of that set or a close relative."
        )
    return (
        "Every claim of the paper with what was found on built-in data, which stand in for the paper's data sets: "
        "where a claim is about a number of one data set, only its direction is judged."
    )


def _summary(verdicts: Sequence[Verdict]) -> list[str]:
    names = dict(zip(READINGS, ("the paper's text", "its published code")))
    return [f"{names[r]}: {text}" for r in READINGS if (text := counts(verdicts, r))]


# -- HTML ------------------------------------------------------------------------------------------------------------


def _html(results: Results, verdicts: Sequence[Verdict], sections: Sequence[Section], drawn: dict[str, bytes]) -> str:
    contents = "".join(f'<li><a href="#{one.anchor}">{escape(one.heading)}</a></li>' for one in sections)
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>SQHN: what was reproduced</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>',
        "<h1>SQHN: what was reproduced</h1>",
        *(f"<p><b>{escape(line)}.</b></p>" for line in _summary(verdicts)),
        f"<p>{escape(_about(results))}</p>",
        f'<nav><ul>{contents}<li><a href="#settings">Settings</a></li></ul></nav>',
    ]
    for section in sections:
        parts.append(f'<h2 id="{section.anchor}">{escape(section.heading)}</h2>')
        for part in section.parts:
            if isinstance(part, Drawing):
                parts.append(_html_figure(part, drawn[part.name]))
            elif isinstance(part, str):
                parts.append(f'<p class="small">{escape(part)}</p>')
            else:
                parts.append(f'<div class="wide">{_html_table(part)}</div>')
    parts.append('<h2 id="settings">Settings</h2>')
    for name in ids(results):
        listed = escape("\n".join(cases_of(results, name)))
        parts.append(f"<details><summary>{name}: {EXPERIMENTS[name].title}</summary><pre>{listed}</pre></details>")
    return "\n".join(parts) + "</html>\n"


def _html_figure(one: Drawing, png: bytes) -> str:
    questions = " ".join(EXPERIMENTS[name].question for name in one.experiments)
    source = base64.b64encode(png).decode()
    return (
        f'<h3>{", ".join(one.experiments)}</h3><p class="small">{escape(questions)}</p><figure>'
        f'<img alt="{escape(one.caption)}" src="data:image/png;base64,{source}">'
        f"<figcaption>{escape(one.caption)}</figcaption></figure>"
    )


def _html_table(table: Table) -> str:
    lines = ["<table>"]
    if any(table[0]):
        lines.append("<tr>" + "".join(f"<th>{escape(text)}</th>" for text in table[0]) + "</tr>")
    for row in table[1:]:
        cells = [
            f'<td class="{text.split()[0]}">{text}</td>' if text in WORDS else f"<td>{escape(text)}</td>"
            for text in row
        ]
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return "\n".join([*lines, "</table>"])


# -- Markdown --------------------------------------------------------------------------------------------------------


def _markdown(results: Results, verdicts: Sequence[Verdict], sections: Sequence[Section]) -> str:
    parts = ["# What was reproduced", *(f"**{line}.**" for line in _summary(verdicts)), _about(results)]
    for section in sections:
        parts.append(f"## {section.heading}")
        for part in section.parts:
            if isinstance(part, Drawing):
                heading = ", ".join(part.experiments)
                parts.append(f"### {heading}\n\n![{part.caption}](figures/{part.name}.png)\n\n{part.caption}")
            else:
                parts.append(part if isinstance(part, str) else _markdown_table(part))
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    lines = ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in table]
    lines.insert(1, "|" + " --- |" * len(table[0]))
    return "\n".join(lines)
