"""The report of a folder of records: one self-contained HTML page, the figures as PNG files, a Markdown summary."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from rich.console import Console
from rich.progress import track

from sqhn.experiments.catalogue import EXPERIMENTS
from sqhn.report.claims import Verdict, judge, number
from sqhn.report.explanations import EXPLANATIONS
from sqhn.report.figures import FIGURES, Drawing, title
from sqhn.report.paper import COLUMNS, TABLE_1
from sqhn.report.results import INCOMPLETE, Results, spread

__all__ = ["publish"]

Table = list[list[str]]  # a row of headings, then rows
CORRUPTIONS = {"noise": "noise", "dropout": "dropout", "mask": "right mask"}

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; font-size: 14px; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top; }
th { background: #f4f4f4; position: sticky; top: 0; }
.PASS, .FAIL, .NOT { font-weight: 600; white-space: nowrap; }
.PASS { color: #00664d; } .FAIL { color: #fff; background: #b02a00; } .NOT { color: #666; font-weight: 400; }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; height: auto; }
figcaption, .small { font-size: 14px; color: #444; }
pre { font-size: 12px; overflow-x: auto; background: #f7f7f7; padding: .6rem; }
"""


def publish(results: Results, folder: Path, console: Console) -> tuple[list[Verdict], Path]:
    """Write `index.html`, `README.md` and `figures/` into the folder; returns the verdicts and the page's path."""
    verdicts = judge(results)
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, bytes] = {}
    for one in track(FIGURES, "figures", console=console, transient=True):
        try:
            drawn[one.name] = _png(one, results)
        except INCOMPLETE:
            continue
        (figures / f"{one.name}.png").write_bytes(drawn[one.name])
    page = folder / "index.html"
    page.write_text(_html(results, verdicts, drawn))
    (folder / "README.md").write_text(_markdown(results, verdicts, drawn))
    return verdicts, page


def _png(one: Drawing, results: Results) -> bytes:
    file = io.BytesIO()
    one.make(results).savefig(file, format="png", dpi=100)
    return file.getvalue()


# -- tables ----------------------------------------------------------------------------------------------------------


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    rows = [["claim", "verdict", "it says", "paper", "ours", "spread", "held to"]]
    for verdict in verdicts:
        claim, finding = verdict.claim, verdict.finding
        ours = "; ".join(part for part in (finding.ours, finding.missing) if part)
        rows.append([claim.id, verdict.word, claim.says, claim.paper, ours, finding.spread, claim.tolerance])
    return rows


def counts(verdicts: Sequence[Verdict]) -> str:
    words = [verdict.word for verdict in verdicts]
    return ", ".join(f"{words.count(word)} {word}" for word in ("PASS", "FAIL", "NOT RUN"))


def table_1(results: Results, experiment: str) -> Table:
    """The paper's table with ours beside it; what was not run here says so."""
    rows = [["memory", "", *(f"{CORRUPTIONS[kind]}, {title(name)}" for kind, name in COLUMNS)]]
    for model, printed in TABLE_1[experiment].items():
        rows.append([model, "paper", *printed])
        ours = [_cell(results, experiment, model, kind, name, "mse") for kind, name in COLUMNS]
        rows.append(["", f"ours{_sizes(results.where(experiment, model=model))}", *ours])
        if set(ours) == {"not yet"}:
            continue
        visible = [
            "" if kind == "noise" else _cell(results, experiment, model, kind, name, "mse_visible")
            for kind, name in COLUMNS
        ]
        rows.append(["", "ours, visible", *visible])
    return rows


def _sizes(runs: Results) -> str:
    """How wide the memories of some runs were and how long they were trained, where those are settings of theirs."""
    memories = [record["settings"]["memory"] for record in runs.records]
    return "".join(
        f", {name} {' and '.join(map(str, sorted(values, reverse=True)))}"
        for name in ("width", "epochs")
        if (values := {memory[name] for memory in memories if name in memory})
    )


def _cell(results: Results, experiment: str, model: str, kind: str, name: str, measure: str) -> str:
    runs = results.where(experiment, model=model, set=name)
    if not runs:
        return "not yet"
    values = 4 * runs.row(kind, measure)
    mean = number(float(values.mean()))
    return mean if len(values) == 1 else f"{mean}±{number(float(spread(values)))}"


TABLE_NOTE = (
    "Mean squared error times 4 (that is, in the range [-1, 1]), ± its standard deviation over seeds, also times 4, "
    "where there were several; the paper prints it times 2, so half of ours compares with it. Errors of dropout and "
    "mask are measured over the missing pixels, as the text says; the rows `visible` are over the visible ones, as "
    "the published code has it. Noisy pictures are cut to [0, 1], and pictures are drawn at random, for every "
    "memory; the paper took its rows of MHN-GradInf, GPCN and BayesPCN from others, who did not cut and who stored "
    "the first pictures of the file."
)


def facts(results: Results) -> dict[str, str]:
    """What was run, on what, when and where."""
    records = results.records
    sources = sorted({f"{name} ({source})" for record in records for name, source in record["data"].items()})
    seconds = sum(record["seconds"] for record in records)
    seeds = sorted({len(runs) for _, runs in _by_case(results)})
    versions, dates = records[0]["versions"], [record["date"] for record in records]
    return {
        "experiments": ", ".join(results_ids(results)),
        "data": ", ".join(sources),
        "preset": ", ".join(results.settings("preset")),
        "jobs": f"{len(records)}, with {seeds[0]} to {seeds[-1]} seeds each",
        "run": f"{min(dates)} to {max(dates)} (UTC)",
        "computing time": f"{seconds / 3600:.1f} core hours",
        "machine": ", ".join(sorted({record["machine"] for record in records})),
        "commit": ", ".join(sorted({str(record["commit"]) for record in records})),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def results_ids(results: Results) -> list[str]:
    run = {record["experiment"] for record in results.records}
    return [name for name in EXPERIMENTS if name in run]


def _by_case(results: Results) -> Iterator[tuple[str, list[int]]]:
    """The seeds of every case."""
    cases: dict[str, list[int]] = {}
    for record in results.records:
        cases.setdefault(f"{record['experiment']} {sorted(record['settings'].items())}", []).append(record["seed"])
    yield from cases.items()


def explained(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """What was seen where a claim failed."""
    return [
        (verdict.claim.id, EXPLANATIONS[verdict.claim.id])
        for verdict in verdicts
        if verdict.word == "FAIL" and verdict.claim.id in EXPLANATIONS
    ]


# -- the page --------------------------------------------------------------------------------------------------------


def _html(results: Results, verdicts: Sequence[Verdict], drawn: dict[str, bytes]) -> str:
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>SQHN: what was reproduced</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>',
        "<h1>SQHN: what was reproduced</h1>",
        f"<p><b>{counts(verdicts)}.</b> {escape(_about(results))}</p>",
        _html_table([["", ""], *([name, text] for name, text in facts(results).items())], headings=False),
        "<h2>Claims</h2>",
        _html_table(verdict_table(verdicts)),
    ]
    if notes := explained(verdicts):
        parts.append("<h2>Where a claim fails, what was seen</h2><dl>")
        parts += [f"<dt><b>{id_}</b></dt><dd>{escape(text)}</dd>" for id_, text in notes]
        parts.append("</dl>")
    for experiment in ("T1-MOD", "T1-HIGH"):
        if results.where(experiment):
            parts += [f"<h2>{EXPERIMENTS[experiment].title}</h2>", _html_table(table_1(results, experiment))]
            parts.append(f'<p class="small">{escape(TABLE_NOTE)}</p>')
    parts.append("<h2>Figures</h2>")
    for one in FIGURES:
        if one.name in drawn:
            questions = " ".join(EXPERIMENTS[name].question for name in one.experiments)
            source = base64.b64encode(drawn[one.name]).decode()
            parts.append(
                f'<h3>{", ".join(one.experiments)}</h3><p class="small">{escape(questions)}</p><figure>'
                f'<img alt="{escape(one.caption)}" src="data:image/png;base64,{source}">'
                f"<figcaption>{escape(one.caption)}</figcaption></figure>"
            )
    parts.append("<h2>Settings</h2>")
    for name in results_ids(results):
        cases = [f"{settings}" for settings in _settings(results, name)]
        listed = escape("\n".join(cases))
        parts.append(f"<details><summary>{name}: {EXPERIMENTS[name].title}</summary><pre>{listed}</pre></details>")
    return "\n".join(parts) + "</html>\n"


def _about(results: Results) -> str:
    if results.paper_data:
        files = {
            name: source for record in results.records for name, source in record["data"].items() if ".npz" in source
        }
        about = "Every claim of the paper with what was found, on the data named below."
        if files:
            named = ", ".join(f"{name} ({source})" for name, source in sorted(files.items()))
            about += (
                f" These were not the whole official sets but files given in their place through SQHN_DATA, that is "
                f"subsets of them or, where the name differs, a close relative: {named}."
            )
        return about
    return (
        "Every claim of the paper with what was found on built-in data, which stand in for the paper's data sets: "
        "where a claim is about a number of one data set, only its direction is judged."
    )


def _settings(results: Results, experiment: str) -> Iterator[dict[str, object]]:
    seen = set()
    for record in results.where(experiment).records:
        if str(record["settings"]) not in seen:
            seen.add(str(record["settings"]))
            yield record["settings"]


def _html_table(table: Table, headings: bool = True) -> str:
    lines = ["<table>"]
    if headings:
        lines.append("<tr>" + "".join(f"<th>{escape(text)}</th>" for text in table[0]) + "</tr>")
    for row in table[1:]:
        cells = [
            f'<td class="{text.split()[0]}">{text}</td>'
            if text in ("PASS", "FAIL", "NOT RUN")
            else f"<td>{escape(text)}</td>"
            for text in row
        ]
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return "\n".join([*lines, "</table>"])


def _markdown(results: Results, verdicts: Sequence[Verdict], drawn: dict[str, bytes]) -> str:
    parts = ["# What was reproduced", f"**{counts(verdicts)}.** {_about(results)}"]
    parts.append(_markdown_table([["", ""], *([name, text] for name, text in facts(results).items())]))
    parts += ["## Claims", _markdown_table(verdict_table(verdicts))]
    if notes := explained(verdicts):
        parts.append("## Where a claim fails, what was seen")
        parts += [f"**{id_}.** {text}" for id_, text in notes]
    for experiment in ("T1-MOD", "T1-HIGH"):
        if results.where(experiment):
            table = _markdown_table(table_1(results, experiment))
            parts += [f"## {EXPERIMENTS[experiment].title}", table, TABLE_NOTE]
    parts.append("## Figures")
    for one in FIGURES:
        if one.name in drawn:
            parts.append(
                f"### {', '.join(one.experiments)}\n\n![{one.caption}](figures/{one.name}.png)\n\n{one.caption}"
            )
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    lines = ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in table]
    lines.insert(1, "|" + " --- |" * len(table[0]))
    return "\n".join(lines)
