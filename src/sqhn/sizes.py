"""How many bytes a memory takes."""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

import numpy as np

NOT_HELD = {"__dict__", "__weakref__", "device", "shards"}
"""Attributes that are no part of an object: its device and its shards serve others too."""


def array_bytes(holder: object) -> int:
    """The bytes of all arrays and tensors that an object holds; shared ones count once.

    >>> array_bytes([np.zeros(4), {"a": np.zeros((2, 3), np.float32)}])
    56
    """
    found: dict[int, int] = {}
    visited: dict[int, Any] = {}

    def walk(thing: Any) -> None:
        if id(thing) in visited or isinstance(thing, (type, ModuleType, FunctionType)):
            return
        visited[id(thing)] = thing
        if isinstance(thing, np.ndarray):
            whole = thing if thing.base is None else thing.base
            found[id(whole)] = getattr(whole, "nbytes", thing.nbytes)
        elif hasattr(thing, "data_ptr"):
            found[thing.data_ptr()] = thing.numel() * thing.element_size()
        elif isinstance(thing, (list, tuple)):
            for one in thing:
                walk(one)
        elif isinstance(thing, dict):
            for one in thing.values():
                walk(one)
        else:
            for name in attributes(thing):
                walk(getattr(thing, name, None))

    walk(holder)
    return sum(found.values())


def attributes(thing: object) -> set[str]:
    """The names of the attributes that an object holds, in its `__dict__` and in slots."""
    slots = (getattr(kind, "__slots__", ()) for kind in type(thing).__mro__)
    names = {name for some in slots for name in ([some] if isinstance(some, str) else some)}
    return (names | set(getattr(thing, "__dict__", ()))) - NOT_HELD


def spell_bytes(count: int) -> str:
    """A number of bytes to read.

    >>> spell_bytes(0), spell_bytes(999), spell_bytes(31_360), spell_bytes(12_345_678)
    ('0 B', '999 B', '31.4 kB', '12.3 MB')
    """
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.95:
            break
        size, unit = size / 1000, larger
    return f"{size:.{0 if unit == 'B' else 1}f} {unit}"
