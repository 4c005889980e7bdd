"""Does a memory keep what the three verbs promise? One suite for every memory, this package's and anybody's.

`check_memory` runs all of it, as scikit-learn's `check_estimator` does for estimators; `checks` gives its parts, for
`pytest.mark.parametrize`. Only NumPy is needed.

A memory names what it cannot do, and why: in an attribute `cannot`, a mapping of the names of checks to reasons, or in
the argument of that name, which comes first. A check that is named there must fail: an excuse for something that a
memory can do is a failure too. What a memory need not have (`reset`, `len`, pickles, deep copies) is excused where it
is not there. Four checks are abilities that the others build on:

    "single samples"   one sample can be given without a leading axis; else all are given as batches of one
    "batches"          many can be given at once; else all are given one by one
    "recognize"        there is such a verb; else nothing asks for it
    "missing values"   `recall` takes `observed`; else nothing is left out

>>> from sqhn.paper.baselines import NearestNeighbor
>>> report = check_memory(lambda: NearestNeighbor((4, 4), capacity=20), (4, 4))
>>> len(report.passed) == len(checks()), report.excused
(True, {})
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sqhn.protocol import EmptyMemoryError, Memory, Recognized

__all__ = ["ROOM", "Check", "Report", "check_memory", "checks"]

ROOM = 8
"""So many samples must fit into a memory that is checked."""

LEAST = 8
"""So many values must a sample have, to be told from others by half of them."""

ROUNDING = 1e-5
"""What may lie between two answers that are the same, or a sample and its exact recall, as a share of 1 + the value."""


class _Written(NamedTuple):
    """What `learn` of every memory tells; `Written` has more for those that can."""

    index: Any
    grew: Any
    score: Any
    step: Any


class _Recalled(NamedTuple):
    """What `recall` of every memory tells; `Recalled` has more for those that can."""

    x: Any
    index: Any
    score: Any


RESULTS: dict[str, type[Any]] = {"learn": _Written, "recall": _Recalled, "recognize": Recognized}
TYPES: dict[str, type] = {
    "index": int,
    "grew": bool,
    "score": float,
    "step": int,
    "old": bool,
    "threshold": float,
}

Array = NDArray[Any]


class Report(NamedTuple):
    """What came of the checks: the names of those passed, and of those excused with the reason for each."""

    passed: tuple[str, ...]
    excused: dict[str, str]


class Check:
    """One check: call it with a maker of memories and the shape of their samples, as `check_memory`.

    It returns None if the memory passes, the reason if it is excused, and raises AssertionError if it fails.
    """

    def __init__(self, name: str, needs: tuple[str, ...], run: Callable[[Subject], None]) -> None:
        self.name, self.needs, self._run = name, needs, run
        self.__name__, self.__doc__ = name, run.__doc__

    def __repr__(self) -> str:
        return f"<check {self.name!r}: {self.__doc__}>"

    def __call__(
        self, make: Callable[[], Memory], shape: Sequence[int], cannot: Mapping[str, str] | None = None
    ) -> str | None:
        subject = Subject(make, shape, cannot)
        for need in self.needs:
            if need in subject.cannot:
                return subject.cannot[need]
        reason = subject.cannot.get(self.name)
        try:
            self._run(subject)
        except NotThereError as missing:
            return reason or str(missing)
        except Exception as error:
            if reason is not None:
                return reason
            raise AssertionError(
                f"{self.name}: {error if isinstance(error, AssertionError) else _said(error)}"
            ) from error
        if reason is not None:
            raise AssertionError(f"{self.name}: the memory can, but its `cannot` says {reason!r}")
        return None


def checks() -> tuple[Check, ...]:
    """All checks, in order; the name of each is its `__name__`, and its docstring says what it asks."""
    return tuple(CHECKS)


def check_memory(make: Callable[[], Memory], shape: Sequence[int], cannot: Mapping[str, str] | None = None) -> Report:
    """Run all checks; raise an AssertionError that lists those that failed, what was asked and what came out.

    make: gives a new, empty memory for samples of that shape, with room for `ROOM`; each time the same one.
    shape: of one sample, of at least 8 values.
    cannot: names of checks that the memory cannot pass, and why; added to what its own attribute `cannot` says.
    """
    passed: list[str] = []
    excused: dict[str, str] = {}
    failed: list[AssertionError] = []
    for check in CHECKS:
        try:
            reason = check(make, shape, cannot)
        except AssertionError as error:
            failed.append(error)
        else:
            if reason is None:
                passed.append(check.name)
            else:
                excused[check.name] = reason
    if failed:
        lines = "".join(f"\n- {error}" for error in failed)
        raise AssertionError(f"{len(failed)} of {len(CHECKS)} checks failed:{lines}") from failed[0]
    return Report(tuple(passed), excused)


class NotThereError(Exception):
    """A memory does not have what only some have; the message says what."""


class Subject:
    """Memories under test, asked in the ways that they can be asked, and the samples to ask them with.

    Samples are random and of high contrast: none is like another. Questions are the samples to learn, two of them with
    a little noise, and strangers that are never learned; some are observed in their first half, others in their second.
    Every look at them gives new copies: a memory may write into what it is given.
    """

    def __init__(self, make: Callable[[], Memory], shape: Sequence[int], cannot: Mapping[str, str] | None) -> None:
        self.make, self.shape = make, tuple(shape)
        if math.prod(self.shape) < LEAST:
            raise ValueError(f"samples to check with must have at least {LEAST} values; got shape {self.shape}")
        self.cannot = _excuses({**getattr(make(), "cannot", {}), **(cannot or {})})
        self.verbs = [verb for verb in RESULTS if verb not in self.cannot]
        rng = np.random.default_rng(0)
        size = (ROOM + 4, *self.shape)
        x = 192 * rng.integers(0, 2, size) + rng.integers(0, 64, size)
        noisy = np.clip(x[:2] + rng.integers(-6, 7, (2, *self.shape)), 0, 255)
        self._known, self._noisy, self._later, self._strange = x[:6], noisy, x[6:ROOM], x[ROOM:]

    @property
    def bytes(self) -> Array:
        """The questions as uint8."""
        return np.concatenate([self._known, self._noisy, self._strange]).astype(np.uint8)

    @property
    def questions(self) -> Array:
        return _fractions(self.bytes)

    @property
    def samples(self) -> Array:
        """What is learned."""
        return _fractions(self._known)

    @property
    def later(self) -> Array:
        """What is learned after that."""
        return _fractions(self._later)

    @property
    def strangers(self) -> Array:
        """What is never learned."""
        return _fractions(self._strange)

    @property
    def halves(self) -> Array:
        """Which values of the questions are observed."""
        first = (np.arange(math.prod(self.shape)) < math.prod(self.shape) // 2).reshape(self.shape)
        return np.stack([first if number % 2 else ~first for number in range(len(self.questions))])

    def can(self, ability: str) -> bool:
        return ability not in self.cannot

    def new(self) -> Any:
        return self.make()

    def taught(self, x: Any = None) -> Any:
        """A new memory that learned the samples."""
        memory = self.new()
        self.each(memory, "learn", self.samples if x is None else x)
        return memory

    def ask(self, memory: Any, verb: str, x: Any, observed: Any = None) -> Any:
        """Call a verb with x as it is."""
        asked, more = _asked(verb, x, observed), {} if observed is None else {"observed": observed}
        try:
            answer = getattr(memory, verb)(x, **more)
        except Exception as error:
            raise AssertionError(f"{asked} raised {_said(error)}") from error
        kind = RESULTS[verb]
        many = len(kind._fields)
        if getattr(answer, "_fields", ())[:many] != kind._fields:
            name, fields = kind.__name__.removeprefix("_"), ", ".join(kind._fields)
            raise AssertionError(f"{asked}: expected {name}({fields}); got {_brief(answer)}")
        return kind(*answer[:many])

    def one(self, memory: Any, verb: str, x: Any, observed: Any = None) -> Any:
        """Call a verb with one sample; it goes as a batch of one where single samples are not taken."""
        if self.can("single samples"):
            return self.ask(memory, verb, x, observed)
        answer = self.ask(memory, verb, x[None], None if observed is None else observed[None])
        return RESULTS[verb](*(field[0] for field in answer))

    def each(self, memory: Any, verb: str, x: Any, observed: Any = None) -> Any:
        """Call a verb with a batch; its samples go one by one where batches are not taken."""
        return self.ask(memory, verb, x, observed) if self.can("batches") else self.loop(memory, verb, x, observed)

    def loop(self, memory: Any, verb: str, x: Any, observed: Any = None) -> Any:
        """Call a verb with every sample of a batch."""
        masks = [None] * len(x) if observed is None else observed
        done = [self.one(memory, verb, sample, mask) for sample, mask in zip(x, masks)]
        return RESULTS[verb](*(np.stack(field) for field in zip(*done)))

    def form(self, x: Array) -> Array:
        """A batch, or its last sample where batches are not taken."""
        return x if self.can("batches") else x[-1]

    def answers(self, memory: Any, x: Any = None, observed: Any = None, loop: bool = False) -> dict[str, Any]:
        """What a memory says to all questions, or to x."""
        x, observed = (self.questions, self.halves) if x is None else (x, observed)
        ask = self.loop if loop else self.each
        found = {"recall": ask(memory, "recall", x)}
        if self.can("missing values"):
            found["recall with observed"] = ask(memory, "recall", x, observed)
        if self.can("recognize"):
            found["recognize"] = ask(memory, "recognize", x)
        return found

    def refused(self, memory: Any, verb: str, bad: Bad) -> None:
        """Raise unless a verb refuses something bad, and says what is bad."""
        asked, more = _asked(verb, bad.x, bad.observed), {} if bad.observed is None else {"observed": bad.observed}
        try:
            answer = getattr(memory, verb)(bad.x, **more)
        except (ValueError, TypeError) as error:
            if not any(word in str(error).lower() for word in bad.words):
                raise AssertionError(f"{asked}: its error should name {bad.words[0]}; it says {error}") from error
        except Exception as error:
            raise AssertionError(f"{asked}: expected a ValueError or TypeError; it raised {_said(error)}") from error
        else:
            raise AssertionError(f"{asked}: expected a ValueError that names {bad.words[0]}; got {_brief(answer)}")

    def empty(self, memory: Any, which: str) -> None:
        """Raise unless recall says that there is nothing yet."""
        for ask, x in ((self.one, self.samples[0]), (self.each, self.samples)):
            try:
                answer = ask(memory, "recall", x)
            except AssertionError as error:
                if not isinstance(error.__cause__, EmptyMemoryError):
                    raise AssertionError(f"of {which}, {error}; expected an EmptyMemoryError") from error
            else:
                asked = _asked("recall", x)
                raise AssertionError(f"of {which}, {asked}: expected an EmptyMemoryError; got {_brief(answer)}")


class Bad(NamedTuple):
    """Something that must be refused, and the words of which the error must have one."""

    x: Any
    words: tuple[str, ...]
    observed: Any = None


CHECKS: list[Check] = []


def _check(name: str, *needs: str) -> Callable[[Callable[[Subject], None]], Check]:
    """Make a function a check."""

    def add(run: Callable[[Subject], None]) -> Check:
        CHECKS.append(Check(name, needs, run))
        return CHECKS[-1]

    return add


# -- answers ---------------------------------------------------------------------------------------------------------


@_check("made alike")
def _made_alike(s: Subject) -> None:
    """Two new memories that learn the same answer the same; most other checks compare such two."""
    one, other = s.new(), s.new()
    written, wanted = (s.each(memory, "learn", s.samples) for memory in (one, other))
    _same("of two memories made alike, learn", written, wanted)
    _same_answers("of two memories made and taught alike, {}", s.answers(one), s.answers(other))


@_check("single samples")
def _single_samples(s: Subject) -> None:
    """One sample gives plain Python values, and an array of its own shape."""
    memory = s.new()
    for verb in s.verbs:
        for observed in (None, s.halves[0]) if verb == "recall" and s.can("missing values") else (None,):
            answer = s.ask(memory, verb, s.samples[0], observed)
            for field, value in zip(answer._fields, answer):
                asked = f"{_asked(verb, s.samples[0], observed)}: {field}"
                if field == "x":
                    _floats(asked, value, s.shape)
                elif type(value) is not TYPES[field]:
                    wanted, got = TYPES[field].__name__, type(value)
                    raise AssertionError(f"{asked} should be a plain {wanted}; got {got.__module__}.{got.__qualname__}")


@_check("batches")
def _batches(s: Subject) -> None:
    """A batch, be it of one, gives arrays with its leading axis."""
    memory = s.new()
    for count in (3, 1):
        for verb in s.verbs:
            x = s.samples[:count]
            for observed in (None, s.halves[:count]) if verb == "recall" and s.can("missing values") else (None,):
                answer = s.ask(memory, verb, x, observed)
                for field, value in zip(answer._fields, answer):
                    asked = f"{_asked(verb, x, observed)}: {field}"
                    if field == "x":
                        _floats(asked, value, x.shape)
                    else:
                        _numbers(asked, value, TYPES[field], count)


@_check("recognize")
def _recognize(s: Subject) -> None:
    """There is such a verb, and old is what scores at least the threshold."""
    judged = s.each(s.taught(), "recognize", s.questions)
    for old, score, threshold in zip(*judged):
        slack = ROUNDING * (1 + abs(threshold))
        if not (score >= threshold - slack if old else score < threshold + slack):
            raise AssertionError(f"recognize: old is {old}, but the score {score} and the threshold {threshold}")


@_check("missing values")
def _missing_values(s: Subject) -> None:
    """`recall` takes `observed`; what is not observed may be anything, NaN too, and does not matter."""
    memory = s.taught()
    wanted = s.each(memory, "recall", s.questions, s.halves)
    for rubbish in (0.0, np.nan, -np.inf, 1e30):
        x = np.where(s.halves, s.questions, np.float32(rubbish))
        got = s.each(memory, "recall", x, s.halves)
        _same(f"recall with {rubbish} where nothing was observed", got, wanted, ROUNDING)


@_check("batch equals loop", "batches")
def _batch_equals_loop(s: Subject) -> None:
    """To learn a batch is to learn its samples one after another."""
    batch, loop = s.new(), s.new()
    for x in (s.samples, s.later):
        _same("learn of a batch", s.each(batch, "learn", x), s.loop(loop, "learn", x), ROUNDING)
    _same_answers("after learning in batches, {}", s.answers(batch), s.answers(loop), ROUNDING)


@_check("answers one by one", "batches")
def _answers_one_by_one(s: Subject) -> None:
    """To ask about a batch is to ask about its samples one by one."""
    memory = s.taught()
    _same_answers("{} of a batch", s.answers(memory), s.answers(memory, s.questions, s.halves, loop=True), ROUNDING)


@_check("steps from 1")
def _steps_from_1(s: Subject) -> None:
    """`Written.step` counts all samples from 1."""
    memory = s.new()
    done = 0
    for x in (s.samples[:1], s.samples[1:], s.later):
        step = s.each(memory, "learn", x).step
        wanted = list(range(done + 1, done + len(x) + 1))
        if np.asarray(step).tolist() != wanted:
            raise AssertionError(f"{_asked('learn', x)} after {done} others: expected the steps {wanted}; got {step}")
        done += len(x)


# -- memory ----------------------------------------------------------------------------------------------------------


@_check("one shot")
def _one_shot(s: Subject) -> None:
    """What was learned once is recalled exactly, and by the neuron that was written, whatever was learned since."""
    memory = s.new()
    written: list[Any] = []
    for start, stop in ((0, 1), (1, 3), (3, 6)):
        written.extend(np.asarray(s.each(memory, "learn", s.samples[start:stop]).index).tolist())
        found = s.each(memory, "recall", s.samples[:stop])
        _near(f"recall of {stop} samples that were learned", found.x, s.samples[:stop])
        if min(written) >= 0 and list(found.index) != written:
            raise AssertionError(f"learn wrote the neurons {written}; recall of them names {list(found.index)}")


@_check("from half", "missing values")
def _from_half(s: Subject) -> None:
    """What was learned is recalled exactly from half of it."""
    halves = s.halves[: len(s.samples)]
    found = s.each(s.taught(), "recall", np.where(halves, s.samples, np.float32(0)), halves)
    _near("recall of samples that were learned, half of each observed", found.x, s.samples)


@_check("one mask for all", "missing values", "batches")
def _one_mask_for_all(s: Subject) -> None:
    """`observed` of the shape of one sample serves a whole batch, given by name or by place."""
    memory, mask = s.taught(), s.halves[0]
    wanted = s.ask(memory, "recall", s.questions, np.broadcast_to(mask, s.questions.shape).copy())
    _same("recall with one mask for all", s.ask(memory, "recall", s.questions, mask), wanted, ROUNDING)
    _same("recall(x, mask)", memory.recall(s.questions, mask), wanted, ROUNDING)


@_check("old and new", "recognize")
def _old_and_new(s: Subject) -> None:
    """`recognize` tells what was learned from what was not."""
    memory = s.taught()
    for which, x, wanted in (("were", s.samples, True), ("were not", s.strangers, False)):
        old = np.asarray(s.each(memory, "recognize", x).old)
        if (old != wanted).any():
            raise AssertionError(f"recognize of samples that {which} learned: expected old {wanted}; got {old}")


@_check("empty recall")
def _empty_recall(s: Subject) -> None:
    """A memory that has learned nothing raises `EmptyMemoryError`, and can learn after that."""
    memory = s.new()
    s.empty(memory, "an empty memory")
    _same("after recall of an empty memory, learn", s.each(memory, "learn", s.samples), _first(s))


@_check("empty recognize", "recognize")
def _empty_recognize(s: Subject) -> None:
    """To a memory that has learned nothing, all is new."""
    judged = s.each(s.new(), "recognize", s.samples)
    if np.any(judged.old) or not np.all(np.less(judged.score, judged.threshold)):
        raise AssertionError(f"of an empty memory, recognize: expected scores below the thresholds; got {judged}")


# -- forms of samples ------------------------------------------------------------------------------------------------


@_check("bytes")
def _bytes(s: Subject) -> None:
    """uint8 is read as /255."""
    memory, wanted = s.taught(s.bytes[: len(s.samples)]), s.answers(s.taught())
    _same_answers("after learning bytes, {}", s.answers(memory), wanted, ROUNDING)
    _same_answers("after learning bytes, {} with bytes", s.answers(memory, s.bytes, s.halves), wanted, ROUNDING)


@_check("float64")
def _float64(s: Subject) -> None:
    """float64 says the same as float32, up to rounding."""
    wide = s.bytes / 255
    memory, wanted = s.taught(wide[: len(s.samples)]), s.answers(s.taught())
    _same_answers("after learning float64, {}", s.answers(memory), wanted, ROUNDING)
    _same_answers("after learning float64, {} with float64", s.answers(memory, wide, s.halves), wanted, ROUNDING)


@_check("layouts")
def _layouts(s: Subject) -> None:
    """Arrays in Fortran order, with gaps, read-only ones and nested lists are taken."""
    wanted = s.answers(s.taught())
    for name, form in (
        ("arrays in Fortran order", np.asfortranarray),
        ("every other value of larger arrays", lambda x: np.repeat(x, 2, axis=-1)[..., ::2]),
        ("read-only arrays", _read_only),
        ("nested lists", np.ndarray.tolist),
    ):
        got = s.answers(s.taught(form(s.samples)), form(s.questions), form(s.halves))
        _same_answers(f"learned and asked with {name}, {{}}", got, wanted, ROUNDING)


@_check("negative strides")
def _negative_strides(s: Subject) -> None:
    """Arrays that were turned around without a copy are taken."""
    samples, questions, halves = (np.flip(np.flip(x).copy()) for x in (s.samples, s.questions, s.halves))
    got = s.answers(s.taught(samples), questions, halves)
    _same_answers("learned and asked with turned arrays, {}", got, s.answers(s.taught()), ROUNDING)


@_check("byte order")
def _byte_order(s: Subject) -> None:
    """Arrays in the other byte order, as many files have them, are taken."""
    other = np.dtype(np.float32).newbyteorder()
    got = s.answers(s.taught(s.samples.astype(other)), s.questions.astype(other), s.halves)
    _same_answers(f"learned and asked with {other.str}, {{}}", got, s.answers(s.taught()), ROUNDING)


@_check("input unchanged")
def _input_unchanged(s: Subject) -> None:
    """No verb writes into what it is given."""
    for kind in (np.float32, np.float64) if s.can("float64") else (np.float32,):
        memory = s.new()
        holes = np.where(s.halves, s.questions, np.float32(np.nan)).astype(kind)
        for verb in s.verbs:
            for ask, x in ((s.each, s.samples), (s.one, s.samples[0])):
                given = x.astype(kind)
                ask(memory, verb, given)
                _unchanged(_asked(verb, given), given, x.astype(kind))
        if s.can("missing values"):
            for ask, x, mask in ((s.each, holes, s.halves), (s.one, holes[0], s.halves[0])):
                given, observed = x.copy(), mask.copy()
                ask(memory, "recall", given, observed)
                _unchanged(_asked("recall", given, observed), given, x)
                _unchanged(_asked("recall", given, observed) + ": observed", observed, mask)


@_check("shared arrays")
def _shared_arrays(s: Subject) -> None:
    """Nobody's later writing into an array that was learned, asked with or answered shows anywhere else."""
    for ask, x in ((s.each, s.samples), (s.one, s.samples[0])):
        memory, given = s.new(), x.copy()
        ask(memory, "learn", given)
        before = s.answers(memory)
        given[...] = 1 - given
        _same_answers("after the array that was learned was written to, {}", s.answers(memory), before)
        given[...] = x
        found = ask(memory, "recall", given).x
        kept = found.copy()
        given[...] = 1 - given
        _unchanged("after the array that was asked with was written to, what was recalled", found, kept)
        if found.flags.writeable:
            found[...] = 1 - found
        _same_answers("after what was recalled was written to, {}", s.answers(memory), before)


# -- what is refused -------------------------------------------------------------------------------------------------


@_check("wrong shapes")
def _wrong_shapes(s: Subject) -> None:
    """Samples of another shape and empty batches are refused by an error that names the shape."""
    _refuses(s, _bad_shapes(s))


@_check("wrong dtypes")
def _wrong_dtypes(s: Subject) -> None:
    """int64 and strings are refused by an error that names the dtype or the shape."""
    _refuses(s, _bad_dtypes(s))


@_check("not finite")
def _not_finite(s: Subject) -> None:
    """NaN and infinity are refused by an error that names the value or the shape, where they are not left out."""
    bad = _bad_values(s)
    _refuses(s, bad)
    if s.can("missing values"):
        memory = s.taught()
        for one in bad:
            s.refused(memory, "recall", one._replace(observed=np.ones(np.shape(one.x), bool)))


@_check("bad masks", "missing values")
def _refused_masks(s: Subject) -> None:
    """`observed` of another shape or not boolean is refused by an error that names the shape or the dtype."""
    memory = s.taught()
    for bad in _bad_masks(s):
        s.refused(memory, "recall", bad)


@_check("refusal changes nothing")
def _refusal_changes_nothing(s: Subject) -> None:
    """A verb that refuses something leaves the memory as it was."""
    every = {"shapes": _bad_shapes(s), "dtypes": _bad_dtypes(s), "values": _bad_values(s)}
    if s.can("missing values"):
        every["masks"] = _bad_masks(s)
    memory, other, empty = s.taught(), s.taught(), s.new()
    before = s.answers(memory)
    for kind, several in every.items():
        for bad in several:
            if bad.observed is None:  # whether it should be refused is another check
                memory = memory if _raises(memory, "learn", bad) else s.taught()
                empty = empty if _raises(empty, "learn", bad) else s.new()
            for verb in s.verbs[1:] if bad.observed is None else ("recall",):
                _raises(memory, verb, bad)
        _same_answers(f"after samples with bad {kind} were refused, {{}}", s.answers(memory), before)
    for new in (s.later, s.samples):
        got, wanted = s.each(memory, "learn", new), s.each(other, "learn", new)
        _same("after other samples were refused, learn", got, wanted)
    _same_answers("after other samples were refused and more were learned, {}", s.answers(memory), s.answers(other))
    if s.can("empty recall"):
        s.empty(empty, "an empty memory that refused samples")
    _same("of an empty memory that refused samples, learn", s.each(empty, "learn", s.samples), _first(s))


@_check("asking changes nothing")
def _asking_changes_nothing(s: Subject) -> None:
    """Asked twice, a memory answers the same, and learns afterwards as if it had not been asked."""
    memory, other = s.taught(), s.taught()
    first = s.answers(memory)
    _same_answers("asked twice, {}", s.answers(memory), first)
    got, wanted = s.each(memory, "learn", s.later), s.each(other, "learn", s.later)
    _same("after it was asked, learn", got, wanted)
    _same_answers("after it was asked and learned more, {}", s.answers(memory), s.answers(other))


# -- what only some have ---------------------------------------------------------------------------------------------


@_check("reset")
def _reset(s: Subject) -> None:
    """`reset`, if there is one, leaves an empty memory that learns as a new one does."""
    memory = s.taught()
    if not hasattr(memory, "reset"):
        raise NotThereError("it has no reset()")
    memory.reset()
    if s.can("empty recall"):
        s.empty(memory, "a memory after reset()")
    if s.can("recognize") and s.can("empty recognize") and np.any(s.each(memory, "recognize", s.samples).old):
        raise AssertionError("after reset(), recognize calls samples old")
    _same("after reset(), learn", s.each(memory, "learn", s.samples), _first(s))
    _same_answers("after reset() and learning again, {}", s.answers(memory), s.answers(s.taught()))


@_check("len")
def _len(s: Subject) -> None:
    """`len`, if there is one, counts what is stored."""
    memory = s.new()
    if not hasattr(memory, "__len__"):
        raise NotThereError("it has no len()")
    count = 0
    for x in (s.samples[:0], s.samples[:1], s.samples[1:], s.later):
        if len(x):
            s.each(memory, "learn", x)
        count += len(x)
        if len(memory) != count:
            raise AssertionError(
                f"len() after {count} different samples were learned: expected {count}; got {len(memory)}"
            )


@_check("pickle")
def _pickle(s: Subject) -> None:
    """A pickle, if there can be one, is the same memory, and lives on by itself."""
    _copied(s, "a pickle", lambda memory: pickle.loads(pickle.dumps(memory)))


@_check("deepcopy")
def _deepcopy(s: Subject) -> None:
    """A deep copy, if there can be one, is the same memory, and lives on by itself."""
    _copied(s, "a deep copy", copy.deepcopy)


# -- bad samples -----------------------------------------------------------------------------------------------------


def _bad_shapes(s: Subject) -> list[Bad]:
    *sides, last = s.shape
    shapes = [(*sides, last + 1), s.shape[1:], (2, 2, *s.shape)]
    if s.can("batches"):
        shapes += [(3, *sides, last + 1), (0, *s.shape)]
    return [Bad(np.zeros(shape, np.float32), (str(shape),)) for shape in shapes]


def _bad_dtypes(s: Subject) -> list[Bad]:
    words = {"int64": s.form(s.samples).astype(np.int64), "str": np.full(s.shape, "dark")}
    return [Bad(x, (word, str(x.dtype).lower(), str(x.shape))) for word, x in words.items()]


def _bad_values(s: Subject) -> list[Bad]:
    found = []
    for value in (np.nan, np.inf, -np.inf):
        x = s.samples
        x.reshape(len(x), -1)[-1, 1] = value
        found.append(Bad(s.form(x), (str(value), str(s.form(x).shape))))
    return found


def _bad_masks(s: Subject) -> list[Bad]:
    *sides, last = s.shape
    x, mask = s.form(s.samples), s.form(s.halves[: len(s.samples)])
    shapes, kinds = ((*sides, last + 1), (2, *s.shape)), ("float64", "int64")
    return [
        *(Bad(x, (str(shape),), np.ones(shape, bool)) for shape in shapes),
        *(Bad(x, (kind, str(mask.shape)), mask.astype(kind)) for kind in kinds),
    ]


def _refuses(s: Subject, every: list[Bad]) -> None:
    memory = s.taught()
    for bad in every:
        for verb in s.verbs:
            s.refused(memory, verb, bad)


def _raises(memory: Any, verb: str, bad: Bad) -> bool:
    try:
        getattr(memory, verb)(bad.x, **({} if bad.observed is None else {"observed": bad.observed}))
    except Exception:
        return True
    return False


# -- small parts -----------------------------------------------------------------------------------------------------


def _excuses(cannot: Mapping[str, str]) -> Mapping[str, str]:
    """What a memory cannot do, if it is said as it should be."""
    names = [check.name for check in CHECKS]
    for name, reason in cannot.items():
        if name not in names:
            raise ValueError(f"`cannot` names {name!r}, which is no check; there are {', '.join(map(repr, names))}")
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"`cannot` must give a reason for {name!r}; got {reason!r}")
    if "single samples" in cannot and "batches" in cannot:
        raise ValueError("`cannot` names both 'single samples' and 'batches': such a memory takes nothing")
    return cannot


def _first(s: Subject) -> Any:
    """What a new memory says when it learns the samples."""
    return s.each(s.new(), "learn", s.samples)


def _copied(s: Subject, which: str, make: Callable[[Any], Any]) -> None:
    memory = s.taught()
    try:
        other = make(memory)
    except Exception as error:
        raise NotThereError(f"there is no {which.removeprefix('a ')} of it: {_said(error)}") from error
    before = s.answers(memory)
    _same_answers(f"of {which}, {{}}", s.answers(other), before)
    written = s.each(other, "learn", s.later)
    _same_answers(f"after {which} learned more, {{}} of the memory itself", s.answers(memory), before)
    _same(f"of {which}, learn", written, s.each(memory, "learn", s.later))
    _same_answers(f"of {which} that learned more, {{}}", s.answers(other), s.answers(memory))


def _fractions(x: Array) -> Array:
    """Bytes as float32."""
    return x.astype(np.float32) / np.float32(255)


def _read_only(x: Array) -> Array:
    x = x.copy()
    x.flags.writeable = False
    return x


def _asked(verb: str, x: Any, observed: Any = None) -> str:
    """A question in words."""
    mask = "" if observed is None else f", observed={_form(observed)}"
    return f"{verb}({_form(x)}{mask})"


def _form(x: Any) -> str:
    return f"{x.dtype} array of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _brief(answer: object) -> str:
    """An answer in one line."""
    words = " ".join(repr(answer).split())
    return words if len(words) <= 200 else words[:200] + "..."


def _floats(asked: str, x: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.shape != shape:
        raise AssertionError(f"{asked} should be a float32 array of shape {shape}; got {_form(x)}")


def _numbers(asked: str, x: Any, kind: type, count: int) -> None:
    right = {int: np.integer, bool: np.bool_, float: np.float64}[kind]
    if not isinstance(x, np.ndarray) or not np.issubdtype(x.dtype, right) or x.shape != (count,):
        raise AssertionError(f"{asked} should be an array of {kind.__name__} of shape {(count,)}; got {_form(x)}")


def _unchanged(asked: str, x: Array, before: Array) -> None:
    close = _close(x, before, 0.0)
    if not close.all():
        place = tuple(int(i) for i in np.argwhere(~close)[0])
        raise AssertionError(f"{asked}: the value at {place} was {before[place]}, and is {x[place]}")


def _near(asked: str, x: Any, wanted: Array) -> None:
    """Raise unless samples are recalled exactly, rounding apart."""
    off = np.abs(np.asarray(x, np.float64) - wanted).reshape(len(wanted), -1).max(axis=1)
    if not (off <= ROUNDING).all():
        worst = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
        raise AssertionError(f"{asked}: expected them exactly; sample {worst} came back off by {off[worst]:.3g}")


def _same_answers(asked: str, got: Mapping[str, Any], wanted: Mapping[str, Any], tolerance: float = 0.0) -> None:
    for question, answer in wanted.items():
        _same(asked.format(question), got[question], answer, tolerance)


def _same(asked: str, got: Any, wanted: Any, tolerance: float = 0.0) -> None:
    """Raise unless two answers are the same: to the last bit, or up to rounding."""
    for field, a, b in zip(wanted._fields, got, wanted):
        one, other = np.asarray(a), np.asarray(b)
        if one.shape != other.shape:
            raise AssertionError(f"{asked}: {field} should have shape {other.shape}; got {one.shape}")
        close = _close(one, other, tolerance)
        if not close.all():
            place = tuple(int(i) for i in np.argwhere(~close)[0])
            where = "".join(f"[{i}]" for i in place)
            raise AssertionError(f"{asked}: {field}{where} should be {other[place]}; got {one[place]}")


def _close(a: Array, b: Array, tolerance: float) -> NDArray[np.bool_]:
    if "f" not in (a.dtype.kind, b.dtype.kind):
        return np.asarray(a == b)
    return np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
