"""Headers of safetensors files, read by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from sqhn.storage.headers import DTYPES, read_all, read_header, read_rows


def test_every_dtype(tmp_path: Path) -> None:
    arrays: dict[str, NDArray[Any]] = {
        name: np.arange(24).reshape(4, 3, 2).astype(dtype) for name, dtype in DTYPES.items()
    }
    arrays |= {"scalars": np.zeros(5), "empty": np.zeros((0, 3))}
    save_file(arrays, tmp_path / "x", {"about": "é"})
    with (tmp_path / "x").open("rb") as file:
        metadata, found = read_header(file)
        assert metadata == {"about": "é"}
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(read_rows(file, found[name]), array)
            np.testing.assert_array_equal(read_rows(file, found[name], 1, 3), array[1:3])
            assert read_rows(file, found[name]).dtype == array.dtype
    metadata, everything = read_all(io.BytesIO((tmp_path / "x").read_bytes()))
    assert (metadata["about"], everything.keys()) == ("é", arrays.keys())
    for name, array in everything.items():
        np.testing.assert_array_equal(array, arrays[name])
        assert array.flags.writeable


def test_a_file_that_is_truncated_after_its_header_was_read(tmp_path: Path) -> None:
    """A mapped file would end the process."""
    save_file({"x": np.ones((5000, 4))}, tmp_path / "x")
    with (tmp_path / "x").open("rb") as file:
        _, found = read_header(file)
        with (tmp_path / "x").open("r+b") as other:
            other.truncate(9000)
        with pytest.raises(ValueError, match=r"the file ends within an array of shape \(5000, 4\)"):
            read_rows(file, found["x"])


def header(entry: object) -> bytes:
    text = json.dumps({"x": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "a header of 0 bytes in a file of 0"),
        (bytes(8), "Expecting value"),
        (b"\xff" * 30, "a header of 18446744073709551615 bytes in a file of 30"),
        ((2).to_bytes(8, "little") + b"[]", "a damaged header"),
        (header({"dtype": "F64", "shape": [1]}), "a damaged header: KeyError"),
        (header({"dtype": "X", "shape": [1], "data_offsets": [0, 8]}), "a damaged header: KeyError"),
        (header({"dtype": "F64", "shape": [1], "data_offsets": [8, 16]}), "bytes 8 to 16 of"),
        (header({"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}), "whose arrays end at byte"),
        (header({"dtype": "F64", "shape": [2], "data_offsets": [0, 8]}), "bytes 0 to 8 of"),
        (header({"dtype": "F64", "shape": ["a"], "data_offsets": [0, 8]}), r"bytes 0 to 8 of .* of shape \('a',\)"),
    ],
)
def test_damaged_headers(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_header(io.BytesIO(content))
