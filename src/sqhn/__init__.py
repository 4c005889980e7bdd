"""An associative memory that learns from a stream: the Sparse Quantized Hopfield Network.

>>> from sqhn import SQHN, Level
>>> memory = SQHN((28, 28), capacity=1000)
>>> len(memory), memory.capacity
(0, 1000)
"""

from typing import TYPE_CHECKING, Any

from sqhn.level import Level
from sqhn.protocol import EmptyMemoryError, Memory, MemoryFileError, Recalled, Recognized, Written

if TYPE_CHECKING:
    from sqhn.banks.cpu.threads import get_num_threads, set_num_threads
    from sqhn.memory import SQHN
    from sqhn.warmup import warm

__all__ = [
    "SQHN",
    "EmptyMemoryError",
    "Level",
    "Memory",
    "MemoryFileError",
    "Recalled",
    "Recognized",
    "Written",
    "get_num_threads",
    "set_num_threads",
    "warm",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "SQHN":  # compiled code is imported on first use
        from sqhn.memory import SQHN

        return SQHN
    if name == "warm":
        from sqhn.warmup import warm

        return warm
    if name in ("get_num_threads", "set_num_threads"):
        from sqhn.banks.cpu import threads

        return getattr(threads, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
