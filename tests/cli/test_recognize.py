"""`sqhn recognize`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.commands import (
    COLOR,
    GRAY,
    error_of,
    image_folder,
    json_of,
    output_of,
    save_array,
    saved_memory,
)

pytestmark = pytest.mark.usefixtures("small_chunks")


def test_old_and_new(tmp_path: Path, file: Path) -> None:
    memory = saved_memory(file, COLOR[:20])
    expected = memory.recognize(COLOR)
    source = image_folder(tmp_path / "in", COLOR)
    found = json_of("recognize", source, "--memory", file)
    assert found["samples"] == [
        {"name": f"{n:03}.png", "old": old, "score": score, "threshold": threshold}
        for n, (old, score, threshold) in enumerate(zip(*(field.tolist() for field in expected)))
    ]
    assert (found["old"], found["new"]) == (expected.old.sum(), (~expected.old).sum())
    lines = output_of("recognize", source, "--memory", file).splitlines()
    assert [line.split()[1] for line in lines[:-1]] == ["old" if old else "new" for old in expected.old]
    assert lines[-1] == f"{expected.old.sum()} old, {(~expected.old).sum()} new"


def test_everything_is_new_to_an_empty_memory(tmp_path: Path, file: Path) -> None:
    saved_memory(file, GRAY[:0])
    found = json_of("recognize", save_array(tmp_path / "x.npy", GRAY[:2]), "--memory", file)
    assert [(row["old"], row["score"]) for row in found["samples"]] == [(False, None)] * 2


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_float16(bad: float, tmp_path: Path, file: Path) -> None:
    halves = (GRAY / 255).astype(np.float16)
    memory = saved_memory(file, halves.astype(np.float32))
    source = save_array(tmp_path / "x.npy", halves)
    found = json_of("recognize", source, "--memory", file)["samples"]
    assert [row["score"] for row in found] == memory.recognize(halves.astype(np.float32)).score.tolist()
    output_of("recall", source, "--memory", file, "--out", tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), memory.recall(halves.astype(np.float32)).x)
    halves[3, 2, 1] = bad
    save_array(source, halves)
    for words in (("recognize",), ("recall", "--out", tmp_path / "z.npy")):
        error = error_of(words[0], source, "--memory", file, *words[1:])
        assert "counting from sample 0: the value at (3, 2, 1)" in error
        assert f"{bad}: not finite" in error
    assert not (tmp_path / "z.npy").exists()
