"""`sqhn reproduce` and `sqhn report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from typer.core import TyperArgument, TyperCommand

from sqhn.cli.common import failing, progress, show

if TYPE_CHECKING:
    from sqhn.experiments.runner import Outcome

__all__ = ["NamesExperiments", "report", "reproduce"]

Data = Literal["builtin", "paper"]
Preset = Literal["default", "code"]
Backend = Literal["loky", "ray", "dask"]


class NamesExperiments(TyperCommand):
    """A command whose help names the experiments; they are looked up only when somebody asks for it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from sqhn.experiments.catalogue import EXPERIMENTS

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
    device: Annotated[
        str | None,
        typer.Option(
            help="Where memories that use torch live, cpu or cuda. Naming it also runs GPCN and BayesPCN: hours."
        ),
    ] = None,
    preset: Annotated[Preset, typer.Option(help="The paper's equations, or its published code.")] = "default",
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
        from sqhn.experiments.catalogue import EXPERIMENTS, jobs_of
        from sqhn.experiments.runner import run

        if device is not None:
            _check_device(device)
        wanted = list(EXPERIMENTS) if not ids or ids == ["all"] else ids
        for name in wanted:
            if name not in EXPERIMENTS:
                raise typer.BadParameter(f"unknown experiment {name!r}; there are {', '.join(EXPERIMENTS)}, or all")
        how = (preset, seeds or (2 if quick else None), data == "builtin", quick)
        _check_folder(out, how)
        todo = [job for name in wanted for job in jobs_of(EXPERIMENTS[name], *how, heavy=device is not None)]
        out.mkdir(parents=True, exist_ok=True)
        outcome = run(todo, out, jobs or os.cpu_count() or 1, backend, progress, device or "cpu")
        _tell(outcome, out)
        if outcome.interrupted:
            raise typer.Exit(130)
        _report(out)
    if outcome.failed:
        raise typer.Exit(1)


def _check_device(device: str) -> None:
    if device == "cpu":
        return
    from sqhn.baselines.training import load_torch

    if not device.startswith("cuda") or not load_torch().cuda.is_available():
        raise typer.BadParameter(f"{device!r} is not to be had here: say cpu, or cuda where torch sees a GPU")


def _check_folder(out: Path, how: tuple[Preset, int | None, bool, bool]) -> None:
    """Records of a folder must be of the kind of run that is going to add to them."""
    from sqhn.experiments.catalogue import EXPERIMENTS, jobs_of
    from sqhn.experiments.runner import other_runs

    declared = {name: list(jobs_of(experiment, *how, heavy=True)) for name, experiment in EXPERIMENTS.items()}
    if strange := other_runs(out, declared):
        show(
            f"{out} has records of {strange} with other settings (a quick run, another preset or other data?): "
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

    from sqhn.experiments import records
    from sqhn.report.page import publish
    from sqhn.report.results import Results

    found = records.read(folder)
    if not found:
        show(f"there are no records in {folder}: `sqhn reproduce --out {folder}` makes some")
        raise typer.Exit(1)
    verdicts, page = publish(Results(found.values()), folder, progress)
    table = Table("claim", "verdict", "ours", "paper", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    style = {"PASS": "green", "FAIL": "bold red", "NOT RUN": "dim"}
    for verdict in verdicts:
        ours = verdict.finding.ours if verdict.word != "NOT RUN" else verdict.finding.missing
        table.add_row(verdict.claim.id, f"[{style[verdict.word]}]{verdict.word}[/]", ours, verdict.claim.paper)
    Console().print(table)
    count = {word: sum(verdict.word == word for verdict in verdicts) for word in style}
    print(", ".join(f"{many} {word}" for word, many in count.items()))
    print(f"report: {page}")
