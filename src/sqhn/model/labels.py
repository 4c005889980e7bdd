"""What users say about samples: a label, any JSON value, a small array, kept with the neuron that a sample ended in.

Where samples were averaged, their neuron has a count for each of the distinct values; at most MOST of them, and a
further one takes the place of the least frequent, of those the one counted longest ago.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.rule import BECAME, KEPT
from sqhn.inputs import as_numpy, is_tensor

__all__ = ["MOST", "Values", "as_texts"]

MOST = 16
"""Distinct values of one neuron."""
LONGEST = 1 << 16
"""Characters of one value, as JSON."""
DEEPEST = 100
"""Lists and objects within each other."""
ARRAY = "\u0000array"
KINDS = "biufc"  # of the numbers of an array


class Values:
    """The values of the neurons of a memory node: for each that has any, texts with counts, the latest last."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def note(self, index: Iterable[int], kind: Iterable[int], texts: Iterable[str | None]) -> None:
        """Samples with these texts (None: nothing was said) ended in these neurons, and this became of them there."""
        for j, what, text in zip(index, kind, texts):
            if what >= BECAME:
                self._counts.pop(j, None)
            if text is None or what == KEPT:
                continue
            own = self._counts.setdefault(j, {})
            times = own.pop(text, 0)
            if len(own) == MOST:
                del own[min(own, key=lambda one: own[one])]
            own[text] = times + 1

    def of(self, j: int) -> list[tuple[Any, int]]:
        """The values of a neuron with their counts, the most frequent first; of those the latest."""
        latest_first = reversed(self._counts.get(j, {}).items())
        return [(_value(text), times) for text, times in sorted(latest_first, key=lambda pair: -pair[1])]

    def of_all(self, index: Any) -> Any:
        """The same for lists of neurons, however deep."""
        return [self.of_all(one) for one in index] if isinstance(index, list) else self.of(index)

    def state(self) -> NDArray[np.uint8]:
        """All of it, as JSON in bytes."""
        rows = [[j, list(own.items())] for j, own in sorted(self._counts.items())]
        return np.frombuffer(json.dumps(rows).encode(), np.uint8)

    def forget(self, index: Iterable[int]) -> None:
        """These neurons were forgotten."""
        for j in index:
            self._counts.pop(j, None)

    def restore(self, state: NDArray[np.uint8], counts: NDArray[np.int64]) -> None:
        """Take over a saved state of a memory node whose neurons have these counts."""
        for j, own in json.loads(state.tobytes()):
            if not isinstance(j, int) or not 0 <= j < len(counts) or not counts[j] or not 0 < len(own) <= MOST:
                raise ValueError(f"{len(own)} values of neuron {j!r}, of {len(counts)} neurons")
            if not all(isinstance(times, int) and times > 0 for _, times in own):
                raise ValueError(f"values of neuron {j} that count {[times for _, times in own]}")
            for text, _ in own:
                _check_depth(text)
                _value(text)  # or it is no value
            self._counts[j] = dict(own)


def as_texts(value: Any, samples: int, single: bool) -> list[str | None]:
    """The texts of checked values, one for each sample: of a batch `value` is a sequence of them."""
    if single:
        return [_text(value)]
    each = as_numpy(value) if is_tensor(value) else value.to_numpy() if hasattr(value, "to_numpy") else value
    listed = isinstance(each, Sequence) and not isinstance(each, (str, bytes))
    if not listed and not (isinstance(each, np.ndarray) and each.ndim):
        raise ValueError(f"a batch needs a sequence of {samples} values; got {type(value).__name__} {repr(value)[:40]}")
    if len(each) != samples:
        raise ValueError(f"a batch of {samples} samples needs as many values; got {len(each)}")
    return [_text(one) for one in each]


def _text(value: Any) -> str | None:
    """A value as JSON, the same for values that are the same; None for none."""
    if value is None:
        return None
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False, default=_plain)
        if json.dumps(ARRAY) in text:
            _value(text)  # a word of our own, which says nothing else
        _check_depth(text)
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"a value must be what JSON can say, or an array; got {_brief(value)}: {error}") from error
    if len(text) > LONGEST:
        raise ValueError(f"a value may have {LONGEST:,} characters as JSON; {repr(value)[:40]}... has {len(text):,}")
    return text


def _plain(value: Any) -> Any:
    """What JSON has no word for: arrays, and NumPy's scalars."""
    if not isinstance(value, (np.generic, np.ndarray)) and not is_tensor(value):
        raise TypeError(f"{type(value).__name__} is neither")
    if np.ma.is_masked(value):
        raise TypeError("some of it is masked")
    array = as_numpy(value)
    if array.dtype.kind not in KINDS or array.dtype.itemsize > 16 or array.dtype.char in "gG":
        raise TypeError(f"numbers of dtype {array.dtype}")
    if array.ndim == 0 and array.dtype.kind != "c":
        return array.item()
    array = array.astype(array.dtype.newbyteorder("<"))
    return {ARRAY: [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode()]}


def _check_depth(text: str) -> None:
    """Raise if a value has lists in lists in lists, deeper than whoever reads it could follow."""
    depth = deepest = 0
    for character in text if text.count("[") + text.count("{") > DEEPEST else "":
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    if deepest > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} deep")


def _brief(value: Any) -> str:
    try:
        return repr(value)[:80]
    except (RecursionError, ValueError):
        return type(value).__name__


def _array(found: dict[str, Any]) -> Any:
    if found.keys() != {ARRAY}:
        return found
    dtype, shape, content = found[ARRAY]
    if not isinstance(dtype, str) or np.dtype(dtype).kind not in KINDS:
        raise ValueError(f"an array of dtype {dtype!r}")
    return np.frombuffer(base64.b64decode(content), dtype).reshape(shape).copy()


_value = json.JSONDecoder(object_hook=_array).decode
