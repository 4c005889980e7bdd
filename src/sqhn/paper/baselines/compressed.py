"""Stores of samples as few bytes: plain, downscaled, as JPEG, and by product quantization.

A store keeps codes within a budget of bytes, and nothing else: it decodes all of them for every call of `recall`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.checks import as_shape, check_count, check_number, check_word
from sqhn.inputs import as_answers, as_floats, as_samples, batches
from sqhn.paper.baselines.codecs import Bytes, Codec, Jpeg, Plain, Quantizer, Smaller, as_bytes
from sqhn.paper.baselines.errors import UnsupportedError
from sqhn.paper.baselines.reservoir import Reservoir
from sqhn.paper.baselines.store import Euclidean, flat
from sqhn.protocol import EmptyMemoryError, Recalled, Recognized, Written

Ask = Literal["nearest", "evidence"]
Keep = Literal["first", "reservoir"]

CODES_AT_ONCE = 256
ROWS_AT_ONCE = 2048
"""How many samples are compared at once by nearest neighbor."""
LENGTH_BYTES = 4
"""The bytes that tell the length of a code, where codes differ in length."""


class CodedStore:
    """The verbs of a memory for codes of samples.

    budget: the bytes that the store may take. keep: a full store keeps the "first" samples, or a uniform choice of all
        ("reservoir", where all codes have the same size). ask: recall returns the "nearest" sample by Euclidean
        distance, or the one with the most "evidence", as `SQHN.recall` does in one level.

    Samples are rounded to uint8. Nothing is compared on learning, so the scores of `learn` are 0.
    """

    cannot: ClassVar[Mapping[str, str]] = {"recognize": "it is defined for recall only"}  # see `sqhn.testing`

    def __init__(
        self,
        input_shape: Sequence[int],
        codec: Codec,
        budget: int,
        keep: Keep = "first",
        ask: Ask = "evidence",
        seed: int = 0,
    ) -> None:
        check_word("keep", keep, ("first", "reservoir"))
        check_word("ask", ask, ("nearest", "evidence"))
        if keep == "reservoir" and codec.size is None:
            raise ValueError("keep='reservoir' needs codes of one size; those of this store differ in length")
        self.input_shape, self.codec = as_shape(input_shape), codec
        self.budget, self.keep, self.ask, self.seed = check_count("budget", budget), keep, ask, seed
        self.reset()

    def __len__(self) -> int:
        """The number of stored samples."""
        return len(self._codes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.input_shape}, {len(self)} samples in {self.nbytes} of {self.budget} bytes)"

    def reset(self) -> None:
        """Forget everything but a codebook."""
        self._codes: list[bytes] = []
        self._bytes, self._count = 0, 0
        self._full = False
        self._reservoir = Reservoir(self._room if self.keep == "reservoir" else 0, self.seed)

    @property
    def _room(self) -> int:
        """How many codes of one size fit into the budget."""
        return max(0, self.budget - self.codec.nbytes) // (self.codec.size or 1)

    @property
    def nbytes(self) -> int:
        """The bytes of the codes, of their lengths if they differ, and of a codebook."""
        return self._bytes + self.codec.nbytes

    def learn(self, x: ArrayLike) -> Written:
        """Store one sample, or a batch one after another; returns the place of each, -1: not stored."""
        samples, single, _ = as_samples(x, self.input_shape)
        new = as_bytes(samples)
        if not self._count:
            self.codec.train(new)
        places = np.full(len(new), -1, np.int32)
        for part in batches(len(new), CODES_AT_ONCE):
            if self._full:
                break
            places[part] = [self._place(code) for code in self.codec.encode(new[part])]
        self._count += len(new)
        step = np.arange(self._count - len(new), self._count) + 1
        return Written(*as_answers(single, places, places >= 0, np.zeros(len(new)), step))

    def _place(self, code: bytes) -> int:
        """Keep a code or not; returns its place."""
        if self.keep == "reservoir":
            place = self._reservoir.place()
        else:
            size = len(code) + (LENGTH_BYTES if self.codec.size is None else 0)
            self._full = self._full or self.nbytes + size > self.budget
            place = -1 if self._full else len(self._codes)
        if place == len(self._codes):
            self._codes.append(code)
            self._bytes += len(code) + (LENGTH_BYTES if self.codec.size is None else 0)
        elif place >= 0:
            self._codes[place] = code
        return place

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        """The stored sample for one sample or a batch.

        observed: True where a value was observed; of the shape of x, or of one sample for all. Values elsewhere do not
            matter.
        """
        samples, single, mask = as_samples(x, self.input_shape, observed, holes=True)
        if not len(self):
            raise EmptyMemoryError("this memory is empty: learn something before asking it")
        rows = np.concatenate([self.codec.decode(self._codes[part]) for part in batches(len(self), CODES_AT_ONCE)])
        found: Recalled = (nearest if self.ask == "nearest" else by_evidence)(samples, mask, rows)
        return Recalled(*as_answers(single, found.x.reshape(samples.shape), found.index, found.score))

    def recognize(self, x: ArrayLike) -> Recognized:  # noqa: ARG002
        """Not supported."""
        raise UnsupportedError(f"{type(self).__name__} cannot recognize: it is defined for recall only")


def nearest(samples: NDArray[Any], mask: NDArray[np.bool_] | None, rows: Bytes) -> Recalled:
    """The row at the smallest distance over the observed values, for every sample; scores are minus the mean error."""
    queries, seen = flat(samples), None
    if mask is not None:
        seen = mask.reshape(queries.shape)
        queries = np.where(seen, queries, np.float32(0))
    rule, best = Euclidean(), None
    for part in batches(len(rows), ROWS_AT_ONCE):
        found = rule.recall(queries, seen, flat(rows[part]))
        if best is None:
            best = found
            continue
        better = found.score > best.score
        best = Recalled(
            np.where(better[:, None], found.x, best.x),
            np.where(better, found.index + np.int32(part.start), best.index),
            np.where(better, found.score, best.score),
        )
    assert best is not None
    return best


def by_evidence(samples: NDArray[Any], mask: NDArray[np.bool_] | None, rows: Bytes) -> Recalled:
    """The row with the most evidence; a memory of one level is made of the rows for this."""
    from sqhn.memory import SQHN  # compiled code is imported on first use

    memory = SQHN(rows.shape[1:], capacity=len(rows))
    memory.memorize(as_floats(rows))
    return memory.recall(samples, mask, inference="evidence")


class ByteStore(CodedStore):
    """Samples as one byte for each value.

    >>> store = ByteStore((2, 2), budget=10, ask="nearest")
    >>> store.learn(np.array([[[0.0, 1.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 0.0]]])).index
    array([0, 1], dtype=int32)
    >>> store.learn(np.zeros((2, 2))).index, store.nbytes  # full
    (-1, 8)
    >>> store.recall(np.full((2, 2), 0.9)).index
    1
    """

    def __init__(
        self, input_shape: Sequence[int], budget: int, keep: Keep = "first", ask: Ask = "evidence", seed: int = 0
    ) -> None:
        super().__init__(input_shape, Plain(as_shape(input_shape)), budget, keep, ask, seed)


class DownscaledStore(CodedStore):
    """Samples as smaller pictures: resized by bicubic interpolation to be stored, and back to be compared.

    factor: of each side.

    >>> store = DownscaledStore((8, 8, 3), budget=1000, factor=2)
    >>> _ = store.learn(np.full((8, 8, 3), 0.2))
    >>> store.nbytes, bool(store.recall(np.full((8, 8, 3), 0.5)).x.max() < 0.21)
    (48, True)
    """

    cannot: ClassVar[Mapping[str, str]] = {
        **CodedStore.cannot,
        "one shot": "it stores less than the samples",
        "from half": "it stores less than the samples",
    }

    def __init__(self, input_shape: Sequence[int], budget: int, factor: int, ask: Ask = "evidence") -> None:
        codec = Smaller(as_shape(input_shape), check_count("factor", factor))
        super().__init__(input_shape, codec, budget, ask=ask)


class JpegStore(CodedStore):
    """Samples as JPEGs, decoded for every question.

    limit: the mean squared error up to which the quality of each sample is chosen, as small as possible. header:
        whether to store whole files, or only their compressed data and their quality.
    """

    cannot: ClassVar[Mapping[str, str]] = DownscaledStore.cannot

    def __init__(
        self, input_shape: Sequence[int], budget: int, limit: float = 0.01, header: bool = True, ask: Ask = "evidence"
    ) -> None:
        codec = Jpeg(as_shape(input_shape), check_number("limit", limit), header)
        super().__init__(input_shape, codec, budget, ask=ask)


class QuantizedStore(CodedStore):
    """Samples by product quantization, offline: the first batch trains the codebooks. Needs faiss-cpu.

    width: the most values that share a code. bits: of each code.
    """

    cannot: ClassVar[Mapping[str, str]] = DownscaledStore.cannot

    def __init__(self, input_shape: Sequence[int], budget: int, width: int, bits: int, ask: Ask = "evidence") -> None:
        super().__init__(
            input_shape, Quantizer(as_shape(input_shape), check_count("width", width), bits), budget, ask=ask
        )
