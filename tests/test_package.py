"""The package as a whole: what importing costs, the command line, built-in data, corruptions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from sqhn import bench, demo
from sqhn.cli import app
from sqhn.data import builtin, digits, photos, random_crops
from sqhn.data.corruptions import black_occlusion, pixel_dropout, right_mask, white_noise


def test_importing_is_light() -> None:
    """Neither numba nor torch nor any extra is imported before it is needed."""
    heavy = "numba torch matplotlib sklearn skimage mlxtend pandas"
    program = f"import sys, sqhn; print([name for name in {heavy.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_bench_prints_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "CASES", {"one": lambda: {"value": 1.5, "met": True}})
    result = CliRunner().invoke(app, ["bench"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["cases"]["one"]["value"] == 1.5
    assert document["machine"]["threads"] >= 1


def test_bench_refuses_unknown_cases() -> None:
    result = CliRunner().invoke(app, ["bench", "no-such-case"])
    assert result.exit_code == 2
    assert "learn-1" in result.output


def test_the_demonstration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "STORED", 40)
    result = CliRunner().invoke(app, ["reproduce", "--out", str(tmp_path / "new" / "folder")])
    assert result.exit_code == 0, result.output
    assert "old called old" in result.stdout
    for name in ("recall", "recall_digits", "recall_photos"):
        picture = tmp_path / "new" / "folder" / f"{name}.png"
        assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", ["reproduce", "bench"])
def test_a_missing_extra_is_a_line_that_says_what_to_install(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mlxtend.data", "skimage.data"):
        monkeypatch.setitem(sys.modules, name, None)
    builtin._photographs.cache_clear()
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 1
    assert "pip install 'sqhn[experiments]'" in result.output
    assert "Traceback" not in result.output


def test_digits() -> None:
    x, y = digits(seed=None)
    assert (x.shape, x.dtype.name, x.min(), x.max()) == ((5000, 28, 28), "uint8", 0, 255)
    assert np.bincount(y).tolist() == [500] * 10
    shuffled, labels = digits(seed=3)
    assert np.bincount(labels).tolist() == [500] * 10
    assert x.sum(dtype=np.int64) == shuffled.sum(dtype=np.int64)
    np.testing.assert_array_equal(digits(seed=3)[0], shuffled)


@pytest.mark.parametrize(("size", "count"), [(32, 1723), (64, 403), (128, 94)])
def test_photos_do_not_overlap(size: int, count: int) -> None:
    x = photos(size)
    assert (x.shape, x.dtype.name) == ((count, size, size, 3), "uint8")
    assert len({picture.tobytes() for picture in x}) > 0.99 * count
    np.testing.assert_array_equal(photos(size), x)


def test_random_crops_are_seeded() -> None:
    np.testing.assert_array_equal(random_crops(5, seed=1), random_crops(5, seed=1))
    assert not np.array_equal(random_crops(5, seed=1), random_crops(5, seed=2))


class TestCorruptions:
    def test_white_noise(self, pictures: NDArray[np.float32]) -> None:
        grey = np.full((50, 32, 32, 3), 0.5, np.float32)
        spoiled, observed = white_noise(grey, 0.1, np.random.default_rng(0))
        assert observed is None
        assert np.std(spoiled - grey) == pytest.approx(0.1, rel=0.01)
        loud, _ = white_noise(pictures[:5], 2.0, np.random.default_rng(0))
        assert (loud.min(), loud.max()) == (0, 1)

    def test_black_occlusion(self, pictures: NDArray[np.float32]) -> None:
        white = np.ones((20, 32, 32, 3), np.float32)
        spoiled, observed = black_occlusion(white, 0.25, np.random.default_rng(0))
        assert observed is None
        np.testing.assert_array_equal(spoiled.mean(axis=(1, 2, 3)), np.float32(0.75))

    def test_pixel_dropout(self, pictures: NDArray[np.float32]) -> None:
        _, observed = pixel_dropout(pictures[:20], 0.75, np.random.default_rng(0))
        assert observed is not None
        assert observed.mean() == pytest.approx(0.25, abs=0.01)
        assert np.all(observed == observed[..., :1])  # all channels together

    def test_right_mask(self, pictures: NDArray[np.float32]) -> None:
        _, observed = right_mask(pictures[:2], 0.25, np.random.default_rng(0))
        assert observed is not None
        assert observed[:, :, :24].all()
        assert not observed[:, :, 24:].any()
