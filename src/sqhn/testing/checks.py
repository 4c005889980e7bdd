"""The checks of `sqhn.testing`, one function each; its docstring states the requirement."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.protocol import Memory
from sqhn.testing import compare
from sqhn.testing.subject import FIELDS, Subject


class MissingError(Exception):
    """A memory lacks a method that it need not have; the message names it."""


class Check:
    """A check: call it with a maker of memories and the shape of their samples, as `check_memory`.

    It returns None if the memory passes and the reason if it is excused, and raises AssertionError if it fails.
    """

    def __init__(self, name: str, about: str | None, needs: tuple[str, ...], run: Callable[[Subject], None]) -> None:
        self.__name__, self.__doc__, self.needs, self._run = name, about, needs, run

    def __repr__(self) -> str:
        return f"<check {self.__name__!r}: {self.__doc__}>"

    def __call__(
        self, make: Callable[[], Memory], shape: Sequence[int], cannot: Mapping[str, str] | None = None
    ) -> str | None:
        excuses: dict[str, str] = {**getattr(make(), "cannot", {}), **(cannot or {})}
        subject = Subject(make, shape, excuses)
        check_excuses(excuses)
        for need in self.needs:
            if need in excuses:
                return excuses[need]
        name, reason = self.__name__, excuses.get(self.__name__)
        try:
            self._run(subject)
        except Exception as error:
            if reason is not None or isinstance(error, MissingError):
                return reason or str(error)
            message = str(error) if isinstance(error, AssertionError) else compare.error_text(error)
            raise AssertionError(f"{name}: {message}") from error
        if reason is not None:
            raise AssertionError(f"{name}: the memory passes this check, but its `cannot` says {reason!r}")
        return None


CHECKS: list[Check] = []


def check(name: str, *needs: str) -> Callable[[Callable[[Subject], None]], Check]:
    """Turn a function into a check; needs: abilities without which the check is excused."""

    def add(run: Callable[[Subject], None]) -> Check:
        CHECKS.append(Check(name, run.__doc__, needs, run))
        return CHECKS[-1]

    return add


def check_excuses(cannot: Mapping[str, str]) -> None:
    """Raise unless every excuse names a check and gives a reason."""
    names = [one.__name__ for one in CHECKS]
    for name, reason in cannot.items():
        if name not in names:
            raise ValueError(
                f"`cannot` names {name!r}, which is no check; the checks are {', '.join(map(repr, names))}"
            )
        if not str(reason or "").strip():
            raise ValueError(f"`cannot` must give a reason for {name!r}; got {reason!r}")
    if "single samples" in cannot and "batches" in cannot:
        raise ValueError("`cannot` names both 'single samples' and 'batches', so the memory takes no samples at all")


def learn_alike(s: Subject, when: str, memory: Any, other: Any, x: NDArray[Any]) -> None:
    """A memory gives the same answers as another one while both learn samples, and afterwards."""
    written = s.each(other, "learn", x)
    compare.same(f"{when}, learn", s.each(memory, "learn", x), written)
    compare.same(f"{when} and learning", s.answers(memory), s.answers(other))


# -- answers ---------------------------------------------------------------------------------------------------------


@check("made alike")
def made_alike(s: Subject) -> None:
    """Two new memories that learn the same samples give the same answers; most other checks compare such two."""
    learn_alike(s, "after making a second memory", s.make(), s.make(), s.samples)


def answers_have_form(s: Subject, samples: int | slice, count: int | None) -> None:
    """The fields of all answers to some samples have their types and shapes."""
    memory, x = s.make(), s.samples[samples]
    for verb, masked in s.calls:
        observed = s.halves[samples] if masked else None
        for field, value in s.call(memory, verb, x, observed).items():
            what = f"{compare.call_text(verb, x, observed)}: {field}"
            compare.form(what, value, FIELDS[verb][field], x.shape, count)


@check("single samples")
def single_samples(s: Subject) -> None:
    """A single sample gives plain Python values, and an array of its own shape."""
    answers_have_form(s, 0, None)


@check("batches")
def batches(s: Subject) -> None:
    """A batch, even of one sample, gives arrays with its leading axis."""
    for count in (3, 1):
        answers_have_form(s, slice(count), count)


@check("recognize")
def recognize(s: Subject) -> None:
    """The memory has this verb, and calls old exactly those samples whose score reaches the threshold."""
    judged = s.each(s.taught(), "recognize", s.queries)
    for old, score, threshold in zip(*judged.values()):
        slack = compare.ROUNDING * (1 + abs(threshold))
        if not (score >= threshold - slack if old else score < threshold + slack):
            raise AssertionError(f"recognize: old is {old}, but the score is {score} and the threshold {threshold}")


@check("missing values")
def missing_values(s: Subject) -> None:
    """`recall` takes `observed`; unobserved values have no effect, even if they are NaN."""
    memory = s.taught()
    wanted = s.each(memory, "recall", s.queries, s.halves)
    for filler in (0.0, np.nan, -np.inf, 1e30):
        x = np.where(s.halves, s.queries, np.float32(filler))
        got = s.each(memory, "recall", x, s.halves)
        compare.same(
            f"recall with {filler} in place of the values that are not observed", got, wanted, compare.ROUNDING
        )


@check("batch equals loop", "batches")
def batch_equals_loop(s: Subject) -> None:
    """Learning a batch is the same as learning its samples one after another."""
    batch, loop = s.make(), s.make()
    for x in (s.samples, s.later):
        compare.same("learn of a batch", s.each(batch, "learn", x), s.loop(loop, "learn", x), compare.ROUNDING)
    compare.same("after learning in batches", s.answers(batch), s.answers(loop), compare.ROUNDING)


@check("answers one by one", "batches")
def answers_one_by_one(s: Subject) -> None:
    """A batch of queries gets the same answers as its samples one by one."""
    memory = s.taught()
    wanted = s.answers(memory, loop=True)
    compare.same("a batch", s.answers(memory), wanted, compare.ROUNDING)


@check("steps from 1")
def steps_from_1(s: Subject) -> None:
    """`Written.step` counts all samples from 1."""
    memory, done = s.make(), 0
    for x in (s.samples[:1], s.samples[1:], s.later):
        step, wanted = s.each(memory, "learn", x)["step"], list(range(done + 1, done + len(x) + 1))
        if np.asarray(step).tolist() != wanted:
            raise AssertionError(
                f"{compare.call_text('learn', x)} after {done} other samples: expected the steps {wanted}; got {step}"
            )
        done += len(x)


# -- recall and recognition --------------------------------------------------------------------------------------------


@check("one shot")
def one_shot(s: Subject) -> None:
    """A sample learned once is recalled exactly, from the neuron that was written, even after others are learned."""
    memory = s.make()
    written: list[Any] = []
    for start, stop in ((0, 1), (1, 3), (3, 6)):
        written.extend(np.asarray(s.each(memory, "learn", s.samples[start:stop])["index"]).tolist())
        found = s.each(memory, "recall", s.samples[:stop])
        compare.same(f"recall of {stop} learned samples", found, {"x": s.samples[:stop]}, compare.ROUNDING)
        if min(written) >= 0 and list(found["index"]) != written:
            raise AssertionError(f"learn returned the neurons {written}, but recall of the samples {found['index']}")


@check("from half", "missing values")
def from_half(s: Subject) -> None:
    """A learned sample is recalled exactly from half of it."""
    halves = s.halves[: len(s.samples)]
    found = s.each(s.taught(), "recall", np.where(halves, s.samples, np.float32(0)), halves)
    compare.same("recall of learned samples, half of each observed", found, {"x": s.samples}, compare.ROUNDING)


@check("one mask for all", "missing values", "batches")
def one_mask_for_all(s: Subject) -> None:
    """`observed` with the shape of one sample serves a whole batch, passed by name or by position."""
    memory, mask = s.taught(), s.halves[0]
    wanted = s.call(memory, "recall", s.queries, np.broadcast_to(mask, s.queries.shape).copy())
    compare.same("recall with one mask for all", s.call(memory, "recall", s.queries, mask), wanted, compare.ROUNDING)
    by_position = memory.recall(s.queries, mask)
    compare.same("recall(x, mask)", {name: getattr(by_position, name) for name in wanted}, wanted, compare.ROUNDING)


@check("old and new", "recognize")
def old_and_new(s: Subject) -> None:
    """`recognize` tells learned samples from others."""
    memory = s.taught()
    for which, x, wanted in (("learned samples", s.samples, True), ("samples never learned", s.strangers, False)):
        old = np.asarray(s.each(memory, "recognize", x)["old"])
        if (old != wanted).any():
            raise AssertionError(f"recognize of {which}: expected old to be {wanted}; got {old}")


@check("empty recall")
def empty_recall(s: Subject) -> None:
    """Recall of an empty memory raises `EmptyMemoryError`, and it can learn afterwards."""
    memory = s.make()
    s.assert_empty(memory, "an empty memory")
    learn_alike(s, "after recall of an empty memory", memory, s.make(), s.samples)


@check("empty recognize", "recognize")
def empty_recognize(s: Subject) -> None:
    """To an empty memory every sample is new."""
    judged = s.each(s.make(), "recognize", s.samples)
    if np.any(judged["old"]) or not np.all(np.less(judged["score"], judged["threshold"])):
        raise AssertionError(f"recognize of an empty memory: expected scores below the thresholds; got {judged}")


# -- forms of samples ------------------------------------------------------------------------------------------------


def takes(s: Subject, form: str, convert: Callable[[NDArray[Any]], Any], masks: bool = False) -> None:
    """Samples and masks in another form give the same answers as float32 samples."""
    memory, wanted = s.taught(convert(s.samples)), s.answers(s.taught())
    compare.same(f"after learning {form}", s.answers(memory), wanted, compare.ROUNDING)
    got = s.answers(memory, convert(s.queries), convert(s.halves) if masks else s.halves)
    compare.same(f"after learning {form}, queries with {form}", got, wanted, compare.ROUNDING)


@check("bytes")
def from_bytes(s: Subject) -> None:
    """uint8 is read as /255."""
    takes(s, "bytes", lambda x: np.round(255 * x).astype(np.uint8))


@check("float64")
def float64(s: Subject) -> None:
    """float64 gives the same answers as float32, up to rounding."""
    takes(s, "float64", lambda x: np.round(255 * x.astype(np.float64)) / 255)


@check("layouts")
def layouts(s: Subject) -> None:
    """Arrays in Fortran order, with gaps, read-only arrays and nested lists are accepted."""
    takes(s, "arrays in Fortran order", np.asfortranarray, masks=True)
    takes(s, "every other value of larger arrays", lambda x: np.repeat(x, 2, axis=-1)[..., ::2], masks=True)
    takes(s, "read-only arrays", lambda x: np.broadcast_to(x.copy(), x.shape), masks=True)
    takes(s, "nested lists", np.ndarray.tolist, masks=True)


@check("negative strides")
def negative_strides(s: Subject) -> None:
    """Arrays with negative strides are accepted."""
    takes(s, "arrays with negative strides", lambda x: np.flip(np.flip(x).copy()), masks=True)


@check("byte order")
def byte_order(s: Subject) -> None:
    """Arrays in the other byte order, as many files have them, are accepted."""
    takes(s, "arrays in the other byte order", lambda x: x.astype(x.dtype.newbyteorder()))


@check("input unchanged")
def input_unchanged(s: Subject) -> None:
    """No verb writes into the arrays it is given."""
    for kind in (np.float32, np.float64) if s.can("float64") else (np.float32,):
        memory = s.make()
        holes = {"x": np.where(s.halves, s.queries, np.nan).astype(kind), "observed": s.halves}
        for verb, masked in s.calls:
            arrays = holes if masked else {"x": s.samples.astype(kind)}
            for ask, part in ((s.each, slice(None)), (s.one, 0)):
                given = {name: array[part].copy() for name, array in arrays.items()}
                ask(memory, verb, **given)
                wanted = {name: array[part] for name, array in arrays.items()}
                compare.same(f"after {compare.call_text(verb, **given)}, its argument", given, wanted)


@check("shared arrays")
def shared_arrays(s: Subject) -> None:
    """Writing into an array that was learned, queried or returned changes nothing else."""
    for ask, x in ((s.each, s.samples), (s.one, s.samples[0])):
        memory, given = s.make(), x.copy()
        ask(memory, "learn", given)
        before = s.answers(memory)
        given[...] = 1 - given
        compare.same("after writing into the learned array", s.answers(memory), before)
        given[...] = x
        found = ask(memory, "recall", given)
        kept = {"x": found["x"].copy()}
        given[...] = 1 - given
        compare.same("after writing into the query, the recalled array", found, kept)
        if found["x"].flags.writeable:
            found["x"][...] = 1 - found["x"]
        compare.same("after writing into the recalled array", s.answers(memory), before)


# -- errors ------------------------------------------------------------------------------------------------------------


def refuses(s: Subject, kind: str) -> None:
    """All verbs refuse the invalid inputs of one kind."""
    memory = s.taught()
    for verb, invalid in s.invalid_inputs()[kind]:
        s.assert_refused(memory, verb, invalid)


REFUSED = {
    "wrong shapes": "Samples of another shape and empty batches are refused by an error that names the shape.",
    "wrong dtypes": "int64 and strings are refused by an error that names the dtype or the shape.",
    "not finite": "NaN and infinity are refused, if observed, by an error that names the value or the shape.",
    "bad masks": "`observed` of another shape, or not boolean, is refused by an error that names its shape or dtype.",
}
for kind, about in REFUSED.items():
    needs = ("missing values",) if kind == "bad masks" else ()
    CHECKS.append(Check(kind, about, needs, partial(refuses, kind=kind)))


@check("refusal changes nothing")
def refusal_changes_nothing(s: Subject) -> None:
    """A verb that refuses its input leaves the memory as it was."""
    memory, other, empty = s.taught(), s.taught(), s.make()
    before = s.answers(memory)
    for kind, several in s.invalid_inputs().items():
        for verb, (x, _, observed) in several:
            refused = isinstance(s.attempt(memory, verb, x, observed), Exception)
            if verb == "learn":  # accepting it fails another check
                memory = memory if refused else s.taught()
                empty = empty if isinstance(s.attempt(empty, verb, x), Exception) else s.make()
        compare.same(f"after refusing {kind}", s.answers(memory), before)
    learn_alike(s, "after refusing samples", memory, other, np.concatenate([s.later, s.samples]))
    if s.can("empty recall"):
        s.assert_empty(empty, "an empty memory that refused samples")
    learn_alike(s, "after an empty memory refused samples", empty, s.make(), s.samples)


@check("asking changes nothing")
def asking_changes_nothing(s: Subject) -> None:
    """Queries do not change a memory: repeated, they get the same answers, and it learns as if there had been none."""
    memory, other = s.taught(), s.taught()
    first = s.answers(memory)
    compare.same("the second time", s.answers(memory), first)
    learn_alike(s, "after queries", memory, other, s.later)


# -- optional methods --------------------------------------------------------------------------------------------------


@check("reset")
def reset(s: Subject) -> None:
    """`reset`, if there is one, leaves an empty memory that learns as a new one does."""
    memory = s.taught()
    if not hasattr(memory, "reset"):
        raise MissingError("it has no reset()")
    memory.reset()
    if s.can("empty recall"):
        s.assert_empty(memory, "a memory after reset()")
    if s.can("recognize") and s.can("empty recognize") and np.any(s.each(memory, "recognize", s.samples)["old"]):
        raise AssertionError("after reset(), recognize calls samples old")
    learn_alike(s, "after reset()", memory, s.make(), s.samples)


@check("len")
def length(s: Subject) -> None:
    """`len`, if there is one, counts the stored samples."""
    memory: Any = s.make()
    count = 0
    if not hasattr(memory, "__len__"):
        raise MissingError("it has no len()")
    for x in (s.samples[:0], s.samples[:1], s.samples[1:], s.later):
        if len(x):
            s.each(memory, "learn", x)
        count += len(x)
        if len(memory) != count:
            raise AssertionError(f"len() after learning {count} different samples: expected {count}; got {len(memory)}")


@check("pickle")
def pickled(s: Subject) -> None:
    """A pickle, if the memory supports pickling, is an independent copy."""
    copies(s, "pickle", lambda memory: pickle.loads(pickle.dumps(memory)))


@check("deepcopy")
def deep_copied(s: Subject) -> None:
    """A deep copy, if the memory supports it, is an independent copy."""
    copies(s, "deep copy", copy.deepcopy)


def copies(s: Subject, which: str, make_copy: Callable[[Any], Any]) -> None:
    """A copy has the same state, and neither changes the other."""
    memory = s.taught()
    try:
        other = make_copy(memory)
    except Exception as error:
        raise MissingError(f"it has no {which}: {compare.error_text(error)}") from error
    before = s.answers(memory)
    compare.same(f"a {which}", s.answers(other), before)
    written = s.each(other, "learn", s.later)
    compare.same(f"after a {which} learned more, the memory itself", s.answers(memory), before)
    compare.same(f"learn of a {which}", written, s.each(memory, "learn", s.later))
    compare.same(f"a {which} that learned more", s.answers(other), s.answers(memory))
