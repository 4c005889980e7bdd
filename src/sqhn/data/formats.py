"""Readers for the file formats of data sets: one function per format, whatever the data set.

A reader takes the files (archives are read in place, never unpacked), the shape that each split must have, and a
callback for progress; it returns the splits. If anything is wrong with a file, it raises a `DataFileError`.
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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

Item = TypeVar("Item")
Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Shapes = Mapping[str, tuple[int, ...]]  # of each split: (number of images, *shape of one)
Progress = Callable[[str, int, int], None]  # the name of a step, how much of it is done, and how much there is


class Split(NamedTuple):
    """Images `(n, height, width)` or `(n, height, width, channels)`, and their labels `(n,)`."""

    x: Images
    y: Labels


Paths = Sequence[Path]
Splits = dict[str, Split]
Reader = Callable[[Paths, Shapes, Progress], Splits]


@dataclass(frozen=True)
class Contents:
    """The contents of a data set: `shape` is that of one image, `counts` is how many images each split has."""

    title: str
    classes: int
    shape: tuple[int, ...]
    counts: Mapping[str, int]

    @property
    def shapes(self) -> Shapes:
        return {split: (count, *self.shape) for split, count in self.counts.items()}


class DataFileError(ValueError):
    """A data file is damaged, or has other contents than expected."""


# -- files and members of archives -------------------------------------------------------------------------------------


@contextmanager
def decompressing(name: str) -> Iterator[None]:
    """Turn the errors of decompressors into one error that names the file."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise DataFileError(f"{name}: damaged or cut short ({error})") from error
    except (NotImplementedError, RuntimeError) as error:  # zipfile: an unknown compression, a password
        raise DataFileError(f"{name}: cannot be read ({error})") from error


def _checked(archive: str, member: str, plain: bool) -> str:
    """The name of a member; an error if it points outside the archive, or is neither a file nor a folder."""
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member or ":" in member:
        raise DataFileError(f"{archive}: member {member!r} points outside the archive")
    if not plain:
        raise DataFileError(f"{archive}: member {member!r} is neither a file nor a folder")
    return path.as_posix()


def _contents(paths: Iterable[Path], wanted: Callable[[str], bool]) -> Iterator[tuple[str, str, bytes]]:
    """The wanted files, and members of archives in their order: the title for errors, the name, and the content.

    All members are checked, wanted or not.
    """
    for path in paths:
        with decompressing(path.name):
            if path.suffix in (".zip", ".whl"):
                with zipfile.ZipFile(path) as packed:
                    for info in packed.infolist():
                        link = stat.S_ISLNK(info.external_attr >> 16)
                        name = _checked(path.name, info.filename, plain=not link)
                        if not info.is_dir() and wanted(name):
                            yield _read(f"{path.name}: {name}", name, partial(packed.read, info))
            elif path.name.endswith((".tar", ".tgz", ".tar.gz")):
                with tarfile.open(path) as tar:
                    for member in tar:
                        name = _checked(path.name, member.name, plain=member.isfile() or member.isdir())
                        if wanted(name) and (file := tar.extractfile(member)):
                            yield _read(f"{path.name}: {name}", name, file.read)
                    while tar.fileobj.read(1 << 20):  # gzip has its checksum at the very end
                        pass
            elif wanted(path.name):
                yield _read(path.name, path.name, path.read_bytes)


def _read(title: str, name: str, content: Callable[[], bytes]) -> tuple[str, str, bytes]:
    with decompressing(title):
        return title, name, content()


def _pick(paths: Paths, names: Iterable[str]) -> dict[str, tuple[str, bytes]]:
    """The files of these names, decompressed, each with its title for errors."""
    names = tuple(names)
    found: dict[str, tuple[str, bytes]] = {}
    for title, name, content in _contents(paths, names.__contains__):
        with decompressing(title):
            found[name] = title, gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    for name in names:
        if name not in found:
            raise DataFileError(f"{', '.join(path.name for path in paths)}: {name} is missing")
    return found


def _expect(title: str, what: str, got: Any, expected: Any) -> None:
    if got != expected:
        raise DataFileError(f"{title}: {what} {got}, expected {expected}")


def _reported(items: Collection[Item], progress: Progress) -> Iterator[Item]:
    """The items; each is reported as read when the next one is taken."""
    for done, item in enumerate(items, 1):
        yield item
        progress("reading", done, len(items))


# -- formats -----------------------------------------------------------------------------------------------------------


def _idx_array(title: str, content: bytes, shape: tuple[int, ...]) -> Images:
    """One idx file: two zeros, the type (8: bytes), the number of axes, their big-endian lengths, the values."""
    axes = len(shape)
    _expect(title, "starts with", content[:4].hex(" "), bytes((0, 0, 8, axes)).hex(" "))
    start = 4 + 4 * axes
    _expect(title, "bytes of header:", len(content[:start]), start)
    _expect(title, "has shape", tuple(np.frombuffer(content[4:start], ">u4").tolist()), shape)
    _expect(title, "bytes of values:", len(content) - start, prod(shape))
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def idx(
    paths: Paths, shapes: Shapes, progress: Progress, *, names: Mapping[str, tuple[str, str]], transposed: bool = False
) -> Splits:
    """The idx files of MNIST, each plain or gzipped.

    names: of each split, the file of the images and that of the labels.
    transposed: rows and columns are exchanged, as in EMNIST.
    """
    files = _pick(paths, chain(*names.values()))
    splits = {}
    for split, (images, labels) in _reported(names.items(), progress):
        x = _idx_array(*files.pop(images), shapes[split])
        y = _idx_array(*files.pop(labels), shapes[split][:1])
        splits[split] = Split(np.ascontiguousarray(x.swapaxes(1, 2)) if transposed else x, y.astype(np.int64))
    return splits


def cifar_binary(
    paths: Paths, shapes: Shapes, progress: Progress, *, names: Mapping[str, Sequence[str]], label_bytes: int = 1
) -> Splits:
    """CIFAR's binary records: label bytes (the last one counts), then all red, all green, all blue values.

    names: of each split, its files in order.
    """
    files = _pick(paths, chain(*names.values()))
    splits = {}
    for split, some in _reported(names.items(), progress):
        number, height, width, channels = shapes[split]
        record = label_bytes + height * width * channels
        for title, content in (files[name] for name in some):
            _expect(title, f"bytes beyond whole records of {record}:", len(content) % record, 0)
        records = np.frombuffer(b"".join(files.pop(name)[1] for name in some), np.uint8).reshape(-1, record)
        _expect(", ".join(some), "images:", len(records), number)
        x = records[:, label_bytes:].reshape(number, channels, height, width).transpose(0, 2, 3, 1)
        splits[split] = Split(np.ascontiguousarray(x), records[:, label_bytes - 1].astype(np.int64))
    return splits


def cifar_sheets(
    paths: Paths, shapes: Shapes, progress: Progress, *, sheets: Mapping[str, Sequence[str]], labels: Mapping[str, str]
) -> Splits:
    """Sheets of images: each row of pixels of a sheet is one image, whose own rows follow one another.

    sheets: of each split, its image files in order.
    labels: of each split, a JSON list of numbers.
    """
    files = _pick(paths, chain(*sheets.values(), labels.values()))
    rows: dict[str, list[Images]] = {split: [] for split in sheets}
    for split, name in _reported([(split, name) for split, some in sheets.items() for name in some], progress):
        title, content = files.pop(name)
        height, width, channels = shapes[split][1:]
        sheet = np.asarray(_rgb(title, content))
        _expect(title, "is a sheet of width and channels", sheet.shape[1:], (height * width, channels))
        rows[split].append(sheet.reshape(-1, height, width, channels))
    splits = {}
    for split, some in sheets.items():
        x = np.concatenate(rows.pop(split))
        _expect(", ".join(some), "images:", len(x), shapes[split][0])
        title, content = files.pop(labels[split])
        splits[split] = Split(x, _integers(title, _json(title, content), (len(x),)))
    return splits


def class_json(paths: Paths, shapes: Shapes, progress: Progress, *, names: Sequence[str]) -> Splits:
    """One JSON file `{"data": [[pixel, ...], ...]}` for each class; the position of its name is the label.

    Empty images are left out. The files do not separate train from test: here the first images of every class are the
    test split, in equal shares, and the others the train split. Each split is then shuffled with a fixed seed, since
    a stream sorted by class would be another task.
    """
    files = _pick(paths, names)
    shares = {split: shapes[split][0] // len(names) for split in ("test", "train")}
    image = shapes["train"][1:]
    parts: dict[str, list[Images]] = {"test": [], "train": []}
    for name in _reported(names, progress):
        title, content = files.pop(name)
        data = _json(title, content)
        if not isinstance(data, dict) or not isinstance(data.get("data"), list):
            raise DataFileError(f'{title}: expected {{"data": [...]}}')
        values = _integers(title, [pixels for pixels in data["data"] if pixels], (sum(shares.values()), prod(image)))
        _expect(title, "values beyond 255:", int((values > 255).sum()), 0)
        x = values.astype(np.uint8).reshape(-1, *image)
        parts["test"].append(x[: shares["test"]])
        parts["train"].append(x[shares["test"] :])
    splits = {}
    for split in shapes:
        x, y = np.concatenate(parts[split]), np.repeat(np.arange(len(names)), [len(part) for part in parts[split]])
        order = np.random.default_rng(0).permutation(len(x))
        splits[split] = Split(x[order], y[order].astype(np.int64))
    return splits


def mat(paths: Paths, shapes: Shapes, progress: Progress, *, names: Mapping[str, str], zero: int) -> Splits:
    """MATLAB files (version 5) with images `X (height, width, channels, n)` and labels `y`.

    zero: the label that stands for 0, as 10 does in SVHN.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    files = _pick(paths, names.values())
    splits = {}
    for split, name in _reported(names.items(), progress):
        title, content = files.pop(name)
        number, *shape = shapes[split]
        try:
            with decompressing(title):
                arrays = loadmat(io.BytesIO(content), variable_names=("X", "y"))
        except (MatReadError, ValueError, TypeError, OSError) as error:
            raise DataFileError(f"{title}: not a MATLAB file, or cut short ({error})") from error
        for key in ("X", "y"):
            if key not in arrays:
                raise DataFileError(f"{title}: array {key} is missing")
        x = arrays["X"]
        _expect(title, "X has type and shape", (str(x.dtype), x.shape), ("uint8", (*shape, number)))
        y = _integers(title, arrays["y"].ravel(), (number,))
        splits[split] = Split(np.ascontiguousarray(np.moveaxis(x, -1, 0)), np.where(y == zero, 0, y))
    return splits


def image_folders(
    paths: Paths, shapes: Shapes, progress: Progress, *, patterns: Mapping[str, str], annotations: str | None = None
) -> Splits:
    """Image files (JPEG, PNG, ...) in an archive, in its order; gray ones become color, all are cropped to one size.

    patterns: of each split, a pattern for the names of its images; group 1 is the class, or the name in `annotations`.
    annotations: a text file; each line has the name of an image, a tab, and its class; further columns are ignored.

    Classes are numbered in the order of their sorted names.
    """
    x = {split: np.zeros(shape, np.uint8) for split, shape in shapes.items()}
    keys: dict[str, list[str]] = {split: [] for split in shapes}
    classes: dict[str, str] = {}
    total = sum(shape[0] for shape in shapes.values())
    wanted = re.compile("|".join([*patterns.values(), re.escape(annotations or "")]))
    for title, name, content in _contents(paths, lambda name: wanted.fullmatch(name) is not None):
        if name == annotations:
            lines = content.decode("utf-8", "replace").splitlines()
            classes = {key: label for key, label, *_ in (line.split("\t") for line in lines if "\t" in line)}
        for split, pattern in patterns.items():
            if match := re.fullmatch(pattern, name):
                place = len(keys[split])
                keys[split].append(match[1])
                if place < len(x[split]):
                    x[split][place] = _centered(_rgb(title, content), *shapes[split][1:3])
                    progress("reading", sum(map(len, keys.values())), total)
    archive = ", ".join(path.name for path in paths)
    for split, some in keys.items():
        _expect(archive, f"images for {split}:", len(some), len(x[split]))
    names = {split: [classes.get(key, key) for key in some] for split, some in keys.items()}
    number = {label: i for i, label in enumerate(sorted(set(names[next(iter(names))])))}
    splits = {}
    for split, some in names.items():
        for label in some:
            if label not in number:
                raise DataFileError(f"{archive}: an image of {split} has no class: {label!r}")
        splits[split] = Split(x[split], np.array([number[label] for label in some], np.int64))
    return splits


def recordings(paths: Paths, shapes: Shapes, progress: Progress, *, name: str, reach: Sequence[float]) -> Splits:
    """Recordings of several sensors, cut into segments of equal length; a shorter rest is left out.

    The file is a pickled dictionary, so its hash must have been checked: "X", a list of arrays (steps, sensors), and
    "y", their labels. reach: of each sensor, minus this value becomes 0, and plus this value 255.
    """
    ((split, (number, steps, _, sensors)),) = shapes.items()
    title, content = _pick(paths, [name])[name]
    with decompressing(title):
        found = np.load(io.BytesIO(content), allow_pickle=True).item()
    segments, labels = [], []
    for values, label in _reported([*zip(found["X"], found["y"])], progress):
        _expect(title, "sensors", values.shape[1], sensors)
        whole = len(values) // steps
        segments.append(values[: whole * steps].reshape(whole, steps, 1, sensors))
        labels += [int(label)] * whole
    x = np.concatenate(segments)
    _expect(title, "segments", len(x), number)
    scaled = np.rint(255 * (x / np.asarray(reach) + 1) / 2)
    return {split: Split(np.clip(scaled, 0, 255).astype(np.uint8), np.array(labels, np.int64))}


def npz(path: Path, shape: tuple[int, ...] | None, splits: Iterable[str]) -> Splits:
    """An .npz file with arrays x_train, y_train, x_test, ... (or plain x and y: train): uint8 images, integer labels.

    shape: of one image; None: that of the first one.
    splits: the required ones; others in the file are read as well.
    """
    with decompressing(path.name):
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
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
        if shape is None:
            if x.ndim not in (3, 4):
                raise DataFileError(
                    f"{path.name}: x_{split} is {x.dtype} {x.shape}, expected uint8 images of shape "
                    "(n, height, width) or (n, height, width, channels)"
                )
            shape = x.shape[1:]
        if x.dtype != np.uint8 or x.shape[1:] != shape or not len(x):
            raise DataFileError(f"{path.name}: x_{split} is {x.dtype} {x.shape}, expected uint8 {('n', *shape)}")
        found[split] = Split(x, _integers(f"{path.name}: y_{split}", y, x.shape[:1]))
    return found


# -- values ------------------------------------------------------------------------------------------------------------


def _json(title: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise DataFileError(f"{title}: damaged or cut short ({error})") from error


def _integers(title: str, values: Any, shape: tuple[int, ...]) -> Labels:
    """Integers of at least 0, of this shape."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataFileError(f"{title}: expected numbers of shape {shape} ({error})") from error
    _expect(title, "has shape", array.shape, shape)
    if array.dtype.kind not in "iu" or array.min() < 0:
        raise DataFileError(f"{title}: expected integers of at least 0, got {array.dtype} {array.flat[:5]} ...")
    return array.astype(np.int64)


def _rgb(title: str, content: bytes) -> Image:
    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(content)) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:  # all that Pillow raises for a damaged file
        raise DataFileError(f"{title}: not an image, or cut short ({error})") from error


def _centered(image: Image, height: int, width: int) -> Images:
    """The center of an image; a smaller one gets black borders. Odd rows and columns are split as in torchvision."""
    gaps = (image.width - width, image.height - height)
    left, top = (round(gap / 2) if gap > 0 else -(-gap // 2) for gap in gaps)
    return np.asarray(image.crop((left, top, left + width, top + height)))
