"""Memories that are broken in one way each, and the checks that they fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sqhn import EmptyMemoryError, Recalled, Recognized, Written
from sqhn.paper.baselines import NearestNeighbor

SHAPE = (4, 4)


class Plain(NearestNeighbor):
    """A memory that is right."""

    def __init__(self) -> None:
        super().__init__(SHAPE, capacity=20)


class Moody(Plain):
    """No two are alike."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Moody.made += 1
        self.mood = Moody.made

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        return written._replace(score=written.score + self.mood)


class ArraysForOne(Plain):
    def recognize(self, x: ArrayLike) -> Recognized:
        return Recognized(*(np.asarray(field) for field in super().recognize(x)))


class ListsForMany(Plain):
    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        return found if isinstance(found.index, int) else found._replace(index=found.index.tolist())


class Wide(Plain):
    """Recalls float64."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        return found._replace(x=found.x.astype(np.float64))


class Tuples(Plain):
    def learn(self, x: ArrayLike) -> Any:
        return tuple(super().learn(x))


class Mute(Plain):
    def recognize(self, x: ArrayLike) -> Recognized:
        raise NotImplementedError("cannot recognize")


class Contradictory(Plain):
    def recognize(self, x: ArrayLike) -> Recognized:
        judged = super().recognize(x)
        return judged._replace(threshold=judged.threshold + 1)


class Curious(Plain):
    """Uses values that were not observed."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        return found._replace(score=found.score + float(np.isnan(x).sum()))


class Backwards(Plain):
    """Learns a batch from its end, and says nothing of where."""

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x if np.shape(x) == SHAPE else np.asarray(x)[::-1])
        return written._replace(index=-1 + 0 * written.index)


class Relative(Plain):
    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        return found._replace(score=found.score / np.size(found.score))


class FromZero(Plain):
    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        return written._replace(step=written.step - 1)


class Forgetful(Plain):
    """Forgets the second sample."""

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        self.store.rows[1:2] = 0.5
        return written


class Misnaming(Plain):
    """Names another neuron than the one written."""

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        return written._replace(index=written.index + 1)


class Helpless(Plain):
    """Cannot do with a part."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        return found if observed is None else found._replace(x=np.full_like(found.x, 0.5))


class MaskForEach(Plain):
    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        if observed is not None and np.shape(observed) != np.shape(x):
            raise ValueError(f"observed must have shape {np.shape(x)}; got {np.shape(observed)}")
        return super().recall(x, observed)


class Gullible(Plain):
    """Calls everything old once it knows something."""

    def recognize(self, x: ArrayLike) -> Recognized:
        judged = super().recognize(x)
        return judged._replace(old=judged.old | True, score=judged.score * 0) if len(self) else judged


class Inventive(Plain):
    """Recalls something before it has learned."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        try:
            return super().recall(x, observed)
        except EmptyMemoryError:
            return Recalled(np.zeros(np.shape(x), np.float32), 0, 0.0)


class BornKnowing(Plain):
    def recognize(self, x: ArrayLike) -> Recognized:
        judged = super().recognize(x)
        return judged if len(self) else judged._replace(old=judged.old | True)


class RawBytes(Plain):
    def learn(self, x: ArrayLike) -> Written:
        return super().learn(np.asarray(x, np.float32) if np.asarray(x).dtype == np.uint8 else x)


class SinglePrecision(Plain):
    def learn(self, x: ArrayLike) -> Written:
        if isinstance(x, np.ndarray) and x.dtype == np.float64:
            raise TypeError("float64 is not taken")
        return super().learn(x)


class Orderly(Plain):
    def learn(self, x: ArrayLike) -> Written:
        flags = np.asarray(x).flags
        if flags.f_contiguous and not flags.c_contiguous:
            raise ValueError("arrays must be in C order")
        return super().learn(x)


class Native(Plain):
    def learn(self, x: ArrayLike) -> Written:
        if not np.asarray(x).dtype.isnative:
            raise ValueError("the other byte order is not supported")
        return super().learn(x)


class Forward(Plain):
    def learn(self, x: ArrayLike) -> Written:
        if min(np.asarray(x).strides, default=0) < 0:
            raise ValueError("negative strides are not supported")
        return super().learn(x)


class Scribbler(Plain):
    """Fills in missing values in the caller's array."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        if isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.flags.writeable:
            np.nan_to_num(x, copy=False)
        return found


class Borrower(Plain):
    """Keeps the caller's array for a row."""

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        if isinstance(x, np.ndarray) and x.dtype == np.float32 and x.shape == SHAPE and x.flags.c_contiguous:
            self.last = written.index, x
        return written

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        index, row = getattr(self, "last", (0, None))
        if row is not None:
            self.store.rows[index] = row.ravel()
        return super().recall(x, observed)


class Lender(Plain):
    """Hands out its own rows."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        one = isinstance(found.index, int)
        return found._replace(x=self.store.rows[found.index].reshape(SHAPE)) if one else found


class AnyShape(Plain):
    def learn(self, x: ArrayLike) -> Written:
        return super().learn(np.resize(np.asarray(x), SHAPE) if np.shape(x) == (4, 5) else x)


class Terse(Plain):
    """Its errors do not name the problem."""

    def recognize(self, x: ArrayLike) -> Recognized:
        try:
            return super().recognize(x)
        except ValueError as error:
            raise ValueError("bad samples") from error


class AnyDtype(Plain):
    def learn(self, x: ArrayLike) -> Written:
        return super().learn(np.asarray(x, np.float32) if np.asarray(x).dtype == np.int64 else x)


class TakesNaN(Plain):
    def learn(self, x: ArrayLike) -> Written:
        return super().learn(np.nan_to_num(x) if np.asarray(x).dtype.kind == "f" else x)


class AnyMask(Plain):
    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        return super().recall(x, None if observed is None else np.asarray(observed, bool))


class Halfway(Plain):
    """Learns the samples of a batch up to the first that is bad."""

    def learn(self, x: ArrayLike) -> Written:
        if np.shape(x) == SHAPE or np.shape(x)[1:] != SHAPE or not len(np.asarray(x)):
            return super().learn(x)
        done = [super(Halfway, self).learn(sample) for sample in np.asarray(x)]
        return Written(*map(np.array, zip(*done)))


class CountsFirst(Plain):
    """Counts a sample before it looks at it."""

    refused = 0

    def learn(self, x: ArrayLike) -> Written:
        self.refused += 1
        written = super().learn(x)
        self.refused -= 1
        return written._replace(step=written.step + self.refused)


class Impressionable(Plain):
    """Learns from queries."""

    def recall(self, x: ArrayLike, observed: ArrayLike | None = None) -> Recalled:
        found = super().recall(x, observed)
        super().learn(found.x)
        return found


class Remembering(Plain):
    """Goes on counting after `reset`."""

    past = 0

    def reset(self) -> None:
        self.past = self.store.count
        super().reset()

    def learn(self, x: ArrayLike) -> Written:
        written = super().learn(x)
        return written._replace(step=written.step + self.past)


class CountsTwice(Plain):
    def __len__(self) -> int:
        return 2 * super().__len__()


class Lossy(Plain):
    """Is empty when it comes out of a pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Lossy, ()

    def __deepcopy__(self, memo: object) -> Lossy:
        other = Lossy()
        other.learn(self.store.rows.reshape(-1, *SHAPE))
        return other


class Inseparable(Plain):
    """Is its own copy."""

    def __deepcopy__(self, memo: object) -> Inseparable:
        return self


class Modest(Plain):
    cannot: ClassVar[Mapping[str, str]] = {"one shot": "I am not that good"}


class Shy(Plain):
    cannot: ClassVar[Mapping[str, str]] = {"recognize": "I never know"}


CAUGHT: dict[type[Plain], set[str]] = {
    ArraysForOne: {"single samples"},
    ListsForMany: {"batches"},
    Wide: {"single samples", "batches"},
    Contradictory: {"recognize"},
    Curious: {"missing values"},
    Backwards: {"batch equals loop"},
    Relative: {"answers one by one"},
    FromZero: {"steps from 1"},
    Forgetful: {"batch equals loop", "one shot", "from half", "old and new"},
    Misnaming: {"one shot"},
    Helpless: {"from half"},
    MaskForEach: {"one mask for all"},
    Gullible: {"old and new"},
    Inventive: {"empty recall", "refusal changes nothing", "reset"},
    BornKnowing: {"empty recognize", "reset"},
    RawBytes: {"bytes"},
    SinglePrecision: {"float64", "input unchanged"},
    Orderly: {"layouts"},
    Native: {"byte order"},
    Forward: {"negative strides"},
    Scribbler: {"input unchanged"},
    Borrower: {"shared arrays"},
    Lender: {"shared arrays"},
    AnyShape: {"wrong shapes"},
    Terse: {"wrong shapes", "not finite"},
    AnyDtype: {"wrong dtypes"},
    TakesNaN: {"not finite"},
    AnyMask: {"bad masks"},
    Halfway: {"refusal changes nothing"},
    CountsFirst: {"refusal changes nothing"},
    Remembering: {"reset"},
    CountsTwice: {"len"},
    Lossy: {"pickle"},
    Inseparable: {"deepcopy"},
    Modest: {"one shot"},
    Shy: {"recognize"},
}
"""All checks that each of them fails."""

CAUGHT_AMONG_OTHERS: dict[type[Plain], str] = {
    Moody: "made alike",
    Impressionable: "asking changes nothing",
    Mute: "recognize",
    Tuples: "batches",
}
