"""Every format, read from tiny files that the tests write."""

from __future__ import annotations

import gzip
import io
import json
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from sqhn.data.formats import DataFileError, Split, cifar_binary, cifar_sheets, class_json, idx, image_folders, mat, npz

Bytes = NDArray[np.uint8]
rng = np.random.default_rng(0)


def quiet(step: str, done: int, total: int) -> None:
    assert 0 < done <= total, step


def images(*shape: int) -> Bytes:
    return rng.integers(0, 256, shape, np.uint8)


def idx_bytes(array: Bytes) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return header + array.tobytes()


def cifar_bytes(x: Bytes, *labels: Bytes) -> bytes:
    planes = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return np.concatenate([np.stack(labels, 1), planes], 1).astype(np.uint8).tobytes()


def image_bytes(x: Bytes, form: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(x).save(stream, form)
    return stream.getvalue()


def mat_bytes(**arrays: Bytes) -> bytes:
    stream = io.BytesIO()
    savemat(stream, arrays, do_compression=True)
    return stream.getvalue()


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def write_zip(path: Path, members: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_files(folder: Path, members: Mapping[str, bytes]) -> list[Path]:
    for name, content in members.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in members]


def same(split: Split, x: Bytes, y: Any) -> None:
    np.testing.assert_array_equal(split.x, x)
    np.testing.assert_array_equal(split.y, y)
    assert split.x.dtype == np.uint8
    assert split.y.dtype == np.int64


NAMES = {"train": ("a", "b"), "test": ("c", "d")}
SHAPES = {"train": (3, 4, 5), "test": (2, 4, 5)}


def idx_set() -> tuple[dict[str, bytes], Bytes, Bytes]:
    x = images(5, 4, 5)
    y = np.array([7, 0, 255, 1, 2], np.uint8)
    parts = {"a": x[:3], "b": y[:3], "c": x[3:], "d": y[3:]}
    return {name: idx_bytes(part) for name, part in parts.items()}, x, y


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files(tmp_path: Path, zipped: bool) -> None:
    files, x, y = idx_set()
    paths = write_files(tmp_path, {name: gzip.compress(file) if zipped else file for name, file in files.items()})
    splits = idx(paths, SHAPES, quiet, names=NAMES)
    same(splits["train"], x[:3], y[:3])
    same(splits["test"], x[3:], y[3:])


def test_idx_in_archives(tmp_path: Path) -> None:
    files, x, y = idx_set()
    names = {split: (f"in/{a}", f"in/{b}") for split, (a, b) in NAMES.items()}
    for path in (
        write_tar(tmp_path / "set.tgz", {f"./in/{name}": file for name, file in files.items()} | {"in/more": b"x"}),
        write_zip(tmp_path / "set.zip", {f"in/{name}": gzip.compress(file) for name, file in files.items()}),
    ):
        splits = idx([path], SHAPES, quiet, names=names)
        same(splits["train"], x[:3], y[:3])
        same(splits["test"], x[3:], y[3:])


def test_idx_transposed(tmp_path: Path) -> None:
    files, x, y = idx_set()
    files |= {"a": idx_bytes(x[:3].transpose(0, 2, 1)), "c": idx_bytes(x[3:].transpose(0, 2, 1))}
    square = {"train": (3, 5, 4), "test": (2, 5, 4)}  # as the file says
    splits = idx(write_files(tmp_path, files), square, quiet, names=NAMES, transposed=True)
    same(splits["train"], x[:3], y[:3])
    assert splits["train"].x.flags.c_contiguous


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda a: a[:-1], "a: bytes of values: 59, expected 60"),
        (lambda a: a + b"0", "a: bytes of values: 61, expected 60"),
        (lambda a: a[:6], "a: bytes of header: 6, expected 16"),
        (lambda a: b"", "a: starts with , expected 00 00 08 03"),
        (lambda a: b"\0\0\x0d\x03" + a[4:], "a: starts with 00 00 0d 03, expected 00 00 08 03"),
        (lambda a: a[:4] + (9).to_bytes(4, "big") + a[8:], r"a: has shape \(9, 4, 5\), expected \(3, 4, 5\)"),
        (lambda a: gzip.compress(a)[:-9], "a: damaged or cut short"),
        (lambda a: b"\x1f\x8b" + a, "a: damaged or cut short"),
    ],
)
def test_damaged_idx(tmp_path: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    files, _, _ = idx_set()
    files["a"] = damage(files["a"])
    with pytest.raises(DataFileError, match=message):
        idx(write_files(tmp_path, files), SHAPES, quiet, names=NAMES)


def test_a_missing_file(tmp_path: Path) -> None:
    files, _, _ = idx_set()
    del files["d"]
    with pytest.raises(DataFileError, match="a, b, c: d is missing"):
        idx(write_files(tmp_path, files), SHAPES, quiet, names=NAMES)


def test_cifar_binary_one_label(tmp_path: Path) -> None:
    x, y = images(5, 32, 32, 3), np.array([3, 9, 0, 1, 2], np.uint8)
    parts = {"s/1.bin": (0, 2), "s/2.bin": (2, 4), "s/t.bin": (4, 5)}
    path = write_tar(tmp_path / "c.tar.gz", {n: cifar_bytes(x[i:j], y[i:j]) for n, (i, j) in parts.items()})
    names = {"train": ["s/1.bin", "s/2.bin"], "test": ["s/t.bin"]}
    splits = cifar_binary([path], {"train": (4, 32, 32, 3), "test": (1, 32, 32, 3)}, quiet, names=names)
    same(splits["train"], x[:4], y[:4])
    same(splits["test"], x[4:], y[4:])
    with pytest.raises(DataFileError, match=r"c.tar.gz: s/1.bin, c.tar.gz: s/2.bin: images: 4, expected 5"):
        cifar_binary([path], {"train": (5, 32, 32, 3), "test": (1, 32, 32, 3)}, quiet, names=names)


def test_cifar_binary_fine_labels(tmp_path: Path) -> None:
    x, coarse, fine = images(2, 32, 32, 3), np.array([1, 2], np.uint8), np.array([99, 7], np.uint8)
    content = cifar_bytes(x, coarse, fine)
    path = write_tar(tmp_path / "c.tar.gz", {"train.bin": content})
    shapes, names = {"train": (2, 32, 32, 3)}, {"train": ["train.bin"]}
    same(cifar_binary([path], shapes, quiet, names=names, label_bytes=2)["train"], x, fine)
    path = write_tar(tmp_path / "cut.tar.gz", {"train.bin": content[:-1]})
    with pytest.raises(DataFileError, match=r"cut.tar.gz: train.bin: bytes beyond whole records of 3074: 3073"):
        cifar_binary([path], shapes, quiet, names=names, label_bytes=2)


def sheet_set(x: Bytes, labels: object) -> dict[str, bytes]:
    sheets = {f"{i}.png": image_bytes(part.reshape(len(part), -1, 3)) for i, part in enumerate((x[:2], x[2:3], x[3:]))}
    return sheets | {"train.json": json.dumps(labels).encode(), "test.json": b"[4]"}


SHEETS = {"train": ["0.png", "1.png", "train.json"], "test": ["2.png", "test.json"]}
SHEET_SHAPES = {"train": (3, 32, 32, 3), "test": (1, 32, 32, 3)}


def test_cifar_sheets(tmp_path: Path) -> None:
    x = images(4, 32, 32, 3)
    splits = cifar_sheets([write_tar(tmp_path / "s.tgz", sheet_set(x, [6, 9, 9]))], SHEET_SHAPES, quiet, names=SHEETS)
    same(splits["train"], x[:3], [6, 9, 9])
    same(splits["test"], x[3:], [4])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train.json": b"[1, 2]"}, r"train.json: has shape \(2,\), expected \(3,\)"),
        ({"train.json": b"[1, 2"}, "train.json: damaged or cut short"),
        ({"train.json": b'["a", "b", "c"]'}, "train.json: expected integers"),
        ({"train.json": b"[1, -2, 3]"}, "train.json: expected integers of at least 0"),
        ({"train.json": b"[1, [2], 3]"}, "train.json: expected numbers of shape"),
        ({"1.png": image_bytes(images(2, 1024, 3))}, "images: 4, expected 3"),
        ({"1.png": image_bytes(images(1, 1023, 3))}, r"1.png: is a sheet of width and channels \(1023, 3\)"),
        ({"1.png": image_bytes(images(1, 1024, 3))[:-900]}, "1.png: not an image, or cut short"),
        ({"1.png": b"GIF?"}, "1.png: not an image, or cut short"),
    ],
)
def test_damaged_sheets(tmp_path: Path, change: dict[str, bytes], message: str) -> None:
    path = write_tar(tmp_path / "s.tgz", sheet_set(images(4, 32, 32, 3), [6, 9, 9]) | change)
    with pytest.raises(DataFileError, match=message):
        cifar_sheets([path], SHEET_SHAPES, quiet, names=SHEETS)


def class_files(x: Bytes) -> dict[str, bytes]:
    """Two classes of three; one has empty images in between."""
    rows = [[*part.reshape(3, -1).tolist()] for part in (x[:3], x[3:])]
    rows[0].insert(1, [])
    rows[0].append([])
    return {f"{label}.json": json.dumps({"data": some}).encode() for label, some in enumerate(rows)}


def test_class_json(tmp_path: Path) -> None:
    x = images(6, 4, 4)
    shapes = {"train": (4, 4, 4), "test": (2, 4, 4)}
    path = write_tar(tmp_path / "f.tgz", class_files(x))
    splits = class_json([path], shapes, quiet, names=["0.json", "1.json"])
    again = class_json([path], shapes, quiet, names=["0.json", "1.json"])
    for name, members in (("test", (0, 3)), ("train", (1, 2, 4, 5))):
        found = {(bytes(p), int(label)) for p, label in zip(*splits[name])}
        assert found == {(bytes(x[i]), i // 3) for i in members}
        same(again[name], *splits[name])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"data": [[1]]}', "0.json: has shape"),
        (b'{"data": 3}', "0.json: expected"),
        (b"[]", "0.json: expected"),
        (b'{"data": [[1', "0.json: damaged or cut short"),
        (json.dumps({"data": [[256] * 16] * 3}).encode(), "0.json: values beyond 255: 48"),
        (json.dumps({"data": [[0.5] * 16] * 3}).encode(), "0.json: expected integers"),
    ],
)
def test_damaged_class_json(tmp_path: Path, content: bytes, message: str) -> None:
    path = write_tar(tmp_path / "f.tgz", class_files(images(6, 4, 4)) | {"0.json": content})
    with pytest.raises(DataFileError, match=message):
        class_json([path], {"train": (4, 4, 4), "test": (2, 4, 4)}, quiet, names=["0.json", "1.json"])


def test_mat(tmp_path: Path) -> None:
    x, y = images(3, 32, 32, 3), np.array([[10], [1], [9]], np.uint8)
    paths = write_files(tmp_path, {"a.mat": mat_bytes(X=x.transpose(1, 2, 3, 0), y=y)})
    same(mat(paths, {"train": (3, 32, 32, 3)}, quiet, names={"train": ["a.mat"]}, zero=10)["train"], x, [0, 1, 9])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (mat_bytes(X=images(32, 32, 3, 2), y=images(2, 1)), r"a.mat: X has type and shape .*\(32, 32, 3, 2\)"),
        (mat_bytes(X=images(32, 32, 3, 3), y=images(2, 1)), r"a.mat: has shape \(2,\), expected \(3,\)"),
        (mat_bytes(X=images(32, 32, 3, 3)), "a.mat: array y is missing"),
        (mat_bytes(X=images(32, 32, 3, 3), y=images(3, 1))[:-2000], "a.mat: "),
        (b"no matlab", "a.mat: "),
        (b"", "a.mat: "),
    ],
)
def test_damaged_mat(tmp_path: Path, content: bytes, message: str) -> None:
    paths = write_files(tmp_path, {"a.mat": content})
    with pytest.raises(DataFileError, match=message):
        mat(paths, {"train": (3, 32, 32, 3)}, quiet, names={"train": ["a.mat"]}, zero=10)


TINY: dict[str, Any] = {
    "patterns": {"train": r"t/train/([^/]+)/images/[^/]+\.png", "val": r"t/val/images/([^/]+\.png)"},
    "annotations": "t/val/notes.txt",
}


def tiny_set() -> tuple[dict[str, bytes], Bytes]:
    x = images(4, 6, 6, 3)
    gray = images(6, 6)
    x[1] = gray[..., None]
    files = {
        "t/words.txt": b"not read",
        "t/train/n2/images/n2_0.png": image_bytes(x[0]),
        "t/train/n2/boxes.txt": b"not read",
        "t/train/n1/images/n1_0.png": image_bytes(gray),
        "t/val/notes.txt": b"v1.png\tn2\t0\t0\t5\t5\nv0.png\tn1\t0\t0\t5\t5\n",
        "t/val/images/v0.png": image_bytes(x[2]),
        "t/val/images/v1.png": image_bytes(x[3]),
    }
    return files, x


def test_image_folders_with_annotations(tmp_path: Path) -> None:
    files, x = tiny_set()
    shapes = {"train": (2, 6, 6, 3), "val": (2, 6, 6, 3)}
    for path in (write_zip(tmp_path / "t.zip", files), write_tar(tmp_path / "t.tar", files)):
        splits = image_folders([path], shapes, quiet, **TINY)
        same(splits["train"], x[:2], [1, 0])  # n2, n1: numbered as sorted
        same(splits["val"], x[2:], [0, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"t/val/notes.txt": b"v1.png\tn2\n"}, "t.zip: an image of val has no class: 'v0.png'"),
        ({"t/val/notes.txt": b"v1.png\tn2\nv0.png\tn7\n"}, "t.zip: an image of val has no class: 'n7'"),
        ({"t/train/n1/images/n1_0.png": b"no"}, "t.zip: t/train/n1/images/n1_0.png: not an image"),
        ({"t/train/n1/images/n1_1.png": image_bytes(images(6, 6, 3))}, "t.zip: images for train: 3, expected 2"),
    ],
)
def test_damaged_image_folders(tmp_path: Path, change: dict[str, bytes], message: str) -> None:
    path = write_zip(tmp_path / "t.zip", tiny_set()[0] | change)
    with pytest.raises(DataFileError, match=message):
        image_folders([path], {"train": (2, 6, 6, 3), "val": (2, 6, 6, 3)}, quiet, **TINY)


def test_images_are_cropped_or_padded(tmp_path: Path) -> None:
    large, wide, small = images(7, 9, 3), images(2, 8, 3), images(3, 1, 3)
    files = {f"o/00{i}.a/p.png": image_bytes(x) for i, x in enumerate((large, wide, small), 1)}
    x, y = image_folders(
        [write_tar(tmp_path / "o.tar", files)],
        {"train": (3, 4, 4, 3)},
        quiet,
        patterns={"train": r"o/([^/]+)/[^/]+\.png"},
    )["train"]
    np.testing.assert_array_equal(y, [0, 1, 2])
    np.testing.assert_array_equal(x[0], large[2:6, 2:6])  # 1.5 and 2.5 round to 2
    np.testing.assert_array_equal(x[1, 1:3], wide[:, 2:6])
    np.testing.assert_array_equal(x[2, :3, 1:2], small)
    assert not x[1, [0, 3]].any()
    assert not x[2, 3].any()
    assert not x[2, :, [0, 2, 3]].any()


@pytest.mark.parametrize("name", ["../evil", "in/../../evil", "/evil", "..\\evil", "C:/evil"])
@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_members_stay_inside(tmp_path: Path, write: Callable[[Path, Mapping[str, bytes]], Path], name: str) -> None:
    files, _, _ = idx_set()
    path = write(tmp_path / ("x.tar" if write is write_tar else "x.zip"), files | {name: b"evil"})
    with pytest.raises(DataFileError, match=r"x.(tar|zip): member .* points outside the archive"):
        idx([path], SHAPES, quiet, names=NAMES)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_no_links_in_tar(tmp_path: Path, kind: bytes) -> None:
    path = write_tar(tmp_path / "x.tar", idx_set()[0])
    with tarfile.open(path, "a") as archive:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = kind, "a"
        archive.addfile(info)
    with pytest.raises(DataFileError, match=r"x.tar: member 'link' is neither a file nor a folder"):
        idx([path], SHAPES, quiet, names=NAMES)


def test_no_links_in_zip(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", idx_set()[0])
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "a")
    with pytest.raises(DataFileError, match=r"x.zip: member 'link' is neither a file nor a folder"):
        idx([path], SHAPES, quiet, names=NAMES)


@pytest.mark.parametrize("name", ["x.tar", "x.tgz", "x.tar.gz", "x.zip"])
def test_archives_cut_anywhere(tmp_path: Path, name: str) -> None:
    files, _, _ = idx_set()
    path = (write_zip if name == "x.zip" else write_tar)(tmp_path / name, files)
    whole = path.read_bytes()
    used = len(whole) if name != "x.tar" else 8 * 512  # four headers, four small files; then padding
    for length in sorted({0, 1, 20, *range(0, used, 97), used - 1}):
        path.write_bytes(whole[:length])
        with pytest.raises(DataFileError, match=name):
            idx([path], SHAPES, quiet, names=NAMES)


def test_a_flipped_byte_in_a_zip(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", idx_set()[0])
    content = bytearray(path.read_bytes())
    content[80] ^= 1  # in the first file's values
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=r"x.zip: a: damaged"):
        idx([path], SHAPES, quiet, names=NAMES)


GOOD: dict[str, Any] = {
    "x_train": images(4, 6, 6),
    "y_train": np.arange(4, dtype=np.uint8),
    "x_test": images(2, 6, 6),
    "y_test": np.arange(2),
}


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    np.savez(path, **GOOD, x_val=GOOD["x_test"], y_val=GOOD["y_test"])
    splits = npz(path, (6, 6), ("train", "test"))
    assert list(splits) == ["train", "test", "val"]
    same(splits["train"], GOOD["x_train"], GOOD["y_train"])
    same(splits["test"], GOOD["x_test"], GOOD["y_test"])


def test_npz_with_plain_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=GOOD["x_train"], y=GOOD["y_train"])
    splits = npz(tmp_path / "s.npz", (6, 6), ("train",))
    assert list(splits) == ["train"]
    same(splits["train"], GOOD["x_train"], GOOD["y_train"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_test": None}, "s.npz: array y_test is missing; it has x_test, x_train, y_train"),
        ({"x_test": None, "y_test": None}, "s.npz: array x_test is missing"),
        ({"x_val": GOOD["x_test"]}, "s.npz: array y_val is missing"),
        ({"x_train": GOOD["x_train"] / 255}, r"s.npz: x_train is float64 \(4, 6, 6\), expected uint8"),
        ({"x_train": images(4, 5, 6)}, r"s.npz: x_train is uint8 \(4, 5, 6\), expected uint8 \(n, 6, 6\)"),
        ({"x_train": images(0, 6, 6), "y_train": images(0)}, r"s.npz: x_train is uint8 \(0, 6, 6\)"),
        ({"y_train": np.arange(3)}, r"s.npz: y_train: has shape \(3,\), expected \(4,\)"),
        ({"y_train": np.arange(4.0)}, "s.npz: y_train: expected integers of at least 0, got float64"),
        ({"y_train": -np.arange(4)}, "s.npz: y_train: expected integers of at least 0, got int64"),
        ({"y_train": np.array([{}] * 4)}, "s.npz: not an .npz file of plain arrays"),
    ],
)
def test_bad_npz(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "s.npz", **{key: array for key, array in (GOOD | change).items() if array is not None})
    with pytest.raises(DataFileError, match=message):
        npz(tmp_path / "s.npz", (6, 6), ("train", "test"))


def test_not_npz(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    np.savez(path, **GOOD)
    whole = path.read_bytes()
    stream = io.BytesIO()
    np.save(stream, GOOD["x_train"])
    for content in (b"", b"PK", b"hello", whole[:-30], whole[: len(whole) // 2], stream.getvalue()):
        path.write_bytes(content)
        with pytest.raises(DataFileError, match=r"s\.npz: "):
            npz(path, (6, 6), ("train", "test"))
    write_zip(path, {"x_train": b"no array", "y_train": b"none"})
    with pytest.raises(DataFileError, match=r"s\.npz: array x_train is missing"):
        npz(path, (6, 6), ("train",))
