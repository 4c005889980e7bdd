"""What becomes of a sample, on a GPU: the same table."""

# Triton reads these functions as its own language.
# mypy: ignore-errors
from __future__ import annotations

import pytest

from sqhn.banks.rule import BECAME
from tests.banks.test_rule import TABLE, WRITTEN, C

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from triton import language as tl  # noqa: E402

from sqhn.banks.cuda.kernels.neurons import written_to  # noqa: E402


@triton.jit
def one(below, c, written, out, capacity, when_full: tl.constexpr):
    """Where a sample goes that resembles neuron 2 of 5 most, and what becomes of it."""
    j = tl.load(out)
    to, kind = written_to(tl.load(below) != 0, j, j + 3, c, written, capacity, when_full, 8)
    tl.store(out, to)
    tl.store(out + 1, kind)


@pytest.mark.parametrize(("below", "full", "when_full", "expected"), TABLE)
def test_the_table(below: bool, full: bool, when_full: int, expected: int, device: str) -> None:
    place = "cpu" if triton.knobs.runtime.interpret else device
    out = torch.tensor([2, 0], dtype=torch.int32, device=place)
    flag = torch.tensor([int(below)], device=place, dtype=torch.int32)
    counts, steps = (torch.tensor(values, device=place, dtype=torch.int64) for values in (C, WRITTEN))
    one[(1,)](flag, counts, steps, out, 5 if full else 6, when_full=when_full)
    j, kind = out.tolist()
    assert kind == expected
    assert j == ((3 if full else 5) if kind == BECAME else 2)
