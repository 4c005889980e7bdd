"""The prototypes of a level: rows of float32, or bytes where a neuron is a single sample that came as uint8.

`claim` and `release` are for one node, and for compiled kernels too; `own` has the arrays of `Rows` of that node.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.interface import State
from sqhn.banks.neurons import enlarge
from sqhn.banks.saved import prototypes_of
from sqhn.inputs import as_floats

NONE = -1
"""In the place of a row: the neuron is bytes."""
SPARE = 8
"""Rows that may stay reserved without being used."""


def claim(own: Any, j: Any) -> Any:
    """The row that neuron j, which is bytes, gets: its values are to be written there."""
    at = own.used[0]
    own.place[j], own.owner[at] = at, j
    own.used[0] += 1
    return at


def release(own: Any, j: Any) -> Any:
    """Let neuron j be bytes; returns its row, and the last row in use, whose values are to be written there."""
    at = own.place[j]
    own.used[0] -= 1
    last = own.used[0]
    own.owner[at] = own.owner[last]
    own.place[own.owner[at]] = at
    own.place[j] = NONE
    return at, last


class Own(NamedTuple):
    """Which rows neurons have, of one node (`Rows`)."""

    place: Any
    owner: Any
    used: Any


class Rows:
    """The prototypes of the neurons of all nodes.

    m (nodes, rows, size): float32; neuron j has row j, until `keep_bytes`. Then raw (1, room, size) has the neurons of
    the only node that are bytes; place (1, room) the rows of the others, or NONE; owner (1, rows) the neurons of rows;
    and the first `used` (1,) rows are in use. Before, these four have no values. The bytes of a free slot are 0.
    """

    def __init__(self, nodes: int, size: int) -> None:
        self.m = np.zeros((nodes, 0, size), np.float32)
        self.keep_floats(self.m)

    def keep_floats(self, m: NDArray[np.float32]) -> None:
        """Have all neurons in these rows."""
        nodes = len(m)
        self.raw = np.zeros((nodes, 0, 0), np.uint8)
        self.place, self.owner = np.zeros((2, nodes, 0), np.int64)
        self.used = np.zeros(nodes, np.int64)
        self.m = m

    def keep_bytes(self) -> None:
        """From now on, keep neurons of the only node as bytes where that is possible; there are no neurons yet."""
        rows, size = self.m.shape[1:]
        self.owner, self.place = np.zeros((1, rows), np.int64), np.full((1, rows), NONE)
        self.raw = np.zeros((1, rows, size), np.uint8)

    @property
    def has_bytes(self) -> bool:
        """Whether neurons are kept as bytes."""
        return self.raw.shape[2] > 0

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """As the kernels expect them."""
        return self.m, self.raw, self.place, self.owner, self.used

    @property
    def nbytes(self) -> int:
        return self.m.nbytes + self.raw.nbytes

    def reserve(self, room: int, more: int = 0) -> None:
        """Make room for so many neurons, of which `more` may be averaged."""
        if not self.has_bytes:
            self.m = enlarge(self.m, 1, room)
            return
        used = int(self.used[0])
        if used + more > self.m.shape[1]:
            rows = min(room, max(used + more, 2 * used))
            self.owner, self.m = enlarge(self.owner, 1, rows), enlarge(self.m, 1, rows)
        self.raw, self.place = enlarge(self.raw, 1, room), enlarge(self.place, 1, room, NONE)

    def trim(self) -> None:
        """Give back rows that are not used."""
        if self.has_bytes and self.m.shape[1] > 2 * (used := int(self.used[0])) + SPARE:
            with suppress(MemoryError):  # for a copy; more rows than needed do no harm
                self.m = self.m[:, :used].copy()

    # -- values --------------------------------------------------------------------------------------------------

    def of(self, n: Any, j: NDArray[Any]) -> NDArray[np.float32]:
        """The prototypes of neurons j of nodes n: (..., size)."""
        if not self.has_bytes:
            found = self.m.reshape(-1, self.m.shape[2]).take(n * self.m.shape[1] + j, 0)
            return np.asarray(found)
        found, place = as_floats(self.raw[0, j]), self.place[0, j]
        if (in_rows := place != NONE).any():
            found[in_rows] = self.m[0, place[in_rows]]
        return found

    def write(self, n: Any, j: NDArray[Any], m: Any) -> None:
        """Write float32 prototypes of neurons j of nodes n."""
        if self.has_bytes:
            for one in j[self.place[0, j] == NONE]:
                claim(self._own, one)
            j = self.place[0, j]
        self.m[n, j] = m

    def write_bytes(self, j: NDArray[Any], samples: Any) -> None:
        """Let neurons of the only node be samples of bytes (count, size)."""
        for one in j[self.place[0, j] != NONE]:
            at, last = release(self._own, one)
            self.m[0, at] = self.m[0, last]
        self.raw[0, j] = samples

    @property
    def _own(self) -> Own:
        return Own(self.place[0], self.owner[0], self.used)

    def forget(self, j: NDArray[Any], centre: float) -> None:
        """Clear the slots of neurons of the only node."""
        if self.has_bytes:
            self.write_bytes(j, np.uint8(0))
        else:
            self.m[0, j] = centre

    def as_floats(self, c: NDArray[np.int64], centre: float) -> None:
        """Keep no bytes any more; c (nodes, room): the counts of neurons, 0 in free slots."""
        if self.has_bytes:
            m = self.of(0, np.arange(c.shape[1])[None])
            m[c == 0] = centre
            self.keep_floats(m)

    # -- persistence ---------------------------------------------------------------------------------------------

    def state(self, grown: NDArray[np.int64]) -> State:
        """Copies of the prototypes of the grown neurons, one node after another."""
        if not self.has_bytes:
            return {"prototypes": np.concatenate([own[:G] for own, G in zip(self.m, grown)])}
        place = self.place[0, : grown[0]]
        is_bytes = place == NONE
        found = {"prototypes": self.m[0, place[~is_bytes]], "bytes": self.raw[0, : grown[0]][is_bytes]}
        return {**found, "is_bytes": is_bytes}

    def restore(self, state: State, there: NDArray[np.bool_], centre: float, bytes_too: bool) -> None:
        """Load a checked state into new rows, where slots are `there` (nodes, room); bytes_too: they may stay bytes."""
        room = there.shape[1]
        if not bytes_too or "bytes" not in state:
            self.reserve(room)
            self.m[there] = prototypes_of(state, centre)
            return
        is_bytes = state["is_bytes"]
        self.keep_bytes()
        self.reserve(room, len(state["prototypes"]))
        self.raw[0, np.flatnonzero(is_bytes)] = state["bytes"]
        self.write(0, np.flatnonzero(~is_bytes), state["prototypes"])
