"""What a memory says where there is no GPU for it, or not enough of one."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from sqhn import SQHN, Level


@pytest.mark.parametrize("device", ["gpu", "CUDA", "cuda0", "", 0])
def test_an_unknown_device_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match="device must be 'cpu', 'cuda'"):
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
    """Where Numba is missing, what is missing for a GPU is only the GPU."""
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from sqhn import SQHN\n"
        "try:\n    SQHN((4, 4), capacity=3, device='cuda')\n"
        "except (ImportError, RuntimeError) as error:\n    assert 'numba' not in str(error), error\n"
        "import sqhn.reference, sqhn.bench.cpu"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_out_of_memory_leaves_the_memory_as_it_was(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from tests.helpers import fingerprint

    x = np.random.default_rng(0).random((40, 8, 8), np.float32)
    memory = SQHN((8, 8), [Level(2, 9), Level(capacity=12)], device=device)
    memory.learn(x[:20])
    before = fingerprint(memory)
    real = torch.empty

    def full(*size: object, **how: object) -> object:
        if how.get("dtype") == torch.uint8:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 99.00 GiB.")
        return real(*size, **how)  # type: ignore[call-overload]

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(
        MemoryError, match=r"is out of memory, and nothing was changed.*a smaller capacity.*device='cpu'"
    ):
        memory.learn(x[20:])
    monkeypatch.undo()
    assert fingerprint(memory) == before
