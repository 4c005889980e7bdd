"""What every memory does: three verbs, their results, their errors.

A memory learns samples one at a time, recalls the stored sample nearest to a corrupted or partial one, and
recognizes whether it has met a sample before. Samples are arrays of one fixed shape; a batch has one more leading
axis, and the results then carry that axis too.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["EmptyMemoryError", "Memory", "MemoryFileError", "Recalled", "Recognized", "Written"]

# Plain Python values for one sample, arrays for a batch.
Index = Any  # int or int32
Flag = Any  # bool
Score = Any  # float or float64


class Written(NamedTuple):
    """What `learn` did at the memory node: the neuron written, whether it is new, and how well it matched before.

    step: which of all samples it was, counted from 1: learned again in this order, they give the same memory.
    replaced: whether the new neuron took the place of another, which is gone; None where a memory does not tell.
    """

    index: Index
    grew: Flag
    score: Score
    step: Index
    replaced: Flag = None


class Recalled(NamedTuple):
    """What `recall` found: the completed sample, the memory node's neuron that it came from, and its score.

    values: what was said about the samples that this neuron was learned from, a list of pairs of a value and how often
        it was given, the most frequent first; a list of those for a batch; None where nothing was ever said.
    known: True where a value of x was ever seen, for that neuron; others are a guess without evidence, the centre of
        the similarity. None where no sample with missing values was learned: all of x is known.
    """

    x: NDArray[np.float32]
    index: Index
    score: Score
    values: Any = None
    known: Any = None

    @property
    def value(self) -> Any:
        """The most frequent of the values, None where there is none; a list of them for a batch."""
        return _most_frequent(self.index if isinstance(self.index, int) else self.index.tolist(), self.values)


def _most_frequent(index: Any, values: Any) -> Any:
    if isinstance(index, list):
        return [_most_frequent(*pair) for pair in zip(index, values or [None] * len(index))]
    return values[0][0] if values else None


class Recognized(NamedTuple):
    """What `recognize` judged: `old` is `score >= threshold`."""

    old: Flag
    score: Score
    threshold: Score


class Memory(Protocol):
    """The verbs that every memory of this package answers."""

    def learn(self, x: ArrayLike) -> Written: ...

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled: ...

    def recognize(self, x: ArrayLike) -> Recognized: ...


class EmptyMemoryError(ValueError):
    """Something was asked of a memory that has not learned anything yet."""


class MemoryFileError(ValueError):
    """A file is not a memory, is damaged, or was written by a newer version."""
