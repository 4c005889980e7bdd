"""`sqhn info`, `sqhn show`, `sqhn repair`, `sqhn warm`, `sqhn forget` and `sqhn calibrate`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from sqhn.cli.common import (
    changing,
    check_memory,
    counted,
    failing,
    load,
    of,
    print_results,
    progress,
    say,
)
from sqhn.cli.options import AsJson, MemoryArgument, MemoryFile, SkipBad, Sources
from sqhn.cli.samples import read
from sqhn.cli.settings import FLAGS, spell_kernel

WARMING = 30
"""How long `warm` compiles on one core, in seconds."""


def info(memory: MemoryArgument, as_json: AsJson = False) -> None:
    """Describe a memory, and load it to tell its bytes; of a memory on shards only the list of its files is read."""
    from sqhn.banks.compilation import why_plain
    from sqhn.model.calibration import Calibration
    from sqhn.storage.files import describe, encode, header_of, outline

    if check_memory(memory).is_dir():  # with the changes in its journal
        network = load(memory)
        header, tensors = network.inspect(encode)
        size = sum(file.stat().st_size for file in memory.rglob("*") if file.is_file())
        about = {"memory": str(memory), "bytes": size, **outline(header, tensors.__getitem__)}
        about["nbytes"] = network.nbytes
    else:
        about, header = describe(memory), header_of(memory)
        if "journal" in header:
            say(f"{memory} is a checkpoint, without the latest changes: name its folder instead")
        elif "pieces" not in header:
            about["nbytes"] = load(memory).nbytes
    lines = [
        f"{memory}: {about['bytes']:,} bytes, format {about['format']}",
        f"samples of shape {about['input_shape']}; {about['step']:,} learned",
    ]
    for number, level in enumerate(about["levels"], start=1):
        grown = level["grown"]
        kernel = "all" if level["kernel"] is None else spell_kernel(level["kernel"])
        lines.append(
            f"level {number}: kernel {kernel}, nodes {level['nodes']:,}, capacity {level['capacity']:,}, "
            f"grown {grown['min']:,} / {grown['mean']:,.1f} / {grown['max']:,} (min / mean / max), "
            f"alpha {float(level['alpha']):g}, gamma {level['gamma']:g}, when full {level['when_full']}"
            + "".join(f", {flag}" for flag in FLAGS if level.get(flag))
        )
    if "nbytes" in about:
        lines.append(f"{about['nbytes']:,} bytes in main memory")
    if reason := why_plain():
        lines.append(f"on this machine memories are in plain NumPy: {reason}")
    made = [Calibration(**about[name]) for name in ("calibration", "evidence") if about[name]]
    lines += [f"{calibration} as it was then" for calibration in made]
    if about["forgotten"]:
        lines.append(f"forgotten: {counted(about['forgotten'], 'neuron')} of the memory node; their slots are free")
    if about["holes"]:
        lines.append("samples with missing values were learned")
    if about["values"]:
        lines.append("some neurons have labels")
    rho = f"{about['rho']:.9g}{' (default)' if about['options']['rho'] is None else ''}"
    options = about["options"] | {"rho": rho}
    lines.append("options: " + ", ".join(f"{name} {value}" for name, value in options.items()))
    print_results(about, lines, as_json)


def show(
    memory: MemoryArgument,
    out: Annotated[Path, typer.Option(help="The image to write, a .png file.")],
    most: Annotated[int, typer.Option(min=1, help="The largest number of neurons.")] = 400,
    as_json: AsJson = False,
) -> None:
    """Draw the stored images on one sheet, each with its neuron, its label, and the number of its samples."""
    from sqhn.display import sheet
    from sqhn.storage.atomic import written_whole

    if out.suffix.lower() != ".png":
        raise ValueError(f"{out} should be a .png file")
    network = load(memory)
    image, shown = sheet(network, most)
    with written_whole(out) as file:
        image.save(file, "PNG")
    lines = [f"neuron {one.neuron}{of(one.label)}" for one in shown if one.label is not None]
    line = f"{out} shows {len(shown):,} of {len(network):,} neurons"
    samples = [{"index": one.neuron, "count": one.samples, "value": one.label} for one in shown]
    document = {"memory": str(memory), "out": str(out), "shown": len(shown), "neurons": len(network)}
    print_results({**document, "samples": samples}, [*lines, line], as_json)


def repair(
    folder: Annotated[Path, typer.Argument(help="The folder of a memory that is kept durably.")],
    yes: Annotated[bool, typer.Option("--yes", help="Repair; copies of the damaged files stay in the folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the damage of a memory in a folder; with --yes, keep every change that is whole.

    The status is 1 if there is damage that was not repaired.
    """
    from sqhn.storage.repair import repair, salvage

    if not check_memory(folder).is_dir():
        raise NotADirectoryError(f"{folder} is a file: `repair` is for a memory that is kept in a folder")
    found, original = repair(folder) if yes else (salvage(folder), None)
    changes, samples = counted(found.changes, "change"), counted(found.model.tree.step, "sample")
    kept = f"{changes} since the last checkpoint, and {samples} in all"
    if not found.problems:
        lines = [f"{folder} is whole: {kept}"]
    elif original is None:
        lines = [*found.problems, f"nothing was changed; --yes keeps {kept}"]
    else:
        lines = [*found.problems, f"{folder} has kept {kept}; the damaged files are in {original}"]
    document = {
        "memory": str(folder),
        "problems": found.problems,
        "changes": found.changes,
        "step": found.model.tree.step,
        "damaged": None if original is None else str(original),
    }
    print_results(document, lines, as_json)
    if found.problems and not yes:
        raise typer.Exit(1)


def warm(
    memory: Annotated[
        Path | None, typer.Option("--memory", help="A memory that must exist; all share the code.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile ahead of time, once for a machine, so that no later command or program waits.

    The compiled code is cached, and serves memories of every shape, with all levels and options.
    """
    start = time.perf_counter()
    with progress.status(f"compiling, if necessary: up to {WARMING} s"):
        from sqhn import warmup

        compiled = warmup.warm(None if memory is None else load(memory))
    seconds = time.perf_counter() - start
    done = f"compiled {compiled:,} functions" if compiled else "all was compiled before"
    document = {"memory": None if memory is None else str(memory), "compiled": compiled, "seconds": round(seconds, 1)}
    print_results(document, [f"{done}, for memories of one level and trees, in {seconds:.0f} s"], as_json)


def forget(
    memory: MemoryArgument,
    index: Annotated[list[int], typer.Argument(metavar="NEURON...", help="Numbers as printed by `show` and `recall`.")],
    as_json: AsJson = False,
) -> None:
    """Forget neurons: they are never recalled again, and new samples take their slots."""
    with failing(IndexError, tell=say), changing(memory) as network:
        network.forget(index)
    forgotten = sorted(set(index))
    line = f"forgot {counted(forgotten, 'neuron')}; {memory} has {len(network):,} of {network.capacity:,}"
    print_results({"memory": str(memory), "forgotten": forgotten, "neurons": len(network)}, [line], as_json)


def calibrate(
    sources: Sources,
    memory: MemoryFile,
    kind: Annotated[
        Literal["new", "old"],
        typer.Option("--as", help="The samples are new to the memory, or learned ones as they will be met again."),
    ],
    error: Annotated[float, typer.Option(help="The share of similar samples that may be judged wrongly.")] = 0.01,
    inference: Annotated[
        Literal["paper", "evidence"] | None,
        typer.Option(help="The rule whose threshold is set: evidence by default for images, the paper's for arrays."),
    ] = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Set the threshold of `recognize` from samples, with a guaranteed error rate for others like them.

    Of images the threshold of evidence is set, of arrays rho, the tolerance of the paper's rule; --inference chooses.
    """
    import numpy as np

    with changing(memory) as network:
        samples = read(sources, network.input_shape, skip_bad=skip_bad)
        rule = inference or samples.rule
        x = np.concatenate(list(samples.chunks()))
        given = {"new": x} if kind == "new" else {"old": x}
        threshold = network.calibrate(**given, error=error, inference=rule)
    name = "rho" if rule == "paper" else "threshold"
    wrong = "old" if kind == "new" else "new"
    line = (
        f"{name} is {threshold:.9g}: at most {error:g} of {kind} samples will be called {wrong}, judging by {len(x):,} "
        f"(rule: {rule})"
    )
    document = {"memory": str(memory), name: threshold, "kind": kind, "error": error, "samples": len(x)}
    document["inference"] = rule
    print_results({**document, "skipped": [*samples.skipped]}, [line], as_json)


COMMANDS = (info, show, repair, warm, forget, calibrate)
