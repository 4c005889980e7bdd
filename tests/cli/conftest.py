from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a memory, which does not exist yet."""
    return tmp_path / "m.sqhn"


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read seven samples at a time."""
    monkeypatch.setattr("sqhn.cli.samples.files.CHUNK_SAMPLES", 7)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Default signal handlers, restored afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
