"""Compiling ahead."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from sqhn.cli import common
from tests.cli.commands import output_of, sqhn


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "progress", Console(stderr=True, force_terminal=True, width=80))


@pytest.mark.parametrize(("compiled", "text"), [(7, "compiled 7 functions"), (0, "all was compiled before")])
def test_the_command_says_how_much_it_compiled(compiled: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqhn.warmup.warm", lambda memory: compiled)
    assert output_of("warm").startswith(f"{text}, for memories of one level and trees")


def test_the_memory_may_be_a_file(file: Path) -> None:
    output_of("learn", "-", "--memory", file, "--capacity", 20, stdin=np.eye(6))
    before = file.read_bytes()
    document = json.loads(output_of("warm", "--memory", file, "--json"))
    assert document["memory"] == str(file)
    assert document["compiled"] >= 0
    assert file.read_bytes() == before


def test_a_missing_memory_is_named(file: Path) -> None:
    result = sqhn("warm", "--memory", file)
    assert result.exit_code == 1
    assert f"there is no memory {file}" in result.stderr


def test_no_share_is_shown_before_the_first_chunk_is_done(terminal: None, file: Path, small_chunks: None) -> None:
    result = sqhn("learn", "-", "--memory", file, "--capacity", 20, stdin=np.random.default_rng(0).random((70, 6)))
    assert "learning" in result.stderr
    assert not re.search(r"(?<!\d)0%", result.stderr)
