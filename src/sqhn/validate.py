"""The door: everything a user hands in is checked here once, before anything changes."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.level import Level

__all__ = ["LARGEST", "as_levels", "as_numpy", "as_samples", "as_shape", "is_tensor"]

LARGEST = 1e15
"""Values beyond this are refused: their float32 products overflow."""


def as_shape(shape: object) -> tuple[int, ...]:
    """The shape of one sample."""
    sides: Any = (shape,) if isinstance(shape, Integral) else shape
    if not isinstance(sides, Sequence) or isinstance(sides, str) or not sides:
        raise TypeError(f"input_shape must be a tuple of positive ints such as (28, 28); got {shape!r}")
    if not all(isinstance(n, Integral) and not isinstance(n, bool) and int(n) >= 1 for n in sides):
        raise ValueError(f"input_shape must be a tuple of positive ints such as (28, 28); got {shape!r}")
    return tuple(int(n) for n in sides)


def as_levels(levels: Sequence[Level] | None, capacity: int | None) -> tuple[Level, ...]:
    """The levels of a tree, or the one level that a capacity stands for."""
    if (levels is None) == (capacity is None):
        raise ValueError("give either capacity=N for one level, or a list of Levels; not both, not neither")
    if levels is None:
        assert capacity is not None
        return (Level(capacity=capacity),)
    if isinstance(levels, Integral):
        raise TypeError(f"levels must be a list of Levels; for one level of {levels} neurons say capacity={levels}")
    if isinstance(levels, Level) or not isinstance(levels, Sequence) or not levels:
        raise TypeError(f"levels must be a list of at least one Level; got {levels!r}")
    for number, level in enumerate(levels, start=1):
        if not isinstance(level, Level):
            raise TypeError(f"levels must be a list of Levels; entry {number} is {level!r}")
    return tuple(levels)


def is_tensor(x: object) -> bool:
    """Whether x is a torch tensor; torch need not be there."""
    return type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "detach")


def as_numpy(x: Any) -> NDArray[Any]:
    """An array in main memory; of a tensor, its values (as float32 where NumPy has no such numbers)."""
    if not is_tensor(x):
        return np.asarray(x)
    x = x.detach().cpu()
    return np.asarray(x.float() if x.is_floating_point() and x.dtype.itemsize < 4 else x)


def as_samples(
    x: ArrayLike,
    shape: tuple[int, ...],
    observed: ArrayLike | None = None,
    *,
    tensors: bool = False,
    holes: bool = False,
) -> tuple[Any, bool, Any]:
    """A batch of uint8 or float samples, whether x was a single one, and which values were seen (None: all).

    Values that were not seen may be anything. tensors: torch tensors stay such, and where they are. holes: values of a
    masked array may be masked, and count as not seen.
    """
    array: Any = x.detach() if tensors and is_tensor(x) else as_numpy(x)  # type: ignore[union-attr]
    whole, real = _kind(array)
    if not whole and not real:
        raise TypeError(
            f"samples must be floats, taken as they are, or uint8, read as /255; got dtype {array.dtype} "
            f"with shape {tuple(array.shape)}: if these numbers are meant as they are, give x.astype(np.float32)"
        )
    single = tuple(array.shape) == shape
    batch = array[None] if single else array
    if batch.ndim != len(shape) + 1 or tuple(batch.shape[1:]) != shape:
        raise ValueError(
            f"expected one sample of shape {shape} or a batch of shape (n, {', '.join(map(str, shape))}); "
            f"got shape {tuple(array.shape)}"
        )
    if len(batch) == 0:
        raise ValueError(f"the batch is empty: got shape {tuple(array.shape)}")
    seen = None if observed is None else _mask(observed, tuple(array.shape), tuple(batch.shape))
    if isinstance(x, np.ma.MaskedArray) and (masked := np.ma.getmaskarray(x)).any():
        if not holes:
            raise ValueError(
                f"the value at {_place(masked)} of a masked array of shape {array.shape} is masked: values that were "
                "not seen can be recalled, but a sample must be whole for anything else"
            )
        seen = ~masked.reshape(batch.shape) & (True if seen is None else seen)
    if real:
        batch = _plain(batch)
        if not _within(batch):
            finite = _finite(as_numpy(batch), single, seen)
            batch = finite if not is_tensor(batch) else batch.new_tensor(finite)
    return batch, single, seen


def _plain(batch: Any) -> Any:
    """Floats of 4 or 8 bytes, in which all that is checked and computed can be said: halves have no 1e15."""
    if not isinstance(batch, np.ndarray):
        return batch if batch.dtype.itemsize >= 4 else batch.float()
    if 4 <= batch.dtype.itemsize <= 8:
        return batch
    with np.errstate(over="ignore"):  # what is beyond float64 becomes infinite, and is refused as such
        return batch.astype(np.float32 if batch.dtype.itemsize < 4 else np.float64)


def _place(bad: NDArray[np.bool_]) -> tuple[int, ...]:
    """Where the first of the bad values is."""
    return tuple(int(i) for i in np.argwhere(bad)[0])


def _within(batch: Any) -> bool:
    """Whether all values are finite and none enormous; not so for NaN."""
    if not isinstance(batch, np.ndarray):
        low, high = batch.aminmax()
        return bool((low >= -LARGEST) & (high <= LARGEST))  # one answer to wait for
    return bool(batch.min() >= -LARGEST and batch.max() <= LARGEST)


def _kind(array: Any) -> tuple[bool, bool]:
    """Whether an array holds uint8, or floats."""
    if isinstance(array, np.ndarray):
        return array.dtype == np.uint8, array.dtype.kind == "f"
    return str(array.dtype) == "torch.uint8", array.is_floating_point()


def _mask(observed: ArrayLike, given: tuple[int, ...], batch: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which values were seen: of the shape of the samples, or of one sample for all of them."""
    if isinstance(observed, np.ma.MaskedArray):
        raise TypeError("observed must be a plain boolean array, True where a value was seen; got a masked array")
    mask = as_numpy(observed)
    if mask.dtype != np.bool_:
        raise TypeError(f"observed must be boolean, True where a value was seen; got dtype {mask.dtype}")
    if mask.shape not in (given, batch[1:]):
        choices = " or ".join(dict.fromkeys(str(shape) for shape in (given, batch[1:])))
        raise ValueError(f"observed must have shape {choices}; got {mask.shape}")
    return np.broadcast_to(mask, batch)


def _finite(batch: NDArray[Any], single: bool, seen: NDArray[np.bool_] | None) -> NDArray[Any]:
    """Raise if an observed value is not finite or enormous; replace other values that are."""
    bad = ~(np.abs(batch) <= LARGEST)
    if seen is None or (bad & seen).any():
        where = _place(bad if seen is None else bad & seen)
        value = batch[where]
        reason = (
            f"beyond +-{LARGEST:g}"
            if np.isfinite(value)
            else "not finite (where values are missing, recall takes observed=, a mask that is False there)"
        )
        place, shape = where[single:], batch.shape[single:]
        raise ValueError(f"the value at {place} of an array of shape {shape} is {value}: {reason}")
    return np.where(bad, batch.dtype.type(0), batch)
