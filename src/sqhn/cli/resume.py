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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from sqhn.cli.common import say
from sqhn.storage.atomic import write_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sqhn.cli.samples import Samples
    from sqhn.memory import SQHN
    from sqhn.protocol import Written


STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@dataclass
class Stop:
    """A signal handler: while it is armed, the first signal raises KeyboardInterrupt; others are only recorded."""

    number: int | None = None
    armed: bool = False

    def __call__(self, number: int, frame: FrameType | None = None) -> None:  # noqa: ARG002
        self.number = self.number or number
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def arm(self) -> None:
        """Let a signal interrupt from now on; raise at once if there was one already."""
        self.armed = True
        if self.number is not None:
            self(self.number)

    @property
    def requested(self) -> bool:
        """Whether there was a signal."""
        return self.number is not None

    @property
    def status(self) -> int:
        """The exit status of a command that was ended by a signal, as shells define it."""
        return 128 + (self.number or signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Handle Ctrl-C, SIGTERM and a closed terminal alike within a block; ignored signals stay ignored."""
    stop = Stop()
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # other threads are never interrupted
            for number in STOP_SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    before[number] = signal.signal(number, stop)
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Save:
    """A saved memory: its step, how many of the samples it has learned, and a digest of their files."""

    step: int
    samples: int
    files: str


class FileDigest:
    """A digest of a growing list of files."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.count = 0

    def update(self, files: Sequence[str]) -> str:
        """The digest of these files, which start with those of the last call."""
        for file in files[self.count :]:
            path = Path(file).absolute()
            about: list[str | int] = [str(path)]
            with suppress(OSError):  # a file that is gone cannot be the same later
                found = path.stat()
                about += [found.st_size, found.st_mtime_ns]
            self.hash.update(json.dumps(about).encode() + b"\n")
        self.count = len(files)
        return self.hash.hexdigest()


class Run:
    """A run of `sqhn learn`: samples, and how many of them were learned and saved, by earlier runs and by this one.

    memory: the file, which may not exist yet. start: how many samples earlier runs have learned.
    """

    def __init__(self, memory: Path, network: SQHN, samples: Samples) -> None:
        self.memory, self.network, self.samples = memory, network, samples
        self.file = Path(os.path.realpath(memory))
        self.note = self.file.with_name(f"{self.file.name}.progress")
        self.first_step = network.step
        self.grown = self.replaced = 0
        self.digest = FileDigest()
        self.start = self._find_start() if samples.repeatable and self.file.exists() and self.note.exists() else 0
        self.saved = self._after(0)

    @property
    def learned(self) -> int:
        """How many samples this run has learned."""
        return self.network.step - self.first_step

    @property
    def reached(self) -> int:
        """How many samples are learned, with those of earlier runs."""
        return self.start + self.learned

    def learn(self, chunk: NDArray[Any]) -> Written:
        """Learn samples; a folder saves them at once, so the note is written first."""
        if self.network.folder is not None:
            self.saved = self._after(0)
            self._write_note(self._after(len(chunk)))
        return self.network.learn(chunk)

    def save(self) -> None:
        """Save the memory and the note; the note is removed once all samples are learned."""
        if self.network.folder is None:
            now = self._after(0)
            try:
                self._write_note(now)
                self.network.save(self.file)
            except BaseException:
                if self.samples.repeatable and not self.saved.samples:
                    self.note.unlink(missing_ok=True)
                raise
            self.saved = now
        if self.reached == len(self.samples):
            self.note.unlink(missing_ok=True)

    def _write_note(self, after: Save) -> None:
        if self.samples.repeatable:
            write_whole(self.note, json.dumps([asdict(self.saved), asdict(after)]).encode())

    def _after(self, more: int) -> Save:
        """The memory as it will be saved after so many more samples."""
        files = self.samples.files_of(self.reached + more)
        return Save(self.network.step + more, self.reached + more, self.digest.update(files))

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
        if step not in known:
            done, reason = save.samples, f"{self.memory} has changed since"
        elif not self._starts_with(save):
            reason = "their files are not the first ones now, or have changed"
        else:
            if done:
                count = f"{done:,} of {len(self.samples):,} samples"
                say(f"continuing after {count}, which an interrupted run has learned (see {self.note})")
            return done
        count = f"{done:,} samples"
        say(f"an interrupted run had learned {count}, but {reason}: learning all samples from the first")
        return 0

    def _starts_with(self, save: Save) -> bool:
        """Whether the first samples are those that were learned then."""
        files = self.samples.files_of(save.samples)
        return save.samples <= len(self.samples) and save.files == FileDigest().update(files)
