"""Repair of a memory in a folder whose journal is damaged: every change that is whole is kept."""

from __future__ import annotations

import secrets
import shutil
import struct
from collections import Counter
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from sqhn.model.model import Model
from sqhn.protocol import MemoryFileError
from sqhn.storage import files
from sqhn.storage.atomic import make_folder, sync_folder, written_whole
from sqhn.storage.files import MEMORY
from sqhn.storage.journal import FILES, JOURNAL, Journal, copied, open_log, replay
from sqhn.storage.sharded_files import folder_of

LOG_HEAD, FRAME_HEAD, PAGE = 32, 24, 4096  # bytes of a log of SQLite, and the size of its pages
BIG_ENDIAN, VERSION = 0x377F0683, 3007000  # the first numbers of such a log


class Salvaged(NamedTuple):
    """The part of a memory that can be kept, with so many changes since its checkpoint, and the problems found."""

    model: Model
    changes: int
    problems: list[str]


def salvage(folder: Path, device: str = "cpu", shards: int | None = None) -> Salvaged:
    """The memory in a folder with every change that is whole and can be made; the folder is only read.

    A damaged checkpoint is an error: nothing can be kept then.
    """
    found = _salvage(folder, device, shards)
    if found.problems:
        with suppress(MemoryError, OSError):
            more = _salvage(folder, device, shards, renew=True)
            if more.changes > found.changes:
                return more._replace(problems=more.problems or found.problems)
    return found


def _salvage(folder: Path, device: str, shards: int | None, renew: bool = False) -> Salvaged:
    """All changes that SQLite can read; renew: with those that follow damage of its log."""
    path = folder / MEMORY
    header, model = files.load(path, device, shards)
    if isinstance(header.get("journal"), str):
        raise MemoryFileError(f"{path} has a journal of an earlier version, which cannot be repaired")
    problems: list[str] = []
    changes = 0
    with copied(folder) as copy:
        if renew:
            renew_checksums(copy / f"{JOURNAL}-wal")
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


def renew_checksums(wal: Path) -> None:
    """Let SQLite read all of a damaged log: it stops at the first wrong checksum, but our digests find damage too.

    A log is a header of 32 bytes and frames: a head of 24 bytes, and a page. Two numbers, the salts, in the header and
    in each head belong to this use of the log. Frames of an earlier use may follow: they are older, and are left out.
    """
    content = bytearray(wal.read_bytes())
    if len(content) < LOG_HEAD:
        return  # nothing was written since SQLite emptied it
    starts = range(LOG_HEAD, len(content) - FRAME_HEAD - PAGE + 1, FRAME_HEAD + PAGE)
    salts = [bytes(content[start + 8 : start + 16]) for start in starts]
    salt, _ = Counter([bytes(content[16:24]), *salts[:2]]).most_common(1)[0]
    frames = max((number for number, one in enumerate(salts, start=1) if one == salt), default=0)
    content[:12], content[16:24] = struct.pack(">III", BIG_ENDIAN, VERSION, PAGE), salt
    sums = _checksum(content[:24])
    content[24:LOG_HEAD] = struct.pack(">II", *sums)
    for start in starts[:frames]:
        page = start + FRAME_HEAD
        content[start + 8 : start + 16] = salt
        sums = _checksum(content[start : start + 8] + content[page : page + PAGE], *sums)
        content[start + 16 : page] = struct.pack(">II", *sums)
    wal.write_bytes(content[: LOG_HEAD + frames * (FRAME_HEAD + PAGE)])


def _checksum(content: bytearray, a: int = 0, b: int = 0) -> tuple[int, int]:
    """The checksum of a log of SQLite, continued."""
    for x, y in struct.iter_unpack(">II", content):
        a = (a + x + b) & 0xFFFFFFFF
        b = (b + y + a) & 0xFFFFFFFF
    return a, b


def repair(folder: Path, device: str = "cpu", shards: int | None = None) -> tuple[Salvaged, Path | None]:
    """Replace a damaged memory by the part that can be kept; the damaged files are copied to a folder within, first.

    The checkpoint is replaced in one step, by one that has all that is kept and no journal. Before that step nothing is
    changed. After it, the next program that opens the folder removes the damaged journal and begins another one.
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
