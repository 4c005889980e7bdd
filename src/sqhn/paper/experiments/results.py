"""Records as a table: select them by settings, group them, and read results and curves over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sqhn.paper.experiments.case import BUILTIN, READINGS, Reading
from sqhn.paper.experiments.records import Record

Values = NDArray[np.float64]
Value = TypeVar("Value")


class NotRunError(LookupError):
    """No record has the results asked for; the message names them."""


def is_own(record: Record) -> bool:
    """Whether a record is of a memory of the user."""
    return bool((record["settings"].get("memory") or {}).get("kind") == "Own")


class ByName(dict[str, Value]):
    """A dict whose missing names raise `NotRunError`."""

    def __missing__(self, name: str) -> Value:
        raise NotRunError(f"{name}: not run")


class Results:
    """A set of records, sorted by seed; their original order does not matter."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = sorted(records, key=lambda record: record["seed"])

    def __len__(self) -> int:
        return len(self.records)

    def under(self, reading: Reading) -> Results:
        """The records of a reading of the paper."""
        return Results(record for record in self.records if reading in record["readings"])

    @cached_property
    def readings(self) -> list[Reading]:
        """The readings that were run: those with records of their own, or all where every record belongs to all."""
        own = {record["readings"][0] for record in self.records if len(record["readings"]) == 1}
        return [reading for reading in READINGS if reading in own or not own]

    def of(self, experiment: str | None = None, **where: Any) -> Results:
        """The records of an experiment with these settings; raises `NotRunError` where there are none."""
        found = self.where(experiment, **where)
        if not found.records:
            what = " ".join(map(str, [*([experiment] if experiment else []), *where.values()]))
            raise NotRunError(f"{what}: not run")
        return found

    def where(self, experiment: str | None = None, **where: Any) -> Results:
        """The records of an experiment with these settings; may be empty."""
        return Results(
            record
            for record in self.records
            if experiment in (None, record["experiment"])
            and all(record["settings"].get(name) == value for name, value in where.items())
        )

    @property
    def own(self) -> Results:
        """The records of memories of the user."""
        return Results(record for record in self.records if is_own(record))

    @property
    def declared(self) -> Results:
        """The records of all other models."""
        return Results(record for record in self.records if not is_own(record))

    def settings(self, name: str) -> list[Any]:
        """The different values of a setting: numbers in ascending order, others in order of first use."""
        found = list(dict.fromkeys(record["settings"].get(name) for record in self.records))
        return sorted(found) if all(isinstance(value, (int, float)) for value in found) else found

    def setting(self, name: str) -> Any:
        """The only value of a setting."""
        (value,) = self.settings(name)
        return value

    def each(self, name: str) -> Iterator[tuple[Any, Results]]:
        """The records grouped by the values of a setting."""
        for value in self.settings(name):
            yield value, self.where(**{name: value})

    @cached_property
    def paper_data(self) -> bool:
        """Whether the records come from the paper's data sets, not from the built-in ones."""
        return all(name in BUILTIN for record in self.records for name in record["settings"]["data"])

    @cached_property
    def quick(self) -> bool:
        """Whether the records come from a short run."""
        return any(record["quick"] for record in self.records)

    def values(self, get: Callable[[Record], float]) -> Values:
        """One number per record, that is per seed."""
        return np.array([get(record) for record in self.records])

    def result(self, name: str) -> Values:
        """A number from the results, for each seed."""
        return self.values(lambda record: record["results"][name])

    def row(self, kind: str, measure: str, level: float | None = None) -> Values:
        """A measure under one corruption, for each seed."""

        def get(record: Record) -> float:
            for row in record["results"]["rows"]:
                if row["kind"] == kind and level in (None, row["level"]):
                    return float(row[measure])
            raise NotRunError(f"{record['experiment']} {kind} {level}: not run")

        return self.values(get)

    @property
    def t(self) -> NDArray[np.int64]:
        """The number of samples learned at each test point of the curves."""
        return np.array(self.records[0]["results"]["curves"]["learned"])

    def late(self, t: float) -> NDArray[np.bool_]:
        """A mask of the test points from t on; raises `NotRunError` where the stream ends before."""
        mask = self.t >= t
        if not mask.any():
            raise NotRunError(f"the stream of {self.t[-1]} samples ends before {t:g}")
        return np.asarray(mask)

    def curve(self, name: str) -> Values:
        """A curve, (seeds, test points, ...)."""
        return np.array([record["results"]["curves"][name] for record in self.records])

    def average(self, name: str) -> Values:
        """The mean of a curve over its test points, for each seed."""
        return self.values(lambda record: float(np.mean(record["results"]["curves"][name])))

    def mean(self, name: str) -> Values:
        """A curve, averaged over seeds."""
        return np.asarray(self.curve(name).mean(axis=0))

    def images(self, name: str) -> dict[str, Any]:
        """Recorded images of the first seed that has some."""
        for record in self.records:
            if "pictures" in record["results"]:
                recorded: dict[str, Any] = record["results"]["pictures"][name]
                return recorded
        raise NotRunError("no images were recorded")


def spread(values: Values) -> Values:
    """The sample standard deviation over seeds, the first axis; 0 for one seed."""
    return np.asarray(values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:]))
