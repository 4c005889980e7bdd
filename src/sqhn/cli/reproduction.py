"""The commands `sqhn reproduce`, `sqhn report` and `sqhn bench`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperArgument, TyperCommand

from sqhn.cli.common import failing, progress, show
from sqhn.cli.own import Data, check_data, find_memories

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqhn.paper.experiments.case import Job
    from sqhn.paper.experiments.own import Own


Reading = Literal["both", "default", "code"]
Backend = Literal["loky", "ray", "dask"]


class NamesExperiments(TyperCommand):
    """A command whose help lists the experiments, which are imported only to print it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from sqhn.paper.experiments.catalogue import EXPERIMENTS

        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and parameter.help:
                parameter.help = parameter.help.format(experiments=" ".join(EXPERIMENTS))
        super().format_help(ctx, formatter)


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Experiments to run: {experiments}, or all (the default)."),
    ] = None,
    data: Data = "builtin",
    memory: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:NAME", help="A memory of your own, to run beside the others; may be repeated."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds; by default each experiment's own.")] = None,
    workers: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Number of parallel jobs; by default one per core.")
    ] = None,
    backend: Annotated[Backend, typer.Option(help="Backend that runs the jobs.")] = "loky",
    device: Annotated[str, typer.Option(help="Device for models that use torch, cpu or cuda.")] = "cpu",
    reading: Annotated[
        Reading | None,
        typer.Option(help="Follow the paper's text (default), its published code, or both, as full runs do."),
    ] = None,
    heavy: Annotated[
        bool, typer.Option("--heavy", help="Also run GPCN and BayesPCN: many hours without a GPU.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and two seeds: minutes, not hours.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for records and report; recorded jobs are skipped.")] = Path("out"),
) -> None:
    """Run the paper's experiments and judge every claim (extra packages: experiments).

    Ctrl-C keeps finished jobs; the same command continues from there.
    """
    from sqhn.data import DataFileError

    with failing(ImportError, OSError, DataFileError):
        from sqhn.paper.baselines.training import load_torch
        from sqhn.paper.experiments.case import READINGS, jobs_of
        from sqhn.paper.experiments.catalogue import EXPERIMENTS

        check_data(data)
        memories = find_memories(memory or [])
        if device != "cpu" and not (device.startswith("cuda") and load_torch().cuda.is_available()):
            raise typer.BadParameter(f"{device!r} is not available: use cpu, or cuda where torch finds a GPU")
        wanted = list(EXPERIMENTS) if not ids or ids == ["all"] else ids
        for name in wanted:
            if name not in EXPERIMENTS:
                raise typer.BadParameter(f"unknown experiment {name!r}; there are {', '.join(EXPERIMENTS)}, or all")
            if quick and EXPERIMENTS[name].quick is None and wanted == ids:
                raise typer.BadParameter(f"{name} has no quick form: leave out --quick")
        named = reading or ("default" if quick else "both")
        readings = READINGS if named == "both" else (named,)
        sized: dict[str, Any] = {"seeds": seeds or (2 if quick else None), "data": data, "quick": quick}
        check_folder(out, sized)
        sized["memories"] = memories
        jobs = {name: list(jobs_of(EXPERIMENTS[name], readings, heavy=heavy, **sized)) for name in wanted}
        _say_limits(jobs, out, quick, data, memories)
        todo = [job for some in jobs.values() for job in some]
        complete = run_jobs(todo, out, memories, workers, quick, backend, device)
        report(out)
    if not complete:
        raise typer.Exit(1)


def _say_limits(jobs: dict[str, list[Job]], out: Path, quick: bool, data: str, memories: Sequence[Own]) -> None:
    """Say, before anything runs, what this run cannot do."""
    from sqhn.data import load
    from sqhn.paper.experiments import records
    from sqhn.paper.experiments.case import jobs_of
    from sqhn.paper.experiments.catalogue import CLAIMS, EXPERIMENTS

    run = {name for name, some in jobs.items() if some} | {one["experiment"] for one in records.read(out).values()}
    claims = [claim for claim in CLAIMS.values() if set(claim.experiments) & set(jobs)]
    if quick:
        if skipped := [name for name in jobs if EXPERIMENTS[name].quick is None]:
            show(f"left out, without a quick form: {', '.join(skipped)}")
        if small := [claim.id for claim in claims if not claim.quick]:
            show(f"a quick run cannot decide {', '.join(small)}")
    waiting: dict[str, list[str]] = {}
    for claim in claims:
        if (claim.quick or not quick) and (missing := [name for name in claim.experiments if name not in run]):
            waiting.setdefault(", ".join(missing), []).append(claim.id)
    for others, ids in waiting.items():
        show(f"only together with {others}: {', '.join(ids)}")
    if memories:
        without = [name for name, some in jobs.items() if not any(job.case.model == memories[0].source for job in some)]
        if len(without) == len(jobs):
            raise typer.BadParameter(f"memories of your own have no place in {', '.join(without)}")
        if without:
            show(f"memories of your own have no place in {', '.join(without)}")
    if data.endswith(".npz"):
        samples = len(load(data).splits["train"].x)
        for name, some in jobs.items():
            if (length := max((getattr(job.case, "length", 0) for job in some), default=0)) > samples:
                show(f"{name}: {data} has {samples:,} training samples, fewer than the {length:,} of this experiment")
            declared = {job.case.model for job in jobs_of(EXPERIMENTS[name], data="paper", quick=quick)}
            if unfit := sorted(declared - {job.case.model for job in some}):
                show(f"{name}: left out, since their patches do not fit the samples of {data}: {', '.join(unfit)}")


def check_folder(out: Path, sized: dict[str, Any]) -> None:
    """Exit if the folder has records of another kind of run."""
    from sqhn.paper.experiments.case import jobs_of
    from sqhn.paper.experiments.catalogue import EXPERIMENTS
    from sqhn.paper.experiments.runner import other_runs

    declared = {name: list(jobs_of(one, heavy=True, **sized)) for name, one in EXPERIMENTS.items()}
    if other := other_runs(out, declared):
        show(
            f"{out} has records of {other} with other settings (a quick run, an older version or other data?): "
            "a report covers one kind of run, so choose another --out"
        )
        raise typer.Exit(1)


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    memories: Sequence[Own],
    workers: int | None,
    quick: bool,
    backend: Backend = "loky",
    device: str = "cpu",
) -> bool:
    """Run jobs that have no record yet; say which failed or lack data or packages. Returns whether none failed."""
    from sqhn.paper.experiments.own import drop_earlier_versions
    from sqhn.paper.experiments.runner import run

    for source in drop_earlier_versions(out, memories):
        show(f"{source} has changed: its earlier records in {out} are removed")
    out.mkdir(parents=True, exist_ok=True)
    outcome = run(jobs, out, workers or os.cpu_count() or 1, backend, progress, device, quick)
    if outcome.failed:
        failures = out / "failures.txt"
        failures.write_text("\n".join(f"{label}\n{text}" for label, text in outcome.failed.items()))
        show(f"failed jobs: {len(outcome.failed)}; their errors are in {failures}")
    for remedy, experiments in outcome.missing.items():
        show(f"{', '.join(experiments)}: {remedy}")
    if outcome.interrupted:
        show("stopped; finished jobs are kept, and the same command continues from here")
        raise typer.Exit(130)
    return not outcome.failed


@failing(ImportError, OSError)
def report(
    folder: Annotated[Path, typer.Argument(help="The folder with the records, --out of `sqhn reproduce`.")],
) -> None:
    """Judge every claim from the records of a folder; write the page, the figures and a summary there."""
    from rich import box
    from rich.table import Column, Table

    from sqhn.paper.experiments import records
    from sqhn.paper.experiments.results import Results
    from sqhn.paper.report.page import publish
    from sqhn.paper.report.tables import comparison, experiments_run
    from sqhn.paper.report.verdicts import agreement, counts, published

    found = Results(records.read(folder).values())
    if not len(found):
        show(f"there are no records in {folder}: create some with `sqhn reproduce --out {folder}`")
        raise typer.Exit(1)
    judged, page = publish(found, folder, progress)
    readings = found.readings
    known = published()
    compare = bool(known) and (found.quick or not found.paper_data)
    table = Table("claim", *readings, *(["published"] if compare else []), "measured", "paper", box=box.SIMPLE_HEAD)
    for one in judged:
        verdicts = [one.verdict(reading) for reading in readings]
        theirs = [known.get(one.claim.id, {}).get(readings[0], "-")] if compare else []
        measured = str(one.findings.get(readings[0], ""))
        name = one.claim.id + (" (beyond)" if one.claim.beyond else "")
        table.add_row(name, *map(_styled, [*verdicts, *theirs]), escape(measured), escape(one.claim.paper))
    Console().print(table)
    for name in experiments_run(found.own):
        (_, *measures), *rows = comparison(found, name, apart=False)
        table = Table(
            Column("model", no_wrap=True),
            *measures,
            title=f"{name}, means over all cases and seeds",
            box=box.SIMPLE_HEAD,
        )
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)
    for reading in readings:
        print(f"{reading}: {counts(judged, reading)}")
    if compare:
        same, decided = agreement(judged, readings[0])
        if decided:
            print(f"{same} of {decided} verdicts agree with the published ones (full size, the paper's data)")
    print(f"report: {page}")


def _styled(verdict: str) -> str:
    style = {"PASS": "green", "FAIL": "bold red", "ERROR": "bold red"}.get(verdict, "dim")
    return f"[{style}]{verdict}[/]"


@failing(ImportError)
def bench(
    cases: Annotated[list[str] | None, typer.Argument(help="Cases to run; all by default.")] = None,
    device: Annotated[str, typer.Option(help="Where to measure: cpu, cuda or ray.")] = "cpu",
) -> None:
    """Measure speed and size against comparators in the same run; prints JSON."""
    from sqhn import bench

    try:
        known = bench.cases(device)
    except (RuntimeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    for name in cases or []:
        if name not in known:
            raise typer.BadParameter(f"unknown case {name!r}; the cases are {', '.join(known)}")
    print(bench.run(cases or list(known), progress.print, device))
