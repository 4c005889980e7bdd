"""Memories in files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from sqhn import SQHN, Level, MemoryFileError
from sqhn.model.calibration import Calibration
from sqhn.reference import ReferenceSQHN
from sqhn.storage.files import FORMAT, describe, encode, write
from tests.helpers import ARCHITECTURES, ON_HOSTS, fingerprint, levels, noisy

SHAPE = (32, 32, 3)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    memory = SQHN((8, 8), [Level(4, 5), Level(None, 5)])
    memory.learn(np.random.default_rng(0).random((12, 8, 8)))
    memory.save(tmp_path / "memory.sqhn")
    return tmp_path / "memory.sqhn"


@ON_HOSTS
@pytest.mark.parametrize("when_full", ["average", "overwrite"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_save_load_continue_is_never_having_stopped(
    device: str, architecture: str, when_full: str, tmp_path: Path, images: NDArray[np.float32]
) -> None:
    tree = levels(architecture, 12, when_full=when_full, alpha=np.inf)
    one = SQHN(SHAPE, tree, blend=0.4, mu="pseudocount", device=device)
    one.learn(images[:30])
    one.save(tmp_path / "m.sqhn")
    other = SQHN.load(tmp_path / "m.sqhn", device)
    assert (other.levels, other.options, other.input_shape) == (one.levels, one.options, one.input_shape)
    assert fingerprint(other) == fingerprint(one)
    for memory in (one, other):
        memory.learn(images[30:70])
    assert fingerprint(other) == fingerprint(one)
    query = noisy(images[:5])
    for a, b in zip(one.recall(query), other.recall(query)):
        np.testing.assert_array_equal(a, b)


def test_settings_may_be_numpy_numbers(tmp_path: Path) -> None:
    level = Level((np.int64(2), np.int32(2)), np.int64(5), np.float32(100), np.float64(1))  # type: ignore[arg-type]
    memory = SQHN((np.int64(4), 4), [level, Level(capacity=5)], blend=np.float32(0.5), rho=np.float32(0.25))  # type: ignore[arg-type]
    memory.learn(np.random.default_rng(0).random((8, 4, 4)))
    memory.save(tmp_path / "m.sqhn")
    again = SQHN.load(tmp_path / "m.sqhn")
    assert (again.levels, again.options, again.rho) == (memory.levels, memory.options, 0.25)
    assert again.levels[0] == Level((2, 2), 5, 100.0, 1.0)


def test_an_unusable_device_is_not_an_error_of_the_file(saved: Path) -> None:
    with pytest.raises(ValueError, match="device must be 'cpu', 'plain', 'cuda'"):
        SQHN.load(saved, device="abacus")


def test_an_empty_memory_can_be_saved(tmp_path: Path, images: NDArray[np.float32]) -> None:
    memory = SQHN(SHAPE, levels("L2 (4,8)", 12))
    memory.save(tmp_path / "m.sqhn")
    again = SQHN.load(tmp_path / "m.sqhn")
    assert len(again) == 0
    again.learn(images[:3])
    assert len(again) == 3


def test_saving_again_replaces_the_file_and_leaves_nothing_else(saved: Path) -> None:
    memory = SQHN.load(saved)
    memory.learn(np.zeros((8, 8)))
    memory.save(saved)
    assert SQHN.load(saved).step == 13
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_failure_while_saving_leaves_the_old_file(saved: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, before = SQHN.load(saved), saved.read_bytes()
    memory.learn(np.zeros((8, 8)))
    kept = fingerprint(memory)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    if step == "write":
        monkeypatch.setattr(Path, "open", fail)
    elif step == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        memory.save(saved)
    monkeypatch.undo()
    assert saved.read_bytes() == before
    assert fingerprint(memory) == kept
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


SAVE_IN_TROUBLE = """
import os, resource, signal, sys
import numpy as np
from sqhn import SQHN
path, trouble = sys.argv[1:]
memory = SQHN.load(path)
memory.learn(np.zeros((8, 8)))
if trouble == "full disk":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
else:
    os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
memory.save(path)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no resource limits and signals of this kind")
@pytest.mark.parametrize("trouble", ["full disk", "crash"])
def test_real_trouble_while_saving_leaves_the_old_file(saved: Path, trouble: str) -> None:
    before = saved.read_bytes()
    done = subprocess.run([sys.executable, "-c", SAVE_IN_TROUBLE, saved, trouble], capture_output=True, text=True)
    assert done.returncode != 0
    if trouble == "full disk":
        assert "OSError" in done.stderr
        assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert saved.read_bytes() == before
    assert SQHN.load(saved).step == 12


def test_drafts_that_a_crash_left_behind_do_no_harm(saved: Path) -> None:
    """In a container every process may have the same number."""
    saved.with_name(f".{saved.name}.{os.getpid()}.tmp").write_bytes(b"half a file")
    memory = SQHN.load(saved)
    memory.learn(np.zeros((8, 8)))
    memory.save(saved)
    assert SQHN.load(saved).step == 13


def test_truncated_files(saved: Path) -> None:
    content = saved.read_bytes()
    for length in (0, 1, 7, 8, 100, len(content) // 2, len(content) - 1):
        saved.write_bytes(content[:length])
        with pytest.raises(MemoryFileError):
            SQHN.load(saved)


def test_every_damaged_byte_is_noticed(saved: Path) -> None:
    content = saved.read_bytes()
    rng = np.random.default_rng(0)
    for position in sorted({*range(64), *rng.integers(0, len(content), 300).tolist()}):
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(rng.integers(8))
        saved.write_bytes(damaged)
        with pytest.raises(MemoryFileError):
            SQHN.load(saved)


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    path.write_text("once upon a time, there was a file that was no memory at all")
    with pytest.raises(MemoryFileError, match="not a memory"):
        SQHN.load(path)
    save_file({"weights": np.zeros(3)}, path)
    with pytest.raises(MemoryFileError, match="not a memory of this package"):
        SQHN.load(path)
    with pytest.raises(FileNotFoundError):
        SQHN.load(tmp_path / "nowhere")


FILES = Path(__file__).parent / "files"
OLD = np.random.default_rng(7).random((12, 4, 6)).astype(np.float32)


def test_files_of_format_1_load() -> None:
    """The first version stored no steps of last writes, and overwrote neuron 0 every time."""
    memory = SQHN.load(FILES / "format1-one-level.sqhn")
    assert (memory.step, len(memory), memory.levels[0].when_full) == (12, 5, "overwrite")
    np.testing.assert_array_equal(memory.recall(OLD[[11, 1, 2, 3, 4]]).x, OLD[[11, 1, 2, 3, 4]])
    assert list(memory.learn(OLD[5:9]).index) == [0, 1, 2, 3]  # all were written at step 0, so the first comes first


def test_trees_of_format_1_load(tmp_path: Path) -> None:
    memory = SQHN.load(FILES / "format1-tree.sqhn")
    reference = ReferenceSQHN((4, 6), memory.levels)
    for sample in OLD:
        reference.learn(sample)
    assert memory.rho == 0.9
    for bank, nodes in zip(memory.banks, reference.levels):
        state = bank.neurons.state() | bank.state()
        np.testing.assert_array_equal(state["c"], np.concatenate([node.c[: node.grown] for node in nodes]))
    assert not memory.written.any()
    np.testing.assert_array_equal(memory.recall(OLD).x, [reference.recall(sample).x for sample in OLD])
    memory.learn(OLD[:3])
    memory.save(tmp_path / "m.sqhn")
    assert fingerprint(SQHN.load(tmp_path / "m.sqhn")) == fingerprint(memory)


def test_unknown_features_are_refused(saved: Path) -> None:
    memory = SQHN.load(saved)
    header, tensors = memory.inspect(encode)
    write(saved, {**header, "features": ["telepathy", "time travel"]}, tensors)
    for look in (SQHN.load, describe):
        with pytest.raises(
            MemoryFileError, match=r"uses features that this version .* does not know \(telepathy, time travel\)"
        ):
            look(saved)


@pytest.mark.parametrize(
    "damage",
    ["steps", "c", "mu", "written", "counts", "value", "grown", "nan", "missing", "below 0", "mean", "later", "twice"],
)
def test_files_that_contradict_themselves(saved: Path, damage: str) -> None:
    """Their digest is right, but no memory can have such a state."""
    memory = SQHN.load(saved)
    header, tensors = memory.inspect(encode)
    if damage == "steps":
        header["steps"] = [-1, 12]
    elif damage == "missing":
        del tensors["level2.c"]
    elif damage == "nan":
        tensors["level1.prototypes"][2, 3] = np.nan
    elif damage == "below 0":
        tensors["level1.c"] = tensors["level1.c"].astype(np.int64) * -1
    elif damage == "mean":
        tensors["level2.mu"][0] = np.inf
    elif damage == "later":
        tensors["level2.written"][0] = 13
    elif damage == "twice":
        first = np.flatnonzero(tensors["level2.counts"][:, 4] > 1)[0]
        halves = tensors["level2.counts"][[first, first]]
        halves[0, 4] -= 1
        halves[1, 4] = 1
        tensors["level2.counts"] = np.concatenate([np.delete(tensors["level2.counts"], first, 0), halves])
    elif damage == "counts":
        tensors["level2.counts"][3, 4] += 1
    elif damage == "value":
        tensors["level2.counts"][3, 3] = 77
    elif damage == "grown":
        tensors["level1.grown"][1] -= 1
    else:
        tensors[f"level2.{damage}"] = tensors[f"level2.{damage}"][:-1]
    write(saved, header, tensors)
    with pytest.raises(MemoryFileError, match="does not hold a consistent memory"):
        SQHN.load(saved)


ODD: list[Any] = [
    None, True, 0, -1, 3, 2**31, 10**30, 0.5, -1e300, "", "inf", "paper", [], [3], [10**9] * 4, [[]], {}, {"a": 1},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values within a document."""
    yield path
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(part, (*path, key))


@pytest.mark.filterwarnings("ignore:.* calibrate again:UserWarning")
@given(data=st.data())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_headers_that_lie(saved: Path, data: st.DataObject) -> None:
    """A file with a right digest and any other value in its header is a memory, or is refused at once."""
    header, tensors = SQHN.load(saved).inspect(encode)
    header["calibration"] = Calibration("new", 0.1, 20, 12, ratios=[0.5, 0.75])._asdict()
    header["evidence"] = Calibration("new", 0.1, 20, 12, threshold=3.5, ratios=[2.5])._asdict()
    *path, last = data.draw(st.sampled_from([place for place in places(header) if place]))
    within = header
    for key in path:
        within = within[key]
    within[last] = data.draw(st.sampled_from(ODD))
    lie = saved.with_name("lie.sqhn")
    write(lie, header, tensors)
    for look in (SQHN.load, describe):
        try:
            found = look(lie)
        except MemoryFileError as error:
            assert str(lie) in str(error)  # noqa: PT017
            continue
        if isinstance(found, SQHN):
            x = np.full(found.input_shape, 0.5)
            found.recognize(x)
            if header.get("evidence"):
                found.recognize(x, inference="evidence")
            found.save(saved.with_name("again.sqhn"))


def test_headers_that_nest_deeply(saved: Path) -> None:
    text = "[" * 10**5 + "]" * 10**5
    save_file(load_file(saved), saved, {"sqhn": text})
    for look in (SQHN.load, describe):
        with pytest.raises(MemoryFileError):
            look(saved)


def test_negative_counts_of_a_memory_that_has_forgotten(tmp_path: Path) -> None:
    memory = SQHN((8, 8), capacity=5)
    memory.learn(np.random.default_rng(0).random((5, 8, 8)))
    memory.forget(1)
    header, tensors = memory.inspect(encode)
    tensors["level1.c"] = tensors["level1.c"].astype(np.int64)
    tensors["level1.c"][1] = -1
    write(tmp_path / "m", header, tensors)
    with pytest.raises(MemoryFileError, match="does not hold a consistent memory: counts below 0"):
        SQHN.load(tmp_path / "m")


@pytest.mark.parametrize("damage", ["unknown", "too often", "never and less", "elsewhere"])
def test_counts_that_no_memory_can_have(tmp_path: Path, damage: str) -> None:
    """Each is found by one check alone."""
    rng = np.random.default_rng(0)
    observed = rng.random((12, 8, 8)) < 0.7
    memory = SQHN((8, 8), [Level(2, 5), Level(2, 5), Level(capacity=5)])
    observed[:, :4, :4] = False
    observed[3, :4, :4] = True  # the first node of level 2 grows one neuron
    memory.learn(rng.random((12, 8, 8)), observed=observed)
    header, tensors = memory.inspect(encode)
    known, counts = tensors["level1.known"], tensors["level2.counts"]
    if damage == "unknown":
        known[0] = 0
    elif damage == "too often":
        known[0, known[0] > 0] = tensors["level1.c"][0] + 1
    elif damage == "never and less":
        known = tensors["level1.known"] = known.astype(np.int32)
        known[0, known[0] > 0] = -1
    else:
        assert tensors["level2.grown"].tolist() == [1, 5, 5, 5]
        counts[(counts[:, :2] == [1, 0]).all(axis=1), :2] = 0, 1
    write(tmp_path / "m", header, tensors)
    with pytest.raises(MemoryFileError, match="does not hold a consistent memory"):
        SQHN.load(tmp_path / "m")


def test_folders(tmp_path: Path, saved: Path) -> None:
    memory = SQHN.load(saved)
    (tmp_path / "empty").mkdir()
    with pytest.raises(IsADirectoryError, match="a folder, not a memory"):
        SQHN.load(tmp_path / "empty")
    (tmp_path / "empty").rmdir()
    nowhere = tmp_path / "nowhere" / "m.sqhn"
    with pytest.raises(FileNotFoundError) as missing:
        memory.save(nowhere)
    assert missing.value.filename == str(nowhere)  # not the name of a draft
    for folder in (tmp_path, f"{tmp_path}/new/"):
        with pytest.raises(IsADirectoryError, match="folder"):
            memory.save(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == [saved.name]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    memory, pipe = SQHN((4,), capacity=3), tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "loop").symlink_to("loop")
    for path in (pipe, tmp_path / "loop", Path("/dev/null")):
        before = path.lstat()
        with pytest.raises(OSError, match="not a file, but a pipe, a device or a link to itself"):
            memory.save(path)
        assert os.path.samestat(before, path.lstat())
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "loop"}


def test_a_link_stays_a_link(saved: Path) -> None:
    link = saved.with_name("link.sqhn")
    link.symlink_to(saved.name)
    memory = SQHN.load(link)
    memory.learn(np.zeros((8, 8)))
    memory.save(link)
    assert link.is_symlink()
    assert SQHN.load(saved).step == 13


def test_newer_files(saved: Path) -> None:
    save_file(load_file(saved), saved, {"sqhn": json.dumps({"format": FORMAT + 1})})
    with pytest.raises(MemoryFileError, match=f"format {FORMAT + 1}.*upgrade"):
        SQHN.load(saved)


def with_options(path: Path, **options: object) -> None:
    """Save a memory with options of an earlier version."""
    header, tensors = SQHN.load(path).inspect(encode)
    header["options"] |= options
    write(path, header, tensors)


def test_options_of_earlier_versions_load_at_their_defaults(saved: Path) -> None:
    before = fingerprint(SQHN.load(saved))
    with_options(saved, hidden_similarity="cosine", update_order="layerwise")
    assert fingerprint(SQHN.load(saved)) == before
    assert set(describe(saved)["options"]) == {"similarity", "blend", "rho", "propagation", "mu", "norm"}


@pytest.mark.parametrize(("name", "value"), [("hidden_similarity", "weighted_mean"), ("update_order", "after")])
def test_other_values_of_options_of_earlier_versions_are_refused_by_name(saved: Path, name: str, value: str) -> None:
    with_options(saved, **{name: value})
    for read in (SQHN.load, describe):
        with pytest.raises(MemoryFileError, match=f"{name}='{value}'"):
            read(saved)
