"""The cache of compiled kernels knows every file that they are made of."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sqhn
from sqhn.banks.cpu.compiled import FOLDER, folder_of

PACKAGE = Path(sqhn.__file__).parent


def made_of() -> set[Path]:
    """The kernels' own files, and those of all that they name."""
    files = {*(PACKAGE / "banks" / "cpu" / "kernels").glob("*.py"), PACKAGE / "banks" / "ray" / "kernels.py"}
    for path in sorted(files):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sqhn."):
                files.add(Path(importlib.import_module(str(node.module)).__file__ or ""))
    return {path.relative_to(PACKAGE) for path in files}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sqhn.banks.cpu.compiled.config.CACHE_DIR", str(Path(FOLDER).parent))
    return Path(shutil.copytree(PACKAGE, tmp_path / "sqhn", ignore=shutil.ignore_patterns("__pycache__")))


def test_the_same_files_have_the_same_folder(package: Path) -> None:
    assert folder_of(package) == FOLDER


@pytest.mark.parametrize("path", sorted(made_of()), ids=str)
def test_another_file_has_another_folder(path: Path, package: Path) -> None:
    with (package / path).open("a") as file:
        file.write("# changed\n")
    assert folder_of(package) != FOLDER


LEARN_AND_RECALL = """
import numpy as np
from sqhn import SQHN, Level
x = np.random.default_rng(0).random((6, 4, 4, 3)).astype(np.float32)
seen = np.random.default_rng(1).random(x.shape) < 0.7
for levels in ([Level(2, 5), Level(capacity=5)], [Level(capacity=5)]):
    memory = SQHN((4, 4, 3), levels)
    memory.learn(x)
    memory.learn(x, observed=seen)
    for rule in ("paper", "exact", "evidence"):
        print(memory.recall(x, seen, inference=rule, k=2).index.tolist())
"""


def test_kernels_run_as_python_for_a_debugger() -> None:
    compiled, interpreted = (
        subprocess.run(
            [sys.executable, "-c", LEARN_AND_RECALL], env=os.environ | more, capture_output=True, text=True, check=True
        ).stdout
        for more in ({}, {"NUMBA_DISABLE_JIT": "1"})
    )
    assert compiled == interpreted
