"""`sqhn recall` and `sqhn recognize`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sqhn.cli.common import as_json_text, load, map_chunks, print_results
from sqhn.cli.options import AsJson, Judging, MemoryFile, Resize, SkipBad, Sources
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
        Literal["paper", "feedforward", "exact", "evidence"],
        typer.Option(
            help="The rule of recall: the paper's sweep up and down; the way up alone; the true maximum of the energy; "
            "or evidence, for samples with any damage."
        ),
    ] = "paper",
    resize: Resize = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Write the stored sample that matches each sample best: images as .png of the same name, arrays as .npy.

    Files keep their places below the folder that all sources share.
    """
    rows: list[tuple[Any, Any, Any]] = []
    network = load(memory)
    samples = read(sources, network.input_shape, resize, skip_bad)
    mask = None if observed is None else read_mask(observed, network.input_shape, resize)
    if best is not None and 0 < len(network) < best:
        raise ValueError(f"-k {best}, but {memory} has only {len(network):,} neurons")

    def recall_chunk(x: Any) -> Any:
        found = network.recall(x, mask, k=best, inference=inference)
        rows.extend(zip(found.index.tolist(), found.score.tolist(), found.value))
        return found.x

    samples.write(out, map_chunks(samples, "recalling", recall_chunk))
    results = [
        {"name": name, "index": index, "score": score, "value": value}
        for name, (index, score, value) in zip(samples.names, rows)
    ]
    document = {"memory": str(memory), "out": str(out), "samples": results, "skipped": [*samples.skipped]}
    print_results(document, [_recalled_line(**row) for row in results], as_json)


def _recalled_line(name: str, index: Any, score: Any, value: Any) -> str:
    """The name of a sample and its best neurons."""
    best = [(index, score, value)] if isinstance(index, int) else zip(index, score, value)
    found = [
        f"neuron {j}  score {s:.6f}{'' if label is None else f'  value {as_json_text(label)}'}" for j, s, label in best
    ]
    return "  ".join([name, *found])


def recognize(
    sources: Sources,
    memory: MemoryFile,
    inference: Judging = "paper",
    resize: Resize = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Tell for each sample whether the memory has learned it before: old or new."""
    rows: list[tuple[bool, float, float]] = []
    network = load(memory)
    samples = read(sources, network.input_shape, resize, skip_bad)
    for found in map_chunks(samples, "recognizing", lambda x: network.recognize(x, inference=inference)):
        rows += zip(found.old.tolist(), found.score.tolist(), found.threshold.tolist())
    results = [
        {"name": name, "old": old, "score": score if math.isfinite(score) else None, "threshold": threshold}
        for name, (old, score, threshold) in zip(samples.names, rows)
    ]
    lines = [
        f"{name}  {'old' if old else 'new'}  score {score:.6f}  threshold {threshold:.6f}"
        for name, (old, score, threshold) in zip(samples.names, rows)
    ]
    old = sum(row[0] for row in rows)
    new = len(rows) - old
    document = {"memory": str(memory), "old": old, "new": new, "samples": results, "skipped": [*samples.skipped]}
    print_results(document, [*lines, f"{old:,} old, {new:,} new"], as_json)
