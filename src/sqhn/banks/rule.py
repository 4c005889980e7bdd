"""What becomes of a sample at a node. The kernels of every device are tested on this one table."""

from __future__ import annotations

from typing import NamedTuple

from sqhn.level import Level, Options

__all__ = [
    "AVERAGE",
    "AVERAGED",
    "FREEZE",
    "GREW",
    "OLDEST",
    "OVERWRITE",
    "REPLACED",
    "SKIPPED",
    "Rules",
    "outcome",
    "rules",
]

AVERAGE, FREEZE, OVERWRITE, OLDEST = 0, 1, 2, 3
"""What a full node does; from OVERWRITE on, it replaces neurons."""
WHEN_FULL = {"average": AVERAGE, "freeze": FREEZE, "overwrite": OVERWRITE, "oldest": OLDEST}

SKIPPED, AVERAGED, GREW, REPLACED = 0, 1, 2, 3
"""The node kept what it had, averaged the sample into its best match, or the sample became a neuron: from GREW on, in
a place that was free, or in that of another."""


def outcome(below: bool, full: bool, when_full: int) -> int:
    """What becomes of a sample whose best match is below the growth threshold, or not, at a node full, or not.

    | below | full | average  | freeze   | overwrite | oldest   |
    | ----- | ---- | -------- | -------- | --------- | -------- |
    | yes   | no   | GREW   | GREW   | GREW    | GREW   |
    | yes   | yes  | AVERAGED | SKIPPED     | REPLACED  | REPLACED |
    | no    | no   | AVERAGED | AVERAGED | AVERAGED  | AVERAGED |
    | no    | yes  | AVERAGED | SKIPPED     | AVERAGED  | AVERAGED |

    It becomes a neuron in the lowest place that was freed, else in the next one. It replaces the one that was written
    longest ago, with "overwrite" of those that were averaged into least often.
    """
    found = AVERAGED  # one return at the end: Triton compiles this too
    if below and not full:
        found = GREW
    elif below and when_full >= OVERWRITE:
        found = REPLACED
    elif full and when_full == FREEZE:
        found = SKIPPED
    return found


class Rules(NamedTuple):
    """How a bank learns.

    pseudo: what mean activities count in besides. top: nobody hears what the nodes send, so that may be the match
    before the update; a parent hears the match after it. strengths: of children count in `recognize`, so that the mean
    activity of a new column is its own, and not 1.
    """

    capacity: int
    when_full: int
    pseudo: int
    top: bool
    strengths: bool


def rules(level: Level, options: Options, top: bool) -> Rules:
    """The rules of a level."""
    return Rules(
        level.capacity, WHEN_FULL[level.when_full], int(options.mu == "pseudocount"), top, options.propagation == "max"
    )
