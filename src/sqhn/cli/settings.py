"""What the options of `sqhn learn` say of a memory: how to make one, or what one that exists must be like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sqhn.cli.levels import parse_levels, spell_levels

if TYPE_CHECKING:
    from sqhn.level import Level
    from sqhn.memory import SQHN

__all__ = ["Settings", "parse_settings"]


@dataclass(frozen=True)
class Settings:
    """The levels, what all levels have in common, and the options of a network, as far as they are given."""

    levels: list[Level] | None
    common: dict[str, Any]
    network: dict[str, Any]

    def check_new(self, memory: Path) -> None:
        """Raise unless they are enough for a new memory."""
        if self.levels is None:
            raise typer.BadParameter(f"there is no {memory} yet: give --capacity, or --levels with capacities")

    def make(self, shape: tuple[int, ...]) -> SQHN:
        """A new memory."""
        from sqhn.memory import SQHN

        levels = self.levels or []
        made = [replace(level, **self.of(number == len(levels))) for number, level in enumerate(levels, start=1)]
        return SQHN(shape, made, **self.network)

    def of(self, last: bool) -> dict[str, Any]:
        """What levels have in common, of the last or of one below it: that one cannot replace neurons."""
        from sqhn.level import REPLACING

        if last or self.common.get("when_full") not in REPLACING:
            return self.common
        return {name: value for name, value in self.common.items() if name != "when_full"}

    def apply(self, memory: Path, network: SQHN) -> None:
        """Set what may change in a memory that exists; refuse what is another memory's."""
        wanted, there = spell_levels(self.levels or network.levels), spell_levels(network.levels)
        if wanted != there:
            _refuse(memory, "levels", there, wanted, "--capacity and --levels")
        for name, value in self.common.items():
            concerned = network.levels if name in self.of(last=False) else network.levels[-1:]
            values = dict.fromkeys(getattr(level, name) for level in concerned)
            if [*values] != [value]:
                _refuse(memory, name.replace("_", " "), ", ".join(map(str, values)), value, _option(name))
        similarity = self.network.get("similarity", network.options.similarity)
        if similarity != network.options.similarity:
            _refuse(memory, "similarity", network.options.similarity, similarity, "--similarity")
        if "rho" in self.network:
            network.rho = self.network["rho"]


def parse_settings(
    levels: str | None, capacity: int | None, common: dict[str, Any], network: dict[str, Any]
) -> Settings:
    """Check what the options say; None is nothing."""
    from sqhn.level import Level, Options

    checked = _check(partial(Level, capacity=1), common), _check(Options, network)
    return Settings(parse_levels(levels, capacity), *checked)


def _check(kind: Callable[..., object], options: dict[str, Any]) -> dict[str, Any]:
    """The options that are given, if this kind of thing takes them."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        try:
            kind(**{name: value})
        except ValueError as error:
            raise typer.BadParameter(f"{error}", param_hint=_option(name)) from error
    return given


def _refuse(memory: Path, name: str, there: str, wanted: object, options: str) -> None:
    raise ValueError(
        f"{memory} has {name} {there}, but the options say {wanted}: "
        f"leave out {options} to go on with it, or name a new file"
    )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
