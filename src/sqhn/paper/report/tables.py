"""The tables of a report: rows of text, the first row the headings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

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
    own = results.where(experiment).own
    for model in own.settings("model"):
        cells = [_cell(results, experiment, model, kind, name, "ours") for kind, name in COLUMNS]
        rows.append([model, _seeds(own.where(model=model)), *cells])
    return rows


PLACES = {"set": "set", "size": "neurons", "noise": "noise", "samples": "samples"}
"""The settings that tell the cases of an experiment apart, with their headings."""


def comparison(results: Results, experiment: str, apart: bool = True) -> Table:
    """Memories of the user beside the models that ran in the same cases: the means of all results over seeds.

    Shares recalled are means over the levels of each kind of corruption, and curves over their test points. apart: one
    row per case, instead of means over all cases.
    """
    runs = results.under(results.readings[0]).where(experiment)
    found: dict[tuple[str, ...], dict[str, list[dict[str, float]]]] = {}
    for record in runs.records:
        case = tuple(str(record["settings"].get(name, "")) for name in PLACES)
        found.setdefault(case, {}).setdefault(record["settings"]["model"], []).append(_measures(record["results"]))
    own = set(runs.own.settings("model"))
    cases = {case: models for case, models in found.items() if own & set(models)}
    if not apart:
        everywhere = [
            model for model in dict.fromkeys(chain(*cases.values())) if all(model in of for of in cases.values())
        ]
        cases = {(): {model: list(chain(*(of[model] for of in cases.values()))) for model in everywhere}}
    shown = [place for place, _ in enumerate(PLACES) if apart and len({case[place] for case in cases}) > 1]
    measures = list(dict.fromkeys(chain(*(of for models in cases.values() for some in models.values() for of in some))))
    rows = [
        [*(list(PLACES.values())[place] for place in shown), "model", *(name.replace("_", " ") for name in measures)]
    ]
    for case, models in cases.items():
        for model, some in models.items():
            means = [[of[name] for of in some if name in of] for name in measures]
            numbers = [number(float(np.mean(values))) if values else "-" for values in means]
            rows.append([*(case[place] for place in shown), model, *numbers])
    return rows


def _measures(found: dict[str, Any]) -> dict[str, float]:
    """The numbers in the results of a run, by name; spreads are left out."""
    if "rows" in found:
        shares: dict[str, list[float]] = {}
        for row in found["rows"]:
            shares.setdefault(row["kind"], []).append(row["found"] if "found" in row else row["accuracy"])
        return {kind: float(np.mean(values)) for kind, values in shares.items()}
    if "curves" in found:
        curves = {name: np.asarray(curve) for name, curve in found["curves"].items() if name != "learned"}
        return {n: float(curve.mean()) for n, curve in curves.items() if curve.ndim == 1 and not n.endswith("_std")}
    return {name: float(value) for name, value in found.items() if isinstance(value, (int, float))}


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
