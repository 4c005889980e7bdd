"""Small things that torch does not say in one word, and what every bank on a GPU keeps about its neurons."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from sqhn.banks.interface import State
from sqhn.banks.saved import KINDS, check_growth
from sqhn.level import Level

__all__ = [
    "WALKERS",
    "Neurons",
    "enlarge",
    "exact_products",
    "full_precision",
    "power",
    "spare",
    "together",
]

PRODUCTS = threading.Lock()
WALKERS = 8  # warps of a program that takes a chunk's decisions


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


def together(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Two arrays (nodes, batch) from those of parts of the batch."""
    if len(parts) == 1:
        return parts[0]
    first, second = (torch.cat(field, 1) for field in zip(*parts))
    return first, second


def exact_products(device: torch.device) -> bool:
    """Whether products of float64 are as fast as those of float32: on chips for computing centres they are."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) in ((8, 0), (9, 0), (10, 0))


class Neurons:
    """Counts, mean activities, last writes and growth of the neurons of a level; (nodes, room), room grows as needed.

    most: an upper bound of the neurons of any node that needs no look at the device.
    """

    def __init__(self, nodes: int, level: Level, device: torch.device) -> None:
        self.level, self.device = level, device
        self.c = torch.zeros((nodes, 0), dtype=torch.int64, device=device)
        self.mu = torch.zeros((nodes, 0), dtype=torch.float64, device=device)
        self.written = torch.zeros((nodes, 0), dtype=torch.int64, device=device)
        self.grown = torch.zeros(nodes, dtype=torch.int64, device=device)
        self.step = 0
        self.most = 0

    @property
    def room(self) -> int:
        return self.c.shape[1]

    def wanted(self, more: int) -> int:
        """How much room `more` samples may need: geometric growth, never beyond the capacity."""
        capacity = self.level.capacity
        if min(self.most + more, capacity) > self.room:
            self.most = int(self.grown.max())  # waits for the device, but less and less often
        need = min(self.most + more, capacity)
        return self.room if need <= self.room else min(max(need, 2 * self.room), capacity)

    def reserve(self, room: int) -> None:
        self.mu, self.written = enlarge(self.mu, 1, room), enlarge(self.written, 1, room)
        self.c = enlarge(self.c, 1, room)

    def learned(self, samples: int) -> None:
        """Count samples that each may have grown a neuron at every node."""
        self.step += samples
        self.most = min(self.most + samples, self.level.capacity)

    def append(self, count: int) -> Tensor:
        """Count `count` new neurons at every node; their indices (nodes, count)."""
        each = torch.arange(count, device=self.device)
        new = self.grown[:, None] + each
        self.c.scatter_(1, new, 1)
        self.mu.scatter_(1, new, 1.0)
        self.written.scatter_(1, new, (self.step + 1 + each).expand_as(new))
        self.grown += count
        self.learned(count)
        return new

    def thresholds(self, batch: int) -> Tensor:
        """The growth thresholds of the next steps."""
        eps = np.asarray(self.level.threshold(self.step + np.arange(batch)), np.float64)
        return torch.from_numpy(eps).to(self.device, non_blocking=True)

    def there(self) -> Tensor:
        """Which places (nodes, room) hold a neuron."""
        return torch.arange(self.room, device=self.device) < self.grown[:, None]

    def state(self) -> State:
        """What must be saved, as copies: growth, and what is known of the grown, one node after another."""
        there = self.there()
        parts = {"grown": self.grown.clone(), **{name: getattr(self, name)[there] for name in KINDS}}
        return {name: part.cpu().numpy() for name, part in parts.items()}

    def restore(self, state: State, step: int) -> None:
        """Take over a saved state, into new neurons."""
        grown = check_growth(state, len(self.grown), self.level)
        self.grown.copy_(torch.from_numpy(grown))
        self.step, self.most = step, int(grown.max())
        self.reserve(self.most)
        there = self.there()
        for name in KINDS:
            getattr(self, name)[there] = torch.from_numpy(state[name]).to(self.device)
