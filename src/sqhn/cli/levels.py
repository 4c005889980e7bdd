"""The levels of a memory as `--levels` takes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from sqhn.level import Level


LEVEL = r"([0-9]+(?:x[0-9]+)*)(?::([0-9]+))?"


def parse_levels(text: str | None, capacity: int | None) -> list[Level] | None:
    """The levels described by --levels and --capacity; None if neither is given."""
    from sqhn.level import Level

    try:
        node = [] if capacity is None else [Level(capacity=capacity)]
    except ValueError as error:
        raise typer.BadParameter(f"{error}", param_hint="--capacity") from error
    if text is None:
        return node or None
    levels = []
    parts = text.split(",")
    for number, part in enumerate(parts, start=1):
        try:
            levels.append(_parse_level(part.strip(), capacity, last=number == len(parts)))
        except ValueError as error:
            raise typer.BadParameter(f"{part!r}: {error}", param_hint="--levels") from error
    return levels + node


def _parse_level(text: str, capacity: int | None, last: bool) -> Level:
    from sqhn.level import Level

    match = re.fullmatch(LEVEL, text)
    if match is None:
        raise ValueError("a level is KERNEL:CAPACITY, such as 2:600 or 4x2:600")
    sides = tuple(map(int, match[1].split("x")))
    if match[2] and capacity is not None:
        raise ValueError("it has a capacity, but --capacity applies to all levels: give only one of them")
    size = int(match[2]) if match[2] else capacity
    if size is not None:
        return Level(sides if len(sides) > 1 else sides[0], size)
    if last and len(sides) == 1:
        return Level(capacity=sides[0])  # the memory node
    raise ValueError(f"it has no capacity: write {text}:N, or give --capacity for all levels")


def spell_levels(levels: Sequence[Level]) -> str:
    """Levels as --levels takes them."""
    return ",".join(
        f"{level.capacity}" if level.kernel is None else f"{spell_kernel(level.kernel)}:{level.capacity}"
        for level in levels
    )


def spell_kernel(kernel: int | Sequence[int]) -> str:
    """A kernel as --levels takes it; 2 is 2x2."""
    sides = (kernel,) if isinstance(kernel, int) else tuple(kernel)
    return str(sides[0]) if len(sides) == 2 and sides[0] == sides[1] else "x".join(map(str, sides))
