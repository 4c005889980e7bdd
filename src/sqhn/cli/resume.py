"""Signals that stop learning at a safe point, and learning that continues where an interrupted run was saved last.

Until all samples are learned, a note beside the memory (`m.sqhn.progress`) says how many samples of which files were
learned. It is written before the memory, for the last save and the next one: the step of the memory tells which of the
two it is, or how far a memory in a folder got between them. Files count as the same if name, size and modification time
are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from sqhn.cli.common import map_chunks, say
from sqhn.concurrency import deferred
from sqhn.storage.atomic import write_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sqhn.cli.samples import Samples
    from sqhn.memory import SQHN
    from sqhn.protocol import Written


STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stop:
    """A block that Ctrl-C, SIGTERM and a closed terminal interrupt alike; ignored signals stay ignored.

    The first signal raises KeyboardInterrupt; later ones change nothing.
    status: the exit status after a signal, as shells define it; 0 if there was none.
    """

    def __init__(self) -> None:
        self.status = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():  # other threads are never interrupted
            for number in STOP_SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self.before[number] = signal.signal(number, self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        if kind is KeyboardInterrupt and not self.status:
            self.status = 128 + signal.SIGINT

    def __call__(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if not self.status:
            self.status = 128 + number
            raise KeyboardInterrupt


class Save(NamedTuple):
    """A saved memory: its step, how many of the samples it has learned, and a digest of their files."""

    step: int
    samples: int
    files: str


def identity(file: str) -> bytes:
    """A file as digests count it: its path, size and modification time."""
    path = Path(file).absolute()
    about: list[str | int] = [str(path)]
    with suppress(OSError):  # a file that is gone cannot be the same later
        found = path.stat()
        about += [found.st_size, found.st_mtime_ns]
    return json.dumps(about).encode() + b"\n"


class Run:
    """A run of `sqhn learn`: samples, and how many of them were learned and saved, by earlier runs and by this one.

    memory: the file, which may not exist yet. start: how many samples earlier runs have learned.
    """

    def __init__(self, memory: Path, network: SQHN, samples: Samples) -> None:
        self.memory, self.network, self.samples = memory, network, samples
        self.note = Path(f"{os.path.realpath(memory)}.progress")
        self.first_step, self.first_neurons, self.replaced = network.step, len(network), 0
        self.labels = samples.labels
        self.digest, self.digested = hashlib.sha256(), 0  # of how many files
        self.start = self._find_start() if samples.repeatable and memory.exists() and self.note.exists() else 0
        self.saved = self._after(0)

    @property
    def learned(self) -> int:
        """How many samples this run has learned."""
        return self.network.step - self.first_step

    @property
    def reached(self) -> int:
        """How many samples are learned, with those of earlier runs."""
        return self.start + self.learned

    @property
    def grown(self) -> int:
        """How many neurons this run has grown, with those in place of others."""
        return len(self.network) - self.first_neurons + self.replaced

    def learn(self, stop: Stop, checkpoint: float) -> None:
        """Learn all samples, or until it is interrupted, and save; checkpoint: the seconds between two saves."""
        last = time.monotonic()
        try:
            for written in map_chunks(self.samples, "learning", self._learn_chunk, self.start):
                self.replaced += int(written.replaced.sum())
                if stop.status:  # Python drops a KeyboardInterrupt that is raised while an object is deleted
                    break
                if time.monotonic() - last >= checkpoint:
                    self.save()
                    last = time.monotonic()
            self.save()
        except KeyboardInterrupt:
            if self.network.step > self.saved.step:
                self.save()
            raise
        except Exception:
            if self.saved.step > self.first_step:
                say(f"{self.saved.samples:,} of {len(self.samples):,} samples are saved in {self.memory}")
            raise

    def _learn_chunk(self, chunk: NDArray[Any]) -> Written:
        """Learn samples, with the names of their files; a folder saves them at once, so the note is written first."""
        if self.network.folder is not None:
            self.saved = self._after(0)
            self._write_note(self._after(len(chunk)))
        return self.network.learn(chunk, value=self.labels[self.reached : self.reached + len(chunk)])

    def save(self) -> None:
        """Save the memory and the note, which is removed once all samples are learned; signals wait until then."""
        with deferred():
            if self.network.folder is None:
                now = self._after(0)
                try:
                    self._write_note(now)
                    self.network.save(self.memory)
                except BaseException:
                    if self.samples.repeatable and not self.saved.samples:
                        self.note.unlink(missing_ok=True)
                    raise
                self.saved = now
            if self.reached == len(self.samples):
                self.note.unlink(missing_ok=True)

    def _write_note(self, after: Save) -> None:
        if self.samples.repeatable:
            write_whole(self.note, json.dumps([self.saved._asdict(), after._asdict()]).encode())

    def _after(self, more: int) -> Save:
        """The memory as it will be saved after so many more samples."""
        files = self.samples.files_of(self.reached + more)
        for file in files[self.digested :]:
            self.digest.update(identity(file))
        self.digested = len(files)
        return Save(self.network.step + more, self.reached + more, self.digest.hexdigest())

    def _find_start(self) -> int:
        """How many samples earlier runs have learned according to the note, or 0 if it does not apply."""
        try:
            before, after = (
                Save(int(entry["step"]), int(entry["samples"]), str(entry["files"]))
                for entry in json.loads(self.note.read_text())
            )
        except (LookupError, TypeError, ValueError):
            say(f"{self.note} cannot be read: learning all samples from the first")
            return 0
        step = self.network.step
        save = before if step <= before.step else after
        done = save.samples - (save.step - step)
        known = (before.step, after.step) if self.network.folder is None else range(before.step, after.step + 1)
        digest = hashlib.sha256(b"".join(map(identity, self.samples.files_of(save.samples)))).hexdigest()
        if step not in known:
            done, reason = save.samples, f"{self.memory} has changed since"
        elif save.samples > len(self.samples) or save.files != digest:
            reason = "their files are not the first ones now, or have changed"
        else:
            if done:
                count = f"{done:,} of {len(self.samples):,} samples"
                say(f"continuing after {count}, which an interrupted run has learned (see {self.note})")
            return done
        say(f"an interrupted run had learned {done:,} samples, but {reason}: learning all samples from the first")
        return 0
