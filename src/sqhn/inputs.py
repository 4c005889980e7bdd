"""Checks samples and forms answers, for every memory of the package.

Everything a user passes is checked here, before anything changes. Computations see batches only; for a single sample
the answer is plain Python values. A memory of your own can use `as_samples`, `as_floats` and `as_answers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sqhn.checks import is_whole

Indices = int | np.integer[Any] | Sequence[int] | NDArray[np.integer[Any]]
LARGEST = 1e15
"""Values beyond this are refused: their float32 products overflow."""
SINGLE_THREADED = 10_000
"""Values of a single sample up to which BLAS starts no threads for their sum of squares."""


def is_tensor(x: object) -> bool:
    """Whether x is a torch tensor; torch need not be installed."""
    if isinstance(x, np.ndarray):  # the usual case, and faster
        return False
    return type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "detach")


def as_numpy(x: Any) -> NDArray[Any]:
    """An array in main memory; a tensor of half precision becomes float32."""
    if not is_tensor(x):
        return np.asarray(x)
    x = x.detach().cpu()
    return np.asarray(x.float() if x.is_floating_point() and x.dtype.itemsize < 4 else x)


def as_batch(samples: Sequence[Any]) -> NDArray[Any]:
    """Stack samples; the batch is a masked array if any of them is."""
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
    """Checked samples: a batch of uint8 or floats, whether x was a single one, and their mask (None: all observed).

    Missing values may be anything. tensors: torch tensors stay tensors on their device. holes: values of a masked array
    may be masked, and count as missing.

    >>> batch, single, mask = as_samples([0.5, 1.0], (2,))
    >>> batch.shape, single, mask
    ((1, 2), True, None)
    """
    if isinstance(x, (list, tuple)) and any(isinstance(one, np.ma.MaskedArray) for one in x):
        x = as_batch(x)
    array: Any = x.detach() if tensors and is_tensor(x) else as_numpy(x)  # type: ignore[union-attr]
    is_bytes, is_float = _kind(array)
    if not is_bytes and not is_float:
        raise TypeError(
            f"samples must be floats, taken as they are, or uint8, read as /255; got dtype {array.dtype} "
            f"with shape {tuple(array.shape)}: if these numbers are meant as they are, give x.astype(np.float32)"
        )
    single = tuple(array.shape) == shape
    batch = array[None] if single else array
    if tuple(batch.shape[1:]) != shape:
        raise ValueError(
            f"expected one sample of shape {shape} or a batch of shape {batch_of(shape)}; "
            f"got shape {tuple(array.shape)}"
        )
    if len(batch) == 0:
        raise ValueError(f"the batch is empty: got shape {tuple(array.shape)}")
    mask = None if observed is None else _mask(observed, tuple(array.shape)).reshape(batch.shape)
    if isinstance(x, np.ma.MaskedArray) and (masked := np.ma.getmaskarray(x)).any():
        if not holes:
            raise ValueError(
                f"the value at {_place(masked)} of a masked array of shape {array.shape} is masked, that is, missing: "
                "here samples must be complete"
            )
        mask = ~masked.reshape(batch.shape) & (True if mask is None else mask)
    if is_float:
        batch = _single_or_double(batch)
        if not _all_valid(batch):
            valid = _checked_values(as_numpy(batch), single, mask)
            batch = valid if not is_tensor(batch) else batch.new_tensor(valid)
    return batch, single, mask


def as_floats(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Samples as contiguous float32; uint8 is read as /255."""
    if samples.dtype == np.uint8:
        return samples.astype(np.float32, order="C") / np.float32(255)
    return np.ascontiguousarray(samples, np.float32)


def batches(count: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` samples that together cover `count` samples."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def join_batches(done: Sequence[tuple[Any, ...]], join: Callable[..., Any] = np.concatenate) -> tuple[Any, ...]:
    """Concatenate the results of several batches, field by field."""
    return tuple(done[0]) if len(done) == 1 else tuple(join(field, 0) for field in zip(*done))


def as_answers(
    single: bool, *fields: Any, to_user: Callable[[Any, object], Any] = lambda array, _: array, asked: object = None
) -> tuple[Any, ...]:
    """Arrays for a batch; for a single sample plain Python values, or the sample's array if a field has more axes.

    fields: arrays with one entry per sample along their first axis. to_user: converts an array to the form of the input
    `asked`.

    >>> as_answers(True, np.zeros((1, 2), np.float32), np.array([7]))
    (array([0., 0.], dtype=float32), 7)
    >>> as_answers(False, np.zeros((1, 2), np.float32), np.array([7]))
    (array([[0., 0.]], dtype=float32), array([7]))
    """
    try:
        counts = {field.shape[0] for field in fields}
    except (AttributeError, IndexError):
        wrong = next(field for field in fields if not getattr(field, "shape", ()))
        raise TypeError(
            f"the fields of an answer are arrays with one entry per sample; got {wrong!r}, a {type(wrong).__name__}"
        ) from None
    if len(counts) > 1 or (single and counts != {1}):
        shapes = ", ".join(str(tuple(field.shape)) for field in fields)
        wanted = "one entry for the single sample" if single else "the same number of entries, one per sample"
        raise ValueError(f"the fields of an answer must have {wanted}; got the shapes {shapes}")
    if single:
        return tuple([field[0].item() if field.ndim == 1 else to_user(field[0], asked) for field in fields])
    return tuple([to_user(field, asked) for field in fields])


def _single_or_double(batch: Any) -> Any:
    """Floats of 4 or 8 bytes: half precision cannot represent LARGEST, and kernels have no other types."""
    if 4 <= batch.dtype.itemsize <= 8:
        return batch
    if is_tensor(batch):
        return batch.float()
    with np.errstate(over="ignore"):  # values beyond float64 become infinite, and are refused as such
        return batch.astype(np.float32 if batch.dtype.itemsize < 4 else np.float64)


def _place(bad: NDArray[np.bool_]) -> tuple[int, ...]:
    """The index of the first bad value."""
    return tuple(int(i) for i in np.argwhere(bad)[0])


def _all_valid(batch: Any) -> bool:
    """Whether all values are finite and within LARGEST; False for NaN."""
    if not isinstance(batch, np.ndarray):
        import torch

        low, high = torch.stack(batch.aminmax()).tolist()  # one transfer from the device
        return bool(low >= -LARGEST and high <= LARGEST)
    quick = batch.flags.c_contiguous and (len(batch) > 1 or batch.size <= SINGLE_THREADED)
    if quick and np.vdot(batch, batch) <= LARGEST**2 / 2:
        return True  # however it is rounded, a sum of squares is not below its largest term
    low, high = np.minimum.reduce(batch, None), np.maximum.reduce(batch, None)  # faster than min() and max()
    return bool(low >= -LARGEST and high <= LARGEST)


def _kind(array: Any) -> tuple[bool, bool]:
    """Whether an array holds uint8, and whether it holds floats."""
    if isinstance(array, np.ndarray):
        return array.dtype == np.uint8, array.dtype.kind == "f"
    return str(array.dtype) == "torch.uint8", array.is_floating_point()


def _mask(observed: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """A checked mask, broadcast to the shape of the samples as NumPy does."""
    if isinstance(observed, np.ma.MaskedArray):
        raise TypeError("observed must be a plain boolean array, True where a value was observed; got a masked array")
    mask = as_numpy(observed)
    if mask.dtype != np.bool_:
        raise TypeError(f"observed must be boolean, True where a value was observed; got dtype {mask.dtype}")
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ValueError(f"observed must have the shape of x, {shape}, or broadcast to it; got {mask.shape}") from None


def _checked_values(batch: NDArray[Any], single: bool, mask: NDArray[np.bool_] | None) -> NDArray[Any]:
    """Raise if an observed value is not finite or beyond LARGEST; replace such values where they are missing."""
    bad = ~(np.abs(batch) <= LARGEST)
    if mask is None or (bad & mask).any():
        where = _place(bad if mask is None else bad & mask)
        value = batch[where]
        reason = (
            f"beyond +-{LARGEST:g}"
            if np.isfinite(value)
            else "not finite (for missing values, pass observed=, a mask that is False there)"
        )
        place, shape = where[single:], batch.shape[single:]
        raise ValueError(f"the value at {place} of an array of shape {shape} is {value}: {reason}")
    return np.where(bad, batch.dtype.type(0), batch)


def batch_of(shape: tuple[int, ...]) -> str:
    """The shape of a batch of samples, for messages."""
    return f"(n, {', '.join(map(str, shape))})"


def unobserved(mask: Any) -> str | None:
    """A message if samples have no observed value at all."""
    if mask is None or not len(blank := (~mask.any(axis=tuple(range(1, mask.ndim)))).nonzero()[0]):
        return None
    return f"{len(blank)} of {len(mask)} samples have no observed value (the first is sample {blank[0]})"


def check_observed(mask: Any, x: ArrayLike) -> Any:
    """The mask, None if all values are observed; an error if samples have no observed value at all."""
    if mask is None or mask.all():
        return None
    if blank := unobserved(mask):
        raise ValueError(f"{blank}, in an array of shape {tuple(np.shape(x))}")
    return mask


def as_indices(index: Any) -> list[int]:
    """One index of a neuron, or a sequence of them, as a sorted list without repetitions."""
    given = index.tolist() if hasattr(index, "tolist") else index
    which = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if not all(map(is_whole, which)):
        raise TypeError(f"index must be the number of a neuron, or a sequence of them; got {index!r}")
    return sorted({int(j) for j in which})
