"""The three verbs of every memory, their results and their errors.

A memory learns samples one at a time, recalls the stored sample nearest to a corrupted or partial one, and recognizes
whether it has seen a sample before. Samples are arrays of one fixed shape; a batch has one more leading axis, and so
have its results.
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
    """The outcome of `learn` at the memory node.

    index: the neuron that was written. grew: whether it is new. score: how well the best neuron matched before.
    step: the number of the sample, counted from 1. The same samples in the order of their steps give the same memory.
    replaced: whether the new neuron replaced another one; None if a memory does not report it.
    """

    index: Index
    grew: Flag
    score: Score
    step: Index
    replaced: Flag = None


class Recalled(NamedTuple):
    """The outcome of `recall`.

    x: the completed sample. index: the memory node's neuron that it comes from. score: how well that neuron matches.
    values: the labels of the samples that the neuron was learned from: pairs of a label and its count, the most
        frequent first; for a batch a list of such lists; None if the memory has no labels.
    known: True where the neuron has ever observed a value; elsewhere x is the center of the similarity, a guess. None
        if all of x is known, because no sample with missing values was learned.
    """

    x: NDArray[np.float32]
    index: Index
    score: Score
    values: Any = None
    known: Any = None

    @property
    def value(self) -> Any:
        """The most frequent label, None if there is none; for a batch a list of them."""
        return _most_frequent(self.index if isinstance(self.index, int) else self.index.tolist(), self.values)


def _most_frequent(index: Any, values: Any) -> Any:
    if isinstance(index, list):
        return [_most_frequent(*pair) for pair in zip(index, values or [None] * len(index))]
    return values[0][0] if values else None


class Recognized(NamedTuple):
    """The outcome of `recognize`: whether the sample is old, that is, `score >= threshold`.

    p: once `calibrate` found the threshold, the conformal p-value of the sample: if it is like the samples of the
        calibration, p is at most any value q with a probability of at most q. It is small for novel samples if the
        memory was calibrated with old ones, and for known samples if it was calibrated with new ones.
    """

    old: Flag
    score: Score
    threshold: Score
    p: Any = None


class Memory(Protocol):
    """The verbs of every memory of this package."""

    def learn(self, x: ArrayLike) -> Written: ...

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled: ...

    def recognize(self, x: ArrayLike) -> Recognized: ...


class EmptyMemoryError(ValueError):
    """A memory that has not learned anything yet cannot answer."""


class MemoryFileError(ValueError):
    """A file does not hold a memory, is damaged, or was written by a newer version."""
