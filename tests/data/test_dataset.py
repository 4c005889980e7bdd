"""Loading data sets: built-in, from a folder, and from the cache."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sqhn.data
from sqhn.data import NAMES, DataFileError, Dataset, MissingDataError, load
from sqhn.data.catalogue import CATALOGUE, Entry
from sqhn.data.dataset import cache_folder, location


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty SQHN_DATA, and an empty cache beside it."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("SQHN_DATA", str(folder))
    monkeypatch.setenv("SQHN_CACHE", str(tmp_path / "cache"))
    return folder


def arrays(name: str, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for split in CATALOGUE[name].contents.counts:
        made[f"x_{split}"] = rng.integers(0, 256, (5, *CATALOGUE[name].contents.shape), np.uint8)
        made[f"y_{split}"] = rng.integers(0, 10, 5)
    return made


def store(monkeypatch: pytest.MonkeyPatch, name: str, source: str = "npm a-package") -> Path:
    """A small data set in the cache, as if it had been fetched."""
    entry = CATALOGUE[name]
    small = replace(entry.contents, counts=dict.fromkeys(entry.contents.counts, 5))
    monkeypatch.setitem(CATALOGUE, name, Entry(small, *entry.sources, stand_in=entry.stand_in))
    folder = cache_folder() / name
    folder.mkdir(parents=True)
    for key, array in arrays(name).items():
        np.save(folder / f"{key}.npy", array)
    (folder / "meta.json").write_text(json.dumps({"source": source}))
    return folder


def test_public_names() -> None:
    assert set(sqhn.data.__all__) >= {"Dataset", "Split", "MissingDataError", "DataFileError", "load", "NAMES"}
    assert {"digits", "photos32", "mnist", "emnist", "svhn", "cifar100", "tiny_imagenet", "caltech256"} < set(NAMES)
    assert issubclass(MissingDataError, LookupError)
    assert issubclass(DataFileError, ValueError)


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_from_a_file(data: Path, name: str) -> None:
    made = arrays(name)
    np.savez(data / f"{name}.npz", **made)
    got = load(name)
    assert isinstance(got, Dataset)
    assert (got.name, got.source) == (name, f"{name}.npz")
    assert location(name) == f"{name}.npz in SQHN_DATA"
    assert list(got.splits) == list(CATALOGUE[name].contents.counts)
    for split, (x, y) in got.splits.items():
        np.testing.assert_array_equal(x, made[f"x_{split}"])
        np.testing.assert_array_equal(y, made[f"y_{split}"])
        assert not x.flags.writeable
        assert not y.flags.writeable
    assert load(name) is got  # loaded once per process


def test_another_folder_gives_another_data_set(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(data / "mnist.npz", **arrays("mnist"))
    other = data / "other"
    other.mkdir()
    np.savez(other / "mnist.npz", **arrays("mnist", seed=1))
    first = load("mnist")
    monkeypatch.setenv("SQHN_DATA", str(other))
    assert (load("mnist").splits["train"].x != first.splits["train"].x).any()


@pytest.mark.parametrize(("name", "stand_in"), [("emnist", "emnist_letters"), ("caltech256", "caltech101")])
def test_the_source_names_a_stand_in(data: Path, name: str, stand_in: str) -> None:
    made = arrays(name)
    np.savez(data / f"{stand_in}.npz", **made)
    assert location(name) == f"{stand_in}.npz in SQHN_DATA"
    np.savez(data / f"{name}.npz", **made)
    assert location(name) == f"{name}.npz in SQHN_DATA"
    (data / f"{name}.npz").unlink()
    assert load(name).source == f"{stand_in}.npz"


def test_bad_files_are_named(data: Path) -> None:
    np.savez(data / "cifar10.npz", **arrays("mnist"))
    with pytest.raises(DataFileError, match=r"^cifar10.npz: x_train is uint8 \(5, 28, 28\), expected .* 32, 32, 3\)$"):
        load("cifar10")
    (data / "svhn.npz").write_text("nothing")
    with pytest.raises(DataFileError, match=r"^svhn.npz: "):
        load("svhn")


def test_a_file_takes_precedence_over_the_cache(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(monkeypatch, "mnist")
    np.savez(data / "mnist.npz", **arrays("mnist"))
    assert load("mnist").source == "mnist.npz"


@pytest.mark.parametrize("name", ["mnist", "tiny_imagenet", "caltech256"])
def test_from_the_cache(data: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    store(monkeypatch, name)
    assert location(name) == "cached"
    got = load(name)
    assert got.source == "npm a-package"
    for split, (x, y) in got.splits.items():
        assert isinstance(x, np.memmap)
        assert not x.flags.writeable
        np.testing.assert_array_equal(x, arrays(name)[f"x_{split}"])
        np.testing.assert_array_equal(y, arrays(name)[f"y_{split}"])


@pytest.mark.parametrize("file", ["x_train.npy", "y_test.npy", "meta.json"])
def test_a_damaged_cache(data: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    damaged = store(monkeypatch, "mnist") / file
    for content in (damaged.read_bytes()[:-3], b"", b"[]"):
        damaged.write_bytes(content)
        with pytest.raises(DataFileError, match=r"the stored mnist is damaged \(.*\): remove its folder and run"):
            load("mnist")
    if file != "meta.json":
        np.save(damaged, np.zeros(4, np.uint8))
        with pytest.raises(DataFileError, match=r"has shapes .*\(4,\).*, expected \(5, 28, 28\) and \(5,\)"):
            load("mnist")


def test_missing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert location("svhn") is None
    with pytest.raises(
        MissingDataError, match=r"run `sqhn data get svhn`, or put svhn.npz .* SQHN_DATA; SQHN_DATA is "
    ):
        load("svhn")
    monkeypatch.delenv("SQHN_DATA")
    with pytest.raises(MissingDataError, match=r"environment variable SQHN_DATA$"):
        load("svhn")


def test_unknown() -> None:
    with pytest.raises(MissingDataError, match=r"unknown data set 'minst'; there are digits, .*mnist"):
        load("minst")


def test_the_default_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SQHN_CACHE", raising=False)
    assert cache_folder().name == "sqhn"


# -- files of users ----------------------------------------------------------------------------------------------------


def file_of(count: int = 4) -> dict[str, Any]:
    x = np.random.default_rng(0).integers(0, 256, (count, 3, 5), np.uint8)
    return {"x_train": x, "y_train": np.arange(count), "x_test": x[:2], "y_test": np.array([1, 0])}


def test_a_file_of_any_name(tmp_path: Path) -> None:
    path = tmp_path / "anything.npz"
    np.savez(path, **file_of())
    got = load(str(path))
    np.testing.assert_array_equal(got.splits["train"].x, file_of()["x_train"])
    assert got.splits["test"].y.tolist() == [1, 0]
    assert not got.splits["train"].x.flags.writeable
    np.savez(path, **file_of(5))
    os.utime(path, ns=(1, 1))
    assert len(load(str(path)).splits["train"].x) == 5
    assert load(str(path)).source != got.source


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "array y_test is missing; it has x_test, x_train, y_train"),
        ({"x_train": None}, "array x_train is missing"),
        ({"x_train": np.zeros((4, 3, 5))}, "x_train is float64 .*expected uint8"),
        (
            {"x_train": np.zeros(4, np.uint8)},
            r"x_train is uint8 \(4,\), expected uint8 images of shape",
        ),
        ({"x_test": np.zeros((2, 3, 4), np.uint8)}, r"x_test is uint8 \(2, 3, 4\), expected uint8"),
        ({"y_train": np.arange(3)}, r"y_train: has shape \(3,\), expected \(4,\)"),
        ({"y_train": np.full(4, 0.5)}, "y_train: expected integers"),
    ],
)
def test_files_that_are_no_data_sets(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    kept = {name: array for name, array in (file_of() | changes).items() if array is not None}
    np.savez(tmp_path / "my.npz", **kept)
    with pytest.raises(DataFileError, match=rf"my\.npz: .*{message}"):
        load(str(tmp_path / "my.npz"))


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"my\.npz"):
        load(str(tmp_path / "my.npz"))
