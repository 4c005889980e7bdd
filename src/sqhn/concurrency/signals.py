"""Signals between chunks, never inside one."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` without its enums, which are slow
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = tuple(int(number) for number in signal.valid_signals() if number < 32)  # beyond: real-time signals
get_handler, set_handler = _signal.getsignal, _signal.signal


class deferred:  # noqa: N801
    """Defer signals during a block that must not stop halfway (a chunk takes well under a second).

    This concerns Ctrl-C and every other signal with a Python handler; it is called when the block ends. Python calls
    signal handlers in the main thread alone, so other threads have nothing to defer.
    """

    def __enter__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.pending: list[int] = []
        if threading.get_ident() != threading.main_thread().ident:
            return
        try:
            for number in SIGNALS:
                handler = get_handler(number)
                if callable(handler):
                    self.handlers[number] = handler
                    set_handler(number, self._note)
        except BaseException:  # a handler that was not replaced yet has raised
            self._restore()
            raise

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.pending.append(number)

    def _restore(self) -> None:
        for number, handler in self.handlers.items():
            set_handler(number, handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._restore()
        except BaseException:  # a handler that was restored already has raised
            self._restore()
            raise
        finally:
            _deliver(list(dict.fromkeys(self.pending)))  # each once, as the operating system does


def _deliver(numbers: list[int]) -> None:
    """Call the handlers of signals, all of them even if the first raises."""
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            _deliver(numbers[1:])
