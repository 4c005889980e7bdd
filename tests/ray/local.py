"""Shards in this process, that may be lost at any call."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np

from sqhn.banks.ray.shards import LostError, Shard


class Shared:
    """What all shards can look at."""

    def __init__(self, value: Any) -> None:
        self.value = value


def frozen(found: Any) -> Any:
    """Arrays that come from elsewhere cannot be written to."""
    if isinstance(found, np.ndarray):
        found.setflags(write=False)
    for part in found.values() if isinstance(found, dict) else found if isinstance(found, tuple | list) else ():
        frozen(part)
    return found


class Here:
    """Shards that are lost before or after one call in so many, or empty again; what comes back is empty, mostly."""

    def __init__(self, every: int = 0) -> None:
        self.every, self.random, self.lost = every, np.random.default_rng(every), 0
        self.lock = threading.Lock()

    def start(self) -> Shard:
        return Shard()

    def call(self, shard: Shard, method: str, *args: Any, aside: bool = False) -> Any:
        with self.lock:  # as an actor does one thing at a time
            return self.call_alone(shard, method, *(arg.value if isinstance(arg, Shared) else arg for arg in args))

    def call_alone(self, shard: Shard, method: str, *args: Any) -> Any:
        before, after, empty = (self.random.random(3) * self.every < 1) if self.every else (False, False, False)
        self.lost += bool(before or after or empty)
        if empty:
            shard.__init__()  # type: ignore[misc]
        if before:
            return LostError("before")
        try:
            found = getattr(shard, method)(*args)
        except LostError as error:
            return error
        return LostError("after") if after else frozen(copy.deepcopy(found))  # it is elsewhere, as it were

    def result(self, call: Any) -> Any:
        if isinstance(call, LostError):
            raise call
        return call

    def arrived(self, call: Any) -> bool:
        return bool(self.random.random() < 0.5)

    def again(self, shard: Shard) -> Shard:
        return shard if self.random.random() < 0.3 else Shard()

    def share(self, value: Any) -> Any:
        return Shared(value)
