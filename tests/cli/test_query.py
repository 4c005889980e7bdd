"""`sqhn recall` and `sqhn recognize`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from sqhn import SQHN, Level
from tests.cli.commands import (
    COLOR,
    GRAY,
    Pixels,
    error_of,
    files_in,
    image_folder,
    json_of,
    load_image,
    output_of,
    put,
    saved_memory,
    sqhn,
)

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.mark.parametrize("x", [COLOR, GRAY], ids=["color", "gray"])
@pytest.mark.parametrize("mask_kind", ["png", "npy"])
def test_the_missing_half_is_filled_in(x: Pixels, mask_kind: str, tmp_path: Path, file: Path) -> None:
    x = x[:20]
    memory = saved_memory(file, x)
    mask = np.zeros(x.shape[1:3], bool)
    mask[:, : x.shape[2] // 2] = True
    halves = x.copy()
    halves[:, ~mask] = 0
    mask_file = put(tmp_path / f"mask.{mask_kind}", mask)
    words = ("recall", image_folder(tmp_path / "in", halves), "--memory", file, "--out", tmp_path / "out")
    rows = json_of(*words, "--observed", mask_file)["samples"]
    observed = np.broadcast_to(mask.reshape(mask.shape + (1,) * (x.ndim - 3)), x.shape[1:])
    expected = memory.recall(halves, observed, inference="evidence")
    assert [row["name"] for row in rows] == [f"{n:03}.png" for n in range(20)]
    assert [row["index"] for row in rows] == expected.index.tolist()
    assert [row["score"] for row in rows] == expected.score.tolist()
    for n in range(20):
        written = load_image(tmp_path / "out" / f"{n:03}.png")
        np.testing.assert_array_equal(written, np.rint(expected.x[n] * 255))
        np.testing.assert_array_equal(written, x[n])


@pytest.mark.parametrize("inference", ["paper", "feedforward", "exact", "evidence"])
def test_an_array_by_each_rule(inference: str, tmp_path: Path, file: Path) -> None:
    memory = saved_memory(file, COLOR, Level(4, 20), Level(None, 20))
    x = np.clip(COLOR / 255 + np.random.default_rng(0).normal(0, 0.2, COLOR.shape), 0, 1)
    words = ("recall", put(tmp_path / "x.npy", x), "--memory", file, "--out", tmp_path / "y.npy")
    rows = json_of(*words, "--inference", inference)["samples"]
    expected = memory.recall(x, inference=inference)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected.x)
    assert [(row["name"], row["index"]) for row in rows] == [(str(n), k) for n, k in enumerate(expected.index.tolist())]
    assert [row["score"] for row in rows] == pytest.approx(expected.score.tolist(), rel=1e-12)


def test_missing_values_may_be_anything(tmp_path: Path, file: Path) -> None:
    memory = saved_memory(file, GRAY)
    mask = np.random.default_rng(0).random((24, 20)) < 0.5
    one = np.where(mask, GRAY[3] / 255, np.nan)
    words = ("recall", put(tmp_path / "x.npy", one), "--memory", file, "--out", tmp_path / "out")
    assert "nan" in error_of(*words)
    assert not (tmp_path / "out").exists()
    output_of(*words, "--observed", put(tmp_path / "mask.npy", mask))
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "x.npy"), memory.recall(one, mask).x)


@pytest.mark.parametrize("kind", ["x.npy", "x.png"])
def test_output_into_a_file_that_is_no_folder(kind: str, tmp_path: Path, file: Path) -> None:
    saved_memory(file, GRAY)
    source = put(tmp_path / kind, GRAY if kind == "x.npy" else GRAY[0])
    for out in (file, file / kind):
        assert str(file) in error_of("recall", source, "--memory", file, "--out", out)
    assert files_in(tmp_path) == ["m.sqhn", kind]


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        (np.zeros((20, 24), bool), "has shape (20, 24), but the samples of the memory have (24, 20)"),
        (np.zeros((0, 20), bool), "has shape (0, 20)"),
        (np.zeros((24, 20)), "must be boolean"),
    ],
)
def test_masks_that_do_not_fit(mask: NDArray[Any], reason: str, tmp_path: Path, file: Path) -> None:
    saved_memory(file, GRAY)
    words = ("recall", put(tmp_path / "x.npy", GRAY), "--memory", file, "--out", tmp_path / "out")
    assert reason in error_of(*words, "--observed", put(tmp_path / "mask.npy", mask))
    assert not (tmp_path / "out").exists()


def test_one_image(tmp_path: Path, file: Path) -> None:
    memory = saved_memory(file, GRAY[:20])
    source = image_folder(tmp_path / "in", GRAY[:20]) / "004.png"
    text = output_of("recall", source, "--memory", file, "--out", tmp_path / "found.png")
    score = memory.recall(GRAY[4], inference="evidence").score
    assert text == f"004.png  neuron 4  score {score:.6f}\nrecalled 1 (rule: evidence)\n"
    np.testing.assert_array_equal(load_image(tmp_path / "found.png"), GRAY[4])


def test_resize(tmp_path: Path, file: Path) -> None:
    saved_memory(file, GRAY)
    larger = tmp_path / "large.png"
    Image.fromarray(GRAY[0]).resize((40, 48), Image.Resampling.NEAREST).save(larger)
    words = ("recall", larger, "--memory", file, "--out", tmp_path / "out")
    result = sqhn(*words, "--json")
    assert result.stderr == "1 image is scaled to 20x24, the size of the memory\n"
    assert json.loads(result.stdout)["samples"][0]["index"] == 0
    assert load_image(tmp_path / "out" / "large.png").shape == (24, 20)


def test_an_unknown_rule(tmp_path: Path, file: Path) -> None:
    words = ("recall", tmp_path, "--memory", file, "--out", tmp_path, "--inference", "guess")
    assert "guess" in error_of(*words, status=2)


def test_the_best_images_side_by_side(tmp_path: Path, file: Path) -> None:
    memory = SQHN((16, 16, 3), capacity=20)
    memory.learn(COLOR[:9], value=[f"image {n}" for n in range(9)])
    memory.save(file)
    sources = image_folder(tmp_path / "in", COLOR[:9])
    words = ("--memory", file, "--out", tmp_path / "out", "-k", 2)
    rows = json_of("recall", sources / "003.png", sources / "005.png", *words)["samples"]
    expected = memory.recall(COLOR[[3, 5]], k=2, inference="evidence")
    assert [row["index"] for row in rows] == expected.index.tolist()
    assert [row["value"][0] for row in rows] == ["image 3", "image 5"]
    found = load_image(tmp_path / "out" / "003.png")
    np.testing.assert_array_equal(found[:, :16], COLOR[3])
    np.testing.assert_array_equal(found[:, 16:], COLOR[expected.index[0, 1]])
    line = output_of("recall", sources / "003.png", *words)
    assert line.count("neuron ") == 2
    assert "value image 3" in line


def test_the_best_of_arrays(tmp_path: Path, file: Path) -> None:
    memory = saved_memory(file, GRAY[:9])
    words = ("recall", put(tmp_path / "x.npy", GRAY[:9]), "--memory", file, "--out", tmp_path / "y.npy")
    output_of(*words, "-k", 3)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), memory.recall(GRAY[:9], k=3).x)
    assert f"-k {len(memory) + 1}, but {file} has only {len(memory)}" in error_of(*words, "-k", len(memory) + 1)


def test_errors_leave_no_folder(tmp_path: Path, file: Path) -> None:
    words = ("recall", image_folder(tmp_path / "in", GRAY[:2]), "--memory", file, "--out", tmp_path / "out")
    saved_memory(file, GRAY[:9])
    error_of(*words, "-k", 30)
    saved_memory(file, GRAY[:0])
    assert error_of(*words).startswith("this memory is empty")
    assert not (tmp_path / "out").exists()


def test_old_and_new(tmp_path: Path, file: Path) -> None:
    memory = saved_memory(file, COLOR[:20])
    expected = memory.recognize(COLOR)
    source = image_folder(tmp_path / "in", COLOR)
    found = json_of("recognize", source, "--memory", file)
    assert found["samples"] == [
        {
            "name": f"{n:03}.png",
            "old": old,
            "score": score,
            "threshold": threshold,
            "index": n if old else None,
            "value": None,
        }
        for n, (old, score, threshold) in enumerate(zip(*(field.tolist() for field in expected[:3])))
    ]
    assert (found["old"], found["new"]) == (expected.old.sum(), (~expected.old).sum())
    lines = output_of("recognize", source, "--memory", file).splitlines()
    assert [line.split()[1] for line in lines[:-1]] == ["old" if old else "new" for old in expected.old]
    assert lines[-1] == f"{expected.old.sum()} old, {(~expected.old).sum()} new (rule: paper)"


def test_everything_is_new_to_an_empty_memory(tmp_path: Path, file: Path) -> None:
    saved_memory(file, GRAY[:0])
    found = json_of("recognize", put(tmp_path / "x.npy", GRAY[:2]), "--memory", file)
    assert [(row["old"], row["score"]) for row in found["samples"]] == [(False, None)] * 2


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_float16(bad: float, tmp_path: Path, file: Path) -> None:
    halves = (GRAY / 255).astype(np.float16)
    memory = saved_memory(file, halves.astype(np.float32))
    source = put(tmp_path / "x.npy", halves)
    found = json_of("recognize", source, "--memory", file)["samples"]
    assert [row["score"] for row in found] == memory.recognize(halves.astype(np.float32)).score.tolist()
    output_of("recall", source, "--memory", file, "--out", tmp_path / "y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), memory.recall(halves.astype(np.float32)).x)
    halves[3, 2, 1] = bad
    put(source, halves)
    for words in (("recognize",), ("recall", "--out", tmp_path / "z.npy")):
        error = error_of(words[0], source, "--memory", file, *words[1:])
        assert "counting from sample 0: the value at (3, 2, 1)" in error
        assert f"{bad}: not finite" in error
    assert not (tmp_path / "z.npy").exists()
