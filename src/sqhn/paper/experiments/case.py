"""What an experiment is: cases that say everything about a run, under one or both readings of the paper.

`default` reads the paper's text; `code` takes the settings of the authors' published scripts where they differ.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_word
from sqhn.data import load
from sqhn.paper.experiments.memories import Spec
from sqhn.protocol import Memory

__all__ = [
    "BUILTIN",
    "CODE",
    "DEFAULT",
    "READINGS",
    "Case",
    "Experiment",
    "Job",
    "Pictures",
    "Reading",
    "generator",
    "jobs_of",
    "picture",
    "pictures_of",
    "plain",
    "pool",
    "taught",
]

Reading = Literal["default", "code"]
DEFAULT: Reading = "default"
CODE: Reading = "code"
READINGS: tuple[Reading, ...] = (DEFAULT, CODE)
Pictures = NDArray[np.float32]
Anything = TypeVar("Anything")

BUILTIN = {
    "mnist": "digits",
    "emnist": "digits",
    "fashion_mnist": "grey_photos",
    "cifar10": "photos32",
    "cifar100": "photos32",
    "svhn": "painted_digits",
    "tiny_imagenet": "photos64",
    "caltech256": "photos128",
    "watch": "signals",
}
"""What stands in for the paper's data where nothing may be downloaded."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case of an experiment: all that a run of it depends on, but for the seed.

    set: the paper's data set or stream, for people. data: the sets that are loaded. model: the memory, for people.
    size: of the memory. seeds: how often it is run. heavy: it takes hours without a GPU. quick: a part of short runs.
    """

    set: str
    data: tuple[str, ...]
    model: str
    size: int
    memory: Spec | None = None
    seeds: int = field(default=5, metadata={"recorded": False})
    heavy: bool = field(default=False, metadata={"recorded": False})
    quick: bool = field(default=True, metadata={"recorded": False})

    def run(self, seed: int, device: str) -> dict[str, Any]:
        """What comes out, as plain data."""
        raise NotImplementedError

    def built(self, shape: tuple[int, ...], seed: int, device: str = "cpu") -> Any:
        """The memory for samples of one shape."""
        if self.memory is None:
            raise TypeError(f"{self.model} is no memory that could be built")
        return self.memory.build(shape, seed, device)


def plain(value: Any) -> Any:
    """Declarations as plain data for a record; a dataclass says what it is, unless it is a case."""
    if is_dataclass(value):
        named = {} if isinstance(value, Case) else {"kind": type(value).__name__}
        kept = (one.name for one in fields(value) if one.metadata.get("recorded", True))
        return {**named, **{name: plain(getattr(value, name)) for name in kept}}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return "inf" if value == math.inf else value


def _shrunk(value: Anything, quick: Mapping[str, int]) -> Anything:
    """Sizes divided by what `quick` says, in nested declarations too."""

    def smaller(name: str, old: Any) -> Any:
        if is_dataclass(old):
            return _shrunk(old, quick)
        if name in quick and isinstance(old, tuple):
            return tuple(max(1, number // quick[name]) for number in old)
        return max(1, old // quick[name]) if name in quick and old else old

    changes = {one.name: smaller(one.name, getattr(value, one.name)) for one in fields(value)}  # type: ignore[arg-type]
    return replace(value, **changes)  # type: ignore[type-var]


@dataclass(frozen=True)
class Experiment:
    """One experiment: its cases under a reading.

    quick: for a short run, what to divide sizes by; None: a short run leaves it out.
    """

    id: str
    title: str
    question: str
    cases: Callable[[Reading], Iterator[Case]]
    quick: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One run of one case with one seed; readings: of which it is a part."""

    experiment: str
    case: Case
    seed: int
    readings: tuple[Reading, ...] = READINGS

    @property
    def kind(self) -> tuple[str, ...]:
        """What jobs have in common that take about as long."""
        return self.experiment, self.case.set, self.case.model, str(self.case.size)

    @property
    def label(self) -> str:
        """For people."""
        return " ".join([*self.kind, f"seed {self.seed}"])


def jobs_of(
    experiment: Experiment,
    readings: Sequence[Reading] = READINGS,
    *,
    seeds: int | None = None,
    builtin: bool = True,
    quick: bool = False,
    heavy: bool = False,
) -> Iterator[Job]:
    """Every job of an experiment under some readings; what is the same in both is run once.

    seeds: for each case, instead of its own number; an illustration has one, whatever is asked for.
    """
    for reading in readings:
        check_word("reading", reading, READINGS)
    if quick and experiment.quick is None:
        return
    found: dict[Case, list[Reading]] = {}
    for reading in READINGS:
        for case in experiment.cases(reading):
            found.setdefault(case, []).append(reading)
    for case, of in found.items():
        if not set(of) & set(readings) or (case.heavy and not heavy) or (quick and not case.quick):
            continue
        sized = _shrunk(case, experiment.quick or {}) if quick else case
        if builtin:
            sized = replace(sized, data=tuple(BUILTIN[name] for name in sized.data))
        for seed in range(seeds if seeds and case.seeds > 1 else case.seeds):
            yield Job(experiment.id, sized, seed, tuple(of))


# -- what cases have in common ---------------------------------------------------------------------------------------


def generator(seed: int, *role: object) -> np.random.Generator:
    """The random numbers of one role, say "data" or the noise of a test.

    A seed spawns one generator for each role, so that every memory of an experiment meets the same pictures in the
    same order, and the same corruptions of them.
    """
    return np.random.default_rng([seed, *" ".join(map(str, role)).encode()])


def pool(name: str, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures and labels of a data set; "val" is "train" where there is no other, "train+val" is all there is."""
    splits = load(name).splits
    if split == "train+val":
        parts = [splits[part] for part in ("train", "val") if part in splits]
        return np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    part = splits["train" if split == "val" and "val" not in splits else split]
    return part.x, part.y


def picture(x: Pictures) -> dict[str, Any]:
    """Pictures as plain data for a record."""
    values = np.round(np.clip(x, 0, 1) * 255).astype(np.uint8)
    return {"shape": list(values.shape), "uint8": base64.b64encode(values.tobytes()).decode()}


def pictures_of(kept: Mapping[str, Any]) -> NDArray[np.uint8]:
    """The inverse of `picture`."""
    return np.frombuffer(base64.b64decode(kept["uint8"]), np.uint8).reshape(kept["shape"])


def taught(memory: Memory, x: Pictures, every: int, **how: Any) -> Iterator[int]:
    """Teach a stream; yields how many were learned at every test point, the first among them."""
    done = 0
    for t in range(0, len(x), every):
        memory.learn(x[done : t + 1], **how)
        done = t + 1
        yield done
