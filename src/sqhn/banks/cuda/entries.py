"""How often each (node, child, value, neuron) was seen, as sorted lists on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Entries:
    """A sorted list of entries: each is a (node, child, value, neuron), packed into one integer key, and its count.

    limits: the numbers of nodes, children, values and neurons. other: the same list sorted by neuron, if it is at hand.
    """

    def __init__(
        self,
        limits: tuple[int, int, int, int],
        key: Tensor,
        count: Tensor,
        other: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.limits, self.key, self.count, self.other = limits, key, count, other

    def pack(self, n: Any, q: Any, k: Any, j: Any) -> Tensor:
        """The keys of entries; sorted, they are in the order (node, child, value, neuron)."""
        _, children, values, neurons = self.limits
        packed: Tensor = ((n * children + q) * values + k) * neurons + j
        return packed.to(self.key.dtype)

    def pack_by_neuron(self, n: Any, q: Any, k: Any, j: Any) -> Tensor:
        """The same, in the order (node, neuron, child, value)."""
        _, children, values, neurons = self.limits
        packed: Tensor = ((n * neurons + j) * children + q) * values + k
        return packed.to(self.key.dtype)

    @property
    def never(self) -> int:
        """A key that sorts after all others."""
        return torch.iinfo(self.key.dtype).max

    @property
    def fields(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Node, child, value and neuron of every entry."""
        _, children, values, neurons = self.limits
        key = self.key.long()
        rest = key // neurons
        first = rest // values
        return first // children, first % children, rest % values, key % neurons

    def by_neuron(self) -> tuple[Tensor, Tensor]:
        """Keys in the order (node, neuron, child, value), and counts."""
        if self.other is not None:
            return self.other
        key, order = self.pack_by_neuron(*self.fields).sort()
        return key, self.count[order]

    def rows(self) -> tuple[Tensor, ...]:
        """Node, neuron, child, value and count of every entry, sorted in that order."""
        key, count = self.by_neuron()
        _, children, values, neurons = self.limits
        of_child = key.long() // values
        of_neuron = of_child // children
        return of_neuron // neurons, of_neuron % neurons, of_child % children, key.long() % values, count.long()

    def of_child(self, n: Any, q: Any, j: Any) -> tuple[Tensor, Tensor]:
        """Where the entries of neurons and children begin and end in `by_neuron`."""
        key, _ = self.by_neuron()
        low = self.pack_by_neuron(n, q, 0, j)
        return torch.searchsorted(key, low), torch.searchsorted(key, low + self.limits[2])

    def in_both_orders(self) -> Entries:
        """The same list, with the one sorted by neuron at hand."""
        return Entries(self.limits, self.key, self.count, self.by_neuron())

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
