"""Labels attached to samples: any JSON value or small array, kept with the neuron that a sample ended in.

A neuron that averages several samples counts each distinct label. It keeps at most MOST of them: another one replaces
the least frequent, and among equally frequent ones the one counted longest ago.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sqhn.banks.rule import GREW, SKIPPED
from sqhn.inputs import as_numpy, is_tensor

Texts = list[str | None]
"""The labels of samples as JSON; None for a sample without one."""

MOST = 16
"""Distinct labels of one neuron."""
LONGEST = 1 << 16
"""Characters of one label, as JSON."""
DEEPEST = 100
"""Nesting depth of lists and objects."""
ARRAY = "\u0000array"
NUMBER_KINDS = "biufc"  # of the numbers of an array


class Labels(dict[int, dict[str, int]]):
    """The labels of the memory node's neurons: for each neuron that has any, texts with counts, the latest last."""

    def note(self, index: Iterable[int], kind: Iterable[int], texts: Iterable[str | None]) -> None:
        """Count the labels of samples that ended in these neurons, with these outcomes (`banks.rule`)."""
        for j, outcome, text in zip(index, kind, texts):
            if outcome >= GREW:
                self.pop(j, None)
            if text is None or outcome == SKIPPED:
                continue
            own = self.setdefault(j, {})
            times = own.pop(text, 0)
            if len(own) == MOST:
                del own[min(own, key=lambda one: own[one])]
            own[text] = times + 1

    def of(self, j: int) -> list[tuple[Any, int]]:
        """The labels of a neuron with their counts, the most frequent first, then the latest."""
        latest_first = reversed(self.get(j, {}).items())
        return [(_decoded(text), times) for text, times in sorted(latest_first, key=lambda pair: -pair[1])]

    def of_all(self, index: Any) -> Any:
        """The same for a neuron, or for nested lists of neurons."""
        return [self.of_all(one) for one in index] if isinstance(index, list) else self.of(index)

    def where(self, test: Callable[[Any], bool]) -> list[int]:
        """The neurons whose latest label passes a test, which must return True or False."""
        found = []
        for j, own in sorted(self.items()):
            label = _decoded(next(reversed(own)))
            passed = test(label)
            if not isinstance(passed, (bool, np.bool_)):
                raise TypeError(f"where must return True or False; for the label {label!r} it returned {passed!r}")
            if passed:
                found.append(j)
        return found

    def state(self) -> NDArray[np.uint8]:
        """All labels, as JSON in bytes."""
        rows = [[j, list(own.items())] for j, own in sorted(self.items())]
        return np.frombuffer(json.dumps(rows).encode(), np.uint8)

    def forget(self, index: Iterable[int]) -> None:
        """Remove the labels of neurons."""
        for j in index:
            self.pop(j, None)

    def restore(self, state: NDArray[np.uint8], counts: NDArray[np.int64]) -> None:
        """Load a saved state; counts: of the memory node's neurons."""
        for j, own in json.loads(state.tobytes()):
            if not isinstance(j, int) or not 0 <= j < len(counts) or not counts[j] or not 0 < len(own) <= MOST:
                raise ValueError(f"{len(own)} labels of neuron {j!r}, in a memory of {len(counts)} neurons")
            if not all(isinstance(times, int) and times > 0 for _, times in own):
                raise ValueError(f"labels of neuron {j} with counts {[times for _, times in own]}")
            for text, _ in own:
                check_text(text)
            self[j] = dict(own)


def as_texts(value: Any, samples: int, single: bool) -> Texts:
    """Checked labels as JSON, one for each sample; for a batch `value` is a sequence of labels."""
    if single:
        return [_text(value)]
    each = as_numpy(value) if is_tensor(value) else value.to_numpy() if hasattr(value, "to_numpy") else value
    listed = isinstance(each, Sequence) and not isinstance(each, (str, bytes))
    if not listed and not (isinstance(each, np.ndarray) and each.ndim):
        raise ValueError(f"a batch needs a sequence of {samples} labels; got {type(value).__name__} {repr(value)[:40]}")
    if len(each) != samples:
        raise ValueError(f"a batch of {samples} samples needs as many labels; got {len(each)}")
    return [_text(one) for one in each]


def _text(value: Any) -> str | None:
    """A label as JSON, the same text for equal labels; None stays None."""
    if value is None:
        return None
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False, default=_plain)
        if json.dumps(ARRAY) in text:
            _decoded(text)  # our own key, so it must hold an array
        _check_depth(text)
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"a label must be a JSON value or an array; got {_abridged(value)}: {error}") from error
    if len(text) > LONGEST:
        raise ValueError(f"a label may have {LONGEST:,} characters as JSON; {repr(value)[:40]}... has {len(text):,}")
    return text


def _plain(value: Any) -> Any:
    """Arrays and NumPy scalars, which JSON lacks."""
    if not isinstance(value, (np.generic, np.ndarray)) and not is_tensor(value):
        raise TypeError(f"{type(value).__name__} is neither")
    if np.ma.is_masked(value):
        raise TypeError("some of its values are masked")
    array = as_numpy(value)
    if array.dtype.kind not in NUMBER_KINDS or array.dtype.itemsize > 16 or array.dtype.char in "gG":
        raise TypeError(f"dtype {array.dtype} is not supported")
    if array.ndim == 0 and array.dtype.kind != "c":
        return array.item()
    array = array.astype(array.dtype.newbyteorder("<"))
    return {ARRAY: [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode()]}


def check_text(text: str) -> None:
    """Raise unless a text is a label as `as_texts` writes it."""
    _check_depth(text)
    _decoded(text)


def _check_depth(text: str) -> None:
    """Raise if lists and objects are nested more deeply than a JSON parser can follow."""
    depth = deepest = 0
    for character in text if text.count("[") + text.count("{") > DEEPEST else "":
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    if deepest > DEEPEST:
        raise ValueError(f"it is nested more than {DEEPEST} deep")


def _abridged(value: Any) -> str:
    try:
        return repr(value)[:80]
    except (RecursionError, ValueError):
        return type(value).__name__


def _array(found: dict[str, Any]) -> Any:
    if found.keys() != {ARRAY}:
        return found
    dtype, shape, content = found[ARRAY]
    if not isinstance(dtype, str) or np.dtype(dtype).kind not in NUMBER_KINDS:
        raise ValueError(f"an array of dtype {dtype!r}")
    return np.frombuffer(base64.b64decode(content), dtype).reshape(shape).copy()


_decoded = json.JSONDecoder(object_hook=_array).decode
