"""Run commands, and prepare files for them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from safetensors import safe_open
from typer.testing import CliRunner, Result

from sqhn import SQHN, Level
from sqhn.cli import app, samples
from sqhn.cli.samples import Samples
from sqhn.data import digits, photos

Pixels = NDArray[np.uint8]
COLOR = photos(32)[:30, ::2, ::2]
GRAY = digits()[0][:30, 2:26, 2:22]  # 24 rows, 20 columns
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals, links and pipes")


def sqhn(*words: object, stdin: bytes | NDArray[Any] = b"") -> Result:
    """Run a command in this process; an array is given to it as a .npy file on standard input."""
    content = stdin if isinstance(stdin, bytes) else npy(stdin)
    return CliRunner().invoke(app, [str(word) for word in words], input=content)


def output_of(*words: object, stdin: bytes | NDArray[Any] = b"") -> str:
    """The output of a command that succeeds."""
    result = sqhn(*words, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def json_of(*words: object, stdin: bytes | NDArray[Any] = b"") -> dict[str, Any]:
    content: dict[str, Any] = json.loads(output_of(*words, "--json", stdin=stdin))
    return content


def error_of(*words: object, status: int = 1, stdin: bytes | NDArray[Any] = b"") -> str:
    """The message of a command that fails; one line, unless the usage is wrong (status 2)."""
    result = sqhn(*words, stdin=stdin)
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    if status == 1:
        assert result.stderr.count("\n") == 1
    return re.sub(r"[\s│]+", " ", result.stderr)


def npy(x: ArrayLike) -> bytes:
    stream = BytesIO()
    np.save(stream, x)
    return stream.getvalue()


def pixels(*shape: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def put(path: Path, values: ArrayLike, **options: Any) -> Path:
    """A file that holds an image or an array; options: of the image format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, values)
    else:
        Image.fromarray(np.asarray(values)).save(path, **options)
    return path


def load_image(path: Path | str) -> Pixels:
    with Image.open(path) as image:
        return np.asarray(image)


def image_names(count: int, kind: str = "png") -> list[str]:
    """The names of the images that `image_folder` makes."""
    return [f"{n:03}.{kind}" for n in range(count)]


def image_folder(path: Path, x: Pixels, kind: str = "png") -> Path:
    """A new folder with these images."""
    for name, image in zip(image_names(len(x), kind), x):
        put(path / name, image)
    return path


def read(*sources: Path | str, **options: Any) -> Samples:
    """The samples of sources; options: as of `samples.read`."""
    return samples.read([str(source) for source in sources], **options)


def everything(found: Samples) -> NDArray[Any]:
    return np.concatenate(list(found.chunks()))


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def saved_memory(path: Path, x: NDArray[Any], *levels: Level, names: Sequence[str] | None = None) -> SQHN:
    """A memory that has learned these samples, with names as labels, and its file."""
    memory = SQHN(x.shape[1:], levels or [Level(capacity=20)])
    if len(x):
        memory.learn(x, value=names)
    memory.save(path)
    return memory


def metadata_of(path: Path) -> dict[str, str]:
    """The header of a memory file, with its digest of the content."""
    with safe_open(path, "numpy") as file:
        metadata: dict[str, str] = file.metadata()
    return metadata


SLOWLY = """
learn = SQHN.learn
def learn_slowly(self, x, **labels):
    print("learning", file=sys.stderr, flush=True)
    time.sleep(0.1)
    return learn(self, x, **labels)
SQHN.learn = learn_slowly
"""
"""A program that announces each chunk and takes its time; a signal can be sent in between."""


def start_process(program: str, *words: object) -> subprocess.Popen[str]:
    """A process that runs a program and then the command."""
    whole = f"import os, sys, time; from pathlib import Path; from sqhn import SQHN, cli\n{program}\ncli.app()"
    command = [sys.executable, "-c", whole, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_line(process: subprocess.Popen[str], words: str) -> str:
    """The next line of stderr, which contains these words."""
    assert process.stderr is not None
    line = process.stderr.readline()
    assert words in line
    return line


def hook(
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    before: Mapping[int, Callable[[], object]] | None = None,
    after: Mapping[int, Callable[[], object]] | None = None,
) -> list[int]:
    """Call functions before or after calls of a verb of SQHN, by the number of the call; returns the step at each."""
    original, steps = getattr(SQHN, verb), []

    def hooked(self: SQHN, *args: Any, **labels: Any) -> Any:
        steps.append(self.step)
        number = len(steps)
        (before or {}).get(number, bool)()
        result = original(self, *args, **labels)
        (after or {}).get(number, bool)()
        return result

    monkeypatch.setattr(SQHN, verb, hooked)
    return steps


def interrupt() -> None:
    raise KeyboardInterrupt
