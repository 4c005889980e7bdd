"""`sqhn recall` and `sqhn recognize`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sqhn.cli.common import load, map_chunks, of, print_results, say
from sqhn.cli.options import AsJson, MemoryFile, SkipBad, Sources
from sqhn.cli.samples import read, read_mask


def recall(
    sources: Sources,
    memory: MemoryFile,
    out: Annotated[
        Path, typer.Option(help="Where to write: a folder, or for a single source file a .png or .npy file.")
    ],
    best: Annotated[
        int | None,
        typer.Option("-k", min=1, help="Recall the k best: images side by side, arrays with one more axis."),
    ] = None,
    observed: Annotated[
        Path | None,
        typer.Option(
            metavar="MASK",
            help="The observed values of every sample: an image, black where they are missing (PNG, since JPEG blurs "
            "black), or a boolean .npy file.",
        ),
    ] = None,
    inference: Annotated[
        Literal["paper", "feedforward", "exact", "evidence"] | None,
        typer.Option(
            help="The rule of recall: the paper's sweep up and down; the way up alone; the true maximum of the energy; "
            "or evidence, for samples with any damage. By default evidence for images, and the paper's for arrays."
        ),
    ] = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Write the stored sample that matches each sample best: images as .png of the same name, arrays as .npy.

    Files keep their places below the folder that all sources share. The name of the stored sample is printed as its
    value. Images are scaled to the size of the memory.
    """
    network = load(memory)
    samples = read(sources, network.input_shape, skip_bad=skip_bad)
    rule = inference or samples.rule
    mask = None if observed is None else read_mask(observed, network.input_shape)
    if best is not None and 0 < len(network) < best:
        raise ValueError(f"-k {best}, but {memory} has only {len(network):,} neurons")
    names = iter(samples.names)
    rows: list[dict[str, Any]] = []

    def recall_chunk(x: Any) -> Any:
        found = network.recall(x, mask, k=best, inference=rule)
        for index, score, value in zip(found.index.tolist(), found.score.tolist(), found.value):
            rows.append({"name": next(names), "index": index, "score": score, "value": value})
        return found.x

    samples.write(out, map_chunks(samples, "recalling", recall_chunk))
    document = {"memory": str(memory), "out": str(out), "inference": rule, "samples": rows}
    lines = [*(_recalled_line(**row) for row in rows), f"recalled {len(rows):,} (rule: {rule})"]
    print_results({**document, "skipped": [*samples.skipped]}, lines, as_json)


def _recalled_line(name: str, index: Any, score: Any, value: Any) -> str:
    """The name of a sample and its best neurons."""
    best = [(index, score, value)] if isinstance(index, int) else zip(index, score, value)
    return "  ".join([name, *(f"neuron {j}  score {s:.6f}{of(label)}" for j, s, label in best)])


def recognize(
    sources: Sources,
    memory: MemoryFile,
    inference: Annotated[
        Literal["paper", "evidence"] | None,
        typer.Option(
            help="The rule of recognition: the paper's, or evidence, for samples with any damage. By default evidence "
            "once `calibrate` has found its threshold."
        ),
    ] = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Tell for each sample whether the memory has learned it before: old or new.

    Of old samples the neuron and the name of the stored sample are printed. Images are scaled to the size of the
    memory.
    """
    network = load(memory)
    samples = read(sources, network.input_shape, skip_bad=skip_bad)
    calibrated = network.inspect(lambda model: model.evidence_calibration is not None)
    rule = inference or ("evidence" if calibrated else "paper")
    find = f"`sqhn calibrate NEW --as new --inference evidence --memory {memory}` finds one from new samples"
    if rule == "evidence" and not calibrated:
        raise ValueError(f"{memory} has no threshold for evidence: {find}")
    if inference is None and samples.rule == "evidence" and not calibrated and network.options.rho is None:
        say(f"changed copies count as new without a threshold for evidence: {find}")
    names = iter(samples.names)
    rows: list[dict[str, Any]] = []

    def recognize_chunk(x: Any) -> None:
        found = network.recognize(x, inference=rule)
        best = network.recall(x[found.old], inference=rule) if found.old.any() else None
        known = iter([]) if best is None else zip(best.index.tolist(), best.value)
        for old, score, threshold in zip(found.old.tolist(), found.score.tolist(), found.threshold.tolist()):
            index, value = next(known) if old else (None, None)
            rows.append(
                {
                    "name": next(names),
                    "old": old,
                    "score": score if math.isfinite(score) else None,
                    "threshold": threshold,
                    "index": index,
                    "value": value,
                }
            )

    for _ in map_chunks(samples, "recognizing", recognize_chunk):
        pass
    old = sum(row["old"] for row in rows)
    document = {"memory": str(memory), "inference": rule, "old": old, "new": len(rows) - old, "samples": rows}
    lines = [*(_recognized_line(**row) for row in rows), f"{old:,} old, {len(rows) - old:,} new (rule: {rule})"]
    print_results({**document, "skipped": [*samples.skipped]}, lines, as_json)


def _recognized_line(name: str, old: bool, score: float | None, threshold: float, index: int | None, value: Any) -> str:
    verdict = "old" if old else "new"
    score = -math.inf if score is None else score
    found = f"  neuron {index}{of(value)}" if old else ""
    return f"{name}  {verdict}  score {score:.6f}  threshold {threshold:.6f}{found}"
