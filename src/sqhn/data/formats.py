"""File formats that data sets come in: one reader for each format, whatever the data set.

A reader takes the files (archives are looked into, nothing is unpacked), the shape that each split must have, and
someone to tell about progress; it returns the splits. Whatever is wrong with a file is a `DataFileError`.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DataFileError",
    "Progress",
    "Reader",
    "Shapes",
    "Split",
    "cifar_binary",
    "cifar_sheets",
    "class_json",
    "idx",
    "mat",
    "npz",
    "picture_folders",
    "recordings",
]

Pictures = NDArray[np.uint8]
Labels = NDArray[np.int64]
Shapes = Mapping[str, tuple[int, ...]]  # per split: how many pictures, and the shape of one
Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much


class Split(NamedTuple):
    """Pictures `(n, height, width)` or `(n, height, width, channels)`, and their labels `(n,)`."""

    x: Pictures
    y: Labels


Reader = Callable[[Sequence[Path], Shapes, Progress], dict[str, Split]]


class DataFileError(ValueError):
    """A data file is damaged, or is not what it should be."""


# Files, and members of archives


@contextmanager
def _damaged(name: str) -> Iterator[None]:
    """What decompressors raise, as one error that names the file."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise DataFileError(f"{name}: damaged or cut short ({error})") from error
    except (NotImplementedError, RuntimeError) as error:  # zipfile: an unknown compression, a password
        raise DataFileError(f"{name}: cannot be read ({error})") from error


def _checked(archive: str, member: str, plain: bool) -> str:
    """The name of a member; an error unless it stays inside the archive's folder and is a file or a folder."""
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member or ":" in member:
        raise DataFileError(f"{archive}: member {member!r} points outside the archive")
    if not plain:
        raise DataFileError(f"{archive}: member {member!r} is neither a file nor a folder")
    return path.as_posix()


class _File(NamedTuple):
    """A file, or a member of an archive."""

    title: str  # what errors call it
    name: str
    content: Callable[[], bytes]

    def read(self) -> bytes:
        with _damaged(self.title):
            return self.content()


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return b"" if file is None else file.read()


def _contents(paths: Iterable[Path]) -> Iterator[_File]:
    """The files, or the members of archives in their order, to the end: a bad one is noticed wherever it is."""
    for path in paths:
        with _damaged(path.name):
            if path.suffix in (".zip", ".whl"):
                with zipfile.ZipFile(path) as packed:
                    for info in packed.infolist():
                        link = stat.S_ISLNK(info.external_attr >> 16)
                        name = _checked(path.name, info.filename, plain=not link)
                        if not info.is_dir():
                            yield _File(f"{path.name}: {name}", name, partial(packed.read, info))
            elif path.suffix in (".tar", ".tgz") or path.name.endswith(".tar.gz"):
                with (
                    path.open("rb") if path.suffix == ".tar" else gzip.open(path) as stream,
                    tarfile.open(fileobj=stream, mode="r:") as tar,
                ):
                    for member in tar:
                        name = _checked(path.name, member.name, plain=member.isfile() or member.isdir())
                        if member.isfile():
                            yield _File(f"{path.name}: {name}", name, partial(_extract, tar, member))
                    while stream.read(1 << 20):  # to the very end, where gzip has its checksum
                        pass
            else:
                yield _File(path.name, path.name, path.read_bytes)


def _pick(paths: Sequence[Path], wanted: Iterable[str]) -> dict[str, tuple[str, bytes]]:
    """The wanted files by their names, as (what errors call it, content); gzip is undone."""
    wanted = tuple(wanted)
    found: dict[str, tuple[str, bytes]] = {}
    for file in _contents(paths):
        if file.name in wanted:
            content = file.read()
            with _damaged(file.title):
                found[file.name] = file.title, gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    for name in wanted:
        if name not in found:
            raise DataFileError(f"{', '.join(path.name for path in paths)}: {name} is missing")
    return found


def _expect(title: str, what: str, got: Any, expected: Any) -> None:
    if got != expected:
        raise DataFileError(f"{title}: {what} {got}, expected {expected}")


# The formats


def _idx_array(title: str, content: bytes, shape: tuple[int, ...]) -> Pictures:
    """One idx file: two zeros, the type (8: bytes), the number of axes, their big-endian lengths, the values."""
    axes = len(shape)
    _expect(title, "starts with", content[:4].hex(" "), bytes((0, 0, 8, axes)).hex(" "))
    start = 4 + 4 * axes
    _expect(title, "bytes of header:", len(content[:start]), start)
    _expect(title, "has shape", tuple(np.frombuffer(content[4:start], ">u4").tolist()), shape)
    _expect(title, "bytes of values:", len(content) - start, int(np.prod(shape)))
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def idx(
    paths: Sequence[Path],
    shapes: Shapes,
    progress: Progress,
    *,
    names: Mapping[str, tuple[str, str]],
    transposed: bool = False,
) -> dict[str, Split]:
    """idx files, as MNIST has them, each plain or gzipped.

    names: per split, the file of the pictures and that of the labels.
    transposed: rows and columns are exchanged, as in EMNIST.
    """
    files = _pick(paths, [name for pair in names.values() for name in pair])
    splits = {}
    for done, (split, (pictures, labels)) in enumerate(names.items(), 1):
        x = _idx_array(*files.pop(pictures), shapes[split])
        y = _idx_array(*files.pop(labels), shapes[split][:1])
        splits[split] = Split(np.ascontiguousarray(x.swapaxes(1, 2)) if transposed else x, y.astype(np.int64))
        progress("reading", done, len(names))
    return splits


def cifar_binary(
    paths: Sequence[Path],
    shapes: Shapes,
    progress: Progress,
    *,
    names: Mapping[str, Sequence[str]],
    label_bytes: int = 1,
) -> dict[str, Split]:
    """CIFAR's binary records: label bytes (the last one counts), then all red, all green, all blue values.

    names: per split, its files in order.
    """
    files = _pick(paths, [name for some in names.values() for name in some])
    splits = {}
    for done, (split, some) in enumerate(names.items(), 1):
        count, height, width, channels = shapes[split]
        record = label_bytes + height * width * channels
        for title, content in (files[name] for name in some):
            _expect(title, f"bytes beyond whole records of {record}:", len(content) % record, 0)
        records = np.frombuffer(b"".join(files.pop(name)[1] for name in some), np.uint8).reshape(-1, record)
        _expect(", ".join(some), "pictures:", len(records), count)
        x = records[:, label_bytes:].reshape(count, channels, height, width).transpose(0, 2, 3, 1)
        splits[split] = Split(np.ascontiguousarray(x), records[:, label_bytes - 1].astype(np.int64))
        progress("reading", done, len(names))
    return splits


def cifar_sheets(
    paths: Sequence[Path],
    shapes: Shapes,
    progress: Progress,
    *,
    sheets: Mapping[str, Sequence[str]],
    labels: Mapping[str, str],
) -> dict[str, Split]:
    """Sheets of pictures: every row of pixels of a sheet is one picture, its own rows one after another.

    sheets: per split, its picture files in order.
    labels: per split, a JSON list of numbers.
    """
    files = _pick(paths, [name for some in sheets.values() for name in some] + list(labels.values()))
    splits = {}
    read, total = 0, sum(map(len, sheets.values()))
    for split, some in sheets.items():
        count, height, width, channels = shapes[split]
        rows = []
        for name in some:
            title, content = files.pop(name)
            sheet = _rgb(title, content)
            _expect(title, "is a sheet of width and channels", sheet.shape[1:], (height * width, channels))
            rows.append(sheet.reshape(-1, height, width, channels))
            read += 1
            progress("reading", read, total)
        x = np.concatenate(rows)
        _expect(", ".join(some), "pictures:", len(x), count)
        title, content = files.pop(labels[split])
        splits[split] = Split(x, _integers(title, _json(title, content), (count,)).astype(np.int64))
    return splits


def class_json(
    paths: Sequence[Path], shapes: Shapes, progress: Progress, *, names: Sequence[str], seed: int = 0
) -> dict[str, Split]:
    """One JSON file `{"data": [[pixel, ...], ...]}` for each class; the place of its name is the label.

    Empty pictures are left out. The files tell no train from test; the first pictures of every class, as many as it
    takes for equal shares, are the test split, the others the train split. Each split is then shuffled with the seed,
    since a stream sorted by class would be another task.
    """
    files = _pick(paths, names)
    parts: dict[str, list[Pictures]] = {"test": [], "train": []}
    for label, name in enumerate(names):
        title, content = files.pop(name)
        data = _json(title, content)
        if not isinstance(data, dict) or not isinstance(data.get("data"), list):
            raise DataFileError(f'{title}: expected {{"data": [...]}}')
        shares = {split: shapes[split][0] // len(names) for split in parts}
        pictures = [picture for picture in data["data"] if picture]
        shape = (sum(shares.values()), int(np.prod(shapes["train"][1:])))
        values = _integers(title, pictures, shape)
        _expect(title, "values beyond 255:", int((values > 255).sum()), 0)
        x = values.astype(np.uint8).reshape(-1, *shapes["train"][1:])
        parts["test"].append(x[: shares["test"]])
        parts["train"].append(x[shares["test"] :])
        progress("reading", label + 1, len(names))
    splits = {}
    for split in shapes:
        x, y = np.concatenate(parts[split]), np.repeat(np.arange(len(names)), [len(part) for part in parts[split]])
        order = np.random.default_rng(seed).permutation(len(x))
        splits[split] = Split(x[order], y[order].astype(np.int64))
    return splits


def mat(
    paths: Sequence[Path], shapes: Shapes, progress: Progress, *, names: Mapping[str, str], zero: int
) -> dict[str, Split]:
    """MATLAB files (version 5) with pictures `X (height, width, channels, n)` and labels `y`.

    zero: the label that stands for 0, as 10 does in SVHN.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    files = _pick(paths, names.values())
    splits = {}
    for done, (split, name) in enumerate(names.items(), 1):
        title, content = files.pop(name)
        count, *shape = shapes[split]
        try:
            with _damaged(title):
                arrays = loadmat(io.BytesIO(content), variable_names=("X", "y"))
        except (MatReadError, ValueError, TypeError, OSError) as error:
            raise DataFileError(f"{title}: not a MATLAB file, or cut short ({error})") from error
        for key in ("X", "y"):
            if key not in arrays:
                raise DataFileError(f"{title}: array {key} is missing")
        x, y = arrays["X"], arrays["y"].ravel()
        _expect(title, "X has type and shape", (str(x.dtype), x.shape), ("uint8", (*shape, count)))
        y = _integers(title, y, (count,)).astype(np.int64)
        splits[split] = Split(np.ascontiguousarray(np.moveaxis(x, -1, 0)), np.where(y == zero, 0, y))
        progress("reading", done, len(names))
    return splits


def picture_folders(
    paths: Sequence[Path],
    shapes: Shapes,
    progress: Progress,
    *,
    patterns: Mapping[str, str],
    annotations: str | None = None,
) -> dict[str, Split]:
    """Picture files (JPEG, PNG, ...) in an archive, in its order; grey ones become colour, all are cut to one size.

    patterns: per split, what the names of its pictures match; group 1 is the class, or the name in the annotations.
    annotations: a text file whose lines are a picture's name, a tab, its class, and what nobody needs.

    Classes are numbered in the order of their sorted names.
    """
    x = {split: np.zeros(shape, np.uint8) for split, shape in shapes.items()}
    keys: dict[str, list[str]] = {split: [] for split in shapes}
    notes: dict[str, str] = {}
    read, total = 0, sum(shape[0] for shape in shapes.values())
    for file in _contents(paths):
        if file.name == annotations:
            lines = file.read().decode("utf-8", "replace").splitlines()
            notes = {key: label for key, label, *_ in (line.split("\t") for line in lines if "\t" in line)}
        for split, pattern in patterns.items():
            if match := re.fullmatch(pattern, file.name):
                place = len(keys[split])
                keys[split].append(match[1])
                if place < len(x[split]):
                    x[split][place] = _centre(_rgb(file.title, file.read()), *shapes[split][1:3])
                    read += 1
                    progress("reading", read, total)
    archive = ", ".join(path.name for path in paths)
    for split, some in keys.items():
        _expect(archive, f"pictures for {split}:", len(some), len(x[split]))
    names = {split: [notes.get(key, key) for key in some] for split, some in keys.items()}
    number = {label: i for i, label in enumerate(sorted(set(names[next(iter(names))])))}
    splits = {}
    for split, some in names.items():
        for label in some:
            if label not in number:
                raise DataFileError(f"{archive}: a picture of {split} has no class: {label!r}")
        splits[split] = Split(x[split], np.array([number[label] for label in some], np.int64))
    return splits


def recordings(
    paths: Sequence[Path], shapes: Shapes, progress: Progress, *, name: str, reach: Sequence[float]
) -> dict[str, Split]:
    """Recordings of several sensors, cut into pieces one after another, what is left of each left out.

    The file is a pickled dictionary, so it must be one whose hash was checked: "X", a list of arrays (steps, sensors),
    and "y", their labels. reach: of each sensor, what becomes 0 and 255 is minus and plus this.
    """
    ((split, (count, steps, _, sensors)),) = shapes.items()
    title, content = _pick(paths, [name])[name]
    with _damaged(title):
        found = np.load(io.BytesIO(content), allow_pickle=True).item()
    pieces, labels = [], []
    for done, (values, label) in enumerate(zip(found["X"], found["y"]), 1):
        _expect(title, "sensors", values.shape[1], sensors)
        many = len(values) // steps
        pieces.append(values[: many * steps].reshape(many, steps, 1, sensors))
        labels += [int(label)] * many
        progress("reading", done, len(found["X"]))
    x = np.concatenate(pieces)
    _expect(title, "pieces", len(x), count)
    scaled = np.rint(255 * (x / np.asarray(reach) + 1) / 2)
    return {split: Split(np.clip(scaled, 0, 255).astype(np.uint8), np.array(labels, np.int64))}


def npz(path: Path, picture: tuple[int, ...], splits: Iterable[str]) -> dict[str, Split]:
    """An .npz file with arrays x_train, y_train, x_test, ... (or plain x and y: train): uint8 pictures, whole labels.

    picture: the shape of one picture.
    splits: those that must be there; others that are there are read as well.
    """
    with _damaged(path.name):
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {key: array for key, array in file.items() if isinstance(array, np.ndarray)}
        except (ValueError, AttributeError, TypeError) as error:  # pickles; one array in place of an archive
            raise DataFileError(f"{path.name}: not an .npz file of plain arrays ({error})") from error
    if "x" in arrays and "x_train" not in arrays:
        arrays |= {f"{key}_train": arrays[key] for key in ("x", "y") if key in arrays}
    found = {}
    for split in dict.fromkeys((*splits, *(key[2:] for key in arrays if key.startswith("x_")))):
        for key in (f"x_{split}", f"y_{split}"):
            if key not in arrays:
                raise DataFileError(f"{path.name}: array {key} is missing; it has {', '.join(sorted(arrays))}")
        x, y = arrays[f"x_{split}"], arrays[f"y_{split}"]
        if x.dtype != np.uint8 or x.shape[1:] != picture or not len(x):
            raise DataFileError(f"{path.name}: x_{split} is {x.dtype} {x.shape}, expected uint8 {('n', *picture)}")
        found[split] = Split(x, _integers(f"{path.name}: y_{split}", y, x.shape[:1]).astype(np.int64))
    return found


# Pieces


def _json(title: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise DataFileError(f"{title}: damaged or cut short ({error})") from error


def _integers(title: str, values: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Whole numbers of 0 or more, of this shape."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataFileError(f"{title}: expected numbers of shape {shape} ({error})") from error
    _expect(title, "has shape", array.shape, shape)
    if array.dtype.kind not in "iu" or array.min() < 0:
        raise DataFileError(f"{title}: expected whole numbers of 0 or more, got {array.dtype} {array.flat[:5]} ...")
    return array


def _rgb(title: str, content: bytes) -> Pictures:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as picture:
            return np.asarray(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:  # Pillow's ways to refuse a damaged file
        raise DataFileError(f"{title}: not a picture, or cut short ({error})") from error


def _centre(picture: Pictures, height: int, width: int) -> Pictures:
    """The middle of a picture; a smaller one gets black borders. Odd rows and columns go where torchvision has them."""
    out = np.zeros((height, width, picture.shape[2]), np.uint8)
    pairs = []
    for have, want in zip(picture.shape[:2], (height, width)):
        first, length = max(round((have - want) / 2), 0), min(have, want)
        start = max((want - have) // 2, 0)
        pairs.append((slice(first, first + length), slice(start, start + length)))
    (rows, to_rows), (columns, to_columns) = pairs
    out[to_rows, to_columns] = picture[rows, columns]
    return out
