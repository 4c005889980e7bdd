"""The examples run, and do what they say."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def ran(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()


def test_every_example_is_tested() -> None:
    here = Path(__file__).read_text()
    assert [path.stem for path in EXAMPLES.glob("*.py") if f'ran("{path.stem}")' not in here] == []


def test_digits_after_one_look() -> None:
    assert ran("digits_after_one_look") > 0.9


def test_a_semantic_cache() -> None:
    hits, wrong = ran("semantic_cache")
    assert hits > 0.95  # it promises .98
    assert wrong == 0


def test_duplicates_in_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    found, there = ran("duplicate_photos")
    assert {name: found.get(name) for name in there} == there
    assert len(found) - len(there) <= 0.05 * 44 + 4 * (0.05 * 44) ** 0.5  # of 44 that are none
    assert "22 of 22 duplicates found" in capsys.readouterr().out


def test_a_table_with_holes() -> None:
    error, means = ran("table_with_holes")
    assert error < means / 2


def test_the_last_day() -> None:
    last, before, at_home = ran("last_day")
    assert last > 0.99
    assert before < 0.01
    assert at_home


def test_a_dead_channel() -> None:
    error, mean = ran("dead_channel")
    assert error < mean / 4


def test_which_settings() -> None:
    page = (EXAMPLES.parent / "docs" / "settings.md").read_text()
    assert [table for table in ran("which_settings") if table not in page] == []
