"""`sqhn show`, `sqhn forget`, `sqhn calibrate` and the best of `sqhn recall`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from sqhn import SQHN
from sqhn.cli import app
from sqhn.display import CAPTION, GAP

X = np.random.default_rng(0).integers(0, 256, (9, 16, 24, 3), dtype=np.uint8)


def sqhn(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SQHN:
    monkeypatch.chdir(tmp_path)
    made = SQHN((16, 24, 3), capacity=20)
    made.learn(X, value=[f"picture {n}" for n in range(9)])
    made.save("m.sqhn")
    for n, x in enumerate(X):
        Image.fromarray(x).save(f"{n}.png")
    np.save("x.npy", X)
    return made


def test_a_sheet_of_what_is_stored(memory: SQHN) -> None:
    assert "sheet.png shows 9 of 9 neurons" in sqhn("show", "m.sqhn", "--out", "sheet.png")
    sheet = np.asarray(Image.open("sheet.png"))
    scale = 3  # the smallest that makes a picture 64 pixels wide
    high = 16 * scale + CAPTION + GAP
    columns = (sheet.shape[1] - GAP) // (24 * scale + GAP)
    for j, x in enumerate(X):
        top, left = GAP + j // columns * high, GAP + j % columns * (24 * scale + GAP)
        np.testing.assert_array_equal(sheet[top : top + 16 * scale : scale, left : left + 24 * scale : scale], x)
    some = json.loads(sqhn("show", "m.sqhn", "--out", "some.png", "--most", 4, "--json"))
    assert (some["shown"], some["neurons"]) == (4, 9)


def test_what_should_be_forgotten(memory: SQHN) -> None:
    assert "forgot 2 neurons; m.sqhn has 7 of 20" in sqhn("forget", "m.sqhn", 0, 4)
    left = SQHN.load("m.sqhn")
    assert left.counts.tolist() == [0, 1, 1, 1, 0, 1, 1, 1, 1]
    before = Path("m.sqhn").read_bytes()
    assert "neuron 4 was forgotten before; nothing was changed" in sqhn("forget", "m.sqhn", 1, 4, status=1)
    assert "neuron 9 is not one of 9; nothing was changed" in sqhn("forget", "m.sqhn", 9, status=1)
    assert Path("m.sqhn").read_bytes() == before
    some = json.loads(sqhn("show", "m.sqhn", "--out", "some.png", "--most", 4, "--json"))
    assert (some["shown"], some["neurons"]) == (4, 7)
    sheet = np.asarray(Image.open("some.png"))
    np.testing.assert_array_equal(sheet[GAP : GAP + 48 : 3, GAP : GAP + 72 : 3], X[1])
    assert "0 (" not in left._repr_html_().replace("10 (", "")
    sqhn("learn", "4.png", "--memory", "m.sqhn")
    assert SQHN.load("m.sqhn").recall(X[4]).index == 0


def test_what_cannot_be_shown(memory: SQHN) -> None:
    SQHN((5, 5, 5), capacity=3).save("empty.sqhn")
    assert "nothing is stored" in sqhn("show", "empty.sqhn", "--out", "s.png", status=1)
    cube = SQHN((5, 5, 5), capacity=3)
    cube.learn(np.ones((5, 5, 5)))
    cube.save("cube.sqhn")
    assert "(5, 5, 5) are no images" in sqhn("show", "cube.sqhn", "--out", "s.png", status=1)
    assert "s.gif should be a .png" in sqhn("show", "m.sqhn", "--out", "s.gif", status=1)
    assert "no memory nothing" in sqhn("show", "nothing", "--out", "s.png", status=1)
    assert not Path("s.png").exists()


def test_the_best_pictures_side_by_side(memory: SQHN) -> None:
    about = json.loads(sqhn("recall", "3.png", "5.png", "--memory", "m.sqhn", "--out", "found", "-k", 2, "--json"))
    expected = memory.recall(X[[3, 5]], k=2)
    assert [row["index"] for row in about["samples"]] == expected.index.tolist()
    assert [row["value"][0] for row in about["samples"]] == ["picture 3", "picture 5"]
    found = np.asarray(Image.open("found/3.png"))
    np.testing.assert_array_equal(found[:, :24], X[3])
    np.testing.assert_array_equal(found[:, 24:], X[expected.index[0, 1]])
    lines = sqhn("recall", "3.png", "--memory", "m.sqhn", "--out", "found", "-k", 2)
    assert lines.count("neuron ") == 2
    assert 'value "picture 3"' in lines


def test_the_best_of_arrays(memory: SQHN) -> None:
    sqhn("recall", "x.npy", "--memory", "m.sqhn", "--out", "found.npy", "-k", 3)
    np.testing.assert_array_equal(np.load("found.npy"), memory.recall(X, k=3).x)
    assert "-k 10, but m.sqhn has no more than 9" in sqhn(
        "recall", "x.npy", "--memory", "m.sqhn", "--out", "found.npy", "-k", 10, status=1
    )


def test_a_tolerance_from_samples(memory: SQHN) -> None:
    new = np.random.default_rng(1).integers(0, 256, (99, 16, 24, 3), dtype=np.uint8)
    np.save("new.npy", new)
    about: dict[str, Any] = json.loads(
        sqhn("calibrate", "new.npy", "--memory", "m.sqhn", "--as", "new", "--error", 0.1, "--json")
    )
    assert about["rho"] == memory.calibrate(new=new, error=0.1)
    saved = SQHN.load("m.sqhn")
    assert (saved.rho, saved.calibration) == (memory.rho, memory.calibration)
    assert saved.recall(X[4]).value == "picture 4"
    assert "old samples will be called new" in sqhn("calibrate", "new.npy", "--memory", "m.sqhn", "--as", "old")


def test_values_that_json_cannot_say_and_what_info_tells(memory: SQHN) -> None:
    memory.learn(X[0], value=np.array([np.nan]))
    memory.calibrate(new=np.random.default_rng(1).random((99, 16, 24, 3)))
    memory.save("m.sqhn")
    assert "nan" in sqhn("recall", "0.png", "--memory", "m.sqhn", "--out", "found", "--json")
    told = sqhn("info", "m.sqhn")
    assert "calibrated at step 10 " in told
    assert "values" in told


def test_a_warning_is_one_line(memory: SQHN) -> None:
    memory.calibrate(new=np.random.default_rng(1).random((99, 16, 24, 3)))
    for _ in range(2):
        memory.learn(X)
    memory.save("m.sqhn")
    told = sqhn("recognize", "0.png", "--memory", "m.sqhn")
    assert "calibrate again" in told
    assert "UserWarning" not in told


def test_a_tolerance_that_cannot_be(memory: SQHN) -> None:
    before = Path("m.sqhn").read_bytes()
    assert "needs at least 99 samples; got 9" in sqhn(
        "calibrate", "x.npy", "--memory", "m.sqhn", "--as", "new", status=1
    )
    assert "got 2.0" in sqhn("calibrate", "x.npy", "--memory", "m.sqhn", "--as", "new", "--error", 2, status=1)
    sqhn("calibrate", "x.npy", "--memory", "m.sqhn", "--as", "odd", status=2)
    assert Path("m.sqhn").read_bytes() == before


def test_how_many_are_in_place_of_others_and_what_was_forgotten(memory: SQHN) -> None:
    np.save("g.npy", np.random.default_rng(0).random((20, 4)).astype(np.float32))
    told = sqhn("learn", "g.npy", "--memory", "g.sqhn", "--capacity", 5, "--when-full", "oldest")
    assert "learned 20 samples, 20 of them as new neurons (15 in place of others); g.sqhn has 5 of 5" in told
    sqhn("forget", "g.sqhn", 1, 3)
    about = json.loads(sqhn("info", "g.sqhn", "--json"))
    assert (about["forgotten"], about["holes"]) == (2, False)
    assert "2 neurons of the memory node were forgotten" in sqhn("info", "g.sqhn")
    holed = SQHN.load("g.sqhn")
    holed.learn(np.ones(4), observed=[True, True, True, False])
    holed.save("g.sqhn")
    assert "samples with missing values were learned" in sqhn("info", "g.sqhn")


def test_what_is_refused_leaves_no_folder(memory: SQHN) -> None:
    assert "-k 30, but m.sqhn has no more than 9" in sqhn(
        "recall", "0.png", "--memory", "m.sqhn", "--out", "best", "-k", 30, status=1
    )
    SQHN((16, 24, 3), capacity=3).save("empty.sqhn")
    sqhn("recall", "0.png", "--memory", "empty.sqhn", "--out", "best", status=1)
    assert not Path("best").exists()
