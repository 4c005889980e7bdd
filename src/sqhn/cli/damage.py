"""The command `sqhn damage`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sqhn.cli.common import as_json_text, failing, show
from sqhn.cli.own import Data, check_data, find_memories
from sqhn.cli.reproduction import check_folder, run_jobs


def damage(
    memories: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:NAME",
            help="Memories: classes or functions that are called as NAME(shape, capacity=...), or functions "
            "NAME(stored, given) that return the indices of the given samples.",
        ),
    ],
    data: Data = "builtin",
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="A data set of X-DMG, or what replaces it; may be repeated. Default: cifar10."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 1,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of parallel jobs; by default one per core.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="100 stored samples instead of 1,000.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for records, damage.json and damage.png.")] = Path("damage"),
) -> None:
    """Recall from 33 kinds and levels of damage, for memories of your own (extra packages: experiments).

    Prints the share of stored samples found, beside an SQHN of one level, recall by evidence, and the nearest neighbor.
    """
    from sqhn.data import DataFileError

    with failing(ImportError, OSError, DataFileError):
        from sqhn.paper.experiments import records
        from sqhn.paper.experiments.damage import KERNELS, benchmark_figure, benchmark_jobs, by_kind, shares
        from sqhn.paper.experiments.results import Results

        for name in sets or ():
            if name not in KERNELS:
                raise typer.BadParameter(f"unknown data set {name!r}; there are {', '.join(KERNELS)}")
        check_data(data)
        if sets and data.endswith(".npz"):
            raise typer.BadParameter(f"--set is for the paper's data sets, not for {data}")
        own = find_memories(memories)
        todo = benchmark_jobs(own, data, sets or ["cifar10"], seeds, quick)
        if missing := set(sets or ()) - {job.case.set for job in todo}:
            raise typer.BadParameter(f"--quick has no form for {', '.join(sorted(missing))}")
        check_folder(out, {"seeds": seeds, "data": data, "quick": quick})
        complete = run_jobs(todo, out, own, jobs, quick)
        wanted = {(job.case.set, job.case.model, job.seed) for job in todo}
        found = Results(one for one in records.read(out).values() if _name(one) in wanted)
        if len(found):
            benchmark_figure(found).savefig(out / "damage.png", dpi=120)
            (out / "damage.json").write_text(as_json_text(_document(found), indent=2))
            _print(by_kind(shares(found)), found)
            show(f"{out / 'damage.json'}, {out / 'damage.png'}")
    if not complete or not len(found):
        raise typer.Exit(1)


def _name(record: dict[str, Any]) -> tuple[str, str, int]:
    settings = record["settings"]
    return settings["set"], settings["model"], record["seed"]


def _document(found: Any) -> dict[str, Any]:
    """All shares, for every data set, damage and model."""
    from sqhn.paper.experiments.damage import by_kind, shares

    first = found.records[0]
    measures = ("found", "accuracy", "auc")
    rows = []
    for name, runs in found.each("set"):
        by_measure = {measure: shares(runs, measure) for measure in measures}
        rows += [
            {"set": name, "kind": kind, "level": level, **{m: by_measure[m][kind, level] for m in measures}}
            for kind, level in by_measure["found"]
        ]
    return {
        "stored": first["results"]["stored"],
        "questions": first["settings"]["questions"],
        "seeds": len({record["seed"] for record in found.records}),
        "data": {name: source for record in found.records for name, source in record["data"].items()},
        "versions": first["versions"],
        "found": by_kind(shares(found)),
        "damages": rows,
    }


def _print(kinds: dict[str, dict[str, float]], found: Any) -> None:
    from rich import box
    from rich.table import Column, Table

    first = found.records[0]
    table = Table(
        Column("damage", no_wrap=True), *(name.rpartition(":")[2] for name in kinds["all"]), box=box.SIMPLE_HEAD,
        title=f"share of {first['settings']['questions']} samples found among {first['results']['stored']:,} stored",
    )  # fmt: skip
    for kind, models in kinds.items():
        if kind == "all":
            table.add_section()
        table.add_row(kind.replace("_", " "), *(f"{share:.2f}" for share in models.values()))
    Console().print(table)
