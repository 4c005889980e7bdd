"""Learning that was stopped, by a signal or by the end of its process, goes on where it was saved last.

Beside the memory, until all is learned, there is a note (`m.sqhn.progress`) of how many samples were learned from which
files. It is written before the memory is, and tells of two moments, the last save and the next: whichever of them the
memory was left in, its step says so. Files count as the same if name, size and time of the last change are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqhn.cli.common import say
from sqhn.storage.atomic import write_whole

if TYPE_CHECKING:
    from sqhn.cli.samples import Samples
    from sqhn.memory import SQHN

__all__ = ["Run"]


@dataclass(frozen=True)
class Moment:
    """When a memory was saved: its step, how many of the samples it had learned, and a digest of their files."""

    step: int
    samples: int
    files: str


class Files:
    """A digest of the files that samples come from, file by file."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.count = 0

    def digest(self, files: Sequence[str]) -> str:
        """That of these files, which begin with those of the last call."""
        for file in files[self.count :]:
            path = Path(file).absolute()
            about: list[str | int] = [str(path)]
            with suppress(OSError):  # it is gone, and so cannot be the same later
                found = path.stat()
                about += [found.st_size, found.st_mtime_ns]
            self.hash.update(json.dumps(about).encode() + b"\n")
        self.count = len(files)
        return self.hash.hexdigest()


class Run:
    """Samples that a memory learns, from the first that no run before has learned and saved.

    memory: the file, which need not exist yet. start: how many of the samples were learned before.
    """

    def __init__(self, memory: Path, network: SQHN, samples: Samples) -> None:
        self.memory, self.network, self.samples = memory, network, samples
        self.place = Path(os.path.realpath(memory))
        self.note = self.place.with_name(f"{self.place.name}.progress")
        self.begun = network.step
        self.files = Files()
        self.start = self._find_start() if samples.lasting and self.place.exists() and self.note.exists() else 0
        self.saved = self._now()

    def _find_start(self) -> int:
        """How many samples are learned already, as the note tells; it is said, or why nobody can know."""
        try:
            before, after = (
                Moment(int(entry["step"]), int(entry["samples"]), str(entry["files"]))
                for entry in json.loads(self.note.read_text())
            )
        except (LookupError, TypeError, ValueError):
            say(f"{self.note} cannot be read: learning all samples from the first")
            return 0
        moment = before if before.step == self.network.step else after
        if moment.step != self.network.step:
            why = f"{self.memory} has changed since"
        elif not self._begins_with(moment):
            why = "their files are not the first ones now, or have changed"
        else:
            if moment.samples:
                many = f"{moment.samples:,} of {len(self.samples):,} samples"
                say(f"going on after {many}, which a run that was stopped has learned, as {self.note} tells")
            return moment.samples
        many = f"{moment.samples:,} samples"
        say(f"a run that was stopped had learned {many}, but {why}: learning all samples from the first")
        return 0

    def _begins_with(self, moment: Moment) -> bool:
        """Whether the first samples are those that were learned then."""
        files = self.samples.files_of(moment.samples)
        return moment.samples <= len(self.samples) and moment.files == Files().digest(files)

    @property
    def reached(self) -> int:
        """How many of the samples are learned now."""
        return self.start + self.network.step - self.begun

    def _now(self) -> Moment:
        return Moment(self.network.step, self.reached, self.files.digest(self.samples.files_of(self.reached)))

    def save(self) -> None:
        """Save the memory, and beside it where to go on; unless all is learned, or there is no going on."""
        now = self._now()
        try:
            if self.samples.lasting:
                write_whole(self.note, json.dumps([asdict(self.saved), asdict(now)]).encode())
            self.network.save(self.place)
        except BaseException:
            if self.samples.lasting and not self.saved.samples:
                self.note.unlink(missing_ok=True)
            raise
        self.saved = now
        if self.reached == len(self.samples):
            self.note.unlink(missing_ok=True)
