"""The door of every memory: samples in, answers out.

Everything a user hands in is checked here, before anything changes; everything is computed in batches, and whoever
came with one sample gets plain values back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LARGEST", "answers", "as_floats", "as_numpy", "as_samples", "is_tensor", "parts", "stacked", "together"]

LARGEST = 1e15
"""Values beyond this are refused: their float32 products overflow."""


def is_tensor(x: object) -> bool:
    """Whether x is a torch tensor; torch need not be there."""
    if isinstance(x, np.ndarray):  # mostly
        return False
    return type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "detach")


def as_numpy(x: Any) -> NDArray[Any]:
    """An array in main memory; of a tensor, its values (as float32 where NumPy has no such numbers)."""
    if not is_tensor(x):
        return np.asarray(x)
    x = x.detach().cpu()
    return np.asarray(x.float() if x.is_floating_point() and x.dtype.itemsize < 4 else x)


def stacked(samples: Sequence[Any]) -> NDArray[Any]:
    """Samples as a batch of them, a masked one if any of them is masked."""
    if any(isinstance(one, np.ma.MaskedArray) for one in samples):
        return np.asanyarray(np.ma.stack([np.ma.asanyarray(one) for one in samples]))
    return np.stack([as_numpy(one) for one in samples])


def as_samples(
    x: ArrayLike,
    shape: tuple[int, ...],
    observed: ArrayLike | None = None,
    *,
    tensors: bool = False,
    holes: bool = False,
) -> tuple[Any, bool, Any]:
    """Checked samples: a batch of uint8 or floats, whether x was a single one, which values were seen (None: all).

    Values that were not seen may be anything. tensors: torch tensors stay such, and where they are. holes: values of a
    masked array may be masked, and count as not seen.
    """
    if isinstance(x, (list, tuple)) and any(isinstance(one, np.ma.MaskedArray) for one in x):
        x = stacked(x)
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
                f"the value at {_place(masked)} of a masked array of shape {array.shape} is masked, that is, it was "
                "not seen: here samples must be whole"
            )
        seen = ~masked.reshape(batch.shape) & (True if seen is None else seen)
    if real:
        batch = _plain(batch)
        if not _within(batch):
            finite = _finite(as_numpy(batch), single, seen)
            batch = finite if not is_tensor(batch) else batch.new_tensor(finite)
    return batch, single, seen


def as_floats(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Samples as float32, one row after another; uint8 is read as /255."""
    if samples.dtype == np.uint8:
        return samples.astype(np.float32, order="C") / np.float32(255)
    return np.ascontiguousarray(samples, np.float32)


def parts(count: int, size: int) -> Iterator[slice]:
    """A batch in parts of at most `size` samples."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def together(done: Sequence[tuple[Any, ...]], join: Callable[..., Any] = np.concatenate) -> tuple[Any, ...]:
    """What the parts of a batch gave, each field for the whole batch."""
    return tuple(done[0]) if len(done) == 1 else tuple(join(field, 0) for field in zip(*done))


def _as_it_is(array: Any, asked: object) -> Any:  # noqa: ARG001
    return array


def answers(
    single: bool, *fields: Any, to_user: Callable[[Any, object], Any] = _as_it_is, asked: object = None
) -> tuple[Any, ...]:
    """Arrays for a batch; plain Python values for one sample, or its array where a field has more than one.

    to_user: puts an array into the form of the question `asked`.
    """
    if single:
        return tuple([field[0].item() if field.ndim == 1 else to_user(field[0], asked) for field in fields])
    return tuple([to_user(field, asked) for field in fields])


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
        import torch

        low, high = torch.stack(batch.aminmax()).tolist()  # one answer to wait for
        return bool(low >= -LARGEST and high <= LARGEST)
    if batch.flags.c_contiguous and np.vdot(batch, batch) <= LARGEST**2 / 2:
        return True  # a sum of squares is never less than one of them, however it is rounded
    low, high = np.minimum.reduce(batch, None), np.maximum.reduce(batch, None)  # as min() and max(), sooner
    return bool(low >= -LARGEST and high <= LARGEST)


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
            else "not finite (where values are missing, learn and recall take observed=, a mask that is False there)"
        )
        place, shape = where[single:], batch.shape[single:]
        raise ValueError(f"the value at {place} of an array of shape {shape} is {value}: {reason}")
    return np.where(bad, batch.dtype.type(0), batch)
