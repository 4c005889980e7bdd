"""Ctrl-C between chunks, never inside one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["deferred"]


@contextmanager
def deferred() -> Iterator[None]:
    """Hold back SIGINT for the length of a block that must not stop halfway (a chunk takes well under a second)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[tuple[int, FrameType | None]] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: pending.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pending and callable(handler):
            handler(*pending[0])
