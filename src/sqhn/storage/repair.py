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
from sqhn.storage.changes import Forget, decode
from sqhn.storage.journal import FILES, MEMORY, Journal, copied, open_log
from sqhn.storage.sharded_files import folder_of


class Salvaged(NamedTuple):
    """What can be kept of a memory, with so many changes since its checkpoint, and the problems that were found."""

    model: Model
    changes: int
    problems: list[str]


def salvage(folder: Path, device: str = "cpu", shards: int | None = None) -> Salvaged:
    """The memory in a folder with every change that is whole, as far as the order allows; the folder is only read.

    A change that forgets neurons by their numbers is left out after a loss, and so is everything that follows it: the
    numbers may be those of other neurons. A damaged checkpoint is an error: nothing can be kept then.
    """
    path = Journal.file(folder)
    header, model = files.load(path, device, shards)
    if isinstance(header.get("journal"), str):
        raise MemoryFileError(f"{path} has a journal of an earlier version, which cannot be repaired")
    problems: list[str] = []
    changes = 0
    with copied(folder) as copy:
        try:
            with closing(open_log(path, header, copy)) as log, model.tree.device.stream():
                for found in log.salvage():
                    if isinstance(found, str):
                        problems.append(found)
                        continue
                    change = decode(found)
                    if problems and isinstance(change, Forget):
                        problems.append(
                            f"neurons {change.index} were forgotten then, which may be others now: left out"
                        )
                        break
                    change.check(model)
                    change.apply(model)
                    changes += 1
                model.tree.settle()
        except MemoryFileError as error:
            problems.append(f"{error}")
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            problems.append(f"changes after the first {changes:,} cannot be made: {error}")
        return Salvaged(model, changes, [problem.replace(f"{copy}", f"{folder}") for problem in problems])


def repair(folder: Path, device: str = "cpu", shards: int | None = None) -> tuple[Salvaged, Path | None]:
    """Replace a damaged memory by what can be kept of it; the damaged files are copied to a folder within, first."""
    journal = Journal(folder)
    try:
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
    finally:
        journal.close()
