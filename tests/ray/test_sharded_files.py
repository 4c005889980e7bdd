"""Memories in several files, one for each shard."""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sqhn import SQHN, MemoryFileError
from sqhn.banks.devices import device_of
from sqhn.banks.ray import prototypes
from sqhn.storage import files, journal, sharded_files
from sqhn.storage.atomic import write_whole
from sqhn.storage.files import describe, header_of, write
from sqhn.storage.sharded_files import folder_of
from tests.conformance.test_stories import SHAPES, story, tell
from tests.helpers import fingerprint

Local = Callable[..., None]
SHAPE = (8, 12)
X = np.random.default_rng(0).random((60, *SHAPE)).astype(np.float32)


@pytest.fixture
def saved(local: Local, tmp_path: Path) -> Path:
    local(3)
    memory = SQHN(SHAPE, capacity=60, device="ray")
    memory.learn(X[:50])
    memory.save(tmp_path / "m.sqhn")
    return tmp_path / "m.sqhn"


def shard_files_of(path: Path) -> list[Path]:
    return sorted(Path(f"{path}.pieces").glob("*"))


def test_samples_of_uint8(local: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards load prototypes that are bytes as float32, in parts, and learn bytes as floats."""
    local(3)
    monkeypatch.setattr(prototypes, "MESSAGE", 2000)
    x = np.random.default_rng(1).integers(0, 256, (30, *SHAPE), np.uint8)
    one = SQHN(SHAPE, capacity=20)
    one.learn(x[:22])
    one.forget(3)
    one.save(tmp_path / "m")
    many = SQHN.load(tmp_path / "m", "ray", 3)
    assert fingerprint(many) == fingerprint(one)
    for memory in (one, many):
        memory.learn(x)
    many.save(tmp_path / "m")
    assert fingerprint(SQHN.load(tmp_path / "m")) == fingerprint(many) == fingerprint(one)


@pytest.mark.parametrize(("shards", "others"), [(1, 3), (3, 1), (2, 7), (7, 2)])
@pytest.mark.parametrize("name", SHAPES)
def test_any_number_of_shards(
    name: str, shards: int, others: int, local: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file for each shard, or each node of a smaller tree; it loads on one device and on shards, and continues."""
    monkeypatch.setattr(prototypes, "MESSAGE", 2000)
    local(shards)
    memory, reference, rng = story(name, "shifted_cosine", "oldest", "ray")
    for _ in range(2):
        tell(memory, reference, rng, 4)
        path = tmp_path / "m.sqhn"
        memory.save(path)
        assert len(shard_files_of(path)) == min(shards, len(memory.banks[0].neurons.grown)) or len(memory.levels) == 1
        found = [SQHN.load(path), SQHN.load(path, "ray", shards=others)]
        for other in found:
            assert fingerprint(other) == fingerprint(memory)
        one = found[0]
        one.save(tmp_path / "one")
        assert fingerprint(SQHN.load(tmp_path / "one", "ray", shards=others)) == fingerprint(one)
        x = rng.random((20, *memory.input_shape)).astype(np.float32)
        for other in found:
            other.learn(x)
        assert fingerprint(found[0]) == fingerprint(found[1])


def test_describe_counts_all_files(saved: Path) -> None:
    told = describe(saved)
    assert told["bytes"] == saved.stat().st_size + sum(path.stat().st_size for path in shard_files_of(saved))
    assert told["bytes"] > 50 * X[0].nbytes
    assert len(shard_files_of(saved)) == 3


def test_as_many_shards_as_it_was_saved_from(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqhn.banks.devices.device_of", device_of)
    assert SQHN.load(saved, "ray").shards == 3
    SQHN.load(saved).save(tmp_path / "whole")
    with pytest.raises(ValueError, match="needs shards=N"):
        SQHN.load(tmp_path / "whole", "ray")


def test_saving_again_replaces_all_files(saved: Path) -> None:
    """Nothing is left of the earlier ones, whether the later memory is on shards or not."""
    memory, before = SQHN.load(saved, "ray"), shard_files_of(saved)
    memory.learn(X[50:])
    memory.save(saved)
    assert len(shard_files_of(saved)) == 3
    assert not set(shard_files_of(saved)) & set(before)
    memory.to("cpu").save(saved)
    assert not Path(f"{saved}.pieces").exists()
    assert fingerprint(SQHN.load(saved)) == fingerprint(memory)


@pytest.mark.parametrize("number", range(4))
def test_a_failure_while_saving_leaves_the_old_memory(
    number: int, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, before, written = SQHN.load(saved), shard_files_of(saved), list[Path]()
    memory = SQHN.load(saved, "ray")
    memory.learn(X[50:])

    def fail(path: Path, content: bytes) -> None:
        if len(written) == number:
            raise OSError(errno.ENOSPC, "no room", str(path))
        written.append(path)
        write_whole(path, content)

    monkeypatch.setattr(sharded_files, "write_whole", fail)
    monkeypatch.setattr(files, "write_whole", fail)
    with pytest.raises(OSError, match="no room"):
        memory.save(saved)
    assert shard_files_of(saved) == before
    assert fingerprint(SQHN.load(saved)) == fingerprint(old)


def test_shard_files_stay_if_the_file_that_names_them_cannot_be_read(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For instance, because this process has too many files open."""
    memory, before = SQHN.load(saved, "ray"), fingerprint(SQHN.load(saved))
    memory.learn(X[50:])

    def fail(path: Path, content: bytes) -> None:
        raise OSError(errno.EMFILE, "too many", str(path))

    with monkeypatch.context() as context:
        context.setattr(files, "header_of", lambda _: {})
        memory.save(saved.with_name("other"))
        context.setattr(files, "write_whole", fail)
        with pytest.raises(OSError, match="too many"):
            memory.save(saved)
    assert fingerprint(SQHN.load(saved)) == before
    assert fingerprint(SQHN.load(saved.with_name("other"))) == fingerprint(memory)


def test_damaged_and_missing_shard_files(saved: Path) -> None:
    place = shard_files_of(saved)[1]
    content = place.read_bytes()
    for damaged in (content[:-1], content[:-1] + bytes([content[-1] ^ 1]), b""):
        place.write_bytes(damaged)
        with pytest.raises(MemoryFileError, match=f"{place.name} is damaged"):
            SQHN.load(saved)
    place.unlink()
    with pytest.raises(MemoryFileError, match=f"{place.name} belongs to it"):
        SQHN.load(saved)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("name", r"a shard file with the name '\.\./m\.sqhn'"),
        ("twice", "not each of them once"),
        ("fewer", "not each of them once"),
        ("other neurons", "neurons that are not in order"),
        ("shape", "shard files that do not fit together"),
    ],
)
def test_shard_files_that_contradict_each_other(wrong: str, problem: str, saved: Path) -> None:
    header, tensors = header_of(saved), load_file(saved)
    entries = header["pieces"]
    if wrong == "name":
        entries[0]["name"] = "../m.sqhn"
    elif wrong == "twice":
        entries[1] = entries[0]
    elif wrong == "fewer":
        del entries[1:]
    else:
        place = shard_files_of(saved)[0]
        content = load_file(place)
        if wrong == "shape":
            content["prototypes"] = content["prototypes"][:, :-1]
        else:
            content["number"] = content["number"][::-1]
        save_file(content, place)
        entries[0]["sha256"] = hashlib.sha256(place.read_bytes()).hexdigest()
    write(saved, header, tensors)
    with pytest.raises(MemoryFileError, match=f"does not hold a consistent memory: .*{problem}"):
        SQHN.load(saved)


def test_reading_while_others_write(saved: Path) -> None:
    """Every reader gets one whole memory, and one is left in the end."""
    memories = [SQHN.load(saved, "ray"), SQHN.load(saved, "ray", shards=2), SQHN.load(saved)]
    for n, memory in enumerate(memories):
        memory.learn(X[50 + n])
    prints = {fingerprint(memory) for memory in memories} | {fingerprint(SQHN.load(saved))}

    def save_often(memory: SQHN) -> None:
        for _ in range(15):
            memory.save(saved)

    threads = [threading.Thread(target=save_often, args=(memory,)) for memory in memories]
    for thread in threads:
        thread.start()
    found = set()
    while any(thread.is_alive() for thread in threads):
        found.add(fingerprint(SQHN.load(saved)))
    for thread in threads:
        thread.join()
    assert found <= prints
    assert fingerprint(SQHN.load(saved)) in prints


def test_kept_in_a_folder(local: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards are lost, and the process ends too: on shards or not, the memory continues."""
    monkeypatch.setattr(journal, "ENOUGH", 20_000)
    local(3, every=20)
    one, memory = SQHN(SHAPE, capacity=40), SQHN(SHAPE, capacity=40, device="ray", folder=tmp_path)
    for i, how in enumerate([("ray", 2), ("cpu", None), ("ray", 3), ("ray", 1)]):
        for part in (X[15 * i : 15 * i + 8], X[15 * i + 8 : 15 * i + 15]):
            one.learn(part)
            memory.learn(part)
        del memory
        memory = SQHN.load(tmp_path, *how)
        assert fingerprint(memory) == fingerprint(one)
        assert (memory.device, memory.folder) == (how[0], tmp_path)


def test_files_of_others_stay(saved: Path) -> None:
    others = [folder_of(saved) / name for name in ("mine.piece", "notes")]
    for path in others:
        path.write_text("mine")
    draft = folder_of(saved) / ".0123abcd-0.piece.89ef.tmp"
    draft.write_text("left by a crash")
    SQHN.load(saved, "ray").save(saved)
    SQHN.load(saved).save(saved)
    assert sorted(shard_files_of(saved)) == sorted(others)


def test_missing_folders_and_files(saved: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"cannot be written: .*nowhere/m\.sqhn"):
        SQHN.load(saved, "ray").save(saved.parent / "nowhere" / "m.sqhn")
    shard_files_of(saved)[0].unlink()
    with pytest.raises(MemoryFileError, match="belongs to it"):
        describe(saved)


@pytest.mark.parametrize(
    "content", [b"\xff" * 30, bytes(8), (1 << 40).to_bytes(8, "little"), (2).to_bytes(8, "little") + b"[]"]
)
def test_shard_files_with_damaged_headers(content: bytes, saved: Path) -> None:
    header, tensors = header_of(saved), load_file(saved)
    shard_files_of(saved)[0].write_bytes(content)
    header["pieces"][0]["sha256"] = hashlib.sha256(content).hexdigest()
    write(saved, header, tensors)
    with pytest.raises(MemoryFileError, match="consistent"):
        SQHN.load(saved)


def test_one_shard_at_a_time_is_in_this_process(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SQHN.load(saved, "ray")
    bank: Any = memory.banks[0]
    given, written, parts = list[int](), list[int](), bank.shard_states

    def watch() -> Iterator[Any]:
        for part in parts():
            given.append(1)
            assert len(given) == len(written) + 1
            yield part

    def note(*args: Any) -> None:
        written.append(1)
        write_whole(*args)

    monkeypatch.setattr(bank, "shard_states", watch)
    monkeypatch.setattr(sharded_files, "write_whole", note)
    memory.save(saved)
    assert len(given) == 3
