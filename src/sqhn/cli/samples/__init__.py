"""Samples in files: images, and arrays in .npy files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sqhn.cli.common import counted, say
from sqhn.cli.options import Size
from sqhn.cli.samples.arrays import Arrays, check_array, open_array
from sqhn.cli.samples.files import IMAGE_SUFFIXES, STDIN, Required, Unusable, check_file, find, name_below, summary
from sqhn.cli.samples.images import Images, check_images, decode

__all__ = ["Samples", "read", "read_mask"]


@dataclass(frozen=True)
class Samples:
    """Samples of one shape, in the order of their files.

    folder: the common folder of all files; their names are relative to it.
    skipped: the files that cannot be used, and why.
    """

    parts: Sequence[Images | Arrays]
    folder: str
    skipped: Unusable

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape

    @property
    def names(self) -> list[str]:
        """The names of the files below the folder, and the indices of the samples in arrays.

        The samples of a single array are named by their index alone.
        """
        if len(self.parts) == 1 and isinstance(self.parts[0], Arrays):
            return [str(n) for n in range(len(self))]
        places = [place for part in self.parts for _ in part.files for place in part.places]
        return [f"{label}{place}" for label, place in zip(self.labels, places)]

    @property
    def labels(self) -> list[str]:
        """A label for each sample: the name of its file."""
        return [name_below(self.folder, file) for part in self.parts for file in part.files for _ in part.places]

    @property
    def rule(self) -> Literal["paper", "evidence"]:
        """The rule of recall that is used by default: evidence if there are images."""
        return "evidence" if any(isinstance(part, Images) for part in self.parts) else "paper"

    def files_of(self, count: int) -> list[str]:
        """The files of the first `count` samples."""
        files: list[str] = []
        for part in self.parts:
            files += part.files[: max(0, count)]  # as many as images; an array is one file
            count -= len(part)
        return files

    @property
    def repeatable(self) -> bool:
        """Whether they can be read again: standard input cannot."""
        return not any(STDIN in part.files for part in self.parts)

    def chunks(self, start: int = 0) -> Iterator[NDArray[Any]]:
        """The samples from index `start`, as chunks (n, *shape)."""
        for part in self.parts:
            if start < len(part):
                yield from part.chunks(start)
            start = max(0, start - len(part))

    def write(self, out: Path, chunks: Iterator[NDArray[np.float32]]) -> None:
        """Write what was recalled for each chunk: images as .png, arrays as .npy, with the names of the sources.

        If several are recalled for each sample, along a second axis, images are put side by side.
        For a single source file `out` may be a file; otherwise it is a folder.
        """
        for part, places in zip(self.parts, self._places(out)):
            values = _take(chunks, len(part))
            first = next(values)  # if this fails, no folder is made
            for folder in {place.parent for place in places}:
                folder.mkdir(parents=True, exist_ok=True)
            part.write(places, first.shape[1:], chain([first], values))

    def _places(self, out: Path) -> list[list[Path]]:
        """The output files of each part; raises if one would be written twice, or is a source."""
        files = [file for part in self.parts for file in part.files]
        if out.suffix.lower() in (*IMAGE_SUFFIXES, ".npy") and not out.is_dir():
            if len(files) > 1:
                raise ValueError(f"{out} looks like a file, but there are several to write: name a folder")
            suffix = self.parts[0].suffix
            if out.suffix.lower() != suffix:
                raise ValueError(f"{out} must be a folder or end in {suffix}, the format that is written")
            places = [[out]]
        else:
            if out.exists() and not out.is_dir():
                raise NotADirectoryError(f"{out} is not a folder: name a folder, or a .png or .npy file for one source")
            places = [
                [out / Path(name_below(self.folder, file)).with_suffix(part.suffix) for file in part.files]
                for part in self.parts
            ]
        sources = {Path(file).resolve() for file in files}
        taken: dict[Path, str] = {}
        for file, place in zip(files, chain(*places)):
            if place.resolve() in sources:
                raise ValueError(f"the output for {file} would overwrite the source {place}: give another --out")
            if place in taken:
                raise ValueError(
                    f"{taken[place]} and {file} would both be written to {place}: rename one, or leave one out"
                )
            taken[place] = file
        return places


def _take(chunks: Iterator[NDArray[np.float32]], count: int) -> Iterator[NDArray[np.float32]]:
    """The chunks of the next `count` samples."""
    while count:
        values = next(chunks)
        count -= len(values)
        yield values


def read(
    sources: Sequence[str], shape: tuple[int, ...] | None = None, resize: Size | None = None, skip_bad: bool = False
) -> Samples:
    """The samples of folders, files, patterns and standard input ("-"), checked but not decoded yet.

    shape: of the samples of an existing memory, to which images are scaled; None for a new one.
    resize: the size for all images of a new memory.
    skip_bad: leave out unusable files, and name them on stderr; all images are decoded once to find them. Otherwise
        they are an error.
    """
    files, folder, unread = find(sources)
    required = None if shape is None else Required(shape)
    unusable: Unusable = {}
    arrays: dict[str, Arrays] = {}
    image_files = []
    for file in files:
        if Path(file).suffix.lower() in IMAGE_SUFFIXES:
            image_files.append(file)
            continue
        try:
            arrays[file] = check_array(file, required)
        except (OSError, ValueError) as error:
            unusable[file] = f"{error}"
        else:
            required = required or Required(arrays[file].shape, f"{file} holds", memory=False)
    if resize is not None and not image_files and arrays:
        raise ValueError(f"--resize is for images; {next(iter(arrays))} holds an array")
    images, scaled = check_images(image_files, required, resize, unusable) if image_files else (None, [])
    if skip_bad and images:
        unusable |= images.damaged()
    good = [file for file in files if file not in unusable]
    if unusable and not (skip_bad and good):
        raise ValueError(summary(unusable, bool(good)))
    for reason in dict.fromkeys(unusable.values()):
        say(f"skipped: {reason}")
    if images and shape is not None and (fitted := [file for file in scaled if file not in unusable]):
        say(f"{counted(fitted, 'image is', 'images are')} scaled to {images.resize}, the size of the memory")
    parts: list[Images | Arrays] = []
    for array, group in groupby(good, lambda file: file in arrays):
        if array or images is None:
            parts += [arrays[file] for file in group]
        else:
            parts.append(replace(images, files=list(group)))
    return Samples(parts, folder, unusable | {file: f"{file} is in a format that is not read" for file in unread})


def read_mask(path: Path, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The mask of observed values for samples of a shape: an image that is not black, or a boolean .npy file.

    A mask without channels is for all channels. An image is scaled like the samples.
    """
    if path.suffix.lower() == ".npy":
        mask = open_array(path)
        if mask.dtype != np.bool_:
            raise ValueError(f"{path} must be boolean, True for observed values; got dtype {mask.dtype}")
    else:
        check_file(path)
        size = Size(shape[1], shape[0]) if len(shape) in (2, 3) else None
        mask = np.asarray(decode(path, "RGB", size, nearest=True).any(axis=2))
    if mask.shape == shape[:-1] and len(shape) == 3:
        mask = mask[..., None]
    elif mask.shape != shape:
        raise ValueError(f"{path} has shape {mask.shape}, but the samples of the memory have {shape}")
    return np.broadcast_to(mask, shape)
