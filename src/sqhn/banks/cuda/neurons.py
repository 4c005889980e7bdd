"""What every bank on a GPU keeps about its neurons."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sqhn.banks.cuda.arrays import enlarge
from sqhn.banks.interface import State
from sqhn.banks.saved import KINDS, check_growth
from sqhn.level import Level

__all__ = ["Neurons"]


class Neurons:
    """Counts, mean activities, last writes and growth of the neurons of a level; (nodes, room), room grows as needed.

    most: an upper bound of the neurons of any node that needs no look at the device. free: how many places of a node
    were forgotten, and count 0; gaps: whether any ever were.
    """

    def __init__(self, nodes: int, level: Level, device: torch.device) -> None:
        self.level, self.device = level, device
        self.c = torch.zeros((nodes, 0), dtype=torch.int64, device=device)
        self.mu = torch.zeros((nodes, 0), dtype=torch.float64, device=device)
        self.written = torch.zeros((nodes, 0), dtype=torch.int64, device=device)
        self.grown = torch.zeros(nodes, dtype=torch.int64, device=device)
        self.free = torch.zeros(nodes, dtype=torch.int64, device=device)
        self.gaps = False
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

    def living(self, most: int) -> Tensor:
        """Which of the first places hold a neuron that was not forgotten: (nodes, 1, most)."""
        there = torch.arange(most, device=self.device) < self.grown[:, None]
        return (there & (self.c[:, :most] > 0) if self.gaps else there)[:, None, :]

    def forget(self, j: Tensor) -> None:
        """Free the places of different neurons of the only node."""
        self.c[0, j], self.mu[0, j], self.written[0, j] = 0, 0.0, 0
        self.free += len(j)
        self.gaps = True

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
        self.free = (there & (self.c == 0)).sum(1)
        self.gaps = bool(self.free.any())
