"""`sqhn learn`: learn into a memory in a file."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Annotated, Literal

import typer

from sqhn.cli.common import check_memory, print_results, reserved, say
from sqhn.cli.options import AsJson, MemoryFile, Resize, SkipBad, Sources
from sqhn.cli.resume import Run, Stop
from sqhn.cli.samples import read
from sqhn.cli.settings import Settings


def learn(
    sources: Sources,
    memory: MemoryFile,
    capacity: Annotated[int | None, typer.Option(min=1, help="Neurons per node of a new memory.")] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Levels of a new memory, from the input up: 2:600,4:600,600 are KERNEL:CAPACITY and the CAPACITY of "
            "the memory node; with --capacity only kernels, such as 2,4. A kernel 4x2 has 4 rows and 2 columns. "
            "2:256:shared: all nodes of the level share one bank; 2:600:stops: it stops learning when the memory node "
            "is full.",
        ),
    ] = None,
    similarity: Annotated[
        Literal["shifted_cosine", "cosine", "euclidean"] | None,
        typer.Option(
            help="Similarity of a new memory: the cosine after subtracting one half, for values from 0 to 1 (default); "
            "the plain cosine; or the Euclidean distance, which depends on amplitude."
        ),
    ] = None,
    when_full: Annotated[
        Literal["average", "overwrite", "oldest", "freeze"] | None,
        typer.Option(
            help="What full nodes of a new memory do with a sample; average by default. Overwrite and oldest replace a "
            "neuron of the memory node: the least used, or the one written longest ago."
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="For how many samples nodes of a new memory keep growing; 1e7 by default, or inf."),
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(help="The growth threshold of a new memory at first: a lower match grows a neuron; 1 by default."),
    ] = None,
    rho: Annotated[float | None, typer.Option(help="The tolerance of `recognize`; can be changed later.")] = None,
    resize: Resize = None,
    skip_bad: SkipBad = False,
    checkpoint: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Save at this interval while learning, in case of a crash."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn images or arrays, sorted by name within each source; an existing memory continues where it stopped.

    Ctrl-C saves what was learned so far, and so do SIGTERM and SIGHUP; the same command then continues. After an error
    the file is unchanged since the last save. While another process learns into the same file, this one waits. Into a
    folder that keeps a memory, every chunk of samples is saved as it is learned.
    """
    shared = {"when_full": when_full, "alpha": alpha, "gamma": gamma}
    settings = Settings(levels, capacity, shared, {"similarity": similarity, "rho": rho})
    if checkpoint is not None and not 0 <= checkpoint < math.inf:
        raise typer.BadParameter(f"{checkpoint} is not a number of seconds", param_hint="--checkpoint")
    run: Run | None = None
    stop = Stop()
    with suppress(KeyboardInterrupt), stop, reserved(memory):
        from sqhn.memory import SQHN

        if memory.exists():
            network = SQHN.load(check_memory(memory))
            settings.apply(memory, network)
            samples = read(sources, network.input_shape, resize, skip_bad)
        elif not settings.levels:
            raise typer.BadParameter(f"there is no {memory} yet: give --capacity, or --levels with capacities")
        else:
            samples = read(sources, None, resize, skip_bad)
            network = settings.make(samples.shape)
        run = Run(memory, network, samples)
        run.learn(stop, math.inf if checkpoint is None else checkpoint)
    if run is None:
        say(f"stopped before anything was learned: {memory} is unchanged")
    else:
        _report(run, stop, as_json)
    if stop.status:
        raise typer.Exit(stop.status)


def _report(run: Run, stop: Stop, as_json: bool) -> None:
    """Print what was learned; after a signal, say what was saved, and how to continue."""
    network = run.network
    document = {
        "memory": str(run.memory),
        "learned": run.learned,
        "grown": run.grown,
        "replaced": run.replaced,
        "neurons": len(network),
        "capacity": network.capacity,
        "step": network.step,
        "interrupted": bool(stop.status),
        "continued_after": run.start,
        "skipped": [*run.samples.skipped],
    }
    line = (
        f"learned {run.learned:,} samples, {run.grown:,} of them as new neurons"
        f"{f' ({run.replaced:,} in place of others)' if run.replaced else ''}; "
        f"{run.memory} has {len(network):,} of {network.capacity:,} neurons after {network.step:,} samples"
    )
    print_results(document, [line] if run.learned or not stop.status else [], as_json)
    if not stop.status:
        return
    if not run.learned:
        where = "were learned: " + (f"{run.memory} is unchanged" if run.start else "nothing is saved")
    else:
        where = f"are saved in {run.memory}"
        if run.reached < len(run.samples) and run.samples.repeatable:
            where += "; the same command continues after them"
        elif run.reached < len(run.samples):
            where += "; the same command starts from the first, since standard input cannot be read again"
    say(f"stopped: {run.reached:,} of {len(run.samples):,} samples {where}")
