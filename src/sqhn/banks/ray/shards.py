"""Numbers, logs and replays writes to shards, which hold parts of banks and may be lost at any time.

A shard answers queries, and applies each numbered write once. A lost shard comes back empty: it is restored from its
last snapshot, gets the writes since then from the log, and the call is repeated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqhn.sizes import array_bytes

if TYPE_CHECKING:
    from sqhn.banks.ray.actors import Actors

Call = tuple[Any, ...]
"""The name of a part of a shard, one of its methods, and the arguments."""

BUILD = ""
"""In place of the name of a part: build one. Its name, its class and the arguments follow."""

SNAPSHOT_BYTES = 1 << 26
"""A shard is saved when its log has more bytes than this and than its last snapshot."""


class LostError(Exception):
    """A shard is lost, or cannot be reached."""


class Shard:
    """Named parts of banks, in one process. It counts writes, so that none is applied twice."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}
        self.built: dict[str, Call] = {}
        self.writes = 0
        self.answer: Any = None

    def applied(self) -> int:
        """How many writes were applied."""
        return self.writes

    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return array_bytes(self.parts)

    def query(self, writes: int, name: str, method: str, *args: Any) -> Any:
        """Answer a query once this number of writes is applied; a shard that was restarted empty cannot."""
        if writes > self.writes:
            raise LostError(f"queried after write {writes}, but only {self.writes} were applied")
        return getattr(self.parts[name], method)(*args)

    def write(self, number: int, name: str, method: str, *args: Any) -> Any:
        """Apply a write; the last one may be repeated, if its answer was lost."""
        if number == self.writes:
            return self.answer
        if number != self.writes + 1:
            raise LostError(f"got write {number} after write {self.writes}")
        if name == BUILD:
            self.parts[method], self.built[method] = args[0](*args[1:]), args
        else:
            self.answer = getattr(self.parts[name], method)(*args)
        self.writes = number
        return self.answer

    def snapshot(self, writes: int) -> dict[str, Any]:
        """The whole state, after exactly this number of writes."""
        if writes != self.writes:
            raise LostError(f"snapshot after write {writes}, but {self.writes} were applied")
        return {name: (self.built[name], part.state()) for name, part in self.parts.items()}

    def restore(self, writes: int, snapshot: Mapping[str, Any]) -> None:
        """Load a snapshot, which was taken after this number of writes."""
        for name, (built, state) in snapshot.items():
            self.parts[name], self.built[name] = built[0](*built[1:]), built
            self.parts[name].restore(state)
        self.writes, self.answer = writes, None


class Shared(NamedTuple):
    """A value that all shards can read, and its bytes."""

    reference: Any
    bytes: int


class Shards:
    """Shards, the log of their writes and their snapshots. Calls are given as mappings from the index of a shard."""

    def __init__(self, count: int, transport: Actors) -> None:
        self.transport = transport
        self.shards = [transport.start() for _ in range(count)]
        self.log: list[list[Call]] = [[] for _ in range(count)]  # the writes since the last snapshot
        self.snapshots: list[Any] = [None] * count
        self.covered = [0] * count  # how many writes the last snapshot covers
        self.log_bytes, self.snapshot_bytes = [0] * count, [0] * count
        self.requested: dict[int, tuple[int, Any]] = {}  # snapshots on their way: how many writes they cover, the call
        self.posted: dict[int, Any] = {}  # the last write of a shard, if nobody waited for its result
        self.savepoint: list[int] | None = None  # how many writes each shard had, if later ones may be rolled back
        self.sent = self.received = 0  # bytes
        self.waited = 0.0  # seconds
        self.reviving = threading.Lock()

    def __len__(self) -> int:
        return len(self.shards)

    def each(self, *call: Any) -> dict[int, Call]:
        """One call for every shard."""
        return dict.fromkeys(range(len(self)), call)

    def share(self, value: Any) -> Shared:
        """Send a value to all shards, for use in queries and writes."""
        shared = Shared(self.transport.share(value), _bytes(value))
        self.sent += shared.bytes
        return shared

    def _call(self, s: int, method: str, number: int, call: Call, bypass: bool = False) -> Any:
        args = (arg.reference if isinstance(arg, Shared) else arg for arg in call)
        return self.transport.call(self.shards[s], method, number, *args, bypass=bypass)

    # -- queries ---------------------------------------------------------------------------------------------------

    def submit(self, queries: Mapping[int, Call], bypass: bool = False) -> Callable[[], dict[int, Any]]:
        """Send queries; the returned function waits for the answers.

        bypass: they need not wait for posted writes, which do not concern them.
        """
        self.sent += sum(map(_bytes, queries.values()))

        def ask(s: int) -> Any:
            return self._call(s, "query", self._writes(s) - (bypass and s in self.posted), queries[s], bypass)

        calls = {s: ask(s) for s in queries}

        return lambda: {s: self._result(s, call, ask) for s, call in calls.items()}

    def query(self, queries: Mapping[int, Call], bypass: bool = False) -> dict[int, Any]:
        """The answers to queries."""
        return self.submit(queries, bypass)()

    def nbytes(self) -> int:
        """The bytes of the arrays of all shards."""

        def ask(s: int) -> Any:
            return self.transport.call(self.shards[s], "nbytes")

        calls = [ask(s) for s in range(len(self))]
        return sum(self._result(s, call, ask) for s, call in enumerate(calls))

    # -- writes ----------------------------------------------------------------------------------------------------

    def write(self, writes: Mapping[int, Call]) -> dict[int, Any]:
        """The answers to writes; if one of them fails, none is applied."""
        with self.all_or_none():
            self.post(writes)
            return self.wait_for_writes(writes)

    def write_all(self, *write: Any) -> list[Any]:
        """The answers of all shards to one write."""
        return list(self.write(self.each(*write)).values())

    def post(self, writes: Mapping[int, Call]) -> None:
        """Send writes that cannot fail, without waiting; the next write to the same shard waits for them."""
        self.wait_for_writes(writes)
        self._update_snapshots(writes)
        for s, write in writes.items():
            self.log[s].append(write)
            self.log_bytes[s] += self._logged_bytes(write)
            self.sent += _bytes(write)
            self.posted[s] = self._send_last(s)

    def wait_for_writes(self, which: Iterable[int]) -> dict[int, Any]:
        """Wait until the writes posted to some shards are applied; their answers."""
        found = {s: self._result(s, self.posted[s], self._send_last) for s in which if s in self.posted}
        for s in found:
            del self.posted[s]
        return found

    def _send_last(self, s: int) -> Any:
        return self._call(s, "write", self._writes(s), self.log[s][-1])

    def _writes(self, s: int) -> int:
        """How many writes a shard was sent."""
        return self.covered[s] + len(self.log[s])

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """If an error ends the block, undo its writes, some of which may have been applied."""
        savepoint = self.savepoint = [self._writes(s) for s in range(len(self))]
        try:
            yield
        except BaseException:
            for s, writes in enumerate(savepoint):
                if self._writes(s) > writes:  # a new shard replaces this one
                    self.requested.pop(s, None)
                    self.posted.pop(s, None)
                    del self.log[s][writes - self.covered[s] :]
                    self.log_bytes[s] = sum(map(self._logged_bytes, self.log[s]))
                    self.shards[s] = self.transport.start()
                    self._revive(s)
            raise
        finally:
            self.savepoint = None

    # -- snapshots -------------------------------------------------------------------------------------------------

    def _logged_bytes(self, write: Call) -> int:
        """The bytes that a logged write keeps alive: its own, and its part of shared values."""
        return _bytes(write) + sum(arg.bytes // len(self) for arg in write if isinstance(arg, Shared))

    def _update_snapshots(self, which: Iterable[int]) -> None:
        """Request snapshots of shards with long logs, without waiting, and store those that have arrived."""
        for s in which:
            if s not in self.requested:
                if self.log_bytes[s] > max(SNAPSHOT_BYTES, self.snapshot_bytes[s]):
                    writes = self._writes(s)
                    self.requested[s] = writes, self.transport.call(self.shards[s], "snapshot", writes)
                continue
            writes, call = self.requested[s]
            if (self.savepoint is None or writes <= self.savepoint[s]) and self.transport.done(call):
                del self.requested[s]
                with suppress(LostError, OSError):  # for instance a full disk; the log is kept longer
                    snapshot = self.transport.result(call)
                    self.snapshots[s] = self.transport.share(snapshot)
                    self.snapshot_bytes[s] = _bytes(snapshot)
                    del self.log[s][: writes - self.covered[s]]  # the snapshot covers them
                    self.covered[s], self.log_bytes[s] = writes, sum(map(self._logged_bytes, self.log[s]))

    # -- lost shards -----------------------------------------------------------------------------------------------

    def _result(self, s: int, call: Any, repeat: Callable[[int], Any]) -> Any:
        """The result of a call, which is repeated after its shard was lost and came back."""
        start = time.perf_counter()
        try:
            while True:
                try:
                    found = self.transport.result(call)
                    self.received += _bytes(found)
                    return found
                except LostError:
                    with self.reviving:  # several threads may query
                        self._revive(s)
                    call = repeat(s)
        finally:
            self.waited += time.perf_counter() - start

    def _revive(self, s: int) -> None:
        """Bring a shard back to its state after all logged writes."""
        while True:
            try:
                self.shards[s] = shard = self.transport.reconnect(self.shards[s])
                call, result = self.transport.call, self.transport.result
                applied = result(call(shard, "applied"))
                if applied < self.covered[s]:
                    result(call(shard, "restore", self.covered[s], self.snapshots[s]))
                    applied = self.covered[s]
                for number, write in enumerate(self.log[s][applied - self.covered[s] :], start=applied + 1):
                    result(self._call(s, "write", number, write))
            except LostError:
                continue
            return


def each_array(value: Any, change: Callable[[Any], Any]) -> Any:
    """A message with all its arrays changed."""
    if isinstance(value, tuple):
        parts = [each_array(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return change(value) if hasattr(value, "shape") else value


def _bytes(value: Any) -> int:
    """The bytes of all arrays in a message."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Shared):  # counted when it was shared
        return 0
    if isinstance(value, tuple | list):
        return sum(map(_bytes, value))
    return sum(map(_bytes, value.values())) if isinstance(value, dict) else 0
