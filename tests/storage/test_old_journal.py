"""Journals of earlier versions, which are only read; the files are those of `test_formats`."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save as serialize

from sqhn import SQHN, MemoryFileError
from sqhn.storage import journal
from sqhn.storage.files import MEMORY, header_of
from sqhn.storage.log import Log
from tests.helpers import fingerprint
from tests.storage.histories import KEPT, X
from tests.storage.test_formats import FILES

posix = pytest.mark.skipif(sys.platform == "win32", reason="no links")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with three changes, of 30, 3 and 3 samples, and a fourth that is not complete."""
    return Path(shutil.copytree(FILES / "format2-journal-torn", tmp_path / "k"))


def journal_in(folder: Path) -> Path:
    (found,) = folder.glob("journal-*")
    return found


def ends(content: bytes) -> list[int]:
    """The position after each record."""
    found = [0]
    while found[-1] + 16 <= len(content):
        found.append(found[-1] + 16 + int.from_bytes(content[found[-1] : found[-1] + 8], "little"))
    return found


def test_a_journal_that_ends_anywhere(folder: Path, tmp_path: Path) -> None:
    """A change that was not written to its end was never returned from."""
    content = journal_in(folder).read_bytes()
    places = ends(content)[:4]
    steps = [0, 30, 33, 36]
    for cut in {*range(0, len(content), 97), *places, *(end + 16 for end in places[:3])}:
        other = Path(shutil.copytree(folder, tmp_path / str(cut)))
        journal_in(other).write_bytes(content[:cut])
        done = sum(end <= cut for end in places) - 1
        if cut == places[done]:
            memory = SQHN.load(other)
        else:
            with pytest.warns(UserWarning, match=f"the last {cut - places[done]:,} bytes are a change that was never"):
                memory = SQHN.load(other)
        assert memory.step == steps[done]
        expected = SQHN(memory.input_shape, memory.levels)
        for call in KEPT["journal-torn"].calls[:done]:
            call(expected)
        assert fingerprint(memory) == fingerprint(expected)


@pytest.mark.parametrize("zeros", [1, 15, 16, 600])
def test_blocks_that_were_never_written(zeros: int, folder: Path) -> None:
    content = journal_in(folder).read_bytes()
    journal_in(folder).write_bytes(content[: ends(content)[3]] + bytes(zeros))
    with pytest.warns(UserWarning, match=f"the last {zeros} bytes"):
        assert SQHN.load(folder).step == 36


@pytest.mark.parametrize("byte", [0, 4, 7, 9, 13, 20, 500])
def test_any_damaged_byte(byte: int, folder: Path) -> None:
    """No damage is taken for an incomplete end, and the file stays."""
    content = bytearray(journal_in(folder).read_bytes())
    content[byte] ^= 1
    journal_in(folder).write_bytes(content)
    with pytest.raises(MemoryFileError, match=r"journal-\w+ is damaged, at byte 0 of"):
        SQHN.load(folder)
    assert journal_in(folder).read_bytes() == content


@posix
def test_a_journal_that_is_missing_or_a_link(folder: Path, tmp_path: Path) -> None:
    place = journal_in(folder)
    place.rename(tmp_path / "victim")
    with pytest.raises(MemoryFileError, match=f"{place.name} .* is not there"):
        SQHN.load(folder)
    place.symlink_to(tmp_path / "victim")
    with pytest.raises(MemoryFileError, match=f"{place.name} .* is not there"):
        SQHN.load(folder)


@pytest.mark.parametrize("step", ["save", "clear", "Log"])
def test_a_failure_while_the_journal_is_replaced(step: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either journal is read then, and none twice."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "no room")

    with monkeypatch.context() as context:
        context.setattr(Log if step == "clear" else journal, step, fail)
        with pytest.raises(OSError, match="no room"), pytest.warns(UserWarning, match="never completed"):
            SQHN.load(folder)
    replaced = isinstance(header_of(folder / MEMORY)["journal"], dict)
    assert replaced == (step == "clear")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory = SQHN.load(folder)
    assert memory.step == 36
    memory.learn(X[0])
    del memory
    assert SQHN.load(folder).step == 37


def record(name: str, *args: Any) -> bytes:
    """A record as the first journal had it."""
    arrays: dict[str, NDArray[Any]] = {}

    def plain(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        arrays[str(len(arrays))] = value
        return {"array": str(len(arrays) - 1)}

    change = json.dumps([name, [plain(arg) for arg in args]])
    body = serialize(arrays, {"change": change})
    head = len(body).to_bytes(8, "little") + zlib.crc32(body).to_bytes(4, "little")
    return head + zlib.crc32(head).to_bytes(4, "little") + body


OPTIONS = {"similarity": "shifted_cosine", "blend": 0.5, "propagation": "argmax", "mu": "mean", "norm": "all"}
CHANGES: dict[str, tuple[bytes, str]] = {
    "samples": (record("_learn_chunk", X[:2, :2], None, "all", True, None), "expected one sample of shape"),
    "mask": (record("_learn_chunk", X[:2], np.ones((2, 5), bool), "all", True, None), "observed"),
    "part": (record("_learn_chunk", X[:2], None, "below", True, None), "part='below' in a memory of 1 levels"),
    "labels": (record("_learn_chunk", X[:2], None, "all", True, ["{", None]), "Expecting property name"),
    "held": (record("_learn_held", X[:2], None, ["{"]), "Expecting property name"),
    "memorize": (record("_memorize", X[:2, :2]), "expected one sample of shape"),
    "forget": (record("_forget", [0, 0]), "index has a neuron twice"),
    "resize": (record("_resize", 2), "resize can only enlarge"),
    "reset": (record("_reset", 1), "takes 1 positional argument but 2 were given"),
    "options": (record("_set_options", {"options": OPTIONS | {"blend": 0.25, "rho": 0.1}}), "other options than those"),
    "rho": (record("_set_options", {"options": OPTIONS | {"rho": -1}}), "rho must be a number of at least 0"),
    "calibration": (record("_set_shown", 5), "calibration must be that of new or old samples; got 5"),
    "name": (record("__init__", [4, 6]), "'__init__'"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_that_no_memory_has_made(name: str, folder: Path) -> None:
    place = journal_in(folder)
    content = place.read_bytes()
    content = content[: ends(content)[3]]
    bad, problem = CHANGES[name]
    place.write_bytes(content + bad + record("_reset"))
    with pytest.raises(MemoryFileError, match=f"{place.name}: the change at byte {len(content):,} cannot.*{problem}"):
        SQHN.load(folder)
    place.write_bytes(content + bad)
    with pytest.warns(UserWarning, match=f"the last {len(bad):,} bytes are a change that was never completed"):
        assert SQHN.load(folder).step == 36


def test_a_sharded_folder(folder: Path, local: Callable[..., None]) -> None:
    local(2)
    with pytest.warns(UserWarning, match="never completed"):
        memory = SQHN.load(folder, "ray")
    assert (memory.step, memory.shards) == (36, 2)
    memory.learn(X[0])
    del memory
    assert SQHN.load(folder).step == 37
