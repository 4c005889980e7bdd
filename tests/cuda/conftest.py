"""These tests run on a GPU, or without one in Triton's interpreter (TRITON_INTERPRET=1, with Triton installed)."""

from __future__ import annotations

import os
from typing import Any

import pytest


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    torch = pytest.importorskip("torch")
    if os.environ.get("TRITON_INTERPRET") == "1":
        from sqhn.banks.cuda.gpu import Cuda
        from sqhn.banks.devices import device_of

        def interpreted(name: str, shards: int | None = None) -> Any:
            if name == "cpu":
                return device_of(name)
            there = Cuda(torch.device("cpu"))
            there.name = "cuda:0"
            return there

        monkeypatch.setattr("sqhn.banks.devices.device_of", interpreted)
    elif not torch.cuda.is_available():
        pytest.skip("needs a GPU that torch can use")
    return "cuda"
