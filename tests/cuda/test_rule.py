"""The decision table of `banks.rule` on a GPU."""

from __future__ import annotations

import pytest

from sqhn.banks.rule import AVERAGE, AVERAGED, FREEZE, GREW, OLDEST, OVERWRITE
from tests.banks.test_rule import FREED, TABLE, WRITTEN, C, place

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from triton import language as tl  # noqa: E402

from sqhn.banks.cuda.kernels.common import written_to  # noqa: E402


@triton.jit
def one(below, c, written, out, capacity, when_full: tl.constexpr, any_free: tl.constexpr):
    """`written_to` for a sample whose best match is neuron 2 of 5."""
    j, free = tl.load(out), tl.load(out + 1)
    to, kind = written_to(tl.load(below) != 0, j, j + 3, free, c, written, capacity, when_full, any_free, 8)
    tl.store(out, to)
    tl.store(out + 1, kind)


def on_a_gpu(below: bool, c: list[int], capacity: int, when_full: int, device: str) -> tuple[int, int]:
    where = "cpu" if triton.knobs.runtime.interpret else device
    out = torch.tensor([2, c.count(0)], dtype=torch.int32, device=where)
    flag = torch.tensor([int(below)], device=where, dtype=torch.int32)
    counts, steps = (torch.tensor(values, device=where, dtype=torch.int64) for values in (c, WRITTEN))
    one[(1,)](flag, counts, steps, out, capacity, when_full=when_full, any_free=0 in c)
    return tuple(out.tolist())


@pytest.mark.parametrize(("below", "full", "when_full", "expected"), TABLE)
def test_the_table(below: bool, full: bool, when_full: int, expected: int, device: str) -> None:
    found = on_a_gpu(below, C, 5 if full else 6, when_full, device)
    assert found == (place(expected, when_full), expected)


@pytest.mark.parametrize("capacity", [5, 6])
@pytest.mark.parametrize("when_full", [AVERAGE, FREEZE, OVERWRITE, OLDEST])
def test_the_lowest_free_slot_comes_first(capacity: int, when_full: int, device: str) -> None:
    assert on_a_gpu(True, FREED, capacity, when_full, device) == (1, GREW)
    assert on_a_gpu(False, FREED, capacity, when_full, device) == (2, AVERAGED)
