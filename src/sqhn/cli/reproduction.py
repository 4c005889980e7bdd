"""`sqhn reproduce` and `sqhn report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperArgument, TyperCommand

from sqhn.cli.common import failing, progress, show

if TYPE_CHECKING:
    from sqhn.paper.experiments.runner import Outcome

__all__ = ["NamesExperiments", "report", "reproduce"]

Data = Literal["builtin", "paper"]
Reading = Literal["both", "default", "code"]
Backend = Literal["loky", "ray", "dask"]


class NamesExperiments(TyperCommand):
    """A command whose help names the experiments; they are looked up only when somebody asks for it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from sqhn.paper.experiments.catalogue import EXPERIMENTS

        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and parameter.help:
                parameter.help = parameter.help.format(experiments=" ".join(EXPERIMENTS))
        super().format_help(ctx, formatter)


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Which experiments: {experiments}, or all, which is the default."),
    ] = None,
    data: Annotated[Data, typer.Option(help="The built-in data sets, or those of the paper.")] = "builtin",
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds; each experiment's own by default.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many jobs at once; default: one for each core.")] = None,
    backend: Annotated[Backend, typer.Option(help="What runs them.")] = "loky",
    device: Annotated[str, typer.Option(help="Where memories that use torch live, cpu or cuda.")] = "cpu",
    reading: Annotated[
        Reading | None,
        typer.Option(help="The paper's text (default), its published code, or both; a quick run has the text alone."),
    ] = None,
    heavy: Annotated[bool, typer.Option("--heavy", help="Also GPCN and BayesPCN: many hours without a GPU.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, two seeds: minutes, not hours.")] = False,
    out: Annotated[Path, typer.Option(help="Where records and the report go; what is there is not run again.")] = Path(
        "out"
    ),
) -> None:
    """Run the paper's experiments and say claim by claim what was reproduced (extra packages: experiments).

    Ctrl-C keeps what is done; the same command goes on from there.
    """
    from sqhn.data import DataFileError

    with failing(ImportError, OSError, DataFileError):
        from sqhn.paper.experiments.case import READINGS, jobs_of
        from sqhn.paper.experiments.catalogue import EXPERIMENTS
        from sqhn.paper.experiments.runner import run

        _check_device(device)
        wanted = list(EXPERIMENTS) if not ids or ids == ["all"] else ids
        for name in wanted:
            if name not in EXPERIMENTS:
                raise typer.BadParameter(f"unknown experiment {name!r}; there are {', '.join(EXPERIMENTS)}, or all")
            if quick and EXPERIMENTS[name].quick is None and wanted == ids:
                raise typer.BadParameter(f"{name} has no quick form: leave out --quick")
        named = reading or ("default" if quick else "both")
        readings = READINGS if named == "both" else (named,)
        sized: dict[str, Any] = {"seeds": seeds or (2 if quick else None), "builtin": data == "builtin", "quick": quick}
        _check_folder(out, sized)
        todo = [job for name in wanted for job in jobs_of(EXPERIMENTS[name], readings, heavy=heavy, **sized)]
        out.mkdir(parents=True, exist_ok=True)
        outcome = run(todo, out, jobs or os.cpu_count() or 1, backend, progress, device, quick)
        _tell(outcome, out)
        if outcome.interrupted:
            raise typer.Exit(130)
        _report(out)
    if outcome.failed:
        raise typer.Exit(1)


def _check_device(device: str) -> None:
    if device == "cpu":
        return
    from sqhn.paper.baselines.training import load_torch

    if not device.startswith("cuda") or not load_torch().cuda.is_available():
        raise typer.BadParameter(f"{device!r} is not to be had here: say cpu, or cuda where torch sees a GPU")


def _check_folder(out: Path, sized: dict[str, Any]) -> None:
    """Records of a folder must be of the kind of run that is going to add to them."""
    from sqhn.paper.experiments.case import jobs_of
    from sqhn.paper.experiments.catalogue import EXPERIMENTS
    from sqhn.paper.experiments.runner import other_runs

    declared = {name: list(jobs_of(one, heavy=True, **sized)) for name, one in EXPERIMENTS.items()}
    if strange := other_runs(out, declared):
        show(
            f"{out} has records of {strange} with other settings (a quick run, an older version or other data?): "
            "a report is of one kind of run, so name another --out"
        )
        raise typer.Exit(1)


def _tell(outcome: Outcome, out: Path) -> None:
    if outcome.failed:
        failures = out / "failures.txt"
        failures.write_text("\n".join(f"{label}\n{text}" for label, text in outcome.failed.items()))
        show(f"{len(outcome.failed)} jobs failed; what went wrong is in {failures}")
    for what, experiments in outcome.missing.items():
        show(f"{', '.join(experiments)}: {what}")
    if outcome.interrupted:
        show("stopped; all that is done is kept, and the same command goes on from here")


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of records, the --out of `sqhn reproduce`.")],
) -> None:
    """Judge every claim by the records of a folder; write the page, the figures and a summary there."""
    from sqhn.data import DataFileError

    with failing(ImportError, OSError, DataFileError):
        _report(folder)


def _report(folder: Path) -> None:
    from rich import box
    from rich.table import Table

    from sqhn.paper.experiments import records
    from sqhn.paper.experiments.results import Results
    from sqhn.paper.report.page import publish
    from sqhn.paper.report.verdicts import agreement, counts, published

    found = Results(records.read(folder).values())
    if not len(found):
        show(f"there are no records in {folder}: `sqhn reproduce --out {folder}` makes some")
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
    for reading in readings:
        print(f"{reading}: {counts(judged, reading)}")
    if compare:
        same, decided = agreement(judged, readings[0])
        print(f"{same} of {decided} verdicts agree with those published for the full size and the paper's data")
    print(f"report: {page}")


def _styled(verdict: str) -> str:
    style = {"PASS": "green", "FAIL": "bold red", "ERROR": "bold red"}.get(verdict, "dim")
    return f"[{style}]{verdict}[/]"
