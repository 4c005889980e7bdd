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
from functools import partial, wraps
from itertools import chain
from math import prod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

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
File = tuple[str, bytes]  # the title for errors, and the content


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
def refusing(title: str, problem: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds into one that names the file."""
    try:
        yield
    except kinds as error:
        raise DataFileError(f"{title}: {problem} ({error})") from error


@contextmanager
def decompressing(title: str) -> Iterator[None]:
    """Turn the errors of decompressors into one that names the file."""
    damage = (tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, EOFError)
    unknown = (NotImplementedError, RuntimeError)  # zipfile: an unknown compression, a password
    with refusing(title, "damaged or cut short", *damage), refusing(title, "cannot be read", *unknown):
        yield


def _checked(archive: str, member: str, plain: bool) -> str:
    """The name of a member; an error if it points outside the archive, or is neither a file nor a folder."""
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member or ":" in member:
        raise DataFileError(f"{archive}: member {member!r} points outside the archive")
    if not plain:
        raise DataFileError(f"{archive}: member {member!r} is neither a file nor a folder")
    return path.as_posix()


def _contents(paths: Iterable[Path], wanted: Callable[[str], object]) -> Iterator[tuple[str, str, bytes]]:
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


def _pick(paths: Paths, names: Collection[str]) -> dict[str, File]:
    """The files of these names, decompressed."""
    found: dict[str, File] = {}
    for title, name, content in _contents(paths, names.__contains__):
        with decompressing(title):
            found[name] = title, gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    for name in names:
        if name not in found:
            raise DataFileError(f"{', '.join(path.name for path in paths)}: {name} is missing")
    return found


def _titles(files: Sequence[File]) -> str:
    return ", ".join(title for title, _ in files)


def _expect(title: str, what: str, got: Any, expected: Any) -> None:
    if got != expected:
        raise DataFileError(f"{title}: {what} {got}, expected {expected}")


def by_split(read: Callable[..., Split]) -> Callable[..., Splits]:
    """Make a function of a split's files and its shape a reader; names: the files of each split, in order."""

    @wraps(read)
    def read_all(
        paths: Paths, shapes: Shapes, progress: Progress, *, names: Mapping[str, Sequence[str]], **settings: Any
    ) -> Splits:
        files = _pick(paths, [*chain(*names.values())])
        splits = {}
        for done, (split, some) in enumerate(names.items(), 1):
            splits[split] = read([files.pop(name) for name in some], shapes[split], **settings)
            progress("reading", done, len(names))
        return splits

    return read_all


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


@by_split
def idx(files: Sequence[File], shape: tuple[int, ...], transposed: bool = False) -> Split:
    """The idx files of MNIST, each plain or gzipped: the images of a split, and their labels.

    transposed: rows and columns are exchanged, as in EMNIST.
    """
    images, labels = files
    x, y = _idx_array(*images, shape), _idx_array(*labels, shape[:1])
    return Split(np.ascontiguousarray(x.swapaxes(1, 2)) if transposed else x, y.astype(np.int64))


@by_split
def cifar_binary(files: Sequence[File], shape: tuple[int, ...], label_bytes: int = 1) -> Split:
    """CIFAR's binary records: label bytes (the last one counts), then all red, all green, all blue values."""
    number, height, width, channels = shape
    record = label_bytes + height * width * channels
    for title, content in files:
        _expect(title, f"bytes beyond whole records of {record}:", len(content) % record, 0)
    records = np.frombuffer(b"".join(content for _, content in files), np.uint8).reshape(-1, record)
    _expect(_titles(files), "images:", len(records), number)
    x = records[:, label_bytes:].reshape(number, channels, height, width).transpose(0, 2, 3, 1)
    return Split(np.ascontiguousarray(x), records[:, label_bytes - 1].astype(np.int64))


@by_split
def cifar_sheets(files: Sequence[File], shape: tuple[int, ...]) -> Split:
    """Sheets of images, and last a JSON list of their labels.

    Each row of pixels of a sheet is one image, whose own rows follow one another.
    """
    *sheets, labels = files
    number, height, width, channels = shape
    x = np.empty((0, height * width, channels), np.uint8)
    for title, content in sheets:
        sheet = np.asarray(_rgb(title, content))
        _expect(title, "is a sheet of width and channels", sheet.shape[1:], x.shape[1:])
        x = np.concatenate([x, sheet])
    _expect(_titles(sheets), "images:", len(x), number)
    return Split(x.reshape(shape), _integers(labels[0], _json(*labels), (number,)))


@by_split
def mat(files: Sequence[File], shape: tuple[int, ...], zero: int) -> Split:
    """A MATLAB file (version 5) with images `X (height, width, channels, n)` and labels `y`.

    zero: the label that stands for 0, as 10 does in SVHN.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    ((title, content),) = files
    number, *image = shape
    cut_short = refusing(title, "not a MATLAB file, or cut short", MatReadError, ValueError, TypeError, OSError)
    with cut_short, decompressing(title):
        arrays = loadmat(io.BytesIO(content), variable_names=("X", "y"))
    for key in ("X", "y"):
        if key not in arrays:
            raise DataFileError(f"{title}: array {key} is missing")
    x = arrays["X"]
    _expect(title, "X has type and shape", (str(x.dtype), x.shape), ("uint8", (*image, number)))
    y = _integers(title, arrays["y"].ravel(), (number,))
    return Split(np.ascontiguousarray(np.moveaxis(x, -1, 0)), np.where(y == zero, 0, y))


@by_split
def recordings(files: Sequence[File], shape: tuple[int, ...], reach: Sequence[float]) -> Split:
    """Recordings of several sensors, cut into segments of equal length; a shorter rest is left out.

    The file is a pickled dictionary, so its hash must have been checked: "X", a list of arrays (steps, sensors), and
    "y", their labels. reach: of each sensor, minus this value becomes 0, and plus this value 255.
    """
    ((title, content),) = files
    number, steps, _, sensors = shape
    with decompressing(title):
        found = np.load(io.BytesIO(content), allow_pickle=True).item()
    segments, labels = [], []
    for values, label in zip(found["X"], found["y"]):
        _expect(title, "sensors", values.shape[1], sensors)
        whole = len(values) // steps
        segments.append(values[: whole * steps].reshape(whole, steps, 1, sensors))
        labels += [int(label)] * whole
    x = np.concatenate(segments)
    _expect(title, "segments", len(x), number)
    scaled = np.rint(255 * (x / np.asarray(reach) + 1) / 2)
    return Split(np.clip(scaled, 0, 255).astype(np.uint8), np.array(labels, np.int64))


def class_json(paths: Paths, shapes: Shapes, progress: Progress, *, names: Sequence[str]) -> Splits:
    """One JSON file `{"data": [[pixel, ...], ...]}` for each class; the position of its name is the label.

    Empty images are left out. The files do not separate train from test: here the first images of every class are the
    test split, in equal shares, and the others the train split. Each split is then shuffled with a fixed seed, since
    a stream sorted by class would be another task.
    """
    files = _pick(paths, names)
    test, image = shapes["test"][0] // len(names), shapes["test"][1:]
    count = test + shapes["train"][0] // len(names)
    x = np.empty((len(names), count, *image), np.uint8)
    for label, name in enumerate(names):
        title, content = files.pop(name)
        data = _json(title, content)
        if not isinstance(data, dict) or not isinstance(data.get("data"), list):
            raise DataFileError(f'{title}: expected {{"data": [...]}}')
        values = _integers(title, [pixels for pixels in data["data"] if pixels], (count, prod(image)))
        _expect(title, "values beyond 255:", int((values > 255).sum()), 0)
        x[label] = values.reshape(x[label].shape)
        progress("reading", label + 1, len(names))
    splits = {}
    for split, part in (("train", x[:, test:]), ("test", x[:, :test])):
        y = np.repeat(np.arange(len(names)), part.shape[1])
        order = np.random.default_rng(0).permutation(len(y))
        splits[split] = Split(part.reshape(-1, *image)[order], y[order].astype(np.int64))
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
    for title, name, content in _contents(paths, wanted.fullmatch):
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


def npz(path: Path, shape: tuple[int, ...] | None, splits: Iterable[str]) -> Splits:
    """An .npz file with arrays x_train, y_train, x_test, ... (or plain x and y: train): uint8 images, integer labels.

    shape: of one image; None: that of the first one.
    splits: the required ones; others in the file are read as well.
    """
    kinds = (ValueError, AttributeError, TypeError)  # pickles; one array in place of an archive
    with (
        decompressing(path.name),
        refusing(path.name, "not an .npz file of plain arrays", *kinds),
        path.open("rb") as stream,
        np.load(stream, allow_pickle=False) as file,
    ):
        arrays = {key: array for key, array in file.items() if isinstance(array, np.ndarray)}
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
            expected = ", ".join(map(str, ("n", *shape)))
            raise DataFileError(f"{path.name}: x_{split} is {x.dtype} {x.shape}, expected uint8 ({expected})")
        found[split] = Split(x, _integers(f"{path.name}: y_{split}", y, x.shape[:1]))
    return found


# -- values ------------------------------------------------------------------------------------------------------------


def _json(title: str, content: bytes) -> Any:
    with refusing(title, "damaged or cut short", ValueError):
        return json.loads(content)


def _integers(title: str, values: Any, shape: tuple[int, ...]) -> Labels:
    """Integers of at least 0, of this shape."""
    with refusing(title, f"expected numbers of shape {shape}", ValueError):
        array = np.asarray(values)
    _expect(title, "has shape", array.shape, shape)
    if array.dtype.kind not in "iu" or array.min() < 0:
        raise DataFileError(f"{title}: expected integers of at least 0, got {array.dtype} {array.flat[:5]} ...")
    return array.astype(np.int64)


def _rgb(title: str, content: bytes) -> Image:
    import PIL.Image

    kinds = (OSError, SyntaxError, ValueError)  # all that Pillow raises for a damaged file
    with refusing(title, "not an image, or cut short", *kinds), PIL.Image.open(io.BytesIO(content)) as image:
        return image.convert("RGB")


def _centered(image: Image, height: int, width: int) -> Images:
    """The center of an image; a smaller one gets black borders. Odd rows and columns are split as in torchvision."""
    gaps = (image.width - width, image.height - height)
    left, top = (round(gap / 2) if gap > 0 else -(-gap // 2) for gap in gaps)
    return np.asarray(image.crop((left, top, left + width, top + height)))
