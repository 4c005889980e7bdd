"""A memory in a file: found, loaded, asked, and learned into."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sqhn.cli.common import progress, say
from sqhn.cli.settings import Settings
from sqhn.cli.stopping import Stop

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sqhn.network import SQHN
    from sqhn.samples import Samples

__all__ = ["Learned", "Wanted", "ask", "check_there", "learn_into", "load", "open_samples"]

Answer = TypeVar("Answer")


class Wanted(NamedTuple):
    """Which samples a command is for."""

    sources: list[str]
    size: tuple[int, int] | None
    skip_bad: bool


def check_there(path: Path) -> Path:
    """The path of a memory, if it is one of a file."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a memory")
    if not path.exists():
        raise FileNotFoundError(f"there is no memory {path}: `sqhn learn` makes one")
    if not path.is_file():  # to read a pipe would be to wait for whoever writes to it
        raise OSError(f"{path} is not a file, so not a memory")
    return path


def load(path: Path) -> SQHN:
    """The memory of a file."""
    from sqhn.network import SQHN

    return SQHN.load(check_there(path))


def open_samples(wanted: Wanted, shape: tuple[int, ...] | None) -> Samples:
    """The samples that the command names; what is skipped is said. shape: that of the samples of a memory."""
    from sqhn.samples import read

    samples = read(wanted.sources, shape, wanted.size, wanted.skip_bad)
    for reason in samples.skipped.values():
        say(f"skipped: {reason}")
    return samples


def ask(samples: Samples, verb: str, question: Callable[[NDArray[Any]], Answer]) -> Iterator[Answer]:
    """The answers for chunk after chunk, with a progress bar for people."""
    from rich.progress import Progress

    from sqhn.memory import EmptyMemoryError

    done = 0
    with Progress(console=progress, transient=True, disable=not progress.is_terminal) as bar:
        task = bar.add_task(verb, total=len(samples))
        for chunk in samples.chunks():
            try:
                yield question(chunk)
            except EmptyMemoryError:
                raise
            except ValueError as error:
                raise ValueError(f"counting from sample {samples.names[done]}: {error}") from error
            done += len(chunk)
            bar.update(task, completed=done)


@dataclass
class Learned:
    """What came of learning: the memory, the samples, how many were learned, and how many neurons that grew."""

    network: SQHN
    samples: Samples
    learned: int
    grown: int


def learn_into(memory: Path, wanted: Wanted, settings: Settings, stop: Stop) -> Learned:
    """Learn and save, alone: others wait from before the memory is read until it is written.

    Links are followed, and stay: what they lead to is replaced.
    """
    from sqhn.lockfile import held

    stop.arm()
    place = Path(os.path.realpath(memory))
    if not os.access(place.parent, os.W_OK):  # say so before an hour of learning, not after
        raise PermissionError(f"{memory} cannot be written: its folder does not exist, or is write-protected")
    if memory.exists():
        check_there(memory)
    with held(memory, say):
        network, samples = _open_to_learn(memory, wanted, settings)
        step, neurons = network.step, len(network)
        try:
            for _ in ask(samples, "learning", network.learn):
                if stop.asked:  # and the interrupt was lost: in what is called when an object goes, Python drops it
                    break
            stop.armed = False
        except KeyboardInterrupt:
            stop.armed = False
            stop.number = stop.number or signal.SIGINT
        learned = network.step - step
        if learned:
            network.save(place)
    return Learned(network, samples, learned, len(network) - neurons)


def _open_to_learn(memory: Path, wanted: Wanted, settings: Settings) -> tuple[SQHN, Samples]:
    """The memory, loaded or new, and the samples it is going to learn."""
    if memory.exists():
        network = load(memory)
        settings.apply(memory, network)
        return network, open_samples(wanted, network.input_shape)
    settings.check_new(memory)
    samples = open_samples(wanted, None)
    return settings.make(samples.shape), samples
