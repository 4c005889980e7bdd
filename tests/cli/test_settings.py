"""The options of `sqhn learn` that describe a memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sqhn import SQHN, Level
from tests.cli.commands import COLOR, GRAY, error_of, output_of, put, saved_memory
from tests.helpers import fingerprint


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        (["--capacity", "9"], [Level(None, 9)]),
        (["--levels", "9"], [Level(None, 9)]),
        (["--levels", "2:5,4:6,7"], [Level(2, 5), Level(4, 6), Level(None, 7)]),
        (["--levels", "4x2:5, 8"], [Level((4, 2), 5), Level(None, 8)]),
        (["--capacity", "9", "--levels", "2,4"], [Level(2, 9), Level(4, 9), Level(None, 9)]),
        (["--capacity", "9", "--levels", "4x2"], [Level((4, 2), 9), Level(None, 9)]),
        (["--levels", "4:5,4x4:6"], [Level(4, 5), Level((4, 4), 6)]),
        (["--levels", "2:9:shared,2:9:shared,9"], [Level(2, 9, shared=True), Level(2, 9, shared=True), Level(None, 9)]),
        (["--capacity", "9", "--levels", "2:shared,4"], [Level(2, 9, shared=True), Level(4, 9), Level(None, 9)]),
    ],
)
def test_levels(options: list[str], levels: list[Level], tmp_path: Path, file: Path) -> None:
    output_of("learn", put(tmp_path / "x.npy", COLOR), "--memory", file, *options)
    memory = SQHN.load(file)
    assert memory.levels == tuple(levels)
    assert fingerprint(memory) == fingerprint(saved_memory(tmp_path / "expected", COLOR, *levels))


@pytest.mark.parametrize(
    ("options", "level"),
    [
        (["--levels", "2:5,x,7"], "'x'"),
        (["--levels", "2:5,,7"], "''"),
        (["--levels", "2:5:6,7"], "'2:5:6'"),
        (["--levels", "2:5:divided,7"], "'2:5:divided'"),
        (["--levels", "2:-5,7"], "'2:-5'"),
        (["--levels", "2:0,7"], "'2:0'"),
        (["--levels", "0:5,7"], "'0:5'"),
        (["--levels", "2,4"], "'2'"),
        (["--levels", "2:5,4x4"], "'4x4'"),
        (["--levels", "2:5,7", "--capacity", "9"], "'2:5'"),
    ],
)
def test_invalid_levels(options: list[str], level: str, tmp_path: Path, file: Path) -> None:
    error = error_of("learn", put(tmp_path / "x.npy", COLOR), "--memory", file, *options, status=2)
    assert "--levels" in error
    assert f"{level}:" in error
    assert not file.exists()


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (["--capacity", "99999999999999999999"], "--capacity"),
        (["--capacity", "2147483648"], "--capacity"),
        (["--capacity", "2147483648", "--levels", "2"], "--capacity"),
        (["--levels", "2:99999999999999999999,7"], "--levels"),
        (["--levels", "2:5,99999999999999999999"], "--levels"),
    ],
)
def test_capacities_that_are_too_large(options: list[str], option: str, tmp_path: Path, file: Path) -> None:
    error = error_of("learn", put(tmp_path / "x.npy", COLOR), "--memory", file, *options, status=2)
    assert f"Invalid value for {option}: " in error
    assert "2,147,483,647" in error
    assert not file.exists()


def test_kernels_that_do_not_divide(tmp_path: Path, file: Path) -> None:
    source = put(tmp_path / "x.npy", COLOR)
    assert "(5, 5)" in error_of("learn", source, "--memory", file, "--levels", "5:3,4")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--capacity", "9"], "9"),
        (["--levels", "2:5,4:6,8"], "2:5,4:6,8"),
        (["--levels", "2,2", "--capacity", "5"], "2:5,2:5,5"),
    ],
)
def test_other_levels_than_in_the_file(options: list[str], wanted: str, tmp_path: Path, file: Path) -> None:
    saved_memory(file, COLOR, Level(2, 5), Level((4, 4), 6), Level(None, 7))
    before = file.read_bytes()
    source = put(tmp_path / "x.npy", COLOR)
    error = error_of("learn", source, "--memory", file, *options)
    assert f"has levels 2:5,4:6,7, but the options say {wanted}:" in error
    assert file.read_bytes() == before
    output_of("learn", source, "--memory", file, "--levels", "2:5,4:6,7")


def test_levels_that_share_and_stop(tmp_path: Path, file: Path) -> None:
    source, options = put(tmp_path / "x.npy", COLOR), ("--levels", "2:9:shared:stops,9", "--when-full", "freeze")
    for _ in range(2):  # the second time with the same options
        output_of("learn", source, "--memory", file, *options)
    lower, memory = SQHN.load(file).levels
    assert (lower, memory) == (
        Level(2, 9, when_full="freeze", shared=True, stops=True),
        Level(None, 9, when_full="freeze"),
    )
    assert "when full freeze, shared, stops\n" in output_of("info", file)
    error = error_of("learn", source, "--memory", file, "--levels", "2:9:shared,9")
    assert "has levels 2:9:shared:stops,9, but the options say 2:9:shared,9:" in error


GIVEN = ("--when-full", "overwrite", "--alpha", "50", "--gamma", "0.9", "--similarity", "cosine", "--rho", "0.5")


def test_options_of_a_new_memory(tmp_path: Path, file: Path) -> None:
    source = put(tmp_path / "x.npy", COLOR)
    for _ in range(2):  # the second time with the same options
        output_of("learn", source, "--memory", file, "--levels", "4:5,6", *GIVEN)
    levels = [Level(4, 5, 50, 0.9), Level(None, 6, 50, 0.9, "overwrite")]
    expected = SQHN(COLOR.shape[1:], levels, similarity="cosine", rho=0.5)
    for _ in range(2):
        expected.learn(COLOR)
    memory = SQHN.load(file)
    assert (memory.levels, memory.options) == (expected.levels, expected.options)
    assert fingerprint(memory) == fingerprint(expected)


def test_unlimited_growth(tmp_path: Path, file: Path) -> None:
    output_of("learn", put(tmp_path / "x.npy", GRAY), "--memory", file, "--capacity", 9, "--alpha", "inf")
    assert SQHN.load(file).levels == (Level(None, 9, np.inf),)


@pytest.mark.parametrize(
    ("option", "value", "there"),
    [
        ("--similarity", "cosine", "similarity shifted_cosine"),
        ("--when-full", "freeze", "when full average, overwrite"),
        ("--when-full", "average", "when full average, overwrite"),
        ("--when-full", "oldest", "when full overwrite"),
        ("--alpha", "50.0", "alpha 10000000.0"),
        ("--gamma", "0.5", "gamma 0.9"),
    ],
)
def test_other_options_than_in_the_file(option: str, value: str, there: str, tmp_path: Path, file: Path) -> None:
    saved_memory(file, COLOR, Level(4, 5, 1e7, 0.9), Level(None, 6, 1e7, 0.9, "overwrite"))
    before = file.read_bytes()
    error = error_of("learn", put(tmp_path / "x.npy", COLOR), "--memory", file, option, value)
    assert f"{file} has {there}, but the options say {value}: omit {option} " in error
    assert file.read_bytes() == before


def test_rho_can_be_changed(tmp_path: Path, file: Path) -> None:
    saved_memory(file, GRAY)
    output_of("learn", put(tmp_path / "x.npy", GRAY), "--memory", file, "--rho", "0.25")
    assert (SQHN.load(file).rho, SQHN.load(file).step) == (0.25, 60)
    output_of("learn", put(tmp_path / "x.npy", GRAY), "--memory", file)
    assert SQHN.load(file).rho == 0.25


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--alpha", "0", "got 0.0"),
        ("--alpha", "nan", "got nan"),
        ("--gamma", "inf", "got inf"),
        ("--rho", "-1", "got -1.0"),
        ("--rho", "soon", "number"),
        ("--when-full", "forget", "'forget'"),
        ("--similarity", "dot", "'dot'"),
    ],
)
def test_invalid_options(old: bool, option: str, value: str, reason: str, tmp_path: Path, file: Path) -> None:
    if old:
        saved_memory(file, GRAY)
    before = file.read_bytes() if old else None
    words = ("learn", put(tmp_path / "x.npy", GRAY), "--memory", file, "--capacity", 20)
    error = error_of(*words, option, value, status=2)
    assert option in error
    assert reason in error
    assert (file.read_bytes() if file.exists() else None) == before
