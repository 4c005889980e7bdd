"""The tables of a report: rows of text, the first of them headings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqhn.paper.experiments.case import CODE, DEFAULT, READINGS
from sqhn.paper.experiments.catalogue import EXPERIMENTS
from sqhn.paper.experiments.claims import number
from sqhn.paper.experiments.plots import title
from sqhn.paper.experiments.results import Results, spread
from sqhn.paper.experiments.table_1 import COLUMNS, PRINTED, published
from sqhn.paper.report.verdicts import Verdict

__all__ = ["Table", "cases_of", "facts", "glossary", "sets", "table_1", "verdict_table"]

Table = list[list[str]]
CORRUPTIONS = {"noise": "noise", "dropout": "dropout", "mask": "right mask"}


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """A claim in a row; what was measured under both readings where that differs."""
    rows = [["claim", "text", "code", "it says", "paper", "measured", "held to"]]
    for verdict in verdicts:
        claim, texts = verdict.claim, {r: str(found) for r, found in verdict.findings.items()}
        measured = texts.get(DEFAULT, "")
        if CODE in texts and texts[CODE] != measured:
            measured = f"{measured} | code: {texts[CODE]}" if measured else texts[CODE]
        words = [verdict.word(reading) for reading in READINGS]
        rows.append([claim.id, *words, claim.says, claim.paper, measured, claim.tolerance])
    return rows


def table_1(results: Results, experiment: str) -> Table:
    """The paper's table with ours beside it; what was not run here says so."""
    results = results.under(results.readings[0])
    rows = [["memory", "", *(f"{CORRUPTIONS[kind]}, {title(name)}" for kind, name in COLUMNS)]]
    for model, printed in PRINTED[experiment].items():
        rows.append([model, "paper", *printed])
        runs = results.where(experiment, model=model)
        ours = [_cell(results, experiment, model, kind, name, "ours") for kind, name in COLUMNS]
        rows.append(["", f"ours{_sizes(runs)}, {_seeds(runs)}" if len(runs) else "ours", *ours])
        if len(runs):
            as_published = [_cell(results, experiment, model, kind, name, "published") for kind, name in COLUMNS]
            rows.append(["", "ours, published metric", *as_published])
    return rows


def _sizes(runs: Results) -> str:
    """How wide the memories of some runs were and how long they were trained, where those are settings of theirs."""
    memories = [record["settings"]["memory"] for record in runs.records]
    return "".join(
        f", {name} {' and '.join(map(str, sorted(values, reverse=True)))}"
        for name in ("width", "epochs")
        if (values := {memory[name] for memory in memories if name in memory})
    )


def _seeds(runs: Results) -> str:
    many = len({record["seed"] for record in runs.records})
    return f"{many} seed{'s' if many > 1 else ''}"


def _cell(results: Results, experiment: str, model: str, kind: str, name: str, metric: str) -> str:
    runs = results.where(experiment, model=model, set=name)
    if not len(runs):
        return "not run"
    values = 4 * runs.row(kind, "mse") if metric == "ours" else published(runs, experiment, model, name, kind)
    mean = number(float(values.mean()))
    return mean if len(values) == 1 else f"{mean}±{number(float(spread(values)))}"


def facts(results: Results) -> Table:
    """What was run, when and where."""
    records = results.records
    seconds: dict[str, float] = {}
    for record in records:
        place = record["machine"] if record["device"] == "cpu" else record["device"]
        seconds[place] = seconds.get(place, 0.0) + record["seconds"]
    seeds = sorted({len(runs) for _, runs in _by_case(results)})
    dates = [record["date"] for record in records]
    hours = ", ".join(f"{spent / 3600:.1f} hours of {place}" for place, spent in sorted(seconds.items()))
    return [
        ["", ""],
        ["experiments", ", ".join(ids(results))],
        ["readings", ", ".join(results.readings)],
        ["jobs", f"{len(records)}, with {' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seeds each"],
        ["run", f"{min(dates)} to {max(dates)} (UTC)"],
        ["computing time", f"one process each: {hours}"],
        ["commit", ", ".join(sorted({str(record["commit"]) for record in records}))],
        ["versions", ", ".join(f"{name} {version}" for name, version in records[0]["versions"].items())],
    ]


def sets(results: Results) -> Table:
    """The data sets: where they came from, and how many pictures there were to draw from."""
    found: dict[str, tuple[str, dict[str, int]]] = {}
    for record in results.records:
        for name, source in record["data"].items():
            found[name] = source, record["sizes"][name]
    rows = [["data set", "from", "pictures"]]
    for name, (source, sizes) in sorted(found.items()):
        rows.append([title(name), source, ", ".join(f"{many:,} {split}" for split, many in sizes.items())])
    return rows


def glossary(results: Results) -> Table:
    """What the experiments are."""
    rows = [["id", "experiment", "question", "seeds"]]
    for name in ids(results):
        runs = results.where(name)
        many = sorted({len(runs) for _, runs in _by_case(runs)})
        seeds = f"{many[0]}" if len(many) == 1 else f"{many[0]} to {many[-1]}"
        rows.append([name, EXPERIMENTS[name].title, EXPERIMENTS[name].question, seeds])
    return rows


def ids(results: Results) -> list[str]:
    """The experiments of which there are records."""
    run = {record["experiment"] for record in results.records}
    return [name for name in EXPERIMENTS if name in run]


def _by_case(results: Results) -> Iterator[tuple[str, list[int]]]:
    """The seeds of every case."""
    cases: dict[str, list[int]] = {}
    for record in results.records:
        cases.setdefault(f"{record['experiment']} {sorted(record['settings'].items())}", []).append(record["seed"])
    yield from cases.items()


def cases_of(results: Results, experiment: str) -> Iterator[str]:
    """The settings of an experiment, each once."""
    yield from dict.fromkeys(str(record["settings"]) for record in results.where(experiment).records)
