"""Errors where there is no GPU, or where its memory runs out."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from sqhn import SQHN, Level


@pytest.mark.parametrize("device", ["gpu", "CUDA", "cuda0", "", 0])
def test_an_unknown_device_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match="device must be 'cpu', 'plain', 'cuda'"):
        SQHN((4, 4), capacity=3, device=device)


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"device='cuda' needs torch: pip install 'sqhn\[torch\]'"):
        SQHN((4, 4), capacity=3, device="cuda")


def test_without_a_gpu_it_says_why() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match=r"device='cuda' cannot be used: .*or use device='cpu'"):
        SQHN((4, 4), capacity=3, device="cuda")
    memory = SQHN((4, 4), capacity=3)
    with pytest.raises(RuntimeError, match="device='cuda' cannot be used"):
        memory.to("cuda")


def test_without_triton_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ImportError, match="device='cuda' needs Triton: pip install triton"):
        SQHN((4, 4), capacity=3, device="cuda")


def test_the_gpu_does_not_need_numba() -> None:
    """Without Numba, device="cuda" fails for want of a GPU at most."""
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from sqhn import SQHN\n"
        "try:\n    SQHN((4, 4), capacity=3, device='cuda')\n"
        "except (ImportError, RuntimeError) as error:\n    assert 'numba' not in str(error), error\n"
        "import sqhn.reference, sqhn.bench.cpu"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("allocation", [3, 9, None])
def test_out_of_memory_leaves_the_memory_as_it_was(
    allocation: int | None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may run out while arrays are enlarged, one after another, or afterwards (None), where more is reserved."""
    import torch

    from sqhn.banks.cuda import arrays
    from tests.helpers import fingerprint

    x = np.random.default_rng(0).random((9, 4, 4), np.float32)
    observed = np.ones(x.shape, bool)
    observed[0, 0, 0] = False
    memory = SQHN((4, 4), [Level(2, 9), Level(capacity=9)], device=device)
    memory.learn(x[:3], observed=observed[:3])
    before, scores = fingerprint(memory), memory.recall(x[:3]).score
    enlarge, empty, calls = arrays.enlarge, torch.empty, itertools.count()

    def full(*size: Any, **how: Any) -> Any:
        if allocation is None and how.get("dtype") == torch.uint8:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 99.00 GiB.")
        return empty(*size, **how)

    def enlarge_some(array: Any, room: int) -> Any:
        if next(calls) == allocation:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 99.00 GiB.")
        return enlarge(array, room)

    monkeypatch.setattr(torch, "empty", full)
    monkeypatch.setattr(arrays, "enlarge", enlarge_some)
    with pytest.raises(
        MemoryError, match=r"is out of memory, and nothing was changed.*a smaller capacity.*device='cpu'"
    ):
        memory.learn(x[3:])
    monkeypatch.undo()
    assert fingerprint(memory) == before
    np.testing.assert_array_equal(memory.recall(x[:3]).score, scores)
