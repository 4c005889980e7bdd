"""Shards: places that hold pieces of banks, and may be lost and come back.

A shard answers questions, and applies writes that are numbered, each once. One that was lost comes back empty: it gets
its last saved state, and the writes since, which are kept here; then it is what it was, and is asked again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

__all__ = ["BUILD", "Asked", "Call", "Carrier", "LostError", "Shard", "Shards", "Shared"]

Call = tuple[Any, ...]
"""The name of what a shard holds, a method of it, and arguments."""

ENOUGH = 1 << 26
"""Bytes of writes after which a shard is saved, if it is not larger than that itself."""


class LostError(Exception):
    """A shard is not there any more, or cannot be reached."""


class Shard:
    """What lives in one place: named pieces of banks. It counts writes, so that none is applied twice."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.made: dict[str, Call] = {}
        self.number = 0
        self.answer: Any = None

    def written(self) -> int:
        """How many writes were applied."""
        return self.number

    def ask(self, number: int, name: str, method: str, *args: Any) -> Any:
        """A question, after so many writes at least: one that came back empty cannot answer it."""
        if number > self.number:
            raise LostError(f"asked after write {number}, but there were {self.number}")
        return getattr(self.held[name], method)(*args)

    def tell(self, number: int, name: str, method: str, *args: Any) -> Any:
        """A write; the last one may come again, if its answer was lost."""
        if number == self.number:
            return self.answer
        if number != self.number + 1:
            raise LostError(f"write {number} after {self.number}")
        if name == BUILD:
            self.held[method], self.made[method] = args[0](*args[1:]), args
        else:
            self.answer = getattr(self.held[name], method)(*args)
        self.number = number
        return self.answer

    def saved(self, number: int) -> dict[str, Any]:
        """All that it is, after so many writes."""
        if number != self.number:
            raise LostError(f"asked after write {number}, but there were {self.number}")
        return {name: (self.made[name], piece.state()) for name, piece in self.held.items()}

    def restore(self, number: int, saved: Mapping[str, Any]) -> None:
        """Become what was saved after so many writes."""
        for name, (made, state) in saved.items():
            self.held[name], self.made[name] = made[0](*made[1:]), made
            self.held[name].restore(state)
        self.number, self.answer = number, None


BUILD = ""


class Carrier(Protocol):
    """How shards are started and reached."""

    def start(self) -> Any:
        """A new, empty shard."""

    def call(self, shard: Any, method: str, *args: Any, aside: bool = False) -> Any:
        """Begin to call a method of a shard, after all that it was called with before; or aside of that."""

    def result(self, call: Any) -> Any:
        """What a call gave; LostError if the shard is gone."""

    def again(self, shard: Any) -> Any:
        """The same shard, or another in its place, as soon as it can be reached; it may be empty."""

    def arrived(self, call: Any) -> bool:
        """Whether there is an answer."""

    def share(self, value: Any) -> Any:
        """Something to call shards with, which is kept for as long as this is; on disk, if need be."""


class Asked(NamedTuple):
    """Questions on their way: what was asked, aside or not, and what was begun with it."""

    calls: Mapping[int, Call]
    aside: bool
    begun: dict[int, Any]


class Shared(NamedTuple):
    """Something that all shards can look at, and how large it is."""

    reference: Any
    bytes: int


class Shards:
    """So many shards, and what it takes to bring them back."""

    def __init__(self, many: int, carrier: Carrier) -> None:
        self.carrier = carrier
        self.shards = [carrier.start() for _ in range(many)]
        self.log: list[list[Call]] = [[] for _ in range(many)]
        self.before = [0] * many  # writes before the first of the log
        self.posted: dict[int, Any] = {}  # the last write of a shard, if nobody waited for it
        self.saved: list[Any] = [None] * many  # what a shard was before the first of the log
        self.saving: dict[int, tuple[int, Any]] = {}  # who is about to tell what it is, after so many writes
        self.marked: list[int] | None = None  # up to where writes may be taken back
        self.logged, self.held = [0] * many, [0] * many  # bytes
        self.sent = self.received = 0  # bytes
        self.waited = 0.0  # seconds
        self.reviving = threading.Lock()

    def __len__(self) -> int:
        return len(self.shards)

    def share(self, value: Any) -> Shared:
        """Send something to all, to be referred to in questions and writes."""
        shared = Shared(self.carrier.share(value), _bytes(value))
        self.sent += shared.bytes
        return shared

    def _call(self, s: int, method: str, number: int, call: Call, aside: bool = False) -> Any:
        args = (arg.reference if isinstance(arg, Shared) else arg for arg in call)
        return self.carrier.call(self.shards[s], method, number, *args, aside=aside)

    # -- questions -----------------------------------------------------------------------------------------------

    def begin(self, calls: Mapping[int, Call], aside: bool = False) -> Asked:
        """Put questions to shards, all at once. aside: of what no write that was posted concerns, at any time."""
        self.sent += sum(map(_bytes, calls.values()))
        return Asked(calls, aside, {s: self._ask(s, call, aside) for s, call in calls.items()})

    def answers(self, asked: Asked) -> dict[int, Any]:
        """The answers to questions, once they are there."""
        found = {}
        for s, begun in asked.begun.items():
            found[s] = self._result(s, begun, partial(self._ask, s, asked.calls[s], asked.aside))
        self.received += sum(map(_bytes, found.values()))
        return found

    def ask(self, calls: Mapping[int, Call], aside: bool = False) -> dict[int, Any]:
        """Questions to shards, all at once, and their answers."""
        return self.answers(self.begin(calls, aside))

    def ask_all(self, *call: Any) -> list[Any]:
        """The same question to all."""
        return list(self.ask(dict.fromkeys(range(len(self)), call)).values())

    def _ask(self, s: int, call: Call, aside: bool) -> Any:
        number = self._number(s) - (aside and s in self.posted)
        return self._call(s, "ask", number, call, aside)

    # -- writes --------------------------------------------------------------------------------------------------

    def tell(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Writes to shards, all at once, and their answers."""
        self.arrived(calls)
        before = [self._number(s) for s in range(len(self))]
        try:
            begun = {s: self._write(s, call) for s, call in calls.items()}
            answers = {s: self._result(s, one, partial(self._tell, s)) for s, one in begun.items()}
        except BaseException:
            self.back_to(before)
            raise
        self.received += sum(map(_bytes, answers.values()))
        self._relieve(calls)
        return answers

    def tell_all(self, *call: Any) -> list[Any]:
        """The same write to all."""
        return list(self.tell(dict.fromkeys(range(len(self)), call)).values())

    def post(self, calls: Mapping[int, Call]) -> None:
        """Writes that cannot fail: nobody waits for them but who writes next."""
        self.arrived(calls)
        self._relieve(calls)
        for s, call in calls.items():
            self.posted[s] = self._write(s, call)

    def arrived(self, which: Iterable[int]) -> None:
        """Wait for what was posted to some shards."""
        for s in which:
            if s in self.posted:
                self._result(s, self.posted[s], partial(self._tell, s))
                del self.posted[s]

    def _write(self, s: int, call: Call) -> Any:
        self.log[s].append(call)
        self.logged[s] += self._kept(call)
        self.sent += _bytes(call)
        return self._tell(s)

    def _tell(self, s: int) -> Any:
        """Begin the last write of a shard."""
        return self._call(s, "tell", self._number(s), self.log[s][-1])

    def mark(self) -> list[int]:
        """Let what is written from now on be taken back, until it is said that it need not be."""
        self.marked = [self._number(s) for s in range(len(self))]
        return self.marked

    def back_to(self, mark: list[int]) -> None:
        """Take back writes, some of which may have been applied: other shards take the places of these."""
        for s, number in enumerate(mark):
            if self._number(s) > number:
                self.saving.pop(s, None)
                self.posted.pop(s, None)
                del self.log[s][number - self.before[s] :]
                self.logged[s] = sum(map(self._kept, self.log[s]))
                self.shards[s] = self.carrier.start()
                self._revive(s)

    def _kept(self, call: Call) -> int:
        """How much a write keeps: of what all shards share, its part."""
        return _bytes(call) + sum(arg.bytes // len(self) for arg in call if isinstance(arg, Shared))

    def _relieve(self, which: Iterable[int]) -> None:
        """Save shards of which many writes are kept: they are asked what they are, and nobody waits for the answer."""
        for s in which:
            if s in self.saving:
                number, answer = self.saving[s]
                if (self.marked is None or number <= self.marked[s]) and self.carrier.arrived(answer):
                    self._put_away(s, *self.saving.pop(s))
            elif self.logged[s] > max(ENOUGH, self.held[s]):
                number = self._number(s)
                self.saving[s] = number, self.carrier.call(self.shards[s], "saved", number)

    def _put_away(self, s: int, number: int, answer: Any) -> None:
        """Keep what a shard was after so many writes, in place of these."""
        try:
            state = self.carrier.result(answer)
            self.saved[s] = self.carrier.share(state)
        except (LostError, OSError):  # a full disk, say: then writes are kept for longer
            return
        self.held[s] = _bytes(state)
        done = number - self.before[s]
        self.before[s], self.log[s] = number, self.log[s][done:]
        self.logged[s] = sum(map(self._kept, self.log[s]))

    def _number(self, s: int) -> int:
        """How many writes a shard was told of."""
        return self.before[s] + len(self.log[s])

    # -- shards that are lost ------------------------------------------------------------------------------------

    def _result(self, s: int, begun: Any, again: Callable[[], Any]) -> Any:
        """What a call gives; if the shard is lost, it comes back, and is called again."""
        start = time.perf_counter()
        try:
            while True:
                try:
                    return self.carrier.result(begun)
                except LostError:
                    with self.reviving:  # one of the threads that ask
                        self._revive(s)
                    begun = again()
        finally:
            self.waited += time.perf_counter() - start

    def _revive(self, s: int) -> None:
        """Bring a shard back to where it is to be: all writes are applied."""
        while True:
            try:
                self.shards[s] = self.carrier.again(self.shards[s])
                here = self.shards[s]
                done = self._now(here, "written")
                if done < self.before[s]:
                    self._now(here, "restore", self.before[s], self.saved[s])
                    done = self.before[s]
                for number, call in enumerate(self.log[s], start=self.before[s] + 1):
                    if number > done:
                        self.carrier.result(self._call(s, "tell", number, call))
            except LostError:
                continue
            return

    def _now(self, shard: Any, method: str, *args: Any) -> Any:
        return self.carrier.result(self.carrier.call(shard, method, *args))


def _bytes(value: Any) -> int:
    """How large what is sent is, as far as it is arrays."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Shared):  # it counts when it is shared
        return 0
    if isinstance(value, tuple | list):
        return sum(map(_bytes, value))
    return sum(map(_bytes, value.values())) if isinstance(value, dict) else 0
