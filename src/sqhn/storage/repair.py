"""Repair of a memory in a folder whose journal is damaged: every change that is whole is kept."""

from __future__ import annotations

import secrets
import shutil
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from sqhn.model.model import Model
from sqhn.protocol import MemoryFileError
from sqhn.storage import files
from sqhn.storage.journal import FILES, MEMORY, Journal, copied, open_log, replay
from sqhn.storage.sharded_files import folder_of


class Salvaged(NamedTuple):
    """What can be kept of a memory, with so many changes since its checkpoint, and the problems that were found."""

    model: Model
    changes: int
    problems: list[str]


def salvage(folder: Path, device: str = "cpu", shards: int | None = None) -> Salvaged:
    """The memory in a folder with every change that is whole and can be made; the folder is only read.

    A damaged checkpoint is an error: nothing can be kept then.
    """
    path = folder / MEMORY
    header, model = files.load(path, device, shards)
    if isinstance(header.get("journal"), str):
        raise MemoryFileError(f"{path} has a journal of an earlier version, which cannot be repaired")
    problems: list[str] = []
    changes = 0
    with copied(folder) as copy:
        try:
            with closing(open_log(path, header, copy)) as log, model.tree.device.stream():
                for problem in replay(log, model):
                    if problem is None:
                        changes += 1
                    else:
                        problems.append(problem)
                model.tree.settle()
        except MemoryFileError as error:
            problems.append(f"{error}".replace(f"{copy}", f"{folder}"))
    return Salvaged(model, changes, problems)


def repair(folder: Path, device: str = "cpu", shards: int | None = None) -> tuple[Salvaged, Path | None]:
    """Replace a damaged memory by what can be kept of it; the damaged files are copied to a folder within, first."""
    with closing(Journal(folder)) as journal:
        found = salvage(journal.folder, device, shards)
        if not found.problems:
            return found, None
        original = journal.folder / f"damaged-{secrets.token_hex(4)}"
        original.mkdir()
        for name in (MEMORY, *FILES):
            with suppress(FileNotFoundError):
                shutil.copy2(journal.folder / name, original / name)
        if (pieces := folder_of(journal.path)).exists():
            shutil.copytree(pieces, original / pieces.name)
        for name in FILES:
            (journal.folder / name).unlink(missing_ok=True)
        journal.begin(found.model)
        return found, original
