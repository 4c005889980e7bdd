"""Repair of a memory in a folder whose journal is damaged: every change that is whole is kept."""

from __future__ import annotations

import secrets
import shutil
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from sqhn.model.model import Model
from sqhn.protocol import MemoryFileError
from sqhn.storage import files
from sqhn.storage.atomic import make_folder, sync_folder, written_whole
from sqhn.storage.files import MEMORY
from sqhn.storage.journal import FILES, Journal, copied, open_log, replay
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
            log = open_log(path, header, copy)
            with closing(log) if log else nullcontext(), model.tree.device.stream():
                for problem in replay(log, model) if log else ():
                    if problem is None:
                        changes += 1
                    else:
                        problems.append(problem)
                model.tree.settle()
        except MemoryFileError as error:
            problems.append(f"{error}".replace(f"{copy}", f"{folder}"))
    return Salvaged(model, changes, problems)


def repair(folder: Path, device: str = "cpu", shards: int | None = None) -> tuple[Salvaged, Path | None]:
    """Replace a damaged memory by what can be kept of it; the damaged files are copied to a folder within, first.

    The checkpoint is replaced in one step, by one that has all that is kept and no journal. Before that step nothing is
    changed. After it, whoever opens the folder removes the damaged journal and begins another one.
    """
    with closing(Journal(folder)) as journal:
        found = salvage(journal.folder, device, shards)
        if not found.problems:
            return found, None
        for partial in journal.folder.glob(".damaged-*"):  # a copy that was interrupted
            shutil.rmtree(partial)
        original = journal.folder / f"damaged-{secrets.token_hex(4)}"
        draft = original.with_name(f".{original.name}")
        pieces = folder_of(journal.path).glob("*")
        for path in (journal.path, *(journal.folder / name for name in FILES), *pieces):
            copy = draft / path.relative_to(journal.folder)
            with suppress(FileNotFoundError), path.open("rb") as file:
                make_folder(copy.parent)
                with written_whole(copy) as kept:
                    shutil.copyfileobj(file, kept)
        draft.rename(original)
        sync_folder(journal.folder)
        with found.model.tree.device.stream():
            files.save(journal.path, found.model, journal=None)
        journal.begin(found.model)
        return found, original
