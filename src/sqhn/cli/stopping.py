"""Signals that end a command at a safe point."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@dataclass
class Stop:
    """A signal handler: while it is armed, the first signal raises KeyboardInterrupt; others are only recorded."""

    number: int | None = None
    armed: bool = False

    def __call__(self, number: int, frame: FrameType | None = None) -> None:  # noqa: ARG002
        self.number = self.number or number
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def arm(self) -> None:
        """Let a signal interrupt from now on; raise at once if there was one already."""
        self.armed = True
        if self.number is not None:
            self(self.number)

    @property
    def requested(self) -> bool:
        """Whether there was a signal."""
        return self.number is not None

    @property
    def status(self) -> int:
        """The exit status of a command that was ended by a signal, as shells define it."""
        return 128 + (self.number or signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Handle Ctrl-C, SIGTERM and a closed terminal alike within a block; ignored signals stay ignored."""
    stop = Stop()
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # other threads are never interrupted
            for number in STOP_SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    before[number] = signal.signal(number, stop)
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
