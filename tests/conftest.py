from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from sqhn.banks.devices import device_of
from sqhn.data import digits, photos

os.environ.setdefault("SQHN_COMPILE", "1")  # the device "cpu" is compiled kernels from the start
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start programs in the background with Ctrl-C ignored
settings.register_profile("ci", derandomize=True)  # results must not depend on chance
settings.load_profile("ci" if os.environ.get("CI") else "default")


@cache
def color_photographs() -> NDArray[np.float32]:
    return photos(32).astype(np.float32) / np.float32(255)


@pytest.fixture
def images() -> NDArray[np.float32]:
    """Color photographs, (1723, 32, 32, 3) in [0, 1]."""
    return color_photographs()


@cache
def distinct_photographs() -> NDArray[np.float32]:
    """Photographs without near duplicates (patches of one sky) and without flat patches."""
    x = color_photographs()
    patches = x.reshape(len(x), 8, 4, 8, 4, 3)
    x = x[patches.std(axis=(2, 4)).min(axis=(1, 2, 3)) > 0.004]
    y = x.reshape(len(x), -1) - 0.5
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    alone: NDArray[np.float32] = x[np.tril(y @ y.T, -1).max(axis=1) < 0.99]
    return alone


@pytest.fixture
def distinct() -> NDArray[np.float32]:
    """Color photographs that no node confuses."""
    return distinct_photographs()


@pytest.fixture
def grey() -> NDArray[np.float32]:
    """Handwritten digits, (500, 28, 28) in [0, 1]."""
    return digits()[0][:500].astype(np.float32) / np.float32(255)


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Keep the shards of device="ray" in this process; every: one call in so many is lost."""
    pytest.importorskip("numba")

    def be(shards: int, every: int = 0) -> None:
        import sqhn.banks.ray.device
        from tests.ray.local import LocalTransport

        number = itertools.count(every)
        monkeypatch.setattr(sqhn.banks.ray.device, "Actors", lambda *_: LocalTransport(next(number) if every else 0))

        def find(name: str, many: int | None = None) -> Any:
            return device_of(name, many or shards if name.startswith("ray") else many)

        monkeypatch.setattr("sqhn.banks.devices.device_of", find)

    return be
