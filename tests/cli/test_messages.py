"""Help, errors and progress of the command."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from sqhn.cli import common
from sqhn.cli.common import failing
from sqhn.data import builtin
from sqhn.paper.baselines.training import load_torch
from tests.cli.commands import GRAY, image_folder, output_of, saved_memory, sqhn


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_results_that_cannot_be_printed(options: tuple[str, ...], file: Path) -> None:
    saved_memory(file, GRAY)
    command = [sys.executable, "-m", "sqhn.cli", "info", str(file), *options]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("the command is done, but its results cannot be printed: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "module", "line"),
    [
        (["reproduce", "TH2"], "joblib", "joblib is not installed: pip install 'sqhn[experiments]'"),
        (["bench", "recall-1"], "skimage.data", "scikit-image is not installed: pip install 'sqhn[experiments]'"),
        (["data", "get", "mnist"], "pooch", "pooch is not installed: pip install 'sqhn[experiments]'"),
        (
            ["reproduce", "TH2", "--quick", "--backend", "dask"],
            "distributed",
            "distributed is not installed: pip install 'sqhn[dask]'",
        ),
    ],
)
def test_a_missing_package_is_named(
    words: list[str], module: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SQHN_DATA", "SQHN_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    builtin.photographs.cache_clear()
    result = sqhn(*words)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ModuleNotFoundError("No module named 'scipy'", name="scipy"), "scipy is not installed: pip install 'sqhn["),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "torch is not installed: pip install 'sqhn["),
        (ImportError("libsomething.so: cannot open shared object file"), "libsomething.so: cannot open shared object"),
    ],
)
def test_messages_of_import_errors(error: ImportError, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), failing(ImportError):
        raise error
    message = capsys.readouterr().err
    assert message.startswith(line)
    assert message.count("\n") == 1


def test_system_errors_name_the_file_and_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), failing(OSError):
        raise OSError(errno.EROFS, "Read-only file system", "out/a.png")
    assert capsys.readouterr().err == "out/a.png: Read-only file system\n"


def test_errors_that_name_the_extra_themselves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(typer.Exit), failing(ImportError):
        load_torch()
    assert capsys.readouterr().err == "this memory needs PyTorch: pip install 'sqhn[torch]'\n"


@pytest.mark.parametrize("words", [[], ["learn"], ["recall"], ["recognize"], ["info"], ["bench"], ["data", "get"]])
def test_help_has_a_short_name(words: list[str]) -> None:
    assert output_of(*words, "-h") == output_of(*words, "--help")


def test_the_version() -> None:
    assert output_of("--version") == f"sqhn {version('sqhn')}\n"


def test_a_progress_bar_is_for_terminals_and_never_on_stdout(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    monkeypatch.setattr(common, "progress", Console(stderr=True, force_terminal=True, width=80))
    result = sqhn("learn", image_folder(tmp_path / "in", GRAY), "--memory", file, "--capacity", 20, "--json")
    assert "learning" in result.stderr
    assert json.loads(result.stdout)["learned"] == 30
