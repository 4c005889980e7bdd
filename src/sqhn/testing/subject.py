"""The memories under test, ways to call them, and the samples to call them with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.protocol import EmptyMemoryError, Memory
from sqhn.testing.compare import Answer, call_text, error_text, form, shortened

CAPACITY = 8
"""How many samples a memory under test must be able to store."""
LEAST_VALUES = 8
"""How many values a sample must have, so that half of them tell it from others."""

FIELDS: dict[str, dict[str, type]] = {
    "learn": {"index": int, "grew": bool, "score": float, "step": int},
    "recall": {"x": np.ndarray, "index": int, "score": float},
    "recognize": {"old": bool, "score": float, "threshold": float},
}
"""The first fields of the answer to each verb, and their types for a single sample."""
RESULTS = {"learn": "Written", "recall": "Recalled", "recognize": "Recognized"}

Array = NDArray[Any]


class Invalid(NamedTuple):
    """An input that verbs must refuse with an error that contains one of the words."""

    x: Any
    words: tuple[str, ...]
    observed: Any = None


def answer_fields(verb: str, x: Any, observed: Any, answer: Any) -> Answer:
    """The fields of the answer to a verb; raises an AssertionError if it has others."""
    fields = tuple(FIELDS[verb])
    if getattr(answer, "_fields", ())[: len(fields)] != fields:
        call, got = call_text(verb, x, observed), f"a {type(answer).__name__}: {shortened(answer)}"
        raise AssertionError(f"{call}: expected {RESULTS[verb]}({', '.join(fields)}); got {got}")
    return {name: getattr(answer, name) for name in fields}


def check_answer(verb: str, x: Any, observed: Any, answer: Any, shape: tuple[int, ...]) -> None:
    """Raise an AssertionError unless the answer to a call has its fields, and these have their types and shapes.

    shape: of a single sample; a batch has one more leading axis.
    """
    call, count = call_text(verb, x, observed), None if x.shape == shape else len(x)
    for field, value in answer_fields(verb, x, observed, answer).items():
        form(f"{call}: {field}", value, FIELDS[verb][field], x.shape, count)


class Subject:
    """A maker of memories, and the samples to test them with.

    Samples are random and of high contrast, so no two are alike. The queries are the samples to learn, two of these
    with a little noise, and strangers that are never learned. In masks, some are observed in their first half, others
    in their second. Each access returns new copies, since a faulty memory may write into its arguments.
    """

    def __init__(self, make: Callable[[], Memory], shape: Sequence[int], cannot: Mapping[str, str]) -> None:
        self.make, self.shape, self.cannot = make, tuple(shape), cannot
        if math.prod(self.shape) < LEAST_VALUES:
            raise ValueError(f"samples to check with must have at least {LEAST_VALUES} values; got shape {self.shape}")
        self.calls = [(verb, False) for verb in FIELDS if verb not in cannot]  # verbs, and whether with a mask
        if self.can("missing values"):
            self.calls.append(("recall", True))
        rng = np.random.default_rng(0)
        size = (CAPACITY + 4, *self.shape)
        x = 192 * rng.integers(0, 2, size) + rng.integers(0, 64, size)
        noisy = np.clip(x[:2] + rng.integers(-6, 7, (2, *self.shape)), 0, 255)
        self._known, self._noisy, self._later, self._strange = (
            part.astype(np.float32) / np.float32(255) for part in (x[:6], noisy, x[6:CAPACITY], x[CAPACITY:])
        )

    @property
    def samples(self) -> Array:
        """The samples to learn."""
        return self._known.copy()

    @property
    def later(self) -> Array:
        """More samples, to learn after those."""
        return self._later.copy()

    @property
    def strangers(self) -> Array:
        """Samples that are never learned."""
        return self._strange.copy()

    @property
    def queries(self) -> Array:
        return np.concatenate([self._known, self._noisy, self._strange])

    @property
    def halves(self) -> Array:
        """Which values of the queries are observed."""
        first = (np.arange(math.prod(self.shape)) < math.prod(self.shape) // 2).reshape(self.shape)
        return np.stack([first if number % 2 else ~first for number in range(len(self.queries))])

    def can(self, ability: str) -> bool:
        """Whether the memory claims to pass a check."""
        return ability not in self.cannot

    def taught(self, x: Any = None) -> Any:
        """A new memory that learned the samples, or x."""
        memory = self.make()
        self.each(memory, "learn", self.samples if x is None else x)
        return memory

    # -- calls -----------------------------------------------------------------------------------------------------

    def attempt(self, memory: Any, verb: str, x: Any, observed: Any = None) -> Any:
        """Call a verb with x as it is; returns the answer, or the error that it raises."""
        try:
            return getattr(memory, verb)(x, **({} if observed is None else {"observed": observed}))
        except Exception as error:
            return error

    def call(self, memory: Any, verb: str, x: Any, observed: Any = None) -> Answer:
        """Call a verb with x as it is; the answer must have the fields of this verb."""
        answer = self.attempt(memory, verb, x, observed)
        if isinstance(answer, Exception):
            raise AssertionError(f"{call_text(verb, x, observed)} raised {error_text(answer)}") from answer
        return answer_fields(verb, x, observed, answer)

    def one(self, memory: Any, verb: str, x: Any, observed: Any = None) -> Answer:
        """Call a verb with one sample, as a batch of one if the memory takes no single samples."""
        if self.can("single samples"):
            return self.call(memory, verb, x, observed)
        answer = self.call(memory, verb, x[None], None if observed is None else observed[None])
        return {name: field[0] for name, field in answer.items()}

    def each(self, memory: Any, verb: str, x: Any, observed: Any = None) -> Answer:
        """Call a verb with a batch, sample by sample if the memory takes no batches."""
        return (self.call if self.can("batches") else self.loop)(memory, verb, x, observed)

    def loop(self, memory: Any, verb: str, x: Any, observed: Any = None) -> Answer:
        """Call a verb with every sample of a batch."""
        masks = [None] * len(x) if observed is None else observed
        answers = [self.one(memory, verb, sample, mask) for sample, mask in zip(x, masks)]
        return {name: np.stack([answer[name] for answer in answers]) for name in FIELDS[verb]}

    def answers(self, memory: Any, x: Any = None, observed: Any = None, loop: bool = False) -> Answer:
        """The answers to all queries, or to x; loop: one by one."""
        x, observed = (self.queries, self.halves) if x is None else (x, observed)
        found: Answer = {}
        for verb, masked in self.calls[1:]:
            answer = (self.loop if loop else self.each)(memory, verb, x, observed if masked else None)
            query = f"{verb} with observed" if masked else verb
            found |= {f"{query}: {field}": value for field, value in answer.items()}
        return found

    # -- errors ----------------------------------------------------------------------------------------------------

    def invalid_inputs(self) -> dict[str, list[tuple[str, Invalid]]]:
        """Verbs and inputs that they must refuse, by the name of the check."""
        *sides, last = self.shape
        x = self.samples
        batch, mask = (x, self.halves[: len(x)]) if self.can("batches") else (x[-1], self.halves[len(x) - 1])
        wrong_masks = [np.ones(shape, bool) for shape in ((*sides, last + 1), (2, *self.shape))]
        shapes = [(*sides, last + 1), self.shape[1:], (2, 2, *self.shape)]
        if self.can("batches"):
            shapes += [(3, *sides, last + 1), (0, *self.shape)]
        values = []
        for value in (np.nan, np.inf, -np.inf):
            wrong = batch.copy()
            wrong.reshape(-1)[-math.prod(self.shape) + 1] = value
            values.append(Invalid(wrong, (str(value), str(wrong.shape))))
        every = {
            "wrong shapes": [Invalid(np.zeros(shape, np.float32), (str(shape),)) for shape in shapes],
            "wrong dtypes": [
                Invalid(one, (word, str(one.dtype).lower(), str(one.shape)))
                for word, one in (("int64", batch.astype(np.int64)), ("str", np.full(self.shape, "dark")))
            ],
            "not finite": values + [one._replace(observed=np.ones(one.x.shape, bool)) for one in values],
            "bad masks": [
                *(Invalid(batch, (str(mask.shape),), mask) for mask in wrong_masks),
                *(Invalid(batch, (kind, str(mask.shape)), mask.astype(kind)) for kind in ("float64", "int64")),
            ],
        }
        return {
            kind: [
                (verb, one) for one in several for verb, masked in self.calls if masked == (one.observed is not None)
            ]
            for kind, several in every.items()
        }

    def assert_refused(self, memory: Any, verb: str, invalid: Invalid) -> None:
        """A verb refuses an invalid input with a ValueError or TypeError that names the problem."""
        call, name = call_text(verb, invalid.x, invalid.observed), invalid.words[0]
        got = self.attempt(memory, verb, invalid.x, invalid.observed)
        if not isinstance(got, Exception):
            raise AssertionError(f"{call}: expected a ValueError that names {name}; got {shortened(got)}")
        if not isinstance(got, (ValueError, TypeError)):
            raise AssertionError(f"{call}: expected a ValueError or TypeError; it raised {error_text(got)}") from got
        if not any(word in str(got).lower() for word in invalid.words):
            raise AssertionError(f"{call}: its error should name {name}; it says {got}") from got

    def assert_empty(self, memory: Any, which: str) -> None:
        """Recall of an empty memory raises EmptyMemoryError."""
        for ability, x in (("single samples", self.samples[0]), ("batches", self.samples)):
            if self.can(ability) and not isinstance(got := self.attempt(memory, "recall", x), EmptyMemoryError):
                call = call_text("recall", x)
                raise AssertionError(f"{call} of {which}: expected an EmptyMemoryError; got {shortened(got)}")
