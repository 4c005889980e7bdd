"""`sqhn bench`."""

from __future__ import annotations

from typing import Annotated

import typer

from sqhn.cli.common import failing, progress


def bench(
    cases: Annotated[list[str] | None, typer.Argument(help="Cases to run; all by default.")] = None,
    device: Annotated[str, typer.Option(help="Where to measure: cpu, cuda or ray.")] = "cpu",
) -> None:
    """Measure speed and size against comparators in the same run; prints JSON."""
    from sqhn import bench

    with failing(ImportError):
        try:
            known = bench.cases(device)
        except (RuntimeError, ValueError) as error:
            raise typer.BadParameter(str(error)) from error
        for name in cases or []:
            if name not in known:
                raise typer.BadParameter(f"unknown case {name!r}; the cases are {', '.join(known)}")
        print(bench.run(cases or list(known), progress.print, device))
