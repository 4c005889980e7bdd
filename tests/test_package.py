"""The package as a whole: imports, missing extras, built-in data."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sqhn import SQHN
from sqhn.cli import app
from sqhn.data import builtin, digits, photos, random_crops
from sqhn.level import Options


def test_importing_is_light() -> None:
    """Neither numba nor torch nor any extra is imported before it is needed."""
    heavy = "numba torch matplotlib sklearn skimage mlxtend pandas"
    program = f"import sys, sqhn; print([name for name in {heavy.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_bench_prints_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqhn.bench.cpu.CASES", {"one": lambda: {"value": 1.5, "met": True}})
    result = CliRunner().invoke(app, ["bench"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["cases"]["one"]["value"] == 1.5
    assert document["machine"]["threads"] >= 1


def test_bench_refuses_unknown_cases() -> None:
    result = CliRunner().invoke(app, ["bench", "no-such-case"])
    assert result.exit_code == 2
    assert "learn-1" in result.output


@pytest.mark.parametrize("command", [["reproduce", "TH2"], ["bench"]])
def test_a_missing_extra_names_the_package_to_install(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mlxtend.data", "skimage.data", "joblib"):
        monkeypatch.setitem(sys.modules, name, None)
    builtin.photographs.cache_clear()
    result = CliRunner().invoke(app, command)
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
    assert len({image.tobytes() for image in x}) > 0.99 * count
    np.testing.assert_array_equal(photos(size), x)


def test_random_crops_are_seeded() -> None:
    np.testing.assert_array_equal(random_crops(5, seed=1), random_crops(5, seed=1))
    assert not np.array_equal(random_crops(5, seed=1), random_crops(5, seed=2))


def test_the_arguments_of_a_memory_match_its_options() -> None:
    """The list is written twice, for editors and `help`."""
    given = inspect.signature(SQHN).parameters
    wanted = {field.name: field.default for field in dataclasses.fields(Options)} | {"similarity": None}
    assert {name: given[name].default for name in given if name in wanted} == wanted
    level = {"capacity", "alpha", "gamma", "when_full"}
    assert set(given) - set(wanted) == {"input_shape", "levels", "device", "shards", "folder"} | level


def modules(folder: Path) -> set[str]:
    """The modules and packages in a folder, as pages write them."""
    packages = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    return packages | {path.name for path in folder.glob("*.py") if not path.name.startswith("__")}


def test_the_tables_of_modules_are_complete() -> None:
    """ARCHITECTURE.md names every module once, in the order of the layers that imports are checked against."""
    root = Path(__file__).parents[1]
    text, source = (root / "ARCHITECTURE.md").read_text(), root / "src" / "sqhn"
    rows = re.findall(r"^\| (`[^|]*) \| (.*) \|$", text, re.MULTILINE)
    names = [name for first, _ in rows for name in re.findall(r"`([^`]*)`", first)]
    layers = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    outer = [name.removesuffix("/").removesuffix(".py") for name in names]
    for layer in layers:
        number = len(layer.split(" | "))
        assert set(outer[:number]) == set(layer.split(" | "))
        del outer[:number]
    assert sorted(set(names) - modules(source)) == sorted(modules(source / "banks"))
    for folder in ("storage", "model"):
        assert set(re.findall(r"`([^`]*\.py)`", dict(rows)[f"`{folder}/`"])) == modules(source / folder)
