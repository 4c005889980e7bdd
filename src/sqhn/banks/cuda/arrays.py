"""Small things that torch does not say in one word."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

import torch
from torch import Tensor

__all__ = ["enlarge", "exact_products", "full_precision", "power", "spare", "together"]

PRODUCTS = threading.Lock()
Parts = TypeVar("Parts", bound=tuple[Tensor, ...])


def enlarge(array: Tensor, axis: int, length: int, fill: float = 0) -> Tensor:
    """A copy that is longer along an axis, or the array itself if it is long enough."""
    if array.shape[axis] >= length:
        return array
    shape = list(array.shape)
    shape[axis] = length
    larger = torch.full(shape, fill, dtype=array.dtype, device=array.device)
    larger.narrow(axis, 0, array.shape[axis]).copy_(array)
    return larger


def power(n: int, least: int, most: int) -> int:
    """The next power of two, within limits."""
    return min(most, max(least, 1 << (max(n, 1) - 1).bit_length()))


@contextmanager
def full_precision() -> Iterator[None]:
    """Products of float32 as float32, whatever the rest of the program prefers; it is one setting for all threads."""
    with PRODUCTS:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def spare(device: torch.device, needed: int = 0) -> Iterator[None]:
    """Make sure of `needed` bytes beyond what is allocated within, or say what to do.

    They are allocated and given back, to torch and not to the device: what follows finds them there.
    """
    try:
        yield
        torch.empty(needed, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError as error:
        raise MemoryError(
            f"{device} is out of memory, and nothing was changed: {str(error).splitlines()[0]} "
            "Take a smaller capacity, free what else is there, or use device='cpu'"
        ) from error


def together(parts: list[Parts]) -> Parts:
    """Arrays (nodes, batch) from those of parts of the batch."""
    return parts[0] if len(parts) == 1 else cast("Parts", tuple(torch.cat(field, 1) for field in zip(*parts)))


def exact_products(device: torch.device) -> bool:
    """Whether products of float64 are as fast as those of float32: on chips for computing centres they are."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) in ((8, 0), (9, 0), (10, 0))
