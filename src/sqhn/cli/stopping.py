"""Commands that a signal ends in good order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

__all__ = ["Stop", "stoppable"]

ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@dataclass
class Stop:
    """The function of the signals that end a command: while it is armed the first of them interrupts, no other does.

    Before and after that they are noted: what is being done then is done to the end.
    """

    number: int | None = None
    armed: bool = False

    def __call__(self, number: int, frame: FrameType | None = None) -> None:  # noqa: ARG002
        self.number = self.number or number
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def arm(self) -> None:
        """From now on a signal interrupts; if there was one already, at once."""
        self.armed = True
        if self.number is not None:
            self(self.number)

    @property
    def asked(self) -> bool:
        """Whether there was a signal."""
        return self.number is not None

    @property
    def status(self) -> int:
        """The exit status of a command that a signal ended, as shells count."""
        return 128 + (self.number or signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """For the length of a block, Ctrl-C, SIGTERM and a closed terminal do the same; what is ignored stays so."""
    stop = Stop()
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # others are never interrupted
            for ending in ENDING:
                if signal.getsignal(ending) not in (signal.SIG_IGN, None):
                    before[ending] = signal.signal(ending, stop)
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
