"""Memories of users in the experiments, beside the declared models: found by name, built, and their answers checked."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.paper.experiments import records
from sqhn.paper.experiments.models import Spec
from sqhn.paper.metrics import recall_error
from sqhn.protocol import Memory, Recalled, Recognized, Written
from sqhn.testing.subject import check_answer

Search = Callable[[NDArray[np.float32], NDArray[np.float32]], Any]


class SourceError(ValueError):
    """There is no memory of this name; the message says why."""


@dataclass(frozen=True)
class Own(Spec):
    """A memory of a user.

    source: MODULE:NAME of a class or function that makes a memory, called as `NAME(shape, capacity=...)`, or of a
    function `NAME(stored, given)` that finds the indices of the given samples among the stored ones. version: a digest
    of the module's file. folder: where the module is, if it is not installed.
    """

    source: str
    version: str
    capacity: int = 1
    folder: str = field(default="", compare=False, metadata={"recorded": False})

    def build(self, shape: tuple[int, ...], seed: int = 0, device: str = "cpu") -> Memory:  # noqa: ARG002
        made = _find(self.source, self.folder)
        if _accepts(made, shape, capacity=self.capacity):
            return CheckedMemory(made(shape, capacity=self.capacity), shape, self.source)
        return SearchedStore(made, shape, self.capacity, self.source)


def own_memory(source: str) -> Own:
    """The declaration of a memory, MODULE:NAME; the module may be in the current folder."""
    folder = str(Path.cwd())
    made = _find(source, folder)
    if not _accepts(made, (2, 2), capacity=1) and not _accepts(made, (), ()):
        raise SourceError(
            f"{source} takes neither (shape, capacity=...), as the maker of a memory, nor (stored, given), as a "
            f"function that finds samples; it takes {inspect.signature(made)}"
        )
    file = getattr(sys.modules[source.partition(":")[0]], "__file__", None)
    version = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12] if file else ""
    return Own(source, version, folder=folder)


def _find(source: str, folder: str) -> Callable[..., Any]:
    """The object of this name."""
    module, colon, name = source.partition(":")
    if not (colon and module and name):
        raise SourceError(f"a memory is named MODULE:NAME, such as my_module:MyMemory; got {source!r}")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise SourceError(
                f"{source}: there is no module {error.name} in {folder}, and none is installed"
            ) from error
        raise SourceError(f"{source}: {module} imports {error.name}, which is not installed") from error
    except Exception as error:
        raise SourceError(f"{source}: importing {module} raised {type(error).__name__}: {error}") from error
    made = getattr(found, name, None)
    if not callable(made):
        raise SourceError(f"{source}: {module} has no class or function {name}")
    return made  # type: ignore[no-any-return]


def _accepts(made: Callable[..., Any], *args: Any, **more: Any) -> bool:
    """Whether a class or function takes these arguments."""
    try:
        inspect.signature(made).bind(*args, **more)
    except TypeError:
        return False
    except ValueError:  # compiled code without a signature
        return bool(more)
    return True


class CheckedMemory:
    """A memory that gets read-only samples, and whose answers must have the form that `sqhn.testing` requires."""

    def __init__(self, memory: Any, shape: tuple[int, ...], source: str) -> None:
        for verb in ("learn", "recall"):
            self._check_verb(memory, verb, source)
        self.memory, self.shape, self.source = memory, shape, source

    def learn(self, x: ArrayLike) -> Written:
        answer: Written = self._ask("learn", x)
        return answer

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        answer: Recalled = self._ask("recall", x, observed)
        return answer

    def recognize(self, x: ArrayLike) -> Recognized:
        self._check_verb(self.memory, "recognize", self.source)
        answer: Recognized = self._ask("recognize", x)
        return answer

    def _ask(self, verb: str, x: Any, observed: Any = None) -> Any:
        more = {} if observed is None else {"observed": _read_only(observed)}
        answer = getattr(self.memory, verb)(_read_only(x), **more)
        check_answer(verb, x, observed, answer, self.shape)
        return answer

    @staticmethod
    def _check_verb(memory: Any, verb: str, source: str) -> None:
        if not callable(getattr(memory, verb, None)):
            raise TypeError(f"the memory {source} has no method {verb}; it is a {type(memory).__name__}")


class SearchedStore:
    """A store of the latest samples, in which a function finds the stored sample for a given one.

    Scores are minus the mean squared errors.
    """

    def __init__(self, search: Search, shape: tuple[int, ...], capacity: int, source: str) -> None:
        self.search, self.capacity, self.source = search, capacity, source
        self.stored, self.count = np.zeros((0, *shape), np.float32), 0

    def learn(self, x: ArrayLike) -> Written:
        new = np.asarray(x, np.float32)
        self.stored = np.concatenate([self.stored, new])[-self.capacity :]
        self.count += len(new)
        index = np.maximum(-1, np.arange(-len(new), 0) + len(self.stored))
        step = np.arange(self.count - len(new), self.count) + 1
        return Written(index, np.ones(len(new), bool), np.zeros(len(new)), step)

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        """Missing values are given as 0."""
        given = np.asarray(x, np.float32)
        if observed is not None:
            given = np.where(observed, given, np.float32(0))
        index = np.asarray(self.search(_read_only(self.stored), _read_only(given)))
        right = index.dtype.kind in "iu" and index.shape == (len(given),)
        if not right or index.min() < 0 or index.max() >= len(self.stored):
            raise ValueError(
                f"{self.source}(stored of shape {self.stored.shape}, given of shape {given.shape}) should return "
                f"{len(given)} integers from 0 to {len(self.stored) - 1}; got "
                + (f"{index.min()} to {index.max()}" if right else f"{index.dtype} of shape {index.shape}")
            )
        found = self.stored[index]
        return Recalled(found, index, -recall_error(found, given))

    def recognize(self, x: ArrayLike) -> Recognized:  # noqa: ARG002
        raise TypeError(f"{self.source} is a function that finds samples, so it cannot recognize")


def _read_only(x: Any) -> NDArray[Any]:
    view = np.asarray(x).view()
    view.flags.writeable = False
    return view


def drop_earlier_versions(folder: Path, memories: Sequence[Own]) -> list[str]:
    """Remove the records of memories whose file has changed since; returns their names."""
    now = {one.source: one.version for one in memories}
    kept, changed = [], []
    for record in records.read(folder).values():
        memory = record["settings"].get("memory") or {}
        if memory.get("kind") == Own.__name__ and memory["version"] != now.get(memory["source"], memory["version"]):
            changed.append(memory["source"])
        else:
            kept.append(record)
    if changed:
        records.write(folder, kept)
    return list(dict.fromkeys(changed))
