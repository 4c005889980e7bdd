"""Helpers for torch tensors that every bank on a GPU uses."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

import torch
from torch import Tensor

from sqhn.banks.interface import Codes, Patches, Support

LARGEST_BLOCK = 4096  # neurons, or values of a vector, that one program handles at once
PRODUCTS = threading.Lock()
Evidence = TypeVar("Evidence", Patches, Codes)
Parts = TypeVar("Parts", bound=tuple[Tensor, ...])


def enlarge(array: Tensor, room: int) -> Tensor:
    """A copy of an array (nodes, ...) whose second axis is longer, or the array itself if it is long enough."""
    more = room - array.shape[1]
    return array if more <= 0 else torch.nn.functional.pad(array, (0, 0) * (array.ndim - 2) + (0, more))


def enlarge_all(room: int, *owners: tuple[object, Iterable[str]]) -> None:
    """Enlarge the named arrays of several objects: all of them, or none if memory runs out."""
    larger = [(owner, name, enlarge(getattr(owner, name), room)) for owner, names in owners for name in names]
    for owner, name, array in larger:
        setattr(owner, name, array)


def power_of_two(n: int, least: int, most: int) -> int:
    """The smallest power of two that is not less than n, within limits."""
    return min(most, max(least, 1 << (max(n, 1) - 1).bit_length()))


@contextmanager
def full_precision() -> Iterator[None]:
    """Multiply float32 in full precision, even if the program has set a lower one; all threads share the setting."""
    with PRODUCTS:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def reserve_memory(device: torch.device, needed: int = 0) -> Iterator[None]:
    """Make sure that `needed` bytes are still free after the block; if memory runs out, raise an error with advice.

    The bytes are allocated and given back to torch's allocator, not to the device: later allocations find them there.
    """
    try:
        yield
        torch.empty(needed, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError as error:
        raise MemoryError(
            f"{device} is out of memory, and nothing was changed: {str(error).splitlines()[0]} "
            "Choose a smaller capacity, free other memory of the device, or use device='cpu'"
        ) from error


def split(evidence: Evidence, rows: int) -> Iterator[Evidence]:
    """A batch in parts of at most this many samples."""
    rows = max(1, rows)
    for t in range(0, evidence[0].shape[1], rows):
        yield type(evidence)(*(None if array is None else array[:, t : t + rows].contiguous() for array in evidence))


def together(answers: Sequence[Parts]) -> Parts:
    """The answers for parts of a batch, arrays (nodes, batch, ...), as one."""
    return answers[0] if len(answers) == 1 else cast("Parts", tuple(torch.cat(field, 1) for field in zip(*answers)))


def owners(support: Support) -> Tensor:
    """The (node, sample) that each entry belongs to."""
    start: Tensor = support.start
    return torch.repeat_interleave(start.diff(), output_size=len(support.value))


def exact_products(device: torch.device) -> bool:
    """Whether products of float64 are as fast as those of float32, as on GPUs for computing centers."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) in ((8, 0), (9, 0), (10, 0))
