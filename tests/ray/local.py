"""A transport to shards in this process, which loses some of the calls."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np

from sqhn.banks.ray.actors import Actors
from sqhn.banks.ray.shards import LostError, Shard


class Reference:
    """A reference to a value that all shards can read."""

    def __init__(self, value: Any) -> None:
        self.value = value


def read_only(found: Any) -> Any:
    """A result whose arrays cannot be written to, as if it came from another process."""
    if isinstance(found, np.ndarray):
        found.setflags(write=False)
    for part in found.values() if isinstance(found, dict) else found if isinstance(found, tuple | list) else ():
        read_only(part)
    return found


class LocalTransport(Actors):
    """One call in `every` is lost before it is made, after it, or finds the shard empty; 0: none.

    A lost shard usually comes back empty. lost: the number of calls that were lost.
    """

    def __init__(self, every: int = 0) -> None:
        self.every, self.random, self.lost = every, np.random.default_rng(every), 0
        self.lock = threading.Lock()

    def start(self) -> Shard:
        return Shard()

    def call(self, shard: Shard, method: str, *args: Any, bypass: bool = False) -> Any:
        args = tuple(arg.value if isinstance(arg, Reference) else arg for arg in args)
        with self.lock:  # one call at a time, as in an actor
            before, after, empty = (self.random.random(3) * self.every < 1) if self.every else (False, False, False)
            self.lost += bool(before or after or empty)
            if empty:
                shard.__init__()  # type: ignore[misc]
            if before:
                return LostError("before the call")
            try:
                found = getattr(shard, method)(*args)
            except LostError as error:
                return error
            return LostError("after the call") if after else read_only(copy.deepcopy(found))

    def result(self, call: Any) -> Any:
        if isinstance(call, LostError):
            raise call
        return call

    def done(self, call: Any) -> bool:
        return bool(self.random.random() < 0.5)

    def reconnect(self, shard: Shard) -> Shard:
        return shard if self.random.random() < 0.3 else Shard()

    def share(self, value: Any) -> Any:
        return Reference(value)
