"""The tables of a report: rows of text, the first row the headings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqhn.paper.experiments.case import CODE, DEFAULT, READINGS
from sqhn.paper.experiments.catalogue import EXPERIMENTS
from sqhn.paper.experiments.claims import number
from sqhn.paper.experiments.plots import title
from sqhn.paper.experiments.results import Results, spread
from sqhn.paper.experiments.table_1 import COLUMNS, PUBLISHED, published_metric
from sqhn.paper.report.verdicts import JudgedClaim

Table = list[list[str]]
HEADINGS = {"noise": "noise", "dropout": "dropout", "mask": "right mask"}


def verdict_table(judged: Sequence[JudgedClaim]) -> Table:
    """One row per claim, with the measurements under both readings where they differ."""
    rows = [["claim", "text", "code", "statement", "paper", "measured", "bounds"]]
    for one in judged:
        claim, texts = one.claim, {r: str(found) for r, found in one.findings.items()}
        measured = texts.get(DEFAULT, "")
        if CODE in texts and texts[CODE] != measured:
            measured = f"{measured} | code: {texts[CODE]}" if measured else texts[CODE]
        verdicts = [one.verdict(reading) for reading in READINGS]
        rows.append([claim.id, *verdicts, claim.statement, claim.paper, measured, claim.criteria])
    return rows


def table_1(results: Results, experiment: str) -> Table:
    """The paper's table, with our numbers below each row; cells without records say "not run"."""
    results = results.under(results.readings[0])
    rows = [["model", "", *(f"{HEADINGS[kind]}, {title(name)}" for kind, name in COLUMNS)]]
    for model, numbers in PUBLISHED[experiment].items():
        rows.append([model, "paper", *numbers])
        runs = results.where(experiment, model=model)
        ours = [_cell(results, experiment, model, kind, name, "ours") for kind, name in COLUMNS]
        rows.append(["", f"ours{_sizes(runs)}, {_seeds(runs)}" if len(runs) else "ours", *ours])
        if len(runs):
            as_published = [_cell(results, experiment, model, kind, name, "published") for kind, name in COLUMNS]
            rows.append(["", "ours, published metric", *as_published])
    return rows


def _sizes(runs: Results) -> str:
    """The widths and epochs of the models of some runs, where they have these settings."""
    models = [record["settings"]["memory"] for record in runs.records]
    return "".join(
        f", {name} {' and '.join(map(str, sorted(values, reverse=True)))}"
        for name in ("width", "epochs")
        if (values := {model[name] for model in models if name in model})
    )


def _seeds(runs: Results) -> str:
    count = len({record["seed"] for record in runs.records})
    return f"{count} seed{'s' if count > 1 else ''}"


def _cell(results: Results, experiment: str, model: str, kind: str, name: str, metric: str) -> str:
    runs = results.where(experiment, model=model, set=name)
    if not len(runs):
        return "not run"
    values = 4 * runs.row(kind, "mse") if metric == "ours" else published_metric(runs, experiment, model, name, kind)
    mean = number(float(values.mean()))
    return mean if len(values) == 1 else f"{mean}±{number(float(spread(values)))}"


def provenance(results: Results) -> Table:
    """The jobs that were run, with time, machines and versions."""
    records = results.records
    seconds: dict[str, float] = {}
    for record in records:
        place = record["machine"] if record["device"] == "cpu" else record["device"]
        seconds[place] = seconds.get(place, 0.0) + record["seconds"]
    dates = [record["date"] for record in records]
    hours = ", ".join(f"{spent / 3600:.1f} hours of {place}" for place, spent in sorted(seconds.items()))
    return [
        ["", ""],
        ["experiments", ", ".join(experiments_run(results))],
        ["readings", ", ".join(results.readings)],
        ["jobs", f"{len(records)}, with {_seeds_per_case(results)} seeds each"],
        ["run", f"{min(dates)} to {max(dates)} (UTC)"],
        ["computing time", f"one process each: {hours}"],
        ["commit", ", ".join(sorted({str(record["commit"]) for record in records}))],
        ["versions", ", ".join(f"{name} {version}" for name, version in records[0]["versions"].items())],
    ]


def data_sets(results: Results) -> Table:
    """The data sets with their sources and the number of images in each split."""
    found: dict[str, tuple[str, dict[str, int]]] = {}
    for record in results.records:
        for name, source in record["data"].items():
            found[name] = source, record["sizes"][name]
    rows = [["data set", "from", "images"]]
    for name, (source, sizes) in sorted(found.items()):
        rows.append([title(name), source, ", ".join(f"{count:,} {split}" for split, count in sizes.items())])
    return rows


def experiments_table(results: Results) -> Table:
    """One row per experiment, with its question."""
    rows = [["id", "experiment", "question", "seeds"]]
    for name in experiments_run(results):
        runs = results.where(name)
        rows.append([name, EXPERIMENTS[name].title, EXPERIMENTS[name].question, _seeds_per_case(runs)])
    return rows


def experiments_run(results: Results) -> list[str]:
    """The experiments of which there are records."""
    run = {record["experiment"] for record in results.records}
    return [name for name in EXPERIMENTS if name in run]


def _seeds_per_case(results: Results) -> str:
    """The number of seeds per case: "5", or "2 to 5" where it varies."""
    cases = Counter(f"{record['experiment']} {sorted(record['settings'].items())}" for record in results.records)
    least, most = min(cases.values()), max(cases.values())
    return f"{least}" if least == most else f"{least} to {most}"


def cases_of(results: Results, experiment: str) -> list[str]:
    """The settings of all cases of an experiment."""
    return list(dict.fromkeys(str(record["settings"]) for record in results.where(experiment).records))
