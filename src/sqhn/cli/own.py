"""The commands on one's own data: `sqhn learn`, `recall`, `recognize` and `info`."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from sqhn.cli.common import WRONG, as_json_text, failing, print_either, say
from sqhn.cli.learning import Learned, learn_into
from sqhn.cli.levels import spell_kernel
from sqhn.cli.memory_file import Wanted, ask, check_there, load, open_samples, size_of
from sqhn.cli.options import (
    Alpha,
    AsJson,
    Best,
    Capacity,
    Checkpoint,
    Gamma,
    Inference,
    Levels,
    MemoryFile,
    Observed,
    Out,
    Resize,
    Rho,
    Similarity,
    SkipBad,
    Sources,
    WhenFull,
)
from sqhn.cli.settings import parse_settings
from sqhn.cli.stopping import Stop, stoppable

__all__ = ["info", "learn", "recall", "recognize"]


def learn(
    sources: Sources,
    memory: MemoryFile,
    capacity: Capacity = None,
    levels: Levels = None,
    similarity: Similarity = None,
    when_full: WhenFull = None,
    alpha: Alpha = None,
    gamma: Gamma = None,
    rho: Rho = None,
    resize: Resize = None,
    skip_bad: SkipBad = False,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
) -> None:
    """Learn pictures or arrays, sorted by name within each source; a memory that exists goes on where it stopped.

    Ctrl-C saves what was learned so far, and so do SIGTERM and SIGHUP; the same command then goes on after that. After
    any error the file is as it was, or as it was saved last with --checkpoint. While another process learns into the
    same file, this one waits.
    """
    done: Learned | None = None
    common = {"when_full": when_full, "alpha": alpha, "gamma": gamma}
    settings = parse_settings(levels, capacity, common, {"similarity": similarity, "rho": rho})
    wanted = Wanted(sources, size_of(resize), skip_bad)
    if checkpoint is not None and not 0 <= checkpoint < math.inf:
        raise typer.BadParameter(f"{checkpoint} is not a number of seconds", param_hint="--checkpoint")
    with stoppable() as stop:
        with failing(*WRONG, tell=say), suppress(KeyboardInterrupt):
            done = learn_into(memory, wanted, settings, checkpoint, stop)
        if done is None:
            say(f"stopped before anything was learned: {memory} is as it was")
            raise typer.Exit(stop.status)
        _report(done, stop, as_json)
        if stop.asked:
            raise typer.Exit(stop.status)


def _report(done: Learned, stop: Stop, as_json: bool) -> None:
    """Print what was learned, and say what was not."""
    run, network = done.run, done.run.network
    about = {
        "memory": str(run.memory),
        "learned": done.learned,
        "grown": done.grown,
        "replaced": done.replaced,
        "neurons": len(network),
        "capacity": network.capacity,
        "step": network.step,
        "interrupted": stop.asked,
        "continued_after": run.start,
        "skipped": [*run.samples.skipped],
    }
    text = (
        f"learned {done.learned:,} samples, {done.grown:,} of them as new neurons"
        f"{f' ({done.replaced:,} in place of others)' if done.replaced else ''}; "
        f"{run.memory} has {len(network):,} of {network.capacity:,} neurons after {network.step:,} samples"
    )
    print_either(about, [text] if done.learned or not stop.asked else [], as_json)
    if stop.asked:
        many = f"{run.reached:,} of {len(run.samples):,} samples"
        say(f"stopped: {many} {_what_next(done)}")


def _what_next(done: Learned) -> str:
    """What became of the samples that were learned before a signal, and of the others."""
    run = done.run
    if not done.learned:
        return f"were learned: {run.memory} is as it was" if run.start else "were learned: nothing is saved"
    kept = f"are saved in {run.memory}"
    if run.reached == len(run.samples):
        return kept
    if run.samples.lasting:
        return f"{kept}; the same command goes on after them"
    return f"{kept}; the same command starts from the first, for nobody can go back in standard input"


def recall(
    sources: Sources,
    memory: MemoryFile,
    out: Out,
    best: Best = None,
    observed: Observed = None,
    inference: Inference = "paper",
    resize: Resize = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Write the stored sample that each sample reminds of: pictures as .png of the same name, arrays as .npy.

    What is written keeps its place below the folder that all sources share.
    """
    from sqhn.cli.samples import read_mask

    rows: list[tuple[Any, Any, Any]] = []
    wanted = Wanted(sources, size_of(resize), skip_bad)
    with failing(*WRONG, tell=say):
        network = load(memory)
        samples = open_samples(wanted, network.input_shape)
        mask = None if observed is None else read_mask(observed, network.input_shape, wanted.size)
        if best is not None and 0 < len(network) < best:
            raise ValueError(f"-k {best}, but {memory} has no more than {len(network):,} neurons")
        with samples.writer(out, best) as write:
            for found in ask(samples, "recalling", lambda x: network.recall(x, mask, k=best, inference=inference)):
                write(found.x)
                rows += zip(found.index.tolist(), found.score.tolist(), found.value)
    results = [
        {"name": name, "index": k, "score": score, "value": value}
        for name, (k, score, value) in zip(samples.names, rows)
    ]
    lines = [_recalled(**row) for row in results]
    about = {"memory": str(memory), "out": str(out), "samples": results, "skipped": [*samples.skipped]}
    print_either(about, lines, as_json)


def _recalled(name: str, index: Any, score: Any, value: Any) -> str:
    """What was recalled, for people: the best, or as many of them as were wanted."""
    each = [(index, score, value)] if isinstance(index, int) else list(zip(index, score, value))
    said = ["" if v is None else f"  value {as_json_text(v)}" for _, _, v in each]
    found = [f"neuron {j}  score {s:.6f}{text}" for (j, s, _), text in zip(each, said)]
    return "  ".join([name, *found])


def recognize(
    sources: Sources, memory: MemoryFile, resize: Resize = None, skip_bad: SkipBad = False, as_json: AsJson = False
) -> None:
    """Say of each sample whether the memory has met it before: old or new."""
    rows: list[tuple[bool, float, float]] = []
    wanted = Wanted(sources, size_of(resize), skip_bad)
    with failing(*WRONG, tell=say):
        network = load(memory)
        samples = open_samples(wanted, network.input_shape)
        for judged in ask(samples, "recognizing", network.recognize):
            rows += zip(judged.old.tolist(), judged.score.tolist(), judged.threshold.tolist())
    results = [
        {"name": name, "old": known, "score": score if math.isfinite(score) else None, "threshold": threshold}
        for name, (known, score, threshold) in zip(samples.names, rows)
    ]
    lines = [
        f"{name}  {'old' if known else 'new'}  score {score:.6f}  threshold {threshold:.6f}"
        for name, (known, score, threshold) in zip(samples.names, rows)
    ]
    old = sum(known for known, _, _ in rows)
    new = len(rows) - old
    lines.append(f"{old:,} old, {new:,} new")
    about = {"memory": str(memory), "old": old, "new": new, "samples": results, "skipped": [*samples.skipped]}
    print_either(about, lines, as_json)


def info(
    memory: Annotated[Path, typer.Argument(help="The file of the memory.")],
    as_json: AsJson = False,
) -> None:
    """Describe a memory from the header of its file; its content is read and checked only when it is used."""
    from sqhn.model.calibration import Calibration
    from sqhn.storage.files import describe

    with failing(*WRONG, tell=say):
        about = describe(check_there(memory))
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
        )
    if about["calibration"]:
        lines.append(f"{Calibration(**about['calibration'])} as it was then")
    if about["forgotten"]:
        lines.append(f"{about['forgotten']:,} neurons of the memory node were forgotten: their places are free")
    if about["holes"]:
        lines.append("samples with missing values were learned")
    if about["values"]:
        lines.append("some neurons have values")
    lines.append("options: " + ", ".join(f"{name} {value}" for name, value in about["options"].items()))
    print_either(about, lines, as_json)
