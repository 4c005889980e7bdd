"""Learning into a memory in a file."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqhn.cli.common import say
from sqhn.cli.memory_file import Wanted, ask, check_there, load, open_samples
from sqhn.cli.run import Run
from sqhn.cli.settings import Settings
from sqhn.cli.stopping import Stop
from sqhn.files import check_writable

if TYPE_CHECKING:
    from sqhn.network import SQHN
    from sqhn.samples import Samples

__all__ = ["Learned", "learn_into"]


@dataclass
class Learned:
    """What came of learning: the run, how many samples it learned, and how many neurons that grew."""

    run: Run
    learned: int
    grown: int


def learn_into(memory: Path, wanted: Wanted, settings: Settings, checkpoint: float | None, stop: Stop) -> Learned:
    """Learn and save, alone: others wait from before the memory is read until it is written.

    Links are followed, and stay: what they lead to is replaced. checkpoint: after how many seconds to save meanwhile.
    """
    from sqhn.lockfile import held

    stop.arm()
    check_writable(memory)
    if memory.exists():
        check_there(memory)
    with held(memory, say):
        network, samples = _open_to_learn(memory, wanted, settings)
        step, neurons = network.step, len(network)
        run = Run(memory, network, samples)
        try:
            _learn(run, checkpoint, stop)
            stop.armed = False
        except KeyboardInterrupt:
            stop.armed = False
            stop.number = stop.number or signal.SIGINT
        except Exception:
            if run.saved.step > step:
                say(f"{run.saved.samples:,} of {len(samples):,} samples are saved in {memory}")
            raise
        learned = network.step - step
        if learned or not stop.asked:
            run.save()
    return Learned(run, learned, len(network) - neurons)


def _open_to_learn(memory: Path, wanted: Wanted, settings: Settings) -> tuple[SQHN, Samples]:
    """The memory, loaded or new, and the samples it is going to learn."""
    if memory.exists():
        network = load(memory)
        settings.apply(memory, network)
        return network, open_samples(wanted, network.input_shape)
    settings.check_new(memory)
    samples = open_samples(wanted, None)
    return settings.make(samples.shape), samples


def _learn(run: Run, checkpoint: float | None, stop: Stop) -> None:
    saved = time.monotonic()
    for _ in ask(run.samples, "learning", run.network.learn, run.start):
        if stop.asked:  # and the interrupt was lost: in what is called when an object goes, Python drops it
            break
        if checkpoint is not None and time.monotonic() - saved >= checkpoint:
            stop.armed = False  # saving is done to the end
            run.save()
            saved = time.monotonic()
            stop.arm()
