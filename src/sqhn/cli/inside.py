"""A look inside a memory, what it should forget, its tolerance: `sqhn show`, `sqhn forget` and `sqhn calibrate`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Literal

import typer

from sqhn.cli.common import WRONG, failing, print_either, say
from sqhn.cli.memory_file import Wanted, check_there, load, open_samples, size_of
from sqhn.cli.options import AsJson, MemoryFile, Resize, SkipBad, Sources

__all__ = ["calibrate", "forget", "show"]


def show(
    memory: Annotated[Path, typer.Argument(help="The file of the memory.")],
    out: Annotated[Path, typer.Option(help="The picture to write, a .png file.")],
    most: Annotated[int, typer.Option(min=1, help="Of so many neurons.")] = 400,
    as_json: AsJson = False,
) -> None:
    """Draw what a memory has stored: a sheet of pictures, each with how many samples it was learned from."""
    from sqhn.display import sheet
    from sqhn.storage.atomic import write_whole

    with failing(*WRONG, tell=say):
        if out.suffix.lower() != ".png":
            raise ValueError(f"{out} should be a .png file")
        network, file = load(memory), io.BytesIO()
        picture, shown = sheet(network, most)
        picture.save(file, "PNG")
        write_whole(out, file.getvalue())
    text = f"{out} shows {shown:,} of {len(network):,} neurons"
    print_either({"memory": str(memory), "out": str(out), "shown": shown, "neurons": len(network)}, [text], as_json)


def forget(
    memory: Annotated[Path, typer.Argument(help="The file of the memory.")],
    index: Annotated[
        list[int], typer.Argument(metavar="NEURON...", help="As `show`, `recall` and `learn` number them.")
    ],
    as_json: AsJson = False,
) -> None:
    """Forget neurons: they are never recalled, and their places are used for what is learned next."""
    from sqhn.storage.locks import held

    with failing(*WRONG, IndexError, tell=say), held(check_there(memory), say):
        network = load(memory)
        network.forget(index)
        network.save(Path(memory).resolve())
    gone = len(set(index))
    text = f"forgot {gone:,} neuron{'' if gone == 1 else 's'}; {memory} has {len(network):,} of {network.capacity:,}"
    print_either({"memory": str(memory), "forgotten": sorted(set(index)), "neurons": len(network)}, [text], as_json)


def calibrate(
    sources: Sources,
    memory: MemoryFile,
    kind: Annotated[
        Literal["new", "old"],
        typer.Option("--as", help="What the samples are: new to the memory, or old ones as they are met again."),
    ],
    error: Annotated[float, typer.Option(help="The share of samples like these that may be judged wrongly.")] = 0.01,
    resize: Resize = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Set the tolerance of `recognize` by samples, so that it keeps a promise about others like them."""
    import numpy as np

    from sqhn.storage.locks import held

    wanted = Wanted(sources, size_of(resize), skip_bad)
    with failing(*WRONG, tell=say), held(check_there(memory), say):
        network = load(memory)
        samples = open_samples(wanted, network.input_shape)
        x = np.concatenate(list(samples.chunks()))
        rho = network.calibrate(new=x, error=error) if kind == "new" else network.calibrate(old=x, error=error)
        network.save(Path(memory).resolve())
    wrong = "old" if kind == "new" else "new"
    text = f"rho is {rho:.9g}: at most {error:g} of {kind} samples will be called {wrong}, by {len(x):,} of them"
    about = {"memory": str(memory), "rho": rho, "kind": kind, "error": error, "samples": len(x)}
    print_either({**about, "skipped": [*samples.skipped]}, [text], as_json)
