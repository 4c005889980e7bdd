"""The outcome of a sample at a node: one table, which the kernels of every device share."""

from __future__ import annotations

from typing import NamedTuple

from sqhn.level import Level, Options

AVERAGE, FREEZE, OVERWRITE, OLDEST = 0, 1, 2, 3
"""The policy of a full node; from OVERWRITE on, it replaces neurons."""
WHEN_FULL = {"average": AVERAGE, "freeze": FREEZE, "overwrite": OVERWRITE, "oldest": OLDEST}

SKIPPED, AVERAGED, GREW, REPLACED = 0, 1, 2, 3
"""The node ignored the sample, averaged it into the best match, or made it a neuron, in a free slot or in the place of
another neuron. From GREW on, the sample is a neuron."""


def outcome(below: bool, full: bool, when_full: int) -> int:
    """The outcome of a sample; below: its best match is below the growth threshold; full: the node has no free slot.

    | below | full | average  | freeze   | overwrite | oldest   |
    | ----- | ---- | -------- | -------- | --------- | -------- |
    | yes   | no   | GREW     | GREW     | GREW      | GREW     |
    | yes   | yes  | AVERAGED | SKIPPED  | REPLACED  | REPLACED |
    | no    | no   | AVERAGED | AVERAGED | AVERAGED  | AVERAGED |
    | no    | yes  | AVERAGED | SKIPPED  | AVERAGED  | AVERAGED |

    A neuron grows in the lowest free slot. A sample replaces the neuron written longest ago; with "overwrite", among
    the neurons with the lowest count.
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
    """The settings of learning in a bank.

    pseudo: the pseudocount of mean activities. top: the nodes have no parent and report the match before the update;
    parents receive the match after it. strengths: `recognize` uses the strengths of children, so the mean activity of a
    new column starts with its own activity, not with 1.
    """

    capacity: int
    when_full: int
    pseudo: int
    top: bool
    strengths: bool


def rules(level: Level, options: Options, top: bool) -> Rules:
    """The settings of a level."""
    return Rules(
        level.capacity, WHEN_FULL[level.when_full], int(options.mu == "pseudocount"), top, options.propagation == "max"
    )
