"""How often each (node, child, value, neuron) was seen, as sorted lists on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


def packed(sizes: Sequence[int], first: Any, *others: Any) -> Any:
    """One integer for several; sizes: the limits of all but the first, by which they sort in this order."""
    for size, other in zip(sizes, others):
        first = first * size + other
    return first


def unpacked(sizes: Sequence[int], key: Tensor) -> list[Tensor]:
    """The integers that were packed."""
    fields = []
    for size in reversed(sizes):
        fields.append(key % size)
        key = key // size
    return [key, *reversed(fields)]


class Entries:
    """A sorted list of entries: each is a (node, child, value, neuron), packed into one integer key, and its count.

    limits: the numbers of nodes, children, values and neurons.
    """

    def __init__(self, limits: tuple[int, int, int, int], key: Tensor, count: Tensor) -> None:
        self.limits, self.key, self.count = limits, key, count
        _, children, values, neurons = limits
        self.sizes, self.sizes_by_neuron = (children, values, neurons), (neurons, children, values)

    def pack(self, n: Any, q: Any, k: Any, j: Any) -> Tensor:
        """The keys of entries; sorted, they are in the order (node, child, value, neuron)."""
        key: Tensor = packed(self.sizes, n, q, k, j).to(self.key.dtype)
        return key

    @property
    def fields(self) -> list[Tensor]:
        """Node, child, value and neuron of every entry."""
        return unpacked(self.sizes, self.key.long())

    @cached_property
    def by_neuron(self) -> tuple[Tensor, Tensor]:
        """Keys in the order (node, neuron, child, value), and counts."""
        n, q, k, j = self.fields
        key, order = packed(self.sizes_by_neuron, n, j, q, k).to(self.key.dtype).sort()
        return key, self.count[order]

    def rows(self) -> tuple[Tensor, ...]:
        """Node, neuron, child, value and count of every entry, sorted in that order."""
        key, count = self.by_neuron
        return (*unpacked(self.sizes_by_neuron, key.long()), count.long())

    def of_child(self, n: Any, q: Any, j: Any) -> tuple[Tensor, Tensor]:
        """The begin and end, in `by_neuron`, of the entries of neurons and children."""
        key, _ = self.by_neuron
        low = packed(self.sizes_by_neuron, n, j, q, 0).to(key.dtype)
        return torch.searchsorted(key, low), torch.searchsorted(key, low + self.limits[2])

    def lookup(self, n: Any, q: Any, k: Any, j: Any) -> Tensor:
        """The counts of entries, 0 where there is none."""
        wanted = self.pack(n, q, k, j)
        if not len(self.key):
            return torch.zeros(wanted.shape, dtype=torch.int32, device=wanted.device)
        at = torch.searchsorted(self.key, wanted).clamp(max=len(self.key) - 1)
        return torch.where(self.key[at] == wanted, self.count[at], 0)

    def merged(self, key: Tensor, count: Tensor) -> Entries:
        """This list and more entries, in any order; without those that count 0."""
        keys, order = torch.cat([self.key, key]).sort()
        counts = torch.cat([self.count, count])[order]
        unique, group = torch.unique_consecutive(keys, return_inverse=True)
        total = torch.zeros(len(unique), dtype=torch.int32, device=key.device).index_add_(0, group, counts)
        counted = total > 0
        return Entries(self.limits, unique[counted], total[counted])
