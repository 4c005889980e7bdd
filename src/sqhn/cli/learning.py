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
from sqhn.storage.atomic import check_writable

if TYPE_CHECKING:
    from sqhn.cli.samples import Samples
    from sqhn.memory import SQHN

__all__ = ["Learned", "learn_into"]


@dataclass
class Learned:
    """What came of learning: how many samples were learned, how many became neurons, and in the place of others.

    Of samples that were being learned when it was stopped, what is seen of them afterwards counts.
    """

    run: Run
    learned: int = 0
    grown: int = 0
    replaced: int = 0


def learn_into(memory: Path, wanted: Wanted, settings: Settings, checkpoint: float | None, stop: Stop) -> Learned:
    """Learn and save, alone: others wait from before the memory is read until it is written.

    Links are followed, and stay: what they lead to is replaced. checkpoint: after how many seconds to save meanwhile.
    """
    from sqhn.storage.locks import held

    stop.arm()
    check_writable(memory)
    if memory.exists():
        check_there(memory)
    with held(memory, say):
        network, samples = _open_to_learn(memory, wanted, settings)
        step = network.step
        run = Run(memory, network, samples)
        done = Learned(run)
        try:
            _learn(done, checkpoint, stop)
            stop.armed = False
        except KeyboardInterrupt:
            stop.armed = False
            stop.number = stop.number or signal.SIGINT
        except Exception:
            if run.saved.step > step:
                say(f"{run.saved.samples:,} of {len(samples):,} samples are saved in {memory}")
            raise
        done.learned = network.step - step
        if done.learned or not stop.asked:
            run.save()
    return done


def _open_to_learn(memory: Path, wanted: Wanted, settings: Settings) -> tuple[SQHN, Samples]:
    """The memory, loaded or new, and the samples it is going to learn."""
    if memory.exists():
        network = load(memory)
        settings.apply(memory, network)
        return network, open_samples(wanted, network.input_shape)
    settings.check_new(memory)
    samples = open_samples(wanted, None)
    return settings.make(samples.shape), samples


def _learn(done: Learned, checkpoint: float | None, stop: Stop) -> None:
    run = done.run
    saved, neurons = time.monotonic(), len(run.network)
    try:
        for written in ask(run.samples, "learning", run.network.learn, run.start):
            grown, replaced, neurons = written.grew.sum(), written.replaced.sum(), len(run.network)
            done.grown, done.replaced = done.grown + int(grown), done.replaced + int(replaced)
            if stop.asked:  # and the interrupt was lost: in what is called when an object goes, Python drops it
                break
            if checkpoint is not None and time.monotonic() - saved >= checkpoint:
                stop.armed = False  # saving is done to the end
                run.save()
                saved = time.monotonic()
                stop.arm()
    finally:
        done.grown += len(run.network) - neurons
