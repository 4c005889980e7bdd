"""The files of sources: folders, files, patterns of names, and standard input."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from sqhn.cli.samples.common import IMAGE_SUFFIXES, STDIN, SampleError


def find(sources: Sequence[str]) -> tuple[list[str], str]:
    """The files of all sources in order, and the common folder of all of them."""
    files: list[str] = []
    folders: set[str] = set()
    for source in sources:
        path = Path(source)
        if source == STDIN:
            found = [source]
        elif path.is_dir():
            found = _below(path)
            folders.add(_normal(path))
        else:
            found = [str(path)] if path.exists() else _matching(source)
            folders |= {_normal(Path(file).parent) for file in found}
        files += found
    if files.count(STDIN) > 1:
        raise SampleError(f"{STDIN} is standard input, which can be read only once: give it once")
    return files, os.path.commonpath(folders) if folders else ""


def _below(folder: Path) -> list[str]:
    """The images below a folder, sorted, without hidden files and folders."""

    def fail(error: OSError) -> None:
        raise error

    names = []
    for at, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        here = Path(at).relative_to(folder).as_posix()
        found = (name for name in files if not name.startswith(".") and name.lower().endswith(IMAGE_SUFFIXES))
        names += [f"{here}/{name}".removeprefix("./") for name in found]
    if not names:
        raise SampleError(f"{folder} holds no images ({', '.join(IMAGE_SUFFIXES)})")
    return [str(folder / name) for name in sorted(names)]


def _matching(pattern: str) -> list[str]:
    """The images and .npy files that match a pattern, sorted; as in a shell, but ** is any number of folders."""
    if not any(sign in pattern for sign in "*?["):
        raise SampleError(f"there is no {pattern}")
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207  # unlike Path.glob, it skips hidden files, as shells do
    files = sorted(file for file in found if file.lower().endswith((*IMAGE_SUFFIXES, ".npy")) and Path(file).is_file())
    if not files:
        raise SampleError(f"no image ({', '.join(IMAGE_SUFFIXES)}) and no .npy file matches {pattern}")
    return files


def _normal(folder: Path) -> str:
    return os.path.normpath(folder.absolute())
