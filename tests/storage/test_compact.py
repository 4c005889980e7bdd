"""Arrays of banks in files: narrow integers, packed codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqhn import SQHN, Level, MemoryFileError
from sqhn.storage.compact import compressed, expanded
from sqhn.storage.files import encode, write
from tests.helpers import ON_HOSTS, fingerprint


@given(st.integers(0, 40), st.integers(1, 20), st.integers(1, 2**20), st.integers(0, 9))
def test_codes_keep_their_values_in_as_few_bits_as_they_need(rows: int, children: int, values: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(values, size=(rows, children), dtype=np.uint32)
    small, bits = compressed({"codes": codes, "c": np.arange(rows) + 1})
    assert bits is not None
    assert 2 ** (bits - 1) <= max(1, codes.max(initial=0)) < 2**bits
    assert small["codes"].nbytes == rows * -(-children * bits // 8)
    whole = expanded(small, bits, children)
    np.testing.assert_array_equal(whole["codes"], codes)
    np.testing.assert_array_equal(whole["c"], np.arange(rows) + 1)
    assert whole["c"].dtype == np.int64


@pytest.mark.parametrize(("largest", "size"), [(255, 1), (256, 2), (65536, 4), (2**32, 8)])
def test_integers_are_as_narrow_as_they_can_be(largest: int, size: int) -> None:
    small, _ = compressed({"written": np.array([0, largest])})
    assert small["written"].itemsize == size
    assert expanded(small, None, 0)["written"].tolist() == [0, largest]


@ON_HOSTS
@pytest.mark.parametrize("capacity", [255, 256, 257, 300])
def test_as_many_values_as_a_byte_has_and_more(device: str, capacity: int, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((capacity, 4, 2))
    memory = SQHN((4, 2), [Level((2, 2), capacity), Level(capacity=capacity)], device=device)
    memory.learn(x)
    assert len(memory) == capacity
    np.testing.assert_array_equal(memory.recall(x).index, np.arange(capacity))
    memory.save(tmp_path / "m")
    other = SQHN.load(tmp_path / "m", device)
    assert fingerprint(other) == fingerprint(memory)
    np.testing.assert_array_equal(other.prototypes, np.float32(x))


def test_a_stored_sample_takes_few_bytes(tmp_path: Path) -> None:
    """A byte for each child of a node, at most two for each node of level 2, and the statistics."""
    x = np.random.default_rng(0).random((200, 8, 8), np.float32)
    sizes = []
    for count in (100, 200):
        memory = SQHN((8, 8), [Level(2, 10), Level(2, 200), Level(capacity=200)])
        memory.learn(x[:count])
        memory.save(tmp_path / "m")
        sizes.append((tmp_path / "m").stat().st_size)
    codes, statistics = (
        4 * 4 / 2 + 4,
        4 * 1 + 1 + 8 + 1,
    )  # 4 bits for each child of level 2, a byte for each of the root
    assert (sizes[1] - sizes[0]) / 100 <= codes + statistics


@pytest.mark.parametrize("damage", ["value", "fewer", "bits", "no bits", "children", "dtype"])
def test_codes_that_contradict_the_rest(damage: str, tmp_path: Path) -> None:
    memory = SQHN((8, 8), [Level(4, 5), Level(capacity=5)])
    memory.learn(np.random.default_rng(0).random((5, 8, 8)))
    header, tensors = memory.inspect(encode)
    codes: Any = tensors["level2.codes"]
    assert (header["bits"], codes.shape) == ([None, 3], (5, 2))
    if damage == "value":
        codes[2] = 255  # 7, of 5 values
    elif damage == "fewer":
        codes = codes[:-1]
    elif damage == "bits":
        header["bits"][1] = 0
    elif damage == "no bits":
        del header["bits"]
    elif damage == "children":
        codes = np.ascontiguousarray(codes[:, :1])
    else:
        codes = codes.astype(np.uint16)
    write(tmp_path / "m", header, tensors | {"level2.codes": codes})
    with pytest.raises(MemoryFileError, match="does not hold a consistent memory"):
        SQHN.load(tmp_path / "m")


@pytest.mark.parametrize("side", [8, 1024, 2**31])
def test_a_shared_level_is_for_samples_of_one_shape(side: int, tmp_path: Path) -> None:
    """Its arrays do not tell their shape, which must be checked before larger ones are made."""
    memory = SQHN((16, 16), [Level(2, 5, shared=True), Level(capacity=5)])
    memory.learn(np.random.default_rng(0).random((5, 16, 16)))
    header, tensors = memory.inspect(encode)
    write(tmp_path / "m", header | {"input_shape": [side, side]}, tensors)
    with pytest.raises(MemoryFileError, match="does not hold a consistent memory"):
        SQHN.load(tmp_path / "m")
