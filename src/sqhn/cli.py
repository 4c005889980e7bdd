"""The `sqhn` command."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sqhn.level import Level
    from sqhn.network import SQHN
    from sqhn.samples import Arrays, Pictures

app = typer.Typer(no_args_is_help=True, add_completion=False, help="An associative memory that learns from a stream.")
data_app = typer.Typer(no_args_is_help=True, help="Data sets: which there are, and getting them.")
app.add_typer(data_app, name="data")
progress = Console(stderr=True)


PACKAGES = {"skimage": "scikit-image", "sklearn": "scikit-learn"}  # where modules have other names
EXTRAS = {"torch": "torch", "ray": "ray", "distributed": "dask"}  # those of all other packages are the experiments'


@contextmanager
def extras() -> Iterator[None]:
    """A missing extra package is a line that names it and says what to install."""
    try:
        yield
    except ImportError as error:
        progress.print(_missing(error), markup=False, soft_wrap=True)
        raise typer.Exit(1) from error


def _missing(error: ImportError) -> str:
    """What is missing and how to get it; an error that says both already says it best."""
    cause = error
    while isinstance(cause.__cause__, ImportError):
        cause = cause.__cause__
    if not isinstance(cause, ModuleNotFoundError) or not cause.name:  # it is there, but broken
        return f"{error}"
    module = cause.name.partition(".")[0]
    if "pip install" in str(error) and module in str(error).lower():
        return f"{error}"
    return f"{PACKAGES.get(module, module)} is not installed: pip install 'sqhn[{EXTRAS.get(module, 'experiments')}]'"


@contextmanager
def bars(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on stderr for each step of a job that tells (step, done, total)."""
    from rich.progress import Progress, TaskID

    with Progress(console=progress) as shown:
        steps: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in steps:
                steps[step] = shown.add_task(f"{title}: {step}")
            shown.update(steps[step], completed=done, total=total)

        yield show


@app.command()
def bench(
    cases: Annotated[list[str] | None, typer.Argument(help="Which cases to run; all of them if none is named.")] = None,
    device: Annotated[str, typer.Option(help="Where to measure: cpu or cuda.")] = "cpu",
) -> None:
    """Measure speed and size against comparators in the same run; prints JSON."""
    from sqhn import bench

    with extras():
        try:
            known = bench.cases(device)
        except (RuntimeError, ValueError) as error:
            raise typer.BadParameter(str(error)) from error
        for name in cases or []:
            if name not in known:
                raise typer.BadParameter(f"unknown case {name!r}; the cases are {', '.join(known)}")
        print(bench.run(cases or list(known), progress.print, device))


class Data(StrEnum):
    """Which data sets the experiments run on."""

    builtin = "builtin"
    paper = "paper"


class Preset(StrEnum):
    """The paper as its equations read, or the settings of the authors' published scripts."""

    default = "default"
    code = "code"


class Backend(StrEnum):
    """What runs jobs side by side."""

    loky = "loky"
    ray = "ray"
    dask = "dask"


IDS = (
    "Which experiments: T1-MOD T1-HIGH OC-L1 OC-L3 NE-L1 NE-L3 RC AC-B AC-C AC-D AC-E X-RECN S-EN S-ABL S-EMG S-EXM "
    "S-EXH TH1 TH2, or all, which is the default."
)


@app.command()
def reproduce(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help=IDS)] = None,
    data: Annotated[Data, typer.Option(help="The built-in data sets, or those of the paper.")] = Data.builtin,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds; each experiment's own by default.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many jobs at once; default: one for each core.")] = None,
    backend: Annotated[Backend, typer.Option(help="What runs them.")] = Backend.loky,
    device: Annotated[
        str | None,
        typer.Option(
            help="Where memories that use torch live, cpu or cuda. Naming it also runs GPCN and BayesPCN: hours."
        ),
    ] = None,
    preset: Annotated[Preset, typer.Option(help="The paper's equations, or its published code.")] = Preset.default,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, two seeds: minutes, not hours.")] = False,
    out: Annotated[Path, typer.Option(help="Where records and the report go; what is there is not run again.")] = Path(
        "out"
    ),
) -> None:
    """Run the paper's experiments and say claim by claim what was reproduced (extra packages: experiments).

    Ctrl-C keeps what is done; the same command goes on from there.
    """
    with extras():
        from sqhn.experiments.catalogue import EXPERIMENTS, jobs_of
        from sqhn.experiments.runner import other_runs, run

        if device is not None:
            _check_device(device)
        wanted = list(EXPERIMENTS) if not ids or ids == ["all"] else ids
        for name in wanted:
            if name not in EXPERIMENTS:
                raise typer.BadParameter(f"unknown experiment {name!r}; there are {', '.join(EXPERIMENTS)}, or all")
        how = (preset.value, seeds or (2 if quick else None), data is Data.builtin, quick)
        declared = {name: list(jobs_of(experiment, *how, heavy=True)) for name, experiment in EXPERIMENTS.items()}
        if strange := other_runs(out, declared):
            progress.print(
                f"{out} has records of {strange} with other settings (a quick run, another preset or other data?): "
                "a report is of one kind of run, so name another --out", markup=False, soft_wrap=True,
            )  # fmt: skip
            raise typer.Exit(1)
        todo = [job for name in wanted for job in jobs_of(EXPERIMENTS[name], *how, heavy=device is not None)]
        with files():
            out.mkdir(parents=True, exist_ok=True)
            outcome = run(todo, out, jobs or os.cpu_count() or 1, backend.value, progress, device or "cpu")
        if outcome.failed:
            failures = out / "failures.txt"
            failures.write_text("\n".join(f"{label}\n{text}" for label, text in outcome.failed.items()))
            progress.print(f"{len(outcome.failed)} jobs failed; what went wrong is in {failures}", markup=False)
        for what, experiments in outcome.missing.items():
            progress.print(f"{', '.join(experiments)}: {what}", markup=False, soft_wrap=True)
        if outcome.interrupted:
            progress.print("stopped; all that is done is kept, and the same command goes on from here", markup=False)
            raise typer.Exit(130)
        with files():
            _report(out)
    if outcome.failed:
        raise typer.Exit(1)


@contextmanager
def files() -> Iterator[None]:
    """A folder that cannot be written to, or a data set that is damaged, is a line; what is recorded stays."""
    from sqhn.data import DataFileError

    try:
        yield
    except (OSError, DataFileError) as error:
        progress.print(f"{error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from error


def _check_device(device: str) -> None:
    if device == "cpu":
        return
    from sqhn.baselines.training import load_torch

    if not device.startswith("cuda") or not load_torch().cuda.is_available():
        raise typer.BadParameter(f"{device!r} is not to be had here: say cpu, or cuda where torch sees a GPU")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of records, the --out of `sqhn reproduce`.")],
) -> None:
    """Judge every claim by the records of a folder; write the page, the figures and a summary there."""
    with extras(), files():
        _report(folder)


def _report(folder: Path) -> None:
    from rich import box
    from rich.table import Table

    from sqhn.experiments import records
    from sqhn.report.page import publish
    from sqhn.report.results import Results

    found = records.read(folder)
    if not found:
        progress.print(f"there are no records in {folder}: `sqhn reproduce --out {folder}` makes some", markup=False)
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


@data_app.command("list")
def data_list() -> None:
    """Which data sets there are, which of them are here, and how to get the others."""
    from rich.table import Table

    from sqhn.data.builtin import BUILT_IN, BuiltIn
    from sqhn.data.catalogue import CATALOGUE, Entry
    from sqhn.data.dataset import where

    table = Table(box=None, caption="sqhn data get NAME gets it from the first source that works", pad_edge=False)
    table.add_column("name", no_wrap=True)
    for heading in ("what it is", "pictures", "here?", "sources"):
        table.add_column(heading)
    known: dict[str, BuiltIn | Entry] = {**BUILT_IN, **CATALOGUE}
    for name, entry in known.items():
        shape = "x".join(map(str, entry.picture))
        pictures = f"{sum(entry.counts.values()):,} of {shape}, {entry.classes} classes"
        sources = CATALOGUE[name].sources if name in CATALOGUE else ()
        ways = [f"{way.title}, {way.size / 1e6:,.0f} MB" if way.size else way.title for way in sources]
        table.add_row(name, entry.what, pictures, where(name) or "missing", "; ".join(ways))
    Console().print(table)


@data_app.command("get")
def data_get(names: Annotated[list[str], typer.Argument(help="Which data sets; `sqhn data list` lists them.")]) -> None:
    """Download data sets, check them, and store them for this user (extra packages: experiments)."""
    from sqhn.data.dataset import NAMES, where
    from sqhn.data.fetch import FetchError, get

    for name in names:
        if name not in NAMES:
            raise typer.BadParameter(f"unknown data set {name!r}; there are {', '.join(NAMES)}")
    for name in names:
        if here := where(name):
            print(f"{name} is already here: {here}")
            continue
        with extras(), bars(name) as show:
            try:
                source = get(name, show)
            except (FetchError, OSError) as error:
                progress.print(f"{error}", markup=False, soft_wrap=True)
                raise typer.Exit(1) from error
        print(f"{name}: stored, from {source}")


# -- one's own data ----------------------------------------------------------------------------------------------

Source = Annotated[
    Path, typer.Argument(help="A folder of pictures (.png, .jpg, .jpeg), one picture, or a .npy file of samples.")
]
MemoryFile = Annotated[Path, typer.Option("--memory", help="The file of the memory.")]
Resize = Annotated[
    str | None, typer.Option(metavar="WIDTHxHEIGHT", help="Scale all pictures to this size; 64x48 is 64 wide.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Answer = TypeVar("Answer")


class Rule(StrEnum):
    """The rules of recall that the command offers."""

    paper = "paper"
    exact = "exact"


@app.command()
def learn(
    source: Source,
    memory: MemoryFile,
    capacity: Annotated[int | None, typer.Option(min=1, help="The most neurons of a node of a new memory.")] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="A new memory as a tree, from the input up: 2:600,4:600,600 are KERNEL:CAPACITY and the memory "
            "node's CAPACITY; with --capacity just kernels, as 2,4. A kernel 4x2 has 4 rows and 2 columns.",
        ),
    ] = None,
    resize: Resize = None,
    as_json: AsJson = False,
) -> None:
    """Learn pictures or arrays, in the order of their names; a memory that exists goes on where it stopped.

    Ctrl-C saves what was learned so far, and so do SIGTERM and SIGHUP. After any error the file is as it was. While
    another process learns into the same file, this one waits.
    """
    done: Learned | None = None
    started, size = _levels(levels, capacity), _size(resize)
    with stoppable() as stop:
        with one_line(), suppress(KeyboardInterrupt):
            done = _learn(source, memory, started, size, stop)
        if done is None:
            _say(f"stopped before anything was learned: {memory} is as it was")
            raise typer.Exit(stop.status)
        report = {
            "memory": str(memory),
            "learned": done.learned,
            "grown": done.grown,
            "neurons": len(done.network),
            "capacity": done.network.capacity,
            "step": done.network.step,
            "interrupted": stop.asked,
        }
        text = (
            f"learned {done.learned:,} samples, {done.grown:,} of them as new neurons; "
            f"{memory} has {len(done.network):,} of {done.network.capacity:,} neurons "
            f"after {done.network.step:,} samples"
        )
        _print(report, [text] if done.learned else [], as_json)
        if stop.asked:
            kept = f"are saved in {memory}" if done.learned else "were learned: nothing is saved"
            _say(f"stopped: {done.learned:,} of {done.given:,} samples {kept}")
            raise typer.Exit(stop.status)


@app.command()
def recall(
    source: Source,
    memory: MemoryFile,
    out: Annotated[
        Path, typer.Option(help="Where to write: a folder, or for one picture or array a .png or .npy file.")
    ],
    observed: Annotated[
        Path | None,
        typer.Option(
            metavar="MASK",
            help="What was seen of every sample: a picture, black where it is missing (PNG, for JPEG blurs black), "
            "or a boolean .npy file.",
        ),
    ] = None,
    inference: Annotated[Rule, typer.Option(help="The paper's one sweep, or the true maximum of the energy.")] = (
        Rule.paper
    ),
    resize: Resize = None,
    as_json: AsJson = False,
) -> None:
    """Write the stored sample that each sample reminds of: pictures as .png of the same name, arrays as .npy."""
    from sqhn.samples import read, read_mask

    rows: list[tuple[int, float]] = []
    size = _size(resize)
    with one_line():
        network = _load(memory)
        samples = read(source, network.input_shape, size)
        mask = None if observed is None else read_mask(observed, network.input_shape, size)
        with samples.writer(out) as write:
            for found in _ask(samples, "recalling", lambda x: network.recall(x, mask, inference=inference.value)):
                write(found.x)
                rows += zip(found.index.tolist(), found.score.tolist())
    results = [{"name": name, "index": k, "score": score} for name, (k, score) in zip(samples.names, rows)]
    lines = [f"{row['name']}  neuron {row['index']}  score {row['score']:.6f}" for row in results]
    _print({"memory": str(memory), "out": str(out), "samples": results}, lines, as_json)


@app.command()
def recognize(source: Source, memory: MemoryFile, resize: Resize = None, as_json: AsJson = False) -> None:
    """Say of each sample whether the memory has met it before: old or new."""
    from sqhn.samples import read

    rows: list[tuple[bool, float, float]] = []
    size = _size(resize)
    with one_line():
        network = _load(memory)
        samples = read(source, network.input_shape, size)
        for judged in _ask(samples, "recognizing", network.recognize):
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
    lines.append(f"{old:,} old, {len(rows) - old:,} new")
    _print({"memory": str(memory), "old": old, "new": len(rows) - old, "samples": results}, lines, as_json)


@app.command()
def info(
    memory: Annotated[Path, typer.Argument(help="The file of the memory.")],
    as_json: AsJson = False,
) -> None:
    """Describe a memory from the header of its file; its content is read and checked only when it is used."""
    from sqhn.io import describe

    with one_line():
        about = describe(_there(memory))
    lines = [
        f"{memory}: {about['bytes']:,} bytes, format {about['format']}",
        f"samples of shape {about['input_shape']}; {about['step']:,} learned",
    ]
    for number, level in enumerate(about["levels"], start=1):
        grown = level["grown"]
        kernel = "all" if level["kernel"] is None else _by(level["kernel"])
        lines.append(
            f"level {number}: kernel {kernel}, nodes {level['nodes']:,}, capacity {level['capacity']:,}, "
            f"grown {grown['min']:,} / {grown['mean']:,.1f} / {grown['max']:,} (min / mean / max), "
            f"alpha {float(level['alpha']):g}, gamma {level['gamma']:g}, when full {level['when_full']}"
        )
    lines.append("options: " + ", ".join(f"{name} {value}" for name, value in about["options"].items()))
    _print(about, lines, as_json)


@contextmanager
def one_line() -> Iterator[None]:
    """What is wrong with a file or a sample is a line, not a traceback. So is a lack of memory."""
    try:
        yield
    except (OSError, ValueError) as error:
        _say(f"{error}")
        raise typer.Exit(1) from error
    except MemoryError as error:
        _say(f"not enough memory: {error}".removesuffix(": "))
        raise typer.Exit(1) from error


def _say(text: str) -> None:
    """Tell people something, on one line of stderr."""
    print(" ".join(text.splitlines()), file=sys.stderr)


def _print(document: dict[str, Any], lines: list[str], as_json: bool) -> None:
    """Print one or the other; what the terminal cannot write of the name of a file is escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        for line in [json.dumps(document, indent=2, allow_nan=False)] if as_json else lines:
            print(line.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        raise
    except OSError as error:
        _say(f"all is done, but the results cannot be printed: {error}")
        raise typer.Exit(1) from error


ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@dataclass
class Stop:
    """The function of the signals that end a command: while it is armed the first of them interrupts, no other does.

    Before and after that they are noted: what is being done then is done to the end.
    """

    number: int | None = None
    armed: bool = False

    def __call__(self, number: int, frame: FrameType | None = None) -> None:  # noqa: ARG002
        self.number = self.number or number
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def arm(self) -> None:
        """From now on a signal interrupts; if there was one already, at once."""
        self.armed = True
        if self.number is not None:
            self(self.number)

    @property
    def asked(self) -> bool:
        """Whether there was a signal."""
        return self.number is not None

    @property
    def status(self) -> int:
        """The exit status of a command that a signal ended, as shells count."""
        return 128 + (self.number or signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """For the length of a block, Ctrl-C, SIGTERM and a closed terminal do the same; what is ignored stays so."""
    stop = Stop()
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # others are never interrupted
            for ending in ENDING:
                if signal.getsignal(ending) not in (signal.SIG_IGN, None):
                    before[ending] = signal.signal(ending, stop)
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ask(samples: Pictures | Arrays, verb: str, question: Callable[[NDArray[Any]], Answer]) -> Iterator[Answer]:
    """The answers for chunk after chunk, with a progress bar for people."""
    from rich.progress import track

    from sqhn.memory import EmptyMemoryError

    done, total = 0, -(-len(samples) // samples.chunk)
    hidden = not progress.is_terminal
    for chunk in track(samples, verb, total, console=progress, transient=True, disable=hidden):
        try:
            yield question(chunk)
        except EmptyMemoryError:
            raise
        except ValueError as error:
            raise ValueError(f"counting from sample {samples.names[done]}: {error}") from error
        done += len(chunk)


def _load(path: Path) -> SQHN:
    from sqhn.network import SQHN

    return SQHN.load(_there(path))


def _there(path: Path) -> Path:
    """The path of a memory, if it is one of a file."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a memory")
    if not path.exists():
        raise FileNotFoundError(f"there is no memory {path}: `sqhn learn` makes one")
    if not path.is_file():  # to read a pipe would be to wait for whoever writes to it
        raise OSError(f"{path} is not a file, so not a memory")
    return path


@dataclass
class Learned:
    """What came of learning: the memory, how many samples were given and learned, and how many neurons that grew."""

    network: SQHN
    given: int
    learned: int
    grown: int


def _learn(source: Path, memory: Path, levels: list[Level] | None, size: tuple[int, int] | None, stop: Stop) -> Learned:
    """Learn and save, alone: others wait from before the memory is read until it is written.

    Links are followed, and stay: what they lead to is replaced.
    """
    from sqhn.lockfile import held

    stop.arm()
    place = Path(os.path.realpath(memory))
    if not os.access(place.parent, os.W_OK):  # say so before an hour of learning, not after
        raise PermissionError(f"{memory} cannot be written: its folder does not exist, or is write-protected")
    if memory.exists():
        _there(memory)
    with held(memory, _say):
        network, samples = _open_to_learn(source, memory, levels, size)
        step, neurons = network.step, len(network)
        try:
            for _ in _ask(samples, "learning", network.learn):
                if stop.asked:  # and the interrupt was lost: in what is called when an object goes, Python drops it
                    break
            stop.armed = False
        except KeyboardInterrupt:
            stop.armed = False
            stop.number = stop.number or signal.SIGINT
        learned = network.step - step
        if learned:
            network.save(place)
    return Learned(network, len(samples), learned, len(network) - neurons)


def _open_to_learn(
    source: Path, memory: Path, levels: list[Level] | None, size: tuple[int, int] | None
) -> tuple[SQHN, Pictures | Arrays]:
    """The memory, loaded or new, and the samples it is going to learn."""
    from sqhn.network import SQHN
    from sqhn.samples import read

    if memory.exists():
        network = _load(memory)
        wanted, there = _spell(levels or network.levels), _spell(network.levels)
        if wanted != there:
            raise ValueError(
                f"{memory} has levels {there}, but the options say {wanted}: "
                "leave out --capacity and --levels to go on with it, or name a new file"
            )
        return network, read(source, network.input_shape, size)
    if levels is None:
        raise typer.BadParameter(f"there is no {memory} yet: give --capacity, or --levels with capacities")
    samples = read(source, None, size)
    return SQHN(samples.shape, levels), samples


def _size(text: str | None) -> tuple[int, int] | None:
    from sqhn.samples import parse_size

    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}", param_hint="--resize") from error


def _levels(text: str | None, capacity: int | None) -> list[Level] | None:
    """The levels that --levels and --capacity describe together; None if neither is given."""
    from sqhn.level import Level

    try:
        node = [] if capacity is None else [Level(capacity=capacity)]
    except ValueError as error:
        raise typer.BadParameter(f"{error}", param_hint="--capacity") from error
    if text is None:
        return node or None
    levels = []
    pieces = text.split(",")
    for number, piece in enumerate(pieces, start=1):
        match = re.fullmatch(r"([0-9]+(?:x[0-9]+)*)(?::([0-9]+))?", piece.strip())
        try:
            if match is None:
                raise ValueError("a level is KERNEL:CAPACITY, such as 2:600 or 4x2:600")
            sides = tuple(map(int, match[1].split("x")))
            if match[2] and capacity is not None:
                raise ValueError("it has a capacity, and --capacity is one for all: give one of them")
            own = int(match[2]) if match[2] else capacity
            if own is not None:
                levels.append(Level(sides if len(sides) > 1 else sides[0], own))
            elif number == len(pieces) and len(sides) == 1:
                levels.append(Level(capacity=sides[0]))  # the memory node
            else:
                raise ValueError(f"it has no capacity: write {piece.strip()}:N, or give --capacity for all levels")
        except ValueError as error:
            raise typer.BadParameter(f"{piece!r}: {error}", param_hint="--levels") from error
    return levels + node


def _spell(levels: Sequence[Level]) -> str:
    """Levels as --levels takes them."""
    return ",".join(
        f"{level.capacity}" if level.kernel is None else f"{_by(level.kernel)}:{level.capacity}" for level in levels
    )


def _by(kernel: int | Sequence[int]) -> str:
    """A kernel as --levels takes it; 2 is 2x2."""
    sides = (kernel,) if isinstance(kernel, int) else tuple(kernel)
    return str(sides[0]) if len(sides) == 2 and sides[0] == sides[1] else "x".join(map(str, sides))


if __name__ == "__main__":
    app()
