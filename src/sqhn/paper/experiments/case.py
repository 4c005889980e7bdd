"""Experiments as data: cases that hold all settings of a run, under one or both readings of the paper.

`default` follows the paper's text; `code` uses the settings of the authors' published scripts where they differ.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from sqhn.checks import check_word
from sqhn.data import load
from sqhn.data.catalogue import CATALOGUE
from sqhn.paper.experiments.models import Nearest, Spec, Tree
from sqhn.protocol import Memory

if TYPE_CHECKING:
    from sqhn.paper.experiments.own import Own

Reading = Literal["default", "code"]
DEFAULT: Reading = "default"
CODE: Reading = "code"
READINGS: tuple[Reading, ...] = (DEFAULT, CODE)
Images = NDArray[np.float32]
Anything = TypeVar("Anything")
Value = TypeVar("Value", np.float32, np.uint8)

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
"""The built-in data set that replaces each data set of the paper where nothing can be downloaded."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case of an experiment: everything that a run depends on, except for the seed.

    The names and values of the fields are the settings in a record, so renaming one makes old records unusable.

    set: the name of the paper's data set or stream. data: the data sets to load. model: the name of the model.
    size: its number of neurons or samples. seeds: the number of runs. heavy: a run takes hours without a GPU. quick:
    short runs include this case.
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
        """The results of a run, as plain data."""
        raise NotImplementedError

    def build(self, shape: tuple[int, ...], seed: int, device: str = "cpu") -> Any:
        """The model for samples of one shape."""
        if self.memory is None:
            raise TypeError(f"the case of {self.model!r} declares no model to build")
        return self.memory.build(shape, seed, device)


def plain(value: Any) -> Any:
    """A declaration as plain data for a record; a dataclass adds its class as "kind", unless it is a case."""
    if is_dataclass(value):
        kind = {} if isinstance(value, Case) else {"kind": type(value).__name__}
        recorded = (one.name for one in fields(value) if one.metadata.get("recorded", True))
        return {**kind, **{name: plain(getattr(value, name)) for name in recorded}}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return "inf" if value == math.inf else value


def shrink(value: Anything, divisors: Mapping[str, int]) -> Anything:
    """A copy of a declaration whose fields are divided by these numbers, in nested declarations too."""

    def smaller(name: str, old: Any) -> Any:
        if is_dataclass(old):
            return shrink(old, divisors)
        if name in divisors and isinstance(old, tuple):
            return tuple(max(1, number // divisors[name]) for number in old)
        return max(1, old // divisors[name]) if name in divisors and old else old

    changes = {one.name: smaller(one.name, getattr(value, one.name)) for one in fields(value)}  # type: ignore[arg-type]
    return replace(value, **changes)  # type: ignore[type-var]


@dataclass(frozen=True)
class Experiment:
    """One experiment: its cases under a reading.

    quick: the divisors of sizes in a short run; None: short runs skip the experiment.
    """

    id: str
    title: str
    question: str
    cases: Callable[[Reading], Iterator[Case]]
    quick: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One run of one case with one seed; readings: those that it belongs to."""

    experiment: str
    case: Case
    seed: int
    readings: tuple[Reading, ...] = READINGS

    @property
    def label(self) -> str:
        """The name of the job in messages."""
        return f"{self.experiment} {self.case.set} {self.case.model} {self.case.size} seed {self.seed}"


def jobs_of(
    experiment: Experiment,
    readings: Sequence[Reading] = READINGS,
    *,
    seeds: int | None = None,
    data: str = "builtin",
    quick: bool = False,
    heavy: bool = False,
    memories: Sequence[Own] = (),
) -> Iterator[Job]:
    """Every job of an experiment under some readings; a case that is the same in both is run once.

    seeds: the number of runs per case, instead of the case's own; a case with one seed, an illustration, keeps one.
    data: "builtin", "paper", or an .npz file, which replaces the data sets whose samples have its shape. memories: of
    the user; they run wherever a store of images is compared.
    """
    for reading in readings:
        check_word("reading", reading, READINGS)
    if quick and experiment.quick is None:
        return
    found: dict[Case, list[Reading]] = {}
    for reading in READINGS:
        cases = list(experiment.cases(reading))
        for case in dict.fromkeys([*cases, *_with_memories(cases, memories)]):
            found.setdefault(case, []).append(reading)
    if data.endswith(".npz"):
        found = _on_file(found, data)
    for case, of in found.items():
        if not set(of) & set(readings) or (case.heavy and not heavy) or (quick and not case.quick):
            continue
        sized = shrink(case, experiment.quick or {}) if quick else case
        if data == "builtin":
            sized = replace(sized, data=tuple(BUILTIN[name] for name in sized.data))
        for seed in range(seeds if seeds and case.seeds > 1 else case.seeds):
            yield Job(experiment.id, sized, seed, tuple(of))


def _with_memories(cases: Sequence[Case], memories: Sequence[Own]) -> Iterator[Case]:
    """The cases of memories of the user, each in the place of a store of images that returns the nearest one."""
    quick = {case.set for case in cases if case.quick}
    for case in cases:
        if isinstance(case.memory, Nearest):
            for one in memories:
                memory = replace(one, capacity=case.memory.capacity)
                yield replace(case, model=one.source, memory=memory, quick=case.set in quick)


def _on_file(cases: Mapping[Case, list[Reading]], file: str) -> dict[Case, list[Reading]]:
    """The cases on the data of a file: those on data sets whose samples have its shape, otherwise those on the first
    data set. Trees whose patches do not fit the shape are left out.
    """
    shape = load(file).splits["train"].x.shape[1:]
    on_data = [case for case in cases if case.data]
    same = [case for case in on_data if all(CATALOGUE[name].contents.shape == shape for name in case.data)]
    chosen = same or [case for case in on_data if case.set == on_data[0].set]
    alike = {replace(case, set="", data=(file,) * len(case.data)): case for case in reversed(chosen)}
    found = {replace(one, set=case.set): cases[case] for one, case in reversed(alike.items()) if _fits(one, shape)}
    return {**found, **{case: of for case, of in cases.items() if not case.data}}


def _fits(case: Case, shape: tuple[int, ...]) -> bool:
    """Whether samples of a shape can be cut into the patches of a case's model."""
    return _can_be_cut(getattr(case.memory, "kernels", ()), shape)


@cache
def _can_be_cut(kernels: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    try:
        Tree(1, kernels).network(shape)
    except ValueError:
        return False
    return True


# -- common parts of cases ---------------------------------------------------------------------------------------------


def generator(seed: int, *role: object) -> np.random.Generator:
    """The random numbers for one role, such as "data" or the noise of a test.

    Every role of a seed has its own generator, so all models of an experiment get the same images in the same order,
    and the same corruptions of them.
    """
    return np.random.default_rng([seed, *" ".join(map(str, role)).encode()])


def load_split(name: str, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images and labels of a split; "val" is "train" where there is no "val", "train+val" is both."""
    splits = load(name).splits
    if split == "train+val":
        parts = [splits[part] for part in ("train", "val") if part in splits]
        return np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    part = splits["train" if split == "val" and "val" not in splits else split]
    return part.x, part.y


def has_split(name: str, split: str) -> bool:
    """Whether a data set has a split of this name."""
    return split in load(name).splits


def without_width(x: NDArray[Value]) -> NDArray[Value]:
    """Samples in the shape for a model: signals have no width."""
    return x.reshape(len(x), *(n for n in x.shape[1:] if n > 1))


def encode_images(**images: Sequence[Images] | Images) -> dict[str, dict[str, Any]]:
    """Batches of images by name, as plain data for a record."""

    def encode(x: Images) -> dict[str, Any]:
        values = np.round(np.clip(x, 0, 1) * 255).astype(np.uint8)
        return {"shape": list(values.shape), "uint8": base64.b64encode(values.tobytes()).decode()}

    return {name: encode(np.stack(list(x))) for name, x in images.items()}


def decode_images(encoded: Mapping[str, Any]) -> NDArray[np.uint8]:
    """One batch of `encode_images`."""
    return np.frombuffer(base64.b64decode(encoded["uint8"]), np.uint8).reshape(encoded["shape"])


def learn_in_steps(memory: Memory, x: Images, every: int, **options: Any) -> Iterator[int]:
    """Learn a stream and pause at every test point; yields the number of samples learned, the first time 1."""
    done = 0
    for t in range(0, len(x), every):
        memory.learn(x[done : t + 1], **options)
        done = t + 1
        yield done
