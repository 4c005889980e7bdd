"""What becomes of a sample at a node. The kernels of every device are tested on this one table."""

from __future__ import annotations

from typing import NamedTuple

from sqhn.level import Level, Options

__all__ = ["AVERAGE", "AVERAGED", "BECAME", "FREEZE", "KEPT", "OVERWRITE", "Rules", "outcome", "rules"]

AVERAGE, OVERWRITE, FREEZE = 0, 1, 2
"""What a full node does."""
WHEN_FULL = {"average": AVERAGE, "overwrite": OVERWRITE, "freeze": FREEZE}

KEPT, AVERAGED, BECAME = 0, 1, 2
"""The node kept what it had, averaged the sample into its best match, or the sample became a neuron."""


def outcome(below: bool, full: bool, when_full: int) -> int:
    """What becomes of a sample whose best match is below the growth threshold, or not, at a node full, or not.

    | below | full | average  | overwrite | freeze   |
    | ----- | ---- | -------- | --------- | -------- |
    | yes   | no   | BECAME   | BECAME    | BECAME   |
    | yes   | yes  | AVERAGED | BECAME    | KEPT     |
    | no    | no   | AVERAGED | AVERAGED  | AVERAGED |
    | no    | yes  | AVERAGED | AVERAGED  | KEPT     |

    It becomes the next neuron where there is room, else the least used one; of those, the one written longest ago.
    """
    if below and (not full or when_full == OVERWRITE):
        return BECAME
    if full and when_full == FREEZE:
        return KEPT
    return AVERAGED


class Rules(NamedTuple):
    """How a bank learns.

    pseudo: what mean activities count in besides. top: nobody hears what the nodes send, so that may be the match
    before the update; a parent hears the match after it.
    """

    capacity: int
    when_full: int
    pseudo: int
    top: bool


def rules(level: Level, options: Options, top: bool) -> Rules:
    """The rules of a level."""
    return Rules(level.capacity, WHEN_FULL[level.when_full], int(options.mu == "pseudocount"), top)
