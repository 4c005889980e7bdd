"""The options of `sqhn learn` that describe a memory: they make a new one, or must agree with an existing one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sqhn.level import REPLACING, Level, Options

if TYPE_CHECKING:
    from sqhn.memory import SQHN


FLAGS = ("shared", "stops")
LEVEL = rf"([0-9]+(?:x[0-9]+)*)(?::([0-9]+))?((?::(?:{'|'.join(FLAGS)}))*)"


class Settings:
    """The given options, checked; None means not given.

    levels, capacity: see `parse_levels`. shared: the options shared by all levels. network: those of the network.
    """

    def __init__(
        self, levels: str | None, capacity: int | None, shared: dict[str, Any], network: dict[str, Any]
    ) -> None:
        self.levels = parse_levels(levels, capacity)
        self.shared = _check(partial(Level, capacity=1), shared)
        self.network = _check(Options, network)

    def make(self, shape: tuple[int, ...]) -> SQHN:
        """A new memory; only its memory node can replace neurons."""
        from sqhn.memory import SQHN

        *below, last = self.levels
        shared = {name: value for name, value in self.shared.items() if value not in REPLACING}
        return SQHN(
            shape, [*(replace(level, **shared) for level in below), replace(last, **self.shared)], **self.network
        )

    def apply(self, memory: Path, network: SQHN) -> None:
        """Set rho of an existing memory; refuse other options that differ from its own."""
        there = {"levels": spell_levels(network.levels), "similarity": network.options.similarity}
        for name, value in self.shared.items():
            levels = network.levels[-1:] if value in REPLACING else network.levels
            there[name] = ", ".join(dict.fromkeys(str(getattr(level, name)) for level in levels))
        wanted = {"levels": spell_levels(self.levels or network.levels), **self.shared, **self.network}
        for name, own in there.items():
            if str(wanted.get(name, own)) != own:
                options = "--capacity and --levels" if name == "levels" else _option(name)
                raise ValueError(
                    f"{memory} has {name.replace('_', ' ')} {own}, but the options say {wanted[name]}: "
                    f"omit {options} to continue with it, or name a new file"
                )
        if "rho" in self.network:
            network.rho = self.network["rho"]


def _check(constructor: Callable[..., object], options: dict[str, Any]) -> dict[str, Any]:
    """The options that are given, each checked by its constructor."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        try:
            constructor(**{name: value})
        except ValueError as error:
            raise typer.BadParameter(f"{error}", param_hint=_option(name)) from error
    return given


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def parse_levels(text: str | None, capacity: int | None) -> list[Level]:
    """The levels described by --levels and --capacity; none if neither is given."""
    given = _check(Level, {"capacity": capacity})
    parts = [] if text is None else text.split(",")
    levels = []
    for number, part in enumerate(parts, start=1):
        try:
            levels.append(_parse_level(part.strip(), capacity, last=number == len(parts)))
        except ValueError as error:
            raise typer.BadParameter(f"{part!r}: {error}", param_hint="--levels") from error
    return [*levels, Level(**given)] if given else levels


def _parse_level(text: str, capacity: int | None, last: bool) -> Level:
    match = re.fullmatch(LEVEL, text)
    if match is None:
        raise ValueError("a level is KERNEL:CAPACITY, such as 2:600 or 4x2:600, or KERNEL:CAPACITY:shared")
    sides = tuple(map(int, match[1].split("x")))
    flags: Any = dict.fromkeys(match[3].split(":")[1:], True)
    if match[2] and capacity is not None:
        raise ValueError("it has a capacity, but --capacity applies to all levels: give only one of them")
    size = int(match[2]) if match[2] else capacity
    if size is not None:
        return Level(sides if len(sides) > 1 else sides[0], size, **flags)
    if last and len(sides) == 1:
        return Level(capacity=sides[0], **flags)  # the memory node
    raise ValueError(f"it has no capacity: write {text}:N, or give --capacity for all levels")


def spell_levels(levels: Sequence[Level]) -> str:
    """Levels as --levels takes them."""
    return ",".join(
        (f"{level.capacity}" if level.kernel is None else f"{spell_kernel(level.kernel)}:{level.capacity}")
        + "".join(f":{flag}" for flag in FLAGS if getattr(level, flag))
        for level in levels
    )


def spell_kernel(kernel: int | Sequence[int]) -> str:
    """A kernel as --levels takes it; 2 is 2x2."""
    sides = (kernel,) if isinstance(kernel, int) else tuple(kernel)
    return str(sides[0]) if len(sides) == 2 and sides[0] == sides[1] else "x".join(map(str, sides))
